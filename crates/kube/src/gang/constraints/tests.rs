//! Lifecycle and engine together, with an API server that does at once what it is asked for.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{Epoch, Input, QueueName, Timestamp};
use phalanx_shell::{Config, Engine};
use serde_json::{Value, json};

use crate::gang::turn::step;
use crate::gang::{Lifecycle, Options};
use crate::messages::{Call, Event, Step, Stored};

mod divided;
mod pools;
mod replicas;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
/// Not a level of the network, whichever preset is taken.
const ROOM: &str = "example.com/room";

pub(in crate::gang) struct Play {
    pub(in crate::gang) lifecycle: Lifecycle,
    engine: Engine,
    now: Timestamp,
    has_begun: bool,
    pub(in crate::gang) pods: BTreeMap<String, Value>,
    /// Nodes of pods that were bound.
    pub(in crate::gang) bound: BTreeMap<String, String>,
    prepared: Vec<Value>,
    pub(in crate::gang) reasons: BTreeMap<String, String>,
    /// The words of their conditions.
    pub(in crate::gang) words: BTreeMap<String, &'static str>,
    /// Why pods were taken away.
    pub(in crate::gang) stops: Vec<String>,
    /// Jobs that were handed to the engine.
    pub(in crate::gang) submissions: usize,
    pub(in crate::gang) nominated: BTreeMap<String, Option<String>>,
}

impl Play {
    pub(in crate::gang) fn of(nodes: usize) -> Self {
        let mut play = Self::listing(nodes);
        play.turn();
        play
    }

    /// Before the first lists are complete. Nodes `a1`, `b1`, `a2` … in zones `a` and `b`, of 8 CPUs each, and by turns in one of
    /// three rooms.
    pub(in crate::gang) fn listing(nodes: usize) -> Self {
        // Most tests are about what follows a preemption.
        Self::listing_with(nodes, 0)
    }

    /// The same with a `minRun` of priorities that no policy names.
    pub(in crate::gang) fn listing_with(nodes: usize, min_run_ms: u64) -> Self {
        let lifecycle = Lifecycle::new(Options {
            ready_ms: 60_000,
            vacant_ms: 1_000,
            min_run_ms,
            ..Options::of_queue(QueueName::new("default").unwrap())
        });
        let mut play = Self {
            lifecycle,
            engine: Engine::new(Epoch(1), Config::default()),
            now: NOW,
            has_begun: false,
            pods: BTreeMap::new(),
            bound: BTreeMap::new(),
            prepared: Vec::new(),
            reasons: BTreeMap::new(),
            words: BTreeMap::new(),
            stops: Vec::new(),
            submissions: 0,
            nominated: BTreeMap::new(),
        };
        for at in 0..nodes {
            let node = serde_json::from_value(node_object(at)).unwrap();
            play.lifecycle.observe(NOW, Event::Node(Box::new(node)));
        }
        play.lifecycle.observe(NOW, Event::Namespace { name: "x".to_owned(), labels: Some(BTreeMap::new()) });
        play
    }

    /// A pod with the label `app`, of 1 CPU, and what else its specification says.
    fn pod(&mut self, name: &str, app: &str, spec: &Value) {
        self.member(name, app, None, spec);
    }

