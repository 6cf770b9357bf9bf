//! Pods that come to a gang which runs already, where it may have more than it began with: workers that Ray's autoscaler
//! adds, pods of a group above its minimum. Each starts by itself, near to the gang ([`super::proximity`]).
//!
//! The gang was whole without them: none of its ranks waits for them, and they wait for none of its ranks. They are in its
//! queue and of its priority, and stay by themselves when it starts anew.

use std::sync::Arc;

use phalanx_model::Timestamp;

use super::collect::{Place, Whose};
use super::single_pods::OwnerContext;
use crate::api;
use crate::gang::Lifecycle;
use crate::gang::pods::Known;
use crate::gang::state::{Gang, Member, Pod, Seat, Stage, Submitted};
use crate::messages::WaitsFor;
use crate::recognise::{GangKey, GangSpec, Membership, Refused, Source};

/// On a bound pod: it came to its gang when that ran, and was started by itself.
pub const JOINED: &str = "phalanx.dev/joined";

impl Lifecycle {
    /// Pods that came before there was a rank for them take one that has become free.
    pub(in crate::gang) fn seat_waiting(&mut self, now: Timestamp, key: &GangKey) {
        let Some(gang) = self.gangs.get(key).filter(|gang| gang.has_pods_without_rank()) else { return };
        for name in gang.without_rank() {
            let gang = self.gangs.get(key);
            let free = gang.and_then(|gang| gang.job.as_ref()?.seat_for(&gang.pods, gang.pods.get(&name)?));
            if free.is_some() {
                self.follow(now, key, &name);
            }
        }
    }

    /// Pods for which a gang that runs has no rank are gangs of their own from now on; which they are.
    pub(in crate::gang) fn let_join(&mut self, key: &GangKey) -> Vec<GangKey> {
        let Some(gang) = self.gangs.get(key).filter(|gang| gang.may_be_joined()) else { return Vec::new() };
        let mut newcomers = gang.without_rank();
        // Of a gang without an object all pods have to be read for it.
        if newcomers.is_empty() {
            return Vec::new();
        }
        let Ok(Some(spec)) = self.spec(key) else { return Vec::new() };
        newcomers.retain(|name| gang.pods.get(name).is_some_and(|pod| gang.may_grow(&spec, pod)));
        newcomers.into_iter().filter_map(|name| self.join(key, &name)).collect()
    }

    fn join(&mut self, key: &GangKey, name: &Arc<str>) -> Option<GangKey> {
        let pod = self.gangs.get_mut(key)?.pods.remove(name)?;
        self.lose_claims(key, name, &pod.known);
        let alone = GangKey {
            source: Source::Pod,
            namespace: Arc::clone(&key.namespace),
            name: Arc::clone(name),
            part: None,
            uid: None,
        };
        let path = format!("{}/{name}", key.namespace);
        self.pods.insert(path.into(), Whose::Ours(alone.clone()));
        self.constraints.claims.uses(&alone, &pod.known.claims);
        let mut gang = Gang::new(alone.clone());
        gang.kin = Some(OwnerContext::joined(key.clone()));
        gang.pods.insert(Arc::clone(name), Pod { role: None, index: None, signs: None, ..pod });
        self.gangs.insert(alone.clone(), gang);
        self.joining.entry(key.clone()).or_default().insert(alone.clone());
        Some(alone)
    }

    /// For a pod that its gang, handed in without it, has no rank for.
    pub(in crate::gang) fn explain_late(&mut self, key: &GangKey, name: &Arc<str>) {
        let spec = self.spec(key).ok().flatten();
        let Some(gang) = self.gangs.get(key) else { return };
        let pod = gang.pods.get(name);
        let may_grow = spec.is_some_and(|spec| pod.is_some_and(|pod| gang.may_grow(&spec, pod)));
        let is_of = |seat: &&Seat| pod.is_some_and(|pod| pod.role == seat.role);
        let mut others =
            gang.job.iter().flat_map(|job| &job.seats).filter(is_of).filter_map(|seat| seat.pod.as_ref());
        let goes = |name: &&Arc<str>| gang.pods.get(*name).is_some_and(|pod| pod.known.is_going);
        if let Some(going) = others.find(goes) {
            let message = format!(
                "the place that it may have is free when pod {going} is gone, which is on its way out"
            );
            return self.say(key, &[Arc::clone(name)], WaitsFor::GANG, message.into());
        }
        let (waits_for, message) = match may_grow {
            true if gang.may_be_joined() => return,
            true => (
                WaitsFor::GANG,
                "its gang goes first: it came when that was complete, and starts when that runs",
            ),
            false => (
                WaitsFor::CHANGE,
                "not supported: its gang has all its pods; one more than it says starts where one of them is gone",
            ),
        };
        self.say(key, &[Arc::clone(name)], waits_for, message.into());
    }

    /// The gang that a pod came to when that ran: as the scheduler knows, or as the pod itself says after a restart.
    pub(in crate::gang) fn joined(
        &self,
        path: &str,
        pod: &api::Pod,
        own: &Result<Membership, Refused>,
    ) -> Option<GangKey> {
        if let Some(Whose::Ours(key)) = self.pods.get(path)
            && let Some(gang) = self.gangs.get(key)
            && gang.pods.get(pod.name()).is_some_and(|known| &*known.known.uid == pod.uid())
        {
            return gang.kin.as_ref().filter(|kin| kin.has_joined).map(|kin| kin.of.clone());
        }
        if pod.spec.node_name.is_none() || pod.annotation(JOINED).is_none() {
            return None;
        }
        match self.place(pod, own) {
            Ok(Place::In(member)) => Some(member.gang),
            _ => None,
        }
    }
}

