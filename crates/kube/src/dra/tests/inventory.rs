use serde_json::{Value, json};

use super::*;

fn part(name: &str, generation: i64, of: i64, devices: Value) -> Value {
    let mut slice = slice(name, devices);
    slice["spec"]["pool"] = json!({"name": "n0", "generation": generation, "resourceSliceCount": of});
    slice
}

fn apply(inventory: &mut Inventory, slice: Value) {
    inventory.slice_applied(Arc::new(object(slice)));
}

fn free(inventory: &Inventory) -> Vec<String> {
    inventory.devices_of(&node("n0"), "gpu").unwrap().into_iter().map(|device| device.id.device).collect()
}

#[test]
fn only_a_complete_pool_of_the_newest_generation_counts() {
    let mut inventory = inventory(json!([gpu("old", "p")]));
    assert_eq!(free(&inventory), ["old"]);
    apply(&mut inventory, part("new-0", 2, 2, json!([gpu("a", "p")])));
    assert_eq!(free(&inventory), [""; 0]);
    let all = claim(
        "c",
        json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]}),
    );
    let why = refusal(allocate(&inventory, &[&all]));
    assert!(why.contains("the pool gpu.example.com/n0 cannot be used: it has 1 of 2 slices"), "{why}");
    apply(&mut inventory, part("new-1", 2, 2, json!([gpu("b", "p")])));
    assert_eq!(free(&inventory), ["a", "b"]);
    inventory.slice_deleted("s0");
    assert_eq!(free(&inventory), ["a", "b"]);
    inventory.slice_deleted("new-1");
    assert_eq!(free(&inventory), [""; 0]);
    inventory.slice_deleted("new-0");
    assert!(inventory.pools.is_empty() && inventory.pools_of("n0").is_empty());
}

#[test]
fn a_slice_that_moves_leaves_nothing_behind() {
    let mut inventory = inventory(json!([gpu("a", "p")]));
    let mut moved = slice("s0", json!([gpu("a", "p")]));
    moved["spec"]["nodeName"] = json!("n1");
    apply(&mut inventory, moved);
    assert_eq!(free(&inventory), [""; 0]);
    assert_eq!(inventory.devices_of(&node("n1"), "gpu").unwrap().len(), 1);
}

#[test]
fn an_unsound_pool_is_not_used() {
    let counters = json!([{"name": "set", "counters": {"memory": {"value": "40Gi"}}}]);
    let consuming = |set: &str, counter: &str| {
        let mut device = gpu("a", "p");
        device["consumesCounters"] = json!([{"counterSet": set, "counters": {counter: {"value": "1Gi"}}}]);
        device
    };
    let with_counters = |device: Value| {
        let mut inventory = Inventory::default();
        inventory.class_applied(Arc::new(object(json!({"metadata": {"name": "gpu"}, "spec": {}}))));
        let mut shared = part("counters", 1, 2, Value::Null);
        shared["spec"]["sharedCounters"] = counters.clone();
        apply(&mut inventory, shared);
        apply(&mut inventory, part("devices", 1, 2, json!([device])));
        free(&inventory)
    };
    assert_eq!(with_counters(consuming("set", "memory")), ["a"]);
    assert_eq!(with_counters(consuming("set", "none")), [""; 0]);
    assert_eq!(with_counters(consuming("none", "memory")), [""; 0]);
    assert_eq!(free(&inventory(json!([gpu("a", "p"), gpu("a", "p")]))), [""; 0]);
}

#[test]
fn devices_are_reached_by_name_by_selector_by_all_or_each_its_own_way() {
    let zone = |value: &str| json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [value]}]}]});
    let cases = [
        (json!({"allNodes": true}), true),
        (json!({"nodeSelector": zone("a")}), true),
        (json!({"nodeSelector": zone("b")}), false),
        (json!({"nodeName": "n1"}), false),
        (json!({}), false),
    ];
    for (how, expected) in cases {
        let mut slice = slice("s0", json!([gpu("a", "p")]));
        slice["spec"].as_object_mut().unwrap().remove("nodeName");
        for (key, value) in how.as_object().unwrap() {
            slice["spec"][key] = value.clone();
        }
        let mut inventory = inventory(json!([]));
        apply(&mut inventory, slice);
        assert_eq!(free(&inventory) == ["a"], expected, "{how}");

        let mut each = super::slice("s0", json!([gpu("always", "p"), gpu("a", "p")]));
        each["spec"].as_object_mut().unwrap().remove("nodeName");
        each["spec"]["perDeviceNodeSelection"] = json!(true);
        each["spec"]["devices"][0]["nodeName"] = json!("n0");
        for (key, value) in how.as_object().unwrap() {
            each["spec"]["devices"][1][key] = value.clone();
        }
        apply(&mut inventory, each);
        assert_eq!(free(&inventory).contains(&"a".to_owned()), expected, "{how}");
    }
}

#[test]
fn an_allocation_requires_what_its_devices_require_of_the_node() {
    let zone = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]});
    let mut slice = slice("s0", json!([gpu("a", "p"), gpu("b", "p")]));
    slice["spec"].as_object_mut().unwrap().remove("nodeName");
    slice["spec"]["nodeSelector"] = zone.clone();
    let mut inventory = inventory(json!([]));
    apply(&mut inventory, slice.clone());
    let result = allocate(&inventory, &[&claim_of("a", 2)]).unwrap();
    assert_eq!(serde_json::to_value(&result[0].node_selector).unwrap(), zone);

    slice["spec"].as_object_mut().unwrap().remove("nodeSelector");
    slice["spec"]["allNodes"] = json!(true);
    apply(&mut inventory, slice);
    assert_eq!(allocate(&inventory, &[&claim_of("a", 2)]).unwrap()[0].node_selector, None);
}

#[test]
fn what_a_claim_held_is_free_once_it_is_gone() {
    let mut inventory = inventory(gpus(2));
    let held = hold(&mut inventory, &claim_of("a", 2));
    assert!(allocate(&inventory, &[&claim_of("b", 1)]).is_err());
    // The same object again changes nothing; without its allocation it holds nothing.
    inventory.claim_applied(&held);
    inventory.claim_applied(&claim_of("a", 2));
    assert!(allocate(&inventory, &[&claim_of("b", 2)]).is_ok());
    inventory.claim_applied(&held);
    inventory.claim_deleted("default", "a");
    assert!(allocate(&inventory, &[&claim_of("b", 2)]).is_ok());
}

/// An old leader may have given a device to two claims: it is free when both are gone.
#[test]
fn a_device_that_two_claims_hold_is_free_after_both() {
    let mut inventory = inventory(gpus(1));
    let first = hold(&mut inventory, &claim_of("a", 1));
    let second = allocated(&claim_of("b", 1), first.status.as_ref().unwrap().allocation.as_ref().unwrap());
    inventory.claim_applied(&second);
    inventory.claim_deleted("default", "a");
    assert!(allocate(&inventory, &[&claim_of("c", 1)]).is_err());
    inventory.claim_deleted("default", "b");
    assert!(allocate(&inventory, &[&claim_of("c", 1)]).is_ok());
}
