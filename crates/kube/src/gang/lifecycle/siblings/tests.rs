//! Lifecycle and engine together: pods whose owner makes no gang of them, and that require a topology.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::gang::constraints::tests::Play;

const ZONE: &str = "topology.kubernetes.io/zone";
const KUEUE: &str = "kueue.x-k8s.io/podset-required-topology";

/// A Job whose pods carry an annotation of its template.
fn job(play: &mut Play, parallelism: u32, completions: Option<u32>, annotations: &Value) {
    let template = json!({ "metadata": { "annotations": annotations }, "spec": spec() });
    play.object(&json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "namespace": "x", "name": "job", "uid": "u" },
        "spec": { "parallelism": parallelism, "completions": completions, "template": template },
    }));
}

/// Of which two fill a node.
fn spec() -> Value {
    json!({ "schedulerName": "phalanx",
        "containers": [{ "name": "c", "resources": { "requests": { "cpu": "4" } } }] })
}

fn pod(play: &mut Play, name: &str, owner: Option<(&str, &str)>, annotations: &Value) {
    let owners = owner.map(|(api_version, kind)| {
        json!([{ "apiVersion": api_version, "kind": kind, "name": kind.to_lowercase(), "uid": "u", "controller": true }])
    });
    let metadata = json!({ "namespace": "x", "name": name, "uid": name, "annotations": annotations,
        "ownerReferences": owners });
    play.see(name, json!({ "metadata": metadata, "spec": spec() }));
}

fn of_job(play: &mut Play, names: &[&str], annotations: &Value) {
    names.iter().for_each(|name| pod(play, name, Some(("batch/v1", "Job")), annotations));
}

fn zones(play: &Play) -> BTreeSet<&str> {
    let ours = play.bound.iter().filter(|(name, _)| !name.starts_with("fills"));
    ours.map(|(_, node)| &node[..1]).collect()
}

fn required(key: &str) -> Value {
    json!({ key: ZONE })
}

/// Four pods went into four racks, without a word.
#[test]
fn a_job_without_indices_that_requires_a_topology_starts_whole_in_one_domain() {
    for key in [KUEUE, "phalanx.dev/topology-required"] {
        for completions in [Some(3), None] {
            let mut play = Play::of(4);
            // Each zone has room for three more, on two nodes.
            ["a1", "b1"].iter().for_each(|node| play.fill(node, "4"));
            job(&mut play, 3, completions, &required(key));
            of_job(&mut play, &["p0", "p1"], &required(key));
            play.turn();
            assert!(play.bound.is_empty(), "{key}: {:?}", play.bound);
            of_job(&mut play, &["p2"], &required(key));
            play.turn();
            assert_eq!(
                (play.bound.len(), zones(&play).len()),
                (3, 1),
                "{key}: {:?} {:?}",
                play.bound,
                play.reasons
            );
        }
    }
}

#[test]
fn pods_that_run_by_turns_share_the_domain_with_room_for_as_many_as_run_at_once() {
    let mut play = Play::of(4);
    // The first zone has room for one, which is the tightest place for one alone.
    play.fill("a1", "4");
    play.fill("a2", "8");
    job(&mut play, 3, Some(9), &required(KUEUE));
    of_job(&mut play, &["p0", "p1", "p2"], &required(KUEUE));
    play.turn();
    assert_eq!((play.bound.len(), zones(&play)), (3, ["b"].into()), "{:?} {:?}", play.bound, play.reasons);
    // Those that come later go where the others are, or wait.
    of_job(&mut play, &["p3", "p4"], &required(KUEUE));
    play.turn();
    assert_eq!((play.bound.len(), zones(&play)), (4, ["b"].into()), "{:?}", play.bound);
    let why = play.reasons.get("p4").cloned().unwrap_or_default();
    assert!(why.contains("the zone of the other pods of Job x/job"), "{:?}", play.reasons);
    // When none of them is left, another domain may be the one.
    play.fill("b1", "8");
    play.fill("b2", "8");
    play.delete("fills-a2");
    ["p0", "p1", "p2", "p3"].iter().for_each(|name| play.delete(name));
    play.turn();
    assert_eq!(play.bound.get("p4").map(|node| &node[..1]), Some("a"), "{:?}", play.reasons);
}

/// Also after a restart: what is bound says where the others have to be.
#[test]
fn pods_of_any_owner_that_require_a_topology_share_a_domain() {
    let mut play = Play::listing(4);
    let owner = Some(("apps/v1", "ReplicaSet"));
    pod(&mut play, "w0", owner, &required(KUEUE));
    pod(&mut play, "w1", owner, &required(KUEUE));
    let mut bound = play.pods["w1"].clone();
    bound["spec"]["nodeName"] = json!("b1");
    bound["metadata"]["annotations"] = json!({ KUEUE: ZONE, "phalanx.dev/rank": "0", "phalanx.dev/devices": "-",
        "phalanx.dev/attempt": "1", "phalanx.dev/gang-size": "1" });
    bound["status"] = json!({ "phase": "Running" });
    play.see("w1", bound);
    pod(&mut play, "w2", owner, &required(KUEUE));
    // Without the annotation a pod goes anywhere.
    ["c0", "c1", "c2", "c3"].iter().for_each(|name| pod(&mut play, name, owner, &json!({})));
    play.turn();
    assert_eq!((&play.bound["w0"][..1], &play.bound["w2"][..1]), ("b", "b"), "{:?}", play.bound);
    assert_eq!(play.bound.len(), 6, "{:?}", play.reasons);
}

#[test]
fn what_a_single_pod_cannot_have_is_refused_with_the_field() {
    for (annotations, why) in [
        (
            json!({ "phalanx.dev/topology-required": "rak" }),
            "required topology: no level of this cluster is rak",
        ),
        (
            json!({ KUEUE: "example.com/rack" }),
            "required topology: no level of this cluster is label example.com/rack",
        ),
        (json!({ "phalanx.dev/segments": "2:zone" }), "phalanx.dev/segments wants 2 pods inside one zone"),
        (json!({ "phalanx.dev/queue": "no such" }), "queue \"no such\""),
    ] {
        let mut play = Play::of(2);
        pod(&mut play, "alone", None, &annotations);
        pod(&mut play, "of-a-set", Some(("apps/v1", "StatefulSet")), &annotations);
        job(&mut play, 1, Some(2), &annotations);
        pod(&mut play, "of-a-job", Some(("batch/v1", "Job")), &annotations);
        play.turn();
        assert!(play.bound.is_empty(), "{annotations}: {:?}", play.bound);
        for name in ["alone", "of-a-set", "of-a-job"] {
            let said = play.reasons.get(name).cloned().unwrap_or_default();
            assert!(said.contains(why), "{name}: {said}");
        }
    }
}