impl Gang {
    fn has_pods_without_rank(&self) -> bool {
        let ranks = |job: &Submitted| job.seats.iter().filter(|seat| seat.pod.is_some()).count();
        self.job.as_ref().is_some_and(|job| ranks(job) < self.pods.len())
    }

    /// Pods that wait and have no rank.
    fn without_rank(&self) -> Vec<Arc<str>> {
        let Some(job) = self.job.as_ref() else { return Vec::new() };
        let waits = |known: &Known| known.node.is_none() && !known.is_going && !known.is_over();
        let is_it = |name: &Arc<str>, pod: &Pod| waits(&pod.known) && job.rank_of(name).is_none();
        self.pods.iter().filter(|(name, pod)| is_it(name, pod)).map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Whether it runs whole, and pods are there that it has no rank for. Not while a rank may be about to be theirs: one
    /// that is lost, or goes.
    pub(in crate::gang) fn may_be_joined(&self) -> bool {
        let (Some(job), Some(run)) = (self.job.as_ref(), self.run()) else { return false };
        let goes = |name: &Arc<str>| self.pods.get(name).is_none_or(|pod| pod.known.is_going);
        run.stage == Stage::Released
            && self.has_pods_without_rank()
            && !run.members.iter().any(|member| matches!(member, Member::Vacant { .. }))
            && !job.seats.iter().any(|seat| seat.pod.as_ref().is_none_or(goes))
    }

    /// Whether it may have one more of the role of a pod.
    fn may_grow(&self, spec: &GangSpec, pod: &Pod) -> bool {
        let seats = self.job.as_ref().map_or(&[][..], |job| &job.seats);
        let ranks = seats.iter().filter(|seat| seat.role.is_none() || seat.role == pod.role).count();
        spec.may_grow(pod.role.as_deref(), ranks)
    }
}

#[cfg(test)]
pub(in crate::gang) mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use crate::gang::constraints::tests::Play;

    fn template() -> Value {
        json!({ "spec": { "schedulerName": "phalanx",
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] } })
    }

    /// A cluster whose autoscaler has asked for so many workers.
    pub(in crate::gang) fn cluster(replicas: u32) -> Value {
        json!({
            "apiVersion": "ray.io/v1", "kind": "RayCluster",
            "metadata": { "namespace": "x", "name": "ray", "uid": "u" },
            "spec": { "enableInTreeAutoscaling": true, "headGroupSpec": { "template": template() },
                "workerGroupSpecs": [{ "groupName": "gpus", "replicas": replicas, "minReplicas": 1, "maxReplicas": 4,
                    "template": template() }] },
        })
    }

    pub(in crate::gang) fn pod(name: &str, group: &str) -> Value {
        json!({
            "metadata": { "namespace": "x", "name": name, "uid": name,
                "labels": { "ray.io/cluster": "ray", "ray.io/group": group },
                "ownerReferences": [{
                    "apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "ray", "uid": "u", "controller": true,
                }] },
            "spec": template()["spec"],
        })
    }

    fn started() -> Play {
        let mut play = Play::of(4);
        play.object(&cluster(1));
        play.see("head", pod("head", "headgroup"));
        play.see("worker-0", pod("worker-0", "gpus"));
        play.turn();
        assert_eq!(play.bound.len(), 2, "{:?}", play.reasons);
        play
    }

    #[test]
    fn workers_that_an_autoscaler_adds_start_by_themselves_also_after_a_restart() {
        let mut play = started();
        play.object(&cluster(3));
        play.see("worker-1", pod("worker-1", "gpus"));
        play.turn();
        assert_eq!(play.bound.len(), 3, "{:?}", play.reasons);
        let of = |pods: &BTreeMap<String, Value>| pods["worker-1"]["metadata"]["annotations"].clone();
        assert_eq!(
            (&of(&play.pods)[JOINED], &of(&play.pods)["phalanx.dev/gang-size"]),
            (&json!("ray"), &json!("1"))
        );
        // The next one finds the gang whole, and goes on with what comes.
        let mut next = Play::listing(4);
        next.bound.clone_from(&play.bound);
        for (name, pod) in &play.pods {
            next.see(name, pod.clone());
        }
        next.object(&cluster(3));
        next.see("worker-2", pod("worker-2", "gpus"));
        next.turn();
        assert_eq!(next.bound.len(), 4, "{:?}", next.reasons);
        // The gang goes on when one that joined it goes.
        next.delete("worker-1");
        next.turn();
        assert_eq!(next.bound.len(), 3, "{:?}", next.reasons);
    }

    #[test]
    fn a_pod_that_comes_for_one_that_goes_takes_its_place() {
        let mut play = started();
        play.object(&cluster(2));
        let mut going = play.pods["worker-0"].clone();
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        play.see("worker-0", going);
        play.see("worker-1", pod("worker-1", "gpus"));
        play.turn();
        assert_eq!(play.bound.len(), 2, "nobody knows yet which of them it is: {:?}", play.bound);
        play.delete("worker-0");
        play.turn();
        assert_eq!(play.bound.len(), 2, "{:?}", play.reasons);
        let annotations = &play.pods["worker-1"]["metadata"]["annotations"];
        assert!(
            annotations[JOINED].is_null() && annotations["phalanx.dev/gang-size"] == "2",
            "{annotations}"
        );
    }
}
