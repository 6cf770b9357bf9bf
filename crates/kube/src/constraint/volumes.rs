//! Volumes: where pods can be because of their claims, which volume each claim gets, and how far that has come.
//!
//! As kube-scheduler does it, a volume is given to a claim by writing the claim onto it, and one is made by writing the
//! chosen node onto the claim; the controllers do the rest. What was decided counts here before it is to be seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use phalanx_model::NodeName;
use serde_json::json;

use crate::api::Pod;
use crate::cluster::bound_pods::{BoundPods, Face};
use crate::cluster::node_sets::Condition;
use crate::cluster::nodes::NodeState;
use crate::filter::{Storage, VolumePlan, VolumeRules};
use crate::messages::Step;
use crate::messages::Stored;

/// See the module.
#[derive(Default)]
pub(crate) struct VolumeState {
    storage: Storage,
    /// What pods ask, with one that asks so.
    asked: BTreeMap<String, (Condition, Arc<Pod>)>,
    next: u64,
    is_stale: bool,
    /// Volumes that were given away, with whose they were before, until that is to be seen.
    given: BTreeMap<String, (ObjectReference, Option<ObjectReference>)>,
    /// Claims for which a volume is to be made on a node.
    chosen: BTreeMap<String, Chosen>,
    /// Where none could be made for a claim.
    avoided: BTreeMap<String, BTreeSet<NodeName>>,
    given_up: BTreeSet<String>,
}

struct Chosen {
    node: NodeName,
    /// The API server told it back.
    is_seen: bool,
}

/// What a gang's volumes need before its pods are bound.
#[derive(Default)]
pub(crate) struct Preparation {
    pub(crate) steps: Vec<Step>,
    given: Vec<String>,
    chosen: Vec<String>,
    pods: Vec<Arc<Pod>>,
}

/// Why a placement cannot be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) why: String,
    /// Each pod by itself could be there: another placement of the same search would fail as well.
    pub(crate) is_among_themselves: bool,
}

impl VolumeState {
    /// Takes what a watch told.
    pub(crate) fn observe(&mut self, stored: Stored) {
        fn put<T: PartialEq>(map: &mut BTreeMap<String, T>, name: String, object: Option<Box<T>>) -> bool {
            match object {
                Some(object) if map.get(&name) == Some(&*object) => false,
                Some(object) => {
                    map.insert(name, *object);
                    true
                }
                None => map.remove(&name).is_some(),
            }
        }
        let Storage { classes, drivers, nodes, capacities, attachments, .. } = &mut self.storage;
        self.is_stale |= match stored {
            Stored::Claim(path, claim) => {
                let claim = claim.map(|claim| Box::new(self.follow_claim(&path, *claim)));
                put(&mut self.storage.claims, path, claim)
            }
            Stored::Volume(name, volume) => {
                let volume = volume.map(|volume| Box::new(self.follow_volume(&name, *volume)));
                put(&mut self.storage.volumes, name, volume)
            }
            Stored::Class(name, class) => put(classes, name, class),
            Stored::Driver(name, driver) => put(drivers, name, driver),
            Stored::Node(name, node) => put(nodes, name, node),
            Stored::Capacity(name, capacity) => put(capacities, name, capacity),
            Stored::Attachment(name, attachment) => put(attachments, name, attachment),
        };
    }

