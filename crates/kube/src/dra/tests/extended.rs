use serde_json::{Value, json};

use super::*;
use crate::api::Pod;
use crate::dra::{ExtendedAsk, ExtendedClaim, extended_prefix, is_extended};

fn with_classes(classes: &[(&str, Option<&str>, &str)]) -> Inventory {
    let mut inventory = inventory(gpus(8));
    for (name, resource, created) in classes {
        let class = json!({
            "metadata": {"name": name, "creationTimestamp": created}, "spec": {"extendedResourceName": resource},
        });
        inventory.class_applied(Arc::new(object(class)));
    }
    inventory
}

fn container(name: &str, requests: Value) -> Value {
    json!({"name": name, "resources": {"requests": requests}})
}

fn pod(init: Value, containers: Value) -> Pod {
    object(json!({
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"initContainers": init, "containers": containers},
    }))
}

fn made(inventory: &Inventory, pod: &Pod, node: &Node) -> Option<ExtendedClaim> {
    ExtendedAsk::of(&pod.spec)?.claim(inventory, node).unwrap()
}

fn counts(claim: &ExtendedClaim) -> Vec<(String, String, i64)> {
    let requests = claim.spec.devices.as_ref().unwrap().requests.as_ref().unwrap();
    requests
        .iter()
        .map(|one| {
            let exactly = one.exactly.as_ref().unwrap();
            (one.name.clone(), exactly.device_class_name.clone(), exactly.count.unwrap())
        })
        .collect()
}

#[test]
fn the_newest_class_stands_for_a_resource() {
    let resource = Some("nvidia.com/gpu");
    let inventory = with_classes(&[
        ("b", resource, "2026-02-01T00:00:00Z"),
        ("a", resource, "2026-02-01T00:00:00Z"),
        ("z", resource, "2026-01-01T00:00:00Z"),
        ("plain", None, "2026-03-01T00:00:00Z"),
    ]);
    assert_eq!(inventory.class_of_resource("nvidia.com/gpu"), Some("a"));
    assert_eq!(inventory.class_of_resource("deviceclass.resource.kubernetes.io/plain"), Some("plain"));
    assert_eq!(inventory.class_of_resource("deviceclass.resource.kubernetes.io/none"), None);
    assert_eq!(inventory.class_of_resource("cpu"), None);
}

#[test]
fn a_pod_that_asks_for_gpus_gets_a_claim_that_can_be_allocated() {
    let inventory = with_classes(&[("gpu", Some("nvidia.com/gpu"), "2026-01-01T00:00:00Z")]);
    let pod = pod(
        json!([]),
        json!([
            container("a", json!({"cpu": "1", "nvidia.com/gpu": "2"})),
            container("b", json!({"cpu": "1"})),
            container("c", json!({"nvidia.com/gpu": "1"})),
        ]),
    );
    let made = made(&inventory, &pod, &node("n0")).unwrap();
    let expected = [("container-0-request-1", 2), ("container-2-request-0", 1)];
    assert_eq!(counts(&made), expected.map(|(name, count)| (name.to_owned(), "gpu".to_owned(), count)));
    let claim = made.made_for("default", "p", "u", "p-extended-resources-1");
    assert!(is_extended(&claim));
    let metadata = serde_json::to_value(&claim.metadata).unwrap();
    assert_eq!(
        metadata,
        json!({
            "namespace": "default", "name": "p-extended-resources-1", "generateName": "p-extended-resources-",
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}],
        })
    );
    let status = serde_json::to_value(made.status("p-x")).unwrap();
    assert_eq!(
        status,
        json!({"resourceClaimName": "p-x", "requestMappings": [
            {"containerName": "a", "resourceName": "nvidia.com/gpu", "requestName": "container-0-request-1"},
            {"containerName": "c", "resourceName": "nvidia.com/gpu", "requestName": "container-2-request-0"},
        ]})
    );
    assert_eq!(names(&allocate(&inventory, &[&claim]).unwrap()[0]).len(), 3);
}

