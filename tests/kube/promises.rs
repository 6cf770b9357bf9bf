//! What the documentation promises, once on a real control plane: queues of namespaces below a parent, nodes that were
//! given, wishes that are told, and networks as tools write them.

use std::collections::BTreeSet;

use phalanx_controlplane::Fleet;
use serde_json::{Value, json};

use crate::fabric::{FABRICS, fabric, until_status};
use crate::manifests::create as deploy;
use crate::nodes::{label, nodes_of};
use crate::queues::{self, QUEUES};
use crate::support::{Cluster, JOBS, PODS, assert_disjoint, job, options, pod, taken};

/// What `phalanx topo import` prints of `leaves.conf` beside it: the tests of the command hold it to that.
const MAP: &str = include_str!("../../fixtures/fabric/leaves.cluster.yaml");

fn jobs_of(namespace: &str) -> String {
    format!("/apis/batch/v1/namespaces/{namespace}/jobs")
}

/// A namespace of a team, in which pods can be made.
fn namespace(cluster: &Cluster, name: &str) {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": { "team": name } } });
    cluster.create("/api/v1/namespaces", &namespace);
    let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
    cluster.until(&account, |cluster| cluster.api().get(&account).ok());
}

fn create_queue(cluster: &Cluster, name: &str, spec: &Value) {
    let queue = json!({ "apiVersion": "phalanx.dev/v1alpha1", "kind": "Queue", "metadata": { "name": name }, "spec": spec });
    cluster.create(QUEUES, &queue);
}

/// GPUs in use, and gangs that run and that wait, once they are so.
fn until_queue(cluster: &Cluster, name: &str, gpus: &str, running: u64, pending: u64) {
    let what = format!("{gpus} GPUs, {running} that run and {pending} that wait in {name}");
    cluster.until(&what, |cluster| {
        let status = cluster.api().get(&format!("{QUEUES}/{name}")).ok()?["status"].clone();
        let count = |field: &str| status[field].as_u64().unwrap_or(0);
        let used = status["usage"]["gpus"]["used"].as_str().unwrap_or("0");
        (used == gpus && count("running") == running && count("pending") == pending).then_some(())
    });
}

