//! Claims for devices, beside the real kube-scheduler and before the real API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_controlplane::{Api, ControlPlane, Fleet, Options};
use phalanx_kube::api::Node;
use phalanx_kube::dra::{Inventory, TRIED_MAX, Unallocatable};
use phalanx_kube::k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use phalanx_sim::Rng;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::PODS;

const SEED: u64 = 20_261_122;
/// Each of them on a node, with a driver and a class of its own, so that none meets another.
const CASES: usize = 120;
/// Far beyond what any of this takes; only what hangs gets there.
const PATIENCE: Duration = Duration::from_secs(120);

const RESOURCE: &str = "/apis/resource.k8s.io/v1";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

fn driver(case: usize) -> String {
    format!("d{case}.example.com")
}

fn draw_one<T: Clone>(rng: &mut Rng, of: &[T]) -> T {
    of[usize::try_from(rng.below(of.len() as u64)).unwrap()].clone()
}

fn one_in(rng: &mut Rng, of: u64) -> bool {
    rng.below(of) == 0
}

/// One to six devices: some tainted, some cut from one counter, some shared.
fn draw_devices(rng: &mut Rng) -> Vec<Value> {
    let count = 1 + rng.below(6);
    let device = |at| {
        let mut attributes = json!({"index": {"int": at}});
        if !one_in(rng, 4) {
            attributes["color"] = json!({"string": draw_one(rng, &["red", "blue"])});
        }
        if !one_in(rng, 5) {
            attributes["numa"] = json!({"int": rng.below(2)});
        }
        attributes["firmware"] = json!({"version": draw_one(rng, &["1.2.0", "1.10.0"])});
        let mut device = json!({
            "name": format!("dev-{at}"), "attributes": attributes,
            "capacity": {"memory": {"value": draw_one(rng, &["20Gi", "40Gi"])}},
        });
        if one_in(rng, 6) {
            device["taints"] =
                json!([{"key": "bad", "effect": draw_one(rng, &["NoSchedule", "NoExecute", "None"])}]);
        }
        if one_in(rng, 3) {
            let amount = draw_one(rng, &["1", "2", "3"]);
            device["consumesCounters"] =
                json!([{"counterSet": "set", "counters": {"slices": {"value": amount}}}]);
        }
        if one_in(rng, 3) {
            device["allowMultipleAllocations"] = json!(true);
            let policy = draw_one(
                rng,
                &[
                    Value::Null,
                    json!({"default": "10Gi", "validRange": {"min": "5Gi", "max": "20Gi", "step": "5Gi"}}),
                    json!({"default": "10Gi", "validValues": ["10Gi", "15Gi"]}),
                ],
            );
            if !policy.is_null() {
                device["capacity"]["memory"]["requestPolicy"] = policy;
            }
        }
        device
    };
    (0..count).map(device).collect()
}

/// Alternatives of a request, without those that upstream is known to judge otherwise.
fn draw_choice(case: usize, rng: &mut Rng) -> Value {
    let own = format!("device.attributes['{}']", driver(case));
    let mut choice = json!({"deviceClassName": format!("class-{case}")});
    if one_in(rng, 5) {
        choice["allocationMode"] = json!("All");
    } else {
        choice["count"] = json!(1 + rng.below(3));
    }
    let selectors = [
        format!("'color' in {own} && {own}.color == 'red'"),
        format!("{own}.?color.orValue('none') != 'red'"),
        format!("{own}.firmware.isGreaterThan(semver('1.9.0'))"),
        format!("device.capacity['{}'].memory.compareTo(quantity('30Gi')) > 0", driver(case)),
        format!("cel.bind(own, {own}, own.index < 3 || has(own.numa))"),
        "!device.allowMultipleAllocations".to_owned(),
    ];
    if one_in(rng, 2) {
        choice["selectors"] = json!([{"cel": {"expression": draw_one(rng, &selectors)}}]);
    }
    if one_in(rng, 3) {
        choice["tolerations"] = json!([{"key": "bad", "operator": "Exists"}]);
    }
    if one_in(rng, 3) {
        choice["capacity"] = json!({"requests": {"memory": draw_one(rng, &["5Gi", "12Gi", "25Gi"])}});
    }
    choice
}

