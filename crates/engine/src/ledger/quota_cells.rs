//! Guarantees that are places: cells, as HiveD has them (OSDI 2020). Each cell is bound to nodes that exist and are
//! whole; gangs of other queues that cannot be preempted stay out of these nodes, so that preemption can free every
//! cell. Cells are bound by what runs where, so that a queue is bound to nodes that it uses, and broken nodes belong to
//! no cell.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{NodeSet, QueueName, ShapeQuota, ShapeReport};

use super::Ledger;
use crate::cluster::LevelAt;
use crate::queueing::QueueAt;

/// A cell, and the nodes that it is bound to: none if there is too little hardware.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    queue: QueueName,
    shape: ShapeQuota,
    domain: String,
    nodes: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Cells {
    all: Vec<Cell>,
    /// Something started, ended or changed since the cells were bound.
    pub(super) is_stale: bool,
}

/// The queues that hold something on a node.
#[derive(Clone, Debug, Default)]
struct Holders {
    queues: BTreeSet<QueueAt>,
    /// Queues of gangs that cannot be preempted.
    fixed: BTreeSet<QueueAt>,
}

/// Nodes of one domain that a cell may be bound to, ranked: with the fewest others that stay, and the most gangs of its
/// own queue.
struct Offer {
    others: usize,
    own: std::cmp::Reverse<usize>,
    domain: usize,
    nodes: Vec<u32>,
}

impl Ledger {
    /// Whether any queue is guaranteed places.
    fn has_places(&self) -> bool {
        self.queues.configured().values().any(|queue| !queue.shapes.is_empty())
    }

    /// Binds every cell again, if something changed.
    pub(super) fn bind_cells(&mut self) {
        if !std::mem::take(&mut self.cells.is_stale) || !self.has_places() && self.cells.all.is_empty() {
            return;
        }
        let cells = self.bound();
        if cells != self.cells.all {
            let of_cell = |cell: &Cell| {
                let owner = cell.queue.clone();
                cell.nodes.clone().into_iter().map(move |node| (node, owner.clone()))
            };
            self.windows.keep_places(cells.iter().flat_map(of_cell).collect());
            self.cells.all = cells;
            self.replan = true;
        }
    }

    fn bound(&self) -> Vec<Cell> {
        let holders = self.holders();
        let mut taken: BTreeSet<u32> = BTreeSet::new();
        let mut cells = Vec::new();
        for queue in self.queues.configured().values() {
            let Some(at) = self.queues.find(&queue.name) else { continue };
            let choices = if queue.shapes.is_empty() { Vec::new() } else { self.pool_choices(at) };
            for shape in &queue.shapes {
                for _ in 0..shape.count {
                    let of_choice =
                        |pools: &Vec<NodeSet>| self.best_offer((at, pools), shape, &holders, &taken);
                    // Of equally good offers that of the first choice.
                    let offers = choices.iter().filter_map(of_choice);
                    let offer = offers.min_by_key(|offer| (offer.others, offer.own));
                    let (domain, nodes) =
                        offer.map_or_else(Default::default, |offer| (offer.domain, offer.nodes));
                    taken.extend(nodes.iter().copied());
                    let domain =
                        if nodes.is_empty() { String::new() } else { self.name_of(&shape.level, domain) };
                    cells.push(Cell { queue: queue.name.clone(), shape: shape.clone(), domain, nodes });
                }
            }
        }
        cells
    }

    fn holders(&self) -> BTreeMap<u32, Holders> {
        let mut holders: BTreeMap<u32, Holders> = BTreeMap::new();
        for (job, _, record) in self.active().filter(|(_, _, record)| record.holds_capacity()) {
            let Some(queue) = self.queues.find(&job.queue) else { continue };
            let is_fixed = self.queues.is_fixed(job, record.id);
            for slot in record.held().iter().flat_map(|held| &held.slots) {
                let Some(node) = self.tree.index_of(&slot.node).and_then(|at| u32::try_from(at).ok()) else {
                    continue;
                };
                let of = holders.entry(node).or_default();
                of.queues.insert(queue);
                if is_fixed {
                    of.fixed.insert(queue);
                }
            }
        }
        holders
    }

    /// The best domain that has enough whole nodes to which no cell is bound.
    fn best_offer(
        &self,
        (queue, pools): (QueueAt, &[NodeSet]),
        shape: &ShapeQuota,
        holders: &BTreeMap<u32, Holders>,
        taken: &BTreeSet<u32>,
    ) -> Option<Offer> {
        let is_own = |at: &QueueAt| self.queues.path(*at).any(|above| above == queue);
        let others_stay =
            |node: u32| holders.get(&node).is_some_and(|of| of.fixed.iter().any(|at| !is_own(at)));
        let has_own = |node: u32| holders.get(&node).is_some_and(|of| of.queues.iter().any(is_own));
        let mut free: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (at, node) in (0_u32..).zip(&self.tree.nodes) {
            let kind = self.tree.kind(node);
            let is_whole = !node.usable.devices.is_empty() && node.usable.devices == kind.all();
            let is_whole = is_whole && node.total.open && kind.is_for_all() && kind.is_in_pools(pools);
            if is_whole && !taken.contains(&at) {
                let domain = match self.tree.level_at(&shape.level)? {
                    LevelAt::Above(level) => self.tree.domain_of(at as usize, level),
                    LevelAt::Node | LevelAt::Group(_) => at as usize,
                };
                free.entry(domain).or_default().push(at);
            }
        }
        let offer = |(domain, mut nodes): (usize, Vec<u32>)| {
            nodes.sort_by_key(|node| (others_stay(*node), !has_own(*node), *node));
            nodes.truncate(shape.nodes as usize);
            let others = nodes.iter().filter(|node| others_stay(**node)).count();
            let own = std::cmp::Reverse(nodes.iter().filter(|node| has_own(**node)).count());
            (nodes.len() == shape.nodes as usize).then_some(Offer { others, own, domain, nodes })
        };
        free.into_iter().filter_map(offer).min_by_key(|offer| (offer.others, offer.own, offer.domain))
    }

    fn name_of(&self, level: &phalanx_model::LevelName, domain: usize) -> String {
        match self.tree.level_at(level) {
            Some(LevelAt::Above(at)) => {
                let known = self.tree.domains.get(at).and_then(|all| all.get(domain));
                known.map_or_else(String::new, |known| self.tree.domain_name(at, known))
            }
            _ => self.tree.nodes.get(domain).map_or_else(String::new, |node| node.name.to_string()),
        }
    }

    /// The state of the places that a queue is guaranteed.
    pub(crate) fn places_of(&self, queue: &QueueName) -> Vec<ShapeReport> {
        let mut places: Vec<ShapeReport> = Vec::new();
        for cell in self.cells.all.iter().filter(|cell| cell.queue == *queue) {
            let bound = (!cell.nodes.is_empty()).then(|| cell.domain.clone());
            match places.iter_mut().find(|place| place.shape == cell.shape) {
                Some(place) => place.domains.extend(bound),
                None => places
                    .push(ShapeReport { shape: cell.shape.clone(), domains: bound.into_iter().collect() }),
            }
        }
        places
    }
}
