//! The GPUs that `--on` names.

use std::collections::BTreeMap;

use phalanx_model::{DeviceMask, Node, NodeName, Placement, Slot};
use phalanx_spec::Scalar as _;
use phalanx_spec::pattern::NamePattern;

use super::map::Map;
use crate::failure::Failure;

/// Nodes that a message lists.
const SHOWN: usize = 8;

/// A rank on each of these GPUs, in the order named.
pub(super) fn placement(map: &Map, text: &str) -> Result<Placement, Failure> {
    let nodes: BTreeMap<&str, &Node> = map.nodes.iter().map(|node| (node.name.as_str(), node)).collect();
    let mut used: BTreeMap<NodeName, DeviceMask> = BTreeMap::new();
    let mut slots = Vec::new();
    for entry in entries(text) {
        for node in named(map, &nodes, entry.name)? {
            let devices = devices(node, &entry)?;
            let taken = used.entry(node.name.clone()).or_default();
            if !taken.and(devices).is_empty() {
                return Err(twice(&node.name, taken.and(devices)));
            }
            *taken = taken.union(devices);
            let ranks = u32::try_from(slots.len()).unwrap_or(u32::MAX)..;
            slots.extend(ranks.zip(devices.iter()).map(|(rank, device)| Slot {
                rank,
                node: node.name.clone(),
                devices: DeviceMask::one(device),
                part: None,
            }));
        }
    }
    if slots.is_empty() {
        return Err(Failure::usage("--on names no GPU", "expected NODE[:GPUS], such as n1:0-3,n2:0-3"));
    }
    Ok(Placement { slots, level: map.levels.node.clone() })
}

/// A name or pattern, and the devices behind it as they are written; none means all.
struct Entry<'a> {
    name: &'a str,
    devices: Option<String>,
}

/// Commas part entries, and also the devices of one node and the numbers in a bracket: `n[1,3]:0-3,6,n2`.
fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut depth = 0_u32;
    let is_comma = |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for piece in text.split(is_comma).map(str::trim).filter(|piece| !piece.is_empty()) {
        let last = entries.last_mut().and_then(|entry| entry.devices.as_mut());
        if let Some(devices) = last.filter(|_| is_devices(piece)) {
            *devices = format!("{devices},{piece}");
            continue;
        }
        // Names of nodes may hold a colon themselves.
        entries.push(match piece.rsplit_once(':') {
            Some((name, devices)) if is_devices(devices) => Entry { name, devices: Some(devices.to_owned()) },
            _ => Entry { name: piece, devices: None },
        });
    }
    entries
}

fn twice(node: &NodeName, devices: DeviceMask) -> Failure {
    Failure::usage(format!("--on: GPU {devices} of {node} is named twice"), "one rank has each GPU")
}

fn is_devices(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_digit() || c == b'-')
}

fn named<'a>(map: &Map, nodes: &BTreeMap<&str, &'a Node>, name: &str) -> Result<Vec<&'a Node>, Failure> {
    let one = |name: &str| {
        nodes.get(name).copied().ok_or_else(|| {
            let mut known: Vec<&str> = nodes.values().take(SHOWN).map(|node| node.name.as_str()).collect();
            if nodes.len() > SHOWN {
                known.push("…");
            }
            let message = format!("--on: there is no node {name} in {}", map.name);
            Failure::not_found(message, format!("there are {}", known.join(", ")))
        })
    };
    if !name.contains(['[', ']']) {
        return one(name).map(|node| vec![node]);
    }
    let pattern = NamePattern::read(name)
        .map_err(|e| Failure::usage(format!("--on: {e}"), format!("expected {}", NamePattern::ACCEPTED)))?;
    pattern.names().map(|name| one(&name)).collect()
}

fn devices(node: &Node, entry: &Entry<'_>) -> Result<DeviceMask, Failure> {
    let (name, all) = (&node.name, node.machine.device_mask());
    if all.is_empty() {
        let hint = "give the output of `nvidia-smi topo -m` of the node as well, or declare `devices`";
        return Err(Failure::usage(format!("--on: no GPUs of {name} are known"), hint));
    }
    let Some(text) = &entry.devices else { return Ok(all) };
    let mut devices = DeviceMask::EMPTY;
    for piece in text.split(',') {
        let more: DeviceMask = piece.parse().map_err(|e| Failure::usage(format!("--on: {name}: {e}"), ""))?;
        if !devices.and(more).is_empty() {
            return Err(twice(name, devices.and(more)));
        }
        devices = devices.union(more);
    }
    let beyond = devices.minus(all);
    if !beyond.is_empty() {
        let message = format!("--on: {name} has no GPU {beyond}");
        return Err(Failure::usage(message, format!("its GPUs are {all}")));
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_part_nodes_devices_and_numbers() {
        let said = |text: &str| -> Vec<String> {
            let entries = entries(text);
            entries.iter().map(|e| format!("{}={}", e.name, e.devices.as_deref().unwrap_or("all"))).collect()
        };
        assert_eq!(said("n1:0-3,n2:0-3"), ["n1=0-3", "n2=0-3"]);
        assert_eq!(said("n1:0,2,5-7,n2"), ["n1=0,2,5-7", "n2=all"]);
        assert_eq!(said("n[1,3-4]:0-1, a:b"), ["n[1,3-4]=0-1", "a:b=all"]);
        assert_eq!(said("7,8"), ["7=all", "8=all"], "names of nodes may be numbers");
        assert!(said(" , ").is_empty());
    }
}
