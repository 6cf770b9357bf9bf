//! The checker's own plain state.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{
    Admin, Change, EffectId, FailureClass, Gang, GangId, GangRecord, Health, Input, Job, JobId, LevelName,
    Levels, MemberId, MemberState, Node, NodeName, Order, Outcome, Phase, Placement, StopCause, StopStage,
    SyncKind, Timestamp,
};

use crate::Violation;
use crate::attempt::{Attempt, KILL_AGAIN_MS};
use crate::preemptions::Preemptions;
use crate::promises::Promises;
use crate::queues::Queues;
use crate::service::Service;
use crate::services::Services;
use crate::spares::Able;
use crate::start::Start;
use crate::turns::Turns;
use crate::waiting::Waiting;

/// Watches a stream of steps. A violation is reported once, when it happens.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    /// Whether a reserved start must come in time. Set for runs without faults: members exit when they are stopped,
    /// and time does not jump.
    pub is_strict: bool,
    /// The bypass limit of the first gang, if the checker counts bypasses.
    pub(crate) bypass_max: Option<u32>,
    /// Never goes back.
    pub(crate) now: Timestamp,
    pub(crate) queues: Queues,
    pub(crate) turns: Turns,
    pub(crate) preemptions: Preemptions,
    pub(crate) promises: Promises,
    pub(crate) waiting: Waiting,
    pub(crate) services: Services,
    pub(crate) service: Service,
    pub(crate) levels: Option<Levels>,
    pub(crate) nodes: BTreeMap<NodeName, Node>,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    /// Gangs that lost hardware, and have not started again.
    pub(crate) lost_hardware: BTreeSet<GangId>,
    cancelled: BTreeSet<JobId>,
    cancelled_tasks: BTreeSet<GangId>,
    /// The current or last attempt of each gang.
    pub(crate) attempts: BTreeMap<GangId, (u32, Attempt)>,
    last_effect: Option<EffectId>,
    /// Start orders without an answer.
    starts: BTreeMap<EffectId, (GangId, u32)>,
    /// Objects that the list in progress has not named yet.
    unlisted_nodes: BTreeSet<NodeName>,
    unlisted_jobs: BTreeSet<JobId>,
    unlisted_members: BTreeSet<MemberId>,
}

impl Checker {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Also counts how often the first gang is bypassed.
    #[must_use]
    pub fn with_bypass_max(bypass_max: u32) -> Self {
        Self { bypass_max: Some(bypass_max), ..Self::default() }
    }

    /// Checks one step: its time, its facts and its outcome.
    pub fn observe(&mut self, now: Timestamp, inputs: &[Input], out: &Outcome) -> Vec<Violation> {
        let mut found = Vec::new();
        let is_behind = now < self.now;
        self.now = self.now.max(now);
        if is_behind {
            self.service.clock_went_back();
        }
        let refused: Vec<&str> = out.changes.iter().filter_map(refused).collect();
        for input in inputs {
            self.queues.fact(input, &refused);
            self.update_job(input, &refused);
            self.turns.fact(input);
            self.preemptions.fact(input);
            self.promises.fact(input);
            self.waiting.fact(input);
            self.services.fact(input, self.refuses_service(input));
            self.fact(input, &mut found);
        }
        // Ends that follow from the facts come before the starts that they allow.
        for change in &out.changes {
            self.turns.change(change);
            self.services.change(change);
            self.replaced(change);
            self.note_stop(change, true);
            match change {
                Change::GangRetrying { gang, .. } => self.pin(*gang),
                Change::GangStopping { gang, cause, .. } if loses_hardware(cause) => {
                    self.note_loss(*gang, true);
                }
                _ => {}
            }
        }
        // Which of the members that a list does not name are to be started again shows only in the orders.
        let is_listed =
            inputs.iter().any(|input| matches!(input, Input::SyncEnd { kind: SyncKind::Members }));
        let able = if is_listed { Able::new() } else { self.able_to_be_spare() };
        let mut started = BTreeSet::new();
        for effect in &out.effects {
            if self.last_effect.is_some_and(|last| effect.id <= last) {
                found.push(Violation::EffectOrder { id: effect.id.to_string() });
            }
            self.last_effect = Some(effect.id);
            if let Order::StartMembers { gang, attempt, .. } = &effect.order {
                // A repeated order counts as the order before it.
                self.starts.retain(|_, start| *start != (*gang, *attempt));
                self.starts.insert(effect.id, (*gang, *attempt));
                started.insert(*gang);
            }
            self.order(&effect.order, &mut found);
        }
        self.serve(&out.changes, is_behind);
        self.check_spares(&able, &out.changes, &mut found);
        self.check_preemptions(&out.changes, &started, &mut found);
        for change in &out.changes {
            match change {
                Change::GangPlaced { gang, .. } => self.note_loss(*gang, false),
                Change::GangStopping { gang, cause, .. } => self.note_loss(*gang, loses_hardware(cause)),
                _ => {}
            }
        }
        out.changes.iter().for_each(|change| self.promises.change(change));
        self.check_promises(&mut found);
        out.changes.iter().for_each(|change| self.waiting.change(change));
        self.check_waiting(&started, &mut found);
        found
    }

