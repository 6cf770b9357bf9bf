//! Pods that ask for extended resources, which claims serve where no device plugin has them.

use k8s_openapi::api::resource::v1::ResourceClaim;

use super::*;

const GPU: &str = "nvidia.com/gpu";

/// Nodes `a` … without a device plugin, whose devices a class offers as GPUs.
fn cluster(nodes: &[&str]) -> Lifecycle {
    let mut lifecycle = super::cluster(nodes);
    let selector = json!({ "cel": { "expression": format!("device.driver == '{DRIVER}'") } });
    let spec = json!({ "selectors": [selector], "extendedResourceName": GPU });
    tell(&mut lifecycle, DeviceEvent::Class(object(json!({ "metadata": { "name": "gpu" }, "spec": spec }))));
    lifecycle
}

fn asking(name: &str, resource: &str, count: u32) -> Event {
    let requests = json!({ "requests": { resource: count.to_string() } });
    pod(name, json!({ "resourceClaims": [], "containers": [{ "name": "main", "resources": requests }] }))
}

/// The claims that bindings make or use, each with the name that is written onto its pod.
fn claims(calls: &[Call]) -> Vec<(Reservation, Option<String>)> {
    let bind = |call: &Call| match call {
        Call::Bind { before, .. } => {
            let claim = before.iter().find_map(|step| match step {
                Step::Claim(reservation) => Some(Reservation::clone(reservation)),
                Step::Patch { .. } => None,
            })?;
            let told = before.iter().find_map(|step| match step {
                Step::Patch { patch, .. } => {
                    patch["status"]["extendedResourceClaimStatus"]["resourceClaimName"].as_str()
                }
                Step::Claim(_) => None,
            });
            Some((claim, told.map(str::to_owned)))
        }
        _ => None,
    };
    calls.iter().filter_map(bind).collect()
}

/// As the API server shows it once it is written.
fn written(reservation: &Reservation) -> ResourceClaim {
    let mut claim = ResourceClaim::clone(&reservation.claim);
    claim.metadata.uid = Some("uid-made".to_owned());
    claim.metadata.resource_version = Some("7".to_owned());
    let user = json!({ "resource": "pods", "name": &*reservation.pod.name, "uid": &*reservation.pod.uid });
    claim.status = Some(object(json!({ "allocation": reservation.allocation, "reservedFor": [user] })));
    claim
}

fn show(lifecycle: &mut Lifecycle, reservation: &Reservation) -> String {
    let claim = written(reservation);
    let name = claim.metadata.name.clone().unwrap();
    tell(lifecycle, DeviceEvent::Claim(Box::new(claim)));
    name
}

fn lose(lifecycle: &mut Lifecycle, name: &str) {
    tell(lifecycle, DeviceEvent::ClaimGone { namespace: "default".into(), name: name.into() });
}

/// The names of claims that are to be deleted.
fn deleted(calls: &[Call]) -> Vec<&str> {
    let gone = |call: &'_ Call| matches!(call, Call::Release { is_deleted: true, .. });
    let released = calls.iter().filter(|call| gone(call));
    released
        .filter_map(|call| match call {
            Call::Release { claim, .. } => Some(&*claim.name),
            _ => None,
        })
        .collect()
}

