//! `RayCluster`s: a head and groups of workers; and `RayJob`s, which make one.
//!
//! A suspended `RayJob` deletes its cluster, and makes one of another name when it goes on. So its pods are a gang of the
//! job, which is there all the time; the cluster, while it is there, says how large the gang is by now.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::DynamicObject;
use serde::Deserialize;

use super::Owner;
use crate::recognise::key::{GangKey, Refused, Source};
use crate::recognise::names::ray;
use crate::recognise::spec::{GangSpec, MEMBERS_MAX, PodTemplate, RoleSpec};

/// The most groups of workers.
const GROUPS_MAX: usize = 256;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterSpec {
    head_group_spec: HeadGroup,
    #[serde(default)]
    worker_group_specs: Vec<WorkerGroup>,
    #[serde(default)]
    suspend: bool,
    #[serde(default)]
    enable_in_tree_autoscaling: bool,
}

#[derive(Deserialize)]
struct HeadGroup {
    #[serde(default)]
    template: PodTemplate,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkerGroup {
    group_name: String,
    replicas: Option<i64>,
    min_replicas: Option<i64>,
    max_replicas: Option<i64>,
    num_of_hosts: Option<i64>,
    #[serde(default)]
    suspend: bool,
    #[serde(default)]
    template: PodTemplate,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JobSpec {
    ray_cluster_spec: Option<ClusterSpec>,
    cluster_selector: Option<BTreeMap<String, String>>,
    #[serde(default)]
    suspend: bool,
    #[serde(default)]
    shutdown_after_job_finishes: bool,
    submission_mode: Option<String>,
}

pub(super) fn spec_of(owner: &Owner<'_>) -> Result<Vec<GangSpec>, Refused> {
    let cluster: ClusterSpec = owner.spec()?;
    let is_suspended = cluster.suspend;
    let roles = roles(owner, cluster, "spec")?;
    let job = owner.controller().filter(|above| above.is(ray::GROUP, ray::JOB));
    let key = match &job {
        Some(job) => GangKey::new(Source::RayJob, &job.namespace, &job.name).of_uid(job.uid.as_deref()),
        None => owner.key(Source::RayCluster),
    };
    let mut spec = GangSpec::new(key, Some(owner.object.clone()), roles);
    spec.is_suspended = is_suspended;
    spec.suspend = Some(owner.suspend("rayclusters", super::SUSPEND));
    owner.fill(&mut spec)?;
    Ok(vec![spec])
}

/// One that uses the cluster of somebody else makes no pods of a gang.
pub(super) fn spec_of_job(owner: &Owner<'_>) -> Result<Vec<GangSpec>, Refused> {
    let mut job: JobSpec = owner.spec()?;
    let may_suspend = job.may_be_suspended() && !has_ended(owner.raw);
    let Some(cluster) = job.ray_cluster_spec.take() else { return Ok(Vec::new()) };
    let roles = roles(owner, cluster, "spec.rayClusterSpec")?;
    let mut spec = GangSpec::new(owner.key(Source::RayJob), Some(owner.object.clone()), roles);
    spec.is_suspended = job.suspend;
    spec.suspend = may_suspend.then(|| owner.suspend("rayjobs", super::SUSPEND));
    owner.fill(&mut spec)?;
    Ok(vec![spec])
}

/// Whether a `RayJob` has completed or failed; its cluster may be there for longer.
pub(crate) fn has_ended(job: &DynamicObject) -> bool {
    let stage = job.data.pointer("/status/jobDeploymentStatus").and_then(|stage| stage.as_str());
    matches!(stage, Some("Complete" | "Failed"))
}

impl JobSpec {
    /// KubeRay takes a suspended one for a mistake, and never looks at it again, unless it shuts its own cluster down; and
    /// one that waits for a person to submit does not look at the field.
    fn may_be_suspended(&self) -> bool {
        let has_own = self.cluster_selector.as_ref().is_none_or(BTreeMap::is_empty);
        let is_interactive = self.submission_mode.as_deref() == Some("InteractiveMode");
        self.shutdown_after_job_finishes && has_own && !is_interactive
    }
}

/// `at` is where the cluster's specification stands in its owner.
fn roles(owner: &Owner<'_>, cluster: ClusterSpec, at: &str) -> Result<Vec<RoleSpec>, Refused> {
    let field = format!("{at}.workerGroupSpecs");
    if cluster.worker_group_specs.len() > GROUPS_MAX {
        let problem = format!("has {} entries", cluster.worker_group_specs.len());
        return Err(owner.refused(&field, problem, format!("write at most {GROUPS_MAX}")));
    }
    let mut roles = vec![RoleSpec::new(ray::HEAD, 1, Some(Arc::new(cluster.head_group_spec.template)))];
    for group in cluster.worker_group_specs {
        if !group.suspend {
            roles.push(role(owner, group, cluster.enable_in_tree_autoscaling, &field)?);
        }
    }
    Ok(roles)
}

/// Where Ray's autoscaler decides, the gang starts with the fewest, and the others join it.
fn role(owner: &Owner<'_>, group: WorkerGroup, is_scaled: bool, at: &str) -> Result<RoleSpec, Refused> {
    let field = format!("{at}[{}]", group.group_name);
    let fewest = owner.count(&format!("{field}.minReplicas"), group.min_replicas, 0)?;
    // Its operator writes 2147483647 where nobody says a most.
    let most = group.max_replicas.map(|most| most.min(i64::from(MEMBERS_MAX)));
    let most = owner.count(&format!("{field}.maxReplicas"), most, MEMBERS_MAX)?;
    if fewest > most {
        let problem = format!("is {fewest}, and maxReplicas is {most}");
        return Err(owner.refused(&format!("{field}.minReplicas"), problem, "ask for no more than the most"));
    }
    let replicas = owner.count(&format!("{field}.replicas"), group.replicas, fewest)?.clamp(fewest, most);
    let hosts = owner.count(&format!("{field}.numOfHosts"), group.num_of_hosts, 1)?.max(1);
    let size = replicas.checked_mul(hosts).filter(|n| *n <= MEMBERS_MAX).ok_or_else(|| {
        let problem = format!("is {replicas}, with {hosts} hosts in each");
        owner.refused(&format!("{field}.replicas"), problem, format!("ask for at most {MEMBERS_MAX} pods"))
    })?;
    let mut role = RoleSpec::new(&group.group_name, size, Some(Arc::new(group.template)));
    role.per_copy = hosts;
    if is_scaled {
        role.min = fewest.saturating_mul(hosts).min(size);
    }
    Ok(role)
}
