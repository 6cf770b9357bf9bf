//! The quota tree: the amounts that each queue may use, uses and wants.

#![allow(clippy::cast_possible_truncation, reason = "queues: at most 10,000, and those that jobs name")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{Class, DecayedUsage, GangId, Job, PreemptMode, Queue, QueueName, Settings, Timestamp};

use super::configured::Configured;
use super::entitlement::Entitlements;
use super::fair_share::FairShares;
use super::pending::OrderKey;
use super::pools::{PoolCapacities, PoolSets};
use super::resources::{GPUS, ResourceKinds, ResourceList, UNBOUNDED, WHOLE_MILLI, add, subtract};
use super::usage_decay;
use crate::cluster::Tree;

/// Index of a queue among [`Queues::nodes`]; 0 is the root, which represents the cluster.
pub(crate) type QueueAt = u32;
pub(crate) const ROOT: QueueAt = 0;

/// The order key of a gang among those that hold capacity: higher classes first, then lower service levels, then
/// earlier submissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HolderKey {
    pub(crate) rank: Reverse<i32>,
    /// The service level; 0 in queues that do not order by service.
    pub(crate) level: u32,
    pub(crate) submitted_at: Timestamp,
    pub(crate) gang: GangId,
}

/// The amounts and the protection of a gang that holds capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) amounts: ResourceList,
    /// The gang cannot be preempted.
    pub(crate) is_fixed: bool,
    /// The gang cannot be preempted before this time; while it does not run, at no time.
    pub(crate) stays_until: Timestamp,
    /// The gang was asked to end: the capacity that it still holds gives it no entitlement.
    pub(crate) leaves: bool,
}