    /// A user changed a job, if the change was not rejected.
    fn update_job(&mut self, input: &Input, refused: &[&str]) {
        let Input::JobUpdated { job, update } = input else { return };
        let what = format!("change of job {job}");
        if let Some(job) = self.jobs.get_mut(job).filter(|_| !refused.contains(&&*what)) {
            update.apply(job);
        }
    }

    /// Notes of a change that stops a gang whether it has been made: from then on members that exited hold nothing.
    pub(crate) fn note_stop(&mut self, change: &Change, is_made: bool) {
        if let Change::GangStopping { gang, attempt, cause } = change
            && let Some(attempt) = self.attempt(*gang, *attempt)
        {
            attempt.is_stopping = is_made && leaves_its_place(cause);
            attempt.is_whole = leaves_as_a_whole(cause);
        }
    }

    fn note_loss(&mut self, gang: GangId, is_lost: bool) {
        if is_lost {
            self.lost_hardware.insert(gang);
        } else {
            self.lost_hardware.remove(&gang);
        }
    }

    /// Checks that no gang holds capacity, as after all work is done.
    #[must_use]
    pub fn holds_nothing(&self) -> bool {
        self.attempts.values().all(|(_, a)| a.is_over())
    }

    fn fact(&mut self, input: &Input, found: &mut Vec<Violation>) {
        match input {
            Input::LevelsConfigured { levels } => self.levels = Some(levels.clone()),
            Input::SyncBegin { kind } => self.list_begins(*kind),
            Input::SyncEnd { kind } => self.list_ends(*kind),
            Input::NodeObserved { node } => self.observe_node(node),
            Input::NodeUseObserved { node, foreign, foreign_use } => {
                if let Some(node) = self.nodes.get_mut(node) {
                    (node.foreign, node.foreign_use) = (*foreign, foreign_use.clone());
                }
            }
            Input::NodeRemoved { node } => self.remove_node(node),
            Input::HealthGraded { health } => self.grade(health),
            Input::NodeCordoned { node } => self.set_admin(node, Admin::Cordoned),
            Input::NodeUncordoned { node } => self.set_admin(node, Admin::Open),
            Input::DrainRequested { node } => self.set_admin(node, Admin::Draining),
            Input::JobSubmitted { job } => {
                self.jobs.entry(job.id).or_insert_with(|| (**job).clone());
            }
            Input::JobObserved { job, gangs } => {
                self.jobs.insert(job.id, (**job).clone());
                self.unlisted_jobs.remove(&job.id);
                for record in gangs {
                    self.check_service(record, found);
                    self.observe_record(record, found);
                }
            }
            Input::JobForgotten { job } => self.service.forget(|gang| gang.job == *job),
            Input::TasksCancelRequested { job, tasks, .. } => {
                let job = self.jobs.get(job).filter(|job| job.turn.array.is_some());
                let ids = job.map(|job| {
                    tasks.numbers().filter_map(|number| Some(job.id.gang(job.task_index(number)?)))
                });
                self.cancelled_tasks.extend(ids.into_iter().flatten());
            }
            Input::CancelRequested { job, .. } if self.jobs.contains_key(job) => {
                self.cancelled.insert(*job);
            }
            Input::MemberReady { member } => {
                if let Some(attempt) = self.attempt(member.gang, member.attempt) {
                    attempt.ready.insert(member.rank);
                }
            }
            Input::MemberReleased { member } => {
                if let Some(attempt) = self.attempt(member.gang, member.attempt)
                    && !attempt.released
                {
                    found.push(Violation::RanBeforeGate { member: *member });
                }
            }
            Input::MemberExited { member, exit } => {
                if let Some(attempt) = self.attempt(member.gang, member.attempt) {
                    attempt.end(member.rank, exit);
                }
            }
            Input::DevicesObserved { members } => {
                for (member, devices) in members {
                    let attempt = self.attempt(member.gang, member.attempt);
                    let slots = attempt.into_iter().flat_map(|attempt| &mut attempt.placement.slots);
                    // The number must be as before, and the node must have the devices. Other reports are rejected.
                    for slot in slots.filter(|slot| slot.rank == member.rank) {
                        if slot.devices.count() == devices.count() {
                            slot.devices = *devices;
                        }
                    }
                }
            }
            Input::MemberObserved { member, state } => {
                self.unlisted_members.remove(member);
                if let Some(attempt) = self.attempt(member.gang, member.attempt) {
                    match state {
                        MemberState::Ready | MemberState::Running => {
                            attempt.ready.insert(member.rank);
                        }
                        MemberState::Exited(exit) => attempt.end(member.rank, exit),
                        MemberState::Requested => {}
                    }
                }
            }
            Input::EffectDone { effect } | Input::EffectUnknown { effect } => {
                self.starts.remove(effect);
            }
            Input::EffectFailed { effect, .. } => self.start_failed(*effect),
            _ => {}
        }
    }

