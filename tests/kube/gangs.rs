//! Gangs on a real control plane: whole or not at all, close together, and with a reason while they wait.

use std::collections::BTreeSet;

use phalanx_controlplane::Fleet;
use serde_json::json;

use crate::support::groups::{member, pod_group};
use crate::support::{Cluster, JOBS, PODS, assert_disjoint, job, pod};

/// Its pods run until they are deleted.
fn forever() -> serde_json::Value {
    json!({})
}

#[test]
fn an_indexed_job_starts_whole_and_each_pod_has_the_devices_that_were_chosen() {
    let mut cluster = Cluster::of(4);
    cluster.schedule(0);
    cluster.create(JOBS, &job("train", 4, 4, &forever()));
    let seats = cluster.until_runs("train", 4);
    let nodes: BTreeSet<_> = seats.iter().map(|seat| seat.node.clone()).collect();
    assert_eq!(nodes.len(), 2, "16 GPUs are two nodes: {seats:?}");
    for seat in &seats {
        let index: u32 = seat.name.split('-').nth(1).unwrap().parse().unwrap();
        assert_eq!(seat.rank, Some(index), "ranks are the indices of the Job");
    }
    assert_disjoint(&seats);
}

#[test]
fn a_gang_waits_as_a_whole_and_says_why_until_there_is_room() {
    let mut cluster = Cluster::of(2);
    cluster.schedule(0);
    cluster.create(JOBS, &job("first", 3, 4, &forever()));
    cluster.until_runs("first", 3);
    cluster.create(JOBS, &job("second", 2, 4, &forever()));
    let waiting = cluster.until("pods of second", |cluster| {
        let of_it = cluster.seats().into_iter().filter(|seat| seat.gang == "second").collect::<Vec<_>>();
        (of_it.len() == 2).then_some(of_it)
    });
    // One of its pods would fit, and waits with the other, which says the same.
    let why = waiting.iter().map(|seat| cluster.until_explained(&seat.name, "2 members"));
    let why: BTreeSet<String> = why.collect();
    assert_eq!((why.len(), cluster.bound()["second"]), (1, (0, 2)), "{why:?}");
    cluster.api().delete(&format!("{JOBS}/first?propagationPolicy=Background")).unwrap();
    let seats = cluster.until_runs("second", 2);
    assert_disjoint(&seats);
}

#[test]
fn what_can_never_fit_waits_with_a_reason_and_starts_when_nodes_come() {
    let mut cluster = Cluster::of(1);
    cluster.schedule(0);
    cluster.create(JOBS, &job("wide", 2, 8, &forever()));
    let name = cluster.until("pods of wide", |cluster| {
        cluster.seats().into_iter().find(|seat| seat.gang == "wide").map(|seat| seat.name)
    });
    let why = cluster.until_explained(&name, "can never fit");
    assert!(why.contains("2 members"), "{why}");
    cluster.create("/api/v1/nodes", &Fleet::new(2).node(1));
    cluster.until_runs("wide", 2);
}

#[test]
fn a_pod_group_is_kept_inside_the_rack_that_it_requires() {
    // Racks of 32 nodes: the second begins with node 32.
    let mut cluster = Cluster::of(36);
    let mut group = pod_group("tight", 4);
    group["spec"]["schedulingConstraints"] = json!({ "topology": [{ "key": Fleet::RACK }] });
    cluster.create_group(&group);
    // The first rack has room for three of four.
    for node in 0..29 {
        let mut taken = pod(&format!("taken-{node}"), 8);
        taken["spec"]["schedulerName"] = json!("somebody-else");
        taken["spec"]["nodeName"] = json!(Fleet::name(node));
        cluster.create(PODS, &taken);
    }
    cluster.create_members("tight", 4, 8);
    cluster.schedule(0);
    let seats = cluster.until_runs("tight", 4);
    let nodes: BTreeSet<_> = seats.iter().filter_map(|seat| seat.node.clone()).collect();
    let second: BTreeSet<_> = (32..36).map(Fleet::name).collect();
    assert_eq!(nodes, second);
    // What joins has to be there too, and waits for a node of that rack where the other has room.
    cluster.create(PODS, &member("tight", 4, 8));
    cluster.until_explained("tight-4", "of PodGroup default/tight");
    cluster.create("/api/v1/nodes", &Fleet::new(37).node(36));
    let seats = cluster.until_runs("tight", 5);
    let node = seats.iter().find(|seat| seat.name == "tight-4").and_then(|seat| seat.node.clone());
    assert_eq!(node, Some(Fleet::name(36)));
}

