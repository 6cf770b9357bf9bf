//! Claims for devices among gangs: what seats ask for by them, what pods get at a start, and what goes back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceClaimConsumerReference;
use phalanx_model::{Exit, FailureClass, MemberId, NodeName, Timestamp};

use super::Lifecycle;
use super::lifecycle::submit::gang_of;
use super::state::{Gang, Seat};
use crate::api;
use crate::cluster::node_sets::{Claimed, Condition};
use crate::constraint::claims::{Asked, ClaimState, Left, Prepared, Shared, Unprepared, Used, is_group};
use crate::dra::ExtendedAsk;
use crate::gang::pods::Known;
use crate::messages::DeviceEvent;
use crate::messages::PodRef;
use crate::recognise::{GangKey, GangSpec};

impl Lifecycle {
    /// Devices, classes and claims as a watch told them.
    pub(in crate::gang) fn see_device(&mut self, event: DeviceEvent) {
        let had_devices = self.constraints.claims.has_devices();
        let path = self.constraints.claims.observe(event);
        if !had_devices && self.constraints.claims.has_devices() {
            self.changed.extend(self.gangs.keys().cloned());
        }
        let Some(path) = path else { return };
        let gangs = &self.gangs;
        for key in self.constraints.claims.users(&path, |key| gangs.contains_key(key)) {
            self.changed.insert(key);
        }
        for key in self.constraints.claims.awaiting() {
            self.bind_if_complete(&key);
        }
    }

    /// Devices are reached by the labels of nodes, and claims serve what no device plugin has there.
    pub(in crate::gang) fn devices_moved(&mut self, node: &api::Node) {
        let Ok(name) = NodeName::new(node.name()) else { return };
        let is_same = |known: &api::Node| {
            known.metadata.labels == node.metadata.labels
                && known.status.allocatable == node.status.allocatable
        };
        if !self.cluster.nodes.get(&name).is_some_and(is_same) {
            self.constraints.claims.node_moved(&name);
        }
    }

    pub(in crate::gang) fn devices_gone(&mut self, name: &str) {
        if let Ok(name) = NodeName::new(name) {
            self.constraints.claims.node_moved(&name);
        }
    }

    /// What nodes have and can serve, from what was observed and decided since the last time.
    pub(in crate::gang) fn refresh_devices(&mut self, now: Timestamp) {
        if self.cluster.queues.has_news() {
            self.cluster.nodes.want_labels(self.cluster.queues.node_labels());
        }
        let nodes = &self.cluster.nodes;
        let refreshed = self.constraints.claims.refresh(now, nodes, |condition| nodes.is_wanted(condition));
        for (name, published) in refreshed.nodes {
            self.cluster.nodes.publish(name, published);
        }
        for (condition, nodes) in refreshed.conditions {
            self.cluster.nodes.meet(&condition, nodes);
        }
        if refreshed.is_news {
            self.reconsider();
        }
    }

    /// What the claims of seats are to the engine, and which of them have to be on one node; whether all of them have to.
    ///
    /// # Errors
    /// What has to be there first, or why no node can serve them. A gang that has begun is never turned away.
    pub(in crate::gang) fn add_claims(
        &mut self,
        key: &GangKey,
        spec: Option<&GangSpec>,
        seats: &mut [Seat],
    ) -> Result<bool, String> {
        let mut shared = Shared::default();
        let begun = self
            .gangs
            .get(key)
            .filter(|gang| has_begun(gang))
            .map(|gang| given(&mut self.constraints.claims, gang));
        for (rank, seat) in seats.iter_mut().enumerate() {
            let Some(asked) = self.asked_of(key, spec, seat) else { continue };
            let asked = asked.inspect(|asked| shared.add(rank, asked));
            // What it shares another asks for.
            if asked.as_ref().is_ok_and(Asked::is_empty) {
                continue;
            }
            match asked.and_then(|asked| self.want_claims(asked)) {
                Ok(claimed) => {
                    // What was given before a restart is what it has.
                    let known = begun.as_ref().and_then(|given| given.get(&claimed.condition));
                    let devices = known.copied().unwrap_or(claimed.devices);
                    seat.more.claims = Some(Claimed { devices, ..claimed });
                }
                Err(_) if begun.is_some() => {}
                Err(why) => return Err(why),
            }
        }
        if begun.is_some() {
            return Ok(false);
        }
        let path = |claim: &Arc<str>| (Arc::clone(&key.namespace), Arc::clone(claim));
        let sets =
            shared.sets(|claim| self.constraints.claims.is_of_node(&path(claim), &self.cluster.nodes))?;
        if sets.iter().any(|set| set.len() == seats.len()) {
            return Ok(true);
        }
        for (number, set) in (0..).zip(sets) {
            set.into_iter().for_each(|rank| seats[rank].more.together = Some(number));
        }
        Ok(false)
    }

