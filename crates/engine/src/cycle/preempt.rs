//! Preemption: which gangs are preempted for a gang that may preempt them, and for which placement.
//!
//! No gang is preempted unless the placement that this frees is reserved in the same step. [`super::candidates`] lists
//! the gangs that may be preempted, [`crate::preemption`] chooses the placement and its victims together, and this file
//! decides whether the preempting gang may have both.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{Gang, GangId, Phase, Placement, Preemption, Resize, StopCause, Timestamp};

use super::draft::{Draft, Freed};
use super::facts::request_key;
use super::reserve::ReservedPlacement;
use super::run::Cycle;
use crate::cluster::Pick;
use crate::placement::Ceiling;
use crate::preemption::{Candidate, Selected, select};
use crate::queueing::{
    Contender, Full, Holder, HolderKey, Next, OrderKey, QueueAt, RequestClassId, ResourceList,
};

/// Gangs for which no victims are found (`FAILURES_MAX`), and for which victims are found (`SUCCESSES_MAX`), in one step.
const FAILURES_MAX: u32 = 8;
const SUCCESSES_MAX: u32 = 64;
/// Candidates that are compared in one step, counted once for each gang that they are compared for. The first gang is
/// always tried.
const COMPARED_MAX: usize = 128;
/// Gangs for which one cycle checks whether there is any candidate.
const LOOKS_MAX: usize = 64;

/// The cost of preemption so far in one step. The scheduling cycles of a step share its limits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    successes: u32,
    failures: u32,
    compared: usize,
}

impl Spent {
    /// Whether the step may try no other gang; the next step goes on.
    const fn is_all(self) -> bool {
        self.failures >= FAILURES_MAX || self.successes >= SUCCESSES_MAX || self.compared >= COMPARED_MAX
    }
}

/// How other gangs release capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Whole gangs, by a preemption rule, and now.
    Preempt,
    /// Surplus members, at the next boundary of their gangs.
    Shrink,
}

impl<'a> Cycle<'a> {
    /// Seeks victims for pending gangs whose request class fits nowhere, and for which no victims were sought yet.
    pub(super) fn preempt_for_closed(&mut self) {
        for _ in 0..LOOKS_MAX {
            let Draft { pending, queues, .. } = &mut self.draft;
            let Some(mut next) = pending.first_untried(queues) else { return };
            if self.spent.is_all() {
                break;
            }
            if !self.is_worth_a_try(next.request, next.queue, next.gang()) && !self.may_shrink_somebody() {
                self.draft.pending.tried(next.request, next.queue);
                continue;
            }
            let gang = self.draft.pending.request(next.request).key.gang.clone();
            self.close_for(next.request);
            // As many gangs of this queue as find victims: the first that finds none ends this.
            while self.preempt_for(next, &gang) {
                let Draft { pending, queues, .. } = &self.draft;
                let Some(behind) = pending.next_of(queues, next.request, next.queue) else { break };
                next = behind;
            }
        }
        self.goes_on = true;
    }

    /// Seeks victims for gangs that wait for the time of their reservation: gangs that could not be preempted when a
    /// placement was reserved may be preemptible by now.
    pub(super) fn preempt_for_reserved(&mut self) {
        if self.draft.freed != Freed::All {
            return;
        }
        for id in self.reservations_in_order() {
            if self.spent.is_all() {
                self.goes_on = true;
                break;
            }
            if self.draft.reservations.get(&id).is_some_and(|held| !held.preempts) {
                self.preempt_sooner(id);
            }
        }
        self.open_all();
        self.book_all();
    }

    /// Preempts other gangs for a gang that has a placement reserved, if it may and that is enough: then it has the
    /// placement that they leave, and no longer its own. While victims are sought it is pending without a reservation.
    fn preempt_sooner(&mut self, id: GangId) {
        let (tree, ledger, now) = (self.tree(), self.ledger, self.ledger.now());
        let Some((job, key)) = ledger.job(id.job).zip(request_key(ledger, &self.draft.queues, id)) else {
            return;
        };
        let Some(mut own) = self.draft.reservations.lend(id) else { return };
        let Draft { queues, pending, space, .. } = &mut self.draft;
        own.unbook(tree, space);
        let (queue, least) = &own.waits;
        queues.want(*queue, least, false);
        let order_key = OrderKey::of(job, id, key.level, now, queues.settings().ageing_ms);
        let (gang, class) = (key.gang.clone(), key.rank);
        pending.enlist(queues, tree, key, *queue, order_key);
        if let Some(place) = pending.place_of(id) {
            let rank = queues.rank_in(*queue, &pending.request(place.request).least, class, order_key);
            let next = Next { rank, request: place.request, queue: *queue };
            self.close_for(next.request);
            // No gang is preempted for one that could start farther apart.
            if self.is_worth_a_try(next.request, *queue, id) && !self.fits_beside(next, &gang) {
                if self.free_place_for(next, &gang, Way::Preempt) {
                    self.spent.successes += 1;
                    return self.draft.reservations.forget_lent();
                }
                self.spent.failures += 1;
            }
        }
        let Draft { queues, pending, reservations, .. } = &mut self.draft;
        pending.delist(queues, id);
        queues.want(own.waits.0, &own.waits.1, true);
        reservations.take_back(id, own);
    }

