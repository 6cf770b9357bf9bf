//! The ledger: a state machine over facts. It holds what exists, what runs where, and which orders are unanswered.

pub(crate) mod admit;
mod apply;
mod array;
mod calendar;
mod commit;
mod defragmentation;
mod delay;
mod elastic;
mod exits;
mod facts;
mod gang;
mod health;
mod history;
mod measured;
mod migration;
mod moved;
mod nodes;
mod noted;
mod pools;
mod quota_cells;
mod read;
mod reasons;
mod repair;
mod reserve;
mod room;
mod served;
mod service;
mod share;
mod spares;
mod surge;
mod sync;
mod tally;
mod timers;
mod update;
mod wait;

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{
    Bandwidths, CostTable, Effect, EffectId, Ending, Epoch, Gang, GangId, GangRecord, Job, JobId, LevelName,
    Levels, Node, NodeName, Order, Outcome, Phase, Progress, Reason, Timestamp, Wake,
};

use crate::cluster::{Free, Hardware, Nominal, Pick, Shapes, Space, Tree};
use crate::cycle::{Draft, Freed, Reservation, Reservations, Windows, add_reserved};
use crate::placement::{Reshape, Search, reshapes};
use crate::queueing::{PendingQueue, Queues};
use history::History;
use noted::Noted;
use quota_cells::Cells;
use service::Serving;
use sync::Sync;
use tally::Tally;
pub(crate) use wait::known_end;

/// A job and the records of its gangs, index by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) job: Job,
    pub(crate) gangs: Vec<GangRecord>,
    /// How the job ended, once all of its gangs have.
    ending: Option<Ending>,
    /// The last reason that was reported for a task of an array.
    told: Option<Reason>,
    /// Its gangs by phase.
    progress: Progress,
    /// A gang of the job failed, and so the others were stopped.
    failed: bool,
    /// The progress of an array that limits how many of its tasks run at once.
    admitted: Option<array::Admitted>,
}

/// An order without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outstanding {
    gang: GangId,
    attempt: u32,
    /// The order is an order to start: if it fails, members that have not come to the start barrier never began.
    starts: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    now: Timestamp,
    epoch: Epoch,
    next_seq: u64,
    levels: Levels,
    costs: CostTable,
    /// Links whose measurement counts.
    measured: Bandwidths,
    nodes: BTreeMap<NodeName, Node>,
    jobs: BTreeMap<JobId, Entry>,
    /// Idempotency keys per owner.
    keys: BTreeMap<(u32, String), JobId>,
    /// Gangs that are not finished: those that a step may have to consider.
    active: BTreeSet<GangId>,
    timers: BTreeSet<(Timestamp, GangId)>,
    /// The same timers, by gang: at most one each.
    timer_at: BTreeMap<GangId, Timestamp>,
    /// Orders that the world has not answered.
    outstanding: BTreeMap<EffectId, Outstanding>,
    reasons: BTreeMap<GangId, Reason>,
    /// Gangs whose last reason was that nodes are not available: the next evaluation may find otherwise.
    unavailable: BTreeSet<GangId>,
    /// Gangs that are being stopped, and whose exited members are still booked.
    exited: BTreeSet<GangId>,
    /// Tallies, and picks, of every gang that holds capacity.
    tallies: BTreeMap<GangId, Tally>,
    picks: BTreeMap<GangId, Vec<Pick>>,
    /// The same picks, by node.
    on_nodes: BTreeSet<(u32, GangId)>,
    noted: Noted,
    serving: Serving,
    windows: Windows,
    cells: Cells,
    history: History,
    sync: Sync,
    /// Jobs that wait for the end of a job.
    dependents: BTreeMap<JobId, BTreeSet<JobId>>,
    /// Configured queues; their use and pending gangs are derived, but decayed usage is not.
    queues: Queues,
    // Derived from the above.
    tree: Tree,
    space: Space,
    /// The capacity of the hardware, devices of others included; and the same if no node were cordoned.
    empty: Space,
    empty_opened: Space,
    /// The capacity that others do not use.
    usable: Space,
    /// The cluster without measured links, if it has any.
    nominal: Option<Box<Nominal>>,
    search: Search,
    pending: PendingQueue,
    reservations: Reservations,
    /// Observed reservations that are not booked yet.
    unbooked: BTreeSet<GangId>,
    /// Device shapes that another engine worked out.
    pub(crate) lent: Shapes,
    /// Gangs whose end is known.
    ends: BTreeSet<(Timestamp, GangId)>,
    ends_at: BTreeMap<GangId, Timestamp>,
    /// Nodes where capacity became free since the last plan.
    freed: Freed,
    /// The time at which a gang becomes preemptible that is not preemptible yet.
    again_at: Option<Timestamp>,
    /// The last time at which all gangs that may preempt were evaluated.
    looked_at: Option<Timestamp>,
    /// The time at which planning continues after it stopped at its budget.
    go_on_at: Option<Timestamp>,
    /// Gangs that were asked to leave, by the gang that they were preempted for.
    victims: BTreeMap<GangId, BTreeSet<GangId>>,
    /// Gangs that were preempted since the last change from outside: they preempt no gang until the next such change,
    /// so that no gangs preempt each other in turn, whatever devices are worth.
    preempted: BTreeSet<GangId>,
    /// Gangs that hold capacity, and whose end is not known.
    endless: BTreeSet<GangId>,
    /// Gangs that are being stopped, and release their capacity.
    stopping: BTreeSet<GangId>,
    /// Gangs that hold capacity and may change their size; and those that may change it now.
    elastic: BTreeSet<GangId>,
    at_boundary: BTreeSet<GangId>,
    /// Replicas that leave once others run in their place.
    leaving: BTreeSet<GangId>,
    /// Gangs on a higher service level that just started, and are protected for a while.
    shielded: BTreeSet<GangId>,
    /// Gangs that the empty cluster is known to hold.
    fitting: BTreeSet<Gang>,
    /// Pending gangs whose reason is to be evaluated.
    refresh: BTreeSet<GangId>,
    /// The tree and the free capacity are older than the nodes.
    stale: bool,
    hardware_version: u64,
    /// Nodes that came or moved since the tree was built.
    moved_nodes: BTreeSet<NodeName>,
    /// The queues are older than their configuration.
    stale_queues: bool,
    /// The pools of queues.
    pools: pools::Known,
    spares_due: spares::Due,
    /// Gangs that lost hardware, and for which no places near by were sought yet.
    to_repair: BTreeSet<GangId>,
    /// Gangs that saved their work in this step.
    saved: BTreeSet<GangId>,
    /// Gangs that this step began to stop.
    to_keep: BTreeSet<GangId>,
    /// Nodes that are kept for gangs that are stopped for their hardware ([`GangRecord::moves_to`]).
    kept_nodes: BTreeMap<NodeName, GangId>,
    /// Gangs for which others are to move in this step; `None`: the first gang for which they can.
    to_open: BTreeSet<Option<GangId>>,
    /// A time to look for moves that pay has come.
    looks_for_moves: bool,
    /// The places that are kept for gangs that move there.
    moving: BTreeMap<GangId, Reservation>,
    replan: bool,
}

