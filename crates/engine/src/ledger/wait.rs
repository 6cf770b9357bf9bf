//! Pending gangs: in their queue if only missing room keeps them from starting, and outside of it until then.

use std::collections::BTreeSet;

use phalanx_model::{
    EndOf, Ending, Gang, GangId, GangRecord, Job, JobId, Outcome, Phase, Reason, StopCause, StopStage,
    Timestamp,
};

use super::Ledger;
use super::gang::grace_max_ms;
use crate::cycle::{KILL_AGAIN_MS, request_key};
use crate::placement::with_spares;
use crate::queueing::{OrderKey, QueueAt, RequestKey};

/// How long after SIGTERM other gangs wait for what a gang leaves: most programs end within seconds, and a place that is nearer
/// is worth that.
const STOPPED_WITHIN_MS: u64 = 60_000;

impl Ledger {
    /// Adds a pending gang to its queue, or removes it, by its present state.
    pub(super) fn relist(&mut self, gang: GangId) {
        self.pending.delist(&mut self.queues, gang);
        self.refresh.insert(gang);
        if !self.record(gang).is_some_and(|r| r.is_pending()) || self.kept_back(gang).is_some() {
            return;
        }
        if self.record(gang).is_some_and(|r| r.reserved.is_some()) {
            return;
        }
        let (Some(job), Some(key)) = (self.job(gang.job), self.share_request_of(gang)) else { return };
        let level = self.queues.level_of(gang);
        let order_key = OrderKey::of(job, gang, level, self.now, self.queues.settings().ageing_ms);
        let name = job.queue.clone();
        let queue = self.queues.ensure(&name);
        self.pending.enlist(&mut self.queues, &self.tree, key, queue, order_key);
        self.replan = true;
    }

    /// The request of a pending gang, which other gangs may share.
    pub(crate) fn share_request_of(&self, gang: GangId) -> Option<RequestKey> {
        request_key(self, &self.queues, gang)
    }

