//! The pools that queues are restricted to: their sets of nodes, and their capacity.
//!
//! Siblings that are restricted to the same pools share the devices there, and those alone.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{Levels, Node, NodeSet, Pool, Queue, QueueName};

use super::queues::{QueueAt, QueueNode, Queues};
use super::resources::GPUS;
use crate::cluster::Tree;

/// The sets of nodes by which queues are restricted. Equal pools are one set, whichever queues have them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolSets(BTreeMap<Vec<Pool>, NodeSet>);

impl PoolSets {
    pub(crate) fn of(queues: &BTreeMap<QueueName, Queue>) -> Self {
        let nodes = queues.values().map(|queue| &queue.nodes).filter(|nodes| !nodes.are_none());
        let mut all = BTreeMap::new();
        for nodes in nodes {
            let each = nodes.pools.iter().filter(|_| nodes.are_choices()).map(|pool| vec![pool.clone()]);
            let together = nodes.are_required().then(|| nodes.pools.clone());
            all.extend(each.chain(together).map(|pools| (pools, NodeSet::new(""))));
        }
        for (number, set) in all.values_mut().enumerate() {
            *set = NodeSet::new(&format!("pool {number}"));
        }
        Self(all)
    }

    pub(crate) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The set of the nodes that are in any of these pools.
    pub(crate) fn get(&self, pools: &[Pool]) -> Option<&NodeSet> {
        self.0.get(pools)
    }

    /// The sets that contain a node, in order.
    pub(crate) fn around(&self, node: &Node, levels: &Levels) -> Vec<NodeSet> {
        let is_in = |(pools, _): &(&Vec<Pool>, &NodeSet)| pools.iter().any(|pool| pool.has(node, levels));
        let mut sets: Vec<NodeSet> = self.0.iter().filter(is_in).map(|(_, set)| set.clone()).collect();
        sets.sort();
        sets
    }
}

/// Index of a capacity that sibling queues share.
pub(super) type SharedAt = usize;

/// The capacities of pools.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolCapacities {
    shared: Vec<Shared>,
    by_queue: BTreeMap<QueueAt, SharedAt>,
    /// Queues above some that are restricted.
    above: BTreeSet<QueueAt>,
}

/// The capacity that siblings with equal pools share.
#[derive(Clone, Debug)]
struct Shared {
    parent: QueueAt,
    /// A node is counted if it is in all of these: those of a queue, and of the queues above it.
    sets: Vec<NodeSet>,
    /// In thousandths of a device.
    devices: u128,
}

impl PoolCapacities {
    /// The capacity that a queue shares with its siblings.
    pub(super) fn of(&self, queue: QueueAt) -> Option<SharedAt> {
        self.by_queue.get(&queue).copied()
    }

    pub(super) fn devices(&self, at: SharedAt) -> u128 {
        self.shared.get(at).map_or(0, |shared| shared.devices)
    }

    /// Whether queues below a queue are restricted.
    pub(super) fn are_below(&self, queue: QueueAt) -> bool {
        self.above.contains(&queue)
    }
}

impl QueueNode {
    fn required_pools(&self) -> Option<&[Pool]> {
        let nodes = &self.queue.as_ref()?.nodes;
        nodes.are_required().then_some(&nodes.pools)
    }
}

impl Queues {
    /// Finds the queues that are restricted to pools, and counts the devices there.
    pub(super) fn draw_pools(&mut self, tree: &Tree, sets: &PoolSets) {
        let mut found = PoolCapacities::default();
        // In whatever order they are preferred.
        let mut equal: BTreeMap<(QueueAt, BTreeSet<&Pool>), SharedAt> = BTreeMap::new();
        for (at, node) in (0..).zip(&self.nodes) {
            let Some(pools) = node.required_pools() else { continue };
            let shared = *equal.entry((node.parent, pools.iter().collect())).or_insert_with(|| {
                let required = self.path(at).filter_map(|above| self.at(above).required_pools());
                let sets = required.filter_map(|pools| sets.get(pools).cloned()).collect();
                found.shared.push(Shared { parent: node.parent, sets, devices: 0 });
                found.shared.len() - 1
            });
            found.by_queue.insert(at, shared);
            found.above.extend(self.path_to_root(node.parent));
        }
        self.pools = found;
        self.count_pools(tree);
    }

    /// Counts the devices of pools.
    pub(crate) fn count_pools(&mut self, tree: &Tree) {
        if self.pools.shared.is_empty() {
            return;
        }
        self.pools.shared.iter_mut().for_each(|shared| shared.devices = 0);
        for node in 0..tree.nodes.len() {
            let of_node = self.resources.of_node(tree, self.settings(), node)[GPUS];
            let kind = tree.kind(&tree.nodes[node]);
            let around = self.pools.shared.iter_mut().filter(|shared| kind.is_in_pools(&shared.sets));
            around.for_each(|shared| shared.devices += of_node);
        }
        self.pools.above.clone().into_iter().for_each(|above| self.demand_changed(above));
    }

    /// Replaces what one node adds to the capacity of pools.
    pub(super) fn change_pools(&mut self, tree: &Tree, node: usize, had: u128, has: u128) {
        if had == has || self.pools.shared.is_empty() {
            return;
        }
        let kind = tree.kind(&tree.nodes[node]);
        let mut parents = BTreeSet::new();
        for shared in self.pools.shared.iter_mut().filter(|shared| kind.is_in_pools(&shared.sets)) {
            shared.devices = (shared.devices + has).saturating_sub(had);
            parents.insert(shared.parent);
        }
        // What a queue asks for depends on those below it.
        let above: BTreeSet<QueueAt> = parents.into_iter().flat_map(|at| self.path_to_root(at)).collect();
        above.into_iter().for_each(|at| self.demand_changed(at));
    }
}
