//! Grades of nodes and devices. A grade closes what it is of to new gangs, or makes running gangs leave; what the
//! evidence was, and when a grade changes, the world decides.

use phalanx_model::{DeviceMask, GangId, GangRecord, Health, Leave, Node, NodeName, Outcome};

use super::Ledger;
use super::apply::refuse;

impl Ledger {
    pub(super) fn grade(&mut self, fact: &Health, out: &mut Outcome) {
        let subject = || format!("a grade of node {}", fact.node);
        let Some(node) = self.nodes.get(&fact.node) else {
            return refuse(out, subject(), "no such node");
        };
        let unknown = fact.devices.minus(node.machine.device_mask());
        if !unknown.is_empty() {
            return refuse(out, subject(), &format!("it has no devices {unknown}"));
        }
        let (mut node, drained) = (node.clone(), node.health.drains());
        if !node.health.set(fact) {
            return;
        }
        self.put_node(node);
        if fact.grade.drains() {
            self.leave_devices(fact, out);
        } else if drained {
            self.stay_on(&fact.node, out);
        }
    }

    /// Tells the gangs to leave that hold what has to be drained.
    fn leave_devices(&mut self, fact: &Health, out: &mut Outcome) {
        let holders: Vec<GangId> = self
            .ranks_on(&fact.node)
            .into_iter()
            .map(|(gang, _)| gang)
            .filter(|gang| {
                fact.devices.is_empty() || !self.devices_on(*gang, &fact.node).and(fact.devices).is_empty()
            })
            .collect();
        let what = if fact.devices.is_empty() {
            format!("node {}", fact.node)
        } else {
            format!("device {} of node {}", fact.devices, fact.node)
        };
        let detail = format!("{what} is graded {}: {}", fact.grade, fact.detail);
        for gang in holders {
            self.displace(gang, Leave { detail: detail.clone(), until: None }, out);
        }
    }

    /// The devices that a gang holds on a node, whole or in part.
    fn devices_on(&self, gang: GangId, node: &NodeName) -> DeviceMask {
        let held = self.record(gang).and_then(GangRecord::held);
        let slots = held.iter().flat_map(|held| &held.slots).filter(|slot| slot.node == *node);
        slots.fold(DeviceMask::EMPTY, |all, slot| all.union(slot.devices))
    }

    /// Whether a node, and these devices of it, let running gangs stay.
    pub(super) fn lets_stay(&self, node: &NodeName, devices: DeviceMask) -> bool {
        let lets = |node: &Node| node.is_open() && !node.health.drains_any(devices);
        self.nodes.get(node).is_some_and(lets)
    }
}
