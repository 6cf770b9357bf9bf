//! Preemption: upwards only, for a reservation, and never in turn.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{
    Change, GangId, GangRecord, Input, NodeName, Phase, Placement, Preemption, PreemptionRule, Queue,
    QueueName, Reserved, Resource, Slot, StopCause, Timestamp,
};

use crate::start::Start;
use crate::{Checker, Violation};

#[derive(Clone, Debug, Default)]
pub(crate) struct Preemptions {
    /// The preempting gangs, with their reservations.
    reservations: BTreeMap<GangId, Placement>,
    running_since: BTreeMap<GangId, Timestamp>,
    /// The preempted gangs that have not ended, with the gang that preempts each.
    stopping: BTreeMap<GangId, Option<GangId>>,
    checkpointed: BTreeSet<GangId>,
    /// The nodes of the checkpoints of preempted gangs, if other nodes cannot read them.
    pinned: BTreeMap<GangId, BTreeSet<NodeName>>,
    preempted: BTreeSet<GangId>,
    /// The gangs that are protected from disruption.
    protected: BTreeSet<GangId>,
    /// The preempted and the preempting gang of each preemption since the last change from outside.
    pairs: BTreeSet<(GangId, GangId)>,
}

/// Counts the changes from outside, after which the engine may decide otherwise. The passing of time and the decay of
/// usage do not count.
const fn is_from_outside(input: &Input) -> bool {
    !matches!(
        input,
        Input::SyncBegin { .. }
            | Input::SyncEnd { .. }
            | Input::JobObserved { .. }
            | Input::UsageObserved { .. }
            | Input::RunsObserved { .. }
            | Input::MemberReady { .. }
            | Input::MemberReleased { .. }
            | Input::MemberExited { .. }
            | Input::MemberObserved { .. }
            | Input::GangCheckpointed { .. }
            | Input::MetricObserved { .. }
            | Input::SessionObserved { .. }
            | Input::BoundaryReached { .. }
            | Input::EffectDone { .. }
            | Input::EffectUnknown { .. }
    )
}

impl Preemptions {
    pub(crate) fn fact(&mut self, input: &Input) {
        if is_from_outside(input) {
            self.pairs.clear();
        }
        match input {
            Input::GangCheckpointed { gang, .. } | Input::BoundaryReached { gang, .. } => {
                set(&mut self.checkpointed, *gang, true)
            }
            Input::GangProtected { gang, is_protected } => set(&mut self.protected, *gang, *is_protected),
            Input::JobForgotten { job } => self.protected.retain(|gang| gang.job != *job),
            Input::JobObserved { gangs, .. } => gangs.iter().for_each(|record| self.observe(record)),
            _ => {}
        }
    }

    fn observe(&mut self, record: &GangRecord) {
        self.hold(record.id, record.reserved.as_ref());
        set(&mut self.protected, record.id, record.is_protected);
        match &record.phase {
            Phase::Stopping { cause, .. } => self.stopping.insert(record.id, preempting_gang(cause)),
            _ => self.stopping.remove(&record.id),
        };
        if let Phase::Running { since } = record.phase {
            self.running_since.insert(record.id, since);
        }
        if !record.pinned.is_empty() && record.checkpointed_at.is_some() {
            self.pinned.insert(record.id, record.pinned.iter().cloned().collect());
        }
    }

    pub(crate) fn is_protected(&self, gang: GangId) -> bool {
        self.protected.contains(&gang)
    }

    /// The gangs for which others make way, or made it, and where.
    pub(crate) fn cleared(&self) -> impl Iterator<Item = (GangId, &Placement)> {
        self.reservations.iter().map(|(gang, place)| (*gang, place))
    }

    /// Whether others make way for a gang on this node.
    pub(crate) fn is_cleared(&self, gang: GangId, node: &NodeName) -> bool {
        let reserved = self.reservations.get(&gang);
        reserved.is_some_and(|place| place.slots.iter().any(|slot| slot.node == *node))
    }

    fn hold(&mut self, gang: GangId, reserved: Option<&Reserved>) {
        match reserved.filter(|reserved| reserved.evicts) {
            Some(reserved) => self.reservations.insert(gang, reserved.placement.clone()),
            None => self.reservations.remove(&gang),
        };
    }

