//! Reservations and reasons in the ledger.

use phalanx_model::{
    Change, DeviceMask, Gang, GangId, Outcome, Phase, Placement, Preemption, Reason, Reserved, StopCause,
    Timestamp,
};

use super::Ledger;
use crate::cluster::Space;
use crate::cycle::Reservation;
use crate::placement::{Ceiling, place};

/// The least time between two evaluations of all gangs that may preempt, for each node: an evaluation costs by the size
/// of the cluster, and in a large cluster a gang becomes preemptible at nearly every moment.
const AGAIN_LEAST_MS: u64 = 1;

impl Ledger {
    /// Records a placement that a cycle reserved for a pending gang.
    pub(crate) fn reserve(&mut self, gang: GangId, reserved: Reserved, reason: Reason, out: &mut Outcome) {
        if reason != Reason::None {
            self.set_reason(gang, reason, out);
        }
        out.changes.push(Change::GangReserved { gang, reserved: reserved.clone() });
        if let Some(record) = self.record_mut(gang) {
            if reserved.at.is_none() && !reserved.evicts {
                // If this reservation is given up, the bypasses of the gang are counted from zero again.
                record.bypassed = 0;
            }
            record.reserved = Some(reserved);
        }
        self.refresh.insert(gang);
        self.retime(gang);
    }

    /// Records that a cycle released a reservation: the gang is pending without one again.
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

    /// Releases reservations of other gangs in the placement that a gang keeps while it changes its size.
    pub(super) fn release_overlapping(&mut self, gang: GangId, out: &mut Outcome) {
        let kept = self.record(gang).and_then(|record| record.reserved.as_ref()).zip(self.gang(gang));
        let Some(picks) = kept.map(|(kept, found)| self.tree.picks_of(&kept.placement, found)) else {
            return;
        };
        for other in self.reservations.overlapping(&picks) {
            let why = format!("job {} starts again in its placement", gang.job);
            self.release_reservation(other, why, out);
        }
    }

    /// Releases the reservation of a gang: the gang is pending without one again.
    pub(super) fn release_reservation(&mut self, gang: GangId, why: String, out: &mut Outcome) {
        self.drop_reservation(gang);
        out.changes.push(Change::ReservationDropped { gang, why });
        self.retime(gang);
        self.relist(gang);
    }

    /// The free capacity, including what is reserved for pending gangs.
    pub(crate) fn open_space(&self) -> Space {
        let mut space = self.space.clone();
        for reservation in self.reservations.values() {
            reservation.clone().unbook(&self.tree, &mut space);
        }
        space
    }

    /// The free capacity without what is reserved for other gangs.
    pub(crate) fn space_beside_others(&self, id: GangId) -> Space {
        let mut space = self.space.clone();
        if let Some(own) = self.reservations.get(&id) {
            own.clone().unbook(&self.tree, &mut space);
        }
        space
    }

    /// Preempts a gang for another.
    pub(crate) fn preempt(&mut self, victim: GangId, preemption: Preemption, out: &mut Outcome) {
        self.preempted.insert(victim);
        self.keep_size(victim);
        self.begin_stop(victim, StopCause::Preempted(preemption), out);
    }

    /// Sets the time of the next evaluation of gangs that may preempt, for a gang that is not preemptible yet.
    pub(crate) fn look_again(&mut self, at: Timestamp) {
        let least_ms = AGAIN_LEAST_MS.saturating_mul(self.tree.nodes.len() as u64);
        let soonest = self.looked_at.map_or(Timestamp(0), |at| at.plus(least_ms));
        let at = Some(at.max(soonest)).filter(|at| *at < Timestamp::MAX);
        self.again_at = self.again_at.into_iter().chain(at).min();
    }

    /// Something changed for a gang that the cycle has already considered: another cycle follows.
    pub(crate) fn plan_again(&mut self) {
        self.replan = true;
    }

    /// Records whether the cycle stopped at its budget: the next step goes on.
    pub(crate) fn go_on(&mut self, goes_on: bool) {
        self.go_on_at = goes_on.then(|| self.now.plus(1));
    }

    pub(super) fn look_again_if_due(&mut self) {
        if self.go_on_at.is_some_and(|at| at <= self.now) {
            self.go_on_at = None;
            self.replan = true;
        }
        self.replan |= self.pending.look_now(self.now);
        if self.again_at.is_some_and(|at| at <= self.now) {
            self.again_at = None;
            self.looked_at = Some(self.now);
            self.freed = super::Freed::All;
            self.replan = true;
        }
    }