    /// What the pod of a seat asks for by claims, if by any; or the pod that will be made for it.
    fn asked_of(
        &mut self,
        key: &GangKey,
        spec: Option<&GangSpec>,
        seat: &Seat,
    ) -> Option<Result<Asked, String>> {
        let pod = seat.pod.as_ref().and_then(|name| self.gangs.get(key)?.pods.get(name));
        if let Some(pod) = pod {
            let (name, uid, used) =
                (&pod.known.name, &pod.known.uid, used_by(&self.constraints.claims, &pod.known));
            let gang = self.gangs.get(key)?;
            return (!used.is_empty())
                .then(|| self.constraints.claims.asked(key, name, uid, &used, &waits(gang)));
        }
        let template = &template_of(spec?, seat)?.spec;
        let mut used = Used::of_template(template).into_vec();
        if self.constraints.claims.has_devices() || !used.is_empty() {
            used.extend(ExtendedAsk::of(template).map(|ask| Used::extended(&Arc::new(ask), false)));
        }
        (!used.is_empty()).then(|| self.constraints.claims.asked_by_template(&key.namespace, &used))
    }

    fn want_claims(&mut self, asked: Asked) -> Result<Claimed, String> {
        let condition = Arc::clone(&asked.condition);
        let counts = self.constraints.claims.want(asked, &self.cluster.nodes)?;
        if !self.cluster.nodes.is_wanted(&condition) {
            self.cluster.nodes.meet(&condition, counts.nodes);
        }
        Ok(Claimed { condition, devices: counts.devices, counted: counts.counted })
    }

    /// Whether a gang that waits was handed in when no devices were published, which may serve it by now.
    pub(in crate::gang) fn asks_for_devices(&self, key: &GangKey) -> bool {
        let Some(gang) = self.gangs.get(key).filter(|_| self.constraints.claims.has_devices()) else {
            return false;
        };
        let is_asked = |seat: &Seat| {
            let pod = seat.pod.as_ref().and_then(|name| gang.pods.get(name));
            seat.more.claims.is_none() && pod.is_some_and(|pod| pod.known.extended.is_some())
        };
        gang.job.as_ref().is_some_and(|submitted| submitted.seats.iter().any(is_asked))
    }

    /// A gang is handed in. What its pods were given is theirs where it has begun, and goes back where it has not.
    pub(in crate::gang) fn find_claims(&mut self, key: &GangKey, is_restored: bool) {
        let Some(gang) = self.gangs.get(key) else { return };
        let Some(submitted) = &gang.job else { return };
        for seat in &submitted.seats {
            let Some(pod) = seat.pod.as_ref().and_then(|name| gang.pods.get(name)) else { continue };
            let known = &pod.known;
            let used = used_by(&self.constraints.claims, known);
            let Some(pod) = gang.pod_ref(&known.name).filter(|_| !used.is_empty()) else { continue };
            let claimed = seat.more.claims.as_ref();
            let condition =
                claimed.map_or_else(|| Condition::from(""), |claims| Arc::clone(&claims.condition));
            match &known.node {
                Some(node) => self.constraints.claims.adopt(key, &pod, &used, &condition, node),
                None if !is_restored => {
                    self.constraints.claims.release_idle(&pod, &used, &waits(gang), &mut self.calls);
                }
                None => {}
            }
        }
    }

