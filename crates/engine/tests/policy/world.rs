//! A world that carries out every order: members come to the start barrier at once, run as long as their job does, and
//! end a second after they were asked to.

use std::collections::BTreeMap;

use phalanx_engine::Engine;
use phalanx_model::{
    Change, Exit, GangId, Input, Job, JobId, Levels, MemberId, Node, Order, Outcome, Phase, Reason, Settings,
    Signal, Timestamp, Wake,
};
use phalanx_testkit::{JobBuilder, Watched, levels, node};

pub(crate) const SECOND: u64 = 1_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const HOUR: u64 = 60 * MINUTE;

/// From SIGTERM to the end of a member.
pub(crate) const TERM_MS: u64 = SECOND;

pub(crate) struct World {
    pub(crate) watched: Watched,
    due: BTreeMap<(Timestamp, u64), Input>,
    counted: u64,
    runs_ms: BTreeMap<JobId, u64>,
    /// All decisions so far.
    pub(crate) changes: Vec<(Timestamp, Change)>,
}

/// Nodes `a`, `b`, … of eight devices in one cluster.
pub(crate) fn octets(count: usize) -> Vec<Node> {
    ["a", "b", "c", "d", "e", "f"]
        .iter()
        .take(count)
        .map(|name| node(name).gpus(8).nvswitch().build())
        .collect()
}

/// The default settings with this change.
pub(crate) fn settings(but: impl FnOnce(&mut Settings)) -> Input {
    let mut settings = Settings::default();
    but(&mut settings);
    Input::SettingsConfigured { settings: Box::new(settings) }
}

/// Running gangs of every class cannot be preempted for so long.
pub(crate) fn set_min_run(settings: &mut Settings, ms: u64) {
    settings.classes.iter_mut().for_each(|class| class.min_run_ms = ms);
}

impl World {
    /// A world of some [`octets`]; running gangs may be preempted at once.
    pub(crate) fn without_min_run(nodes: usize) -> Self {
        let mut world = Self::new(&octets(nodes));
        world.tell(&[settings(|settings| set_min_run(settings, 0))]);
        world
    }

    pub(crate) fn new(nodes: &[Node]) -> Self {
        Self::with_levels(&levels(&["cluster"]), nodes)
    }

    pub(crate) fn with_levels(levels: &Levels, nodes: &[Node]) -> Self {
        let watched = Watched::with_nodes(levels, nodes);
        Self { watched, due: BTreeMap::new(), counted: 0, runs_ms: BTreeMap::new(), changes: Vec::new() }
    }

    pub(crate) const fn now(&self) -> Timestamp {
        self.watched.now
    }

    /// One step, and the steps that follow from it at once.
    pub(crate) fn tell(&mut self, facts: &[Input]) {
        let out = self.watched.step(facts);
        self.obey(&out);
        self.settle();
    }

    /// Submits a job now, with the number that its builder gave it.
    pub(crate) fn submit(&mut self, job: JobBuilder) {
        self.submit_for(job, None);
    }

    /// The same for a job whose program ends by itself.
    pub(crate) fn submit_for(&mut self, job: JobBuilder, runs_ms: impl Into<Option<u64>>) {
        let job = Job { submitted_at: self.now(), ..job.build() };
        self.runs_ms.extend(runs_ms.into().map(|ms| (job.id, ms)));
        self.tell(&[Input::JobSubmitted { job: Box::new(job) }]);
    }

    /// A job declares that its size may change now.
    pub(crate) fn boundary(&mut self, job: u64) {
        self.tell(&[Input::BoundaryReached { gang: Self::gang(job), at: self.now() }]);
    }

    /// The number of members of a job.
    pub(crate) fn size(&self, job: u64) -> usize {
        self.watched.record(Self::gang(job)).members.len()
    }

    pub(crate) fn cancel(&mut self, job: u64) {
        self.tell(&[Input::CancelRequested { job: JobId(job), by: "user".into() }]);
    }

