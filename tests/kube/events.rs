//! Events: one for a gang and what happens to it, and not one for each of its pods.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::support::front::{Fault, Front};
use crate::support::{Cluster, JOBS, Times, job};

const PODS_OF_ONE: u32 = 8;

fn events(cluster: &Cluster) -> Vec<Value> {
    let mut events = cluster.api().get("/apis/events.k8s.io/v1/namespaces/default/events").unwrap();
    let Value::Array(events) = events["items"].take() else { return Vec::new() };
    events.into_iter().filter(|event| event["reportingController"] == "phalanx.dev/scheduler").collect()
}

fn until_told(cluster: &Cluster, reason: &str, job: &str) {
    cluster.until(&format!("{reason} of {job}"), |cluster| {
        let is_it = |event: &Value| event["reason"] == reason && event["regarding"]["name"] == job;
        events(cluster).iter().any(is_it).then_some(())
    });
}

#[test]
fn a_gang_has_one_event_for_each_start_eviction_and_stop_about_its_job() {
    let mut cluster = Cluster::of(1);
    for (name, value) in [("low", 10), ("high", 1_000)] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name }, "value": value,
        });
        cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    }
    let refuses = Arc::new(AtomicBool::new(true));
    let says = Arc::clone(&refuses);
    let front = Front::of(&cluster.plane, move |asked| {
        let is_it = asked.is_binding() && asked.path.contains("/pods/torn-2-");
        if is_it && says.load(Ordering::Acquire) { Fault::Refuse(500, None) } else { Fault::None }
    });
    // Long enough that what was refused is let through before it is given up a second time.
    cluster.schedule_through(&front, 0, Times { binding_s: 10, ..Times::default() });
    let mut uids = BTreeMap::new();
    let mut create = |cluster: &Cluster, name: &str, class: &str| {
        let mut job = job(name, PODS_OF_ONE, 1, &json!({}));
        job["spec"]["template"]["spec"]["priorityClassName"] = json!(class);
        let made = cluster.create(JOBS, &job);
        uids.insert(name.to_owned(), made["metadata"]["uid"].clone());
    };
    let delete = |cluster: &Cluster, name: &str| {
        cluster.api().delete(&format!("{JOBS}/{name}?propagationPolicy=Background")).unwrap();
    };
    create(&cluster, "low", "low");
    cluster.until_runs("low", 8);
    create(&cluster, "high", "high");
    cluster.until_runs("high", 8);
    delete(&cluster, "high");
    cluster.until_runs("low", 8);
    delete(&cluster, "low");
    create(&cluster, "torn", "low");
    until_told(&cluster, "Stopping", "torn");
    refuses.store(false, Ordering::Release);
    cluster.until_runs("torn", 8);
    delete(&cluster, "torn");
    create(&cluster, "last", "low");
    // They are written in the order in which they came: what is to be said of the others is said by then.
    until_told(&cluster, "Starting", "last");
    let mut told: BTreeMap<(String, String), u32> = BTreeMap::new();
    for event in events(&cluster) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (reason, about) = (text(&event["reason"]), &event["regarding"]);
        let name = text(&about["name"]);
        assert_eq!((&about["kind"], Some(&about["uid"])), (&json!("Job"), uids.get(&name)), "{event:#}");
        assert!(about["apiVersion"] == "batch/v1" && about["namespace"] == "default", "{event:#}");
        let is_warning = reason == "Evicted" || reason == "Stopping";
        assert_eq!(event["type"], if is_warning { "Warning" } else { "Normal" }, "{event:#}");
        assert!(!text(&event["note"]).is_empty(), "{event:#}");
        if reason != "Waiting" {
            *told.entry((name, reason)).or_default() += 1;
        }
    }
    let told: Vec<(&str, &str, u32)> =
        told.iter().map(|((name, reason), count)| (&**name, &**reason, *count)).collect();
    let wanted = [
        ("high", "Starting", 1),
        ("last", "Starting", 1),
        ("low", "Evicted", 1),
        ("low", "Starting", 2),
        ("torn", "Starting", 2),
        ("torn", "Stopping", 1),
    ];
    assert_eq!(told, wanted);
}
