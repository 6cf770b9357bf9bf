//! One scheduling cycle: which gangs start where, and what is reserved for gangs that cannot start yet.
//!
//! Request classes that may fit are taken in the order of their gangs, each gang whole or not at all. The head of the
//! pending queue that does not fit has a placement reserved; other gangs bypass it only if they do not delay it.

use std::collections::BTreeSet;

use phalanx_model::{Decision, Gang, GangId, Plan, Preemption, Reason, Reserved, Resize, Timestamp};

use super::Config;
use super::calendar::Closed;
use super::draft::Draft;
use super::elastic::ElasticPlacement;
use super::facts::Facts;
use super::heads::Heads;
use super::joint_placement::{self, Choice};
use super::no_room::NoRoom;
use super::preempt::Spent;
use super::reservation::Reservation;
use super::retry::{COUNTED_MAX, Reopened};
use crate::cluster::space::Pick;
use crate::cluster::tree::Tree;
use crate::placement::Ceiling;
use crate::placement::{Verdict, shortfall, weighed_links};
use crate::queueing::{
    FillOrder, Full, Holder, HolderKey, Next, QueueAt, ROOT, RequestClass, RequestClassId, ResourceList,
    longest_ms,
};

/// Milliseconds until a gang that might preempt is evaluated again, if nothing else happens.
const AGAIN_MS: u64 = 60_000;
/// The most pending gangs that did not fit in this cycle and are tried again when other gangs move.
const WAITING_MAX: usize = 32;

/// The result of a cycle.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) hints: Hints,
    pub(crate) spent: Spent,
}

/// When to plan again. The hints do not outlast the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hints {
    /// The time at which a gang becomes preemptible that is not preemptible yet.
    pub(crate) again_at: Timestamp,
    /// The cycle stopped at its budget: the next step goes on.
    pub(crate) goes_on: bool,
    /// A gang may start that this cycle considered too early: another cycle of this step follows.
    pub(crate) wakes: bool,
}

/// Plans one scheduling cycle: starts reserved gangs, preempts for them, fills, reserves for the heads, preempts, grows. Only the draft
/// changes. `at_boundary` are gangs that may grow now; `spent` is the cost of preemption in earlier cycles of the step.
pub(crate) fn plan(
    facts: &dyn Facts,
    draft: &mut Draft,
    at_boundary: Vec<GangId>,
    config: Config,
    spent: Spent,
) -> Planned {
    draft.queues.refresh(facts.now());
    let mut cycle = Cycle::new(facts, draft, config, spent);
    cycle.judge_reservations();
    cycle.start_reserved();
    cycle.release_costly();
    cycle.open_all();
    cycle.preempt_for_reserved();
    cycle.reopen();
    cycle.reserve_heads();
    cycle.fill();
    cycle.preempt_for_closed();
    cycle.open_all();
    cycle.grow(at_boundary);
    cycle.improve();
    cycle.book_all();
    cycle.look_again_later();
    cycle.finish()
}

pub(super) struct Cycle<'a> {
    pub(super) ledger: &'a dyn Facts,
    pub(super) draft: &'a mut Draft,
    /// Nodes that windows close to the gang that was considered last.
    pub(super) closed: Closed,
    pub(super) config: Config,
    pub(super) chosen: Vec<Choice>,
    /// Gangs that did not fit, in the order in which they were considered.
    waiting: Vec<GangId>,
    pub(super) no_room: NoRoom,
    /// Heads, each once for every start that delayed it.
    pub(super) bypassed: Vec<GangId>,
    pub(super) reserved: Vec<(GangId, Reserved, Reason)>,
    pub(super) dropped: Vec<(GangId, String)>,
    pub(super) heads: Heads,
    /// Gangs that are preempted, and why.
    pub(super) preempted: Vec<(GangId, Preemption)>,
    /// Gangs whose size changes, and the gang that they shrink for, if any.
    pub(super) shrunk: Vec<(GangId, Resize)>,
    pub(super) grown: Vec<(GangId, u32)>,
    pub(super) spent: Spent,
    /// A gang may start that this cycle has already considered.
    pub(super) wakes: bool,
    /// Request classes for which the capacity that became free before this cycle is not enough. Only builds with debug
    /// assertions consider them all the same.
    pub(super) unlikely: BTreeSet<RequestClassId>,
    pub(super) reopened: Reopened,
    /// The next step has more to consider.
    pub(super) goes_on: bool,
    /// The time at which a gang becomes preemptible that might be a victim.
    pub(super) again_at: Timestamp,
}

