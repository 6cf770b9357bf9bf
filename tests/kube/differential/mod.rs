//! Random pods and nodes, judged by the real kube-scheduler and by ours.
//!
//! Every pod is pinned to one node, so that what becomes of it is the verdict on that pair. Both judge the objects
//! that the API server keeps, defaults and admission included. What differs must have one of the names in
//! [`explanation`], or the test fails and shows the pair.

mod draw;
mod oracle;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_controlplane::{Api, ControlPlane, Error, Options, in_parallel};
use phalanx_kube::api::{Node, Pod};
use phalanx_kube::filter::{
    Capacity, Held, Namespaces, NodeTerms, Refusal, Requirements, Surroundings, gate,
};
use phalanx_sim::Rng;
use serde_json::{Value, json};

use draw::Pin;
use oracle::{Oracle, Said};

const SEED: u64 = 1_790_036_363;
const NODES: usize = 100;
/// One pod for each node, decided at the same time: no two of them meet.
const ROUNDS: usize = 18;
/// Pods that look at each other, decided one after another.
const NEIGHBOURS: usize = 600;
/// On so many of the nodes, so that they meet.
const NEIGHBOURHOOD: u64 = 30;

/// What we say of a pair, in upstream's words where it is a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ours {
    Admitted,
    Refused(Vec<String>),
    Gated,
}

/// A cluster of drawn nodes, and what each of them holds.
struct World {
    plane: ControlPlane,
    oracle: Oracle,
    nodes: Vec<Node>,
    /// By the name of the node: the pods that were bound there.
    bound: BTreeMap<String, Vec<Pod>>,
    differences: Vec<String>,
    explained: BTreeMap<&'static str, usize>,
    pairs: usize,
    admitted: usize,
    /// How often each reason was seen from both.
    reasons: BTreeMap<String, usize>,
    /// How often both refused a pod that would have been admitted without this.
    decisive: BTreeMap<&'static str, usize>,
}

#[test]
fn pods_are_judged_as_kube_scheduler_judges_them() {
    let mut rng = Rng::new(SEED);
    let mut world = World::start(&mut rng);
    for round in 0..ROUNDS {
        world.all_nodes_at_once(round, &mut rng);
    }
    world.clear();
    world.make_room();
    for number in 0..NEIGHBOURS {
        world.one_among_others(number, &mut rng);
    }
    println!("{} pairs, {} admitted; explained: {:?}", world.pairs, world.admitted, world.explained);
    for (reason, count) in &world.reasons {
        println!("{count:>6} {reason}");
    }
    assert!(world.differences.is_empty(), "{}:\n{}", world.differences.len(), world.differences.join("\n\n"));
    assert!(world.pairs >= 2_000, "only {} pairs", world.pairs);
    // A test of nothing but refusals, or of none, would show little.
    assert!((world.pairs / 5..world.pairs * 4 / 5).contains(&world.admitted), "{} admitted", world.admitted);
    println!("decisive: {:?}", world.decisive);
    for what in DECISIVE {
        assert!(world.decisive.get(what).is_some_and(|count| *count >= 3), "too rarely decisive: {what}");
    }
    for reason in REASONS {
        assert!(world.reasons.get(*reason).is_some_and(|count| *count >= 3), "too rarely told: {reason}");
    }
}

/// Both say that a gate holds it.
const GATED: &str = "a scheduling gate";

/// Parts of a pod's request that are easily overlooked: each alone has to have kept some pods out.
const DECISIVE: &[&str] = &["overhead", "pod-level resources", "sidecars"];

/// The pod as if it did not say this.
fn without(what: &str, pod: &Pod) -> Pod {
    let mut pod = json!(pod);
    let spec = pod["spec"].as_object_mut().unwrap();
    match what {
        "overhead" => drop(spec.remove("overhead")),
        "pod-level resources" => drop(spec.remove("resources")),
        _ => {
            let init = spec.get_mut("initContainers").and_then(Value::as_array_mut);
            init.into_iter().for_each(|all| all.retain(|one| one["restartPolicy"] != "Always"));
        }
    }
    serde_json::from_value(pod).unwrap()
}

/// What the drawn pairs must have led to, so that none of it goes unasked.
const REASONS: &[&str] = &[
    "node(s) were unschedulable",
    "node(s) had untolerated taint(s)",
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) didn't match Pod's required features",
    "node(s) didn't have free ports for the requested pod ports",
    "Too many pods",
    "Insufficient cpu",
    "Insufficient memory",
    "Insufficient ephemeral-storage",
    "Insufficient nvidia.com/gpu",
    "Insufficient hugepages-2Mi",
    GATED,
    "node(s) didn't match pod topology spread constraints",
    "node(s) didn't match pod topology spread constraints (missing required label)",
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
];

