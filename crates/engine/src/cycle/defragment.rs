//! Defragmentation: running gangs that may move leave for other nodes, and so open a place for a gang that waits.
//!
//! Every gang that moves has its new place before it is stopped: on devices that are free now and are not a part of the place
//! that opens, at least as near as the place that it has, and as fast. So no move waits for another one, and none of them can
//! leave a gang without a place.

use std::borrow::Cow;
use std::cmp::Reverse;

use phalanx_model::{Decision, Defragmentation, Gang, GangId, Phase, Placement, Timestamp, show};

use super::Config;
use super::draft::Draft;
use super::facts::Facts;
use super::far;
use super::preempt::Spent;
use super::reservation::Reservation;
use super::reserve::ReservedPlacement;
use super::run::Cycle;
use crate::cluster::Pick;
use crate::placement::{Ceiling, Verdict, level_of, placement, verdict};
use crate::preemption::{Candidate, Selected, select};
use crate::queueing::Holder;

/// Sets of gangs that are tried for one gang that waits: each that cannot move leaves the candidates.
const SETS_MAX: u32 = 16;
/// Gangs that wait for which one look without a request seeks moves.
const LOOKED_AT_MAX: usize = 4;
/// A step of communication that takes so much longer in the new place is as fast, in thousandths.
const AS_FAST_MILLI: u128 = 1_010;

/// Which gangs may move, and what a move costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) settings: Defragmentation,
    /// From the stop of a gang to its first step after the restart.
    pub(crate) restart_ms: u64,
    /// Nobody asked for it: the moves have to pay.
    pub(crate) has_to_pay: bool,
}

/// Plans the moves that open a place for a gang, or for the first gang for which they can. On an error, which says why nothing
/// moves, the draft is as before.
pub(crate) fn defragment(
    facts: &dyn Facts,
    draft: &mut Draft,
    gang: Option<GangId>,
    rules: Rules,
    config: Config,
) -> Result<Vec<Decision>, String> {
    draft.queues.refresh(facts.now());
    let mut cycle = Cycle::new(facts, draft, config, Spent::default());
    let moves = match gang {
        Some(gang) => cycle.open(gang, rules)?,
        None => cycle.open_first(rules)?,
    };
    let mut planned = cycle.finish();
    planned.plan.decisions.extend(moves);
    Ok(planned.plan.decisions)
}

/// A gang that moves.
struct Moving {
    gang: GangId,
    to: Placement,
    lost_device_ms: u64,
}

/// What opens for a gang that waits.
struct Found {
    picks: Vec<Pick>,
    order: Vec<u32>,
    moves: Vec<Moving>,
}

impl<'a> Cycle<'a> {
    /// Opens a place for the first gang in order for which that is possible: for one that has a place reserved at a later time,
    /// or else for the head of the pending gangs.
    fn open_first(&mut self, rules: Rules) -> Result<Vec<Decision>, String> {
        let reserved = self.draft.reservations.iter().filter(|(_, held)| !held.preempts);
        let mut first: Vec<GangId> = reserved.map(|(id, _)| *id).collect();
        first.sort_by_key(|id| self.draft.reservations.get(id).map(|held| (held.order_key(), *id)));
        first.extend(self.draft.pending.head(&self.draft.queues, &[]).map(|head| head.gang()));
        first.truncate(if rules.has_to_pay { LOOKED_AT_MAX } else { usize::MAX });
        let mut why = "no job waits for room".to_owned();
        for id in first {
            match self.open(id, rules) {
                Ok(moves) => return Ok(moves),
                Err(reason) => why = format!("job {}: {reason}", id.job),
            }
        }
        Err(why)
    }