impl Holder {
    /// A holder that does not run yet.
    pub(crate) const fn new(amounts: ResourceList, is_fixed: bool) -> Self {
        Self { amounts, is_fixed, stays_until: Timestamp::MAX, leaves: false }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct QueueNode {
    pub(crate) queue: Option<Queue>,
    /// The queue is configured; if not, jobs name it, or it is the root.
    pub(crate) is_configured: bool,
    pub(crate) parent: QueueAt,
    /// The outermost queue above the queue; an outermost queue is its own top.
    pub(crate) top: QueueAt,
    pub(crate) depth: u32,
    pub(crate) children: Vec<QueueAt>,
    /// At least the sum of the guarantees of its children.
    pub(crate) guaranteed: ResourceList,
    pub(crate) limit: ResourceList,
    /// The part of the guarantee that is never lent.
    pub(crate) kept: ResourceList,
    pub(crate) used: ResourceList,
    /// The least that its pending gangs will use.
    pub(crate) wanted: ResourceList,
    /// `used`, or the amounts kept below, whichever is more.
    pub(crate) committed: ResourceList,
    /// Amounts that cannot be reclaimed: used by gangs that cannot be preempted, or guaranteed, whichever is more.
    pub(crate) secured: ResourceList,
    /// `committed` without what this very queue keeps, and `secured` without what it is guaranteed.
    pub(crate) committed_below: ResourceList,
    pub(crate) secured_below: ResourceList,
    pub(crate) running: u32,
    pub(crate) pending: u32,
    /// Pending gangs in the queue and below, by time of submission.
    pub(crate) waiting: BTreeSet<(Timestamp, GangId)>,
    decayed: DecayedUsage,
    /// The value that orders the queue: its share and its decayed usage, as of the last refresh.
    pub(crate) weighs: u64,
    /// For an outermost queue: a version that changes whenever the order of gangs in it and below may have changed.
    pub(super) order_version: u64,
    pub(crate) holders: BTreeMap<HolderKey, Holder>,
}

#[derive(Clone, Debug)]
pub(crate) struct Queues {
    settings: Settings,
    configured: Configured,
    pub(crate) resources: ResourceKinds,
    /// The guarantees of queues by their places, in thousandths of a device.
    places: BTreeMap<QueueName, u128>,
    /// The capacity of the cluster, by resource.
    pub(crate) capacity: ResourceList,
    pub(crate) nodes: Vec<QueueNode>,
    index: BTreeMap<QueueName, QueueAt>,
    /// The number of gangs that may be preempted, by class.
    evictable_by_rank: BTreeMap<i32, u32>,
    /// Levels of gangs that had enough service to be on another level than the first.
    pub(super) levels: BTreeMap<GangId, u32>,
    /// The last time at which decayed usage was brought up to date.
    refreshed_at: Timestamp,
    /// The tree was rebuilt, or decayed usage was restored, since then.
    is_new: bool,
    pub(super) fair_shares: FairShares,
    pub(super) pools: PoolCapacities,
    pub(super) entitlements: Entitlements,
}

impl Queues {
    pub(crate) fn new() -> Self {
        let mut queues = Self::lent();
        queues.draw();
        queues
    }

    /// Queues without a tree: they stand in the ledger while a cycle works on those that it has.
    pub(crate) fn lent() -> Self {
        Self {
            settings: Settings::default(),
            configured: Configured::default(),
            resources: ResourceKinds::default(),
            places: BTreeMap::new(),
            capacity: ResourceList::new(),
            nodes: Vec::new(),
            index: BTreeMap::new(),
            evictable_by_rank: BTreeMap::new(),
            levels: BTreeMap::new(),
            refreshed_at: Timestamp(0),
            is_new: true,
            fair_shares: FairShares::default(),
            pools: PoolCapacities::default(),
            entitlements: Entitlements::default(),
        }
    }

    /// The part of a head's wait, in thousandths, that GPUs may stay idle for it and that others may delay it by.
    pub(crate) fn hold_idle_milli(&self) -> u64 {
        u64::from(self.settings().hold_idle_max_milli)
    }

    pub(crate) const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The queues as they were configured.
    pub(crate) const fn configured(&self) -> &BTreeMap<QueueName, Queue> {
        self.configured.queues()
    }

    /// Why a queue cannot be below the parent that it names.
    pub(crate) fn misplaced(&self, queue: &Queue) -> Option<String> {
        self.configured.misplaced(queue)
    }

    /// Sets the settings. Returns whether anything changed.
    pub(crate) fn configure(&mut self, settings: &Settings) -> bool {
        let is_new = self.settings != *settings;
        self.settings = settings.clone();
        is_new
    }

    /// Adds a queue, or replaces the queue of its name. Returns whether anything changed; the tree shows it once it is
    /// rebuilt.
    pub(crate) fn insert(&mut self, queue: &Queue) -> bool {
        self.configured.insert(queue)
    }

    pub(crate) fn remove(&mut self, queue: &QueueName) -> bool {
        self.configured.remove(queue)
    }

    /// Changes a queue in place, if its position in the tree is the same and it names the same resources; if not, nothing
    /// happens: a resource that a queue names is one that shares are measured by.
    pub(crate) fn amend(&mut self, queue: &Queue) -> bool {
        let kinds = |queue: &Queue| ResourceKinds::of(std::iter::once(queue));
        let stands = self.configured.queues().get(&queue.name).is_some_and(|before| {
            before.parent == queue.parent
                && before.shapes == queue.shapes
                && before.order == queue.order
                && before.nodes == queue.nodes
                && kinds(before) == kinds(queue)
        });
        let Some(at) = self.find(&queue.name).filter(|_| stands) else { return false };
        self.configured.insert(queue);
        let blank = self.blank(Some(queue.clone()), self.at(at).parent);
        let node = &mut self.nodes[at as usize];
        (node.queue, node.limit, node.kept) = (blank.queue, blank.limit, blank.kept);
        let path: Vec<QueueAt> = self.path(at).collect();
        path.iter().for_each(|at| self.guarantee(*at));
        self.order_changed(at);
        for at in path.into_iter().chain([ROOT]) {
            self.raise(at);
            self.weigh(at);
            self.demand_changed(at);
        }
        self.stands_otherwise(at);
        true
    }

    /// Rebuilds the tree. No gang holds or wants anything in it; decayed usage is kept.
    pub(crate) fn rebuild(&mut self, tree: &Tree, sets: &PoolSets) {
        let named = |node: &QueueNode| Some((node.queue.as_ref()?.name.clone(), node.decayed));
        let past: BTreeMap<QueueName, DecayedUsage> = self.nodes.iter().filter_map(named).collect();
        self.places = self.places_in(tree);
        self.draw();
        self.capacity = self.resources.capacity(tree, &self.settings);
        self.draw_pools(tree, sets);
        for (name, decayed) in past.into_iter().filter(|(_, decayed)| decayed.device_ms > 0) {
            self.remember(&name, decayed);
        }
    }

    /// Replaces what one node adds to the capacity of the cluster.
    pub(crate) fn change_capacity(&mut self, tree: &Tree, node: usize, had: &[u128], has: &[u128]) {
        self.change_pools(tree, node, had[GPUS], has[GPUS]);
        let mut capacity = self.capacity.clone();
        subtract(&mut capacity, had);
        add(&mut capacity, has);
        self.set_capacity(capacity);
    }

    /// Sets the capacity of the cluster. Returns whether it changed.
    pub(crate) fn set_capacity(&mut self, capacity: ResourceList) -> bool {
        let is_new = std::mem::replace(&mut self.capacity, capacity) != self.capacity;
        if is_new {
            self.is_new = true;
            self.demand_changed(ROOT);
        }
        is_new
    }

    /// The worth of the places that queues are guaranteed, in devices: by the fewest devices of a whole node.
    fn places_in(&self, tree: &Tree) -> BTreeMap<QueueName, u128> {
        let whole = tree.nodes.iter().map(|node| u128::from(tree.kind(node).all().count()));
        let each = whole.filter(|count| *count > 0).min().unwrap_or(0);
        let nodes = |queue: &Queue| -> u128 {
            queue.shapes.iter().map(|shape| u128::from(shape.count) * u128::from(shape.nodes)).sum()
        };
        let of = |queue: &Queue| (queue.name.clone(), nodes(queue) * each * WHOLE_MILLI);
        self.configured.queues().values().filter(|queue| !queue.shapes.is_empty()).map(of).collect()
    }

    fn draw(&mut self) {
        self.resources = ResourceKinds::of(self.configured.queues().values());
        self.capacity = vec![0; self.resources.len()];
        self.nodes = vec![self.blank(None, ROOT)];
        self.index.clear();
        self.evictable_by_rank.clear();
        self.levels.clear();
        self.is_new = true;
        let configured = std::mem::take(&mut self.configured);
        for (parent, queue) in configured.parents_first() {
            let parent = parent.and_then(|name| self.find(name)).unwrap_or(ROOT);
            self.enter(queue.clone(), parent, true);
        }
        self.configured = configured;
        // Children come after their parents.
        (1..self.nodes.len()).rev().for_each(|at| self.guarantee(at as QueueAt));
        for at in (0..self.nodes.len()).rev() {
            self.raise(at as QueueAt);
        }
        self.undivide();
        self.uncount();
    }

    fn blank(&self, queue: Option<Queue>, parent: QueueAt) -> QueueNode {
        let nothing = vec![0; self.resources.len()];
        let said = |of: fn(&Queue) -> &phalanx_model::Amounts, otherwise: u128| {
            queue.as_ref().map_or_else(
                || vec![otherwise; self.resources.len()],
                |queue| self.resources.said(of(queue), otherwise),
            )
        };
        let guaranteed = queue.as_ref().map_or_else(|| nothing.clone(), |queue| self.own_guarantee(queue));
        let lent = said(|queue| &queue.lend_max, UNBOUNDED);
        let kept = guaranteed.iter().zip(lent).map(|(all, lent)| all.saturating_sub(lent)).collect();
        QueueNode {
            limit: said(|queue| &queue.limit, UNBOUNDED),
            guaranteed,
            kept,
            parent,
            depth: self
                .nodes
                .get(parent as usize)
                .filter(|_| queue.is_some())
                .map_or(0, |above| above.depth + 1),
            used: nothing.clone(),
            wanted: nothing.clone(),
            committed: nothing.clone(),
            secured: nothing.clone(),
            committed_below: nothing.clone(),
            secured_below: nothing,
            queue,
            ..QueueNode::default()
        }
    }

    /// The configured guarantee of a queue, or the worth of its places.
    fn own_guarantee(&self, queue: &Queue) -> ResourceList {
        let mut own = self.resources.said(&queue.guaranteed, 0);
        if let (Some(gpus), Some(of_places)) = (own.get_mut(GPUS), self.places.get(&queue.name)) {
            *gpus = (*gpus).max(*of_places);
        }
        own
    }

    /// Sets the guarantee of a queue: its own, or the sum of the guarantees of its children.
    fn guarantee(&mut self, at: QueueAt) {
        let node = self.at(at);
        let mut sum = vec![0; self.resources.len()];
        node.children.iter().for_each(|child| add(&mut sum, &self.at(*child).guaranteed));
        let own = node.queue.as_ref().map(|queue| self.own_guarantee(queue)).unwrap_or_default();
        sum.iter_mut().zip(own).for_each(|(below, own)| *below = own.max(*below));
        self.nodes[at as usize].guaranteed = sum;
    }

    fn enter(&mut self, queue: Queue, parent: QueueAt, is_configured: bool) -> QueueAt {
        let at = self.nodes.len() as QueueAt;
        self.index.insert(queue.name.clone(), at);
        let top = if parent == ROOT { at } else { self.at(parent).top };
        let node = QueueNode { is_configured, top, ..self.blank(Some(queue), parent) };
        self.nodes[parent as usize].children.push(at);
        self.nodes.push(node);
        at
    }

    /// The queue of this name; a queue that is not configured is at the top and is guaranteed nothing.
    pub(crate) fn ensure(&mut self, name: &QueueName) -> QueueAt {
        match self.index.get(name) {
            Some(at) => *at,
            None => self.enter(Queue::named(name.clone()), ROOT, false),
        }
    }

    pub(crate) fn find(&self, name: &QueueName) -> Option<QueueAt> {
        self.index.get(name).copied()
    }

    pub(crate) fn at(&self, at: QueueAt) -> &QueueNode {
        &self.nodes[at as usize]
    }

    /// A queue and those above it, innermost first, without the root.
    pub(crate) fn path(&self, leaf: QueueAt) -> impl Iterator<Item = QueueAt> + '_ {
        std::iter::successors(Some(leaf), |at| Some(self.at(*at).parent)).take_while(|at| *at != ROOT)
    }

    /// The same path with the root.
    pub(crate) fn path_to_root(&self, leaf: QueueAt) -> Vec<QueueAt> {
        self.path(leaf).chain([ROOT]).collect()
    }

    pub(crate) fn class_of(&self, job: &Job) -> Option<&Class> {
        self.settings.class(job.turn.class.as_ref()).or_else(|| self.settings.class(None))
    }

    pub(crate) fn rank_of(&self, job: &Job) -> i32 {
        self.class_of(job).map_or(0, |class| class.rank)
    }

    /// Whether a gang cannot be preempted. In a service the minimum of replicas cannot be preempted, and replicas
    /// beyond the minimum can, whatever the class says.
    pub(crate) fn is_fixed(&self, job: &Job, gang: GangId) -> bool {
        let is_kept = match &job.turn.service {
            Some(service) => service.number(gang) < service.min,
            None => !self.class_of(job).is_none_or(|class| class.is_preemptible),
        };
        is_kept || job.policy.preempt.mode == PreemptMode::Never
    }

    pub(crate) fn holder_key_of(&self, job: &Job, gang: GangId) -> HolderKey {
        let (rank, level) = (Reverse(self.rank_of(job)), self.level_of(gang));
        HolderKey { rank, level, submitted_at: job.submitted_at, gang }
    }

    /// The lowest class of gangs that may be preempted.
    pub(crate) fn lowest_rank(&self) -> Option<i32> {
        self.evictable_by_rank.first_key_value().map(|(rank, _)| *rank)
    }

    /// Charges a queue for a gang that takes capacity.
    pub(crate) fn charge(&mut self, leaf: QueueAt, holder_key: HolderKey, holder: Holder, now: Timestamp) {
        self.settle(leaf, &holder.amounts, now);
        if !holder.is_fixed {
            *self.evictable_by_rank.entry(holder_key.rank.0).or_default() += 1;
        }
        self.book(leaf, &holder, true);
        self.nodes[leaf as usize].holders.insert(holder_key, holder);
    }

    /// Discharges a queue of what a gang took; `None` if the gang took nothing.
    pub(crate) fn discharge(
        &mut self,
        leaf: QueueAt,
        holder_key: HolderKey,
        now: Timestamp,
    ) -> Option<Holder> {
        let holder = self.nodes[leaf as usize].holders.remove(&holder_key)?;
        self.settle(leaf, &holder.amounts, now);
        if let Some(count) = self.evictable_by_rank.get_mut(&holder_key.rank.0).filter(|_| !holder.is_fixed) {
            *count -= 1;
            if *count == 0 {
                self.evictable_by_rank.remove(&holder_key.rank.0);
            }
        }
        self.book(leaf, &holder, false);
        Some(holder)
    }

    /// Records that a gang that holds capacity begins to run, or to end.
    pub(crate) fn stay(&mut self, leaf: QueueAt, holder_key: HolderKey, until: Timestamp, leaves: bool) {
        let Some(holder) = self.nodes[leaf as usize].holders.get_mut(&holder_key) else { return };
        if (holder.stays_until, holder.leaves) != (until, leaves) {
            (holder.stays_until, holder.leaves) = (until, leaves);
            self.stands_otherwise(leaf);
        }
    }

    fn book(&mut self, leaf: QueueAt, holder: &Holder, is_more: bool) {
        let change = if is_more { add } else { subtract };
        let node = &mut self.nodes[leaf as usize];
        change(&mut node.committed_below, &holder.amounts);
        if holder.is_fixed {
            change(&mut node.secured_below, &holder.amounts);
        }
        self.stands_otherwise(leaf);
        self.order_changed(leaf);
        let mut next = Some(leaf);
        while let Some(at) = next {
            let node = &mut self.nodes[at as usize];
            change(&mut node.used, &holder.amounts);
            node.running = if is_more { node.running + 1 } else { node.running.saturating_sub(1) };
            next = (at != ROOT).then_some(node.parent);
            self.raise(at);
            self.weigh(at);
            self.demand_changed(at);
        }
    }

    /// Records that the order of gangs in a queue and below may have changed, and with it the position of the outermost
    /// queue.
    fn order_changed(&mut self, at: QueueAt) {
        let top = self.at(at).top as usize;
        self.nodes[top].order_version += 1;
    }

    fn weigh(&mut self, at: QueueAt) {
        if at != ROOT {
            let weighs = self.share(at).0.saturating_add(self.past_share(at, self.refreshed_at));
            if std::mem::replace(&mut self.nodes[at as usize].weighs, weighs) != weighs {
                self.order_changed(at);
            }
        }
    }

    /// Brings decayed usage up to date at certain times only, so that positions do not shift with every millisecond.
    pub(crate) fn refresh(&mut self, now: Timestamp) {
        let grain = (self.settings.half_life_ms / GRAINS).max(1);
        let at = Timestamp(now.0 / grain * grain);
        if at != self.refreshed_at || std::mem::take(&mut self.is_new) {
            self.refreshed_at = at;
            (1..self.nodes.len()).for_each(|at| self.weigh(at as QueueAt));
        }
    }

    /// Computes the committed and secured amounts of a queue from those of its children, and passes the difference to
    /// its parent.
    fn raise(&mut self, at: QueueAt) {
        let parent = self.at(at).parent as usize;
        for resource in 0..self.resources.len() {
            let node = &mut self.nodes[at as usize];
            let now = (
                node.committed_below[resource].max(node.kept[resource]),
                node.secured_below[resource].max(node.guaranteed[resource]),
            );
            let was = (node.committed[resource], node.secured[resource]);
            (node.committed[resource], node.secured[resource]) = now;
            if at != ROOT && was != now {
                let above = &mut self.nodes[parent];
                above.committed_below[resource] = above.committed_below[resource] + now.0 - was.0;
                above.secured_below[resource] = above.secured_below[resource] + now.1 - was.1;
            }
        }
    }

    /// Adds a gang to the pending gangs of a queue and those above it, or removes it.
    pub(crate) fn enqueue(&mut self, leaf: QueueAt, order_key: OrderKey, joins: bool) {
        self.order_changed(leaf);
        let waits = (order_key.submitted_at, order_key.gang);
        let mut at = leaf;
        while at != ROOT {
            let node = &mut self.nodes[at as usize];
            if joins {
                node.waiting.insert(waits)
            } else {
                node.waiting.remove(&waits)
            };
            at = node.parent;
        }
    }

    /// Adds or removes the least amounts of a pending gang.
    pub(crate) fn want(&mut self, leaf: QueueAt, least: &[u128], is_more: bool) {
        let mut next = Some(leaf);
        while let Some(at) = next {
            let node = &mut self.nodes[at as usize];
            if is_more {
                add(&mut node.wanted, least);
                node.pending += 1;
            } else {
                subtract(&mut node.wanted, least);
                node.pending = node.pending.saturating_sub(1);
            }
            next = (at != ROOT).then_some(node.parent);
            self.demand_changed(at);
        }
    }

    /// Brings the decayed usage of a queue and those above it to the present, before their use changes.
    fn settle(&mut self, leaf: QueueAt, amounts: &ResourceList, now: Timestamp) {
        if amounts[GPUS] == 0 {
            return;
        }
        let half_life_ms = self.settings.half_life_ms;
        let mut at = leaf;
        while at != ROOT {
            let node = &mut self.nodes[at as usize];
            at = node.parent;
            node.decayed = usage_decay::accrued(node.decayed, node.used[GPUS], now, half_life_ms);
        }
    }

    /// The same for all queues, before the tree is rebuilt.
    pub(crate) fn settle_all(&mut self, now: Timestamp) {
        let half_life_ms = self.settings.half_life_ms;
        for node in self.nodes.iter_mut().skip(1).filter(|node| node.used[GPUS] > 0) {
            node.decayed = usage_decay::accrued(node.decayed, node.used[GPUS], now, half_life_ms);
        }
    }

    /// Restores the decayed usage of a queue, as it was last known.
    pub(crate) fn remember(&mut self, name: &QueueName, decayed: DecayedUsage) {
        let at = self.ensure(name);
        self.nodes[at as usize].decayed = decayed;
        self.is_new = true;
    }

    /// The decayed usage of every queue that used something, as it was last brought to the present.
    pub(crate) fn past(&self) -> impl Iterator<Item = (&QueueName, DecayedUsage)> {
        let has_any = |node: &&QueueNode| node.used[GPUS] > 0 || node.decayed.device_ms > 0;
        let known = self.nodes.iter().filter(has_any);
        known.filter_map(|node| Some((&node.queue.as_ref()?.name, node.decayed)))
    }

    /// The decayed usage of every queue that used something, brought to a time.
    pub(crate) fn past_at(&self, now: Timestamp) -> impl Iterator<Item = (&QueueName, DecayedUsage)> {
        let half_life_ms = self.settings.half_life_ms;
        self.past().map(move |(name, decayed)| {
            let used = self.find(name).map_or(0, |at| self.at(at).used[GPUS]);
            (name, usage_decay::accrued(decayed, used, now, half_life_ms))
        })
    }

    /// The decayed usage of a queue at a time: as a part of the cluster over one half-life, by weight, in millionths.
    pub(crate) fn past_share(&self, at: QueueAt, now: Timestamp) -> u64 {
        let node = self.at(at);
        let half_life_ms = self.settings.half_life_ms;
        let used = usage_decay::accrued(node.decayed, node.used[GPUS], now, half_life_ms).device_ms;
        let all = self.capacity[GPUS].saturating_mul(usage_decay::span_ms(half_life_ms));
        by_weight(used.saturating_mul(MILLION).checked_div(all).unwrap_or(0), node)
    }

    /// The use of a queue beyond its guarantee, of the resource of which that is the largest part of the capacity of
    /// the cluster, by weight, in millionths; and that resource.
    pub(crate) fn share(&self, at: QueueAt) -> (u64, usize) {
        let node = self.at(at);
        let above = |resource: usize| {
            let above = node.used[resource].saturating_sub(node.guaranteed[resource]);
            above.saturating_mul(MILLION).checked_div(self.capacity[resource]).unwrap_or(0)
        };
        let most = (0..self.resources.len()).map(|resource| (above(resource), Reverse(resource))).max();
        let (part, Reverse(resource)) = most.unwrap_or((0, Reverse(GPUS)));
        (by_weight(part, node), resource)
    }
}

const MILLION: u128 = 1_000_000;
/// The number of times in a half-life at which decayed usage is brought up to date.
const GRAINS: u64 = 1_024;

fn by_weight(part: u128, node: &QueueNode) -> u64 {
    let weight = node.queue.as_ref().map_or(1_000, |queue| queue.weight_milli).max(1);
    u64::try_from(part.saturating_mul(1_000) / u128::from(weight)).unwrap_or(u64::MAX)
}
