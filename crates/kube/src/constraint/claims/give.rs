//! Claims at the start of a gang, and at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimConsumerReference};
use phalanx_model::{DeviceMask, NodeName};

use super::ask::{is_allocated, reserved_for};
use super::extended::by_plugin;
use super::groups::user;
use super::shapes::devices_of;
use super::{Claim, ClaimState, Condition, Path, Source, Used, Waits, is_idle};
use crate::api;
use crate::cluster::hardware;
use crate::digest::hex;
use crate::dra::{DeviceId, Nodes, TRIED_MAX, is_extended, is_reached_by};
use crate::messages::PodRef;
use crate::messages::{Call, Reservation, Step};
use crate::recognise::GangKey;

/// What a pod of ours has by its claims.
pub(crate) struct Given {
    pub(crate) condition: Condition,
    node: NodeName,
    pod: PodRef,
    /// Claims whose devices are those of the pod's place.
    pub(super) claims: Vec<Path>,
    /// Claims that others were given before, and that it uses too.
    joined: Vec<Path>,
    /// Those of all these that are for its group.
    of_group: BTreeMap<Path, PodRef>,
    /// The API server may have been told.
    is_sent: bool,
}

impl Given {
    pub(super) fn has(&self, path: &Path) -> bool {
        self.claims.iter().chain(&self.joined).any(|own| own == path)
    }
}

/// What is left of a pod when its start is over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// It is there, and has no node.
    Waiting,
    /// It is on its node, and stays there.
    Bound,
    /// It has ended, or is gone.
    Nothing,
}

/// A pod that can be bound once these steps are done.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) steps: Vec<Step>,
    /// What it has of the accelerators of its node.
    pub(crate) devices: DeviceMask,
}

/// Why a pod cannot be bound.
#[derive(Debug)]
pub(crate) enum Unprepared {
    /// Claims are being made, given back, or deleted.
    Waits,
    /// Its claims cannot be given on its node.
    Impossible(String),
    /// What its claims ask for is not to be had there, against what was expected of the node.
    Short(String),
}