impl<'a> Cycle<'a> {
    pub(super) fn new(ledger: &'a dyn Facts, draft: &'a mut Draft, config: Config, spent: Spent) -> Self {
        Self {
            ledger,
            draft,
            closed: Closed::default(),
            config,
            chosen: Vec::new(),
            waiting: Vec::new(),
            no_room: NoRoom::default(),
            bypassed: Vec::new(),
            reserved: Vec::new(),
            dropped: Vec::new(),
            heads: Heads::default(),
            preempted: Vec::new(),
            shrunk: Vec::new(),
            grown: Vec::new(),
            spent,
            wakes: false,
            unlikely: BTreeSet::new(),
            reopened: Reopened::default(),
            goes_on: false,
            again_at: Timestamp::MAX,
        }
    }

    /// The decisions in the order in which the ledger commits them.
    pub(super) fn finish(self) -> Planned {
        let starts: Vec<Decision> = self.chosen.iter().filter_map(|choice| self.start_of(choice)).collect();
        let Self { bypassed, reserved, dropped, preempted, shrunk, grown, .. } = self;
        let released = dropped.into_iter().map(|(gang, why)| Decision::Release { gang, why });
        let reserve = |(gang, reserved, reason)| Decision::Reserve { gang, reserved, reason };
        let preempted =
            preempted.into_iter().map(|(gang, preemption)| Decision::Preempt { gang, preemption });
        let resized = shrunk.into_iter().map(|(gang, resize)| Decision::Resize { gang, resize });
        let grown = grown.into_iter().map(|(gang, size)| Decision::Grow { gang, size });
        let bypassed = bypassed.into_iter().map(|gang| Decision::Bypass { gang });
        let reserved = released.chain(reserved.into_iter().map(reserve));
        let room_made = reserved.chain(preempted).chain(resized).chain(grown);
        let decisions = room_made.chain(starts).chain(bypassed).collect();
        let hints = Hints { again_at: self.again_at, goes_on: self.goes_on, wakes: self.wakes };
        Planned { plan: Plan { decisions }, hints, spent: self.spent }
    }

    /// A gang for which others were preempted starts in the placement that was reserved for it.
    fn start_of(&self, choice: &Choice) -> Option<Decision> {
        let gang = choice.gang;
        let cleared = self.ledger.cleared_place(gang).filter(|place| choice.is_in(place)).cloned();
        let placement = cleared.or_else(|| choice.placement(self.ledger))?;
        let weighed = self
            .ledger
            .gang(gang)
            .map_or_else(Vec::new, |of| weighed_links(self.tree(), &self.draft.space, of, &placement));
        Some(Decision::Start { gang, placement, weighed })
    }

