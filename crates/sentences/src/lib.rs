//! Reasons, stop causes and changes of the engine as sentences for people, with the names of jobs.
//!
//! The engine exports data only. Every world and the simulator make its sentences here, so that they are the same
//! in a job's history, in a pod's event and in a replay.

#![forbid(unsafe_code)]

pub mod waits;

use phalanx_model::show::{count, gpu_time, milli, span};
use phalanx_model::{
    Change, Ending, GangId, GangRecord, JobId, JobLookup, Phase, Placement, Preemption, Reason, Reserved,
    Resize, StopCause, Timestamp,
};

/// A gang as `job 13 (whole)`, or as `gang 13.2 (whole)` if its job has several gangs.
#[must_use]
pub fn gang(jobs: &dyn JobLookup, id: GangId) -> String {
    match jobs.job(id.job) {
        Some(job) if job.turn.array.is_some() => {
            let number = job.task_number(id.index).unwrap_or(id.index);
            format!("task {}.{number} ({})", id.job, job.name)
        }
        Some(job) if job.gang_count() > 1 => format!("gang {id} ({})", job.name),
        Some(job) => format!("job {} ({})", id.job, job.name),
        None if id.index == 0 => format!("job {}", id.job),
        None => format!("gang {id}"),
    }
}

/// Why a gang waits. Reasons that name other gangs are written here, with the names of their jobs.
#[must_use]
pub fn reason(jobs: &dyn JobLookup, reason: &Reason) -> String {
    match reason {
        Reason::Priority { ahead, at: None } => {
            format!("{} has reached its bypass limit and must start first", gang(jobs, *ahead))
        }
        Reason::Priority { ahead, at: Some(_) } => {
            format!("cannot backfill: would still be running when {} is due to start", gang(jobs, *ahead))
        }
        Reason::Preempting { victims } => {
            let victims: Vec<String> = victims.iter().map(|victim| gang(jobs, *victim)).collect();
            format!("reserved; waiting for these jobs to leave: {}", victims.join(", "))
        }
        Reason::Dependency { jobs: before } => {
            let before: Vec<String> = before.iter().map(|job| gang(jobs, job.gang(0))).collect();
            format!("waiting for these jobs to end: {}", before.join(", "))
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
        StopCause::Preempted(preemption) => preempted(jobs, preemption),
        StopCause::Cancelled { by } => format!("cancelled by {by}"),
        StopCause::TimeLimit => "time limit reached".to_owned(),
        StopCause::Moved { by, to, lost_device_ms } => moved(jobs, *by, to, *lost_device_ms),
        StopCause::Resized { size } => format!("restarts with {}", count(u64::from(*size), "member")),
        StopCause::ScaledIn { replicas } => {
            format!("the service needs only {}", count(u64::from(*replicas), "replica"))
        }
        StopCause::IdleLimit => "idle limit reached: no use was reported".to_owned(),
    }
}

/// Where a gang moves, for which gang, and what that costs.
fn moved(jobs: &dyn JobLookup, by: GangId, to: &Placement, lost_device_ms: u64) -> String {
    let (by, cost, to) = (gang(jobs, by), gpu_time(lost_device_ms), nodes_of(to));
    format!("moves to {to} to open a place for {by}; costs {cost}")
}

/// Which gang preempts a gang, by which rule, and how much work is lost.
#[must_use]
pub fn preempted(jobs: &dyn JobLookup, preemption: &Preemption) -> String {
    let Preemption { by, rule, lost_device_ms, .. } = preemption;
    let (by, lost) = (gang(jobs, *by), gpu_time(*lost_device_ms));
    format!("preempted by {by}: {rule}; up to {lost} lost")
}

/// A change as one line of a job's history: the job, a stable word, and details. Changes that belong to no job, and
/// changes that another change of the same step reports too, give no line.
///
/// `jobs` are those of the engine after the step that made the change.
#[must_use]
pub fn change(at: Timestamp, change: &Change, jobs: &dyn JobLookup) -> Option<(JobId, &'static str, String)> {
    Some(match change {
        Change::JobAccepted { job } => (*job, "submitted", String::new()),
        Change::GangPlaced { gang, attempt, placement } => {
            let mut where_ =
                format!("attempt {attempt} on {} (inside one {})", nodes_of(placement), placement.level);
            let of_attempt = jobs.gang(*gang).filter(|record| record.attempt == *attempt);
            for link in of_attempt.into_iter().flat_map(|record| &record.weighed) {
                where_ += "; ";
                where_ += &link.sentence(at);
            }
            (gang.job, "starting", where_)
        }
        Change::GangRunning { gang, attempt } => (gang.job, "running", format!("attempt {attempt}")),
        Change::GangStopping { gang, cause: cause @ StopCause::Preempted(_), .. } => {
            (gang.job, "preempted", stop(jobs, cause))
        }
        Change::GangStopping { gang, cause, .. } => (gang.job, "stopping", stop(jobs, cause)),
        Change::GangRetrying { gang, failures, .. } => {
            let times = match failures {
                0 => String::new(),
                n => format!("after {}", count(u64::from(*n), "failure")),
            };
            (gang.job, "requeued", times)
        }
        Change::JobFinished { job, ending } => (*job, ending.word(), ended(ending)),
        Change::ServiceScaled { job, before, replicas, load_milli } => {
            let load = load_milli.map(|load| format!("; total of its metric: {}", milli(load)));
            (
                *job,
                "scaled",
                format!(
                    "from {before} to {}{}",
                    count(u64::from(*replicas), "replica"),
                    load.unwrap_or_default()
                ),
            )
        }
        // The job was submitted in this step, and `JobAccepted` reports it.
        Change::ReasonChanged { reason: Reason::None, .. } => return None,
        Change::ReasonChanged { gang, reason: why } => {
            (gang.job, "pending", format!("{}: {}", why.word(), reason(jobs, why)))
        }
        Change::GangReserved { gang, reserved } => {
            let free = match reserved.at {
                None if is_kept(jobs, *gang, reserved) => "kept until the gang restarts".to_owned(),
                Some(free) => format!("free in {} at the latest", span(free.since(at))),
                None => "start time unknown: a job there has no time limit".to_owned(),
            };
            (gang.job, "reserved", format!("{}; {free}", nodes_of(&reserved.placement)))
        }
        Change::ReplicaLeaves { gang: id, leave } => {
            let leaving = gang(jobs, *id);
            (id.job, "replacing", format!("{leaving} stops when its replacement runs: {}", leave.detail))
        }
        Change::ReplicaStays { gang: id } => {
            (id.job, "not replaced", format!("{} stays on its nodes", gang(jobs, *id)))
        }
        Change::ReplicaReplaced { gang: id, by } => {
            (id.job, "replaced", format!("{} by {}", gang(jobs, *id), gang(jobs, *by)))
        }
        Change::ResizeAsked { gang, resize } => (gang.job, "resize", resized(jobs, *gang, resize)),
        Change::ReservationDropped { gang, why } => (gang.job, "reservation dropped", why.clone()),
        Change::JobRejected { .. } | Change::InputRejected { .. } | Change::GangFinished { .. } => {
            return None;
        }
    })
}

/// The nodes of a placement in the order of its ranks. Ranks in a row on the same node give its name once.
#[must_use]
pub fn nodes_of(placement: &Placement) -> String {
    let mut nodes: Vec<&str> = placement.slots.iter().map(|s| s.node.as_str()).collect();
    nodes.dedup();
    nodes.join(", ")
}

/// Whether a reservation is the gang's own earlier placement, where it restarts with another size.
fn is_kept(jobs: &dyn JobLookup, gang: GangId, reserved: &Reserved) -> bool {
    // The gang may have restarted in the same step.
    let is_its = |record: &GangRecord| record.resize.is_some() || record.holds_capacity();
    reserved.evicts && jobs.gang(gang).is_some_and(is_its)
}

fn resized(jobs: &dyn JobLookup, id: GangId, resize: &Resize) -> String {
    let members = count(u64::from(resize.size), "member");
    let is_stopping = |record: &GangRecord| matches!(record.phase, Phase::Stopping { .. });
    match resize.by {
        Some(by) => {
            format!("to {members} at its next boundary, for {}", gang(jobs, by))
        }
        // The gang has reached its boundary already.
        None if jobs.gang(id).is_some_and(is_stopping) => {
            format!("to {members}: no pending gang needs the free devices")
        }
        None => format!("to {members} at its next boundary"),
    }
}

/// How a gang or a job ended, beyond its word.
#[must_use]
pub fn ended(ending: &Ending) -> String {
    match ending {
        Ending::Failed { class, detail, .. } => format!("{class}: {detail}"),
        Ending::Cancelled { by } => format!("by {by}"),
        Ending::Preempted { detail } => detail.clone(),
        Ending::DependencyFailed { job } => format!("dependency job {job} did not end as required"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_model::{Job, PreemptionRule, QueueName};

    /// A scheduler that knows no job: sentences give numbers then.
    struct Empty;

    impl JobLookup for Empty {
        fn job(&self, _: JobId) -> Option<&Job> {
            None
        }

        fn gang(&self, _: GangId) -> Option<&GangRecord> {
            None
        }
    }

    #[test]
    fn reasons_name_the_other_jobs() {
        let ahead = JobId(7).gang(0);
        let bypass = Reason::Priority { ahead, at: None };
        assert_eq!(reason(&Empty, &bypass), "job 7 has reached its bypass limit and must start first");
        let backfill = Reason::Priority { ahead, at: Some(Timestamp(1)) };
        let expected = "cannot backfill: would still be running when job 7 is due to start";
        assert_eq!(reason(&Empty, &backfill), expected);
        let preempting = Reason::Preempting { victims: vec![JobId(1).gang(0), JobId(2).gang(3)] };
        let expected = "reserved; waiting for these jobs to leave: job 1, gang 2.3";
        assert_eq!(reason(&Empty, &preempting), expected);
    }

    #[test]
    fn a_preemption_names_its_rule_and_its_cost() {
        let queue = |name: &str| QueueName::new(name).expect("a constant name");
        let rule = PreemptionRule::Guarantee { queue: queue("vision"), borrower: queue("speech") };
        let by = JobId(2).gang(0);
        let preemption =
            Preemption { by, rule, at: Timestamp(0), lost_device_ms: 16_000, grace_max_ms: None };
        let cause = StopCause::Preempted(preemption);
        let expected =
            "preempted by job 2: vision reclaimed its guarantee from speech; up to 16 GPU-seconds lost";
        assert_eq!(stop(&Empty, &cause), expected);
        let stopping = Change::GangStopping { gang: JobId(1).gang(0), attempt: 1, cause };
        let line = change(Timestamp(0), &stopping, &Empty);
        assert_eq!(line, Some((JobId(1), "preempted", expected.to_owned())));
    }
}
