//! The topology rules of a start: required domains, segments, and spread.

use std::collections::BTreeMap;

use phalanx_model::{AxisKind, DeviceMask, LevelName, Segment, Slot, Spread};

use crate::start::Start;
use crate::{Checker, Violation};

/// A domain: its path, the path of a node, and the devices of a group inside the node.
type Domain = (Vec<String>, DeviceMask);

impl Checker {
    pub(crate) fn check_level(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        if let Some(level) = &start.gang.topology.required
            && !self.is_together(&start.placement.slots, level)
        {
            found.push(Violation::OutsideRequiredLevel { gang: start.id, level: level.to_string() });
        }
    }

    /// Ranks 0..size, size..2×size and so on must each be in one domain. The last segment may be smaller. The gang's
    /// own members follow the gang's segments, and the members of a role follow those of the role.
    pub(crate) fn check_segments(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        self.check_parts(start, start.main(), &start.gang.topology.segments, found);
        for (at, role) in start.gang.roles.iter().enumerate() {
            let is_of = |slot: &&Slot| start.gang.role_of(slot.rank) == Some(at);
            let slots: Vec<Slot> = start.placement.slots.iter().filter(is_of).cloned().collect();
            self.check_parts(start, &slots, &role.segments, found);
        }
    }

    fn check_parts(
        &self,
        start: &Start<'_>,
        slots: &[Slot],
        segments: &[Segment],
        found: &mut Vec<Violation>,
    ) {
        for Segment { size, level } in segments {
            let parts = slots.chunks((*size).max(1) as usize);
            for part in parts.filter(|part| !self.is_together(part, level)) {
                let ranks = |slot: Option<&Slot>| slot.map_or(0, |slot| slot.rank);
                let (first, last) = (ranks(part.first()), ranks(part.last()));
                let (gang, level) = (start.id, level.to_string());
                found.push(Violation::SegmentApart { gang, level, first, last });
            }
        }
    }

    /// Ranks that differ only in their position on a tensor axis must be on one node. Ranks are numbered along the
    /// first axis, then along the second.
    pub(crate) fn check_grid(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        let (gang, slots) = (start.id, start.main());
        let mut stride = 1;
        for axis in &start.gang.grid {
            let degree = axis.degree.max(1) as usize;
            if axis.kind == AxisKind::Tensor {
                for (first, slot) in slots.iter().enumerate().filter(|(at, _)| at / stride % degree == 0) {
                    let group = slots.iter().skip(first).step_by(stride).take(degree);
                    if group.into_iter().any(|other| other.node != slot.node) {
                        found.push(Violation::TensorApart { gang, first: slot.rank });
                    }
                }
            }
            stride = stride.saturating_mul(degree);
        }
    }

    /// Checks the maximum number of members in one domain, over all roles.
    pub(crate) fn check_spread(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        for Spread { level, max } in &start.gang.topology.spread {
            let mut counts: BTreeMap<Domain, u32> = BTreeMap::new();
            for slot in &start.placement.slots {
                if let Some(domain) = self.domain_of(slot, level) {
                    *counts.entry(domain).or_default() += 1;
                }
            }
            for ((path, _), got) in counts.into_iter().filter(|(_, got)| got > max) {
                let (gang, level, domain) = (start.id, level.to_string(), path.join("/"));
                found.push(Violation::NotSpread { gang, level, domain, max: *max, got });
            }
        }
    }

    /// Checks that roles that must share a node share it.
    pub(crate) fn check_together(start: &Start<'_>, found: &mut Vec<Violation>) {
        for set in &start.gang.topology.together {
            let is_in = |slot: &&Slot| {
                let party = start.gang.role_of(slot.rank).map_or(0, |role| role + 1);
                set.iter().any(|one| *one as usize == party)
            };
            let mut slots = start.placement.slots.iter().filter(is_in);
            let Some(first) = slots.next() else { continue };
            if let Some(other) = slots.find(|slot| slot.node != first.node) {
                let (gang, first, other) = (start.id, first.rank, other.rank);
                found.push(Violation::RolesApart { gang, first, other });
            }
        }
    }

    /// Whether these ranks are inside one domain of a level. Levels are not known before they are configured.
    fn is_together(&self, slots: &[Slot], level: &LevelName) -> bool {
        let Some(levels) = &self.levels else { return true };
        if *level != levels.node && !levels.above.contains(level) {
            return self.is_in_one_group(slots, level);
        }
        let mut domains = slots.iter().map(|slot| self.domain_of(slot, level));
        let first = domains.next().flatten();
        first.is_some() && domains.all(|d| d == first)
    }

    /// A member without devices counts as in the group of the other members.
    fn is_in_one_group(&self, slots: &[Slot], level: &LevelName) -> bool {
        let node = slots.first().and_then(|slot| self.nodes.get(&slot.node));
        let is_one_node = node.is_some_and(|node| slots.iter().all(|slot| slot.node == node.name));
        let all = slots.iter().fold(DeviceMask::EMPTY, |all, slot| all.union(slot.devices));
        let mut groups = node.iter().flat_map(|node| &node.machine.groups);
        is_one_node && groups.any(|group| group.level == *level && all.is_subset_of(group.devices))
    }

    fn domain_of(&self, slot: &Slot, level: &LevelName) -> Option<Domain> {
        let levels = self.levels.as_ref()?;
        let node = self.nodes.get(&slot.node)?;
        let mut path: Vec<String> = node.path.iter().map(ToString::to_string).collect();
        if let Some(depth) = levels.above.iter().position(|l| l == level) {
            path.truncate(depth + 1);
            return Some((path, DeviceMask::EMPTY));
        }
        path.push(slot.node.to_string());
        if *level == levels.node {
            return Some((path, DeviceMask::EMPTY));
        }
        let groups = node.machine.groups.iter().filter(|g| g.level == *level);
        let group = groups.map(|g| g.devices).find(|g| slot.devices.is_subset_of(*g))?;
        Some((path, group))
    }
}
