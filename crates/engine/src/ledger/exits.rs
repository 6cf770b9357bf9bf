//! While a gang is being stopped, each member that exits frees its part of the placement at once, and not only when the
//! last member of the gang is gone.
//!
//! A gang that starts or runs keeps the part of a member that is gone. So does a gang that is resized, and a gang that lost
//! hardware until its members are killed for the second time: both start again in the placement that they have. The record says which part of its placement a gang holds
//! ([`phalanx_model::GangRecord::held`]); here the same is booked.

use std::collections::BTreeMap;

use phalanx_model::{GangId, GangRecord};

use super::Ledger;
use crate::cluster::Pick;

impl Ledger {
    /// Notes a gang whose exited members hold nothing any more, by its present state.
    pub(super) fn note_exits(&mut self, gang: GangId) {
        let frees = self.record(gang).is_some_and(GangRecord::frees_exited);
        if frees && self.tally(gang).any_exited() {
            self.exited.insert(gang);
        }
    }

    /// Frees what exited members held. Once for all facts of a step: a large gang ends member by member.
    pub(crate) fn free_exited(&mut self) {
        for gang in std::mem::take(&mut self.exited) {
            self.free_exited_of(gang);
        }
    }

    fn free_exited_of(&mut self, id: GangId) {
        // The gang may have ended meanwhile, with everything that it held.
        let Some((held, gang)) = self.held(id).zip(self.gang(id).cloned()) else { return };
        let now = self.tree.picks_of(&held, &gang);
        let before = self.set_picks(id, Some(now.clone())).unwrap_or_default();
        if before != now {
            let (back, kept) = differing(&before, &now);
            self.space.load(&self.tree, &before, &gang, false);
            self.space.give_back(&self.tree, &back, &gang);
            self.space.take(&self.tree, &kept, &gang);
            self.space.load(&self.tree, &now, &gang, true);
            self.freed.add(back.iter().map(|pick| pick.node));
        }
        // What a member held on a node that is gone counted for its queue all the same.
        self.discharge(id);
        self.charge(id, &held);
        self.cells.is_stale = true;
        self.replan = true;
    }
}

/// The picks on nodes on which a gang held something else before: those of then, and those of now.
fn differing(before: &[Pick], now: &[Pick]) -> (Vec<Pick>, Vec<Pick>) {
    let (before, now) = (by_node(before), by_node(now));
    let mut differing = (Vec::new(), Vec::new());
    for (node, had) in before {
        let has = now.get(&node).map_or(&[][..], Vec::as_slice);
        if had != has {
            differing.0.extend(had);
            differing.1.extend_from_slice(has);
        }
    }
    differing
}

fn by_node(picks: &[Pick]) -> BTreeMap<u32, Vec<Pick>> {
    let mut nodes: BTreeMap<u32, Vec<Pick>> = BTreeMap::new();
    for pick in picks {
        nodes.entry(pick.node).or_default().push(*pick);
    }
    nodes
}
