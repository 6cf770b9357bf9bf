//! Pods with claims: each on a node of its own, with volumes and a class of its own, so that all can be decided at once.
//!
//! No volume controller runs. That kube-scheduler admits a pod with claims that wait for it is seen by what it writes
//! before it binds: whose a volume is, and the node that a claim is provisioned for.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use phalanx_controlplane::{Api, ControlPlane, Options, in_parallel};
use phalanx_kube::api::{Node, Pod};
use phalanx_kube::filter::{Storage, VolumePlan, VolumeRules};
use phalanx_sim::Rng;
use serde_json::{Value, json};

use super::draw::{Pin, one, pin_to};
use super::oracle::{self, Said};
use super::{SEED, list, pods};

const PAIRS: usize = 200;
const PATIENCE: Duration = Duration::from_secs(60);
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Everything of one pair but the node, in the order in which it is created.
struct Pair {
    /// Paths and objects; what has a status is given it afterwards.
    objects: Vec<(String, Value)>,
    pod: Value,
}

/// What both said.
type Verdict = Result<VolumePlan, String>;

#[test]
fn claims_are_judged_as_kube_scheduler_judges_them() {
    let plane = ControlPlane::start(&Options { kube_scheduler: true, ..Options::default() }).unwrap();
    let (api, rng) = (plane.api(), &mut Rng::new(SEED));
    let drawn: Vec<Pair> = (0..PAIRS).map(|at| draw(at, rng)).collect();
    in_parallel(PAIRS, |at| {
        for (path, object) in &drawn[at].objects {
            let created = api.post(path, object)?;
            if path == VOLUMES {
                let path =
                    format!("{path}/{}/status", created["metadata"]["name"].as_str().unwrap_or_default());
                api.patch(&path, &json!({"status": {"phase": object["status"]["phase"]}}))?;
            }
        }
        Ok(())
    })
    .unwrap();
    let mut storage = stored(api);
    let occupants: Vec<Pod> = list(api, "/api/v1/pods").unwrap();
    for pod in &occupants {
        storage.occupy(pod);
    }
    in_parallel(PAIRS, |at| api.post(&pods(&drawn[at].pod), &drawn[at].pod).map(|_| ())).unwrap();
    let (mut differences, mut admitted, mut reasons) = (Vec::new(), 0, BTreeMap::new());
    for (at, pair) in drawn.iter().enumerate() {
        let pod: Pod = serde_json::from_value(pair.pod.clone()).unwrap();
        let node: Node =
            serde_json::from_value(api.get(&format!("/api/v1/nodes/disk-{at:03}")).unwrap()).unwrap();
        let there = occupants.iter().filter(|other| other.spec.node_name.as_deref() == Some(node.name()));
        let ours: Verdict = match VolumeRules::of(&pod, &storage) {
            Err(wait) => Err(wait.to_string()),
            Ok(rules) => rules.admits(&node, there).map_err(|refusal| refusal.to_string()),
        };
        let theirs = asked(api, &pod, ours.as_ref().ok());
        admitted += usize::from(theirs.is_ok());
        // Upstream may have several reasons; we stop at the first of them.
        let is_same = match (&ours, &theirs) {
            (Ok(ours), Ok(theirs)) => ours == theirs,
            (Err(ours), Err(theirs)) => theirs.split(", ").any(|reason| reason == ours),
            _ => false,
        };
        if is_same {
            *reasons.entry(outcome(&ours)).or_insert(0) += 1;
        }
        if !is_same {
            let objects: Vec<String> = pair.objects.iter().map(|(_, object)| object.to_string()).collect();
            differences.push(format!(
                "ours: {ours:?}\ntheirs: {theirs:?}\npod: {}\n{}",
                pair.pod,
                objects.join("\n")
            ));
        }
    }
    println!("{PAIRS} pods with claims, {admitted} admitted");
    for (reason, count) in &reasons {
        println!("{count:>6} {reason}");
    }
    assert!(differences.is_empty(), "{}:\n{}", differences.len(), differences.join("\n\n"));
    assert!((PAIRS / 5..PAIRS * 4 / 5).contains(&admitted), "{admitted} admitted");
    for outcome in OUTCOMES {
        assert!(reasons.contains_key(*outcome), "never the outcome: {outcome}");
    }
}

/// A verdict without names of claims and volumes, which are no reason of their own.
fn outcome(verdict: &Verdict) -> String {
    match verdict {
        Ok(plan) if !plan.bind.is_empty() => BINDS.to_owned(),
        Ok(plan) if !plan.provision.is_empty() => PROVISIONS.to_owned(),
        Ok(_) => NOTHING.to_owned(),
        Err(reason) => reason.split('"').step_by(2).collect::<Vec<_>>().join("…"),
    }
}

const BINDS: &str = "a volume is bound first";
const PROVISIONS: &str = "a volume is provisioned first";
const NOTHING: &str = "all volumes are there";

