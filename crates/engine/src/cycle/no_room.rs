//! Gangs that were found to fit nowhere in this cycle. Request classes that differ in rank, service level or time limit
//! ask for the same: what was found for one of them holds for the others until capacity moves.

use phalanx_model::{GangId, Reason};

use super::run::Cycle;
use crate::queueing::RequestClassId;

/// Request classes without room, as long as the free capacity is the same.
#[derive(Debug, Default)]
pub(super) struct NoRoom {
    seen: Seen,
    found: Vec<(RequestClassId, Reason)>,
}

/// Free capacity in a cycle, which is the same if this is: starts and reservations so far, and the reservations that are
/// booked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    starts: usize,
    reservations: u64,
    booked: Vec<GangId>,
}

impl Cycle<'_> {
    /// Why a request class fits nowhere, if an equal gang was found to fit nowhere in the same free capacity.
    pub(super) fn known_no_room(&self, request: RequestClassId) -> Option<Reason> {
        let NoRoom { seen, found } = &self.no_room;
        if !self.closed.is_empty() || found.is_empty() || !self.is_as_seen(seen) {
            return None;
        }
        let pending = &self.draft.pending;
        let key = &pending.request(request).key;
        let is_equal = |(other, _): &&(RequestClassId, Reason)| pending.request(*other).key.gang == key.gang;
        found.iter().filter(|_| !key.is_patient).find(is_equal).map(|(_, reason)| reason.clone())
    }

    /// Records that a request class fits nowhere in the free capacity that was seen.
    pub(super) fn note_no_room(&mut self, seen: Seen, request: RequestClassId, reason: &Reason) {
        if !self.closed.is_empty() || self.draft.pending.request(request).key.is_patient {
            return;
        }
        if self.no_room.seen != seen {
            self.no_room = NoRoom { seen, found: Vec::new() };
        }
        self.no_room.found.push((request, reason.clone()));
    }

    pub(super) fn seen(&self) -> Seen {
        let (starts, reservations) = (self.chosen.len(), self.draft.reservations.version());
        Seen { starts, reservations, booked: self.booked().collect() }
    }

    fn is_as_seen(&self, seen: &Seen) -> bool {
        seen.starts == self.chosen.len()
            && seen.reservations == self.draft.reservations.version()
            && self.booked().eq(seen.booked.iter().copied())
    }

    /// Gangs whose reservations are booked.
    fn booked(&self) -> impl Iterator<Item = GangId> + '_ {
        self.draft.reservations.iter().filter(|(_, held)| held.is_booked()).map(|(id, _)| *id)
    }
}
