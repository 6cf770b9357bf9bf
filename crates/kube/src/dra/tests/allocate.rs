use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::{Value, json};

use super::*;
use crate::dra::{Binding, binding, is_reached_by};

fn requests(requests: Value) -> ResourceClaim {
    claim("c", json!({"requests": requests}))
}

fn exactly(name: &str, more: Value) -> Value {
    let mut exactly = json!({"deviceClassName": "gpu"});
    for (key, value) in more.as_object().unwrap() {
        exactly[key] = value.clone();
    }
    json!({"name": name, "exactly": exactly})
}

fn select(expression: &str) -> Value {
    json!({"selectors": [{"cel": {"expression": expression}}]})
}

#[test]
fn as_many_devices_as_asked_in_order_and_for_this_node() {
    let inventory = inventory(gpus(8));
    let results = allocate(&inventory, &[&claim_of("a", 2), &claim_of("b", 1)]).unwrap();
    assert_eq!(names(&results[0]), ["gpu-0", "gpu-1"]);
    assert_eq!(names(&results[1]), ["gpu-2"]);
    let selector = serde_json::to_value(&results[0].node_selector).unwrap();
    let name = json!({"key": "metadata.name", "operator": "In", "values": ["n0"]});
    assert_eq!(selector, json!({"nodeSelectorTerms": [{"matchFields": [name]}]}));
    assert!(
        refusal(allocate_on(&inventory, &[&claim_of("a", 1)], &node("n1"))).contains("wants 1 of 0 matching")
    );

    let held = allocated(&claim_of("a", 2), &results[0]);
    assert!(is_reached_by(&held, &node("n0")) && !is_reached_by(&held, &node("n1")));
}

#[test]
fn the_devices_that_the_placement_chose_are_taken() {
    let inventory = inventory(gpus(8));
    let chosen = ["gpu-2", "gpu-5", "gpu-7"];
    let prefer = |id: &crate::dra::DeviceId| chosen.contains(&id.device.as_str());
    let one = claim_of("a", 3);
    let got = inventory.allocate(&[&one], &node("n0"), &prefer, &mut String::new, TRIED_MAX).unwrap();
    assert_eq!(names(&got[0]), chosen);
    // One that was chosen cannot be had: the rest are still the chosen ones.
    let four = requests(json!([exactly(
        "r",
        json!({"count": 3, "selectors": [{"cel": {"expression":
        "device.attributes['gpu.example.com'].uuid != 'GPU-gpu-5'"}}]})
    )]));
    let got = inventory.allocate(&[&four], &node("n0"), &prefer, &mut String::new, TRIED_MAX).unwrap();
    assert_eq!(names(&got[0]), ["gpu-2", "gpu-7", "gpu-0"]);
}

#[test]
fn all_devices_are_all_that_match_or_none() {
    let mut inventory = inventory(gpus(8));
    let all = requests(json!([exactly(
        "r",
        json!({"allocationMode": "All", "selectors": [{"cel": {"expression":
        "device.attributes['resource.kubernetes.io'].pcieRoot == 'pci1'"}}]})
    )]));
    assert_eq!(names(&allocate(&inventory, &[&all]).unwrap()[0]), ["gpu-4", "gpu-5", "gpu-6", "gpu-7"]);
    hold(&mut inventory, &claim_of("a", 4));
    assert!(allocate(&inventory, &[&all]).is_ok());
    hold(&mut inventory, &claim_of("b", 1));
    assert!(refusal(allocate(&inventory, &[&all])).contains("wants all of 4 matching devices, 1 taken"));
    let none = requests(json!([exactly(
        "r",
        json!({"allocationMode": "All", "selectors": [{"cel": {"expression": "false"}}]})
    )]));
    assert!(matches!(allocate(&inventory, &[&none]), Err(Unallocatable::Short(_))));
}

#[test]
fn the_first_alternative_that_can_be_had_is_taken() {
    let mut inventory = inventory(gpus(4));
    let one = claim(
        "c",
        json!({
            "requests": [
                {"name": "r", "firstAvailable": [
                    {"name": "big", "deviceClassName": "gpu", "count": 4},
                    {"name": "small", "deviceClassName": "gpu", "count": 2},
                ]},
            ],
            "config": [
                {"requests": ["r/small"], "opaque": {"driver": "d", "parameters": {"of": "small"}}},
                {"requests": ["r/big"], "opaque": {"driver": "d", "parameters": {"of": "big"}}},
            ],
        }),
    );
    assert_eq!(devices(&allocate(&inventory, &[&one]).unwrap()[0])["r/big"].len(), 4);
    hold(&mut inventory, &claim_of("a", 1));
    let result = &allocate(&inventory, &[&one]).unwrap()[0];
    assert_eq!(devices(result)["r/small"], ["gpu-1", "gpu-2"]);
    let config = serde_json::to_value(&result.devices.as_ref().unwrap().config).unwrap();
    let expected = json!([{"requests": ["r/small"], "source": "FromClaim", "opaque": {"driver": "d", "parameters": {"of": "small"}}}]);
    assert_eq!(config, expected);
}