    /// Whether a gang fits now beside the reservations that it has to respect.
    fn fits_beside(&mut self, next: Next, gang: &Gang) -> bool {
        self.book_against_future(next.request, next.queue);
        let (tree, Draft { search, space, .. }) = (self.tree(), &mut self.draft);
        search.place(tree, space, gang, Ceiling(tree.level_of_required(gang))).is_some()
    }

    /// Preempts or shrinks other gangs for a gang that fits nowhere, if it may and that is enough. Returns whether it
    /// did.
    pub(super) fn preempt_for(&mut self, next: Next, gang: &Gang) -> bool {
        if !self.draft.pending.is_untried(next.request, next.queue) {
            return false;
        }
        let is_worth_it = self.is_worth_a_try(next.request, next.queue, next.gang());
        let ways = [(Way::Preempt, is_worth_it), (Way::Shrink, self.may_shrink_somebody())];
        if ways.iter().all(|(_, is_worth_it)| !is_worth_it) {
            self.draft.pending.tried(next.request, next.queue);
            return false;
        }
        if self.spent.is_all() {
            self.goes_on = true;
            return false;
        }
        self.book_against_future(next.request, next.queue);
        let is_found = ways.into_iter().any(|(way, may)| may && self.free_place_for(next, gang, way));
        if is_found {
            self.spent.successes += 1;
        } else {
            self.spent.failures += 1;
            self.draft.pending.tried(next.request, next.queue);
        }
        is_found
    }

    /// Whether the gang may preempt at all, and a gang holds capacity that is entitled to less than this gang could be
    /// at best. (There may still be no victims.)
    fn is_worth_a_try(&mut self, request: RequestClassId, queue: QueueAt, gang: GangId) -> bool {
        let Draft { queues, pending, .. } = &mut self.draft;
        let asked = pending.request(request);
        let (rank, level) = (asked.key.rank, asked.key.level);
        if queues.is_unrivalled(queue, rank) && !queues.has_served_more(queue, rank, level) {
            return false;
        }
        queues.count_anew();
        let from = queues.first_below(queue, (rank, level), &asked.least, self.ledger.now());
        let may_preempt =
            || self.ledger.job(gang.job).and_then(|job| queues.class_of(job)).is_some_and(|c| c.may_preempt);
        let is_calm = || self.ledger.was_just_preempted(gang);
        let Some(from) = from.filter(|_| may_preempt() && !is_calm()) else { return false };
        if from > self.ledger.now() {
            self.again_at = self.again_at.min(from);
        }
        from <= self.ledger.now()
    }

    pub(super) fn may_shrink_somebody(&self) -> bool {
        self.ledger.shrinkable().next().is_some()
    }

