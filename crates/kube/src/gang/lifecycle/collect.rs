//! Pods that come and go: whose each of them is, in which gang it stands, and what is known of it.

use std::sync::Arc;

use phalanx_model::{NodeName, Timestamp};

use super::siblings;
use super::single_pods;
use super::single_pods::OwnerContext;
use crate::api;
use crate::cluster::bound_pods::Face;
use crate::cluster::priorities::Priority;
use crate::constraint::claims::Used;
use crate::dra::ExtendedAsk;
use crate::filter::{self, Requirements};
use crate::gang::Lifecycle;
use crate::gang::objects::Told;
use crate::gang::pods;
use crate::gang::pods::{Known, Note, State};
use crate::gang::report::soft_constraints::SoftConstraint;
use crate::gang::state::{Gang, Pod};
use crate::messages::Call;
use crate::recognise::{self as recognise, GangKey, Membership, Source};

/// Where a pod belongs.
pub(in crate::gang) enum Place {
    In(Membership),
    /// That depends on an object that has not been seen.
    Waits(GangKey),
}

/// Whose a pod is.
pub(in crate::gang) enum Whose {
    Ours(GangKey),
    /// Bound by somebody else, or not ours to understand.
    Others {
        /// Where it is, or its scheduler made room for it.
        node: Option<Box<str>>,
        requirements: Arc<Requirements>,
    },
}

impl Lifecycle {
    pub(in crate::gang) fn see_pod(&mut self, now: Timestamp, pod: &api::Pod) {
        let path = pod.path();
        let is_ours = pod.spec.scheduler_name.as_deref() == Some(&*self.options.scheduler_name);
        let is_foreign = !is_ours || (pod.spec.node_name.is_some() && Note::of(pod).is_none());
        let before = self.ours(&path, pod.name(), pod.uid());
        let has_waited = before.is_some_and(|(_, before)| before.known.state == State::Waiting);
        let before = before.filter(|_| is_foreign);
        let (lost, stripped) = before.map(|(key, before)| (key.clone(), before.known.noted_at(pod))).unzip();
        let stripped = stripped.flatten();
        if is_foreign && stripped.is_none() {
            self.orphans.remove(&path);
            if let Some(key) = lost {
                // Somebody has bound it before the scheduler did.
                self.forget_pod(now, &key, pod.name());
            }
            return self.see_other(&path, pod);
        }
        let mut known = self.known(pod);
        // Somebody has taken its annotations away: it is where it was put.
        known.noted = known.noted.or(stripped);
        let own = recognise::membership(pod);
        let joins = self.joined(&path, pod, &own);
        let member = match (self.place(pod, &own), self.placed(&path, pod)) {
            _ if joins.is_some() => Membership::alone(pod),
            // Another object has the name of its owner by now, and the pod does not say whose it is.
            (Ok(Place::In(member)), Some(before)) if is_of_former(&own, &before, &member) => before,
            // Its owner is gone, and a group that the owner made is left: the pod runs where it was started.
            (Ok(Place::In(_)), Some(before))
                if known.node.is_some() && self.has_lost_object(&before.gang) =>
            {
                before
            }
            (Ok(Place::In(member)), _) => member,
            // What said so is gone by now; the pod is where it was.
            (_, Some(member)) => member,
            (Ok(Place::Waits(object)), None) => return self.see_orphan(now, &path, object, pod),
            // It stays pending by itself, with what is wrong as the reason.
            (Err(refused), None) => {
                known.barred.get_or_insert_with(|| refused.to_string().into());
                Membership::alone(pod)
            }
        };
        self.orphans.remove(&path);
        if has_waited {
            self.learn_of_node(now, pod, &known);
        }
        let before = self.pods.insert(path.as_str().into(), Whose::Ours(member.gang.clone()));
        match before {
            Some(Whose::Others { node, requirements }) => {
                self.count_other(node.as_deref(), &requirements, false)
            }
            Some(Whose::Ours(key)) if key != member.gang => self.forget_pod(now, &key, pod.name()),
            _ => {}
        }
        let key = member.gang.clone();
        let name = Arc::clone(&known.name);
        let gang = self.gangs.entry(key.clone()).or_insert_with(|| Gang::new(key.clone()));
        gang.kin = match joins {
            Some(of) => Some(OwnerContext::joined(of)),
            None if key.source == Source::Pod => OwnerContext::lone(own.ok()),
            None => None,
        };
        let owner = siblings::owner_of(pod, gang);
        let is_bare = key.source == Source::Pod && gang.kin.is_none();
        let came_again = gang.pods.get(&name).is_some_and(|before| before.known.uid != known.uid);
        if came_again {
            self.forget_pod(now, &key, &name);
        }
        self.has_owner(&key, owner);
        self.constraints.claims.uses(&key, &known.claims);
        match known.node.as_ref().filter(|_| !known.is_over()) {
            Some(node) => self.place_pod(&path, node, &known.face),
            // What waits holds a place where it was given one.
            None if known.is_over() => self.unplace_pod(&path),
            None => {}
        }
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        let has_signs = key.source.is_sized_by_pods() || (is_bare && single_pods::has_signs(pod, &known));
        let signs = has_signs.then(|| Arc::new(pod.clone()));
        gang.pods.insert(Arc::clone(&name), Pod { known, role: member.role, index: member.index, signs });
        self.follow(now, &key, &name);
        if self.constraints.claims.is_awaiting(&key) {
            self.bind_if_complete(&key);
        }
        self.changed.insert(key);
    }

