//! Starts that come too early or too late: held jobs, dependencies, begin times, deadlines.

use std::collections::BTreeSet;

use phalanx_model::{Change, GangRecord, Input, JobId, Rejection};

use crate::start::Start;
use crate::{Checker, Violation};

#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    held: BTreeSet<JobId>,
    ended: BTreeSet<JobId>,
}

impl Turns {
    pub(crate) fn fact(&mut self, input: &Input) {
        match input {
            Input::JobSubmitted { job } if job.turn.held_by.is_some() => {
                self.held.insert(job.id);
            }
            Input::JobObserved { job, gangs } => {
                if job.turn.held_by.is_some() {
                    self.held.insert(job.id);
                } else {
                    self.held.remove(&job.id);
                }
                if gangs.iter().all(GangRecord::is_finished) {
                    self.ended.insert(job.id);
                }
            }
            Input::JobHeld { job, .. } => {
                self.held.insert(*job);
            }
            Input::JobReleased { job, .. } => {
                self.held.remove(job);
            }
            _ => {}
        }
    }

    /// The end of a job, and a rejected submission.
    pub(crate) fn change(&mut self, change: &Change) {
        match change {
            // The job with the number goes on.
            Change::JobRejected { why: Rejection::DuplicateId { .. }, .. } => {}
            Change::JobFinished { job, .. } | Change::JobRejected { job, .. } => {
                self.ended.insert(*job);
            }
            _ => {}
        }
    }

    pub(crate) fn is_held(&self, job: JobId) -> bool {
        self.held.contains(&job)
    }

    pub(crate) fn has_ended(&self, job: JobId) -> bool {
        self.ended.contains(&job)
    }
}

impl Checker {
    pub(crate) fn check_turn(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        let gang = start.id;
        let Some(job) = self.jobs.get(&gang.job) else { return };
        let turn = &job.turn;
        let mut early = |why: String| found.push(Violation::OutOfTurn { gang, why });
        if self.queues.is_gone(&job.queue) {
            early(format!("its queue {} no longer exists", job.queue));
        }
        if self.turns.held.contains(&job.id) {
            early("its job is held".to_owned());
        }
        if let Some(at) = turn.begins_at.filter(|at| self.now < *at) {
            early(format!("its begin time is {}", at.0));
        }
        if let Some(at) = turn.deadline.filter(|at| self.now > *at && start.is_first) {
            early(format!("its deadline is {}", at.0));
        }
        let waits_for = |job: &JobId| self.jobs.contains_key(job) && !self.turns.has_ended(*job);
        for other in turn.after.iter().map(|after| after.job).filter(waits_for) {
            early(format!("job {other} has not ended"));
        }
        let running = self.living_gangs().filter(|id| id.job == job.id).count();
        let most = turn.array.as_ref().and_then(|array| array.running_max);
        if let Some(most) = most.filter(|most| running > *most as usize) {
            found.push(Violation::TooManyRunning { gang, of: format!("job {}", job.id), most });
        }
    }
}
