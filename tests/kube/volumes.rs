//! Claims and volumes on a real control plane, with its controllers for volumes.

use std::collections::BTreeMap;

use phalanx_controlplane::Fleet;
use serde_json::{Value, json};

use crate::support::{Cluster, JOBS, PODS, job, pod};

pub(crate) const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(crate) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub(crate) const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

/// A volume on one node.
pub(crate) fn volume(name: &str, class: &str, node: &str) -> Value {
    let here = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] });
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "capacity": { "storage": "10Gi" },
            "persistentVolumeReclaimPolicy": "Retain", "local": { "path": "/data" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [here] }] } },
        },
    })
}

fn asks(class: &str) -> Value {
    json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": { "requests": { "storage": "5Gi" } } })
}

pub(crate) fn claim(name: &str, class: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name }, "spec": asks(class) })
}

/// One whose claims are bound when their pods have a node.
pub(crate) fn class(name: &str, provisioner: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": name },
        "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
    })
}

pub(crate) fn mounts(claim: &str) -> Value {
    json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }])
}

#[test]
fn a_gang_goes_where_its_volume_is_and_waits_while_there_is_none() {
    let mut cluster = Cluster::of(4);
    cluster.schedule(0);
    let mut ring = job("ring", 2, 4, &json!({}));
    ring["spec"]["template"]["spec"]["volumes"] = mounts("data");
    cluster.create(JOBS, &ring);
    let name = cluster.until("pods of ring", |cluster| {
        cluster.seats().into_iter().find(|seat| seat.gang == "ring").map(|seat| seat.name)
    });
    cluster.until_explained(&name, "persistentvolumeclaim \"data\" not found");
    cluster.create(CLAIMS, &claim("data", ""));
    cluster.until_explained(&name, "unbound immediate PersistentVolumeClaims");
    cluster.create(VOLUMES, &volume("disk", "", &Fleet::name(2)));
    let seats = cluster.until_runs("ring", 2);
    assert!(seats.iter().all(|seat| seat.node.as_deref() == Some(&*Fleet::name(2))), "{seats:?}");
}

#[test]
fn each_pod_of_a_gang_is_given_a_volume_of_its_node_before_it_is_bound() {
    let mut cluster = Cluster::of(3);
    cluster.create(CLASSES, &class("local", "kubernetes.io/no-provisioner"));
    for at in 1..3 {
        cluster.create(VOLUMES, &volume(&format!("disk-{at}"), "local", &Fleet::name(at)));
    }
    cluster.schedule(0);
    let mut ring = job("ring", 2, 8, &json!({}));
    ring["spec"]["template"]["spec"]["volumes"] =
        json!([{ "name": "data", "ephemeral": { "volumeClaimTemplate": { "spec": asks("local") } } }]);
    cluster.create(JOBS, &ring);
    let seats = cluster.until_runs("ring", 2);
    let volumes: BTreeMap<String, String> =
        (1..3).map(|at| (format!("disk-{at}"), Fleet::name(at))).collect();
    for seat in &seats {
        let claim = cluster.api().get(&format!("{CLAIMS}/{}-data", seat.name)).unwrap();
        assert_eq!(claim["status"]["phase"], "Bound");
        let volume = claim["spec"]["volumeName"].as_str().unwrap();
        assert_eq!(seat.node.as_ref(), Some(&volumes[volume]), "{seat:?}");
    }
}

#[test]
fn a_provisioner_is_told_the_node_and_the_pod_waits_for_what_it_makes() {
    let mut cluster = Cluster::of(2);
    cluster.create(CLASSES, &class("made", "disks.example.com"));
    cluster.create(CLAIMS, &claim("data", "made"));
    cluster.schedule(0);
    let mut user = pod("user", 1);
    user["spec"]["volumes"] = mounts("data");
    cluster.create(PODS, &user);
    let told = |cluster: &Cluster, other: Option<&str>| {
        cluster.until("a node for the volume", |cluster| {
            let claim = cluster.api().get(&format!("{CLAIMS}/data")).ok()?;
            let node = claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].as_str()?;
            (Some(node) != other).then(|| node.to_owned())
        })
    };
    let first = told(&cluster, None);
    // As a provisioner does that has no room there.
    let away = json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": null } } });
    cluster.api().patch(&format!("{CLAIMS}/data"), &away).unwrap();
    let second = told(&cluster, Some(&first));
    assert!(cluster.seats()[0].node.is_none(), "it has no volume yet");
    let mut made = volume("made", "made", &second);
    made["spec"]["claimRef"] = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "data" });
    cluster.create(VOLUMES, &made);
    let seats = cluster.until_runs("user", 1);
    assert_eq!(seats[0].node, Some(second));
}
