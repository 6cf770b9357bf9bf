//! Jobs that are alone in their rack, and roles that are each in a rack of their own, on a real control plane. What `JobSet`'s
//! webhooks make of pods, and when they let them be made, is played here; KAI's group is as its pod-grouper writes it.

use std::collections::BTreeSet;

use phalanx_controlplane::{Fleet, Options};
use serde_json::{Value, json};

use crate::support::kinds::define;
use crate::support::{Cluster, PODS, Seat, pod};

const EXCLUSIVE: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
const JOB_KEY: &str = "jobset.sigs.k8s.io/job-key";

/// A pod of a whole node, of a job of the set; with what a webhook adds to its specification.
fn of_set(set: &str, copy: u32, index: u32, more: &Value) -> Value {
    let job = format!("{set}-workers-{copy}");
    let mut pod = pod(&format!("{job}-{index}"), 8);
    pod["metadata"]["labels"] = json!({
        "gang": job, "jobset.sigs.k8s.io/jobset-name": set, "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        "jobset.sigs.k8s.io/job-index": copy.to_string(), JOB_KEY: job,
        "batch.kubernetes.io/job-completion-index": index.to_string(),
    });
    pod["metadata"]["annotations"] = json!({ EXCLUSIVE: Fleet::RACK });
    pod["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    pod
}

/// Its own kind are in one domain, nobody else's is.
fn alone(key: &str) -> Value {
    let of = |expressions: Value| {
        json!({ "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": Fleet::RACK, "namespaceSelector": {},
            "labelSelector": { "matchExpressions": expressions } }] })
    };
    json!({ "affinity": {
        "podAffinity": of(json!([{ "key": JOB_KEY, "operator": "In", "values": [key] }])),
        "podAntiAffinity": of(json!([{ "key": JOB_KEY, "operator": "Exists" },
            { "key": JOB_KEY, "operator": "NotIn", "values": [key] }])),
    } })
}

/// Nodes in racks of so many.
fn racks_of(nodes_per_rack: usize, nodes: usize) -> Cluster {
    let options = Options { controller_manager: true, kwok: true, ..Options::default() };
    Cluster::of_fleet(&options, &Fleet { nodes_per_rack, ..Fleet::new(nodes) })
}

/// The rack that all of them are in.
fn rack(seats: &[Seat], nodes_per_rack: usize) -> usize {
    let number = |node: &str| node.trim_start_matches("node-").parse::<usize>().unwrap();
    let racks: BTreeSet<usize> =
        seats.iter().filter_map(|seat| Some(number(seat.node.as_deref()?) / nodes_per_rack)).collect();
    assert_eq!(racks.len(), 1, "{seats:?}");
    racks.into_iter().next().unwrap()
}

#[test]
fn jobs_of_a_set_are_alone_in_their_racks_and_nobody_takes_what_is_kept_for_their_pods() {
    let mut cluster = racks_of(2, 4);
    define(&cluster, "jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets");
    cluster.schedule(0);
    let template = json!({ "spec": pod("", 8)["spec"] });
    let set = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": { "name": "train", "annotations": { EXCLUSIVE: Fleet::RACK } },
        "spec": { "replicatedJobs": [{ "name": "workers", "replicas": 2, "template": { "spec": {
            "parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template } } }] },
    });
    cluster.create("/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets", &set);
    for copy in 0..2 {
        cluster.create(PODS, &of_set("train", copy, 0, &alone(&format!("train-workers-{copy}"))));
    }
    let racks = [0, 1].map(|copy| rack(&cluster.until_runs(&format!("train-workers-{copy}"), 1), 2));
    assert_ne!(racks[0], racks[1]);
    // Two nodes are free, and kept.
    cluster.create(PODS, &pod("other", 8));
    cluster.until_explained("other", "needs 1 member");
    for copy in 0..2_u32 {
        let there = format!("rack-{}", racks[copy as usize]);
        let there = json!({ "nodeSelector": { Fleet::RACK: there } });
        cluster.create(PODS, &of_set("train", copy, 1, &there));
    }
    for copy in 0..2_u32 {
        let job = cluster.until_runs(&format!("train-workers-{copy}"), 2);
        assert_eq!(rack(&job, 2), racks[copy as usize]);
    }
    cluster.create("/api/v1/nodes", &Fleet::new(5).node(4));
    cluster.until("a node for the other", |cluster| {
        cluster.seats().iter().any(|seat| seat.name == "other" && seat.phase == "Running").then_some(())
    });
}

#[test]
fn groups_inside_a_group_are_each_in_a_rack_of_their_own() {
    let mut cluster = racks_of(3, 6);
    define(&cluster, "scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups");
    cluster.schedule(0);
    let part = |name: &str| {
        json!({ "name": name, "minMember": 2,
            "topologyConstraint": { "topology": "t", "requiredTopologyLevel": Fleet::RACK } })
    };
    let group = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": { "name": "serve" },
        "spec": { "minMember": 5, "subGroups": [
            part("prefill"), part("decode"), { "name": "router", "minMember": 1 }] },
    });
    cluster.create("/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups", &group);
    for (role, pods) in [("prefill", 2), ("decode", 2), ("router", 1)] {
        for at in 0..pods {
            let mut member = pod(&format!("{role}-{at}"), 8);
            member["metadata"]["labels"] = json!({ "gang": role, "kai.scheduler/subgroup-name": role });
            member["metadata"]["annotations"] = json!({ "pod-group-name": "serve" });
            cluster.create(PODS, &member);
        }
    }
    let racks = ["prefill", "decode"].map(|role| rack(&cluster.until_runs(role, 2), 3));
    cluster.until_runs("router", 1);
    // Three nodes in each rack: two and two do not fit into one.
    assert_ne!(racks[0], racks[1]);
}
