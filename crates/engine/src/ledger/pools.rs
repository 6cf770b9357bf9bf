//! The pools of queues: which nodes are in them, and in which of them each job may be placed.

use std::collections::BTreeMap;

use phalanx_model::{Gang, Job, JobId, Needs, NodeSet, Placement, Pool, PoolReport, Queue, QueueName};

use super::{Entry, Ledger};
use crate::placement::pools;
use crate::queueing::pools::PoolSets;
use crate::queueing::{GPUS, QueueAt};

/// The sets of the pools that queues configure.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    sets: PoolSets,
    /// Queues changed since.
    is_stale: bool,
}

impl Known {
    pub(super) const fn sets(&self) -> &PoolSets {
        &self.sets
    }

    /// Whether no queue has any.
    fn are_none(&self) -> bool {
        self.sets.are_none() && !self.is_stale
    }
}

/// The sets that a member of a job in a queue must stay in, and those that it prefers, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Allowed {
    pools: Vec<NodeSet>,
    prefer_pools: Vec<Vec<NodeSet>>,
    in_one_pool: bool,
}

impl Allowed {
    /// By the queues of a job, innermost first. Each that requires pools narrows the nodes further. The innermost one that
    /// requires a choice of pools decides in one of which a gang is; queues below it only order these choices.
    fn of<'a>(path: impl Iterator<Item = &'a Queue>, sets: &PoolSets) -> Self {
        let mut allowed = Self::default();
        for nodes in path.map(|queue| &queue.nodes).filter(|nodes| !nodes.are_none()) {
            if nodes.are_required() {
                allowed.pools.extend(sets.get(&nodes.pools).cloned());
            }
            if !nodes.are_choices() || allowed.in_one_pool {
                continue;
            }
            let each = || nodes.pools.iter().filter_map(|pool| sets.get(std::slice::from_ref(pool)));
            if !nodes.or_any {
                allowed.in_one_pool = true;
                let preferred = std::mem::take(&mut allowed.prefer_pools);
                let in_each =
                    |of: Vec<NodeSet>| each().map(move |pool| [&*of, std::slice::from_ref(pool)].concat());
                allowed.prefer_pools = preferred.into_iter().flat_map(in_each).collect();
            }
            allowed.prefer_pools.extend(each().map(|pool| vec![pool.clone()]));
        }
        allowed
    }

    fn is_of(&self, needs: &Needs) -> bool {
        self.pools == needs.pools
            && self.prefer_pools == needs.prefer_pools
            && self.in_one_pool == needs.in_one_pool
    }

    pub(super) fn set(&self, job: &mut Job) {
        for needs in job.gangs.iter_mut().flat_map(Gang::all_needs_mut) {
            needs.pools.clone_from(&self.pools);
            needs.prefer_pools.clone_from(&self.prefer_pools);
            needs.in_one_pool = self.in_one_pool;
        }
    }

    /// The choices of a gang, of which it has one. A node must be in all sets of that choice.
    pub(super) fn choices(&self) -> Vec<Vec<NodeSet>> {
        if !self.in_one_pool {
            return vec![self.pools.clone()];
        }
        let with = |pool: &Vec<NodeSet>| self.pools.iter().chain(pool).cloned().collect();
        self.prefer_pools.iter().map(with).collect()
    }
}

impl Ledger {
    /// The pools of all queues that have any, and what is used of each.
    pub(crate) fn pool_reports(&self) -> BTreeMap<QueueName, Vec<PoolReport>> {
        let (tree, resources, settings) = (&self.tree, &self.queues.resources, self.queues.settings());
        let mut reports = BTreeMap::new();
        let with_pools = || self.queues.configured().values().filter(|queue| !queue.nodes.are_none());
        if with_pools().next().is_none() {
            return reports;
        }
        // A set of one required pool is that of the pools together.
        let sets_of = |queue: &Queue| -> Vec<Option<&NodeSet>> {
            let each = queue.nodes.pools.iter();
            each.map(|pool| self.pools.sets.get(std::slice::from_ref(pool))).collect()
        };
        let mut all: BTreeMap<&NodeSet, (u32, u128)> = BTreeMap::new();
        for (at, node) in tree.nodes.iter().enumerate() {
            let devices = resources.of_node(tree, settings, at)[GPUS];
            for set in tree.kind(node).pools() {
                let (nodes, capacity) = all.entry(set).or_default();
                (*nodes, *capacity) = (*nodes + 1, *capacity + devices);
            }
        }
        let mut used: BTreeMap<(QueueAt, &NodeSet), u128> = BTreeMap::new();
        for (id, picks) in &self.picks {
            let Some((job, gang)) = self.job(id.job).zip(self.gang(*id)) else { continue };
            let Some(leaf) = self.queues.find(&job.queue) else { continue };
            for pick in picks {
                let Some(node) = tree.nodes.get(pick.node as usize) else { continue };
                let devices = resources.held(tree, settings, std::slice::from_ref(pick), gang)[GPUS];
                for above in self.queues.path(leaf) {
                    for set in tree.kind(node).pools() {
                        *used.entry((above, set)).or_default() += devices;
                    }
                }
            }
        }
        let amount = |of: u128| u64::try_from(of).unwrap_or(u64::MAX);
        for queue in with_pools() {
            let Some(at) = self.queues.find(&queue.name) else { continue };
            let report = |(pool, set): (&Pool, Option<&NodeSet>)| {
                let (nodes, capacity) = set.and_then(|set| all.get(set)).copied().unwrap_or_default();
                let used = set.and_then(|set| used.get(&(at, set))).copied().unwrap_or_default();
                PoolReport { pool: pool.clone(), nodes, capacity: amount(capacity), used: amount(used) }
            };
            let pools = queue.nodes.pools.iter().zip(sets_of(queue)).map(report).collect();
            reports.insert(queue.name.clone(), pools);
        }
        reports
    }

