//! Lifecycle and engine together: roles that are each in a domain of their own, and gangs that are alone in theirs. What the
//! controllers of `LeaderWorkerSet` and `JobSet` do is played, with the pods that their webhooks make and in their order.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::gang::constraints::tests::Play;

const ZONE: &str = "topology.kubernetes.io/zone";
const LWS: &str = "leaderworkerset.sigs.k8s.io";
const JOBSET: &str = "jobset.sigs.k8s.io";
const EXCLUSIVE_JOB: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";

/// So many zones of two nodes each, with room for two pods on each node.
fn zones(count: usize) -> Play {
    let mut play = Play::listing(0);
    see_zones(&mut play, count);
    play.turn();
    play
}

fn see_zones(play: &mut Play, count: usize) {
    for at in 0..count * 2 {
        let name = format!("z{}-{}", at / 2, at % 2);
        play.node(json!({
            "metadata": { "name": name, "labels": { ZONE: format!("z{}", at / 2), "kubernetes.io/hostname": name } },
            "status": { "allocatable": { "cpu": "8", "memory": "8Gi", "pods": "20" } },
        }));
    }
}

/// Of which two fill a node.
fn spec(more: &Value) -> Value {
    let mut spec = json!({ "schedulerName": "phalanx",
        "containers": [{ "name": "c", "resources": { "requests": { "cpu": "4" } } }] });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// Bound pods in each zone, of those whose name begins so.
fn of_zones(play: &Play, prefix: &str) -> BTreeMap<String, usize> {
    let mut zones = BTreeMap::new();
    for node in play.bound.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, node)| node) {
        *zones.entry(node[..2].to_owned()).or_insert(0) += 1;
    }
    zones
}

/// The zone that all of them are in.
fn zone(play: &Play, prefix: &str) -> String {
    let zones = of_zones(play, prefix);
    assert_eq!(zones.len(), 1, "{prefix}: {:?} {:?}", play.bound, play.reasons);
    zones.into_keys().next().unwrap()
}

/// A job of Kubeflow with roles of so many pods; in one zone each where they say so.
fn job(play: &mut Play, roles: &[(&str, u32, bool)]) {
    let template = |is_bound: bool| {
        let annotations = match is_bound {
            true => json!({ "kueue.x-k8s.io/podset-required-topology": ZONE }),
            false => json!({}),
        };
        json!({ "metadata": { "annotations": annotations }, "spec": spec(&json!({})) })
    };
    let replicas: serde_json::Map<String, Value> = roles
        .iter()
        .map(|(role, size, is_bound)| {
            ((*role).to_owned(), json!({ "replicas": size, "template": template(*is_bound) }))
        })
        .collect();
    play.object(&json!({
        "apiVersion": "kubeflow.org/v1", "kind": "TFJob",
        "metadata": { "namespace": "x", "name": "job", "uid": "u" }, "spec": { "tfReplicaSpecs": replicas },
    }));
    for (role, size, _) in roles {
        for index in 0..*size {
            of_job(play, &role.to_lowercase(), index, &json!({}));
        }
    }
}

