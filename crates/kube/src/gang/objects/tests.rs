use phalanx_model::{QueueName, Timestamp};
use serde_json::{Value, json};

use crate::gang::{Lifecycle, Options};
use crate::messages::{Call, Event};

const NOW: Timestamp = Timestamp(1_000);

/// Whether its group is told that it waits: one of two pods of it is there.
fn is_told_to_wait(version: &str, condition: &str, status: &str) -> bool {
    let group = json!({
        "apiVersion": format!("scheduling.k8s.io/{version}"), "kind": "PodGroup",
        "metadata": { "namespace": "x", "name": "g", "uid": "g" },
        "spec": { "schedulingPolicy": { "gang": { "minCount": 2 } } },
        "status": { "conditions": [{ "type": condition, "status": status }] },
    });
    let pod = json!({
        "metadata": { "namespace": "x", "name": "p", "uid": "p" },
        "spec": {
            "schedulerName": "phalanx", "schedulingGroup": { "podGroupName": "g" }, "containers": [{ "name": "c" }],
        },
    });
    fn of<T: serde::de::DeserializeOwned>(value: Value) -> Box<T> {
        Box::new(serde_json::from_value(value).unwrap())
    }
    let mut lifecycle = Lifecycle::new(Options::of_queue(QueueName::new("default").unwrap()));
    lifecycle.observe(NOW, Event::Object(of(group)));
    lifecycle.observe(NOW, Event::Pod(of(pod)));
    lifecycle.begin(NOW);
    lifecycle.settle(NOW);
    let told = |call: &Call| matches!(call, Call::Group { is_scheduled: false, .. });
    lifecycle.calls().iter().any(told)
}

/// Written by a scheduler that began anew it would be: that one knows only what stands on the group.
#[test]
fn a_group_that_was_scheduled_once_is_not_told_to_wait_where_that_is_about_the_first_time() {
    for version in ["v1alpha3", "v1beta1"] {
        assert!(is_told_to_wait(version, "PodGroupInitiallyScheduled", "False"), "{version}");
        assert!(!is_told_to_wait(version, "PodGroupInitiallyScheduled", "True"), "{version}");
    }
    assert!(is_told_to_wait("v1alpha2", "PodGroupScheduled", "True"));
}
