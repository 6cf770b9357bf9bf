//! What becomes of ranks whose pods are gone.
//!
//! The place of such a rank is kept for the pod that comes in its stead, and judged again for that pod: a node may be cordoned,
//! tainted, smaller or gone by now, or its kubelet turns every pod away. A place that the pod cannot have is lost, and with
//! it the rank: its gang starts as a whole elsewhere.
//!
//! A pod on its way out that runs on a node out of reach stays in the API until somebody takes it away or the node answers.
//! It counts as gone: another may come in its stead, and its gang waits for it no longer. What it holds there stays held.

use std::sync::Arc;

use phalanx_model::{Exit, FailureClass, Input, MemberId, NodeName, Timestamp};

use super::submit::gang_of;
use super::suspension::owner_suspended;
use crate::api;
use crate::cluster::hardware::are_devices_asked;
use crate::constraint::division::Room;
use crate::filter::Requirements;
use crate::gang::Lifecycle;
use crate::gang::pods::{Known, State};
use crate::gang::state::{Gang, Member, Pod, Seat, Submitted};
use crate::recognise::GangKey;

/// The reason with which a kubelet turns away a pod that it cannot give devices to.
const NO_DEVICES: &str = "UnexpectedAdmissionError";

impl Lifecycle {
    /// A pod is no more: its rank is lost, or waits for another.
    pub(in crate::gang) fn forget_pod(&mut self, now: Timestamp, key: &GangKey, name: &str) {
        let Some(gang) = self.gangs.get_mut(key) else { return };
        let Some((name, pod)) = gang.pods.remove_entry(name) else { return };
        gang.remember(&name, &pod);
        gang.unsettled.remove(&name);
        let name = &*name;
        self.changed.insert(key.clone());
        self.forget_asked(key, name);
        self.unplace_pod(&format!("{}/{name}", key.namespace));
        self.lose_claims(key, name, &pod.known);
        let Some(gang) = self.gangs.get_mut(key) else { return };
        let Some(submitted) = &mut gang.job else { return };
        let Some(rank) = submitted.rank_of(name) else { return };
        submitted.seats[rank].pod = None;
        let (job, Some(run)) = (submitted.id, &submitted.run) else { return };
        if pod.known.node.is_none() && run.members.get(rank) == Some(&Member::Placed) {
            return;
        }
        let id = MemberId {
            gang: gang_of(job),
            attempt: run.attempt,
            rank: u32::try_from(rank).unwrap_or(u32::MAX),
        };
        let exit = match pod.known.state {
            State::Over(exit) => exit,
            _ => Exit::failed(FailureClass::Infrastructure, format!("pod {name} was deleted")),
        };
        self.vacate(now, id, exit);
    }

    /// A rank whose pod has ended. Where somebody makes another the place is kept for it, for a while.
    pub(in crate::gang) fn vacate(&mut self, now: Timestamp, id: MemberId, exit: Exit) {
        let until = now.plus(self.options.vacant_ms);
        let Some(key) = self.jobs.get(&id.gang.job).cloned() else { return };
        let makes_more = self.makes_pods(&key);
        let is_paused = self.is_suspended(&key);
        let Some(run) = self.run_mut(id) else { return };
        let is_stopping = run.is_stopping();
        let Some(member) = run.members.get_mut(id.rank as usize) else { return };
        if member.is_spared() && !is_stopping {
            return;
        }
        if exit.is_success() || is_stopping || !makes_more {
            let is_lost = !exit.is_success() && !makes_more && key.source.has_object();
            self.exit(id, exit);
            // Its owner has ended or is gone: it is not to start again.
            if is_lost
                && let Some(submitted) = self.gangs.get_mut(&key).and_then(|gang| gang.job.as_mut())
                && submitted.cancel()
            {
                let by = "its owner has ended".to_owned();
                self.facts.push(Input::CancelRequested { job: id.gang.job, by });
            }
            return;
        }
        if is_paused {
            return self.exit(id, owner_suspended());
        }
        if !matches!(member, Member::Vacant { .. } | Member::Exited) {
            *member = Member::Vacant { until };
            self.vacant.insert((until, id));
        }
    }

    /// Judges the places that pods are about to get, and gives up ranks whose pods cannot have them. Whether the gang goes
    /// back for that; where the others are enough it goes on, and the rank is tried again.
    pub(in crate::gang) fn lose_places(&mut self, key: &GangKey) -> bool {
        let Some(gang) = self.gangs.get(key) else { return false };
        let Some((submitted, run)) = gang.job.as_ref().and_then(|job| Some((job, job.run.as_ref()?))) else {
            return false;
        };
        // What a start that has just been decided needs is free there.
        let mut room = None;
        let mut judged = Vec::new();
        let places = submitted.seats.iter().zip(&run.placement.slots).zip(&run.members);
        for (rank, ((seat, slot), member)) in (0..).zip(places) {
            let is_out = *member == Member::Displaced;
            let as_if = if is_out { Member::Spared } else { *member };
            let Some(pod) = gang.pod_to_bind(seat, as_if) else { continue };
            let is_again = matches!(member, Member::Vacant { .. }) || member.is_spared();
            let room = is_again.then(|| &*room.get_or_insert_with(|| self.room_now()));
            let place = self.judge_place(&slot.node, pod, room.map(|room| (room, &*seat.requirements)));
            if is_out || place.is_err() {
                let id = MemberId { gang: gang_of(submitted.id), attempt: run.attempt, rank };
                judged.push((id, place.map_err(|why| format!("its place on {} is lost: {why}", slot.node))));
            }
        }
        let mut goes_back = false;
        for (id, place) in judged {
            let is = match &place {
                Ok(()) => Member::Spared,
                Err(why) if self.spare(id) => {
                    self.explain_spared(id, why);
                    self.rechecks.tries.insert(key.clone());
                    Member::Displaced
                }
                Err(why) => {
                    self.exit(id, Exit::failed(FailureClass::Node, why.clone()));
                    goes_back = true;
                    continue;
                }
            };
            let member = self.run_mut(id).and_then(|run| run.members.get_mut(id.rank as usize));
            member.into_iter().for_each(|member| *member = is);
        }
        goes_back
    }

