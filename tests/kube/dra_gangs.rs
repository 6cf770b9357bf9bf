//! Gangs whose pods claim devices (`resource.k8s.io/v1`): the claims hold what the scheduler chose, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use phalanx_controlplane::Fleet;
use phalanx_model::DeviceMask;
use serde_json::{Value, json};

use crate::restarts::part;
use crate::support::front::{Fault, Front};
use crate::support::groups::pod_group;
use crate::support::record::Record;
use crate::support::trap::Trap;
use crate::support::{Cluster, JOBS, PODS, Seat, Times, assert_disjoint, job, pod};

const RESOURCE: &str = "/apis/resource.k8s.io/v1";
pub(crate) const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
pub(crate) const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
const DRIVER: &str = "gpu.example.com";

/// Nodes without a device plugin; a driver publishes 8 GPUs on each, of one product per node.
fn cluster(products: &[&str]) -> Cluster {
    let cluster = of_products(Cluster::of(0), products);
    define(&cluster);
    cluster
}

/// The same without a class.
pub(crate) fn of_products(cluster: Cluster, products: &[&str]) -> Cluster {
    for (at, product) in products.iter().enumerate() {
        add_node(&cluster, at, product, &json!({}));
    }
    cluster
}

/// The class of the driver's devices.
pub(crate) fn define(cluster: &Cluster) {
    define_as(cluster, None);
}

/// The same, which stands for a resource.
pub(crate) fn define_as(cluster: &Cluster, resource: Option<&str>) {
    let selector = json!({"cel": {"expression": format!("device.driver == '{DRIVER}'")}});
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
        "spec": {"selectors": [selector], "extendedResourceName": resource},
    });
    cluster.create(&format!("{RESOURCE}/deviceclasses"), &class);
}

/// `more` is said of each of its devices too.
pub(crate) fn add_node(cluster: &Cluster, at: usize, product: &str, more: &Value) {
    let fleet = Fleet { gpus: 0, ..Fleet::new(at + 1) };
    cluster.create("/api/v1/nodes", &fleet.node(at));
    publish(cluster, at, product, more);
}

/// What the driver says of a node.
pub(crate) fn publish(cluster: &Cluster, at: usize, product: &str, more: &Value) {
    let device = |index: u32| {
        let mut device = json!({
            "name": format!("gpu-{index}"),
            "attributes": {
                "type": {"string": "gpu"}, "productName": {"string": product},
                "resource.kubernetes.io/pciBusID": {"string": format!("0000:{:02x}:00.0", 16 * (index + 1) - 1)},
                "resource.kubernetes.io/numaNode": {"int": index / 4},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        });
        device.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        device
    };
    let name = Fleet::name(at);
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("slice-{name}")},
        "spec": {
            "driver": DRIVER, "nodeName": name, "devices": (0..8).map(device).collect::<Vec<_>>(),
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        },
    });
    cluster.create(&format!("{RESOURCE}/resourceslices"), &slice);
}

fn spec_of(count: u32, selector: Option<&str>) -> Value {
    let mut exactly = json!({"deviceClassName": "gpu", "count": count});
    if let Some(selector) = selector {
        exactly["selectors"] = json!([{"cel": {"expression": selector}}]);
    }
    json!({"devices": {"requests": [{"name": "r", "exactly": exactly}]}})
}

pub(crate) fn template(cluster: &Cluster, name: &str, count: u32, selector: Option<&str>) {
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
        "spec": {"spec": spec_of(count, selector)},
    });
    cluster.create(TEMPLATES, &template);
}

fn claim(cluster: &Cluster, name: &str, count: u32) -> Value {
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": spec_of(count, None),
    });
    cluster.create(CLAIMS, &claim)
}

/// Pods with a claim made from a template, which go at once when they are deleted.
pub(crate) fn job_of(name: &str, pods: u32, template: &str) -> Value {
    let mut job = job(name, pods, 0, &json!({}));
    let spec = &mut job["spec"]["template"]["spec"];
    spec["terminationGracePeriodSeconds"] = json!(0);
    spec["resourceClaims"] = json!([{"name": "gpus", "resourceClaimTemplateName": template}]);
    spec["containers"][0]["resources"]["claims"] = json!([{"name": "gpus"}]);
    job
}

