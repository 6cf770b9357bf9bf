//! Lifecycle and engine together: domains of a label that is no level. Pools lie across the zones, two nodes each.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::gang::constraints::tests::Play;

const ZONE: &str = "topology.kubernetes.io/zone";
const POOL: &str = "cloud.google.com/gke-nodepool";
const LWS: &str = "leaderworkerset.sigs.k8s.io";
const JOBSET: &str = "jobset.sigs.k8s.io";

/// So many pools of two nodes in different zones, with room for two pods on each node; and a node of no pool with room for
/// eight.
fn pools(count: usize) -> Play {
    let mut play = Play::listing(0);
    for at in 0..count * 2 {
        let name = format!("p{}-{}", at / 2, at % 2);
        node(&mut play, &name, Some(&format!("p{}", at / 2)), at, "8");
    }
    node(&mut play, "q", None, 0, "32");
    play.turn();
    play
}

fn node(play: &mut Play, name: &str, pool: Option<&str>, at: usize, cpu: &str) {
    let mut labels = json!({ ZONE: format!("z{}", at % 2), "kubernetes.io/hostname": name });
    if let Some(pool) = pool {
        labels[POOL] = json!(pool);
    }
    play.node(json!({
        "metadata": { "name": name, "labels": labels },
        "status": { "allocatable": { "cpu": cpu, "memory": "8Gi", "pods": "20" } },
    }));
}

/// Of which two fill a node.
fn spec(more: &Value) -> Value {
    let mut spec = json!({ "schedulerName": "phalanx",
        "containers": [{ "name": "c", "resources": { "requests": { "cpu": "4" } } }] });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

fn gang(play: &mut Play, name: &str, size: u32, annotations: &Value) {
    let labels = json!({ "pod-group.scheduling.sigs.k8s.io/name": name,
        "pod-group.scheduling.sigs.k8s.io/min-available": size.to_string() });
    let pod_group = json!({ "apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
        "metadata": { "namespace": "x", "name": name, "annotations": annotations }, "spec": { "minMember": size } });
    play.object(&pod_group);
    for at in 0..size {
        let name = format!("{name}-{at}");
        let mut labels = labels.clone();
        labels["scheduling.x-k8s.io/pod-group"] = labels["pod-group.scheduling.sigs.k8s.io/name"].clone();
        let metadata = json!({ "namespace": "x", "name": name, "uid": name, "labels": labels });
        play.see(&name, json!({ "metadata": metadata, "spec": spec(&json!({})) }));
    }
}

/// Bound pods in each pool, of those whose name begins so.
fn of_pools<'a>(play: &'a Play, prefix: &str) -> BTreeMap<&'a str, usize> {
    let mut pools = BTreeMap::new();
    for (_, node) in play.bound.iter().filter(|(name, _)| name.starts_with(prefix)) {
        *pools.entry(node.split('-').next().unwrap()).or_insert(0) += 1;
    }
    pools
}

fn pool<'a>(play: &'a Play, prefix: &str) -> &'a str {
    let pools = of_pools(play, prefix);
    assert_eq!(pools.len(), 1, "{prefix}: {:?} {:?}", play.bound, play.reasons);
    pools.into_keys().next().unwrap()
}

/// It was refused: "no level of this cluster is label …".
#[test]
fn a_gang_is_inside_one_domain_of_any_label_that_nodes_carry() {
    let mut play = pools(3);
    play.fill("p0-0", "4");
    gang(&mut play, "four", 4, &json!({ "phalanx.dev/topology-required": POOL }));
    play.turn();
    assert_eq!(play.bound.len(), 4, "{:?}", play.reasons);
    assert_ne!(pool(&play, "four"), "p0", "it has room for three");
    // Three have room in the smallest pool that is left.
    gang(&mut play, "three", 3, &json!({ "kueue.x-k8s.io/podset-required-topology": POOL }));
    play.turn();
    assert_eq!(pool(&play, "three"), "p0", "the larger one stays whole");
    gang(&mut play, "pairs", 4, &json!({ "phalanx.dev/segments": format!("2:{POOL}") }));
    play.turn();
    assert!(of_pools(&play, "pairs").values().all(|pods| pods % 2 == 0), "{:?}", play.bound);
    assert_eq!(of_pools(&play, "pairs").values().sum::<usize>(), 4, "{:?}", play.reasons);
}

