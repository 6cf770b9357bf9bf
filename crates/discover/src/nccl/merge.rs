//! Puts the devices of a running machine into the tree of a vendor's file.

use std::collections::BTreeMap;

use phalanx_model::{Link, Machine, Port};

use crate::gap::{Gap, listed};
use crate::pcie::{Address, Cpu, Gpu, Net, Node, Part, Tree};
use crate::shape;

/// A vendor's tree with the devices that are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Devices and NICs in the order of the running machine, links as the file's tree has them. NVLink and
    /// xGMI come from the running machine; the file's are taken where it knows of none. What has no PCI address
    /// keeps the links that the running machine says.
    pub machine: Machine,
    /// Devices of the machine that the file does not place, and devices of the file that are not there.
    pub gaps: Vec<Gap>,
}

/// Places each device of `live` in `tree` by its PCI address: on the entry of that address; else on another
/// function of the same device; else below the bridge whose buses include it; else on its NUMA node.
#[must_use]
pub fn merge(tree: &Tree, live: &Machine) -> Merged {
    let mut gaps = Vec::new();
    let mut merged = tree.clone();
    let file_links = fabric_of(tree);
    let is_linked_in_file = file_links.values().any(|gpu| !gpu.fabric.is_empty());
    let is_linked_live = live.links.iter().any(|l| shape::is_fabric(l.kind));
    let entries: BTreeMap<Address, (bool, (u32, u32))> = tree
        .nodes()
        .iter()
        .filter_map(|n| Some((n.address?, (matches!(n.part, Part::Gpu(_) | Part::Nic(_)), n.at))))
        .collect();
    merged.cpus.iter_mut().for_each(|cpu| clear(&mut cpu.nodes));
    let mut placed = Vec::new();
    for (index, device) in (0..).zip(&live.devices) {
        let address = device.pci_address.as_deref().and_then(Address::read);
        let fabric =
            address.and_then(|a| file_links.get(&a)).filter(|_| !is_linked_live && !device.is_sliced);
        let part = Part::Gpu(Gpu {
            index: Some(index),
            model: device.model.clone(),
            memory_bytes: device.memory_bytes,
            is_sliced: device.is_sliced,
            fabric: fabric.map(|gpu| gpu.fabric.clone()).unwrap_or_default(),
        });
        placed.extend(address);
        place(&mut merged, &device.name, address, device.numa, part, &mut gaps);
    }
    for (index, nic) in (0..).zip(&live.nics) {
        let address = nic.pci_address.as_deref().and_then(Address::read);
        let (name, alias, bytes_per_s) =
            (nic.name.clone(), nic.alias.clone(), nic.bytes_per_s.filter(|_| !nic.is_assumed));
        let part = Part::Nic(vec![Net { name, alias, index: Some(index), bytes_per_s }]);
        placed.extend(address);
        place(&mut merged, &nic.name, address, nic.numa, part, &mut gaps);
    }
    for (address, (is_device, at)) in entries {
        if is_device && !placed.iter().any(|p| p.is_beside(address)) {
            gaps.push(Gap::new(
                at,
                format!("the file has a device at {address}, and this machine has none there"),
            ));
        }
    }
    if is_linked_in_file && is_linked_live {
        check_fabric(tree, live, &mut gaps);
    }
    let beside: Vec<Link> = live.links.iter().filter(|l| shape::is_fabric(l.kind)).copied().collect();
    let (mut machine, more) = merged.machine_with(&beside);
    gaps.extend(more);
    keep_live(&mut machine, live);
    Merged { machine, gaps: listed(gaps) }
}

fn fabric_of(tree: &Tree) -> BTreeMap<Address, &Gpu> {
    let gpus = tree.nodes().into_iter().filter_map(|node| match &node.part {
        Part::Gpu(gpu) => Some((node.address?, gpu)),
        _ => None,
    });
    gpus.collect()
}

/// Takes the devices out and keeps their slots.
fn clear(nodes: &mut [Node]) {
    for node in nodes {
        if matches!(node.part, Part::Gpu(_) | Part::Nic(_)) {
            node.part = Part::Other;
        }
        clear(&mut node.nodes);
    }
}

fn place(
    tree: &mut Tree,
    name: &str,
    address: Option<Address>,
    numa: Option<u32>,
    part: Part,
    gaps: &mut Vec<Gap>,
) {
    let Some(address) = address else {
        gaps.push(Gap::new((0, 0), format!("{name} has no PCI address to find its place by")));
        return by_numa(tree, None, numa, part);
    };
    let same = |node: &Node| node.address == Some(address);
    let beside =
        |node: &Node| node.address.is_some_and(|a| a.is_beside(address)) && node.part != Part::Bridge;
    for is_it in [&same as &dyn Fn(&Node) -> bool, &beside] {
        let Some(nodes) = tree.cpus.iter_mut().find_map(|cpu| holder(&mut cpu.nodes, is_it)) else {
            continue;
        };
        let Some(slot) = nodes.iter_mut().find(|node| is_it(node)) else { continue };
        fill(slot, address, numa, part);
        return;
    }
    let bridge = tree
        .cpus
        .iter_mut()
        .filter_map(|cpu| narrowest(&mut cpu.nodes, address))
        .min_by_key(|(span, _)| *span);
    if let Some((_, bridge)) = bridge {
        let numa = bridge.numa.or(numa);
        bridge.nodes.push(Node { address: Some(address), numa, part, ..Node::default() });
        return;
    }
    let near = numa.map_or_else(|| "nowhere".into(), |n| format!("on NUMA node {n}"));
    gaps.push(Gap::new((0, 0), format!("{name} at {address} is not in the file; it is placed {near}")));
    by_numa(tree, Some(address), numa, part);
}