pub(crate) fn pod_of(name: &str, claim: &str) -> Value {
    let mut pod = pod(name, 0);
    pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
    pod["spec"]["resourceClaims"] = json!([{"name": "gpus", "resourceClaimName": claim}]);
    pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "gpus"}]);
    pod
}

/// Node and device of each result of a claim.
pub(crate) fn held(claim: &Value) -> Vec<(String, u32)> {
    let results = claim["status"]["allocation"]["devices"]["results"].as_array();
    let device = |result: &Value| {
        let at = result["device"].as_str().unwrap().strip_prefix("gpu-").unwrap().parse().unwrap();
        (result["pool"].as_str().unwrap().to_owned(), at)
    };
    results.into_iter().flatten().map(device).collect()
}

pub(crate) fn claims(cluster: &Cluster) -> Vec<Value> {
    cluster.api().get(CLAIMS).unwrap()["items"].as_array().unwrap().clone()
}

/// Every pod's claims hold the devices that its annotation says, and no device is in two claims.
pub(crate) fn assert_exact(cluster: &Cluster, seats: &[Seat]) {
    assert_disjoint(seats);
    let mut holders: BTreeMap<(String, u32), String> = BTreeMap::new();
    for claim in claims(cluster) {
        for device in held(&claim) {
            let name = claim["metadata"]["name"].as_str().unwrap().to_owned();
            if let Some(other) = holders.insert(device.clone(), name.clone()) {
                panic!("{name} and {other} both hold {device:?}");
            }
        }
    }
    for seat in seats {
        let pod = cluster.api().get(&format!("{PODS}/{}", seat.name)).unwrap();
        let status = &pod["status"];
        let made = [&status["resourceClaimStatuses"][0], &status["extendedResourceClaimStatus"]];
        let made = made.iter().find_map(|made| made["resourceClaimName"].as_str()).unwrap();
        let claim = cluster.api().get(&format!("{CLAIMS}/{made}")).unwrap();
        let node = seat.node.clone().unwrap();
        let devices: DeviceMask = seat.devices.as_ref().unwrap().parse().unwrap();
        let expected: BTreeSet<_> = devices.iter().map(|device| (node.clone(), device)).collect();
        assert_eq!(held(&claim).into_iter().collect::<BTreeSet<_>>(), expected, "{seat:?}\n{claim:#}");
        assert_eq!(claim["status"]["reservedFor"][0]["uid"], pod["metadata"]["uid"]);
        assert!(claim["status"]["allocation"]["allocationTimestamp"].is_string(), "{claim:#}");
        assert_eq!(claim["metadata"]["finalizers"], json!(["resource.kubernetes.io/delete-protection"]));
    }
}

#[test]
fn a_gang_with_claims_starts_whole_and_gives_its_devices_back_when_it_ends() {
    let mut cluster = cluster(&["A100", "A100", "A100"]);
    template(&cluster, "four", 4, None);
    cluster.schedule(0);
    cluster.create(JOBS, &job_of("train", 4, "four"));
    let seats = cluster.until_runs("train", 4);
    let nodes: BTreeSet<_> = seats.iter().map(|seat| seat.node.clone()).collect();
    assert_eq!(nodes.len(), 2, "16 GPUs are two nodes: {seats:?}");
    assert_exact(&cluster, &seats);
    // All that there is: it has to wait for the first.
    cluster.create(JOBS, &job_of("next", 6, "four"));
    let name = cluster.until("pods of next", |cluster| {
        let pods: Vec<_> = cluster.seats().into_iter().filter(|seat| seat.gang == "next").collect();
        (pods.len() == 6).then(|| pods[0].name.clone())
    });
    cluster.until_explained(&name, "6 members");
    assert_eq!(cluster.bound()["next"], (0, 6));
    cluster.api().delete(&format!("{JOBS}/train?propagationPolicy=Background")).unwrap();
    let seats = cluster.until_runs("next", 6);
    assert_exact(&cluster, &seats);
    cluster.api().delete(&format!("{JOBS}/next?propagationPolicy=Background")).unwrap();
    cluster.until("all claims gone", |cluster| claims(cluster).is_empty().then_some(()));
}

