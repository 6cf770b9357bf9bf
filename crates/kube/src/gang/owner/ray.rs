//! `RayCluster`s: a head and groups of workers.

use std::sync::Arc;

use serde::Deserialize;

use super::Owner;
use crate::gang::key::{Refused, Source};
use crate::gang::names::ray;
use crate::gang::spec::{GangSpec, MEMBERS_MAX, PodTemplate, RoleSpec};

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

pub(super) fn spec_of(owner: &Owner<'_>) -> Result<Vec<GangSpec>, Refused> {
    let cluster: ClusterSpec = owner.spec()?;
    if cluster.worker_group_specs.len() > GROUPS_MAX {
        let problem = format!("has {} entries", cluster.worker_group_specs.len());
        return Err(owner.refused("spec.workerGroupSpecs", problem, format!("write at most {GROUPS_MAX}")));
    }
    let mut roles = vec![RoleSpec::new(ray::HEAD, 1, Some(Arc::new(cluster.head_group_spec.template)))];
    for group in cluster.worker_group_specs {
        if !group.suspend {
            roles.push(role(owner, group, cluster.enable_in_tree_autoscaling)?);
        }
    }
    let mut spec = GangSpec::new(owner.key(Source::RayCluster), Some(owner.object.clone()), roles);
    spec.is_suspended = cluster.suspend;
    spec.suspend = Some(owner.suspend("rayclusters", &["spec", "suspend"]));
    owner.fill(&mut spec)?;
    Ok(vec![spec])
}

/// Where Ray's autoscaler decides, the gang starts with the fewest, and the others join it.
fn role(owner: &Owner<'_>, group: WorkerGroup, is_scaled: bool) -> Result<RoleSpec, Refused> {
    let field = format!("spec.workerGroupSpecs[{}]", group.group_name);
    let fewest = owner.count(&format!("{field}.minReplicas"), group.min_replicas, 0)?;
    let most = owner.count(&format!("{field}.maxReplicas"), group.max_replicas, MEMBERS_MAX)?;
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
