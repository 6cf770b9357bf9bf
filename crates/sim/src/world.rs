//! A world made of events: orders go in, time passes, facts come out. Nothing happens but what an event says.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use phalanx_checker::Checker;
use phalanx_engine::{Config, Engine};
use phalanx_model::{
    Change, Effect, Epoch, Exit, FailureClass, GangId, Input, Job, JobId, Levels, MemberId, MemberState,
    Node, NodeName, Order, Outcome, Placement, Signal, SyncKind, Timestamp, Wake,
};
use phalanx_scenario::{Event, Script};

use crate::members::{Member, Members, ended_by, never_started};
use crate::{Failure, FailureKind, Faults, Rng};

/// Steps kept for the message of a failure.
const LOG_STEPS: usize = 80;
/// Steps without time passing before a run is called stuck: a real one needs a handful.
const STEPS_AT_ONCE_MAX: usize = 100_000;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Something that will happen.
#[derive(Clone, Debug)]
enum Due {
    /// A fact reaches the engine.
    Fact(Input),
    /// An order reaches the world; the number tells when it was given.
    Order { effect: Effect, made: u64 },
    /// A member changes, unless it changed otherwise before.
    Member { member: MemberId, version: u64, next: MemberState },
}

/// The engine in a simulated world, watched by the checker.
#[derive(Debug)]
pub struct World {
    engine: Engine,
    config: Config,
    checker: Checker,
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
    /// When a node was last lost, by the number of the event.
    lost_at: BTreeMap<NodeName, u64>,
    members: Members,
    /// Attempts that were killed: nothing of them may start any more.
    killed: BTreeSet<(GangId, u32)>,
    scripts: BTreeMap<JobId, Script>,
    next_job: u64,
    events: Vec<(Timestamp, Event)>,
    keep_events: bool,
    log: VecDeque<(Timestamp, Vec<Input>, Vec<Effect>)>,
    steps: u64,
}

impl World {
    #[must_use]
    pub fn new(config: Config, faults: Faults, seed: u64) -> Self {
        Self {
            engine: Engine::new(Epoch(1), config),
            config,
            checker: Checker::new(),
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
            lost_at: BTreeMap::new(),
            members: Members::default(),
            killed: BTreeSet::new(),
            scripts: BTreeMap::new(),
            next_job: 1,
            events: Vec::new(),
            keep_events: false,
            log: VecDeque::new(),
            steps: 0,
        }
    }

    /// Keeps what happens for [`Self::take_events`].
    #[must_use]
    pub fn keeping_events(self) -> Self {
        Self { keep_events: true, ..self }
    }

    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    #[must_use]
    pub const fn checker(&self) -> &Checker {
        &self.checker
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

    pub(crate) const fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
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

    /// A machine is there, or there again.
    ///
    /// # Errors
    /// As everywhere.
    pub fn add_node(&mut self, node: Node) -> Result<(), Failure> {
        self.lost.remove(&node.name);
        self.nodes.insert(node.name.clone(), node.clone());
        let nodes: Vec<Node> = self.nodes.values().cloned().collect();
        let table = phalanx_cost::compile(&nodes, &BTreeMap::new());
        self.tell([Input::CostsCompiled { table }, Input::NodeObserved { node: Box::new(node) }])
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
        self.made += 1;
        self.lost_at.insert(name.clone(), self.made);
        for id in self.members.on_node(name) {
            if let Some(member) = self.members.0.get_mut(&id) {
                member.enter(MemberState::Exited(Exit::failed(FailureClass::Node, "the node was lost")));
            }
        }
        self.tell([Input::NodeRemoved { node: name.clone() }])
    }

    /// New work; gives the job its number and time.
    ///
    /// # Errors
    /// As everywhere.
    pub fn submit(&mut self, job: &Job, script: &Script) -> Result<JobId, Failure> {
        let id = JobId(self.next_job);
        self.next_job += 1;
        self.scripts.insert(id, script.clone());
        let job = Job { id, submitted_at: self.now, ..job.clone() };
        self.tell([Input::JobSubmitted { job: Box::new(job) }])?;
        Ok(id)
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
            if self.facts.is_empty() && self.wake.0.is_none_or(|at| at > self.now) {
                return Ok(());
            }
            let facts = std::mem::take(&mut self.facts);
            self.step(self.now, &facts)?;
        }
        Err(self.failure(FailureKind::Liveness, "the engine goes on and on without time passing".into()))
    }

