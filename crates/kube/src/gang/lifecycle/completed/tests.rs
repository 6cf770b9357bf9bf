use phalanx_model::{QueueName, Timestamp};
use serde_json::{Value, json};

use crate::gang::{Lifecycle, Options};
use crate::messages::Event;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn see(lifecycle: &mut Lifecycle, name: &str, status: &Value) {
    let labels = json!({
        "pod-group.scheduling.sigs.k8s.io/name": "g",
        "pod-group.scheduling.sigs.k8s.io/min-available": "3",
    });
    let mut pod = json!({
        "metadata": { "namespace": "x", "name": name, "uid": name, "labels": labels },
        "spec": { "schedulerName": "phalanx", "containers": [{ "name": "c" }] },
    });
    if !status.is_null() {
        pod["status"] = status.clone();
        pod["spec"]["nodeName"] = json!("a");
        pod["metadata"]["annotations"] =
            json!({ "phalanx.dev/rank": "0", "phalanx.dev/devices": "-", "phalanx.dev/attempt": "1" });
    }
    lifecycle.observe(NOW, Event::Pod(Box::new(serde_json::from_value(pod).unwrap())));
}

/// Pods that nobody made: of three one has ended well, and was tidied away.
#[test]
fn a_pod_that_was_seen_to_succeed_is_not_waited_for_when_it_is_gone() {
    let mut lifecycle = Lifecycle::new(Options::of_queue(QueueName::new("default").unwrap()));
    for name in ["b", "c"] {
        see(&mut lifecycle, name, &Value::Null);
    }
    let seats = |lifecycle: &Lifecycle| {
        let key = lifecycle.gangs.keys().next().unwrap();
        let spec = lifecycle.spec(key).unwrap();
        lifecycle.gangs[key].seats(spec.as_ref()).map(|seats| seats.len()).map_err(|why| why.to_string())
    };
    assert_eq!(seats(&lifecycle), Err("2 of 3 pods are there".to_owned()));
    let gone = || Event::PodGone { namespace: "x".to_owned(), name: "a".to_owned(), uid: "a".to_owned() };
    see(&mut lifecycle, "a", &json!({ "phase": "Failed" }));
    lifecycle.observe(NOW, gone());
    assert_eq!(seats(&lifecycle), Err("2 of 3 pods are there".to_owned()));
    see(&mut lifecycle, "a", &json!({ "phase": "Succeeded" }));
    assert_eq!(seats(&lifecycle), Ok(2));
    lifecycle.observe(NOW, gone());
    assert_eq!(seats(&lifecycle), Ok(2));
    // Somebody creates it again after all.
    see(&mut lifecycle, "a", &Value::Null);
    assert_eq!(seats(&lifecycle), Ok(3));
}
