//! Pods that end before they ran, and pods that take long to end.

use std::time::Duration;

use phalanx_kube::world::ANSWER;
use serde_json::{Value, json};

use crate::support::record::Record;
use crate::support::{Cluster, JOBS, PODS, Times, job, pod};

const NEVER: &str = "controlplane.phalanx.dev/never-ready";
const FAILS: &str = "controlplane.phalanx.dev/fail-after";
const STOPS: &str = "controlplane.phalanx.dev/stop-after";

/// Pods that everybody sees on their way out.
fn going(cluster: &Cluster, gang: &str) -> usize {
    let pods = cluster.api().get(PODS).unwrap();
    let of_it = pods["items"].as_array().unwrap().iter().filter(|pod| {
        pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == gang
            && pod["metadata"]["deletionTimestamp"].is_string()
    });
    of_it.count()
}

/// A gang without room, as its first pod says.
fn until_waits(cluster: &Cluster, gang: &str) {
    let name = cluster.until("the pods of a gang", |cluster| {
        let seats = cluster.seats();
        seats.into_iter().find(|seat| seat.gang == gang).map(|seat| seat.name)
    });
    cluster.until_explained(&name, "");
}

#[test]
fn a_pod_that_its_node_turns_away_is_made_again_at_its_place_and_what_failed_gives_its_devices_back() {
    let mut cluster = Cluster::of(1);
    let record = Record::begin(cluster.api(), [("fails".to_owned(), 4), ("turned".to_owned(), 4)]);
    cluster.schedule(0);
    // Its Job makes none of them again.
    let mut fails = job("fails", 4, 2, &json!({ FAILS: "100ms" }));
    fails["spec"]["backoffLimit"] = json!(0);
    cluster.create(JOBS, &fails);
    cluster.until("a Job that failed", |cluster| {
        let conditions = cluster.api().get(&format!("{JOBS}/fails")).unwrap()["status"]["conditions"].take();
        conditions.as_array()?.iter().any(|one| one["type"] == "Failed").then_some(())
    });
    cluster.create(JOBS, &job("turned", 4, 2, &json!({ NEVER: "" })));
    let seats = cluster.until("a whole gang on its nodes", |cluster| {
        let seats: Vec<_> = cluster.seats().into_iter().filter(|seat| seat.gang == "turned").collect();
        (seats.iter().filter(|seat| seat.node.is_some()).count() == 4).then_some(seats)
    });
    // It would fit where the one is that is turned away.
    cluster.create(PODS, &pod("other", 2));
    cluster.until_explained("other", "");
    let lost = seats.iter().find(|seat| seat.rank == Some(1)).unwrap();
    // As a kubelet says it: no container of it ever ran.
    let status = json!({ "status": {
        "phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Pod was rejected: no such device",
    } });
    cluster.api().patch(&format!("{PODS}/{}/status", lost.name), &status).unwrap();
    let made = cluster.until("another in its stead", |cluster| {
        let mut others = cluster.seats().into_iter().filter(|seat| seat.gang == "turned");
        others.find(|seat| seat.rank == lost.rank && seat.name != lost.name && seat.node.is_some())
    });
    assert_eq!((made.node, made.devices), (lost.node.clone(), lost.devices.clone()), "its place was kept");
    for seat in cluster.seats().iter().filter(|seat| seat.gang == "turned" && seat.name != lost.name) {
        let ready = json!({ "metadata": { "annotations": { NEVER: Value::Null } } });
        cluster.api().patch(&format!("{PODS}/{}", seat.name), &ready).unwrap();
    }
    cluster.until("the others and it", |cluster| {
        let seats = cluster.seats();
        let runs = seats.iter().filter(|seat| seat.gang == "turned" && seat.phase == "Running");
        (runs.count() == 4).then_some(())
    });
    let seats = cluster.seats();
    let kept = |name: &str| seats.iter().any(|seat| seat.name == name && seat.phase == "Running");
    assert!(made.rank == Some(1) && kept(&made.name), "{seats:?}");
    let others = seats.iter().filter(|seat| seat.gang == "turned" && seat.phase != "Failed");
    assert_eq!(others.count(), 4, "nothing else of it was made again: {seats:?}");
    assert!(seats.iter().any(|seat| seat.name == "other" && seat.node.is_none()), "{seats:?}");
    assert_eq!(cluster.failures("turned"), 1);
    // For so long a place is kept for a pod that is made again.
    record.judge(Duration::from_secs(Times::default().vacant_s) + ANSWER);
}

