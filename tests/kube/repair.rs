//! Gangs whose nodes are drained, are lost, or turn their pods away.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::queues;
use crate::support::record::Record;
use crate::support::{Cluster, JOBS, NODES, PODS, Seat, Times, assert_disjoint, job, pod};

const NEVER: &str = "controlplane.phalanx.dev/never-ready";
const STOPS: &str = "controlplane.phalanx.dev/stop-after";

/// Three pods of eight GPUs; what they are evicted for they tolerate for a second.
fn ring() -> Value {
    let mut ring = job("ring", 3, 8, &json!({}));
    let spec = &mut ring["spec"]["template"]["spec"];
    spec["terminationGracePeriodSeconds"] = json!(1);
    spec["tolerations"] = json!([
        { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1 },
    ]);
    ring
}

/// The pods that run on other nodes than this one.
fn elsewhere(cluster: &Cluster, node: &str) -> Vec<Seat> {
    let of_it =
        |seat: &Seat| seat.gang == "ring" && seat.phase == "Running" && seat.node.as_deref() != Some(node);
    cluster.seats().into_iter().filter(of_it).collect()
}

fn until_elsewhere(cluster: &Cluster, node: &str) -> Vec<Seat> {
    cluster.until("all of it on other nodes", |cluster| {
        let there = elsewhere(cluster, node);
        (there.len() == 3).then_some(there)
    })
}

/// Each pod that came again was bound to the cordoned node, and evicted again, until the Job had failed.
#[test]
fn a_node_is_drained_and_its_gang_runs_elsewhere_as_a_whole() {
    let mut cluster = Cluster::of(4);
    let record = Record::begin(cluster.api(), [("ring".to_owned(), 3)]);
    cluster.schedule(0);
    let mut ring = ring();
    ring["spec"]["backoffLimit"] = json!(1);
    cluster.create(JOBS, &ring);
    let before = cluster.until_runs("ring", 3);
    let (node, lost) = (before[1].node.clone().unwrap(), before[1].name.clone());
    // As `kubectl drain` does.
    cluster.api().patch(&format!("{NODES}/{node}"), &json!({ "spec": { "unschedulable": true } })).unwrap();
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": lost } });
    cluster.create(&format!("{PODS}/{lost}/eviction"), &eviction);
    assert_disjoint(&until_elsewhere(&cluster, &node));
    assert!(cluster.failures("ring") <= 1, "the one that was evicted");
    assert_eq!(cluster.api().get(&format!("{JOBS}/ring")).unwrap()["spec"]["suspend"], false);
    record.judge(Duration::from_secs(Times::default().vacant_s) + phalanx_kube::world::ANSWER);
}

/// A node that no pod gets, until a gang loses one of its own. The gang had been placed anew, on other nodes than before.
#[test]
fn a_spare_node_is_kept_for_a_gang_that_loses_a_node_and_its_other_nodes_stay() {
    let mut cluster = Cluster::of(4);
    queues::define(&cluster);
    queues::share(&cluster, &json!({ "spares": { "nodes": 1 } }));
    cluster.schedule(0);
    cluster.create(JOBS, &ring());
    let nodes =
        |seats: &[Seat]| -> BTreeSet<String> { seats.iter().filter_map(|seat| seat.node.clone()).collect() };
    let before = cluster.until_runs("ring", 3);
    cluster.create(PODS, &pod("small", 1));
    cluster.until_explained("small", "");
    assert!(
        cluster.seats().iter().any(|seat| seat.name == "small" && seat.node.is_none()),
        "a node is idle, and kept"
    );
    cluster.api().delete(&format!("{PODS}/small?gracePeriodSeconds=0")).unwrap();
    cluster.until("it is gone", |cluster| {
        (!cluster.seats().iter().any(|seat| seat.name == "small")).then_some(())
    });

    let (node, lost) = (before[1].node.clone().unwrap(), before[1].name.clone());
    cluster.api().patch(&format!("{NODES}/{node}"), &json!({ "spec": { "unschedulable": true } })).unwrap();
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": lost } });
    cluster.create(&format!("{PODS}/{lost}/eviction"), &eviction);
    let there = until_elsewhere(&cluster, &node);
    assert_disjoint(&there);
    assert!(nodes(&before).difference(&nodes(&there)).eq([&node]), "{before:?} {there:?}");

    let policy = "/apis/phalanx.dev/v1alpha1/sharepolicies/default";
    cluster.api().patch(policy, &json!({ "spec": { "spares": { "level": "row" } } })).unwrap();
    let warning = |cluster: &Cluster| {
        cluster.lines().into_iter().find(|line| {
            line["level"] == "WARN"
                && line["message"].as_str().is_some_and(|said| said.starts_with("no spare nodes are kept"))
        })
    };
    let warning = cluster.until("a warning", warning);
    assert_eq!(warning["spares"], "row", "{warning}");
}

