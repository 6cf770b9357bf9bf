//! `JobSet`s: replicated jobs that start together, and those that wait for others to end.
//!
//! What waits for another job to be ready needs its place at the same time, so it is a late role of the same gang. What
//! waits for another job to complete starts when that is gone: it is a gang of a later stage.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::{Owner, job::JobSpec};
use crate::recognise::asks::Signs;
use crate::recognise::key::{GangKey, Refused, Source};
use crate::recognise::spec::{GangSpec, MEMBERS_MAX, RoleSpec, TemplateMeta};

/// The most replicated jobs of one set.
const ROLES_MAX: usize = 256;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JobSetSpec {
    #[serde(default)]
    replicated_jobs: Vec<ReplicatedJob>,
    #[serde(default)]
    suspend: bool,
    startup_policy: Option<StartupPolicy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StartupPolicy {
    startup_policy_order: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplicatedJob {
    name: String,
    replicas: Option<i64>,
    template: JobTemplate,
    #[serde(default)]
    depends_on: Vec<DependsOn>,
}

#[derive(Deserialize)]
struct JobTemplate {
    #[serde(default)]
    metadata: TemplateMeta,
    spec: JobSpec,
}

#[derive(Deserialize)]
struct DependsOn {
    name: String,
    status: Option<String>,
}

/// When a replicated job starts.
#[derive(Clone, Copy)]
struct Turn {
    /// How many others have to complete one after the other before it.
    stage: usize,
    /// Whether it waits for others of its stage to be ready.
    is_late: bool,
}

pub(super) fn spec_of(owner: &Owner<'_>) -> Result<Vec<GangSpec>, Refused> {
    let set: JobSetSpec = owner.spec()?;
    if set.replicated_jobs.len() > ROLES_MAX {
        let problem = format!("has {} entries", set.replicated_jobs.len());
        return Err(owner.refused("spec.replicatedJobs", problem, format!("write at most {ROLES_MAX}")));
    }
    let is_in_order = set
        .startup_policy
        .as_ref()
        .is_some_and(|policy| policy.startup_policy_order.as_deref() == Some("InOrder"));
    let turns = turns(owner, &set.replicated_jobs, is_in_order)?;
    let mut stages: BTreeMap<usize, Vec<(ReplicatedJob, Turn)>> = BTreeMap::new();
    for (job, turn) in set.replicated_jobs.into_iter().zip(turns) {
        stages.entry(turn.stage).or_default().push((job, turn));
    }
    let through = through(owner);
    let is_through = |jobs: &[(ReplicatedJob, Turn)]| {
        jobs.iter().all(|(job, _)| {
            let jobs = job.replicas.and_then(|count| u64::try_from(count).ok()).unwrap_or(1);
            through.get(job.name.as_str()).is_some_and(|through| *through >= jobs)
        })
    };
    let next = stages.iter().find(|(_, jobs)| !is_through(jobs)).map(|(stage, _)| *stage);
    let count = stages.len();
    let key = |stage: usize| {
        let key = owner.key(Source::JobSet);
        if count > 1 { key.part(&format!("stage {stage}")) } else { key }
    };
    let mut specs: Vec<GangSpec> = Vec::with_capacity(count);
    for (stage, jobs) in stages {
        let mut spec = gang(owner, key(stage), jobs)?;
        spec.is_suspended = set.suspend;
        spec.is_next = next == Some(stage);
        spec.after.extend(specs.last().map(|before| before.key.clone()));
        specs.push(spec);
    }
    Ok(specs)
}

/// Jobs of each replicated job that have completed.
fn through<'a>(owner: &Owner<'a>) -> BTreeMap<&'a str, u64> {
    let jobs = owner.raw.data.pointer("/status/replicatedJobsStatus").and_then(|all| all.as_array());
    let through =
        |job: &'a serde_json::Value| Some((job.get("name")?.as_str()?, job.get("succeeded")?.as_u64()?));
    jobs.into_iter().flatten().filter_map(through).collect()
}