    /// The order had no effect: members before the start barrier were never started.
    fn start_failed(&mut self, effect: EffectId) {
        let Some((gang, number)) = self.starts.remove(&effect) else { return };
        if self.last_effect.is_some_and(|last| last.epoch > effect.epoch) {
            // A successor does not know the orders of the leader before it: it hears of the members themselves.
            return;
        }
        if let Some(attempt) = self.attempt(gang, number) {
            let ranks = attempt.placement.slots.iter().map(|s| s.rank);
            attempt.exited.extend(ranks.filter(|r| !attempt.ready.contains(r)));
        }
    }

    /// A node whose path does not have one domain per level does not belong to this cluster.
    fn observe_node(&mut self, node: &Node) {
        if self.levels.as_ref().is_some_and(|l| l.above.len() != node.path.len())
            || node.machine.devices.len() > phalanx_model::DEVICES_PER_NODE_MAX as usize
        {
            return;
        }
        self.unlisted_nodes.remove(&node.name);
        let mut node = node.clone();
        // A world that lists its nodes again need not know of grades.
        if let Some(known) = self.nodes.get(&node.name).filter(|_| node.health.is_ok()) {
            node.health = known.health.clone();
        }
        self.nodes.insert(node.name.clone(), node);
    }

    fn grade(&mut self, fact: &Health) {
        if let Some(node) = self.nodes.get_mut(&fact.node)
            && fact.devices.is_subset_of(node.machine.device_mask())
        {
            node.health.set(fact);
        }
    }

    fn list_begins(&mut self, kind: SyncKind) {
        match kind {
            SyncKind::Nodes => self.unlisted_nodes = self.nodes.keys().cloned().collect(),
            SyncKind::Jobs => self.unlisted_jobs = self.jobs.keys().copied().collect(),
            SyncKind::Queues => self.queues.list_begins(),
            SyncKind::Members => self.unlisted_members = self.living().collect(),
        }
    }

    fn living(&self) -> impl Iterator<Item = MemberId> {
        self.attempts.iter().flat_map(|(gang, (number, attempt))| {
            let ranks = attempt.placement.slots.iter().map(|s| s.rank);
            let living = ranks.filter(|r| !attempt.exited.contains(r));
            living.map(|rank| MemberId { gang: *gang, attempt: *number, rank })
        })
    }

