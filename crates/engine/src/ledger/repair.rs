//! A gang that lost hardware starts again where it was: members whose nodes and devices are well keep their places, and
//! the others get equal nodes near by, spare nodes included. The places are reserved for it before anybody else can take
//! them. Without such nodes it waits, and is placed like any other gang.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{
    Change, DeviceMask, Gang, GangId, GangRecord, Job, JobId, NodeName, Outcome, Phase, Placement,
    Preemption, PreemptionRule, Reason, Reserved, Slot, Spare,
};

use super::Ledger;
use super::calendar::stop_ms;
use crate::cluster::Pick;
use crate::cluster::tree::TreeNode;
use crate::placement::{level_of, with_spares};

/// What a gang is to have in place of what it lost.
pub(super) struct Repaired {
    placement: Placement,
    /// The nodes in it that the gang did not have.
    pub(super) moved_to: Vec<NodeName>,
    /// Gangs on the spare nodes among these.
    pub(super) victims: BTreeSet<GangId>,
}

impl Ledger {
    /// Notes a gang for which places are to be sought.
    pub(super) fn note_repair(&mut self, id: GangId) {
        if self.record(id).is_some_and(|record| record.was_on.is_some()) {
            self.to_repair.insert(id);
        }
    }

    /// Reserves the places in which gangs start again that lost hardware, after all facts of a step: the loss of a node may
    /// be told after the end of the gang. A gang that is held for now, as its pods are not back, hears of its places later.
    pub(crate) fn repair_all(&mut self, out: &mut Outcome) {
        if self.sync.any() {
            return;
        }
        let due = std::mem::take(&mut self.to_repair);
        let vacant = if due.is_empty() { Vec::new() } else { self.vacant_nodes() };
        for id in due {
            let is_lost = |record: &GangRecord| record.is_pending() && record.was_on.is_some();
            if !self.record(id).is_some_and(is_lost) {
                continue;
            }
            if self.job(id.job).is_some_and(|job| job.turn.held_by.is_some()) {
                // Nobody knows for how long.
                self.release_nodes(id);
                self.to_repair.insert(id);
                continue;
            }
            let before = self.record_mut(id).and_then(|record| record.was_on.take());
            let is_free = self.record(id).is_some_and(|record| record.reserved.is_none());
            if let Some(repaired) =
                before.filter(|_| is_free).and_then(|before| self.repaired(id, &before, &vacant))
            {
                self.reserve_repaired(id, repaired, out);
            }
            self.release_nodes(id);
        }
    }

    fn reserve_repaired(&mut self, id: GangId, repaired: Repaired, out: &mut Outcome) {
        let (now, Repaired { placement, victims, .. }) = (self.now, repaired);
        let grace_ms =
            victims.iter().filter_map(|victim| self.job(victim.job)).map(stop_ms).max().unwrap_or(0);
        let reserved = Reserved { placement, at: Some(now.plus(grace_ms)), evicts: true, made_at: now };
        out.changes.push(Change::GangReserved { gang: id, reserved: reserved.clone() });
        if let Some(record) = self.record_mut(id) {
            record.reserved = Some(reserved);
        }
        // The node failed, and not the gang: it need not wait.
        self.write_phase(id, Phase::Pending { not_before: now });
        self.retime(id);
        self.release_overlapping(id, out);
        self.book_reservation(id);
        self.claim_again(id);
        self.relist(id);
        for victim in victims {
            let lost_device_ms = self.unsaved_device_ms(victim);
            let rule = PreemptionRule::Spare;
            let preemption = Preemption { by: id, rule, at: now, lost_device_ms, grace_max_ms: None };
            self.preempt(victim, preemption, out);
        }
    }