    /// One of a gang of so many.
    fn member(&mut self, name: &str, app: &str, gang: Option<(&str, u32)>, spec: &Value) {
        let mut labels = json!({ "app": app });
        if let Some((gang, size)) = gang {
            labels["pod-group.scheduling.sigs.k8s.io/name"] = json!(gang);
            labels["pod-group.scheduling.sigs.k8s.io/min-available"] = json!(size.to_string());
        }
        let mut whole = json!({
            "schedulerName": "phalanx",
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }],
        });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let metadata = json!({ "namespace": "x", "name": name, "uid": name, "labels": labels });
        let pod = json!({ "metadata": metadata, "spec": whole });
        self.see(name, pod);
    }

    pub(in crate::gang) fn see(&mut self, name: &str, pod: Value) {
        self.pods.insert(name.to_owned(), pod.clone());
        self.lifecycle.observe(self.now, Event::Pod(Box::new(serde_json::from_value(pod).unwrap())));
    }

    pub(in crate::gang) fn node(&mut self, node: Value) {
        self.lifecycle.observe(self.now, Event::Node(Box::new(serde_json::from_value(node).unwrap())));
    }

    /// One more node, of those that [`Self::listing`] counts.
    pub(in crate::gang) fn add_node(&mut self, at: usize) {
        self.node(node_object(at));
    }

    /// A pod of somebody else takes so many CPUs of a node.
    pub(in crate::gang) fn fill(&mut self, node: &str, cpu: &str) {
        let resources = json!({ "requests": { "cpu": cpu } });
        let spec = json!({ "schedulerName": "other", "nodeName": node,
            "containers": [{ "name": "c", "resources": resources }] });
        let name = format!("fills-{node}");
        self.see(&name, json!({ "metadata": { "namespace": "x", "name": name, "uid": name }, "spec": spec }));
    }

    pub(in crate::gang) fn event(&mut self, event: Event) {
        self.lifecycle.observe(self.now, event);
    }

    /// An owner or a group.
    pub(in crate::gang) fn object(&mut self, object: &Value) {
        let object = serde_json::from_value(object.clone()).unwrap();
        self.lifecycle.observe(self.now, Event::Object(Box::new(object)));
    }

    /// The API server refuses to list this, or does no longer.
    pub(in crate::gang) fn unreadable(&mut self, list: &'static str, is_unreadable: bool) {
        self.lifecycle.observe(self.now, Event::Unreadable { list, is_unreadable });
    }

    pub(in crate::gang) fn object_gone(&mut self, object: &Value) {
        let object = serde_json::from_value(object.clone()).unwrap();
        self.lifecycle.observe(self.now, Event::ObjectGone(Box::new(object)));
    }

    pub(in crate::gang) fn delete(&mut self, name: &str) {
        let pod = self.pods.remove(name).unwrap();
        self.bound.remove(name);
        let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
        let (namespace, name) = ("x".to_owned(), name.to_owned());
        self.lifecycle.observe(self.now, Event::PodGone { namespace, name, uid });
    }

    fn store(&mut self, stored: Stored) {
        self.lifecycle.observe(self.now, Event::Storage(stored));
    }

    /// Until nothing happens any more.
    pub(in crate::gang) fn turn(&mut self) {
        self.turn_with(Vec::new());
    }

    /// So much later, until nothing happens any more.
    pub(in crate::gang) fn wait(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
        let facts = step(&mut self.lifecycle, &mut self.engine, self.now, &[]);
        self.answer();
        self.turn_with(facts);
    }

    fn turn_with(&mut self, mut more: Vec<Input>) {
        for _ in 0..1_000 {
            let mut facts = std::mem::take(&mut more);
            if std::mem::replace(&mut self.has_begun, true) {
                facts.extend(self.lifecycle.settle(self.now));
            } else {
                facts.extend(self.lifecycle.begin(self.now));
            }
            self.submissions +=
                facts.iter().filter(|fact| matches!(fact, Input::JobSubmitted { .. })).count();
            // What was answered may be news.
            let has_answered = self.answer();
            if facts.is_empty() && !has_answered {
                return;
            }
            more = step(&mut self.lifecycle, &mut self.engine, self.now, &facts);
            self.answer();
        }
        panic!("it never comes to rest: {:?}", self.bound);
    }

    /// Whether there was something to do.
    fn answer(&mut self) -> bool {
        let calls = self.lifecycle.calls();
        let has_calls = !calls.is_empty();
        for call in calls {
            match call {
                Call::Bind { pod, node, member, annotations, .. } => {
                    self.lifecycle.observe(self.now, Event::Bound { member, result: Ok(()) });
                    let name = pod.name.to_string();
                    let mut object = self.pods[&name].clone();
                    object["spec"]["nodeName"] = json!(node.as_str());
                    object["metadata"]["annotations"] = json!(annotations);
                    object["status"] = json!({ "phase": "Running" });
                    self.bound.insert(name.clone(), node.to_string());
                    self.see(&name, object);
                }
                Call::Prepare { steps, .. } => {
                    self.prepared.extend(steps.into_iter().map(|step| match step {
                        Step::Patch { path, patch } => json!({ "path": path, "patch": patch }),
                        Step::Claim(_) => panic!("{step:?}"),
                    }));
                }
                Call::Explain { pods, message, reason, .. } => {
                    self.words.extend(pods.iter().map(|pod| (pod.name.to_string(), reason)));
                    self.reasons.extend(pods.iter().map(|pod| (pod.name.to_string(), message.to_string())))
                }
                Call::Nominate { pods } => {
                    let node = |node: Option<phalanx_model::NodeName>| node.map(|node| node.to_string());
                    self.nominated.extend(pods.into_iter().map(|(pod, to)| (pod.name.to_string(), node(to))));
                }
                Call::Stop { pods, note, .. } => {
                    self.stops.push(note);
                    pods.iter().for_each(|pod| self.delete(&pod.name));
                }
                _ => {}
            }
        }
        has_calls
    }

    /// Zones, or nodes, of bound pods whose name begins so.
    fn places(&self, prefix: &str) -> Vec<&str> {
        self.bound.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, node)| &**node).collect()
    }

    fn zones(&self, prefix: &str) -> BTreeMap<&str, usize> {
        let mut zones = BTreeMap::new();
        for node in self.places(prefix) {
            *zones.entry(&node[..1]).or_insert(0) += 1;
        }
        zones
    }
}