    /// Objects that were not listed are gone.
    fn list_ends(&mut self, kind: SyncKind) {
        match kind {
            SyncKind::Nodes => {
                for node in std::mem::take(&mut self.unlisted_nodes) {
                    self.remove_node(&node);
                }
            }
            SyncKind::Jobs => {
                for job in std::mem::take(&mut self.unlisted_jobs) {
                    self.jobs.remove(&job);
                    self.attempts.retain(|gang, _| gang.job != job);
                }
            }
            SyncKind::Queues => self.queues.list_ends(),
            SyncKind::Members => {
                for member in std::mem::take(&mut self.unlisted_members) {
                    if let Some(attempt) = self.attempt(member.gang, member.attempt) {
                        attempt.missing.insert(member.rank);
                    }
                }
            }
        }
    }

    pub(crate) fn is_cancelled(&self, job: JobId) -> bool {
        self.cancelled.contains(&job)
    }

    pub(crate) fn gang(&self, id: GangId) -> Option<&Gang> {
        self.jobs.get(&id.job)?.gang_at(id.index)
    }

    fn attempt(&mut self, gang: GangId, number: u32) -> Option<&mut Attempt> {
        self.attempts.get_mut(&gang).filter(|(n, _)| *n == number).map(|(_, a)| a)
    }

    /// A live gang keeps its ordered placement, and every restart reports that placement.
    fn observe_record(&mut self, record: &GangRecord, found: &mut Vec<Violation>) {
        let loses = matches!(&record.phase, Phase::Stopping { cause, .. } if loses_hardware(cause));
        self.note_loss(record.id, record.lost_hardware || loses);
        if matches!(record.phase, Phase::Finished { .. }) {
            self.attempts.remove(&record.id);
            return;
        }
        let Some(placement) = record.placement.clone() else {
            let nowhere = Placement { slots: Vec::new(), level: fallback_level(self.levels.as_ref()) };
            // The attempt is over, and late answers do not matter.
            let ended = Attempt { released: true, ..Attempt::ordered(nowhere) };
            self.attempts.insert(record.id, (record.attempt, ended));
            return;
        };
        let ordered = self.attempt(record.id, record.attempt).filter(|attempt| !attempt.is_over());
        if ordered.is_some_and(|attempt| attempt.placement != placement) {
            found.push(Violation::PlacementForgotten { gang: record.id, attempt: record.attempt });
        }
        let ranks = |wanted: fn(&MemberState) -> bool| -> BTreeSet<u32> {
            (0..).zip(&record.members).filter(|(_, m)| wanted(&m.state)).map(|(r, _)| r).collect()
        };
        let attempt = Attempt {
            placement,
            ready: ranks(|s| !matches!(s, MemberState::Requested)),
            exited: ranks(|s| matches!(s, MemberState::Exited(_))),
            missing: BTreeSet::new(),
            released: self.attempt(record.id, record.attempt).is_some_and(|a| a.released)
                || ranks(|s| matches!(s, MemberState::Running)).iter().next().is_some()
                || matches!(record.phase, Phase::Running { .. } | Phase::Stopping { .. }),
            is_stopping: match &record.phase {
                Phase::Stopping { cause, stage: StopStage::Lingering, .. } if leaves_as_a_whole(cause) => {
                    true
                }
                Phase::Stopping { cause, .. } => leaves_its_place(cause),
                _ => false,
            },
            is_whole: matches!(&record.phase, Phase::Stopping { cause, .. } if leaves_as_a_whole(cause)),
            killed_at: match &record.phase {
                // Ten seconds before it is killed again.
                Phase::Stopping { stage: StopStage::Killed, next_at, .. } => {
                    Some(Timestamp(next_at.0.saturating_sub(KILL_AGAIN_MS)))
                }
                _ => None,
            },
        };
        self.attempts.insert(record.id, (record.attempt, attempt));
    }

    fn remove_node(&mut self, node: &NodeName) {
        self.nodes.remove(node);
        for (_, attempt) in self.attempts.values_mut() {
            let gone = attempt.placement.slots.iter().filter(|s| s.node == *node).map(|s| s.rank);
            attempt.exited.extend(gone);
        }
    }

