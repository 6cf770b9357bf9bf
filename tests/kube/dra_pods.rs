//! Each sort of claim once through the scheduler that runs: which devices it writes, and whom it keeps waiting.

use phalanx_controlplane::Fleet;
use serde_json::{Value, json};

use crate::dra_gangs::{CLAIMS, TEMPLATES, claims, job_of, pod_of};
use crate::support::{Cluster, JOBS, PODS};

const RESOURCE: &str = "/apis/resource.k8s.io/v1";

fn driver(case: usize) -> String {
    format!("d{case}.example.com")
}

/// A node with devices of a driver and a class of its own, so that no case meets another. `counters` are shared by them.
fn publish(cluster: &Cluster, case: usize, devices: &Value, counters: Option<&Value>) {
    let name = Fleet::name(case);
    cluster.create("/api/v1/nodes", &Fleet { gpus: 0, ..Fleet::new(case + 1) }.node(case));
    let pool =
        json!({ "name": name, "generation": 1, "resourceSliceCount": 1 + usize::from(counters.is_some()) });
    let slice = |sort: &str| {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": format!("{sort}-{case}") },
            "spec": { "driver": driver(case), "nodeName": name, "pool": pool },
        })
    };
    let mut of_devices = slice("devices");
    of_devices["spec"]["devices"] = devices.clone();
    cluster.create(&format!("{RESOURCE}/resourceslices"), &of_devices);
    if let Some(counters) = counters {
        let mut of_counters = slice("counters");
        of_counters["spec"]["sharedCounters"] = counters.clone();
        cluster.create(&format!("{RESOURCE}/resourceslices"), &of_counters);
    }
    let selector = json!({ "cel": { "expression": format!("device.driver == '{}'", driver(case)) } });
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": format!("class-{case}") },
        "spec": { "selectors": [selector] },
    });
    cluster.create(&format!("{RESOURCE}/deviceclasses"), &class);
}

/// Devices `dev-0`, `dev-1` …, each with what else is said of it.
fn devices<const COUNT: usize>(each: [Value; COUNT]) -> Value {
    let named = each.into_iter().enumerate().map(|(at, mut device)| {
        device["name"] = json!(format!("dev-{at}"));
        device
    });
    named.collect()
}

fn on_numa(node: u32) -> Value {
    json!({ "attributes": { "numa": { "int": node } } })
}

/// One request, for devices of a case's class.
fn one(case: usize, more: &Value) -> Value {
    let mut exactly = json!({ "deviceClassName": format!("class-{case}") });
    exactly.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "requests": [{ "name": "r", "exactly": exactly }] })
}

fn claim(cluster: &Cluster, name: &str, devices: &Value) {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": name },
        "spec": { "devices": devices },
    });
    cluster.create(CLAIMS, &claim);
}

/// A claim, and a pod of its name that has it.
fn ask(cluster: &Cluster, name: &str, devices: &Value) {
    claim(cluster, name, devices);
    cluster.create(PODS, &pod_of(name, name));
}

/// What a claim was given, once its pod runs on the node of the case.
fn until_given(cluster: &Cluster, name: &str, case: usize) -> Vec<Value> {
    let seats = cluster.until_runs(name, 1);
    assert_eq!(seats[0].node, Some(Fleet::name(case)), "{name}");
    let claim = cluster.api().get(&format!("{CLAIMS}/{name}")).unwrap();
    assert_eq!(claim["status"]["reservedFor"][0]["name"], name, "{claim:#}");
    results(&claim)
}

fn results(claim: &Value) -> Vec<Value> {
    claim["status"]["allocation"]["devices"]["results"].as_array().cloned().unwrap_or_default()
}

fn names(results: &[Value]) -> Vec<&str> {
    let mut names: Vec<&str> = results.iter().filter_map(|result| result["device"].as_str()).collect();
    names.sort_unstable();
    names
}

/// It waits without an allocation, and its condition says why.
fn until_refused(cluster: &Cluster, name: &str, why: &str) {
    cluster.until_explained(name, why);
    let claim = cluster.api().get(&format!("{CLAIMS}/{name}")).unwrap();
    assert_eq!(results(&claim), [] as [Value; 0], "{claim:#}");
}

