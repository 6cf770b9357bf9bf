//! A start, and the rules that it must keep.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{Gang, GangId, Needs, NodeName, Placement, Slot};

use crate::{Checker, Violation};

/// A start order with its gang.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'a> {
    pub(crate) id: GangId,
    pub(crate) gang: &'a Gang,
    pub(crate) placement: &'a Placement,
    /// Whether the gang was never started before.
    pub(crate) is_first: bool,
}

impl<'a> Start<'a> {
    /// The needs of the member in a slot: ranks of the gang itself come first, then role by role.
    pub(crate) fn needs(self, slot: &Slot) -> &'a Needs {
        let mut first = self.gang.size;
        for role in &self.gang.roles {
            if (first..first.saturating_add(role.size)).contains(&slot.rank) {
                return &role.needs;
            }
            first = first.saturating_add(role.size);
        }
        &self.gang.needs
    }

    /// The members of the gang itself, without those of its roles.
    pub(crate) fn main(self) -> &'a [Slot] {
        let size = (self.gang.size as usize).min(self.placement.slots.len());
        &self.placement.slots[..size]
    }

    pub(crate) fn nodes(self) -> BTreeSet<&'a NodeName> {
        self.placement.slots.iter().map(|slot| &slot.node).collect()
    }
}

/// A live member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'a> {
    pub(crate) of: Start<'a>,
    pub(crate) slot: &'a Slot,
}

impl<'a> Member<'a> {
    pub(crate) fn needs(self) -> &'a Needs {
        self.of.needs(self.slot)
    }
}

impl Checker {
    pub(crate) fn check_start(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        self.check_whole(start, found);
        self.check_members(start, found);
        self.check_one_pool(start, found);
        self.check_level(start, found);
        self.check_segments(start, found);
        self.check_grid(start, found);
        self.check_spread(start, found);
        Self::check_together(start, found);
        self.check_box(start, found);
        self.check_neighbours(start, found);
        self.check_amounts(start, found);
        self.check_limits(start, found);
        self.check_quota(start, found);
        self.check_turn(start, found);
        self.check_wanted(start, found);
        self.check_pinned(start, found);
    }

    /// Gangs that hold capacity.
    pub(crate) fn living_gangs(&self) -> impl Iterator<Item = GangId> {
        self.attempts.iter().filter(|(_, (_, attempt))| !attempt.is_over()).map(|(id, _)| *id)
    }

    /// All members that hold something, those of the start included.
    pub(crate) fn living_members(&self) -> impl Iterator<Item = Member<'_>> {
        let living = self.attempts.iter().filter(|(_, (_, attempt))| !attempt.is_over());
        let starts = living.filter_map(|(id, (number, attempt))| {
            let (gang, placement) = (self.gang(*id)?, &attempt.placement);
            Some((Start { id: *id, gang, placement, is_first: *number == 1 }, attempt))
        });
        starts.flat_map(|(of, attempt)| {
            let held = of.placement.slots.iter().filter(|slot| attempt.holds(slot.rank));
            held.map(move |slot| Member { of, slot })
        })
    }

    /// The live members on the nodes of a start, by node.
    pub(crate) fn neighbours_of<'a>(&'a self, start: &Start<'_>) -> BTreeMap<&'a NodeName, Vec<Member<'a>>> {
        let nodes = start.nodes();
        let mut all: BTreeMap<&NodeName, Vec<Member<'_>>> = BTreeMap::new();
        for member in self.living_members().filter(|member| nodes.contains(&member.slot.node)) {
            all.entry(&member.slot.node).or_default().push(member);
        }
        all
    }
}
