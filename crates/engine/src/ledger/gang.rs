//! The life of one gang: pending, starting, running, stopping, and back to pending or finished.
//!
//! A gang holds capacity from the order to start until the last process of the last member is gone. While it is being
//! stopped, each member that is gone frees its part at once ([`super::exits`]). A pending gang holds nothing.

use std::borrow::Cow;
use std::collections::BTreeSet;

use phalanx_model::{
    Change, Ending, Exit, FailureClass, GangId, GangRecord, MemberRecord, MemberState, NodeName, Order,
    Outcome, Phase, Placement, PreemptMode, Preemption, StopCause, StopStage, Timestamp, WeighedLink,
};

use super::Ledger;
use super::apply::{ending_of, refuse};

/// Ends that are seen within this time may have been in the other order: a process that is killed closes its sockets before
/// anybody can see that it has ended.
const ABOUT_NS: u64 = 200_000_000;
const SIGTERM: i32 = 15;

impl Ledger {
    pub(super) fn set_phase(&mut self, gang: GangId, phase: Phase) {
        self.count_service(gang);
        self.write_phase(gang, phase);
        self.note_exits(gang);
        self.note_shield(gang);
        self.retime(gang);
        self.note_end(gang);
    }

    /// Records the placement and orders every member to the start barrier. The capacity is taken already: the cycle
    /// took it while it searched for the next gang.
    pub(crate) fn start(
        &mut self,
        gang: GangId,
        placement: Placement,
        weighed: Vec<WeighedLink>,
        out: &mut Outcome,
    ) {
        let Some(deadline_ms) = self.job(gang.job).map(|j| j.policy.start_deadline_ms) else { return };
        let deadline = self.now.plus(deadline_ms);
        let attempt = self.begin_attempt(gang, &placement, deadline);
        if let Some(record) = self.record_mut(gang) {
            record.weighed = weighed;
        }
        out.changes.push(Change::GangPlaced { gang, attempt, placement: placement.clone() });
        self.emit(Order::StartMembers { gang, attempt, placement, deadline }, out);
    }

    fn begin_attempt(&mut self, gang: GangId, placement: &Placement, deadline: Timestamp) -> u32 {
        self.reasons.remove(&gang);
        self.unavailable.remove(&gang);
        self.refresh_after(gang);
        let mut attempt = 0;
        if let Some(record) = self.record_mut(gang) {
            record.attempt = record.attempt.saturating_add(1);
            attempt = record.attempt;
            record.placement = Some(placement.clone());
            record.reserved = None;
            (record.lost_hardware, record.was_on) = (false, None);
            record.saves_every_ms = None;
            record.resize = None;
            record.boundary = None;
            if record.checkpointed_at.is_none() {
                // A checkpoint that is reported from now on is one of this attempt.
                record.pinned.clear();
            }
            record.members =
                placement.slots.iter().map(|_| MemberRecord { state: MemberState::Requested }).collect();
        }
        self.release_nodes(gang);
        self.write_phase(gang, Phase::Starting { deadline });
        self.set_size(gang, u32::try_from(placement.slots.len()).unwrap_or(u32::MAX));
        self.holder_key(gang, placement);
        self.call_off_shrinks_for(gang);
        self.count_members(gang);
        self.retime(gang);
        self.note_end(gang);
        attempt
    }

    /// Records that a member is at the start barrier. If all members are, the barrier opens for all.
    pub(super) fn member_ready(&mut self, gang: GangId, rank: u32, out: &mut Outcome) {
        if self.member_state(gang, rank) != Some(&MemberState::Requested) {
            return;
        }
        self.set_member(gang, rank, MemberState::Ready);
        let Some(record) = self.record(gang) else { return };
        let all_ready = self.tally(gang).all_ready();
        if matches!(record.phase, Phase::Starting { .. }) && all_ready {
            let attempt = record.attempt;
            self.emit(Order::ReleaseMembers { gang, attempt }, out);
        }
    }

