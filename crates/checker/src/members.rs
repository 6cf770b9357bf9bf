//! Each member gets the devices that it needs.

use std::collections::BTreeMap;

use phalanx_model::{DevicePart, Node, NodeName, PartNeed, Slot};

use crate::mig::Board;
use crate::start::Start;
use crate::{Checker, Violation};

impl Checker {
    /// Checks that all members of all roles are placed, in the order of their ranks, and in equal numbers per node if
    /// that is requested.
    pub(crate) fn check_whole(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        let Start { id, gang, placement, .. } = *start;
        let size = gang.roles.iter().map(|role| role.size).sum::<u32>() + gang.size;
        if placement.slots.len() != size as usize {
            found.push(Violation::NotWhole { gang: id, size, placed: placement.slots.len() });
        }
        for (place, slot) in placement.slots.iter().enumerate() {
            if slot.rank as usize != place {
                found.push(Violation::RankOutOfOrder { gang: id, rank: slot.rank, place });
            }
        }
        let mut per_node: BTreeMap<&NodeName, u32> = BTreeMap::new();
        for slot in start.main() {
            *per_node.entry(&slot.node).or_default() += 1;
        }
        for (node, got) in per_node {
            if let Some(wanted) = gang.members_per_node.filter(|w| *w != got) {
                found.push(Violation::UnequalNodes { gang: id, node: node.clone(), wanted, got });
            }
        }
    }

    pub(crate) fn check_members(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        for slot in &start.placement.slots {
            self.check_member(start, slot, found);
        }
    }

    fn check_member(&self, start: &Start<'_>, slot: &Slot, found: &mut Vec<Violation>) {
        let (gang, rank, needs) = (start.id, slot.rank, start.needs(slot));
        let Some(node) = self.nodes.get(&slot.node).filter(|n| n.is_open()) else {
            found.push(Violation::NodeNotOpen { gang, node: slot.node.clone() });
            return;
        };
        if !needs.nodes.is_empty() && !needs.nodes.contains(&slot.node) {
            found.push(Violation::NodeNotNamed { gang, node: slot.node.clone() });
        }
        if needs.avoid.contains(&slot.node) {
            found.push(Violation::NodeAvoided { gang, node: slot.node.clone() });
        }
        self.check_pools(start, slot, node, found);
        if let Some(set) = needs.within.as_ref().filter(|set| !node.sets.contains(set)) {
            found.push(Violation::OutsideSet { gang, node: slot.node.clone(), set: set.clone() });
        }
        let (wanted, got) = (if needs.part.is_some() { 1 } else { needs.devices }, slot.devices.count());
        if got != wanted {
            found.push(Violation::WrongDeviceCount { gang, rank, needs: wanted, got });
        }
        let models: Vec<String> = needs.models.iter().map(|m| m.model.to_lowercase()).collect();
        let suits = |model: &str| {
            let model = model.to_lowercase();
            models.is_empty() || models.iter().any(|wanted| model.contains(wanted.as_str()))
        };
        let barred = node.barred_devices().union(node.kept.away_from(needs));
        let is_good = slot.devices.iter().all(|d| {
            let device = node.machine.devices.get(d as usize);
            !barred.contains(d) && device.is_some_and(|device| suits(&device.model))
        });
        if !is_good {
            let (node, devices) = (slot.node.clone(), slot.devices);
            found.push(Violation::NotItsDevices { gang, node, devices });
        }
        if !has_its_part(needs.part.as_ref(), slot, node) {
            found.push(Violation::WrongPart { gang, rank, node: slot.node.clone(), part: shown(slot) });
        }
    }
}

/// A share if a share is requested, the right slice at a valid start of the board if a slice is requested, and
/// otherwise whole devices.
fn has_its_part(needs: Option<&PartNeed>, slot: &Slot, node: &Node) -> bool {
    let (needs, profile, start) = match (needs, &slot.part) {
        (None, None) => return node.machine.replicas == 0 || slot.devices.is_empty(),
        (Some(PartNeed::Share { .. }), Some(DevicePart::Share)) => return node.machine.replicas == 0,
        (Some(PartNeed::Replica), Some(DevicePart::Share)) => return true,
        (Some(needs), Some(DevicePart::Slice { profile, start })) => (needs, profile, start),
        _ => return false,
    };
    let device = slot.devices.iter().next().and_then(|d| node.machine.devices.get(d as usize));
    let Some(board) = device.and_then(Board::of) else { return false };
    let Some(instance) = board.instance(profile) else { return false };
    let is_asked = match needs {
        PartNeed::Profile(name) => name == profile,
        PartNeed::Slice { compute_milli, memory_bytes } => {
            board.is_smallest(&instance, *compute_milli, *memory_bytes)
        }
        PartNeed::Share { .. } | PartNeed::Replica => false,
    };
    is_asked && board.starts(&instance).contains(start)
}

fn shown(slot: &Slot) -> String {
    match &slot.part {
        None => "whole devices".to_owned(),
        Some(DevicePart::Share) => "a share".to_owned(),
        Some(DevicePart::Slice { profile, start }) => format!("{profile} at {start}"),
    }
}
