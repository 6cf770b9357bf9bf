//! Reasons, stop causes and changes of the engine as sentences for people, with the names of jobs.
//!
//! The engine exports data only. Every world and the simulator make its sentences here, so that they are the same
//! in a job's history, in a pod's event and in a replay.

#![forbid(unsafe_code)]

use phalanx_model::show::{milli, span};
use phalanx_model::{
    Change, Ending, Eviction, GangId, GangRecord, JobId, JobLookup, Phase, Placement, Reason, Reserved,
    Resize, StopCause, Timestamp,
};

/// `job 13 (whole)`; of a job with several gangs `gang 13.2 (whole)`.
#[must_use]
pub fn gang(jobs: &dyn JobLookup, id: GangId) -> String {
    match jobs.job(id.job) {
        Some(job) if job.gangs.len() > 1 => format!("gang {id} ({})", job.name),
        Some(job) => format!("job {} ({})", id.job, job.name),
        None if id.index == 0 => format!("job {}", id.job),
        None => format!("gang {id}"),
    }
}

/// Why a gang waits: the engine's own sentence where it speaks of nobody else.
#[must_use]
pub fn reason(jobs: &dyn JobLookup, reason: &Reason) -> String {
    match reason {
        Reason::Priority { ahead, at: None } => {
            format!("{} was passed over as often as is fair and starts first", gang(jobs, *ahead))
        }
        Reason::Priority { ahead, at: Some(_) } => {
            format!("would still run when {} is to start on what is free now", gang(jobs, *ahead))
        }
        Reason::Preempting { victims } => {
            let victims: Vec<String> = victims.iter().map(|victim| gang(jobs, *victim)).collect();
            format!("its place is held, and these make way: {}", victims.join(", "))
        }
        Reason::Dependency { jobs: before } => {
            let before: Vec<String> = before.iter().map(|job| gang(jobs, job.gang(0))).collect();
            format!("waits for the end of {}", before.join(", "))
        }
        _ => reason.to_string(),
    }
}

/// Why a gang is being stopped.
#[must_use]
pub fn stop(jobs: &dyn JobLookup, cause: &StopCause) -> String {
    match cause {
        StopCause::Failure { class, detail, .. } => format!("{class}: {detail}"),
        StopCause::Displaced { detail, .. } => detail.clone(),
        StopCause::Preempted(eviction) => evicted(jobs, eviction),
        StopCause::Cancelled { by } => format!("cancelled by {by}"),
        StopCause::TimeLimit => "its time limit is reached".to_owned(),
        StopCause::Resized { size } => format!("starts again with {size} members"),
        StopCause::ScaledIn { replicas } => format!("{replicas} replicas are enough"),
        StopCause::IdleLimit => "nobody used it".to_owned(),
    }
}

/// For whom a gang makes way, by which rule, and what it costs.
#[must_use]
pub fn evicted(jobs: &dyn JobLookup, eviction: &Eviction) -> String {
    let Eviction { by, rule, lost_device_ms, .. } = eviction;
    let (by, lost) = (gang(jobs, *by), span(*lost_device_ms));
    format!("makes way for {by}: {rule}; at most {lost} of GPU time are lost")
}

