//! Reservations and reasons in the books.

use phalanx_model::{
    Change, DeviceMask, Eviction, Gang, GangId, Outcome, Phase, Placement, Reason, Reserved, StopCause,
    Timestamp,
};

use super::Ledger;
use crate::cluster::Space;
use crate::placement::{Ceiling, place};

/// Between two looks for everybody who might evict somebody, at the least, for each node: a look costs by the size of the
/// cluster, and in a large one somebody may be evicted from then on at nearly every moment.
const AGAIN_LEAST_MS: u64 = 1;

impl Ledger {
    /// The planner holds a place for a gang that waits.
    pub(crate) fn reserve(&mut self, gang: GangId, reserved: Reserved, reason: Reason, out: &mut Outcome) {
        if reason != Reason::None {
            self.set_reason(gang, reason, out);
        }
        out.changes.push(Change::GangReserved { gang, reserved: reserved.clone() });
        if let Some(record) = self.record_mut(gang) {
            record.reserved = Some(reserved);
        }
        self.refresh.insert(gang);
        self.retime(gang);
    }

    /// The planner gave a reservation up: the gang is back in the line.
    pub(crate) fn forget_reservation(&mut self, gang: GangId, why: String, out: &mut Outcome) {
        if let Some(record) = self.record_mut(gang) {
            record.reserved = None;
        }
        out.changes.push(Change::ReservationDropped { gang, why });
        self.call_off_shrinks_for(gang);
        self.retime(gang);
        self.relist(gang);
        self.replan = true;
    }

    /// What a gang keeps of its own place while it changes its size is reserved for no other gang.
    pub(super) fn release_overlapping(&mut self, gang: GangId, out: &mut Outcome) {
        let kept = self.record(gang).and_then(|record| record.reserved.as_ref()).zip(self.gang(gang));
        let Some(picks) = kept.map(|(kept, found)| self.tree.picks_of(&kept.placement, found)) else {
            return;
        };
        for other in self.reservations.overlapping(&picks) {
            self.drop_reservation(other);
            let why = format!("job {} keeps its placement while it is resized", gang.job);
            out.changes.push(Change::ReservationDropped { gang: other, why });
            self.retime(other);
            self.relist(other);
        }
    }

    /// What is free, what is reserved for pending gangs included.
    pub(crate) fn open_space(&self) -> Space {
        let mut space = self.space.clone();
        for reservation in self.reservations.values() {
            reservation.clone().unbook(&self.tree, &mut space);
        }
        space
    }

    /// A gang makes way for another.
    pub(crate) fn evict(&mut self, victim: GangId, eviction: Eviction, out: &mut Outcome) {
        self.evicted.insert(victim);
        self.keep_size(victim);
        self.begin_stop(victim, StopCause::Preempted(eviction), out);
    }

    /// When somebody may be evicted who may not be yet, it is looked again.
    pub(crate) fn look_again(&mut self, at: Timestamp) {
        let least_ms = AGAIN_LEAST_MS.saturating_mul(self.tree.nodes.len() as u64);
        let soonest = self.looked_at.map_or(Timestamp(0), |at| at.plus(least_ms));
        let at = Some(at.max(soonest)).filter(|at| *at < Timestamp::MAX);
        self.again_at = self.again_at.into_iter().chain(at).min();
    }

    /// Something changed for who was looked at already: another turn of the planner follows.
    pub(crate) fn plan_again(&mut self) {
        self.replan = true;
    }

    /// Not all that could be decided was: the next step goes on.
    pub(crate) fn go_on(&mut self, goes_on: bool) {
        self.go_on_at = goes_on.then(|| self.now.plus(1));
    }

    pub(super) fn look_again_if_due(&mut self) {
        if self.go_on_at.is_some_and(|at| at <= self.now) {
            self.go_on_at = None;
            self.replan = true;
        }
        if self.again_at.is_some_and(|at| at <= self.now) {
            self.again_at = None;
            self.looked_at = Some(self.now);
            self.freed = super::Freed::All;
            self.replan = true;
        }
    }

