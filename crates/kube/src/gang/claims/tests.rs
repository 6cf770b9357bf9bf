//! Claims among gangs, as watches tell them and the engine decides.

#![allow(clippy::needless_pass_by_value, reason = "`json!` at the place of an argument reads well")]

use phalanx_model::{
    DeviceMask, GangId, Input, Job, JobId, LevelName, MemberId, Node, NodeName, Order, Placement, QueueName,
    Slot, Timestamp,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::published::COUNTED_MAX;
use crate::gang::{Lifecycle, Options};
use crate::messages::DeviceEvent;
use crate::messages::{Call, Event, Reservation, Step, Unbound};

mod drawing;
mod extended;
mod groups;
mod shared;
mod tainted;

const NOW: Timestamp = Timestamp(1_000);
const DRIVER: &str = "gpu.example.com";

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn lifecycle() -> Lifecycle {
    Lifecycle::new(Options {
        ready_ms: 1_000,
        vacant_ms: 1_000,
        ..Options::of_queue(QueueName::new("default").unwrap())
    })
}

fn tell(lifecycle: &mut Lifecycle, event: DeviceEvent) {
    lifecycle.observe(NOW, Event::Device(event));
}

/// A node with 8 GPUs of which the last four are of another color, published by its driver alone.
fn with_node(lifecycle: &mut Lifecycle, name: &str, plugin: &str) {
    let allocatable = json!({ "cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": plugin });
    let node = json!({ "metadata": { "name": name }, "status": { "allocatable": allocatable } });
    lifecycle.observe(NOW, Event::Node(Box::new(object(node))));
    let device = |at: u32| {
        let color = if at < 4 { "red" } else { "blue" };
        json!({ "name": format!("gpu-{at}"), "attributes": {
            "type": { "string": "gpu" }, "productName": { "string": "A100" }, "color": { "string": color },
            "resource.kubernetes.io/numaNode": { "int": at / 4 } } })
    };
    let slice = json!({
        "metadata": { "name": name },
        "spec": { "driver": DRIVER, "nodeName": name, "devices": (0..8).map(device).collect::<Vec<_>>(),
            "pool": { "name": name, "generation": 1, "resourceSliceCount": 1 } },
    });
    tell(lifecycle, DeviceEvent::Slice(object(slice)));
}

fn with_class(lifecycle: &mut Lifecycle) {
    let selector = json!({ "cel": { "expression": format!("device.driver == '{DRIVER}'") } });
    let class = json!({ "metadata": { "name": "gpu" }, "spec": { "selectors": [selector] } });
    tell(lifecycle, DeviceEvent::Class(object(class)));
}

/// Nodes without a device plugin, and the class of their GPUs.
fn cluster(nodes: &[&str]) -> Lifecycle {
    let mut lifecycle = lifecycle();
    with_class(&mut lifecycle);
    for name in nodes {
        with_node(&mut lifecycle, name, "0");
    }
    lifecycle
}

/// Pods that ask for so many GPUs each by a claim that was made for them.
fn with_pods(lifecycle: &mut Lifecycle, names: &[&str], count: u32, color: Option<&str>) {
    for name in names {
        tell(lifecycle, claim(&format!("{name}-c"), count, color, Some(name), json!({})));
        lifecycle.observe(NOW, pod(name, json!({})));
    }
}

/// A claim made for a pod, or one by itself.
fn claim(name: &str, count: u32, color: Option<&str>, pod: Option<&str>, status: Value) -> DeviceEvent {
    let mut exactly = json!({ "deviceClassName": "gpu", "count": count });
    if let Some(color) = color {
        let selects = format!("device.attributes['{DRIVER}'].color == '{color}'");
        exactly["selectors"] = json!([{ "cel": { "expression": selects } }]);
    }
    let mut metadata =
        json!({ "name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "1" });
    if let Some(pod) = pod {
        metadata["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "Pod", "name": pod, "uid": format!("uid-{pod}"), "controller": true }]);
    }
    let spec = json!({ "devices": { "requests": [{ "name": "r", "exactly": exactly }] } });
    DeviceEvent::Claim(object(json!({ "metadata": metadata, "spec": spec, "status": status })))
}

fn allocated(node: &str, devices: &[u32], users: &[&str]) -> Value {
    let result =
        |at: &u32| json!({ "request": "r", "driver": DRIVER, "pool": node, "device": format!("gpu-{at}") });
    let only = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
    let user = |name: &&str| json!({ "resource": "pods", "name": name, "uid": format!("uid-{name}") });
    json!({
        "allocation": {
            "devices": { "results": devices.iter().map(result).collect::<Vec<_>>() },
            "nodeSelector": { "nodeSelectorTerms": [{ "matchFields": [only] }] },
        },
        "reservedFor": users.iter().map(user).collect::<Vec<_>>(),
    })
}

/// A pod whose claim was made from a template, and is called `<pod>-c`.
fn pod(name: &str, more: Value) -> Event {
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}") },
        "spec": { "schedulerName": "phalanx", "containers": [{ "name": "main" }],
            "resourceClaims": [{ "name": "gpus", "resourceClaimTemplateName": "t" }] },
        "status": { "resourceClaimStatuses": [{ "name": "gpus", "resourceClaimName": format!("{name}-c") }] },
    });
    for (key, value) in more.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    Event::Pod(Box::new(object(pod)))
}

fn jobs(facts: &[Input]) -> Vec<Job> {
    let job = |fact: &Input| match fact {
        Input::JobSubmitted { job } => Some(Job::clone(job)),
        _ => None,
    };
    facts.iter().filter_map(job).collect()
}

/// A node as the engine was told last.
fn node(facts: &[Input], name: &str) -> Option<Node> {
    let told = |fact: &Input| match fact {
        Input::NodeObserved { node } if node.name.as_str() == name => Some(Node::clone(node)),
        _ => None,
    };
    facts.iter().rev().find_map(told)
}

/// Devices of a node that others hold, as the engine was told last.
fn foreign(facts: &[Input], name: &str) -> Option<DeviceMask> {
    let told = |fact: &Input| match fact {
        Input::NodeObserved { node } if node.name.as_str() == name => Some(node.foreign),
        Input::NodeUseObserved { node, foreign, .. } if node.as_str() == name => Some(*foreign),
        _ => None,
    };
    facts.iter().rev().find_map(told)
}

fn start(lifecycle: &mut Lifecycle, job: JobId, attempt: u32, places: &[(&str, &str)]) {
    let slot = |(rank, (node, devices)): (u32, &(&str, &str))| Slot {
        rank,
        node: NodeName::new(*node).unwrap(),
        devices: devices.parse().unwrap(),
        part: None,
    };
    let slots = (0..).zip(places).map(slot).collect();
    let placement = Placement { slots, level: LevelName::new("cluster").unwrap() };
    let gang = GangId { job, index: 0 };
    let order = Order::StartMembers { gang, attempt, placement, deadline: Timestamp(9_000) };
    lifecycle.carry_out(&order, None);
}

/// Bindings: pod, devices of its annotation, claims with their devices.
fn bound(calls: &[Call]) -> Vec<(String, String, Vec<Reservation>)> {
    let bind = |call: &Call| match call {
        Call::Bind { pod, annotations, before, .. } => {
            let reservation = |step: &Step| match step {
                Step::Claim(reservation) => Some(Reservation::clone(reservation)),
                Step::Patch { .. } => None,
            };
            let claims = before.iter().filter_map(reservation).collect();
            Some((pod.name.to_string(), annotations["phalanx.dev/devices"].clone(), claims))
        }
        _ => None,
    };
    calls.iter().filter_map(bind).collect()
}

fn released(calls: &[Call]) -> Vec<String> {
    let release = |call: &Call| match call {
        Call::Release { claim, .. } => Some(claim.name.to_string()),
        _ => None,
    };
    calls.iter().filter_map(release).collect()
}

fn devices(reservation: &Reservation) -> Vec<&str> {
    let results = reservation.allocation.devices.as_ref().unwrap().results.as_ref().unwrap();
    results.iter().map(|result| &*result.device).collect()
}

fn failures(facts: &[Input]) -> Vec<String> {
    let exit = |fact: &Input| match fact {
        Input::MemberExited { exit, .. } => Some(exit.detail.clone()),
        _ => None,
    };
    facts.iter().filter_map(exit).collect()
}

#[test]
fn published_devices_are_those_of_the_machine_and_counted_once() {
    for plugin in ["0", "8"] {
        let mut lifecycle = lifecycle();
        with_class(&mut lifecycle);
        with_node(&mut lifecycle, "a", plugin);
        tell(&mut lifecycle, claim("others", 3, None, None, allocated("a", &[1, 2, 6], &["foreign"])));
        let facts = lifecycle.begin(NOW);
        let node = node(&facts, "a").unwrap();
        assert_eq!((node.machine.device_count(), node.foreign), (8, "1-2,6".parse().unwrap()));
        assert_eq!((&*node.machine.devices[0].model, node.machine.devices[7].numa), ("A100", Some(1)));
    }
}

#[test]
fn a_pod_gets_the_devices_of_its_place_and_nobody_else_does() {
    let mut lifecycle = cluster(&["a"]);
    with_pods(&mut lifecycle, &["x", "y"], 4, None);
    let facts = lifecycle.begin(NOW);
    let jobs = jobs(&facts);
    let needs = &jobs[0].gangs[0].needs;
    assert_eq!((needs.devices, needs.named.len()), (4, 0), "counting devices is enough");
    let within = needs.within.clone().unwrap();
    assert!(within.as_str().contains("devices for claim gpus: 4 of gpu"), "{within}");
    assert!(node(&facts, "a").unwrap().sets.contains(&within));

    start(&mut lifecycle, jobs[0].id, 1, &[("a", "2-5")]);
    let calls = lifecycle.calls();
    let binding = &bound(&calls)[0];
    assert_eq!((&*binding.0, &*binding.1), ("x", "2-5"));
    assert_eq!(devices(&binding.2[0]), ["gpu-2", "gpu-3", "gpu-4", "gpu-5"]);
    let facts = lifecycle.settle(NOW);
    assert!(
        node(&facts, "a").is_none_or(|node| node.foreign.is_empty()),
        "what ours have is no use by others"
    );
    // The engine meant devices of which one is gone by now: others of that node do as well.
    start(&mut lifecycle, jobs[1].id, 1, &[("a", "1,5-7")]);
    let calls = lifecycle.calls();
    let binding = &bound(&calls)[0];
    assert_eq!((&*binding.0, &*binding.1), ("y", "0-1,6-7"));
}

#[test]
fn a_gang_whose_claims_do_not_fit_is_taken_back_before_anything_is_bound() {
    let mut lifecycle = cluster(&["a"]);
    with_pods(&mut lifecycle, &["x"], 4, None);
    let facts = lifecycle.begin(NOW);
    let job = jobs(&facts)[0].id;
    // Another scheduler was faster, and the engine does not know yet.
    tell(&mut lifecycle, claim("others", 6, None, None, allocated("a", &[0, 1, 2, 3, 4, 5], &["foreign"])));
    start(&mut lifecycle, job, 1, &[("a", "0-3")]);
    assert_eq!(bound(&lifecycle.calls()), []);
    let facts = lifecycle.settle(NOW);
    let why = failures(&facts);
    assert!(
        why[0].contains("claim default/x-c, request r: wants 4 of 8 matching devices, 6 taken"),
        "{why:?}"
    );
    let told = node(&facts, "a").unwrap();
    assert_eq!(
        told.foreign,
        "4-7".parse().unwrap(),
        "6 beside those that the engine has given away, as far as there are"
    );
    assert_eq!(told.sets, [], "nobody is sent there again until something changes");
    lifecycle.gang_waits(GangId { job, index: 0 });
    assert_eq!(released(&lifecycle.calls()), [""; 0], "nothing was written");
    let facts = lifecycle.settle(NOW);
    assert_eq!(foreign(&facts, "a").unwrap(), "0-5".parse().unwrap());
    tell(&mut lifecycle, DeviceEvent::ClaimGone { namespace: "default".into(), name: "others".into() });
    let facts = lifecycle.settle(NOW);
    assert_eq!(node(&facts, "a").unwrap().sets.len(), 1);
}

#[test]
fn what_was_given_for_nothing_goes_back_and_is_free_when_it_has() {
    let mut lifecycle = cluster(&["a"]);
    with_pods(&mut lifecycle, &["x"], 4, None);
    let facts = lifecycle.begin(NOW);
    let job = jobs(&facts)[0].id;
    start(&mut lifecycle, job, 1, &[("a", "0-3")]);
    assert_eq!(bound(&lifecycle.calls()).len(), 1);
    // The claim is written, and the binding fails.
    tell(&mut lifecycle, claim("x-c", 4, None, Some("x"), allocated("a", &[0, 1, 2, 3], &["x"])));
    let member = MemberId { gang: GangId { job, index: 0 }, attempt: 1, rank: 0 };
    let lost =
        Unbound { class: phalanx_model::FailureClass::StartUp, detail: "gone".to_owned(), may_come: false };
    lifecycle.observe(NOW, Event::Bound { member, result: Err(lost) });
    lifecycle.settle(NOW);
    lifecycle.gang_waits(GangId { job, index: 0 });
    assert_eq!(released(&lifecycle.calls()), ["x-c"]);
    let facts = lifecycle.settle(NOW);
    assert_eq!(foreign(&facts, "a").unwrap(), "0-3".parse().unwrap(), "until it has gone back");
    // A start that comes before waits for it.
    start(&mut lifecycle, job, 2, &[("a", "4-7")]);
    assert_eq!(bound(&lifecycle.calls()), []);
    let DeviceEvent::Claim(now) = claim("x-c", 4, None, Some("x"), json!({})) else { unreachable!() };
    let back = DeviceEvent::Released {
        namespace: "default".into(),
        name: "x-c".into(),
        claim: Some(now),
        is_gone: false,
    };
    tell(&mut lifecycle, back);
    let calls = lifecycle.calls();
    assert_eq!(&*bound(&calls)[0].1, "4-7");
}

#[test]
fn what_an_earlier_scheduler_gave_and_did_not_bind_goes_back() {
    let mut lifecycle = cluster(&["a"]);
    tell(&mut lifecycle, claim("x-c", 8, None, Some("x"), allocated("a", &[0, 1, 2, 3, 4, 5, 6, 7], &["x"])));
    lifecycle.observe(NOW, pod("x", json!({})));
    let facts = lifecycle.begin(NOW);
    assert_eq!(jobs(&facts)[0].gangs[0].needs.devices, 8);
    assert_eq!(foreign(&facts, "a").unwrap().count(), 8);
    assert_eq!(released(&lifecycle.calls()), ["x-c"], "its own devices would be in its way for ever");
}

/// They were counted as of others, beside the place of the pod itself, for as long as nothing else happened on the node.
#[test]
fn devices_that_an_earlier_scheduler_allocated_for_a_pod_that_it_did_not_bind_are_counted_once() {
    let mut lifecycle = cluster(&["a"]);
    for (name, devices, node) in [("x", [0, 1], Some("a")), ("y", [2, 3], None)] {
        tell(
            &mut lifecycle,
            claim(&format!("{name}-c"), 2, None, Some(name), allocated("a", &devices, &[name])),
        );
        let Event::Pod(mut pod) = pod(name, json!({})) else { unreachable!() };
        let annotations = json!({
            "phalanx.dev/attempt": "1", "phalanx.dev/devices": "0-1", "phalanx.dev/gang-size": "2",
            "phalanx.dev/placement": "a 0-1; a 2-3", "phalanx.dev/rank": "0",
            "phalanx.dev/ready-by": "2100-01-01T00:00:00Z",
        });
        pod.metadata.labels = object(json!({
            "pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2",
        }));
        pod.metadata.annotations = node.map(|_| object(annotations));
        pod.spec.node_name = node.map(str::to_owned);
        lifecycle.observe(NOW, Event::Pod(pod));
    }
    let facts = lifecycle.begin(NOW);
    // What is not known to be theirs yet is somebody else's: so many others are not free.
    assert_eq!(foreign(&facts, "a").unwrap(), "6-7".parse().unwrap());
    let job = facts.iter().find_map(|fact| match fact {
        Input::JobObserved { job, .. } => Some(job.id),
        _ => None,
    });
    start(&mut lifecycle, job.unwrap(), 1, &[("a", "0-1"), ("a", "2-3")]);
    assert_eq!(bound(&lifecycle.calls())[0].0, "y");
    let facts = lifecycle.settle(NOW);
    assert!(foreign(&facts, "a").unwrap().is_empty(), "{facts:?}");
}

#[test]
fn claims_that_are_not_made_yet_are_waited_for_at_a_start() {
    let mut lifecycle = cluster(&["a"]);
    with_pods(&mut lifecycle, &["x"], 4, None);
    let facts = lifecycle.begin(NOW);
    tell(&mut lifecycle, DeviceEvent::ClaimGone { namespace: "default".into(), name: "x-c".into() });
    start(&mut lifecycle, jobs(&facts)[0].id, 1, &[("a", "0-3")]);
    assert_eq!((bound(&lifecycle.calls()), failures(&lifecycle.settle(NOW))), (vec![], vec![]));
    tell(&mut lifecycle, claim("x-c", 4, None, Some("x"), json!({})));
    assert_eq!(&*bound(&lifecycle.calls())[0].1, "0-3");
}

#[test]
fn devices_of_pods_that_are_gone_are_waited_for_at_a_start() {
    let mut lifecycle = cluster(&["a"]);
    with_pods(&mut lifecycle, &["x", "y"], 8, None);
    let facts = lifecycle.begin(NOW);
    let jobs = jobs(&facts);
    start(&mut lifecycle, jobs[0].id, 1, &[("a", "0-7")]);
    assert_eq!(bound(&lifecycle.calls()).len(), 1);
    tell(&mut lifecycle, claim("x-c", 8, None, Some("x"), allocated("a", &[0, 1, 2, 3, 4, 5, 6, 7], &["x"])));
    let (namespace, name) = ("default".to_owned(), "x".to_owned());
    lifecycle.observe(NOW, Event::PodGone { namespace, name, uid: "uid-x".to_owned() });
    assert_eq!(failures(&lifecycle.settle(NOW)), ["pod x was deleted"]);
    lifecycle.job_ended(jobs[0].id);
    // The pod is gone, and Kubernetes has not taken back its devices.
    start(&mut lifecycle, jobs[1].id, 1, &[("a", "0-7")]);
    assert_eq!((bound(&lifecycle.calls()), failures(&lifecycle.settle(NOW))), (vec![], vec![]));
    tell(&mut lifecycle, DeviceEvent::ClaimGone { namespace: "default".into(), name: "x-c".into() });
    assert_eq!(&*bound(&lifecycle.calls())[0].1, "0-7");
}

#[test]
fn selected_devices_are_counted_by_themselves() {
    let mut lifecycle = cluster(&["a"]);
    with_pods(&mut lifecycle, &["x", "y"], 3, Some("blue"));
    let facts = lifecycle.begin(NOW);
    let jobs = jobs(&facts);
    let needs = &jobs[0].gangs[0].needs;
    let (counted, _) = needs.named.iter().find(|(name, _)| name.as_str().starts_with("claims/")).unwrap();
    let free = |facts: &[Input]| {
        let node = node(facts, "a").unwrap();
        node.machine.named[counted] - node.foreign_use.named.get(counted).copied().unwrap_or(0)
    };
    assert_eq!((needs.devices, free(&facts)), (3, 1), "4 blue ones hold 3 once");
    start(&mut lifecycle, jobs[0].id, 1, &[("a", "0-2")]);
    let calls = lifecycle.calls();
    assert_eq!(&*bound(&calls)[0].1, "4-6", "the engine does not know colors");
    assert!(node(&lifecycle.settle(NOW), "a").is_none(), "the engine counts what it has given away itself");
    // Another claim takes the blue ones of a node that has just come.
    with_node(&mut lifecycle, "b", "0");
    tell(&mut lifecycle, claim("others", 2, None, None, allocated("b", &[4, 5], &["foreign"])));
    let told = node(&lifecycle.settle(NOW), "b").unwrap();
    assert_eq!((told.machine.named[counted], told.foreign_use.named[counted]), (COUNTED_MAX, COUNTED_MAX));
}

#[test]
fn a_claim_is_allocated_with_one_pod_and_the_others_follow() {
    let shared = json!({ "resourceClaims": [{ "name": "gpus", "resourceClaimName": "s" }] });
    let mut lifecycle = cluster(&["a", "b"]);
    tell(&mut lifecycle, claim("s", 2, None, None, json!({})));
    for name in ["x", "y"] {
        lifecycle.observe(NOW, pod(name, shared.clone()));
    }
    let facts = lifecycle.begin(NOW);
    let first = jobs(&facts);
    assert_eq!(first.len(), 1, "the other waits");
    let waits = lifecycle.calls();
    assert!(
        matches!(&waits[0], Call::Explain { message, .. } if message.contains("is allocated with pod x first")),
        "{waits:?}"
    );
    start(&mut lifecycle, first[0].id, 1, &[("b", "0-1")]);
    assert_eq!(devices(&bound(&lifecycle.calls())[0].2[0]), ["gpu-0", "gpu-1"]);
    tell(&mut lifecycle, claim("s", 2, None, None, allocated("b", &[0, 1], &["x"])));
    let facts = lifecycle.settle(NOW);
    let second = jobs(&facts);
    let needs = &second[0].gangs[0].needs;
    assert_eq!(needs.devices, 0);
    let within = needs.within.clone().unwrap();
    let told = node(&facts, "b").unwrap();
    assert!(told.sets.contains(&within) && told.foreign == DeviceMask::EMPTY, "{told:?}");
    assert!(node(&facts, "a").is_none_or(|node| !node.sets.contains(&within)));
    start(&mut lifecycle, second[0].id, 1, &[("b", "-")]);
    let calls = lifecycle.calls();
    let binding = &bound(&calls)[0];
    assert_eq!((&*binding.1, devices(&binding.2[0])), ("-", vec!["gpu-0", "gpu-1"]));
}

#[test]
fn what_nobody_can_serve_is_said_with_claim_and_request() {
    let mut lifecycle = lifecycle();
    with_node(&mut lifecycle, "a", "0");
    with_pods(&mut lifecycle, &["x"], 1, None);
    lifecycle.begin(NOW);
    let said = |lifecycle: &mut Lifecycle| match lifecycle.calls().pop() {
        Some(Call::Explain { message, .. }) => message.to_string(),
        other => panic!("{other:?}"),
    };
    let why = said(&mut lifecycle);
    assert!(why.contains("claim default/gpus, spec.devices.requests[0].exactly.deviceClassName: there is no device class `gpu`"), "{why}");
    with_class(&mut lifecycle);
    let facts = lifecycle.settle(NOW);
    assert_eq!(jobs(&facts).len(), 1);
    // An administrator's look at devices needs the right.
    let DeviceEvent::Claim(mut admin) = claim("y-c", 1, None, Some("y"), json!({})) else { unreachable!() };
    let request = &mut admin.spec.devices.as_mut().unwrap().requests.as_mut().unwrap()[0];
    request.exactly.as_mut().unwrap().admin_access = Some(true);
    tell(&mut lifecycle, DeviceEvent::Claim(admin));
    lifecycle.observe(NOW, pod("y", json!({})));
    lifecycle.settle(NOW);
    let why = said(&mut lifecycle);
    assert!(why.contains("adminAccess: admin access needs the label"), "{why}");
    let labels = [("resource.kubernetes.io/admin-access".to_owned(), "true".to_owned())].into();
    lifecycle.observe(NOW, Event::Namespace { name: "default".to_owned(), labels: Some(labels) });
    let facts = lifecycle.settle(NOW);
    assert_eq!(jobs(&facts)[0].gangs[0].needs.devices, 0, "it takes no device");
}