/// A change as one line of a job's history: whose it is, a stable word, and the rest; nothing for what is no job's, and
/// for what another change says as well.
///
/// `jobs` are those of the engine after the step that made the change.
#[must_use]
pub fn change(at: Timestamp, change: &Change, jobs: &dyn JobLookup) -> Option<(JobId, &'static str, String)> {
    Some(match change {
        Change::JobAccepted { job } => (*job, "submitted", String::new()),
        Change::GangPlaced { gang, attempt, placement } => {
            let where_ = format!("attempt {attempt} on {} (one {})", nodes_of(placement), placement.level);
            (gang.job, "starting", where_)
        }
        Change::GangRunning { gang, attempt } => (gang.job, "running", format!("attempt {attempt}")),
        Change::GangStopping { gang, cause: cause @ StopCause::Preempted(_), .. } => {
            (gang.job, "evicted", stop(jobs, cause))
        }
        Change::GangStopping { gang, cause, .. } => (gang.job, "stopping", stop(jobs, cause)),
        Change::GangRetrying { gang, failures, .. } => {
            let times = match failures {
                0 => String::new(),
                1 => "after 1 failure".to_owned(),
                n => format!("after {n} failures"),
            };
            (gang.job, "waiting again", times)
        }
        Change::JobFinished { job, ending } => (*job, ending.word(), ended(ending)),
        Change::ServiceScaled { job, before, replicas, load_milli } => {
            let load = load_milli.map(|load| format!("; they have {} of its metric", milli(load)));
            (*job, "scaled", format!("{replicas} replicas instead of {before}{}", load.unwrap_or_default()))
        }
        // Said of what was submitted in this very step.
        Change::ReasonChanged { reason: Reason::None, .. } => return None,
        Change::ReasonChanged { gang, reason: why } => {
            (gang.job, "pending", format!("{}: {}", why.word(), reason(jobs, why)))
        }
        Change::GangReserved { gang, reserved } => {
            let free = match reserved.at {
                None if is_kept(jobs, *gang, reserved) => "its own until it starts again".to_owned(),
                Some(free) => format!("free {} from now at the latest", span(free.since(at))),
                None => "no time limit says when it is free".to_owned(),
            };
            (gang.job, "reserved", format!("{}; {free}", nodes_of(&reserved.placement)))
        }
        Change::ReplicaLeaves { gang: id, leave } => {
            let who = gang(jobs, *id);
            (id.job, "leaves", format!("{who} once another runs in its stead: {}", leave.detail))
        }
        Change::ReplicaStays { gang: id } => (id.job, "stays", gang(jobs, *id)),
        Change::ReplicaReplaced { gang: id, by } => {
            let (who, by) = (gang(jobs, *id), gang(jobs, *by));
            (id.job, "replaced", format!("{by} runs in the stead of {who}"))
        }
        Change::ResizeAsked { gang, resize } => (gang.job, "resize", resized(jobs, *gang, resize)),
        Change::ReservationDropped { gang, why } => (gang.job, "reservation dropped", why.clone()),
        Change::JobRejected { .. } | Change::InputRejected { .. } | Change::GangFinished { .. } => {
            return None;
        }
    })
}

/// The nodes of a placement in the order of its ranks, each run of the same once.
#[must_use]
pub fn nodes_of(placement: &Placement) -> String {
    let mut nodes: Vec<&str> = placement.slots.iter().map(|s| s.node.as_str()).collect();
    nodes.dedup();
    nodes.join(", ")
}

/// Whether a gang has this place held because it just had it, and is to start there with another size.
fn is_kept(jobs: &dyn JobLookup, gang: GangId, reserved: &Reserved) -> bool {
    // It may have started again by now.
    let is_its = |record: &GangRecord| record.resize.is_some() || record.holds_capacity();
    reserved.evicts && jobs.gang(gang).is_some_and(is_its)
}

fn resized(jobs: &dyn JobLookup, id: GangId, resize: &Resize) -> String {
    let size = resize.size;
    let is_stopping = |record: &GangRecord| matches!(record.phase, Phase::Stopping { .. });
    match resize.by {
        Some(by) => {
            format!("to {size} members for {}, from its next boundary on", gang(jobs, by))
        }
        // It stands at its boundary already.
        None if jobs.gang(id).is_some_and(is_stopping) => {
            format!("to {size} members: nobody waits for what is free")
        }
        None => format!("to {size} members, from its next boundary on"),
    }
}

fn ended(ending: &Ending) -> String {
    match ending {
        Ending::Failed { class, detail, .. } => format!("{class}: {detail}"),
        Ending::Cancelled { by } => format!("by {by}"),
        Ending::Preempted { detail } => detail.clone(),
        Ending::DependencyFailed { job } => format!("job {job} ended otherwise"),
        _ => String::new(),
    }
}