fn node_name(at: usize) -> String {
    format!("{}{}", ["a", "b"][at % 2], at / 2 + 1)
}

pub(in crate::gang) fn node_object(at: usize) -> Value {
    let name = node_name(at);
    json!({
        "metadata": { "name": name, "labels": { ZONE: name[..1], HOST: name, ROOM: format!("r{}", at % 3) } },
        "status": { "allocatable": { "cpu": "8", "memory": "8Gi", "pods": "20" } },
    })
}

fn rule(kind: &str, app: &str, key: &str) -> Value {
    let term = json!({ "topologyKey": key, "labelSelector": { "matchLabels": { "app": app } } });
    json!({ "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": [term] } } })
}

fn spread(app: &str) -> Value {
    let selector = json!({ "matchLabels": { "app": app } });
    let rule = json!({ "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector });
    json!({ "topologySpreadConstraints": [rule] })
}

#[test]
fn pods_of_one_gang_and_of_many_are_one_per_node_where_they_say_so() {
    let mut play = Play::of(4);
    for at in 0..3 {
        let apart = rule("podAntiAffinity", "ring", HOST);
        play.member(&format!("ring-{at}"), "ring", Some(("ring", 3)), &apart);
    }
    play.turn();
    let nodes: BTreeSet<&str> = play.places("ring").into_iter().collect();
    assert_eq!(nodes.len(), 3, "{:?}", play.bound);
    for at in 0..5 {
        play.pod(&format!("web-{at}"), "web", &rule("podAntiAffinity", "web", HOST));
    }
    play.turn();
    let nodes: BTreeSet<&str> = play.places("web").into_iter().collect();
    assert_eq!((nodes.len(), play.places("web").len()), (4, 4), "the fifth waits: {:?}", play.bound);
    let gone = play.places("web-0").is_empty();
    let first = if gone { "web-1" } else { "web-0" };
    let freed = play.bound[first].clone();
    let waits = (0..5).map(|at| format!("web-{at}")).find(|name| !play.bound.contains_key(name)).unwrap();
    play.delete(first);
    play.turn();
    assert_eq!(play.bound[&waits], freed);
}

#[test]
fn pods_created_at_once_spread_over_zones_as_far_as_they_must() {
    let mut play = Play::of(4);
    for at in 0..7 {
        play.pod(&format!("web-{at}"), "web", &spread("web"));
    }
    play.turn();
    let zones = play.zones("web");
    assert_eq!(zones.values().sum::<usize>(), 7);
    assert!(zones["a"].abs_diff(zones["b"]) <= 1, "{zones:?}");
}

#[test]
fn anti_affinity_over_zones_holds_among_pods_decided_in_one_moment() {
    let mut play = Play::of(4);
    for at in 0..3 {
        play.pod(&format!("db-{at}"), "db", &rule("podAntiAffinity", "db", ZONE));
    }
    play.turn();
    assert_eq!(play.zones("db"), [("a", 1), ("b", 1)].into());
}

#[test]
fn nobody_is_put_beside_a_pod_that_does_not_want_it_there() {
    let mut play = Play::of(4);
    play.pod("guard", "guard", &rule("podAntiAffinity", "web", ZONE));
    for at in 0..4 {
        play.pod(&format!("web-{at}"), "web", &json!({}));
    }
    play.turn();
    let guarded = &play.bound["guard"][..1];
    let zones = play.zones("web");
    assert_eq!(zones.values().sum::<usize>(), 4);
    assert!(!zones.contains_key(guarded), "{:?}", play.bound);
}

#[test]
fn pods_that_want_each_other_share_a_zone_whoever_is_first() {
    let mut play = Play::of(8);
    for at in 0..6 {
        play.pod(&format!("near-{at}"), "near", &rule("podAffinity", "near", ZONE));
    }
    play.turn();
    assert_eq!(play.places("near").len(), 6);
    assert_eq!(play.zones("near").len(), 1, "{:?}", play.bound);
}

#[test]
fn a_gang_whose_pods_want_each_other_is_kept_in_one_domain() {
    // The first zone has three nodes, of which one is full.
    let mut play = Play::of(6);
    let full = json!({ "schedulerName": "other", "nodeName": "a1",
        "containers": [{ "name": "c", "resources": { "requests": { "cpu": "8" } } }] });
    play.pod("full", "full", &full);
    let mut near = rule("podAffinity", "near", ZONE);
    near["containers"] = json!([{ "name": "c", "resources": { "requests": { "cpu": "6" } } }]);
    for at in 0..3 {
        play.member(&format!("near-{at}"), "near", Some(("near", 3)), &near);
    }
    play.turn();
    assert_eq!(play.zones("near"), [("b", 3)].into(), "{:?} {:?}", play.bound, play.reasons);
}

#[test]
fn a_gang_that_does_not_hold_where_it_fits_best_is_tried_on_different_nodes() {
    let mut play = Play::of(4);
    let mut even = spread("even");
    even["topologySpreadConstraints"][0]["topologyKey"] = json!(HOST);
    for at in 0..3 {
        play.member(&format!("even-{at}"), "even", Some(("even", 3)), &even);
    }
    play.turn();
    let nodes: BTreeSet<&str> = play.places("even").into_iter().collect();
    assert_eq!(nodes.len(), 3, "{:?} {:?}", play.bound, play.reasons);
}

/// A job of Kubeflow whose roles have so many pods of a template each.
fn kubeflow(kind: &str, replicas: &str, roles: &Value, min: Option<u32>) -> Value {
    let mut spec = json!({ replicas: roles });
    if let Some(min) = min {
        spec["runPolicy"] = json!({ "schedulingPolicy": { "minAvailable": min } });
    }
    json!({
        "apiVersion": "kubeflow.org/v1", "kind": kind,
        "metadata": { "namespace": "x", "name": "job", "uid": "u" }, "spec": spec,
    })
}

/// A pod of such a job; `generation` tells it from those of the same name before it.
fn of_kubeflow(kind: &str, role: &str, index: u32, generation: u32, spec: &Value) -> (String, Value) {
    let name = format!("job-{role}-{index}");
    let owner = json!([{ "apiVersion": "kubeflow.org/v1", "kind": kind, "name": "job", "uid": "u", "controller": true }]);
    let labels = json!({ "training.kubeflow.org/job-name": "job", "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": index.to_string(), "app": "job" });
    let uid = format!("{name}-{generation}");
    let metadata =
        json!({ "namespace": "x", "name": name, "uid": uid, "labels": labels, "ownerReferences": owner });
    (name, json!({ "metadata": metadata, "spec": spec }))
}

fn asking(cpu: &str, more: &Value) -> Value {
    let mut spec = json!({ "schedulerName": "phalanx",
        "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

fn mpi_job(launcher: &Value) -> Value {
    let worker = json!({ "replicas": 2, "template": { "spec": asking("1", &json!({})) } });
    let launcher = json!({ "replicas": 1, "template": { "spec": launcher, "metadata": { "labels": { "app": "job" } } } });
    kubeflow("MPIJob", "mpiReplicaSpecs", &json!({ "Launcher": launcher, "Worker": worker }), None)
}

#[test]
fn a_launcher_that_comes_when_its_workers_run_is_bound_to_the_place_that_was_kept() {
    let mut play = Play::of(2);
    let spec = asking("1", &json!({}));
    play.object(&mpi_job(&spec));
    for index in 0..2 {
        let (name, pod) = of_kubeflow("MPIJob", "worker", index, 1, &spec);
        play.see(&name, pod);
    }
    play.turn();
    assert_eq!(play.places("job-worker").len(), 2, "{:?}", play.reasons);
    let (launcher, pod) = of_kubeflow("MPIJob", "launcher", 0, 1, &spec);
    let mut next = Play::listing(2);
    next.object(&mpi_job(&spec));
    let mut all = play.pods.clone();
    all.insert(launcher.clone(), pod.clone());
    for (name, pod) in all {
        next.see(&name, pod);
    }
    next.turn();
    assert_eq!(next.places(&launcher).len(), 1, "a successor does it as well: {:?}", next.reasons);
    play.see(&launcher, pod);
    play.turn();
    assert_eq!(play.places(&launcher).len(), 1, "{:?}", play.reasons);
}

/// It was bound beside what it must not be with.
#[test]
fn a_launcher_that_may_not_be_where_its_place_was_kept_has_its_gang_start_again_elsewhere() {
    let mut play = Play::of(2);
    let launcher = asking("1", &rule("podAntiAffinity", "loud", HOST));
    play.object(&mpi_job(&launcher));
    let workers = |play: &mut Play, generation: u32| {
        for index in 0..2 {
            let (name, pod) = of_kubeflow("MPIJob", "worker", index, generation, &asking("1", &json!({})));
            play.see(&name, pod);
        }
        play.turn();
    };
    workers(&mut play, 1);
    let kept = play.bound["job-worker-0"].clone();
    assert_eq!(play.zones("job-worker").values().max(), Some(&2), "all of it is on one node");
    play.pod("loud", "loud", &json!({ "schedulerName": "other", "nodeName": kept }));
    let (name, pod) = of_kubeflow("MPIJob", "launcher", 0, 1, &launcher);
    let mut next = Play::listing(2);
    next.object(&mpi_job(&launcher));
    for (name, pod) in play.pods.clone().into_iter().chain([(name.clone(), pod.clone())]) {
        next.see(&name, pod);
    }
    next.bound.clone_from(&play.bound);
    play.see(&name, pod);
    for play in [&mut play, &mut next] {
        play.turn();
        assert_eq!(play.places("job-launcher"), Vec::<&str>::new());
        let why = "spec.affinity.podAntiAffinity of job-launcher-0";
        assert!(play.stops.iter().any(|note| note.contains(why)), "{:?}", play.stops);
        assert!(play.bound.is_empty(), "it holds nothing that it cannot use: {:?}", play.bound);
    }
    play.now = play.now.plus(60_000);
    workers(&mut play, 2);
    assert_eq!(play.places("job").len(), 3, "{:?}", play.reasons);
    assert_ne!(play.bound["job-launcher-0"], kept);
}

/// What admission had added to its template was not counted, and it was bound over a full node.
#[test]
fn a_launcher_that_asks_for_more_than_its_template_is_counted_with_that() {
    let more = asking("3", &json!({}));
    for (beside, is_room) in [("2", true), ("5", false)] {
        let mut play = Play::of(2);
        play.object(&mpi_job(&asking("1", &json!({}))));
        for index in 0..2 {
            let (name, pod) = of_kubeflow("MPIJob", "worker", index, 1, &asking("1", &json!({})));
            play.see(&name, pod);
        }
        play.turn();
        let kept = play.bound["job-worker-0"].clone();
        let mut other = asking(beside, &json!({ "nodeSelector": { HOST: kept } }));
        play.pod("other", "other", &other);
        play.turn();
        assert_eq!(play.bound.get("other"), Some(&kept));
        let (name, pod) = of_kubeflow("MPIJob", "launcher", 0, 1, &more);
        play.see(&name, pod);
        play.turn();
        if !is_room {
            assert!(!play.bound.contains_key("job-launcher-0"));
            assert!(play.stops.iter().any(|note| note.contains("Insufficient cpu")), "{:?}", play.stops);
            continue;
        }
        assert_eq!(play.bound["job-launcher-0"], kept);
        // Seven of eight are held.
        for (cpu, fits) in [("2", false), ("1", true)] {
            other["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
            play.pod(&format!("late-{cpu}"), "other", &other);
            play.turn();
            assert_eq!(play.bound.contains_key(&format!("late-{cpu}")), fits, "{:?}", play.reasons);
        }
        play.delete("job-launcher-0");
        play.turn();
        assert!(
            play.bound.contains_key("late-2"),
            "what it held beyond its place is free: {:?}",
            play.reasons
        );
    }
}

/// It was bound beside what it must not be with.
#[test]
fn a_pod_that_comes_to_a_gang_that_goes_on_without_it_waits_until_its_rules_hold() {
    let mut play = Play::of(2);
    let spec = asking("1", &rule("podAntiAffinity", "loud", HOST));
    let role = json!({ "replicas": 3, "template": { "spec": spec } });
    play.object(&kubeflow("PyTorchJob", "pytorchReplicaSpecs", &json!({ "Worker": role }), Some(2)));
    for index in 0..3 {
        let (name, pod) = of_kubeflow("PyTorchJob", "worker", index, 1, &spec);
        play.see(&name, pod);
    }
    play.turn();
    assert_eq!(play.places("job-worker").len(), 3, "{:?}", play.reasons);
    let node = play.bound["job-worker-2"].clone();
    play.delete("job-worker-2");
    play.turn();
    play.now = play.now.plus(2_000);
    play.turn();
    play.pod("loud", "loud", &json!({ "schedulerName": "other", "nodeName": node }));
    let (name, pod) = of_kubeflow("PyTorchJob", "worker", 2, 2, &spec);
    play.see(&name, pod);
    play.turn();
    assert_eq!(play.places("job-worker").len(), 2, "the others go on: {:?} {:?}", play.bound, play.stops);
    let why = &play.reasons["job-worker-2"];
    assert!(why.contains("spec.affinity.podAntiAffinity of job-worker-2"), "{why}");
    play.delete("loud");
    play.now = play.now.plus(super::PATIENCE_MS);
    play.turn();
    assert_eq!(play.bound.get("job-worker-2"), Some(&node), "{:?}", play.reasons);
}

fn claim(name: &str, volume: Option<&str>) -> Stored {
    let mut claim = json!({
        "metadata": { "name": name, "namespace": "x", "uid": format!("uid-{name}"), "resourceVersion": "7" },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "resources": { "requests": { "storage": "5Gi" } } },
    });
    if let Some(volume) = volume {
        claim["spec"]["volumeName"] = json!(volume);
        claim["metadata"]["annotations"] = json!({ "pv.kubernetes.io/bind-completed": "yes" });
    }
    Stored::Claim(format!("x/{name}"), Some(Box::new(serde_json::from_value(claim).unwrap())))
}

/// In one zone.
fn volume(name: &str, zone: &str) -> Stored {
    let zone = json!({ "key": ZONE, "operator": "In", "values": [zone] });
    let volume = json!({
        "metadata": { "name": name, "resourceVersion": "3" },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "local", "capacity": { "storage": "10Gi" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [zone] }] } } },
        "status": { "phase": "Available" },
    });
    Stored::Volume(name.to_owned(), Some(Box::new(serde_json::from_value(volume).unwrap())))
}

fn class(provisioner: &str) -> Stored {
    let class = json!({ "metadata": { "name": "local" }, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer" });
    Stored::Class("local".to_owned(), Some(Box::new(serde_json::from_value(class).unwrap())))
}

fn uses(claim: &str) -> Value {
    json!({ "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }] })
}

#[test]
fn a_pod_waits_for_its_claim_and_goes_where_the_volume_is() {
    let mut play = Play::of(4);
    play.pod("user", "user", &uses("data"));
    play.turn();
    assert_eq!(play.reasons["user"], "pod user: persistentvolumeclaim \"data\" not found");
    play.store(volume("pv", "b"));
    play.store(claim("data", Some("pv")));
    play.turn();
    assert_eq!(play.zones("user"), [("b", 1)].into());
    assert!(play.prepared.is_empty(), "it is bound already");
}

#[test]
fn a_volume_is_given_before_any_pod_of_the_gang_is_bound() {
    let mut play = Play::of(4);
    play.store(class("kubernetes.io/no-provisioner"));
    play.store(volume("pv", "b"));
    play.store(claim("data", None));
    play.member("ring-0", "ring", Some(("ring", 2)), &uses("data"));
    play.member("ring-1", "ring", Some(("ring", 2)), &json!({}));
    play.turn();
    assert_eq!(play.places("ring"), Vec::<&str>::new(), "the claim is not bound yet");
    let [patch] = play.prepared.as_slice() else { panic!("{:?}", play.prepared) };
    assert_eq!(patch["path"], "/api/v1/persistentvolumes/pv");
    assert_eq!(patch["patch"]["metadata"]["resourceVersion"], "3");
    assert_eq!(patch["patch"]["spec"]["claimRef"]["uid"], "uid-data");
    play.store(claim("data", Some("pv")));
    play.turn();
    assert_eq!(play.places("ring").len(), 2);
    assert_eq!(&play.bound["ring-0"][..1], "b");
}

#[test]
fn two_claims_of_one_gang_are_not_given_the_same_volume() {
    let mut play = Play::of(2);
    play.store(class("kubernetes.io/no-provisioner"));
    play.store(volume("pv", "b"));
    for name in ["one", "two"] {
        play.store(claim(name, None));
        play.member(name, "ring", Some(("ring", 2)), &uses(name));
    }
    play.turn();
    assert!(play.prepared.is_empty() && play.bound.is_empty());
    assert!(play.reasons["one"].contains("spec.volumes of two on b1"), "{:?}", play.reasons);
    play.store(volume("pv-2", "b"));
    play.now = play.now.plus(super::PATIENCE_MS);
    play.turn();
    let paths: BTreeSet<&str> = play.prepared.iter().filter_map(|patch| patch["path"].as_str()).collect();
    assert_eq!(paths, ["/api/v1/persistentvolumes/pv", "/api/v1/persistentvolumes/pv-2"].into());
}

#[test]
fn where_no_volume_could_be_made_another_node_is_tried() {
    let mut play = Play::of(2);
    play.store(class("disks"));
    play.store(claim("data", None));
    play.pod("user", "user", &uses("data"));
    play.turn();
    let node = |patch: &Value| {
        patch["patch"]["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].clone()
    };
    let first = node(play.prepared.first().unwrap());
    let chosen = |node: &Value| {
        let Stored::Claim(path, Some(mut of)) = claim("data", None) else { unreachable!() };
        let text = node.as_str().unwrap().to_owned();
        of.metadata.annotations = Some([("volume.kubernetes.io/selected-node".to_owned(), text)].into());
        Stored::Claim(path, Some(of))
    };
    play.store(chosen(&first));
    play.turn();
    assert_eq!(play.prepared.len(), 1, "it waits");
    play.store(claim("data", None));
    play.turn();
    let second = node(play.prepared.last().unwrap());
    assert_eq!(play.prepared.len(), 2);
    assert_ne!(first, second);
    play.store(chosen(&second));
    play.store(volume("made", if second == "b1" { "b" } else { "a" }));
    play.store(claim("data", Some("made")));
    play.turn();
    assert_eq!(json!(play.bound["user"]), second);
}

#[test]
fn what_was_given_is_free_again_when_the_start_comes_to_nothing() {
    let mut play = Play::of(2);
    play.store(class("kubernetes.io/no-provisioner"));
    play.store(volume("pv", "b"));
    play.store(claim("data", None));
    play.pod("user", "user", &uses("data"));
    play.turn();
    assert_eq!(play.prepared.len(), 1);
    play.delete("user");
    play.turn();
    play.store(claim("other", None));
    play.pod("next", "next", &uses("other"));
    play.turn();
    assert_eq!(play.prepared.len(), 2);
    assert_eq!(play.prepared[1]["patch"]["spec"]["claimRef"]["name"], "other");
}

#[test]
fn a_successor_finds_ranks_where_they_are_though_their_claims_are_bound_by_now() {
    let mut play = Play::of(4);
    play.store(class("kubernetes.io/no-provisioner"));
    for (name, zone) in [("pv-0", "a"), ("pv-1", "b")] {
        play.store(volume(name, zone));
    }
    // Requests alternate: ranks are not in the order of names.
    for at in 0..4 {
        let spec = if at % 2 == 0 { uses("data") } else { json!({}) };
        play.member(&format!("ring-{at}"), "ring", Some(("ring", 4)), &spec);
    }
    play.store(claim("data", None));
    play.turn();
    play.store(claim("data", Some("pv-0")));
    play.turn();
    assert_eq!(play.places("ring").len(), 4, "{:?}", play.reasons);
    let (pods, bound) = (play.pods.clone(), play.bound.clone());
    let mut next = Play::listing(4);
    for (name, pod) in pods {
        next.see(&name, pod);
    }
    next.store(volume("pv-0", "a"));
    next.store(claim("data", Some("pv-0")));
    next.turn();
    let gangs = next.lifecycle.gangs.values().filter_map(|gang| gang.job.as_ref());
    let runs: Vec<_> = gangs.filter_map(|job| Some((job, job.run.as_ref()?))).collect();
    let [(job, run)] = runs.as_slice() else { panic!("it is not taken over") };
    for (rank, seat) in job.seats.iter().enumerate() {
        assert_eq!(run.placement.slots[rank].node.as_str(), bound[&**seat.pod.as_ref().unwrap()]);
    }
    assert!(!run.is_stopping());
}
