//! What autoscalers see of gangs that wait.

use phalanx_controlplane::Fleet;
use serde_json::{Value, json};

use crate::queues::{self, QUEUES};
use crate::support::{Cluster, DEFINITIONS, JOBS, PODS, job};

pub(crate) const CLASS: &str = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";
const REQUESTS: &str = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests";
const TEMPLATES: &str = "/api/v1/namespaces/default/podtemplates";
const CONSUMES: &str = "autoscaling.x-k8s.io/consume-provisioning-request";

/// The definition in the shape of Cluster Autoscaler's own: what it demands of a request, and a status of its own.
fn define(cluster: &Cluster) {
    let name = json!({ "type": "string", "maxLength": 253,
        "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" });
    let set = json!({ "type": "object", "required": ["count", "podTemplateRef"], "properties": {
        "count": { "type": "integer", "format": "int32", "minimum": 1 },
        "podTemplateRef": { "type": "object", "properties": { "name": name } },
    } });
    let fixed = json!([{ "rule": "self == oldSelf", "message": "Value is immutable" }]);
    let spec = json!({ "type": "object", "required": ["podSets", "provisioningClassName"], "properties": {
        "podSets": { "type": "array", "minItems": 1, "maxItems": 32, "items": set,
            "x-kubernetes-validations": fixed },
        "provisioningClassName": name,
        "parameters": { "type": "object", "maxProperties": 100,
            "additionalProperties": { "type": "string", "maxLength": 255 } },
    } });
    let status = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "provisioningrequests.autoscaling.x-k8s.io",
            "annotations": { "api-approved.kubernetes.io": "unapproved, for a test" } },
        "spec": {
            "group": "autoscaling.x-k8s.io", "scope": "Namespaced",
            "names": { "kind": "ProvisioningRequest", "plural": "provisioningrequests",
                "singular": "provisioningrequest", "shortNames": ["provreq", "provreqs"] },
            "versions": [{ "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "required": ["spec"],
                    "properties": { "spec": spec, "status": status } } } }],
        },
    });
    cluster.create(DEFINITIONS, &crd);
    cluster.until("requests that are served", |cluster| cluster.api().get(REQUESTS).ok());
}

fn items(cluster: &Cluster, path: &str) -> Vec<Value> {
    cluster.api().get(path).unwrap()["items"].as_array().cloned().unwrap_or_default()
}

pub(crate) fn requests(cluster: &Cluster) -> Vec<Value> {
    items(cluster, REQUESTS)
}

/// Pods of a Job with the reason of their condition and the request that they are part of.
fn pods(cluster: &Cluster, job: &str) -> Vec<(String, String)> {
    let of_it = items(cluster, PODS).into_iter();
    let of_it = of_it.filter(|pod| pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == job);
    let told = of_it.map(|pod| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let waits = conditions.into_iter().find(|condition| condition["type"] == "PodScheduled");
        (text(&waits.unwrap_or_default()["reason"]), text(&pod["metadata"]["annotations"][CONSUMES]))
    });
    told.collect()
}

#[test]
fn nodes_for_a_gang_are_asked_for_as_a_whole_and_none_for_one_that_waits_for_its_queue() {
    let mut cluster = Cluster::of(1);
    define(&cluster);
    queues::define(&cluster);
    for (name, spec) in [("default", json!({})), ("small", json!({ "limit": { "gpus": 4 } }))] {
        let queue = json!({ "apiVersion": "phalanx.dev/v1alpha1", "kind": "Queue",
            "metadata": { "name": name }, "spec": spec });
        cluster.create(QUEUES, &queue);
    }
    cluster.provisioning_class = Some(CLASS);
    cluster.schedule(0);
    for name in ["first", "limited"] {
        let mut small = job(name, 2, 2, &json!({}));
        small["metadata"]["labels"] = json!({ "phalanx.dev/queue": "small" });
        cluster.create(JOBS, &small);
        if name == "first" {
            cluster.until_runs(name, 2);
        }
    }
    cluster.create(JOBS, &job("wide", 3, 8, &json!({})));
    let request = cluster.until("a request", |cluster| requests(cluster).pop());
    assert_eq!(request["spec"]["provisioningClassName"], CLASS);
    let sets = request["spec"]["podSets"].as_array().unwrap();
    assert_eq!(sets.iter().map(|set| &set["count"]).collect::<Vec<_>>(), [3], "{request:#}");
    let owner = &request["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("Job"), &json!("wide")));
    let name = sets[0]["podTemplateRef"]["name"].as_str().unwrap();
    let template = cluster.api().get(&format!("{TEMPLATES}/{name}")).unwrap();
    let limits = &template["template"]["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits["nvidia.com/gpu"], "8", "{template:#}");
    // All of its pods say so, and to whom they belong.
    let name = request["metadata"]["name"].as_str().unwrap().to_owned();
    let said = ("Unschedulable".to_owned(), name);
    cluster
        .until("all pods of wide", |cluster| (pods(cluster, "wide") == vec![said.clone(); 3]).then_some(()));
    let waits = ("QueueLimit".to_owned(), String::new());
    cluster.until("all pods of limited", |cluster| {
        (pods(cluster, "limited") == vec![waits.clone(); 2]).then_some(())
    });
    assert_eq!(requests(&cluster).len(), 1);
    // The autoscaler gives up: another is made in its stead, and its pods are told.
    let failed = json!({ "status": { "conditions": [{ "type": "Failed", "status": "True", "reason": "NoCapacity",
        "message": "for a test", "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
    let path = format!("{REQUESTS}/{}/status", said.1);
    cluster.api().patch(&path, &failed).unwrap();
    let next = cluster.until("another request", |cluster| {
        let mut all = requests(cluster);
        let is_next = all.len() == 1 && all[0]["metadata"]["name"] != said.1;
        is_next.then(|| all.remove(0))
    });
    assert_eq!(next["metadata"]["annotations"]["phalanx.dev/attempt"], "2", "{next:#}");
    let said = (said.0, next["metadata"]["name"].as_str().unwrap().to_owned());
    cluster.until("all pods of the next", |cluster| {
        (pods(cluster, "wide") == vec![said.clone(); 3]).then_some(())
    });
    // Another scheduler goes on with what this one asked for.
    cluster.kill(0);
    cluster.schedule(0);
    for at in 1..4 {
        cluster.create("/api/v1/nodes", &Fleet::new(4).node(at));
    }
    cluster.until_runs("wide", 3);
    cluster.until("nothing that is asked for", |cluster| {
        let none = requests(cluster).is_empty() && items(cluster, TEMPLATES).is_empty();
        none.then_some(())
    });
}
