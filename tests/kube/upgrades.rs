//! Kinds whose served version changes, kinds that cannot be read, and an upgrade of Kubernetes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use phalanx_controlplane::{KubernetesVersion, Options, Program};
use serde_json::{Value, json};

use crate::health::unwatched;
use crate::support::audit::Audit;
use crate::support::front::{Fault, Front};
use crate::support::groups::pod_group;
use crate::support::{Cluster, DEFINITIONS, JOBS, PODS, Times, assert_disjoint, job, options, pod, role};

const GROUP: &str = "scheduling.x-k8s.io";

fn groups(version: &str) -> String {
    format!("/apis/{GROUP}/{version}/namespaces/default/podgroups")
}

/// The coscheduling plugin's kind, of which one version is served and the others are not any more.
fn definition(versions: &[(&str, bool)]) -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let version = |(name, is_served): &(&str, bool)| {
        json!({ "name": name, "served": is_served, "storage": is_served,
            "schema": { "openAPIV3Schema": schema } })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("podgroups.{GROUP}"),
            "annotations": { "api-approved.kubernetes.io": "unapproved, for a test" },
        },
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": { "kind": "PodGroup", "plural": "podgroups", "singular": "podgroup" },
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

fn gang_of(cluster: &Cluster, version: &str, name: &str) {
    let group = json!({ "apiVersion": format!("{GROUP}/{version}"), "kind": "PodGroup",
        "metadata": { "name": name }, "spec": { "minMember": 2 } });
    cluster.create(&groups(version), &group);
    for at in 0..2 {
        let mut member = pod(&format!("{name}-{at}"), 2);
        member["metadata"]["labels"] = json!({ "gang": name, "scheduling.x-k8s.io/pod-group": name });
        cluster.create(PODS, &member);
    }
}

fn uids(cluster: &Cluster, gang: &str) -> BTreeSet<String> {
    let pods = cluster.api().get(&format!("{PODS}?labelSelector=gang%3D{gang}")).unwrap();
    let pods = pods["items"].as_array().unwrap().iter();
    pods.map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
}

/// After an upgrade it asked for the version of before for ever: no gang of that kind was seen any more.
#[test]
fn gangs_of_a_kind_are_seen_after_its_version_changed_and_those_that_run_run_on() {
    let mut cluster = Cluster::of(2);
    cluster.create(DEFINITIONS, &definition(&[("v1alpha1", true)]));
    cluster.until("the kind", |cluster| cluster.api().get(&groups("v1alpha1")).ok());
    let scheduler = cluster.schedule(0);
    gang_of(&cluster, "v1alpha1", "before");
    cluster.until_runs("before", 2);
    let before = uids(&cluster, "before");

    let changed = definition(&[("v1alpha1", false), ("v1beta1", true)]);
    cluster.api().patch(&format!("{DEFINITIONS}/podgroups.{GROUP}"), &changed).unwrap();
    cluster.until("the new version alone", |cluster| {
        let is_old = cluster.api().get(&groups("v1alpha1")).is_ok();
        let is_new = cluster.api().get(&groups("v1beta1")).is_ok();
        (is_new && !is_old).then_some(())
    });
    gang_of(&cluster, "v1beta1", "after");
    cluster.until_runs("after", 2);
    assert_eq!(uids(&cluster, "before"), before, "it never noticed");
    assert_eq!(cluster.bound()["before"], (2, 0));
    assert!(!cluster.has_ended(scheduler));
}

