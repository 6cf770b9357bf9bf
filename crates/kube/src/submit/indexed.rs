//! An indexed Job whose pods are the ranks, and the Service by which they find each other.

use serde_json::{Value, json};

use super::pod::{Container, template, user_variables, variable};
use super::{Launch, Manifest, PORT, Work, mpi};

/// The Job first: what is created for it belongs to it.
///
/// # Errors
/// When no key for MPI could be made.
pub fn indexed(work: &Work) -> Result<Vec<Manifest>, super::Refused> {
    work.check()?;
    let mut manifests = vec![job(work), service(work)];
    if let Launch::Mpi { .. } = work.launch {
        manifests.push(mpi::key(work)?);
    }
    Ok(manifests)
}

fn job(work: &Work) -> Manifest {
    let (command, volumes) = match work.launch {
        Launch::Mpi { per_pod } => (mpi::command(work, per_pod), vec![mpi::volume(work)]),
        _ => (json!(work.argv), Vec::new()),
    };
    let env = env(work).into_iter().chain(user_variables(work)).collect();
    let container = Container { name: "main", command: Some(command), env, has_gpus: true, volumes };
    let mut template = template(work, container);
    template["spec"]["subdomain"] = json!(work.name);
    let mut spec = json!({
        "suspend": true,
        "completions": work.workers,
        "parallelism": work.workers,
        "completionMode": "Indexed",
        "backoffLimit": work.retry,
        "template": template,
    });
    if let Some(limit) = work.time_limit_s {
        spec["activeDeadlineSeconds"] = json!(limit);
    }
    if let Launch::Mpi { .. } = work.launch {
        // The workers serve for as long as they are let: the launcher alone says when it is done.
        spec["successPolicy"] = json!({ "rules": [{ "succeededIndexes": "0" }] });
    }
    let object =
        json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": work.metadata(), "spec": spec });
    Manifest { plural: "jobs", object }
}

/// Without an address: it gives every pod a name, and that before it is ready, as ranks meet while they start.
fn service(work: &Work) -> Manifest {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": work.name, "labels": work.labels() },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": { super::JOB: work.name },
            "ports": [{ "name": "ranks", "port": PORT }],
        },
    });
    Manifest { plural: "services", object }
}

/// The host of a pod, from every pod of the job.
pub(super) fn host(work: &Work, index: u32) -> String {
    format!("{name}-{index}.{name}", name = work.name)
}

/// What a pod is told of its place. It sees its own GPUs alone, so it is the only rank where it is.
fn env(work: &Work) -> Vec<Value> {
    let index = |name: &str| {
        let path = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
        json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } })
    };
    let (size, master) = (work.workers, host(work, 0));
    let mut env = vec![
        variable("PHALANX_JOB_NAME", &work.name),
        index("PHALANX_RANK"),
        variable("PHALANX_WORLD_SIZE", size),
    ];
    match work.launch {
        Launch::Ranks => {
            env.extend(["RANK", "GROUP_RANK", "ROLE_RANK"].map(index));
            env.extend(
                ["WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"].map(|name| variable(name, size)),
            );
            env.extend([variable("LOCAL_RANK", 0), variable("LOCAL_WORLD_SIZE", 1)]);
        }
        Launch::Torchrun { per_pod } => {
            let per_pod = work.ranks(per_pod);
            env.extend(["NODE_RANK", "PET_NODE_RANK"].map(index));
            env.extend(["NNODES", "PET_NNODES"].map(|name| variable(name, size)));
            env.extend(["NPROC_PER_NODE", "PET_NPROC_PER_NODE"].map(|name| variable(name, per_pod)));
            env.push(variable("PET_MASTER_ADDR", &master));
            env.push(variable("PET_MASTER_PORT", PORT));
            env.push(variable("PET_RDZV_ID", &work.name));
        }
        Launch::Jax => {
            env.push(variable("JAX_COORDINATOR_ADDRESS", format_args!("{master}:{PORT}")));
            env.push(variable("JAX_NUM_PROCESSES", size));
            env.push(index("JAX_PROCESS_ID"));
        }
        Launch::Mpi { .. } => env.extend(mpi::env()),
        Launch::None => {}
    }
    if matches!(work.launch, Launch::Ranks | Launch::Torchrun { .. }) {
        env.push(variable("MASTER_ADDR", master));
        env.push(variable("MASTER_PORT", PORT));
    }
    env
}