/// A slot may hold two interfaces of one NIC.
fn fill(slot: &mut Node, address: Address, numa: Option<u32>, part: Part) {
    slot.numa = slot.numa.or(numa);
    match (&mut slot.part, part) {
        (Part::Nic(nets), Part::Nic(more)) if slot.address == Some(address) => nets.extend(more),
        (Part::Other, part) => {
            slot.address = Some(address);
            slot.part = part;
        }
        // Another function of a device whose slot is taken.
        (_, part) => {
            let (mb_per_s, at) = (slot.mb_per_s, slot.at);
            let first = std::mem::take(slot);
            let numa = first.numa;
            let other = Node { address: Some(address), numa, mb_per_s, part, at, ..Node::default() };
            *slot =
                Node { numa, mb_per_s, part: Part::Bridge, nodes: vec![first, other], at, ..Node::default() };
        }
    }
}

/// The list that holds the first node of which `is_it` is true.
fn holder<'a>(nodes: &'a mut Vec<Node>, is_it: &dyn Fn(&Node) -> bool) -> Option<&'a mut Vec<Node>> {
    if nodes.iter().any(is_it) {
        return Some(nodes);
    }
    nodes.iter_mut().find_map(|node| holder(&mut node.nodes, is_it))
}

/// The bridge whose children's buses include the address, and how many buses that are. A made-up bridge
/// (domain ffff) has the buses of its children.
fn narrowest(nodes: &mut [Node], address: Address) -> Option<(u8, &mut Node)> {
    let mut best: Option<(u8, &mut Node)> = None;
    for node in nodes {
        let buses =
            node.nodes.iter().filter_map(|n| n.address).filter(|a| a.domain == address.domain).map(|a| a.bus);
        let span = buses.clone().min().zip(buses.max());
        let is_inside = span.is_some_and(|(first, last)| (first..=last).contains(&address.bus));
        let width = span.map_or(u8::MAX, |(first, last)| last - first);
        let below = node.nodes.iter().any(|n| !n.nodes.is_empty());
        if is_inside && !below {
            if best.as_ref().is_none_or(|(span, _)| width < *span) {
                best = Some((width, node));
            }
        } else if let Some(found) = narrowest(&mut node.nodes, address)
            && best.as_ref().is_none_or(|(span, _)| found.0 < *span)
        {
            best = Some(found);
        }
    }
    best
}

fn by_numa(tree: &mut Tree, address: Option<Address>, numa: Option<u32>, part: Part) {
    let node = Node { address, numa, part, ..Node::default() };
    match tree.cpus.iter_mut().find(|cpu| numa.is_some() && cpu.numa == numa) {
        Some(cpu) => cpu.nodes.push(node),
        None => tree.cpus.push(Cpu { numa, uplink_mb_per_s: 0, nodes: vec![node] }),
    }
}

/// Tells where the file's NVLinks are not those of the machine.
fn check_fabric(tree: &Tree, live: &Machine, gaps: &mut Vec<Gap>) {
    let (file, _) = tree.machine();
    let port = |address: &Option<String>| live.devices.iter().position(|d| d.pci_address == *address);
    for link in file.links.iter().filter(|l| shape::is_fabric(l.kind)) {
        let (Port::Device(a), Port::Device(b)) = (link.a, link.b) else { continue };
        let found = |i: u32| file.devices.get(i as usize).and_then(|d| port(&d.pci_address));
        let (Some(a), Some(b)) = (found(a), found(b)) else { continue };
        let (Ok(a), Ok(b)) = (u32::try_from(a), u32::try_from(b)) else { continue };
        let there = live.device_link(a, b);
        if there != Some(link.kind) {
            let word = there.map_or_else(|| "nothing".into(), |kind| kind.to_string());
            let what =
                format!("the file has {} between GPU{a} and GPU{b}, and the machine has {word}", link.kind);
            gaps.push(Gap::new((0, 0), what));
        }
    }
}

/// What the tree does not know.
fn keep_live(machine: &mut Machine, live: &Machine) {
    machine.origin = live.origin;
    if live.cpu_milli > 0 {
        machine.cpu_milli = live.cpu_milli;
    }
    if live.memory_bytes > 0 {
        machine.memory_bytes = live.memory_bytes;
    }
    for (device, was) in machine.devices.iter_mut().zip(&live.devices) {
        device.name.clone_from(&was.name);
    }
    let is_placed = |port: Port| match port {
        Port::Device(i) => live.devices.get(i as usize).is_some_and(|d| d.pci_address.is_some()),
        Port::Nic(i) => live.nics.get(i as usize).is_some_and(|n| n.pci_address.is_some()),
    };
    let is_kept = |link: &Link| !is_placed(link.a) || !is_placed(link.b);
    machine.links.retain(|link| !is_kept(link));
    machine.links.extend(live.links.iter().filter(|link| is_kept(link)));
    shape::finish(machine);
}
