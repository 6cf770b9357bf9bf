//! Disruption budgets of others, and the room that other schedulers make.

use std::time::Duration;

use phalanx_controlplane::Fleet;
use serde_json::{Value, json};

use crate::queues;
use crate::support::groups::{member, pod_group};
use crate::support::{Cluster, PODS, pod};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

fn classes(cluster: &Cluster) {
    for (name, value) in [("low", 10), ("high", 1_000)] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name }, "value": value,
        });
        cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    }
}

/// Without an owner, on one node where it is said which; each takes half a node.
fn members(name: &str, size: u32, node: Option<usize>) -> Vec<Value> {
    let member = |at: u32| {
        let mut member = member(name, at, 4);
        member["spec"]["priorityClassName"] = json!(if name == "high" { "high" } else { "low" });
        member["spec"]["terminationGracePeriodSeconds"] = json!(1);
        if let Some(node) = node {
            member["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": Fleet::name(node) });
        }
        member
    };
    (0..size).map(member).collect()
}

fn group(cluster: &Cluster, name: &str, size: u32, node: Option<usize>) {
    cluster.create_group(&pod_group(name, size));
    for pod in members(name, size, node) {
        cluster.create(PODS, &pod);
    }
}

/// A budget over the pods of a gang; returns when its controller has counted them.
fn budget(cluster: &Cluster, gang: &str, least: usize, allowed: i64) {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": gang },
        "spec": { "minAvailable": least, "selector": { "matchLabels": { "gang": gang } } },
    });
    cluster.create(BUDGETS, &budget);
    cluster.until("the budget's controller has counted", |cluster| {
        let status = &cluster.api().get(&format!("{BUDGETS}/{gang}")).unwrap()["status"];
        (status["disruptionsAllowed"] == allowed && status["currentHealthy"] != 0).then_some(())
    });
}

fn running(cluster: &Cluster, gang: &str) -> Vec<Value> {
    let pods = cluster.api().get(PODS).unwrap();
    let of_it =
        |pod: &&Value| pod["metadata"]["labels"]["gang"] == gang && pod["status"]["phase"] == "Running";
    let pods = pods["items"].as_array().unwrap().iter().filter(of_it);
    pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).cloned().collect()
}

/// The API server answers for each pod by itself: where one of two may go, both may by themselves.
#[test]
fn a_gang_within_a_disruption_budget_goes_whole_or_not_at_all() {
    let mut cluster = Cluster::of(1);
    classes(&cluster);
    cluster.schedule(0);
    group(&cluster, "low", 2, None);
    cluster.until_runs("low", 2);
    budget(&cluster, "low", 1, 1);
    group(&cluster, "high", 2, None);
    cluster.until_explained(
        "high-0",
        "may not make way: disruption budget low allows 1 of its 2 pods to be evicted now",
    );
    // Longer than an order to stop would take to be repeated.
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(running(&cluster, "low").len(), 2);
    cluster.api().delete(&format!("{BUDGETS}/low")).unwrap();
    cluster.until_runs("high", 2);
    assert_eq!(running(&cluster, "low").len(), 0);
}

#[test]
fn a_gang_that_no_budget_protects_makes_way_in_the_stead_of_one_that_is_protected() {
    let mut cluster = Cluster::of(2);
    classes(&cluster);
    cluster.schedule(0);
    for (at, name) in ["kept", "free"].into_iter().enumerate() {
        group(&cluster, name, 2, Some(at));
        cluster.until_runs(name, 2);
    }
    budget(&cluster, "kept", 2, 0);
    group(&cluster, "high", 2, None);
    cluster.until_runs("high", 2);
    assert_eq!((running(&cluster, "kept").len(), running(&cluster, "free").len()), (2, 0));
    cluster.until("the log of it", |cluster| (logged(cluster, "high").len() == 2).then_some(()));
    let log = cluster.lines();
    for line in &log {
        let time = line["timestamp"].as_str().unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok() && time.len() == 24, "{line}");
        assert!(["level", "message", "target"].iter().all(|field| line[*field].is_string()), "{line}");
        assert_eq!(line["pod"], Value::Null, "nothing is said of single pods");
    }
    assert_eq!(log.iter().filter(|line| line["message"] == "leads").count(), 1);
    for name in ["kept", "high"] {
        assert_eq!(logged(&cluster, name), ["gang starts", "gang runs"], "{log:?}");
    }
    assert_eq!(logged(&cluster, "free")[..3], ["gang starts", "gang runs", "gang makes way"]);
    let evicted = log.iter().find(|line| line["message"] == "gang makes way").unwrap();
    let facts = ["namespace", "kind", "gang", "level"].map(|field| &evicted[field]);
    assert_eq!(facts, ["default", "PodGroup", "free", "INFO"]);
    assert_eq!(evicted["pods"], 2);
    assert!(evicted["reason"].as_str().unwrap().starts_with("preempted by"), "{evicted}");
}

