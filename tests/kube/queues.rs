//! Queues as resources: what is guaranteed is taken back, and their status says how they stand.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use phalanx_kube::crd;
use phalanx_kube::gang::Options;
use phalanx_kube::user::{Cluster as UserCluster, UserError};
use phalanx_model::{GangRecord, Input, QueueName, Snapshot};
use phalanx_sim::ahead::ahead;
use serde_json::json;

use crate::support::{Cluster, DEFINITIONS, JOBS, PODS, Times, assert_disjoint, job, pod};

pub(crate) const QUEUES: &str = "/apis/phalanx.dev/v1alpha1/queues";

/// Has our resources served.
pub(crate) fn define(cluster: &Cluster) {
    for (_, document) in crd::documents().unwrap() {
        cluster.api().post_yaml(DEFINITIONS, &document).unwrap();
    }
    for definition in crd::all() {
        let plural = definition.spec.names.plural;
        let path = format!("/apis/phalanx.dev/v1alpha1/{plural}");
        cluster.until(&format!("{plural} that are served"), |cluster| cluster.api().get(&path).ok());
    }
}

/// Shares the cluster by this policy.
pub(crate) fn share(cluster: &Cluster, spec: &serde_json::Value) {
    let policy = json!({
        "apiVersion": "phalanx.dev/v1alpha1",
        "kind": "SharePolicy",
        "metadata": { "name": "default" },
        "spec": spec,
    });
    cluster.create("/apis/phalanx.dev/v1alpha1/sharepolicies", &policy);
}

fn in_queue(mut job: serde_json::Value, queue: &str) -> serde_json::Value {
    job["metadata"]["labels"] = json!({ "phalanx.dev/queue": queue });
    job["spec"]["template"]["metadata"]["labels"] = json!({ "phalanx.dev/queue": queue });
    job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
    job
}

#[test]
fn a_queue_takes_back_what_it_is_guaranteed_and_says_how_it_stands() {
    let mut cluster = Cluster::of(2);
    let user = UserCluster::connect(Some(&cluster.plane.kubeconfig()), None, Some("default")).unwrap();
    assert!(matches!(user.queues(), Err(UserError::NoDefinitions)), "nothing is defined yet");
    define(&cluster);
    assert_eq!(user.queues().unwrap(), []);
    for name in ["team-a", "team-b"] {
        let queue = json!({
            "apiVersion": "phalanx.dev/v1alpha1",
            "kind": "Queue",
            "metadata": { "name": name },
            "spec": { "guaranteed": { "gpus": 8 } },
        });
        cluster.create(QUEUES, &queue);
    }
    cluster.schedule(0);
    for name in ["b1", "b2"] {
        cluster.create(JOBS, &in_queue(job(name, 2, 4, &json!({})), "team-b"));
        cluster.until_runs(name, 2);
    }
    cluster.create(JOBS, &in_queue(job("a1", 2, 4, &json!({})), "team-a"));
    cluster.until_runs("a1", 2);
    assert_disjoint(&cluster.seats());
    let status = cluster.until("status of team-a", |cluster| {
        let queue = cluster.api().get(&format!("{QUEUES}/team-a")).ok()?;
        (queue["status"]["usage"]["gpus"]["used"] == "8").then(|| queue["status"].clone())
    });
    assert_eq!(status["running"], 1, "{status:#}");
    assert_eq!(status["conditions"][0]["status"], "True", "{status:#}");
    // People see the same.
    let seen = user.queues().unwrap();
    let names: Vec<_> = seen.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(names, ["team-a", "team-b"]);
    let gpus = &seen[0].usage["gpus"];
    assert_eq!((gpus.used.as_str(), gpus.guaranteed.as_str(), gpus.capacity.as_str()), ("8", "8", "16"));
    assert_eq!((seen[0].running, seen[0].why.as_str()), (1, ""));
    assert!(matches!(user.queue("nobody"), Err(UserError::NoQueue(_))));
    // Of the borrowers one is left, whole.
    let left = cluster.until("one borrower", |cluster| {
        let bound = cluster.bound();
        let whole: Vec<_> =
            ["b1", "b2"].iter().filter(|name| bound.get(**name).is_some_and(|of| of.0 == 2)).collect();
        let none = ["b1", "b2"].iter().filter(|name| bound.get(**name).is_none_or(|of| of.0 == 0)).count();
        (whole.len() == 1 && none == 1).then(|| (*whole[0]).to_owned())
    });
    let suspended =
        |name: &str| cluster.api().get(&format!("{JOBS}/{name}")).unwrap()["spec"]["suspend"] == true;
    assert_eq!(left, "b1", "what was borrowed last is given back first");
    assert_eq!(["b1", "b2"].map(suspended), [false, true]);
    cluster.create(JOBS, &in_queue(job("lost", 1, 1, &json!({})), "nobody"));
    let pod = cluster.until("a pod of lost", |cluster| {
        cluster.seats().into_iter().find(|seat| seat.gang == "lost").map(|seat| seat.name)
    });
    cluster.until_explained(&pod, "nobody");
    // The borrower that was stopped waits in its queue, and leaves its status with it.
    let stopped = if left == "b1" { "b2" } else { "b1" };
    let waiting = |cluster: &Cluster| {
        let queue = cluster.api().get(&format!("{QUEUES}/team-b")).unwrap();
        queue["status"]["waiting"].as_array().cloned().unwrap_or_default()
    };
    let named = cluster.until("who waits in team-b", |cluster| waiting(cluster).first().cloned());
    assert_eq!(named["gang"], format!("Job default/{stopped}"), "{named:#}");
    assert!(named["since"].is_string() && named["reason"] != "", "{named:#}");
    cluster.api().delete(&format!("{JOBS}/{stopped}?propagationPolicy=Background")).unwrap();
    cluster.until("nobody who waits", |cluster| waiting(cluster).is_empty().then_some(()));
}