#[test]
fn a_device_plugin_serves_where_there_is_one() {
    let inventory = with_classes(&[("gpu", Some("nvidia.com/gpu"), "2026-01-01T00:00:00Z")]);
    let pod = pod(json!([]), json!([container("a", json!({"nvidia.com/gpu": "2"}))]));
    let mut node = node("n0");
    for (amount, is_claimed) in [("8", false), ("0", true)] {
        node.status.allocatable = BTreeMap::from([("nvidia.com/gpu".to_owned(), object(json!(amount)))]);
        assert_eq!(made(&inventory, &pod, &node).is_some(), is_claimed, "{amount}");
    }
    let other =
        super::extended::pod(json!([]), json!([container("a", json!({"cpu": "2", "amd.com/gpu": "1"}))]));
    let why = ExtendedAsk::of(&other.spec).unwrap().claim(&inventory, &node).unwrap_err();
    assert_eq!(why, "no device plugin offers amd.com/gpu, and no device class stands for it");
}

#[test]
fn only_resources_of_device_plugins_and_classes_are_asked_for() {
    let of = |requests: Value| ExtendedAsk::of(&pod(json!([]), json!([container("a", requests)])).spec);
    for name in ["cpu", "hugepages-2Mi", "requests.a/b", "node.kubernetes.io/x"] {
        assert_eq!(of(json!({ name: "2" })), None, "{name}");
    }
    assert_eq!(of(json!({"nvidia.com/gpu": "0"})), None);
    let asked = of(json!({"nvidia.com/gpu": "2", "deviceclass.resource.kubernetes.io/x": "1"})).unwrap();
    let totals = [("deviceclass.resource.kubernetes.io/x", 1), ("nvidia.com/gpu", 2)];
    assert_eq!(asked.totals(), BTreeMap::from(totals));
}

#[test]
fn the_name_of_a_claim_leaves_room_for_its_number() {
    assert_eq!(extended_prefix("p"), "p-extended-resources-");
    assert_eq!(extended_prefix(&"p".repeat(200)).len(), 52);
}

/// An init container uses the devices of those behind it; what two need beyond is asked for once, as the larger.
#[test]
fn init_containers_share_what_they_need_beyond_the_others() {
    let inventory = with_classes(&[("gpu", Some("nvidia.com/gpu"), "2026-01-01T00:00:00Z")]);
    let gpus = |count: u32| json!({"nvidia.com/gpu": count.to_string()});
    let mut sidecar = container("sidecar", gpus(1));
    sidecar["restartPolicy"] = json!("Always");
    let pod = pod(
        json!([container("first", gpus(3)), sidecar, container("second", gpus(5))]),
        json!([container("main", gpus(1))]),
    );
    let made = made(&inventory, &pod, &node("n0")).unwrap();
    let counts: Vec<(String, i64)> =
        counts(&made).into_iter().map(|(name, _, count)| (name, count)).collect();
    let name = |at: usize| format!("container-{at}-request-0");
    assert_eq!(counts, [(name(1), 1), (name(2), 4), (name(3), 1)]);
    let amounts = crate::filter::Requirements::of(&pod).unwrap().amounts.extended;
    let asked = ExtendedAsk::of(&pod.spec).unwrap();
    assert_eq!(asked.totals()["nvidia.com/gpu"], amounts["nvidia.com/gpu"], "as a pod is counted");
    let mappings: Vec<(&str, &str)> =
        made.mappings.iter().map(|one| (one.container_name.as_str(), one.request_name.as_str())).collect();
    assert_eq!(
        mappings,
        [
            ("sidecar", "container-1-request-0"),
            ("main", "container-3-request-0"),
            ("first", "container-1-request-0"),
            ("first", "container-3-request-0"),
            ("first", "container-2-request-0"),
            ("second", "container-3-request-0"),
            ("second", "container-2-request-0"),
        ]
    );
}