    /// A pod of somebody else: what it holds where it is, or is to be. Room that its scheduler made for it is not free.
    fn see_other(&mut self, path: &str, pod: &api::Pod) {
        let is_ours = pod.spec.scheduler_name.as_deref() == Some(&*self.options.scheduler_name);
        let node = pod.spec.node_name.as_deref().filter(|_| !pod.is_over());
        let nominated = || pod.status.nominated_node_name.as_deref().filter(|node| !node.is_empty());
        let is_waiting = pod.spec.node_name.is_none() && !is_ours && !pod.is_over();
        let counted = node.or_else(|| nominated().filter(|_| is_waiting));
        match node.and_then(|node| NodeName::new(node).ok()) {
            Some(node) => self.place_pod(path, &node, &Face::of(pod)),
            None => self.unplace_pod(path),
        }
        let Ok(requirements) = Requirements::held(pod) else { return };
        let requirements = self.shared.get(requirements);
        let now = Whose::Others { node: counted.map(Into::into), requirements: Arc::clone(&requirements) };
        if let Some(Whose::Others { node, requirements }) = self.pods.insert(path.into(), now) {
            self.count_other(node.as_deref(), &requirements, false);
        }
        self.count_other(counted, &requirements, true);
    }

    fn count_other(&mut self, node: Option<&str>, requirements: &Requirements, is_there: bool) {
        if let Some(node) = node {
            self.cluster.nodes.other(node, requirements, is_there);
        }
    }

    pub(in crate::gang) fn lose_pod(&mut self, now: Timestamp, namespace: &str, name: &str, uid: &str) {
        let path = format!("{namespace}/{name}");
        match self.pods.get(&*path) {
            Some(Whose::Ours(_)) => {
                let key = self.ours(&path, name, uid).map(|(key, _)| key.clone());
                if let Some(key) = key {
                    self.pods.remove(&*path);
                    self.tell_no_more(&key, name);
                    self.forget_pod(now, &key, name);
                }
            }
            Some(Whose::Others { .. }) => {
                self.orphans.remove(&path);
                self.unplace_pod(&path);
                if let Some(Whose::Others { node, requirements }) = self.pods.remove(&*path) {
                    self.count_other(node.as_deref(), &requirements, false);
                }
            }
            None => {}
        }
    }