fn of_job(play: &mut Play, role: &str, index: u32, more: &Value) {
    let name = format!("{role}-{index}");
    let labels = json!({ "training.kubeflow.org/job-name": "job", "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": index.to_string() });
    let owner = json!([{ "apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "job", "uid": "u", "controller": true }]);
    let metadata =
        json!({ "namespace": "x", "name": name, "uid": name, "labels": labels, "ownerReferences": owner });
    play.see(&name, json!({ "metadata": metadata, "spec": spec(more) }));
}

/// A pair that starts by itself, with an annotation that says how long it waits for a nearer place.
fn pair(play: &mut Play, name: &str, wait: Option<&str>) {
    let group = json!({ "pod-group.scheduling.sigs.k8s.io/name": name, "pod-group.scheduling.sigs.k8s.io/min-available": "2" });
    let annotations = wait.map_or(json!({}), |wait| json!({ "phalanx.dev/topology-wait": wait }));
    for index in 0..2 {
        let pod = format!("{name}-{index}");
        let metadata =
            json!({ "namespace": "x", "name": pod, "uid": pod, "labels": group, "annotations": annotations });
        play.see(&pod, json!({ "metadata": metadata, "spec": spec(&json!({})) }));
    }
}

/// Two nodes, with room for one more pod on each.
fn two_halves() -> Play {
    let mut play = zones(1);
    for node in ["z0-0", "z0-1"] {
        let metadata = json!({ "namespace": "x", "name": format!("on-{node}"), "uid": node });
        let spec = spec(&json!({ "nodeSelector": { "kubernetes.io/hostname": node } }));
        play.see(&format!("on-{node}"), json!({ "metadata": metadata, "spec": spec }));
    }
    play.turn();
    assert_eq!(play.bound.len(), 2, "{:?}", play.reasons);
    play
}

/// Pods could not say `topology: anywhere`, nor wait for the nearest place.
#[test]
fn a_gang_waits_for_one_node_as_long_as_its_pods_say() {
    let mut play = two_halves();
    pair(&mut play, "strict", Some("nearest"));
    play.turn();
    assert!(!play.bound.contains_key("strict-0"), "{:?}", play.bound);
    let reason = &play.reasons["strict-0"];
    assert!(
        reason.contains("inside one node") && reason.contains("`phalanx.dev/topology-wait: anywhere`"),
        "{reason}"
    );
    pair(&mut play, "patient", Some("10m"));
    play.turn();
    assert!(!play.bound.contains_key("patient-0"), "{:?}", play.bound);
    play.wait(601_000);
    assert_ne!(play.bound["patient-0"], play.bound["patient-1"], "it waited as long as it said");
    ["patient-0", "patient-1"].iter().for_each(|pod| play.delete(pod));
    pair(&mut play, "hasty", Some("anywhere"));
    play.turn();
    assert_ne!(play.bound["hasty-0"], play.bound["hasty-1"]);
    play.delete("on-z0-0");
    play.delete("hasty-0");
    play.delete("hasty-1");
    play.turn();
    assert_eq!(play.bound["strict-0"], "z0-0");
    assert_eq!(play.bound["strict-1"], "z0-0");
}

#[test]
fn a_gang_that_says_nothing_of_a_wait_starts_where_no_price_is_known() {
    let mut play = two_halves();
    pair(&mut play, "pair", None);
    play.turn();
    assert_ne!(play.bound["pair-0"], play.bound["pair-1"]);
}

/// It was refused.
#[test]
fn each_role_is_in_one_zone_of_its_own() {
    let mut play = zones(2);
    job(&mut play, &[("Worker", 3, true), ("PS", 3, true), ("Chief", 2, false)]);
    play.turn();
    assert_ne!(zone(&play, "worker"), zone(&play, "ps"), "six are more than a zone has room for");
    assert_eq!(of_zones(&play, "chief").values().sum::<usize>(), 2, "{:?}", play.reasons);
}

#[test]
fn a_role_that_fits_into_no_zone_keeps_all_of_them_waiting() {
    let mut play = zones(2);
    job(&mut play, &[("Worker", 1, false), ("PS", 5, true)]);
    play.turn();
    assert!(play.bound.is_empty(), "{:?}", play.bound);
    assert!(!play.reasons["worker-0"].contains("not supported"), "{:?}", play.reasons);
}

#[test]
fn a_role_in_one_zone_is_of_equal_pods() {
    let mut play = zones(2);
    job(&mut play, &[("Worker", 2, true), ("PS", 1, false)]);
    let other = json!({ "containers": [{ "name": "c", "resources": { "requests": { "cpu": "2" } } }] });
    of_job(&mut play, "worker", 1, &other);
    play.turn();
    assert!(play.bound.is_empty(), "{:?}", play.bound);
    assert!(play.reasons["ps-0"].contains("pods of worker ask for different things"), "{:?}", play.reasons);
}

/// What the webhooks of both controllers add to the first pod of a group: its own kind are in one domain, nobody else is.
fn alone(label: &str, key: &str) -> Value {
    let of = |expressions: Value| {
        json!({ "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": ZONE, "namespaceSelector": {},
            "labelSelector": { "matchExpressions": expressions } }] })
    };
    json!({ "affinity": {
        "podAffinity": of(json!([{ "key": label, "operator": "In", "values": [key] }])),
        "podAntiAffinity": of(json!([{ "key": label, "operator": "Exists" },
            { "key": label, "operator": "NotIn", "values": [key] }])),
    } })
}

fn lws(play: &mut Play, name: &str, replicas: u32, size: u32) {
    play.object(&json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": { "namespace": "x", "name": name, "uid": name,
            "annotations": { format!("{LWS}/exclusive-topology"): ZONE } },
        "spec": { "replicas": replicas, "leaderWorkerTemplate": {
            "size": size, "workerTemplate": { "spec": spec(&json!({})) } } },
    }));
    for group in 0..replicas {
        of_lws(play, name, group, 0, &alone(&format!("{LWS}/group-key"), &format!("{name}-{group}")));
    }
}