    pub(super) fn member_released(&mut self, gang: GangId, rank: u32, out: &mut Outcome) {
        if matches!(self.member_state(gang, rank), None | Some(MemberState::Exited(_))) {
            return;
        }
        self.set_member(gang, rank, MemberState::Running);
        let now = self.now;
        if let Some(record) = self.record_mut(gang) {
            record.first_started_at.get_or_insert(now);
        }
        self.run_if_all_released(gang, out);
    }

    fn run_if_all_released(&mut self, gang: GangId, out: &mut Outcome) {
        let (now, through) = (self.now, self.tally(gang).all_through());
        let Some(record) = self.record_mut(gang) else { return };
        if !through || !matches!(record.phase, Phase::Starting { .. }) {
            return;
        }
        record.first_started_at.get_or_insert(now);
        let attempt = record.attempt;
        self.set_phase(gang, Phase::Running { since: now });
        out.changes.push(Change::GangRunning { gang, attempt });
        self.hand_over(gang.job, out);
    }

    /// Records that the last process of a member is gone.
    pub(super) fn member_exited(&mut self, gang: GangId, rank: u32, exit: &Exit, out: &mut Outcome) {
        if matches!(self.member_state(gang, rank), None | Some(MemberState::Exited(_))) {
            return;
        }
        self.set_member(gang, rank, MemberState::Exited(exit.clone()));
        self.note_exits(gang);
        let live = |p: &Phase| matches!(p, Phase::Starting { .. } | Phase::Running { .. });
        if !exit.is_success() && self.record(gang).is_some_and(|r| live(&r.phase)) {
            let cause = self.failure(gang, rank, exit);
            self.begin_stop(gang, cause, out);
        } else if !exit.is_success() {
            self.blame_the_first(gang, rank, exit, out);
            self.failed_while_advised(gang, out);
        }
        self.run_if_all_released(gang, out);
        self.close_if_all_exited(gang, out);
    }

    /// A gang is being stopped for the rank that was heard of first. If this rank ended clearly before that one, this one failed,
    /// and the other one failed for it: what the first rank left behind may have ended later. Of two that ended at about the same
    /// time, the one that a signal ended failed first: a rank that fails for another one exits by itself.
    fn blame_the_first(&mut self, gang: GangId, rank: u32, exit: &Exit, out: &mut Outcome) {
        let Some(record) = self.record(gang) else { return };
        let Phase::Stopping { cause: StopCause::Failure { rank: Some(blamed), .. }, stage, next_at } =
            record.phase
        else {
            return;
        };
        let Some(MemberState::Exited(of)) = self.member_state(gang, blamed) else { return };
        let Some((this, other)) = exit.ended_ns.zip(of.ended_ns) else { return };
        let is_clearly_first = this.saturating_add(ABOUT_NS) <= other;
        let was_not_told = !matches!(stage, StopStage::Killed | StopStage::Lingering);
        let is_killed = |exit: &Exit| exit.signal.is_some_and(|signal| signal != SIGTERM) && was_not_told;
        let is_about_then = this.abs_diff(other) < ABOUT_NS;
        if is_clearly_first || is_about_then && is_killed(exit) && !is_killed(of) {
            let (attempt, cause) = (record.attempt, self.failure(gang, rank, exit));
            self.set_phase(gang, Phase::Stopping { cause: cause.clone(), stage, next_at });
            out.changes.push(Change::GangStopping { gang, attempt, cause });
        }
    }

    /// If a rank fails before the time limit comes, the others hang: there is no reason to wait.
    fn failed_while_advised(&mut self, gang: GangId, out: &mut Outcome) {
        let Some(Phase::Stopping { cause, stage: StopStage::Advised, .. }) =
            self.record(gang).map(|r| r.phase.clone())
        else {
            return;
        };
        self.stop_harder(gang, cause, StopStage::Advised, out);
    }

