//! The production engine under the same trait as the policies that it is compared with.
//!
//! Submissions, ends and lost nodes become facts, orders are answered as the world carries them out: a start takes its
//! devices at once, members are ready and released at the same moment, and one that is told to stop saves its work and
//! goes. What a start takes is in the settings of the replay, as for all policies.

use std::collections::BTreeMap;

use phalanx_engine::{Config, Engine, Placer};
use phalanx_model::{
    Advisory, Change, Epoch, Exit, FailureClass, Gang, GangId, Input, Job as Submission, JobId, JobName,
    JobUpdate, MemberId, Node, Order, Outcome, Owner, Placement, Policy, Preempt, PreemptMode, Queue,
    QueueName, Retry, Settings, Stop, Timestamp, Traffic, Turn,
};
use phalanx_spec::Preset;

use super::gangs::gang;
use super::parts;
use crate::replay::{Act, Job, Machines, Part, Place, Scheduler, View};

/// Steps at one moment: an order, its answer and what follows need a handful.
const STEPS_MAX: u32 = 10_000;

/// From the word that a job has to go until it is told to end, and until it is killed.
const LEAD_MS: u64 = 30_000;

/// Where jobs wait that name no queue.
const DEFAULT_QUEUE: &str = "default";

/// How the cluster is shared, and what becomes of jobs that make way.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Queues beside `default`; a job of another queue goes there.
    pub queues: Vec<Queue>,
    pub settings: Settings,
    pub config: Config,
    /// What a start with work to restore takes at most: the engine counts it against time limits, and the world does not.
    pub starts_ms: u64,
}

impl Default for Rules {
    /// What the product goes by where nobody says anything.
    fn default() -> Self {
        let settings = Preset::default().settings();
        Self { queues: Vec::new(), settings, config: Config::default(), starts_ms: 0 }
    }
}

/// The engine, and what it has not been told yet.
#[derive(Debug)]
pub struct Phalanx {
    word: &'static str,
    engine: Engine,
    nodes: Vec<Node>,
    queues: BTreeMap<String, QueueName>,
    default_queue: QueueName,
    name: JobName,
    out: Outcome,
    facts: Vec<Input>,
    /// By job: the ranks of its present attempt, while it runs.
    attempts: BTreeMap<usize, (u32, u32)>,
    starts_ms: u64,
    communication: Communication,
    refused: Option<String>,
    steps: u64,
}

/// What a step of communication takes in the empty cluster, by number of devices.
#[derive(Debug)]
struct Communication {
    placer: Placer,
    known: BTreeMap<u32, u64>,
}

impl Communication {
    fn new(cluster: &Machines) -> Self {
        let placer = Placer::new(&cluster.levels, cluster.nodes.iter().cloned(), &cluster.costs);
        Self { placer, known: BTreeMap::new() }
    }

    /// The time that a step of a job computes, if it communicates for that part of its time at the best place: what its
    /// user knows from a profile, and writes down.
    fn compute_ns(&mut self, job: &Job, gang: &Gang) -> u64 {
        let part_milli = u64::from(job.traffic_milli).min(1_000);
        if part_milli == 0 {
            // Places do not matter: communication takes next to nothing of a step.
            return u64::MAX >> 16;
        }
        let placer = &mut self.placer;
        let best_ns = *self
            .known
            .entry(job.gpus)
            .or_insert_with(|| placer.place(gang).map_or(0, |found| found.time_ns));
        (best_ns.saturating_mul(1_000 - part_milli) / part_milli).max(1)
    }
}

impl Phalanx {
    /// An engine that knows the cluster.
    ///
    /// # Errors
    /// When it refuses a node or a queue.
    pub fn new(cluster: &Machines, rules: &Rules) -> Result<Self, String> {
        let name = |text: &str| QueueName::new(text).map_err(|e| e.to_string());
        let mut facts = vec![
            Input::LevelsConfigured { levels: cluster.levels.clone() },
            Input::CostsCompiled { table: cluster.costs.clone() },
            Input::SettingsConfigured { settings: Box::new(rules.settings.clone()) },
        ];
        facts
            .extend(rules.queues.iter().map(|queue| Input::QueueObserved { queue: Box::new(queue.clone()) }));
        facts.extend(cluster.nodes.iter().map(|node| Input::NodeObserved { node: Box::new(node.clone()) }));
        let queues = rules.queues.iter().map(|queue| (queue.name.to_string(), queue.name.clone())).collect();
        let mut new = Self {
            word: "phalanx",
            engine: Engine::new(Epoch(1), rules.config),
            nodes: cluster.nodes.clone(),
            queues,
            default_queue: name(DEFAULT_QUEUE)?,
            name: JobName::new("job").map_err(|e| e.to_string())?,
            out: Outcome::default(),
            facts,
            attempts: BTreeMap::new(),
            starts_ms: rules.starts_ms,
            communication: Communication::new(cluster),
            refused: None,
            steps: 0,
        };
        new.step(0);
        new.refused.take().map_or(Ok(new), Err)
    }

