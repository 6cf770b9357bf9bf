//! Lifecycle and engine together, with the controller of one Job of four ranks, each of one device.

use std::collections::BTreeMap;

use phalanx_model::{NodeName, Timestamp};
use serde_json::{Value, json};

use crate::cluster::distrust::DistrustedNodes;
use crate::cluster::distrust::{DISTRUST_MAX_MS, DISTRUST_MS};
use crate::gang::lifecycle::suspension::tests::{Play, SIZE, made};

/// Pods that are not on their way out, by node.
fn places(play: &Play) -> BTreeMap<String, usize> {
    let mut places = BTreeMap::new();
    for pod in play.pods.values().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()) {
        *places.entry(pod["spec"]["nodeName"].as_str().unwrap_or("-").to_owned()).or_insert(0) += 1;
    }
    places
}

fn all_on(node: &str) -> BTreeMap<String, usize> {
    [(node.to_owned(), SIZE)].into()
}

/// Its pods run on node `a`; what could have them beside that is node `b`.
fn started() -> Play {
    let mut play = made();
    play.after(0);
    assert_eq!(places(&play), all_on("a"));
    play.node("b", 4, &json!({}));
    play.after(0);
    play
}

/// The pod of an index goes, and its Job makes another.
fn replace(play: &mut Play, at: usize) {
    let name = play.pods.keys().find(|name| name.starts_with(&format!("g-{at}-"))).unwrap().clone();
    play.lose(&name);
    play.make(at);
}

#[test]
fn a_pod_that_comes_again_has_the_place_of_the_one_before() {
    let mut play = started();
    replace(&mut play, 1);
    play.after(0);
    assert_eq!((places(&play), play.suspensions), (all_on("a"), 0));
}

/// It was bound there again and again, for as long as somebody made it.
#[test]
fn a_gang_leaves_a_node_that_cannot_have_the_pod_that_comes_again() {
    let taint = |effect: &str| json!({ "taints": [{ "key": "maintenance", "effect": effect }] });
    let changes: [(u32, Value); 5] = [
        (4, json!({ "unschedulable": true })),
        (4, taint("NoSchedule")),
        (4, taint("NoExecute")),
        (3, json!({})),
        (0, json!({})),
    ];
    for (devices, spec) in changes {
        let mut play = started();
        play.node("a", devices, &spec);
        play.after(0);
        assert_eq!((places(&play), play.suspensions), (all_on("a"), 0), "what runs there stays: {spec}");
        replace(&mut play, 1);
        play.after(0);
        play.after(2_000);
        assert_eq!((places(&play), play.suspensions), (all_on("b"), 1), "{devices} devices, {spec}");
        assert_eq!(play.deleted, 0, "a deleted pod is a failure for a Job");
    }
}

/// The node is cordoned while the pods of a gang that was let go on are still on their way.
#[test]
fn a_start_that_was_decided_is_decided_again_when_its_node_cannot_have_it() {
    let mut play = Play::begin();
    play.job["spec"]["suspend"] = json!(true);
    play.job["metadata"]["annotations"][crate::gang::SUSPENDED] = json!("to be started");
    play.change_job(|_| {});
    play.is_controlled = false;
    play.after(0);
    assert!(!play.is_suspended() && play.pods.is_empty(), "{}", play.job);
    play.node("a", 4, &json!({ "unschedulable": true }));
    play.node("b", 4, &json!({}));
    play.is_controlled = true;
    play.change_job(|_| {});
    play.after(0);
    play.after(2_000);
    assert_eq!(places(&play), all_on("b"));
}

/// Its processes had failed by themselves sooner or later, and nobody knew why.
#[test]
fn a_gang_leaves_a_device_that_its_agent_closes_at_once_and_one_that_it_closes_after_the_job_not() {
    let mut play = started();
    play.grade("a", &[(1, "DrainAfterJob")]);
    play.after(0);
    assert_eq!((places(&play), play.suspensions), (all_on("a"), 0));
    play.grade("a", &[(1, "DrainNow")]);
    play.after(0);
    play.after(2_000);
    assert_eq!((places(&play), play.suspensions), (all_on("b"), 1));
    assert_eq!(play.deleted, 0, "a deleted pod is a failure for a Job");
    // Another is closed there, and nowhere are four that are not: it goes on where it is.
    play.grade("b", &[(0, "DrainAfterJob")]);
    play.after(2_000);
    assert_eq!((places(&play), play.suspensions), (all_on("b"), 1));
}