    fn free_place_for(&mut self, next: Next, gang: &Gang, way: Way) -> bool {
        let id = next.gang();
        let Some(job) = self.ledger.job(id.job) else { return false };
        let queues = &mut self.draft.queues;
        queues.count_anew();
        let grace_max_ms = queues.class_of(job).and_then(|class| class.grace_max_ms);
        let is_fixed = queues.is_fixed(job, id);
        let least = Holder::new(self.draft.pending.request(next.request).least.clone(), is_fixed);
        let holder_key = queues.holder_key_of(job, id);
        let entitlement = queues.entitlement_with(next.queue, holder_key, &least);
        let wants = Contender { queue: next.queue, entitlement };
        let claim = queues.claim_of(next.queue, &least.amounts);
        let candidates = match way {
            Way::Preempt => self.candidates(wants, &claim),
            Way::Shrink => self.spare_members(wants),
        };
        self.spent.compared += candidates.len();
        let found = self.select_near(next.request, id, gang, candidates);
        let found = found.filter(|(place, _)| !self.is_barred(next.request, place));
        let Some((place, mut victims)) = found else { return false };
        let left = self.left_of(&victims);
        let queues = &self.draft.queues;
        let amounts = queues.resources.held(self.tree(), queues.settings(), &place.picks, gang);
        // If the request admits several device models, the placement may hold more than the least that the gang was
        // judged by.
        let holder = Holder::new(amounts, is_fixed);
        let (wants, claim) = if holder.amounts == least.amounts {
            (wants, claim)
        } else {
            let entitlement = queues.entitlement_with(next.queue, holder_key, &holder);
            (Contender { entitlement, ..wants }, queues.claim_of(next.queue, &holder.amounts))
        };
        let has_rule = |victim: &Candidate<'_>| match way {
            Way::Preempt => queues.rule(wants, victim.contender, &claim).is_some(),
            Way::Shrink => {
                queues.may_shrink(wants, victim.contender)
                    && left.get(&victim.id).is_some_and(Option::is_some)
            }
        };
        let may = victims.iter().all(has_rule);
        let mut seen = BTreeSet::new();
        victims.retain(|victim| seen.insert(victim.id));
        if !may || !self.has_room_without(&victims, &left, next.queue, &holder) {
            return false;
        }
        let latest = grace_max_ms.map_or(Timestamp::MAX, |most| self.ledger.now().plus(most));
        // The time of a boundary is not known.
        let at = place.at.filter(|_| way == Way::Preempt).map(|at| at.min(latest));
        self.claim(next, gang, ReservedPlacement { at, ..place }, holder);
        for victim in victims {
            if let Some(keeps) = left.get(&victim.id).cloned().flatten() {
                let size = u32::try_from(keeps.slots.len()).unwrap_or(u32::MAX);
                self.shrunk.push((victim.id, Resize { size, keeps, by: Some(id) }));
            }
            if way == Way::Shrink {
                continue;
            }
            // The preemption rule of the actual amounts may differ from the rule of the least that was judged at first.
            let Some(rule_kind) = self.draft.queues.rule(wants, victim.contender, &claim) else { continue };
            let rule = self.draft.queues.named_rule(rule_kind, wants, victim.contender, &claim);
            let shrinks = left.get(&victim.id).is_some_and(Option::is_some);
            if let Some(job) = self.ledger.job(victim.id.job).filter(|_| !shrinks) {
                let holder_key = self.draft.queues.holder_key_of(job, victim.id);
                self.draft.queues.stay(victim.contender.queue, holder_key, Timestamp::MAX, true);
            }
            let (at, lost_device_ms) = (self.ledger.now(), victim.lost_device_ms);
            self.preempted.push((victim.id, Preemption { by: id, rule, at, lost_device_ms, grace_max_ms }));
        }
        true
    }

    /// Whether the queue has room after these gangs were preempted.
    fn has_room_without(
        &mut self,
        victims: &[Candidate<'_>],
        left: &BTreeMap<GangId, Option<Placement>>,
        queue: QueueAt,
        holder: &Holder,
    ) -> bool {
        let (tree, now) = (self.tree(), self.ledger.now());
        let as_counted = self.draft.queues.as_counted();
        // As when the gang starts ([`Self::admit_cleared`]).
        let leaving = self.uncount_leaving();
        let queues = &mut self.draft.queues;
        let mut gone = Vec::new();
        for victim in victims {
            let Some((job, gang)) = self.ledger.job(victim.id.job).zip(self.ledger.gang(victim.id)) else {
                continue;
            };
            let (at, holder_key) = (victim.contender.queue, queues.holder_key_of(job, victim.id));
            let Some(had) = queues.discharge(at, holder_key, now) else { continue };
            if let Some(Some(keeps)) = left.get(&victim.id) {
                let amounts =
                    queues.resources.held(tree, queues.settings(), &tree.picks_of(keeps, gang), gang);
                queues.charge(at, holder_key, Holder { amounts, ..had }, now);
            }
            gone.push((at, holder_key, had));
        }
        let has_room = queues.room(queue, &holder.amounts, holder.is_fixed).is_ok();
        for (at, holder_key, had) in gone {
            queues.discharge(at, holder_key, now);
            queues.charge(at, holder_key, had, now);
        }
        self.count_again(leaving);
        self.draft.queues.counts_as(as_counted);
        has_room
    }

    /// Checks that the queue has room for a gang in the placement that others made way for. Gangs that still make way for
    /// other gangs do not count: their capacity is charged for those already, and would be counted twice. Nothing while
    /// the queue would exceed a limit with them: the gang waits until they are gone.
    pub(super) fn admit_cleared(
        &mut self,
        queue: QueueAt,
        gang: &Gang,
        picks: &[Pick],
        is_fixed: bool,
    ) -> Result<Option<ResourceList>, Full> {
        let as_counted = self.draft.queues.as_counted();
        let gone = self.uncount_leaving();
        let admitted = self.admit(queue, gang, picks, is_fixed);
        self.count_again(gone);
        self.draft.queues.counts_as(as_counted);
        admitted.map(|amounts| {
            let is_within = self.draft.queues.within_limits(queue, &amounts).is_ok();
            is_within.then_some(amounts)
        })
    }

    /// Discharges the queues of all gangs that make way for gangs that are charged already.
    fn uncount_leaving(&mut self) -> Vec<(QueueAt, HolderKey, Holder)> {
        let (ledger, now) = (self.ledger, self.ledger.now());
        let preempting = self.draft.reservations.iter().filter(|(_, reservation)| reservation.preempts);
        // A gang that moves comes back, and so its queue goes on to be charged for it.
        let is_stopping = |victim: &GangId| {
            let phase = ledger.record(*victim).map(|record| &record.phase);
            matches!(phase, Some(Phase::Stopping { cause, .. }) if !matches!(cause, StopCause::Moved { .. }))
        };
        let stopping = preempting.flat_map(|(id, _)| ledger.victims_of(*id)).filter(is_stopping);
        let is_whole = |id: &GangId| self.shrunk.iter().all(|(shrunk, _)| shrunk != id);
        let preempted = self.preempted.iter().map(|(id, _)| *id).filter(is_whole);
        let leaving: BTreeSet<GangId> = stopping.chain(preempted).collect();
        let queues = &mut self.draft.queues;
        let mut gone = Vec::new();
        for id in leaving {
            let Some(job) = ledger.job(id.job) else { continue };
            let (Some(at), holder_key) = (queues.find(&job.queue), queues.holder_key_of(job, id)) else {
                continue;
            };
            gone.extend(queues.discharge(at, holder_key, now).map(|had| (at, holder_key, had)));
        }
        gone
    }

    fn count_again(&mut self, gone: Vec<(QueueAt, HolderKey, Holder)>) {
        let now = self.ledger.now();
        for (at, holder_key, had) in gone {
            self.draft.queues.charge(at, holder_key, had, now);
        }
    }

    /// The placement whose victims lose least, and these victims: as near as the gang could be, or else in a placement
    /// that is worth more to it than a wait.
    fn select_near(
        &mut self,
        request: RequestClassId,
        id: GangId,
        gang: &Gang,
        candidates: Vec<Candidate<'a>>,
    ) -> Option<(ReservedPlacement, Vec<Candidate<'a>>)> {
        let Some(near) = self.nearest_of(request, gang) else {
            return self.select_for(gang, candidates).map(|(place, victims, _)| (place, victims));
        };
        if let Some((place, victims, time_ns)) = self.select_for(&near, candidates.clone())
            && self.waits_for_nearer(request, id, &place.picks, time_ns).is_none()
        {
            return Some((place, victims));
        }
        let (place, victims, time_ns) = self.select_for(gang, candidates)?;
        self.waits_for_nearer(request, id, &place.picks, time_ns).is_none().then_some((place, victims))
    }

    /// The placement whose victims lose least, these victims, and the time of a step of communication there.
    fn select_for(
        &mut self,
        gang: &Gang,
        mut candidates: Vec<Candidate<'a>>,
    ) -> Option<(ReservedPlacement, Vec<Candidate<'a>>, u64)> {
        if candidates.is_empty() {
            return None;
        }
        let tree = self.tree();
        let Draft { search, space, .. } = &mut self.draft;
        let Selected { picks, order, victims, time_ns } = select(tree, space, search, gang, &candidates)?;
        let mut at = 0..;
        candidates.retain(|_| at.next().is_some_and(|at| victims.binary_search(&at).is_ok()));
        let grace_ms = candidates.iter().map(|victim| self.grace_ms(victim.id)).max()?;
        let at = Some(self.ledger.now().plus(grace_ms));
        Some((ReservedPlacement { picks, order, at, evicts: true }, candidates, time_ns))
    }

    /// The longest time from the order to stop until the last process is gone.
    pub(super) fn grace_ms(&self, gang: GangId) -> u64 {
        let stop = self.ledger.job(gang.job).map(|job| job.policy.stop);
        stop.map_or(0, |stop| stop.grace_ms.saturating_add(stop.advisory.map_or(0, |advice| advice.lead_ms)))
    }

    /// Reserves the placement, and counts it as used from now on.
    fn claim(&mut self, next: Next, gang: &Gang, place: ReservedPlacement, holder: Holder) {
        let id = next.gang();
        let rank = self.draft.pending.request(next.request).key.rank;
        self.hold(id, gang, rank, place);
        if let Some(job) = self.ledger.job(id.job) {
            let holder_key = self.draft.queues.holder_key_of(job, id);
            self.charge(next.queue, holder_key, holder);
        }
    }
}
