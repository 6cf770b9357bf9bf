//! One machine for Graphviz.

use std::fmt::Write as _;

use phalanx_model::Machine;

use super::quoted;
use crate::map::machine::{Inside, link_text};

/// A cluster for each socket, a box for each PCIe switch, its GPUs and NICs below it, and an edge for each link.
pub(super) fn dot(name: &str, machine: &Machine) -> String {
    let inside = Inside::of(machine);
    let mut text = format!(
        "graph machine {{\n  graph [rankdir=TB, fontname=\"Helvetica\", label={}]\n  \
         node [fontname=\"Helvetica\", fontsize=10]\n  edge [fontname=\"Helvetica\", fontsize=8]\n",
        quoted(&[name, &inside.title()])
    );
    // Writing to a string cannot fail.
    let mut switches = 0;
    for (at, socket) in inside.sockets.iter().enumerate() {
        let _ = writeln!(
            text,
            "  subgraph cluster_{at} {{\n    label={}; style=rounded; color=gray50",
            quoted(&[&socket.title])
        );
        for unit in &socket.units {
            let is_switch = unit.devices.len() + unit.nics.len() > 1;
            if is_switch {
                let label = quoted(&[&inside.pcie_text(unit)]);
                let _ = writeln!(
                    text,
                    "    p{switches} [shape=box, style=filled, fillcolor=\"#e8e8e8\", label={label}]"
                );
            }
            let mut ports = Vec::new();
            for device in &unit.devices {
                let label = quoted(&[inside.device_name(*device)]);
                let _ = writeln!(
                    text,
                    "    g{device} [shape=box, style=filled, fillcolor=\"#cfe8dc\", label={label}]"
                );
                ports.push(format!("g{device}"));
            }
            for nic in &unit.nics {
                let (name, speed) = inside.nic_text(*nic);
                let label = quoted(&[&name, &speed]);
                let _ = writeln!(
                    text,
                    "    n{nic} [shape=ellipse, style=filled, fillcolor=\"#dbe7f3\", label={label}]"
                );
                ports.push(format!("n{nic}"));
            }
            if is_switch {
                let _ = writeln!(text, "    p{switches} -- {{{}}}", ports.join(" "));
                switches += 1;
            }
        }
        text.push_str("  }\n");
    }
    for (at, island) in inside.islands.iter().enumerate() {
        let label = quoted(&[&link_text(island.kind), "every pair"]);
        let devices: Vec<String> = island.devices.iter().map(|device| format!("g{device}")).collect();
        let _ = writeln!(
            text,
            "  i{at} [shape=box, style=\"filled,rounded\", fillcolor=\"#d9efc2\", label={label}]"
        );
        let _ = writeln!(text, "  i{at} -- {{{}}} [color=\"#5a8f1f\", penwidth=2]", devices.join(" "));
    }
    for (a, b, kind) in &inside.pairs {
        let label = quoted(&[&link_text(*kind)]);
        let _ =
            writeln!(text, "  g{a} -- g{b} [color=\"#5a8f1f\", penwidth=2, constraint=false, label={label}]");
    }
    text.push_str("}\n");
    text
}
