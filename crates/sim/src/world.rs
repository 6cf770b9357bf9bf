//! A world made of events: orders go in, time passes, facts come out. Nothing happens but what an event says. What
//! orders do is in `orders`, what work is saved in `saves`, how it goes on from a snapshot in `resume`, what services have to do in `load`, and what befalls leaders,
//! disks and news in `fates`.

mod fates;
mod load;
mod orders;
mod resume;
mod saves;
mod shapes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use phalanx_checker::Checker;
use phalanx_engine::{Config, Engine};
use phalanx_model::{
    Change, Effect, Epoch, Exit, FailureClass, GangId, Input, Job, JobId, LevelCost, LevelName, Levels,
    MemberId, MemberState, Node, NodeName, Outcome, SyncKind, Target, Timestamp, Wake,
};
use phalanx_scenario::{Event, Script};

use crate::members::{Members, never_started};
use crate::{Failure, FailureKind, Faults, Rng};
use fates::Fates;

/// Steps kept for the message of a failure.
const LOG_STEPS: usize = 80;
/// Steps without time passing before a run is called stuck: a real one needs a handful.
const STEPS_AT_ONCE_MAX: usize = 100_000;
/// The most times that all is planned anew before an engine is compared with its successor.
const PLANS_MAX: usize = 16;

/// Something that will happen.
#[derive(Clone, Debug)]
enum Due {
    /// A fact reaches the engine.
    Fact(Input),
    /// An order reaches the world; the number tells when it was given.
    Order { effect: Effect, made: u64 },
    /// A member changes, unless it changed otherwise before.
    Member { member: MemberId, version: u64, next: MemberState },
    /// The ranks of an attempt save a checkpoint, as they do every so often.
    Save { gang: GangId, attempt: u32 },
    /// A member has written what it had done until then, and ends.
    Saved { member: MemberId, version: u64, until: Timestamp },
    /// The replicas of a service tell what they have to do.
    Load { job: JobId },
    /// It is told that a node is gone.
    Lost { node: NodeName },
}

/// The engine in a simulated world, watched by the checker.
#[derive(Debug)]
pub struct World {
    engine: Engine,
    config: Config,
    checker: Checker,
    /// Whether the checker looks at every step: not where it did not see how the world came to be.
    is_watched: bool,
    epoch: Epoch,
    now: Timestamp,
    wake: Wake,
    faults: Faults,
    rng: Rng,
    /// By time, then in the order in which they were made.
    due: BTreeMap<(Timestamp, u64), Due>,
    made: u64,
    /// What a step has not been told yet.
    facts: Vec<Input>,
    /// Machines as they were declared; those in `lost` are not there now.
    nodes: BTreeMap<NodeName, Node>,
    lost: BTreeSet<NodeName>,
    uplinks: BTreeMap<LevelName, LevelCost>,
    /// When a node was last lost, by the number of the event.
    lost_at: BTreeMap<NodeName, u64>,
    members: Members,
    /// Attempts that were killed: nothing of them may start any more.
    killed: BTreeSet<(GangId, u32)>,
    scripts: BTreeMap<JobId, Script>,
    /// Milliseconds of work that a gang saved.
    saved: BTreeMap<GangId, u64>,
    /// What services have to do in all.
    loads: BTreeMap<JobId, Target>,
    tells_every_ms: u64,
    next_job: u64,
    events: Vec<(Timestamp, Event)>,
    keep_events: bool,
    keep_log: bool,
    log: VecDeque<(Timestamp, Vec<Input>, Outcome)>,
    steps: u64,
    fates: Fates,
}

