//! The world's own books: who has which devices, how far every job is, and what happens to it next.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::crossings::Crossings;
use super::losses::{InVain, Speed};
use super::progress::slowdown;
use super::state::stretched;
use super::{
    Act, Due, Free, JobOutcome, Outcome, Part, Phase, Place, Replay, Sample, StartCost, State, View,
    WHOLE_MILLI, gpus_of, milli_of,
};

/// What is left of work at which it counts as done: rounding of rates.
const NOTHING: f64 = 1e-6;

/// What a run came to that is over for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// Its rate changes.
    Rate,
    /// All work is done.
    End,
    /// Its time limit ended the job.
    Limit,
}

pub(super) struct Books<'a> {
    replay: &'a Replay<'a>,
    now: u64,
    states: Vec<State>,
    outcomes: Vec<JobOutcome>,
    waiting: Vec<usize>,
    running: Vec<usize>,
    free: Free,
    is_up: Vec<bool>,
    /// By node: thousandths of the time that work takes elsewhere.
    times_milli: Vec<u32>,
    /// By domain right above the nodes.
    free_in_leaf: Vec<u32>,
    milli_free: u64,
    gpus_up: u32,
    milli_wanted: u64,
    /// Jobs that are not submitted yet.
    to_come: usize,
    /// Who sends across which uplink, where that matters.
    crossings: Option<Crossings>,
    /// Runs that changed, and have no event yet.
    changed: BTreeSet<usize>,
    samples: Vec<Sample>,
    decisions: u64,
    starts: u64,
}

impl<'a> Books<'a> {
    pub(super) fn new(replay: &'a Replay<'a>) -> Self {
        let outcome = |(index, job): (usize, &super::Job)| JobOutcome {
            name: job.name.clone(),
            gpus: job.gpus,
            share_milli: job.share_milli,
            queue: job.queue.clone(),
            submit_ms: job.submit_ms,
            work: job.work,
            alone_ms: replay.progress.alone_ms(index, job),
            ..JobOutcome::default()
        };
        let free = Free::all(replay.cluster);
        let mut free_in_leaf = vec![0; replay.cluster.leaves()];
        for (node, free) in free.whole().iter().enumerate() {
            free_in_leaf[replay.cluster.leaf_of(node)] += free.count();
        }
        let gpus: u32 = free_in_leaf.iter().sum();
        Self {
            replay,
            now: 0,
            states: vec![State::default(); replay.jobs.len()],
            outcomes: replay.jobs.iter().enumerate().map(outcome).collect(),
            waiting: Vec::new(),
            running: Vec::new(),
            is_up: vec![true; replay.cluster.nodes.len()],
            times_milli: vec![1_000; replay.cluster.nodes.len()],
            milli_free: free.milli(),
            free,
            free_in_leaf,
            gpus_up: gpus,
            milli_wanted: 0,
            to_come: replay.jobs.len(),
            crossings: replay.progress.is_shared().then(|| Crossings::new(replay.cluster)),
            changed: BTreeSet::new(),
            samples: Vec::new(),
            decisions: 0,
            starts: 0,
        }
    }

    /// Starts of all jobs until now.
    pub(super) const fn starts(&self) -> u64 {
        self.starts
    }

    pub(super) const fn now(&self) -> u64 {
        self.now
    }

    /// Time passes. Where Muri's simulator charges every running job for every event, so does this.
    pub(super) fn advance(&mut self, now: u64) {
        self.now = now;
        if self.replay.settings.start_cost != StartCost::AtEveryEvent {
            return;
        }
        for job in std::mem::take(&mut self.running) {
            let state = &self.states[job];
            let is_reached = state.counted_ms.saturating_add(time_until(state)) <= now;
            if !is_reached && state.counted_ms < now {
                let charge_ms = self.start_ms(job).min(now - state.counted_ms);
                self.states[job].counted_ms += charge_ms;
                self.outcomes[job].starting_ms += charge_ms;
                self.count(job);
                self.changed.insert(job);
            }
            self.running.push(job);
        }
    }

    /// Whether no job is there and none will come.
    pub(super) fn is_over(&self) -> bool {
        self.to_come == 0 && self.waiting.is_empty() && self.running.is_empty()
    }

