//! Applies facts to the ledger, one by one. A fact that cannot be used is refused with a reason, and nothing else
//! happens.

use phalanx_model::{
    Admin, Change, EffectId, Ending, Exit, FailureClass, GangId, GangRecord, Input, Job, JobId, Levels,
    MemberId, MemberState, Outcome, Phase, Progress, StopCause,
};

use super::array::Admitted;
use super::{Entry, Ledger, Outstanding, admit};
use crate::placement::LEVELS_MAX;
use crate::queueing::RequestKey;

/// Gangs that are remembered to fit the empty cluster.
const FITTING_MAX: usize = 4_096;

impl Ledger {
    pub(crate) fn apply(&mut self, input: &Input, out: &mut Outcome) {
        if !only_draws(input) {
            self.freshen();
        }
        match input {
            Input::SyncBegin { kind } => self.sync_begin(*kind),
            Input::SyncEnd { kind } => self.sync_end(*kind, out),
            Input::LevelsConfigured { levels } => self.configure_levels(levels, out),
            Input::CostsCompiled { table } => {
                if self.costs != *table {
                    self.costs = table.clone();
                    self.stale_queues = true;
                    self.redraw();
                }
            }
            Input::SettingsConfigured { settings } => self.configure(settings, out),
            Input::QueueObserved { queue } => self.observe_queue(queue, out),
            Input::QueueRemoved { queue } => self.remove_queue(queue),
            Input::UsageObserved { queue, usage } => self.queues.remember(queue, *usage),
            Input::RunsObserved { runs } => self.observe_runs(runs, out),
            Input::JobHeld { job, by } => self.hold(*job, Some(by), out),
            Input::JobReleased { job, .. } => self.hold(*job, None, out),
            Input::JobUpdated { job, update } => self.update(*job, update, out),
            Input::JobRequeued { job, by } => self.requeue(*job, by, out),
            Input::JobBoosted { job, boost } => self.boost(*job, boost.as_ref(), out),
            Input::NodeObserved { node } => self.observe_node(node, out),
            Input::NodeUseObserved { node, foreign, foreign_use } => {
                self.observe_use(node, *foreign, foreign_use, out);
            }
            Input::NodeRemoved { node } => self.remove_node(node, out),
            Input::NodeCordoned { node } => self.set_admin(node, Admin::Cordoned, out),
            Input::NodeUncordoned { node } => {
                self.noted.forget_notice(node);
                self.open_again(node);
                self.set_admin(node, Admin::Open, out);
                self.stay_on(node, out);
            }
            Input::DrainRequested { node } => {
                self.set_admin(node, Admin::Draining, out);
                self.displace_from(node, None, &format!("node {node} is drained"), None, out);
            }
            Input::DefragmentationRequested { gang } => {
                self.to_open.insert(*gang);
            }
            Input::JobSubmitted { job } => self.submit(job, out),
            Input::JobObserved { job, gangs } => self.observe_job(job, gangs, out),
            Input::CancelRequested { job, by } => self.cancel(*job, by, out),
            Input::TasksCancelRequested { job, tasks, by } => self.cancel_tasks(*job, tasks, by, out),
            Input::JobForgotten { job } => self.forget_finished(*job, out),
            Input::MemberReady { member } => {
                if self.is_current(*member, out) {
                    self.member_ready(member.gang, member.rank, out);
                }
            }
            Input::MemberReleased { member } => {
                if self.is_current(*member, out) {
                    self.member_released(member.gang, member.rank, out);
                }
            }
            Input::MemberExited { member, exit } => {
                if self.is_current(*member, out) {
                    self.member_exited(member.gang, member.rank, exit, out);
                }
            }
            Input::MemberObserved { member, state } => self.observe_member(*member, state, out),
            Input::DevicesObserved { members } => self.observe_devices(members, out),
            Input::GangCheckpointed { gang, at } => self.checkpointed(*gang, *at, out),
            Input::GangProtected { gang, is_protected } => self.protect(*gang, *is_protected, out),
            Input::BoundaryReached { gang, at } => self.boundary(*gang, *at, out),
            Input::EffectDone { effect } | Input::EffectUnknown { effect } => {
                // The result is unknown: the deadlines that cover every order decide, not a guess.
                self.outstanding.remove(effect);
            }
            Input::EffectFailed { effect, class, detail } => self.effect_failed(*effect, *class, detail, out),
            Input::CalendarObserved { calendar } => self.observe_window(calendar, out),
            Input::SpotNoticed { notice } => self.notice_spot(notice, out),
            Input::ServiceObserved { service } => self.observe_service(service, out),
            Input::SessionObserved { session } => self.observe_session(session, out),
            Input::MetricObserved { metric } => self.observe_metric(metric, out),
            Input::GangResized { .. } => self.resize(input, out),
            Input::HealthGraded { health } => self.grade(health, out),
            Input::BandwidthMeasured { bandwidth } => self.measure(bandwidth, out),
        }
    }

