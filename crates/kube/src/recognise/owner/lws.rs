//! `LeaderWorkerSet`s: every replica is a leader with its workers, and a gang of its own.

use std::sync::Arc;

use serde::Deserialize;

use super::Owner;
use crate::recognise::key::{Refused, Source};
use crate::recognise::names::lws;
use crate::recognise::spec::{GANGS_MAX, GangSpec, PodTemplate, RoleSpec};

pub(in crate::recognise) const LEADER: &str = "leader";
pub(in crate::recognise) const WORKER: &str = "worker";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LwsSpec {
    replicas: Option<i64>,
    leader_worker_template: Template,
    startup_policy: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Template {
    leader_template: Option<PodTemplate>,
    #[serde(default)]
    worker_template: PodTemplate,
    size: Option<i64>,
    sub_group_policy: Option<SubGroupPolicy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubGroupPolicy {
    sub_group_size: Option<i64>,
}

pub(super) fn spec_of(owner: &Owner<'_>) -> Result<Vec<GangSpec>, Refused> {
    let set: LwsSpec = owner.spec()?;
    let template = set.leader_worker_template;
    let replicas = owner.count("spec.replicas", set.replicas, 1)?;
    if replicas > GANGS_MAX {
        let problem = format!("is {replicas}");
        return Err(owner.refused("spec.replicas", problem, format!("ask for at most {GANGS_MAX} groups")));
    }
    let size = owner.count("spec.leaderWorkerTemplate.size", template.size, 1)?;
    if size == 0 {
        return Err(owner.refused(
            "spec.leaderWorkerTemplate.size",
            "is 0",
            "a group has at least its leader",
        ));
    }
    let worker = Arc::new(template.worker_template);
    let leader = template.leader_template.map_or_else(|| Arc::clone(&worker), Arc::new);
    let mut roles = vec![RoleSpec::new(LEADER, 1, Some(leader))];
    if size > 1 {
        roles.push(RoleSpec { first_index: 1, ..RoleSpec::new(WORKER, size - 1, Some(worker)) });
    }
    let mut spec = GangSpec::new(owner.key(Source::LeaderWorkerSet), Some(owner.object.clone()), roles);
    if set.startup_policy.as_deref() == Some("LeaderReady") && size > 1 {
        spec.late.push(WORKER.into());
    }
    owner.fill(&mut spec)?;
    // The workers are made for the domain in which the leader is.
    if spec.topology.exclusive.is_some() && size > 1 && spec.late.is_empty() {
        spec.follow.push(WORKER.into());
    }
    let subgroup = template.sub_group_policy.and_then(|policy| policy.sub_group_size);
    check_subgroups(owner, &spec, subgroup)?;
    // The gangs share their templates.
    Ok((0..replicas)
        .map(|group| GangSpec { key: spec.key.clone().part(&group.to_string()), ..spec.clone() })
        .collect())
}

/// Where an annotation wants subgroups each in a domain of its own, its controller writes that into the rules of their pods:
/// there is nothing to add to those, and nothing to know of pods that come later.
fn check_subgroups(owner: &Owner<'_>, spec: &GangSpec, size: Option<i64>) -> Result<(), Refused> {
    if owner.signs().annotation(lws::SUBGROUP_EXCLUSIVE).is_none() {
        return Ok(());
    }
    let size = owner.count("spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize", size, 0)?;
    if size == 0 {
        let problem = "says nothing without a size of subgroups";
        let remedy = "set spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize";
        return Err(owner.refused(lws::SUBGROUP_EXCLUSIVE, problem, remedy));
    }
    if !spec.late.is_empty() || !spec.follow.is_empty() {
        let problem = "is not supported where workers are made after their leader has a node";
        let remedy = "leave out LeaderReady and exclusive-topology, or this";
        return Err(owner.refused(lws::SUBGROUP_EXCLUSIVE, problem, remedy));
    }
    Ok(())
}
