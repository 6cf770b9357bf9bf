use serde_json::{Value, json};

use super::super::Refusal;
use super::super::objects::{node, pod};
use super::*;
use crate::api::Node;

type Change<'a> = (&'a str, Value);

/// A claim `default/data` for 5 GiB of class `local`, changed at JSON pointers.
fn claim(changes: &[Change<'_>]) -> PersistentVolumeClaim {
    let whole = json!({
        "metadata": {"name": "data", "namespace": "default", "uid": "1", "annotations": {}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": {"requests": {"storage": "5Gi"}}},
        "status": {},
    });
    serde_json::from_value(changed(whole, changes)).unwrap()
}

/// A volume of 10 GiB of class `local` in zone `a` that nobody has.
fn volume(name: &str, changes: &[Change<'_>]) -> PersistentVolume {
    let zone = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]});
    let whole = json!({
        "metadata": {"name": name, "labels": {}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "local", "capacity": {"storage": "10Gi"},
            "csi": {"driver": "disks", "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
        },
        "status": {"phase": "Available"},
    });
    serde_json::from_value(changed(whole, changes)).unwrap()
}

fn changed(mut whole: Value, changes: &[Change<'_>]) -> Value {
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        whole.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = value.clone();
    }
    whole
}

/// Nodes in zone `a` and `b`.
fn nodes() -> [Node; 2] {
    ["a", "b"].map(|zone| {
        let mut node = node(json!({"topology.kubernetes.io/zone": zone}), json!({}));
        node.metadata.name = Some(format!("n{zone}"));
        node
    })
}

/// Classes `local` (delayed, nothing is made), `made` (delayed, made in zone `a`) and `now` (bound at once).
fn storage(claims: Vec<PersistentVolumeClaim>, volumes: Vec<PersistentVolume>) -> Storage {
    let class = |name: &str, provisioner: &str, mode: &str, zones: Value| {
        let class = json!({
            "metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, "allowedTopologies": zones,
        });
        (name.to_owned(), serde_json::from_value(class).unwrap())
    };
    let zones = json!([{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a"]}]}]);
    let delayed = "WaitForFirstConsumer";
    Storage {
        claims: claims.into_iter().map(|claim| (rules::path(&claim), claim)).collect(),
        volumes: volumes.into_iter().map(|volume| (volume.metadata.name.clone().unwrap(), volume)).collect(),
        classes: BTreeMap::from([
            class("local", "kubernetes.io/no-provisioner", delayed, json!([])),
            class("made", "disks", delayed, zones),
            class("now", "disks", "Immediate", json!([])),
        ]),
        ..Storage::default()
    }
}

fn user() -> Pod {
    pod(json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}))
}

fn verdicts(storage: &Storage) -> [Result<VolumePlan, Refusal>; 2] {
    let rules = VolumeRules::of(&user(), storage).unwrap();
    nodes().map(|node| rules.admits(&node, []))
}

fn bound(more: &[Change<'_>]) -> PersistentVolumeClaim {
    let bound = [
        ("/spec/volumeName", json!("pv")),
        ("/metadata/annotations/pv.kubernetes.io~1bind-completed", json!("yes")),
    ];
    claim(&bound.into_iter().chain(more.iter().cloned()).collect::<Vec<_>>())
}

#[test]
fn a_bound_volume_is_where_its_affinity_and_its_zone_say() {
    let by_affinity = storage(vec![bound(&[])], vec![volume("pv", &[])]);
    assert_eq!(verdicts(&by_affinity), [Ok(VolumePlan::default()), Err(Refusal::VolumeAffinity)]);
    let zones = |label: &str| {
        volume(
            "pv",
            &[
                ("/spec/nodeAffinity", Value::Null),
                ("/metadata/labels/topology.kubernetes.io~1zone", json!(label)),
            ],
        )
    };
    for (label, in_a, in_b) in
        [("a", true, false), ("b__c", false, true), ("a__b", true, true), ("", true, true)]
    {
        let by_zone = storage(vec![bound(&[])], vec![zones(label)]);
        let verdict =
            |is_there: bool| if is_there { Ok(VolumePlan::default()) } else { Err(Refusal::VolumeZone) };
        assert_eq!(verdicts(&by_zone), [verdict(in_a), verdict(in_b)], "{label:?}");
    }
    // A volume with the old label, a node with the new one; and a node that says nothing of its zone.
    let old = volume(
        "pv",
        &[
            ("/spec/nodeAffinity", Value::Null),
            ("/metadata/labels/failure-domain.beta.kubernetes.io~1zone", json!("a")),
        ],
    );
    let old = storage(vec![bound(&[])], vec![old]);
    assert_eq!(verdicts(&old), [Ok(VolumePlan::default()), Err(Refusal::VolumeZone)]);
    let nowhere = node(json!({}), json!({}));
    assert!(VolumeRules::of(&user(), &old).unwrap().admits(&nowhere, []).is_ok());
}

#[test]
fn what_a_pod_waits_for_is_said_as_upstream_says_it() {
    let wait = |storage: &Storage| VolumeRules::of(&user(), storage).unwrap_err().to_string();
    let one = |claim: PersistentVolumeClaim| wait(&storage(vec![claim], vec![]));
    assert_eq!(wait(&storage(vec![], vec![])), "persistentvolumeclaim \"data\" not found");
    assert_eq!(one(bound(&[])), "persistentvolume \"pv\" not found");
    assert_eq!(
        one(bound(&[("/status/phase", json!("Lost"))])),
        "persistentvolumeclaim \"data\" bound to non-existent persistentvolume \"pv\""
    );
    let deleted = claim(&[("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))]);
    assert_eq!(one(deleted), "persistentvolumeclaim \"data\" is being deleted");
    let unbound = "pod has unbound immediate PersistentVolumeClaims";
    assert_eq!(one(claim(&[("/spec/storageClassName", json!("now"))])), unbound);
    assert_eq!(one(claim(&[("/spec/storageClassName", json!("unknown"))])), unbound);
    assert_eq!(
        one(claim(&[("/spec/volumeName", json!("pv"))])),
        unbound,
        "meant for a volume, and not bound to it yet"
    );
    let disk =
        volume("pv", &[("/spec/csi", Value::Null), ("/spec/gcePersistentDisk", json!({"pdName": "d"}))]);
    assert!(wait(&storage(vec![bound(&[])], vec![disk])).contains("gcePersistentDisk"));
}

#[test]
fn an_ephemeral_volume_has_a_claim_of_its_own_pod() {
    let mut user = pod(json!({"volumes": [{"name": "data", "ephemeral": {}}]}));
    user.metadata.uid = Some("7".to_owned());
    let named =
        |owner: Value| claim(&[("/metadata/name", json!("p-data")), ("/metadata/ownerReferences", owner)]);
    let wait = |claims| {
        VolumeRules::of(&user, &storage(claims, vec![])).map(|_| ()).map_err(|wait| wait.to_string())
    };
    assert_eq!(
        wait(vec![]),
        Err("waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-data\""
            .to_owned())
    );
    let owner =
        |uid: &str| json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true}]);
    assert_eq!(
        wait(vec![named(owner("8"))]),
        Err("PVC default/p-data was not created for pod default/p (pod is not owner)".to_owned())
    );
    assert_eq!(wait(vec![named(owner("7"))]), Ok(()));
}

#[test]
fn a_delayed_claim_takes_the_smallest_volume_that_is_there() {
    let plan = |name: &str| {
        Ok(VolumePlan { bind: vec![("default/data".to_owned(), name.to_owned())], provision: vec![] })
    };
    let nothing = || Err(Refusal::VolumeBinding);
    let small = || volume("small", &[("/spec/capacity/storage", json!("6Gi"))]);
    let with = |volumes| verdicts(&storage(vec![claim(&[])], volumes));
    assert_eq!(with(vec![volume("large", &[]), small()]), [plan("small"), nothing()]);
    for change in [
        ("/spec/capacity/storage", json!("4Gi")),
        ("/spec/accessModes", json!(["ReadOnlyMany"])),
        ("/spec/storageClassName", json!("other")),
        ("/spec/volumeMode", json!("Block")),
        ("/spec/claimRef", json!({"name": "other", "namespace": "default"})),
        ("/status/phase", json!("Released")),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
    ] {
        assert_eq!(
            with(vec![volume("large", std::slice::from_ref(&change))]),
            [nothing(), nothing()],
            "{change:?}"
        );
    }
    // One that is set aside for it goes before a smaller one, and where it is out of reach nothing else will do.
    let own = volume("own", &[("/spec/claimRef", json!({"name": "data", "namespace": "default"}))]);
    assert_eq!(with(vec![small(), own]), [plan("own"), nothing()]);
    let selecting = claim(&[("/spec/selector", json!({"matchLabels": {"fast": "yes"}}))]);
    let fast = volume("fast", &[("/metadata/labels/fast", json!("yes"))]);
    assert_eq!(verdicts(&storage(vec![selecting], vec![small(), fast])), [plan("fast"), nothing()]);
}

#[test]
fn a_volume_is_made_where_its_class_allows_and_room_is_left() {
    let made = |changes: &[Change<'_>]| {
        let class = [("/spec/storageClassName", json!("made"))];
        claim(&class.into_iter().chain(changes.iter().cloned()).collect::<Vec<_>>())
    };
    let plan = || Ok(VolumePlan { bind: vec![], provision: vec!["default/data".to_owned()] });
    let mut storage = storage(vec![made(&[])], vec![]);
    assert_eq!(verdicts(&storage), [plan(), Err(Refusal::VolumeBinding)]);
    let driver = json!({"metadata": {"name": "disks"}, "spec": {"storageCapacity": true}});
    storage.drivers.insert("disks".to_owned(), serde_json::from_value(driver).unwrap());
    assert_eq!(verdicts(&storage)[0], Err(Refusal::VolumeSpace));
    let room = json!({"metadata": {}, "storageClassName": "made", "capacity": "5Gi", "nodeTopology": {"matchLabels": {"topology.kubernetes.io/zone": "a"}}});
    storage.capacities.insert("c".to_owned(), serde_json::from_value(room).unwrap());
    assert_eq!(verdicts(&storage)[0], plan());
    let chosen = made(&[("/metadata/annotations/volume.kubernetes.io~1selected-node", json!("nb"))]);
    storage.claims.insert("default/data".to_owned(), chosen);
    assert_eq!(
        verdicts(&storage),
        [Err(Refusal::VolumeBinding), Err(Refusal::VolumeBinding)],
        "the other is chosen, and not allowed"
    );
}

#[test]
fn a_claim_for_one_pod_alone_waits_for_the_other_to_go() {
    let single = bound(&[("/spec/accessModes", json!(["ReadWriteOncePod"]))]);
    let mut storage = storage(vec![single], vec![volume("pv", &[])]);
    storage.occupy(&user());
    assert_eq!(VolumeRules::of(&user(), &storage).unwrap_err(), VolumeWait::InUse);
    storage.release(&user());
    assert!(VolumeRules::of(&user(), &storage).is_ok());
}

#[test]
fn a_node_attaches_no_more_than_its_driver_can() {
    let mut storage = storage(vec![bound(&[])], vec![volume("pv", &[]), volume("other", &[])]);
    let node_of = |count: i32| json!({"metadata": {"name": "na"}, "spec": {"drivers": [{"name": "disks", "nodeID": "x", "allocatable": {"count": count}}]}});
    storage.nodes.insert("na".to_owned(), serde_json::from_value(node_of(1)).unwrap());
    assert_eq!(verdicts(&storage)[0], Ok(VolumePlan::default()));
    let attached = json!({"metadata": {"name": "a"}, "spec": {"attacher": "disks", "nodeName": "na", "source": {"persistentVolumeName": "other"}}});
    storage.attachments.insert("a".to_owned(), serde_json::from_value(attached).unwrap());
    assert_eq!(verdicts(&storage)[0], Err(Refusal::VolumeLimit));
    storage.nodes.insert("na".to_owned(), serde_json::from_value(node_of(2)).unwrap());
    assert_eq!(verdicts(&storage)[0], Ok(VolumePlan::default()));
    // Shared with a pod that is there, it is attached once.
    storage.nodes.insert("na".to_owned(), serde_json::from_value(node_of(1)).unwrap());
    let rules = VolumeRules::of(&user(), &storage).unwrap();
    assert_eq!(rules.admits(&nodes()[0], [&user()]), Ok(VolumePlan::default()));
}
