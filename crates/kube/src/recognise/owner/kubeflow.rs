//! The jobs of Kubeflow's training operator and of its MPI operator: roles with replicas.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::Owner;
use crate::recognise::key::{Refused, Source};
use crate::recognise::spec::{GangSpec, PodTemplate, RoleSpec};

pub(super) const SUSPEND: &[&str] = &["spec", "runPolicy", "suspend"];
const LAUNCHER: &str = "launcher";
const WORKER: &str = "worker";

/// A kind of job.
pub(in crate::recognise) struct Kind {
    pub(super) kind: &'static str,
    pub(in crate::recognise) source: Source,
    pub(super) plural: &'static str,
    /// The field of `spec` that has the roles.
    replicas: &'static str,
    /// Roles in the order of their ranks; what is not named follows by name.
    order: &'static [&'static str],
}

pub(super) const KINDS: [Kind; 6] = [
    Kind {
        kind: "PyTorchJob",
        source: Source::PyTorchJob,
        plural: "pytorchjobs",
        replicas: "pytorchReplicaSpecs",
        order: &["master", WORKER],
    },
    Kind {
        kind: "MPIJob",
        source: Source::MpiJob,
        plural: "mpijobs",
        replicas: "mpiReplicaSpecs",
        order: &[WORKER, LAUNCHER],
    },
    Kind {
        kind: "TFJob",
        source: Source::TfJob,
        plural: "tfjobs",
        replicas: "tfReplicaSpecs",
        order: &["chief", "master", WORKER, "ps", "evaluator"],
    },
    Kind {
        kind: "XGBoostJob",
        source: Source::XgBoostJob,
        plural: "xgboostjobs",
        replicas: "xgbReplicaSpecs",
        order: &["master", WORKER],
    },
    Kind {
        kind: "PaddleJob",
        source: Source::PaddleJob,
        plural: "paddlejobs",
        replicas: "paddleReplicaSpecs",
        order: &["master", WORKER],
    },
    Kind {
        kind: "JAXJob",
        source: Source::JaxJob,
        plural: "jaxjobs",
        replicas: "jaxReplicaSpecs",
        order: &[WORKER],
    },
];

pub(in crate::recognise) fn kind_of(kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|known| known.kind == kind)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JobSpec {
    #[serde(default)]
    run_policy: RunPolicy,
    elastic_policy: Option<ElasticPolicy>,
    launcher_creation_policy: Option<String>,
    #[serde(default)]
    run_launcher_as_worker: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RunPolicy {
    suspend: bool,
    active_deadline_seconds: Option<i64>,
    scheduling_policy: Option<SchedulingPolicy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SchedulingPolicy {
    min_available: Option<i64>,
    queue: Option<String>,
    priority_class: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ElasticPolicy {
    min_replicas: Option<i64>,
}

#[derive(Deserialize)]
struct ReplicaSpec {
    replicas: Option<i64>,
    #[serde(default)]
    template: PodTemplate,
}

pub(super) fn spec_of(owner: &Owner<'_>) -> Result<Vec<GangSpec>, Refused> {
    let Some(kind) = kind_of(&owner.object.kind) else { return Ok(Vec::new()) };
    let job: JobSpec = owner.spec()?;
    let roles = roles(owner, kind, &job)?;
    let mut spec = GangSpec::new(owner.key(kind.source), Some(owner.object.clone()), roles);
    spec.is_suspended = job.run_policy.suspend;
    spec.suspend = Some(owner.suspend(kind.plural, SUSPEND));
    spec.time_limit_s = job.run_policy.active_deadline_seconds;
    let is_v1 = owner.object.api_version.ends_with("/v1");
    // Releases of the training operator differ in when they create it; the MPI operator says.
    let launcher_waits = is_v1 || job.launcher_creation_policy.as_deref() == Some("WaitForWorkersReady");
    if kind.source == Source::MpiJob && launcher_waits && spec.role(LAUNCHER).is_some() {
        spec.late.push(LAUNCHER.into());
    }
    let policy = job.run_policy.scheduling_policy;
    if let Some(policy) = policy {
        spec.queue = policy.queue.filter(|queue| !queue.is_empty()).map(Into::into);
        spec.priority_class = policy.priority_class.filter(|class| !class.is_empty());
        if policy.min_available.is_some() {
            let field = "spec.runPolicy.schedulingPolicy.minAvailable";
            let min = owner.count(field, policy.min_available, 0)?;
            owner.set_min(&mut spec, min, field)?;
        }
    }
    owner.fill(&mut spec)?;
    Ok(vec![spec])
}

fn roles(owner: &Owner<'_>, kind: &Kind, job: &JobSpec) -> Result<Vec<RoleSpec>, Refused> {
    let field = format!("spec.{}", kind.replicas);
    let value = owner.raw.data.get("spec").and_then(|spec| spec.get(kind.replicas));
    let value = value.ok_or_else(|| owner.refused(&field, "is missing", "give at least one role"))?;
    let replicas = BTreeMap::<String, ReplicaSpec>::deserialize(value).map_err(|error| {
        let problem = format!("cannot be read: {error}");
        owner.refused(&field, problem, "write a role like Worker, with replicas and template")
    })?;
    let mut roles = Vec::with_capacity(replicas.len());
    for (name, replica) in replicas {
        let size = owner.count(&format!("{field}.{name}.replicas"), replica.replicas, 1)?;
        let name = name.to_lowercase();
        let mut role = RoleSpec::new(&name, size, Some(Arc::new(replica.template)));
        if name == WORKER {
            // The launcher is number 0 where it works too.
            role.first_index = u32::from(job.run_launcher_as_worker);
            if let Some(elastic) = &job.elastic_policy {
                let min = owner.count("spec.elasticPolicy.minReplicas", elastic.min_replicas, size)?;
                role.min = min.min(size);
            }
        }
        if size > 0 {
            roles.push(role);
        }
    }
    roles.sort_by_key(|role| kind.order.iter().position(|known| *known == &*role.name).unwrap_or(usize::MAX));
    if roles.is_empty() {
        return Err(owner.refused(&field, "has no role with replicas", "give at least one role"));
    }
    Ok(roles)
}
