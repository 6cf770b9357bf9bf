//! What a policy may know of a replay.

use phalanx_model::DeviceMask;

use super::losses::Speed;
use super::progress::slowdown;
use super::{Free, Job, Machines, Part, Place, Progress, WHOLE_MILLI, milli_of};

/// Where a job stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not submitted yet, or larger than the cluster.
    #[default]
    Absent,
    Waiting,
    Running,
    Done,
}

/// How far a job is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub phase: Phase,
    /// Empty unless it runs.
    pub place: Place,
    /// When it was submitted, started, or stopped last.
    pub since_ms: u64,
    /// Work done until `counted_ms`, less what was lost.
    pub(super) done: f64,
    /// Until when `done` counts; while it starts, when work begins.
    pub(super) counted_ms: u64,
    /// Work per ms on its place.
    pub(super) rate: f64,
    /// What that is of its speed at the best place.
    pub(super) speed: Speed,
    /// Work done at which the rate changes, or all of it.
    pub(super) until: f64,
    /// Work that would be kept if it lost its devices, and when it was saved.
    pub(super) saved: f64,
    pub(super) saved_ms: u64,
    /// When its time limit ends its present run.
    pub(super) limit_at: Option<u64>,
    /// The slowdown that stretches the limit of its present run, and the part of the limit that earlier runs used.
    pub(super) stretch: f64,
    pub(super) limit_used_ms: u64,
    /// Counts changes of its run.
    pub(super) run: u32,
    /// Time with devices before its present run, and the same by thousandth of a device.
    pub(super) held_ms: u64,
    pub(super) held_gpu_us: u64,
}

/// A replay as it stands.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub now: u64,
    pub cluster: &'a Machines,
    pub jobs: &'a [Job],
    /// Jobs that wait, in the order of submission.
    pub waiting: &'a [usize],
    /// Jobs that run, in the order of submission.
    pub running: &'a [usize],
    pub free: &'a Free,
    /// By node; a lost one has nothing free.
    pub is_up: &'a [bool],
    pub(super) states: &'a [State],
    pub(super) progress: &'a dyn Progress,
    pub(super) settings: &'a super::Settings,
}

impl<'a> View<'a> {
    #[must_use]
    pub fn state(&self, job: usize) -> &'a State {
        &self.states[job]
    }

    #[must_use]
    pub fn place(&self, job: usize) -> &'a [Part] {
        &self.states[job].place
    }

    #[must_use]
    pub fn is_running(&self, job: usize) -> bool {
        self.states[job].phase == Phase::Running
    }

    /// Work done until now.
    #[must_use]
    pub fn done(&self, job: usize) -> f64 {
        self.states[job].done_at(self.now)
    }

    /// Work that is left: only oracles look at it.
    #[must_use]
    pub fn remaining(&self, job: usize) -> f64 {
        (self.jobs[job].work - self.done(job)).max(0.0)
    }

    /// Time for which it had devices.
    #[must_use]
    pub fn held_ms(&self, job: usize) -> u64 {
        let state = &self.states[job];
        state.held_ms + if self.is_running(job) { self.now - state.since_ms } else { 0 }
    }

    /// The same by device, rounded down: what least attained service counts.
    #[must_use]
    pub fn held_gpu_ms(&self, job: usize) -> u64 {
        let state = &self.states[job];
        let now = milli_of(&state.place) * (self.now.saturating_sub(state.since_ms));
        (state.held_gpu_us + if self.is_running(job) { now } else { 0 }) / u64::from(WHOLE_MILLI)
    }

    /// The time limit of a job in a run on this place, where time limits stretch with the predicted slowdown.
    #[must_use]
    pub fn stretched_limit_ms(&self, job: usize, place: &[Part]) -> Option<u64> {
        let of = &self.jobs[job];
        let limit_ms = of.limit_ms.filter(|_| self.settings.stretches_limits)?;
        Some(stretched(limit_ms, slowdown(self.progress, job, of, place, self.cluster, self.done(job))))
    }

    /// Work per millisecond that a job would do from here with all that it asks for on nodes of one model; 0 where it
    /// could not run there. What a profile of the job says.
    #[must_use]
    pub fn speed_on(&self, job: usize, model: usize) -> f64 {
        let of = &self.jobs[job];
        if !of.models.is_empty()
            && !self.cluster.models.get(model).is_some_and(|name| of.models.contains(name))
        {
            return 0.0;
        }
        let nodes = (0..self.cluster.nodes.len()).filter(|node| self.cluster.model_of[*node] == model);
        let Some(place) = self.filled(nodes, of, of.gpus) else { return 0.0 };
        self.progress.rate(job, of, &place, self.cluster, self.done(job)).per_ms
    }

    /// A place for so many devices of a job, or shares of devices, if nothing else ran: node after node.
    fn filled(&self, nodes: impl Iterator<Item = usize>, of: &Job, gpus: u32) -> Option<Place> {
        let (each, on_device) = (of.each_milli(), of.on_each_device());
        let (mut left, mut place) = (gpus, Place::new());
        for node in nodes {
            let here = left.min(self.cluster.gpus_on(node) * on_device);
            let (full, rest) = (DeviceMask::first(here / on_device), here % on_device);
            let parts = [
                Part { node, devices: full, milli: on_device * each },
                Part {
                    node,
                    devices: DeviceMask::first(here.div_ceil(on_device)).minus(full),
                    milli: rest * each,
                },
            ];
            place.extend(parts.into_iter().filter(|part| !part.devices.is_empty()));
            left -= here;
            if left == 0 {
                return Some(place);
            }
        }
        None
    }

    /// How long the work that is left would take from here with so many devices, on as few nodes as hold them: what only
    /// oracles know. Infinite where it would never end.
    #[must_use]
    pub fn left_ms(&self, job: usize, gpus: u32) -> f64 {
        let of = &self.jobs[job];
        let Some(place) = self.filled(0..self.cluster.nodes.len(), of, gpus) else { return f64::INFINITY };
        let (mut done, mut ms) = (self.done(job), 0.0);
        while done < of.work {
            let rate = self.progress.rate(job, of, &place, self.cluster, done);
            let until = rate.until.min(of.work);
            if rate.per_ms <= 0.0 || until <= done {
                return f64::INFINITY;
            }
            ms += (until - done) / rate.per_ms;
            done = until;
        }
        ms
    }

    /// All that wait or run, in the order of submission.
    #[must_use]
    pub fn active(&self) -> Vec<usize> {
        let mut all = [self.waiting, self.running].concat();
        all.sort_unstable();
        all
    }

    /// Devices that all jobs that are there ask for.
    #[must_use]
    pub fn active_gpus(&self) -> f64 {
        self.waiting.iter().chain(self.running).map(|job| self.jobs[*job].devices()).sum()
    }
}

impl State {
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53 ms")]
    pub(super) fn done_at(&self, now: u64) -> f64 {
        if self.phase != Phase::Running {
            return self.done;
        }
        (self.done + self.rate * now.saturating_sub(self.counted_ms) as f64).min(self.until)
    }
}

/// So much of a time limit on a place where all takes so many times as long, rounded up.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "exact below 2^53 ms, and saturates"
)]
pub(super) fn stretched(limit_ms: u64, slowdown: f64) -> u64 {
    if slowdown <= 1.0 { limit_ms } else { (limit_ms as f64 * slowdown).ceil() as u64 }
}