    /// A pod is gone. If it waited, its condition and its events are written no more.
    fn tell_no_more(&mut self, key: &GangKey, name: &str) {
        let Some(gang) = self.gangs.get(key) else { return };
        let waits = gang.pods.get_key_value(name).filter(|(_, pod)| pod.known.node.is_none());
        if let Some(pod) = waits.and_then(|(name, _)| gang.pod_ref(name)) {
            self.calls.push(Call::Forget { pod });
        }
    }

    /// A pod whose object is not there waits for it; bound, it holds what it holds. It is in no gang until then.
    fn see_orphan(&mut self, now: Timestamp, path: &str, object: GangKey, pod: &api::Pod) {
        if let Some(Whose::Ours(key)) = self.pods.get(path) {
            let key = key.clone();
            self.forget_pod(now, &key, pod.name());
        }
        self.see_other(path, pod);
        self.orphans.insert(now, object, pod);
    }

    /// What a pod is to us, with what keeps it from ever starting as it is.
    pub(in crate::gang) fn known(&mut self, pod: &api::Pod) -> Known {
        let (requirements, bad) = match Requirements::of(pod) {
            Ok(requirements) => (requirements, None),
            Err(bad) => (Requirements::default(), Some(bad.to_string())),
        };
        let gated = filter::gate(pod).map(|gate| format!("the scheduling gate {gate} holds it"));
        let unsupported = filter::unsupported(pod, filter::Also { between_pods: true, volumes: true });
        let unsupported = unsupported.into_iter().chain(filter::fractions(pod)).next();
        let unsupported = unsupported.map(|field| format!("not supported: {field}"));
        Known {
            name: pod.name().into(),
            uid: pod.uid().into(),
            requirements: self.shared.get(requirements),
            claims: Used::of(pod),
            extended: ExtendedAsk::of(&pod.spec).map(|ask| self.extended.get(ask)),
            has_extended_claim: pod.status.extended_resource_claim_status.is_some(),
            created: pods::created(pod),
            node: pod.spec.node_name.as_deref().and_then(|name| NodeName::new(name).ok()),
            state: State::of(pod),
            ran_from: pods::ran_from(pod),
            grace_s: pod.spec.termination_grace_period_seconds.unwrap_or(pods::GRACE_S).max(0),
            is_ready: pod.is_ready(),
            is_going: pod.metadata.deletion_timestamp.is_some(),
            has_owner: pod.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty()),
            noted: Note::of(pod),
            face: Face::of(pod),
            priority: Priority {
                value: pod.spec.priority.unwrap_or(0),
                is_patient: pod.spec.preemption_policy.as_deref() == Some("Never"),
            },
            class: recognise::names::PRIORITY_LABELS.iter().find_map(|key| pod.label(key)).map(Into::into),
            barred: bad.or(gated).or(unsupported).map(Into::into),
            wish: SoftConstraint::of(pod),
        }
    }

    /// This very pod as it is in its gang.
    fn ours(&self, path: &str, name: &str, uid: &str) -> Option<(&GangKey, &Pod)> {
        let Some(Whose::Ours(key)) = self.pods.get(path) else { return None };
        let pod = self.gangs.get(key)?.pods.get(name)?;
        (&*pod.known.uid == uid).then_some((key, pod))
    }

    /// Where this very pod was put before, in a gang of several.
    fn placed(&self, path: &str, pod: &api::Pod) -> Option<Membership> {
        let (key, pod) = self.ours(path, pod.name(), pod.uid())?;
        let (gang, role, index) = (key.clone(), pod.role.clone(), pod.index);
        (key.source != Source::Pod).then_some(Membership { gang, role, copy: 0, index })
    }

    /// Whether the object that a gang is of was seen, as its pods were placed in it, and is gone.
    fn has_lost_object(&self, key: &GangKey) -> bool {
        key.source.has_object() && self.told(key).is_none()
    }

    /// Where a pod belongs. A group that the pod's own owner made is the owner's gang.
    pub(in crate::gang) fn place(
        &self,
        pod: &api::Pod,
        own: &Result<Membership, recognise::Refused>,
    ) -> Result<Place, recognise::Refused> {
        let member = own.as_ref().map_err(Clone::clone)?;
        let told = self.told(&member.gang);
        let is_made = matches!(member.gang.source, Source::PodGroup | Source::Workload)
            && told.is_some_and(|told| told.above.is_some());
        if is_made && let Some(owned) = recognise::membership_by_owner(pod)? {
            match self.settled(pod, &owned)? {
                Place::In(settled) if settled.gang.source == Source::Pod => {}
                place => return Ok(place),
            }
        }
        self.settled(pod, member)
    }

    fn settled(&self, pod: &api::Pod, member: &Membership) -> Result<Place, recognise::Refused> {
        match self.told(&member.gang) {
            Some(Told { specs: Ok(specs), .. }) => {
                recognise::settle(pod, member, specs).map(|(settled, _)| Place::In(settled))
            }
            Some(Told { specs: Err(refused), .. }) => Err(refused.clone()),
            None if member.gang.source.has_object() => Ok(Place::Waits(member.gang.object())),
            None => Ok(Place::In(member.clone())),
        }
    }
}

