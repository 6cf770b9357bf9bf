//! Questions that change nothing: they are asked of a copy.

use phalanx_model::{Answer, GangId, Input, JobId, NodeName, Outcome, Phase, Question};

use crate::Config;
use crate::admit;
use crate::explain::explain_new;
use crate::ledger::Ledger;
use crate::plan;
use crate::policy;

pub(crate) fn answer(ledger: &Ledger, config: Config, question: &Question) -> Answer {
    match question {
        Question::Submitted(job) => match admit::admit(ledger, job) {
            Err(why) => Answer::Rejected(why),
            Ok(()) => {
                let gangs = (0..).zip(&job.gangs);
                Answer::WouldBe(
                    gangs.map(|(i, gang)| explain_new(ledger, job.id.gang(i), gang, job.priority)).collect(),
                )
            }
        },
        Question::Ended(job) => ended(ledger, config, *job),
        Question::Drained(node) => drained(ledger, config, node),
    }
}

fn ended(ledger: &Ledger, config: Config, job: JobId) -> Answer {
    if ledger.job(job).is_none() {
        return Answer::Unknown { what: format!("job {job}") };
    }
    let mut copy = ledger.clone();
    copy.forget_for_question(job);
    Answer::Moves { start: would_start(&mut copy, config), stop: Vec::new() }
}

fn drained(ledger: &Ledger, config: Config, node: &NodeName) -> Answer {
    if !ledger.nodes().any(|n| n.name == *node) {
        return Answer::Unknown { what: format!("node {node}") };
    }
    let mut copy = ledger.clone();
    let mut out = Outcome::default();
    copy.apply(&Input::DrainRequested { node: node.clone() }, &mut out);
    let stopping: Vec<GangId> = copy
        .active()
        .filter(|(_, _, r)| matches!(r.phase, Phase::Stopping { .. }))
        .map(|(_, _, r)| r.id)
        .filter(|id| !ledger.record(*id).is_some_and(|r| matches!(r.phase, Phase::Stopping { .. })))
        .collect();
    let stop = unique_jobs(&stopping);
    Answer::Moves { start: would_start(&mut copy, config), stop }
}

fn would_start(copy: &mut Ledger, config: Config) -> Vec<JobId> {
    let mut out = Outcome::default();
    let order = policy::order(copy);
    plan::compute(copy, &order, config, &mut out);
    let started: Vec<GangId> = out
        .changes
        .iter()
        .filter_map(|c| match c {
            phalanx_model::Change::GangPlaced { gang, .. } => Some(*gang),
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