/// What the log says of a gang.
fn logged(cluster: &Cluster, gang: &str) -> Vec<String> {
    let lines = cluster.lines();
    let of_it = lines.iter().filter(|line| line["gang"] == gang);
    of_it.map(|line| line["message"].as_str().unwrap().to_owned()).collect()
}

/// Its pods were told to end at once, and had as long as they said themselves.
#[test]
fn pods_that_make_way_are_told_when_sigterm_comes_and_then_have_no_longer_than_the_class_allows() {
    let mut cluster = Cluster::of(1);
    queues::define(&cluster);
    queues::share(
        &cluster,
        &json!({ "classes": [{ "name": "high", "rank": 1_000, "graceMax": "10s" }], "defaultClass": "high" }),
    );
    classes(&cluster);
    cluster.schedule(0);
    let mut group_of_low = pod_group("low", 2);
    group_of_low["metadata"]["annotations"] = json!({ "phalanx.dev/checkpoint-grace": "4s" });
    cluster.create_group(&group_of_low);
    for mut pod in members("low", 2, None) {
        // It needs longer to end than it takes to see that it ends.
        pod["metadata"]["annotations"] = json!({ "controlplane.phalanx.dev/stop-after": "5s" });
        pod["spec"]["terminationGracePeriodSeconds"] = json!(60);
        cluster.create(PODS, &pod);
    }
    cluster.until_runs("low", 2);
    group(&cluster, "high", 2, None);
    let metadata =
        |cluster: &Cluster| cluster.api().get(&format!("{PODS}/low-0")).unwrap()["metadata"].clone();
    let told = cluster.until("a word before SIGTERM", |cluster| {
        let metadata = metadata(cluster);
        let by = metadata["annotations"]["phalanx.dev/checkpoint-by"].as_str()?;
        by.parse::<jiff::Timestamp>().unwrap();
        Some(metadata)
    });
    assert_eq!(told["deletionTimestamp"], Value::Null, "it is not told to end yet");
    let ends = cluster.until("SIGTERM", |cluster| {
        let metadata = metadata(cluster);
        metadata["deletionTimestamp"].is_string().then_some(metadata)
    });
    assert_eq!(ends["deletionGracePeriodSeconds"], 6, "10 s in all, of which it had 4");
    cluster.until_runs("high", 2);
}

/// The room that another scheduler made was taken before its pod was bound.
#[test]
fn the_room_that_another_scheduler_made_for_its_pod_is_left_to_it() {
    let mut cluster = Cluster::of(1);
    let mut theirs = pod("theirs", 6);
    theirs["spec"]["schedulerName"] = json!("somebody-else");
    cluster.create(PODS, &theirs);
    let nominate = |cluster: &Cluster, node: Value| {
        let patch = json!({ "status": { "nominatedNodeName": node } });
        cluster.api().patch(&format!("{PODS}/theirs/status"), &patch).unwrap();
    };
    nominate(&cluster, json!(Fleet::name(0)));
    cluster.schedule(0);
    cluster.create(PODS, &pod("small", 2));
    cluster.until_runs("small", 1);
    cluster.create(PODS, &pod("large", 4));
    cluster.until_explained("large", "");
    nominate(&cluster, Value::Null);
    cluster.until_runs("large", 1);
}

/// Another scheduler took what had come free before its gang could start.
#[test]
fn nodes_that_are_cleared_for_a_gang_are_nominated_for_its_pods() {
    let mut cluster = Cluster::of(1);
    classes(&cluster);
    cluster.schedule(0);
    let of_class = |name: &str| {
        let mut pod = pod(name, 8);
        pod["spec"]["priorityClassName"] = json!(name);
        pod
    };
    let mut low = of_class("low");
    // It goes when the test says so.
    low["metadata"]["finalizers"] = json!(["example.com/stays"]);
    cluster.create(PODS, &low);
    cluster.until_runs("low", 1);
    cluster.create(PODS, &of_class("high"));
    let nominated = cluster.until("a nominated node", |cluster| {
        let pod = cluster.api().get(&format!("{PODS}/high")).ok()?;
        pod["status"]["nominatedNodeName"].as_str().map(str::to_owned)
    });
    assert_eq!(nominated, Fleet::name(0));
    cluster.api().patch(&format!("{PODS}/low"), &json!({ "metadata": { "finalizers": null } })).unwrap();
    cluster.until_runs("high", 1);
}
