//! Volcano's `PodGroup`.

use std::collections::BTreeMap;

use serde::Deserialize;

use kube::api::DynamicObject;

use super::{Group, names};
use crate::recognise::key::{ObjectRef, Refused, Source, controller};
use crate::recognise::spec::{GangSpec, LevelRef, RoleSpec, SegmentRule, TopologyRule};

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
    #[serde(default)]
    label_selector: Selector,
    #[serde(default)]
    match_label_keys: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Selector {
    match_labels: BTreeMap<String, String>,
}

impl SubGroup {
    /// Whether it is about the pods of a task.
    fn is_of(&self, task: &str) -> bool {
        let named = self.label_selector.match_labels.get(names::volcano::TASK);
        named.map_or_else(|| self.is_of_each(), |named| named == task)
    }

    /// Whether those of each task are a group.
    fn is_of_each(&self) -> bool {
        self.match_label_keys.iter().any(|key| key == names::volcano::TASK)
    }
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
    spec.queue = named(pod_group.queue).map(Into::into).or(spec.queue);
    spec.priority_class = named(pod_group.priority_class_name).or(spec.priority_class);
    if let Some(network) = pod_group.network_topology {
        let (level, is_hard) = tier(group, "spec.networkTopology", &network)?;
        let rule = if is_hard {
            TopologyRule { required: Some(level), ..TopologyRule::default() }
        } else {
            TopologyRule { preferred: Some(level), ..TopologyRule::default() }
        };
        spec.topology = rule.or(spec.topology);
    }
    for part in pod_group.sub_group_policy {
        let is_of_tasks = spec.roles.iter().any(|role| !role.name.is_empty())
            && (part.is_of_each() || part.label_selector.match_labels.contains_key(names::volcano::TASK));
        let Some(rule) = sub_group(group, &part)? else { continue };
        if !is_of_tasks {
            spec.topology = merged(std::mem::take(&mut spec.topology), rule);
            continue;
        }
        let mut tasks = spec.roles.iter_mut().filter(|role| part.is_of(&role.name)).peekable();
        if tasks.peek().is_none() {
            let field = format!("spec.subGroupPolicy[{}].labelSelector", part.name);
            let problem = "selects a task that spec.minTaskMember does not name";
            return Err(group.refused(&field, problem, "say in minTaskMember how many pods the task has"));
        }
        tasks.for_each(|role| role.topology = merged(std::mem::take(&mut role.topology), rule.clone()));
    }
    Ok(vec![spec])
}

/// Both, with the widest parts first.
fn merged(one: TopologyRule, other: TopologyRule) -> TopologyRule {
    let segments = [one.segments.as_slice(), &other.segments].concat();
    let mut both = one.or(other);
    both.segments = segments;
    both.segments.sort_by_key(|segment| std::cmp::Reverse(segment.size));
    both
}

fn roles(group: &Group<'_>, tasks: &BTreeMap<String, i64>) -> Result<Vec<RoleSpec>, Refused> {
    let role = |(name, min): (&String, &i64)| {
        let min = group.count(&format!("spec.minTaskMember.{name}"), Some(*min))?;
        Ok(RoleSpec::new(name, min, None))
    };
    tasks.iter().map(role).collect()
}

/// The level that must or should hold all, and whether it must.
fn tier(group: &Group<'_>, field: &str, network: &NetworkTopology) -> Result<(LevelRef, bool), Refused> {
    let is_hard = match network.mode.as_deref() {
        None | Some("hard") => true,
        Some("soft") => false,
        Some(mode) => {
            let problem = format!("is {mode:?}");
            return Err(group.refused(&format!("{field}.mode"), problem, "write hard or soft"));
        }
    };
    let name = network.highest_tier_name.clone().filter(|name| !name.is_empty());
    let level = match (name, network.highest_tier_allowed) {
        (Some(name), _) => LevelRef::Name(name),
        // Volcano's own default is the tier next to the nodes.
        (None, tier) => LevelRef::Tier(group.count(&format!("{field}.highestTierAllowed"), tier)?),
    };
    Ok((level, is_hard))
}

/// Sub-groups that only count and name no tier say nothing about places. One without a size is all that it selects.
fn sub_group(group: &Group<'_>, part: &SubGroup) -> Result<Option<TopologyRule>, Refused> {
    let Some(network) = &part.network_topology else { return Ok(None) };
    let field = format!("spec.subGroupPolicy[{}]", part.name);
    let (level, is_required) = tier(group, &format!("{field}.networkTopology"), network)?;
    let mut rule = TopologyRule::default();
    match part.sub_group_size {
        Some(size) => {
            let size = group.count(&format!("{field}.subGroupSize"), Some(size))?;
            rule.segments = vec![SegmentRule { is_required, ..SegmentRule::required(size.max(1), level) }];
        }
        None if is_required => rule.required = Some(level),
        None => rule.preferred = Some(level),
    }
    Ok(Some(rule))
}
