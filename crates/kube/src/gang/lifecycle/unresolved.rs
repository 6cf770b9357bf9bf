//! Pods that name a group or an owner which is not there: each waits for it, and says so after a while. A group that is made
//! together with its pods may be seen after them.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::Timestamp;

use crate::api::Pod;
use crate::gang::Lifecycle;
use crate::messages::{Call, PodRef, WaitingGang, WaitsFor};
use crate::recognise::{GangKey, KINDS};

/// How long an object may come after its pods before they say that they wait for it.
const SAID_AFTER_MS: u64 = 5_000;

/// Pods whose object has not been seen.
#[derive(Default)]
pub(in crate::gang) struct UnresolvedPods {
    /// By `namespace/name`.
    pods: BTreeMap<Box<str>, Orphan>,
    /// The same by gang without its part.
    by_object: BTreeMap<GangKey, BTreeSet<Box<str>>>,
    /// Who has yet to say it, and when.
    silent: BTreeSet<(Timestamp, Box<str>)>,
}

struct Orphan {
    object: GangKey,
    pod: Pod,
    says_at: Timestamp,
}

impl UnresolvedPods {
    /// A pod waits for this object. One that waited for it already has said so, or will.
    pub(in crate::gang) fn insert(&mut self, now: Timestamp, object: GangKey, pod: &Pod) {
        let path: Box<str> = pod.path().into();
        let before = self.pods.get(&path);
        let same = before.filter(|orphan| orphan.object == object && orphan.pod.uid() == pod.uid());
        let says_at = same.map_or(now.plus(SAID_AFTER_MS), |orphan| orphan.says_at);
        if same.is_none() {
            self.remove(&path);
            self.silent.insert((says_at, path.clone()));
        }
        self.by_object.entry(object.clone()).or_default().insert(path.clone());
        self.pods.insert(path, Orphan { object, pod: pod.clone(), says_at });
    }

    /// A pod waits no more, or is gone.
    pub(in crate::gang) fn remove(&mut self, path: &str) {
        let Some(orphan) = self.pods.remove(path) else { return };
        self.silent.remove(&(orphan.says_at, path.into()));
        if let Some(paths) = self.by_object.get_mut(&orphan.object) {
            paths.remove(path);
            if paths.is_empty() {
                self.by_object.remove(&orphan.object);
            }
        }
    }

    /// The pods that waited for an object, which is there now.
    pub(in crate::gang) fn take(&mut self, object: &GangKey) -> Vec<Pod> {
        let paths = self.by_object.remove(object).unwrap_or_default();
        let mut taken = Vec::new();
        for path in paths {
            let Some(Orphan { pod, says_at, .. }) = self.pods.remove(&path) else { continue };
            self.silent.remove(&(says_at, path));
            taken.push(pod);
        }
        taken
    }

    #[cfg(test)]
    pub(in crate::gang) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.by_object.keys().map(|object| &*object.namespace)
    }

    /// When the next of them says that it waits.
    pub(in crate::gang) fn wake(&self) -> Option<Timestamp> {
        self.silent.first().map(|(at, _)| *at)
    }

    /// Those that have waited for long enough to say so, by what they wait for.
    fn due(&mut self, now: Timestamp) -> BTreeMap<GangKey, Vec<PodRef>> {
        let mut due: BTreeMap<GangKey, Vec<PodRef>> = BTreeMap::new();
        while self.wake().is_some_and(|at| at <= now) {
            let orphan = self.silent.pop_first().and_then(|(_, path)| self.pods.get(&path));
            let Some(Orphan { object, pod, .. }) = orphan else { continue };
            let pod =
                PodRef { namespace: pod.namespace().into(), name: pod.name().into(), uid: pod.uid().into() };
            due.entry(object.clone()).or_default().push(pod);
        }
        due
    }
}

impl Lifecycle {
    /// Says of pods what they wait for that is not there.
    pub(in crate::gang) fn tell_orphans(&mut self, now: Timestamp) {
        for (object, pods) in self.orphans.due(now) {
            let lists = KINDS.iter().filter(|kind| kind.source == object.source);
            let mut lists = lists.map(|kind| format!("{}.{}", kind.plural, kind.group));
            let message = match lists.find(|list| self.unreadable.contains(list.as_str())) {
                Some(list) => format!(
                    "waits for {object}: the API server refuses to list {list} to the scheduler, whose log says why"
                ),
                None => format!(
                    "waits for {object}, which does not exist: create it, or correct its name on the pod"
                ),
            };
            let (reason, message) = (WaitsFor::PODS.reason(), message.into());
            let gang = WaitingGang { name: object.to_string().into(), about: None };
            self.calls.push(Call::Explain { pods, gang, reason, message });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::gang::constraints::tests::Play;

    fn member(name: &str, group: &str) -> Value {
        json!({
            "metadata": { "namespace": "x", "name": name, "uid": name },
            "spec": { "schedulerName": "phalanx", "schedulingGroup": { "podGroupName": group },
                "containers": [{ "name": "c" }] },
        })
    }

    fn group(name: &str) -> Value {
        json!({ "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
            "metadata": { "namespace": "x", "name": name, "uid": name },
            "spec": { "schedulingPolicy": { "gang": { "minCount": 1 } } } })
    }

    /// It stayed pending without a word.
    #[test]
    fn a_pod_whose_group_does_not_exist_says_so_after_a_while() {
        let mut play = Play::of(1);
        play.see("m", member("m", "g"));
        play.turn();
        assert!(!play.reasons.contains_key("m"), "its group may be on the way: {:?}", play.reasons);
        play.wait(5_000);
        let said = "waits for PodGroup x/g, which does not exist: create it, or correct its name on the pod";
        assert_eq!(play.reasons["m"], said);
        play.reasons.clear();
        play.see("m", member("m", "g"));
        play.wait(60_000);
        assert!(play.reasons.is_empty(), "once is enough: {:?}", play.reasons);
        play.object(&group("g"));
        play.turn();
        assert!(play.bound.contains_key("m"), "{:?}", play.reasons);
    }

    /// It said that the group does not exist, and had its user look for a mistake.
    #[test]
    fn a_pod_whose_group_cannot_be_read_says_so() {
        let mut play = Play::of(1);
        play.unreadable("podgroups.scheduling.k8s.io", true);
        play.see("m", member("m", "g"));
        play.wait(5_000);
        let said = "waits for PodGroup x/g: the API server refuses to list podgroups.scheduling.k8s.io to the scheduler, \
            whose log says why";
        assert_eq!(play.reasons["m"], said);
        play.unreadable("podgroups.scheduling.k8s.io", false);
        play.object(&group("g"));
        play.turn();
        assert!(play.bound.contains_key("m"), "{:?}", play.reasons);
    }

    #[test]
    fn a_pod_that_is_gone_or_corrected_waits_for_nothing() {
        let mut play = Play::of(1);
        play.see("gone", member("gone", "g"));
        play.see("corrected", member("corrected", "g"));
        play.delete("gone");
        let mut alone = member("corrected", "g");
        alone["spec"].as_object_mut().unwrap().remove("schedulingGroup");
        play.see("corrected", alone);
        play.wait(60_000);
        assert!(play.bound.contains_key("corrected"), "{:?}", play.reasons);
        assert!(!play.reasons.contains_key("gone"), "{:?}", play.reasons);
    }
}
