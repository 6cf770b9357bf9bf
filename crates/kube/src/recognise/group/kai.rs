//! KAI's `PodGroup`, with groups inside it.

use serde::Deserialize;

use super::Group;
use crate::recognise::key::{Refused, Source};
use crate::recognise::spec::{GangSpec, LevelRef, RoleSpec, TopologyRule};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodGroupSpec {
    min_member: Option<i64>,
    min_sub_group: Option<i64>,
    queue: Option<String>,
    priority_class_name: Option<String>,
    #[serde(default)]
    topology_constraint: Constraint,
    #[serde(default)]
    sub_groups: Vec<SubGroup>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Constraint {
    required_topology_level: Option<String>,
    preferred_topology_level: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubGroup {
    name: String,
    parent: Option<String>,
    min_member: Option<i64>,
    #[serde(default)]
    topology_constraint: Constraint,
}

pub(super) fn spec_of(group: &Group<'_>) -> Result<Vec<GangSpec>, Refused> {
    let pod_group: PodGroupSpec = group.spec()?;
    let min = group.count("spec.minMember", pod_group.min_member)?;
    let mut spec = group.at_least(group.key(Source::KaiPodGroup), min)?;
    if !pod_group.sub_groups.is_empty() {
        spec.roles = roles(group, &pod_group.sub_groups)?;
        let of_groups = spec.roles.iter().fold(0_u32, |sum, role| sum.saturating_add(role.min));
        spec.min = pod_group.min_member.map_or(of_groups, |_| min.max(of_groups));
        spec.is_lone = false;
        let needed = group.count("spec.minSubGroup", pod_group.min_sub_group)?;
        let count = u32::try_from(spec.roles.len()).unwrap_or(u32::MAX);
        if pod_group.min_sub_group.is_some() && needed != count {
            let problem = format!("is {needed}, and there are {count} sub-groups");
            let remedy = "ask for all of them: a gang starts with every one of its roles";
            return Err(group.refused("spec.minSubGroup", problem, remedy));
        }
    }
    let named = |name: Option<String>| name.filter(|name| !name.is_empty());
    spec.queue = named(pod_group.queue).map(Into::into).or(spec.queue);
    spec.priority_class = named(pod_group.priority_class_name).or(spec.priority_class);
    spec.topology = pod_group.topology_constraint.rule().or(spec.topology);
    Ok(vec![spec])
}

fn roles(group: &Group<'_>, parts: &[SubGroup]) -> Result<Vec<RoleSpec>, Refused> {
    let role = |part: &SubGroup| {
        let field = format!("spec.subGroups[{}]", part.name);
        if let Some(parent) = part.parent.as_ref().filter(|parent| !parent.is_empty()) {
            let problem = format!("is {parent:?}, and sub-groups inside others are not scheduled");
            return Err(group.refused(&format!("{field}.parent"), problem, "write them side by side"));
        }
        let min = group.count(&format!("{field}.minMember"), part.min_member)?;
        let rule = part.topology_constraint.rule();
        Ok(RoleSpec { topology: rule, ..RoleSpec::new(&part.name, min, None) })
    };
    parts.iter().map(role).collect()
}

impl Constraint {
    fn rule(&self) -> TopologyRule {
        let level = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(LevelRef::of);
        TopologyRule {
            required: level(&self.required_topology_level),
            preferred: level(&self.preferred_topology_level),
            ..TopologyRule::default()
        }
    }
}