/// The next leader hears of grades and of the gang at once.
#[test]
fn a_scheduler_that_starts_anew_takes_a_gang_off_a_device_that_was_closed_meanwhile() {
    let mut play = started();
    play.succeed();
    play.node("b", 4, &json!({}));
    play.grade("a", &[(1, "Broken")]);
    play.after(0);
    play.after(2_000);
    assert_eq!((places(&play), play.suspensions), (all_on("b"), 1));
}

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

fn unreachable() -> Value {
    let taint = |effect: &str| json!({ "key": UNREACHABLE, "effect": effect });
    json!({ "taints": [taint("NoSchedule"), taint("NoExecute")] })
}

/// Two ranks on each of the nodes `a` and `b`, of two devices each; `c` is free.
fn on_two() -> Play {
    let mut play = made();
    ["a", "b"].iter().for_each(|node| play.node(node, 2, &json!({})));
    play.after(0);
    play.node("c", 2, &json!({}));
    play.after(0);
    assert_eq!(places(&play), [("a".to_owned(), 2), ("b".to_owned(), 2)].into());
    play
}

/// The ranks on `b`, as they are on their way out.
fn evict(play: &mut Play) -> Vec<String> {
    let on_b = |pod: &Value| pod["spec"]["nodeName"] == "b";
    let names: Vec<String> =
        play.pods.iter().filter(|(_, pod)| on_b(pod)).map(|(name, _)| name.clone()).collect();
    names.iter().for_each(|name| play.delete(name));
    names
}

/// Its pods stay in the API, and the other ranks held their devices for as long as that.
#[test]
fn a_gang_on_a_node_out_of_reach_starts_elsewhere_when_its_pods_are_made_again() {
    for is_before in [true, false] {
        let mut play = on_two();
        play.silent = Some("b".to_owned());
        let mut going = Vec::new();
        if is_before {
            going = evict(&mut play);
            play.after(0);
        }
        play.node("b", 2, &unreachable());
        play.after(0);
        if !is_before {
            going = evict(&mut play);
            play.after(0);
        }
        assert_eq!((going.len(), play.suspensions), (2, 0));
        play.change_job(|_| {});
        play.after(0);
        play.after(2_000);
        assert_eq!(places(&play), [("a".to_owned(), 2), ("c".to_owned(), 2)].into());
        assert!(going.iter().all(|name| play.pods.contains_key(name)), "nobody took them away");
        assert_eq!((play.deleted, play.suspensions, play.is_suspended()), (0, 1, false));
        // The node comes back: first what it has still is taken away.
        play.node("b", 2, &json!({}));
        play.after(0);
        going.iter().for_each(|name| play.lose(name));
        play.after(0);
        assert_eq!(places(&play), [("a".to_owned(), 2), ("c".to_owned(), 2)].into());
    }
}

/// Nobody makes pods again before those that go have ended, which nobody will hear of.
#[test]
fn a_gang_on_a_node_out_of_reach_does_not_wait_for_pods_that_are_not_made() {
    let mut play = on_two();
    play.silent = Some("b".to_owned());
    play.node("b", 2, &unreachable());
    evict(&mut play);
    play.after(0);
    play.after(20_000);
    play.after(2_000);
    assert_eq!(places(&play), [("a".to_owned(), 2), ("c".to_owned(), 2)].into());
}

#[test]
fn a_gang_whose_node_was_deleted_does_not_wait_for_what_was_there() {
    let mut play = on_two();
    play.silent = Some("b".to_owned());
    play.remove_node("b");
    play.after(0);
    play.after(2_000);
    assert_eq!(places(&play), [("a".to_owned(), 2), ("c".to_owned(), 2)].into());
}