    fn configure_levels(&mut self, levels: &Levels, out: &mut Outcome) {
        if levels.above.is_empty() {
            return refuse(out, "the levels".into(), "at least one level must be above the node");
        }
        if levels.above.len() > LEVELS_MAX {
            let why = format!(
                "at most {LEVELS_MAX} levels are possible above the node, and there are {}",
                levels.above.len()
            );
            return refuse(out, "the levels".into(), &why);
        }
        if self.levels != *levels {
            self.levels = levels.clone();
            self.note_levels();
            self.stale_queues = true;
            self.redraw();
        }
    }

    fn submit(&mut self, job: &Job, out: &mut Outcome) {
        let job = &*admit::with_job_settings(self, job);
        if let Err(why) = admit::admit(self, job) {
            out.changes.push(Change::JobRejected { job: job.id, why });
            return;
        }
        if self.fitting.len() < FITTING_MAX {
            self.fitting.extend(job.gangs.iter().map(RequestKey::gang_of));
        }
        let fresh = |id: GangId| GangRecord {
            phase: Phase::Pending { not_before: job.submitted_at.min(self.now) },
            ..GangRecord::pending(id, self.now)
        };
        let gangs = job.gang_ids().map(fresh).collect();
        let mut taken = job.clone();
        self.cap_time_limit(&mut taken);
        self.set_delays(&mut taken);
        self.preempted.clear();
        self.serving.begin(&taken, self.now);
        self.enter(taken, gangs);
        self.replan = true;
        out.changes.push(Change::JobAccepted { job: job.id });
        self.tell_dependent(job.id, out);
    }

    fn enter(&mut self, job: Job, gangs: Vec<GangRecord>) {
        let id = job.id;
        if let Some(key) = &job.key {
            self.keys.insert((job.owner.uid, key.clone()), id);
        }
        let ending = ending_of(&gangs);
        let failed = gangs
            .iter()
            .any(|r| matches!(&r.phase, Phase::Finished { ending, .. } if *ending != Ending::Succeeded));
        let active: Vec<GangId> = gangs.iter().filter(|r| !r.is_finished()).map(|r| r.id).collect();
        for after in job
            .turn
            .after
            .iter()
            .filter(|after| self.jobs.get(&after.job).is_some_and(|e| e.ending.is_none()))
        {
            self.dependents.entry(after.job).or_default().insert(id);
        }
        let (admitted, progress) = (Admitted::of(&job, &gangs), Progress::of(&gangs));
        self.jobs.insert(id, Entry { job, gangs, ending, told: None, progress, failed, admitted });
        for gang in active {
            self.active.insert(gang);
            self.adopt_service(gang);
            self.count_members(gang);
            self.retime(gang);
            self.note_kept_nodes(gang);
            self.note_end(gang);
            if let Some(placement) = self.held(gang) {
                self.take(gang, &placement);
                continue;
            }
            // The reservation is booked once all gangs that hold capacity are known.
            self.unbooked.extend(self.record(gang).filter(|r| r.reserved.is_some()).map(|r| r.id));
            self.claim_again(gang);
            self.relist(gang);
            self.note_repair(gang);
        }
    }

