//! Policies that are an order of jobs: who is first gets devices first.

use super::places::{Packing, Room, all_up};
use crate::replay::{Act, Job, Place, Scheduler, View};

/// How an order of jobs is made.
pub trait Order {
    fn name(&self) -> String;

    /// The least goes first; of equals, whoever was submitted first.
    fn key(&mut self, view: &View<'_>, job: usize) -> (u64, f64);

    fn submitted(&mut self, _now: u64, _index: usize, _job: &Job) {}

    /// Called once before the keys are asked for.
    fn prepare(&mut self, _view: &View<'_>) {}

    /// When the order changes by itself next, if those run that do after the acts.
    fn next_change(&self, _view: &View<'_>, _runs: &dyn Fn(usize) -> bool) -> Option<u64> {
        None
    }
}

/// What of the jobs that run is given to those that go before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preemption {
    /// Nothing: a job runs to its end. Where the first that waits does not fit, all wait (`is_strict`), or others pass.
    Never { is_strict: bool },
    /// Whatever goes before by the count of devices runs. Whoever runs and goes on stays where it is.
    ByCount,
    /// All are placed anew in their order, as on an empty cluster, and whoever does not fit waits.
    Repack,
}

/// A policy that is an order.
#[derive(Debug)]
pub struct Ordered<O> {
    order: O,
    preemption: Preemption,
    room: Room,
    packing: Packing,
    round_ms: Option<u64>,
    /// What is free between rounds stays so until the next.
    is_idle_between: bool,
    next_round: u64,
}

impl<O: Order> Ordered<O> {
    #[must_use]
    pub fn new(order: O, preemption: Preemption, packing: Packing) -> Self {
        let room = Room::new(packing);
        Self { order, preemption, room, packing, round_ms: None, is_idle_between: false, next_round: 0 }
    }

    /// Takes devices from jobs only every so often. In between who waits gets what is free, in the same order.
    #[must_use]
    pub fn every(self, round_ms: u64) -> Self {
        Self { round_ms: Some(round_ms.max(1)), ..self }
    }

    /// Decides only at whole multiples of a time, as simulators with fixed steps do.
    #[must_use]
    pub fn only_every(self, round_ms: u64) -> Self {
        Self { is_idle_between: true, ..self.every(round_ms) }
    }

    fn sorted(&mut self, view: &View<'_>, jobs: Vec<usize>) -> Vec<usize> {
        let mut keyed: Vec<((u64, f64), usize)> =
            jobs.into_iter().map(|job| (self.order.key(view, job), job)).collect();
        keyed
            .sort_by(|((a, x), i), ((b, y), j)| a.cmp(b).then_with(|| x.total_cmp(y)).then_with(|| i.cmp(j)));
        keyed.into_iter().map(|(_, job)| job).collect()
    }

    /// One turn, or between rounds what is left for those who wait; when the next round is.
    fn round(&mut self, view: &View<'_>, acts: &mut Vec<Act>) -> Option<u64> {
        let Some(round_ms) = self.round_ms else {
            self.turn(view, acts);
            return None;
        };
        let is_due =
            view.now >= self.next_round && (!self.is_idle_between || view.now.is_multiple_of(round_ms));
        if is_due {
            self.turn(view, acts);
        }
        if view.now >= self.next_round {
            self.next_round = (view.now / round_ms + 1) * round_ms;
        }
        if !is_due && !self.is_idle_between {
            self.fill(view, false, acts);
        }
        Some(self.next_round)
    }

    fn turn(&mut self, view: &View<'_>, acts: &mut Vec<Act>) {
        match self.preemption {
            Preemption::Never { is_strict } => self.fill(view, is_strict, acts),
            Preemption::ByCount => self.by_count(view, acts),
            Preemption::Repack => self.repack(view, acts),
        }
    }

    fn fill(&mut self, view: &View<'_>, is_strict: bool, acts: &mut Vec<Act>) {
        self.room.become_free(view.cluster, view.free);
        for job in self.sorted(view, view.waiting.to_vec()) {
            if self.room.is_full() {
                return;
            }
            match self.room.find(view.cluster, &view.jobs[job], view.jobs[job].gpus) {
                Some(place) => {
                    self.room.take(&place);
                    acts.push(Act::Start { job, place });
                }
                None if is_strict => return,
                None => {}
            }
        }
    }

    fn by_count(&mut self, view: &View<'_>, acts: &mut Vec<Act>) {
        self.room.become_free(view.cluster, view.free);
        let mut left = all_up(view).milli();
        let (mut starting, mut stopping) = (Vec::new(), Vec::new());
        for job in self.sorted(view, view.active()) {
            let milli = view.jobs[job].milli();
            if milli <= left {
                left -= milli;
                if !view.is_running(job) {
                    starting.push(job);
                }
            } else if view.is_running(job) {
                self.room.give_back(view.place(job));
                stopping.push(job);
            }
        }
        let mut starts: Vec<Act> = Vec::new();
        for job in starting {
            if let Some(place) = self.room.find(view.cluster, &view.jobs[job], view.jobs[job].gpus) {
                self.room.take(&place);
                starts.push(Act::Start { job, place });
            }
        }
        // Whoever nobody has displaced in the end goes on.
        for job in stopping {
            if self.room.has(view.place(job)) {
                self.room.take(view.place(job));
            } else {
                acts.push(Act::Stop { job, keep_progress: true });
            }
        }
        acts.append(&mut starts);
    }

    fn repack(&mut self, view: &View<'_>, acts: &mut Vec<Act>) {
        let mut room = Room::new(self.packing);
        room.become_free(view.cluster, &all_up(view));
        let mut starts: Vec<(usize, Place)> = Vec::new();
        for job in self.sorted(view, view.active()) {
            let place = room.find(view.cluster, &view.jobs[job], view.jobs[job].gpus);
            if let Some(place) = &place {
                room.take(place);
            }
            if place.as_deref() == Some(view.place(job)) {
                continue;
            }
            // Also whoever moves: its old devices may be another's new ones.
            if view.is_running(job) {
                acts.push(Act::Stop { job, keep_progress: true });
            }
            starts.extend(place.map(|place| (job, place)));
        }
        acts.extend(starts.into_iter().map(|(job, place)| Act::Start { job, place }));
    }
}

impl<O: Order> Scheduler for Ordered<O> {
    fn name(&self) -> String {
        self.order.name()
    }

    fn submitted(&mut self, now: u64, index: usize, job: &Job) {
        self.order.submitted(now, index, job);
    }

    fn decide(&mut self, view: &View<'_>, acts: &mut Vec<Act>) -> Option<u64> {
        self.order.prepare(view);
        let mut round = None;
        // Where nobody waits, every order gives the same.
        if !view.waiting.is_empty() {
            round = self.round(view, acts);
        }
        let is_of = |job: usize| move |act: &Act| matches!(act, Act::Start { job: of, .. } | Act::Stop { job: of, .. } if *of == job);
        let runs = |job: usize| match acts.iter().rfind(|act| is_of(job)(act)) {
            Some(act) => matches!(act, Act::Start { .. }),
            None => view.is_running(job),
        };
        let changes = self.order.next_change(view, &runs);
        [round, changes].into_iter().flatten().min()
    }
}