    /// Opens a place for a gang.
    fn open(&mut self, id: GangId, rules: Rules) -> Result<Vec<Decision>, String> {
        let known = self.ledger.job(id.job).zip(self.ledger.record(id)).zip(self.ledger.wanted(id));
        let ((job, record), gang) = known.ok_or("no such gang")?;
        if !record.is_pending() {
            return Err("it is not pending".to_owned());
        }
        if self.ledger.cleared_place(id).is_some() {
            return Err("other gangs make way for it already".to_owned());
        }
        if job.turn.service.is_some() {
            return Err("it is a replica of a service".to_owned());
        }
        let is_in_line = self.draft.pending.place_of(id).is_some();
        self.book_all();
        let own = self.draft.reservations.lend(id);
        if !is_in_line && own.is_none() {
            return Err("it waits for something else than room".to_owned());
        }
        let waits_ms = own
            .as_ref()
            .and_then(|own| own.at)
            .map_or_else(|| self.ledger.now().since(record.pending_since), |at| at.since(self.ledger.now()));
        let tree = self.tree();
        let Some(mut own) = own else { return self.open_for(id, &gang, waits_ms, rules) };
        own.unbook(tree, &mut self.draft.space);
        let opened = self.open_for(id, &gang, waits_ms, rules);
        let Draft { space, queues, reservations, freed, .. } = &mut self.draft;
        if opened.is_err() {
            own.book(tree, space);
            reservations.take_back(id, own);
            return opened;
        }
        freed.add(own.nodes());
        // It waits in its queue as before.
        match reservations.get_mut(id) {
            Some(new) => (new.waits, new.is_entitled) = (own.waits, own.is_entitled),
            None => queues.want(own.waits.0, &own.waits.1, false),
        }
        opened
    }

    fn open_for(
        &mut self,
        id: GangId,
        gang: &Gang,
        waits_ms: u64,
        rules: Rules,
    ) -> Result<Vec<Decision>, String> {
        let job = self.ledger.job(id.job).ok_or("no such job")?;
        let queue = self.draft.queues.find(&job.queue).ok_or("it is in no queue")?;
        let is_fixed = self.draft.queues.is_fixed(job, id);
        let tree = self.tree();
        let wants = self.as_near_as_can_be(gang)?;
        let Draft { search, space, .. } = &mut self.draft;
        if search.place(tree, space, &wants, Ceiling(tree.level_of_required(&wants))).is_some() {
            return Err("there is room for it without moves".to_owned());
        }
        let Found { picks, order, moves } = self.moves_for(id, &wants, waits_ms, rules)?;
        if moves.len() > rules.settings.gangs_max as usize {
            return Err(format!(
                "{} jobs would have to move, and the settings allow {}",
                moves.len(),
                rules.settings.gangs_max
            ));
        }
        let lost_device_ms = moves.iter().fold(0_u64, |sum, of| sum.saturating_add(of.lost_device_ms));
        if rules.has_to_pay && !Defragmentation::pays(waits_ms, gang.device_count(), lost_device_ms) {
            return Err("the moves cost more than the wait".to_owned());
        }
        let amounts = self.admit(queue, gang, &picks, is_fixed).map_err(|full| full.limit.to_string())?;
        let grace_ms = moves.iter().map(|of| self.grace_ms(of.gang)).max().unwrap_or(0);
        let at = Some(self.ledger.now().plus(grace_ms));
        let (rank, holder_key) = (self.draft.queues.rank_of(job), self.draft.queues.holder_key_of(job, id));
        self.hold(id, gang, rank, ReservedPlacement { picks, order, at, evicts: true });
        self.charge(queue, holder_key, Holder::new(amounts, is_fixed));
        let decision = |of: Moving| Decision::Move {
            gang: of.gang,
            by: id,
            to: of.to,
            lost_device_ms: of.lost_device_ms,
        };
        Ok(moves.into_iter().map(decision).collect())
    }