    /// The gang as it is to be placed: a gang that can resume only where its checkpoint is names those nodes, a gang that
    /// lost hardware may have spare nodes, and an elastic gang starts with its fewest members if it has to.
    pub(crate) fn wanted(&self, id: GangId) -> Option<std::borrow::Cow<'_, Gang>> {
        use std::borrow::Cow;
        let (job, gang, record) = (self.job(id.job)?, self.gang(id)?, self.record(id)?);
        let gang =
            if gang.size > gang.min { Cow::Owned(gang.of_size(gang.min)) } else { Cow::Borrowed(gang) };
        let gang = if record.lost_hardware && self.queues.settings().spares.is_some() {
            Cow::Owned(with_spares(&gang))
        } else {
            gang
        };
        let pinned = record.pinned.as_slice();
        if pinned.is_empty() || record.checkpointed_at.is_none() || !job.policy.preempt.is_pinned {
            return Some(gang);
        }
        let mut wanted = gang.into_owned();
        for needs in wanted.all_needs_mut() {
            // It stays where it is, as a running gang does, if its queue has other pools meanwhile.
            needs.forget_pools();
            let named = &mut needs.nodes;
            if named.is_empty() {
                *named = pinned.to_vec();
            } else {
                // Other members may have run on nodes that these members do not name.
                named.retain(|node| pinned.contains(node));
            }
        }
        Some(Cow::Owned(wanted))
    }

    /// The reason that keeps a pending gang out of its queue: time, a user's hold, or other jobs.
    pub(crate) fn kept_back(&self, gang: GangId) -> Option<Reason> {
        let (job, record) = (self.job(gang.job)?, self.record(gang)?);
        if let Some(by) = &job.turn.held_by {
            return Some(Reason::Held { by: by.clone() });
        }
        let unmet: Vec<JobId> = job
            .turn
            .after
            .iter()
            .filter(|a| self.is_met(a.job, a.end) != Some(true))
            .map(|a| a.job)
            .collect();
        if !unmet.is_empty() {
            return Some(Reason::Dependency { jobs: unmet });
        }
        match (job.turn.begins_at, &record.phase) {
            (Some(at), _) if at > self.now => return Some(Reason::BeginTime { at }),
            (_, Phase::Pending { not_before }) if *not_before > self.now => {
                return Some(Reason::BackOff { until: *not_before });
            }
            _ => {}
        }
        let limit = self.jobs.get(&gang.job).and_then(|entry| entry.array_limit(gang));
        limit.map(|running_max| Reason::ArrayLimit { running_max }).or_else(|| self.rests(job, gang))
    }

    /// Whether the wait for a job's end is over; `None` if that is not known. A forgotten job ended long ago.
    fn is_met(&self, job: JobId, end: EndOf) -> Option<bool> {
        let Some(entry) = self.jobs.get(&job) else { return Some(true) };
        let ending = entry.ending.as_ref()?;
        Some(match end {
            EndOf::Any => true,
            EndOf::Success => *ending == Ending::Succeeded,
            EndOf::Failure => *ending != Ending::Succeeded,
        })
    }

    /// A job has ended: jobs that waited for this end go on, or end too if the job ended otherwise.
    pub(super) fn tell_dependents(&mut self, job: JobId, out: &mut Outcome) {
        for waits in self.dependents.remove(&job).unwrap_or_default() {
            self.tell_dependent(waits, out);
        }
    }

    pub(super) fn tell_dependent(&mut self, waits: JobId, out: &mut Outcome) {
        let Some(after) = self.job(waits).map(|job| job.turn.after.clone()) else { return };
        if after.is_empty() {
            return;
        }
        let failed = after.iter().find(|a| self.is_met(a.job, a.end) == Some(false)).map(|a| a.job);
        for gang in self.gangs_of(waits) {
            match failed {
                Some(job) if self.record(gang).is_some_and(|r| r.is_pending()) => {
                    self.finish(gang, Ending::DependencyFailed { job }, out);
                }
                _ => self.relist(gang),
            }
        }
    }

    /// Records that a job waits for no other job any more.
    pub(super) fn forget_dependent(&mut self, job: &Job) {
        for after in &job.turn.after {
            if let Some(waiting) = self.dependents.get_mut(&after.job) {
                waiting.remove(&job.id);
            }
        }
    }

    /// The gangs of a job that have not ended.
    pub(crate) fn gangs_of(&self, job: JobId) -> Vec<GangId> {
        self.active.range(job.gang(0)..=job.gang(u32::MAX)).copied().collect()
    }

    /// The queue of a job, in the present tree.
    pub(crate) fn queue_of(&self, job: JobId) -> Option<QueueAt> {
        self.queues.find(&self.job(job)?.queue)
    }

    /// Pending gangs in order: those that have a reservation, those in queues, and those outside of queues.
    pub(crate) fn in_order(&self) -> Vec<GangId> {
        let mut order: Vec<GangId> = self.reservations.keys().copied().collect();
        order.sort_by_key(|gang| self.reservations.get(gang).map(|hold| (hold.at.is_none(), hold.at)));
        order.extend(self.pending.in_order(&self.queues));
        let others = self.active().filter(|(_, _, r)| r.is_pending()).map(|(_, _, r)| r.id);
        let known: BTreeSet<GangId> = order.iter().copied().collect();
        order.extend(others.filter(|gang| !known.contains(gang)));
        order
    }

    fn unset_end(&mut self, gang: GangId) -> Option<Timestamp> {
        let at = self.ends_at.remove(&gang)?;
        self.ends.remove(&(at, gang));
        Some(at)
    }

    pub(super) fn forget_end(&mut self, gang: GangId) {
        self.unset_end(gang);
        self.endless.remove(&gang);
        self.stopping.remove(&gang);
        self.elastic.remove(&gang);
        self.at_boundary.remove(&gang);
        self.victims.remove(&gang);
        self.victims.values_mut().for_each(|victims| {
            victims.remove(&gang);
        });
    }

    /// Whether the empty cluster is known to hold an equal gang.
    pub(crate) fn is_known_to_fit(&self, gang: &Gang) -> bool {
        self.fitting.contains(&RequestKey::gang_of(gang))
    }

    pub(super) fn note_end(&mut self, gang: GangId) {
        let before = self.unset_end(gang);
        let known = self.job(gang.job).zip(self.record(gang));
        let end = known.and_then(|(job, record)| known_end(job, record));
        if let Some(at) = end {
            self.ends_at.insert(gang, at);
            self.ends.insert((at, gang));
        }
        let holds = self.record(gang).is_some_and(|record| record.holds_capacity());
        if holds && end.is_none() {
            self.endless.insert(gang);
        } else {
            self.endless.remove(&gang);
        }
        if self.leaves(gang) {
            self.stopping.insert(gang);
        } else {
            self.stopping.remove(&gang);
        }
        self.note_making_way(gang);
        self.note_moving(gang);
        self.note_stay(gang);
        self.note_elastic(gang);
        self.note_leaving(gang);
        self.cells.is_stale = true;
        // A pending gang may have a placement reserved now that the end of this gang is known.
        self.replan |= before != end;
    }
}

