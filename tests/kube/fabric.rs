//! Levels as the `Fabric` says, priorities as groups name them, and what is written back onto groups.

use phalanx_controlplane::Fleet;
use serde_json::{Value, json};

use crate::queues;
use crate::support::groups::pod_group;
use crate::support::{Cluster, JOBS, job};

pub(crate) const FABRICS: &str = "/apis/phalanx.dev/v1alpha1/fabrics";
const DEFAULT: &str = "/apis/phalanx.dev/v1alpha1/fabrics/default";

pub(crate) fn fabric(spec: &Value) -> Value {
    json!({"apiVersion": "phalanx.dev/v1alpha1", "kind": "Fabric", "metadata": {"name": "default"}, "spec": spec})
}

/// The status of the fabric once it is as wanted.
pub(crate) fn until_status(cluster: &Cluster, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    cluster.until(what, |cluster| {
        let status = cluster.api().get(DEFAULT).ok()?["status"].clone();
        is_it(&status).then_some(status)
    })
}

#[test]
fn levels_are_those_of_the_fabric_and_a_bad_one_is_said_and_not_used() {
    let mut cluster = Cluster::of(4);
    queues::define(&cluster);
    for node in 0..4 {
        let row = json!({"metadata": {"labels": {"example.com/row": format!("row-{}", node % 2)}}});
        cluster.api().patch(&format!("/api/v1/nodes/{}", Fleet::name(node)), &row).unwrap();
    }
    let levels = json!({"levels": [{"name": "row", "label": "example.com/row"}]});
    cluster.create(FABRICS, &fabric(&levels));
    cluster.schedule(0);
    let rows = |status: &Value| status["levels"] == json!([{"name": "row", "domains": 2}]);
    let status = until_status(&cluster, "two rows", rows);
    assert_eq!((&status["nodes"], &status["conditions"][0]["status"]), (&json!(4), &json!("True")));
    let near = json!({"phalanx.dev/topology-required": "row"});
    cluster.create(JOBS, &job("near", 2, 8, &near));
    let seats = cluster.until_runs("near", 2);
    let parity =
        |node: &Option<String>| node.as_deref().unwrap().chars().last().unwrap().to_digit(10).unwrap() % 2;
    assert_eq!(parity(&seats[0].node), parity(&seats[1].node), "{seats:?}");

    cluster.api().patch(DEFAULT, &json!({"spec": {"levels": null, "topology": "levels: [cluster"}})).unwrap();
    let refused = |status: &Value| status["conditions"][0]["status"] == "False";
    let status = until_status(&cluster, "a refused topology", refused);
    assert!(rows(&status), "the last that was good goes on: {status:#}");
    let why = status["conditions"][0]["message"].as_str().unwrap();
    assert!(why.contains("spec.topology"), "{why}");
    cluster.until("an event", |cluster| {
        let events = cluster.api().get("/apis/events.k8s.io/v1/namespaces/default/events").ok()?;
        let is_it =
            |event: &&Value| event["reason"] == "FabricRefused" && event["regarding"]["name"] == "default";
        events["items"].as_array()?.iter().find(is_it).map(|_| ())
    });
    cluster.create(JOBS, &job("still", 2, 8, &near));
    cluster.until_runs("still", 2);
}

#[test]
fn the_class_of_a_group_counts_and_the_group_says_whether_it_is_scheduled() {
    let mut cluster = Cluster::of(1);
    for (name, value) in [("low", 10), ("high", 1_000)] {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value});
        cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    }
    cluster.schedule(0);
    let scheduled = cluster.scheduled_condition();
    let group_of = |name: &str, min: u32, class: &str| {
        let mut group = pod_group(name, min);
        group["spec"]["priorityClassName"] = json!(class);
        group
    };
    cluster.create_group(&group_of("first", 2, "low"));
    cluster.create_members("first", 2, 4);
    cluster.until_runs("first", 2);
    assert_eq!(cluster.until_group("first", scheduled, "True")["reason"], "Scheduled");
    cluster.create_group(&group_of("waits", 1, "low"));
    cluster.create_members("waits", 1, 8);
    let condition = cluster.until_group("waits", scheduled, "False");
    assert_eq!(condition["reason"], "Unschedulable", "{condition:#}");
    assert_ne!(condition["message"], "", "{condition:#}");
    // Its pods say nothing of priority: their group does.
    cluster.create_group(&group_of("second", 1, "high"));
    cluster.create_members("second", 1, 8);
    cluster.until_runs("second", 1);
    cluster.until_group("second", scheduled, "True");
}
