//! Capacity that is taken or reserved: the same amounts in devices, in the queues that are charged, and for pending
//! gangs.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;

use phalanx_model::{GangId, Placement};

use super::{Freed, Ledger};
use crate::cluster::{Pick, Space};
use crate::cycle::Reservation;
use crate::queueing::{Holder, ResourceList};

impl Ledger {
    /// The picks of a gang that holds capacity.
    pub(crate) fn picks(&self, gang: GangId) -> Option<&[Pick]> {
        let picks = self.picks.get(&gang)?;
        debug_assert!(
            self.gang(gang).zip(self.record(gang)).is_some_and(|(found, record)| record
                .held()
                .is_some_and(|held| self.tree.picks_of(&held, found) == *picks)),
            "what {gang} has is where it is"
        );
        Some(picks)
    }

    /// Charges the queue of a gang for the placement that the gang has, or is to have.
    pub(super) fn charge(&mut self, id: GangId, placement: &Placement) {
        let Some((job, gang)) = self.job(id.job).zip(self.gang(id)) else { return };
        let picks =
            self.picks.get(&id).map_or_else(|| Cow::Owned(self.tree.picks_of(placement, gang)), Cow::from);
        let mut amounts = self.queues.resources.held(&self.tree, self.queues.settings(), &picks, gang);
        if picks.iter().map(|pick| pick.members as usize).sum::<usize>() < placement.slots.len() {
            self.queues.resources.add_lost(&mut amounts, &self.tree, placement, gang);
        }
        let (holder_key, is_fixed) = (self.queues.holder_key_of(job, id), self.queues.is_fixed(job, id));
        let name = job.queue.clone();
        let queue = self.queues.ensure(&name);
        let (stays_until, leaves) = (self.stays_until(id), self.leaves(id));
        self.queues.charge(queue, holder_key, Holder { amounts, is_fixed, stays_until, leaves }, self.now);
    }

    pub(super) fn discharge(&mut self, id: GangId) {
        let Some((queue, job)) = self.queue_of(id.job).zip(self.job(id.job)) else { return };
        let holder_key = self.queues.holder_key_of(job, id);
        self.queues.discharge(queue, holder_key, self.now);
        let path = self.queues.path_to_root(queue);
        self.pending.room_again(path.into_iter());
    }

    /// Counts the free capacity again.
    pub(super) fn recount_space(&mut self) {
        self.space = Space::free_of(&self.tree);
        self.freed = Freed::All;
        self.picks.clear();
        self.on_nodes.clear();
        let held: Vec<(GangId, Placement)> = self
            .active()
            .filter_map(|(_, _, record)| Some((record.id, record.held()?.into_owned())))
            .collect();
        for (gang, placement) in &held {
            self.occupy(*gang, placement);
        }
        self.recount_moving();
        for reservation in self.reservations.drain().into_values() {
            self.queues.want(reservation.waits.0, &reservation.waits.1, false);
        }
        self.unbooked =
            self.active().filter(|(_, _, r)| r.reserved.is_some()).map(|(_, _, r)| r.id).collect();
    }

    /// Books observed reservations, in the order in which they were made.
    pub(crate) fn book_reservations(&mut self) {
        let of = |id: GangId| {
            let record = self.record(id)?;
            let job = self.job(id.job)?;
            Some((record.reserved.as_ref()?.made_at, Reverse(self.queues.rank_of(job)), id))
        };
        let unbooked: BTreeSet<_> = self.unbooked.iter().filter_map(|id| of(*id)).collect();
        self.unbooked.clear();
        unbooked.into_iter().for_each(|(.., id)| self.book_reservation(id));
    }

    /// The least amounts that a pending gang can do with, on the nodes that it may use.
    pub(crate) fn least_of(&self, id: GangId) -> Option<ResourceList> {
        let wanted = self.wanted(id)?;
        Some(self.queues.resources.least(&self.tree, self.queues.settings(), &wanted))
    }

    /// Books the reservation in the record of a pending gang.
    pub(super) fn book_reservation(&mut self, id: GangId) {
        let (Some(job), Some(gang), Some(record)) = (self.job(id.job), self.gang(id), self.record(id)) else {
            return;
        };
        let Some(reserved) = record.reserved.as_ref().filter(|_| record.is_pending()) else { return };
        let picks = self.tree.picks_of(&reserved.placement, gang);
        let rank = self.queues.rank_of(job);
        let mut reservation = Reservation::new(picks, gang, reserved.at, rank, reserved.made_at);
        let least = self.least_of(id).unwrap_or_default();
        let (name, preempts) = (job.queue.clone(), reserved.evicts);
        reservation.pending_since = record.pending_since;
        (reservation.preempts, reservation.waits) = (preempts, (self.queues.ensure(&name), least));
        reservation.level = self.queues.level_of(id);
        self.queues.want(reservation.waits.0, &reservation.waits.1, true);
        reservation.book(&self.tree, &mut self.space);
        self.reservations.insert(id, reservation);
    }

    /// Drops the reservation of a gang.
    pub(crate) fn drop_reservation(&mut self, gang: GangId) {
        let mut reservation = self.reservations.remove(gang);
        if let Some(reservation) = &mut reservation {
            reservation.unbook(&self.tree, &mut self.space);
            self.queues.want(reservation.waits.0, &reservation.waits.1, false);
            self.freed.add(reservation.nodes());
        }
        // A reservation that is not booked yet counts as used as well.
        if reservation.is_some() | self.unbooked.remove(&gang) {
            self.discharge(gang);
            self.replan = true;
            self.call_off_shrinks_for(gang);
        }
        if let Some(record) = self.record_mut(gang) {
            record.reserved = None;
        }
    }

    /// Records the picks of a gang that holds capacity.
    pub(super) fn holder_key(&mut self, id: GangId, placement: &Placement) {
        if let Some(gang) = self.gang(id) {
            let picks = self.tree.picks_of(placement, gang);
            self.set_picks(id, Some(picks));
        }
    }

    pub(super) fn take(&mut self, gang: GangId, placement: &Placement) {
        self.occupy(gang, placement);
        self.charge(gang, placement);
    }

    fn occupy(&mut self, gang: GangId, placement: &Placement) {
        let Some(found) = self.jobs.get(&gang.job).and_then(|e| e.job.gang_at(gang.index)) else {
            return;
        };
        let picks = self.tree.picks_of(placement, found);
        self.space.take(&self.tree, &picks, found);
        self.space.load(&self.tree, &picks, found, true);
        self.set_picks(gang, Some(picks));
    }

    /// Releases the capacity of a gang once its record no longer holds it. Plans again even if the gang held nothing:
    /// other gangs may have waited for it to go first.
    pub(super) fn give_back(&mut self, gang: GangId, held: Option<&Placement>) {
        self.replan = true;
        let Some(placement) = held else { return };
        self.discharge(gang);
        let picks = self.set_picks(gang, None);
        if let Some(found) = self.jobs.get(&gang.job).and_then(|e| e.job.gang_at(gang.index)) {
            let picks = picks.unwrap_or_else(|| self.tree.picks_of(placement, found));
            self.space.give_back(&self.tree, &picks, found);
            self.space.load(&self.tree, &picks, found, false);
            self.freed.add(picks.iter().map(|pick| pick.node));
        }
    }
}