#[test]
fn selected_devices_are_found_where_they_are_and_what_nobody_has_is_named() {
    let mut cluster = cluster(&["A100", "H100", "A100", "H100"]);
    let selects = |product: &str| format!("device.attributes['{DRIVER}'].productName == '{product}'");
    template(&cluster, "h100", 8, Some(&selects("H100")));
    template(&cluster, "b200", 1, Some(&selects("B200")));
    cluster.schedule(0);
    cluster.create(JOBS, &job_of("fast", 2, "h100"));
    let seats = cluster.until_runs("fast", 2);
    let nodes: BTreeSet<_> = seats.iter().filter_map(|seat| seat.node.clone()).collect();
    assert_eq!(nodes, [Fleet::name(1), Fleet::name(3)].into());
    assert_exact(&cluster, &seats);
    cluster.create(JOBS, &job_of("newest", 1, "b200"));
    let name = cluster.until("a pod of newest", |cluster| {
        cluster.seats().into_iter().find(|seat| seat.gang == "newest").map(|seat| seat.name)
    });
    let why = cluster.until_explained(&name, "claim default/gpus, request r: wants 1 of 0 matching devices");
    assert!(why.contains("none of 4 nodes"), "{why}");
    add_node(&cluster, 4, "B200", &json!({}));
    let seats = cluster.until_runs("newest", 1);
    assert_exact(&cluster, &seats);
}

#[test]
fn devices_that_others_hold_are_left_alone_one_by_one() {
    let mut cluster = cluster(&["A100"]);
    // As another scheduler would have allocated it.
    let mut foreign = claim(&cluster, "foreign", 2);
    let result = |device: u32| json!({"request": "r", "driver": DRIVER, "pool": Fleet::name(0), "device": format!("gpu-{device}")});
    foreign["status"] = json!({"allocation": {
        "devices": {"results": [result(1), result(6)]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [Fleet::name(0)]}]}]},
    }});
    cluster.api().put(&format!("{CLAIMS}/foreign/status"), &foreign).unwrap();
    template(&cluster, "three", 3, None);
    cluster.schedule(0);
    cluster.create(JOBS, &job_of("pair", 2, "three"));
    let seats = cluster.until_runs("pair", 2);
    assert_exact(&cluster, &seats);
    // Where a claim is shared it is allocated once, and all are where it is.
    cluster.api().delete(&format!("{JOBS}/pair?propagationPolicy=Background")).unwrap();
    claim(&cluster, "shared", 2);
    for name in ["one", "two"] {
        cluster.create(PODS, &pod_of(name, "shared"));
    }
    cluster.until_runs("one", 1);
    cluster.until_runs("two", 1);
    let shared = cluster.api().get(&format!("{CLAIMS}/shared")).unwrap();
    assert_eq!(shared["status"]["reservedFor"].as_array().unwrap().len(), 2, "{shared:#}");
    cluster.create(PODS, &pod_of("beside", "foreign"));
    cluster.until_runs("beside", 1);
    let foreign = cluster.api().get(&format!("{CLAIMS}/foreign")).unwrap();
    assert_eq!(held(&foreign), [(Fleet::name(0), 1), (Fleet::name(0), 6)]);
}

/// It is allocated once, with all of them on the node of its devices, and each has it before it is bound.
#[test]
fn a_gang_that_shares_a_claim_is_where_its_devices_are() {
    let mut cluster = cluster(&["A100", "A100"]);
    claim(&cluster, "shared", 8);
    cluster.schedule(0);
    let mut job = job_of("team", 5, "none");
    job["spec"]["template"]["spec"]["resourceClaims"] =
        json!([{"name": "gpus", "resourceClaimName": "shared"}]);
    cluster.create(JOBS, &job);
    let seats = cluster.until_runs("team", 5);
    let shared = cluster.api().get(&format!("{CLAIMS}/shared")).unwrap();
    let nodes: BTreeSet<_> = seats.iter().filter_map(|seat| seat.node.clone()).collect();
    let of_devices: BTreeSet<_> = held(&shared).into_iter().map(|(node, _)| node).collect();
    assert_eq!((nodes.len(), &nodes), (1, &of_devices), "{seats:?}");
    assert_eq!(shared["status"]["reservedFor"].as_array().unwrap().len(), 5, "{shared:#}");
    let devices: BTreeSet<_> = seats.iter().filter_map(|seat| seat.devices.as_deref()).collect();
    assert_eq!(devices, ["-", "0-7"].into(), "they are counted once");
}

