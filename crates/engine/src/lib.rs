//! The pure engine: facts in, decisions out.
//!
//! [`Engine::step`] is the only way to change anything. It applies facts to the [`ledger`], plans scheduling cycles in
//! [`cycle`], commits their decisions, and emits effects. No clock, no randomness, no I/O, no threads, no hash order,
//! no floats: the same inputs give the same bytes on every platform.

#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic, clippy::iter_over_hash_type)]

mod cluster;
mod cycle;
mod explain;
pub mod grid;
mod ledger;
mod placement;
mod placer;
mod preemption;
mod queueing;
mod share;
mod torus;
mod what_if;

use std::collections::BTreeMap;

use phalanx_model::later::{Calendar, SpotNotice};
use phalanx_model::{
    Answer, Bandwidth, Effect, Ending, Epoch, Gang, GangId, GangRecord, Input, Job, JobId, JobLookup,
    LevelName, Node, NodeName, Outcome, Placement, Plan, Progress, Question, Reason, Report, Service,
    Snapshot, Timestamp, Wake,
};

use cycle::Spent;
use ledger::Ledger;

/// The version that decides: a journal replays byte by byte only on the version that wrote it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Scheduling cycles in one step: one cycle gives to other gangs what the cycle before gave up.
const CYCLES_MAX: u32 = 4;

/// The scheduling engine. It is built empty; a world then lists its objects (`SyncBegin`, facts, `SyncEnd`).
#[derive(Clone, Debug)]
pub struct Engine {
    ledger: Ledger,
    config: Config,
}

impl Engine {
    #[must_use]
    pub fn new(epoch: Epoch, config: Config) -> Self {
        Self { ledger: Ledger::new(epoch), config }
    }

    /// The same with the device shapes that another engine worked out, so that they need not be worked out again.
    #[must_use]
    pub fn with_shapes(mut self, shapes: &Shapes) -> Self {
        self.ledger.lent = shapes.clone();
        self
    }

    /// The device shapes that this engine worked out for its nodes; they are the same for every engine.
    #[must_use]
    pub fn shapes(&self) -> Shapes {
        self.ledger.tree().shapes()
    }

    /// The only way to change anything. Infallible, deterministic, bounded: bad facts become
    /// [`Change::InputRejected`] or [`Change::JobRejected`]. `out` is cleared first and its memory reused.
    ///
    /// # Panics
    /// On a broken invariant, at once: the journal was written first, so the crash replays.
    pub fn step(&mut self, now: Timestamp, inputs: &[Input], out: &mut Outcome) -> Wake {
        out.clear();
        self.take_in(now, inputs, out);
        self.ledger.drop_moot_orders(out);
        let mut spent = Spent::default();
        self.run_cycles(&mut spent, out);
        if self.ledger.defragment(self.config, out) {
            // What the gangs that wait had reserved before may be of use to others.
            self.run_cycles(&mut spent, out);
        }
        self.ledger.wake()
    }

    fn run_cycles(&mut self, spent: &mut Spent, out: &mut Outcome) {
        for _ in 0..CYCLES_MAX {
            if !self.ledger.take_replan() {
                break;
            }
            self.ledger.run_cycle(self.config, spent, out);
            // A start may bind guaranteed places to other nodes, and take a spare node.
            self.ledger.freshen();
            self.ledger.choose_spares();
        }
    }

    /// Replays a step that another version decided: the ledger applies the facts and commits the recorded plan instead
    /// of a plan of its own. `effects` are the orders that the step gave: later answers name these.
    pub fn follow(&mut self, now: Timestamp, inputs: &[Input], plan: &Plan, effects: &[Effect]) {
        let mut own = Outcome::default();
        let orders_before = self.ledger.orders_given();
        self.take_in(now, inputs, &mut own);
        self.ledger.take_replan();
        self.ledger.forget_asked_moves();
        self.ledger.follow(plan, &mut own);
        self.ledger.free_exited();
        self.ledger.freshen();
        self.ledger.choose_spares();
        self.ledger.adopt_orders(orders_before, effects);
    }