fn draw_claim(case: usize, number: usize, rng: &mut Rng) -> Value {
    let requests: Vec<Value> = (0..1 + rng.below(2))
        .map(|at| {
            let name = format!("r{at}");
            if !one_in(rng, 3) {
                return json!({"name": name, "exactly": draw_choice(case, rng)});
            }
            let listed: Vec<Value> = (0..2)
                .map(|sub| {
                    let mut choice = draw_choice(case, rng);
                    choice["name"] = json!(format!("s{sub}"));
                    choice
                })
                .collect();
            json!({"name": name, "firstAvailable": listed})
        })
        .collect();
    let mut devices = json!({"requests": requests});
    if one_in(rng, 4) {
        devices["constraints"] =
            json!([{"matchAttribute": format!("{}/{}", driver(case), draw_one(rng, &["color", "numa"]))}]);
    }
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": format!("case-{case}-{number}")}, "spec": {"devices": devices},
    })
}

fn publish(api: &Api, case: usize, devices: &[Value]) {
    let pool = json!({"name": "pool", "generation": 1, "resourceSliceCount": 2});
    let slice = |name: &str| {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{name}-{case}")},
            "spec": {"driver": driver(case), "nodeName": Fleet::name(case), "pool": pool},
        })
    };
    let mut of_devices = slice("devices");
    of_devices["spec"]["devices"] = json!(devices);
    let mut counters = slice("counters");
    counters["spec"]["sharedCounters"] = json!([{"name": "set", "counters": {"slices": {"value": "4"}}}]);
    for slice in [of_devices, counters] {
        api.post(&format!("{RESOURCE}/resourceslices"), &slice).unwrap();
    }
    api.post(&format!("{RESOURCE}/deviceclasses"), &json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": format!("class-{case}")},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{}'", driver(case))}}]},
    })).unwrap();
}

fn list<T: DeserializeOwned>(api: &Api, path: &str) -> Vec<T> {
    serde_json::from_value(api.get(path).unwrap()["items"].take()).unwrap()
}

/// The lifecycle as a scheduler that starts would read them.
fn inventory(api: &Api) -> Inventory {
    let mut inventory = Inventory::default();
    for slice in list(api, &format!("{RESOURCE}/resourceslices")) {
        inventory.slice_applied(Arc::new(slice));
    }
    for class in list(api, &format!("{RESOURCE}/deviceclasses")) {
        inventory.class_applied(Arc::new(class));
    }
    for claim in list::<ResourceClaim>(api, CLAIMS) {
        inventory.claim_applied(&claim);
    }
    inventory
}

fn allocate(
    inventory: &Inventory,
    claims: &[ResourceClaim],
    node: &Node,
) -> Result<Vec<AllocationResult>, Unallocatable> {
    let mut ids = 0;
    let mut share_id = || {
        ids += 1;
        format!("00000000-0000-4000-8000-{ids:012}")
    };
    let claims: Vec<&ResourceClaim> = claims.iter().collect();
    inventory.allocate(&claims, node, &|_| false, &mut share_id, TRIED_MAX)
}

/// The claim with an allocation, as a scheduler writes it.
fn with_allocation(claim: &ResourceClaim, allocation: &AllocationResult) -> Value {
    let mut value = serde_json::to_value(claim).unwrap();
    value["apiVersion"] = json!("resource.k8s.io/v1");
    value["kind"] = json!("ResourceClaim");
    value["status"] = json!({"allocation": allocation});
    // Without a time kube-scheduler writes one itself, and is refused: an allocation cannot be changed.
    value["status"]["allocation"]["allocationTimestamp"] = json!("2026-01-01T00:00:00Z");
    value
}

fn pod(name: &str, node: Option<usize>, claims: &[String]) -> Value {
    let claims: Vec<Value> =
        claims.iter().map(|claim| json!({"name": claim, "resourceClaimName": claim})).collect();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "none"}], "resourceClaims": claims},
    });
    if let Some(node) = node {
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": Fleet::name(node)});
    }
    pod
}

/// Where kube-scheduler bound a pod; `None` while it has not said, the reason where it did not.
fn verdict(api: &Api, name: &str) -> Option<Result<String, String>> {
    let pod = api.get(&format!("{PODS}/{name}")).unwrap();
    if let Some(node) = pod["spec"]["nodeName"].as_str() {
        return Some(Ok(node.to_owned()));
    }
    let conditions = pod["status"]["conditions"].as_array()?;
    let said = conditions.iter().find(|one| one["type"] == "PodScheduled" && one["status"] == "False")?;
    Some(Err(said["message"].to_string()))
}