    /// The pools of a queue, as it is configured now.
    pub(super) fn allowed_in(&self, queue: &QueueName) -> Allowed {
        if self.pools.are_none() {
            return Allowed::default();
        }
        let queues = self.queues.configured();
        let above = |queue: &&Queue| queues.get(queue.parent.as_ref()?);
        Allowed::of(std::iter::successors(queues.get(queue), above).take(queues.len()), self.pools.sets())
    }

    /// Whether a gang that must be in one pool is in one.
    pub(super) fn is_in_a_pool_of(&self, gang: &Gang, placement: &Placement) -> bool {
        let choices = pools::choices(gang);
        let nodes = || placement.slots.iter().filter_map(|slot| self.tree.index_of(&slot.node));
        let holds_all = |only: &Gang| {
            nodes().all(|node| self.tree.kind(&self.tree.nodes[node]).is_in_pools(&only.needs.pools))
        };
        choices.is_empty() || choices.iter().any(holds_all)
    }

    /// The choices of pools of a gang in a queue, see [`Allowed::choices`].
    pub(super) fn pool_choices(&self, queue: QueueAt) -> Vec<Vec<NodeSet>> {
        let named = self.queues.at(queue).queue.as_ref();
        named.map_or_else(|| vec![Vec::new()], |queue| self.allowed_in(&queue.name).choices())
    }

    /// The pools of the queue of a job, if the needs of its members have others.
    pub(super) fn pools_lacking(&self, job: &Job) -> Option<Allowed> {
        let allowed = self.allowed_in(&job.queue);
        let has_all = job.gangs.iter().flat_map(Gang::all_needs).all(|needs| allowed.is_of(needs));
        (!has_all).then_some(allowed)
    }

    /// Marks the pools as stale if a queue that comes, changes or goes (`None`) changes them.
    pub(super) fn note_pools(&mut self, queue: &QueueName, now: Option<&Queue>) {
        if self.pools.are_none() && now.is_none_or(|queue| queue.nodes.are_none()) {
            return;
        }
        let before = self.queues.configured().get(queue).map(|queue| (&queue.nodes, &queue.parent));
        if before != now.map(|queue| (&queue.nodes, &queue.parent)) {
            self.pools.is_stale = true;
            self.redraw();
        }
    }

    /// Marks the pools as stale: with other levels, the paths of nodes name other domains.
    pub(super) fn note_levels(&mut self) {
        self.pools.is_stale |= !self.pools.sets.are_none();
    }

    /// Brings nodes and jobs up to date with the pools of queues. Running gangs stay where they are.
    pub(super) fn freshen_pools(&mut self) {
        if !self.pools.is_stale {
            return;
        }
        self.pools = Known { sets: PoolSets::of(self.queues.configured()), is_stale: false };
        for node in self.nodes.values_mut() {
            node.pools = self.pools.sets.around(node, &self.levels);
        }
        let lacking = |(id, entry): (&JobId, &Entry)| Some((*id, self.pools_lacking(&entry.job)?));
        let lacking: Vec<(JobId, Allowed)> = self.jobs.iter().filter_map(lacking).collect();
        for (id, allowed) in lacking {
            if let Some(entry) = self.jobs.get_mut(&id) {
                allowed.set(&mut entry.job);
            }
        }
        self.stale_queues = true;
    }
}
