//! Rules between pods on a real control plane: they hold also among pods that are decided in one moment.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_controlplane::Fleet;
use serde_json::{Value, json};

use crate::support::{Cluster, JOBS, PODS, Seat, job, pod};

const ZONE: &str = "topology.kubernetes.io/zone";

/// Nodes in zones `z0` and `z1` by turns.
fn in_zones(nodes: usize) -> Cluster {
    let cluster = Cluster::of(nodes);
    for at in 0..nodes {
        let zone = json!({ "metadata": { "labels": { ZONE: zone_of(&Fleet::name(at)) } } });
        cluster.api().patch(&format!("/api/v1/nodes/{}", Fleet::name(at)), &zone).unwrap();
    }
    cluster
}

fn zone_of(node: &str) -> &'static str {
    if node.ends_with(['0', '2', '4', '6', '8']) { "z0" } else { "z1" }
}

fn selector(app: &str) -> Value {
    json!({ "matchLabels": { "app": app } })
}

fn rule(kind: &str, app: &str, key: &str) -> Value {
    let term = json!({ "topologyKey": key, "labelSelector": selector(app) });
    json!({ "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": [term] } } })
}

/// A pod of one GPU with the labels `app` and `gang`, and what else its specification says.
fn of(app: &str, name: &str, spec: &Value) -> Value {
    let mut pod = pod(name, 1);
    pod["metadata"]["labels"] = json!({ "app": app, "gang": app });
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod
}

fn zones(seats: &[Seat]) -> BTreeMap<&'static str, usize> {
    let mut zones = BTreeMap::new();
    for node in seats.iter().filter_map(|seat| seat.node.as_deref()) {
        *zones.entry(zone_of(node)).or_insert(0) += 1;
    }
    zones
}

#[test]
fn replicas_that_want_a_node_each_have_one() {
    let mut cluster = Cluster::of(3);
    cluster.schedule(0);
    let mut template = of("web", "", &rule("podAntiAffinity", "web", "kubernetes.io/hostname"));
    template["spec"]["restartPolicy"] = json!("Always");
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": { "replicas": 4, "selector": selector("web"),
            "template": { "metadata": { "labels": template["metadata"]["labels"] }, "spec": template["spec"] } },
    });
    cluster.create("/apis/apps/v1/namespaces/default/deployments", &deployment);
    let (run, waits) = cluster.until("three replicas, and one that waits", |cluster| {
        let (run, waits): (Vec<Seat>, Vec<Seat>) =
            cluster.seats().into_iter().partition(|seat| seat.phase == "Running");
        (run.len() == 3 && waits.len() == 1).then_some((run, waits))
    });
    let nodes: BTreeSet<_> = run.iter().filter_map(|seat| seat.node.clone()).collect();
    assert_eq!(nodes.len(), 3, "{run:?}");
    cluster.until_explained(&waits[0].name, "spec.affinity.podAntiAffinity");
    cluster.create("/api/v1/nodes", &Fleet::new(4).node(3));
    let seats = cluster.until_runs("web", 4);
    let nodes: BTreeSet<_> = seats.iter().filter_map(|seat| seat.node.clone()).collect();
    assert_eq!(nodes.len(), 4, "{seats:?}");
}

#[test]
fn affinity_anti_affinity_and_spread_over_zones_hold_among_pods_created_at_once() {
    let mut cluster = in_zones(4);
    let constraint = json!([{ "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector("even") }]);
    for at in 0..6 {
        cluster.create(
            PODS,
            &of("even", &format!("even-{at}"), &json!({ "topologySpreadConstraints": constraint })),
        );
    }
    for at in 0..4 {
        cluster.create(PODS, &of("near", &format!("near-{at}"), &rule("podAffinity", "near", ZONE)));
    }
    for at in 0..2 {
        cluster.create(PODS, &of("far", &format!("far-{at}"), &rule("podAntiAffinity", "far", ZONE)));
    }
    cluster.create(PODS, &of("guard", "guard", &rule("podAntiAffinity", "plain", ZONE)));
    for at in 0..3 {
        cluster.create(PODS, &of("plain", &format!("plain-{at}"), &json!({})));
    }
    cluster.schedule(0);
    assert_eq!(zones(&cluster.until_runs("even", 6)), [("z0", 3), ("z1", 3)].into());
    assert_eq!(zones(&cluster.until_runs("near", 4)).len(), 1);
    assert_eq!(zones(&cluster.until_runs("far", 2)), [("z0", 1), ("z1", 1)].into());
    let guard = cluster.until_runs("guard", 1);
    let plain = cluster.until_runs("plain", 3);
    let guarded = zones(&guard);
    assert!(zones(&plain).keys().all(|zone| !guarded.contains_key(zone)), "{guard:?} {plain:?}");
}

/// They waited: where they fit best they may not be.
#[test]
fn gangs_whose_own_pods_have_to_be_in_different_zones_are_placed_whole() {
    let mut cluster = in_zones(4);
    let constraint = json!({ "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "batch.kubernetes.io/job-name": "even" } } });
    let apart = json!({ "topologyKey": ZONE,
        "labelSelector": { "matchLabels": { "batch.kubernetes.io/job-name": "far" } } });
    let rules = [
        ("even", 6, json!({ "topologySpreadConstraints": [constraint] })),
        (
            "far",
            2,
            json!({ "affinity": { "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [apart] } } }),
        ),
    ];
    for (name, ranks, rule) in &rules {
        let mut gang = job(name, *ranks, 1, &json!({}));
        let spec = gang["spec"]["template"]["spec"].as_object_mut().unwrap();
        spec.extend(rule.as_object().unwrap().clone());
        cluster.create(JOBS, &gang);
    }
    cluster.schedule(0);
    assert_eq!(zones(&cluster.until_runs("even", 6)), [("z0", 3), ("z1", 3)].into());
    assert_eq!(zones(&cluster.until_runs("far", 2)), [("z0", 1), ("z1", 1)].into());
}
