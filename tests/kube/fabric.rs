//! Levels as the `Fabric` says, priorities as groups name them, and what is written back onto groups.

use phalanx_controlplane::Fleet;
use serde_json::{Value, json};

use crate::queues;
use crate::support::{Cluster, JOBS, POD_GROUPS, PODS, job, pod};

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

pub(crate) fn group(name: &str, pods: u32, class: Option<&str>) -> Value {
    let mut group = json!({
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": { "name": name },
        "spec": { "schedulingPolicy": { "gang": { "minCount": pods } } },
    });
    if let Some(class) = class {
        group["spec"]["priorityClassName"] = json!(class);
    }
    group
}

pub(crate) fn create_members(cluster: &Cluster, group: &str, pods: u32, gpus: u32) {
    for at in 0..pods {
        let mut member = pod(&format!("{group}-{at}"), gpus);
        member["metadata"]["labels"] = json!({ "gang": group });
        member["spec"]["schedulingGroup"] = json!({ "podGroupName": group });
        member["spec"]["terminationGracePeriodSeconds"] = json!(1);
        cluster.create(PODS, &member);
    }
}

/// The condition of a group, once it has this status.
pub(crate) fn until_group(cluster: &Cluster, name: &str, is: &str) -> Value {
    cluster.until(&format!("{name} is scheduled: {is}"), |cluster| {
        let group = cluster.api().get(&format!("{POD_GROUPS}/{name}")).ok()?;
        let conditions = group["status"]["conditions"].as_array()?.clone();
        conditions.into_iter().find(|one| one["type"] == "PodGroupScheduled" && one["status"] == is)
    })
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
    cluster.create(POD_GROUPS, &group("first", 2, Some("low")));
    create_members(&cluster, "first", 2, 4);
    cluster.until_runs("first", 2);
    assert_eq!(until_group(&cluster, "first", "True")["reason"], "Scheduled");
    cluster.create(POD_GROUPS, &group("waits", 1, Some("low")));
    create_members(&cluster, "waits", 1, 8);
    let condition = until_group(&cluster, "waits", "False");
    assert_eq!(condition["reason"], "Unschedulable", "{condition:#}");
    assert_ne!(condition["message"], "", "{condition:#}");
    // Its pods say nothing of priority: their group does.
    cluster.create(POD_GROUPS, &group("second", 1, Some("high")));
    create_members(&cluster, "second", 1, 8);
    cluster.until_runs("second", 1);
    until_group(&cluster, "second", "True");
}