/// What the drawn pairs must have come to, said alike by both.
const OUTCOMES: &[&str] = &[
    BINDS,
    PROVISIONS,
    NOTHING,
    "persistentvolumeclaim … not found",
    "pod has unbound immediate PersistentVolumeClaims",
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
    "node(s) exceed max volume count",
    "node(s) didn't match PersistentVolume's node affinity",
    "node(s) didn't find available persistent volumes to bind",
    "node(s) did not have enough free storage",
    "node(s) had no available volume zone",
];

/// What became of the pod: bound, refused, or waiting for what was written for it.
fn asked(api: &Api, pod: &Pod, expected: Option<&VolumePlan>) -> Verdict {
    let began = Instant::now();
    let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace(), pod.name());
    let mut written = VolumePlan::default();
    while began.elapsed() < PATIENCE {
        match oracle::said(&api.get(&path).unwrap()) {
            Said::Bound(_) => return Ok(VolumePlan::default()),
            Said::Refused(message) => return Err(oracle::reasons(&message).join(", ")),
            _ => {}
        }
        written = plan(api, pod);
        if written != VolumePlan::default() && expected.is_none_or(|expected| *expected == written) {
            return Ok(written);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    if written == VolumePlan::default() { Err("nothing was said".to_owned()) } else { Ok(written) }
}

/// What was written for the claims of the pod, smallest claim first as ours are.
fn plan(api: &Api, pod: &Pod) -> VolumePlan {
    let mut plan = VolumePlan::default();
    let names = pod
        .spec
        .volumes
        .iter()
        .filter_map(|volume| Some(&volume.persistent_volume_claim.as_ref()?.claim_name));
    let volumes: Vec<Value> = list(api, VOLUMES).unwrap();
    for name in names {
        let path = format!("{}/{name}", pod.namespace());
        let owner = |volume: &&Value| {
            volume["spec"]["claimRef"]["name"] == **name && !volume["spec"]["claimRef"]["uid"].is_null()
        };
        if let Some(volume) = volumes.iter().find(owner) {
            plan.bind.push((path, volume["metadata"]["name"].as_str().unwrap_or_default().to_owned()));
        } else if api
            .get(&format!("{CLAIMS}/{name}"))
            .is_ok_and(|claim| !claim["metadata"]["annotations"][VolumePlan::SELECTED_NODE].is_null())
        {
            plan.provision.push(path);
        }
    }
    plan
}

fn stored(api: &Api) -> Storage {
    fn named<T: for<'a> serde::Deserialize<'a>>(api: &Api, path: &str) -> Vec<(String, T)> {
        let objects: Vec<Value> = list(api, path).unwrap();
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        objects.into_iter().map(|object| (name(&object), serde_json::from_value(object).unwrap())).collect()
    }
    let mut storage = Storage::default();
    let claims = named(api, CLAIMS).into_iter().map(|(name, claim)| (format!("default/{name}"), claim));
    storage.claims.extend(claims);
    storage.volumes.extend(named(api, VOLUMES));
    storage.classes.extend(named(api, "/apis/storage.k8s.io/v1/storageclasses"));
    storage.drivers.extend(named(api, "/apis/storage.k8s.io/v1/csidrivers"));
    storage.nodes.extend(named(api, "/apis/storage.k8s.io/v1/csinodes"));
    storage.capacities.extend(named(api, "/apis/storage.k8s.io/v1/csistoragecapacities"));
    storage.attachments.extend(named(api, "/apis/storage.k8s.io/v1/volumeattachments"));
    storage
}

fn draw(at: usize, rng: &mut Rng) -> Pair {
    let mut objects = vec![("/api/v1/nodes".to_owned(), node(at, rng))];
    let limited =
        json!([{"name": format!("disks-{at}"), "nodeID": "x", "allocatable": {"count": rng.between(0, 2)}}]);
    if rng.chance(30) {
        let node = json!({"metadata": {"name": format!("disk-{at:03}")}, "spec": {"drivers": limited}});
        objects.push(("/apis/storage.k8s.io/v1/csinodes".to_owned(), node));
    }
    objects.push(("/apis/storage.k8s.io/v1/storageclasses".to_owned(), class(at, rng)));
    if rng.chance(30) {
        let driver =
            json!({"metadata": {"name": format!("disks-{at}")}, "spec": {"storageCapacity": rng.chance(70)}});
        objects.push(("/apis/storage.k8s.io/v1/csidrivers".to_owned(), driver));
        let zone = json!({"matchLabels": {ZONE: one(&["a", "b"], rng)}});
        let room = json!({
            "metadata": {"name": format!("room-{at}"), "namespace": "default"},
            "storageClassName": format!("class-{at}"), "capacity": one(&["1Gi", "5Gi", "100Gi"], rng), "nodeTopology": zone,
        });
        objects.push(("/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities".to_owned(), room));
    }
    let name = format!("claim-{at}");
    let bound = rng.chance(45).then(|| format!("volume-{at}-0"));
    let volumes = rng.below(3) + u64::from(bound.is_some() && rng.chance(85));
    for number in 0..volumes {
        let owner = (number == 0).then_some(bound.as_ref()).flatten().map(|_| name.as_str());
        objects.push((VOLUMES.to_owned(), volume(at, number, owner, rng)));
    }
    let single = rng.chance(20);
    if rng.chance(95) {
        objects.push((CLAIMS.to_owned(), claim(at, bound.as_deref(), single, rng)));
    }
    if rng.chance(if single { 60 } else { 10 }) {
        objects.push(("/api/v1/namespaces/default/pods".to_owned(), pod(at, "holder", &name, true)));
    }
    Pair { objects, pod: pod(at, "pod", &name, false) }
}

fn node(at: usize, rng: &mut Rng) -> Value {
    let mut labels = json!({});
    if rng.chance(85) {
        labels[ZONE] = json!(one(&["a", "a", "b"], rng));
    }
    let room = json!({"cpu": "8", "memory": "8Gi", "pods": "10"});
    json!({"metadata": {"name": format!("disk-{at:03}"), "labels": labels}, "status": {"allocatable": room, "capacity": room}})
}

fn class(at: usize, rng: &mut Rng) -> Value {
    let mode = if rng.chance(92) { "WaitForFirstConsumer" } else { "Immediate" };
    let provisioner =
        if rng.chance(55) { format!("disks-{at}") } else { "kubernetes.io/no-provisioner".to_owned() };
    let mut class = json!({"metadata": {"name": format!("class-{at}")}, "provisioner": provisioner, "volumeBindingMode": mode});
    if rng.chance(40) {
        let zones = json!({"key": ZONE, "values": one(&[["a", "c"], ["b", "c"]], rng)});
        class["allowedTopologies"] = json!([{"matchLabelExpressions": [zones]}]);
    }
    class
}

fn volume(at: usize, number: u64, owner: Option<&str>, rng: &mut Rng) -> Value {
    let mut volume = json!({
        "metadata": {"name": format!("volume-{at}-{number}"), "labels": {"fast": one(&["yes", "no"], rng)}},
        "spec": {
            "accessModes": one(&[&["ReadWriteOnce"][..], &["ReadWriteOnce", "ReadOnlyMany"], &["ReadWriteOncePod"], &["ReadOnlyMany"]], rng),
            "storageClassName": format!("class-{at}"),
            "capacity": {"storage": one(&["1Gi", "5Gi", "10Gi"], rng)},
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": format!("disks-{at}"), "volumeHandle": format!("v{number}")},
        },
        "status": {"phase": if rng.chance(85) { "Available" } else { "Released" }},
    });
    if rng.chance(60) {
        let zone =
            json!({"key": ZONE, "operator": one(&["In", "NotIn"], rng), "values": [one(&["a", "b"], rng)]});
        volume["spec"]["nodeAffinity"] =
            json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}});
    }
    if rng.chance(40) {
        let key = one(&[ZONE, "failure-domain.beta.kubernetes.io/zone"], rng);
        volume["metadata"]["labels"][key] = json!(one(&["a", "b", "a__b"], rng));
    }
    if let Some(owner) = owner {
        volume["spec"]["claimRef"] = json!({"name": owner, "namespace": "default"});
        volume["status"]["phase"] = json!("Bound");
    }
    volume
}