    fn observe_job(&mut self, job: &Job, gangs: &[GangRecord], out: &mut Outcome) {
        self.sync.saw_job(job.id);
        let job = &*admit::with_job_settings(self, job);
        let known = |entry: &Entry| entry.job == *job && entry.gangs == gangs;
        if self.jobs.get(&job.id).is_some_and(known) {
            return;
        }
        let matching = gangs.len() == job.gang_ids().len()
            && gangs.iter().zip(job.gang_ids()).all(|(r, id)| {
                r.id == id
                    && (!r.holds_capacity() || r.placement.is_some())
                    && (!r.is_pending() || r.placement.is_none())
                    && (r.is_pending() || r.reserved.is_none())
                    && r.attempt < u32::MAX
                    && r.placement.as_ref().is_none_or(|p| p.slots.len() == r.members.len())
            });
        if !matching {
            return refuse(out, format!("job {}", job.id), "the records of its gangs do not match the job");
        }
        let serving = self.serving.of(job.id);
        if self.jobs.contains_key(&job.id) {
            self.forget_job(job.id);
        }
        self.serving.extend(serving);
        self.enter(job.clone(), gangs.to_vec());
        self.replan = true;
        if self.jobs.get(&job.id).is_some_and(|entry| entry.ending.is_some()) {
            self.tell_dependents(job.id, out);
        }
    }

    fn cancel(&mut self, job: JobId, by: &str, out: &mut Outcome) {
        let Some(entry) = self.jobs.get(&job) else {
            return refuse(out, format!("cancel of job {job}"), "no such job");
        };
        let gangs: Vec<GangId> = entry.gangs.iter().map(|r| r.id).collect();
        self.end_array(job);
        for gang in gangs {
            self.begin_stop(gang, StopCause::Cancelled { by: by.to_owned() }, out);
        }
    }

    /// Sets whether a gang is protected from preemption. Gangs that found no victims try again.
    fn protect(&mut self, gang: GangId, is_protected: bool, out: &mut Outcome) {
        let Some(record) = self.record_mut(gang) else {
            return refuse(out, format!("protection of gang {gang}"), "no such gang");
        };
        if std::mem::replace(&mut record.is_protected, is_protected) && !is_protected {
            self.preempted.clear();
            self.pending.try_all();
            self.replan = true;
        }
    }

    fn forget_finished(&mut self, job: JobId, out: &mut Outcome) {
        match self.jobs.get(&job) {
            Some(entry) if entry.ending.is_some() => self.forget_job(job),
            Some(_) => refuse(out, format!("forgetting job {job}"), "it has not ended"),
            None => {}
        }
    }

    /// Removes a job from the ledger, with everything that it holds.
    pub(super) fn forget_job(&mut self, job: JobId) {
        let Some(entry) = self.jobs.get(&job) else { return };
        let gangs: Vec<GangRecord> = entry.gangs.clone();
        for record in &gangs {
            self.forget_timer(record.id);
            self.release_nodes(record.id);
            self.forget_move(record.id);
            self.saved.remove(&record.id);
            self.pending.delist(&mut self.queues, record.id);
            self.drop_reservation(record.id);
            self.active.remove(&record.id);
            self.forget_end(record.id);
            self.leaving.remove(&record.id);
            self.shielded.remove(&record.id);
            self.tallies.remove(&record.id);
            self.exited.remove(&record.id);
            // A gang that has ended gave everything back then, and the others were considered.
            if !record.is_finished() {
                self.give_back(record.id, record.held().as_deref());
            }
            self.queues.forget_service(record.id);
            self.reasons.remove(&record.id);
            self.unavailable.remove(&record.id);
        }
        self.outstanding.retain(|_, order| order.gang.job != job);
        self.noted.forget(job);
        self.serving.forget(job);
        let Some(Entry { job, .. }) = self.jobs.remove(&job) else { return };
        self.forget_dependent(&job);
        if let Some(key) = job.key {
            self.keys.remove(&(job.owner.uid, key));
        }
    }

