//! One timer per gang, derived from its phase: the record is the only state about time.

use super::gang::grace_max_ms;
use phalanx_model::{Ending, GangId, GangRecord, Outcome, Phase, Signal, StopCause, StopStage, Timestamp};

use super::Ledger;
use crate::cycle::KILL_AGAIN_MS;

impl Ledger {
    /// Sets the timer of a gang by its present state. Call after every change of phase.
    ///
    /// A timer of a pending gang that is due in this step stays: a fact about the gang that comes in the same step must
    /// not take from it the evaluation that it waited for.
    pub(super) fn retime(&mut self, gang: GangId) {
        let is_pending = || self.record(gang).is_some_and(GangRecord::is_pending);
        let due = self.timer_at.get(&gang).copied().filter(|at| *at <= self.now && is_pending());
        self.forget_timer(gang);
        if let Some(at) = due.or_else(|| self.timer_of(gang)) {
            self.timer_at.insert(gang, at);
            self.timers.insert((at, gang));
        }
    }

    pub(super) fn forget_timer(&mut self, gang: GangId) {
        if let Some(at) = self.timer_at.remove(&gang) {
            self.timers.remove(&(at, gang));
        }
    }

    /// When this gang next needs a step without any other input.
    fn timer_of(&self, gang: GangId) -> Option<Timestamp> {
        let (entry, record) = (self.jobs.get(&gang.job)?, self.record(gang)?);
        let policy = &entry.job.policy;
        let at = match &record.phase {
            Phase::Pending { not_before } => self.next_look(gang, *not_before),
            Phase::Starting { deadline } => {
                Some(self.leaves_at(gang).map_or(*deadline, |at| at.min(*deadline)))
            }
            Phase::Running { since } => {
                let limit_at = policy.time_limit_ms.map(|limit| {
                    let lead = policy.stop.advisory.map_or(0, |a| a.lead_ms.min(limit));
                    since.plus(limit - lead)
                });
                let others = self.leaves_at(gang).into_iter().chain(self.idle_at(gang, *since));
                limit_at.into_iter().chain(others).chain(self.yields_at(gang)).min()
            }
            Phase::Stopping { next_at, .. } => Some(*next_at),
            Phase::Finished { .. } => None,
        };
        // A deadline that overflowed never comes.
        at.filter(|at| *at < Timestamp::MAX)
    }

    /// When time alone changes the state of a pending gang.
    fn next_look(&self, gang: GangId, not_before: Timestamp) -> Option<Timestamp> {
        let (turn, record) = (&self.job(gang.job)?.turn, self.record(gang)?);
        let times = [
            Some(not_before),
            turn.begins_at,
            turn.boost.as_ref().map(|boost| boost.until),
            self.preferred_until(gang),
            record.reserved.as_ref().and_then(|reserved| reserved.at),
        ];
        // A deadline that is over still counts: something may have happened to the job in the very step that was to
        // apply it.
        times.into_iter().flatten().filter(|at| *at > self.now).chain(turn.deadline).min()
    }

    /// The time until which a gang waits for its preferred level.
    pub(crate) fn preferred_until(&self, gang: GangId) -> Option<Timestamp> {
        let topology = &self.gang(gang)?.topology;
        topology.preferred.as_ref()?;
        Some(self.record(gang)?.pending_since.plus(topology.wait_ms))
    }

    pub(crate) fn expire_timers(&mut self, out: &mut Outcome) {
        self.look_again_if_due();
        self.end_windows();
        while let Some((at, gang)) = self.timers.first().copied() {
            if at > self.now {
                return;
            }
            self.forget_timer(gang);
            self.expire(gang, out);
            self.retime(gang);
        }
    }