fn end(cluster: &Cluster, name: &str) {
    cluster.api().delete(&format!("{PODS}/{name}")).unwrap();
    cluster.until(&format!("the end of {name}"), |cluster| {
        let claim = cluster.api().get(&format!("{CLAIMS}/{name}")).ok()?;
        claim["status"]["allocation"].is_null().then_some(())
    });
}

#[test]
fn every_sort_of_claim_is_given_what_it_asks_for() {
    let mut cluster = Cluster::of(0);
    cluster.schedule(0);
    alternatives(&cluster, 0);
    equal_attributes_of_a_gang(&cluster, 1);
    different_attributes(&cluster, 2);
    parts_of_a_device(&cluster, 3);
    shares_of_a_device(&cluster, 4);
    taints(&cluster, 5);
    taints_of_rules(&cluster, 6);
    access_of_admins(&cluster, 7);
}

/// The first alternative that can be had, in the order in which they stand.
fn alternatives(cluster: &Cluster, case: usize) {
    publish(cluster, case, &devices([on_numa(0), on_numa(1)]), None);
    let class = format!("class-{case}");
    let listed = json!([
        { "name": "three", "deviceClassName": class, "count": 3 },
        { "name": "two", "deviceClassName": class, "count": 2 },
        { "name": "one", "deviceClassName": class, "count": 1 },
    ]);
    ask(cluster, "alternatives", &json!({ "requests": [{ "name": "r", "firstAvailable": listed }] }));
    let given = until_given(cluster, "alternatives", case);
    assert_eq!(names(&given), ["dev-0", "dev-1"]);
    assert!(given.iter().all(|result| result["request"] == "r/two"), "{given:#?}");
}

/// In the order of their names no two neighbours are of one NUMA node.
fn equal_attributes_of_a_gang(cluster: &Cluster, case: usize) {
    publish(cluster, case, &devices([on_numa(0), on_numa(1), on_numa(0), on_numa(1)]), None);
    let mut devices = one(case, &json!({ "count": 2 }));
    devices["constraints"] = json!([{ "matchAttribute": format!("{}/numa", driver(case)) }]);
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": { "name": "equal" },
        "spec": { "spec": { "devices": devices } },
    });
    cluster.create(TEMPLATES, &template);
    cluster.create(JOBS, &job_of("equal", 2, "equal"));
    cluster.until_runs("equal", 2);
    let given: Vec<Vec<Value>> = claims(cluster).iter().map(results).collect();
    let of_gang = given.iter().filter(|of_claim| of_claim.iter().all(|one| one["driver"] == driver(case)));
    let mut pairs: Vec<Vec<&str>> = of_gang.map(|of_claim| names(of_claim)).collect();
    pairs.sort_unstable();
    assert_eq!(pairs, [["dev-0", "dev-2"], ["dev-1", "dev-3"]]);
}

/// The first two are of one NUMA node.
fn different_attributes(cluster: &Cluster, case: usize) {
    publish(cluster, case, &devices([on_numa(0), on_numa(0), on_numa(1)]), None);
    let mut devices = one(case, &json!({ "count": 2 }));
    devices["constraints"] = json!([{ "distinctAttribute": format!("{}/numa", driver(case)) }]);
    ask(cluster, "different", &devices);
    let given = until_given(cluster, "different", case);
    assert!(given.len() == 2 && names(&given).contains(&"dev-2"), "{given:#?}");
}

/// All are cut from four slices.
fn parts_of_a_device(cluster: &Cluster, case: usize) {
    let part = |slices: &str| json!({ "consumesCounters": [{ "counterSet": "set", "counters": { "slices": { "value": slices } } }] });
    let counters = json!([{ "name": "set", "counters": { "slices": { "value": "4" } } }]);
    publish(cluster, case, &devices([part("3"), part("2"), part("2")]), Some(&counters));
    ask(cluster, "half", &one(case, &json!({ "count": 2 })));
    assert_eq!(names(&until_given(cluster, "half", case)), ["dev-1", "dev-2"], "three and two are too many");
    ask(cluster, "rest", &one(case, &json!({})));
    until_refused(cluster, "rest", "0 fit now");
    end(cluster, "half");
    assert_eq!(until_given(cluster, "rest", case).len(), 1);
}

