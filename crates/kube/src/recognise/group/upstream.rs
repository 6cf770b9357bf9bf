//! Upstream's `Workload` (1.35) and `PodGroup` (1.36 `v1alpha2`, 1.37 `v1alpha3` and `v1beta1`).

use serde::Deserialize;

use super::Group;
use crate::recognise::key::{Refused, Source};
use crate::recognise::spec::{GangSpec, LevelRef};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodGroupSpec {
    #[serde(default)]
    scheduling_policy: Policy,
    #[serde(default)]
    scheduling_constraints: Constraints,
    priority_class_name: Option<String>,
    /// From 1.37 on.
    preemption_policy: Option<String>,
    /// From 1.37 on.
    parent_composite_pod_group_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Policy {
    gang: Option<GangPolicy>,
    basic: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GangPolicy {
    min_count: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Constraints {
    topology: Vec<TopologyConstraint>,
}

#[derive(Deserialize)]
struct TopologyConstraint {
    key: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkloadSpec {
    #[serde(default)]
    pod_groups: Vec<WorkloadPodGroup>,
}

#[derive(Deserialize)]
struct WorkloadPodGroup {
    name: String,
    #[serde(default)]
    policy: Policy,
}

pub(super) fn pod_group(group: &Group<'_>) -> Result<Vec<GangSpec>, Refused> {
    let pod_group: PodGroupSpec = group.spec()?;
    if let Some(parent) = pod_group.parent_composite_pod_group_name.filter(|name| !name.is_empty()) {
        let problem = format!("is {parent:?}, and groups of groups are not scheduled together");
        let remedy = "leave it out, and put all pods that start together into one PodGroup";
        return Err(group.refused("spec.parentCompositePodGroupName", problem, remedy));
    }
    let min = min_of(group, "spec.schedulingPolicy", &pod_group.scheduling_policy)?;
    let mut spec = group.at_least(group.key(Source::PodGroup), min)?;
    spec.priority_class =
        pod_group.priority_class_name.filter(|class| !class.is_empty()).or(spec.priority_class);
    spec.is_patient = pod_group.preemption_policy.as_deref() == Some("Never");
    match pod_group.scheduling_constraints.topology.as_slice() {
        [] => {}
        [only] => spec.topology.required = Some(LevelRef::Label(only.key.clone())),
        many => {
            let problem = format!("has {} entries", many.len());
            let remedy = "write one, as upstream allows; narrower parts go to phalanx.dev/segments";
            return Err(group.refused("spec.schedulingConstraints.topology", problem, remedy));
        }
    }
    Ok(vec![spec])
}

/// In 1.35 the groups of pods stand in the `Workload`; later ones only have templates of `PodGroup`s, which are objects.
pub(super) fn workload(group: &Group<'_>) -> Result<Vec<GangSpec>, Refused> {
    if !group.object.api_version.ends_with("/v1alpha1") {
        return Ok(Vec::new());
    }
    let workload: WorkloadSpec = group.spec()?;
    let gang = |of: WorkloadPodGroup| {
        let min = min_of(group, &format!("spec.podGroups[{}].policy", of.name), &of.policy)?;
        group.at_least(group.key(Source::Workload).part(&of.name), min)
    };
    workload.pod_groups.into_iter().map(gang).collect()
}

/// The fewest pods; 0 where they start one by one.
fn min_of(group: &Group<'_>, field: &str, policy: &Policy) -> Result<u32, Refused> {
    match (&policy.gang, &policy.basic) {
        (Some(gang), None) => {
            let field = format!("{field}.gang.minCount");
            let min = group.count(&field, Some(gang.min_count))?;
            if min == 0 {
                return Err(group.refused(&field, "is 0", "ask for at least one pod"));
            }
            Ok(min)
        }
        (None, Some(_)) => Ok(0),
        (Some(_), Some(_)) => Err(group.refused(field, "has both basic and gang", "choose one of them")),
        (None, None) => Err(group.refused(field, "has neither basic nor gang", "choose one of them")),
    }
}