fn gang(owner: &Owner<'_>, key: GangKey, jobs: Vec<(ReplicatedJob, Turn)>) -> Result<GangSpec, Refused> {
    let mut roles = Vec::with_capacity(jobs.len());
    let mut late = Vec::new();
    let mut limits = Vec::with_capacity(jobs.len());
    for (job, turn) in jobs {
        let field = format!("spec.replicatedJobs[{}]", job.name);
        let role = role(owner, &field, &job)?;
        if turn.is_late {
            late.push(Arc::clone(&role.name));
        }
        limits.push(job.template.spec.active_deadline_seconds);
        roles.push(role);
    }
    let mut spec = GangSpec::new(key, Some(owner.object.clone()), roles);
    spec.late = late;
    // The gang ends at the latest when the last of its jobs has to; one without a limit has none.
    spec.time_limit_s = limits.into_iter().collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max());
    spec.suspend = Some(owner.suspend("jobsets", &["spec", "suspend"]));
    owner.fill(&mut spec)?;
    Ok(spec)
}

fn role(owner: &Owner<'_>, field: &str, job: &ReplicatedJob) -> Result<RoleSpec, Refused> {
    let replicas = owner.count(&format!("{field}.replicas"), job.replicas, 1)?;
    let each = job.template.spec.size(owner, &format!("{field}.template.spec"))?;
    let size = replicas.checked_mul(each).filter(|n| *n <= MEMBERS_MAX).ok_or_else(|| {
        let problem = format!("is {replicas}, with {each} pods in each");
        owner.refused(&format!("{field}.replicas"), problem, format!("ask for at most {MEMBERS_MAX} pods"))
    })?;
    let metadata = &job.template.metadata;
    let signs = Signs {
        object: &owner.object,
        labels: Some(&metadata.labels),
        annotations: Some(&metadata.annotations),
    };
    let mut role = RoleSpec::new(&job.name, size, Some(Arc::new(job.template.spec.template.clone())));
    role.per_copy = each;
    role.topology = signs.asks()?.topology;
    let exclusive = signs.exclusive_job(each).or_else(|| owner.signs().exclusive_job(each));
    role.leads = exclusive.is_some() && each > 1;
    if role.topology.segments.is_empty() {
        role.topology.segments.extend(exclusive);
    }
    Ok(role)
}

/// In the order of the jobs. A job may depend only on jobs that stand before it, as upstream demands.
fn turns(owner: &Owner<'_>, jobs: &[ReplicatedJob], is_in_order: bool) -> Result<Vec<Turn>, Refused> {
    let mut known: BTreeMap<&str, Turn> = BTreeMap::new();
    let mut turns = Vec::with_capacity(jobs.len());
    for (at, job) in jobs.iter().enumerate() {
        let mut turn = Turn { stage: 0, is_late: is_in_order && at > 0 };
        for depends in &job.depends_on {
            let field = format!("spec.replicatedJobs[{}].dependsOn", job.name);
            let Some(other) = known.get(depends.name.as_str()) else {
                let problem = format!("names {:?}, which does not stand before it", depends.name);
                return Err(owner.refused(&field, problem, "name a replicated job that stands before it"));
            };
            let after = match depends.status.as_deref() {
                Some("Complete") => Turn { stage: other.stage + 1, is_late: false },
                Some("Ready") | None => Turn { stage: other.stage, is_late: true },
                Some(status) => {
                    let problem = format!("has the status {status:?}");
                    return Err(owner.refused(&field, problem, "write Ready or Complete"));
                }
            };
            // What is ready in an earlier stage is so already.
            turn = match after.stage.cmp(&turn.stage) {
                Ordering::Greater => after,
                Ordering::Equal => Turn { is_late: turn.is_late || after.is_late, ..turn },
                Ordering::Less => turn,
            };
        }
        if known.insert(&job.name, turn).is_some() {
            let problem = format!("has {:?} twice", job.name);
            return Err(owner.refused("spec.replicatedJobs", problem, "give each a name of its own"));
        }
        turns.push(turn);
    }
    Ok(turns)
}