fn of_lws(play: &mut Play, name: &str, group: u32, index: u32, more: &Value) {
    let pod = if index == 0 { format!("{name}-{group}") } else { format!("{name}-{group}-{index}") };
    let labels = json!({ format!("{LWS}/name"): name, format!("{LWS}/group-index"): group.to_string(),
        format!("{LWS}/worker-index"): index.to_string(), format!("{LWS}/group-key"): format!("{name}-{group}") });
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": "s", "controller": true }]);
    let annotations = json!({ format!("{LWS}/exclusive-topology"): ZONE });
    let metadata = json!({ "namespace": "x", "name": pod, "uid": pod, "labels": labels, "annotations": annotations,
        "ownerReferences": owner });
    play.see(&pod, json!({ "metadata": metadata, "spec": spec(more) }));
}

/// Its workers are made for the domain of a leader that has a node.
fn workers_follow(play: &mut Play, name: &str, group: u32) {
    let there = zone(play, &format!("{name}-{group}"));
    for index in 1..3 {
        of_lws(play, name, group, index, &json!({ "nodeSelector": { ZONE: there } }));
    }
}

#[test]
fn groups_of_leader_and_workers_have_a_zone_each_and_places_are_kept_for_the_workers() {
    let mut play = zones(2);
    lws(&mut play, "serve", 3, 3);
    play.turn();
    let leaders: BTreeSet<&String> = play.bound.keys().collect();
    assert_eq!(leaders.len(), 2, "two zones, three groups: {:?} {:?}", play.bound, play.reasons);
    // One of four places of each zone is not kept for the workers.
    for at in 0..4 {
        play.see(&format!("other-{at}"), json!({
            "metadata": { "namespace": "x", "name": format!("other-{at}"), "uid": format!("o{at}") }, "spec": spec(&json!({})) }));
    }
    play.turn();
    assert_eq!(of_zones(&play, "other"), [("z0".to_owned(), 1), ("z1".to_owned(), 1)].into());
    let groups: Vec<u32> =
        (0..3).filter(|group| play.bound.contains_key(&format!("serve-{group}"))).collect();
    for group in &groups {
        workers_follow(&mut play, "serve", *group);
    }
    play.turn();
    let both: BTreeSet<String> = groups.iter().map(|group| zone(&play, &format!("serve-{group}"))).collect();
    assert_eq!((both.len(), of_zones(&play, "serve").values().sum::<usize>()), (2, 6), "{:?}", play.bound);
    // One that ends leaves its zone to the third.
    let third = (0..3).find(|group| !groups.contains(group)).unwrap();
    let freed = zone(&play, &format!("serve-{}", groups[0]));
    for index in ["", "-1", "-2"] {
        play.delete(&format!("serve-{}{index}", groups[0]));
    }
    play.turn();
    play.wait(10_000);
    assert_eq!(zone(&play, &format!("serve-{third}")), freed, "{:?}", play.reasons);
}

#[test]
fn groups_decided_in_one_moment_are_not_in_one_zone_where_both_would_fit() {
    let mut play = zones(2);
    for name in ["one", "two"] {
        lws(&mut play, name, 1, 2);
    }
    play.turn();
    play.wait(10_000);
    play.wait(10_000);
    assert_ne!(zone(&play, "one"), zone(&play, "two"));
}

/// The places of workers that nobody makes were kept for ever.
#[test]
fn a_leader_whose_workers_never_come_is_taken_back() {
    let mut play = zones(1);
    lws(&mut play, "serve", 1, 3);
    play.turn();
    assert!(play.bound.contains_key("serve-0"), "{:?}", play.reasons);
    play.wait(59_000);
    assert!(play.bound.contains_key("serve-0") && play.stops.is_empty(), "{:?}", play.stops);
    play.wait(2_000);
    assert!(play.bound.is_empty(), "{:?}", play.bound);
    assert_eq!(play.stops.len(), 1, "{:?}", play.stops);
}

#[test]
fn one_whose_workers_came_is_not() {
    let mut play = zones(1);
    lws(&mut play, "serve", 1, 3);
    play.turn();
    workers_follow(&mut play, "serve", 0);
    play.turn();
    play.wait(120_000);
    assert_eq!((play.bound.len(), play.stops.len()), (3, 0), "{:?}", play.stops);
}