    /// When the next thing happens by itself.
    #[must_use]
    pub fn next_at(&self) -> Option<Timestamp> {
        let due = self.due.first_key_value().map(|((at, _), _)| *at);
        [due, self.wake.0].into_iter().flatten().min()
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
        let facts = std::mem::take(&mut self.facts);
        self.step(Timestamp(self.now.0.saturating_sub(ms)), &facts)?;
        self.settle()
    }

    /// The engine dies. Its successor is built from its facts, must know the same, and goes on from what the
    /// world then finds. Orders on the way are of an old epoch from now on, and refused.
    ///
    /// # Errors
    /// Also when the successor does not know the same.
    pub fn crash(&mut self) -> Result<(), Failure> {
        let facts = self.engine.facts();
        self.epoch = Epoch(self.epoch.0 + 1);
        let mut twin = Engine::new(self.epoch, self.config);
        let mut out = Outcome::default();
        let _ = twin.step(self.now, &facts, &mut out);
        if twin.facts() != facts {
            return Err(self.broken("a successor built from the facts knows something else"));
        }
        if !out.effects.is_empty() {
            return Err(self.broken("a successor built from the facts decides something at once"));
        }
        self.engine = Engine::new(self.epoch, self.config);
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
        self.step(self.now, &all)?;
        self.settle()
    }

    fn step(&mut self, now: Timestamp, facts: &[Input]) -> Result<(), Failure> {
        let mut out = Outcome::default();
        self.wake = self.engine.step(now, facts, &mut out);
        self.steps += 1;
        self.log.push_back((self.now, facts.to_vec(), out.effects.clone()));
        if self.log.len() > LOG_STEPS {
            self.log.pop_front();
        }
        if let Some(violation) = self.checker.observe(facts, &out.effects).into_iter().next() {
            return Err(self.broken(&violation.to_string()));
        }
        if self.keep_events {
            let changes = out.changes.into_iter().map(Event::Changed);
            let orders = out.effects.iter().map(|e| Event::Ordered(e.order.clone()));
            self.events.extend(changes.chain(orders).map(|e| (self.now, e)));
        } else {
            self.check_refusals(&out.changes)?;
        }
        for effect in out.effects {
            let at = self.later();
            self.plan(at, Due::Order { effect, made: self.made });
        }
        Ok(())
    }