/// A single right that was missing kept everything from being scheduled, for as long as it was missing.
#[test]
fn kinds_that_cannot_be_read_are_named_and_only_what_depends_on_them_waits() {
    let mut cluster = Cluster::of(2);
    let is_refused = Arc::new(AtomicBool::new(true));
    let refuses = Arc::clone(&is_refused);
    let front = Front::of(&cluster.plane, move |asked| {
        let kinds = ["/poddisruptionbudgets", "/podgroups"];
        match refuses.load(Ordering::Acquire) && kinds.iter().any(|kind| asked.path.ends_with(kind)) {
            true => Fault::Refuse(if asked.path.contains("policy") { 403 } else { 500 }, None),
            false => Fault::None,
        }
    });
    // The Job controller makes a group for each Job: this pod is of none.
    cluster.create(PODS, &pod("alone", 2));
    cluster.create_group(&pod_group("pair", 2));
    cluster.create_members("pair", 2, 2);
    let began = Instant::now();
    cluster.schedule_through(&front, 0, Times::default());
    cluster.until_runs("alone", 1);
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(40), "{waited:?}");
    let at = cluster.served_at();
    assert_eq!(
        unwatched(at),
        ["poddisruptionbudgets", "podgroups.scheduling.k8s.io"].map(str::to_owned).into()
    );
    let named = cluster.log().matches("a kind cannot be watched").count();
    assert_eq!(named, 2, "{}", cluster.log());
    // It waits for its group with a condition, and is no pod by itself.
    cluster.until_explained("pair-0", "PodGroup default/pair");
    assert_eq!(cluster.bound()["pair"], (0, 2));

    is_refused.store(false, Ordering::Release);
    cluster.until_runs("pair", 2);
    cluster.until("all kinds", |_| unwatched(at).is_empty().then_some(()));
}

/// An administrator has to delete objects of `v1alpha2` first, which 1.37 cannot read.
fn delete_groups_of_1_36(cluster: &Cluster) {
    for kind in ["workloads", "podgroups"] {
        let all = format!("/apis/scheduling.k8s.io/v1alpha2/namespaces/default/{kind}");
        let objects = cluster.api().get(&all).unwrap();
        for object in objects["items"].as_array().unwrap() {
            let path = format!("{all}/{}", object["metadata"]["name"].as_str().unwrap());
            cluster.api().patch(&path, &json!({ "metadata": { "finalizers": null } })).unwrap();
            // The garbage collector may have been faster.
            let _ = cluster.api().delete(&path);
        }
        cluster.until(&format!("no {kind}"), |cluster| {
            cluster.api().get(&all).ok()?["items"].as_array()?.is_empty().then_some(())
        });
    }
}

/// `make kube-upgrade`: both versions are built for it, which takes minutes.
#[test]
#[ignore = "needs the programs of two versions of Kubernetes"]
fn gangs_run_on_while_kubernetes_is_upgraded_from_1_36_to_1_37() {
    let from = Options { kubernetes: Some(KubernetesVersion::V1_36), ..options() };
    let mut cluster = Cluster::with(&from, 4);
    let scheduler = cluster.schedule(0);
    cluster.create(JOBS, &job("train", 2, 4, &json!({})));
    cluster.create_group(&pod_group("pair", 2));
    cluster.create_members("pair", 2, 4);
    let before = ["train", "pair"].map(|gang| cluster.until_runs(gang, 2));
    let pods = |cluster: &Cluster| {
        let pods = cluster.api().get(PODS).unwrap();
        let pods = pods["items"].as_array().unwrap().iter();
        pods.map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let uids = pods(&cluster);
    assert_eq!(uids.len(), 4);

    Audit::of(&cluster.plane.audit_log(), role::USER).assert_nothing_was_denied();
    cluster.plane.stop(Program::ControllerManager);
    delete_groups_of_1_36(&cluster);
    cluster.plane.upgrade(KubernetesVersion::V1_37).unwrap();
    // While it starts it does not know its roles yet, and denies what they allow.
    std::fs::write(cluster.plane.audit_log(), "").unwrap();
    let version = cluster.api().get("/version").unwrap();
    assert_eq!(version["gitVersion"], KubernetesVersion::V1_37.release());
    cluster.create_group(&pod_group("pair", 2));
    // The scheduler finds the new version of groups within half a minute.
    cluster.create_group(&pod_group("after", 2));
    cluster.create_members("after", 2, 4);
    cluster.until_runs("after", 2);
    cluster.create(JOBS, &job("later", 1, 4, &json!({})));
    cluster.until_runs("later", 1);
    let after = ["train", "pair"].map(|gang| cluster.until_runs(gang, 2));
    assert_eq!(after, before);
    assert!(!cluster.has_ended(scheduler));

    // A scheduler that starts on 1.37 takes all of them over.
    cluster.kill(scheduler);
    cluster.schedule(0);
    cluster.create(PODS, &pod("alone", 4));
    cluster.until_runs("alone", 1);
    let after = ["train", "pair"].map(|gang| cluster.until_runs(gang, 2));
    assert_eq!(after, before);
    assert!(pods(&cluster).is_superset(&uids), "no pod was made again");
    assert_disjoint(&cluster.seats());
}
