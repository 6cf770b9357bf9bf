//! The pools that queues are restricted to: the names of their sets of nodes, and their capacity.
//!
//! Siblings that are restricted to the same pools share the devices there, and those alone.

use std::collections::BTreeMap;

use phalanx_model::{NodeSet, Pools, Queue};

use super::queues::{QueueAt, QueueNode, Queues};
use super::resources::GPUS;
use crate::cluster::Tree;

/// The set of the nodes that are in any pool of a queue.
pub(crate) fn set_of(queue: &Queue) -> NodeSet {
    NodeSet::new(&format!("queue {}", queue.name))
}

/// The set of the nodes that are in one pool of a queue, which are counted from 1.
pub(crate) fn nth_set_of(queue: &Queue, number: usize) -> NodeSet {
    NodeSet::new(&format!("queue {}, pool {number}", queue.name))
}

/// Index of a capacity that sibling queues share.
pub(super) type SharedAt = usize;

/// The capacities of pools.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolCapacities {
    shared: Vec<Shared>,
    by_queue: BTreeMap<QueueAt, SharedAt>,
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

    pub(super) fn are_none(&self) -> bool {
        self.shared.is_empty()
    }
}

impl QueueNode {
    fn required_pools(&self) -> Option<(&Queue, &Pools)> {
        let queue = self.queue.as_ref()?;
        queue.nodes.are_required().then_some((queue, &queue.nodes))
    }
}

impl Queues {
    /// Finds the queues that are restricted to pools, and counts the devices there.
    pub(super) fn draw_pools(&mut self, tree: &Tree) {
        let mut found = PoolCapacities::default();
        let mut equal: BTreeMap<(QueueAt, Pools), SharedAt> = BTreeMap::new();
        for (at, node) in (0..).zip(&self.nodes) {
            let Some((_, pools)) = node.required_pools() else { continue };
            let shared = *equal.entry((node.parent, pools.clone())).or_insert_with(|| {
                let required = self.path(at).filter_map(|above| self.at(above).required_pools());
                let sets = required.map(|(queue, _)| set_of(queue)).collect();
                found.shared.push(Shared { parent: node.parent, sets, devices: 0 });
                found.shared.len() - 1
            });
            found.by_queue.insert(at, shared);
        }
        self.pools = found;
        self.count_pools(tree);
    }

    /// Counts the devices of pools.
    pub(crate) fn count_pools(&mut self, tree: &Tree) {
        if self.pools.are_none() {
            return;
        }
        self.pools.shared.iter_mut().for_each(|shared| shared.devices = 0);
        for node in 0..tree.nodes.len() {
            let of_node = self.resources.of_node(tree, self.settings(), node)[GPUS];
            self.change_pools(tree, node, 0, of_node);
        }
        self.pools.shared.iter().map(|shared| shared.parent).collect::<Vec<_>>().into_iter().for_each(
            |parent| {
                self.demand_changed(parent);
            },
        );
    }

    /// Replaces what one node adds to the capacity of pools.
    pub(super) fn change_pools(&mut self, tree: &Tree, node: usize, had: u128, has: u128) {
        let kind = tree.kind(&tree.nodes[node]);
        let mut parents = Vec::new();
        for shared in &mut self.pools.shared {
            if had != has && kind.is_in_pools(&shared.sets) {
                shared.devices = (shared.devices + has).saturating_sub(had);
                parents.push(shared.parent);
            }
        }
        parents.into_iter().for_each(|parent| self.demand_changed(parent));
    }
}