impl Ledger {
    pub(crate) fn new(epoch: Epoch) -> Self {
        let levels = Levels::new(vec![name("cluster")], name("node"));
        let (costs, measured) = (CostTable::default(), Bandwidths::default());
        let tree = Tree::build(&levels, &BTreeMap::new(), &costs, &measured, None, &Shapes::default());
        Self {
            now: Timestamp(0),
            epoch,
            next_seq: 0,
            space: Space::free_of(&tree),
            empty: Space::empty_of(&tree),
            empty_opened: Space::empty_of(&tree),
            usable: Space::free_of(&tree),
            nominal: None,
            search: Search::default(),
            tree,
            levels,
            costs,
            measured,
            nodes: BTreeMap::new(),
            jobs: BTreeMap::new(),
            keys: BTreeMap::new(),
            active: BTreeSet::new(),
            timers: BTreeSet::new(),
            timer_at: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            reasons: BTreeMap::new(),
            unavailable: BTreeSet::new(),
            exited: BTreeSet::new(),
            tallies: BTreeMap::new(),
            picks: BTreeMap::new(),
            on_nodes: BTreeSet::new(),
            noted: Noted::default(),
            serving: Serving::default(),
            windows: Windows::default(),
            cells: Cells::default(),
            history: History::default(),
            sync: Sync::default(),
            dependents: BTreeMap::new(),
            queues: Queues::new(),
            pending: PendingQueue::default(),
            reservations: Reservations::default(),
            unbooked: BTreeSet::new(),
            lent: Shapes::default(),
            ends: BTreeSet::new(),
            ends_at: BTreeMap::new(),
            freed: Freed::default(),
            again_at: None,
            looked_at: None,
            go_on_at: None,
            victims: BTreeMap::new(),
            preempted: BTreeSet::new(),
            endless: BTreeSet::new(),
            stopping: BTreeSet::new(),
            elastic: BTreeSet::new(),
            at_boundary: BTreeSet::new(),
            leaving: BTreeSet::new(),
            shielded: BTreeSet::new(),
            fitting: BTreeSet::new(),
            refresh: BTreeSet::new(),
            stale: false,
            hardware_version: 0,
            moved_nodes: BTreeSet::new(),
            stale_queues: false,
            pools: pools::Known::default(),
            spares_due: spares::Due::default(),
            to_repair: BTreeSet::new(),
            saved: BTreeSet::new(),
            to_keep: BTreeSet::new(),
            kept_nodes: BTreeMap::new(),
            to_open: BTreeSet::new(),
            looks_for_moves: false,
            moving: BTreeMap::new(),
            replan: false,
        }
    }

