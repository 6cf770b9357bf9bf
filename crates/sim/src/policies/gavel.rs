//! Gavel (Narayanan et al., OSDI 2020): an allocation of time on each kind of device, and rounds that follow it.
//!
//! As its simulator does it (`scheduler/scheduler.py` of stanford-futuredata/gavel, and of uw-mad-dash/shockwave, which
//! is built on it): the allocation is computed anew when jobs came or went, but not too often; in each round the jobs go
//! first that are furthest behind theirs, kind of device by kind of device; a device that falls idle in a round stays so
//! until the next, which begins early where all do.
#![allow(clippy::cast_precision_loss, reason = "milliseconds are exact below 2^53")]

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::center::{Kind, most_even};
use super::places::{Packing, Room};
use crate::Rng;
use crate::replay::{Act, Job, Place, Scheduler, View, WHOLE_MILLI};

/// No allocation is computed sooner than this after the last (`minimum_time_between_allocation_resets` of 1,000 s).
const ALLOCATIONS_APART_MS: u64 = 1_000_000;

/// What the allocation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The least normalized throughput, with the speeds of jobs on each kind of device.
    MaxMin,
    /// The same as if all devices were alike: least attained service.
    MaxMinUnaware,
    /// The worst finish-time fairness (Themis). Devices are taken to be alike.
    FinishTime,
}

/// Rounds towards an allocation.
#[derive(Debug)]
pub struct Gavel {
    goal: Goal,
    round_ms: u64,
    next_round: u64,
    round_began: u64,
    /// Jobs came or went since the last allocation.
    is_stale: bool,
    allocated_at: Option<u64>,
    jobs: BTreeMap<usize, Account>,
    /// By model: time that jobs had since the last allocation.
    had_ms: Vec<f64>,
    room: Room,
    rng: Rng,
}

/// What a job is due and had. Everything is by model.
#[derive(Clone, Debug, Default)]
struct Account {
    /// Shares of time; empty before it was in an allocation.
    share: Vec<f64>,
    had_ms: Vec<f64>,
    /// Of equals, the least goes first.
    lot: u64,
    /// Its time with devices that is counted in `had_ms`, and its model while it runs.
    counted_ms: u64,
    model: Option<usize>,
    /// For finish-time fairness: how long it would have run alone on an equal share for what it did until the last
    /// allocation, what was left then, and its speed on that share.
    alone_ms: f64,
    left: f64,
    alone_per_ms: f64,
}

impl Gavel {
    #[must_use]
    pub fn new(goal: Goal, round_ms: u64) -> Self {
        Self {
            goal,
            round_ms: round_ms.max(1),
            next_round: 0,
            round_began: 0,
            is_stale: true,
            allocated_at: None,
            jobs: BTreeMap::new(),
            had_ms: Vec::new(),
            room: Room::new(Packing::Consolidated),
            rng: Rng::new(0),
        }
    }

    /// Time that passed since the last round is counted for whoever had devices.
    fn count(&mut self, view: &View<'_>) {
        self.had_ms.resize(view.cluster.models.len(), 0.0);
        for (job, account) in &mut self.jobs {
            // Every job begins with half a round, so that shares can be compared.
            account.had_ms.resize(self.had_ms.len(), self.round_ms as f64 / 2.0);
            let held_ms = view.held_ms(*job);
            if let Some(model) = account.model {
                let ms = (held_ms - account.counted_ms) as f64;
                account.had_ms[model] += ms;
                self.had_ms[model] += ms;
            }
            account.counted_ms = held_ms;
        }
    }

    fn allocate(&mut self, view: &View<'_>) {
        let begin_ms = self.round_ms as f64 / 2.0;
        self.had_ms.iter_mut().for_each(|ms| *ms = begin_ms * self.jobs.len() as f64);
        for account in self.jobs.values_mut() {
            account.had_ms.iter_mut().for_each(|ms| *ms = begin_ms);
            account.lot = self.rng.bits();
        }
        match self.goal {
            Goal::MaxMin => self.max_min(view, true),
            Goal::MaxMinUnaware => self.max_min(view, false),
            Goal::FinishTime => self.finish_time(view),
        }
        (self.allocated_at, self.is_stale) = (Some(view.now), false);
    }