    /// Applies the facts and timers with which a step begins.
    fn take_in(&mut self, now: Timestamp, inputs: &[Input], out: &mut Outcome) {
        self.ledger.advance(now);
        for input in inputs {
            self.ledger.apply(input, out);
        }
        self.ledger.freshen();
        self.ledger.expire_timers(out);
        self.ledger.free_exited();
        self.ledger.repair_all(out);
        self.ledger.migrate_all(out);
        self.ledger.choose_spares();
        self.ledger.book_reservations();
    }

    /// Why a gang is pending, when it would start, and what would let it start sooner.
    #[must_use]
    pub fn explain(&self, gang: GangId) -> Option<Report> {
        explain::explain(&self.ledger, gang)
    }

    /// The gain of the order of the ranks on a placement of a gang with a grid, by the present rest of every uplink;
    /// `None` for a gang without a grid, or if a node is gone.
    #[must_use]
    pub fn grid_gain(&self, gang: &Gang, placement: &Placement) -> Option<grid::Gain> {
        placement::grid_gain(self.ledger.tree(), self.ledger.space(), gang, placement)
    }

    /// What would happen if the question came true.
    #[must_use]
    pub fn what_if(&self, question: &Question) -> Answer {
        what_if::answer(&self.ledger, self.config, question)
    }

    /// Everything persistent, as the facts that rebuild it: an engine that is fed these facts is equal to this engine.
    #[must_use]
    pub fn facts(&self) -> Vec<Input> {
        self.ledger.facts()
    }