    /// Advances the time. If a clock goes back, the world is mistaken: the engine keeps its time.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        let before = self.now;
        self.now = self.now.max(now);
        // An engine that was just built has no time yet, and looks when the others do.
        if before > Timestamp(0) {
            self.note_look_for_moves(before, self.now);
        }
    }

    pub(crate) const fn now(&self) -> Timestamp {
        self.now
    }

    pub(crate) const fn levels(&self) -> &Levels {
        &self.levels
    }

    pub(crate) const fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) const fn space(&self) -> &Space {
        &self.space
    }

    pub(crate) fn hardware(&self) -> Hardware<'_> {
        Hardware {
            tree: &self.tree,
            empty: &self.empty,
            empty_opened: &self.empty_opened,
            usable: &self.usable,
            nominal: self.nominal.as_deref(),
        }
    }

    pub(crate) const fn windows(&self) -> &Windows {
        &self.windows
    }

    pub(crate) const fn queues(&self) -> &Queues {
        &self.queues
    }

    pub(crate) const fn line(&self) -> &PendingQueue {
        &self.pending
    }

    pub(crate) fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).map(|e| &e.job)
    }

    pub(crate) fn job_count(&self) -> usize {
        self.jobs.len()
    }

    pub(crate) fn jobs(&self) -> impl Iterator<Item = (&Job, &[GangRecord])> {
        self.jobs.values().map(|e| (&e.job, e.gangs.as_slice()))
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    pub(crate) fn node(&self, name: &NodeName) -> Option<&Node> {
        self.nodes.get(name)
    }

    pub(crate) fn record(&self, id: GangId) -> Option<&GangRecord> {
        self.jobs.get(&id.job)?.gangs.get(id.index as usize)
    }

    pub(crate) fn gang(&self, id: GangId) -> Option<&Gang> {
        self.jobs.get(&id.job)?.job.gang_at(id.index)
    }

    pub(crate) fn active(&self) -> impl Iterator<Item = (&Job, &Gang, &GangRecord)> {
        self.active.iter().filter_map(|id| Some((self.job(id.job)?, self.gang(*id)?, self.record(*id)?)))
    }

    /// The free capacity of a node, including what is reserved for pending gangs.
    pub(crate) fn free_of(&self, node: &NodeName) -> Option<Free> {
        let at = self.tree.index_of(node)?;
        let mut free = *self.space.free(at);
        let at = u32::try_from(at).ok()?;
        let reserved = self.reservations.values().chain(self.moving.values());
        add_reserved(reserved, (&self.space, &self.tree), at, &mut free);
        Some(free)
    }

    pub(crate) fn reshapes(&self, gang: GangId) -> Vec<Reshape> {
        let holding = self.record(gang).filter(|record| record.holds_capacity());
        let placement = holding.and_then(|record| record.placement.as_ref());
        placement.map_or_else(Vec::new, |placement| reshapes(&self.tree, &self.space, placement))
    }

    pub(crate) fn key(&self, uid: u32, key: &str) -> Option<JobId> {
        self.keys.get(&(uid, key.to_owned())).copied()
    }

    pub(crate) fn take_replan(&mut self) -> bool {
        // While the world is being listed, the ledger is incomplete: no decision is made from half a list.
        !self.sync.any() && std::mem::take(&mut self.replan)
    }

    pub(crate) fn wake(&self) -> Wake {
        let timer = self.timers.first().map(|(at, _)| *at);
        Wake(
            timer
                .into_iter()
                .chain(self.again_at)
                .chain(self.pending.next_look())
                .chain(self.go_on_at)
                .chain(self.windows.first_end())
                .chain(self.looks_for_moves_at())
                .min(),
        )
    }

    /// Drops orders of this step that its later facts made moot: a kill after the last exit, a release after a failure.
    pub(crate) fn drop_moot_orders(&mut self, out: &mut Outcome) {
        out.effects.retain(|effect| {
            let order = &effect.order;
            let record = self.record(order.gang()).filter(|r| r.attempt == order.attempt());
            let moot = match order {
                Order::StartMembers { .. } | Order::ReleaseMembers { .. } => {
                    !record.is_some_and(|r| matches!(r.phase, Phase::Starting { .. }))
                }
                Order::SignalMembers { .. } | Order::KillMembers { .. } => {
                    !record.is_some_and(GangRecord::holds_capacity)
                }
            };
            if moot {
                self.outstanding.remove(&effect.id);
            }
            !moot
        });
    }

    fn emit(&mut self, order: Order, out: &mut Outcome) {
        let id = EffectId { epoch: self.epoch, seq: self.next_seq };
        self.next_seq += 1;
        let (starts, gang, attempt) = (order.starts_members(), order.gang(), order.attempt());
        self.outstanding.insert(id, Outstanding { gang, attempt, starts });
        out.effects.push(Effect { id, order });
    }

    pub(crate) fn count_bypass(&mut self, gang: GangId) {
        if let Some(record) = self.record_mut(gang) {
            record.bypassed = record.bypassed.saturating_add(1);
            self.replan = true;
        }
    }

    fn record_mut(&mut self, id: GangId) -> Option<&mut GangRecord> {
        self.jobs.get_mut(&id.job)?.gangs.get_mut(id.index as usize)
    }

    /// Lends the state that a cycle works on, while it plans.
    pub(crate) fn lend(&mut self) -> Draft {
        Draft {
            search: std::mem::take(&mut self.search),
            space: std::mem::take(&mut self.space),
            queues: std::mem::replace(&mut self.queues, Queues::lent()),
            pending: std::mem::take(&mut self.pending),
            reservations: std::mem::take(&mut self.reservations),
            freed: std::mem::take(&mut self.freed),
        }
    }

    pub(crate) fn take_back(&mut self, draft: Draft) {
        let Draft { search, space, queues, pending, reservations, freed } = draft;
        (self.search, self.space, self.queues, self.pending) = (search, space, queues, pending);
        (self.reservations, self.freed) = (reservations, freed);
    }

    /// Brings everything that is derived from nodes, levels and costs up to date.
    pub(crate) fn freshen(&mut self) {
        if std::mem::take(&mut self.stale) {
            // By the tree that is in use: nodes where capacity became free are known by their place in it.
            self.free_exited();
            self.draw_again();
        }
        self.freshen_queues();
        self.bind_cells();
        self.freshen_queues();
    }

    /// Brings queues and pending gangs up to date after windows or queues changed.
    fn freshen_queues(&mut self) {
        self.freshen_windows();
        if !std::mem::take(&mut self.stale_queues) {
            return;
        }
        self.cells.is_stale = true;
        self.queues.settle_all(self.now);
        self.queues.rebuild(&self.tree, self.pools.sets());
        self.pending.clear();
        self.freed = Freed::All;
        self.requeue_reservations();
        let active: Vec<GangId> = self.active.iter().copied().collect();
        for gang in active {
            self.serve_anew(gang);
            match self.held(gang) {
                Some(placement) => self.charge(gang, &placement),
                None => {
                    self.rank_reservation(gang);
                    self.claim_again(gang);
                    self.relist(gang);
                }
            }
        }
    }

    /// Brings the class and the service level of a reservation up to date with those of its gang.
    fn rank_reservation(&mut self, id: GangId) {
        let Some(job) = self.jobs.get(&id.job).map(|entry| &entry.job) else { return };
        if let Some(reservation) = self.reservations.get_mut(id) {
            (reservation.rank, reservation.level) = (self.queues.rank_of(job), self.queues.level_of(id));
        }
    }

    /// A gang that has a reservation is pending in a queue too.
    fn requeue_reservations(&mut self) {
        for (gang, mut reservation) in self.reservations.drain() {
            if let Some((job, least)) = self.job(gang.job).zip(self.least_of(gang)) {
                let name = job.queue.clone();
                reservation.waits = (self.queues.ensure(&name), least);
                self.queues.want(reservation.waits.0, &reservation.waits.1, true);
            }
            self.reservations.insert(gang, reservation);
        }
    }

    /// Counts the placement of a gang as used if other gangs are preempted for it.
    fn claim_again(&mut self, id: GangId) {
        let reserved = self.record(id).and_then(|record| record.reserved.as_ref());
        if let Some(placement) = reserved.filter(|reserved| reserved.evicts).map(|r| r.placement.clone()) {
            self.charge(id, &placement);
        }
    }
}

/// A level name that is a constant of this crate and so well formed.
fn name(text: &str) -> LevelName {
    LevelName::new(text).unwrap_or_else(|_| unreachable!("a constant name is well formed"))
}