    /// Jobs that ask for the same and are as fast everywhere are one kind, and get the same.
    fn max_min(&mut self, view: &View<'_>, is_aware: bool) {
        let mut kinds: BTreeMap<(u64, Vec<u64>), Vec<usize>> = BTreeMap::new();
        for job in self.jobs.keys() {
            let speeds = (0..view.cluster.models.len()).map(|model| {
                let speed = view.speed_on(*job, model);
                if is_aware { speed } else { f64::from(u8::from(speed > 0.0)) }
            });
            let key = (view.jobs[*job].milli(), speeds.map(f64::to_bits).collect());
            kinds.entry(key).or_default().push(*job);
        }
        let of: Vec<(f64, Vec<f64>, f64)> = kinds
            .iter()
            .map(|((milli, speeds), jobs)| {
                (
                    *milli as f64 / f64::from(WHOLE_MILLI),
                    speeds.iter().map(|bits| f64::from_bits(*bits)).collect(),
                    jobs.len() as f64,
                )
            })
            .collect();
        let sizes: Vec<f64> = (0..view.cluster.models.len())
            .map(|model| f64::from(view.cluster.gpus_of_model(model)))
            .collect();
        let shares = max_min_shares(&of, &sizes);
        for (jobs, share) in kinds.values().zip(shares) {
            for job in jobs {
                if let Some(account) = self.jobs.get_mut(job) {
                    account.share.clone_from(&share);
                }
            }
        }
    }

    /// The least rho that all can have, by bisection: with a rho, a job needs so much of its time that it ends soon
    /// enough. What is left over is shared out by what jobs have.
    fn finish_time(&mut self, view: &View<'_>) {
        let gpus = f64::from(view.cluster.gpus());
        let count = self.jobs.len() as f64;
        let mut asks: Vec<(usize, f64, f64, f64, f64)> = Vec::new();
        for (job, account) in &mut self.jobs {
            let of = &view.jobs[*job];
            let (size, left) = (of.devices(), view.remaining(*job));
            let speed = view.speed_on(*job, view.cluster.models.len() - 1);
            if account.alone_per_ms > 0.0 {
                account.alone_ms += (account.left - left) / account.alone_per_ms;
            }
            (account.left, account.alone_per_ms) = (left, speed * (gpus / count / size).min(1.0));
            let alone_ms = account.alone_ms + left / account.alone_per_ms;
            asks.push((*job, size, (view.now - of.submit_ms) as f64, left / speed, alone_ms));
        }
        let needs = |rho: f64, (_, _, passed_ms, left_ms, alone_ms): &(usize, f64, f64, f64, f64)| {
            let rest_ms = rho * alone_ms - passed_ms;
            if rest_ms > 0.0 { left_ms / rest_ms } else { f64::INFINITY }
        };
        let is_enough = |rho: f64| {
            asks.iter().all(|ask| needs(rho, ask) <= 1.0)
                && asks.iter().map(|ask| needs(rho, ask) * ask.1).sum::<f64>() <= gpus
        };
        let (mut low, mut high) = (0.0, 1.0);
        while !is_enough(high) && high < 1e9 {
            high *= 2.0;
        }
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if is_enough(middle) { high = middle } else { low = middle }
        }
        let used: f64 = asks.iter().map(|ask| needs(high, ask) * ask.1).sum();
        let more = if used > 0.0 { (gpus / used).max(1.0) } else { 1.0 };
        let models = view.cluster.models.len() as f64;
        for ask in &asks {
            if let Some(account) = self.jobs.get_mut(&ask.0) {
                account.share = vec![(needs(high, ask) * more).min(1.0) / models; view.cluster.models.len()];
            }
        }
    }

    /// Who runs in this round, on which model: there whoever is furthest behind. The best model is filled first, or, where
    /// all are taken to be alike, whichever comes (`_worker_type_shuffler`).
    fn choose(&mut self, view: &View<'_>) -> BTreeMap<usize, usize> {
        let mut chosen = BTreeMap::new();
        let mut models: Vec<usize> = (0..view.cluster.models.len()).rev().collect();
        if self.goal != Goal::MaxMin {
            self.rng.shuffle(&mut models);
        }
        for model in models {
            let mut left = u64::from(view.cluster.gpus_of_model(model)) * u64::from(WHOLE_MILLI);
            let mut line: Vec<(f64, u64, usize)> = Vec::new();
            for (job, account) in &self.jobs {
                let share = account.share.get(model).copied().unwrap_or(0.0);
                let had = account.had_ms[model] / self.had_ms[model].max(1.0);
                line.push((if had > 0.0 { share / had } else { share * 1e9 }, account.lot, *job));
            }
            line.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
            for (.., job) in line {
                let milli = view.jobs[job].milli();
                if milli <= left && !chosen.contains_key(&job) && view.speed_on(job, model) > 0.0 {
                    left -= milli;
                    chosen.insert(job, model);
                }
            }
        }
        chosen
    }

    /// Whoever stays on its model keeps its place; the largest of the others are placed first.
    fn place(&mut self, view: &View<'_>, chosen: &BTreeMap<usize, usize>, acts: &mut Vec<Act>) {
        self.room.become_free(view.cluster, view.free);
        let mut starts: Vec<(usize, usize)> = Vec::new();
        for (job, account) in &mut self.jobs {
            let model = chosen.get(job).copied();
            let runs_on = account.model.filter(|_| view.is_running(*job));
            if runs_on != model {
                if view.is_running(*job) {
                    acts.push(Act::Stop { job: *job, keep_progress: true });
                    self.room.give_back(view.place(*job));
                }
                starts.extend(model.map(|model| (*job, model)));
            }
            account.model = model;
        }
        starts.sort_by_key(|(job, _)| (Reverse(view.jobs[*job].milli()), *job));
        for (job, model) in starts {
            let on_model = Job { models: vec![view.cluster.models[model].clone()], ..view.jobs[job].clone() };
            let place: Option<Place> = self.room.find(view.cluster, &on_model, on_model.gpus);
            if let Some(place) = place {
                self.room.take(&place);
                acts.push(Act::Start { job, place });
            } else if let Some(account) = self.jobs.get_mut(&job) {
                account.model = None;
            }
        }
    }
}