    /// Applies a change after it was checked.
    fn change(&mut self, change: &Change, now: Timestamp) {
        match change {
            Change::GangReserved { gang, reserved } => self.hold(*gang, Some(reserved)),
            Change::ReservationDropped { gang, .. } => self.hold(*gang, None),
            Change::GangPlaced { gang, .. } => {
                self.hold(*gang, None);
                self.stopping.remove(gang);
                self.running_since.remove(gang);
            }
            Change::GangRunning { gang, .. } => {
                self.running_since.insert(*gang, now);
            }
            Change::GangStopping { gang, cause, .. } => {
                self.stopping.insert(*gang, preempting_gang(cause));
                let is_preempted = matches!(cause, StopCause::Preempted(_));
                set(&mut self.preempted, *gang, is_preempted);
                if !is_preempted {
                    self.pairs.clear();
                }
            }
            Change::GangRetrying { gang, .. } => drop(self.stopping.remove(gang)),
            Change::GangFinished { gang, .. } => {
                self.hold(*gang, None);
                self.stopping.remove(gang);
                self.pairs.clear();
            }
            _ => {}
        }
    }

    /// A gang that was preempted before may preempt now.
    pub(crate) fn outside_changed(&mut self) {
        self.pairs.clear();
    }

    /// Whether `last` preempted `first`, directly or through other gangs.
    fn reaches(&self, first: GangId, last: GangId) -> bool {
        let mut seen = BTreeSet::from([first]);
        let mut open = vec![first];
        while let Some(gang) = open.pop() {
            for (_, next) in self.pairs.iter().filter(|(from, _)| *from == gang) {
                if *next == last {
                    return true;
                }
                if seen.insert(*next) {
                    open.push(*next);
                }
            }
        }
        false
    }
}

const fn preempting_gang(cause: &StopCause) -> Option<GangId> {
    match cause {
        StopCause::Preempted(preemption) => Some(preemption.by),
        _ => None,
    }
}

fn set(all: &mut BTreeSet<GangId>, gang: GangId, is_in: bool) {
    if is_in {
        all.insert(gang);
    } else {
        all.remove(&gang);
    }
}

impl Checker {
    /// The changes of a step; `started` are the gangs that it started.
    pub(crate) fn check_preemptions(
        &mut self,
        changes: &[Change],
        started: &BTreeSet<GangId>,
        found: &mut Vec<Violation>,
    ) {
        let reserved = changes.iter().filter_map(|change| match change {
            Change::GangReserved { gang, reserved: Reserved { evicts: true, .. } } => Some(*gang),
            _ => None,
        });
        let reservations: BTreeSet<GangId> =
            self.preemptions.reservations.keys().copied().chain(reserved).collect();
        let stopped = changes.iter().filter_map(|change| match change {
            Change::GangStopping { gang, .. } => Some(*gang),
            _ => None,
        });
        // Starts and stops of this step do not count against the queue that reclaims.
        let leaving: BTreeSet<GangId> =
            self.preemptions.stopping.keys().chain(started).copied().chain(stopped).collect();
        // An end, a failure and a higher load of a service are changes from outside too.
        let is_end = |change: &Change| match change {
            Change::GangFinished { .. } | Change::ServiceScaled { .. } => true,
            Change::GangStopping { cause, .. } => matches!(cause, StopCause::Failure { .. }),
            _ => false,
        };
        if changes.iter().any(is_end) {
            self.preemptions.pairs.clear();
        }
        // A gang whose victims have left its nodes already starts in the very step that preempts them, and no sooner.
        let placed = changes.iter().filter_map(|change| match change {
            Change::GangPlaced { gang, .. } => Some(*gang),
            _ => None,
        });
        let placed: BTreeSet<GangId> = placed.collect();
        let mut holding: BTreeSet<GangId> = self.living_gangs().filter(|id| !placed.contains(id)).collect();
        // Until it was stopped, each gang held the whole of its placement.
        changes.iter().for_each(|change| self.note_stop(change, false));
        for change in changes {
            if let Change::GangPlaced { gang, .. } = change {
                holding.insert(*gang);
            }
            if let Change::GangStopping { gang, cause: StopCause::Preempted(preemption), .. } = change {
                let by = preemption.by;
                let mut wrong = |why: String| found.push(Violation::WrongEviction { gang: *gang, by, why });
                if !reservations.contains(&by) {
                    wrong("no capacity is reserved for it".to_owned());
                }
                if holding.contains(&by) || self.turns.has_ended(by.job) {
                    wrong("it is not pending".to_owned());
                } else if let Some(why) = self.is_wrong(*gang, preemption, &leaving) {
                    wrong(why);
                }
                if self.preemptions.pairs.contains(&(*gang, by)) || self.preemptions.reaches(by, *gang) {
                    found.push(Violation::EvictedInTurn { gang: *gang, by });
                }
                self.preemptions.pairs.insert((*gang, by));
            }
            if let Change::GangStopping { gang, cause: StopCause::Moved { by, to, .. }, .. } = change {
                let is_pending = !holding.contains(by) && !self.turns.has_ended(by.job);
                let why = match reservations.contains(by) && is_pending {
                    true => self.may_not_move(*gang, *by, to, changes),
                    false => Some("no place is reserved for the gang that waits".to_owned()),
                };
                found.extend(why.map(|why| Violation::WrongEviction { gang: *gang, by: *by, why }));
            }
            self.note_stop(change, true);
            self.preemptions.change(change, self.now);
        }
    }