impl Ledger {
    /// The time until which a gang cannot be preempted: once it runs, as its class says; while it starts, at no time.
    pub(super) fn stays_until(&self, gang: GangId) -> Timestamp {
        let known = self.job(gang.job).zip(self.record(gang));
        known.map_or(Timestamp::MAX, |(job, record)| {
            let min_run_ms = self.queues.class_of(job).map_or(0, |class| class.min_run_ms);
            match record.phase {
                Phase::Running { since } => since.plus(min_run_ms),
                Phase::Starting { .. } => self.now.plus(min_run_ms),
                _ => Timestamp::MAX,
            }
        })
    }

    /// Gangs that were told to end, with the time until which they are expected to be gone.
    pub(super) fn about_to_be_gone(&self) -> impl Iterator<Item = (GangId, Timestamp)> + '_ {
        let known = self.stopping.iter().filter_map(|gang| Some((*gang, self.gone_by(*gang)?)));
        known.filter(|(_, until)| *until > self.now)
    }

    /// Until when a gang is expected to be gone; `None` if it was not told to end, or hangs.
    fn gone_by(&self, gang: GangId) -> Option<Timestamp> {
        let (job, record) = self.job(gang.job).zip(self.record(gang))?;
        let Phase::Stopping { stage, next_at, cause } = &record.phase else { return None };
        match stage {
            StopStage::Advised | StopStage::Lingering => None,
            StopStage::Terminated => {
                let grace_ms = job.policy.stop.grace_ms.min(grace_max_ms(cause));
                let told_at = Timestamp(next_at.0.saturating_sub(grace_ms));
                Some(told_at.plus(STOPPED_WITHIN_MS).min(next_at.plus(KILL_AGAIN_MS)))
            }
            StopStage::Killed => Some(*next_at),
        }
    }

    /// Whether a gang will release its capacity soon.
    pub(super) fn leaves(&self, gang: GangId) -> bool {
        let ends = |record: &GangRecord| {
            matches!(&record.phase, Phase::Stopping { cause, .. } if !matches!(cause, StopCause::Moved { .. }))
                && record.resize.is_none()
                && record.moves_to.is_empty()
        };
        self.record(gang).is_some_and(ends)
    }

    pub(super) fn note_stay(&mut self, gang: GangId) {
        let until = self.stays_until(gang);
        if let Some((queue, job)) = self.queue_of(gang.job).zip(self.job(gang.job)) {
            let holder_key = self.queues.holder_key_of(job, gang);
            self.queues.stay(queue, holder_key, until, self.leaves(gang));
        }
    }
}

/// The latest time at which a gang that holds capacity has ended; unknown without a time limit. A gang that moves starts again
/// as soon as it has stopped.
pub(crate) fn known_end(job: &Job, record: &GangRecord) -> Option<Timestamp> {
    let ends = end_of_attempt(job, &record.phase);
    if record.moves_to.is_empty() {
        return ends;
    }
    end_of_attempt(job, &Phase::Starting { deadline: ends?.plus(job.policy.start_deadline_ms) })
}

fn end_of_attempt(job: &Job, phase: &Phase) -> Option<Timestamp> {
    let limit = job.policy.time_limit_ms;
    let grace = job.policy.stop.grace_ms;
    match phase {
        Phase::Running { since } => Some(since.plus(limit?).plus(grace)),
        Phase::Starting { deadline } => Some(deadline.plus(limit?).plus(grace)),
        Phase::Stopping { stage: StopStage::Advised, next_at, cause } => {
            let most = match cause {
                StopCause::Preempted(preemption) => preemption.grace_max_ms.unwrap_or(u64::MAX),
                _ => u64::MAX,
            };
            Some(next_at.plus(grace.min(most)))
        }
        Phase::Stopping { stage: StopStage::Terminated, next_at, .. } => Some(*next_at),
        // A process that survives SIGKILL has no known end.
        _ => None,
    }
}
