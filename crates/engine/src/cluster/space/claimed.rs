//! The free part of a node beside all of its holders: gangs, parts of devices, and others.

use phalanx_model::{DeviceMask, Needs};

use super::{Pick, Piece, Space};
use crate::cluster::tree::{Amended, Free, Tree};

impl Space {
    /// Books a part of a device, even if others use the device.
    pub(super) fn take_part(&mut self, tree: &Tree, pick: &Pick, needs: &Needs) {
        let node = pick.node as usize;
        let is_booked = !pick.devices.and(self.claims.held(pick.node)).is_empty()
            || !pick.devices.is_subset_of(tree.nodes[node].usable.devices);
        let is_booked = !is_booked && self.parts.take(tree, pick.devices, pick, needs);
        if !is_booked && pick.devices.count() == 1 {
            self.claims.add_unbooked(*pick, needs);
        }
    }

    /// A pick gives its devices back. Returns those without another user.
    pub(super) fn release(&mut self, tree: &Tree, pick: &Pick, needs: &Needs) -> DeviceMask {
        let node = pick.node as usize;
        let released = match pick.piece {
            Piece::Whole => self.claims.release(pick.node, pick.devices),
            Piece::Share | Piece::Slice { .. } if self.claims.remove_unbooked(pick, needs) => pick.devices,
            Piece::Share | Piece::Slice { .. } => self.parts.give_back(tree, pick, needs),
        };
        self.book_unbooked(tree, pick.node);
        self.unused(tree, node, released)
    }

    /// Books the parts of a node that fit by now.
    fn book_unbooked(&mut self, tree: &Tree, node: u32) {
        let usable = tree.nodes[node as usize].usable.devices.minus(self.claims.held(node));
        for claim in self.claims.unbooked_on(node) {
            let needs = Needs { part: claim.need, ..Needs::default() };
            if claim.pick.devices.is_subset_of(usable)
                && self.parts.take(tree, claim.pick.devices, &claim.pick, &needs)
            {
                self.claims.remove_unbooked(&claim.pick, &needs);
            }
        }
    }

    /// Those of a node's devices that have no user.
    fn unused(&self, tree: &Tree, node: usize, devices: DeviceMask) -> DeviceMask {
        let claimed = self.claims.claimed(node as u32).union(self.parts.devices(node));
        devices.and(tree.nodes[node].usable.devices).minus(claimed)
    }

    /// Bars shared and cut devices that others use too: they take no more parts.
    pub(super) fn bar_parts(&mut self, tree: &Tree, node: u32) {
        if self.parts.is_any_on(node as usize) {
            let open = tree.nodes[node as usize].usable.devices.minus(self.claims.claimed(node));
            let barred = self.parts.devices(node as usize).minus(open);
            self.parts.bar(tree, node as usize, barred);
        }
    }

    /// A node was changed in place: all that was taken of it stays taken.
    pub(crate) fn amend(&mut self, tree: &Tree, node: usize, change: &Amended, is_total: bool) {
        let (was, now, more_named) = change.of(is_total);
        let free = self.free[node];
        self.named.amend(tree, node, more_named);
        self.book_unbooked(tree, node as u32);
        let taken = self.claims.claimed(node as u32).union(self.parts.devices(node));
        let more = |now: i64, was: i64| i128::from(now) - i128::from(was);
        let (cpu_milli, memory_bytes) = self.claims.shift(
            node as u32,
            &free,
            more(now.cpu_milli, was.cpu_milli),
            more(now.memory_bytes, was.memory_bytes),
        );
        let now = Free { devices: now.devices.minus(taken), cpu_milli, memory_bytes, open: now.open, ..free };
        self.set(tree, node, now);
        self.bar_parts(tree, node as u32);
        self.settle(tree);
    }

    /// The same for the capacity if no node were cordoned.
    pub(crate) fn amend_opened(&mut self, tree: &Tree, node: usize, change: &Amended) {
        self.amend(tree, node, change, true);
        self.put(tree, std::iter::once(node as u32), |_, free| Free { open: true, ..free });
    }
}
