//! Starts and stops: what the engine orders, the calls that follow, and what became of the pods.

use std::sync::Arc;

use phalanx_model::{
    Exit, FailureClass, GangId, Input, JobId, MemberId, Order, Placement, Signal, StopCause, Timestamp,
};

use super::grace::grace_s;
use super::scale_up::JOINED;
use super::submit::gang_of;
use crate::gang::Lifecycle;
use crate::gang::constraints::dependent;
use crate::gang::pods::{Note, State, written};
use crate::gang::report::waits::Waiting;
use crate::gang::state::{Gang, Member, Pod, Run, Stop, Submitted};
use crate::messages::PodRef;
use crate::messages::{Call, GangEvent, Unbound, WAITING, WaitsFor};
use crate::recognise::names::phalanx;
use crate::recognise::{GangKey, ObjectRef, Source};

impl Lifecycle {
    /// Takes an order of the engine. `cause` is why a gang stops, where it does.
    pub fn carry_out(&mut self, order: &Order, cause: Option<&StopCause>) {
        match order {
            Order::StartMembers { gang, attempt, placement, deadline } => {
                self.start(*gang, *attempt, placement, *deadline);
            }
            Order::ReleaseMembers { gang, .. } => self.release(*gang),
            // The kubelet sends SIGTERM when the pod is deleted; other signals it knows none.
            Order::SignalMembers { gang, attempt, signal: Signal::Advisory(_) } => {
                self.advise(*gang, *attempt, cause);
            }
            Order::SignalMembers { gang, attempt, signal: Signal::Terminate }
            | Order::KillMembers { gang, attempt } => self.stop(*gang, *attempt, cause),
        }
    }

    /// The job ended.
    pub fn job_ended(&mut self, job: JobId) {
        if let Some((key, _)) = self.close(job) {
            self.facts.push(Input::JobForgotten { job });
            self.provision(&key, None);
            self.changed.insert(key);
        }
    }

    /// Whether this is not why its gang was refused before: who is refused is handed in again whenever nodes change.
    #[must_use]
    pub fn is_news_to(&self, job: JobId, why: &str) -> bool {
        let gang = self.jobs.get(&job).and_then(|key| self.gangs.get(key));
        gang.is_some_and(|gang| gang.refused.as_deref() != Some(why))
    }

    /// The engine does not take the job.
    pub fn job_refused(&mut self, job: JobId, why: &str, waits_for: WaitsFor) {
        let Some((key, also)) = self.close(job) else { return };
        if let Some(gang) = self.gangs.get_mut(&key) {
            gang.refused = Some(why.into());
        }
        let why = self.beside_refused(&key, format!("{why}{also}"));
        self.refused.insert(key.clone());
        self.explain(&key, waits_for, &why);
    }

    /// The engine will not start this job again. Whose it was, and what its gang is told with every reason.
    fn close(&mut self, job: JobId) -> Option<(GangKey, String)> {
        let key = self.jobs.remove(&job)?;
        let gang = self.gangs.get_mut(&key)?;
        let mut also = String::new();
        if let Some(submitted) = gang.job.take() {
            also = dependent(&submitted);
            submitted.sets.iter().for_each(|wanted| self.cluster.nodes.drop_set(wanted));
            submitted.ports.iter().for_each(|port| self.cluster.nodes.drop_port(port));
            self.end_run(&key, submitted.run.as_ref());
            self.end_start(&key, &submitted.seats, submitted.run.as_ref());
            if let Some(line) = &submitted.line {
                self.constraints.serial.leave(line, &key);
            }
            self.asks_no_more(&key);
        }
        Some((key, also))
    }

    /// The engine has taken the places back: the job waits for another start.
    pub fn gang_waits(&mut self, gang: GangId) {
        let Some(key) = self.jobs.get(&gang.job).cloned() else { return };
        let Some(submitted) = self.gangs.get_mut(&key).and_then(|gang| gang.job.as_mut()) else { return };
        let (run, seats) = (submitted.run.take(), submitted.seats.clone());
        self.end_run(&key, run.as_ref());
        self.end_start(&key, &seats, run.as_ref());
        self.changed.insert(key);
    }