    pub(super) fn view(&mut self) -> View<'_> {
        self.decisions += 1;
        View {
            now: self.now,
            cluster: self.replay.cluster,
            jobs: self.replay.jobs,
            waiting: &self.waiting,
            running: &self.running,
            free: &self.free,
            is_up: &self.is_up,
            states: &self.states,
            progress: self.replay.progress,
            settings: &self.replay.settings,
        }
    }

    /// Whether it is one that the cluster can hold: others are never told of, and never end.
    pub(super) fn submitted(&mut self, job: usize) -> bool {
        self.to_come -= 1;
        let of = &self.replay.jobs[job];
        let cluster = self.replay.cluster;
        let fitting = (0..cluster.nodes.len()).filter(|node| self.will_do(job, *node));
        let on_device = of.on_each_device();
        if of.gpus_min > fitting.map(|node| cluster.gpus_on(node) * on_device).sum() || of.gpus == 0 {
            return false;
        }
        let state = &mut self.states[job];
        (state.phase, state.since_ms) = (Phase::Waiting, self.now);
        insert(&mut self.waiting, job);
        self.milli_wanted += of.milli();
        true
    }

    fn will_do(&self, job: usize, node: usize) -> bool {
        let cluster = self.replay.cluster;
        let models = &self.replay.jobs[job].models;
        models.is_empty() || models.contains(&cluster.models[cluster.model_of[node]])
    }

    /// Whether a job still runs as it did when something was planned for it.
    pub(super) fn is_run(&self, job: usize, run: u32) -> bool {
        let state = &self.states[job];
        state.run == run && state.phase == Phase::Running
    }

    /// The work until the end of a rate is done, or the time until the limit is over; nothing where the run changed since.
    pub(super) fn reached(&mut self, job: usize, run: u32) -> Option<Reached> {
        if !self.is_run(job, run) {
            return None;
        }
        let state = &self.states[job];
        let (reached, is_cut) = (state.until, rate_ends_at(state).is_none_or(|at| at > self.now));
        self.count(job);
        if is_cut {
            self.leave(job);
            self.kill(job);
            return Some(Reached::Limit);
        }
        self.set_done(job, reached);
        let work = self.replay.jobs[job].work;
        if reached + NOTHING < work {
            self.rate(job);
            return Some(Reached::Rate);
        }
        self.set_done(job, work);
        self.leave(job);
        self.outcomes[job].end_ms = Some(self.now);
        Some(Reached::End)
    }

    /// A job does not come back.
    fn leave(&mut self, job: usize) {
        self.give_back(job);
        self.states[job].phase = Phase::Done;
        self.milli_wanted -= self.replay.jobs[job].milli();
    }

    /// What a job did until its time limit was in vain.
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53 ms")]
    fn kill(&mut self, job: usize) {
        let outcome = &mut self.outcomes[job];
        let starting_gpu_ms = outcome.starting_ms as f64 * outcome.devices();
        outcome.killed_ms = Some(self.now);
        outcome.lost = outcome.done;
        outcome.losses.lose_all(outcome.held_gpu_ms() - starting_gpu_ms);
    }

    /// A node is gone, and with it the run of every job on it: those fall back to their last checkpoint.
    pub(super) fn lose(&mut self, node: usize) -> Vec<usize> {
        if !std::mem::replace(&mut self.is_up[node], false) {
            return Vec::new();
        }
        let is_on = |job: &usize| self.states[*job].place.iter().any(|part| part.node == node);
        let hit: Vec<usize> = self.running.iter().copied().filter(is_on).collect();
        for job in &hit {
            self.stop(*job, false, true);
        }
        let gone = self.free.lose_node(node).count();
        self.free_in_leaf[self.replay.cluster.leaf_of(node)] -= gone;
        self.milli_free -= u64::from(gone) * u64::from(WHOLE_MILLI);
        self.gpus_up -= gone;
        hit
    }

    pub(super) fn bring_back(&mut self, node: usize) {
        if !std::mem::replace(&mut self.is_up[node], true) {
            let of = &self.replay.cluster.nodes[node];
            let whole = of.machine.device_mask().minus(of.foreign);
            self.free.bring_back(node, whole);
            let back = whole.count();
            self.free_in_leaf[self.replay.cluster.leaf_of(node)] += back;
            self.milli_free += u64::from(back) * u64::from(WHOLE_MILLI);
            self.gpus_up += back;
        }
    }

    /// Whoever has devices of a node is as slow from now on.
    pub(super) fn slow(&mut self, node: usize, times_milli: u32) {
        self.times_milli[node] = times_milli.max(1);
        let is_on = |job: &usize| self.states[*job].place.iter().any(|part| part.node == node);
        for job in self.running.iter().copied().filter(is_on).collect::<Vec<usize>>() {
            self.count(job);
            self.rate(job);
        }
    }

    pub(super) fn carry_out(&mut self, act: Act) -> Result<(), String> {
        match act {
            Act::Stop { job, keep_progress } => {
                if self.states.get(job).is_none_or(|state| state.phase != Phase::Running) {
                    return Err(format!("it stops job {job}, which does not run"));
                }
                self.stop(job, keep_progress, false);
                Ok(())
            }
            Act::Start { job, place } => {
                match self.states.get(job).map(|state| state.phase) {
                    Some(Phase::Waiting) => {}
                    Some(Phase::Running) => self.stop(job, true, false),
                    _ => return Err(format!("it starts job {job}, which does not wait")),
                }
                self.check(job, &place)?;
                self.start(job, place);
                Ok(())
            }
        }
    }

    /// No device twice, whole gangs, models that will do.
    fn check(&self, job: usize, place: &[Part]) -> Result<(), String> {
        let of = &self.replay.jobs[job];
        let (milli, each) = (milli_of(place), u64::from(of.each_milli()));
        if milli < u64::from(of.gpus_min) * each || milli > u64::from(of.gpus_max) * each {
            let asks = format!("{} to {}", of.gpus_min, of.gpus_max);
            let share =
                of.share_milli.map_or_else(String::new, |milli| format!(", {milli} thousandths of each"));
            let gpus = gpus_of(place);
            return Err(format!("it starts job {job} on {gpus} devices; it takes {asks}{share}"));
        }
        for (at, part) in place.iter().enumerate() {
            let free = self.free.whole().get(part.node).copied();
            let free =
                free.ok_or_else(|| format!("it starts job {job} on node {}, which is none", part.node))?;
            let is_again =
                |other: &Part| other.node == part.node && !other.devices.and(part.devices).is_empty();
            if !self.free.has_part(part) || place[..at].iter().any(is_again) {
                let (devices, node) = (part.devices, part.node);
                return Err(format!(
                    "it starts job {job} on devices {devices} of node {node}, where {free} are free"
                ));
            }
            if !self.will_do(job, part.node) {
                return Err(format!("it starts job {job} on node {}, whose devices will not do", part.node));
            }
        }
        Ok(())
    }

    fn start(&mut self, job: usize, place: Place) {
        let gpus = gpus_of(&place);
        let outcome = &mut self.outcomes[job];
        if outcome.starts > 0 && self.states[job].since_ms == self.now {
            outcome.preemptions -= 1;
            outcome.moves += 1;
        }
        outcome.starts += 1;
        self.starts += 1;
        outcome.first_start_ms.get_or_insert(self.now);
        outcome.leaves = self.replay.cluster.leaves_of(&place);
        outcome.leaves_least = match self.replay.jobs[job].share_milli {
            Some(_) => outcome.leaves.min(fewest(&self.free_in_leaf, gpus)),
            None => fewest(&self.free_in_leaf, gpus),
        };
        for part in &place {
            self.free_in_leaf[self.replay.cluster.leaf_of(part.node)] -= self.free.take(part);
        }
        self.milli_free -= milli_of(&place);
        remove(&mut self.waiting, job);
        insert(&mut self.running, job);
        let starts_ms = match self.replay.settings.start_cost {
            StartCost::AtStart => self.start_ms(job),
            StartCost::AtEveryEvent => 0,
        };
        let outcome = &mut self.outcomes[job];
        let worked_ms = self.states[job].held_ms.saturating_sub(outcome.starting_ms);
        outcome.starting_ms += starts_ms;
        let stretch = self.stretch(job, &place);
        let limit_ms = self.replay.jobs[job].limit_ms;
        let state = &mut self.states[job];
        state.stretch = stretch;
        let used_ms = if self.replay.settings.stretches_limits { state.limit_used_ms } else { worked_ms };
        let left_ms = limit_ms.map(|ms| stretched(ms.saturating_sub(used_ms), stretch));
        state.limit_at = left_ms.map(|ms| (self.now + starts_ms).saturating_add(ms));
        state.phase = Phase::Running;
        state.place = place;
        state.since_ms = self.now;
        state.counted_ms = self.now + starts_ms;
        (state.saved, state.saved_ms) = (state.done, state.counted_ms);
        self.cross(job, true);
        self.rate(job);
    }

    /// How far the time limit of a job stretches on a place.
    fn stretch(&self, job: usize, place: &[Part]) -> f64 {
        let Replay { settings, progress, cluster, .. } = *self.replay;
        if !settings.stretches_limits {
            return 1.0;
        }
        slowdown(progress, job, &self.replay.jobs[job], place, cluster, self.states[job].done)
    }

    /// A job sends across the uplinks of its place from now on, or no longer, and others have less of them, or more.
    fn cross(&mut self, job: usize, is_there: bool) {
        let Some(crossings) = &mut self.crossings else { return };
        if self.replay.jobs[job].traffic_milli == 0 {
            return;
        }
        let place = &self.states[job].place;
        for other in crossings.change(self.replay.cluster, job, place, is_there) {
            self.count(other);
            self.rate(other);
        }
    }

    /// How long a start takes until work goes on.
    fn start_ms(&self, job: usize) -> u64 {
        let settings = &self.replay.settings;
        let restore_ms = if self.states[job].done > 0.0 { settings.restore_ms } else { 0 };
        self.replay.jobs[job].start_ms.unwrap_or(settings.start_ms) + restore_ms
    }

    fn stop(&mut self, job: usize, keep_progress: bool, is_node_lost: bool) {
        self.count(job);
        self.save(job, keep_progress);
        let lost = self.states[job].done - self.states[job].saved;
        if lost > 0.0 {
            let State { rate, speed, .. } = self.states[job];
            let lost_gpu_ms = lost / rate * devices(&self.states[job].place);
            self.outcomes[job].lost += lost;
            let why = if is_node_lost { InVain::NodeLost } else { InVain::Stopped };
            self.outcomes[job].losses.lose(lost_gpu_ms, speed, why);
            self.states[job].done = self.states[job].saved;
        }
        self.outcomes[job].preemptions += 1;
        self.give_back(job);
        let state = &mut self.states[job];
        (state.phase, state.since_ms) = (Phase::Waiting, self.now);
        insert(&mut self.waiting, job);
    }

    /// What the job would keep if it stopped now: all, or as much as it had at its last checkpoint.
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53 ms")]
    fn save(&mut self, job: usize, all: bool) {
        let state = &mut self.states[job];
        if all {
            state.saved = state.done;
        } else if let Some(every_ms) = self.replay.settings.checkpoint_every_ms.filter(|ms| *ms > 0)
            && self.now > state.saved_ms
        {
            // Rates that changed since make this an estimate from the last one.
            let since_ms = (self.now - state.saved_ms) % every_ms;
            state.saved = (state.done - state.rate * since_ms as f64).max(state.saved);
        }
    }

    /// Its devices are free, and the time that it had them is counted.
    fn give_back(&mut self, job: usize) {
        self.cross(job, false);
        let limit_ms = self.replay.jobs[job].limit_ms;
        let state = &mut self.states[job];
        state.run += 1;
        if let (Some(at), Some(limit_ms)) = (state.limit_at, limit_ms) {
            let left_ms = unstretched(at.saturating_sub(self.now), state.stretch);
            state.limit_used_ms = state.limit_used_ms.max(limit_ms.saturating_sub(left_ms));
        }
        let place = std::mem::take(&mut state.place);
        let held_ms = self.now - state.since_ms;
        state.held_ms += held_ms;
        state.held_gpu_us += held_ms * milli_of(&place);
        let outcome = &mut self.outcomes[job];
        (outcome.held_ms, outcome.held_gpu_us) = (state.held_ms, state.held_gpu_us);
        // A start that was cut short took no longer than it ran.
        outcome.starting_ms -= state.counted_ms.saturating_sub(self.now);
        self.milli_free += milli_of(&place);
        for part in &place {
            self.free_in_leaf[self.replay.cluster.leaf_of(part.node)] += self.free.give_back(part);
        }
        remove(&mut self.running, job);
        self.changed.remove(&job);
    }

    /// Work until now is counted as done, and what slowed it down as lost.
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53 ms")]
    fn count(&mut self, job: usize) {
        let done = self.states[job].done_at(self.now);
        self.set_done(job, done);
        let state = &mut self.states[job];
        let passed_ms = self.now.saturating_sub(state.counted_ms) as f64;
        let gpu_ms = passed_ms * devices(&state.place);
        self.outcomes[job].losses.count(gpu_ms, state.speed);
        state.counted_ms = state.counted_ms.max(self.now);
    }

    fn set_done(&mut self, job: usize, done: f64) {
        let state = &mut self.states[job];
        self.outcomes[job].done += done - state.done;
        state.done = done;
    }

    /// How fast it gets on from here.
    fn rate(&mut self, job: usize) {
        let of = &self.replay.jobs[job];
        let state = &self.states[job];
        let (progress, cluster) = (self.replay.progress, self.replay.cluster);
        let rate = match &self.crossings {
            Some(crossings) => progress.rate_among(job, of, &state.place, cluster, state.done, crossings),
            None => progress.rate(job, of, &state.place, cluster, state.done),
        };
        let speed = self.speed(job, rate.per_ms);
        let state = &mut self.states[job];
        (state.rate, state.until) = (rate.per_ms * speed.saving * speed.slow_node, rate.until.min(of.work));
        state.speed = speed;
        self.changed.insert(job);
    }

    /// What is left of a job's speed, if its place alone leaves so much.
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53 ms")]
    fn speed(&self, job: usize, per_ms: f64) -> Speed {
        let settings = &self.replay.settings;
        let saving = settings.checkpoint_every_ms.filter(|ms| *ms > 0).map_or(1.0, |every_ms| {
            every_ms.saturating_sub(settings.checkpoint_ms).max(1) as f64 / every_ms as f64
        });
        let place = &self.states[job].place;
        let slowest = place.iter().map(|part| self.times_milli[part.node]).max().unwrap_or(1_000);
        let of = &self.replay.jobs[job];
        let best = self.outcomes[job]
            .alone_ms
            .filter(|alone_ms| *alone_ms > 0.0)
            .map_or(per_ms, |alone_ms| of.work / alone_ms * of.part_of(place));
        let place = if best > 0.0 { per_ms / best } else { 1.0 };
        Speed { saving, slow_node: 1_000.0 / f64::from(slowest), place }
    }

    /// Plans what happens next to runs that changed.
    pub(super) fn replan(&mut self, due: &mut BinaryHeap<Reverse<(u64, Due)>>) {
        for job in std::mem::take(&mut self.changed) {
            let state = &mut self.states[job];
            state.run += 1;
            let at = rate_ends_at(state).into_iter().chain(state.limit_at).min();
            if let Some(at) = at {
                due.push(Reverse((at, Due::Reached { job, run: state.run })));
            }
        }
    }

    pub(super) fn sample(&mut self) {
        let sample = Sample {
            at_ms: self.now,
            milli_allocated: u64::from(self.gpus_up) * u64::from(WHOLE_MILLI) - self.milli_free,
            gpus_up: self.gpus_up,
            milli_wanted: self.milli_wanted,
            running: count(&self.running),
            waiting: count(&self.waiting),
        };
        let is_news = self.samples.last().is_none_or(|last| Sample { at_ms: self.now, ..*last } != sample);
        if is_news {
            self.samples.pop_if(|last| last.at_ms == sample.at_ms);
            self.samples.push(sample);
        }
    }

    pub(super) fn outcome(mut self, policy: String) -> Outcome {
        for job in self.running.clone() {
            self.count(job);
            self.give_back(job);
        }
        let first = self.replay.jobs.iter().map(|job| job.submit_ms).min().unwrap_or(0);
        let last =
            self.outcomes.iter().filter_map(|job| job.end_ms.max(job.killed_ms)).max().unwrap_or(first);
        Outcome {
            policy,
            jobs: self.outcomes,
            samples: self.samples,
            decisions: self.decisions,
            makespan_ms: last - first,
        }
    }
}