    /// Why a gang may not move to a place to open another one.
    fn may_not_move(&self, gang: GangId, by: GangId, to: &Placement, changes: &[Change]) -> Option<String> {
        let job = self.jobs.get(&gang.job)?;
        if !job.policy.preempt.may_move {
            return Some("its job does not agree to be moved".to_owned());
        }
        if job.policy.preempt.is_pinned {
            return Some("it is to resume on its nodes".to_owned());
        }
        if self.preemptions.protected.contains(&gang) {
            return Some("it is protected from disruption".to_owned());
        }
        let opened = changes.iter().rev().find_map(|change| match change {
            Change::GangReserved { gang, reserved } if *gang == by => Some(&reserved.placement),
            _ => None,
        });
        let opened = opened.or_else(|| self.preemptions.reservations.get(&by))?;
        let had = self.attempts.get(&gang).map(|(_, attempt)| &attempt.placement)?;
        let meet = |one: &Placement, other: &Placement, shares: fn(&Slot, &Slot) -> bool| {
            let mut pairs = one.slots.iter().flat_map(|slot| other.slots.iter().map(move |of| (slot, of)));
            pairs.any(|(slot, of)| slot.node == of.node && shares(slot, of))
        };
        if to.slots.len() != had.slots.len() {
            return Some("it would have another size there".to_owned());
        }
        if meet(to, opened, |one, other| !one.devices.and(other.devices).is_empty()) {
            return Some("it would move into the place that it opens".to_owned());
        }
        (!meet(had, opened, |_, _| true)).then(|| "it has nothing of the place that it is to open".to_owned())
    }

    /// A preempted gang has ended. If its job is pinned, its checkpoint can be read only on its nodes.
    pub(crate) fn pin(&mut self, id: GangId) {
        let is_pinned = self.jobs.get(&id.job).is_some_and(|job| job.policy.preempt.is_pinned);
        let has_saved = self.preemptions.preempted.remove(&id) && self.preemptions.checkpointed.contains(&id);
        if let Some((_, attempt)) = self.attempts.get(&id).filter(|_| is_pinned && has_saved) {
            let nodes = attempt.placement.slots.iter().map(|slot| slot.node.clone()).collect();
            self.preemptions.pinned.insert(id, nodes);
        }
    }

    /// A gang must resume on nodes that can read its checkpoint.
    pub(crate) fn check_pinned(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        let Some(nodes) = self.preemptions.pinned.get(&start.id) else { return };
        let elsewhere = start.nodes().into_iter().find(|node| !nodes.contains(*node));
        found.extend(elsewhere.map(|node| Violation::NotWhereItSaved { gang: start.id, node: node.clone() }));
    }

    fn is_wrong(&self, gang: GangId, preemption: &Preemption, leaving: &BTreeSet<GangId>) -> Option<String> {
        let by = preemption.by;
        let job = self.jobs.get(&gang.job)?;
        let Some(other) = self.jobs.get(&by.job) else { return Some("no such job was submitted".to_owned()) };
        if preemption.rule == PreemptionRule::Spare && !self.preemptions.is_protected(gang) {
            return self.leaves_no_spare(gang, preemption);
        }
        if let Some(why) = self.kept(gang, job) {
            return Some(why);
        }
        if self.preemptions.protected.contains(&gang) {
            return Some("it is protected from disruption".to_owned());
        }
        let (own, others) = (self.queues.class(job)?, self.queues.class(other)?);
        if !others.may_preempt {
            return Some(format!("class {} may not preempt", others.name));
        }
        // A starting gang has no running time.
        let since = self.preemptions.running_since.get(&gang);
        let ran_ms = since.map_or(0, |since| preemption.at.since(*since));
        if ran_ms < own.min_run_ms {
            return Some(format!("it has run {ran_ms} ms, and its minimum is {} ms", own.min_run_ms));
        }
        match &preemption.rule {
            PreemptionRule::Class { class, over } => {
                let is_it = *class == others.name && *over == own.name && others.rank > own.rank;
                (!is_it).then(|| format!("class {} is not above class {}", others.name, own.name))
            }
            PreemptionRule::Guarantee { queue, borrower } => self
                .is_no_borrower(gang, by, queue, borrower)
                .or_else(|| self.is_above_guarantee(gang, by, queue, leaving)),
            PreemptionRule::FairShare { queue, borrower } => self.is_no_borrower(gang, by, queue, borrower),
            PreemptionRule::LessServed { .. } if own.rank != others.rank => {
                Some(format!("class {} is not class {}", others.name, own.name))
            }
            PreemptionRule::LessServed { queue, level, over } => {
                self.is_served_less(gang, by, queue, (*level, *over))
            }
            PreemptionRule::Spare => None,
        }
    }

