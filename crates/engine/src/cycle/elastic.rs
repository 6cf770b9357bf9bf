//! Sizes of elastic gangs: they start with as many members as fit, grow if no other gang waits, and shrink for others.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use phalanx_model::{Gang, GangId, Placement, Reason};

use super::run::Cycle;
use crate::cluster::space::Pick;
use crate::cycle::draft::Draft;
use crate::placement::{Ceiling, placement};
use crate::placement::{Verdict, verdict, waits_for_capacity};
use crate::preemption::Candidate;
use crate::queueing::{QueueAt, RequestClass, is_for_nearness};

/// A placement of a gang with a number of members, the level that it is inside of, and its predicted time.
pub(super) struct ElasticPlacement {
    pub(super) gang: Gang,
    pub(super) ceiling: Ceiling,
    pub(super) picks: Vec<Pick>,
    pub(super) order: Vec<u32>,
    pub(super) time_ns: u64,
}

impl Cycle<'_> {
    /// The largest size that fits and that its queue has room for; `None` if not even the least size does.
    pub(super) fn largest(
        &mut self,
        id: GangId,
        gang: &Gang,
        queue: QueueAt,
        sizes: RangeInclusive<u32>,
    ) -> Option<ElasticPlacement> {
        let (least, step) = (*sizes.start(), gang.size_step().max(1));
        let steps = sizes.end().checked_sub(least)? / step;
        let of_steps = |steps: u32| gang.of_size(least + steps * step);
        if let Some(all) = self.sized(id, of_steps(steps), queue) {
            return Some(all);
        }
        let (mut best, mut low, mut none) = (None, 0, steps);
        while low < none {
            let middle = low.midpoint(none);
            if self.sized(id, of_steps(middle), queue).is_some() {
                (best, low) = (Some(middle), middle + 1);
            } else {
                none = middle;
            }
        }
        self.sized(id, of_steps(best?), queue)
    }

    /// The same for more members, if there is room for them.
    pub(super) fn enlarged(
        &mut self,
        id: GangId,
        queue: QueueAt,
        found: ElasticPlacement,
        most: u32,
    ) -> ElasticPlacement {
        let more = found.gang.size.saturating_add(found.gang.size_step());
        self.largest(id, &found.gang, queue, more..=most).unwrap_or(found)
    }

    fn sized(&mut self, id: GangId, gang: Gang, queue: QueueAt) -> Option<ElasticPlacement> {
        let is_fixed = self.ledger.job(id.job).is_some_and(|job| self.draft.queues.is_fixed(job, id));
        let Draft { search, space, .. } = &mut self.draft;
        let Verdict::Go(ceiling, cost) = verdict(self.ledger.hardware(), search, space, &gang, None) else {
            return None;
        };
        let (picks, order) = (self.draft.search.picks().to_vec(), self.draft.search.order().to_vec());
        self.admit(queue, &gang, &picks, is_fixed).ok()?;
        Some(ElasticPlacement { gang, ceiling, picks, order, time_ns: cost.time_ns })
    }

    /// Gangs at a boundary grow into capacity that no pending gang waits for.
    pub(super) fn grow(&mut self, at_boundary: Vec<GangId>) {
        if at_boundary.is_empty() || self.somebody_waits() {
            return;
        }
        for id in at_boundary {
            if let Some(size) = self.grown(id) {
                self.grown.push((id, size));
            }
        }
    }

    /// Whether capacity is reserved for a gang, or a pending gang would use it.
    pub(super) fn somebody_waits(&self) -> bool {
        let waits = |(_, request): (_, &RequestClass)| {
            let by_time =
                matches!(request.reason, Reason::Priority { .. }) || is_for_nearness(&request.reason);
            request.has_room() && (waits_for_capacity(&request.reason) || by_time)
        };
        !self.draft.reservations.is_empty() || self.draft.pending.closed().any(waits)
    }

    /// The same, including gangs that this cycle has not considered yet.
    pub(super) fn is_anything_wanted(&self) -> bool {
        self.draft.pending.ready().next().is_some() || self.somebody_waits()
    }

    /// The size to which a running gang can grow. (When the gang starts again, other gangs may have been faster: it
    /// then has as many members as fit.)
    fn grown(&mut self, id: GangId) -> Option<u32> {
        let (job, gang) = self.ledger.job(id.job).zip(self.ledger.gang(id))?;
        let most = self.ledger.grows_to(id);
        let more = gang.size.checked_add(gang.size_step()).filter(|more| *more <= most)?;
        // A held job would not start again.
        if job.turn.held_by.is_some() {
            return None;
        }
        let picks = self.picks_of(id)?;
        let queue = self.draft.queues.find(&job.queue)?;
        if !self.has_no_window(std::iter::once(id)) {
            return None;
        }
        let (tree, now) = (self.tree(), self.ledger.now());
        let seat = self.draft.queues.holder_key_of(job, id);
        let held = self.draft.queues.discharge(queue, seat, now)?;
        self.draft.space.give_back(tree, &picks, gang);
        let found = self.largest(id, gang, queue, more..=most);
        self.draft.space.take(tree, &picks, gang);
        self.draft.queues.charge(queue, seat, held, now);
        found.map(|found| found.gang.size)
    }

    /// The placements that remain of gangs that lose only some members; `None` for a gang with too few members left.
    pub(super) fn left_of(&self, victims: &[Candidate<'_>]) -> BTreeMap<GangId, Option<Placement>> {
        let mut left = BTreeMap::new();
        for id in victims.iter().filter(|victim| victim.chunk.is_some()).map(|victim| victim.id) {
            let chunks =
                victims.iter().filter(|other| other.id == id).filter_map(|other| other.chunk.as_ref());
            left.entry(id).or_insert_with(|| self.without(id, &chunks.collect::<Vec<_>>()));
        }
        left
    }

    /// The placement of a gang without some of its members.
    fn without(&self, id: GangId, gone: &[&Range<u32>]) -> Option<Placement> {
        let (gang, record) = self.ledger.gang(id).zip(self.ledger.record(id))?;
        let mut keeps = record.placement.clone()?;
        keeps.slots.retain(|slot| !gone.iter().any(|ranks| ranks.contains(&slot.rank)));
        let size = u32::try_from(keeps.slots.len()).ok().filter(|size| *size >= gang.min)?;
        let kept = self.tree().picks_of(&keeps, gang);
        placement(self.tree(), &kept, &[], &gang.of_size(size))
    }
}

/// The members of a placement that leave together: those of a widest segment, and those of a node if each node has as
/// many. The highest ranks come first.
pub(super) fn chunks(gang: &Gang, placement: &Placement) -> Vec<Range<u32>> {
    let widest = gang.topology.segments.first().map_or(1, |segment| segment.size.max(1));
    let mut chunks: Vec<Range<u32>> = Vec::new();
    for pair in placement.slots.windows(2) {
        let [one, next] = pair else { continue };
        let is_apart = gang.members_per_node.is_none() || one.node != next.node;
        if is_apart && one.rank / widest != next.rank / widest {
            chunks.push(chunks.last().map_or(0, |last| last.end)..next.rank);
        }
    }
    let count = u32::try_from(placement.slots.len()).unwrap_or(u32::MAX);
    chunks.push(chunks.last().map_or(0, |last| last.end)..count);
    chunks.reverse();
    chunks
}