    pub(super) fn tree(&self) -> &'a Tree {
        self.ledger.hardware().tree
    }

    /// Notes whether the gangs that have a reservation are within a guarantee now.
    fn judge_reservations(&mut self) {
        let Draft { reservations, queues, .. } = &mut self.draft;
        for reservation in reservations.values_mut() {
            let (queue, amounts) = (reservation.waits.0, &reservation.waits.1);
            // A queue is charged for a gang from the moment that others are preempted for the gang.
            reservation.is_entitled = if reservation.preempts {
                queues.stays_within_a_guarantee(queue, amounts)
            } else {
                queues.is_within_a_guarantee(queue, amounts)
            };
        }
    }

    /// Takes the open request classes in the order of their gangs until none is left.
    fn fill(&mut self) {
        let mut order = FillOrder::new(&self.draft.pending, &self.draft.queues);
        self.close_used_up();
        while let Some(next) = order.first(&self.draft.pending, &self.draft.queues) {
            self.look_at(next);
            self.reserve_due();
            self.close_used_up();
        }
    }

    /// Starts the gang, or records what its request class or its queue lacks.
    fn look_at(&mut self, next: Next) {
        let id = next.gang();
        let request = self.draft.pending.request(next.request);
        let (is_fixed, gang) = (request.key.is_fixed, request.key.gang.clone());
        if let Err(full) = self.draft.queues.room(next.queue, &request.least, is_fixed) {
            // Gangs that may be preempted may use the capacity that is kept for others.
            if full.at != ROOT || !self.preempt_for(next, &gang) {
                self.draft.pending.stick(next.request, next.queue, full);
            }
            return;
        }
        self.book_against(next.request, next.queue);
        self.close_for(next.request);
        if let Some(reason) = self.known_no_room(next.request) {
            debug_assert!(matches!(self.verdict_on(id, &gang), Verdict::Full), "nothing moved for {id}");
            return self.found_no_room(next, &gang, Some(reason));
        }
        match self.verdict_on(id, &gang) {
            Verdict::Go(ceiling, cost) => {
                debug_assert!(
                    !self.unlikely.contains(&next.request),
                    "what came free is enough for {:?}",
                    self.draft.pending.request(next.request)
                );
                let (picks, order) = (self.draft.search.picks().to_vec(), self.draft.search.order().to_vec());
                if let Some(reason) = self.waits_for_nearer(next.request, id, &picks, cost.time_ns) {
                    return self.draft.pending.close(next.request, reason);
                }
                let reserved = self.draft.reservations.version();
                self.foresee_heads();
                if self.draft.reservations.version() != reserved {
                    // The cycle reserved a placement for a new head: it considers this gang again.
                    return;
                }
                self.book_against(next.request, next.queue);
                let least = ElasticPlacement { gang, ceiling, picks, order, time_ns: cost.time_ns };
                let most = self.ledger.gang(id).map_or(0, |gang| gang.size);
                let ElasticPlacement { gang, ceiling, picks, order, time_ns } =
                    self.enlarged(id, next.queue, least, most);
                match self.admit(next.queue, &gang, &picks, is_fixed) {
                    Err(full) => self.draft.pending.stick(next.request, next.queue, full),
                    Ok(amounts) => {
                        let choice = Choice { gang: id, size: gang.size, ceiling, picks, order, time_ns };
                        self.choose(choice, &gang, next.queue, Holder::new(amounts, is_fixed));
                    }
                }
            }
            Verdict::Full => self.found_no_room(next, &gang, None),
            Verdict::Wait(reason) => self.draft.pending.close(next.request, reason),
        }
    }

    /// Preempts other gangs for a gang that fits nowhere, or closes its request class until capacity becomes free; for a
    /// reason that is known, or is found.
    fn found_no_room(&mut self, next: Next, gang: &Gang, known: Option<Reason>) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push(next.gang());
        }
        let seen = known.is_none().then(|| self.seen());
        if self.preempt_for(next, gang) {
            return;
        }
        let reason = known.unwrap_or_else(|| self.missing(next.request, gang));
        if let Some(seen) = seen {
            self.note_no_room(seen, next.request, &reason);
        }
        self.draft.pending.close(next.request, reason);
        self.reserve_heads();
    }

    /// What a gang lacks that fits nowhere.
    fn missing(&mut self, request: RequestClassId, gang: &Gang) -> Reason {
        // Counting the shortfall costs more than finding that there is one: in large clusters it is counted once, and
        // again when a user asks.
        let known = self.draft.pending.request(request).reason.clone();
        let is_known =
            !matches!(known, Reason::None | Reason::Window { .. }) && self.tree().nodes.len() > COUNTED_MAX;
        let kept = self.held_for(gang).or_else(|| self.kept_by_windows(request, gang));
        kept.unwrap_or_else(|| {
            if is_known { known } else { shortfall(self.ledger.hardware(), &self.draft.space, gang) }
        })
    }

    /// Checks that the queue has room for these picks, and returns their amounts.
    pub(super) fn admit(
        &self,
        queue: QueueAt,
        gang: &Gang,
        picks: &[Pick],
        is_fixed: bool,
    ) -> Result<ResourceList, Full> {
        let queues = &self.draft.queues;
        let amounts = queues.resources.held(self.tree(), queues.settings(), picks, gang);
        queues.room(queue, &amounts, is_fixed)?;
        Ok(amounts)
    }

    /// Books a start.
    pub(super) fn choose(&mut self, choice: Choice, gang: &Gang, queue: QueueAt, holder: Holder) {
        let tree = self.tree();
        let Draft { space, queues, pending, .. } = &mut self.draft;
        space.take(tree, &choice.picks, gang);
        space.load(tree, &choice.picks, gang, true);
        pending.delist(queues, choice.gang);
        if let Some(job) = self.ledger.job(choice.gang.job) {
            let holder_key = queues.holder_key_of(job, choice.gang);
            self.charge(queue, holder_key, holder);
        }
        self.reopened.most = None;
        let (started, picks) = (choice.gang, choice.picks.clone());
        self.chosen.push(choice);
        self.count_bypasses(started, &picks);
    }

    /// Counts taken capacity. If the guarantees that were kept for others are in use now, hardware is the only bound:
    /// gangs that found too much capacity kept are considered again.
    pub(super) fn charge(&mut self, queue: QueueAt, holder_key: HolderKey, holder: Holder) {
        let Draft { queues, pending, .. } = &mut self.draft;
        let kept = queues.kept_resources();
        queues.charge(queue, holder_key, holder, self.ledger.now());
        if queues.kept_resources() < kept && pending.is_stuck_at(ROOT) {
            pending.room_again(std::iter::once(ROOT));
            self.wakes = true;
        }
    }

    /// The ends of gangs that start in this cycle.
    pub(super) fn chosen_ends(&self) -> impl Iterator<Item = (Option<Timestamp>, GangId)> + '_ {
        let end = |choice: &Choice| {
            let span_ms = self.ledger.job(choice.gang.job).and_then(|job| longest_ms(&job.policy));
            (span_ms.map(|span| self.ledger.now().plus(span)), choice.gang)
        };
        self.chosen.iter().map(end)
    }

    /// The picks of a gang that runs, or starts in this cycle.
    pub(super) fn picks_of(&self, id: GangId) -> Option<Vec<Pick>> {
        if let Some(choice) = self.chosen.iter().find(|choice| choice.gang == id) {
            return Some(choice.picks.clone());
        }
        self.ledger.picks(id).map(<[Pick]>::to_vec)
    }

    /// Fair shares shift with the requests of other queues, even if no capacity becomes free: gangs that might preempt
    /// are evaluated again after a while.
    fn look_again_later(&mut self) {
        if self.ledger.looks_again() {
            return;
        }
        let Draft { pending, queues, reservations, .. } = &mut self.draft;
        let has_rivals = |(_, request): (RequestClassId, &RequestClass)| {
            request.roomy().any(|queue| !queues.is_unrivalled(queue, request.key.rank))
        };
        let promised = || reservations.values().filter(|held| !held.preempts);
        let has_rivals = pending.closed().any(has_rivals)
            || promised().any(|held| !queues.is_unrivalled(held.waits.0, held.rank));
        if has_rivals {
            queues.divide_fair_shares();
        }
        let may = |(_, request): (RequestClassId, &RequestClass)| {
            request.roomy().any(|queue| queues.may_evict(queue, request.key.rank, &request.least))
        };
        let may_reserved = |held: &Reservation| queues.may_evict(held.waits.0, held.rank, &held.waits.1);
        let may_anybody = || pending.closed().any(may) || promised().any(may_reserved);
        if has_rivals && may_anybody() || self.somebody_waits() && self.may_shrink_somebody() {
            self.again_at = self.again_at.min(self.ledger.now().plus(AGAIN_MS));
        }
    }

    /// Places several gangs that start at once jointly. If anything is reserved, nothing moves, because a moved gang
    /// could take the reserved placement.
    fn improve(&mut self) {
        if !self.draft.reservations.is_empty() || self.chosen.is_empty() {
            return;
        }
        // Nor does a gang move from a placement that gangs were preempted for, or that keeps replicas apart, nor if
        // sizes were fitted to the free capacity.
        let is_elastic = |id| self.ledger.gang(id).is_some_and(Gang::is_elastic);
        let stays = |id| is_elastic(id) || self.ledger.cleared_place(id).is_some() || self.is_kept_apart(id);
        if self.chosen.iter().any(|choice| stays(choice.gang))
            || self.waiting.iter().any(|id| is_elastic(*id))
        {
            return;
        }
        let tree = self.tree();
        let before = self.chosen.clone();
        let ceiling = |id: &GangId| Some((*id, Ceiling(tree.level_of_required(self.ledger.gang(*id)?))));
        let mut still: Vec<(GangId, Ceiling)> = self.waiting.iter().filter_map(ceiling).collect();
        // A pending gang that is let in has to have room in its queue first.
        still.retain(|(id, _)| {
            let Some(place) = self.draft.pending.place_of(*id) else { return false };
            let request = self.draft.pending.request(place.request);
            self.draft.queues.room(place.queue, &request.least, request.key.is_fixed).is_ok()
                && !request.key.is_fixed
                && !super::far::waits(&request.key.gang)
        });
        still.truncate(1);
        // A moved gang could end up on nodes where a window does not let it stay.
        if !self.has_no_window(
            self.chosen.iter().map(|choice| choice.gang).chain(still.iter().map(|(id, _)| *id)),
        ) {
            return;
        }
        let Draft { search, space, .. } = &mut self.draft;
        joint_placement::improve(self.ledger, search, space, &mut self.chosen, &mut still);
        if self.amounts_moved(&before) {
            self.free_what_was_left(&before);
        } else {
            let space = &mut self.draft.space;
            joint_placement::put_back(self.ledger, space, &self.chosen, &before);
            self.chosen = before;
        }
    }

    /// Nodes that gangs had at first in this cycle, and have left for others, are free for gangs that have found no room.
    fn free_what_was_left(&mut self, before: &[Choice]) {
        let Draft { freed, pending, .. } = &mut self.draft;
        let stays = |had: &&Choice| self.chosen.iter().any(|is| is.gang == had.gang && is.picks == had.picks);
        let moved = before.iter().filter(|had| !stays(had));
        let left: Vec<u32> = moved.flat_map(|had| &had.picks).map(|pick| pick.node).collect();
        if !left.is_empty() && pending.closed().next().is_some() {
            freed.add(left.into_iter());
            self.wakes = true;
        }
    }

    /// Charges queues for the placements of gangs that moved or were let in, unless these need more than the queues
    /// have room for. Returns whether the queues were charged.
    fn amounts_moved(&mut self, before: &[Choice]) -> bool {
        let stays = |choice: &Choice| before.iter().any(|b| b.gang == choice.gang && b.picks == choice.picks);
        let moved: Vec<Choice> = self.chosen.iter().filter(|choice| !stays(choice)).cloned().collect();
        let now = self.ledger.now();
        let mut had = Vec::new();
        for choice in &moved {
            let Some(job) = self.ledger.job(choice.gang.job) else { return false };
            let Draft { queues, pending, .. } = &mut self.draft;
            let queue =
                pending.place_of(choice.gang).map(|place| place.queue).or_else(|| queues.find(&job.queue));
            let Some(queue) = queue else { return false };
            let holder_key = queues.holder_key_of(job, choice.gang);
            had.push((queue, holder_key, queues.discharge(queue, holder_key, now)));
        }
        let mut has_room = true;
        for (choice, (queue, holder_key, _)) in moved.iter().zip(&had) {
            let (Some(job), Some(gang)) = (self.ledger.job(choice.gang.job), self.ledger.gang(choice.gang))
            else {
                continue;
            };
            let is_fixed = self.draft.queues.is_fixed(job, choice.gang);
            match self.admit(*queue, gang, &choice.picks, is_fixed) {
                Ok(amounts) => {
                    self.draft.queues.charge(*queue, *holder_key, Holder::new(amounts, is_fixed), now)
                }
                Err(_) => has_room = false,
            }
        }
        let Draft { queues, pending, .. } = &mut self.draft;
        if has_room {
            for choice in &moved {
                pending.delist(queues, choice.gang);
            }
            return true;
        }
        for (queue, holder_key, had) in had {
            queues.discharge(queue, holder_key, now);
            if let Some(had) = had {
                queues.charge(queue, holder_key, had, now);
            }
        }
        false
    }
}