    /// The same where queues that say no order have that of a preset.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of_preset(
        word: &'static str,
        preset: Preset,
        cluster: &Machines,
        rules: &Rules,
    ) -> Result<Self, String> {
        let settings = Settings { order: preset.order(), ..rules.settings.clone() };
        Ok(Self { word, ..Self::new(cluster, &Rules { settings, ..rules.clone() })? })
    }

    /// Steps of the engine so far.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    fn step(&mut self, now: u64) -> Option<u64> {
        self.steps += 1;
        let wake = self.engine.step(Timestamp(now), &self.facts, &mut self.out);
        self.facts.clear();
        for change in &self.out.changes {
            let refused = match change {
                Change::JobRejected { job, why } => format!("the engine refused job {job}: {why}"),
                Change::InputRejected { what, why } => format!("the engine refused {what}: {why}"),
                Change::JobFinished { job, .. } => {
                    self.facts.push(Input::JobForgotten { job: *job });
                    continue;
                }
                _ => continue,
            };
            self.refused.get_or_insert(refused);
        }
        wake.0.map(|at| at.0)
    }

    /// Answers every order of the last step, and says what the world has to do for it.
    fn answer(&mut self, view: &View<'_>, acts: &mut Vec<Act>) {
        let out = std::mem::take(&mut self.out);
        for effect in &out.effects {
            self.facts.push(Input::EffectDone { effect: effect.id });
            let (gang, attempt) = (effect.order.gang(), effect.order.attempt());
            let job = index_of(gang.job);
            match &effect.order {
                Order::StartMembers { placement, .. } => {
                    let ranks = u32::try_from(placement.slots.len()).unwrap_or(u32::MAX);
                    self.attempts.insert(job, (attempt, ranks));
                    let place = place(view.cluster, &view.jobs[job], placement);
                    if let Some(limit_ms) = view.stretched_limit_ms(job, &place) {
                        let later_ms = later_ms(&view.jobs[job], self.starts_ms);
                        let time_limit_ms = Some(limit_ms.saturating_add(later_ms));
                        let update = JobUpdate { time_limit_ms, ..JobUpdate::default() };
                        self.facts.push(Input::JobUpdated { job: gang.job, update });
                    }
                    acts.push(Act::Start { job, place });
                    self.facts
                        .extend(members(gang, attempt, ranks).map(|member| Input::MemberReady { member }));
                }
                Order::ReleaseMembers { .. } => {
                    let ranks = self.attempts.get(&job).map_or(0, |(_, ranks)| *ranks);
                    let released = |member| Input::MemberReleased { member };
                    self.facts.extend(members(gang, attempt, ranks).map(released));
                }
                Order::SignalMembers { .. } | Order::KillMembers { .. } => {
                    if self.attempts.get(&job).is_some_and(|(of, _)| *of == attempt) {
                        // Told to go, it saves its work first.
                        acts.push(Act::Stop { job, keep_progress: true });
                        self.exit(job, &Exit::by_signal(15));
                    }
                }
            }
        }
        self.out = out;
    }

    /// Every member of a job is gone.
    fn exit(&mut self, job: usize, exit: &Exit) {
        let Some((attempt, ranks)) = self.attempts.remove(&job) else { return };
        let gone = |member| Input::MemberExited { member, exit: exit.clone() };
        self.facts.extend(members(id_of(job).gang(0), attempt, ranks).map(gone));
    }
}

impl Scheduler for Phalanx {
    fn name(&self) -> String {
        self.word.to_owned()
    }