impl World {
    fn start(rng: &mut Rng) -> Self {
        let plane = ControlPlane::start(&Options { kube_scheduler: true, ..Options::default() }).unwrap();
        let api = plane.api();
        api.post("/apis/node.k8s.io/v1/runtimeclasses", &draw::runtime_class()).unwrap();
        for (name, labels) in draw::NAMESPACES {
            api.post("/api/v1/namespaces", &json!({"metadata": {"name": name, "labels": {"team": labels}}}))
                .unwrap();
        }
        let drawn: Vec<Value> = (0..NODES).map(|at| draw::node(at, rng)).collect();
        in_parallel(NODES, |at| api.post("/api/v1/nodes", &drawn[at]).map(|_| ())).unwrap();
        let nodes: Vec<Node> = list(api, "/api/v1/nodes").unwrap();
        let oracle = Oracle::watch(api);
        let bound = nodes.iter().map(|node| (node.name().to_owned(), Vec::new())).collect();
        Self {
            plane,
            oracle,
            nodes,
            bound,
            differences: Vec::new(),
            explained: BTreeMap::new(),
            pairs: 0,
            admitted: 0,
            reasons: BTreeMap::new(),
            decisive: BTreeMap::new(),
        }
    }

    /// One pod for each node; afterwards some of those that were bound go again.
    fn all_nodes_at_once(&mut self, round: usize, rng: &mut Rng) {
        let pins: Vec<Pin> = (0..self.nodes.len()).map(|_| Pin::draw(rng)).collect();
        let drawn: Vec<Value> = self
            .nodes
            .iter()
            .zip(&pins)
            .enumerate()
            .map(|(at, (node, pin))| draw::pod(&format!("p{round}-{at}"), node.name(), *pin, rng))
            .collect();
        let api = self.plane.api();
        let stored = std::sync::Mutex::new(vec![None; drawn.len()]);
        in_parallel(drawn.len(), |at| {
            let pod = api.post(&pods(&drawn[at]), &drawn[at])?;
            if let Ok(mut stored) = stored.lock() {
                stored[at] = Some(pod);
            }
            Ok(())
        })
        .unwrap();
        let mut leaving = Vec::new();
        for (at, stored) in stored.into_inner().unwrap().into_iter().enumerate() {
            let pod: Pod = serde_json::from_value(stored.unwrap()).unwrap();
            defaults_are_ours_too(&drawn[at], &pod);
            let node = self.nodes[at].clone();
            let ours = self.judged_alone(&pod, &node);
            if !self.compare(&pod, &node, pins[at], &ours) || rng.chance(40) {
                leaving.push(pod);
            }
        }
        self.delete(&leaving);
    }

    fn one_among_others(&mut self, number: usize, rng: &mut Rng) {
        let at = usize::try_from(rng.below(NEIGHBOURHOOD)).unwrap();
        let node = self.nodes[at].clone();
        let drawn = draw::neighbour(&format!("q{number}"), node.name(), rng);
        let pod: Pod = serde_json::from_value(self.plane.api().post(&pods(&drawn), &drawn).unwrap()).unwrap();
        let ours = self.judged_among_others(&pod, &node);
        let mut leaving = Vec::new();
        if !self.compare(&pod, &node, Pin::Field, &ours) {
            leaving.push(pod);
        }
        if rng.chance(30) {
            let all: Vec<&Pod> = self.bound.values().flatten().collect();
            leaving.extend(rng.pick(&all).map(|pod| (*pod).clone()));
        }
        self.delete(&leaving);
    }

    /// As far as the node and what it holds decide.
    fn judged_alone(&self, pod: &Pod, node: &Node) -> Ours {
        if gate(pod).is_some() {
            return Ours::Gated;
        }
        let wanted = Requirements::of(pod).unwrap();
        let mut held = Held::default();
        for other in &self.bound[node.name()] {
            held.add(&Requirements::held(other).unwrap());
        }
        let verdict = wanted.terms.admits(node).and_then(|()| held.admits_ports(&wanted));
        if let Err(refusal) = verdict {
            return Ours::Refused(vec![refusal.to_string()]);
        }
        let lacking = Capacity::of(node).unwrap().lacking(&held, &wanted);
        if lacking.is_empty() {
            return Ours::Admitted;
        }
        Ours::Refused(lacking.iter().map(ToString::to_string).collect())
    }

    fn judged_among_others(&self, pod: &Pod, node: &Node) -> Ours {
        let alone = self.judged_alone(pod, node);
        if alone != Ours::Admitted {
            return alone;
        }
        let team = |label: &str| BTreeMap::from([("team".to_owned(), label.to_owned())]);
        let namespaces: Namespaces =
            draw::NAMESPACES.iter().map(|(name, label)| ((*name).to_owned(), team(label))).collect();
        let mut around = Surroundings::of(Arc::new(pod.clone()), Arc::new(namespaces), &self.nodes).unwrap();
        for there in &self.nodes {
            for other in &self.bound[there.name()] {
                around.add(other, there);
            }
        }
        match around.admits(node) {
            Ok(()) => Ours::Admitted,
            Err(refusal) => Ours::Refused(vec![refusal.to_string()]),
        }
    }