#[test]
fn taints_selectors_and_pods_of_others_are_respected_and_what_is_not_supported_is_named() {
    let mut cluster = Cluster::of(3);
    let taint = json!({ "spec": { "taints": [{ "key": "team", "value": "a", "effect": "NoSchedule" }] } });
    cluster.api().patch(&format!("/api/v1/nodes/{}", Fleet::name(0)), &taint).unwrap();
    let label = json!({ "metadata": { "labels": { "disk": "fast" } } });
    cluster.api().patch(&format!("/api/v1/nodes/{}", Fleet::name(1)), &label).unwrap();
    let mut foreign = pod("foreign", 6);
    foreign["spec"]["schedulerName"] = json!("somebody-else");
    foreign["spec"]["nodeName"] = json!(Fleet::name(2));
    cluster.create(PODS, &foreign);
    cluster.schedule(0);
    let mut fast = pod("fast", 8);
    fast["spec"]["nodeSelector"] = json!({ "disk": "fast" });
    cluster.create(PODS, &fast);
    let seat = cluster.until_runs("fast", 1);
    assert_eq!(seat[0].node.as_deref(), Some(&*Fleet::name(1)));
    cluster.create(PODS, &pod("small", 2));
    let seat = cluster.until_runs("small", 1);
    assert_eq!(
        seat[0].node.as_deref(),
        Some(&*Fleet::name(2)),
        "2 GPUs are left there, and the first node is tainted"
    );
    let rather = |name: &str, gpus: u32| {
        let mut one = pod(name, gpus);
        let term = |weight: u32, key: &str| json!({ "weight": weight, "preference": { "matchExpressions": [{ "key": key, "operator": "Exists" }] } });
        one["spec"]["affinity"] = json!({ "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [term(1, "nothing-has-it"), term(50, "disk")] } });
        one["spec"]["tolerations"] = json!([{ "key": "team", "operator": "Exists" }]);
        one
    };
    cluster.api().delete(&format!("{PODS}/fast")).unwrap();
    cluster.until("the end of fast", |cluster| cluster.api().get(&format!("{PODS}/fast")).err().map(|_| ()));
    cluster.create(PODS, &rather("rather", 1));
    let seat = cluster.until_runs("rather", 1);
    assert_eq!(
        seat[0].node.as_deref(),
        Some(&*Fleet::name(1)),
        "it prefers that to the first, and to the fullest"
    );
    cluster.create(PODS, &rather("anywhere", 8));
    let seat = cluster.until_runs("anywhere", 1);
    assert_eq!(seat[0].node.as_deref(), Some(&*Fleet::name(0)), "a preference holds nobody back");
    cluster.api().delete(&format!("{PODS}/anywhere")).unwrap();
    let mut tolerant = pod("tolerant", 8);
    tolerant["spec"]["tolerations"] = json!([{ "key": "team", "operator": "Exists" }]);
    cluster.create(PODS, &tolerant);
    let seat = cluster.until_runs("tolerant", 1);
    assert_eq!(seat[0].node.as_deref(), Some(&*Fleet::name(0)));
    let mut odd = pod("odd", 1);
    odd["spec"]["volumes"] = json!([{ "name": "disk", "iscsi": { "targetPortal": "1.2.3.4", "iqn": "iqn.2001-04.com.example:disk", "lun": 0 } }]);
    cluster.create(PODS, &odd);
    cluster.until_explained("odd", "spec.volumes[0].iscsi");
}

#[test]
fn a_higher_priority_takes_the_place_of_a_whole_gang() {
    let mut cluster = Cluster::of(1);
    for (name, value) in [("low", 10), ("high", 1_000)] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name }, "value": value,
        });
        cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    }
    cluster.schedule(0);
    let mut low = job("low", 2, 4, &forever());
    low["spec"]["template"]["spec"]["priorityClassName"] = json!("low");
    low["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
    cluster.create(JOBS, &low);
    cluster.until_runs("low", 2);
    let mut high = job("high", 1, 4, &forever());
    high["spec"]["template"]["spec"]["priorityClassName"] = json!("high");
    cluster.create(JOBS, &high);
    cluster.until_runs("high", 1);
    cluster.until("low whole in the queue", |cluster| {
        let of = cluster.bound().get("low").copied().unwrap_or_default();
        (of.0 == 0).then_some(())
    });
    let suspended = cluster.api().get(&format!("{JOBS}/low")).unwrap();
    assert_eq!(suspended["spec"]["suspend"], true, "its owner is suspended: no pod of it failed");
    assert!(suspended["metadata"]["annotations"]["phalanx.dev/suspended"].is_string(), "{suspended:#}");
    cluster.api().delete(&format!("{JOBS}/high?propagationPolicy=Background")).unwrap();
    cluster.until_runs("low", 2);
    assert_eq!(cluster.api().get(&format!("{JOBS}/low")).unwrap()["status"]["failed"], json!(null));
}

