//! An engine under watch: after every step the checker runs, free capacity is recounted, and no decision may be left.

use phalanx_checker::Checker;
use phalanx_engine::{Config, Engine};
use phalanx_model::{
    Effect, Epoch, FailureClass, GangId, GangRecord, Input, Levels, MemberState, Node, NodeName, Order,
    Outcome, Phase, Placement, QueueReport, Reason, StopCause, StopStage, Timestamp, Wake,
};

use crate::{costs, oracle};

/// Panics at the first violation, with the steps that led there.
#[derive(Clone, Debug)]
pub struct Watched {
    pub engine: Engine,
    pub checker: Checker,
    pub now: Timestamp,
    pub wake: Wake,
    epoch: u64,
    config: Config,
    steps: Vec<(Timestamp, Vec<Input>, Vec<Effect>)>,
}

impl Watched {
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            engine: Engine::new(Epoch(1), config),
            checker: Checker::new(),
            now: Timestamp(0),
            wake: Wake(None),
            epoch: 1,
            config,
            steps: Vec::new(),
        }
    }

    /// An engine that knows these levels and nodes, at time 1000.
    #[must_use]
    pub fn with_nodes(levels: &Levels, nodes: &[Node]) -> Self {
        let mut watched = Self::new(Config::default());
        watched.now = Timestamp(1_000);
        let mut facts = vec![
            Input::LevelsConfigured { levels: levels.clone() },
            Input::CostsCompiled { table: costs(nodes) },
        ];
        facts.extend(nodes.iter().map(|n| Input::NodeObserved { node: Box::new(n.clone()) }));
        watched.step(&facts);
        watched
    }

    /// Runs one step at the current time and returns its outcome.
    pub fn step(&mut self, inputs: &[Input]) -> Outcome {
        let (mut twin, follower) = (self.engine.clone(), self.engine.clone());
        let mut out = Outcome::default();
        self.wake = self.engine.step(self.now, inputs, &mut out);
        self.steps.push((self.now, inputs.to_vec(), out.effects.clone()));

        let mut again = Outcome::default();
        let _ = twin.step(self.now, inputs, &mut again);
        assert_eq!(out, again, "the same inputs gave different decisions\n{}", self.log());
        self.check_follower(follower, inputs, &out);

        let violations = self.checker.observe(self.now, inputs, &out);
        assert!(violations.is_empty(), "{violations:?}\n{}", self.log());
        self.check_books();
        self.check_queues();
        self.check_settled();
        out
    }

    /// Advances the time, with a step for every timer on the way.
    pub fn advance(&mut self, ms: u64) -> Outcome {
        let until = self.now.plus(ms);
        let mut all = Outcome::default();
        let mut add = |out: Outcome| {
            all.effects.extend(out.effects);
            all.changes.extend(out.changes);
        };
        while let Wake(Some(at)) = self.wake
            && at <= until
        {
            assert!(at > self.now, "woken for {at:?} at {:?} again and again\n{}", self.now, self.log());
            self.now = at;
            add(self.step(&[]));
        }
        self.now = until;
        add(self.step(&[]));
        all
    }

    /// The engine crashes. Its successor is built from its facts, has the same state, and decides nothing.
    pub fn restart(&mut self) -> Outcome {
        // Preemption is re-evaluated only at times: here for both engines.
        self.plan_anew();
        let facts = self.engine.facts();
        self.epoch += 1;
        let mut successor = Engine::new(Epoch(self.epoch), self.config);
        let mut out = Outcome::default();
        self.wake = successor.step(self.now, &facts, &mut out);
        // Each engine sums up the usage of queues at its own times.
        let told = |facts: &[Input]| -> Vec<Input> {
            facts.iter().filter(|fact| !matches!(fact, Input::UsageObserved { .. })).cloned().collect()
        };
        let (known, before) = (told(&successor.facts()), told(&facts));
        for (told, knows) in before.iter().zip(&known) {
            assert_eq!(told, knows, "the successor has another state\n{}", self.log());
        }
        assert_eq!(before.len(), known.len(), "the successor has more or fewer facts\n{}", self.log());
        assert!(out.effects.is_empty(), "the successor decided {:?}\n{}", out.effects, self.log());
        let violations = self.checker.observe(self.now, &facts, &out);
        assert!(violations.is_empty(), "{violations:?}\n{}", self.log());
        self.engine = successor;
        self.steps.push((self.now, Vec::new(), Vec::new()));
        self.check_books();
        self.check_queues();
        out
    }

    /// Replans everything without another change.
    pub fn plan_anew(&mut self) -> Outcome {
        let anew = self.anew();
        self.step(&anew)
    }

    #[must_use]
    pub fn record(&self, gang: GangId) -> &GangRecord {
        self.engine.gang(gang).unwrap_or_else(|| panic!("no gang {gang}\n{}", self.log()))
    }

    /// Every record, by gang.
    #[must_use]
    pub fn records(&self) -> Vec<GangRecord> {
        self.engine.jobs().flat_map(|(_, records)| records.to_vec()).collect()
    }

    /// An engine that follows the recorded step has the same state as the engine that decided it. (Each sums up the
    /// usage of queues at its own times.)
    fn check_follower(&self, mut follower: Engine, inputs: &[Input], out: &Outcome) {
        follower.follow(self.now, inputs, &out.plan, &out.effects);
        let facts = |engine: &Engine| {
            let mut facts = engine.facts();
            facts.retain(|fact| !matches!(fact, Input::UsageObserved { .. }));
            facts
        };
        let (follows, knows) = (facts(&follower), facts(&self.engine));
        for (follows, knows) in follows.iter().zip(&knows) {
            assert_eq!(follows, knows, "the follower of {:?} has another state\n{}", out.plan, self.log());
        }
        assert_eq!(follows.len(), knows.len(), "the follower has more or fewer facts\n{}", self.log());
        for name in self.engine.nodes().map(|node| &node.name) {
            let amounts =
                |engine: &Engine| engine.free(name).map(|f| (f.devices, f.cpu_milli, f.memory_bytes));
            let (follows, knows) = (amounts(&follower), amounts(&self.engine));
            assert_eq!(follows, knows, "free on {name} after {:?}\n{}", out.plan, self.log());
        }
    }

    /// The free capacity, recounted from nodes and records.
    fn check_books(&self) {
        let holding: Vec<_> = self
            .engine
            .jobs()
            .flat_map(|(job, records)| job.each_gang().zip(records))
            .filter(|(_, record)| record.holds_capacity())
            .filter_map(|(gang, record)| Some((gang, there(record)?)))
            .collect();
        let held: Vec<_> = holding.iter().map(|(gang, placement)| (*gang, placement)).collect();
        for (_, records) in self.engine.jobs() {
            for record in records {
                let placed = record.placement.is_some();
                let right = record.is_finished() || placed == record.holds_capacity();
                assert!(right, "{record:?}\n{}", self.log());
            }
        }
        let clamp = |x: i128| i64::try_from(x).unwrap_or(if x < 0 { i64::MIN } else { i64::MAX });
        for (name, amounts) in oracle::free(self.engine.nodes(), &held) {
            let free = self.engine.free(&name).unwrap_or_default();
            assert_eq!(free.devices, amounts.devices, "free devices of {name}\n{}", self.log());
            assert_eq!(free.cpu_milli, clamp(amounts.cpu_milli), "free CPUs of {name}\n{}", self.log());
            assert_eq!(
                free.memory_bytes,
                clamp(amounts.memory_bytes),
                "free memory of {name}\n{}",
                self.log()
            );
        }
    }

    /// If no gang holds capacity, no queue has usage.
    fn check_queues(&self) {
        if self.checker.holds_nothing() {
            let uses = |report: &QueueReport| {
                report.running > 0 || report.resources.iter().any(|good| good.used > 0)
            };
            let using: Vec<QueueReport> = self.engine.queues().into_iter().filter(uses).collect();
            assert!(using.is_empty(), "no gang holds capacity, and {using:?} is in use\n{}", self.log());
        }
    }

    /// Whether a gang that would fit is pending by policy: other gangs go first, or its queue has reached a limit.
    #[must_use]
    pub fn waits_by_policy(&self, gang: GangId) -> bool {
        self.engine.reason(gang).is_some_and(|reason| {
            matches!(
                reason,
                Reason::Priority { .. }
                    | Reason::Preempting { .. }
                    | Reason::QueueLimit(_)
                    | Reason::ArrayLimit { .. }
                    | Reason::Held { .. }
                    | Reason::Dependency { .. }
                    | Reason::BeginTime { .. }
            )
        })
    }

    /// Checks that no decision is left: neither in an empty step nor after replanning everything.
    fn check_settled(&self) {
        let mut copy = self.engine.clone();
        let mut out = Outcome::default();
        let _ = copy.step(self.now, &[], &mut out);
        assert_eq!(out, Outcome::default(), "an empty step decided something\n{}", self.log());
        let _ = copy.step(self.now, &self.anew(), &mut out);
        // Preemption is evaluated when a gang arrives or capacity is freed, and at times. Gangs that are preempted
        // then may let others start too.
        let starts = |effect: &Effect| matches!(effect.order, Order::StartMembers { .. });
        let is_left = !out.effects.is_empty() && out.effects.iter().all(starts);
        assert!(!is_left, "{:?} were still to be decided\n{}", out.effects, self.log());
    }

    /// Facts that change nothing and make the engine replan: a node is closed and opened again.
    fn anew(&self) -> Vec<Input> {
        // A node with a drain by a time would lose it.
        let is_drained =
            |node: &Node| self.engine.windows().any(|w| w.node == node.name && w.is_open_ended());
        let open = self.engine.nodes().find(|n| n.is_open() && !is_drained(n));
        let open = open.map(|n| n.name.clone());
        let toggle =
            |node: NodeName| [Input::NodeCordoned { node: node.clone() }, Input::NodeUncordoned { node }];
        open.map(toggle).into_iter().flatten().collect()
    }

    /// The last steps, for messages.
    #[must_use]
    pub fn log(&self) -> String {
        const SHOWN: usize = 30;
        const WIDTH: usize = 600;
        let skipped = self.steps.len().saturating_sub(SHOWN);
        let lines = self.steps.iter().skip(skipped).map(|(now, inputs, effects)| {
            let short = |arrow: &str, text: String| {
                let shown: String = text.chars().take(WIDTH).collect();
                format!("    {arrow}{shown}\n")
            };
            let inputs: Vec<String> = inputs.iter().map(|i| short("", format!("{i:?}"))).collect();
            let effects: Vec<String> = effects.iter().map(|e| short("=> ", format!("{e:?}"))).collect();
            format!("  at {}\n{}{}", now.0, inputs.concat(), effects.concat())
        });
        lines.collect()
    }
}

/// The part of a placement whose members hold it: while a gang is stopped that does not start again in what is left of its
/// placement, or whose members hang, those that are still there.
fn there(record: &GangRecord) -> Option<Placement> {
    let mut placement = record.placement.clone()?;
    let keeps_all = |cause: &StopCause, stage| match cause {
        StopCause::Resized { .. } => true,
        StopCause::Moved { .. } => stage != StopStage::Lingering,
        StopCause::Failure { class, .. } | StopCause::Displaced { class, .. } => {
            *class == FailureClass::Node && stage != StopStage::Lingering
        }
        _ => false,
    };
    if matches!(&record.phase, Phase::Stopping { cause, stage, .. } if !keeps_all(cause, *stage)) {
        let is_gone = |rank: u32| matches!(record.members[rank as usize].state, MemberState::Exited(_));
        placement.slots.retain(|slot| !is_gone(slot.rank));
    }
    Some(placement)
}
