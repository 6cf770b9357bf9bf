use serde_json::{Value, json};

use crate::gang::constraints::tests::Play;

const TPU: &str = "google.com/tpu";

fn node(play: &mut Play, name: &str, offers: &Value) {
    let mut allocatable = json!({ "cpu": "8", "memory": "64Gi", "pods": "110" });
    allocatable.as_object_mut().unwrap().extend(offers.as_object().unwrap().clone());
    play.node(json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "status": { "allocatable": allocatable, "capacity": allocatable } }));
}

fn pod(play: &mut Play, name: &str, gang: Option<u32>, requests: &Value) {
    let labels = gang.map(|size| {
        json!({ "pod-group.scheduling.sigs.k8s.io/name": &name[..name.len() - 2],
            "pod-group.scheduling.sigs.k8s.io/min-available": size.to_string() })
    });
    let spec = json!({ "schedulerName": "phalanx",
        "containers": [{ "name": "c", "resources": { "requests": requests, "limits": requests } }] });
    let metadata = json!({ "namespace": "x", "name": name, "uid": name, "labels": labels });
    play.see(name, json!({ "metadata": metadata, "spec": spec }));
}

/// Nearly all work without devices ran on TPU nodes, which are no devices to the engine.
#[test]
fn nodes_with_resources_that_a_pod_does_not_request_are_the_last_choice() {
    let mut play = Play::listing(0);
    node(&mut play, "a-tpu", &json!({ TPU: "4" }));
    node(&mut play, "b-gpu", &json!({ "nvidia.com/gpu": "4" }));
    node(&mut play, "c-plain", &json!({ "hugepages-2Mi": "1Gi" }));
    node(&mut play, "d-plain", &json!({}));
    node(&mut play, "e-nic", &json!({ "rdma/hca": "1", "cpu": "64" }));
    play.turn();
    let half = json!({ "cpu": "4" });
    ["web-0", "web-1"].iter().for_each(|name| pod(&mut play, name, None, &half));
    ["cpu-0", "cpu-1"].iter().for_each(|name| pod(&mut play, name, Some(2), &half));
    play.turn();
    assert_eq!(play.bound.len(), 4, "{:?}", play.reasons);
    assert!(play.bound.values().all(|node| node.ends_with("plain")), "{:?}", play.bound);
    // Those for which no room is left there go to the others; what asks for TPUs goes where they are.
    pod(&mut play, "late", None, &half);
    ["tpu-0", "tpu-1"]
        .iter()
        .for_each(|name| pod(&mut play, name, Some(2), &json!({ "cpu": "1", TPU: "2" })));
    ["mix-0"].iter().for_each(|name| pod(&mut play, name, Some(2), &json!({ "cpu": "1", "rdma/hca": "1" })));
    pod(&mut play, "mix-1", Some(2), &json!({ "cpu": "1" }));
    play.turn();
    assert_eq!(play.bound.len(), 9, "{:?}", play.reasons);
    assert_eq!((&*play.bound["tpu-0"], &*play.bound["tpu-1"]), ("a-tpu", "a-tpu"));
    assert_eq!(play.bound["mix-0"], "e-nic");
    // A node that comes without any is one of them.
    node(&mut play, "f-plain", &json!({}));
    play.turn();
    pod(&mut play, "later", None, &half);
    play.turn();
    assert_eq!(play.bound["later"], "f-plain");
}

#[test]
fn a_gang_that_fits_nowhere_else_takes_them_as_a_whole() {
    let mut play = Play::listing(0);
    node(&mut play, "a-tpu", &json!({ TPU: "4" }));
    node(&mut play, "b-plain", &json!({}));
    play.turn();
    (0..3).for_each(|at| pod(&mut play, &format!("cpu-{at}"), Some(3), &json!({ "cpu": "4" })));
    play.turn();
    assert_eq!(play.bound.len(), 3, "{:?}", play.reasons);
}

/// A gang for hosts has a node selector per pod: more than 16 different requests were refused.
#[test]
fn a_gang_has_a_node_selector_for_each_of_many_pods() {
    let mut play = Play::listing(0);
    (0..130).for_each(|at| node(&mut play, &format!("n{at}"), &json!({})));
    play.turn();
    let on_hosts = |play: &mut Play, gang: &str, count: usize| {
        for at in 0..count {
            let name = format!("{gang}-{at}");
            let labels = json!({ "pod-group.scheduling.sigs.k8s.io/name": gang,
                "pod-group.scheduling.sigs.k8s.io/min-available": count.to_string() });
            let spec = json!({ "schedulerName": "phalanx", "nodeSelector": { "kubernetes.io/hostname": format!("n{}", 129 - at) },
                "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] });
            let metadata = json!({ "namespace": "x", "name": name, "uid": name, "labels": labels });
            play.see(&name, json!({ "metadata": metadata, "spec": spec }));
        }
        play.turn();
    };
    on_hosts(&mut play, "hosts", 64);
    for at in 0..64 {
        assert_eq!(play.bound[&format!("hosts-{at}")], format!("n{}", 129 - at));
    }
    on_hosts(&mut play, "most", 128);
    assert_eq!(play.bound.len(), 64 + 128, "{:?}", play.reasons.get("most-0"));
    on_hosts(&mut play, "over", 129);
    assert!(!play.bound.contains_key("over-0"));
    assert!(play.reasons["over-0"].contains("at most 128 are possible"), "{:?}", play.reasons["over-0"]);
}
