//! Sharing in simulation testing: queues, classes and settings, the order of jobs, and the actions of operators.

use phalanx_model::{
    Advisory, After, Amounts, Array, Boost, Caps, ClassName, Defragmentation, Delay, EndOf, Gang, Input, Job,
    JobId, JobUpdate, Migration, Needs, NodeSet, Pool, Pools, PreemptMode, Queue, QueueName, QueueOrder,
    Reclaim, Resource, Settings, Spares, Tasks, Timestamp, Topology,
};
use phalanx_scenario::Script;

use super::{LEVELS, named};
use crate::Rng;

const QUEUES_MAX: u64 = 8;
const DEPTH_MAX: usize = 3;
const CLASSES: [&str; 4] = ["serving", "training", "research", "opportunistic"];
const MINUTE_MS: u64 = 60_000;

/// Sharing has random numbers of its own.
pub(super) struct Sharing {
    rng: Rng,
    /// Draws the order of queues, apart from their amounts.
    orders: Rng,
    /// Draws the pools of queues, apart from both.
    pools: Rng,
    /// Draws spare nodes, and the jobs that use them meanwhile.
    spares: Rng,
    settings: Settings,
    /// The devices of the cluster when the queues were drawn, in thousandths.
    devices_milli: u64,
    /// The queues as they were last drawn, parents before their children.
    queues: Vec<Queue>,
    /// Queues that are removed now.
    gone: Vec<QueueName>,
}

/// An action of an operator.
pub(super) enum Act {
    Tell(Input),
    Save(JobId),
}

impl Sharing {
    pub(super) fn new(rng: Rng, [orders, pools, spares]: [Rng; 3]) -> Self {
        let settings = Settings::default();
        Self { rng, orders, pools, spares, settings, devices_milli: 0, queues: Vec::new(), gone: Vec::new() }
    }

    /// Settings, and a tree of queues on some devices.
    pub(super) fn build(&mut self, devices: u64) -> Vec<Input> {
        self.devices_milli = devices * 1_000;
        let settings = self.settings();
        let mut facts = vec![Input::SettingsConfigured { settings: Box::new(settings) }];
        for index in 0..self.rng.between(1, QUEUES_MAX) {
            let mut queue = Queue::named(named(&format!("q{index}")));
            let above: Vec<&Queue> = self.queues.iter().filter(|q| self.path(q).len() < DEPTH_MAX).collect();
            if self.rng.chance(60) {
                queue.parent = self.rng.pick(&above).map(|above| above.name.clone());
            }
            self.draw(&mut queue);
            self.draw_order(&mut queue, 100);
            self.draw_pools(&mut queue, 30);
            facts.push(Input::QueueObserved { queue: Box::new(queue.clone()) });
            self.queues.push(queue);
        }
        facts
    }

    fn settings(&mut self) -> Settings {
        let rng = &mut self.rng;
        let mut settings = Settings::default();
        for class in &mut settings.classes {
            class.min_run_ms = rng.pick(&[0, 0, 1_000, 30_000, 10 * MINUTE_MS]).copied().unwrap_or(0);
            class.grace_max_ms = rng.chance(40).then(|| rng.below(10_000));
        }
        settings.half_life_ms = if rng.chance(50) { MINUTE_MS } else { settings.half_life_ms };
        settings.ageing_ms = rng.pick(&[0, 1_000, 60 * MINUTE_MS]).copied().unwrap_or(0);
        settings.reservation_depth = rng.pick(&[0, 1, 1, 2, u32::MAX]).copied().unwrap_or(1);
        settings.hold_idle_max_milli = rng.pick(&[0, 250, 1_000]).copied().unwrap_or(250);
        settings.reclaim = if rng.chance(50) { Reclaim::Guarantee } else { Reclaim::FairShare };
        if rng.chance(30) {
            settings.worth = [("H100".to_owned(), 1_000), ("V100".to_owned(), 400)].into();
        }
        self.draw_presets(&mut settings);
        let rng = &mut self.spares;
        settings.spares = rng.chance(40).then(|| Spares {
            level: rng.pick(&LEVELS).filter(|_| rng.chance(70)).map(|level| named(level)),
            nodes: u32::try_from(rng.between(1, 2)).unwrap_or(1),
            is_filled: rng.chance(50),
        });
        settings.migration = rng.chance(80).then(|| Migration {
            is_unconditional: rng.chance(60),
            fails_within_ms: 10 * MINUTE_MS,
            restart_ms: 1_000,
        });
        settings.defragmentation = Defragmentation {
            is_automatic: rng.chance(50),
            stays_ms: rng.below(2 * MINUTE_MS),
            gangs_max: u32::try_from(rng.between(1, 4)).unwrap_or(1),
        };
        self.settings = settings.clone();
        settings
    }

