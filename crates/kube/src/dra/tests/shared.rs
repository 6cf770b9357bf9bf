//! Partitions with shared counters, and devices that several claims share.

use serde_json::{Value, json};

use super::*;

/// A GPU of 40 GiB as a whole, and as partitions of a half and a quarter.
fn partitioned() -> Inventory {
    let part = |name: &str, memory: &str| {
        json!({
            "name": name, "attributes": {"profile": {"string": memory}},
            "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": memory}}}],
        })
    };
    let devices = json!([
        part("whole", "40Gi"),
        part("half-0", "20Gi"),
        part("half-1", "20Gi"),
        part("quarter-0", "10Gi"),
        part("quarter-1", "10Gi"),
    ]);
    let mut inventory = inventory(json!([]));
    let of_two = json!({"name": "n0", "generation": 1, "resourceSliceCount": 2});
    let mut counters = slice("counters", Value::Null);
    counters["spec"]["pool"] = of_two.clone();
    counters["spec"]["sharedCounters"] =
        json!([{"name": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}]);
    let mut slice = slice("s0", devices);
    slice["spec"]["pool"] = of_two;
    inventory.slice_applied(Arc::new(object(counters)));
    inventory.slice_applied(Arc::new(object(slice)));
    inventory
}

fn of_profile(name: &str, memory: &str, count: usize) -> ResourceClaim {
    let expression = format!("device.attributes['{DRIVER}'].profile == '{memory}'");
    claim(
        name,
        json!({"requests": [{"name": "r", "exactly": {
            "deviceClassName": "gpu", "count": count, "selectors": [{"cel": {"expression": expression}}],
        }}]}),
    )
}

#[test]
fn partitions_share_what_they_are_cut_from() {
    let mut inventory = partitioned();
    assert_eq!(names(&allocate(&inventory, &[&of_profile("a", "40Gi", 1)]).unwrap()[0]), ["whole"]);
    let held = hold(&mut inventory, &of_profile("a", "20Gi", 1));
    assert!(refusal(allocate(&inventory, &[&of_profile("b", "40Gi", 1)])).contains("1 without enough left"));
    assert!(allocate(&inventory, &[&of_profile("b", "20Gi", 1), &of_profile("c", "10Gi", 1)]).is_err());
    assert!(allocate(&inventory, &[&of_profile("c", "10Gi", 2)]).is_ok());
    inventory.claim_deleted("default", held.metadata.name.as_deref().unwrap());
    // Any two: the search has to leave the whole one alone.
    let any = claim_of("d", 3);
    assert_eq!(names(&allocate(&inventory, &[&any]).unwrap()[0]), ["half-0", "quarter-0", "quarter-1"]);
}

fn shared(capacity: Value) -> Inventory {
    inventory(json!([{"name": "gpu-0", "allowMultipleAllocations": true, "capacity": capacity}]))
}

fn wants(name: &str, capacity: Value) -> ResourceClaim {
    claim(
        name,
        json!({"requests": [{"name": "r", "exactly": {
            "deviceClassName": "gpu", "capacity": {"requests": capacity},
        }}]}),
    )
}

fn consumed(inventory: &Inventory, claim: &ResourceClaim) -> Option<Value> {
    let result = allocate(inventory, &[claim]).ok()?;
    let one = result[0].devices.as_ref()?.results.as_ref()?[0].clone();
    assert!(one.share_id.is_some());
    serde_json::to_value(one.consumed_capacity).ok()
}

#[test]
fn a_share_takes_what_the_policy_makes_of_the_request() {
    let range = json!({"default": "1Gi", "validRange": {"min": "2Gi", "max": "16Gi", "step": "2Gi"}});
    let values = json!({"default": "1Gi", "validValues": ["1Gi", "4Gi", "8Gi"]});
    let cases = [
        (Value::Null, json!({"memory": "5Gi"}), Some("5Gi")),
        (Value::Null, json!({}), Some("40Gi")),
        (range.clone(), json!({}), Some("1Gi")),
        (range.clone(), json!({"memory": "1Gi"}), Some("2Gi")),
        (range.clone(), json!({"memory": "3Gi"}), Some("4Gi")),
        (range.clone(), json!({"memory": "16Gi"}), Some("16Gi")),
        (range, json!({"memory": "17Gi"}), None),
        (values.clone(), json!({}), Some("1Gi")),
        (values.clone(), json!({"memory": "2Gi"}), Some("4Gi")),
        (values, json!({"memory": "9Gi"}), None),
        (json!({"default": "1Gi"}), json!({"memory": "7Gi"}), Some("7Gi")),
        (Value::Null, json!({"memory": "41Gi"}), None),
        (Value::Null, json!({"cores": "1"}), None),
    ];
    for (policy, request, expected) in cases {
        let mut capacity = json!({"value": "40Gi"});
        if !policy.is_null() {
            capacity["requestPolicy"] = policy.clone();
        }
        let inventory = shared(json!({"memory": capacity}));
        let expected = expected.map(|memory| json!({"memory": memory}));
        assert_eq!(consumed(&inventory, &wants("a", request.clone())), expected, "{policy} {request}");
    }
}

#[test]
fn shares_fit_together_or_not_at_all() {
    let mut inventory = shared(json!({"memory": {"value": "40Gi"}}));
    let wants = |name: &str, memory: &str| wants(name, json!({"memory": memory}));
    hold(&mut inventory, &wants("a", "30Gi"));
    assert!(allocate(&inventory, &[&wants("b", "11Gi")]).is_err());
    assert!(allocate(&inventory, &[&wants("b", "6Gi"), &wants("c", "5Gi")]).is_err());
    assert!(allocate(&inventory, &[&wants("b", "5Gi"), &wants("c", "5Gi")]).is_ok());
    inventory.claim_deleted("default", "a");
    assert!(allocate(&inventory, &[&wants("b", "40Gi")]).is_ok());
    // One request has a device once, however much of it is left.
    let twice = claim(
        "t",
        json!({"requests": [{"name": "r", "exactly": {
            "deviceClassName": "gpu", "count": 2, "capacity": {"requests": {"memory": "1Gi"}},
        }}]}),
    );
    assert!(allocate(&inventory, &[&twice]).is_err());
}

/// A device that nobody shares also has to be as large as was asked.
#[test]
fn a_whole_device_has_to_be_large_enough() {
    let inventory = inventory(gpus(1));
    assert!(allocate(&inventory, &[&wants("a", json!({"memory": "41Gi"}))]).is_err());
    let result = allocate(&inventory, &[&wants("a", json!({"memory": "10Gi"}))]).unwrap();
    let one = &result[0].devices.as_ref().unwrap().results.as_ref().unwrap()[0];
    assert_eq!((&one.share_id, &one.consumed_capacity), (&None, &None));
}
