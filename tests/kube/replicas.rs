//! Nodes whose GPUs NVIDIA's device plugin divides: time-slicing, MPS, and MIG slices of one size.

use std::collections::BTreeMap;

use phalanx_controlplane::{Fleet, GPU};
use serde_json::{Value, json};

use crate::support::{Cluster, JOBS, NODES, PODS, job, options, pod};

const SHARED: &str = "nvidia.com/gpu.shared";

fn labels(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(key, value)| (format!("nvidia.com/{key}"), (*value).to_owned())).collect()
}

/// Two GPUs of four replicas each.
const SLICED: [(&str, &str); 4] = [
    ("gpu.count", "2"),
    ("gpu.replicas", "4"),
    ("gpu.sharing-strategy", "time-slicing"),
    ("gpu.product", "Tesla-T4-SHARED"),
];

/// How many running pods have each device of each node, of those whose names begin so.
fn by_device(cluster: &Cluster, prefix: &str) -> BTreeMap<(String, String), usize> {
    let mut all = BTreeMap::new();
    let running = cluster.seats().into_iter().filter(|seat| seat.phase == "Running");
    for seat in running.filter(|seat| seat.name.starts_with(prefix)) {
        let place = seat.node.unwrap();
        *all.entry((place, seat.devices.unwrap_or_default())).or_insert(0) += 1;
    }
    all
}

fn until_share(cluster: &Cluster, prefix: &str, expected: &BTreeMap<(String, String), usize>) {
    cluster
        .until(&format!("{expected:?}"), |cluster| (by_device(cluster, prefix) == *expected).then_some(()));
}

/// Sixteen whole GPUs were counted, and gangs placed on them as if NVLink joined them.
#[test]
fn pods_share_gpus_up_to_the_replicas_of_each_and_whole_gpus_are_not_there() {
    let fleet = Fleet { labels: labels(&SLICED), ..Fleet::new(2) };
    let mut cluster = Cluster::of_fleet(&options(), &fleet);
    let first = cluster.schedule(0);
    for at in 0..17 {
        cluster.create(PODS, &pod(&format!("one-{at}"), 1));
    }
    cluster.create(PODS, &pod("two", 2));
    let device = |node: usize, device: &str| (Fleet::name(node), device.to_owned());
    let full: BTreeMap<_, usize> =
        [device(0, "0"), device(0, "1"), device(1, "0"), device(1, "1")].map(|of| (of, 4)).into();
    until_share(&cluster, "one-", &full);
    let why = cluster.until_explained("two", "nvidia.com/gpu.replicas=4");
    assert!(why.contains("2 node(s) divide their GPUs"), "{why}");
    let waits = |cluster: &Cluster| {
        let seats = cluster.seats().into_iter();
        seats.filter(|seat| seat.name.starts_with("one-") && seat.node.is_none()).count()
    };
    assert_eq!(waits(&cluster), 1);

    // A successor counts them as they are, and gives what becomes free.
    cluster.kill(first);
    cluster.schedule(0);
    let one = cluster.seats().into_iter().find(|seat| seat.name.starts_with("one-") && seat.node.is_some());
    cluster.api().delete(&format!("{PODS}/{}?gracePeriodSeconds=0", one.unwrap().name)).unwrap();
    cluster.until("the last has a node", |cluster| (waits(cluster) == 0).then_some(()));
    until_share(&cluster, "one-", &full);
}

#[test]
fn a_gang_of_whole_gpus_goes_neither_to_renamed_replicas_nor_to_slices_of_mig() {
    let mut cluster = Cluster::of_fleet(&options(), &Fleet::new(3));
    let divide = |cluster: &Cluster, node: usize, of: &[(&str, &str)], amounts: Value| {
        let path = format!("{NODES}/{}", Fleet::name(node));
        let labels: BTreeMap<String, String> = labels(of).into_iter().collect();
        cluster.api().patch(&path, &json!({ "metadata": { "labels": labels } })).unwrap();
        let status = json!({ "status": { "capacity": amounts, "allocatable": amounts } });
        cluster.api().patch(&format!("{path}/status"), &status).unwrap();
    };
    divide(&cluster, 0, &SLICED, json!({ GPU: "0", SHARED: "8" }));
    let slices = [
        ("mig.strategy", "single"),
        ("gpu.count", "8"),
        ("gpu.replicas", "1"),
        ("gpu.product", "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"),
    ];
    divide(&cluster, 1, &slices, json!({ GPU: "8" }));
    divide(&cluster, 2, &[("gpu.count", "3"), ("gpu.replicas", "3")], json!({ GPU: "8" }));
    cluster.schedule(0);
    cluster.create(JOBS, &job("ring", 2, 4, &json!({})));
    cluster.until("the ring waits", |cluster| {
        let name = cluster.seats().into_iter().find(|seat| seat.gang == "ring")?.name;
        let pod = cluster.api().get(&format!("{PODS}/{name}")).ok()?;
        let conditions = pod["status"]["conditions"].as_array()?.clone();
        conditions
            .iter()
            .any(|of| of["message"].as_str().is_some_and(|why| why.contains("divide their GPUs")))
            .then_some(())
    });
    for at in 0..4 {
        let mut shared = pod(&format!("shared-{at}"), 0);
        shared["spec"]["containers"][0]["resources"]["limits"] = json!({ SHARED: "1", "cpu": "1" });
        cluster.create(PODS, &shared);
        cluster.until_runs(&format!("shared-{at}"), 1);
    }
    let places = by_device(&cluster, "shared-");
    assert_eq!(places.values().sum::<usize>(), 4);
    assert!(places.keys().all(|(node, _)| *node == Fleet::name(0)), "{places:?}");

    // Labels that contradict what the kubelet counts are told about the node.
    cluster.until("an event of the node", |cluster| {
        let events = cluster.api().get("/apis/events.k8s.io/v1/namespaces/default/events").ok()?;
        let is_it = |event: &Value| {
            event["reason"] == "GpuLabelsInvalid" && event["regarding"]["name"] == json!(Fleet::name(2))
        };
        events["items"].as_array()?.iter().any(is_it).then_some(())
    });
    // Its administrator takes the division back.
    divide(&cluster, 2, &[("gpu.count", "8"), ("gpu.replicas", "1")], json!({ GPU: "8" }));
    let ring = cluster.until_runs("ring", 2);
    assert!(ring.iter().all(|seat| seat.node == Some(Fleet::name(2))), "{ring:?}");
}