/// Nothing names a queue but the namespaces. What one of two sisters borrowed is taken back for the other by suspension.
#[test]
fn namespaces_wait_in_their_queues_which_lend_to_their_sisters_and_take_back() {
    let mut cluster = Cluster::of(2);
    queues::define(&cluster);
    create_queue(&cluster, "org", &json!({}));
    for team in ["research", "product"] {
        namespace(&cluster, team);
        let selector = json!({ "matchLabels": { "team": team } });
        let spec = json!({ "parent": "org", "guaranteed": { "gpus": 8 }, "namespaces": selector });
        create_queue(&cluster, team, &spec);
    }
    cluster.schedule(0);
    let work = |name: &str| {
        let mut work = job(name, 2, 4, &json!({}));
        work["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(0);
        work
    };
    for name in ["own", "borrows"] {
        cluster.create(&jobs_of("research"), &work(name));
        cluster.until_runs(name, 2);
    }
    until_queue(&cluster, "research", "16", 2, 0);
    until_queue(&cluster, "org", "16", 2, 0);

    cluster.create(&jobs_of("product"), &work("due"));
    cluster.until_runs("due", 2);
    until_queue(&cluster, "product", "8", 1, 0);
    until_queue(&cluster, "research", "8", 1, 1);
    until_queue(&cluster, "org", "16", 2, 1);
    let suspended = |cluster: &Cluster, name: &str| {
        let job = cluster.api().get(&format!("{}/{name}", jobs_of("research"))).unwrap();
        assert_eq!(job["status"]["failed"], Value::Null, "{job:#}");
        job["spec"]["suspend"] == true
    };
    let stopped: Vec<&str> =
        ["own", "borrows"].into_iter().filter(|name| suspended(&cluster, name)).collect();
    let [stopped] = stopped[..] else { panic!("one of both makes way: {stopped:?}") };
    assert_disjoint(&cluster.seats());

    cluster.api().delete(&format!("{}/due?propagationPolicy=Background", jobs_of("product"))).unwrap();
    cluster.until_runs(stopped, 2);
    assert!(!suspended(&cluster, stopped));
    until_queue(&cluster, "org", "16", 2, 0);
}

/// Without a webhook: the other scheduler is the real one.
#[test]
fn nodes_that_were_given_are_used_alone_and_by_nobody_else_until_they_are_given_back() {
    const ACK: &str = "ack.node.gpu.schedule";
    let mut cluster = Cluster::with(&phalanx_controlplane::Options { kube_scheduler: true, ..options() }, 3);
    deploy(cluster.api(), "exclusive", &["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"]);
    label(&cluster, 0, &json!({ ACK: "topology" }));
    label(&cluster, 1, &json!({ "phalanx.dev/schedule": "topology" }));
    cluster.takes_labelled_nodes = true;
    cluster.schedule(0);
    cluster.create(JOBS, &job("ours", 4, 4, &json!({})));
    assert_eq!(unique(&nodes_of(&cluster.until_runs("ours", 4))), ["node-00000", "node-00001"]);
    cluster.create(JOBS, &job("waits", 1, 8, &json!({})));
    let waits = cluster.until("a pod of waits", |cluster| {
        cluster.seats().into_iter().find(|seat| seat.gang == "waits").map(|seat| seat.name)
    });
    cluster.until_explained(&waits, "");
    cluster.api().delete(&format!("{JOBS}/ours?propagationPolicy=Background")).unwrap();
    cluster.until_runs("waits", 1);
    cluster.api().delete(&format!("{JOBS}/waits?propagationPolicy=Background")).unwrap();
    cluster.until("room", |cluster| cluster.seats().is_empty().then_some(()));

    // Two nodes are empty and not for the other scheduler, whatever its pods say of nodes themselves.
    let foreign = |name: &str, gpus: u32, affinity: Option<&Value>| {
        let mut foreign = pod(name, gpus);
        foreign["spec"].as_object_mut().unwrap().remove("schedulerName");
        if let Some(affinity) = affinity {
            foreign["spec"]["affinity"] = affinity.clone();
        }
        cluster.create(PODS, &foreign)
    };
    let linux = json!({ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] });
    let by_name = json!({ "key": "metadata.name", "operator": "In", "values": ["node-00000"] });
    let terms = json!([{ "matchExpressions": [linux] }, { "matchFields": [by_name] }]);
    let required = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } });
    foreign("first", 8, None);
    assert_eq!(nodes_of(&cluster.until_runs("first", 1)), ["node-00002"]);
    foreign("second", 8, Some(&required));
    cluster.until_explained("second", "");
    foreign("apart", 8, Some(&json!({ "podAntiAffinity": {} })));
    cluster.until_explained("apart", "");
    // Without devices they may be anywhere.
    let without = foreign("without", 0, Some(&required));
    let kept = &without["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(kept["nodeSelectorTerms"], terms);
    cluster.until_runs("without", 1);

    label(&cluster, 0, &json!({ ACK: "default" }));
    let seats = cluster.until("one of both on the node that is theirs again", |cluster| {
        let seats = cluster.seats().into_iter();
        let seats: Vec<_> = seats.filter(|seat| ["second", "apart"].contains(&&*seat.name)).collect();
        seats.iter().any(|seat| seat.node.is_some()).then_some(seats)
    });
    let on: BTreeSet<_> = seats.into_iter().filter_map(|seat| seat.node).collect();
    assert_eq!(on, ["node-00000".to_owned()].into());
    cluster.create(JOBS, &job("left", 1, 8, &json!({})));
    assert_eq!(nodes_of(&cluster.until_runs("left", 1)), ["node-00001"]);
}

fn unique<'a>(nodes: &[&'a str]) -> Vec<&'a str> {
    let nodes: BTreeSet<&str> = nodes.iter().copied().collect();
    nodes.into_iter().collect()
}

