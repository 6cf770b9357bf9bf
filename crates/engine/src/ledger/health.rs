//! Grades of nodes and devices. A grade closes a node or devices to new gangs, or makes running gangs leave. The world
//! has the evidence, and decides when a grade changes.

use phalanx_model::{DeviceMask, Grade, Health, Leave, Node, NodeName, Outcome};

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
        let (mut node, was_closed) = (node.clone(), node.health.closes());
        if !node.health.set(fact) {
            return;
        }
        self.put_node(node);
        if fact.grade.is_closed() {
            let detail = graded_in_words(&fact.node, fact.devices, fact.grade, &fact.detail);
            let devices = Some(fact.devices).filter(|devices| !devices.is_empty());
            for (gang, _) in self.ranks_on(&fact.node, devices) {
                // A replica of a service does not end by itself, and loses nothing if another replaces it first.
                if fact.grade.drains() || self.may_be_replaced(gang) {
                    self.displace(gang, Leave { detail: detail.clone(), until: None }, out);
                }
            }
        } else if was_closed {
            self.stay_on(&fact.node, out);
        }
    }

    /// Whether a node, and these devices of it, let running gangs stay.
    pub(super) fn lets_stay(&self, node: &NodeName, devices: DeviceMask) -> bool {
        let lets = |node: &Node| node.is_open() && node.health.closing(devices).is_none();
        self.nodes.get(node).is_some_and(lets)
    }
}

/// Why a gang leaves devices of a node, or the node itself if there are none.
pub(super) fn graded_in_words(node: &NodeName, devices: DeviceMask, grade: Grade, detail: &str) -> String {
    let of = if devices.is_empty() { String::new() } else { format!("device {devices} of ") };
    format!("{of}node {node} is graded {grade}: {detail}")
}