    /// The failure, with the rank, its node and the reason.
    fn failure(&self, gang: GangId, rank: u32, exit: &Exit) -> StopCause {
        let node = self
            .record(gang)
            .and_then(|r| r.placement.as_ref())
            .and_then(|p| p.slots.get(rank as usize))
            .map_or("an unknown node", |slot| slot.node.as_str());
        let what = match (exit.code, exit.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("ended by signal {signal}"),
            (None, None) => String::new(),
        };
        let parts: Vec<&str> =
            [what.as_str(), exit.detail.as_str()].into_iter().filter(|p| !p.is_empty()).collect();
        StopCause::Failure {
            class: exit.class.unwrap_or(FailureClass::UserCode),
            rank: Some(rank),
            code: exit.shell_code(),
            detail: format!("rank {rank} on {node}: {}", parts.join(": ")),
        }
    }

    pub(super) fn start_deadline_passed(&mut self, gang: GangId, out: &mut Outcome) {
        let Some(record) = self.record(gang) else { return };
        let late = record
            .members
            .iter()
            .position(|m| m.state == MemberState::Requested)
            .or_else(|| record.members.iter().position(|m| m.state == MemberState::Ready));
        let rank = late.and_then(|r| u32::try_from(r).ok()).unwrap_or(0);
        let exit = Exit::failed(FailureClass::StartUp, "was not ready by the start deadline");
        let cause = self.failure(gang, rank, &exit);
        self.begin_stop(gang, cause, out);
    }

    /// Begins to stop a gang that holds members; a pending gang ends or is requeued at once.
    pub(super) fn begin_stop(&mut self, gang: GangId, cause: StopCause, out: &mut Outcome) {
        let Some(record) = self.record(gang) else { return };
        let (attempt, phase) = (record.attempt, record.phase.clone());
        if cause.is_of_hardware() {
            self.to_keep.insert(gang);
        }
        match phase {
            Phase::Finished { .. } => {}
            Phase::Pending { .. } => self.close(gang, cause, out),
            Phase::Stopping { stage, next_at, cause: earlier } => {
                // A cancel overrides a stop after which the gang would have been retried.
                if matches!(cause, StopCause::Cancelled { .. }) && cause != earlier {
                    self.release_nodes(gang);
                    self.set_phase(gang, Phase::Stopping { cause: cause.clone(), stage, next_at });
                    out.changes.push(Change::GangStopping { gang, attempt, cause });
                }
            }
            Phase::Starting { .. } => {
                // None of the user's processes runs, or it has only just started: no advice, and no grace to save work.
                out.changes.push(Change::GangStopping { gang, attempt, cause: cause.clone() });
                self.stop_harder(gang, cause, StopStage::Terminated, out);
                self.close_if_all_exited(gang, out);
            }
            Phase::Running { since } => {
                self.forget_failures(gang, since);
                out.changes.push(Change::GangStopping { gang, attempt, cause: cause.clone() });
                self.stop_running(gang, cause, out);
                self.close_if_all_exited(gang, out);
            }
        }
    }

    /// Begins to stop a running gang whose work is saved: it needs no signal ahead.
    pub(super) fn stop_saved(&mut self, gang: GangId, cause: StopCause, out: &mut Outcome) {
        let known = self.record(gang).map(|record| (record.attempt, record.phase.clone()));
        let Some((attempt, Phase::Running { since })) = known else { return };
        self.forget_failures(gang, since);
        self.to_keep.insert(gang);
        out.changes.push(Change::GangStopping { gang, attempt, cause: cause.clone() });
        self.stop_harder(gang, cause, StopStage::Advised, out);
    }