/// Without a `SharePolicy` every priority had a `minRun` of 0: a Job was suspended 5 s after its start.
#[test]
fn a_borrower_is_not_suspended_before_it_has_run_for_its_min_run() {
    let mut cluster = Cluster::of(1);
    define(&cluster);
    for name in ["team-a", "team-b"] {
        let queue = json!({
            "apiVersion": "phalanx.dev/v1alpha1",
            "kind": "Queue",
            "metadata": { "name": name },
            "spec": { "guaranteed": { "gpus": 4 } },
        });
        cluster.create(QUEUES, &queue);
    }
    let min_run = Duration::from_secs(15);
    let scheduler = cluster.schedule_within(0, Times { min_run_s: min_run.as_secs(), ..Times::default() });
    cluster.create(JOBS, &in_queue(job("borrows", 2, 4, &json!({})), "team-b"));
    cluster.until_runs("borrows", 2);
    let runs = Instant::now();
    cluster.create(JOBS, &in_queue(job("reclaims", 1, 4, &json!({})), "team-a"));
    let is_suspended =
        |cluster: &Cluster| cluster.api().get(&format!("{JOBS}/borrows")).unwrap()["spec"]["suspend"] == true;
    let suspended = |cluster: &Cluster| is_suspended(cluster).then(|| runs.elapsed());
    // The engine counts from when it heard that the last pod runs, at most one second before this test did.
    let after = cluster.until("a suspended borrower", suspended);
    assert!(after >= min_run - Duration::from_secs(1), "suspended after {after:?}");
    cluster.until_runs("reclaims", 1);
    // What the policy says of the priority holds at once: the pods of both have priority 0.
    cluster.api().delete(&format!("{JOBS}/reclaims?propagationPolicy=Background")).unwrap();
    cluster.until_runs("borrows", 2);
    share(
        &cluster,
        &json!({ "classes": [{ "name": "usual", "rank": 0, "minRun": "0s" }], "defaultClass": "usual" }),
    );
    cluster.kill(scheduler);
    cluster.schedule_within(0, Times { min_run_s: 3_600, ..Times::default() });
    cluster.create(JOBS, &in_queue(job("again", 1, 4, &json!({})), "team-a"));
    cluster.until_runs("again", 1);
}