#[test]
fn a_pod_waits_until_its_devices_are_ready() {
    let mut cluster = cluster(&[]);
    let conditions = json!({"bindsToNode": true, "bindingConditions": ["example.com/attached"], "bindingFailureConditions": ["example.com/broken"]});
    add_node(&cluster, 0, "A100", &conditions);
    claim(&cluster, "attached", 1);
    cluster.schedule(0);
    cluster.create(PODS, &pod_of("waits", "attached"));
    let path = format!("{CLAIMS}/attached");
    let mut allocated = cluster.until("an allocation", |cluster| {
        let claim = cluster.api().get(&path).unwrap();
        claim["status"]["allocation"].is_object().then_some(claim)
    });
    assert_eq!(cluster.seats()[0].node, None);
    let result = &allocated["status"]["allocation"]["devices"]["results"][0];
    let ready = json!({"type": "example.com/attached", "status": "True", "reason": "Done", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let device = json!([{"driver": result["driver"], "pool": result["pool"], "device": result["device"], "conditions": [ready]}]);
    allocated["status"]["devices"] = device;
    cluster.api().put(&format!("{path}/status"), &allocated).unwrap();
    cluster.until_runs("waits", 1);
}

/// What makes way has no pods any more, and its claims are known by their template alone.
#[test]
fn a_gang_with_claims_makes_way_and_comes_back() {
    let mut cluster = cluster(&["A100"]);
    template(&cluster, "four", 4, None);
    for (name, value) in [("low", 10), ("high", 1_000)] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
        });
        cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    }
    cluster.schedule(0);
    let of_class = |mut job: Value, class: &str| {
        job["spec"]["template"]["spec"]["priorityClassName"] = json!(class);
        job
    };
    cluster.create(JOBS, &of_class(job_of("low", 2, "four"), "low"));
    assert_exact(&cluster, &cluster.until_runs("low", 2));
    cluster.create(JOBS, &of_class(job_of("high", 1, "four"), "high"));
    assert_exact(&cluster, &cluster.until_runs("high", 1));
    assert_eq!(cluster.api().get(&format!("{JOBS}/low")).unwrap()["spec"]["suspend"], true);
    cluster.api().delete(&format!("{JOBS}/high?propagationPolicy=Background")).unwrap();
    assert_exact(&cluster, &cluster.until_runs("low", 2));
}

/// Gangs of four pods start one after another, each under a scheduler that is killed with one of its calls: by turns with one
/// that writes a claim, and with one that binds a pod. The last one starts what is left; who has what then.
pub(crate) fn started_by_many(cluster: &mut Cluster, job: impl Fn(&str) -> Value) -> Vec<Seat> {
    const GANGS: u64 = 6;
    let name = |gang: u64| format!("g{gang}");
    let record = Record::begin(cluster.api(), (0..GANGS).map(|gang| (name(gang), 4)));
    let traps = [(); 2].map(|()| Arc::new(Trap::default()));
    let [of_claims, of_bindings] = traps.clone();
    let front = Front::of(&cluster.plane, move |asked| match () {
        () if asked.is_binding() => of_bindings.spring(),
        () if asked.writes_claim() => of_claims.spring(),
        () => Fault::None,
    });
    for (gang, trap) in (0..GANGS).zip(traps.iter().cycle()) {
        let scheduler = cluster.schedule_through(&front, 0, Times::default());
        // The first binding that is not made leaves claims that nobody holds but their pods.
        trap.arm(cluster.pid(scheduler), gang / 2, gang % 3 == 0);
        cluster.create(JOBS, &job(&name(gang)));
        cluster.until("a kill", |_| (!trap.is_armed()).then_some(()));
        cluster.kill(scheduler);
    }
    cluster.schedule_through(&front, 0, Times::default());
    let all = (0..GANGS).flat_map(|gang| cluster.until_runs(&name(gang), 4)).collect();
    record.judge(part(Times::default()));
    all
}