/// Conditions that administrators set from Kubernetes 1.37 on. A pod that was evicted went back to the node.
#[test]
fn a_node_that_its_conditions_close_gets_nothing_new_and_what_is_evicted_there_runs_elsewhere() {
    let mut cluster = Cluster::of(4);
    cluster.schedule(0);
    cluster.create(JOBS, &ring());
    let before = cluster.until_runs("ring", 3);
    let set = |cluster: &Cluster, node: &str, condition: &str, status: &str| {
        let conditions = json!([{ "type": condition, "status": status, "reason": "Test", "message": "" }]);
        let patch = json!({ "status": { "conditions": conditions } });
        cluster.api().patch(&format!("{NODES}/{node}/status"), &patch).unwrap();
    };
    let taken: Vec<&str> = before.iter().filter_map(|seat| seat.node.as_deref()).collect();
    let free = (0..4).map(phalanx_controlplane::Fleet::name).find(|node| !taken.contains(&&**node)).unwrap();
    for condition in
        ["MaintenancePlanned", "MaintenanceInProgress", "Drained", "GracefulNodeShutdownInProgress"]
    {
        set(&cluster, &free, condition, "True");
        let name = format!("pod-{}", condition.to_lowercase());
        cluster.create(PODS, &pod(&name, 1));
        cluster.until_explained(&name, "");
        assert!(cluster.seats().iter().any(|seat| seat.name == name && seat.node.is_none()), "{condition}");
        set(&cluster, &free, condition, "False");
        cluster.until_runs(&name, 1);
        cluster.api().delete(&format!("{PODS}/{name}?gracePeriodSeconds=0")).unwrap();
        cluster.until("it is gone", |cluster| {
            (!cluster.seats().iter().any(|seat| seat.name == name)).then_some(())
        });
    }

    let (node, lost) = (before[1].node.clone().unwrap(), before[1].name.clone());
    set(&cluster, &node, "DrainInProgress", "True");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(cluster.until_runs("ring", 3), before, "what runs goes on");
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": lost } });
    cluster.create(&format!("{PODS}/{lost}/eviction"), &eviction);
    let there = until_elsewhere(&cluster, &node);
    assert_disjoint(&there);

    // As node-problem-detector says it in AKS.
    set(&cluster, &node, "DrainInProgress", "False");
    let (node, lost) = (there[0].node.clone().unwrap(), there[0].name.clone());
    set(&cluster, &node, "GPUMissing", "True");
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": lost } });
    cluster.create(&format!("{PODS}/{lost}/eviction"), &eviction);
    assert_disjoint(&until_elsewhere(&cluster, &node));
}

/// Its pod stays on its way out for as long as nobody hears of the node; the others held their GPUs for as long as that.
#[test]
fn a_node_is_not_heard_of_any_more_and_its_gang_runs_elsewhere() {
    let mut cluster = Cluster::of(4);
    cluster.schedule(0);
    cluster.create(JOBS, &ring());
    let before = cluster.until_runs("ring", 3);
    let (node, lost) = (before[1].node.clone().unwrap(), before[1].name.clone());
    // Its kubelet ends nothing any more, and the controller of nodes hears nothing of it.
    let silent = json!({ "metadata": { "annotations": { STOPS: "1h" } } });
    cluster.api().patch(&format!("{PODS}/{lost}"), &silent).unwrap();
    let silent = json!({ "metadata": { "annotations": { "kwok.x-k8s.io/node": Value::Null } } });
    cluster.api().patch(&format!("{NODES}/{node}"), &silent).unwrap();
    let unknown = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown",
        "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status." }] } });
    cluster.api().patch(&format!("{NODES}/{node}/status"), &unknown).unwrap();
    until_elsewhere(&cluster, &node);
    let stays = cluster.api().get(&format!("{PODS}/{lost}")).unwrap();
    assert!(stays["metadata"]["deletionTimestamp"].is_string(), "nobody took it away: {stays:#}");
    // What the others of it held is free: the node that none of it has has room for another.
    cluster.create(PODS, &pod("other", 8));
    cluster.until_explained("other", "needs");
    cluster.api().delete(&format!("{JOBS}/ring?propagationPolicy=Background")).unwrap();
    cluster.until_runs("other", 1);
}

/// As NVIDIA's device plugin does it after Xid 79: no pod of that node gets a GPU any more.
#[test]
fn a_node_that_turns_pods_away_gets_no_more_of_them() {
    let mut cluster = Cluster::of(2);
    cluster.schedule(0);
    let turned = json!({ "status": { "phase": "Failed", "reason": "UnexpectedAdmissionError",
        "message": "Pod was rejected: Allocate failed due to no healthy devices present" } });
    let nodes = ["first", "second", "third"].map(|name| {
        let mut one = pod(name, 8);
        one["metadata"]["annotations"] = json!({ NEVER: "" });
        cluster.create(PODS, &one);
        let node = cluster.until("a node", |cluster| {
            cluster.seats().into_iter().find(|seat| seat.name == name).and_then(|seat| seat.node)
        });
        cluster.api().patch(&format!("{PODS}/{name}/status"), &turned).unwrap();
        node
    });
    assert!(nodes[0] == nodes[1] && nodes[1] != nodes[2], "once is chance: {nodes:?}");
}