#[test]
fn a_gang_that_no_domain_has_room_for_waits_and_goes_where_room_comes_up() {
    let mut play = pools(2);
    play.fill("p0-0", "4");
    play.fill("p1-1", "4");
    gang(&mut play, "four", 4, &json!({ "phalanx.dev/topology-required": POOL }));
    gang(&mut play, "five", 5, &json!({ "phalanx.dev/topology-required": POOL }));
    gang(&mut play, "where", 2, &json!({ "phalanx.dev/topology-required": "example.com/nowhere" }));
    play.turn();
    assert!(play.bound.is_empty(), "{:?}", play.bound);
    let why = play.reasons["where-0"].clone();
    assert!(why.contains("no level of this cluster is label example.com/nowhere"), "{why}");
    let (four, five) = (play.reasons["four-0"].clone(), play.reasons["five-0"].clone());
    assert!(four.contains("fit now") || four.contains("room"), "{four}");
    assert!(five.contains(POOL) || five.contains("room"), "{five}");
    for freed in ["p1-1", "p0-0"] {
        play.delete(&format!("fills-{freed}"));
        play.turn();
        play.wait(10_000);
        play.wait(10_000);
        assert_eq!(pool(&play, "four"), &freed[..2], "{:?}", play.reasons);
        (0..4).for_each(|at| play.delete(&format!("four-{at}")));
        play.wait(10_000);
        if freed == "p1-1" {
            play.fill("p1-1", "4");
            gang(&mut play, "four", 4, &json!({ "phalanx.dev/topology-required": POOL }));
            play.turn();
            assert!(play.bound.is_empty(), "{:?}", play.bound);
        }
    }
}

/// What the webhooks of both controllers add to the first pod of a group: its own kind are in one domain, nobody else is.
fn alone(label: &str, key: &str) -> Value {
    let of = |expressions: Value| {
        json!({ "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": POOL, "namespaceSelector": {},
            "labelSelector": { "matchExpressions": expressions } }] })
    };
    json!({ "affinity": {
        "podAffinity": of(json!([{ "key": label, "operator": "In", "values": [key] }])),
        "podAntiAffinity": of(json!([{ "key": label, "operator": "Exists" },
            { "key": label, "operator": "NotIn", "values": [key] }])),
    } })
}

fn job_set(play: &mut Play, name: &str, replicas: u32, each: u32) {
    let template = json!({ "spec": { "parallelism": each, "completions": each, "completionMode": "Indexed",
        "template": { "spec": spec(&json!({})) } } });
    play.object(&json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": { "namespace": "x", "name": name, "uid": name,
            "annotations": { "alpha.jobset.sigs.k8s.io/exclusive-topology": POOL } },
        "spec": { "replicatedJobs": [{ "name": "workers", "replicas": replicas, "template": template }] },
    }));
    for copy in 0..replicas {
        let key = format!("{name}-workers-{copy}");
        of_job_set(play, name, copy, 0, &alone(&format!("{JOBSET}/job-key"), &key));
    }
}

fn of_job_set(play: &mut Play, name: &str, copy: u32, index: u32, more: &Value) {
    let job = format!("{name}-workers-{copy}");
    let pod = format!("{job}-{index}");
    let labels = json!({ format!("{JOBSET}/jobset-name"): name, format!("{JOBSET}/replicatedjob-name"): "workers",
        format!("{JOBSET}/job-index"): copy.to_string(), format!("{JOBSET}/job-key"): job,
        "batch.kubernetes.io/job-completion-index": index.to_string() });
    let owner =
        json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": true }]);
    let metadata =
        json!({ "namespace": "x", "name": pod, "uid": pod, "labels": labels, "ownerReferences": owner });
    play.see(&pod, json!({ "metadata": metadata, "spec": spec(more) }));
}