    fn stop_running(&mut self, gang: GangId, cause: StopCause, out: &mut Outcome) {
        let Some(stop) = self.job(gang.job).map(|j| j.policy.stop) else { return };
        // At a boundary the work of the gang is saved.
        let save_work = !matches!(cause, StopCause::Failure { .. } | StopCause::Resized { .. });
        let most_ms = self.allowed_ms(&cause, 0);
        let (stage, wait_ms) = match stop.advisory {
            Some(advisory) if save_work => (StopStage::Advised, advisory.lead_ms.min(most_ms)),
            _ => (StopStage::Terminated, stop.grace_ms.min(most_ms)),
        };
        let next_at = self.now.plus(wait_ms);
        self.set_phase(gang, Phase::Stopping { cause, stage, next_at });
        self.order_stage(gang, stage, out);
    }

    pub(super) fn close_if_all_exited(&mut self, gang: GangId, out: &mut Outcome) {
        let tally = self.tally(gang);
        let Some(record) = self.record(gang).filter(|r| r.holds_capacity() && tally.all_exited()) else {
            return;
        };
        match record.phase.clone() {
            Phase::Running { .. } => self.ended_well(gang, out),
            // The gang finished before the limit came.
            Phase::Stopping { cause: StopCause::TimeLimit, stage: StopStage::Advised, .. }
                if tally.all_succeeded() =>
            {
                self.finish(gang, Ending::Succeeded, out);
            }
            Phase::Stopping { cause, .. } => self.close(gang, cause, out),
            _ => {}
        }
    }

    /// All processes of an attempt are gone: the cause of the stop decides what happens next.
    pub(super) fn close(&mut self, gang: GangId, cause: StopCause, out: &mut Outcome) {
        if !matches!(cause, StopCause::Resized { .. } | StopCause::Preempted(_)) {
            self.keep_size(gang);
        }
        if let Some(record) = self.record_mut(gang) {
            record.lost_hardware = cause.is_of_hardware();
        }
        match cause {
            StopCause::Cancelled { by } => self.finish(gang, Ending::Cancelled { by }, out),
            StopCause::TimeLimit => self.finish(gang, Ending::TimeLimit, out),
            StopCause::IdleLimit => self.finish(gang, Ending::IdleLimit, out),
            StopCause::Moved { to, .. } => {
                self.reserve_move(gang, to, out);
                let now = self.now;
                self.wait_again(gang, now, out);
            }
            StopCause::Displaced { .. } | StopCause::Resized { .. } | StopCause::ScaledIn { .. } => {
                let now = self.now;
                self.wait_again(gang, now, out);
            }
            StopCause::Preempted(preemption) => self.left_for_another(gang, preemption, out),
            StopCause::Failure { class, rank, code, detail } => match self.count_failure(gang, class) {
                Some(pause_ms) => {
                    let not_before = self.now.plus(pause_ms);
                    self.wait_again(gang, not_before, out);
                }
                None => self.finish(gang, Ending::Failed { class, rank, code, detail }, out),
            },
        }
    }

    /// Lets the next pause between tries be the first again, if a gang has run for long since.
    fn forget_failures(&mut self, gang: GangId, since: Timestamp) {
        let Some(longest_ms) = self.job(gang.job).map(|job| job.policy.retry.backoff_max_ms) else { return };
        let has_run_long = self.now.since(since) >= longest_ms;
        if let Some(record) = self.record_mut(gang).filter(|_| has_run_long) {
            record.failures_in_a_row = 0;
        }
    }

    /// Requeues a preempted gang at its old position, or ends it, as its policy says.
    fn left_for_another(&mut self, gang: GangId, preemption: Preemption, out: &mut Outcome) {
        let Some(preempt) = self.job(gang.job).map(|job| job.policy.preempt) else { return };
        let detail = preemption.rule.to_string();
        if let Some(record) = self.record_mut(gang) {
            record.evictions = record.evictions.saturating_add(1);
            record.evicted = Some(preemption);
        }
        let now = self.now;
        match preempt.mode {
            PreemptMode::Cancel => self.finish(gang, Ending::Preempted { detail }, out),
            PreemptMode::Requeue | PreemptMode::Never => self.wait_again(gang, now, out),
        }
    }