impl ClaimState {
    /// Gives a pod of ours what its claims ask for on a node: the devices of its place where these satisfy it, otherwise any.
    /// A pod that has it already is told so again.
    ///
    /// # Errors
    /// Nothing was changed, but for claims that go back first.
    pub(crate) fn give(
        &mut self,
        (gang, pod, used): (&GangKey, &PodRef, &[Used]),
        condition: &Condition,
        (name, node): (&NodeName, &api::Node),
        place: DeviceMask,
        calls: &mut Vec<Call>,
    ) -> Result<Prepared, Unprepared> {
        let mut paths: Vec<Path> = Vec::new();
        let mut of_group = BTreeMap::new();
        for one in used.iter().filter(|one| !matches!(one.of, Source::Extended { .. })) {
            // A pod that has just come in the place of another may have claims that are not made yet.
            let there = one.object().map(|object| (Arc::clone(&pod.namespace), Arc::clone(object)));
            let path = there.filter(|path| self.claims.contains_key(path)).ok_or(Unprepared::Waits)?;
            of_group.extend(self.group_of(&pod.namespace, one).map(|group| (path.clone(), group)));
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        let (mut claims, mut joined, mut open) = (Vec::new(), Vec::new(), Vec::new());
        for path in paths {
            let Some(claim) = self.claims.get_mut(&path) else { continue };
            if claim.is_releasing() {
                return Err(Unprepared::Waits);
            }
            let carries = |(of, name): &(GangKey, Arc<str>)| of == gang && *name == pod.name;
            let is_ours = match of_group.get(&path) {
                Some(_) => claim.carrier.as_ref().is_some_and(carries),
                None => super::is_ask(claim, &pod.uid),
            };
            if !is_allocated(claim.now()) {
                open.push(path.clone());
            } else if !is_reached_by(claim.now(), node) {
                if claim.decided.is_none() && is_reserved_for_alone(&claim.seen, &pod.uid) {
                    release(claim, &path, pod, calls);
                    return Err(Unprepared::Waits);
                }
                let why = format!("claim {} is allocated, and {name} does not reach its devices", path.1);
                return Err(Unprepared::Impossible(why));
            }
            if is_ours { claims.push(path) } else { joined.push(path) }
        }
        let extended = used.iter().find_map(|one| match &one.of {
            Source::Extended { ask, is_told } => Some((ask, *is_told)),
            _ => None,
        });
        let served = extended.map(|(ask, _)| self.serve(ask, pod, node, calls)).transpose()?;
        let made = served.as_ref().and_then(|served| served.claim.as_ref());
        if let Some(path) = made {
            if !self.is_allocated(path) {
                open.push(path.clone());
            }
            claims.push(path.clone());
        }
        let allocated = self.allocate(&open, (pod, &of_group), node, place);
        if let Err(why) = allocated {
            if let Some(path) = made.filter(|_| served.as_ref().is_some_and(|served| served.is_new)) {
                self.claims.remove(path);
            }
            return Err(match self.is_leaving(name) {
                true => Unprepared::Waits,
                false => Unprepared::Short(why),
            });
        }
        let mut steps: Vec<Step> = claims
            .iter()
            .chain(&joined)
            .filter_map(|path| self.reservation(path, pod, of_group.get(path)))
            .collect();
        steps.extend(served.zip(extended).and_then(|(served, (_, is_told))| served.step(pod, is_told)));
        let held = self.mask(&claims, node);
        let plugged = extended.map_or(0, |(ask, _)| by_plugin(ask, node, hardware::is_device)) as usize;
        let devices = held.union(place.minus(held).iter().take(plugged).collect());
        let given = Given {
            condition: Arc::clone(condition),
            node: name.clone(),
            pod: pod.clone(),
            claims,
            joined,
            of_group,
            is_sent: false,
        };
        self.keep(gang, given);
        Ok(Prepared { steps, devices })
    }

    /// The steps that give it out are on their way.
    pub(crate) fn sent(&mut self, gang: &GangKey, uid: &str) {
        if let Some(given) = self.given.get_mut(gang).and_then(|pods| pods.get_mut(uid)) {
            given.is_sent = true;
        }
    }

    /// A pod that was bound before has what its claims hold.
    pub(crate) fn adopt(
        &mut self,
        gang: &GangKey,
        pod: &PodRef,
        used: &[Used],
        condition: &Condition,
        node: &NodeName,
    ) {
        let of_group = self.of_group(pod, used);
        let (mut claims, mut joined) = (Vec::new(), Vec::new());
        for path in self.paths_of(pod, used) {
            let Some(claim) = self.claims.get_mut(&path) else { continue };
            let is_ours = match of_group.get(&path) {
                // Who it was allocated with is not written anywhere: it counts as the first that is found.
                Some(_) => {
                    let own = (gang.clone(), Arc::clone(&pod.name));
                    *claim.carrier.get_or_insert_with(|| own.clone()) == own
                }
                None => super::is_ask(claim, &pod.uid),
            };
            if is_ours { claims.push(path) } else { joined.push(path) }
        }
        let (condition, node, pod) = (Arc::clone(condition), node.clone(), pod.clone());
        self.keep(gang, Given { condition, node, pod, claims, joined, of_group, is_sent: true });
    }

    /// A pod is no more. Its claims go by themselves, and their devices with them.
    pub(crate) fn pod_gone(&mut self, gang: &GangKey, uid: &str) {
        if let Some(given) = self.given.get(gang).and_then(|pods| pods.get(uid)) {
            let goes = |path: &&Path| self.is_allocated(path) && !given.of_group.contains_key(*path);
            let left = given.claims.iter().filter(goes);
            self.leaving.extend(left.cloned().collect::<Vec<_>>());
        }
    }

    /// A start is over: what its pods were given and do not use goes back.
    pub(crate) fn take_back(
        &mut self,
        gang: &GangKey,
        left: impl Fn(&PodRef) -> Left,
        calls: &mut Vec<Call>,
    ) {
        self.awaiting.remove(gang);
        let all = self.given.remove(gang).unwrap_or_default();
        let bound = all.values().filter(|given| left(&given.pod) == Left::Bound);
        // What a group has stays as long as one pod of it has it.
        let mut kept: BTreeSet<Path> = bound.flat_map(|given| given.of_group.keys().cloned()).collect();
        for (uid, given) in all {
            if let Some(here) = self.given_on.get_mut(&given.node) {
                here.remove(&(gang.clone(), uid));
                if here.is_empty() {
                    self.given_on.remove(&given.node);
                }
            }
            self.touched.insert(given.node.clone());
            let left = left(&given.pod);
            for path in given.claims.iter().chain(&given.joined) {
                let group = given.of_group.get(path);
                let is_kept = group.is_some() && (kept.contains(path) || self.is_given(path));
                let Some(mut claim) = self.claims.remove(path) else { continue };
                // A pod that is gone gives back by itself what it has, and a group does not.
                let is_for_us = left == Left::Waiting || group.is_some() && left == Left::Nothing;
                if given.is_sent && is_for_us && !is_kept {
                    kept.extend(group.map(|_| path.clone()));
                    release(&mut claim, path, group.unwrap_or(&given.pod), calls);
                }
                let goes = left == Left::Nothing && group.is_none();
                if goes && is_allocated(&claim.seen) && given.claims.contains(path) {
                    self.leaving.insert(path.clone());
                }
                claim.decided = None;
                // One that may have been made goes once the API server has said what became of it.
                let is_there = !claim.is_to_be_made() || claim.is_releasing();
                if !is_there {
                    self.leaving.remove(path);
                }
                self.hold_and_review(path, is_there.then_some(claim));
            }
        }
    }

    /// A pod waits for a place, and has what an earlier start or an earlier scheduler gave it, or it and others of its gang:
    /// that goes back first.
    pub(crate) fn release_idle(
        &mut self,
        pod: &PodRef,
        used: &[Used],
        waits: &Waits<'_>,
        calls: &mut Vec<Call>,
    ) {
        let of_group = self.of_group(pod, used);
        for path in self.paths_of(pod, used) {
            let group = of_group.get(&path);
            // Of a group it is given back once.
            let is_kept = group.is_some() && self.is_given(&path);
            let Some(claim) = self.claims.get_mut(&path) else { continue };
            let is_kept = is_kept || group.is_some() && claim.is_releasing();
            let user = group.unwrap_or(pod);
            let is_of_pod = is_extended(&claim.seen) && !claim.is_releasing();
            let is_its = reserved_for(&claim.seen).any(|uid| *uid == *user.uid)
                && is_idle(claim, group, waits)
                && !is_kept;
            if claim.decided.is_none() && (is_of_pod || is_its) {
                release(claim, &path, user, calls);
            }
        }
    }

    /// Which claims of a pod are for its group.
    fn of_group(&self, pod: &PodRef, used: &[Used]) -> BTreeMap<Path, PodRef> {
        let of_group = |one: &Used| {
            let path = (Arc::clone(&pod.namespace), Arc::clone(one.object()?));
            Some((path, self.group_of(&pod.namespace, one)?))
        };
        used.iter().filter_map(of_group).collect()
    }

    /// The objects that a pod uses, those that were made for its extended resources among them.
    fn paths_of(&self, pod: &PodRef, used: &[Used]) -> Vec<Path> {
        let objects = used.iter().filter_map(Used::object);
        let objects = objects.map(|object| (Arc::clone(&pod.namespace), Arc::clone(object)));
        let is_extended = used.iter().any(|one| matches!(one.of, Source::Extended { .. }));
        let made = if is_extended { self.extended_of(pod) } else { Vec::new() };
        objects.chain(made).collect()
    }

    /// A node did not serve an ask as expected: nobody is sent there until something changes.
    pub(crate) fn spoil(&mut self, condition: &Condition, node: &NodeName) {
        if let Some(shape) = self.shapes.get_mut(condition) {
            shape.spoil(node);
            self.reviewed.insert(Arc::clone(condition));
        }
    }

    fn keep(&mut self, gang: &GangKey, given: Given) {
        // What its claims hold there is taken by others no longer, also where an earlier scheduler allocated them.
        self.touched.insert(given.node.clone());
        let uid = Arc::clone(&given.pod.uid);
        self.given_on.entry(given.node.clone()).or_default().insert((gang.clone(), Arc::clone(&uid)));
        self.given.entry(gang.clone()).or_default().insert(uid, given);
    }

    fn allocate(
        &mut self,
        open: &[Path],
        (pod, of_group): (&PodRef, &BTreeMap<Path, PodRef>),
        node: &api::Node,
        place: DeviceMask,
    ) -> Result<(), String> {
        let claims: Vec<Arc<ResourceClaim>> =
            open.iter().filter_map(|path| Some(Arc::clone(&self.claims.get(path)?.seen))).collect();
        let asked: Vec<&ResourceClaim> = claims.iter().map(|claim| &**claim).collect();
        let accelerators = self.accelerators(node);
        let preferred = (0..).zip(&accelerators).filter(|(at, _)| place.contains(*at));
        let preferred: Vec<&DeviceId> = preferred.map(|(_, device)| &device.id).collect();
        let mut shares = 0_u32;
        let mut share_id = || {
            shares += 1;
            let uid = claims.first().and_then(|claim| claim.metadata.uid.as_deref()).unwrap_or_default();
            let version = claims.first().and_then(|claim| claim.metadata.resource_version.as_deref());
            uuid(&format!("{uid} {} {shares}", version.unwrap_or_default()))
        };
        let prefer = |id: &DeviceId| preferred.contains(&id);
        let given = self.inventory.allocate(&asked, node, &prefer, &mut share_id, TRIED_MAX);
        let given = given.map_err(|why| why.to_string())?;
        for ((path, claim), allocation) in open.iter().zip(&claims).zip(given) {
            let Some(mut known) = self.claims.remove(path) else { continue };
            let user = of_group.get(path).map_or_else(|| consumer(pod), user);
            known.decided = Some(Arc::new(with(claim, allocation, user)));
            self.hold(path, Some(known));
        }
        Ok(())
    }

    /// Whether claims on their way back hold something on a node.
    fn is_leaving(&self, node: &NodeName) -> bool {
        let goes = |path: &Path| self.claims.get(path).is_some_and(Claim::is_releasing);
        let leaving = self.leaving.iter().chain(self.claims.keys().filter(|path| goes(path)));
        let mut nodes = leaving.map(|path| self.inventory.nodes_of_claim(&path.0, &path.1));
        nodes.any(|nodes| match nodes {
            Nodes::All => true,
            Nodes::These(names) => names.contains(node.as_str()),
        })
    }

    fn reservation(&self, path: &Path, pod: &PodRef, group: Option<&PodRef>) -> Option<Step> {
        let claim = self.claims.get(path)?;
        let allocation = claim.now().status.as_ref()?.allocation.clone()?;
        let seen = Arc::clone(&claim.seen);
        let user = group.map_or_else(|| consumer(pod), user);
        Some(Step::Claim(Box::new(Reservation { claim: seen, allocation, pod: pod.clone(), user })))
    }

    /// Which accelerators of a node claims hold.
    fn mask(&self, claims: &[Path], node: &api::Node) -> DeviceMask {
        let accelerators = self.accelerators(node);
        let claims = claims.iter().filter_map(|path| self.claims.get(path));
        let allocations = claims.filter_map(|claim| claim.now().status.as_ref()?.allocation.as_ref());
        let held: Vec<DeviceId> = allocations.flat_map(devices_of).collect();
        (0..).zip(&accelerators).filter(|(_, device)| held.contains(&device.id)).map(|(at, _)| at).collect()
    }
}

fn with(
    claim: &ResourceClaim,
    allocation: AllocationResult,
    user: ResourceClaimConsumerReference,
) -> ResourceClaim {
    let mut claim = claim.clone();
    let status = claim.status.get_or_insert_default();
    status.allocation = Some(allocation);
    status.reserved_for = Some(vec![user]);
    claim
}

/// A pod as a user of a claim.
fn consumer(pod: &PodRef) -> ResourceClaimConsumerReference {
    ResourceClaimConsumerReference {
        api_group: None,
        name: pod.name.to_string(),
        resource: "pods".to_owned(),
        uid: pod.uid.to_string(),
    }
}

fn is_reserved_for_alone(claim: &ResourceClaim, uid: &str) -> bool {
    let mut users = reserved_for(claim).peekable();
    is_allocated(claim) && users.peek().is_some() && users.all(|user| user == uid)
}

/// Gives back what a pod has of a claim. One that was made for its extended resources is deleted.
pub(super) fn release(claim: &mut Claim, path: &Path, pod: &PodRef, calls: &mut Vec<Call>) {
    claim.releasing += 1;
    let uid = claim.seen.metadata.uid.as_deref().unwrap_or_default().into();
    calls.push(Call::Release {
        claim: PodRef { namespace: Arc::clone(&path.0), name: Arc::clone(&path.1), uid },
        pod: pod.clone(),
        is_deleted: is_extended(&claim.seen),
    });
}

/// The identifier of a share: the same for the same claim as it was. Nothing here draws random numbers.
fn uuid(seed: &str) -> String {
    let text = hex(seed.as_bytes(), 16);
    format!("{}-{}-4{}-8{}-{}", &text[..8], &text[8..12], &text[13..16], &text[17..20], &text[20..])
}