    fn submitted(&mut self, now: u64, index: usize, job: &Job) {
        let queue =
            job.queue.as_ref().and_then(|queue| self.queues.get(queue)).unwrap_or(&self.default_queue);
        let owner = Owner { uid: 1_000, gid: 1_000, name: job.user.clone().unwrap_or_default() };
        let mut gang = gang(job, job.gpus);
        let compute_ns = self.communication.compute_ns(job, &gang);
        gang.traffic = gang.traffic.map(|traffic| Traffic { compute_ns, ..traffic });
        let submission = Submission {
            id: id_of(index),
            name: self.name.clone(),
            key: None,
            owner,
            queue: queue.clone(),
            priority: job.priority,
            submitted_at: Timestamp(now),
            gangs: vec![gang],
            policy: policy(job, self.starts_ms),
            turn: Turn::default(),
        };
        self.facts.push(Input::JobSubmitted { job: Box::new(submission) });
    }

    fn ended(&mut self, _: u64, index: usize) {
        self.exit(index, &Exit::succeeded());
    }

    fn killed(&mut self, _: u64, index: usize) {
        self.exit(index, &Exit::failed(FailureClass::UserCode, "it ran to its time limit"));
    }

    fn interrupted(&mut self, _: u64, index: usize) {
        self.exit(index, &Exit::failed(FailureClass::Node, "the node was lost"));
    }

    fn node_lost(&mut self, _: u64, node: usize) {
        self.facts.push(Input::NodeRemoved { node: self.nodes[node].name.clone() });
    }

    fn node_back(&mut self, _: u64, node: usize) {
        self.facts.push(Input::NodeObserved { node: Box::new(self.nodes[node].clone()) });
    }

    fn decide(&mut self, view: &View<'_>, acts: &mut Vec<Act>) -> Option<u64> {
        for _ in 0..STEPS_MAX {
            let wake = self.step(view.now);
            self.answer(view, acts);
            if self.facts.is_empty() && wake.is_none_or(|at| at > view.now) {
                return wake;
            }
        }
        self.refused.get_or_insert(format!("the engine does not come to rest in {STEPS_MAX} steps"));
        None
    }

    fn problem(&mut self) -> Option<String> {
        self.refused.take()
    }
}

/// Numbers of jobs begin with 1.
const fn id_of(index: usize) -> JobId {
    JobId(index as u64 + 1)
}

fn index_of(job: JobId) -> usize {
    usize::try_from(job.0.saturating_sub(1)).unwrap_or(usize::MAX)
}

fn members(gang: GangId, attempt: u32, ranks: u32) -> impl Iterator<Item = MemberId> {
    (0..ranks).map(move |rank| MemberId { gang, attempt, rank })
}

/// Lost nodes do not count against a job, and it makes way as often as it has to. The world ends it at its time limit, as
/// under every policy: the engine's own limit is so much later that it does not even announce it before.
fn policy(job: &Job, starts_ms: u64) -> Policy {
    Policy {
        time_limit_ms: job.limit_ms.map(|limit_ms| limit_ms.saturating_add(later_ms(job, starts_ms))),
        stop: Stop { advisory: Some(Advisory { signal: 10, lead_ms: LEAD_MS }), grace_ms: LEAD_MS },
        retry: Retry { max: 1_000, on: vec![FailureClass::Node], backoff_ms: 1_000, backoff_max_ms: 1_000 },
        preempt: Preempt { mode: PreemptMode::Requeue, is_pinned: false, may_move: false },
        ..Policy::default()
    }
}

/// How much later than the world the engine itself would end a job at its time limit.
fn later_ms(job: &Job, starts_ms: u64) -> u64 {
    job.start_ms.unwrap_or(0).saturating_add(starts_ms) + LEAD_MS
}

/// The parts of a placement by node. Members may share a device.
fn place(cluster: &Machines, job: &Job, placement: &Placement) -> Place {
    let nodes = placement.slots.iter().filter_map(|slot| Some((cluster.index_of(&slot.node)?, slot.devices)));
    let Some(milli) = job.share_milli else {
        let mut place = Place::new();
        for (node, devices) in nodes {
            match place.iter_mut().rev().find(|part: &&mut Part| part.node == node) {
                Some(part) => part.devices = part.devices.union(devices),
                None => place.push(Part::whole(node, devices)),
            }
        }
        return place;
    };
    let mut shared: BTreeMap<(usize, u32), u32> = BTreeMap::new();
    for (node, device) in nodes.flat_map(|(node, devices)| devices.iter().map(move |device| (node, device))) {
        *shared.entry((node, device)).or_default() += milli;
    }
    parts::place(shared.into_iter().map(|((node, device), milli)| (node, device, milli)))
}