    /// Whether the policy of a gang starts it again after a failure of this class. A preemption counts as no failure.
    pub(super) fn retries(&self, record: &GangRecord, class: FailureClass) -> bool {
        self.job(record.id.job).is_some_and(|job| {
            let retry = &job.policy.retry;
            let is_left = class == FailureClass::Preemption || record.failures < retry.max;
            retry.max > 0 && is_left && retry.on.contains(&class)
        })
    }

    /// Counts a failure. The pause before the next try, or `None` if the policy does not retry.
    fn count_failure(&mut self, gang: GangId, class: FailureClass) -> Option<u64> {
        if !self.retries(self.record(gang)?, class) {
            return None;
        }
        let retry = &self.job(gang.job)?.policy.retry;
        let (backoff_ms, longest_ms) = (retry.backoff_ms, retry.backoff_max_ms);
        // It was stopped, and did not fail.
        if class == FailureClass::Preemption {
            return Some(backoff_ms.min(longest_ms));
        }
        let record = self.record_mut(gang)?;
        let doublings = record.failures_in_a_row;
        record.failures = record.failures.saturating_add(1);
        record.failures_in_a_row = doublings.saturating_add(1);
        let doubled = 1_u64.checked_shl(doublings).map_or(u64::MAX, |f| backoff_ms.saturating_mul(f));
        Some(doubled.min(longest_ms))
    }

    fn wait_again(&mut self, gang: GangId, not_before: Timestamp, out: &mut Outcome) {
        self.count_service(gang);
        let held = self.held(gang);
        let now = self.now;
        self.keep_place(gang, out);
        let mut failures = 0;
        let is_pinned = self.job(gang.job).is_some_and(|job| job.policy.preempt.is_pinned);
        if let Some(record) = self.record_mut(gang) {
            if is_pinned {
                let slots = record.placement.iter().flat_map(|p| &p.slots);
                let nodes: BTreeSet<NodeName> = slots.map(|slot| slot.node.clone()).collect();
                record.pinned = nodes.into_iter().collect();
            }
            record.pending_since = now;
            record.was_on = record.placement.take().filter(|_| record.lost_hardware);
            record.members.clear();
            failures = record.failures;
        }
        self.write_phase(gang, Phase::Pending { not_before });
        self.count_members(gang);
        self.retime(gang);
        self.note_end(gang);
        self.give_back(gang, held.as_ref());
        self.note_repair(gang);
        if !self.to_repair.contains(&gang) {
            self.release_nodes(gang);
        }
        self.release_overlapping(gang, out);
        self.book_reservation(gang);
        self.claim_again(gang);
        self.relist(gang);
        self.task_left(gang, true);
        out.changes.push(Change::GangRetrying { gang, failures, not_before });
        self.has_left(gang, out);
    }

    /// Records that a gang saved a checkpoint. The report may come after the last process ended: from now on the gang
    /// may resume only on nodes that can read the checkpoint.
    pub(super) fn checkpointed(&mut self, gang: GangId, at: Timestamp, out: &mut Outcome) {
        let Some(record) = self.record_mut(gang) else {
            return refuse(out, format!("checkpoint of gang {gang}"), "no such gang");
        };
        let (is_first, before) =
            (record.checkpointed_at.is_none(), record.checkpointed_at.unwrap_or_default());
        record.checkpointed_at = record.checkpointed_at.max(Some(at));
        if let Phase::Running { since } = record.phase
            && at > before.max(since)
        {
            record.saves_every_ms = Some(at.since(before.max(since)));
            self.saved.insert(gang);
            return;
        }
        if let Phase::Stopping { cause, stage: StopStage::Advised, next_at } = record.phase.clone()
            && matches!(cause, StopCause::Displaced { until: None, .. } | StopCause::Moved { .. })
            && self.is_after_advice(gang, at, next_at)
        {
            // It is to leave as soon as its work is saved.
            self.stop_harder(gang, cause, StopStage::Advised, out);
            return;
        }
        let Some(record) = self.record(gang) else { return };
        if !is_first || !record.is_pending() || record.pinned.is_empty() {
            return;
        }
        if record.reserved.is_some() {
            let why = "the gang resumes where its checkpoint can be read".to_owned();
            self.release_reservation(gang, why, out);
        } else {
            self.relist(gang);
        }
    }