/// Its sample with `cloud.google.com/gke-nodepool` waited for ever.
#[test]
fn each_job_of_a_set_has_a_pool_for_itself_and_its_pods_follow_the_first() {
    let mut play = pools(3);
    job_set(&mut play, "train", 2, 3);
    play.turn();
    assert_eq!(play.bound.len(), 2, "{:?} {:?}", play.bound, play.reasons);
    // The next set finds one pool without a job, and needs two.
    job_set(&mut play, "other", 2, 3);
    play.turn();
    assert!(of_pools(&play, "other").is_empty(), "{:?}", play.bound);
    for copy in 0..2 {
        let there = json!({ "nodeSelector": { POOL: pool(&play, &format!("train-workers-{copy}")) } });
        (1..3).for_each(|index| of_job_set(&mut play, "train", copy, index, &there));
    }
    play.turn();
    assert_ne!(pool(&play, "train-workers-0"), pool(&play, "train-workers-1"));
    assert_eq!(of_pools(&play, "train").values().sum::<usize>(), 6, "{:?} {:?}", play.bound, play.reasons);
    assert!(of_pools(&play, "other").is_empty(), "{:?}", play.bound);
    for copy in 0..2 {
        (0..3).for_each(|index| play.delete(&format!("train-workers-{copy}-{index}")));
    }
    play.turn();
    play.wait(10_000);
    play.wait(10_000);
    assert_ne!(pool(&play, "other-workers-0"), pool(&play, "other-workers-1"));
}

#[test]
fn each_group_of_a_leader_worker_set_has_a_pool_for_itself() {
    let mut play = pools(2);
    play.object(&json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": { "namespace": "x", "name": "serve", "uid": "serve",
            "annotations": { format!("{LWS}/exclusive-topology"): POOL } },
        "spec": { "replicas": 3, "leaderWorkerTemplate": { "size": 3, "workerTemplate": { "spec": spec(&json!({})) } } },
    }));
    let of_group = |play: &mut Play, group: u32, index: u32, more: &Value| {
        let pod = format!("serve-{group}-{index}");
        let labels = json!({ format!("{LWS}/name"): "serve", format!("{LWS}/group-index"): group.to_string(),
            format!("{LWS}/worker-index"): index.to_string(), format!("{LWS}/group-key"): format!("serve-{group}") });
        let metadata = json!({ "namespace": "x", "name": pod, "uid": pod, "labels": labels });
        play.see(&pod, json!({ "metadata": metadata, "spec": spec(more) }));
    };
    for group in 0..3 {
        of_group(&mut play, group, 0, &alone(&format!("{LWS}/group-key"), &format!("serve-{group}")));
    }
    play.turn();
    play.wait(10_000);
    assert_eq!(play.bound.len(), 2, "two pools: {:?} {:?}", play.bound, play.reasons);
    for group in 0..3 {
        if !play.bound.contains_key(&format!("serve-{group}-0")) {
            continue;
        }
        let there = json!({ "nodeSelector": { POOL: pool(&play, &format!("serve-{group}")) } });
        (1..3).for_each(|index| of_group(&mut play, group, index, &there));
    }
    play.turn();
    assert_eq!(of_pools(&play, "serve"), [("p0", 3), ("p1", 3)].into(), "{:?}", play.reasons);
}

/// The engine knows nothing of it, and all of them are in one domain with the first.
#[test]
fn pods_that_start_one_by_one_share_a_domain_of_any_label() {
    let mut play = pools(3);
    for at in 0..4 {
        let name = format!("web-{at}");
        let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": true }]);
        let metadata = json!({ "namespace": "x", "name": name, "uid": name, "ownerReferences": owner,
            "annotations": { "phalanx.dev/topology-required": POOL } });
        play.see(&name, json!({ "metadata": metadata, "spec": spec(&json!({})) }));
    }
    play.turn();
    assert_eq!(of_pools(&play, "web").values().sum::<usize>(), 4, "{:?}", play.reasons);
    pool(&play, "web");
}