    fn set_admin(&mut self, node: &NodeName, admin: Admin) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.admin = admin;
        }
    }

    fn order(&mut self, order: &Order, found: &mut Vec<Violation>) {
        match order {
            Order::StartMembers { gang, attempt, placement, .. } => {
                self.start(*gang, *attempt, placement, found);
            }
            Order::ReleaseMembers { gang, attempt: number } => {
                let whole = self.attempt(*gang, *number).map(|a| {
                    a.released = true;
                    a.is_ready()
                });
                if whole != Some(true) {
                    found.push(Violation::ReleasedInPart { gang: *gang, attempt: *number });
                }
            }
            Order::SignalMembers { gang, attempt, .. } | Order::KillMembers { gang, attempt } => {
                if self.attempt(*gang, *attempt).is_none_or(|a| a.all_exited()) {
                    found.push(Violation::OrderAfterEnd { gang: *gang, attempt: *attempt });
                }
                let now = self.now;
                if let (Order::KillMembers { .. }, Some(killed)) = (order, self.attempt(*gang, *attempt)) {
                    killed.kill(now);
                }
            }
        }
    }

    /// An elastic gang has the given number of members, if that is a valid size.
    fn resize(&mut self, id: GangId, placement: &Placement) {
        let job = self.jobs.get_mut(&id.job);
        let size = u32::try_from(placement.slots.len()).unwrap_or(u32::MAX);
        let changes =
            |gang: &Gang| gang.is_elastic() && (gang.min..=gang.max).contains(&size) && gang.size != size;
        let job = job.filter(|job| job.gang_at(id.index).is_some_and(changes));
        if let Some(gang) = job.and_then(|job| job.gang_mut(id.index)) {
            gang.size = size;
        }
    }

    fn start(&mut self, id: GangId, number: u32, placement: &Placement, found: &mut Vec<Violation>) {
        self.resize(id, placement);
        // After a restart an order may be repeated: the same attempt with the same placement, for members that were
        // not found.
        if let Some((n, a)) = self.attempts.get_mut(&id)
            && *n == number
            && a.placement == *placement
            && !a.released
        {
            a.missing.clear();
            let Some(gang) = self.gang(id).cloned() else { return };
            self.check_neighbours(&Start { id, gang: &gang, placement, is_first: false }, found);
            return;
        }
        let Some(gang) = self.gang(id).cloned() else {
            found.push(Violation::UnknownGang { gang: id });
            return;
        };
        if self.cancelled.contains(&id.job) || self.cancelled_tasks.contains(&id) {
            found.push(Violation::StartedAfterCancel { gang: id });
        }
        match self.attempts.get(&id) {
            Some((running, a)) if !a.is_over() => {
                found.push(Violation::StartedTwice { gang: id, running: *running });
            }
            _ => {}
        }
        let expected = self.attempts.get(&id).map_or(1, |(n, _)| n + 1);
        if number != expected {
            found.push(Violation::AttemptOutOfOrder { gang: id, attempt: number, expected });
        }
        self.attempts.insert(id, (number, Attempt::ordered(placement.clone())));
        self.check_start(&Start { id, gang: &gang, placement, is_first: number == 1 }, found);
    }
}

/// The subject of a rejection.
fn refused(change: &Change) -> Option<&str> {
    match change {
        Change::InputRejected { what, .. } => Some(what),
        _ => None,
    }
}

/// Whether the members of a gang that is stopped for this leave its placement one by one. A gang that is resized keeps it.
const fn leaves_its_place(cause: &StopCause) -> bool {
    !matches!(cause, StopCause::Resized { .. }) && !leaves_as_a_whole(cause)
}

/// Whether a gang that is stopped for this holds its placement until its last member is gone, or hangs.
const fn leaves_as_a_whole(cause: &StopCause) -> bool {
    loses_hardware(cause) || matches!(cause, StopCause::Moved { .. })
}

/// Whether a gang is stopped because a node or a device failed or is drained.
pub(crate) const fn loses_hardware(cause: &StopCause) -> bool {
    matches!(
        cause,
        StopCause::Failure { class: FailureClass::Node, .. }
            | StopCause::Displaced { class: FailureClass::Node, .. }
    )
}

fn fallback_level(levels: Option<&Levels>) -> LevelName {
    levels.map_or_else(
        || LevelName::new("node").unwrap_or_else(|_| unreachable!("a constant name")),
        |l| l.node.clone(),
    )
}
