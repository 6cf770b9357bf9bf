//! Arrays: their tasks start in the order of their numbers, a limited number at once.

use phalanx_model::{
    Ending, GangId, GangRecord, Job, JobId, Outcome, Phase, Progress, Reason, StopCause, Tasks,
};

use super::apply::refuse;
use super::{Entry, Ledger};

/// The progress of an array. Its cost follows the tasks that end, not the pending tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admitted {
    /// Tasks that may hold capacity at once.
    most: u32,
    /// Pending tasks below this number may start.
    below: u32,
    /// Tasks that hold capacity, and pending tasks that may start.
    count: u32,
}

impl Admitted {
    /// The progress of an array that limits its tasks; `gangs` are in the order of their numbers.
    pub(super) fn of(job: &Job, gangs: &[GangRecord]) -> Option<Self> {
        let most = job.turn.array.as_ref()?.running_max?;
        let mut count = to_u32(gangs.iter().filter(|gang| gang.holds_capacity()).count());
        let mut below = 0;
        for gang in gangs {
            if count >= most {
                break;
            }
            count += u32::from(gang.is_pending());
            below = gang.id.index + 1;
        }
        Some(Self { most, below, count })
    }

    const fn admits(&self, task: GangId) -> bool {
        task.index < self.below
    }
}

fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Entry {
    /// The number of tasks that may run at once, if other tasks go before this task.
    pub(super) fn array_limit(&self, task: GangId) -> Option<u32> {
        self.admitted.filter(|admitted| !admitted.admits(task)).map(|admitted| admitted.most)
    }
}

impl Ledger {
    /// Records that a task ended, or is pending again. `held` says whether it held capacity until then, or was pending.
    pub(super) fn task_left(&mut self, task: GangId, held: bool) {
        let is_pending = self.record(task).is_some_and(GangRecord::is_pending);
        let Some(admitted) = self.admitted_mut(task.job) else { return };
        let counted = held || admitted.admits(task);
        let counts = is_pending && admitted.admits(task);
        admitted.count = (admitted.count + u32::from(counts)).saturating_sub(u32::from(counted));
        self.admit_tasks(task.job);
    }

    /// Writes the phase of a gang, and counts it among those of its job.
    pub(super) fn write_phase(&mut self, gang: GangId, phase: Phase) {
        let Some(entry) = self.jobs.get_mut(&gang.job) else { return };
        let Some(record) = entry.gangs.get_mut(gang.index as usize) else { return };
        entry.progress.uncount(&record.phase);
        record.phase = phase;
        entry.progress.count(record);
    }

    /// The gangs of a job by phase.
    pub(crate) fn progress(&self, job: JobId) -> Option<Progress> {
        Some(self.jobs.get(&job)?.progress)
    }

    /// How a job ended, once all of its gangs have.
    pub(crate) fn ending(&self, job: JobId) -> Option<&Ending> {
        self.jobs.get(&job)?.ending.as_ref()
    }

    /// Gangs of a job that have not ended, in the order of their indices.
    pub(crate) fn active_of(&self, job: JobId) -> impl Iterator<Item = &GangRecord> {
        self.active.range(job.gang(0)..=job.gang(u32::MAX)).filter_map(|id| self.record(*id))
    }

    /// A gang is pending no longer, so its own reason is of no interest. The reason of an array is now that of another
    /// task.
    pub(super) fn refresh_after(&mut self, gang: GangId) {
        if self.is_task(gang.job) {
            self.refresh.insert(gang);
        } else {
            self.refresh.remove(&gang);
        }
    }

    pub(super) fn is_task(&self, job: JobId) -> bool {
        self.job(job).is_some_and(|job| job.turn.array.is_some())
    }

    /// Gangs whose reasons are reported, of those whose reasons may have changed: of an array the first pending task
    /// alone, because an array may have a hundred thousand pending tasks and its tasks are equal.
    pub(super) fn take_refreshed(&mut self) -> Vec<GangId> {
        let mut refreshed: Vec<GangId> = std::mem::take(&mut self.refresh).into_iter().collect();
        let mut told = None;
        refreshed.retain_mut(|gang| {
            if told == Some(gang.job) {
                return false;
            }
            if !self.is_task(gang.job) {
                return true;
            }
            told = Some(gang.job);
            let first = self.active_of(gang.job).find(|record| record.is_pending());
            first.map(|record| *gang = record.id).is_some()
        });
        refreshed
    }

    /// Whether a reason was the last that was reported for a task of this array. From now on it is.
    pub(super) fn is_told_of_array(&mut self, job: JobId, reason: &Reason) -> bool {
        let array = self.jobs.get_mut(&job).filter(|entry| entry.job.turn.array.is_some());
        array.is_some_and(|entry| entry.told.replace(reason.clone()).as_ref() == Some(reason))
    }

    /// Cancels the tasks of an array that have these numbers and have not ended.
    pub(super) fn cancel_tasks(&mut self, job: JobId, tasks: &Tasks, by: &str, out: &mut Outcome) {
        let subject = || format!("cancel of tasks {tasks} of job {job}");
        let Some(of) = self.job(job) else { return refuse(out, subject(), "no such job") };
        if of.turn.array.is_none() {
            return refuse(out, subject(), "the job is not an array");
        }
        let indices: Vec<u32> = tasks.numbers().filter_map(|number| of.task_index(number)).collect();
        for index in indices {
            self.begin_stop(job.gang(index), StopCause::Cancelled { by: by.to_owned() }, out);
        }
    }

    /// The records of the gangs of a job, in the order of their indices.
    pub(crate) fn records_of(&self, job: JobId) -> &[GangRecord] {
        self.jobs.get(&job).map_or(&[], |entry| entry.gangs.as_slice())
    }

    /// Lets no more tasks of an array start.
    pub(super) fn end_array(&mut self, job: JobId) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.admitted = None;
        }
    }

    fn admitted_mut(&mut self, job: JobId) -> Option<&mut Admitted> {
        self.jobs.get_mut(&job)?.admitted.as_mut()
    }

    /// Lets the next tasks start, as far as the limit of running tasks has room.
    fn admit_tasks(&mut self, job: JobId) {
        while let Some(admitted) = self.jobs.get(&job).and_then(|entry| entry.admitted)
            && admitted.count < admitted.most
            && let Some(task) =
                self.active.range(job.gang(admitted.below)..=job.gang(u32::MAX)).next().copied()
        {
            let is_pending = self.record(task).is_some_and(GangRecord::is_pending);
            if let Some(admitted) = self.admitted_mut(job) {
                admitted.below = task.index + 1;
                admitted.count += u32::from(is_pending);
            }
            if is_pending && self.pending.place_of(task).is_none() {
                self.relist(task);
            }
        }
        debug_assert!(self.is_counted(job), "tasks of job {job} that may start are counted");
    }

    fn is_counted(&self, job: JobId) -> bool {
        let Some((entry, admitted)) = self.jobs.get(&job).and_then(|e| Some((e, e.admitted?))) else {
            return true;
        };
        let counts =
            |gang: &&GangRecord| gang.holds_capacity() || gang.is_pending() && admitted.admits(gang.id);
        to_u32(entry.gangs.iter().filter(counts).count()) == admitted.count
    }
}