#[test]
fn a_claim_is_made_with_the_devices_of_the_place() {
    let mut lifecycle = cluster(&["a"]);
    for name in ["x", "y"] {
        lifecycle.observe(NOW, asking(name, GPU, 4));
    }
    let facts = lifecycle.begin(NOW);
    let jobs = jobs(&facts);
    let needs = &jobs[0].gangs[0].needs;
    assert_eq!((needs.devices, needs.named.len()), (4, 0), "counting devices is enough");
    let within = needs.within.clone().unwrap();
    assert!(within.as_str().contains("4 of nvidia.com/gpu by a device plugin or a claim"), "{within}");
    assert!(node(&facts, "a").unwrap().sets.contains(&within));

    start(&mut lifecycle, jobs[0].id, 1, &[("a", "2-5")]);
    let calls = lifecycle.calls();
    assert_eq!(&*bound(&calls)[0].1, "2-5");
    let (made, told) = &claims(&calls)[0];
    assert_eq!(devices(made), ["gpu-2", "gpu-3", "gpu-4", "gpu-5"]);
    let metadata = &made.claim.metadata;
    assert_eq!((metadata.uid.as_ref(), metadata.name.as_ref()), (None, told.as_ref()), "it is to be made");
    assert_eq!(metadata.owner_references.as_ref().unwrap()[0].uid, "uid-x");
    // As long as it is not seen, and from then on, nobody else gets its devices, and they are no use by others.
    for is_seen in [false, true] {
        if is_seen {
            show(&mut lifecycle, made);
        }
        let facts = lifecycle.settle(NOW);
        assert!(node(&facts, "a").is_none_or(|node| node.foreign.is_empty()), "seen: {is_seen}");
    }
    start(&mut lifecycle, jobs[1].id, 1, &[("a", "1,5-7")]);
    let calls = lifecycle.calls();
    assert_eq!(&*bound(&calls)[0].1, "0-1,6-7");
    let (other, _) = &claims(&calls)[0];
    assert_ne!(other.claim.metadata.name, made.claim.metadata.name);
}

#[test]
fn a_device_plugin_serves_pods_where_there_is_one() {
    let mut lifecycle = cluster(&[]);
    with_node(&mut lifecycle, "a", "8");
    lifecycle.observe(NOW, asking("x", GPU, 4));
    let facts = lifecycle.begin(NOW);
    start(&mut lifecycle, jobs(&facts)[0].id, 1, &[("a", "2-5")]);
    let calls = lifecycle.calls();
    assert_eq!(&*bound(&calls)[0].1, "2-5");
    assert!(matches!(&calls[0], Call::Bind { before, .. } if before.is_empty()), "{calls:?}");
}

#[test]
fn what_neither_a_plugin_nor_a_class_offers_is_named() {
    let mut lifecycle = super::cluster(&["a"]);
    lifecycle.observe(NOW, asking("x", GPU, 1));
    lifecycle.begin(NOW);
    let Some(Call::Explain { message, .. }) = lifecycle.calls().pop() else { panic!("nothing is said") };
    let why = "no device plugin offers nvidia.com/gpu, and no device class stands for it (1 nodes)";
    assert!(message.contains(why), "{message}");
}

#[test]
fn a_claim_that_an_earlier_scheduler_made_is_deleted_before_another_is_made() {
    let mut first = cluster(&["a"]);
    first.observe(NOW, asking("x", GPU, 4));
    let facts = first.begin(NOW);
    start(&mut first, jobs(&facts)[0].id, 1, &[("a", "0-3")]);
    let (made, _) = claims(&first.calls()).remove(0);
    // It was killed before the binding.
    let mut lifecycle = cluster(&["a"]);
    let earlier = show(&mut lifecycle, &made);
    lifecycle.observe(NOW, asking("x", GPU, 4));
    let facts = lifecycle.begin(NOW.plus(1));
    assert_eq!(deleted(&lifecycle.calls()), [&*earlier]);
    start(&mut lifecycle, jobs(&facts)[0].id, 1, &[("a", "4-7")]);
    assert_eq!(
        (bound(&lifecycle.calls()), failures(&lifecycle.settle(NOW))),
        (vec![], vec![]),
        "it never has two"
    );
    let released = |is_gone| DeviceEvent::Released {
        namespace: "default".into(),
        name: earlier.clone(),
        claim: None,
        is_gone,
    };
    tell(&mut lifecycle, released(true));
    assert_eq!(bound(&lifecycle.calls()), [], "the watch has not said that it is gone");
    lose(&mut lifecycle, &earlier);
    let calls = lifecycle.calls();
    assert_eq!(&*bound(&calls)[0].1, "4-7");
    assert_ne!(
        claims(&calls)[0].0.claim.metadata.name.as_deref(),
        Some(&*earlier),
        "names do not come again"
    );
}

