//! Levels from node labels and from HyperNodes, under the names that people use for them; and which nodes take part.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use phalanx_discover::objects::Preset;
use phalanx_kube::api::Node;
use phalanx_kube::kube::api::DynamicObject;
use phalanx_kube::recognise::topology::Levels;
use phalanx_kube::recognise::{LevelRef, is_ours};

fn node(name: &str, labels: &[(&str, &str)]) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    node.metadata.labels = Some(labels.collect());
    node
}

/// The domains of a node, outermost first.
fn path(levels: &Levels, name: &str) -> Vec<String> {
    let host = levels.reading.graph.hosts.iter().find(|host| host.name.as_str() == name).unwrap();
    host.domains.iter().map(|at| format!("{}={}", at.level, at.domain)).collect()
}

const BLOCK: &str = "cloud.google.com/gce-topology-block";
const SUBBLOCK: &str = "cloud.google.com/gce-topology-subblock";

fn google() -> [Node; 3] {
    let zone = ("topology.kubernetes.io/zone", "z");
    [
        node("n0", &[zone, (BLOCK, "b0"), (SUBBLOCK, "s0")]),
        node("n1", &[zone, (BLOCK, "b0"), (SUBBLOCK, "s1")]),
        node("n2", &[zone, (BLOCK, "b1"), (SUBBLOCK, "s2")]),
    ]
}

#[test]
fn the_labels_of_a_cloud_are_found_and_answer_to_key_name_and_tier() {
    let levels = Levels::by_labels(&google(), None);
    assert_eq!(levels.preset, "gcp");
    assert_eq!(path(&levels, "n1"), ["zone=z", "block=b0", "subblock=s1"]);
    let level = |asked: LevelRef| levels.level(&asked).unwrap().as_str().to_owned();
    assert_eq!(level(LevelRef::of(BLOCK)), "block");
    assert_eq!(level(LevelRef::of("subblock")), "subblock");
    assert_eq!(level(LevelRef::Tier(1)), "subblock");
    assert_eq!(level(LevelRef::Tier(2)), "block");
    assert_eq!(level(LevelRef::of("kubernetes.io/hostname")), "node");
    assert_eq!(level(LevelRef::of("node")), "node");
}

#[test]
fn a_level_that_no_node_has_is_unknown_and_the_known_ones_are_told() {
    let levels = Levels::by_labels(&google(), None);
    let unknown = levels.level(&LevelRef::of("topology.kubernetes.io/rack")).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "no level of this cluster is label topology.kubernetes.io/rack; there are zone, block, subblock, node"
    );
    // Known to the preset, on no node.
    assert!(levels.level(&LevelRef::of("cloud.google.com/gce-topology-host")).is_err());
    assert!(levels.level(&LevelRef::Tier(4)).is_err());
}

#[test]
fn keys_of_ones_own_make_levels() {
    let keys = ["example.com/hall", "kubernetes.io/hostname"];
    let preset = Preset::of_keys(keys).unwrap();
    let nodes = [node("n0", &[("example.com/hall", "h0")]), node("n1", &[("example.com/hall", "h1")])];
    let levels = Levels::by_labels(&nodes, Some(&preset));
    assert_eq!(path(&levels, "n1"), ["hall=h1"]);
    assert_eq!(levels.level(&LevelRef::of("example.com/hall")).unwrap().as_str(), "hall");
}

fn hyper_node(name: &str, tier: u32, kind: &str, members: &[&str]) -> DynamicObject {
    let members: Vec<serde_json::Value> = members
        .iter()
        .map(|name| serde_json::json!({"type": kind, "selector": {"exactMatch": {"name": name}}}))
        .collect();
    serde_json::from_value(serde_json::json!({
        "apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": name},
        "spec": {"tier": tier, "members": members},
    }))
    .unwrap()
}

#[test]
fn hyper_nodes_place_nodes_by_tier() {
    let objects = [
        hyper_node("s0", 1, "Node", &["n0", "n1"]),
        hyper_node("s1", 1, "Node", &["n2"]),
        hyper_node("top", 3, "HyperNode", &["s0", "s1"]),
    ];
    let nodes = [node("n0", &[]), node("n1", &[]), node("n2", &[])];
    let levels = Levels::by_hyper_nodes(&objects, &nodes).unwrap();
    assert_eq!(path(&levels, "n2"), ["tier-3=top", "tier-1=s1"]);
    assert_eq!(levels.level(&LevelRef::Tier(3)).unwrap().as_str(), "tier-3");
    assert!(levels.level(&LevelRef::Tier(2)).is_err(), "no HyperNode is of tier 2");
}

#[test]
fn objects_that_are_no_hyper_nodes_are_an_error() {
    let other: DynamicObject = serde_json::from_value(
        serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}),
    )
    .unwrap();
    assert!(Levels::by_hyper_nodes(&[other], &[]).is_err());
}

#[test]
fn nodes_take_part_by_label_and_can_be_given_back() {
    assert!(is_ours(&node("a", &[("phalanx.dev/schedule", "topology")])));
    assert!(is_ours(&node("a", &[("ack.node.gpu.schedule", "topology")])));
    // What `kubectl label node a ack.node.gpu.schedule=default --overwrite` leaves.
    assert!(!is_ours(&node("a", &[("ack.node.gpu.schedule", "default")])));
    assert!(!is_ours(&node("a", &[])));
    let both = [("phalanx.dev/schedule", "default"), ("ack.node.gpu.schedule", "topology")];
    assert!(!is_ours(&node("a", &both)), "our own label counts first");
}