    /// A claim as it counts: with the node that was chosen for it, unless its provisioner gave up there.
    fn follow_claim(&mut self, path: &str, mut claim: PersistentVolumeClaim) -> PersistentVolumeClaim {
        let says = |key: &str| claim.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key));
        let has_volume = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
        if has_volume {
            self.chosen.remove(path);
            self.avoided.remove(path);
        } else if says(VolumePlan::SELECTED_NODE) {
            if let Some(chosen) = self.chosen.get_mut(path) {
                chosen.is_seen = true;
            }
        } else if self.chosen.get(path).is_some_and(|chosen| chosen.is_seen) {
            if let Some(chosen) = self.chosen.remove(path) {
                self.avoided.entry(path.to_owned()).or_default().insert(chosen.node);
            }
            self.given_up.insert(path.to_owned());
        } else if let Some(chosen) = self.chosen.get(path) {
            mark(&mut claim, &chosen.node);
        }
        claim
    }

    fn follow_volume(&mut self, name: &str, mut volume: PersistentVolume) -> PersistentVolume {
        let owner = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        if owner.is_some_and(|owner| owner.uid.is_some()) {
            self.given.remove(name);
        } else if let (Some((owner, _)), Some(spec)) = (self.given.get(name), volume.spec.as_mut()) {
            spec.claim_ref = Some(owner.clone());
        }
        volume
    }

    /// A pod with claims got a node, or it is gone.
    pub(crate) fn occupy(&mut self, pod: &Pod, is_there: bool) {
        if is_there {
            self.storage.occupy(pod);
        } else {
            self.storage.release(pod);
        }
        self.is_stale = true;
    }

    pub(crate) const fn nodes_have_moved(&mut self) {
        self.is_stale = true;
    }

    /// Something happened that conditions, or pods that wait, may depend on.
    pub(crate) const fn take_news(&mut self) -> bool {
        std::mem::replace(&mut self.is_stale, false)
    }

    /// What the pod asks of nodes, if anything; or what it waits for whatever the node.
    pub(crate) fn condition(
        &mut self,
        pod: &Arc<Pod>,
        nodes: &mut NodeState,
        crowd: &BoundPods,
    ) -> Result<Option<Condition>, String> {
        let rules = VolumeRules::of(pod, &self.storage).map_err(|wait| wait.to_string())?;
        if rules.is_empty() {
            return Ok(None);
        }
        let avoided: Vec<_> =
            self.storage.claims_of(pod).filter_map(|(path, _)| self.avoided.get_key_value(&path)).collect();
        let shape = format!("{} {avoided:?}", self.storage.shape(pod));
        if let Some((condition, like)) = self.asked.get_mut(&shape) {
            // Of pods that ask alike one speaks for all, while its claims are there.
            if VolumeRules::of(like, &self.storage).is_err() {
                like.clone_from(pod);
                self.is_stale = true;
            }
            return Ok(Some(Arc::clone(condition)));
        }
        self.next += 1;
        let condition: Condition = format!("spec.volumes of {} (#{})", pod.path(), self.next).into();
        self.asked.insert(shape, (Arc::clone(&condition), Arc::clone(pod)));
        let admitted = self.admitted(pod, nodes, crowd);
        nodes.meet(&condition, admitted);
        Ok(Some(condition))
    }

    /// Judges everything again that is still asked.
    pub(crate) fn judge(&mut self, nodes: &mut NodeState, crowd: &BoundPods) {
        self.asked.retain(|_, (condition, _)| nodes.keeps(condition));
        let asked: Vec<(Condition, Arc<Pod>)> = self.asked.values().cloned().collect();
        for (condition, pod) in asked {
            let admitted = self.admitted(&pod, nodes, crowd);
            nodes.meet(&condition, admitted);
        }
    }

    fn admitted(&mut self, pod: &Pod, nodes: &NodeState, crowd: &BoundPods) -> BTreeSet<NodeName> {
        let Ok(rules) = VolumeRules::of(pod, &self.storage) else { return BTreeSet::new() };
        let can = nodes.iter().filter(|(name, node)| rules.admits(node, crowd.with_claims(name)).is_ok());
        let mut can: BTreeSet<NodeName> = can.map(|(name, _)| name.clone()).collect();
        let claims: Vec<String> = self.storage.claims_of(pod).map(|(path, _)| path).collect();
        for path in claims {
            let Some(avoided) = self.avoided.get(&path) else { continue };
            // Where it failed everywhere it may be tried everywhere again.
            if can.is_subset(avoided) {
                self.avoided.remove(&path);
            } else {
                can = can.difference(avoided).cloned().collect();
            }
        }
        can
    }

    /// Decides for all of these pods together which volumes they get. Nothing where none of them needs any.
    pub(crate) fn prepare(
        &mut self,
        members: &[(Arc<Pod>, NodeName)],
        nodes: &NodeState,
        crowd: &BoundPods,
    ) -> Result<Option<Preparation>, Broken> {
        let mut done = Preparation::default();
        let mut refused = None;
        for (pod, name) in members.iter().filter(|(pod, _)| !pod.spec.volumes.is_empty()) {
            match self.plan(pod, name, &done, members, nodes, crowd) {
                Ok(plan) => {
                    self.carry(&plan, name, &mut done);
                    self.storage.occupy(pod);
                    done.pods.push(Arc::clone(pod));
                }
                Err(why) => {
                    refused = Some((pod, name, why));
                    break;
                }
            }
        }
        done.pods.iter().for_each(|pod| self.storage.release(pod));
        let Some((pod, name, why)) = refused else { return Ok((!done.pods.is_empty()).then_some(done)) };
        self.undo(&done);
        let alone = self.plan(pod, name, &Preparation::default(), &[], nodes, crowd);
        Err(Broken {
            why: format!("spec.volumes of {} on {name}: {why}", pod.name()),
            is_among_themselves: alone.is_ok(),
        })
    }

    fn plan(
        &self,
        pod: &Pod,
        name: &NodeName,
        done: &Preparation,
        members: &[(Arc<Pod>, NodeName)],
        nodes: &NodeState,
        crowd: &BoundPods,
    ) -> Result<VolumePlan, String> {
        let node = nodes.get(name).ok_or_else(|| "it is gone".to_owned())?;
        let rules = VolumeRules::of(pod, &self.storage).map_err(|wait| wait.to_string())?;
        let beside = members.iter().filter(|(other, there)| {
            there == name && done.pods.iter().any(|placed| Arc::ptr_eq(placed, other))
        });
        let there = crowd.with_claims(name).chain(beside.map(|(other, _)| &**other));
        rules.admits(node, there).map_err(|refusal| refusal.to_string())
    }

    fn carry(&mut self, plan: &VolumePlan, node: &NodeName, done: &mut Preparation) {
        for (path, volume) in &plan.bind {
            let Some(claim) = self.storage.claims.get(path) else { continue };
            let Some(object) = self.storage.volumes.get_mut(volume) else { continue };
            let Some(spec) = object.spec.as_mut() else { continue };
            let owner = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("PersistentVolumeClaim".to_owned()),
                namespace: claim.metadata.namespace.clone(),
                name: claim.metadata.name.clone(),
                uid: claim.metadata.uid.clone(),
                resource_version: claim.metadata.resource_version.clone(),
                field_path: None,
            };
            let before = spec.claim_ref.take();
            spec.claim_ref = Some(owner.clone());
            if before.as_ref().is_some_and(|before| before.uid == owner.uid) {
                continue;
            }
            let mut metadata = json!({ "resourceVersion": object.metadata.resource_version });
            if before.is_none() {
                metadata["annotations"] = json!({ "pv.kubernetes.io/bound-by-controller": "yes" });
            }
            let patch = json!({ "metadata": metadata, "spec": { "claimRef": owner } });
            done.steps.push(Step::Patch { path: format!("/api/v1/persistentvolumes/{volume}"), patch });
            done.given.push(volume.clone());
            self.given.insert(volume.clone(), (owner, before));
        }
        for path in &plan.provision {
            let Some(claim) = self.storage.claims.get_mut(path) else { continue };
            let Some((namespace, name)) = path.split_once('/') else { continue };
            let is_new = mark(claim, node);
            if is_new {
                let patch = json!({ "metadata": {
                    "resourceVersion": claim.metadata.resource_version,
                    "annotations": { VolumePlan::SELECTED_NODE: node.as_str() },
                } });
                let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}");
                done.steps.push(Step::Patch { path, patch });
            }
            done.chosen.push(path.clone());
            let chosen = || Chosen { node: node.clone(), is_seen: !is_new };
            self.chosen.entry(path.clone()).or_insert_with(chosen);
        }
    }

    /// Takes back what was decided and is not to be seen yet.
    pub(crate) fn undo(&mut self, done: &Preparation) {
        for name in &done.given {
            let Some((_, before)) = self.given.remove(name) else { continue };
            if let Some(spec) = self.storage.volumes.get_mut(name).and_then(|volume| volume.spec.as_mut()) {
                spec.claim_ref = before;
                self.is_stale = true;
            }
        }
        for path in &done.chosen {
            let Some(chosen) = self.chosen.remove(path) else { continue };
            let claim = self.storage.claims.get_mut(path).filter(|_| !chosen.is_seen);
            if let Some(annotations) = claim.and_then(|claim| claim.metadata.annotations.as_mut()) {
                annotations.remove(VolumePlan::SELECTED_NODE);
                self.is_stale = true;
            }
        }
    }

    /// Whether all claims have their volumes.
    pub(crate) fn is_ready(&self, preparation: &Preparation) -> bool {
        preparation.pods.iter().all(|pod| self.storage.are_bound(pod))
    }

    /// The claim whose provisioner gave up on the node that was chosen.
    pub(crate) fn given_up(&self, preparation: &Preparation) -> Option<String> {
        preparation.chosen.iter().find(|path| self.given_up.contains(*path)).cloned()
    }

    /// Everybody was told who gave up.
    pub(crate) fn forget_given_up(&mut self) {
        self.given_up.clear();
    }
}

/// Whether the pod of a face has claims that are judged here.
pub(crate) fn claimant(face: &Face) -> Option<&Arc<Pod>> {
    face.particular().filter(|_| face.has_claims())
}

/// Writes the node onto the claim; whether that was news.
fn mark(claim: &mut PersistentVolumeClaim, node: &NodeName) -> bool {
    let annotations = claim.metadata.annotations.get_or_insert_default();
    annotations.insert(VolumePlan::SELECTED_NODE.to_owned(), node.to_string()).is_none()
}
