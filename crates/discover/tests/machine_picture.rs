//! Pictures of one machine for a browser and for Graphviz.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::sync::Arc;

use common::{machines, read};
use phalanx_discover::map::{dot, svg};
use phalanx_model::domains::{self, Domains};
use phalanx_model::{Graph, Host, LevelName, Machine, NodeName, Origin};
use proptest::prelude::*;

fn alone(machine: Machine) -> (Graph, Domains) {
    let mut host = Host::new(NodeName::new("node-1").unwrap());
    host.machine = Some(Arc::new(machine));
    let graph = Graph { hosts: vec![host], ..Graph::default() };
    let rules = domains::rules(&graph, &LevelName::new("cluster").unwrap(), &[]);
    let derived = domains::derive(&graph, &rules);
    (graph, derived)
}

#[test]
fn pictures_of_one_machine_show_gpus_switches_nics_and_links() {
    let (graph, domains) = alone(read("h100-nvswitch-8.txt").machine);
    let (graphviz, picture) = (dot(&graph, &domains), svg(&graph, &domains));
    for text in [&graphviz, &picture] {
        for part in ["GPU0", "GPU7", "NUMA 0", "NUMA 1", "mlx5_0", "NVLink × 18", "PCIe", "speed unknown"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    assert_eq!(graphviz.matches("[shape=box, style=filled, fillcolor=\"#cfe8dc\"").count(), 8);
    assert_eq!(graphviz.matches("[shape=ellipse").count(), 8);
    assert!(graphviz.contains("i0 -- {g0 g1 g2 g3 g4 g5 g6 g7}"), "{graphviz}");

    // A mesh has an edge for each pair.
    let (graph, domains) = alone(read("v100-hcm-8.txt").machine);
    let graphviz = dot(&graph, &domains);
    assert!(graphviz.contains("g0 -- g3 ") && graphviz.contains("label=\"NVLink × 2\""), "{graphviz}");
    assert!(svg(&graph, &domains).contains("<title>GPU0 to GPU3: NVLink × 2</title>"));
}

/// `x`, `y`, `width` and `height` of the rectangles of a class.
fn boxes(picture: &str, class: &str) -> Vec<[u32; 4]> {
    let number = |tag: &str, name: &str| {
        let rest = tag.split(&format!(" {name}=\"")).nth(1).unwrap();
        rest.split('"').next().unwrap().parse::<u32>().unwrap()
    };
    let tags = picture.split("<rect ").skip(1).filter(|tag| tag.starts_with(&format!("class=\"{class}\"")));
    tags.map(|tag| ["x", "y", "width", "height"].map(|name| number(tag, name))).collect()
}

#[test]
fn every_box_is_inside_of_the_box_around_it() {
    for name in
        ["h100-nvswitch-8.txt", "v100-hcm-8.txt", "a100-nps4-8.txt", "pcie-8.txt", "v100-nvswitch-16.txt"]
    {
        let (graph, domains) = alone(read(name).machine);
        let picture = svg(&graph, &domains);
        let holds = |outer: &[u32; 4], inner: &[u32; 4]| {
            (0..2).all(|i| outer[i] <= inner[i] && inner[i] + inner[i + 2] <= outer[i] + outer[i + 2])
        };
        let (all, sockets) = (boxes(&picture, "b\" width"), boxes(&picture, "d"));
        assert!(all.is_empty() && !sockets.is_empty());
        for class in ["ok", "s", "p"] {
            let mut inner = boxes(&picture, class);
            assert!(inner.iter().all(|b| sockets.iter().any(|s| holds(s, b))), "{name} {class}: {picture}");
            inner.sort_unstable();
            inner.dedup_by_key(|b| [b[0], b[1]]);
            assert_eq!(inner.len(), boxes(&picture, class).len(), "{name}: one box lies on another");
        }
        // Sockets stand beside each other.
        assert!(sockets.windows(2).all(|pair| pair[0][0] + pair[0][2] < pair[1][0]), "{name}");
    }
}

#[test]
fn a_host_without_devices_is_not_drawn_as_one_with_them() {
    let (graph, domains) = alone(Machine::bare(Origin::Declared));
    let picture = svg(&graph, &domains);
    assert!(picture.contains("<rect class=\"none\""), "{picture}");
    assert!(
        !picture.split("</style>").nth(1).unwrap().contains("node-1</text>\n<text class=\"n\""),
        "{picture}"
    );
}

proptest! {
    #[test]
    fn every_machine_can_be_drawn(machine in machines()) {
        let count = machine.devices.len();
        let (graph, domains) = alone(machine);
        let (graphviz, picture) = (dot(&graph, &domains), svg(&graph, &domains));
        prop_assert_eq!(graphviz.matches('{').count(), graphviz.matches('}').count());
        prop_assert!(picture.ends_with("</svg>\n"));
        if count > 0 {
            prop_assert_eq!(graphviz.matches("fillcolor=\"#cfe8dc\"").count(), count);
        }
    }
}
