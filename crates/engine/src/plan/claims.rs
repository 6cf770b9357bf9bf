//! Who holds what on each node, so that what several gangs hold is given back once, by the last of them.
//!
//! A world may say that two gangs have the same device. Such a device is *disputed*: nothing new goes to it before the
//! last of its holders gives it back, and nothing else is affected.

use std::collections::BTreeMap;

use phalanx_model::{DeviceMask, Needs, PartNeed};

use super::space::Pick;

/// A pick whose part could not be booked: its device has another use, or is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unbooked {
    pub(super) pick: Pick,
    pub(super) need: Option<PartNeed>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    /// By node: devices that some gang holds whole, and picks of gangs that have the node for themselves.
    nodes: Vec<(DeviceMask, u32)>,
    /// By node and device: how many gangs hold it whole beside the first.
    more: BTreeMap<(u32, u32), u32>,
    unbooked: Vec<Unbooked>,
}

impl Claims {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes: vec![(DeviceMask::EMPTY, 0); nodes], ..Self::default() }
    }

    /// Devices of a node that some gang holds whole.
    pub(super) fn held(&self, node: u32) -> DeviceMask {
        self.nodes.get(node as usize).map_or(DeviceMask::EMPTY, |(held, _)| *held)
    }

    /// The same, and those that gangs with unbooked parts hold.
    pub(super) fn claimed(&self, node: u32) -> DeviceMask {
        let unbooked = self.unbooked.iter().filter(|claim| claim.pick.node == node);
        unbooked.fold(self.held(node), |all, claim| all.union(claim.pick.devices))
    }

    /// Whether a gang has the node for itself.
    pub(super) fn is_alone(&self, node: u32) -> bool {
        self.nodes.get(node as usize).is_some_and(|(_, alone)| *alone > 0)
    }

    /// A gang holds devices whole.
    pub(super) fn hold(&mut self, node: u32, devices: DeviceMask) {
        let Some((held, _)) = self.nodes.get_mut(node as usize) else { return };
        for device in held.and(devices).iter() {
            *self.more.entry((node, device)).or_default() += 1;
        }
        *held = held.union(devices);
    }

    /// It holds them no more; those that nobody else holds.
    pub(super) fn release(&mut self, node: u32, devices: DeviceMask) -> DeviceMask {
        let mut released = devices;
        if !self.more.is_empty() {
            for device in devices.iter() {
                if self.release_one_of_several(node, device) {
                    released = released.minus(DeviceMask::one(device));
                }
            }
        }
        if let Some((held, _)) = self.nodes.get_mut(node as usize) {
            *held = held.minus(released);
        }
        released
    }

    /// One of several holders gives a device back. False where there is one holder at most.
    fn release_one_of_several(&mut self, node: u32, device: u32) -> bool {
        let Some(more) = self.more.get_mut(&(node, device)) else { return false };
        *more -= 1;
        if *more == 0 {
            self.more.remove(&(node, device));
        }
        true
    }

    /// A gang comes to have the node for itself, or leaves.
    pub(super) fn set_alone(&mut self, node: u32, comes: bool) {
        let Some((_, alone)) = self.nodes.get_mut(node as usize) else { return };
        *alone = if comes { alone.saturating_add(1) } else { alone.saturating_sub(1) };
    }

    /// A part could not be booked.
    pub(super) fn add_unbooked(&mut self, pick: Pick, needs: &Needs) {
        self.unbooked.push(Unbooked { pick, need: needs.part.clone() });
    }

    /// It goes again. Whether there was one like it: those that are alike are exchangeable.
    pub(super) fn remove_unbooked(&mut self, pick: &Pick, needs: &Needs) -> bool {
        let at = self.unbooked.iter().position(|claim| claim.pick == *pick && claim.need == needs.part);
        at.map(|at| self.unbooked.remove(at)).is_some()
    }

    /// The unbooked parts of a node, oldest first.
    pub(super) fn unbooked_on(&self, node: u32) -> Vec<Unbooked> {
        self.unbooked.iter().filter(|claim| claim.pick.node == node).cloned().collect()
    }
}
