use phalanx_model::{QueueName, Timestamp};
use serde_json::{Value, json};

use crate::gang::constraints::tests::Play;
use crate::gang::{Lifecycle, Options};
use crate::messages::{Call, Event};

const NOW: Timestamp = Timestamp(1_000);

/// Whether its group is told that it waits: one of two pods of it is there.
fn is_told_to_wait(version: &str, condition: &str, status: &str) -> bool {
    let group = json!({
        "apiVersion": format!("scheduling.k8s.io/{version}"), "kind": "PodGroup",
        "metadata": { "namespace": "x", "name": "g", "uid": "g" },
        "spec": { "schedulingPolicy": { "gang": { "minCount": 2 } } },
        "status": { "conditions": [{ "type": condition, "status": status }] },
    });
    let pod = json!({
        "metadata": { "namespace": "x", "name": "p", "uid": "p" },
        "spec": {
            "schedulerName": "phalanx", "schedulingGroup": { "podGroupName": "g" }, "containers": [{ "name": "c" }],
        },
    });
    fn of<T: serde::de::DeserializeOwned>(value: Value) -> Box<T> {
        Box::new(serde_json::from_value(value).unwrap())
    }
    let mut lifecycle = Lifecycle::new(Options::of_queue(QueueName::new("default").unwrap()));
    lifecycle.observe(NOW, Event::Object(of(group)));
    lifecycle.observe(NOW, Event::Pod(of(pod)));
    lifecycle.begin(NOW);
    lifecycle.settle(NOW);
    let told = |call: &Call| matches!(call, Call::Group { condition, .. } if !condition.is_true);
    lifecycle.calls().iter().any(told)
}

/// Written by a scheduler that began anew it would be: that one knows only what stands on the group.
#[test]
fn a_group_that_was_scheduled_once_is_not_told_to_wait_where_that_is_about_the_first_time() {
    for version in ["v1alpha3", "v1beta1"] {
        assert!(is_told_to_wait(version, "PodGroupInitiallyScheduled", "False"), "{version}");
        assert!(!is_told_to_wait(version, "PodGroupInitiallyScheduled", "True"), "{version}");
    }
    assert!(is_told_to_wait("v1alpha2", "PodGroupScheduled", "True"));
}

/// A Job whose pods are whole nodes.
fn job(uid: &str, pods: u32) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "namespace": "x", "name": "train", "uid": uid },
        "spec": { "completions": pods, "parallelism": pods, "completionMode": "Indexed",
            "template": { "spec": { "schedulerName": "phalanx",
                "containers": [{ "name": "c", "resources": { "requests": { "cpu": "8" } } }] } } },
    })
}

fn pod_of(job: &Value, name: &str, index: u32) -> Value {
    json!({
        "metadata": { "namespace": "x", "name": name, "uid": name,
            "annotations": { "batch.kubernetes.io/job-completion-index": index.to_string() },
            "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "train",
                "uid": job["metadata"]["uid"], "controller": true }] },
        "spec": job["spec"]["template"]["spec"],
    })
}

/// The new pods took the seats of the old ones, with the size, the queue and the topology of the Job that was gone.
#[test]
fn a_job_of_the_same_name_is_another_gang_while_pods_of_the_first_terminate() {
    let mut play = Play::of(3);
    let (first, second) = (job("first", 2), job("second", 3));
    play.object(&first);
    for index in 0..2 {
        let name = format!("old-{index}");
        play.see(&name, pod_of(&first, &name, index));
    }
    play.turn();
    assert_eq!(play.bound.len(), 2, "{:?}", play.reasons);
    play.object_gone(&first);
    for name in ["old-0", "old-1"] {
        let mut pod = play.pods[name].clone();
        pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
        play.see(name, pod);
    }
    play.object(&second);
    for index in 0..3 {
        let name = format!("new-{index}");
        play.see(&name, pod_of(&second, &name, index));
    }
    play.turn();
    assert_eq!(play.bound.len(), 2, "two of three nodes are held by the first: {:?}", play.bound);
    // The first is stopped with it, and its other pod goes as well.
    play.delete("old-0");
    play.turn();
    assert_eq!(play.bound.len(), 3, "{:?}", play.reasons);
    let size = |name: &str| play.pods[name]["metadata"]["annotations"]["phalanx.dev/gang-size"].clone();
    assert_eq!([size("new-0"), size("new-1"), size("new-2")], ["3", "3", "3"]);
    // Pods of a Job that is not seen yet are none of the one that is.
    play.see("early", pod_of(&job("third", 1), "early", 0));
    play.turn();
    assert_eq!(play.bound.len(), 3);
}