#[test]
fn a_pod_that_is_lost_comes_back_to_the_place_of_the_old_one() {
    let mut cluster = Cluster::of(2);
    cluster.schedule(0);
    let mut ring = job("ring", 3, 4, &forever());
    ring["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(0);
    cluster.create(JOBS, &ring);
    let before = cluster.until_runs("ring", 3);
    let lost = before.iter().find(|seat| seat.rank == Some(1)).unwrap();
    cluster.api().delete(&format!("{PODS}/{}", lost.name)).unwrap();
    let after = cluster.until("another pod of rank 1", |cluster| {
        let of_it = cluster.seats().into_iter().filter(|seat| seat.gang == "ring" && seat.name != lost.name);
        of_it
            .clone()
            .find(|seat| seat.rank == Some(1) && seat.phase == "Running")
            .map(|seat| (seat, of_it.count()))
    });
    assert_eq!((after.0.node, after.0.devices), (lost.node.clone(), lost.devices.clone()));
    assert_eq!(after.1, 3, "the others went on");
}

#[test]
fn a_gang_whose_node_is_lost_starts_again_as_a_whole() {
    let mut cluster = Cluster::of(3);
    cluster.schedule(0);
    let mut ring = job("ring", 2, 8, &forever());
    ring["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(0);
    cluster.create(JOBS, &ring);
    let before = cluster.until_runs("ring", 2);
    let lost = before[0].node.clone().unwrap();
    cluster.api().delete(&format!("/api/v1/nodes/{lost}")).unwrap();
    cluster.until("both pods on the other nodes", |cluster| {
        let of_it: Vec<_> = cluster.seats().into_iter().filter(|seat| seat.gang == "ring").collect();
        let run =
            of_it.iter().filter(|seat| seat.phase == "Running" && seat.node.as_ref() != Some(&lost)).count();
        (run == 2).then_some(())
    });
    assert_disjoint(&cluster.seats());
}

/// What was added waited until the gang started anew.
#[test]
fn pods_that_come_to_a_group_that_runs_start_by_themselves_also_after_a_restart() {
    let mut cluster = Cluster::of(2);
    let scheduler = cluster.schedule(0);
    cluster.create_group(&pod_group("grows", 2));
    cluster.create_members("grows", 2, 2);
    cluster.until_runs("grows", 2);
    cluster.create(PODS, &member("grows", 2, 2));
    cluster.until_runs("grows", 3);
    cluster.kill(scheduler);
    cluster.schedule(0);
    cluster.create(PODS, &member("grows", 3, 2));
    let seats = cluster.until_runs("grows", 4);
    assert_disjoint(&seats);
    let ranks: Vec<Option<u32>> = seats.iter().map(|seat| seat.rank).collect();
    assert_eq!(ranks, [Some(0), Some(1), Some(0), Some(0)], "{seats:?}");
}

#[test]
fn a_pod_whose_priority_evicts_nobody_waits_for_what_runs() {
    let mut cluster = Cluster::of(1);
    for (name, value, policy) in [("low", 10, "PreemptLowerPriority"), ("patient", 1_000, "Never")] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name }, "value": value,
            "preemptionPolicy": policy,
        });
        cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    }
    cluster.schedule(0);
    let of_class = |name: &str, gpus: u32| {
        let mut job = job(name, 2, gpus, &forever());
        job["spec"]["template"]["spec"]["priorityClassName"] = json!(name);
        job
    };
    cluster.create(JOBS, &of_class("low", 4));
    let before = cluster.until_runs("low", 2);
    cluster.create(JOBS, &of_class("patient", 4));
    let name = cluster.until("a pod of patient", |cluster| {
        cluster.seats().into_iter().find(|seat| seat.gang == "patient").map(|seat| seat.name)
    });
    cluster.until_explained(&name, "2 members");
    // Who makes way is told before anybody who comes later.
    cluster.create(PODS, &pod("later", 8));
    cluster.until_explained("later", "1 member");
    let low = cluster.api().get(&format!("{JOBS}/low")).unwrap();
    assert_ne!(low["spec"]["suspend"], true, "{low:#}");
    assert_eq!(cluster.until_runs("low", 2), before);
    cluster.api().delete(&format!("{JOBS}/low?propagationPolicy=Background")).unwrap();
    cluster.until_runs("patient", 2);
    assert!(cluster.seats().iter().any(|seat| seat.name == "later" && seat.node.is_none()));
}

#[test]
fn a_gang_starts_when_the_last_scheduling_gate_of_its_pods_is_gone() {
    let mut cluster = Cluster::of(1);
    cluster.create_group(&pod_group("gated", 2));
    for at in 0..2 {
        let mut member = member("gated", at, 2);
        if at == 1 {
            member["spec"]["schedulingGates"] = json!([{ "name": "example.com/quota" }]);
        }
        cluster.create(PODS, &member);
    }
    cluster.schedule(0);
    let why = cluster.until_explained("gated-0", "scheduling gate example.com/quota");
    assert!(why.contains("gated-1"), "which pod it is: {why}");
    assert_eq!(cluster.bound()["gated"], (0, 2));
    cluster.api().patch(&format!("{PODS}/gated-1"), &json!({ "spec": { "schedulingGates": [] } })).unwrap();
    cluster.until_runs("gated", 2);
}