    /// Gives the pods that are to be bound now what their claims ask for, by rank. Nothing where the gang has to wait, or cannot
    /// start as it was placed.
    pub(in crate::gang) fn prepare(&mut self, key: &GangKey) -> Option<BTreeMap<u32, Prepared>> {
        let gang = self.gangs.get_mut(key)?;
        let Gang { pods, job, .. } = gang;
        let submitted = job.as_mut()?;
        let mut prepared = BTreeMap::new();
        let is_whole = submitted.is_complete();
        let run = submitted.run.as_mut().filter(|run| !run.is_stopping() && (is_whole || run.has_begun()))?;
        self.constraints.claims.set_awaiting(key, false);
        let attempt = run.attempt;
        let mut failed = None;
        let members = run.placement.slots.iter().zip(&run.members);
        let claimants =
            (0_u32..).zip(&submitted.seats).zip(members).filter_map(|((rank, seat), (slot, member))| {
                let name = seat.pod.as_ref().filter(|_| seat.can_bind(*member))?;
                let known = pods.get(name).map(|pod| &pod.known).filter(|known| known.node.is_none())?;
                let used = used_by(&self.constraints.claims, known);
                (!used.is_empty()).then_some((rank, seat, slot, known, used))
            });
        let mut claimants: Vec<_> = claimants.collect();
        // What is shared is allocated with the place of the pod that asked for it.
        claimants
            .sort_by_key(|(_, _, _, known, used)| !self.constraints.claims.carries(key, &known.name, used));
        for (rank, seat, slot, known, used) in claimants {
            let pod = PodRef {
                namespace: Arc::clone(&key.namespace),
                name: Arc::clone(&known.name),
                uid: Arc::clone(&known.uid),
            };
            let condition = seat
                .more
                .claims
                .as_ref()
                .map_or_else(|| Condition::from(""), |claims| Arc::clone(&claims.condition));
            let Some(node) = self.cluster.nodes.get(&slot.node) else {
                failed = Some((rank, format!("node {} is gone", slot.node)));
                break;
            };
            let who = (key, &pod, &*used);
            match self.constraints.claims.give(
                who,
                &condition,
                (&slot.node, node),
                slot.devices,
                &mut self.calls,
            ) {
                Ok(ready) => drop(prepared.insert(rank, (ready, Arc::clone(&known.uid)))),
                Err(Unprepared::Waits) => {
                    self.constraints.claims.set_awaiting(key, true);
                    return None;
                }
                Err(Unprepared::Impossible(why)) => {
                    failed = Some((rank, why));
                    break;
                }
                Err(Unprepared::Short(why)) => {
                    self.constraints.claims.spoil(&condition, &slot.node);
                    failed = Some((rank, why));
                    break;
                }
            }
        }
        let gang = gang_of(submitted.id);
        if let Some((rank, why)) = failed {
            let exit = Exit::failed(FailureClass::StartUp, why);
            self.exit(MemberId { gang, attempt, rank }, exit);
            return None;
        }
        for (_, uid) in prepared.values() {
            self.constraints.claims.sent(key, uid);
        }
        Some(prepared.into_iter().map(|(rank, (ready, _))| (rank, ready)).collect())
    }

    /// A start is over.
    pub(in crate::gang) fn take_back_claims(&mut self, key: &GangKey) {
        let gang = self.gangs.get(key);
        let left = |pod: &PodRef| {
            let there = gang.and_then(|gang| gang.pods.get(&pod.name)).map(|there| &there.known);
            match there.filter(|known| known.uid == pod.uid && !known.is_going && !known.is_over()) {
                Some(known) if known.node.is_none() => Left::Waiting,
                Some(_) => Left::Bound,
                None => Left::Nothing,
            }
        };
        self.constraints.claims.take_back(key, left, &mut self.calls);
    }

    /// A pod is no more.
    pub(in crate::gang) fn lose_claims(&mut self, key: &GangKey, name: &str, known: &Known) {
        self.constraints.claims.pod_gone(key, &known.uid);
        if !known.claims.is_empty() {
            self.constraints.claims.free_carriers(key, name);
        }
    }
}

/// Whether a user of a claim is a pod of this gang that has no node, or its group while none of its pods has.
fn waits(gang: &Gang) -> impl Fn(&ResourceClaimConsumerReference) -> bool {
    |user| {
        if is_group(user) {
            return gang.pods.values().all(|pod| pod.known.node.is_none());
        }
        let pod = gang.pods.get(&*user.name).filter(|pod| *pod.known.uid == *user.uid);
        pod.is_some_and(|pod| pod.known.node.is_none())
    }
}

/// Some of its pods are bound, as this scheduler decided.
fn has_begun(gang: &Gang) -> bool {
    gang.pods.values().any(|pod| pod.known.node.is_some() && pod.known.noted.is_some())
}

/// Accelerators that its bound pods have, by what they asked for.
fn given(claims: &mut ClaimState, gang: &Gang) -> BTreeMap<Condition, u32> {
    let bound = gang.pods.values().map(|pod| &pod.known).filter(|known| known.node.is_some());
    let mut of = |known: &Known| {
        let used = used_by(claims, known);
        let note = known.noted.as_ref().filter(|_| !used.is_empty())?;
        let asked = claims.asked(&gang.key, &known.name, &known.uid, &used, &|_| false).ok()?;
        Some((asked.condition, note.devices.count()))
    };
    bound.filter_map(&mut of).collect()
}

/// The claims of a pod, with what it asks for as extended resources where a claim may serve that.
fn used_by<'p>(claims: &ClaimState, known: &'p Known) -> Cow<'p, [Used]> {
    match &known.extended {
        Some(ask) if claims.has_devices() || !known.claims.is_empty() => {
            let extended = Used::extended(ask, known.has_extended_claim);
            Cow::Owned(known.claims.iter().cloned().chain([extended]).collect())
        }
        _ => Cow::Borrowed(&known.claims),
    }
}

/// What a pod of a seat will be made from.
fn template_of<'s>(spec: &'s GangSpec, seat: &Seat) -> Option<&'s crate::recognise::PodTemplate> {
    let is_of = |role: &&crate::recognise::RoleSpec| {
        spec.roles.len() == 1 || seat.role.as_deref().is_some_and(|name| *name == *role.name)
    };
    spec.roles.iter().find(is_of)?.template.as_deref()
}

#[cfg(test)]
mod tests;
