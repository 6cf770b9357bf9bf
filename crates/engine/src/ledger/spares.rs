//! Spare nodes: which nodes are kept for gangs that lose hardware.
//!
//! The choice depends on the present state alone: in each domain the last nodes that are whole, healthy and free. A spare
//! node that a gang took, or that failed, is followed by the next node of its domain that comes free. Nodes that are kept for
//! one gang while it is stopped for its hardware are spare nodes beyond these.

use std::collections::BTreeSet;
use std::ops::Range;

use phalanx_model::{GangId, NodeName, Spare, Spares};

use super::Ledger;
use crate::cluster::LevelAt;

/// Where the choice may be another one than before.
#[derive(Clone, Debug, Default)]
pub(super) struct Due {
    all: bool,
    /// Nodes of the present tree.
    nodes: BTreeSet<u32>,
}

impl Ledger {
    /// Notes that a node may have become, or may be no longer, one that can be spare.
    pub(super) fn note_spare(&mut self, nodes: impl IntoIterator<Item = u32>) {
        if self.queues.settings().spares.is_some() && !self.spares_due.all {
            self.spares_due.nodes.extend(nodes);
        }
    }

    /// Notes that nodes are kept for a gang, or no longer.
    pub(super) fn note_kept<'a>(&mut self, nodes: impl Iterator<Item = &'a NodeName>) {
        for node in nodes {
            match self.tree.index_of(node).and_then(|at| u32::try_from(at).ok()).filter(|_| !self.stale) {
                Some(at) if !self.spares_due.all => {
                    self.spares_due.nodes.insert(at);
                }
                _ => self.note_all_spares(),
            }
        }
    }

    /// Notes that nodes, levels or settings are others.
    pub(super) fn note_all_spares(&mut self) {
        self.spares_due = Due { all: true, nodes: BTreeSet::new() };
    }

    /// Chooses the spare nodes of all domains in which something changed, before a cycle.
    pub(crate) fn choose_spares(&mut self) {
        self.keep_nodes_for_stops();
        if self.sync.any() {
            return;
        }
        let due = std::mem::take(&mut self.spares_due);
        if !due.all && due.nodes.is_empty() {
            return;
        }
        let chosen = match self.spare_domains(&due) {
            Some((spares, domains)) => {
                let reserved = self.nodes_made_room_on(&spares);
                domains.into_iter().flat_map(|domain| self.spares_of(&spares, domain, &reserved)).collect()
            }
            None => self.only_kept(),
        };
        if chosen.is_empty() {
            return;
        }
        for (name, spare) in chosen {
            if let Some(node) = self.nodes.get_mut(&name) {
                node.spare = spare;
                self.moved_nodes.insert(name);
            }
        }
        self.redraw();
        self.freshen();
        self.book_reservations();
        // Drawn again for this choice, the tree asks for no other.
        self.spares_due = Due::default();
    }

    /// The domains, as nodes of the tree, in which spare nodes are to be chosen; `None` if none are kept.
    fn spare_domains(&self, due: &Due) -> Option<(Spares, Vec<Range<usize>>)> {
        let spares = self.queues.settings().spares.clone()?;
        let level = match &spares.level {
            None => 0,
            Some(level) => match self.tree.level_at(level)? {
                LevelAt::Above(level) => level,
                LevelAt::Node | LevelAt::Group(_) => return None,
            },
        };
        let domains = self.tree.domains.get(level)?;
        let changed: BTreeSet<usize> = if due.all {
            (0..domains.len()).collect()
        } else {
            let nodes = due.nodes.iter().map(|node| *node as usize);
            nodes.filter(|at| *at < self.tree.nodes.len()).map(|at| self.tree.domain_of(at, level)).collect()
        };
        Some((spares, changed.into_iter().filter_map(|at| Some(domains.get(at)?.nodes.clone())).collect()))
    }

    /// The nodes of a domain that become spare, or cease to be.
    fn spares_of(
        &self,
        spares: &Spares,
        domain: Range<usize>,
        reserved: &BTreeSet<NodeName>,
    ) -> Vec<(NodeName, Spare)> {
        let kept = if spares.is_filled { Spare::Filled } else { Spare::Kept };
        let mut left = spares.nodes;
        let mut changes = Vec::new();
        for at in domain.rev() {
            let Some(node) = self.tree.nodes.get(at).and_then(|of| self.nodes.get(&of.name)) else {
                continue;
            };
            if self.kept_nodes.contains_key(&node.name) {
                if node.spare != Spare::Kept {
                    changes.push((node.name.clone(), Spare::Kept));
                }
                continue;
            }
            let is_spare = left > 0 && !reserved.contains(&node.name) && self.can_be_spare(at, spares);
            left -= u32::from(is_spare);
            let spare = if is_spare { kept } else { Spare::No };
            if node.spare != spare {
                changes.push((node.name.clone(), spare));
            }
        }
        changes
    }

    /// Whether a node is whole and healthy, and no gang holds anything there that would not leave it.
    fn can_be_spare(&self, at: usize, spares: &Spares) -> bool {
        let Some((of, index)) = self.tree.nodes.get(at).zip(u32::try_from(at).ok()) else { return false };
        let is_sound = of.total.open
            && !of.total.devices.is_empty()
            && of.usable.devices == of.total.devices
            && self.nodes.get(&of.name).is_some_and(|node| node.spot.is_none());
        is_sound
            && !self.is_kept_for_a_move(index, of.total.devices)
            && self.gangs_on(index).all(|gang| spares.is_filled && self.leaves_spares(gang))
    }

    /// Whether nodes are kept for gangs that lose hardware, or move off it.
    pub(crate) fn keeps_nodes_free(&self) -> bool {
        self.queues.settings().spares.is_some() || !self.kept_nodes.is_empty()
    }

    /// Whether a gang leaves a spare node that is needed.
    pub(super) fn leaves_spares(&self, id: GangId) -> bool {
        let takes_spot = self.gang(id).is_some_and(|gang| gang.all_needs().all(|needs| needs.takes_spot));
        takes_spot && self.record(id).is_some_and(|record| !record.is_protected)
    }

    /// Nodes that gangs left, or leave, for another gang that waits for them, and would not leave them.
    fn nodes_made_room_on(&self, spares: &Spares) -> BTreeSet<NodeName> {
        let ids = self.reservations.keys().chain(&self.unbooked);
        let ids = ids.filter(|id| !(spares.is_filled && self.leaves_spares(**id)));
        let places = ids.filter_map(|id| self.cleared_place(*id));
        places.flat_map(|place| &place.slots).map(|slot| slot.node.clone()).collect()
    }

    /// The nodes that become spare, or cease to be, if only those are kept that gangs move to.
    fn only_kept(&self) -> Vec<(NodeName, Spare)> {
        let spare = |name: &NodeName| {
            if self.kept_nodes.contains_key(name) { Spare::Kept } else { Spare::No }
        };
        let changed = self.nodes.values().filter(|node| node.spare != spare(&node.name));
        changed.map(|node| (node.name.clone(), spare(&node.name))).collect()
    }
}