/// The kubelet of `a` turns the pod of index 1 away.
fn turn_away(play: &mut Play) {
    let is_it = |pod: &Value| pod["status"]["phase"] == "Pending";
    let name = play.pods.iter().find(|(name, pod)| name.starts_with("g-1-") && is_it(pod)).unwrap().0.clone();
    let mut pod = play.pods[&name].clone();
    pod["status"] = json!({ "phase": "Failed", "reason": "UnexpectedAdmissionError" });
    play.see(&name, pod);
    play.make(1);
}

/// The pod that failed was taken for one that is bound, and its owner was never let go on again.
#[test]
fn a_gang_comes_back_whose_pod_failed_and_was_not_made_again_in_time() {
    let mut play = started();
    play.fail(1);
    play.after(0);
    assert_eq!(play.suspensions, 0, "its Job makes another later");
    play.after(20_000);
    assert_eq!((play.suspensions, play.is_suspended()), (1, true));
    play.after(2_000);
    let running = play.pods.values().filter(|pod| pod["status"]["phase"] == "Running").count();
    assert_eq!((running, play.is_suspended()), (SIZE, false));
}

/// A device that is broken has every pod turned away, on Kubernetes until its Job has failed.
#[test]
fn a_gang_leaves_a_node_that_turns_its_pods_away() {
    let mut play = started();
    play.are_slow = true;
    replace(&mut play, 1);
    play.after(0);
    turn_away(&mut play);
    play.after(0);
    assert_eq!(play.suspensions, 0, "once is chance");
    turn_away(&mut play);
    play.after(0);
    play.after(2_000);
    let live = |pod: &&Value| pod["status"]["phase"] != "Failed";
    let on_b = play.pods.values().filter(live).filter(|pod| pod["spec"]["nodeName"] == "b").count();
    assert_eq!((on_b, play.suspensions), (SIZE, 1));
}

#[test]
fn a_node_that_turned_pods_away_is_tried_again_later_and_later() {
    let (mut distrust, node) = (DistrustedNodes::default(), NodeName::new("a").unwrap());
    let mut now = Timestamp(1);
    assert!(!distrust.turned_away(now, &node) && distrust.wake().is_none(), "once is chance");
    for times in [1, 2, 4, 8, 12, 12] {
        assert!(distrust.turned_away(now, &node));
        let until = now.plus((DISTRUST_MS * times).min(DISTRUST_MAX_MS));
        assert_eq!(distrust.wake(), Some(until), "{times}");
        assert_eq!(distrust.pop_ended(Timestamp(until.0 - 1)), None);
        assert_eq!(distrust.pop_ended(until), Some(node.clone()));
        now = until;
    }
    assert!(!distrust.forget(&node), "its devices were used already");
    assert!(!distrust.turned_away(now, &node) && distrust.turned_away(now, &node), "from the beginning");
    assert!(distrust.forget(&node) && distrust.wake().is_none());
}

/// A process that waits for a device that does not answer cannot be ended. Its gang keeps its other nodes until it is killed
/// for the second time.
#[test]
fn what_a_gang_that_lost_hardware_keeps_is_free_once_a_pod_of_it_hangs() {
    let mut play = Play::begin();
    play.job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] =
        json!("2");
    play.node("b", 4, &json!({}));
    play.change_job(|_| {});
    play.after(0);
    assert_eq!(places(&play), [("a".to_owned(), 2), ("b".to_owned(), 2)].into());
    play.silent = Some("a".to_owned());
    play.grade("a", &[(0, "Broken")]);
    let limits = json!({ "limits": { "nvidia.com/gpu": "4" } });
    let next = json!({
        "metadata": { "namespace": "x", "name": "next", "uid": "next" },
        "spec": { "schedulerName": "phalanx", "containers": [{ "name": "c", "resources": limits }] },
    });
    play.see("next", next);
    play.after(0);
    let is_on = |play: &Play| play.pods["next"]["spec"]["nodeName"].as_str().map(str::to_owned);
    let mut waited_s = 0;
    while is_on(&play).is_none() {
        assert!(waited_s < 120, "{:?}", play.pods);
        play.after(1_000);
        waited_s += 1;
    }
    assert_eq!(is_on(&play).as_deref(), Some("b"));
    assert!(waited_s >= 10, "{waited_s} s");
}
