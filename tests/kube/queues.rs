//! Queues as resources: what is guaranteed is taken back, and their status says how they stand.

use phalanx_kube::crd;
use serde_json::json;

use crate::support::{Cluster, JOBS, assert_disjoint, job};

pub(crate) const QUEUES: &str = "/apis/phalanx.dev/v1alpha1/queues";

/// Has our resources served.
pub(crate) fn define(cluster: &Cluster) {
    for (_, document) in crd::documents().unwrap() {
        cluster
            .api()
            .post_yaml("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &document)
            .unwrap();
    }
    for definition in crd::all() {
        let plural = definition.spec.names.plural;
        let path = format!("/apis/phalanx.dev/v1alpha1/{plural}");
        cluster.until(&format!("{plural} that are served"), |cluster| cluster.api().get(&path).ok());
    }
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
    define(&cluster);
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
    // Of the borrowers one is left, whole.
    let left = cluster.until("one borrower", |cluster| {
        let bound = cluster.bound();
        let whole: Vec<_> =
            ["b1", "b2"].iter().filter(|name| bound.get(**name).is_some_and(|of| of.0 == 2)).collect();
        let none = ["b1", "b2"].iter().filter(|name| bound.get(**name).is_none_or(|of| of.0 == 0)).count();
        (whole.len() == 1 && none == 1).then(|| (*whole[0]).to_owned())
    });
    assert!(left.starts_with('b'));
    cluster.create(JOBS, &in_queue(job("lost", 1, 1, &json!({})), "nobody"));
    let pod = cluster.until("a pod of lost", |cluster| {
        cluster.seats().into_iter().find(|seat| seat.gang == "lost").map(|seat| seat.name)
    });
    cluster.until_explained(&pod, "nobody");
}
