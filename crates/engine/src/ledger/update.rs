//! What users change of a job that they have submitted: its time limit, its priority and its queue; and a new start.

use phalanx_model::{FailureClass, GangId, GangRecord, Job, JobId, JobUpdate, Outcome, Phase, StopCause};

use super::apply::refuse;
use super::{Ledger, admit};

impl Ledger {
    /// Changes a job; all of what is asked for, or nothing.
    pub(super) fn update(&mut self, job: JobId, update: &JobUpdate, out: &mut Outcome) {
        if let Err(why) = self.try_update(job, update) {
            refuse(out, format!("change of job {job}"), &why);
        }
    }

    fn try_update(&mut self, id: JobId, update: &JobUpdate) -> Result<(), String> {
        let next = self.updated(id, update)?;
        let moves = self.job(id).is_some_and(|job| job.queue != next.queue);
        if moves || update.time_limit_ms.is_some() {
            // What is reserved counts in the queue that the job leaves, and for as long as it would have run.
            for gang in self.gangs_of(id) {
                self.drop_reservation(gang);
            }
        }
        self.jobs.get_mut(&id).ok_or("no such job")?.job = next;
        for gang in self.gangs_of(id) {
            // A running gang ends at another time, and others wait for that.
            self.note_end(gang);
            self.retime(gang);
        }
        self.order_key_changed(id, false);
        self.replan = true;
        Ok(())
    }

    /// The job as it would be, if it may be so.
    fn updated(&self, id: JobId, update: &JobUpdate) -> Result<Job, String> {
        let entry = self
            .jobs
            .get(&id)
            .filter(|entry| entry.ending.is_none())
            .ok_or("no such job, or it has ended")?;
        if update.time_limit_ms == Some(0) {
            return Err("a time limit is above 0".to_owned());
        }
        let mut next = entry.job.clone();
        update.apply(&mut next);
        if next.queue != entry.job.queue {
            if entry.gangs.iter().any(GangRecord::holds_capacity) {
                return Err("it holds devices in its queue; another queue is for jobs that wait".to_owned());
            }
            self.allowed_in(&next.queue).set(&mut next);
            admit::admit_to_queue(self, &next).map_err(|why| why.to_string())?;
            admit::admit_to_pools(self, &next).map_err(|why| why.to_string())?;
        }
        match self.longest_limit_ms(&next.queue) {
            Some(most) if next.policy.time_limit_ms.is_none_or(|limit| limit > most) => {
                Err(format!("queue {} allows a time limit of at most {} s", next.queue, most / 1_000))
            }
            _ => Ok(next),
        }
    }

    /// Stops the gangs of a job that run, so that they start again. Their retries do not count.
    pub(super) fn requeue(&mut self, job: JobId, by: &str, out: &mut Outcome) {
        let begun = |gang: &GangId| {
            let phase = self.record(*gang).map(|record| &record.phase);
            matches!(phase, Some(Phase::Starting { .. } | Phase::Running { .. }))
        };
        let gangs: Vec<GangId> = self.gangs_of(job).into_iter().filter(begun).collect();
        if gangs.is_empty() {
            return refuse(out, format!("requeue of job {job}"), "nothing of it runs");
        }
        for gang in gangs {
            let detail = format!("requeued by {by}");
            let cause = StopCause::Displaced { class: FailureClass::Preemption, detail, until: None };
            self.begin_stop(gang, cause, out);
        }
    }
}