/// The pods of a `LeaderWorkerSet` do not say its UID: they stay where they came first.
#[test]
fn pods_that_do_not_say_the_uid_of_their_owner_stay_in_its_gang() {
    let mut play = Play::of(2);
    let set = |uid: &str, size: u32| {
        json!({
            "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
            "metadata": { "namespace": "x", "name": "serve", "uid": uid },
            "spec": { "replicas": 1, "leaderWorkerTemplate": { "size": size,
                "workerTemplate": { "spec": job("j", 1)["spec"]["template"]["spec"] } } },
        })
    };
    let member = |name: &str, index: u32| {
        json!({
            "metadata": { "namespace": "x", "name": name, "uid": name, "labels": {
                "leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "0",
                "leaderworkerset.sigs.k8s.io/worker-index": index.to_string() } },
            "spec": job("j", 1)["spec"]["template"]["spec"],
        })
    };
    play.object(&set("first", 1));
    play.see("old", member("old", 0));
    play.turn();
    assert!(play.bound.contains_key("old"), "{:?}", play.reasons);
    play.object_gone(&set("first", 1));
    play.object(&set("second", 2));
    let mut going = play.pods["old"].clone();
    going["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
    play.see("old", going);
    for index in 0..2 {
        let name = format!("new-{index}");
        play.see(&name, member(&name, index));
    }
    play.turn();
    assert_eq!(play.bound.len(), 1, "the second needs two nodes: {:?}", play.bound);
    play.delete("old");
    play.turn();
    assert_eq!(play.bound.len(), 2, "{:?}", play.reasons);
}

/// The group that the Job controller makes for a Job, with the pods one by one; or what is left of it without its owner.
fn group_of(job: Option<&Value>) -> Value {
    let owner = job.map_or(json!([]), |job| {
        json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job["metadata"]["uid"],
            "controller": true }])
    });
    json!({
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
        "metadata": { "namespace": "x", "name": "made", "uid": "made", "ownerReferences": owner },
        "spec": { "schedulingPolicy": { "basic": {} } },
    })
}

/// The collector took the group's owner from it, then the group, and then the pods: each in between fell to a gang of its
/// own, and the device of one that was seen after its group was gone was never free again.
#[test]
fn pods_whose_job_and_group_are_deleted_before_them_stay_in_its_gang_and_free_their_nodes() {
    let mut play = Play::of(2);
    let first = job("first", 2);
    play.object(&first);
    play.object(&group_of(Some(&first)));
    let names = ["old-0", "old-1"];
    for (index, name) in (0..).zip(names) {
        let mut pod = pod_of(&first, name, index);
        pod["spec"]["schedulingGroup"] = json!({ "podGroupName": "made" });
        play.see(name, pod);
    }
    play.turn();
    assert_eq!(play.bound.len(), 2, "{:?}", play.reasons);
    play.object_gone(&first);
    play.object(&group_of(None));
    let is_going = |play: &mut Play, name: &str| {
        let mut pod = play.pods[name].clone();
        pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
        play.see(name, pod);
        play.turn();
    };
    names.iter().for_each(|name| is_going(&mut play, name));
    assert!(play.lifecycle.counts().1 == 1, "both are in one gang");
    play.object_gone(&group_of(None));
    names.iter().for_each(|name| is_going(&mut play, name));
    play.delete("old-0");
    play.turn();
    assert!(!play.pods.contains_key("old-1"), "the gang is stopped with it: {:?}", play.pods.keys());
    play.turn();
    let next = job("next", 2);
    play.object(&next);
    for (index, name) in (0..).zip(["next-0", "next-1"]) {
        play.see(name, pod_of(&next, name, index));
    }
    play.turn();
    assert!(play.bound.contains_key("next-0") && play.bound.contains_key("next-1"), "{:?}", play.reasons);
}

/// It waited for the group and counted as a pod of others from then on, and as a pod of its gang as well.
#[test]
fn a_pod_by_itself_whose_group_is_deleted_before_it_frees_its_node() {
    let mut play = Play::of(1);
    play.object(&group_of(None));
    let mut pod = pod_of(&job("first", 1), "alone", 0);
    pod["metadata"]["ownerReferences"] = json!([]);
    pod["spec"]["schedulingGroup"] = json!({ "podGroupName": "made" });
    play.see("alone", pod);
    play.turn();
    assert_eq!(play.bound.len(), 1, "{:?}", play.reasons);
    play.object_gone(&group_of(None));
    play.see("alone", play.pods["alone"].clone());
    play.turn();
    assert_eq!(play.bound.len(), 1);
    play.delete("alone");
    play.turn();
    let next = job("next", 1);
    play.object(&next);
    play.see("next", pod_of(&next, "next", 0));
    play.turn();
    assert!(play.bound.contains_key("next"), "{:?}", play.reasons);
}
