//! The books: a state machine over facts. What exists, what runs where, what was ordered and not answered.

mod apply;
mod gang;
mod noted;
mod sync;
mod tally;
mod timers;

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{
    Change, CostTable, Effect, EffectId, Epoch, Gang, GangId, GangRecord, Input, Job, JobId, LevelName,
    Levels, Node, NodeName, Order, Outcome, Phase, Placement, Reason, SyncKind, Timestamp, Wake,
};

use crate::plan::{Free, Reshape, Search, Space, Tree, reshapes};
use noted::Noted;
use sync::Sync;
use tally::Tally;

/// A job and where its gangs stand, index by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) job: Job,
    pub(crate) gangs: Vec<GangRecord>,
    ended: bool,
    /// A gang of it ended badly, and so the others were stopped.
    failed: bool,
}

/// An order without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outstanding {
    gang: GangId,
    attempt: u32,
    /// It is an order to start: when it fails, whoever has not come to the gate never began.
    starts: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    now: Timestamp,
    epoch: Epoch,
    next_seq: u64,
    levels: Levels,
    costs: CostTable,
    nodes: BTreeMap<NodeName, Node>,
    jobs: BTreeMap<JobId, Entry>,
    /// Idempotency keys per owner.
    keys: BTreeMap<(u32, String), JobId>,
    /// Gangs that are not finished: what a step may have to look at.
    active: BTreeSet<GangId>,
    timers: BTreeSet<(Timestamp, GangId)>,
    /// The same, by gang: at most one each.
    timer_at: BTreeMap<GangId, Timestamp>,
    /// Orders that the world has not answered.
    outstanding: BTreeMap<EffectId, Outstanding>,
    reasons: BTreeMap<GangId, Reason>,
    /// Of every gang that holds capacity.
    tallies: BTreeMap<GangId, Tally>,
    noted: Noted,
    sync: Sync,
    // Derived from the above.
    tree: Tree,
    space: Space,
    /// What the hardware holds, devices of others included; and the same if no node were cordoned.
    empty: Space,
    empty_opened: Space,
    search: Search,
    /// The tree and what is free are older than the nodes.
    stale: bool,
    /// Something was taken that was not free: amounts then cannot be given back one by one.
    overbooked: bool,
    replan: bool,
}

impl Ledger {
    pub(crate) fn new(epoch: Epoch) -> Self {
        let levels = Levels::new(vec![name("cluster")], name("node"));
        let tree = Tree::build(&levels, &BTreeMap::new(), &CostTable::default(), None);
        Self {
            now: Timestamp(0),
            epoch,
            next_seq: 0,
            space: Space::free_of(&tree),
            empty: Space::empty_of(&tree),
            empty_opened: Space::empty_of(&tree),
            search: Search::default(),
            tree,
            levels,
            costs: CostTable::default(),
            nodes: BTreeMap::new(),
            jobs: BTreeMap::new(),
            keys: BTreeMap::new(),
            active: BTreeSet::new(),
            timers: BTreeSet::new(),
            timer_at: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            reasons: BTreeMap::new(),
            tallies: BTreeMap::new(),
            noted: Noted::default(),
            sync: Sync::default(),
            stale: false,
            overbooked: false,
            replan: false,
        }
    }