/// So much of a stretched time limit as a part of the limit itself, rounded down.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "exact below 2^53 ms, and saturates"
)]
fn unstretched(ms: u64, slowdown: f64) -> u64 {
    if slowdown <= 1.0 { ms } else { (ms as f64 / slowdown).floor() as u64 }
}

/// When the work until the end of the rate is done; nothing for a job that does not get on.
fn rate_ends_at(state: &State) -> Option<u64> {
    (state.rate > 0.0).then(|| state.counted_ms.saturating_add(time_until(state)))
}

/// Milliseconds of work until the end of the rate, rounded up.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn time_until(state: &State) -> u64 {
    ((state.until - state.done) / state.rate - NOTHING).max(0.0).ceil() as u64
}

/// The fewest domains that hold so many devices, by what is free in each.
fn fewest(free: &[u32], gpus: u32) -> u32 {
    if free.iter().any(|free| *free >= gpus) {
        return 1;
    }
    let mut free = free.to_vec();
    free.sort_unstable_by(|a, b| b.cmp(a));
    let mut left = gpus;
    let enough = free.iter().position(|free| {
        left = left.saturating_sub(*free);
        left == 0
    });
    count(&free[..enough.map_or(free.len(), |at| at + 1)])
}

/// The devices of a place, shares as parts of one.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
fn devices(place: &[Part]) -> f64 {
    milli_of(place) as f64 / f64::from(WHOLE_MILLI)
}

fn count<T>(of: &[T]) -> u32 {
    u32::try_from(of.len()).unwrap_or(u32::MAX)
}

fn insert(sorted: &mut Vec<usize>, job: usize) {
    if let Err(at) = sorted.binary_search(&job) {
        sorted.insert(at, job);
    }
}

fn remove(sorted: &mut Vec<usize>, job: usize) {
    if let Ok(at) = sorted.binary_search(&job) {
        sorted.remove(at);
    }
}