    /// Whether a checkpoint was saved after the advice of a stop whose next stage comes at a time.
    fn is_after_advice(&self, gang: GangId, at: Timestamp, next_at: Timestamp) -> bool {
        let advisory = self.job(gang.job).and_then(|job| job.policy.stop.advisory);
        advisory.is_some_and(|advisory| at.0 > next_at.0.saturating_sub(advisory.lead_ms))
    }

    pub(super) fn finish(&mut self, gang: GangId, ending: Ending, out: &mut Outcome) {
        self.remember_run(gang, &ending);
        let holds = self.record(gang).is_some_and(GangRecord::holds_capacity);
        let held = self.held(gang);
        let at = self.now;
        out.changes.push(Change::GangFinished { gang, ending: ending.clone() });
        self.set_phase(gang, Phase::Finished { ending: ending.clone(), at });
        self.active.remove(&gang);
        self.preempted.clear();
        self.reasons.remove(&gang);
        self.unavailable.remove(&gang);
        self.refresh_after(gang);
        self.pending.delist(&mut self.queues, gang);
        self.drop_reservation(gang);
        self.release_nodes(gang);
        self.count_members(gang);
        self.give_back(gang, held.as_ref());
        self.queues.forget_service(gang);
        self.task_left(gang, holds);
        self.relist_replicas(gang.job);
        self.has_left(gang, out);
        self.settle_job(gang, ending, out);
    }

    /// The part of its placement that a gang holds.
    pub(super) fn held(&self, gang: GangId) -> Option<Placement> {
        self.record(gang).and_then(GangRecord::held).map(Cow::into_owned)
    }

    /// Ends a job with its gangs: all succeeded, or the first gang that did not succeed stops the others.
    fn settle_job(&mut self, gang: GangId, ending: Ending, out: &mut Outcome) {
        let job = gang.job;
        let mut others = self.active.range(job.gang(0)..=job.gang(u32::MAX)).copied();
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        let Some(next) = others.next() else {
            if entry.ending.is_none()
                && let Some(ending) = ending_of(&entry.gangs)
            {
                entry.ending = Some(ending.clone());
                out.changes.push(Change::JobFinished { job, ending });
                self.tell_dependents(job, out);
            }
            return;
        };
        // The first gang that failed stops the others, and they end inside this loop: they must not stop each other.
        let is_alone = entry.job.turn.has_lone_gangs();
        if ending != Ending::Succeeded && !std::mem::replace(&mut entry.failed, true) && !is_alone {
            let by = match ending {
                Ending::Cancelled { by } => by,
                _ => Ending::for_another_gang(gang),
            };
            let others: Vec<GangId> = std::iter::once(next).chain(others).collect();
            for other in others {
                self.begin_stop(other, StopCause::Cancelled { by: by.clone() }, out);
            }
        }
    }
}

/// The longest grace that a class allows gangs that are preempted for its gangs.
pub(super) fn grace_max_ms(cause: &StopCause) -> u64 {
    match cause {
        StopCause::Preempted(preemption) => preemption.grace_max_ms.unwrap_or(u64::MAX),
        _ => u64::MAX,
    }
}

impl Ledger {
    /// The time that a gang may take to end, if the advice took so much of its time.
    pub(super) fn allowed_ms(&self, cause: &StopCause, advised_ms: u64) -> u64 {
        match cause {
            StopCause::Displaced { until: Some(until), .. } => until.since(self.now),
            _ => grace_max_ms(cause).saturating_sub(advised_ms),
        }
    }
}