    /// Time moves on. A clock that goes back is a world's mistake and is held, not believed.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    pub(crate) const fn now(&self) -> Timestamp {
        self.now
    }

    pub(crate) const fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) const fn space(&self) -> &Space {
        &self.space
    }

    pub(crate) const fn empty(&self) -> &Space {
        &self.empty
    }

    pub(crate) const fn empty_opened(&self) -> &Space {
        &self.empty_opened
    }

    /// The memory of searches, for as long as one plans.
    pub(crate) fn lend_search(&mut self) -> Search {
        std::mem::take(&mut self.search)
    }

    pub(crate) fn return_search(&mut self, search: Search) {
        self.search = search;
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

    pub(crate) fn record(&self, id: GangId) -> Option<&GangRecord> {
        self.jobs.get(&id.job)?.gangs.get(usize::from(id.index))
    }

    pub(crate) fn gang(&self, id: GangId) -> Option<&Gang> {
        self.jobs.get(&id.job)?.job.gangs.get(usize::from(id.index))
    }

    pub(crate) fn active(&self) -> impl Iterator<Item = (&Job, &Gang, &GangRecord)> {
        self.active.iter().filter_map(|id| Some((self.job(id.job)?, self.gang(*id)?, self.record(*id)?)))
    }

    pub(crate) fn reason(&self, gang: GangId) -> Option<&Reason> {
        self.reasons.get(&gang)
    }

    pub(crate) fn free_of(&self, node: &NodeName) -> Option<Free> {
        self.tree.index_of(node).map(|i| *self.space.free(i))
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
        // While the world is being listed, the books are incomplete: no decision rests on half a list.
        !self.sync.any() && std::mem::take(&mut self.replan)
    }

    pub(crate) fn wake(&self) -> Wake {
        Wake(self.timers.first().map(|(at, _)| *at))
    }

    /// Takes back orders of this step about what has ended or turned around since they were given: a kill
    /// after the last exit, a release after a failure.
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
        let starts = matches!(order, Order::StartMembers { .. });
        let (gang, attempt) = (order.gang(), order.attempt());
        self.outstanding.insert(id, Outstanding { gang, attempt, starts });
        out.effects.push(Effect { id, order });
    }

    /// A pending gang's reason; says so when it changed.
    pub(crate) fn set_reason(&mut self, gang: GangId, reason: Reason, out: &mut Outcome) {
        if self.reasons.get(&gang) != Some(&reason) {
            self.reasons.insert(gang, reason.clone());
            out.changes.push(Change::ReasonChanged { gang, reason });
        }
    }

    pub(crate) fn count_bypass(&mut self, gang: GangId) {
        if let Some(record) = self.record_mut(gang) {
            record.bypassed = record.bypassed.saturating_add(1);
        }
    }

    fn record_mut(&mut self, id: GangId) -> Option<&mut GangRecord> {
        self.jobs.get_mut(&id.job)?.gangs.get_mut(usize::from(id.index))
    }

    /// Nodes, levels or costs changed: the tree is drawn anew before somebody needs it, once for all changes.
    const fn redraw(&mut self) {
        self.stale = true;
        self.replan = true;
    }

    /// Brings what is derived from nodes, levels and costs up to date.
    pub(crate) fn freshen(&mut self) {
        if std::mem::take(&mut self.stale) {
            self.tree = Tree::build(&self.levels, &self.nodes, &self.costs, Some(&self.tree));
            self.empty = Space::empty_of(&self.tree);
            self.empty_opened = self.empty.opened(&self.tree);
            self.recount();
        }
    }

    /// What is free, counted anew.
    fn recount(&mut self) {
        self.space = Space::free_of(&self.tree);
        self.overbooked = false;
        let held: Vec<(GangId, Placement)> = self
            .active()
            .filter(|(_, _, record)| record.holds_capacity())
            .filter_map(|(_, _, record)| Some((record.id, record.placement.clone()?)))
            .collect();
        for (gang, placement) in &held {
            self.take(*gang, placement);
        }
    }

    fn take(&mut self, gang: GangId, placement: &Placement) {
        let Some(found) = self.jobs.get(&gang.job).and_then(|e| e.job.gangs.get(usize::from(gang.index)))
        else {
            return;
        };
        let picks = self.tree.picks_of(placement, found);
        self.overbooked |= !self.space.take(&self.tree, &picks, found);
        self.space.load(&self.tree, &picks, found, true);
    }

    /// Once the record no longer holds it. Also what held nothing makes way: others may have waited for it to
    /// go first.
    fn give_back(&mut self, gang: GangId, held: Option<&Placement>) {
        self.replan = true;
        let Some(placement) = held else { return };
        if self.overbooked {
            self.recount();
        } else if let Some(found) =
            self.jobs.get(&gang.job).and_then(|e| e.job.gangs.get(usize::from(gang.index)))
        {
            let picks = self.tree.picks_of(placement, found);
            self.space.give_back(&self.tree, &picks, found);
            self.space.load(&self.tree, &picks, found, false);
        }
    }

    /// Everything persistent, in the order in which a world lists itself.
    pub(crate) fn facts(&self) -> Vec<Input> {
        let mut facts = vec![
            Input::LevelsConfigured { levels: self.levels.clone() },
            Input::CostsCompiled { table: self.costs.clone() },
            Input::SyncBegin { kind: SyncKind::Nodes },
        ];
        facts.extend(self.nodes.values().map(|n| Input::NodeObserved { node: Box::new(n.clone()) }));
        facts.push(Input::SyncEnd { kind: SyncKind::Nodes });
        facts.push(Input::SyncBegin { kind: SyncKind::Jobs });
        facts.extend(
            self.jobs
                .values()
                .map(|e| Input::JobObserved { job: Box::new(e.job.clone()), gangs: e.gangs.clone() }),
        );
        facts.push(Input::SyncEnd { kind: SyncKind::Jobs });
        facts.extend(self.noted.facts());
        facts
    }
}

/// A level name that is a constant of ours and so well formed.
fn name(text: &str) -> LevelName {
    LevelName::new(text).unwrap_or_else(|_| unreachable!("a constant name is well formed"))
}