    /// Checks that `borrower`, the queue of the gang, uses more than its guarantee, and is not `queue`, the queue of
    /// the preempting gang. Capacity of preempting gangs counts as used, and capacity of preempted gangs does not.
    fn is_no_borrower(
        &self,
        gang: GangId,
        by: GangId,
        queue: &QueueName,
        borrower: &QueueName,
    ) -> Option<String> {
        let is_of = |gang: GangId, queue: &QueueName| self.is_in(gang, queue);
        let is_between = is_of(by, queue) && !is_of(gang, queue) && is_of(gang, borrower);
        let is_left = self.jobs.get(&gang.job).is_some_and(|job| job.queue == *borrower);
        if is_between && is_of(by, borrower) && is_left {
            // Work that stayed in a queue that has children now. It is beside them, and has no guarantee of its own.
            return None;
        }
        if !is_between || is_of(by, borrower) {
            return Some(format!("the preemption is not between queues {queue} and {borrower}"));
        }
        let others = |(_, whom): &(&GangId, &Option<GangId>)| **whom != Some(by);
        let leaving: BTreeSet<GangId> =
            self.preemptions.stopping.iter().filter(others).map(|(gang, _)| *gang).collect();
        let mut resources = self.queues.guaranteed_resources().into_iter();
        let borrows = resources.any(|resource| {
            let used =
                self.used(borrower, resource, &leaving).saturating_add(self.claimed(borrower, resource));
            used > self.queues.guaranteed(borrower, resource)
        });
        // A queue without a guarantee for its resources has no guarantee to be within.
        let resources = self.queues.guaranteed_resources();
        let mut own = resources.iter().filter(|resource| self.queues.guaranteed(borrower, resource) > 0);
        if !borrows && !own.any(|resource| self.demand(gang, resource) > 0) {
            return None;
        }
        (!borrows).then(|| format!("queue {borrower} is within its guarantee"))
    }

    /// The capacity that preempting gangs of a queue and its descendants will use.
    fn claimed(&self, queue: &QueueName, resource: &Resource) -> u64 {
        let held = self.preemptions.reservations.iter().filter(|(id, _)| self.is_in(**id, queue));
        let held = held.filter_map(|(id, placement)| {
            Some(Start { id: *id, gang: self.gang(*id)?, placement, is_first: false })
        });
        held.map(|of| self.amount_of(of, resource)).fold(0, u64::saturating_add)
    }

    /// Checks that `queue`, or an ancestor below the common ancestor with the gang, stays within its guarantee with
    /// the preempting gang and without the preempted gangs.
    fn is_above_guarantee(
        &self,
        gang: GangId,
        by: GangId,
        queue: &QueueName,
        leaving: &BTreeSet<GangId>,
    ) -> Option<String> {
        let path = self.queues.path(queue);
        let mut own = path.iter().filter(|above| !self.is_in(gang, &above.name));
        let is_within = |above: &&Queue| {
            let resources = self.queues.guaranteed_resources();
            let has_any = resources.iter().any(|resource| self.queues.guaranteed(&above.name, resource) > 0);
            !above.shapes.is_empty() || has_any && self.beyond(by, &above.name, leaving).is_none()
        };
        if own.any(is_within) {
            return None;
        }
        let beyond = self.beyond(by, queue, leaving);
        beyond.or_else(|| Some(format!("queue {queue} has no guarantee")))
    }

    /// The resource of which a queue would use more than its guarantee. A resource without a guarantee is not
    /// checked.
    fn beyond(&self, by: GangId, queue: &QueueName, leaving: &BTreeSet<GangId>) -> Option<String> {
        self.queues.guaranteed_resources().into_iter().find_map(|resource| {
            let (own, needs) = (self.queues.guaranteed(queue, resource), self.demand(by, resource));
            let uses = self.used(queue, resource, leaving).saturating_add(needs);
            (own > 0 && needs > 0 && uses > own).then(|| {
                let (uses, own) = (resource.show(uses), resource.show(own));
                format!("queue {queue} would use {uses} {resource}, and its guarantee is {own}")
            })
        })
    }
}
