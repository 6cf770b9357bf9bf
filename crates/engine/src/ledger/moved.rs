//! Devices that members hold instead of those that they were assigned.

use std::collections::BTreeMap;

use phalanx_model::{DeviceMask, GangId, MemberId, Outcome, Placement};

use super::Ledger;
use super::apply::refuse;

impl Ledger {
    /// The observed devices count: devices that a member was assigned are free, and devices that it holds are taken.
    pub(super) fn observe_devices(&mut self, members: &[(MemberId, DeviceMask)], out: &mut Outcome) {
        let mut moved: BTreeMap<GangId, Placement> = BTreeMap::new();
        for (member, devices) in members {
            if !self.is_current(*member, out) {
                continue;
            }
            let known = || self.record(member.gang)?.placement.clone();
            let Some(mut placement) = moved.remove(&member.gang).or_else(known) else { continue };
            match self.exchange(&mut placement, member.rank, *devices) {
                Ok(()) => {}
                Err(why) => refuse(out, format!("devices of member {member}"), &why),
            }
            moved.insert(member.gang, placement);
        }
        let mut is_new = false;
        for (gang, placement) in moved {
            let Some(record) = self.record_mut(gang) else { continue };
            is_new |= record.placement.as_ref() != Some(&placement);
            record.placement = Some(placement);
        }
        if is_new {
            // Two members that exchanged devices hold each other's for a moment; this is rare, and a recount does not
            // depend on order.
            self.recount_space();
            self.replan = true;
        }
    }

    fn exchange(&self, placement: &mut Placement, rank: u32, devices: DeviceMask) -> Result<(), String> {
        let Some(slot) = placement.slots.iter_mut().find(|slot| slot.rank == rank) else {
            return Err("it has no placement".to_owned());
        };
        if slot.part.is_some() {
            return Err("it has a part of a device".to_owned());
        }
        if slot.devices.count() != devices.count() {
            return Err(format!("{devices} and {} differ in number", slot.devices));
        }
        let has = self.nodes.get(&slot.node).map(|node| node.machine.device_mask());
        if has.is_some_and(|has| !devices.minus(has).is_empty()) {
            return Err(format!("node {} does not have devices {devices}", slot.node));
        }
        slot.devices = devices;
        Ok(())
    }
}
