//! Conditions of upstream's groups, with upstream's types and reasons.

use serde_json::json;

use crate::support::groups::{member, pod_group};
use crate::support::{Cluster, PODS};

const DISRUPTION: &str = "DisruptionTarget";

fn classes(cluster: &Cluster) {
    for (name, value) in [("low", 10), ("high", 1_000)] {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value});
        cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    }
}

/// A group of a class, and its pods, which end as soon as they are told to.
fn create(cluster: &Cluster, name: &str, class: &str, pods: u32, gpus: u32) {
    let mut group = pod_group(name, pods);
    group["spec"]["priorityClassName"] = json!(class);
    cluster.create_group(&group);
    create_pods(cluster, name, pods, gpus);
}

fn create_pods(cluster: &Cluster, name: &str, pods: u32, gpus: u32) {
    for at in 0..pods {
        let mut member = member(name, at, gpus);
        member["spec"]["terminationGracePeriodSeconds"] = json!(0);
        cluster.create(PODS, &member);
    }
}

#[test]
fn a_group_says_whether_it_was_scheduled_and_why_not_with_the_reasons_of_upstream() {
    let mut cluster = Cluster::of(1);
    cluster.schedule(0);
    let scheduled = cluster.scheduled_condition();
    // Pods are missing: more than a node would be needed, and upstream has no word for that.
    cluster.create_group(&pod_group("pair", 2));
    cluster.create(PODS, &member("pair", 0, 2));
    let waits = cluster.until_group("pair", scheduled, "False");
    assert_eq!(waits["reason"], "Unschedulable", "{waits:#}");
    // It waits for something else: the time is that of the status.
    cluster.create(PODS, &member("pair", 1, 16));
    let since = &waits["lastTransitionTime"];
    cluster.until("another message", |cluster| {
        let is = cluster.group_condition("pair", scheduled)?;
        assert_eq!((&is["status"], &is["lastTransitionTime"]), (&json!("False"), since), "{is:#}");
        (is["message"] != waits["message"]).then_some(())
    });
    cluster.api().delete(&format!("{PODS}/pair-1")).unwrap();
    cluster.create(PODS, &member("pair", 2, 2));
    assert_eq!(cluster.until_group("pair", scheduled, "True")["reason"], "Scheduled");
    // It cannot start as it is written.
    cluster.create_group(&pod_group("odd", 1));
    let mut odd = member("odd", 0, 1);
    odd["spec"]["volumes"] = json!([{ "name": "disk",
        "iscsi": { "targetPortal": "1.2.3.4", "iqn": "iqn.2001-04.com.example:disk", "lun": 0 } }]);
    cluster.create(PODS, &odd);
    let refused = cluster.until_group("odd", scheduled, "False");
    assert_eq!(refused["reason"], "SchedulerError", "{refused:#}");
    assert!(refused["message"].as_str().unwrap().contains("iscsi"), "{refused:#}");
    assert_eq!(cluster.group_condition("odd", DISRUPTION), None);
}

#[test]
fn a_group_that_is_preempted_is_a_disruption_target_until_it_runs_again() {
    let mut cluster = Cluster::of(1);
    classes(&cluster);
    let scheduler = cluster.schedule(0);
    create(&cluster, "low", "low", 2, 4);
    cluster.until_runs("low", 2);
    let scheduled = cluster.scheduled_condition();
    cluster.until_group("low", scheduled, "True");
    create(&cluster, "high", "high", 1, 8);
    let target = cluster.until_group("low", DISRUPTION, "True");
    assert_eq!(target["reason"], "PreemptionByScheduler", "{target:#}");
    assert!(target["message"].as_str().unwrap().starts_with("preempted by"), "{target:#}");
    cluster.until_runs("high", 1);
    assert_eq!(cluster.group_condition("high", DISRUPTION), None);
    cluster.until("the pods of low are gone", |cluster| (!cluster.bound().contains_key("low")).then_some(()));
    // Its pods come again, also for a scheduler that knows only what the group says.
    cluster.kill(scheduler);
    cluster.schedule(0);
    create_pods(&cluster, "low", 2, 4);
    cluster.until_explained("low-0", "");
    if scheduled == "PodGroupInitiallyScheduled" {
        let is = cluster.group_condition("low", scheduled).unwrap();
        assert_eq!(is["status"], "True", "the first time stays: {is:#}");
    }
    assert_eq!(cluster.group_condition("low", DISRUPTION), Some(target));
    cluster.api().delete(&format!("{PODS}/high-0")).unwrap();
    cluster.until_runs("low", 2);
    let over = cluster.until_group("low", DISRUPTION, "False");
    assert_eq!(over["reason"], "Scheduled", "{over:#}");
}