    /// Says once for all of its pods what happened to a gang.
    pub fn tell_job(&mut self, job: JobId, reason: &'static str, is_warning: bool, note: String) {
        let gang = self.jobs.get(&job).and_then(|key| self.gangs.get(key));
        let is_told = |gang: &&Gang| !self.is_deleted(&gang.key);
        if let Some(about) = gang.filter(is_told).and_then(|gang| self.about(gang)) {
            self.calls.push(Call::Tell(Box::new(GangEvent { about, reason, is_warning, note })));
        }
    }

    /// Whether its object was deleted: its pods go with it, and there is nobody left to be told.
    fn is_deleted(&self, key: &GangKey) -> bool {
        let gang = self.gangs.get(key);
        let are_made = gang.is_some_and(|gang| gang.pods.values().all(|pod| pod.known.has_owner));
        are_made && key.source.has_object() && self.told(key).is_none()
    }

    /// The object of a gang, or its first pod.
    pub(in crate::gang) fn about(&self, gang: &Gang) -> Option<ObjectRef> {
        let object = self.said(&gang.key).and_then(|spec| spec.object.clone());
        let of_pod = || {
            let pod = gang.pod_ref(gang.pods.keys().next()?)?;
            Some(ObjectRef {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                namespace: pod.namespace.to_string(),
                name: pod.name.to_string(),
                uid: Some(pod.uid.to_string()),
                any_version: false,
            })
        };
        object.or_else(of_pod)
    }

    /// Whose job that is.
    #[must_use]
    pub fn key_of(&self, job: JobId) -> Option<&GangKey> {
        self.jobs.get(&job)
    }

    /// How many ranks it has.
    #[must_use]
    pub fn size_of(&self, job: JobId) -> Option<usize> {
        Some(self.gangs.get(self.jobs.get(&job)?)?.job.as_ref()?.seats.len())
    }