impl World {
    #[must_use]
    pub fn new(config: Config, faults: Faults, seed: u64) -> Self {
        Self {
            engine: shapes::lend(Engine::new(Epoch(1), config)),
            config,
            checker: Checker::with_bypass_max(config.bypass_max),
            is_watched: true,
            epoch: Epoch(1),
            now: Timestamp(0),
            wake: Wake(None),
            faults,
            rng: Rng::new(seed),
            due: BTreeMap::new(),
            made: 0,
            facts: Vec::new(),
            nodes: BTreeMap::new(),
            lost: BTreeSet::new(),
            uplinks: BTreeMap::new(),
            lost_at: BTreeMap::new(),
            members: Members::default(),
            killed: BTreeSet::new(),
            scripts: BTreeMap::new(),
            saved: BTreeMap::new(),
            loads: BTreeMap::new(),
            tells_every_ms: load::EVERY_MS,
            next_job: 1,
            events: Vec::new(),
            keep_events: false,
            keep_log: false,
            log: VecDeque::new(),
            steps: 0,
            fates: Fates::new(seed),
        }
    }

    /// Keeps what happens for [`Self::take_events`].
    #[must_use]
    pub fn keeping_events(self) -> Self {
        Self { keep_events: true, ..self }
    }

    /// Keeps the last steps for the message of a failure.
    #[must_use]
    pub fn keeping_log(self) -> Self {
        Self { keep_log: true, ..self }
    }

    /// An engine that knows nothing yet.
    fn new_engine(&self) -> Engine {
        shapes::lend(Engine::new(self.epoch, self.config))
    }

    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    #[must_use]
    pub const fn checker(&self) -> &Checker {
        &self.checker
    }

