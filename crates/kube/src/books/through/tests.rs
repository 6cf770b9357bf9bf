use phalanx_model::{QueueName, Timestamp};
use serde_json::{Value, json};

use crate::books::{Books, Event, Options};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn see(books: &mut Books, name: &str, status: &Value) {
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
    books.observe(NOW, Event::Pod(Box::new(serde_json::from_value(pod).unwrap())));
}

/// Pods that nobody made: of three one has ended well, and was tidied away.
#[test]
fn a_pod_that_was_seen_to_succeed_is_not_waited_for_when_it_is_gone() {
    let mut books = Books::new(Options::of_queue(QueueName::new("default").unwrap()));
    for name in ["b", "c"] {
        see(&mut books, name, &Value::Null);
    }
    let seats = |books: &Books| {
        let key = books.gangs.keys().next().unwrap();
        let spec = books.spec(key).unwrap();
        books.gangs[key].seats(spec.as_ref()).map(|seats| seats.len()).map_err(|why| why.to_string())
    };
    assert_eq!(seats(&books), Err("2 of 3 pods are there".to_owned()));
    let gone = || Event::PodGone { namespace: "x".to_owned(), name: "a".to_owned(), uid: "a".to_owned() };
    see(&mut books, "a", &json!({ "phase": "Failed" }));
    books.observe(NOW, gone());
    assert_eq!(seats(&books), Err("2 of 3 pods are there".to_owned()));
    see(&mut books, "a", &json!({ "phase": "Succeeded" }));
    assert_eq!(seats(&books), Ok(2));
    books.observe(NOW, gone());
    assert_eq!(seats(&books), Ok(2));
    // Somebody creates it again after all.
    see(&mut books, "a", &Value::Null);
    assert_eq!(seats(&books), Ok(3));
}