    /// For questions: acts as if the job had ended and everything that it holds were free.
    pub(crate) fn forget_for_question(&mut self, job: JobId) {
        self.forget_job(job);
    }

    /// Whether a member is of the current attempt of its gang: a late answer of an old attempt is history.
    pub(super) fn is_current(&self, member: MemberId, out: &mut Outcome) -> bool {
        let current = self.record(member.gang).is_some_and(|r| {
            r.attempt == member.attempt && r.holds_capacity() && (member.rank as usize) < r.members.len()
        });
        if !current {
            refuse(out, format!("member {member}"), "does not belong to the current attempt");
        }
        current
    }

    fn observe_member(&mut self, member: MemberId, state: &MemberState, out: &mut Outcome) {
        self.sync.saw_member(member);
        let over =
            !self.record(member.gang).is_some_and(|r| r.attempt == member.attempt && r.holds_capacity());
        if over && matches!(state, MemberState::Exited(_)) {
            return; // A process of an attempt that is over has ended too.
        }
        if !self.is_current(member, out) {
            return;
        }
        let known = self.record(member.gang).and_then(|r| r.members.get(member.rank as usize));
        match (known.map(|m| m.state.clone()), state) {
            (Some(MemberState::Exited(_)), _) => {}
            (_, MemberState::Exited(exit)) => self.member_exited(member.gang, member.rank, exit, out),
            (_, MemberState::Running) => self.member_released(member.gang, member.rank, out),
            (_, MemberState::Ready) => self.member_ready(member.gang, member.rank, out),
            (_, MemberState::Requested) => {}
        }
    }

    fn effect_failed(&mut self, effect: EffectId, class: FailureClass, detail: &str, out: &mut Outcome) {
        let order = self.outstanding.remove(&effect);
        let Some(Outstanding { gang, attempt, starts }) = order else {
            return refuse(out, format!("answer to effect {effect}"), "no such effect is outstanding");
        };
        let exit = Exit::failed(class, detail);
        let unanswered: Vec<u32> = self
            .record(gang)
            .filter(|r| starts && r.attempt == attempt && r.holds_capacity())
            .map(|r| {
                let ranks = r.members.iter().enumerate();
                ranks
                    .filter(|(_, m)| m.state == MemberState::Requested)
                    .filter_map(|(rank, _)| u32::try_from(rank).ok())
                    .collect()
            })
            .unwrap_or_default();
        for rank in unanswered {
            self.member_exited(gang, rank, &exit, out);
        }
    }
}

/// How a job with these records ended; `None` if a gang has not.
pub(super) fn ending_of(gangs: &[GangRecord]) -> Option<Ending> {
    let endings = gangs.iter().filter_map(|r| match &r.phase {
        Phase::Finished { ending, .. } => Some(ending),
        _ => None,
    });
    gangs.iter().all(GangRecord::is_finished).then(|| Ending::of_job(endings))
}

/// Facts that need no tree that is up to date: a thousand of these facts rebuild the tree once.
const fn only_draws(input: &Input) -> bool {
    matches!(
        input,
        Input::SyncBegin { .. }
            | Input::LevelsConfigured { .. }
            | Input::CostsCompiled { .. }
            | Input::NodeObserved { .. }
            | Input::NodeUseObserved { .. }
            | Input::NodeRemoved { .. }
            | Input::DrainRequested { .. }
            | Input::SpotNoticed { .. }
            | Input::NodeCordoned { .. }
            | Input::NodeUncordoned { .. }
            | Input::SettingsConfigured { .. }
            | Input::QueueObserved { .. }
            | Input::QueueRemoved { .. }
            | Input::CalendarObserved { .. }
            | Input::HealthGraded { .. }
    )
}

pub(super) fn refuse(out: &mut Outcome, what: String, why: &str) {
    out.changes.push(Change::InputRejected { what, why: why.to_owned() });
}