    /// What a gang was on, or still is, with equal nodes in place of those that it cannot have again, among nodes that are
    /// [vacant](Self::vacant_nodes).
    pub(super) fn repaired(&self, id: GangId, before: &Placement, vacant: &[u32]) -> Option<Repaired> {
        let (entry, gang, record) = (self.jobs.get(&id.job)?, self.gang(id)?, self.record(id)?);
        let is_pinned = record.checkpointed_at.is_some() && entry.job.policy.preempt.is_pinned;
        // What lies on a torus is a box of it, whose chips are not exchanged one by one.
        let is_box = gang.topology.slice.is_some();
        let is_kept_back = match self.kept_back(id) {
            // That of a service hides whether the replica is wanted at all.
            Some(Reason::BackOff { .. }) => entry.job.turn.service.is_some(),
            reason => reason.is_some(),
        };
        if is_pinned || is_box || entry.admitted.is_some() || is_kept_back {
            return None;
        }
        let gang = with_spares(gang);
        let mut by_node: BTreeMap<&NodeName, Vec<&Slot>> = BTreeMap::new();
        before.slots.iter().for_each(|slot| by_node.entry(&slot.node).or_default().push(slot));
        // Members that share a node stay together.
        let is_well = |slots: &[&Slot]| slots.iter().all(|slot| self.is_well(id, &gang, slot));
        let kept = by_node.iter().find(|(_, slots)| is_well(slots)).map(|(node, _)| *node);
        // A small gang that loses all that it has is no reason to keep whole nodes free.
        let has_all = |(node, slots): (&&NodeName, &Vec<&Slot>)| {
            let devices = slots.iter().fold(DeviceMask::EMPTY, |all, slot| all.union(slot.devices));
            self.nodes.get(*node).is_some_and(|node| node.machine.device_mask() == devices)
                && !devices.is_empty()
        };
        if kept.is_none() && !by_node.iter().all(has_all) {
            return None;
        }
        let mut taken: BTreeSet<&NodeName> = by_node.keys().copied().collect();
        let mut moved: BTreeMap<&NodeName, &NodeName> = BTreeMap::new();
        let mut victims = BTreeSet::new();
        for (node, slots) in by_node.iter().filter(|(_, slots)| !is_well(slots)) {
            // A node that was removed was like those that are left.
            let pattern = self.tree.index_of(node).or_else(|| self.tree.index_of(kept?))?;
            let (to, leaving) = self.equal_node((id, &gang), pattern, slots, &taken, vacant)?;
            taken.insert(to);
            moved.insert(node, to);
            victims.extend(leaving);
        }
        let mut placement = before.clone();
        for slot in &mut placement.slots {
            if let Some(to) = moved.get(&slot.node) {
                slot.node = (*to).clone();
            }
        }
        let level = level_of(&self.tree, &self.tree.picks_of(&placement, &gang))?;
        let is_as_near = moved.iter().all(|(from, to)| self.are_beside(from, to))
            || is_plain(&entry.job, &gang)
                && level >= self.tree.level_at(&before.level)?
                && level >= self.tree.level_of_required(&gang);
        placement.level = self.tree.level_name(level);
        let moved_to: Vec<NodeName> = moved.values().map(|to| (*to).clone()).collect();
        let is_allowed = is_as_near && self.is_in_a_pool_of(&gang, &placement);
        (is_allowed && !moved_to.is_empty()).then_some(Repaired { placement, moved_to, victims })
    }

    /// Whether a member can start again where it was: its node and devices are well, and nobody else has them.
    fn is_well(&self, id: GangId, gang: &Gang, slot: &Slot) -> bool {
        let Some(node) = self.nodes.get(&slot.node).filter(|node| node.is_open()) else { return false };
        let Some(at) = self.tree.index_of(&slot.node) else { return false };
        let needs = gang.needs_of(gang.role_of(slot.rank));
        let kind = self.tree.kind(&self.tree.nodes[at]);
        let are_well = slot.devices.is_subset_of(node.usable_devices().minus(kind.kept_from(needs)));
        !kind.refuses(needs)
            && are_well
            && !self.is_taken(id, at, slot.devices)
            && !u32::try_from(at).is_ok_and(|at| self.is_barred_by_window(id, at))
    }

    /// Whether other gangs hold some of these devices, or others made room for one there.
    fn is_taken(&self, id: GangId, at: usize, devices: DeviceMask) -> bool {
        let Ok(index) = u32::try_from(at) else { return true };
        let is_there = |pick: &Pick| pick.node == index && !pick.devices.and(devices).is_empty();
        let holds = |gang: &GangId| self.picks.get(gang).is_some_and(|picks| picks.iter().any(is_there));
        self.gangs_on(index).any(|gang| gang != id && holds(&gang)) || self.is_cleared(at, devices)
    }