/// Nodes of a queue by a label that a node gets while a gang waits for it.
#[test]
fn gangs_of_a_queue_go_to_its_nodes_and_its_status_says_how_full_they_are() {
    let mut cluster = Cluster::of(2);
    define(&cluster);
    let queue = json!({
        "apiVersion": "phalanx.dev/v1alpha1",
        "kind": "Queue",
        "metadata": { "name": "gold" },
        "spec": { "nodes": { "required": [{ "labels": { "example.com/tier": "gold" } }] } },
    });
    cluster.create(QUEUES, &queue);
    cluster.schedule(0);
    cluster.create(JOBS, &in_queue(job("ring", 2, 4, &json!({})), "gold"));
    let pools = |cluster: &Cluster| {
        let queue = cluster.api().get(&format!("{QUEUES}/gold")).ok()?;
        queue["status"]["pools"].as_array().and_then(|pools| pools.first().cloned())
    };
    let empty = cluster
        .until("a pool without nodes", |cluster| pools(cluster).filter(|_| cluster.bound()["ring"].1 == 2));
    assert_eq!((&empty["nodes"], &empty["pool"]), (&json!(0), &json!("label example.com/tier=gold")));
    let nodes = cluster.api().get("/api/v1/nodes").unwrap();
    let name = nodes["items"][1]["metadata"]["name"].as_str().unwrap().to_owned();
    let label = json!({ "metadata": { "labels": { "example.com/tier": "gold" } } });
    cluster.api().patch(&format!("/api/v1/nodes/{name}"), &label).unwrap();
    cluster.until_runs("ring", 2);
    let on: BTreeSet<Option<String>> = cluster.seats().into_iter().map(|seat| seat.node).collect();
    assert_eq!(on, [Some(name)].into());
    let full = cluster.until("a full pool", |cluster| pools(cluster).filter(|pool| pool["used"] == "8"));
    assert_eq!((&full["nodes"], &full["gpus"]), (&json!(1), &json!("8")), "{full:#}");
}

/// Jobs of a snapshot, by whether a gang of theirs holds capacity.
fn holding(snapshot: &Snapshot) -> Vec<(String, bool)> {
    let job = |fact: &Input| match fact {
        Input::JobObserved { job, gangs } => {
            Some((job.name.to_string(), gangs.iter().any(GangRecord::holds_capacity)))
        }
        _ => None,
    };
    let mut jobs: Vec<_> = snapshot.facts.iter().filter_map(job).collect();
    jobs.sort();
    jobs
}

#[test]
fn a_snapshot_of_the_cluster_goes_on_in_the_simulator_as_the_cluster_would() {
    let mut cluster = Cluster::of(2);
    define(&cluster);
    cluster.schedule(0);
    cluster.create(JOBS, &job("runs", 2, 6, &json!({})));
    let seats = cluster.until_runs("runs", 2);
    cluster.create(PODS, &pod("waits", 8));
    cluster.until_explained("waits", "");
    let user = UserCluster::connect(Some(&cluster.plane.kubeconfig()), None, Some("default")).unwrap();
    let options = Options::of_queue(QueueName::new("default").unwrap());
    let seen = user.snapshot(options).unwrap();
    assert!(seen.unread.is_empty(), "an administrator may read all: {:?}", seen.unread);
    let jobs = holding(&seen.snapshot);
    assert_eq!(jobs.iter().map(|(_, holds)| *holds).collect::<Vec<_>>(), [true, false], "{jobs:?}");
    // It runs where the cluster has it, with the devices of its pods.
    let placed = seen.snapshot.facts.iter().find_map(|fact| match fact {
        Input::JobObserved { gangs, .. } => gangs[0].placement.clone(),
        _ => None,
    });
    let placed = placed.unwrap().slots.into_iter();
    let placed: BTreeSet<_> = placed.map(|slot| (slot.node.to_string(), slot.devices.to_string())).collect();
    let bound = seats.into_iter().map(|seat| (seat.node.unwrap(), seat.devices.unwrap())).collect();
    assert_eq!(placed, bound);
    // Nobody says when it ends, so within an hour nothing changes; once written, it is read as `whatif` reads it.
    let text = serde_json::to_vec(&seen.snapshot).unwrap();
    let read: Snapshot = serde_json::from_slice(&text).unwrap();
    assert_eq!(read, seen.snapshot);
    let ahead = ahead(&read, Vec::new(), 3_600_000).unwrap();
    assert_eq!(ahead.refused, [""; 0]);
    assert_eq!(ahead.gangs.len(), 2);
    // What the user looked at is as it was.
    assert_eq!(cluster.bound()["runs"].0, 2);
}