    /// Asks kube-scheduler, compares, and books a pod that was bound. Says whether it was.
    fn compare(&mut self, pod: &Pod, node: &Node, pin: Pin, ours: &Ours) -> bool {
        let agrees = |said: &Said| agree(ours, said, pin);
        let said = self.oracle.said_of(&pod.path(), |said| agrees(said) || explanation(ours, said).is_some());
        self.pairs += 1;
        if agrees(&said) {
            let reasons: &[String] = if let Ours::Refused(reasons) = ours { reasons } else { &[] };
            for reason in reasons {
                *self.reasons.entry(as_upstream(reason)).or_default() += 1;
            }
            if *ours == Ours::Gated {
                *self.reasons.entry(GATED.to_owned()).or_default() += 1;
            }
            let is_refused = matches!(self.judged_alone(pod, node), Ours::Refused(_));
            for what in DECISIVE.iter().filter(|_| is_refused) {
                let is_it = self.judged_alone(&without(what, pod), node) == Ours::Admitted;
                *self.decisive.entry(*what).or_default() += usize::from(is_it);
            }
        } else if let Some(name) = explanation(ours, &said) {
            *self.explained.entry(name).or_default() += 1;
        } else {
            let show = |mut value: Value| {
                value["metadata"]["managedFields"].take();
                value.to_string()
            };
            let held: Vec<String> = self.bound[node.name()].iter().map(Pod::path).collect();
            self.differences.push(format!(
                "ours: {ours:?}\ntheirs: {said:?}\nterms: {}\npod: {}\nnode: {}\nheld: {held:?}",
                NodeTerms::of(pod),
                show(json!(pod)),
                show(json!(node)),
            ));
        }
        let Said::Bound(place) = said else { return false };
        assert_eq!(place, node.name(), "{} is pinned elsewhere", pod.path());
        self.admitted += 1;
        self.bound.entry(place).or_default().push(pod.clone());
        true
    }

    fn delete(&mut self, leaving: &[Pod]) {
        let api = self.plane.api();
        in_parallel(leaving.len(), |at| {
            let (namespace, name) = (leaving[at].namespace(), leaving[at].name());
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0");
            api.delete(&path).map(|_| ())
        })
        .unwrap();
        for pods in self.bound.values_mut() {
            pods.retain(|pod| !leaving.iter().any(|left| left.path() == pod.path()));
        }
    }

    /// Nodes refuse nobody by themselves any more, and hold many small pods.
    fn make_room(&mut self) {
        let api = self.plane.api();
        let many = json!({"status": {"allocatable": {"pods": "110"}, "capacity": {"pods": "110"}}});
        let names: Vec<String> =
            self.nodes.iter().map(|node| format!("/api/v1/nodes/{}", node.name())).collect();
        in_parallel(names.len(), |at| {
            api.patch(&format!("{}/status", names[at]), &many)?;
            api.patch(&names[at], &json!({"spec": {"unschedulable": false}})).map(|_| ())
        })
        .unwrap();
        self.nodes = list(api, "/api/v1/nodes").unwrap();
    }

    fn clear(&mut self) {
        let all: Vec<Pod> = self.bound.values().flatten().cloned().collect();
        self.delete(&all);
    }
}

/// Whether it comes to the same, reasons included where the pin lets them be seen.
fn agree(ours: &Ours, said: &Said, pin: Pin) -> bool {
    match (ours, said) {
        (Ours::Admitted, Said::Bound(_)) | (Ours::Gated, Said::Gated) => true,
        (Ours::Refused(reasons), Said::Refused(message)) => {
            pin == Pin::Label || {
                let mut reasons: Vec<String> = reasons.iter().map(|reason| as_upstream(reason)).collect();
                reasons.sort();
                reasons == oracle::reasons(message)
            }
        }
        _ => false,
    }
}

/// Ours names the taint, as upstream did until 1.35; since then it only says that there is one.
fn as_upstream(reason: &str) -> String {
    if reason.starts_with("node(s) had untolerated taint {") {
        return "node(s) had untolerated taint(s)".to_owned();
    }
    reason.to_owned()
}

/// The name of a difference that is known and meant.
fn explanation(ours: &Ours, said: &Said) -> Option<&'static str> {
    let (Ours::Refused(reasons), Said::Refused(_)) = (ours, said) else { return None };
    // Both refuse. We ask everything that the node alone decides, which equal pods share, before what is left there;
    // upstream asks for the features of the kubelet last of all, and stops at the first that says no.
    (reasons == &[Refusal::Features.to_string()]).then_some("features of the kubelet are asked for earlier")
}

/// What we read from a manifest before an API server saw it is what we read afterwards. Only overhead comes later.
fn defaults_are_ours_too(drawn: &Value, stored: &Pod) {
    let mut written: Pod = serde_json::from_value(drawn.clone()).unwrap();
    written.spec.overhead.clone_from(&stored.spec.overhead);
    let amounts = |pod: &Pod| Requirements::of(pod).unwrap().amounts;
    assert_eq!(amounts(&written), amounts(stored), "{drawn:#}");
}

fn pods(pod: &Value) -> String {
    format!("/api/v1/namespaces/{}/pods", pod["metadata"]["namespace"].as_str().unwrap_or("default"))
}

fn list<T: for<'a> serde::Deserialize<'a>>(api: &Api, path: &str) -> Result<Vec<T>, Error> {
    let mut answer = api.get(path)?;
    Ok(serde_json::from_value(answer["items"].take()).unwrap())
}
