//! Counts that follow nodes, pods and namespaces one by one are those of a count from the start, and cost what changed.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cluster::Cluster;
use crate::constraint::Constraints;

const NODES: usize = 4;
const PODS: usize = 6;
const ZONE: &str = "topology.kubernetes.io/zone";

#[derive(Clone, Debug)]
enum Change {
    /// A node has this zone, and a taint or none.
    Node {
        at: usize,
        zone: usize,
        is_tainted: bool,
    },
    NodeGone(usize),
    Pod {
        at: usize,
        node: usize,
        app: usize,
        is_apart: bool,
    },
    PodGone(usize),
    /// The label of a namespace.
    Namespace(usize),
    /// What changed is counted.
    Refresh,
}

fn node(at: usize, zone: usize, is_tainted: bool) -> Node {
    let taint = json!([{ "key": "team", "value": "a", "effect": "NoSchedule" }]);
    let node = json!({
        "metadata": { "name": format!("n{at}"), "labels": {
            "kubernetes.io/hostname": format!("n{at}"), ZONE: format!("z{zone}") } },
        "spec": { "taints": if is_tainted { taint } else { json!([]) } },
    });
    serde_json::from_value(node).unwrap()
}

fn pod(name: &str, app: &str, spec: &Value) -> Arc<Pod> {
    let metadata = json!({ "name": name, "namespace": "x", "labels": { "app": app } });
    Arc::new(serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap())
}

fn term(key: &str, namespaces: &Value) -> Value {
    json!({ "topologyKey": key, "labelSelector": { "matchLabels": { "app": "a0" } }, "namespaceSelector": namespaces })
}

fn apart(key: &str, namespaces: &Value) -> Value {
    let rule = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [term(key, namespaces)] });
    json!({ "affinity": { "podAntiAffinity": rule } })
}

/// One of each sort of rule.
fn asking() -> Vec<Arc<Pod>> {
    let spread = |taints: &str| {
        json!({ "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": { "matchLabels": { "app": "a0" } }, "nodeTaintsPolicy": taints }] })
    };
    let with = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [term(ZONE, &Value::Null)] });
    vec![
        pod("with", "a0", &json!({ "affinity": { "podAffinity": with } })),
        pod("apart", "a0", &apart(ZONE, &Value::Null)),
        pod("by-label", "a1", &apart(ZONE, &json!({ "matchLabels": { "team": "t1" } }))),
        pod("spread", "a0", &spread("Ignore")),
        pod("spread-over-open", "a0", &spread("Honor")),
    ]
}

struct Play {
    cluster: Cluster,
    constraints: Constraints,
}

impl Play {
    fn new() -> Self {
        let mut play = Self { cluster: Cluster::default(), constraints: Constraints::default() };
        for pod in asking() {
            let Cluster { nodes, bound_pods, .. } = &mut play.cluster;
            play.constraints.affinity.ask(&pod, &mut More::default(), nodes, bound_pods).unwrap();
        }
        assert_eq!(play.constraints.affinity.asked.len(), asking().len());
        play
    }

    fn place(&mut self, at: usize, on: usize, pod: &Pod) {
        let on = NodeName::new(format!("n{on}")).unwrap();
        self.constraints.place_pod(&mut self.cluster, &format!("x/p{at}"), &on, &Face::of(pod));
    }

    fn change(&mut self, change: &Change) {
        match *change {
            Change::Node { at, zone, is_tainted } => self.cluster.nodes.observe(node(at, zone, is_tainted)),
            Change::NodeGone(at) => {
                let name = NodeName::new(format!("n{at}")).unwrap();
                if self.cluster.nodes.get(&name).is_some() {
                    self.cluster.nodes.remove(&name);
                }
            }
            Change::Pod { at, node, app, is_apart } => {
                let rules = if is_apart { apart(ZONE, &Value::Null) } else { json!({}) };
                self.place(at, node, &pod(&format!("p{at}"), &format!("a{app}"), &rules));
            }
            Change::PodGone(at) => self.constraints.unplace_pod(&mut self.cluster, &format!("x/p{at}")),
            Change::Namespace(team) => {
                let labels = BTreeMap::from([("team".to_owned(), format!("t{team}"))]);
                let is_other = self.cluster.queues.namespace("x".to_owned(), Some(labels));
                self.constraints.has_namespaces |= is_other;
            }
            Change::Refresh => self.constraints.refresh(&mut self.cluster),
        }
    }

    fn assert_counted(&mut self) {
        self.constraints.refresh(&mut self.cluster);
        let affinity = &self.constraints.affinity;
        for asked in affinity.asked.values() {
            let pod = asked.around.pod();
            let anew = surroundings(pod, &affinity.namespaces, &self.cluster.nodes, &self.cluster.bound_pods);
            assert_eq!(format!("{:?}", asked.around), format!("{:?}", anew.unwrap()), "of {}", pod.name());
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0..NODES, 0..2_usize, any::<bool>())
            .prop_map(|(at, zone, is_tainted)| Change::Node { at, zone, is_tainted }),
        1 => (0..NODES).prop_map(Change::NodeGone),
        6 => (0..PODS, 0..NODES, 0..2_usize, any::<bool>())
            .prop_map(|(at, node, app, is_apart)| Change::Pod { at, node, app, is_apart }),
        2 => (0..PODS).prop_map(Change::PodGone),
        1 => (0..2_usize).prop_map(Change::Namespace),
        2 => Just(Change::Refresh),
    ]
}

proptest! {
    #[test]
    fn counts_that_follow_changes_are_those_of_a_count_from_the_start(
        changes in prop::collection::vec(change(), 0..40),
    ) {
        let mut play = Play::new();
        for change in &changes {
            play.change(change);
        }
        play.assert_counted();
    }
}

/// Every rule was counted anew over all pods, also where a node was only cordoned.
#[test]
fn a_node_that_changes_costs_its_own_pods_and_a_pod_that_changes_no_other() {
    const ON_EACH: usize = 10;
    let mut play = Play::new();
    for at in 0..100 {
        play.change(&Change::Node { at, zone: at % 3, is_tainted: false });
        for pod in 0..ON_EACH {
            play.change(&Change::Pod { at: at * ON_EACH + pod, node: at, app: pod % 2, is_apart: false });
        }
    }
    play.assert_counted();
    let mut costs = |change: Change| {
        let before = play.constraints.affinity.recounted;
        play.change(&change);
        play.assert_counted();
        play.constraints.affinity.recounted - before
    };
    let rules = asking().len();
    assert_eq!(costs(Change::Node { at: 7, zone: 2, is_tainted: false }), rules * ON_EACH, "another zone");
    assert_eq!(costs(Change::Node { at: 7, zone: 2, is_tainted: true }), ON_EACH, "one rule minds taints");
    assert_eq!(costs(Change::NodeGone(8)), rules * ON_EACH);
    assert_eq!(costs(Change::Pod { at: 5, node: 0, app: 1, is_apart: false }), 0, "another label");
    assert_eq!(costs(Change::Namespace(1)), 100 * ON_EACH, "one rule selects namespaces");
    assert_eq!(costs(Change::Namespace(1)), 0, "its labels are the same");
}