    /// The place that others made way for.
    pub(crate) fn cleared_place(&self, gang: GangId) -> Option<&Placement> {
        let reserved = self.record(gang).and_then(|record| record.reserved.as_ref());
        reserved.filter(|reserved| reserved.evicts).map(|reserved| &reserved.placement)
    }

    /// Whether a gang would fit but for what is held for others.
    pub(crate) fn is_held_from(&self, id: GangId, gang: &Gang) -> bool {
        let is_free = self.reservations.is_empty() || self.reservations.contains_key(&id);
        !is_free && place(&self.tree, &self.space, gang, Ceiling(self.tree.level_of_required(gang))).is_none()
    }

    /// The first for whom something is held, and from when.
    pub(crate) fn holds_before(&self, id: GangId) -> Option<(GangId, Option<Timestamp>)> {
        let others = self.reservations.iter().filter(|(gang, _)| **gang != id);
        others.map(|(gang, hold)| (*gang, hold.at)).next()
    }

    /// Whether the place reserved for a gang is none any more.
    pub(crate) fn reserved_place_is_gone(&self, gang: GangId) -> bool {
        let reserved = self.record(gang).and_then(|record| record.reserved.as_ref());
        let needs = |rank| self.gang(gang).map(|gang| gang.needs_of(gang.role_of(rank)));
        reserved.is_some_and(|reserved| {
            reserved.placement.slots.iter().any(|slot| {
                let node = self.tree.index_of(&slot.node).map(|at| &self.tree.nodes[at]);
                node.is_none_or(|node| {
                    let kept = |needs| self.tree.kind(node).kept_from(needs);
                    let kept = needs(slot.rank).map_or(DeviceMask::EMPTY, kept);
                    !node.total.open || !slot.devices.is_subset_of(node.usable.devices.minus(kept))
                })
            })
        })
    }

    /// Gangs that were told to make way for one, and still hold capacity; and those that are to shrink for it.
    pub(crate) fn making_way_for(&self, gang: GangId) -> Vec<GangId> {
        let told = self.making_way.get(&gang).into_iter().flatten().copied();
        told.chain(self.shrinking_for(gang)).collect()
    }

    /// Follows who makes way, by how a gang stands now.
    pub(super) fn note_making_way(&mut self, gang: GangId) {
        let by = self.record(gang).and_then(|record| match &record.phase {
            Phase::Stopping { cause: StopCause::Preempted(eviction), .. } => Some(eviction.by),
            _ => None,
        });
        match by {
            Some(by) => {
                self.making_way.entry(by).or_default().insert(gang);
            }
            None => self.making_way.retain(|_, victims| {
                victims.remove(&gang);
                !victims.is_empty()
            }),
        }
    }

    /// Why a gang that has a place reserved waits: for those that are in it.
    pub(crate) fn reserved_reason(&self, gang: GangId) -> Option<Reason> {
        self.reasons.get(&gang).cloned()
    }

    /// A pending gang's reason; says so when it changed.
    pub(crate) fn set_reason(&mut self, gang: GangId, reason: Reason, out: &mut Outcome) {
        if self.reasons.get(&gang) != Some(&reason) {
            self.reasons.insert(gang, reason.clone());
            if matches!(reason, Reason::NodeNotAvailable { .. }) {
                self.unavailable.insert(gang);
            } else {
                self.unavailable.remove(&gang);
            }
            // That a service was scaled says it of all of them.
            if !matches!(reason, Reason::ScaledIn { .. }) {
                out.changes.push(Change::ReasonChanged { gang, reason });
            }
        }
    }

    /// Says the reasons of those that wait since this step, or wait otherwise than before.
    pub(crate) fn say_reasons(&mut self, out: &mut Outcome) {
        for gang in std::mem::take(&mut self.refresh) {
            if let Some(reason) = self.reason_of(gang).filter(|reason| *reason != Reason::None) {
                self.set_reason(gang, reason, out);
            }
        }
    }
}