    /// The latest time that the engine was given.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.ledger.now()
    }

    /// The persistent facts with their time, to be handed to another engine.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(VERSION, self.ledger.now(), self.facts())
    }

    /// How long a job's gangs are likely to run, in milliseconds, and the number of runs of such jobs behind that;
    /// `None` if the job has no limit or no such job ran yet.
    #[must_use]
    pub fn likely_ms(&self, job: &Job) -> Option<(u64, u32)> {
        self.ledger.likely_ms(job)
    }

    #[must_use]
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.ledger.job(id)
    }

    #[must_use]
    pub fn gang(&self, id: GangId) -> Option<&GangRecord> {
        self.ledger.record(id)
    }

    /// The number of replicas of a service that are wanted; `None` if the job is no service.
    #[must_use]
    pub fn replicas(&self, job: JobId) -> Option<u32> {
        self.ledger.replicas_of(self.ledger.job(job)?)
    }

    /// The desired replicas of a service, and who decides them; `None` if the job is no service.
    #[must_use]
    pub fn service(&self, job: JobId) -> Option<&Service> {
        self.ledger.service(job)
    }

    /// When a session was last used, as far as that was reported.
    #[must_use]
    pub fn used_at(&self, job: JobId) -> Option<Timestamp> {
        self.ledger.used_at(job)
    }

    /// The gangs of a job by phase.
    #[must_use]
    pub fn progress(&self, job: JobId) -> Option<Progress> {
        self.ledger.progress(job)
    }

    /// How a job ended, once all of its gangs have.
    #[must_use]
    pub fn ending(&self, job: JobId) -> Option<&Ending> {
        self.ledger.ending(job)
    }

    /// The records of the gangs of a job, in the order of their indices.
    #[must_use]
    pub fn records_of(&self, job: JobId) -> &[GangRecord] {
        self.ledger.records_of(job)
    }

    /// Gangs of a job that have not ended, in the order of their indices.
    pub fn active_of(&self, job: JobId) -> impl Iterator<Item = &GangRecord> {
        self.ledger.active_of(job)
    }

    /// Every job in the ledger, by number.
    pub fn jobs(&self) -> impl Iterator<Item = (&Job, &[GangRecord])> {
        self.ledger.jobs()
    }

    /// Every node, in natural order of names.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.ledger.nodes()
    }

    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        self.ledger.node(name)
    }

    /// The links whose measurement counts, in the order of their names.
    pub fn bandwidths(&self) -> impl Iterator<Item = &Bandwidth> {
        self.ledger.measured()
    }

    /// Windows of the calendar that are not over, by node and begin.
    pub fn windows(&self) -> impl Iterator<Item = &Calendar> {
        self.ledger.windows().reported()
    }

    /// Nodes that will be reclaimed, in natural order of names.
    pub fn notices(&self) -> impl Iterator<Item = &SpotNotice> {
        self.ledger.notices()
    }

    /// The free capacity of a node. Negative if others over-commit it.
    #[must_use]
    pub fn free(&self, node: &NodeName) -> Option<Free> {
        self.ledger.free_of(node)
    }

    /// The changes that devices need before the members of a placed gang can start: MIG mode, instances to create.
    /// Nothing for a gang that holds no placement.
    #[must_use]
    pub fn reshapes(&self, gang: GangId) -> Vec<Reshape> {
        self.ledger.reshapes(gang)
    }

    /// The decayed usage of each queue now; queues that used nothing are left out.
    pub fn decayed_usage(
        &self,
    ) -> impl Iterator<Item = (&phalanx_model::QueueName, phalanx_model::DecayedUsage)> {
        self.ledger.queues().past()
    }

    /// The same, brought to the present. (The engine sums usage up at moments of its own.)
    pub fn decayed_usage_now(
        &self,
    ) -> impl Iterator<Item = (&phalanx_model::QueueName, phalanx_model::DecayedUsage)> {
        self.ledger.queues().past_at(self.ledger.now())
    }

    /// Every queue, parents before their children, siblings in natural order of names.
    #[must_use]
    pub fn queues(&self) -> Vec<phalanx_model::QueueReport> {
        let mut reports = self.ledger.queues().reports(self.ledger.now());
        let mut pools = self.ledger.pool_reports();
        for report in &mut reports {
            report.places = self.ledger.places_of(&report.queue.name);
            report.pools = pools.remove(&report.queue.name).unwrap_or_default();
        }
        reports
    }

    /// The configured queues at the top of the tree. Costs much less than their reports.
    pub fn outermost_queues(&self) -> impl Iterator<Item = &phalanx_model::Queue> {
        self.ledger.queues().configured().values().filter(|queue| queue.parent.is_none())
    }

    /// The level that the settings name for [spare nodes](phalanx_model::Spares) if it is none of the levels above the node,
    /// and these levels: no nodes are kept then.
    #[must_use]
    pub fn spares_without_level(&self) -> Option<(&LevelName, &[LevelName])> {
        let level = self.ledger.queues().settings().spares.as_ref()?.level.as_ref()?;
        let above = &*self.ledger.levels().above;
        (!above.contains(level)).then_some((level, above))
    }

    /// All pending gangs, in order.
    #[must_use]
    pub fn in_order(&self) -> Vec<GangId> {
        self.ledger.in_order()
    }

    /// The present reason of a pending gang.
    #[must_use]
    pub fn reason(&self, gang: GangId) -> Option<Reason> {
        explain::reason(&self.ledger, gang)
    }

    /// The reasons of these pending gangs, with a limited number of searches: each request class is searched once, and what
    /// is beyond the limit has the reason of its last evaluation.
    #[must_use]
    pub fn reasons_of(&self, gangs: &[GangId], searches_max: usize) -> BTreeMap<GangId, Reason> {
        let pending = gangs.iter().filter(|gang| self.gang(**gang).is_some_and(GangRecord::is_pending));
        let mut reasons = explain::Reasons::new(&self.ledger, searches_max);
        pending.map(|gang| (*gang, reasons.of(*gang))).collect()
    }

    /// The reasons of all pending gangs: each request class is evaluated once.
    #[must_use]
    pub fn reasons(&self) -> BTreeMap<GangId, Reason> {
        explain::reasons(&self.ledger)
    }
}

impl JobLookup for Engine {
    fn job(&self, id: JobId) -> Option<&Job> {
        self.ledger.job(id)
    }

    fn gang(&self, id: GangId) -> Option<&GangRecord> {
        self.ledger.record(id)
    }
}

pub use cluster::{Free, Piece, Shapes};
pub use cycle::Config;
pub use placement::{Instance, Reshape};
pub use placer::{Found, Placer, Share};
