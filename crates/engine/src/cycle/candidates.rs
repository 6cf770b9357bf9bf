//! The gangs that may be preempted for another gang, and the cost of each.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use phalanx_model::{Gang, GangId, Phase, Placement, Timestamp};

use super::elastic::chunks;
use super::run::Cycle;
use crate::preemption::Candidate;
use crate::queueing::{Claim, Contender, ResourceList, Rule};

impl<'a> Cycle<'a> {
    /// All gangs that may be preempted, the cheapest first.
    pub(super) fn candidates(&mut self, wants: Contender, claim: &Claim) -> Vec<Candidate<'a>> {
        let now = self.ledger.now();
        let mut candidates = Vec::new();
        for (id, contender, holder) in self.draft.queues.below(wants, claim) {
            if holder.stays_until > now {
                // If a gang had more service, the ledger knows when the gang may be preempted.
                if self.draft.queues.rule(wants, contender, claim) != Some(Rule::LessServed) {
                    self.again_at = self.again_at.min(holder.stays_until);
                }
                continue;
            }
            if self.preempted.iter().any(|(victim, _)| *victim == id) {
                continue;
            }
            let Some((gang, record)) = self.ledger.known(id) else { continue };
            let Some(placement) = record.placement.as_ref() else { continue };
            if record.is_protected {
                continue;
            }
            let since = match record.phase {
                Phase::Running { since } => since,
                Phase::Starting { .. } if !self.stays_when_started(id) => now,
                _ => continue,
            };
            let saved_at = record.checkpointed_at.unwrap_or_default().max(since);
            let lost_device_ms = lost_ms(&holder.amounts, now, saved_at);
            let is_beside = contender.queue == wants.queue;
            let whole = Candidate {
                rank: contender.entitlement.rank,
                level: if is_beside { contender.entitlement.level } else { Reverse(0) },
                lost_device_ms,
                costs_device_ms: lost_device_ms,
                devices: Reverse(u64::try_from(holder.amounts[0]).unwrap_or(u64::MAX)),
                id,
                gang,
                chunk: None,
                contender,
                picks: Cow::Borrowed(&[]),
            };
            if gang.size > gang.min && matches!(record.phase, Phase::Running { .. }) {
                candidates.extend(self.in_chunks(gang, placement, &whole));
            } else {
                let picks = Cow::Borrowed(self.ledger.picks(id).unwrap_or_default());
                candidates.push(Candidate { picks, ..whole });
            }
        }
        self.without_held(&mut candidates);
        candidates.sort_by_key(Candidate::cost);
        candidates
    }

    fn stays_when_started(&self, id: GangId) -> bool {
        let class = self.ledger.job(id.job).and_then(|job| self.draft.queues.class_of(job));
        class.is_some_and(|class| class.min_run_ms > 0)
    }

    /// Members of gangs that can shrink at their next boundary, for a gang that is entitled to no less.
    pub(super) fn spare_members(&mut self, wants: Contender) -> Vec<Candidate<'a>> {
        let mut candidates = Vec::new();
        let shrinkable: BTreeSet<GangId> = self.ledger.shrinkable().collect();
        if shrinkable.is_empty() {
            return candidates;
        }
        let contenders = self.draft.queues.contenders().filter(|(id, _)| shrinkable.contains(id));
        for (id, contender) in contenders.collect::<BTreeMap<_, _>>() {
            let is_chosen = self.shrunk.iter().any(|(gang, _)| *gang == id)
                || self.preempted.iter().any(|(gang, _)| *gang == id);
            if is_chosen || !self.draft.queues.may_shrink(wants, contender) {
                continue;
            }
            let placement = self.ledger.record(id).and_then(|record| record.placement.as_ref());
            let Some((gang, placement)) = self.ledger.gang(id).zip(placement) else { continue };
            let whole = Candidate {
                rank: contender.entitlement.rank,
                level: Reverse(0),
                lost_device_ms: 0,
                costs_device_ms: 0,
                devices: Reverse(0),
                id,
                gang,
                chunk: None,
                contender,
                picks: Cow::Borrowed(&[]),
            };
            candidates.extend(self.in_chunks(gang, placement, &whole));
        }
        self.without_held(&mut candidates);
        candidates.sort_by_key(Candidate::cost);
        candidates
    }

    /// The members of a gang in the parts by which it shrinks; surplus members cost nothing.
    fn in_chunks(&self, gang: &Gang, placement: &Placement, whole: &Candidate<'a>) -> Vec<Candidate<'a>> {
        let mut spare = gang.size - gang.min;
        let chunk = |ranks: Range<u32>| {
            let count = ranks.end - ranks.start;
            let is_spare = count <= spare;
            spare = if is_spare { spare - count } else { 0 };
            let slots = placement.slots.get(ranks.start as usize..ranks.end as usize).unwrap_or_default();
            let of_chunk = Placement { slots: slots.to_vec(), level: placement.level.clone() };
            Candidate {
                picks: Cow::Owned(self.tree().picks_of(&of_chunk, gang)),
                costs_device_ms: if is_spare { 0 } else { whole.costs_device_ms },
                devices: Reverse(u64::from(count.saturating_mul(gang.needs.devices)) * 1_000),
                chunk: Some(ranks),
                ..whole.clone()
            }
        };
        chunks(gang, placement).into_iter().map(chunk).collect()
    }

    /// Devices of the candidates that are reserved for another gang do not become free with the candidates.
    pub(super) fn without_held(&self, candidates: &mut [Candidate<'_>]) {
        let booked: Vec<_> = self.draft.reservations.values().filter(|held| held.is_booked()).collect();
        for candidate in candidates {
            for reservation in &booked {
                if reservation.overlaps(&candidate.picks) {
                    reservation.take_from(candidate.picks.to_mut());
                }
            }
        }
    }
}

/// Work since it was last saved, in milliseconds of one device.
fn lost_ms(amounts: &ResourceList, now: Timestamp, saved_at: Timestamp) -> u64 {
    let lost = amounts[0].saturating_mul(u128::from(now.since(saved_at))) / 1_000;
    u64::try_from(lost).unwrap_or(u64::MAX)
}