fn job_set(play: &mut Play, name: &str, roles: &[(&str, u32, u32)]) {
    let job = |(role, replicas, each): &(&str, u32, u32)| {
        json!({ "name": role, "replicas": replicas, "template": { "spec": { "parallelism": each, "completions": each,
            "completionMode": "Indexed", "template": { "spec": spec(&json!({})) } } } })
    };
    play.object(&json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": { "namespace": "x", "name": name, "uid": name, "annotations": { EXCLUSIVE_JOB: ZONE } },
        "spec": { "replicatedJobs": roles.iter().map(job).collect::<Vec<_>>() },
    }));
    for (role, replicas, _) in roles {
        for copy in 0..*replicas {
            let key = format!("{name}-{role}-{copy}");
            of_job_set(play, name, role, copy, 0, &alone(&format!("{JOBSET}/job-key"), &key));
        }
    }
}

fn of_job_set(play: &mut Play, name: &str, role: &str, copy: u32, index: u32, more: &Value) {
    let job = format!("{name}-{role}-{copy}");
    let pod = format!("{job}-{index}");
    let labels = json!({ format!("{JOBSET}/jobset-name"): name, format!("{JOBSET}/replicatedjob-name"): role,
        format!("{JOBSET}/job-index"): copy.to_string(), format!("{JOBSET}/job-key"): job,
        "batch.kubernetes.io/job-completion-index": index.to_string() });
    let owner =
        json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": true }]);
    let metadata = json!({ "namespace": "x", "name": pod, "uid": pod, "labels": labels,
        "annotations": { EXCLUSIVE_JOB: ZONE }, "ownerReferences": owner });
    play.see(&pod, json!({ "metadata": metadata, "spec": spec(more) }));
}

/// The controller makes the second and third worker of both jobs, where the first of each is.
fn both_follow(play: &mut Play) {
    for copy in 0..2 {
        let there = json!({ "nodeSelector": { ZONE: zone(play, &format!("train-workers-{copy}")) } });
        (1..3).for_each(|index| of_job_set(play, "train", "workers", copy, index, &there));
    }
}

#[test]
fn jobs_of_a_set_have_a_zone_each_and_their_pods_follow_the_first_of_each() {
    let mut play = zones(4);
    job_set(&mut play, "train", &[("driver", 1, 1), ("workers", 2, 3)]);
    play.turn();
    assert_eq!(play.bound.len(), 3, "{:?} {:?}", play.bound, play.reasons);
    // All places of the workers are kept: the next set finds one zone, and needs two.
    job_set(&mut play, "other", &[("workers", 2, 3)]);
    play.turn();
    assert!(of_zones(&play, "other").is_empty(), "{:?}", play.bound);
    both_follow(&mut play);
    play.turn();
    let jobs = ["train-driver-0", "train-workers-0", "train-workers-1"];
    let zones: BTreeSet<String> = jobs.iter().map(|job| zone(&play, job)).collect();
    assert_eq!((zones.len(), of_zones(&play, "train").values().sum::<usize>()), (3, 7), "{:?}", play.bound);
    play.wait(120_000);
    assert!(
        play.stops.is_empty() && of_zones(&play, "other").is_empty(),
        "{:?} {:?}",
        play.stops,
        play.bound
    );
}

#[test]
fn jobs_of_which_two_would_fit_into_the_zone_of_another_are_refused() {
    let mut play = zones(4);
    job_set(&mut play, "train", &[("driver", 2, 1), ("workers", 1, 3)]);
    play.turn();
    assert!(play.bound.is_empty(), "{:?}", play.bound);
    assert!(
        play.reasons["train-driver-0-0"].contains("not supported: jobs of 1, 3 pods"),
        "{:?}",
        play.reasons
    );
}

/// A scheduler that begins when leaders are bound and their pods are not there yet.
#[test]
fn places_of_pods_that_follow_are_kept_over_a_restart() {
    let mut first = zones(2);
    job_set(&mut first, "train", &[("workers", 2, 3)]);
    first.turn();
    assert_eq!(first.bound.len(), 2, "{:?}", first.reasons);
    let mut play = Play::listing(0);
    see_zones(&mut play, 2);
    job_set(&mut play, "train", &[("workers", 2, 3)]);
    for (name, pod) in &first.pods {
        play.see(name, pod.clone());
        play.bound.insert(name.clone(), first.bound[name].clone());
    }
    for at in 0..8 {
        play.see(&format!("other-{at}"), json!({
            "metadata": { "namespace": "x", "name": format!("other-{at}"), "uid": format!("o{at}") }, "spec": spec(&json!({})) }));
    }
    play.turn();
    assert_eq!(of_zones(&play, "other").values().sum::<usize>(), 2, "{:?}", play.bound);
    both_follow(&mut play);
    play.turn();
    assert_eq!(of_zones(&play, "train").values().sum::<usize>(), 6, "{:?} {:?}", play.bound, play.reasons);
    play.wait(120_000);
    assert!(play.stops.is_empty(), "{:?}", play.stops);
}