/// Both were passed over without a word.
#[test]
fn wishes_are_told_once_on_the_gang_and_parts_of_gpus_keep_a_pod_waiting() {
    let mut cluster = Cluster::of(1);
    cluster.schedule(0);
    let mut wishes = job("wishes", 2, 1, &json!({}));
    wishes["spec"]["template"]["spec"]["topologySpreadConstraints"] =
        json!([{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway" }]);
    cluster.create(JOBS, &wishes);
    cluster.until_runs("wishes", 2);
    let events = cluster.until("what is ignored", |cluster| {
        let events = cluster.api().get("/apis/events.k8s.io/v1/namespaces/default/events").ok()?;
        let events = events["items"].as_array()?.iter();
        let ignored: Vec<Value> = events.filter(|event| event["reason"] == "Ignored").cloned().collect();
        (!ignored.is_empty()).then_some(ignored)
    });
    let [event] = &events[..] else { panic!("once for the gang: {events:#?}") };
    assert_eq!((&event["regarding"]["kind"], &event["regarding"]["name"]), (&json!("Job"), &json!("wishes")));
    assert!(event["note"].as_str().unwrap().contains("spec.topologySpreadConstraints[0]"), "{event:#}");

    let mut shares = pod("shares", 0);
    shares["metadata"]["annotations"] = json!({ "gpu-fraction": "0.5" });
    cluster.create(PODS, &shares);
    cluster.until_explained("shares", "metadata.annotations[gpu-fraction]");
    assert_eq!(cluster.bound()["shares"], (0, 1));
}

/// Labels of a cloud, and a map as `phalanx topo map` writes it of a Slurm file: each across the racks that other labels say.
#[test]
fn networks_of_a_preset_and_of_a_written_map_decide_where_gangs_are() {
    let mut cluster = Cluster::of_fleet(&options(), &Fleet { nodes_per_rack: 2, ..Fleet::new(6) });
    queues::define(&cluster);
    for node in 0..6 {
        let of_cloud = json!({
            "topology.k8s.aws/network-node-layer-1": "nn-1", "topology.k8s.aws/network-node-layer-2": "nn-2",
            "topology.k8s.aws/network-node-layer-3": format!("nn-3{}", node % 3),
        });
        label(&cluster, node, &of_cloud);
    }
    cluster.create(FABRICS, &fabric(&json!({ "preset": "aws" })));
    cluster.schedule(0);
    let accepted = |status: &Value| status["conditions"][0]["status"] == "True" && status["nodes"] == 6;
    let narrowest = |status: &Value| {
        let level = status["levels"].as_array().and_then(|levels| levels.last()).unwrap();
        assert_eq!(level["domains"], 3, "{status:#}");
        level["name"].as_str().unwrap().to_owned()
    };
    let status = until_status(&cluster, "levels of the cloud", accepted);
    // Of each layer one node is left, and of one both.
    for node in [0, 1] {
        cluster.create(PODS, &taken(&format!("taken-{node}"), node));
    }
    let near = |name: &str, level: &str| {
        let mut near = job(name, 2, 8, &json!({ "phalanx.dev/topology-required": level }));
        near["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(0);
        near
    };
    cluster.create(JOBS, &near("cloud", &narrowest(&status)));
    assert_eq!(nodes_of(&cluster.until_runs("cloud", 2)), ["node-00002", "node-00005"]);
    cluster.api().delete(&format!("{JOBS}/cloud?propagationPolicy=Background")).unwrap();
    cluster.until_runs("cloud", 0);

    let path = format!("{FABRICS}/default");
    let changed =
        cluster.api().patch(&path, &json!({ "spec": { "preset": null, "topology": MAP } })).unwrap();
    let generation = &changed["metadata"]["generation"];
    let status = until_status(&cluster, "levels of the map", |status| {
        accepted(status) && status["observedGeneration"] == *generation
    });
    cluster.create(JOBS, &near("mapped", &narrowest(&status)));
    assert_eq!(nodes_of(&cluster.until_runs("mapped", 2)), ["node-00002", "node-00004"]);
}