/// A device of 40Gi that several may have.
fn shares_of_a_device(cluster: &Cluster, case: usize) {
    let policy = json!({ "default": "10Gi", "validRange": { "min": "5Gi", "max": "40Gi", "step": "5Gi" } });
    let shared = json!({
        "allowMultipleAllocations": true, "capacity": { "memory": { "value": "40Gi", "requestPolicy": policy } },
    });
    publish(cluster, case, &devices([shared]), None);
    let of = |memory: &str| one(case, &json!({ "capacity": { "requests": { "memory": memory } } }));
    ask(cluster, "large", &of("23Gi"));
    let given = until_given(cluster, "large", case);
    assert_eq!(given[0]["consumedCapacity"]["memory"], "25Gi", "{given:#?}");
    ask(cluster, "too-large", &of("20Gi"));
    until_refused(cluster, "too-large", "0 fit now");
    ask(cluster, "small", &of("15Gi"));
    let beside = until_given(cluster, "small", case);
    assert_eq!(beside[0]["consumedCapacity"]["memory"], "15Gi", "{beside:#?}");
    assert_ne!(beside[0]["shareID"], given[0]["shareID"], "each share has a name of its own");
    end(cluster, "large");
    until_given(cluster, "too-large", case);
}

fn taints(cluster: &Cluster, case: usize) {
    let tainted = json!({ "taints": [{ "key": "example.com/hot", "effect": "NoSchedule" }] });
    publish(cluster, case, &devices([tainted]), None);
    ask(cluster, "careful", &one(case, &json!({})));
    until_refused(cluster, "careful", "tainted");
    let tolerations = json!([{ "key": "example.com/hot", "operator": "Exists" }]);
    ask(cluster, "tolerant", &one(case, &json!({ "tolerations": tolerations })));
    let given = until_given(cluster, "tolerant", case);
    assert_eq!(given[0]["tolerations"][0]["key"], "example.com/hot", "{given:#?}");
}

/// An administrator keeps claims away, and lets them come again.
fn taints_of_rules(cluster: &Cluster, case: usize) {
    const RULES: &str = "/apis/resource.k8s.io/v1beta2/devicetaintrules";
    publish(cluster, case, &devices([json!({})]), None);
    let rule = json!({
        "apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": { "name": "under-repair" },
        "spec": {
            "deviceSelector": { "driver": driver(case) },
            "taint": { "key": "example.com/repair", "effect": "NoSchedule" },
        },
    });
    cluster.create(RULES, &rule);
    ask(cluster, "patient", &one(case, &json!({})));
    until_refused(cluster, "patient", "tainted");
    cluster.api().delete(&format!("{RULES}/under-repair")).unwrap();
    until_given(cluster, "patient", case);
}

/// Without the label of its namespace nobody sees what others hold; not even who was allowed to when the claim was made.
fn access_of_admins(cluster: &Cluster, case: usize) {
    const LABEL: &str = "resource.kubernetes.io/admin-access";
    publish(cluster, case, &devices([json!({})]), None);
    ask(cluster, "owner", &one(case, &json!({})));
    until_given(cluster, "owner", case);
    let of_admin = one(case, &json!({ "adminAccess": true, "allocationMode": "All" }));
    let refused = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": "refused" },
        "spec": { "devices": of_admin },
    });
    cluster.api().post(CLAIMS, &refused).unwrap_err();
    let allow = |value: Value| {
        let patch = json!({ "metadata": { "labels": { LABEL: value } } });
        cluster.api().patch("/api/v1/namespaces/default", &patch).unwrap();
    };
    allow(json!("true"));
    cluster.until("a claim of an admin", |cluster| {
        let mut claim = refused.clone();
        claim["metadata"]["name"] = json!("looks");
        cluster.api().post(CLAIMS, &claim).ok()
    });
    allow(Value::Null);
    cluster.create(PODS, &pod_of("looks", "looks"));
    until_refused(cluster, "looks", "admin");
    allow(json!("true"));
    let given = until_given(cluster, "looks", case);
    assert_eq!((names(&given), &given[0]["adminAccess"]), (vec!["dev-0"], &json!(true)));
}