    /// A world that reports properly is never told that it sent nonsense.
    fn check_refusals(&self, changes: &[Change]) -> Result<(), Failure> {
        let stale = |why: &str| why.contains("current attempt") || why.contains("outstanding");
        let refused = changes.iter().find_map(|c| match c {
            Change::InputRejected { what, why } if !stale(why) => Some(format!("refused {what}: {why}")),
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
        }
        Ok(())
    }

    fn carry_out(&mut self, effect: &Effect, made: u64) -> Result<(), Failure> {
        if effect.id.epoch != self.epoch {
            return Ok(()); // An old leader's order is refused, and nobody is left to be told.
        }
        if self.rng.chance(self.faults.order_lost) {
            self.report(Input::EffectUnknown { effect: effect.id });
            return Ok(());
        }
        match &effect.order {
            Order::StartMembers { gang, attempt, placement, .. } => {
                if self.rng.chance(self.faults.start_refused)
                    && self.members.of_attempt(*gang, *attempt).is_empty()
                {
                    // Refused for good: a repeat of this order would find it killed.
                    self.killed.insert((*gang, *attempt));
                    let (class, detail) = (FailureClass::StartUp, "the world refused".to_owned());
                    self.report(Input::EffectFailed { effect: effect.id, class, detail });
                    return Ok(());
                }
                self.start(*gang, *attempt, placement, made)?;
            }
            Order::ReleaseMembers { gang, attempt } => self.release(*gang, *attempt),
            Order::SignalMembers { gang, attempt, signal: Signal::Terminate } => {
                self.terminate(*gang, *attempt);
            }
            Order::SignalMembers { signal: Signal::Advisory(_), .. } => {}
            Order::KillMembers { gang, attempt } => self.kill(*gang, *attempt),
        }
        let answer = if self.rng.chance(self.faults.answer_lost) {
            Input::EffectUnknown { effect: effect.id }
        } else {
            Input::EffectDone { effect: effect.id }
        };
        self.report(answer);
        Ok(())
    }

    fn start(&mut self, gang: GangId, attempt: u32, placement: &Placement, made: u64) -> Result<(), Failure> {
        if self.killed.contains(&(gang, attempt)) {
            return Ok(());
        }
        self.members.forget_before(gang, attempt);
        let script = self.scripts.get(&gang.job).cloned().unwrap_or_default();
        for slot in &placement.slots {
            let id = MemberId { gang, attempt, rank: slot.rank };
            if self.members.0.contains_key(&id) {
                continue; // Carrying out an order twice is the same as once.
            }
            // Also when the node is back: an order from before it was lost does not survive on the way.
            let gone = self.lost.contains(&slot.node)
                || self.lost_at.get(&slot.node).is_some_and(|lost| made < *lost);
            if !gone && let Some(holder) = self.members.holder(slot) {
                let what = format!("{id} and {holder} both run on devices {} of {}", slot.devices, slot.node);
                return Err(self.broken(&what));
            }
            let member = Member {
                node: slot.node.clone(),
                devices: slot.devices,
                is_part: slot.part.is_some(),
                script: script.clone(),
                state: MemberState::Requested,
                version: 0,
            };
            self.members.0.insert(id, member);
            let fails = script.fail_start == Some(slot.rank) || self.rng.chance(self.faults.member_start);
            if gone {
                self.change(id, MemberState::Exited(Exit::failed(FailureClass::Node, "the node is lost")));
            } else if fails {
                let exit = never_started("the command was not found");
                self.change_after(id, 0, MemberState::Exited(exit));
            } else if let Some(ms) = script.starts_ms
                && !self.rng.chance(self.faults.member_stuck)
            {
                self.change_after(id, ms, MemberState::Ready);
            }
        }
        Ok(())
    }

    fn release(&mut self, gang: GangId, attempt: u32) {
        for id in self.members.of_attempt(gang, attempt) {
            if self.members.0.get(&id).is_some_and(|m| m.state == MemberState::Ready) {
                self.change(id, MemberState::Running);
            }
        }
    }

    fn terminate(&mut self, gang: GangId, attempt: u32) {
        for id in self.members.of_attempt(gang, attempt) {
            let Some(member) = self.members.0.get(&id).filter(|m| m.lives()) else { continue };
            // At the gate nothing of the user's runs that could ignore it.
            let takes = if member.state == MemberState::Running { member.script.term_ms } else { Some(0) };
            if let Some(ms) = takes {
                self.change_after(id, ms, MemberState::Exited(ended_by(SIGTERM)));
            }
        }
    }

    /// After this, every member of the attempt is owed an end, also those that never began.
    fn kill(&mut self, gang: GangId, attempt: u32) {
        self.killed.insert((gang, attempt));
        let ranks = self.engine.gang(gang).filter(|r| r.attempt == attempt).map_or(0, |r| r.members.len());
        for rank in (0..ranks).filter_map(|r| u32::try_from(r).ok()) {
            let id = MemberId { gang, attempt, rank };
            match self.members.0.get(&id).map(|m| m.state.clone()) {
                None => {
                    self.report(Input::MemberExited { member: id, exit: never_started("was not started") })
                }
                Some(MemberState::Exited(exit)) => self.report(Input::MemberExited { member: id, exit }),
                Some(_) => self.change(id, MemberState::Exited(ended_by(SIGKILL))),
            }
        }
    }

    fn change_after(&mut self, member: MemberId, ms: u64, next: MemberState) {
        let Some(version) = self.members.0.get(&member).map(|m| m.version) else { return };
        self.plan(self.now.plus(ms), Due::Member { member, version, next });
    }

    /// A member changes now, and the engine will be told.
    fn change(&mut self, id: MemberId, next: MemberState) {
        let Some(member) = self.members.0.get_mut(&id).filter(|m| m.lives()) else { return };
        member.enter(next.clone());
        let fact = match next {
            MemberState::Requested => return,
            MemberState::Ready => Input::MemberReady { member: id },
            MemberState::Running => Input::MemberReleased { member: id },
            MemberState::Exited(exit) => Input::MemberExited { member: id, exit },
        };
        let runs = (member.script.runs_ms, member.script.code);
        let released = matches!(fact, Input::MemberReleased { .. });
        self.report(fact);
        if let (true, (Some(ms), code)) = (released, runs) {
            self.change_after(id, ms, MemberState::Exited(Exit::code(code)));
        }
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
        let step = |(at, facts, effects): &(Timestamp, Vec<Input>, Vec<Effect>)| {
            let facts: String = facts.iter().map(|i| format!("    {i:?}\n")).collect();
            let effects: String = effects.iter().map(|e| format!("    => {e:?}\n")).collect();
            format!("  at {} ms\n{facts}{effects}", at.0)
        };
        Failure { kind, what, log: self.log.iter().map(step).collect() }
    }
}
