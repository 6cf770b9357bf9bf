//! Gangs that cannot start whole: by when they are given up, and what becomes of what was bound.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::front::{Fault, Front};
use crate::support::groups::{member, pod_group};
use crate::support::record::Record;
use crate::support::{Cluster, JOBS, PODS, Times, job};

const TIMES: Times = Times { binding_s: 3, ready_s: 6, vacant_s: 20, min_run_s: 0 };

/// A way to the API server that refuses the bindings of pods whose name begins so, as long as that is set.
fn refusing(cluster: &Cluster, pods: &'static str) -> (Front, Arc<AtomicBool>) {
    let refuses = Arc::new(AtomicBool::new(true));
    let says = Arc::clone(&refuses);
    let front = Front::of(&cluster.plane, move |asked| {
        let is_it = asked.is_binding() && asked.path.contains(&format!("/pods/{pods}"));
        if is_it && says.load(Ordering::Acquire) { Fault::Refuse(500, None) } else { Fault::None }
    });
    (front, refuses)
}

fn uids(cluster: &Cluster, gang: &str) -> BTreeSet<String> {
    let pods = cluster.api().get(PODS).unwrap();
    let of_it = pods["items"].as_array().unwrap().iter().filter(|pod| {
        let labels = &pod["metadata"]["labels"];
        labels["batch.kubernetes.io/job-name"] == gang || labels["gang"] == gang
    });
    of_it.map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
}

/// Pods without an owner.
fn group(cluster: &Cluster, name: &str, min: u32, pods: u32) {
    cluster.create_group(&pod_group(name, min));
    cluster.create_members(name, pods, 2);
}

#[test]
fn a_gang_with_a_pod_that_cannot_be_bound_is_taken_back_and_starts_whole_later() {
    let mut cluster = Cluster::of(2);
    let record = Record::begin(cluster.api(), [("torn".to_owned(), 4)]);
    let (front, refuses) = refusing(&cluster, "torn-2-");
    cluster.schedule_through(&front, 0, TIMES);
    cluster.create(JOBS, &job("torn", 4, 2, &json!({})));
    cluster.until("three bindings", |_| (record.bindings() >= 3).then_some(()));
    let first = uids(&cluster, "torn");
    cluster.until("other pods in their stead", |cluster| {
        let left = uids(cluster, "torn").intersection(&first).count();
        // The one that was never bound need not go.
        (left <= 1).then_some(())
    });
    refuses.store(false, Ordering::Release);
    let began = Instant::now();
    cluster.until_runs("torn", 4);
    println!("whole again after {:?}", began.elapsed());
    assert_eq!(cluster.failures("torn"), 0, "its Job was suspended meanwhile: no pod of it failed");
    record.judge(TIMES.part());
}

#[test]
fn an_owner_that_its_user_suspends_while_its_gang_is_bound_in_part_stays_suspended() {
    let mut cluster = Cluster::of(1);
    let (front, refuses) = refusing(&cluster, "torn-2-");
    let record = Record::begin(cluster.api(), [("torn".to_owned(), 4)]);
    cluster.schedule_through(&front, 0, TIMES);
    cluster.create(JOBS, &job("torn", 4, 2, &json!({})));
    cluster.until("three bindings", |_| (record.bindings() >= 3).then_some(()));
    let suspend = |is: bool| {
        let patch = json!({ "spec": { "suspend": is } });
        cluster.api().patch(&format!("{JOBS}/torn"), &patch).unwrap();
    };
    suspend(true);
    cluster.until("pods that are gone", |cluster| uids(cluster, "torn").is_empty().then_some(()));
    refuses.store(false, Ordering::Release);
    // The deadline to be bound is over as well, and so is the time before a gang is tried again.
    std::thread::sleep(Duration::from_secs(TIMES.binding_s + 3));
    let torn = cluster.api().get(&format!("{JOBS}/torn")).unwrap();
    assert_eq!(torn["spec"]["suspend"], true, "{torn:#}");
    assert!(torn["metadata"]["annotations"]["phalanx.dev/suspended"].is_null(), "{torn:#}");
    assert_eq!(record.bindings(), 3);
    suspend(false);
    cluster.until_runs("torn", 4);
    assert_eq!(cluster.failures("torn"), 0);
    record.judge(TIMES.part());
}

#[test]
fn above_its_least_size_a_gang_goes_on_without_a_pod_that_cannot_be_bound() {
    let mut cluster = Cluster::of(1);
    let (front, _refuses) = refusing(&cluster, "most-3");
    let record = Record::begin(cluster.api(), [("most".to_owned(), 3)]);
    group(&cluster, "most", 3, 4);
    cluster.schedule_through(&front, 0, TIMES);
    cluster.until_explained("most-3", "without it");
    // The deadline to be ready is over as well, and they still run.
    std::thread::sleep(Duration::from_secs(TIMES.ready_s + 2));
    let seats = cluster.seats();
    let running = seats.iter().filter(|seat| seat.phase == "Running").count();
    assert_eq!((seats.len(), running, record.bindings()), (4, 3, 3), "{seats:?}");
    record.judge(TIMES.part());
}

#[test]
fn pods_without_an_owner_stay_and_what_to_do_is_said() {
    let mut cluster = Cluster::of(1);
    let (front, refuses) = refusing(&cluster, "bare-2");
    let record = Record::begin(cluster.api(), [("bare".to_owned(), 3)]);
    group(&cluster, "bare", 3, 3);
    cluster.schedule_through(&front, 0, TIMES);
    let why = cluster.until_explained("bare-2", "nobody makes it again");
    assert!(why.contains("delete it"), "{why}");
    let bound = cluster.seats().iter().filter(|seat| seat.node.is_some()).count();
    assert_eq!(bound, 2, "they stay");
    // As it says.
    refuses.store(false, Ordering::Release);
    for at in 0..2 {
        cluster.api().delete_now(&format!("{PODS}/bare-{at}")).unwrap();
    }
    cluster.until("pods that are gone", |cluster| (cluster.seats().len() == 1).then_some(()));
    for at in 0..2 {
        cluster.create(PODS, &member("bare", at, 2));
    }
    cluster.until_runs("bare", 3);
    // Until it was said, and done as it says.
    record.judge(TIMES.part());
}

#[test]
fn a_gang_that_does_not_become_ready_is_taken_back_and_starts_whole_later() {
    const NEVER: &str = "controlplane.phalanx.dev/never-ready";
    let mut cluster = Cluster::of(1);
    let record = Record::begin(cluster.api(), [("stuck".to_owned(), 2)]);
    cluster.schedule_within(0, TIMES);
    cluster.create(JOBS, &job("stuck", 2, 2, &json!({ NEVER: "" })));
    let first = cluster.until("two pods that are bound", |cluster| {
        (cluster.bound().get("stuck") == Some(&(2, 0))).then(|| uids(cluster, "stuck"))
    });
    cluster.until("other pods in their stead", |cluster| {
        let now = uids(cluster, "stuck");
        (now.len() == 2 && now.is_disjoint(&first)).then_some(())
    });
    // Whatever kept them from it is mended.
    let gone = json!({ "metadata": { "annotations": { NEVER: Value::Null } } });
    cluster.until("pods that run", |cluster| {
        for seat in cluster.seats() {
            // It may be on its way out.
            let _ = cluster.api().patch(&format!("{PODS}/{}", seat.name), &gone);
        }
        (cluster.seats().iter().filter(|seat| seat.phase == "Running").count() == 2).then_some(())
    });
    assert_eq!(cluster.failures("stuck"), 0, "its Job was suspended meanwhile: no pod of it failed");
    record.judge(TIMES.part());
}