    /// The placement that other gangs were preempted for.
    pub(crate) fn cleared_place(&self, gang: GangId) -> Option<&Placement> {
        let reserved = self.record(gang).and_then(|record| record.reserved.as_ref());
        reserved.filter(|reserved| reserved.evicts).map(|reserved| &reserved.placement)
    }

    /// Whether a gang would fit but for reservations of other gangs.
    pub(crate) fn is_held_from(&self, id: GangId, gang: &Gang) -> bool {
        let is_free = self.reservations.is_empty() || self.reservations.contains_key(&id);
        !is_free && place(&self.tree, &self.space, gang, Ceiling(self.tree.level_of_required(gang))).is_none()
    }

    /// What is reserved for other gangs.
    pub(crate) fn reserved_for_others(&self, id: GangId) -> Vec<Reservation> {
        self.reservations.iter().filter(|(gang, _)| **gang != id).map(|(_, hold)| hold.clone()).collect()
    }

    /// The first gang with a reservation, and the time of that reservation.
    pub(crate) fn holds_before(&self, id: GangId) -> Option<(GangId, Option<Timestamp>)> {
        let others = self.reservations.iter().filter(|(gang, _)| **gang != id);
        others.map(|(gang, hold)| (*gang, hold.at)).next()
    }

    /// Whether the placement reserved for a gang can no longer be used.
    pub(crate) fn reserved_place_is_gone(&self, gang: GangId) -> bool {
        let reserved = self.record(gang).and_then(|record| record.reserved.as_ref());
        let wanted = self.wanted(gang);
        let needs = |rank| wanted.as_deref().map(|gang| gang.needs_of(gang.role_of(rank)));
        reserved.is_some_and(|reserved| {
            wanted.as_deref().is_some_and(|gang| !self.is_in_a_pool_of(gang, &reserved.placement))
                || reserved.placement.slots.iter().any(|slot| {
                    let node = self.tree.index_of(&slot.node).map(|at| &self.tree.nodes[at]);
                    node.is_none_or(|node| {
                        let kind = self.tree.kind(node);
                        let kept = needs(slot.rank).map_or(DeviceMask::EMPTY, |needs| kind.kept_from(needs));
                        let is_refused = needs(slot.rank).is_some_and(|needs| kind.refuses(needs));
                        !node.total.open
                            || is_refused
                            || !slot.devices.is_subset_of(node.usable.devices.minus(kept))
                    })
                })
        })
    }

    /// Gangs that were asked to leave for a gang, and still hold capacity; and those that are to shrink for it.
    pub(crate) fn victims_of(&self, gang: GangId) -> Vec<GangId> {
        let preempted = self.victims.get(&gang).into_iter().flatten().copied();
        preempted.chain(self.shrinking_for(gang)).collect()
    }

    /// Records whether a gang is being preempted, by its present state.
    pub(super) fn note_making_way(&mut self, gang: GangId) {
        let by = self.record(gang).and_then(|record| match &record.phase {
            Phase::Stopping { cause: StopCause::Preempted(preemption), .. } => Some(preemption.by),
            Phase::Stopping { cause: StopCause::Moved { by, .. }, .. } => Some(*by),
            _ => None,
        });
        match by {
            Some(by) => {
                self.victims.entry(by).or_default().insert(gang);
            }
            None => self.victims.retain(|_, victims| {
                victims.remove(&gang);
                !victims.is_empty()
            }),
        }
    }

    /// Why a gang that has a reservation is still pending: the gangs in its reserved placement.
    pub(crate) fn reserved_reason(&self, gang: GangId) -> Option<Reason> {
        self.reasons.get(&gang).cloned()
    }

    /// Sets the reason of a pending gang; reports the reason if it changed.
    pub(crate) fn set_reason(&mut self, gang: GangId, reason: Reason, out: &mut Outcome) {
        if self.reasons.get(&gang) != Some(&reason) {
            self.reasons.insert(gang, reason.clone());
            if matches!(reason, Reason::NodeNotAvailable { .. }) {
                self.unavailable.insert(gang);
            } else {
                self.unavailable.remove(&gang);
            }
            // The report that a service was scaled covers all of its replicas.
            if !matches!(reason, Reason::ScaledIn { .. }) && !self.is_told_of_array(gang.job, &reason) {
                out.changes.push(Change::ReasonChanged { gang, reason });
            }
        }
    }

    /// Reports the reasons of gangs that are pending since this step, or whose reason changed.
    pub(crate) fn say_reasons(&mut self, out: &mut Outcome) {
        for gang in self.take_refreshed() {
            if let Some(reason) = self.reason_of(gang).filter(|reason| *reason != Reason::None) {
                self.set_reason(gang, reason, out);
            }
        }
    }
}
