//! Arrays: their tasks start in the order of their numbers, a limited number at once.

use phalanx_model::{GangId, GangRecord, Job, JobId};

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
        let most = job.turn.array?.running_max?;
        let mut count = to_u32(gangs.iter().filter(|gang| gang.holds_capacity()).count());
        let mut below = 0;
        for gang in gangs {
            if count >= most {
                break;
            }
            count += u32::from(gang.is_pending());
            below = u32::from(gang.id.index) + 1;
        }
        Some(Self { most, below, count })
    }

    const fn admits(&self, task: GangId) -> bool {
        (task.index as u32) < self.below
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
            && let Ok(from) = u16::try_from(admitted.below)
            && let Some(task) = self.active.range(job.gang(from)..=job.gang(u16::MAX)).next().copied()
        {
            let is_pending = self.record(task).is_some_and(GangRecord::is_pending);
            if let Some(admitted) = self.admitted_mut(job) {
                admitted.below = u32::from(task.index) + 1;
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
