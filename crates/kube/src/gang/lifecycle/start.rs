//! A start: the engine places a gang, and its pods are bound.

use std::collections::BTreeSet;
use std::sync::Arc;

use phalanx_model::{Exit, GangId, Input, MemberId, Order, Placement, Signal, Timestamp};

use super::scale_up::JOINED;
use super::submit::gang_of;
use crate::gang::Lifecycle;
use crate::gang::pods::{Note, State, Written};
use crate::gang::state::{Gang, Member, Run, Stage, Submitted};
use crate::messages::{Call, PodRef, Stopping, Unbound};
use crate::recognise::GangKey;

impl Lifecycle {
    /// Takes an order of the engine, about a gang that is stopped or not.
    pub fn carry_out(&mut self, order: &Order, stopping: Option<&Stopping>) {
        match order {
            Order::StartMembers { gang, attempt, placement, deadline } => {
                self.start(*gang, *attempt, placement, *deadline);
            }
            Order::ReleaseMembers { gang, .. } => self.release(*gang),
            // The kubelet sends SIGTERM when the pod is deleted; other signals it knows none.
            Order::SignalMembers { gang, attempt, signal: Signal::Advisory(_) } => {
                self.advise(*gang, *attempt, stopping);
            }
            Order::SignalMembers { gang, attempt, signal: Signal::Terminate }
            | Order::KillMembers { gang, attempt } => self.stop(*gang, *attempt, stopping),
        }
    }

    pub(in crate::gang) fn start(
        &mut self,
        id: GangId,
        attempt: u32,
        placement: &Placement,
        deadline: Timestamp,
    ) {
        let Some(key) = self.jobs.get(&id.job).cloned() else { return };
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        (gang.waits, gang.refused, gang.is_nominated) = (None, None, false);
        self.provision(&key, None);
        // The start before is over, and this is the first that is heard of it.
        let is_over = |job: &Submitted| job.run.as_ref().is_some_and(|run| run.attempt != attempt);
        if self.gangs.get(&key).and_then(|gang| gang.job.as_ref()).is_some_and(is_over) {
            self.gang_waits(id);
        }
        let Some(Gang { pods, job: Some(submitted), .. }) = self.gangs.get_mut(&key) else { return };
        // After a restart an order that was half carried out comes again.
        if submitted.run.as_ref().is_none_or(|run| run.attempt != attempt) {
            let run = Run {
                attempt,
                placement: placement.clone(),
                members: vec![Member::Placed; submitted.seats.len()],
                ready_by: deadline,
                epochs: self.epoch.iter().cloned().collect(),
                preparation: None,
                stage: Stage::Placed,
                staying: 0,
                is_leaving: false,
                freed: BTreeSet::new(),
            };
            submitted.run = Some(run);
            // A pod of the start before may be there until the kubelet is done with it.
            let is_going = |name: &mut Arc<str>| pods.get(name).is_some_and(|pod| pod.known.is_going);
            submitted.seats.iter_mut().for_each(|seat| drop(seat.pod.take_if(is_going)));
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
        let Some(run) = submitted.run.as_ref().filter(|run| !run.is_stopping()) else { return };
        if !(submitted.is_complete() || run.has_begun()) || !self.may_bind(key) {
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
        if run.stage == Stage::Placed {
            run.stage = Stage::Binding;
        }
        run.epochs.extend(epoch.clone());
        run.preparation = None;
        let whole = Written::of(&run.placement);
        // What a claim needs first may take long: the first to be bound may be any of them.
        let are_all_told = !prepared.is_empty();
        let mut others = Vec::new();
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
            let has_text =
                are_all_told || whole.as_ref().is_none_or(|whole| whole.has_text(id.rank as usize));
            let note = Note {
                rank: id.rank,
                devices: ready.as_ref().map_or(slot.devices, |ready| ready.devices),
                attempt: run.attempt,
                ready_by: (size > 1).then_some(run.ready_by),
                placement: whole.as_ref().map(|whole| whole.on(has_text).clone()),
                epoch: epoch.clone(),
            };
            if *member == Member::Placed {
                *member = Member::Binding;
            }
            let calls = if has_text { &mut self.calls } else { &mut others };
            calls.push(Call::Bind {
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
        self.calls.append(&mut others);
    }

    /// All are bound. A single pod is the kubelet's from here; of a gang all have to run.
    pub(in crate::gang) fn release(&mut self, id: GangId) {
        let Some(key) = self.jobs.get(&id.job).cloned() else { return };
        let Some(Gang { pods, job: Some(submitted), .. }) = self.gangs.get_mut(&key) else { return };
        let size = submitted.seats.len();
        let is_alone = size == 1;
        let Some(run) = submitted.run.as_mut() else { return };
        if !run.is_stopping() {
            run.stage = Stage::Released;
        }
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
}