    fn expire(&mut self, gang: GangId, out: &mut Outcome) {
        let Some(phase) = self.record(gang).map(|r| r.phase.clone()) else { return };
        match phase {
            Phase::Pending { .. } => self.time_passed(gang, out),
            Phase::Starting { .. } | Phase::Running { .. } if self.leave(gang, out) => {}
            Phase::Starting { .. } => self.start_deadline_passed(gang, out),
            Phase::Running { .. } if self.yields(gang, out) => {}
            Phase::Running { since } if self.end_idle(gang, since, out) => {}
            Phase::Running { since } => self.time_limit_near(gang, since, out),
            Phase::Stopping { cause, stage, .. } => self.stop_harder(gang, cause, stage, out),
            Phase::Finished { .. } => {}
        }
    }

    /// The back-off, a boost, or the wait for a closer placement is over; or the deadline is.
    fn time_passed(&mut self, gang: GangId, out: &mut Outcome) {
        let deadline = self.job(gang.job).and_then(|job| job.turn.deadline);
        if deadline.is_some_and(|at| at <= self.now) {
            return self.finish(gang, Ending::DeadlineMissed, out);
        }
        self.relist(gang);
        self.replan = true;
    }

    fn time_limit_near(&mut self, gang: GangId, since: Timestamp, out: &mut Outcome) {
        let Some(policy) = self.job(gang.job).map(|j| j.policy.clone()) else { return };
        let Some(limit) = policy.time_limit_ms else { return };
        let lead = policy.stop.advisory.map_or(0, |advisory| advisory.lead_ms.min(limit));
        // The timer was set for a reason that is gone: its queue no longer orders by service.
        if since.plus(limit - lead) > self.now {
            return;
        }
        self.begin_stop(gang, StopCause::TimeLimit, out);
        // The advisory comes ahead of the limit, SIGTERM at the limit itself.
        let limit_at = since.plus(limit);
        if let Some(record) = self.record_mut(gang)
            && let Phase::Stopping { stage: StopStage::Advised, next_at, .. } = &mut record.phase
        {
            *next_at = limit_at;
        }
    }

    /// The next step from advice to SIGTERM to SIGKILL.
    pub(super) fn stop_harder(
        &mut self,
        gang: GangId,
        cause: StopCause,
        stage: StopStage,
        out: &mut Outcome,
    ) {
        let Some(grace_ms) = self.job(gang.job).map(|j| j.policy.stop.grace_ms) else { return };
        let advised_ms = self.advised_ms(gang, &cause);
        let (stage, wait_ms) = match stage {
            StopStage::Advised => (StopStage::Terminated, grace_ms.min(self.allowed_ms(&cause, advised_ms))),
            StopStage::Terminated => (StopStage::Killed, KILL_AGAIN_MS),
            StopStage::Killed | StopStage::Lingering => (StopStage::Lingering, KILL_AGAIN_MS),
        };
        let next_at = self.now.plus(wait_ms);
        if stage == StopStage::Lingering {
            // Nobody knows when it starts again.
            self.release_nodes(gang);
        }
        self.set_phase(gang, Phase::Stopping { cause, stage, next_at });
        self.order_stage(gang, stage, out);
    }

    /// The part of the allowed time that the advice took.
    fn advised_ms(&self, gang: GangId, cause: &StopCause) -> u64 {
        let advisory = self.job(gang.job).and_then(|j| j.policy.stop.advisory);
        advisory.map_or(0, |advisory| advisory.lead_ms.min(grace_max_ms(cause)))
    }

    /// Emits the order that belongs to a stage of stopping.
    pub(super) fn order_stage(&mut self, gang: GangId, stage: StopStage, out: &mut Outcome) {
        use phalanx_model::Order::{KillMembers, SignalMembers};
        let Some((attempt, advisory)) =
            self.record(gang).map(|r| r.attempt).zip(self.job(gang.job).map(|j| j.policy.stop.advisory))
        else {
            return;
        };
        let order = match (stage, advisory) {
            (StopStage::Advised, Some(a)) => {
                SignalMembers { gang, attempt, signal: Signal::Advisory(a.signal) }
            }
            (StopStage::Advised, None) | (StopStage::Terminated, _) => {
                SignalMembers { gang, attempt, signal: Signal::Terminate }
            }
            (StopStage::Killed | StopStage::Lingering, _) => KillMembers { gang, attempt },
        };
        self.emit(order, out);
    }
}