    /// A queue and those above it.
    fn path<'a>(&'a self, queue: &'a Queue) -> Vec<&'a Queue> {
        let above = |queue: &&'a Queue| self.queues.iter().find(|q| Some(&q.name) == queue.parent.as_ref());
        std::iter::successors(Some(queue), above).collect()
    }

    /// The part of its parent's guarantee, or of the cluster, that its siblings leave.
    fn left_milli(&self, queue: &Queue) -> u64 {
        let devices = |queue: &Queue| queue.guaranteed.get(&Resource::Gpus).copied().unwrap_or(0);
        let all = self.path(queue).get(1).map_or(self.devices_milli, |above| devices(above));
        let siblings = self.queues.iter().filter(|q| q.parent == queue.parent && q.name != queue.name);
        siblings.fold(all, |left, sibling| left.saturating_sub(devices(sibling)))
    }

    /// What holds where queues and jobs say nothing: an order, and how long jobs wait for a nearer place.
    fn draw_presets(&mut self, settings: &mut Settings) {
        let rng = &mut self.orders;
        if rng.chance(40) {
            settings.order =
                QueueOrder::LeastServed { levels: vec![rng.between(1, 5 * MINUTE_MS), 20 * MINUTE_MS] };
        }
        settings.wait = match rng.below(4) {
            0 => Delay::PAR,
            1 => Delay::Priced(u32::try_from(rng.between(1, 100_000)).unwrap_or(1)),
            2 => Delay::For(rng.below(2 * MINUTE_MS)),
            _ => Delay::default(),
        };
    }

    /// Half of the queues order by service, with up to four thresholds that work of these lengths reaches; seldom a
    /// queue changes its order.
    fn draw_order(&mut self, queue: &mut Queue, percent: u64) {
        let rng = &mut self.orders;
        if !rng.chance(percent) {
            return;
        }
        let mut at = 0;
        let mut next = |rng: &mut Rng| {
            at += rng.between(1, 5 * MINUTE_MS);
            at
        };
        queue.order = Some(if rng.chance(50) {
            let count = rng.between(1, 4);
            QueueOrder::LeastServed { levels: (0..count).map(|_| next(rng)).collect() }
        } else {
            QueueOrder::Priority
        });
    }

    /// Seldom a queue has other pools than before: few, so that some are equal and others overlap.
    fn draw_pools(&mut self, queue: &mut Queue, percent: u64) {
        let rng = &mut self.pools;
        if !rng.chance(percent) {
            return;
        }
        queue.nodes = Pools::default();
        for _ in 0..rng.between(0, 2) {
            let mut pool = Pool::default();
            match rng.below(3) {
                0 => pool.model = rng.pick(&["v100", "H100"]).map(|model| (*model).to_owned()),
                1 => pool.sets.extend(rng.pick(&super::kinds::SETS).map(|set| NodeSet::new(set))),
                _ => pool.nodes = (0..rng.between(1, 4)).map(|at| named(&format!("n{at}"))).collect(),
            }
            queue.nodes.pools.push(pool);
        }
        queue.nodes.or_any = !queue.nodes.pools.is_empty() && rng.chance(30);
    }