    /// Starts that were promised have to come in time: for worlds where nothing goes wrong.
    #[must_use]
    pub const fn keeping_promises(mut self) -> Self {
        self.checker.is_strict = true;
        self
    }

    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Steps of the engine so far.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
        self.make_room();
    }

    /// Nodes as they were declared, by name.
    pub fn declared(&self) -> impl Iterator<Item = (&Node, bool)> {
        self.nodes.values().map(|n| (n, self.lost.contains(&n.name)))
    }

    pub fn take_events(&mut self) -> Vec<(Timestamp, Event)> {
        std::mem::take(&mut self.events)
    }

    /// Hands facts to the engine now.
    ///
    /// # Errors
    /// When the checker finds something broken.
    pub fn tell(&mut self, facts: impl IntoIterator<Item = Input>) -> Result<(), Failure> {
        self.facts.extend(facts);
        self.settle()
    }

    /// Levels above the node, outermost first.
    ///
    /// # Errors
    /// When the checker finds something broken, as everywhere below.
    pub fn configure(&mut self, levels: Levels) -> Result<(), Failure> {
        self.tell([Input::LevelsConfigured { levels }])
    }

    /// What every domain of a level has outwards, in MB/s, from the next node on.
    pub fn uplink(&mut self, level: LevelName, mb_per_s: u32) {
        let cost = LevelCost { uplink_mb_per_s: mb_per_s, ..LevelCost::default() };
        self.uplinks.insert(level, cost);
    }

    /// A machine is there, or there again.
    ///
    /// # Errors
    /// As everywhere.
    pub fn add_node(&mut self, node: Node) -> Result<(), Failure> {
        self.hear_of_loss(&node.name);
        self.lost.remove(&node.name);
        self.nodes.insert(node.name.clone(), node.clone());
        let table = shapes::compile(&self.nodes, &self.uplinks);
        self.tell([Input::CostsCompiled { table }, Input::NodeObserved { node: Box::new(node) }])?;
        shapes::learn(&self.engine);
        Ok(())
    }

    /// A declared machine that was lost is there again, open for work.
    ///
    /// # Errors
    /// As everywhere.
    pub fn return_node(&mut self, name: &NodeName) -> Result<(), Failure> {
        match self.nodes.get(name).cloned() {
            Some(node) if self.lost.contains(name) => self.add_node(node),
            _ => Ok(()),
        }
    }

    /// A machine and every process on it are gone.
    ///
    /// # Errors
    /// As everywhere.
    pub fn lose_node(&mut self, name: &NodeName) -> Result<(), Failure> {
        if !self.nodes.contains_key(name) || !self.lost.insert(name.clone()) {
            return Ok(());
        }
        for id in self.members.on_node(name) {
            if let Some(member) = self.members.0.get_mut(&id) {
                member.enter(MemberState::Exited(Exit::failed(FailureClass::Node, "the node was lost")));
            }
        }
        self.fates.unheard.insert(name.clone());
        if self.faults.news_max_ms == 0 {
            self.hear_of_loss(name);
        } else {
            let at = self.now.plus(self.fates.rng.below(self.faults.news_max_ms));
            self.plan(at, Due::Lost { node: name.clone() });
        }
        self.settle()
    }

    /// New work; gives the job its number and time.
    ///
    /// # Errors
    /// As everywhere.
    pub fn submit(&mut self, job: &Job, script: &Script) -> Result<JobId, Failure> {
        let id = self.next_job();
        self.submit_as(&Job { id, ..job.clone() }, script)?;
        Ok(id)
    }

    /// What the next job is numbered.
    #[must_use]
    pub const fn next_job(&self) -> JobId {
        JobId(self.next_job)
    }

    /// New work that has its number.
    ///
    /// # Errors
    /// As everywhere.
    pub fn submit_as(&mut self, job: &Job, script: &Script) -> Result<(), Failure> {
        self.next_job = self.next_job.max(job.id.0.saturating_add(1));
        self.scripts.insert(job.id, script.clone());
        let job = Job { submitted_at: self.now, ..job.clone() };
        self.tell([Input::JobSubmitted { job: Box::new(job) }])
    }

    /// A living member ends of its own accord; one at the gate has no program that could have an exit code.
    ///
    /// # Errors
    /// As everywhere.
    pub fn end_member(&mut self, member: MemberId, exit: Exit) -> Result<(), Failure> {
        let runs = self.members.0.get(&member).is_some_and(|m| m.state == MemberState::Running);
        let exit = if runs { exit } else { never_started("it ended at the gate") };
        self.change(member, MemberState::Exited(exit));
        self.settle()
    }

    /// Members that live, of the current attempts.
    #[must_use]
    pub fn living(&self) -> Vec<MemberId> {
        self.members.0.iter().filter(|(_, m)| m.lives()).map(|(id, _)| *id).collect()
    }

    /// Carries out all that is due now, and steps until nothing more happens without time passing.
    ///
    /// # Errors
    /// When the checker finds something broken, or it goes on for ever.
    pub fn settle(&mut self) -> Result<(), Failure> {
        for _ in 0..STEPS_AT_ONCE_MAX {
            while let Some(entry) = self.due.first_entry()
                && entry.key().0 <= self.now
            {
                let due = entry.remove();
                self.happen(due)?;
            }
            if self.waits_for_disk() {
                return Ok(());
            }
            if self.facts.is_empty() && self.wake.0.is_none_or(|at| at > self.now) {
                return Ok(());
            }
            let facts = std::mem::take(&mut self.facts);
            self.step(self.now, facts)?;
        }
        Err(self.failure(FailureKind::Liveness, "the engine goes on and on without time passing".into()))
    }

    /// When the next thing happens by itself.
    #[must_use]
    pub fn next_at(&self) -> Option<Timestamp> {
        let due = self.due.first_key_value().map(|((at, _), _)| *at);
        [due, self.room_at().or(self.wake.0)].into_iter().flatten().min()
    }

    /// Time passes, everything on the way happens at its time.
    ///
    /// # Errors
    /// As everywhere.
    pub fn advance_to(&mut self, until: Timestamp) -> Result<(), Failure> {
        self.settle()?;
        while let Some(at) = self.next_at().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.settle()?;
        }
        self.now = self.now.max(until);
        self.settle()
    }

    /// Time jumps, and what was due on the way happens late, all at once.
    ///
    /// # Errors
    /// As everywhere.
    pub fn jump(&mut self, ms: u64) -> Result<(), Failure> {
        self.now = self.now.plus(ms);
        self.settle()
    }

    /// A step whose clock shows an earlier time: it is held, not believed.
    ///
    /// # Errors
    /// As everywhere.
    pub fn step_back(&mut self, ms: u64) -> Result<(), Failure> {
        if !self.waits_for_disk() {
            let facts = std::mem::take(&mut self.facts);
            self.step(Timestamp(self.now.0.saturating_sub(ms)), facts)?;
        }
        self.settle()
    }

    /// A node is closed and opened again, so that all is planned anew, until the plan is that nothing changes: an
    /// eviction may leave room to others that were looked at before it, and a gang that starts may fail at once.
    fn plan_anew(&mut self) -> Result<(), Failure> {
        let open = self.engine.nodes().find(|node| node.is_open()).map(|node| node.name.clone());
        let Some(node) = open else { return Ok(()) };
        let mut was = None;
        for _ in 0..PLANS_MAX {
            let facts = Some(self.engine.facts());
            if was == facts {
                break;
            }
            was = facts;
            self.tell([
                Input::NodeCordoned { node: node.clone() },
                Input::NodeUncordoned { node: node.clone() },
            ])?;
        }
        Ok(())
    }

    /// The engine dies. Its successor is built from its facts, must know the same, and goes on from what the
    /// world then finds. Orders on the way are of an old epoch from now on, and refused.
    ///
    /// # Errors
    /// Also when the successor does not know the same.
    pub fn crash(&mut self) -> Result<(), Failure> {
        self.make_room();
        // What is due is done before it is compared.
        self.settle()?;
        // Whom to evict shifts with what others ask for, and is looked at anew now and then only: here for both.
        self.plan_anew()?;
        let facts = self.engine.facts();
        let rival = self.depose()?;
        self.epoch = Epoch(self.epoch.0 + 1);
        let mut twin = self.new_engine();
        let mut out = Outcome::default();
        let _ = twin.step(self.now, &facts, &mut out);
        let known = twin.facts();
        // Each engine sums up the use of queues at moments of its own.
        let told = |facts: &[Input]| -> Vec<Input> {
            facts.iter().filter(|fact| !matches!(fact, Input::UsageObserved { .. })).cloned().collect()
        };
        if told(&known) != told(&facts) || !is_same_past(&twin, &self.engine) {
            let what = format!(
                "a successor built from the facts knows something else: {}; waiting: {:?}",
                apart(&known, &facts),
                self.engine.reasons()
            );
            return Err(self.broken(&what));
        }
        if !out.effects.is_empty() {
            return Err(self.broken("a successor built from the facts decides something at once"));
        }
        self.engine = self.new_engine();
        let mut all = facts;
        all.push(Input::SyncBegin { kind: SyncKind::Members });
        all.extend(
            self.members
                .0
                .iter()
                .map(|(member, m)| Input::MemberObserved { member: *member, state: m.state.clone() }),
        );
        all.push(Input::SyncEnd { kind: SyncKind::Members });
        // What was on its way to the old engine and is no report of a member stays a fact.
        let kept: Vec<Input> = self.facts.drain(..).collect();
        all.extend(kept);
        self.step(self.now, all)?;
        self.fates.rival = rival;
        self.settle()
    }

    fn step(&mut self, now: Timestamp, facts: Vec<Input>) -> Result<(), Failure> {
        let mut out = Outcome::default();
        self.wake = self.engine.step(now, &facts, &mut out);
        self.steps += 1;
        self.step_rival(now, &facts);
        let violation =
            if self.is_watched { self.checker.observe(now, &facts, &out).into_iter().next() } else { None };
        if self.keep_log {
            self.log.push_back((self.now, facts, out.clone()));
            if self.log.len() > LOG_STEPS {
                self.log.pop_front();
            }
        }
        if let Some(violation) = violation {
            return Err(self.broken(&violation.to_string()));
        }
        if self.keep_events {
            let changes = out.changes.into_iter().map(Event::Changed);
            let orders = out.effects.iter().map(|e| Event::Ordered(e.order.clone()));
            self.events.extend(changes.chain(orders).map(|e| (self.now, e)));
        } else {
            self.check_refusals(&out.changes)?;
        }
        self.send(out.effects);
        Ok(())
    }

    /// A world that reports properly is never told that it sent nonsense. What users want may not be possible.
    fn check_refusals(&mut self, changes: &[Change]) -> Result<(), Failure> {
        // What waited for the disk may be about what is gone meanwhile.
        if std::mem::take(&mut self.fates.has_waited) {
            return Ok(());
        }
        let stale = |why: &str| why.contains("current attempt") || why.contains("outstanding");
        let is_wish = |what: &str| what.starts_with("change of job") || what.starts_with("requeue of job");
        let refused = changes.iter().find_map(|c| match c {
            Change::InputRejected { what, why } if !stale(why) && !is_wish(what) => {
                Some(format!("refused {what}: {why}"))
            }
            _ => None,
        });
        refused.map_or(Ok(()), |what| Err(self.broken(&what)))
    }

    fn happen(&mut self, due: Due) -> Result<(), Failure> {
        match due {
            Due::Fact(fact) => self.facts.push(fact),
            Due::Order { effect, made } => self.carry_out(&effect, made)?,
            Due::Member { member, version, next } => {
                if self.members.0.get(&member).is_some_and(|m| m.lives() && m.version == version) {
                    self.change(member, next);
                }
            }
            Due::Save { gang, attempt } => self.save_again(gang, attempt),
            Due::Load { job } => self.tell_load(job),
            Due::Lost { node } => self.hear_of_loss(&node),
            Due::Saved { member, version, until } => {
                if self.members.0.get(&member).is_some_and(|m| m.lives() && m.version == version) {
                    self.saved_and_ends(member, until);
                }
            }
        }
        Ok(())
    }

    /// A fact on its way to the engine, perhaps twice.
    fn report(&mut self, fact: Input) {
        if self.rng.chance(self.faults.duplicate) {
            let at = self.later();
            self.plan(at, Due::Fact(fact.clone()));
        }
        let at = self.later();
        self.plan(at, Due::Fact(fact));
    }

    const fn later(&mut self) -> Timestamp {
        let delay_ms = self.rng.between(0, self.faults.delay_max_ms);
        self.now.plus(delay_ms)
    }

    fn plan(&mut self, at: Timestamp, due: Due) {
        self.made += 1;
        self.due.insert((at, self.made), due);
    }

    fn broken(&self, what: &str) -> Failure {
        self.failure(FailureKind::Correctness, what.to_owned())
    }

    pub(crate) fn failure(&self, kind: FailureKind, what: String) -> Failure {
        let step = |(at, facts, out): &(Timestamp, Vec<Input>, Outcome)| {
            let facts: String = facts.iter().map(|i| format!("    {i:?}\n")).collect();
            let changes: String = out.changes.iter().map(|c| format!("    -> {c:?}\n")).collect();
            let effects: String = out.effects.iter().map(|e| format!("    => {e:?}\n")).collect();
            format!("  at {} ms\n{facts}{changes}{effects}", at.0)
        };
        Failure { kind, what, log: self.log.iter().map(step).collect() }
    }
}

/// Where two lists of facts begin to differ, with a little of what stands around it.
fn apart(one: &[Input], other: &[Input]) -> String {
    const BEFORE: usize = 200;
    const SHOWN: usize = 400;
    let at = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let text = |all: &[Input]| all.get(at).map_or_else(|| "nothing".to_owned(), |fact| format!("{fact:?}"));
    let (one, other) = (text(one), text(other));
    let same = one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let shown =
        |text: &str| -> String { text.chars().skip(same.saturating_sub(BEFORE)).take(SHOWN).collect() };
    format!("…{}… instead of …{}…", shown(&one), shown(&other))
}

/// Whether two engines at one time know the same past use of every queue, but for rounding.
fn is_same_past(one: &Engine, other: &Engine) -> bool {
    let past = |engine: &Engine| -> BTreeMap<phalanx_model::QueueName, u128> {
        engine.decayed_usage_now().map(|(queue, used)| (queue.clone(), used.device_ms)).collect()
    };
    let (one, other) = if one.now() == other.now() { (past(one), past(other)) } else { return true };
    let is_near = |(a, b): (&u128, &u128)| a.abs_diff(*b) <= 1_000 + a / 1_000;
    one.keys().eq(other.keys()) && one.values().zip(other.values()).all(is_near)
}
