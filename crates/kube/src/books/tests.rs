//! What lists tell in any order.

use phalanx_model::{Input, Node, QueueName, Timestamp};
use serde_json::{Value, json};

use super::{Books, Event, Options};
use crate::gang::NodesUsed;

const NOW: Timestamp = Timestamp(1_000);

fn books() -> Books {
    Books::new(Options {
        scheduler_name: "phalanx".to_owned(),
        queue: QueueName::new("default").unwrap(),
        ready_ms: 1_000,
        vacant_ms: 1_000,
        nodes: NodesUsed::All,
    })
}

fn node() -> Event {
    let node = json!({
        "metadata": { "name": "a" },
        "status": { "allocatable": { "cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "4" } },
    });
    Event::Node(Box::new(serde_json::from_value(node).unwrap()))
}

fn pod(namespace: &str, name: &str, spec: &Value) -> Event {
    let pod = json!({ "metadata": { "namespace": namespace, "name": name, "uid": namespace }, "spec": spec });
    Event::Pod(Box::new(serde_json::from_value(pod).unwrap()))
}

fn observed(facts: &[Input]) -> Option<&Node> {
    facts.iter().rev().find_map(|fact| match fact {
        Input::NodeObserved { node } => Some(&**node),
        _ => None,
    })
}

#[test]
fn a_pod_of_others_counts_that_was_listed_before_its_node() {
    let limits = json!({ "cpu": "3", "nvidia.com/gpu": "1" });
    let spec = json!({ "nodeName": "a", "containers": [{ "name": "c", "resources": { "limits": limits } }] });
    let mut books = books();
    books.observe(NOW, pod("x", "foreign", &spec));
    books.observe(NOW, node());
    let facts = books.begin(NOW);
    let node = observed(&facts).unwrap();
    assert_eq!((node.foreign_use.cpu_milli, node.foreign.count()), (3_000, 1));
}

#[test]
fn a_pod_that_waits_for_its_group_is_not_lost_with_its_namesake_elsewhere() {
    let spec = json!({
        "schedulerName": "phalanx", "schedulingGroup": { "podGroupName": "g" },
        "containers": [{ "name": "c" }],
    });
    let mut books = books();
    for namespace in ["x", "y"] {
        books.observe(NOW, pod(namespace, "member", &spec));
    }
    let (namespace, name) = ("x".to_owned(), "member".to_owned());
    books.observe(NOW, Event::PodGone { namespace, name, uid: "x".to_owned() });
    let left: Vec<&str> = books
        .orphans
        .iter()
        .filter(|(_, pods)| !pods.is_empty())
        .map(|(object, _)| &*object.namespace)
        .collect();
    assert_eq!(left, ["y"]);
}
