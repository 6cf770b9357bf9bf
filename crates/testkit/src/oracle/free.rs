//! The free capacity while some gangs hold theirs.

use std::collections::BTreeMap;

use phalanx_model::{DeviceMask, DevicePart, Gang, Needs, Node, NodeName, PartNeed, Placement, ResourceName};

/// The free capacity of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amounts {
    /// Devices without any user.
    pub devices: DeviceMask,
    pub cpu_milli: i128,
    pub memory_bytes: i128,
    /// The named resources that members on the node use.
    pub used: BTreeMap<ResourceName, u128>,
    /// Gangs with members on the node.
    pub gangs: u32,
    /// Whether one of the gangs is exclusive, with all of its roles.
    pub is_held: bool,
    /// Parts of devices that members have.
    pub parts: Vec<Held>,
}

/// A part of a device, with the need that it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub device: u32,
    pub need: PartNeed,
    pub part: DevicePart,
}

/// Free amounts are signed. Larger amounts of a machine are capped here.
const AMOUNT_MAX: u64 = i64::MAX as u64;

/// The free capacity of every node, closed nodes included, while these gangs hold theirs.
#[must_use]
pub fn free<'a>(
    nodes: impl IntoIterator<Item = &'a Node>,
    held: &[(&Gang, &Placement)],
) -> BTreeMap<NodeName, Amounts> {
    let mut free = BTreeMap::new();
    for node in nodes {
        let mut amounts = Amounts {
            devices: node.machine.device_mask().minus(node.barred_devices()),
            cpu_milli: i128::from(node.machine.cpu_milli.min(AMOUNT_MAX))
                - i128::from(node.foreign_use.cpu_milli),
            memory_bytes: i128::from(node.machine.memory_bytes.min(AMOUNT_MAX))
                - i128::from(node.foreign_use.memory_bytes),
            used: node.foreign_use.named.iter().map(|(name, n)| (name.clone(), u128::from(*n))).collect(),
            gangs: 0,
            is_held: false,
            parts: Vec::new(),
        };
        for (gang, placement) in held {
            let mut there = placement.slots.iter().filter(|s| s.node == node.name).peekable();
            amounts.gangs += u32::from(there.peek().is_some());
            amounts.is_held |= there.peek().is_some() && gang.needs.is_exclusive;
            there.for_each(|slot| amounts.hold(gang.needs_of(gang.role_of(slot.rank)), slot));
        }
        free.insert(node.name.clone(), amounts);
    }
    free
}

impl Amounts {
    fn hold(&mut self, needs: &Needs, slot: &phalanx_model::Slot) {
        self.devices = self.devices.minus(slot.devices);
        self.cpu_milli -= i128::from(needs.cpu_milli);
        self.memory_bytes -= i128::from(needs.memory_bytes);
        for (name, need) in &needs.named {
            *self.used.entry(name.clone()).or_default() += u128::from(*need);
        }
        if let (Some(need), Some(part)) = (&needs.part, &slot.part) {
            let held = |device| Held { device, need: need.clone(), part: part.clone() };
            self.parts.extend(slot.devices.iter().map(held));
        }
    }
}
