//! Reservations of a cycle: which of them start, which are given up, and which a candidate has to respect.

use std::cmp::Reverse;

use phalanx_model::{Gang, GangId, Reason, Reserved, Timestamp};

use super::draft::Draft;
use super::elastic::ElasticPlacement;
use super::joint_placement::Choice;
use super::reservation::Reservation;
use super::run::Cycle;
use crate::cluster::space::Pick;
use crate::placement::{Ceiling, placement};
use crate::queueing::{Holder, OrderKey, QueueAt, RequestClassId, ResourceList, longest_ms};

impl Cycle<'_> {
    /// A gang that has a reservation and can start goes first.
    pub(super) fn start_reserved(&mut self) {
        let order = self.reservations_in_order();
        for (order_key, id) in order.iter().copied().enumerate() {
            let Some(at) = self.draft.reservations.get(&id).map(|reservation| reservation.at) else {
                continue;
            };
            let is_gone = self.ledger.reserved_place_is_gone(id) || self.close_for_reserved(id);
            let started = !is_gone
                && (self.start_held(id, &[])
                    || self.start_held(id, order.get(order_key + 1..).unwrap_or_default()));
            // Preempted gangs hold the place until their last process is gone, however long that takes.
            let is_late =
                at.is_some_and(|at| at <= self.ledger.now()) && self.ledger.making_way_for(id).is_empty();
            if !started && self.draft.reservations.contains_key(&id) && (is_late || is_gone) {
                self.release(id);
                let why = if is_gone {
                    "a reserved node is not schedulable"
                } else {
                    "a job there did not end in time"
                };
                self.dropped.push((id, why.to_owned()));
            }
        }
    }

    /// Gangs that have a reservation, by whose turn it is: what was reserved earlier stays before what was reserved later.
    fn reservations_in_order(&self) -> Vec<GangId> {
        let (now, ageing_ms) = (self.ledger.now(), self.draft.queues.settings().ageing_ms);
        let place = |(id, reservation): (&GangId, &Reservation)| {
            let made_at = self.ledger.record(*id).and_then(|r| r.reserved.as_ref()).map(|r| r.made_at);
            let level = self.draft.queues.level_of(*id);
            let order_key = self.ledger.job(id.job).map(|job| OrderKey::of(job, *id, level, now, ageing_ms));
            (Reverse((reservation.is_entitled, reservation.rank)), made_at, order_key, *id)
        };
        let mut order: Vec<_> = self.draft.reservations.iter().map(place).collect();
        order.sort_unstable();
        order.into_iter().map(|(.., id)| id).collect()
    }

    /// Gives a reservation up.
    fn release(&mut self, id: GangId) {
        let tree = self.tree();
        if let Some(mut reservation) = self.draft.reservations.remove(id) {
            reservation.unbook(tree, &mut self.draft.space);
            self.draft.freed.add(reservation.nodes());
            // Gangs that may use that are looked for in the next cycle.
            self.unlikely.clear();
            self.draft.queues.want(reservation.waits.0, &reservation.waits.1, false);
            self.unclaim(id);
        }
    }

    /// What was counted as used for it is not any more.
    fn unclaim(&mut self, id: GangId) {
        let Some(job) = self.ledger.job(id.job) else { return };
        let queues = &mut self.draft.queues;
        if let Some(queue) = queues.find(&job.queue) {
            queues.discharge(queue, queues.holder_key_of(job, id), self.ledger.now());
            let path = self.draft.queues.path_to_root(queue);
            self.draft.pending.room_again(path.into_iter());
        }
    }

    /// Starts a gang that has a reservation: anywhere, if that is sooner; where others are preempted for it, there. What
    /// is reserved for those behind it, and promised for no time, does not stand in its way. Whether it started.
    fn start_held(&mut self, id: GangId, behind: &[GangId]) -> bool {
        let Some((gang, job)) = self.ledger.wanted(id).zip(self.ledger.job(id.job)) else { return false };
        let Some(mut own) = self.draft.reservations.lend(id) else { return false };
        own.unbook(self.tree(), &mut self.draft.space);
        self.unbook_behind(&own, longest_ms(&job.policy), behind);
        let found = self.place_reserved(id, &gang, &own);
        let mut started = false;
        if let (Some(found), Some(queue)) = (found, self.draft.queues.find(&job.queue)) {
            let preempts = self.ledger.cleared_place(id).is_some();
            let is_fixed = self.draft.queues.is_fixed(job, id);
            if preempts {
                // It was counted when the others were preempted.
                self.unclaim(id);
            }
            // One that changes its size does not grow into what came to be wanted meanwhile.
            let most = match self.ledger.resized_to(id).filter(|_| preempts) {
                Some(_) if self.is_anything_wanted() => Some(own.member_count()),
                resized @ Some(_) => resized,
                None if preempts => None,
                None => self.ledger.gang(id).map(|gang| gang.size),
            };
            let ElasticPlacement { gang, ceiling, picks, order, time_ns } =
                self.enlarged(id, queue, found, most.unwrap_or(0));
            match self.admit(queue, &gang, &picks, is_fixed) {
                // The queue may use less than when this was reserved.
                Err(full) => self.dropped.push((id, full.limit.to_string())),
                Ok(amounts) => {
                    let choice = Choice { gang: id, size: gang.size, ceiling, picks, order, time_ns };
                    // It may start elsewhere than where it was reserved.
                    self.draft.freed.add(own.nodes());
                    self.choose(choice, &gang, queue, Holder::new(amounts, is_fixed));
                    started = true;
                }
            }
        }
        let is_dropped = self.dropped.iter().any(|(dropped, _)| *dropped == id);
        let Draft { reservations, freed, queues, .. } = &mut self.draft;
        if is_dropped {
            freed.add(own.nodes());
        }
        if is_dropped || started {
            queues.want(own.waits.0, &own.waits.1, false);
            reservations.forget_lent();
        } else {
            reservations.take_back(id, own);
        }
        self.book_all();
        started
    }

    /// Leaves what other reservations keep to a gang that goes before them.
    fn unbook_behind(&mut self, own: &Reservation, span_ms: Option<u64>, behind: &[GangId]) {
        let (tree, now) = (self.tree(), self.ledger.now());
        let ends_at = span_ms.map(|span| now.plus(span));
        let Draft { reservations, space, .. } = &mut self.draft;
        for (id, other) in reservations.iter_mut() {
            // A place for which others were preempted is kept, and what is promised for a time.
            let is_behind = other.at.is_none() && behind.contains(id);
            // And a gang that goes before it did so when others were preempted.
            let was_first = own.preempts && other.yields_to(own.rank, own.is_entitled);
            let yields = !other.preempts && (is_behind || was_first || other.begins_after(ends_at));
            // Two that were promised the same, because there is less than there was: the first of them has it.
            let is_disputed =
                own.preempts && own.order_key() < other.order_key() && other.overlaps(&own.picks);
            if yields || is_disputed {
                other.unbook(tree, space);
            }
        }
    }

    /// Where a gang that has a reservation can start now.
    fn place_reserved(&mut self, id: GangId, gang: &Gang, own: &Reservation) -> Option<ElasticPlacement> {
        let tree = self.tree();
        let Draft { search, space, .. } = &mut self.draft;
        let ceiling = Ceiling(tree.level_of_required(gang));
        if self.ledger.cleared_place(id).is_none() {
            let found = search.place(tree, space, gang, ceiling)?;
            let (picks, order) = (search.picks().to_vec(), search.order().to_vec());
            return Some(ElasticPlacement {
                gang: gang.clone(),
                ceiling,
                picks,
                order,
                time_ns: found.cost.time_ns,
            });
        }
        // Free when the last process of those that were preempted is gone.
        let sized = if gang.is_elastic() { gang.of_size(own.member_count()) } else { gang.clone() };
        space.has_room(tree, gang, &own.picks).then(|| ElasticPlacement {
            gang: sized,
            ceiling,
            picks: own.picks.clone(),
            order: Vec::new(),
            time_ns: 0,
        })
    }

    /// Books or unbooks reservations, by what a candidate has to respect: it may use what is reserved only if it has ended
    /// by then, or goes before the gang that it is reserved for.
    pub(super) fn book_against(&mut self, request: RequestClassId, queue: QueueAt) {
        let now = self.ledger.now();
        let ends_at = self.draft.pending.request(request).key.span_ms.map(|span| now.plus(span));
        self.book_where(request, queue, |reservation| !reservation.begins_after(ends_at));
    }

    /// The same for a place that is to be reserved: it may be used for longer than until other reservations begin.
    pub(super) fn book_against_future(&mut self, request: RequestClassId, queue: QueueAt) {
        self.book_where(request, queue, |_| true);
    }

    fn book_where(
        &mut self,
        request: RequestClassId,
        queue: QueueAt,
        is_in_the_way: impl Fn(&Reservation) -> bool,
    ) {
        let tree = self.tree();
        let Draft { pending, reservations, space, queues, .. } = &mut self.draft;
        let asked = pending.request(request);
        let (rank, level) = (asked.key.rank, asked.key.level);
        let is_entitled = queues.is_within_a_guarantee(queue, &asked.least);
        for reservation in reservations.values_mut() {
            let yields = reservation.yields_to(rank, is_entitled)
                || reservation.had_more(queue, (rank, level), is_entitled);
            if !yields && is_in_the_way(reservation) {
                reservation.book(tree, space);
            } else {
                reservation.unbook(tree, space);
            }
        }
    }

    /// Every reservation is booked.
    pub(super) fn book_all(&mut self) {
        let tree = self.tree();
        let Draft { reservations, space, .. } = &mut self.draft;
        reservations.values_mut().for_each(|reservation| reservation.book(tree, space));
    }

    /// For which gang capacity is reserved, if the gang would fit without that.
    pub(super) fn held_for(&mut self, gang: &Gang) -> Option<Reason> {
        let tree = self.tree();
        let Draft { reservations, space, search, .. } = &mut self.draft;
        let booked: Vec<GangId> = reservations
            .iter()
            .filter(|(_, reservation)| reservation.is_booked())
            .map(|(id, _)| *id)
            .collect();
        let ahead = *booked.first()?;
        reservations.values_mut().for_each(|reservation| reservation.unbook(tree, space));
        let fits = search.place(tree, space, gang, Ceiling(tree.level_of_required(gang))).is_some();
        for id in &booked {
            if let Some(reservation) = reservations.get_mut(*id) {
                reservation.book(tree, space);
            }
        }
        let at = reservations.get(&ahead).and_then(|reservation| reservation.at);
        fits.then_some(Reason::Priority { ahead, at })
    }

    pub(super) fn evicts(&self, id: GangId) -> bool {
        self.ledger.cleared_place(id).is_some()
            || self.reserved.iter().any(|(gang, reserved, _)| *gang == id && reserved.evicts)
    }

    /// Reserves a place for a gang from now on.
    pub(super) fn hold(&mut self, id: GangId, gang: &Gang, rank: i32, place: ReservedPlacement) {
        let tree = self.tree();
        let ReservedPlacement { picks, order, at, evicts } = place;
        let Some(placement) = placement(tree, &picks, &order, gang) else { return };
        // What is reserved for a gang behind it is not reserved any more.
        for behind in self.draft.reservations.overlapping(&picks) {
            self.release(behind);
            self.reserved.retain(|(reserved, ..)| *reserved != behind);
            let name = self.ledger.job(id.job).map_or("", |job| job.name.as_str());
            self.dropped.push((
                behind,
                format!("job {} ({name}) reserved the capacity first in the queue order", id.job),
            ));
        }
        let Draft { space, reservations, pending, queues, .. } = &mut self.draft;
        let request = pending.place_of(id).map(|place| pending.request(place.request));
        let reason = request.map_or(Reason::None, |request| request.reason.clone());
        let least = request.map_or_else(ResourceList::new, |request| request.least.clone());
        let waited = pending.delist(queues, id);
        let made_at = self.ledger.now();
        let mut reservation = Reservation::new(picks, gang, at, rank, made_at);
        (reservation.preempts, reservation.level) = (evicts, queues.level_of(id));
        if let Some(place) = waited {
            // It waits all the same, and what is owed as much does not yield to another in this very cycle.
            reservation.is_entitled = queues.is_within_a_guarantee(place.queue, &least);
            reservation.waits = (place.queue, least);
            queues.want(place.queue, &reservation.waits.1, true);
        }
        reservation.book(tree, space);
        reservations.insert(id, reservation);
        self.reserved.push((id, Reserved { placement, at, evicts, made_at }, reason));
    }
}

/// A place to be reserved.
pub(super) struct ReservedPlacement {
    pub(super) picks: Vec<Pick>,
    pub(super) order: Vec<u32>,
    pub(super) at: Option<Timestamp>,
    pub(super) evicts: bool,
}