/// A gang of two of which one was bound: the other has its place, and its claim.
#[test]
fn a_gang_that_was_bound_in_part_goes_on_with_the_claims_that_were_made() {
    let member = |name: &str, note: Value| {
        let Event::Pod(pod) = asking(name, GPU, 4) else { unreachable!() };
        let mut pod = serde_json::to_value(*pod).unwrap();
        pod["metadata"]["labels"] = json!({
            "pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2",
        });
        if !note.is_null() {
            pod["metadata"]["annotations"] = note;
            pod["spec"]["nodeName"] = json!("a");
        }
        Event::Pod(Box::new(object(pod)))
    };
    let mut first = cluster(&["a"]);
    for name in ["x", "y"] {
        first.observe(NOW, member(name, Value::Null));
    }
    let facts = first.begin(NOW);
    start(&mut first, jobs(&facts)[0].id, 1, &[("a", "0-3"), ("a", "4-7")]);
    let calls = first.calls();
    let Some(Call::Bind { annotations, .. }) = calls.first() else { panic!("{calls:?}") };
    let made = claims(&calls);
    let mut lifecycle = cluster(&["a"]);
    let names: Vec<String> = made.iter().map(|(made, _)| show(&mut lifecycle, made)).collect();
    lifecycle.observe(NOW, member("x", json!(annotations)));
    lifecycle.observe(NOW, member("y", Value::Null));
    let facts = lifecycle.begin(NOW);
    assert_eq!(deleted(&lifecycle.calls()), [""; 0]);
    let job = facts.iter().find_map(|fact| match fact {
        Input::JobObserved { job, .. } => Some(job.id),
        _ => None,
    });
    start(&mut lifecycle, job.unwrap(), 1, &[("a", "0-3"), ("a", "4-7")]);
    let calls = lifecycle.calls();
    let again = claims(&calls);
    assert_eq!((bound(&calls).len(), &*bound(&calls)[0].0), (1, "y"));
    assert_eq!(again[0].0.claim.metadata.uid.as_deref(), Some("uid-made"));
    assert_eq!(again[0].1.as_ref(), Some(&names[1]));
}

#[test]
fn a_claim_of_a_start_that_came_to_nothing_is_deleted_and_its_devices_are_free() {
    for is_seen in [false, true] {
        let mut lifecycle = cluster(&["a"]);
        lifecycle.observe(NOW, asking("x", GPU, 8));
        let facts = lifecycle.begin(NOW);
        let job = jobs(&facts)[0].id;
        start(&mut lifecycle, job, 1, &[("a", "0-7")]);
        let (made, _) = claims(&lifecycle.calls()).remove(0);
        let name = made.claim.metadata.name.clone().unwrap();
        if is_seen {
            show(&mut lifecycle, &made);
        }
        let member = MemberId { gang: GangId { job, index: 0 }, attempt: 1, rank: 0 };
        let lost = Unbound {
            class: phalanx_model::FailureClass::StartUp,
            detail: "gone".to_owned(),
            may_come: false,
        };
        lifecycle.observe(NOW, Event::Bound { member, result: Err(lost) });
        lifecycle.gang_waits(GangId { job, index: 0 });
        assert_eq!(deleted(&lifecycle.calls()), [&*name]);
        let namespace = "default".to_owned();
        tell(
            &mut lifecycle,
            DeviceEvent::Released { namespace, name: name.clone(), claim: None, is_gone: true },
        );
        if is_seen {
            lose(&mut lifecycle, &name);
        }
        lifecycle.settle(NOW);
        start(&mut lifecycle, job, 2, &[("a", "0-7")]);
        let calls = lifecycle.calls();
        assert_eq!(&*bound(&calls)[0].1, "0-7", "seen: {is_seen}");
        assert_ne!(claims(&calls)[0].0.claim.metadata.name, Some(name));
    }
}

