//! How long gangs wait for their start: from the moment in which a gang is complete to the binding of its last pod.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use phalanx_model::{GangRecord, Input, JobId};

/// Gangs that are complete and wait, and since when.
#[derive(Default)]
pub(super) struct StartWaits(BTreeMap<JobId, Instant>);

impl StartWaits {
    /// What the engine is told of jobs.
    pub(super) fn told(&mut self, facts: &[Input]) {
        for fact in facts {
            match fact {
                Input::JobSubmitted { job } => self.waits(job.id),
                // It waited before this process began, and keeps what it was promised.
                Input::JobObserved { job, gangs } if gangs.iter().all(GangRecord::is_pending) => {
                    self.waits(job.id);
                }
                // Its pods are all there again.
                Input::JobReleased { job, .. } => self.waits(*job),
                Input::JobHeld { job, .. } | Input::JobForgotten { job } => self.ended(*job),
                _ => {}
            }
        }
    }

    /// A gang is complete and waits, or waits for another start.
    pub(super) fn waits(&mut self, job: JobId) {
        self.0.insert(job, Instant::now());
    }

    /// All of its pods are bound: how long that took. Nothing where it was bound before this process began.
    pub(super) fn bound(&mut self, job: JobId) -> Option<Duration> {
        self.0.remove(&job).map(|since| since.elapsed())
    }

    pub(super) fn ended(&mut self, job: JobId) {
        self.0.remove(&job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gang_waits_from_when_it_is_complete_and_is_counted_once() {
        let mut waits = StartWaits::default();
        let held = |job: u64| Input::JobHeld { job: JobId(job), by: String::new() };
        let released = |job: u64| Input::JobReleased { job: JobId(job), by: String::new() };
        assert_eq!(waits.bound(JobId(1)), None, "bound before this process began");
        waits.told(&[released(1), released(2), held(2)]);
        assert!(waits.bound(JobId(1)).is_some());
        assert_eq!((waits.bound(JobId(1)), waits.bound(JobId(2))), (None, None));
        waits.waits(JobId(1));
        waits.ended(JobId(1));
        assert!(waits.0.is_empty());
    }
}