/// Serving the first request with its first alternative leaves too little for the second.
#[test]
fn an_alternative_gives_way_to_what_comes_behind() {
    let inventory = inventory(gpus(4));
    let one = requests(json!([
        {"name": "r", "firstAvailable": [
            {"name": "big", "deviceClassName": "gpu", "count": 3},
            {"name": "small", "deviceClassName": "gpu", "count": 1},
        ]},
        exactly("s", json!({"count": 2})),
    ]));
    let got = devices(&allocate(&inventory, &[&one]).unwrap()[0]);
    assert_eq!((got["r/small"].len(), got["s"].len()), (1, 2));
}

#[test]
fn attributes_must_match_across_requests() {
    let mut inventory = inventory(gpus(8));
    let on_one_root = |count: usize| {
        claim(
            "c",
            json!({
                "requests": [exactly("a", json!({"count": count})), exactly("b", json!({}))],
                "constraints": [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}],
            }),
        )
    };
    hold(&mut inventory, &claim_of("x", 1));
    assert_eq!(
        names(&allocate(&inventory, &[&on_one_root(3)]).unwrap()[0]),
        ["gpu-4", "gpu-5", "gpu-6", "gpu-7"]
    );
    let why = refusal(allocate(&inventory, &[&on_one_root(4)]));
    assert!(why.contains("no choice of devices satisfies all requests and constraints together"), "{why}");
    // A constraint of the driver's own attribute may be written without or with its domain in the slice.
    let own = claim(
        "c",
        json!({
            "requests": [exactly("a", json!({"count": 2}))],
            "constraints": [{"requests": ["a"], "matchAttribute": format!("{DRIVER}/productName")}],
        }),
    );
    assert!(allocate(&inventory, &[&own]).is_ok());
    let absent = claim(
        "c",
        json!({
            "requests": [exactly("a", json!({}))], "constraints": [{"matchAttribute": format!("{DRIVER}/absent")}],
        }),
    );
    assert!(allocate(&inventory, &[&absent]).is_err());
}

#[test]
fn attributes_must_differ_also_within_a_request() {
    let inventory = inventory(gpus(8));
    let apart = |count: usize| {
        claim(
            "c",
            json!({
                "requests": [exactly("a", json!({"count": count}))],
                "constraints": [{"requests": ["a"], "distinctAttribute": "resource.kubernetes.io/pcieRoot"}],
            }),
        )
    };
    assert_eq!(names(&allocate(&inventory, &[&apart(2)]).unwrap()[0]), ["gpu-0", "gpu-4"]);
    assert!(allocate(&inventory, &[&apart(3)]).is_err());
}

