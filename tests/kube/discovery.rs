//! Kinds that are served only after the scheduler began.

use serde_json::json;

use crate::queues::{self, QUEUES};
use crate::support::{Cluster, DEFINITIONS, PODS, pod};

const GROUPS: &str = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups";

/// Of the coscheduling plugin, as far as it says what a gang is.
fn coscheduling() -> serde_json::Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "podgroups.scheduling.x-k8s.io",
            "annotations": { "api-approved.kubernetes.io": "unapproved, for a test" },
        },
        "spec": {
            "group": "scheduling.x-k8s.io",
            "scope": "Namespaced",
            "names": { "kind": "PodGroup", "plural": "podgroups", "singular": "podgroup" },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}

#[test]
fn kinds_and_queues_that_are_installed_later_are_found_without_a_restart() {
    let mut cluster = Cluster::of(1);
    let scheduler = cluster.schedule(0);
    cluster.until("a leader", |cluster| cluster.log().contains("leads").then_some(()));
    cluster.create(DEFINITIONS, &coscheduling());
    queues::define(&cluster);
    cluster.until("groups that are served", |cluster| cluster.api().get(GROUPS).ok());
    let group = json!({
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": { "name": "pair", "labels": { "phalanx.dev/queue": "late" } },
        "spec": { "minMember": 2 },
    });
    cluster.create(GROUPS, &group);
    let queue = json!({
        "apiVersion": "phalanx.dev/v1alpha1",
        "kind": "Queue",
        "metadata": { "name": "late" },
        "spec": { "guaranteed": { "gpus": 8 } },
    });
    cluster.create(QUEUES, &queue);
    let member = |at: u32| {
        let mut member = pod(&format!("pair-{at}"), 2);
        member["metadata"]["labels"] = json!({
            "gang": "pair", "scheduling.x-k8s.io/pod-group": "pair", "phalanx.dev/queue": "late",
        });
        cluster.create(PODS, &member);
    };
    member(0);
    // As its group says, and only that.
    cluster.until_explained("pair-0", "1 of 2 pods are there");
    assert_eq!(cluster.bound()["pair"], (0, 1));
    member(1);
    cluster.until_runs("pair", 2);
    cluster.until("the status of the queue", |cluster| {
        let queue = cluster.api().get(&format!("{QUEUES}/late")).ok()?;
        (queue["status"]["usage"]["gpus"]["used"] == "4").then_some(())
    });
    assert!(!cluster.has_ended(scheduler));
}