/// Whether a pod is of an object before the one that it would be placed with now. Only pods that do not say the UID of their
/// owner have to be remembered.
fn is_of_former(own: &Result<Membership, recognise::Refused>, before: &Membership, now: &Membership) -> bool {
    let says_uid = own.as_ref().is_ok_and(|own| own.gang.uid.is_some());
    !says_uid && before.gang.is_of_same_object(&now.gang) && before.gang.uid != now.gang.uid
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::gang::constraints::tests::Play;

    /// A pod of a pair, of which two fill a node; of no gang by the name of `whole`, which fills one.
    fn pod(name: &str, gang: Option<&str>) -> Value {
        let (labels, cpu) = match gang {
            Some(gang) => (
                json!({ "pod-group.scheduling.sigs.k8s.io/name": gang, "pod-group.scheduling.sigs.k8s.io/min-available": "2" }),
                "4",
            ),
            None => (json!({}), "8"),
        };
        json!({
            "metadata": { "namespace": "x", "name": name, "uid": name, "labels": labels },
            "spec": { "schedulerName": "phalanx",
                "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] },
        })
    }

    /// Its CPUs were counted twice, and half of that was never free again.
    #[test]
    fn a_pod_whose_annotations_are_taken_away_is_where_it_was_put() {
        let mut play = Play::of(1);
        ["a", "b"].iter().for_each(|name| play.see(name, pod(name, Some("pair"))));
        play.turn();
        assert_eq!(play.bound.len(), 2, "{:?}", play.reasons);
        let mut stripped = play.pods["a"].clone();
        stripped["metadata"]["annotations"] = json!({});
        play.see("a", stripped.clone());
        play.turn();
        play.see("a", stripped);
        play.turn();
        assert!(play.stops.is_empty(), "{:?}", play.stops);
        play.delete("a");
        play.delete("b");
        play.see("whole", pod("whole", None));
        play.turn();
        assert!(play.bound.contains_key("whole"), "{:?}", play.reasons);
    }

    /// Its gang was started and stopped for ever.
    #[test]
    fn a_pod_that_somebody_binds_by_hand_leaves_its_gang() {
        let mut play = Play::of(1);
        play.see("a", pod("a", Some("pair")));
        play.turn();
        let mut by_hand = play.pods["a"].clone();
        by_hand["spec"]["nodeName"] = json!("a1");
        play.see("a", by_hand);
        play.see("b", pod("b", Some("pair")));
        play.turn();
        assert!(play.bound.is_empty(), "the other waits for one more: {:?}", play.bound);
        play.delete("a");
        play.see("c", pod("c", Some("pair")));
        play.turn();
        assert_eq!(play.bound.len(), 2, "{:?}", play.reasons);
    }
}
