//! Reserved starts: a reservation with a known time is kept, unless an event from outside comes between.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{Change, GangId, Input, Job, Placement, Slot, Timestamp};

use crate::{Checker, Violation};

#[derive(Clone, Debug, Default)]
pub(crate) struct Promises {
    /// When the capacity of a gang is free at the latest.
    by: BTreeMap<GangId, Timestamp>,
    /// Placements that are reserved, with a time or without one.
    places: BTreeMap<GangId, Placement>,
}

impl Promises {
    /// Changes of nodes and queues and actions of operators may delay any reserved start.
    pub(crate) fn fact(&mut self, input: &Input) {
        match input {
            Input::JobObserved { gangs, .. } => {
                for record in gangs {
                    self.set(record.id, record.reserved.as_ref().and_then(|held| held.at));
                }
            }
            Input::SyncBegin { .. }
            | Input::SyncEnd { .. }
            | Input::JobSubmitted { .. }
            | Input::JobForgotten { .. }
            | Input::TasksCancelRequested { .. }
            | Input::CancelRequested { .. }
            | Input::UsageObserved { .. }
            | Input::RunsObserved { .. }
            | Input::MemberReady { .. }
            | Input::MemberReleased { .. }
            | Input::MemberExited { .. }
            | Input::GangCheckpointed { .. }
            | Input::BoundaryReached { .. }
            | Input::EffectDone { .. } => {}
            _ => self.by.clear(),
        }
    }

    pub(crate) fn change(&mut self, change: &Change) {
        match change {
            Change::GangReserved { gang, reserved } => {
                self.set(*gang, reserved.at);
                self.places.insert(*gang, reserved.placement.clone());
            }
            Change::ReservationDropped { gang, .. }
            | Change::GangPlaced { gang, .. }
            | Change::GangFinished { gang, .. } => {
                self.set(*gang, None);
                self.places.remove(gang);
            }
            _ => {}
        }
    }

    pub(crate) fn is_promised(&self, gang: GangId) -> bool {
        self.by.contains_key(&gang)
    }

    /// Whether a gang has a reservation, and these slots contain none of its capacity.
    pub(crate) fn avoids_reservation(&self, gang: GangId, slots: &[Slot]) -> bool {
        let takes = |own: &Slot| {
            slots.iter().any(|slot| slot.node == own.node && !slot.devices.and(own.devices).is_empty())
        };
        self.places.get(&gang).is_some_and(|place| !place.slots.iter().any(takes))
    }

    /// The earliest reported time counts.
    fn set(&mut self, gang: GangId, at: Option<Timestamp>) {
        match at {
            Some(at) => {
                let said = self.by.entry(gang).or_insert(at);
                *said = at.min(*said);
            }
            None => {
                self.by.remove(&gang);
            }
        }
    }
}

impl Checker {
    pub(crate) fn check_promises(&mut self, found: &mut Vec<Violation>) {
        let all = std::mem::take(&mut self.promises.by);
        for (gang, at) in all {
            if self.may_be_overtaken(gang) || self.may_be_served_before(gang) {
                continue;
            }
            if self.is_strict && self.now > at {
                found.push(Violation::StartedLate { gang, at, now: self.now });
            } else {
                self.promises.by.insert(gang, at);
            }
        }
    }

    /// Whether a gang is pending that has a higher class, or that belongs to another queue which may reclaim the
    /// reserved capacity.
    fn may_be_overtaken(&self, gang: GangId) -> bool {
        let Some(job) = self.jobs.get(&gang.job) else { return true };
        let Some(class) = self.queues.class(job) else { return true };
        let living: BTreeSet<GangId> = self.living_gangs().collect();
        let waits = |other: &&Job| {
            let gangs = other.gang_ids();
            !self.turns.has_ended(other.id) && gangs.into_iter().any(|id| !living.contains(&id))
        };
        let is_owed = |other: &Job| other.queue != job.queue && self.queues.is_owed(&other.queue);
        let mut waiting = self.jobs.values().filter(waits);
        waiting.any(|other| self.queues.class(other).is_none_or(|of| of.rank > class.rank) || is_owed(other))
    }
}