    /// Whether a job is more than one pod: one pod's own status says all there is to say.
    #[must_use]
    pub fn is_gang(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|key| key.source != crate::recognise::Source::Pod)
    }

    /// Why a gang waits, for its pods.
    pub fn explain_job(&mut self, job: JobId, waits_for: WaitsFor, why: &str) {
        let Some(key) = self.jobs.get(&job).cloned() else { return };
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        gang.refused = None;
        let mut why = why.to_owned();
        if waits_for == WaitsFor::NEARER {
            why.push_str(&format!(" with `{}: anywhere`", phalanx::WAIT));
        }
        why.extend(gang.job.as_ref().map(dependent));
        if waits_for == WaitsFor::Nodes {
            why.push_str(&self.protected_below(&key));
        }
        self.explain(&key, waits_for, &why);
    }

    pub(in crate::gang) fn explain(&mut self, key: &GangKey, waits_for: WaitsFor, why: &str) {
        self.tell_groups(key, Some(waits_for), why);
        let Some(gang) = self.gangs.get_mut(key) else { return };
        let before = gang.waits.replace(Waiting { what: waits_for, why: why.into() });
        if before.is_none_or(|before| before.what != waits_for) {
            self.tell_behind(key);
        }
        self.tell_volcano(key);
        self.provision(key, Some(waits_for));
        let Some(gang) = self.gangs.get(key) else { return };
        let pods = gang.unbound();
        if !pods.is_empty() {
            return self.say(key, &pods, waits_for, why.into());
        }
        // A suspended owner has no pods that could say it. Once for each sort of reason: the rest of it changes all the time.
        let word = why.split(':').next().unwrap_or_default();
        if !gang.pods.is_empty() || gang.said.as_deref() == Some(word) {
            return;
        }
        let Some(about) = self.said(key).and_then(|spec| spec.object.clone()) else { return };
        if let Some(gang) = self.gangs.get_mut(key) {
            gang.said = Some(word.into());
        }
        let tidings = GangEvent { about, reason: WAITING, is_warning: false, note: why.to_owned() };
        self.calls.push(Call::Tell(Box::new(tidings)));
    }

    /// Says on upstream's group, or on the one that the owner made for its pods, whether it is scheduled: what it waits for,
    /// where it is not.
    pub(in crate::gang) fn tell_groups(&mut self, key: &GangKey, waits_for: Option<WaitsFor>, message: &str) {
        let owner = (key.source.word().to_owned(), key.namespace.to_string(), key.name.to_string());
        let made = self.above.get(&owner).into_iter().flat_map(|above| &above.owned);
        let groups = made.chain([key]).filter(|group| group.source == Source::PodGroup);
        let told = groups.filter_map(|group| self.told(group));
        let told = told.filter(|told| waits_for.is_none() || !told.was_scheduled);
        let specs = told.filter_map(|told| told.specs.as_ref().ok()?.first());
        let message: Arc<str> = message.into();
        let calls: Vec<Call> = specs
            .filter_map(|spec| spec.object.clone())
            .map(|about| Call::Group {
                about,
                is_scheduled: waits_for.is_none(),
                reason: waits_for.map_or("Scheduled", WaitsFor::reason),
                message: Arc::clone(&message),
            })
            .collect();
        self.calls.extend(calls);
    }

    fn end_run(&mut self, key: &GangKey, run: Option<&Run>) {
        for slot in run.into_iter().flat_map(|run| &run.placement.slots) {
            self.cluster.nodes.ours(&slot.node, slot.devices, false);
        }
        self.take_back_claims(key);
    }

    fn start(&mut self, id: GangId, attempt: u32, placement: &Placement, deadline: Timestamp) {
        let Some(key) = self.jobs.get(&id.job).cloned() else { return };
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        (gang.waits, gang.refused) = (None, None);
        self.provision(&key, None);
        // The start before is over, and this is the first that is heard of it.
        let is_over = |job: &Submitted| job.run.as_ref().is_some_and(|run| run.attempt != attempt);
        if self.gangs.get(&key).and_then(|gang| gang.job.as_ref()).is_some_and(is_over) {
            self.gang_waits(id);
        }
        let Some(submitted) = self.gangs.get_mut(&key).and_then(|gang| gang.job.as_mut()) else { return };
        // After a restart an order that was half carried out comes again.
        if submitted.run.as_ref().is_none_or(|run| run.attempt != attempt) {
            let run = Run {
                attempt,
                placement: placement.clone(),
                members: vec![Member::Placed; submitted.seats.len()],
                ready_by: deadline,
                epochs: self.epoch.iter().cloned().collect(),
                preparation: None,
                stops: None,
                staying: 0,
                has_begun: false,
                is_released: false,
            };
            submitted.run = Some(run);
            for slot in &placement.slots {
                self.cluster.nodes.ours(&slot.node, slot.devices, true);
            }
            self.tell_joiners(&key);
        }
        self.end_with_owner(&key);
        if self.is_resumable(&key)
            && !self.has_bound(&key)
            && let Some(suspend) = self.resumed_by(&key)
        {
            self.calls.push(Call::Resume { suspend });
        }
        self.bind_if_complete(&key);
    }

    /// Binds all pods of a gang, once all are there: until then none of them holds anything.
    pub(in crate::gang) fn bind_if_complete(&mut self, key: &GangKey) {
        let Some(submitted) = self.gangs.get(key).and_then(|gang| gang.job.as_ref()) else { return };
        let Some(run) = submitted.run.as_ref().filter(|run| run.stops.is_none()) else { return };
        if !(submitted.is_complete() || run.has_begun) || !self.may_bind(key) {
            return;
        }
        let Some(mut prepared) = self.prepare(key) else { return };
        let epoch = self.epoch.clone();
        let Some(gang) = self.gangs.get_mut(key) else { return };
        let joined = gang.joined().map(|of| (JOINED.to_owned(), of.to_owned()));
        let Gang { pods, job, .. } = gang;
        let Some(submitted) = job else { return };
        let size = u32::try_from(submitted.seats.len()).unwrap_or(u32::MAX);
        let Submitted { id, seats, run, .. } = submitted;
        let Some(run) = run.as_mut() else { return };
        run.has_begun = true;
        run.epochs.extend(epoch.clone());
        run.preparation = None;
        let whole = written(&run.placement);
        let ids = (0_u32..).map(|rank| MemberId { gang: gang_of(*id), attempt: run.attempt, rank });
        for ((seat, slot), (member, id)) in
            seats.iter().zip(&run.placement.slots).zip(run.members.iter_mut().zip(ids))
        {
            let is_kept = seat.is_kept(*member);
            let Some(name) = seat.pod.as_ref().filter(|_| seat.can_bind(*member)) else {
                // Its place is kept: the others need not wait for it.
                if seat.is_late() && *member == Member::Placed && seat.pod.is_none() {
                    *member = Member::Bound;
                    self.facts.push(Input::MemberReady { member: id });
                }
                continue;
            };
            let Some(pod) = pods.get(name).filter(|pod| pod.known.node.is_none()) else { continue };
            let ready = prepared.remove(&id.rank);
            // The others may run for long; its own binding is all that is waited for.
            match is_kept {
                true if seat.is_awaited() => *member = Member::Binding,
                true => *member = Member::Vacant { until: Timestamp(u64::MAX) },
                false => {}
            }
            let note = Note {
                rank: id.rank,
                devices: ready.as_ref().map_or(slot.devices, |ready| ready.devices),
                attempt: run.attempt,
                ready_by: (size > 1).then_some(run.ready_by),
                placement: whole.clone(),
                epoch: epoch.clone(),
            };
            if *member == Member::Placed {
                *member = Member::Binding;
            }
            self.calls.push(Call::Bind {
                pod: PodRef {
                    namespace: Arc::clone(&key.namespace),
                    name: Arc::clone(name),
                    uid: Arc::clone(&pod.known.uid),
                },
                node: slot.node.clone(),
                member: id,
                before: ready.map(|ready| ready.steps).unwrap_or_default(),
                annotations: note.annotations(size).into_iter().chain(joined.clone()).collect(),
            });
        }
    }

    /// All are bound. A single pod is the kubelet's from here; of a gang all have to run.
    fn release(&mut self, id: GangId) {
        let Some(key) = self.jobs.get(&id.job).cloned() else { return };
        let Some(Gang { pods, job: Some(submitted), .. }) = self.gangs.get_mut(&key) else { return };
        let size = submitted.seats.len();
        let is_alone = size == 1;
        let Some(run) = submitted.run.as_mut() else { return };
        run.is_released = true;
        for ((rank, seat), member) in (0..).zip(&submitted.seats).zip(&mut run.members) {
            let pod = seat.pod.as_ref().and_then(|name| pods.get(name));
            let runs = pod.is_some_and(|pod| pod.known.state == State::Running);
            let id = MemberId { gang: id, attempt: run.attempt, rank };
            if *member == Member::Bound && (is_alone || runs || !seat.is_awaited()) {
                *member = Member::Running;
                self.facts.push(Input::MemberReleased { member: id });
            } else if member.is_spared() || (seat.is_late() && matches!(member, Member::Vacant { .. })) {
                self.facts.push(Input::MemberReleased { member: id });
            }
        }
        if self.gangs.get(&key).is_some_and(Gang::may_be_joined) {
            self.changed.insert(key.clone());
        }
        self.tell_groups(&key, None, &format!("{size} pods are bound"));
    }

    /// What became of a binding.
    pub(in crate::gang) fn bound(&mut self, now: Timestamp, id: MemberId, result: Result<(), Unbound>) {
        let Some(run) = self.run_mut(id) else { return };
        let Some(member) = run.members.get_mut(id.rank as usize) else { return };
        match result {
            Ok(()) => {
                if *member == Member::Binding {
                    *member = Member::Bound;
                    self.facts.push(Input::MemberReady { member: id });
                }
            }
            Err(Unbound { class, detail, may_come }) => {
                let is_awaited = matches!(member, Member::Binding | Member::Vacant { .. });
                if is_awaited && self.spare(id) {
                    self.explain_spared(id, &detail);
                } else if is_awaited {
                    if may_come {
                        self.unsettle(now, id);
                    }
                    self.exit(id, Exit::failed(class, detail));
                }
            }
        }
    }

    /// Stops a start: pods that were bound go, ranks without one are gone already. The engine orders it again and again,
    /// until the last of them is gone.
    fn stop(&mut self, id: GangId, attempt: u32, cause: Option<&StopCause>) {
        let Some(key) = self.jobs.get(&id.job).cloned() else { return };
        let (why, suspend) = match cause {
            Some(StopCause::Preempted(_) | StopCause::Displaced { .. }) => {
                (Stop::Evicted, self.suspend_of(&key))
            }
            Some(StopCause::Failure { .. }) => (Stop::TakenBack, self.taken_back_by(&key)),
            _ => (Stop::Ended, None),
        };
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        let Some(submitted) = gang.job.as_mut() else { return };
        let Some(run) = submitted.run.as_mut().filter(|run| run.attempt == attempt) else { return };
        let is_again = run.stops.replace(why).is_some();
        let mut going = Vec::new();
        let mut gone = Vec::new();
        let mut stays = None;
        for ((rank, seat), member) in (0..).zip(&submitted.seats).zip(&run.members) {
            let pod = seat.pod.as_ref().and_then(|name| Some((name, gang.pods.get(name)?)));
            let bound = pod.filter(|(_, pod)| {
                pod.known.node.is_some() || *member == Member::Binding || *member == Member::Bound
            });
            match bound {
                // Nobody would make it again.
                Some((name, pod)) if why == Stop::TakenBack && !pod.known.has_owner => {
                    stays = Some(Arc::clone(name));
                }
                Some((name, _)) => going.push(Arc::clone(name)),
                None if *member != Member::Exited => gone.push(MemberId { gang: id, attempt, rank }),
                None => {}
            }
        }
        if why == Stop::TakenBack {
            let stays = |pod: &Pod| !pod.known.is_going && !pod.known.is_over();
            going.retain(|name| gang.pods.get(name).is_some_and(stays));
        }
        let stops = submitted.stop;
        // Since the last time none of them went: nobody acts on the suspension.
        let is_stuck = is_again && going.len() == std::mem::replace(&mut run.staying, going.len());
        let suspend = suspend.filter(|_| why == Stop::Evicted || !is_stuck);
        let pods: Vec<PodRef> = going.iter().filter_map(|name| gang.pod_ref(name)).collect();
        if !pods.is_empty() || (why == Stop::Evicted && suspend.is_some()) {
            let note = cause.map_or_else(String::new, stop_note);
            let grace_s = grace_s(gang, stops, cause);
            suspend.iter().for_each(|owner| self.signs(owner));
            let call = Call::Stop { pods, suspend, grace_s, evict: why == Stop::Evicted, note };
            self.stop_within_budgets(&key, id.job, call, &going, is_again);
        }
        for member in gone {
            self.exit(member, Exit::failed(FailureClass::Infrastructure, "it had no pod"));
        }
        if let Some(name) = stays {
            self.explain_staying(&key, &name);
        }
    }

    /// What a pod's news mean for its rank.
    pub(in crate::gang) fn follow(&mut self, now: Timestamp, key: &GangKey, name: &Arc<str>) {
        let Some(gang) = self.gangs.get_mut(key) else { return };
        let Gang { pods, job, .. } = gang;
        let (Some(submitted), Some(pod)) = (job.as_mut(), pods.get(name)) else { return };
        if submitted.rank_of(name).is_none() && !pod.known.is_going && !pod.known.is_over() {
            // It has a place, and not here.
            if pod.known.node.is_some() {
                return;
            }
            let Some(free) = submitted.seat_for(pods, pod) else { return self.explain_late(key, name) };
            let seat = &mut submitted.seats[free];
            seat.pod = Some(Arc::clone(name));
            // Its place was kept and counted as ready, so that the others could start.
            if let Some(member) = submitted.run.as_mut().and_then(|run| run.members.get_mut(free))
                && seat.is_late()
                && matches!(member, Member::Bound | Member::Running)
            {
                *member = Member::Placed;
            }
            self.bind_if_complete(key);
            return;
        }
        let Some(rank) = submitted.rank_of(name) else { return };
        if pod.known.is_going && self.cluster.nodes.is_out_of_reach(pod.known.node.as_ref()) {
            return self.lose_out_of_reach(now, key, rank);
        }
        let is_alone = submitted.seats.len() == 1;
        let (job, Some(run)) = (submitted.id, submitted.run.as_mut()) else { return };
        let id = MemberId {
            gang: gang_of(job),
            attempt: run.attempt,
            rank: u32::try_from(rank).unwrap_or(u32::MAX),
        };
        let is_there = run.has_placed(rank, &pod.known);
        let Some(member) = run.members.get_mut(rank) else { return };
        let Some(node) = &pod.known.node else { return };
        if !is_there {
            let detail = format!("was bound to {node} by somebody else");
            return self.exit(id, Exit::failed(FailureClass::Infrastructure, detail));
        }
        let noted = pod.known.noted.as_ref().filter(|note| note.attempt == run.attempt);
        let chosen = run.placement.slots.get(rank).map(|slot| slot.devices);
        if let Some(note) = noted.filter(|note| Some(note.devices) != chosen) {
            self.moved.insert(id, note.devices);
        } else {
            self.moved.remove(&id);
        }
        if member.is_spared() {
            *member = Member::Running;
        }
        if matches!(member, Member::Placed | Member::Binding) {
            *member = Member::Bound;
            self.facts.push(Input::MemberReady { member: id });
        }
        let is_released = run.is_released;
        match &pod.known.state {
            State::Over(exit) => {
                let exit = exit.clone();
                self.vacate(now, id, exit);
            }
            State::Running if *member == Member::Bound && (is_released || is_alone) => {
                *member = Member::Running;
                self.facts.push(Input::MemberReleased { member: id });
            }
            State::Running if matches!(member, Member::Vacant { .. }) => *member = Member::Running,
            _ => {}
        }
    }

    /// The rank is over, as the engine is told once.
    pub(in crate::gang) fn exit(&mut self, id: MemberId, exit: Exit) {
        let Some(member) = self.run_mut(id).and_then(|run| run.members.get_mut(id.rank as usize)) else {
            return;
        };
        if *member == Member::Exited {
            return;
        }
        *member = Member::Exited;
        self.facts.push(Input::MemberExited { member: id, exit });
        self.end_spared(id);
    }

    /// The start that a member belongs to, while it lasts.
    pub(in crate::gang) fn run_mut(&mut self, id: MemberId) -> Option<&mut Run> {
        let key = self.jobs.get(&id.gang.job)?;
        let run = self.gangs.get_mut(key)?.job.as_mut()?.run.as_mut()?;
        (run.attempt == id.attempt).then_some(run)
    }

    /// Jobs that were refused and may be possible now: nodes changed.
    pub(in crate::gang) fn reconsider(&mut self) {
        for key in std::mem::take(&mut self.refused) {
            self.changed.insert(key);
        }
    }
}

fn stop_note(cause: &StopCause) -> String {
    match cause {
        StopCause::Preempted(eviction) => eviction.rule.to_string(),
        StopCause::Displaced { detail, .. } | StopCause::Failure { detail, .. } => detail.clone(),
        StopCause::Cancelled { by } => format!("cancelled: {by}"),
        StopCause::TimeLimit => "its time is over".to_owned(),
        StopCause::IdleLimit => "nobody used it".to_owned(),
        StopCause::Resized { .. } | StopCause::ScaledIn { .. } => "its size changes".to_owned(),
    }
}