/// Whoever was told to go still computes.
#[test]
fn pods_that_are_on_their_way_out_hold_their_devices_until_they_are_gone() {
    let mut cluster = Cluster::of(1);
    for (name, value) in [("low", 10), ("high", 1_000)] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name }, "value": value,
        });
        cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    }
    let record = Record::begin(cluster.api(), ["low", "high"].map(|name| (name.to_owned(), 2)));
    cluster.schedule(0);
    let slow = |name: &str| {
        let mut job = job(name, 2, 4, &json!({ STOPS: "4s" }));
        job["spec"]["template"]["spec"]["priorityClassName"] = json!(name);
        job
    };
    cluster.create(JOBS, &slow("low"));
    cluster.until_runs("low", 2);
    // Told to go by us.
    cluster.create(JOBS, &slow("high"));
    cluster.until("pods of low that go", |cluster| (going(cluster, "low") == 2).then_some(()));
    let high: Vec<_> = cluster.seats().into_iter().filter(|seat| seat.gang == "high").collect();
    assert!(high.iter().all(|seat| seat.node.is_none()), "{high:?}");
    cluster.until_runs("high", 2);
    // Told to go by its user.
    cluster.api().delete(&format!("{JOBS}/high?propagationPolicy=Background")).unwrap();
    cluster.until("pods of high that go", |cluster| (going(cluster, "high") == 2).then_some(()));
    cluster.until("low again", |cluster| {
        let seats = cluster.seats();
        let runs = seats.iter().filter(|seat| seat.gang == "low" && seat.phase == "Running");
        (runs.count() == 2).then_some(())
    });
    // It saw every binding, and which device was whose until when.
    assert_eq!(record.bindings(), 6);
    record.judge(Times::default().part());
}

/// The workers of an MPIJob were deleted, a finalizer held its launcher for minutes, and 32 GPUs counted as used until then.
#[test]
fn devices_of_pods_that_are_gone_are_free_while_another_pod_of_their_gang_is_held_by_a_finalizer() {
    let mut cluster = Cluster::of(2);
    let gangs = [("first", 2), ("next", 2), ("last", 2)].map(|(name, size)| (name.to_owned(), size));
    let record = Record::begin(cluster.api(), gangs);
    let scheduler = cluster.schedule(0);
    cluster.create(JOBS, &job("first", 2, 8, &json!({})));
    cluster.until_runs("first", 2);
    let first: Vec<_> = cluster.seats().into_iter().filter(|seat| seat.gang == "first").collect();
    let (held, gone) = (&first[0], &first[1]);
    let finalizer = json!({ "metadata": { "finalizers": ["example.com/stays"] } });
    cluster.api().patch(&format!("{PODS}/{}", held.name), &finalizer).unwrap();
    cluster.create(JOBS, &job("next", 2, 4, &json!({})));
    until_waits(&cluster, "next");
    cluster.api().delete(&format!("{JOBS}/first?propagationPolicy=Background")).unwrap();
    cluster.until_runs("next", 2);
    assert_eq!(going(&cluster, "first"), 1, "its finalizer holds it still");
    let next: Vec<_> = cluster.seats().into_iter().filter(|seat| seat.gang == "next").collect();
    assert!(next.iter().all(|seat| seat.node == gone.node), "{next:?} are where {gone:?} was");
    // What it holds is its own all the while.
    cluster.create(JOBS, &job("last", 2, 4, &json!({})));
    until_waits(&cluster, "last");
    cluster.kill(scheduler);
    cluster.schedule(0);
    // A successor counts it as well.
    cluster.create(PODS, &pod("other", 1));
    cluster.until_explained("other", "");
    let none = json!({ "metadata": { "finalizers": null } });
    cluster.api().patch(&format!("{PODS}/{}", held.name), &none).unwrap();
    cluster.until_runs("last", 2);
    assert_eq!(record.bindings(), 6);
    record.judge(Times::default().part());
}