/// By kind of job (devices, speed by model, how many), the share of time on each model such that the least normalized
/// throughput is the greatest: speed over that on an equal share of the cluster, times devices, as `max_min_fairness.py`
/// has it.
fn max_min_shares(kinds: &[(f64, Vec<f64>, f64)], sizes: &[f64]) -> Vec<Vec<f64>> {
    let jobs: f64 = kinds.iter().map(|(.., count)| count).sum();
    // Of an equal share no job can use more than all of its time.
    let whole: f64 = sizes.iter().map(|size| size / jobs).sum::<f64>().max(1.0);
    let kind = |(gpus, speeds, count): &(f64, Vec<f64>, f64)| {
        let equal: f64 = speeds.iter().zip(sizes).map(|(speed, size)| speed * size / jobs / whole).sum();
        let worth = |speed: &f64| if equal > 0.0 { speed * gpus / equal } else { 0.0 };
        Kind { count: *count, gpus: *gpus, worth: speeds.iter().map(worth).collect() }
    };
    most_even(&kinds.iter().map(kind).collect::<Vec<Kind>>(), sizes)
}

impl Scheduler for Gavel {
    fn name(&self) -> String {
        match self.goal {
            Goal::MaxMin => "gavel".to_owned(),
            Goal::MaxMinUnaware => "gavel-las".to_owned(),
            Goal::FinishTime => "gavel-themis".to_owned(),
        }
    }

    fn submitted(&mut self, _: u64, index: usize, _: &Job) {
        self.jobs.insert(index, Account::default());
        self.is_stale = true;
    }

    fn ended(&mut self, now: u64, index: usize) {
        if let Some(Account { model: Some(model), .. }) = self.jobs.remove(&index)
            && let Some(had_ms) = self.had_ms.get_mut(model)
        {
            *had_ms += (now - self.round_began) as f64;
        }
        self.is_stale = true;
    }

    fn decide(&mut self, view: &View<'_>, acts: &mut Vec<Act>) -> Option<u64> {
        if self.jobs.is_empty() {
            return None;
        }
        if view.now < self.next_round && !view.running.is_empty() {
            return Some(self.next_round);
        }
        self.count(view);
        if self.is_stale && self.allocated_at.is_none_or(|at| view.now - at >= ALLOCATIONS_APART_MS) {
            self.allocate(view);
        }
        let chosen = self.choose(view);
        self.place(view, &chosen, acts);
        (self.round_began, self.next_round) = (view.now, view.now + self.round_ms);
        Some(self.next_round)
    }
}
