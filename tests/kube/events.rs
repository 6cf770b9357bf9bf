//! Events: one for a gang and what happens to it, and not one for each of its pods.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::support::front::{Fault, Front};
use crate::support::kubectl::Kubectl;
use crate::support::{Cluster, JOBS, PODS, Times, job, pod, taken};

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
        if reason == "FailedScheduling" {
            continue;
        }
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

/// Events of `FailedScheduling` by the object that they are about.
fn failed(cluster: &Cluster) -> BTreeMap<String, u32> {
    let mut of_objects = BTreeMap::new();
    for event in events(cluster).iter().filter(|event| event["reason"] == "FailedScheduling") {
        assert_eq!(event["type"], "Warning", "{event:#}");
        let regarding = &event["regarding"];
        let about =
            format!("{} {}", regarding["kind"].as_str().unwrap(), regarding["name"].as_str().unwrap());
        *of_objects.entry(about).or_default() += 1;
    }
    of_objects
}

/// `kubectl describe pod` showed no event at all of a pod that waited.
#[test]
fn kubectl_describe_shows_why_a_gang_waits_on_its_pods_and_its_job() {
    let mut cluster = Cluster::of(2);
    let kubectl = Kubectl::of(&cluster);
    cluster.schedule(0);
    cluster.create(PODS, &pod("alone", 8));
    cluster.until_runs("alone", 1);
    cluster.create(JOBS, &job("wide", 4, 4, &json!({})));
    let pods = cluster.until("four pods of the Job", |cluster| {
        let pods = cluster.seats().into_iter().filter(|seat| seat.gang == "wide").map(|seat| seat.name);
        Some(pods.collect::<Vec<_>>()).filter(|pods| pods.len() == 4)
    });
    let why = "needs 4 members at once";
    let shows = |what: &str, name: &str| {
        cluster.until(&format!("FailedScheduling of {what} {name}"), |_| {
            let text = kubectl.run(&["describe", what, name]);
            let line = text.lines().find(|line| line.contains("FailedScheduling"))?;
            assert!(line.trim_start().starts_with("Warning"), "{text}");
            line.contains(why).then_some(())
        });
    };
    pods.iter().for_each(|pod| shows("pod", pod));
    shows("job", "wide");
    // One that started has none, and the others have it once.
    let told = failed(&cluster);
    assert_eq!(told.len(), 5, "{told:?}");
    assert!(told.values().all(|count| *count == 1), "{told:?}");
    cluster.api().delete(&format!("{PODS}/alone")).unwrap();
    cluster.until_runs("wide", 4);
    assert_eq!(failed(&cluster), told);
}

/// A gang of 300 pods has the condition on each of them, and few events.
#[test]
fn a_large_gang_that_waits_has_few_events() {
    const SIZE: u32 = 300;
    let mut cluster = Cluster::of(40);
    for node in 0..3 {
        cluster.create(PODS, &taken(&format!("taken-{node}"), node));
    }
    cluster.schedule(0);
    cluster.create(JOBS, &job("large", SIZE, 1, &json!({})));
    let name = cluster.until("the last pod", |cluster| {
        let pods = cluster.seats().into_iter().filter(|seat| seat.gang == "large");
        Some(pods.collect::<Vec<_>>()).filter(|pods| pods.len() == SIZE as usize)?.pop().map(|pod| pod.name)
    });
    cluster.until_explained(&name, "needs 300 members at once, and 296 fit now");
    // The condition of the last pod is written in the same turn as those of the first.
    let told = cluster.until("all events", |cluster| {
        let told = failed(cluster);
        (told.values().all(|count| *count >= 1) && told.len() >= 9).then_some(told)
    });
    assert_eq!(told.len(), 9, "8 pods and the Job: {told:?}");
    // At first the pods are not all there, which is another reason.
    assert!(told.values().all(|count| *count <= 2), "{told:?}");
}
