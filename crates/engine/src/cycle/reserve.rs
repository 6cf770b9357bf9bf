//! Reservations of a cycle: which of their gangs start, which are released, and which a candidate has to respect.

use std::cmp::Reverse;

use phalanx_model::{Gang, GangId, GangRecord, Phase, Reason, Reserved, StopStage, Timestamp};

use super::KILL_AGAIN_MS;
use super::draft::Draft;
use super::elastic::ElasticPlacement;
use super::facts::Facts;
use super::joint_placement::Choice;
use super::reservation::Reservation;
use super::run::Cycle;
use crate::cluster::space::Pick;
use crate::placement::{Ceiling, placement};
use crate::queueing::{Holder, OrderKey, QueueAt, RequestClassId, ResourceList, longest_ms};

/// What came of the start of a gang that has a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    Started,
    /// Gangs that make way are still there.
    Waits,
    Failed,
}

impl Cycle<'_> {
    /// Starts each gang that has a reservation and can start, before any other gang.
    pub(super) fn start_reserved(&mut self) {
        let order = self.reservations_in_order();
        for (order_key, id) in order.iter().copied().enumerate() {
            let Some(at) = self.draft.reservations.get(&id).map(|reservation| reservation.at) else {
                continue;
            };
            if self.is_as_before(id) {
                continue;
            }
            let is_gone = self.reserved_place_is_gone(id) || self.close_for_reserved(id);
            let mut tried = if is_gone { Tried::Failed } else { self.start_held(id, &[]) };
            if !is_gone && tried == Tried::Failed {
                tried = self.start_held(id, order.get(order_key + 1..).unwrap_or_default());
            }
            // Preempted gangs hold the placement until their last process is gone, however long that takes.
            let is_late = at.is_some_and(|at| self.is_late(id, at)) && self.ledger.victims_of(id).is_empty();
            let has_failed = tried == Tried::Failed && self.draft.reservations.contains_key(&id);
            if has_failed && (is_late || is_gone) {
                self.release(id);
                let why = if is_gone {
                    "a reserved node is not schedulable for it"
                } else {
                    "a job there did not end in time"
                };
                self.dropped.push((id, why.to_owned()));
            }
        }
    }

    /// Whether a reserved placement should be free by now. Gangs that are killed at the time of a reservation take a moment to
    /// be gone, for which a gang waits that would be scattered elsewhere.
    fn is_late(&mut self, id: GangId, at: Timestamp) -> bool {
        let (now, late_at) = (self.ledger.now(), at.plus(KILL_AGAIN_MS));
        let picks = self.draft.reservations.get(&id).map_or(&[][..], |reservation| &reservation.picks);
        let is_killed = |gang: GangId| {
            let phase = self.ledger.record(gang).map(|record| &record.phase);
            matches!(phase, Some(Phase::Stopping { stage: StopStage::Killed, .. }))
        };
        let is_there = |gang: GangId| {
            let mut held = self.ledger.picks(gang).unwrap_or_default().iter();
            held.any(|held| picks.iter().any(|pick| pick.node == held.node))
        };
        let waits = self.ledger.gang(id).is_some_and(super::far::waits);
        let mut stopping = self.ledger.about_to_be_gone().map(|(gang, _)| gang).filter(|_| waits);
        if now < at || late_at <= now || !stopping.any(|gang| is_killed(gang) && is_there(gang)) {
            return at <= now;
        }
        self.again_at = self.again_at.min(late_at);
        false
    }

    /// Whether nothing came free since a gang was found not to start: it has a placement reserved for which nobody makes way,
    /// and for no time that is over.
    fn is_as_before(&self, id: GangId) -> bool {
        let Some(reservation) = self.draft.reservations.get(&id) else { return true };
        let is_checked = reservation.checked_at == Some(self.ledger.hardware_version());
        let is_early = reservation.at.is_none_or(|at| at > self.ledger.now());
        is_checked
            && is_early
            && !reservation.preempts
            && self.draft.freed.is_nothing()
            && self.ledger.windows().is_clear(None)
    }

    /// Whether a node of a reservation takes no work any more. The nodes are checked again only if the hardware
    /// changed.
    fn reserved_place_is_gone(&mut self, id: GangId) -> bool {
        let version = self.ledger.hardware_version();
        let Some(reservation) = self.draft.reservations.get_mut(id) else { return false };
        if reservation.checked_at == Some(version) {
            return false;
        }
        let is_gone = self.ledger.reserved_place_is_gone(id);
        reservation.checked_at = Some(version).filter(|_| !is_gone);
        is_gone
    }

    /// Gangs that have a reservation, in their order: of equal gangs, the earlier reservation stays before the later.
    pub(super) fn reservations_in_order(&self) -> Vec<GangId> {
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

    /// Releases a reservation.
    pub(super) fn release(&mut self, id: GangId) {
        let tree = self.tree();
        self.reopened.most = None;
        if let Some(mut reservation) = self.draft.reservations.remove(id) {
            reservation.unbook(tree, &mut self.draft.space);
            self.draft.freed.add(reservation.nodes());
            // The next cycle finds the gangs that may use this capacity.
            self.unlikely.clear();
            self.draft.queues.want(reservation.waits.0, &reservation.waits.1, false);
            self.unclaim(id);
        }
    }

    /// Discharges the capacity that was counted as used for a gang, and returns it.
    fn unclaim(&mut self, id: GangId) -> Option<Holder> {
        let job = self.ledger.job(id.job)?;
        let queues = &mut self.draft.queues;
        let queue = queues.find(&job.queue)?;
        let claimed = queues.discharge(queue, queues.holder_key_of(job, id), self.ledger.now());
        let path = self.draft.queues.path_to_root(queue);
        self.draft.pending.room_again(path.into_iter());
        claimed
    }

    /// Starts a gang that has a reservation: anywhere, if that is sooner; in its reserved placement, if gangs are
    /// preempted for it. Reservations of gangs behind it that are promised for no time do not block it.
    fn start_held(&mut self, id: GangId, behind: &[GangId]) -> Tried {
        let wanted = self.ledger.wanted(id).zip(self.ledger.job(id.job));
        let Some((gang, job)) = wanted else { return Tried::Failed };
        if self.waits_for_victims(id) {
            return Tried::Waits;
        }
        let Some(mut own) = self.draft.reservations.lend(id) else { return Tried::Failed };
        own.unbook(self.tree(), &mut self.draft.space);
        self.unbook_behind(id, &own, longest_ms(&job.policy), behind);
        let found = self.place_reserved(id, &gang, &mut own);
        let mut tried = Tried::Failed;
        if let (Some(found), Some(queue)) = (found, self.draft.queues.find(&job.queue)) {
            let preempts = self.ledger.cleared_place(id).is_some();
            let is_fixed = self.draft.queues.is_fixed(job, id);
            // The placement was counted as used when the other gangs were preempted.
            let claimed = if preempts { self.unclaim(id) } else { None };
            // A gang that changes its size does not grow into capacity that other gangs have come to want meanwhile.
            let most = match self.ledger.resized_to(id).filter(|_| preempts) {
                Some(_) if self.is_anything_wanted() => Some(own.member_count()),
                resized @ Some(_) => resized,
                None if preempts => None,
                None => self.ledger.gang(id).map(|gang| gang.size),
            };
            let ElasticPlacement { gang, ceiling, picks, order, time_ns } =
                self.enlarged(id, queue, found, most.unwrap_or(0));
            let admitted = if preempts {
                self.admit_cleared(queue, &gang, &picks, is_fixed)
            } else {
                self.admit(queue, &gang, &picks, is_fixed).map(Some)
            };
            match admitted {
                // The queue may be allowed less than when the placement was reserved.
                Err(full) => self.dropped.push((id, full.limit.to_string())),
                Ok(None) => {
                    let holder_key = self.draft.queues.holder_key_of(job, id);
                    if let Some(claimed) = claimed {
                        self.charge(queue, holder_key, claimed);
                    }
                    tried = Tried::Waits;
                }
                Ok(Some(amounts)) => {
                    let choice = Choice { gang: id, size: gang.size, ceiling, picks, order, time_ns };
                    // The gang may start elsewhere than in its reserved placement.
                    self.draft.freed.add(own.nodes());
                    self.choose(choice, &gang, queue, Holder::new(amounts, is_fixed));
                    tried = Tried::Started;
                }
            }
        }
        let is_dropped = self.dropped.iter().any(|(dropped, _)| *dropped == id);
        let Draft { reservations, freed, queues, .. } = &mut self.draft;
        if is_dropped {
            freed.add(own.nodes());
        }
        if is_dropped || tried == Tried::Started {
            queues.want(own.waits.0, &own.waits.1, false);
            reservations.forget_lent();
        } else {
            reservations.take_back(id, own);
        }
        self.book_all();
        tried
    }

    /// Whether gangs still end on the nodes for whose capacity they are preempted. Their queues are not charged for them
    /// any more, so the gang may go before more reservations by now than when it found its placement: it would start in
    /// what these are promised, and the others would have been preempted for nothing.
    fn waits_for_victims(&self, id: GangId) -> bool {
        victims_in_place(self.ledger, id).any(|victim| matches!(victim.phase, Phase::Stopping { .. }))
    }

    /// Unbooks the reservations that yield to a gang that has a reservation of its own.
    fn unbook_behind(&mut self, id: GangId, own: &Reservation, span_ms: Option<u64>, behind: &[GangId]) {
        let (tree, now) = (self.tree(), self.ledger.now());
        let ends_at = span_ms.map(|span| now.plus(span));
        let ledger = self.ledger;
        let is_cleared = own.preempts && victims_in_place(ledger, id).next().is_none();
        let share_milli = self.draft.queues.hold_idle_milli();
        let Draft { reservations, space, .. } = &mut self.draft;
        for (id, other) in reservations.iter_mut() {
            // A placement for which gangs were preempted is kept, and so is one that is promised for a time.
            let is_behind = other.at.is_none() && behind.contains(id);
            // A gang that goes before the other already did so when gangs were preempted for it.
            let was_first = own.preempts && other.yields_to(own.rank, own.is_entitled);
            let yields =
                !other.preempts && (is_behind || was_first || other.begins_after(ends_at, share_milli));
            // If the same capacity was promised to two gangs, because the cluster has lost capacity, the first of them
            // has it.
            let is_first = own.preempts && own.order_key() < other.order_key();
            let is_disputed = is_first && other.overlaps(&own.picks);
            // The placement was found beside what was promised before, and what was promised after was found beside it.
            // So capacity that the other gang waits for is not counted against a placement that its victims have left.
            let waits = !other.preempts || is_first || victims_in_place(ledger, *id).next().is_some();
            if yields || is_disputed || is_cleared && waits {
                other.unbook(tree, space);
            }
        }
    }

    /// The placement in which a gang that has a reservation can start now.
    fn place_reserved(&mut self, id: GangId, gang: &Gang, own: &mut Reservation) -> Option<ElasticPlacement> {
        let tree = self.tree();
        let Draft { search, space, .. } = &mut self.draft;
        let ceiling = Ceiling(tree.level_of_required(gang));
        if self.ledger.cleared_place(id).is_none() {
            own.nearer = None;
            let found = search.place(tree, space, gang, ceiling)?;
            let (picks, order) = (search.picks().to_vec(), search.order().to_vec());
            own.nearer = self.waits_for_reserved(id, gang, own, (&picks, found.cost.time_ns));
            if own.nearer.is_some() {
                return None;
            }
            return Some(ElasticPlacement {
                gang: gang.clone(),
                ceiling,
                picks,
                order,
                time_ns: found.cost.time_ns,
            });
        }
        // The placement is free when the last process of the preempted gangs is gone.
        let sized = if gang.is_elastic() { gang.of_size(own.member_count()) } else { gang.clone() };
        space.has_room(tree, gang, &own.picks).then(|| ElasticPlacement {
            gang: sized,
            ceiling,
            picks: own.picks.clone(),
            order: Vec::new(),
            time_ns: 0,
        })
    }

    /// Books the reservations that a candidate has to respect, and unbooks the others: a candidate may use reserved
    /// capacity only if the candidate ends before the reservation begins, or goes before its gang.
    pub(super) fn book_against(&mut self, request: RequestClassId, queue: QueueAt) {
        let now = self.ledger.now();
        let ends_at = self.draft.pending.request(request).key.span_ms.map(|span| now.plus(span));
        let share_milli = self.draft.queues.hold_idle_milli();
        self.book_where(request, queue, |reservation| !reservation.begins_after(ends_at, share_milli));
    }

    /// The same for a placement that is to be reserved: its use may last past the begin of other reservations.
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

    /// Books every reservation.
    pub(super) fn book_all(&mut self) {
        let tree = self.tree();
        let Draft { reservations, space, .. } = &mut self.draft;
        reservations.values_mut().for_each(|reservation| reservation.book(tree, space));
    }

    /// The reason that names the gang for which capacity is reserved, if this gang would fit without that reservation.
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

    /// Reserves a placement for a gang from now on.
    pub(super) fn hold(&mut self, id: GangId, gang: &Gang, rank: i32, place: ReservedPlacement) {
        let tree = self.tree();
        self.reopened.most = None;
        let ReservedPlacement { picks, order, at, evicts } = place;
        let Some(placement) = placement(tree, &picks, &order, gang) else { return };
        // A gang behind this one loses its reservation of the same devices.
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
        reservation.pending_since = self.ledger.record(id).map_or(made_at, |record| record.pending_since);
        if let Some(place) = waited {
            // The gang still waits, and a gang with an equal entitlement does not take its placement in this very
            // cycle.
            reservation.is_entitled = queues.is_within_a_guarantee(place.queue, &least);
            reservation.waits = (place.queue, least);
            queues.want(place.queue, &reservation.waits.1, true);
        }
        reservation.book(tree, space);
        reservations.insert(id, reservation);
        self.reserved.push((id, Reserved { placement, at, evicts, made_at }, reason));
    }
}

/// A placement to be reserved.
pub(super) struct ReservedPlacement {
    pub(super) picks: Vec<Pick>,
    pub(super) order: Vec<u32>,
    pub(super) at: Option<Timestamp>,
    pub(super) evicts: bool,
}

/// Gangs that make way for a gang, and still hold something on nodes of its reservation. Others do so for a reservation
/// that it had before, or their last members are elsewhere.
fn victims_in_place(ledger: &dyn Facts, id: GangId) -> impl Iterator<Item = &GangRecord> {
    let reserved = ledger.record(id).and_then(|record| record.reserved.as_ref());
    let is_there = move |victim: &&GangRecord| {
        let held = victim.held();
        let mut nodes = held.iter().flat_map(|held| &held.slots).map(|slot| &slot.node);
        let own = reserved.iter().flat_map(|reserved| &reserved.placement.slots).map(|slot| &slot.node);
        nodes.any(|node| own.clone().any(|own| own == node))
    };
    ledger.victims_of(id).into_iter().filter_map(|victim| ledger.record(victim)).filter(is_there)
}