    /// Draws the amounts of a queue. Its children keep the amounts that they were given.
    fn draw(&mut self, queue: &mut Queue) {
        let below = self.queues.iter().filter(|q| q.parent.as_ref() == Some(&queue.name));
        let owed: u64 = below.filter_map(|q| q.guaranteed.get(&Resource::Gpus)).sum();
        let left = self.left_milli(queue).max(owed);
        let rng = &mut self.rng;
        let own = owed + rng.below((left - owed) / 1_000 + 1) * 1_000;
        let some = |amount: u64| Amounts::from([(Resource::Gpus, amount)]);
        queue.guaranteed = if own > 0 { some(own) } else { Amounts::new() };
        if rng.chance(15) {
            queue.guaranteed.insert(Resource::Cpus, rng.below(8) * 1_000);
        }
        if rng.chance(10) {
            queue.guaranteed.insert(Resource::Model("h100".to_owned()), rng.below(4) * 1_000);
        }
        queue.limit = if rng.chance(25) { some(own + rng.between(2, 12) * 1_000) } else { Amounts::new() };
        if rng.chance(10) {
            queue.limit.insert(Resource::Memory, rng.between(1, 64) << 30);
        }
        queue.lend_max =
            if rng.chance(20) { some(rng.below(own / 1_000 + 1) * 1_000) } else { Amounts::new() };
        queue.weight_milli = rng.below(5) * 500;
        let cap = |rng: &mut Rng, percent, most| {
            rng.chance(percent).then(|| u32::try_from(rng.between(1, most)).unwrap_or(1))
        };
        queue.caps = Caps {
            pending_max: cap(rng, 8, 10),
            running_max: cap(rng, 15, 4),
            gang_devices_max: cap(rng, 4, 16),
            time_limit_max_ms: rng.chance(4).then(|| rng.between(1_000, 2 * MINUTE_MS)),
            delay: None,
        };
    }

    /// Draws the queue of a job, and its position. `others` are jobs that were submitted before it.
    pub(super) fn vary(&mut self, job: &mut Job, script: &mut Script, others: &[JobId], now: Timestamp) {
        let is_leaf = |queue: &&Queue| !self.queues.iter().any(|q| q.parent.as_ref() == Some(&queue.name));
        let leaves: Vec<QueueName> = self.queues.iter().filter(is_leaf).map(|q| q.name.clone()).collect();
        let rng = &mut self.rng;
        job.queue = match rng.below(100) {
            0..94 => rng.pick(&leaves).cloned(),
            94..97 => rng.pick(&self.queues).map(|queue| queue.name.clone()),
            _ => None,
        }
        .unwrap_or_else(|| named("nowhere"));
        if rng.chance(75) {
            plain(job, script, rng);
        }
        let turn = &mut job.turn;
        turn.takes_spot = self.spares.chance(20);
        turn.class = rng.pick(&CLASSES).filter(|_| rng.chance(75)).map(|class| named::<ClassName>(class));
        turn.held_by = rng.chance(8).then(|| "user".to_owned());
        turn.begins_at = rng.chance(8).then(|| now.plus(rng.below(MINUTE_MS)));
        turn.deadline = rng.chance(8).then(|| now.plus(rng.below(5 * MINUTE_MS)));
        if let Some(other) = rng.pick(others).filter(|_| rng.chance(12)) {
            let end = rng.pick(&[EndOf::Success, EndOf::Failure, EndOf::Any, EndOf::Any]).copied();
            turn.after.push(After { job: *other, end: end.unwrap_or_default() });
        }
        if job.gangs.len() == 1 && rng.chance(12) {
            let tasks = Tasks::first(u32::try_from(rng.between(2, 4)).unwrap_or(2));
            let running_max = rng.chance(50).then(|| u32::try_from(rng.between(1, 2)).unwrap_or(1));
            turn.array = Some(Array { tasks, running_max });
        }
        job.policy.preempt.mode = match rng.below(100) {
            0..8 => PreemptMode::Never,
            8..16 => PreemptMode::Cancel,
            _ => PreemptMode::Requeue,
        };
        job.policy.preempt.is_pinned = rng.chance(10);
        job.policy.preempt.may_move = self.spares.chance(50);
        if rng.chance(40) {
            script.saves_ms = Some(rng.between(1_000, 20_000));
            script.save_takes_ms = rng.below(5_000);
            job.policy.stop.advisory = Some(Advisory { signal: 10, lead_ms: rng.below(10_000) });
        }
    }

    fn any_update(&mut self) -> JobUpdate {
        let at = usize::try_from(self.rng.below(self.queues.len().max(1) as u64)).unwrap_or(0);
        let queue = self.queues.get(at).map(|queue| queue.name.clone());
        JobUpdate {
            time_limit_ms: self.rng.chance(40).then(|| self.rng.between(1, 30 * MINUTE_MS)),
            priority: self.rng.chance(40).then(|| i32::try_from(self.rng.below(10)).unwrap_or(0)),
            queue: queue.filter(|_| self.rng.chance(40)),
        }
    }

