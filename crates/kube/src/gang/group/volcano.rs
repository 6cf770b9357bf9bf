//! Volcano's `PodGroup`.

use std::collections::BTreeMap;

use serde::Deserialize;

use kube::api::DynamicObject;

use super::{Group, names};
use crate::gang::key::{ObjectRef, Refused, Source, controller};
use crate::gang::spec::{GangSpec, LevelRef, RoleSpec, SegmentRule, TopologyRule};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodGroupSpec {
    min_member: Option<i64>,
    #[serde(default)]
    min_task_member: BTreeMap<String, i64>,
    queue: Option<String>,
    priority_class_name: Option<String>,
    network_topology: Option<NetworkTopology>,
    #[serde(default)]
    sub_group_policy: Vec<SubGroup>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NetworkTopology {
    mode: Option<String>,
    highest_tier_allowed: Option<i64>,
    highest_tier_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubGroup {
    name: String,
    network_topology: Option<NetworkTopology>,
    sub_group_size: Option<i64>,
}

/// The Volcano Job whose controller made a group for its pods.
#[must_use]
pub fn volcano_job(group: &DynamicObject) -> Option<ObjectRef> {
    let is_group = group.types.as_ref().is_some_and(|types| {
        types.kind == "PodGroup"
            && types.api_version.split_once('/').is_some_and(|(of, _)| of == names::volcano::GROUP)
    });
    controller(&group.metadata).filter(|owner| is_group && owner.is(names::volcano::JOBS, "Job"))
}

pub(super) fn spec_of(group: &Group<'_>) -> Result<Vec<GangSpec>, Refused> {
    let pod_group: PodGroupSpec = group.spec()?;
    let min = group.count("spec.minMember", pod_group.min_member)?;
    let mut spec = group.at_least(group.key(Source::VolcanoPodGroup), min)?;
    if !pod_group.min_task_member.is_empty() {
        spec.roles = roles(group, &pod_group.min_task_member)?;
        let of_tasks = spec.roles.iter().fold(0_u32, |sum, role| sum.saturating_add(role.min));
        spec.min = spec.min.max(of_tasks);
    }
    let named = |name: Option<String>| name.filter(|name| !name.is_empty());
    spec.queue = named(pod_group.queue).or(spec.queue);
    spec.priority_class = named(pod_group.priority_class_name).or(spec.priority_class);
    if let Some(network) = pod_group.network_topology {
        let (level, is_hard) = tier(group, "spec.networkTopology", network)?;
        let rule = if is_hard {
            TopologyRule { required: Some(level), ..TopologyRule::default() }
        } else {
            TopologyRule { preferred: Some(level), ..TopologyRule::default() }
        };
        spec.topology = rule.or(spec.topology);
    }
    for part in pod_group.sub_group_policy {
        spec.topology.segments.extend(segment(group, part)?);
    }
    spec.topology.segments.sort_by_key(|segment| std::cmp::Reverse(segment.size));
    Ok(vec![spec])
}

fn roles(group: &Group<'_>, tasks: &BTreeMap<String, i64>) -> Result<Vec<RoleSpec>, Refused> {
    let role = |(name, min): (&String, &i64)| {
        let min = group.count(&format!("spec.minTaskMember.{name}"), Some(*min))?;
        Ok(RoleSpec::new(name, min, None))
    };
    tasks.iter().map(role).collect()
}

/// The level that must or should hold all, and whether it must.
fn tier(group: &Group<'_>, field: &str, network: NetworkTopology) -> Result<(LevelRef, bool), Refused> {
    let is_hard = match network.mode.as_deref() {
        None | Some("hard") => true,
        Some("soft") => false,
        Some(mode) => {
            let problem = format!("is {mode:?}");
            return Err(group.refused(&format!("{field}.mode"), problem, "write hard or soft"));
        }
    };
    let name = network.highest_tier_name.filter(|name| !name.is_empty());
    let level = match (name, network.highest_tier_allowed) {
        (Some(name), _) => LevelRef::Name(name),
        // Volcano's own default is the tier next to the nodes.
        (None, tier) => LevelRef::Tier(group.count(&format!("{field}.highestTierAllowed"), tier)?),
    };
    Ok((level, is_hard))
}

/// Sub-groups that only count and name no tier say nothing about places.
fn segment(group: &Group<'_>, part: SubGroup) -> Result<Option<SegmentRule>, Refused> {
    let Some(network) = part.network_topology else { return Ok(None) };
    let field = format!("spec.subGroupPolicy[{}]", part.name);
    let size = group.count(&format!("{field}.subGroupSize"), part.sub_group_size)?;
    let (level, is_required) = tier(group, &format!("{field}.networkTopology"), network)?;
    Ok(Some(SegmentRule { is_required, ..SegmentRule::required(size.max(1), level) }))
}