/// Kube-scheduler may look at a pod before it has heard of its claims, and looks again when it has: what counts is
/// what it says in the end.
fn verdict_or_agreement(api: &Api, name: &str, expected: bool, began: Instant) -> Result<String, String> {
    loop {
        match verdict(api, name) {
            Some(verdict) if verdict.is_ok() == expected => return verdict,
            Some(verdict) if began.elapsed() > PATIENCE / 4 => return verdict,
            None => assert!(began.elapsed() < PATIENCE, "nothing is said of {name}"),
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Why both may differ: whatever has no name here is a fault.
fn explanation(is_ours_allocated: bool, theirs: &Result<String, String>) -> Option<&'static str> {
    let theirs = theirs.as_ref().err()?;
    (is_ours_allocated && theirs.contains("because a claim constraint would not be satisfied")).then_some(
        "all devices, of which one breaks a constraint: an error for kube-scheduler; for us an alternative that \
         cannot be had, and the next one is tried",
    )
}

/// What a case is about: parts of its claims and of its devices, by the words that the API has for them.
fn features(claims: &[ResourceClaim], devices: &[Value], is_held: bool) -> BTreeSet<&'static str> {
    let text = json!([claims, devices]).to_string();
    let mut all: BTreeSet<&str> = FEATURES.iter().copied().filter(|word| text.contains(word)).collect();
    if is_held {
        all.insert(HELD);
    }
    if claims.len() > 1 {
        all.insert(TWO);
    }
    all
}

const HELD: &str = "devices that are held";
const TWO: &str = "two claims";

/// Each of them has to have been in cases that were allocated and in cases that were not.
const FEATURES: &[&str] = &[
    "\"All\"",
    "allowMultipleAllocations",
    "cel",
    "consumesCounters",
    "firstAvailable",
    "matchAttribute",
    "requestPolicy",
    "requests\":{\"memory",
    "taints",
    "tolerations",
    HELD,
    TWO,
];

/// Why a case is not allocated: what keeps its devices from it, each of which has to have been the reason of some.
fn reasons(why: &Unallocatable) -> BTreeSet<&'static str> {
    let Unallocatable::Short(short) = why else { return BTreeSet::from(["others"]) };
    let has = |reason, is_it: bool| is_it.then_some(reason);
    let of = short.iter().flat_map(|one| {
        [
            has("none match", one.wanted.is_some_and(|wanted| one.selected < wanted)),
            has("taken", one.taken > 0),
            has("tainted", one.tainted > 0),
            has("small", one.small > 0),
        ]
    });
    of.flatten().collect()
}

const REASONS: &[&str] = &["none match", "taken", "tainted", "small"];

