//! Tiresias (Gu et al., NSDI 2019): discretised two-dimensional least attained service.

use super::ordered::Order;
use crate::replay::{Job, View};

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
        Self { limits_gpu_ms: vec![3_250_000, 7_200_000], promote_after: None, jobs: Vec::new() }
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

    /// Moves jobs between the queues; when the next one moves.
    fn prepare(&mut self, view: &View<'_>) -> Option<u64> {
        let mut next: Option<u64> = None;
        for job in view.active() {
            let of = &mut self.jobs[job];
            let gpu_ms = view.held_gpu_ms(job) - of.base_gpu_ms;
            of.queue = self.limits_gpu_ms.iter().take_while(|limit| gpu_ms >= **limit).count() as u64;
            let crosses_in_ms = if view.is_running(job) {
                let limit = self.limits_gpu_ms.get(usize::try_from(of.queue).unwrap_or(usize::MAX));
                limit.map(|limit| (limit - gpu_ms).div_ceil(u64::from(view.jobs[job].gpus.max(1))))
            } else {
                let ran_ms = view.held_ms(job) - of.base_ms;
                let waited_ms = (view.now - of.promoted_at).saturating_sub(ran_ms);
                let knob = self.promote_after.filter(|_| of.queue > 0 && ran_ms > 0);
                let left_ms = knob.map(|knob| knob.saturating_mul(ran_ms).saturating_sub(waited_ms));
                if left_ms == Some(0) {
                    let (base_gpu_ms, base_ms) = (view.held_gpu_ms(job), view.held_ms(job));
                    *of = Attained { queue: 0, base_gpu_ms, base_ms, promoted_at: view.now };
                }
                left_ms.filter(|ms| *ms > 0)
            };
            let at = crosses_in_ms.map(|ms| view.now + ms.max(1));
            next = [next, at].into_iter().flatten().min();
        }
        next
    }

    fn key(&mut self, _: &View<'_>, job: usize) -> (u64, f64) {
        (self.jobs[job].queue, 0.0)
    }
}