    /// An action of an operator on these jobs.
    pub(super) fn act(&mut self, jobs: &[(JobId, bool, bool)], now: Timestamp) -> Option<Act> {
        let (job, is_held, is_finished) = self.rng.pick(jobs).copied().unwrap_or((JobId(0), false, true));
        let by = "operator".to_owned();
        match self.rng.below(100) {
            0..15 if !is_held && !is_finished => Some(Act::Tell(Input::JobHeld { job, by })),
            0..40 if is_held && !is_finished => Some(Act::Tell(Input::JobReleased { job, by })),
            40..45 if !is_finished => Some(Act::Tell(Input::JobRequeued { job, by })),
            45..50 if !is_finished => {
                let update = self.any_update();
                Some(Act::Tell(Input::JobUpdated { job, update }))
            }
            50..58 if !is_finished => {
                let until = now.plus(self.rng.below(10 * MINUTE_MS));
                let priority = i32::try_from(self.rng.below(20)).unwrap_or(0);
                let boost = self.rng.chance(80).then_some(Boost { priority, until, by });
                Some(Act::Tell(Input::JobBoosted { job, boost }))
            }
            58..65 if !is_finished => Some(Act::Save(job)),
            65..90 => {
                let at = usize::try_from(self.rng.below(self.queues.len() as u64)).unwrap_or(0);
                let mut queue = self.queues.get(at)?.clone();
                self.draw(&mut queue);
                self.draw_order(&mut queue, 15);
                self.draw_pools(&mut queue, 10);
                self.gone.retain(|gone| *gone != queue.name);
                self.queues[at] = queue.clone();
                Some(Act::Tell(Input::QueueObserved { queue: Box::new(queue) }))
            }
            90..92 => {
                // If the last queue is removed, there are no queues, and any name is valid.
                let last = self.queues.last().filter(|_| self.queues.len() > 1)?;
                let queue = last.name.clone();
                if self.gone.contains(&queue) {
                    return None;
                }
                self.gone.push(queue.clone());
                Some(Act::Tell(Input::QueueRemoved { queue }))
            }
            92..96 => {
                let settings = Box::new(self.settings());
                Some(Act::Tell(Input::SettingsConfigured { settings }))
            }
            _ => {
                let gang = Some(job.gang(0)).filter(|_| self.spares.chance(50));
                Some(Act::Tell(Input::DefragmentationRequested { gang }))
            }
        }
    }

    /// Every queue exists, and none is limited: a gang that has a placement then starts in the end, unless the capacity
    /// is guaranteed to others.
    pub(super) fn heal(&mut self) -> Vec<Input> {
        for queue in &mut self.queues {
            queue.limit.clear();
            // Half of them keep their pools: what these could never hold is refused, and all else ends.
            if self.pools.chance(50) {
                queue.nodes = Pools::default();
            }
            queue.caps = Caps::default();
        }
        self.gone.clear();
        self.settings.spares = None;
        let settings = Box::new(self.settings.clone());
        [Input::SettingsConfigured { settings }].into_iter().chain(self.told()).collect()
    }

    /// Removes all guarantees.
    pub(super) fn owe_nothing(&mut self) -> Vec<Input> {
        for queue in &mut self.queues {
            queue.guaranteed.clear();
            queue.lend_max.clear();
        }
        self.told()
    }

    fn told(&self) -> Vec<Input> {
        let told = |queue: &Queue| Input::QueueObserved { queue: Box::new(queue.clone()) };
        self.queues.iter().map(told).collect()
    }
}

/// Jobs that most often fit, request devices and last: otherwise no gang would ever block another.
fn plain(job: &mut Job, script: &mut Script, rng: &mut Rng) {
    let mut count = |most| u32::try_from(rng.between(1, most)).unwrap_or(1);
    for gang in &mut job.gangs {
        let size = count(4);
        let needs = Needs { devices: count(3), cpu_milli: 100, ..Needs::default() };
        let plain = Gang { size, min: size, max: size, needs, members_per_node: None, ..gang.clone() };
        *gang = Gang { topology: Topology::default(), roles: Vec::new(), grid: Vec::new(), ..plain };
    }
    script.runs_ms = Some(rng.below(10 * MINUTE_MS));
    job.policy.time_limit_ms = rng.chance(60).then(|| rng.between(1_000, 10 * MINUTE_MS));
}