/// Some of the kills are between an allocation and the binding that it is for.
#[test]
fn claims_are_whole_whenever_the_scheduler_is_killed() {
    let mut cluster = cluster(&["A100"; 6]);
    template(&cluster, "two", 2, None);
    let all = started_by_many(&mut cluster, |name| job_of(name, 4, "two"));
    assert_exact(&cluster, &all);
}

/// Two of four pods share a claim, two another; the fifth has none.
#[test]
fn those_of_a_gang_that_share_a_claim_are_where_its_devices_are() {
    let mut cluster = cluster(&["A100", "A100"]);
    for name in ["left", "right"] {
        claim(&cluster, name, 5);
    }
    cluster.schedule(0);
    for (at, claim) in
        [Some("left"), Some("right"), Some("left"), Some("right"), None].into_iter().enumerate()
    {
        let name = format!("team-{at}");
        let mut pod = claim.map_or_else(|| pod(&name, 0), |claim| pod_of(&name, claim));
        pod["metadata"]["labels"] = json!({
            "gang": "team", "pod-group.scheduling.sigs.k8s.io/name": "team",
            "pod-group.scheduling.sigs.k8s.io/min-available": "5",
        });
        cluster.create(PODS, &pod);
    }
    let seats = cluster.until_runs("team", 5);
    let node = |at: usize| {
        seats.iter().find(|seat| seat.name == format!("team-{at}")).unwrap().node.clone().unwrap()
    };
    assert_ne!(node(0), node(1), "10 devices are two nodes");
    for (name, pods) in [("left", [0, 2]), ("right", [1, 3])] {
        let claim = cluster.api().get(&format!("{CLAIMS}/{name}")).unwrap();
        let of_devices: BTreeSet<_> = held(&claim).into_iter().map(|(node, _)| node).collect();
        assert_eq!(of_devices, pods.map(node).into(), "{seats:?}");
        let users = claim["status"]["reservedFor"].as_array().unwrap();
        let users: BTreeSet<_> = users.iter().map(|user| user["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(users, pods.map(|at| format!("team-{at}")).into());
    }
}

/// Made from a template for the group, and reserved for it; also where a scheduler was killed in between.
#[test]
fn a_claim_of_a_group_is_made_once_and_reserved_for_the_group() {
    let mut cluster = cluster(&["A100", "A100"]);
    template(&cluster, "six", 6, None);
    let claims_of = json!([{ "name": "gpus", "resourceClaimTemplateName": "six" }]);
    let mut group = pod_group("team", 3);
    group["spec"]["resourceClaims"] = claims_of.clone();
    let group = cluster.create_group(&group);
    for at in 0..3 {
        let mut member = pod_of(&format!("team-{at}"), "none");
        member["metadata"]["labels"] = json!({ "gang": "team" });
        member["spec"]["schedulingGroup"] = json!({ "podGroupName": "team" });
        member["spec"]["resourceClaims"] = claims_of.clone();
        cluster.create(PODS, &member);
    }
    for kill in 0..4 {
        let scheduler = cluster.schedule(0);
        std::thread::sleep(std::time::Duration::from_millis(150 + 97 * kill));
        cluster.kill(scheduler);
    }
    cluster.schedule(0);
    let seats = cluster.until_runs("team", 3);
    let all = claims(&cluster);
    assert_eq!(all.len(), 1, "one for all of them: {all:#?}");
    let users = &all[0]["status"]["reservedFor"];
    assert_eq!(users.as_array().map(Vec::len), Some(1), "{users:#}");
    assert_eq!((&users[0]["resource"], &users[0]["uid"]), (&json!("podgroups"), &group["metadata"]["uid"]));
    let nodes: BTreeSet<_> = seats.iter().filter_map(|seat| seat.node.clone()).collect();
    let of_devices: BTreeSet<_> = held(&all[0]).into_iter().map(|(node, _)| node).collect();
    assert_eq!((held(&all[0]).len(), &nodes), (6, &of_devices), "{seats:?}");
}
