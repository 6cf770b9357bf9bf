use serde_json::{Value, json};

use super::{amount, bytes};
use crate::gang::constraints::tests::Play;

const GPU: &str = "nvidia.com/gpu";
const TPU: &str = "google.com/tpu";

#[test]
fn amounts_are_written_as_people_write_them() {
    let gib = 1 << 30;
    assert_eq!((bytes(1124 * gib, true), bytes(256 * gib, false)), ("1124 GiB".into(), "256 GiB".into()));
    assert_eq!((bytes(gib + 1, true), bytes(gib + 1, false)), ("1.1 GiB".into(), "1 GiB".into()));
    assert_eq!((bytes(2 * gib - 1, true), bytes(5 << 20, true)), ("2 GiB".into(), "5 MiB".into()));
    assert_eq!((amount("cpu", 1500, true), amount(TPU, 4, true)), ("1.5".into(), "4".into()));
}

fn gang(play: &mut Play, name: &str, each: &[Value]) {
    for (at, spec) in each.iter().enumerate() {
        let labels = json!({ "pod-group.scheduling.sigs.k8s.io/name": name,
            "pod-group.scheduling.sigs.k8s.io/min-available": each.len().to_string() });
        let pod = format!("{name}-{at}");
        let metadata = json!({ "namespace": "x", "name": pod, "uid": pod, "labels": labels });
        play.see(&pod, json!({ "metadata": metadata, "spec": spec }));
    }
}

fn asking(requests: &Value) -> Value {
    json!({ "schedulerName": "phalanx",
        "containers": [{ "name": "c", "resources": { "requests": requests, "limits": requests } }] })
}

fn node(play: &mut Play, name: &str, offers: &Value) {
    let mut allocatable = json!({ "cpu": "96", "memory": "256Gi", "pods": "110" });
    allocatable.as_object_mut().unwrap().extend(offers.as_object().unwrap().clone());
    play.node(json!({ "metadata": { "name": name, "labels": { "kind": name } },
        "status": { "allocatable": allocatable, "capacity": allocatable } }));
}

/// They heard "room for 0 in the whole cluster", with no field and no amount.
#[test]
fn a_gang_that_can_never_fit_hears_which_resource_is_short_and_what_the_largest_node_has() {
    let mut play = Play::listing(0);
    node(&mut play, "gpus", &json!({ GPU: "8" }));
    node(&mut play, "plain", &json!({ "memory": "64Gi" }));
    play.turn();
    let leader = asking(&json!({ "cpu": "1" }));
    for (name, each, why) in [
        (
            "vllm",
            vec![asking(&json!({ GPU: "8", "memory": "1124Gi" })); 2],
            "memory: 1124 GiB requested, the largest node has 256 GiB",
        ),
        (
            "many",
            vec![asking(&json!({ GPU: "16", "cpu": "100500m" })); 2],
            "cpu: 100.5 requested, the largest node has 96, nvidia.com/gpu: 16 requested, the largest node has 8",
        ),
        ("tpus", vec![asking(&json!({ TPU: "4" })); 2], "google.com/tpu: 4 requested, no node has any"),
        ("ray", vec![leader, asking(&json!({ TPU: "4" }))], "google.com/tpu: 4 requested, no node has any"),
        (
            "picky",
            vec![
                json!({ "schedulerName": "phalanx", "nodeSelector": { "kind": "other" },
                    "containers": [{ "name": "c" }] });
                2
            ],
            "0 of 2 nodes may have such a pod: 2 node(s) didn't match Pod's node affinity/selector",
        ),
        (
            "narrow",
            vec![
                json!({ "schedulerName": "phalanx", "nodeSelector": { "kind": "plain" },
                    "containers": [{ "name": "c", "resources": { "requests": { "memory": "65Gi" } } }] });
                2
            ],
            "memory: 65 GiB requested, the largest node that may have it has 64 GiB",
        ),
    ] {
        gang(&mut play, name, &each);
        play.turn();
        let said = play.reasons.get(&format!("{name}-0")).cloned().unwrap_or_default();
        assert!(said.contains(why), "{name}: {said}");
        // Autoscalers look at this word.
        assert_eq!(play.words[&format!("{name}-0")], "Unschedulable", "{said}");
    }
    // One that fits node by node hears how many fit.
    gang(&mut play, "three", &vec![asking(&json!({ GPU: "8" })); 3]);
    play.turn();
    let said = &play.reasons["three-0"];
    assert!(!said.contains("requested") && said.contains('1'), "{said}");
    // Nodes with enough of it come.
    for at in 0..3 {
        node(&mut play, &format!("tpus-{at}"), &json!({ TPU: "4" }));
    }
    play.turn();
    assert!(play.bound.contains_key("tpus-0") && play.bound.contains_key("tpus-1"), "{:?}", play.reasons);
}

/// The nodes were there when it was handed in.
#[test]
fn a_gang_whose_nodes_are_gone_hears_what_is_short_too() {
    let mut play = Play::listing(0);
    node(&mut play, "gpus", &json!({ GPU: "8" }));
    play.turn();
    gang(&mut play, "two", &vec![asking(&json!({ GPU: "4", "memory": "100Gi" })); 2]);
    gang(&mut play, "waits", &vec![asking(&json!({ GPU: "4", "memory": "100Gi" })); 2]);
    play.turn();
    let gpus = json!({ "cpu": "96", "memory": "64Gi", "pods": "110", GPU: "8" });
    play.node(json!({ "metadata": { "name": "gpus", "labels": { "kind": "gpus" } },
        "status": { "allocatable": gpus, "capacity": gpus } }));
    play.turn();
    let waiting = if play.bound.contains_key("two-0") { "waits-0" } else { "two-0" };
    let said = &play.reasons[waiting];
    assert!(said.contains("memory: 100 GiB requested, the largest node has 64 GiB"), "{said}");
}