    /// The gangs that hold something on a node.
    pub(super) fn gangs_on(&self, node: u32) -> impl Iterator<Item = GangId> + '_ {
        let on_node = self.on_nodes.range((node, JobId(0).gang(0))..);
        on_node.take_while(move |(of, _)| *of == node).map(|(_, gang)| *gang)
    }

    /// The nearest node like a lost one that is free, or that only gangs use that leave spare nodes, with these gangs. Of
    /// equally near ones, first those that are kept for the gang, then those that are free, and spare nodes last; within each
    /// of these, nodes with a slow network last.
    fn equal_node(
        &self,
        (id, gang): (GangId, &Gang),
        pattern: usize,
        slots: &[&Slot],
        taken: &BTreeSet<&NodeName>,
        vacant: &[u32],
    ) -> Option<(&NodeName, Vec<GangId>)> {
        let (lost, tree) = (&self.tree.nodes[pattern], &self.tree);
        let may_hold = |like: &TreeNode, slot: &Slot| {
            let (needs, kind) = (gang.needs_of(gang.role_of(slot.rank)), tree.kind(like));
            !kind.refuses(needs)
                && kind.kept_from(needs).and(slot.devices).is_empty()
                && (needs.nodes.is_empty() || needs.nodes.contains(&like.name))
                && !needs.avoid.contains(&like.name)
        };
        let kinds: Vec<bool> =
            tree.kinds.iter().map(|kind| kind.has_same_hardware(tree.kind(lost))).collect();
        let is_equal = |like: &TreeNode| {
            kinds.get(usize::from(like.kind)).copied().unwrap_or_default()
                && like.total.cpu_milli >= lost.total.cpu_milli
                && like.total.memory_bytes >= lost.total.memory_bytes
        };
        let found = |at: &u32| {
            let (index, at) = (*at, *at as usize);
            let like = tree.nodes.get(at).filter(|like| is_equal(like) && !taken.contains(&like.name))?;
            let node = self.nodes.get(&like.name)?;
            let is_sound = node.is_open() && node.usable_devices() == like.total.devices;
            let is_not_for_it =
                self.is_kept_for_another(&like.name, id) || self.is_barred_by_window(id, index);
            if !is_sound || is_not_for_it || !slots.iter().all(|slot| may_hold(like, slot)) {
                return None;
            }
            let leaving = self.leaving_from(at)?;
            let is_kept = self.kept_nodes.contains_key(&like.name);
            let is_slow = tree.kind(like).is_measured();
            Some((
                (!is_kept, !leaving.is_empty(), node.spare != Spare::No, is_slow, at),
                (&like.name, leaving),
            ))
        };
        // From the innermost domain outwards, and at last everywhere.
        let levels = (0..tree.depth()).rev();
        let domains = levels.filter_map(|level| {
            Some(tree.domains.get(level)?.get(tree.domain_of(pattern, level))?.nodes.clone())
        });
        let mut ranges = domains.chain(std::iter::once(0..tree.nodes.len()));
        ranges.find_map(|range| {
            let before = |end: usize| vacant.partition_point(|at| (*at as usize) < end);
            let inside = vacant.get(before(range.start)..before(range.end))?;
            inside.iter().filter_map(found).min_by_key(|(order, _)| *order).map(|(_, found)| found)
        })
    }

    /// The nodes, by their place in the tree, on which no gang holds anything, and those that may be filled until they are
    /// needed. In order.
    pub(super) fn vacant_nodes(&self) -> Vec<u32> {
        let is_filled = self.queues.settings().spares.as_ref().is_some_and(|spares| spares.is_filled);
        let mut held = self.on_nodes.iter().map(|(node, _)| *node).peekable();
        let mut is_vacant = |(at, of): &(u32, &TreeNode)| {
            while held.next_if(|node| node < at).is_some() {}
            let is_held = held.peek() == Some(at);
            !is_held || is_filled && self.nodes.get(&of.name).is_some_and(|node| node.spare == Spare::Filled)
        };
        (0..).zip(&self.tree.nodes).filter(|node| is_vacant(node)).map(|(at, _)| at).collect()
    }

    /// The gangs that leave a node if it is needed: none if it is free, but for what waiting gangs hope for, and `None` if it
    /// cannot be had.
    fn leaving_from(&self, at: usize) -> Option<Vec<GangId>> {
        let of = self.tree.nodes.get(at)?;
        let gangs: Vec<GangId> = self.gangs_on(u32::try_from(at).ok()?).collect();
        let is_filled = || self.nodes.get(&of.name).is_some_and(|node| node.spare == Spare::Filled);
        let leave = gangs.is_empty() || is_filled() && gangs.iter().all(|gang| self.leaves_spares(*gang));
        (leave && !self.is_cleared(at, of.total.devices)).then_some(gangs)
    }

    /// Whether others made room for a gang on a node, or a gang moves there.
    fn is_cleared(&self, at: usize, devices: DeviceMask) -> bool {
        let Ok(index) = u32::try_from(at) else { return true };
        let reserved = self.reservations.overlapping(&[Pick::new(index, 0, devices)]);
        self.is_kept_for_a_move(index, devices)
            || reserved.iter().any(|gang| self.cleared_place(*gang).is_some())
    }

    /// Levels above the node at which two nodes are in one domain.
    fn common_levels(&self, one: usize, other: usize) -> usize {
        let is_common =
            |level: &usize| self.tree.domain_of(one, *level) == self.tree.domain_of(other, *level);
        (0..self.tree.depth()).filter(is_common).count()
    }

    /// Whether two nodes are in one innermost domain.
    fn are_beside(&self, one: &NodeName, other: &NodeName) -> bool {
        let at = self.tree.index_of(one).zip(self.tree.index_of(other));
        at.is_some_and(|(one, other)| self.common_levels(one, other) == self.tree.depth())
    }

    /// The work of a gang since its last checkpoint, in milliseconds of one device.
    fn unsaved_device_ms(&self, id: GangId) -> u64 {
        let Some((gang, record)) = self.gang(id).zip(self.record(id)) else { return 0 };
        let (Phase::Running { since }, Some(placement)) = (&record.phase, &record.placement) else {
            return 0;
        };
        let unsaved_ms = self.now.since(record.checkpointed_at.unwrap_or_default().max(*since));
        gang.held_milli(placement).saturating_mul(unsaved_ms) / 1_000
    }
}

/// Whether no more is asked of the places of a gang than one level.
fn is_plain(job: &Job, gang: &Gang) -> bool {
    let topology = &gang.topology;
    topology.segments.is_empty()
        && topology.spread.is_empty()
        && topology.near.is_empty()
        && gang.roles.is_empty()
        && gang.grid.is_empty()
        && job.turn.service.is_none()
}
