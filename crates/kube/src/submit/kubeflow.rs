//! The jobs of Kubeflow's operators, for clusters that have one.

use serde_json::{Value, json};

use super::pod::{Container, template, user_variables};
use super::{Launch, Manifest, Refused, Work};

/// An `MPIJob` in the version that the cluster serves: `kubeflow.org/v1` or `kubeflow.org/v2beta1`. Its launcher stands
/// beside the workers and has no GPU.
///
/// # Errors
/// See [`Work::check`].
pub fn mpi_job(work: &Work, api_version: &str) -> Result<Vec<Manifest>, Refused> {
    work.check()?;
    let slots = match work.launch {
        Launch::Mpi { per_pod } => work.ranks(per_pod),
        _ => 1,
    };
    // Without a command a worker is what the operator makes of it.
    let worker = replica(work, "mpi", work.workers, None, true);
    let launcher = replica(work, "mpi", 1, Some(json!(work.argv)), false);
    let spec = json!({
        "slotsPerWorker": slots,
        "runPolicy": run_policy(work),
        "mpiReplicaSpecs": { "Launcher": launcher, "Worker": worker },
    });
    Ok(vec![manifest(work, api_version, "MPIJob", "mpijobs", &spec)])
}

/// A `PyTorchJob`: a master and the other workers.
///
/// # Errors
/// See [`Work::check`].
pub fn pytorch_job(work: &Work, api_version: &str) -> Result<Vec<Manifest>, Refused> {
    work.check()?;
    let replica = |count| replica(work, "pytorch", count, Some(json!(work.argv)), true);
    let mut replicas = json!({ "Master": replica(1) });
    if work.workers > 1 {
        replicas["Worker"] = replica(work.workers - 1);
    }
    let mut spec = json!({ "runPolicy": run_policy(work), "pytorchReplicaSpecs": replicas });
    if let Launch::Torchrun { per_pod } = work.launch {
        spec["nprocPerNode"] = json!(work.ranks(per_pod).to_string());
    }
    Ok(vec![manifest(work, api_version, "PyTorchJob", "pytorchjobs", &spec)])
}

fn replica(work: &Work, container: &str, count: u32, command: Option<Value>, has_gpus: bool) -> Value {
    let env = user_variables(work).collect();
    let container = Container { name: container, command, env, has_gpus, volumes: Vec::new() };
    json!({ "replicas": count, "restartPolicy": "Never", "template": template(work, container) })
}

fn run_policy(work: &Work) -> Value {
    let mut policy = json!({ "suspend": true, "cleanPodPolicy": "Running", "backoffLimit": work.retry });
    if let Some(limit) = work.time_limit_s {
        policy["activeDeadlineSeconds"] = json!(limit);
    }
    policy
}

fn manifest(work: &Work, api_version: &str, kind: &str, plural: &'static str, spec: &Value) -> Manifest {
    let object =
        json!({ "apiVersion": api_version, "kind": kind, "metadata": work.metadata(), "spec": spec });
    Manifest { plural, object }
}