/// They had no accelerators among them, so nothing was counted, and any number of pods went to one node.
#[test]
fn devices_that_are_no_accelerators_are_counted_by_their_claims() {
    let mut lifecycle = cluster(&["a"]);
    let class = json!({ "metadata": { "name": "fpga" }, "spec": {
        "selectors": [{ "cel": { "expression": "device.driver == 'fpga.example.com'" } }],
        "extendedResourceName": "example.com/fpga",
    } });
    tell(&mut lifecycle, DeviceEvent::Class(object(class)));
    let slice = json!({ "metadata": { "name": "fpgas" }, "spec": {
        "driver": "fpga.example.com", "nodeName": "a", "devices": [{ "name": "f0" }, { "name": "f1" }],
        "pool": { "name": "a", "generation": 1, "resourceSliceCount": 1 },
    } });
    tell(&mut lifecycle, DeviceEvent::Slice(object(slice)));
    lifecycle.observe(NOW, asking("x", "example.com/fpga", 1));
    let facts = lifecycle.begin(NOW);
    let jobs = jobs(&facts);
    let needs = &jobs[0].gangs[0].needs;
    assert_eq!(needs.devices, 0);
    let told = node(&facts, "a").unwrap();
    let free = |name: &phalanx_model::ResourceName| {
        told.machine.named[name] - told.foreign_use.named.get(name).copied().unwrap_or(0)
    };
    let (counted, _) = needs.named.iter().find(|(name, _)| name.as_str().starts_with("claims/")).unwrap();
    assert_eq!(free(counted), 2);
    let resource = phalanx_model::ResourceName::new("example.com/fpga").unwrap();
    assert_eq!(needs.named[&resource], 1);
    assert!(free(&resource) > 1_000_000, "claims serve it");
    start(&mut lifecycle, jobs[0].id, 1, &[("a", "-")]);
    assert_eq!(devices(&claims(&lifecycle.calls())[0].0), ["f0"]);
}

#[test]
fn a_pod_of_others_that_a_claim_serves_holds_its_devices_once() {
    let mut lifecycle = cluster(&["a"]);
    tell(&mut lifecycle, claim("c", 3, None, Some("other"), allocated("a", &[1, 2, 6], &["other"])));
    let Event::Pod(pod) = asking("other", GPU, 3) else { unreachable!() };
    let mut pod = serde_json::to_value(*pod).unwrap();
    pod["spec"]["schedulerName"] = json!("default-scheduler");
    pod["spec"]["nodeName"] = json!("a");
    pod["status"]["extendedResourceClaimStatus"] = json!({ "resourceClaimName": "c", "requestMappings": [
        { "containerName": "main", "resourceName": GPU, "requestName": "container-0-request-0" },
    ] });
    lifecycle.observe(NOW, Event::Pod(Box::new(object(pod))));
    let facts = lifecycle.begin(NOW);
    assert_eq!(node(&facts, "a").unwrap().foreign, "1-2,6".parse().unwrap());
}

#[test]
fn a_pod_that_waits_when_devices_are_published_is_asked_anew() {
    let mut lifecycle = lifecycle();
    let allocatable = json!({ "cpu": "64", "memory": "64Gi", "pods": "110" });
    let bare = json!({ "metadata": { "name": "a" }, "status": { "allocatable": allocatable } });
    lifecycle.observe(NOW, Event::Node(Box::new(object(bare))));
    lifecycle.observe(NOW, asking("x", GPU, 4));
    let facts = lifecycle.begin(NOW);
    let job = jobs(&facts)[0].id;
    with_node(&mut lifecycle, "a", "0");
    let cancels = |fact: &Input| matches!(fact, Input::CancelRequested { job: of, .. } if *of == job);
    assert!(lifecycle.settle(NOW).iter().any(cancels), "its place was looked for without claims");
}
