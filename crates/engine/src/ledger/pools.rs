//! The pools of queues: which nodes are in them, and in which of them each job may be placed.

use std::collections::BTreeMap;

use phalanx_model::{Job, JobId, Levels, Needs, Node, NodeSet, Pool, PoolReport, Queue, QueueName};

use super::Ledger;
use crate::cluster::Pick;
use crate::queueing::{GPUS, QueueAt, pools};

/// The pools that queues configure, by the name of their set of nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// A node is in the set if it is in any of these pools.
    sets: BTreeMap<NodeSet, Vec<Pool>>,
    /// Queues changed since.
    is_stale: bool,
}

impl Known {
    fn of(queues: &BTreeMap<QueueName, Queue>) -> Self {
        let mut sets = BTreeMap::new();
        for queue in queues.values().filter(|queue| !queue.nodes.are_none()) {
            sets.insert(pools::set_of(queue), queue.nodes.pools.clone());
            let each = queue.nodes.pools.iter().zip(1..);
            sets.extend(each.map(|(pool, number)| (pools::nth_set_of(queue, number), vec![pool.clone()])));
        }
        Self { sets, is_stale: false }
    }

    /// Whether no queue has any.
    fn are_none(&self) -> bool {
        self.sets.is_empty() && !self.is_stale
    }

    /// The sets that contain a node, in order.
    pub(super) fn around(&self, node: &Node, levels: &Levels) -> Vec<NodeSet> {
        let is_in = |(_, pools): &(&NodeSet, &Vec<Pool>)| pools.iter().any(|pool| pool.has(node, levels));
        self.sets.iter().filter(is_in).map(|(set, _)| set.clone()).collect()
    }
}

/// The sets that a member of a job in a queue must stay in, and those that it prefers, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Allowed {
    pools: Vec<NodeSet>,
    prefer_pools: Vec<NodeSet>,
    in_one_pool: bool,
}

impl Allowed {
    /// By the queues of a job, innermost first: each may narrow the nodes further, and the innermost one that has an order
    /// of preference decides that.
    fn of<'a>(path: impl Iterator<Item = &'a Queue>) -> Self {
        let mut allowed = Self::default();
        for queue in path.filter(|queue| !queue.nodes.are_none()) {
            let nodes = &queue.nodes;
            if nodes.are_required() {
                allowed.pools.push(pools::set_of(queue));
            }
            let is_choice = nodes.or_any || nodes.pools.len() > 1;
            if is_choice && allowed.prefer_pools.is_empty() {
                allowed.in_one_pool = !nodes.or_any;
                allowed.prefer_pools =
                    (1..=nodes.pools.len()).map(|number| pools::nth_set_of(queue, number)).collect();
            }
        }
        allowed
    }

    fn is_of(&self, needs: &Needs) -> bool {
        self.pools == needs.pools
            && self.prefer_pools == needs.prefer_pools
            && self.in_one_pool == needs.in_one_pool
    }

    fn set(&self, job: &mut Job) {
        for gang in &mut job.gangs {
            for needs in
                std::iter::once(&mut gang.needs).chain(gang.roles.iter_mut().map(|role| &mut role.needs))
            {
                needs.pools.clone_from(&self.pools);
                needs.prefer_pools.clone_from(&self.prefer_pools);
                needs.in_one_pool = self.in_one_pool;
            }
        }
    }
}

impl Ledger {
    /// The pools of a queue, and what is used of each.
    pub(crate) fn pools_of(&self, queue: &Queue) -> Vec<PoolReport> {
        let all = queue.nodes.pools.iter().zip(1..);
        all.map(|(pool, number)| self.pool_report(queue, pool, &pools::nth_set_of(queue, number))).collect()
    }

    fn pool_report(&self, queue: &Queue, pool: &Pool, set: &NodeSet) -> PoolReport {
        let (tree, resources, settings) = (&self.tree, &self.queues.resources, self.queues.settings());
        let is_in =
            |node: u32| tree.nodes.get(node as usize).is_some_and(|node| tree.kind(node).is_in_pool(set));
        let mut report = PoolReport { pool: pool.clone(), nodes: 0, capacity: 0, used: 0 };
        let mut capacity = 0;
        for node in (0..).take(tree.nodes.len()).filter(|node| is_in(*node)) {
            report.nodes += 1;
            capacity += resources.of_node(tree, settings, node as usize)[GPUS];
        }
        let Some(at) = self.queues.find(&queue.name) else { return report };
        let is_below = |job: &Job| {
            self.queues.find(&job.queue).is_some_and(|leaf| self.queues.path(leaf).any(|above| above == at))
        };
        let mut used = 0;
        for (id, picks) in &self.picks {
            let known = self.job(id.job).filter(|job| is_below(job)).and_then(|_| self.gang(*id));
            let Some(gang) = known else { continue };
            let there: Vec<Pick> = picks.iter().filter(|pick| is_in(pick.node)).cloned().collect();
            used += resources.held(tree, settings, &there, gang)[GPUS];
        }
        let amount = |of: u128| u64::try_from(of).unwrap_or(u64::MAX);
        PoolReport { capacity: amount(capacity), used: amount(used), ..report }
    }

    /// The pools of a queue, as it is configured now.
    pub(super) fn allowed_in(&self, queue: &QueueName) -> Allowed {
        if self.pools.are_none() {
            return Allowed::default();
        }
        let queues = self.queues.configured();
        let above = |queue: &&Queue| queues.get(queue.parent.as_ref()?);
        Allowed::of(std::iter::successors(queues.get(queue), above).take(queues.len()))
    }

    /// The pools in all of which a node must be for gangs of a queue.
    pub(super) fn required_pools(&self, queue: QueueAt) -> Vec<NodeSet> {
        let named = self.queues.at(queue).queue.as_ref();
        named.map(|queue| self.allowed_in(&queue.name).pools).unwrap_or_default()
    }

    /// Whether a job is not told of the pools of its queue yet.
    pub(super) fn lacks_pools(&self, job: &Job) -> bool {
        let allowed = self.allowed_in(&job.queue);
        !job.gangs.iter().flat_map(phalanx_model::Gang::all_needs).all(|needs| allowed.is_of(needs))
    }

    pub(super) fn set_pools(&self, job: &mut Job) {
        self.allowed_in(&job.queue).set(job);
    }

    /// Records that a queue comes or goes, if that changes in which pools nodes are and jobs may be placed.
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

    /// Records that the paths of nodes mean other domains.
    pub(super) fn note_levels(&mut self) {
        self.pools.is_stale |= !self.pools.sets.is_empty();
    }

    /// Brings nodes and jobs up to date with the pools of queues. Running gangs stay where they are.
    pub(super) fn freshen_pools(&mut self) {
        if !self.pools.is_stale {
            return;
        }
        self.pools = Known::of(self.queues.configured());
        for node in self.nodes.values_mut() {
            node.pools = self.pools.around(node, &self.levels);
        }
        let lacking = self.jobs.values().map(|entry| &entry.job).filter(|job| self.lacks_pools(job));
        let lacking: Vec<JobId> = lacking.map(|job| job.id).collect();
        for id in lacking {
            // What is reserved may be outside of them.
            self.gangs_of(id).into_iter().for_each(|gang| self.drop_reservation(gang));
            if let Some(entry) = self.jobs.get(&id) {
                let allowed = self.allowed_in(&entry.job.queue);
                if let Some(entry) = self.jobs.get_mut(&id) {
                    allowed.set(&mut entry.job);
                }
            }
        }
        self.stale_queues = true;
    }
}
