//! Gangs whose claims tolerate taints of devices, beside gangs whose claims do not.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::dra_gangs::{CLAIMS, TEMPLATES, assert_exact, define, held, job_of, of_products};
use crate::support::{Cluster, JOBS, PODS, Seat};

const RULES: &str = "/apis/resource.k8s.io/v1beta2/devicetaintrules";

/// The last of the 8 devices of every node has a taint.
fn taint(cluster: &Cluster) {
    let rule = json!({
        "apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "hot"},
        "spec": {
            "deviceSelector": {"driver": "gpu.example.com", "device": "gpu-7"},
            "taint": {"key": "example.com/hot", "effect": "NoSchedule"},
        },
    });
    cluster.create(RULES, &rule);
}

fn template(cluster: &Cluster, name: &str, count: u32, tolerations: &Value) {
    let exactly = json!({"deviceClassName": "gpu", "count": count, "tolerations": tolerations});
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}},
    });
    cluster.create(TEMPLATES, &template);
}

/// Node and device of each that the claims of these pods hold.
fn devices(cluster: &Cluster, seats: &[Seat]) -> BTreeSet<(String, u32)> {
    let claim = |seat: &Seat| {
        let pod = cluster.api().get(&format!("{PODS}/{}", seat.name)).unwrap();
        let name = &pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"];
        cluster.api().get(&format!("{CLAIMS}/{}", name.as_str().unwrap())).unwrap()
    };
    seats.iter().map(claim).flat_map(|claim| held(&claim)).collect()
}

fn numbers(devices: &BTreeSet<(String, u32)>) -> BTreeSet<u32> {
    devices.iter().map(|(_, device)| *device).collect()
}

fn delete(cluster: &Cluster, job: &str) {
    cluster.api().delete(&format!("{JOBS}/{job}?propagationPolicy=Background")).unwrap();
}

#[test]
fn a_gang_that_tolerates_a_taint_has_the_devices_and_others_wait_for_the_end_of_the_taint() {
    let mut cluster = of_products(Cluster::of(0), &["A100", "A100"]);
    define(&cluster);
    taint(&cluster);
    let tolerations = json!([{"key": "example.com/hot", "operator": "Exists"}]);
    template(&cluster, "seven", 7, &json!([]));
    template(&cluster, "eight", 8, &json!([]));
    template(&cluster, "tolerant-one", 1, &tolerations);
    template(&cluster, "tolerant-eight", 8, &tolerations);
    let first = cluster.schedule(0);

    // What is not tainted is for everybody, what is left for those who tolerate it.
    cluster.create(JOBS, &job_of("most", 2, "seven"));
    let most = cluster.until_runs("most", 2);
    cluster.create(JOBS, &job_of("rest", 2, "tolerant-one"));
    let rest = cluster.until_runs("rest", 2);
    assert_eq!(numbers(&devices(&cluster, &most)), (0..7).collect());
    assert_eq!((devices(&cluster, &rest).len(), numbers(&devices(&cluster, &rest))), (2, [7].into()));
    assert_exact(&cluster, &[most, rest].concat());

    // All devices of both nodes, for one of two gangs.
    cluster.create(JOBS, &job_of("careful", 2, "eight"));
    let name = cluster.until("a pod of careful", |cluster| {
        cluster.seats().into_iter().find(|seat| seat.gang == "careful").map(|seat| seat.name)
    });
    cluster.until_explained(&name, "wants 8 of 8 matching devices, 1 tainted");
    cluster.create(JOBS, &job_of("tolerant", 2, "tolerant-eight"));
    delete(&cluster, "most");
    delete(&cluster, "rest");
    let tolerant = cluster.until_runs("tolerant", 2);
    assert_eq!(devices(&cluster, &tolerant).len(), 16);
    assert_exact(&cluster, &tolerant);

    // Who comes after a restart finds them held, and kept from others.
    cluster.kill(first);
    cluster.schedule(0);
    cluster.create(JOBS, &job_of("later", 2, "tolerant-one"));
    let name = cluster.until("a pod of later", |cluster| {
        cluster.seats().into_iter().find(|seat| seat.gang == "later").map(|seat| seat.name)
    });
    cluster.until_explained(&name, "2 members");
    assert_eq!(cluster.bound()["later"], (0, 2));
    delete(&cluster, "tolerant");
    let later = cluster.until_runs("later", 2);
    assert_exact(&cluster, &later);
    assert_eq!(cluster.bound()["careful"], (0, 2), "it tolerates nothing");
    delete(&cluster, "later");

    cluster.api().delete(&format!("{RULES}/hot")).unwrap();
    let careful = cluster.until_runs("careful", 2);
    assert_eq!(numbers(&devices(&cluster, &careful)), (0..8).collect());
    assert_exact(&cluster, &careful);
}