#[test]
fn claims_are_allocated_as_kube_scheduler_allocates_them() {
    let plane = ControlPlane::start(&Options { kube_scheduler: true, ..Options::default() }).unwrap();
    let api = plane.api();
    Fleet::new(CASES).create(api).unwrap();
    let mut rng = Rng::new(SEED);
    let mut asked: Vec<Vec<ResourceClaim>> = Vec::new();
    let mut about = Vec::new();
    for case in 0..CASES {
        let devices = draw_devices(&mut rng);
        publish(api, case, &devices);
        let claims =
            (0..1 + usize::try_from(rng.below(2)).unwrap()).map(|number| draw_claim(case, number, &mut rng));
        let stored = claims.map(|claim| serde_json::from_value(api.post(CLAIMS, &claim).unwrap()).unwrap());
        asked.push(stored.collect());
        // Some devices are held before, as our own scheduler would have given them away.
        let mut is_held = false;
        if one_in(&mut rng, 3) {
            let held = draw_claim(case, 9, &mut rng);
            let held: ResourceClaim = serde_json::from_value(api.post(CLAIMS, &held).unwrap()).unwrap();
            let node: Node =
                serde_json::from_value(api.get(&format!("/api/v1/nodes/{}", Fleet::name(case))).unwrap())
                    .unwrap();
            if let Ok(results) = allocate(&inventory(api), std::slice::from_ref(&held), &node) {
                let name = held.metadata.name.as_deref().unwrap();
                api.put(&format!("{CLAIMS}/{name}/status"), &with_allocation(&held, &results[0])).unwrap();
                is_held = true;
            }
        }
        about.push(features(&asked[case], &devices, is_held));
    }
    let inventory = inventory(api);
    let nodes: Vec<Node> = list(api, "/api/v1/nodes");
    let ours: Vec<_> =
        asked.iter().enumerate().map(|(case, claims)| allocate(&inventory, claims, &nodes[case])).collect();

    // The API server takes what ours decided, without keeping it: kube-scheduler has to decide by itself.
    for (claims, results) in asked.iter().zip(&ours) {
        for (claim, result) in claims.iter().zip(results.iter().flatten()) {
            let name = claim.metadata.name.as_deref().unwrap();
            let accepted =
                api.put(&format!("{CLAIMS}/{name}/status?dryRun=All"), &with_allocation(claim, result));
            assert!(accepted.is_ok(), "{name}: {accepted:?}\n{result:#?}");
        }
    }
    for (case, claims) in asked.iter().enumerate() {
        let names: Vec<String> = claims.iter().filter_map(|claim| claim.metadata.name.clone()).collect();
        api.post(PODS, &pod(&format!("pod-{case}"), Some(case), &names)).unwrap();
    }
    let began = Instant::now();
    let (mut differences, mut explained) = (Vec::new(), Vec::new());
    let mut agreed: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
    for (case, ours) in ours.iter().enumerate() {
        let theirs = verdict_or_agreement(api, &format!("pod-{case}"), ours.is_ok(), began);
        if theirs.is_ok() == ours.is_ok() {
            for feature in &about[case] {
                *agreed.entry((*feature, ours.is_ok())).or_default() += 1;
            }
            for reason in ours.as_ref().err().map(reasons).into_iter().flatten() {
                *refused.entry(reason).or_default() += 1;
            }
            continue;
        }
        if let Some(reason) = explanation(ours.is_ok(), &theirs) {
            explained.push(format!("case {case}: {reason}"));
            continue;
        }
        let claims = serde_json::to_string_pretty(&asked[case]).unwrap();
        let devices = api.get(&format!("{RESOURCE}/resourceslices/devices-{case}")).unwrap()["spec"].take();
        differences.push(format!("case {case}: ours {ours:?}\ntheirs {theirs:?}\n{claims}\n{devices:#}"));
    }
    let allocated = ours.iter().filter(|ours| ours.is_ok()).count();
    println!("{CASES} cases, {allocated} of them allocated; explained: {explained:?}");
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n\n"));
    // A test of nothing but refusals, or of none, would show little.
    assert!((CASES / 4..CASES * 3 / 4).contains(&allocated), "{allocated} allocated");
    println!("agreed: {agreed:?}\nwhy not: {refused:?}");
    for (feature, is_allocated) in FEATURES.iter().flat_map(|feature| [(*feature, true), (*feature, false)]) {
        let count = agreed.get(&(feature, is_allocated)).copied().unwrap_or(0);
        assert!(count >= 3, "{feature}, allocated: {is_allocated}: only in {count} cases");
    }
    for reason in REASONS {
        assert!(refused.get(reason).is_some_and(|count| *count >= 3), "too rarely the reason: {reason}");
    }
    one_that_ours_allocated_is_bound(api);
}

/// What ours writes is an allocation like any other: kube-scheduler binds the pod where the devices are.
fn one_that_ours_allocated_is_bound(api: &Api) {
    let node = CASES;
    api.post("/api/v1/nodes", &Fleet::new(CASES + 1).node(node)).unwrap();
    publish(api, node, &[json!({"name": "dev-0"}), json!({"name": "dev-1"})]);
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "story"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": format!("class-{node}")}}]}},
    });
    let claim: ResourceClaim = serde_json::from_value(api.post(CLAIMS, &claim).unwrap()).unwrap();
    let there: Node =
        serde_json::from_value(api.get(&format!("/api/v1/nodes/{}", Fleet::name(node))).unwrap()).unwrap();
    let result = allocate(&inventory(api), std::slice::from_ref(&claim), &there).unwrap();
    api.put(&format!("{CLAIMS}/story/status"), &with_allocation(&claim, &result[0])).unwrap();
    api.post(PODS, &pod("story", None, &["story".to_owned()])).unwrap();
    let bound = verdict_or_agreement(api, "story", true, Instant::now());
    assert_eq!(bound.as_deref(), Ok(Fleet::name(node).as_str()));
}