    /// Lets time pass, with everything that is due.
    pub(crate) fn advance(&mut self, ms: u64) {
        let until = self.now().plus(ms);
        loop {
            let due = self.due.keys().next().map(|(at, _)| *at);
            let Wake(wake) = self.watched.wake;
            let Some(next) = due.into_iter().chain(wake).min().filter(|at| *at <= until) else { break };
            assert!(due == Some(next) || next > self.now(), "woken for {next:?} again and again");
            self.watched.now = next;
            self.settle();
            if Wake(Some(next)) == self.watched.wake {
                self.tell(&[]);
            }
        }
        self.watched.now = until;
        self.tell(&[]);
    }

    fn settle(&mut self) {
        while let Some((key, _)) = self.due.first_key_value().filter(|((at, _), _)| *at <= self.now()) {
            let at = key.0;
            let mut facts = Vec::new();
            while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 == at) {
                facts.push(entry.remove());
            }
            let out = self.watched.step(&facts);
            self.obey(&out);
        }
    }

    fn later(&mut self, ms: u64, fact: Input) {
        self.counted += 1;
        self.due.insert((self.now().plus(ms), self.counted), fact);
    }

    fn obey(&mut self, out: &Outcome) {
        let now = self.now();
        self.changes.extend(out.changes.iter().map(|change| (now, change.clone())));
        for effect in &out.effects {
            let order = &effect.order;
            let (gang, attempt) = (order.gang(), order.attempt());
            let size = self.watched.record(gang).members.len();
            for rank in 0..u32::try_from(size).unwrap() {
                let member = MemberId { gang, attempt, rank };
                let ended = Exit::by_signal;
                match order {
                    Order::StartMembers { .. } => self.later(0, Input::MemberReady { member }),
                    Order::ReleaseMembers { .. } => {
                        self.later(0, Input::MemberReleased { member });
                        if let Some(ms) = self.runs_ms.get(&gang.job).copied() {
                            self.later(ms, Input::MemberExited { member, exit: Exit::succeeded() });
                        }
                    }
                    Order::SignalMembers { signal: Signal::Terminate, .. } => {
                        self.later(TERM_MS, Input::MemberExited { member, exit: ended(15) });
                    }
                    Order::KillMembers { .. } => {
                        self.later(0, Input::MemberExited { member, exit: ended(9) })
                    }
                    Order::SignalMembers { .. } => {}
                }
            }
        }
    }

    /// A successor that was given the facts of this engine.
    pub(crate) fn successor(&self) -> Engine {
        let mut engine = Engine::new(phalanx_model::Epoch(9), phalanx_engine::Config::default());
        let _ = engine.step(self.now(), &self.watched.engine.facts(), &mut Outcome::default());
        engine
    }

    pub(crate) fn gang(job: u64) -> GangId {
        JobId(job).gang(0)
    }

    pub(crate) fn phase(&self, job: u64) -> &'static str {
        self.watched.record(Self::gang(job)).phase.word()
    }

    pub(crate) fn is_running(&self, job: u64) -> bool {
        matches!(self.watched.record(Self::gang(job)).phase, Phase::Running { .. })
    }

    pub(crate) fn reason(&self, job: u64) -> Option<Reason> {
        self.watched.engine.reason(Self::gang(job))
    }

    pub(crate) fn evictions(&self, job: u64) -> u32 {
        self.watched.record(Self::gang(job)).evictions
    }

    /// Nodes that a job holds.
    pub(crate) fn on(&self, job: u64) -> Vec<String> {
        let record = self.watched.record(Self::gang(job));
        let slots = record.placement.iter().flat_map(|placement| &placement.slots);
        let mut nodes: Vec<String> = slots.map(|slot| slot.node.to_string()).collect();
        nodes.dedup();
        nodes
    }

    /// Devices that a queue uses, in thousandths.
    pub(crate) fn used(&self, queue: &str) -> u64 {
        let queues = self.watched.engine.queues();
        queues.iter().find(|report| report.queue.name.as_str() == queue).unwrap().resources[0].used
    }
}
