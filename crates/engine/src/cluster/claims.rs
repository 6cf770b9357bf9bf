//! Who holds what on each node, so that what several gangs hold is given back once, by the last of them.
//!
//! A world may say that two gangs have the same device. Such a device is *disputed*: nothing new goes to it before the
//! last of its holders gives it back, and nothing else is affected.

use std::collections::BTreeMap;

use phalanx_model::{DeviceMask, Needs, PartNeed};

use super::disputed::Disputed;
use super::space::Pick;
use super::tree::Free;

/// A pick whose part could not be booked, because its device has another use or is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unbooked {
    pub(super) pick: Pick,
    pub(super) need: Option<PartNeed>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    /// By node: devices that some gang holds whole, and picks of gangs that have the node for themselves.
    nodes: Vec<(DeviceMask, u32)>,
    /// Devices that several gangs hold whole.
    disputed: Disputed,
    unbooked: Vec<Unbooked>,
    /// Free CPU and memory of the nodes where one of them is outside the range of `Free`.
    beyond: BTreeMap<u32, (i128, i128)>,
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
        self.held(node).union(self.unbooked_devices(node))
    }

    /// Devices that gangs with unbooked parts hold.
    pub(super) fn unbooked_devices(&self, node: u32) -> DeviceMask {
        let unbooked = self.unbooked.iter().filter(|claim| claim.pick.node == node);
        unbooked.fold(DeviceMask::EMPTY, |all, claim| all.union(claim.pick.devices))
    }

    /// Whether a gang has the node for itself.
    pub(super) fn is_alone(&self, node: u32) -> bool {
        self.nodes.get(node as usize).is_some_and(|(_, alone)| *alone > 0)
    }

    /// A gang holds devices whole.
    pub(super) fn hold(&mut self, node: u32, devices: DeviceMask) {
        let Some((held, _)) = self.nodes.get_mut(node as usize) else { return };
        self.disputed.add(node, held.and(devices));
        *held = held.union(devices);
    }

    /// Removes one holder of these devices. Returns the devices that no other holder has.
    pub(super) fn release(&mut self, node: u32, devices: DeviceMask) -> DeviceMask {
        let released = self.disputed.remove(node, devices);
        if let Some((held, _)) = self.nodes.get_mut(node as usize) {
            *held = held.minus(released);
        }
        released
    }

    /// Devices of these that one gang holds, and no other.
    pub(super) fn held_once(&self, node: u32, devices: DeviceMask) -> DeviceMask {
        self.held(node).and(devices).minus(self.disputed.on(node))
    }

    /// How many gangs hold a device whole.
    pub(super) fn holders(&self, node: u32, device: u32) -> usize {
        usize::from(self.held(node).contains(device)) + self.disputed.more(node, device)
    }

    /// The CPU and memory that a node has left after this use is added, or removed. The sums are exact, however much
    /// is used.
    pub(super) fn less(&mut self, node: u32, free: &Free, cpu_milli: u64, memory_bytes: u64) -> (i64, i64) {
        self.shift(node, free, -i128::from(cpu_milli), -i128::from(memory_bytes))
    }

    pub(super) fn more(&mut self, node: u32, free: &Free, cpu_milli: u64, memory_bytes: u64) -> (i64, i64) {
        self.shift(node, free, i128::from(cpu_milli), i128::from(memory_bytes))
    }

    pub(super) fn shift(&mut self, node: u32, free: &Free, cpu: i128, memory: i128) -> (i64, i64) {
        let known = (i128::from(free.cpu_milli), i128::from(free.memory_bytes));
        let before = self.beyond.remove(&node).unwrap_or(known);
        let now = (before.0 + cpu, before.1 + memory);
        let clamp =
            |amount: i128| i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX });
        let clamped = (clamp(now.0), clamp(now.1));
        if (i128::from(clamped.0), i128::from(clamped.1)) != now {
            self.beyond.insert(node, now);
        }
        clamped
    }

    /// A gang gets the node for itself, or leaves it.
    pub(super) fn set_alone(&mut self, node: u32, comes: bool) {
        let Some((_, alone)) = self.nodes.get_mut(node as usize) else { return };
        *alone = if comes { alone.saturating_add(1) } else { alone.saturating_sub(1) };
    }

    /// A part could not be booked.
    pub(super) fn add_unbooked(&mut self, pick: Pick, needs: &Needs) {
        self.unbooked.push(Unbooked { pick, need: needs.part.clone() });
    }

    /// Removes an unbooked pick. Returns whether an equal one existed: equal picks are exchangeable.
    pub(super) fn remove_unbooked(&mut self, pick: &Pick, needs: &Needs) -> bool {
        let at = self.unbooked.iter().position(|claim| claim.pick == *pick && claim.need == needs.part);
        at.map(|at| self.unbooked.remove(at)).is_some()
    }

    /// The unbooked parts of a node, oldest first.
    pub(super) fn unbooked_on(&self, node: u32) -> Vec<Unbooked> {
        self.unbooked.iter().filter(|claim| claim.pick.node == node).cloned().collect()
    }
}