    /// Whether a pod can have its place on a node, where there is room for what is counted for it.
    ///
    /// # Errors
    /// What is against it.
    fn judge_place(
        &self,
        name: &NodeName,
        pod: &Pod,
        room: Option<(&Room, &Requirements)>,
    ) -> Result<(), String> {
        let Some(node) = self.cluster.nodes.get(name) else { return Err("the node is gone".to_owned()) };
        let needs = &pod.known.requirements;
        needs.terms.admits(node).map_err(|refusal| refusal.to_string())?;
        if are_devices_asked(&needs.amounts) && self.cluster.nodes.is_distrusted(name) {
            return Err(format!("the node turned pods away ({NO_DEVICES})"));
        }
        let lacking = room.map_or_else(Vec::new, |(room, counted)| room.lacking_for(name, counted, needs));
        let lack = lacking.into_iter().find(|lack| !self.cluster.nodes.may_be_claimed(name, lack));
        lack.map_or(Ok(()), |lack| Err(lack.to_string()))
    }

    /// What the news of a pod that waited say of its node.
    pub(in crate::gang) fn learn_of_node(&mut self, now: Timestamp, pod: &api::Pod, is: &Known) {
        let Some(node) = is.node.as_ref().filter(|_| are_devices_asked(&is.requirements.amounts)) else {
            return;
        };
        let is_refused = pod.status.reason.as_deref() == Some(NO_DEVICES);
        match &is.state {
            State::Over(_) if is_refused => self.cluster.nodes.turned_away(now, node),
            State::Running => self.cluster.nodes.runs(node),
            _ => {}
        }
    }

    /// Pods on their way out on nodes that are out of reach since the last time.
    pub(in crate::gang) fn lose_nodes(&mut self, now: Timestamp) {
        let nodes = self.cluster.nodes.take_lost();
        if nodes.is_empty() {
            return;
        }
        let is_there =
            |pod: &Pod| pod.known.is_going && pod.known.node.as_ref().is_some_and(|on| nodes.contains(on));
        let mut found = Vec::new();
        for gang in self.gangs.values() {
            let of_it = gang.pods.iter().filter(|(_, pod)| is_there(pod));
            found.extend(of_it.map(|(name, _)| (gang.key.clone(), Arc::clone(name))));
        }
        for (key, name) in found {
            self.follow(now, &key, &name);
            self.changed.insert(key);
        }
    }

    /// A node is gone, and with it whatever ran there: the engine takes it so too.
    pub(in crate::gang) fn lose_node(&mut self, name: &str) {
        let Ok(node) = NodeName::new(name) else { return };
        let removed = self.cluster.nodes.remove(&node);
        self.devices_gone(name);
        let Some(removed) = removed else { return };
        self.facts.push(removed);
        let mut freed = Vec::new();
        for submitted in self.gangs.values_mut().filter_map(|gang| gang.job.as_mut()) {
            let Some(run) = submitted.run.as_mut() else { continue };
            let on_it =
                run.placement.slots.iter().zip(&mut run.members).filter(|(slot, _)| slot.node == node);
            on_it.for_each(|(_, member)| *member = Member::Exited);
            freed.extend(run.free_exited());
        }
        freed.iter().for_each(|slot| self.cluster.nodes.ours(&slot.node, slot.devices, false));
    }

    /// Frees the rank of a pod that is out of reach, for another that comes in its stead.
    pub(in crate::gang) fn lose_out_of_reach(&mut self, now: Timestamp, key: &GangKey, rank: usize) {
        let Some(submitted) = self.gangs.get_mut(key).and_then(|gang| gang.job.as_mut()) else { return };
        let Submitted { id, seats, run: Some(run), .. } = submitted else { return };
        let (Some(seat), Some(slot)) = (seats.get_mut(rank), run.placement.slots.get(rank)) else { return };
        let detail = format!("node {} is out of reach", slot.node);
        seat.pod = None;
        let rank = u32::try_from(rank).unwrap_or(u32::MAX);
        let id = MemberId { gang: gang_of(*id), attempt: run.attempt, rank };
        self.changed.insert(key.clone());
        self.vacate(now, id, Exit::failed(FailureClass::Node, detail));
    }
}

impl Gang {
    /// The pod of a rank, where it is to be bound to the place that is kept for it.
    pub(in crate::gang) fn pod_to_bind(&self, seat: &Seat, member: Member) -> Option<&Pod> {
        let name = seat.pod.as_ref().filter(|_| seat.can_bind(member))?;
        self.pods.get(name).filter(|pod| pod.known.node.is_none())
    }
}

#[cfg(test)]
mod tests;