    /// The gang, inside one domain of the level of the nearest place for it, if it waits for that.
    fn as_near_as_can_be<'g>(&mut self, gang: &'g Gang) -> Result<Cow<'g, Gang>, String> {
        let near = self.nearest(gang).ok_or("it would fit nowhere if no job ran")?;
        let inside = if far::waits(gang) { far::inside(self.tree(), gang, near.level) } else { None };
        Ok(inside.map_or(Cow::Borrowed(gang), Cow::Owned))
    }

    /// The cheapest moves that open a place for a gang.
    fn moves_for(&mut self, id: GangId, gang: &Gang, waits_ms: u64, rules: Rules) -> Result<Found, String> {
        let (mut candidates, first_at) = self.movable(rules);
        if candidates.is_empty() {
            return Err(match first_at {
                Some(at) => {
                    let in_ms = show::span(at.since(self.ledger.now()));
                    format!("no job that may move has run for long enough; the first has in {in_ms}")
                }
                None => "no running job says that it may move".to_owned(),
            });
        }
        let least_device_ms = candidates.iter().map(|of| of.lost_device_ms).min().unwrap_or(0);
        if rules.has_to_pay && !Defragmentation::pays(waits_ms, gang.device_count(), least_device_ms) {
            return Err("the moves cost more than the wait".to_owned());
        }
        if !self.has_no_window(std::iter::once(id).chain(candidates.iter().map(|of| of.id))) {
            return Err("a window of the calendar closes nodes".to_owned());
        }
        let tree = self.tree();
        for _ in 0..SETS_MAX {
            let Draft { search, space, .. } = &mut self.draft;
            let selected = select(tree, space, search, gang, &candidates);
            let Some(Selected { picks, order, victims, .. }) = selected else {
                return Err("jobs that may move leave no place that is large and near enough".to_owned());
            };
            let mut leaving: Vec<Candidate<'a>> =
                victims.iter().filter_map(|at| candidates.get(*at)).cloned().collect();
            // Those that are hardest to place are placed first.
            leaving.sort_by_key(|of| (of.devices, of.id));
            match self.places_of(gang, &picks, &leaving) {
                Ok(moves) => return Ok(Found { picks, order, moves }),
                Err(stays) => candidates.retain(|of| of.id != stays),
            }
        }
        Err("jobs that may move find no place that is as near and as fast".to_owned())
    }

    /// Where gangs go that leave a place that is to open; on an error, the first that finds no other place.
    fn places_of(
        &mut self,
        gang: &Gang,
        opens: &[Pick],
        leaving: &[Candidate<'a>],
    ) -> Result<Vec<Moving>, GangId> {
        let (tree, now) = (self.tree(), self.ledger.now());
        let reserve = |picks: &[Pick], gang: &Gang| Reservation::new(picks.to_vec(), gang, None, 0, now);
        let mut kept = vec![reserve(opens, gang)];
        kept[0].book(tree, &mut self.draft.space);
        let mut moves = Vec::new();
        let mut stays = None;
        for of in leaving {
            let found = self.place_elsewhere(of);
            let placed =
                found.and_then(|(picks, order)| Some((placement(tree, &picks, &order, of.gang)?, picks)));
            let Some((to, picks)) = placed else {
                stays = Some(of.id);
                break;
            };
            let mut place = reserve(&picks, of.gang);
            place.book(tree, &mut self.draft.space);
            kept.push(place);
            moves.push(Moving { gang: of.id, to, lost_device_ms: of.lost_device_ms });
        }
        kept.iter_mut().rev().for_each(|place| place.unbook(tree, &mut self.draft.space));
        stays.map_or(Ok(moves), Err)
    }

    /// A free place for a gang that is as near as the one that it has, and as fast.
    fn place_elsewhere(&mut self, of: &Candidate<'a>) -> Option<(Vec<Pick>, Vec<u32>)> {
        let (tree, hardware) = (self.tree(), self.ledger.hardware());
        let mut had = self.ledger.picks(of.id)?.to_vec();
        let inside = far::inside(tree, of.gang, level_of(tree, &had)?);
        let wants = inside.as_ref().unwrap_or(of.gang);
        let Draft { search, space, .. } = &mut self.draft;
        let Verdict::Go(_, cost) = verdict(hardware, search, space, wants, None) else { return None };
        let (picks, order) = (search.picks().to_vec(), search.order().to_vec());
        had.sort_by_key(|pick| pick.node);
        let now_ns = search.measured(tree, space, of.gang, &had).map(|found| found.cost.time_ns);
        let is_as_fast = now_ns
            .is_none_or(|now_ns| u128::from(cost.time_ns) * 1_000 <= u128::from(now_ns) * AS_FAST_MILLI);
        // Its queue has room for what it has, and may have none for devices of another model.
        let queues = &self.draft.queues;
        let amounts = |picks: &[Pick]| queues.resources.held(tree, queues.settings(), picks, of.gang);
        let takes_no_more = amounts(&picks).iter().zip(amounts(&had).iter()).all(|(new, old)| new <= old);
        (is_as_fast && takes_no_more).then_some((picks, order))
    }

    /// The running gangs that may move, the cheapest first, and when the first of the others may that have not run for long
    /// enough.
    fn movable(&mut self, rules: Rules) -> (Vec<Candidate<'a>>, Option<Timestamp>) {
        let now = self.ledger.now();
        self.draft.queues.count_anew();
        let contenders: Vec<_> = self.draft.queues.contenders().collect();
        let mut candidates = Vec::new();
        let mut first_at: Option<Timestamp> = None;
        for (id, contender) in contenders {
            let Some((job, (gang, record))) = self.ledger.job(id.job).zip(self.ledger.known(id)) else {
                continue;
            };
            let Phase::Running { since } = record.phase else { continue };
            let Some(placement) = record.placement.as_ref() else { continue };
            let is_settled = record.resize.is_none() && record.leaves.is_none() && record.moves_to.is_empty();
            // Chips of a torus are not exchanged. Between its stop and its start, another task of its array could be let in, and
            // a deadline for its start could pass.
            let turn = &job.turn;
            let starts_again = gang.topology.slice.is_none()
                && turn.service.is_none()
                && turn.deadline.is_none()
                && turn.array.as_ref().is_none_or(|array| array.running_max.is_none());
            let may_move = job.policy.preempt.may_move
                && !job.policy.preempt.is_pinned
                && !record.is_protected
                && is_settled
                && starts_again;
            let stays_ms = if rules.has_to_pay { rules.settings.stays_ms } else { 0 };
            let min_run_ms = self.draft.queues.class_of(job).map_or(0, |class| class.min_run_ms);
            if !may_move {
                continue;
            }
            let from = since.plus(stays_ms.max(min_run_ms));
            if now < from {
                first_at = Some(first_at.map_or(from, |at| at.min(from)));
                continue;
            }
            // A gang that is told ahead saves its work.
            let unsaved_ms = match job.policy.stop.advisory {
                Some(_) => 0,
                None => now.since(record.checkpointed_at.unwrap_or_default().max(since)),
            };
            let lost_ms = u128::from(rules.restart_ms.saturating_add(unsaved_ms));
            let held_milli = gang.held_milli(placement);
            let lost_device_ms = u64::try_from(u128::from(held_milli) * lost_ms / 1_000).unwrap_or(u64::MAX);
            candidates.push(Candidate {
                // Classes do not matter: nobody makes way.
                rank: 0,
                level: Reverse(0),
                lost_device_ms,
                costs_device_ms: lost_device_ms,
                devices: Reverse(held_milli),
                id,
                gang,
                chunk: None,
                contender,
                picks: Cow::Borrowed(self.ledger.picks(id).unwrap_or_default()),
            });
        }
        self.without_held(&mut candidates);
        candidates.sort_by_key(Candidate::cost);
        (candidates, first_at)
    }
}