#[test]
fn a_constraint_on_one_alternative_holds_for_it_alone() {
    let inventory = inventory(gpus(8));
    let one = claim(
        "c",
        json!({
            "requests": [{"name": "r", "firstAvailable": [
                {"name": "five", "deviceClassName": "gpu", "count": 5},
                {"name": "six", "deviceClassName": "gpu", "count": 6},
            ]}],
            "constraints": [{"requests": ["r/five"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}],
        }),
    );
    assert_eq!(devices(&allocate(&inventory, &[&one]).unwrap()[0])["r/six"].len(), 6);
}

#[test]
fn taints_keep_claims_away_that_do_not_tolerate_them() {
    let mut tainted = gpu("gpu-0", "pci0");
    tainted["taints"] = json!([{"key": "xid", "value": "79", "effect": "NoSchedule"}]);
    let mut noted = gpu("gpu-1", "pci0");
    noted["taints"] = json!([{"key": "xid", "effect": "None"}]);
    let mut inventory = inventory(json!([tainted, noted]));
    let tolerating =
        |toleration: Value| requests(json!([exactly("r", json!({"count": 2, "tolerations": [toleration]}))]));
    let cases = [
        (json!({"key": "xid", "operator": "Exists"}), true),
        (json!({"key": "xid", "operator": "Equal", "value": "79", "effect": "NoSchedule"}), true),
        (json!({"operator": "Exists"}), true),
        (json!({"key": "xid", "operator": "Equal", "value": "31"}), false),
        (json!({"key": "other", "operator": "Exists"}), false),
        (json!({"key": "xid", "operator": "Exists", "effect": "NoExecute"}), false),
    ];
    for (toleration, expected) in cases {
        assert_eq!(
            allocate(&inventory, &[&tolerating(toleration.clone())]).is_ok(),
            expected,
            "{toleration}"
        );
    }
    assert_eq!(names(&allocate(&inventory, &[&claim_of("a", 1)]).unwrap()[0]), ["gpu-1"]);
    assert!(refusal(allocate(&inventory, &[&claim_of("a", 2)])).contains("1 tainted"));

    let rule = |selector: Value| {
        object(json!({
            "metadata": {"name": "rule"},
            "spec": {"deviceSelector": selector, "taint": {"key": "broken", "effect": "NoExecute"}},
        }))
    };
    inventory.rule_applied(rule(json!({"driver": DRIVER, "pool": "n0", "device": "gpu-1"})));
    assert!(allocate(&inventory, &[&claim_of("a", 1)]).is_err());
    inventory.rule_applied(rule(json!({"driver": DRIVER, "device": "gpu-7"})));
    assert!(allocate(&inventory, &[&claim_of("a", 1)]).is_ok());
    inventory.rule_applied(rule(json!({})));
    assert!(allocate(&inventory, &[&claim_of("a", 1)]).is_err());
    inventory.rule_applied(rule(Value::Null));
    assert!(allocate(&inventory, &[&claim_of("a", 1)]).is_ok());
    inventory.rule_applied(rule(json!({})));
    inventory.rule_deleted("rule");
    assert!(allocate(&inventory, &[&claim_of("a", 1)]).is_ok());
    // The toleration goes with the result: whoever evicts needs to know.
    let tolerated =
        allocate(&inventory, &[&tolerating(json!({"key": "xid", "operator": "Exists"}))]).unwrap();
    assert!(tolerated[0].devices.as_ref().unwrap().results.as_ref().unwrap()[0].tolerations.is_some());
}

#[test]
fn admin_access_needs_the_label_and_takes_nothing() {
    let mut inventory = inventory(gpus(2));
    let admin = requests(json!([exactly("r", json!({"allocationMode": "All", "adminAccess": true}))]));
    let why = refusal(allocate(&inventory, &[&admin]));
    assert!(why.contains("resource.kubernetes.io/admin-access=true on the namespace default"), "{why}");
    let label =
        |value: &str| BTreeMap::from([("resource.kubernetes.io/admin-access".to_owned(), value.to_owned())]);
    inventory.namespace_applied("default", &label("false"));
    assert!(allocate(&inventory, &[&admin]).is_err());
    inventory.namespace_applied("default", &label("true"));
    hold(&mut inventory, &claim_of("a", 1));
    let watching = hold(&mut inventory, &admin);
    let results = watching.status.as_ref().unwrap().allocation.as_ref().unwrap().devices.as_ref().unwrap();
    assert_eq!(results.results.as_ref().unwrap().len(), 2);
    assert!(results.results.iter().flatten().all(|one| one.admin_access == Some(true)));
    assert_eq!(names(&allocate(&inventory, &[&claim_of("b", 1)]).unwrap()[0]), ["gpu-1"]);
    // Neither for those that are allocated beside it at once.
    assert!(allocate(&inventory, &[&admin, &claim_of("b", 1)]).is_ok());
    inventory.namespace_deleted("default");
    assert!(allocate(&inventory, &[&admin]).is_err());
}

#[test]
fn configuration_is_of_classes_first_and_once() {
    let mut inventory = inventory(gpus(4));
    inventory.class_applied(Arc::new(object(json!({
        "metadata": {"name": "gpu"},
        "spec": {"config": [{"opaque": {"driver": "d", "parameters": {"of": "class"}}}]},
    }))));
    let one = claim(
        "c",
        json!({
            "requests": [exactly("a", json!({})), exactly("b", json!({}))],
            "config": [
                {"opaque": {"driver": "d", "parameters": {"of": "all"}}},
                {"requests": ["b", "a"], "opaque": {"driver": "d", "parameters": {"of": "both"}}},
            ],
        }),
    );
    let result = &allocate(&inventory, &[&one]).unwrap()[0];
    let opaque = |of: &str| json!({"driver": "d", "parameters": {"of": of}});
    let expected = json!([
        {"source": "FromClass", "requests": ["a", "b"], "opaque": opaque("class")},
        {"source": "FromClaim", "opaque": opaque("all")},
        {"source": "FromClaim", "requests": ["b", "a"], "opaque": opaque("both")},
    ]);
    assert_eq!(serde_json::to_value(&result.devices.as_ref().unwrap().config).unwrap(), expected);
}

#[test]
fn what_cannot_be_understood_names_the_field() {
    let inventory = inventory(gpus(40));
    let cases = [
        (
            requests(json!([{"name": "r", "exactly": {"deviceClassName": "none"}}])),
            "claim default/c, spec.devices.requests[0].exactly.deviceClassName: there is no device class `none`",
        ),
        (
            requests(json!([exactly("r", select("device.driver =="))])),
            "claim default/c, spec.devices.requests[0].exactly.selectors[0].cel.expression: ",
        ),
        (
            requests(json!([exactly("r", select("device.attributes['gpu.example.com'].nothing == 1"))])),
            "spec.devices.requests[0].exactly.selectors[0].cel.expression: ",
        ),
        (
            requests(
                json!([{"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "gpu", "count": 33}]}]),
            ),
            "spec.devices.requests[0].firstAvailable[0].count: 33 devices are asked for, a claim can have 1 to 32",
        ),
        (
            requests(json!([exactly("r", json!({"allocationMode": "Some"}))])),
            "allocationMode: unknown mode `Some`",
        ),
        (
            requests(json!([{"name": "r"}])),
            "spec.devices.requests[0]: give either `exactly` or `firstAvailable`",
        ),
        (
            requests(json!([exactly("r", json!({"capacity": {"requests": {"memory": "ten"}}}))])),
            "capacity.requests[memory]",
        ),
        (
            claim("c", json!({"requests": [], "constraints": [{}]})),
            "spec.devices.constraints[0]: an empty constraint",
        ),
    ];
    for (claim, expected) in cases {
        let why = refusal(allocate(&inventory, &[&claim]));
        assert!(why.contains(expected), "{why}\nshould say: {expected}");
    }
}

#[test]
fn at_most_thirty_two_devices_of_a_claim() {
    let inventory = inventory(gpus(40));
    let two = |first: usize| {
        requests(json!([exactly("a", json!({"count": first})), exactly("b", json!({"count": 16}))]))
    };
    assert_eq!(names(&allocate(&inventory, &[&two(16)]).unwrap()[0]).len(), 32);
    assert!(allocate(&inventory, &[&two(17)]).is_err());
    assert!(
        allocate(&inventory, &[&requests(json!([exactly("a", json!({"allocationMode": "All"}))]))]).is_err()
    );
    // The limit is of one claim.
    assert!(allocate(&inventory, &[&claim_of("a", 20), &claim_of("b", 20)]).is_ok());
}

#[test]
fn a_search_that_ends_early_says_so() {
    let devices: Value = (0..20).map(|at| gpu(&format!("gpu-{at}"), &format!("pci{at}"))).collect();
    let inventory = inventory(devices);
    let hard = claim(
        "c",
        json!({
            "requests": [exactly("a", json!({"count": 10})), exactly("b", json!({}))],
            "constraints": [
                {"requests": ["a"], "distinctAttribute": "resource.kubernetes.io/pcieRoot"},
                {"matchAttribute": format!("{DRIVER}/type")},
                {"requests": ["b"], "matchAttribute": format!("{DRIVER}/absent")},
            ],
        }),
    );
    let got = inventory.allocate(&[&hard], &node("n0"), &|_| false, &mut String::new, 1000);
    assert_eq!(got, Err(Unallocatable::BudgetExhausted { tried: 1000 }));
}

#[test]
fn a_claim_waits_for_the_conditions_of_its_devices() {
    let mut attached = gpu("gpu-0", "pci0");
    attached["bindsToNode"] = json!(true);
    attached["bindingConditions"] = json!(["attached"]);
    attached["bindingFailureConditions"] = json!(["failed"]);
    let mut inventory = inventory(json!([attached]));
    let mut claim = hold(&mut inventory, &claim_of("a", 1));
    assert_eq!(binding(&claim), Binding::Waiting(vec![format!("{DRIVER}/n0/gpu-0: attached")]));
    let mut set = |conditions: &[&str]| {
        let conditions: Vec<Value> = conditions.iter().map(|one| json!({
            "type": one, "status": "True", "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })).collect();
        let device = json!({"driver": DRIVER, "pool": "n0", "device": "gpu-0", "conditions": conditions});
        claim.status.as_mut().unwrap().devices = Some(vec![object(device)]);
        binding(&claim)
    };
    assert_eq!(set(&["attached"]), Binding::Ready);
    assert!(matches!(set(&["attached", "failed"]), Binding::Failed(_)));
}
