//! Tiresias (Gu et al., NSDI 2019): discretised two-dimensional least attained service.

use super::ordered::Order;
use crate::replay::{Job, View, WHOLE_MILLI};

/// Jobs fall from queue to queue as their device time passes thresholds; inside a queue the first submitted goes first.
/// One that starves goes back to the first queue.
#[derive(Clone, Debug)]
pub struct Tiresias {
    /// Device time at which a job leaves each queue but the last.
    pub limits_gpu_ms: Vec<u64>,
    /// It is promoted when it has waited so many times as long as it ran since its last promotion (`PROMOTEKNOB`, section
    /// 3.3); nothing: never.
    pub promote_after: Option<u64>,
    /// By job.
    jobs: Vec<Attained>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Attained {
    queue: u64,
    /// What it had when it was promoted.
    base_gpu_ms: u64,
    base_ms: u64,
    promoted_at: u64,
}

impl Default for Tiresias {
    /// As in the simulator of the authors (`simulator/jobs.py`: `queue_limit` of 3,250 s and 7,200 s for three queues),
    /// which does not promote.
    fn default() -> Self {
        Self::new(vec![3_250_000, 7_200_000], None)
    }
}

impl Tiresias {
    #[must_use]
    pub const fn new(limits_gpu_ms: Vec<u64>, promote_after: Option<u64>) -> Self {
        Self { limits_gpu_ms, promote_after, jobs: Vec::new() }
    }

    /// How much longer a job that does not run has to wait to be promoted.
    fn starves_in_ms(&self, view: &View<'_>, job: usize) -> Option<u64> {
        let of = &self.jobs[job];
        let ran_ms = view.held_ms(job) - of.base_ms;
        if of.queue == 0 || ran_ms == 0 {
            return None;
        }
        let waited_ms = (view.now - of.promoted_at).saturating_sub(ran_ms);
        Some(self.promote_after?.saturating_mul(ran_ms).saturating_sub(waited_ms))
    }
}

impl Order for Tiresias {
    fn name(&self) -> String {
        "tiresias".to_owned()
    }

    fn submitted(&mut self, now: u64, index: usize, _: &Job) {
        self.jobs.resize(self.jobs.len().max(index + 1), Attained::default());
        self.jobs[index].promoted_at = now;
    }

    /// Moves jobs between the queues.
    fn prepare(&mut self, view: &View<'_>) {
        for job in view.active() {
            let had_gpu_ms = view.held_gpu_ms(job);
            if !view.is_running(job) && self.starves_in_ms(view, job) == Some(0) {
                let (base_gpu_ms, base_ms) = (had_gpu_ms, view.held_ms(job));
                self.jobs[job] = Attained { queue: 0, base_gpu_ms, base_ms, promoted_at: view.now };
            }
            let of = &mut self.jobs[job];
            if view.held_ms(job) == of.base_ms {
                // What it waited before it ran does not count.
                of.promoted_at = view.now;
            }
            let gpu_ms = had_gpu_ms - of.base_gpu_ms;
            of.queue = self.limits_gpu_ms.iter().take_while(|limit| gpu_ms >= **limit).count() as u64;
        }
    }

    fn next_change(&self, view: &View<'_>, runs: &dyn Fn(usize) -> bool) -> Option<u64> {
        let falls_in_ms = |job: usize| {
            let of = &self.jobs[job];
            let limit = self.limits_gpu_ms.get(usize::try_from(of.queue).ok()?)?;
            let left = limit.saturating_sub(view.held_gpu_ms(job) - of.base_gpu_ms);
            Some((left * u64::from(WHOLE_MILLI)).div_ceil(view.jobs[job].milli().max(1)))
        };
        let moves = view.active().into_iter().filter_map(|job| {
            let in_ms = if runs(job) { falls_in_ms(job) } else { self.starves_in_ms(view, job) };
            in_ms.map(|ms| view.now + ms.max(1))
        });
        moves.min()
    }

    fn key(&mut self, _: &View<'_>, job: usize) -> (u64, f64) {
        (self.jobs[job].queue, 0.0)
    }
}
