//! Questions that change nothing: a copy of the ledger answers them.

use phalanx_model::{
    Answer, Change, Confidence, Decision, Estimate, GangId, Input, Job, JobId, Move, NodeName, Opening,
    Outcome, Phase, Question, Reason, Report, Reserved,
};

use crate::cycle::{Config, Spent};
use crate::explain::explain;
use crate::ledger::{Ledger, admit};

pub(crate) fn answer(ledger: &Ledger, config: Config, question: &Question) -> Answer {
    match question {
        Question::Submitted(job) => submitted(ledger, config, job),
        Question::Ended(jobs) => ended(ledger, config, jobs),
        Question::Drained(node) => drained(ledger, config, node),
        Question::Defragmented(gang) => defragmented(ledger, config, *gang),
    }
}

/// Gangs of one submission that are explained: each costs a search, and an array has many equal gangs.
const REPORTS_MAX: usize = 64;

/// The decisions of the next step if this job were submitted now.
fn submitted(ledger: &Ledger, config: Config, job: &Job) -> Answer {
    let job = &*admit::with_job_settings(ledger, job);
    if let Err(why) = admit::admit(ledger, job) {
        return Answer::Rejected(why);
    }
    let with_job = || {
        let mut copy = ledger.clone();
        copy.apply(&Input::JobSubmitted { job: Box::new(job.clone()) }, &mut Outcome::default());
        copy
    };
    let mut after = with_job();
    let mut spent = Spent::default();
    for _ in 0..crate::CYCLES_MAX {
        after.run_cycle(config, &mut spent, &mut Outcome::default());
        if !after.take_replan() {
            break;
        }
    }
    // A copy takes as long as a search, and only a gang that starts needs what was before.
    let mut before = None;
    let report = |id: GangId| {
        let started = after.record(id).filter(|r| r.holds_capacity());
        let started = started.and_then(|r| Some((r.placement.clone()?, r.weighed.clone())));
        let Some((placement, weighed)) = started else { return explain(&after, id) };
        let before = before.get_or_insert_with(with_job);
        let estimated_start = Some(Estimate { at: after.now(), confidence: Confidence::Now });
        let (reason, nearest) = (Reason::None, Some(placement));
        let unblock = Vec::new();
        Some(Report { reason, nearest, estimated_start, unblock, weighed, ..explain(before, id)? })
    };
    Answer::WouldBe(job.gang_ids().take(REPORTS_MAX).filter_map(report).collect())
}

fn ended(ledger: &Ledger, config: Config, jobs: &[JobId]) -> Answer {
    if let Some(job) = jobs.iter().find(|job| ledger.job(**job).is_none()) {
        return Answer::Unknown { what: format!("job {job}") };
    }
    let mut copy = ledger.clone();
    jobs.iter().for_each(|job| copy.forget_for_question(*job));
    Answer::Moves { start: would_start(&mut copy, config), stop: Vec::new() }
}

fn drained(ledger: &Ledger, config: Config, node: &NodeName) -> Answer {
    if !ledger.nodes().any(|n| n.name == *node) {
        return Answer::Unknown { what: format!("node {node}") };
    }
    let mut copy = ledger.clone();
    let mut out = Outcome::default();
    copy.apply(&Input::DrainRequested { node: node.clone() }, &mut out);
    copy.freshen();
    let stopping: Vec<GangId> = copy
        .active()
        .filter(|(_, _, r)| matches!(r.phase, Phase::Stopping { .. }))
        .map(|(_, _, r)| r.id)
        .filter(|id| !ledger.record(*id).is_some_and(|r| matches!(r.phase, Phase::Stopping { .. })))
        .collect();
    let stop = unique_jobs(&stopping);
    Answer::Moves { start: would_start(&mut copy, config), stop }
}

fn defragmented(ledger: &Ledger, config: Config, gang: Option<GangId>) -> Answer {
    let mut copy = ledger.clone();
    let mut out = Outcome::default();
    copy.apply(&Input::DefragmentationRequested { gang }, &mut out);
    copy.defragment(config, &mut out);
    let refused = out.changes.iter().find_map(|change| match change {
        Change::InputRejected { why, .. } => Some(why.clone()),
        _ => None,
    });
    if let Some(why) = refused {
        return Answer::OpensNothing { why };
    }
    let of = |decision: &Decision| match decision {
        Decision::Move { gang, to, lost_device_ms, .. } => {
            let from = ledger.record(*gang)?.placement.clone()?;
            Some(Move { gang: *gang, from, to: to.clone(), lost_device_ms: *lost_device_ms })
        }
        _ => None,
    };
    let moves: Vec<Move> = out.plan.decisions.iter().filter_map(of).collect();
    let opened = out.plan.decisions.iter().find_map(|decision| match decision {
        Decision::Reserve { gang, reserved: Reserved { placement, at, evicts: true, .. }, .. } => {
            let pending_since = ledger.record(*gang)?.pending_since;
            let otherwise = explain(ledger, *gang).and_then(|report| report.estimated_start);
            let (gang, placement, at) = (*gang, placement.clone(), *at);
            let restart_ms = ledger.queues().settings().migration.unwrap_or_default().restart_ms;
            Some(Opening { gang, placement, at, otherwise, pending_since, restart_ms, moves: moves.clone() })
        }
        _ => None,
    });
    opened.map_or_else(
        || Answer::OpensNothing { why: "nothing would move".to_owned() },
        |opening| Answer::WouldOpen(Box::new(opening)),
    )
}

fn would_start(copy: &mut Ledger, config: Config) -> Vec<JobId> {
    let mut out = Outcome::default();
    copy.run_cycle(config, &mut Spent::default(), &mut out);
    let started: Vec<GangId> = out
        .changes
        .iter()
        .filter_map(|c| match c {
            Change::GangPlaced { gang, .. } => Some(*gang),
            _ => None,
        })
        .collect();
    unique_jobs(&started)
}

fn unique_jobs(gangs: &[GangId]) -> Vec<JobId> {
    let mut jobs: Vec<JobId> = gangs.iter().map(|g| g.job).collect();
    jobs.sort_unstable();
    jobs.dedup();
    jobs
}