fn claim(at: usize, bound: Option<&str>, single: bool, rng: &mut Rng) -> Value {
    let mode = if single { "ReadWriteOncePod" } else { "ReadWriteOnce" };
    let mut claim = json!({
        "metadata": {"name": format!("claim-{at}"), "annotations": {}},
        "spec": {
            "accessModes": [mode],
            "storageClassName": format!("class-{at}"),
            "resources": {"requests": {"storage": one(&["1Gi", "4Gi", "6Gi"], rng)}},
        },
    });
    if let Some(volume) = bound {
        claim["spec"]["volumeName"] = json!(volume);
        if rng.chance(85) {
            claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
        }
    } else if rng.chance(20) {
        claim["spec"]["selector"] = json!({"matchLabels": {"fast": "yes"}});
    } else if rng.chance(10) {
        let chosen = format!("disk-{:03}", at + usize::from(rng.chance(50)));
        claim["metadata"]["annotations"][VolumePlan::SELECTED_NODE] = json!(chosen);
    }
    claim
}

/// Pinned to the node, or put there by hand.
fn pod(at: usize, name: &str, claim: &str, is_there: bool) -> Value {
    let node = format!("disk-{at:03}");
    let mut spec = json!({
        "containers": [{"name": "main", "image": "none"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
    });
    if is_there {
        spec["nodeName"] = json!(node);
    } else {
        pin_to(&mut spec, &node, Pin::Field);
    }
    json!({"metadata": {"name": format!("{name}-{at}"), "namespace": "default"}, "spec": spec})
}
