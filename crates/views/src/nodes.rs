//! Nodes: what is free, who holds the rest, and what is wrong with them.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_api::protocol::{HeldView, NodeFilter, NodeState, NodeView, Wanted};
use phalanx_model::{Admin, Bandwidth, GangRecord, Node, NodeName, Spare, Uplink};

use crate::calendar::first_windows;
use crate::{Books, Unknown};

/// A part of the nodes.
pub struct Found {
    pub nodes: Vec<NodeView>,
    /// How many there are in all parts.
    pub matching: u32,
    /// The last of this part, if another one follows.
    pub last: Option<NodeName>,
}

/// The nodes that are meant, from the one after which the list goes on.
pub fn find_nodes(books: &Books<'_>, unknown: Unknown<'_>, filter: &NodeFilter) -> Found {
    let text = filter.text.as_deref().map(Wanted::new);
    let of_jobs = text.as_ref().map(|text| nodes_of_jobs(books, text)).unwrap_or_default();
    let has_text = |node: &Node, text: &Wanted| {
        let path = node.path.iter().map(AsRef::as_ref);
        let models = node.machine.devices.iter().map(|device| device.model.as_str());
        text.is_in([node.name.as_str()].into_iter().chain(path))
            || text.is_in(models)
            || of_jobs.contains(&node.name)
    };
    let is_wanted = |node: &&Node| {
        filter.state.is_none_or(|state| is_in(node, state))
            && text.as_ref().is_none_or(|text| has_text(node, text))
    };
    let all: Vec<&Node> = books.nodes().filter(is_wanted).collect();
    let begin = filter.after.as_ref().map_or(0, |after| all.partition_point(|node| node.name <= *after));
    let rest = all.get(begin..).unwrap_or_default();
    let part = rest.get(..filter.limit as usize).unwrap_or(rest);
    let last = part.last().filter(|_| part.len() < rest.len()).map(|node| node.name.clone());
    let names: BTreeSet<&NodeName> = part.iter().map(|node| &node.name).collect();
    let held = held_on(books, |node| names.contains(node));
    Found {
        nodes: views(books, unknown, part.to_vec(), held),
        matching: u32::try_from(all.len()).unwrap_or(u32::MAX),
        last,
    }
}

fn is_in(node: &Node, state: NodeState) -> bool {
    match state {
        NodeState::Open => node.admin == Admin::Open,
        NodeState::Cordoned => node.admin == Admin::Cordoned,
        NodeState::Draining => node.admin == Admin::Draining,
        NodeState::Unhealthy => !node.health.is_ok(),
    }
}

/// The nodes that jobs hold in whose number or name this text is.
fn nodes_of_jobs(books: &Books<'_>, text: &Wanted) -> BTreeSet<NodeName> {
    let named = books.jobs().filter(|(job, _)| text.is_in([job.name.as_str(), &*job.id.to_string()]));
    let mut nodes = BTreeSet::new();
    for placement in named.flat_map(|(_, gangs)| gangs.iter().filter_map(GangRecord::held)) {
        nodes.extend(placement.slots.iter().map(|slot| slot.node.clone()));
    }
    nodes
}

/// What jobs hold, node by node.
pub type Held = BTreeMap<NodeName, Vec<HeldView>>;

fn views(books: &Books<'_>, unknown: Unknown<'_>, nodes: Vec<&Node>, mut held: Held) -> Vec<NodeView> {
    let slow = slow(books);
    let names: BTreeSet<&NodeName> = nodes.iter().map(|node| &node.name).collect();
    let mut windows = first_windows(books, |node| names.contains(node));
    let view = |node: &Node| {
        let of_jobs = held.remove(&node.name).unwrap_or_default();
        let bandwidth = slow.get(&node.name).map(|of| (*of).clone());
        NodeView { bandwidth, window: windows.remove(&node.name), ..node_view(books, unknown, node, of_jobs) }
    };
    nodes.into_iter().map(view).collect()
}

/// One of them.
pub fn node(books: &Books<'_>, unknown: Unknown<'_>, name: &NodeName) -> Option<NodeView> {
    let held = held_on(books, |node| node == name);
    views(books, unknown, vec![books.node(name)?], held).pop()
}

/// The nodes whose network was measured and is not nominal.
fn slow<'a>(books: &'a Books<'_>) -> BTreeMap<&'a NodeName, &'a Bandwidth> {
    books
        .bandwidths()
        .filter_map(|of| match &of.uplink {
            Uplink::Node(node) => Some((node, of)),
            Uplink::Domain(_) => None,
        })
        .collect()
}

/// Without its bandwidth, and without what the calendar says of it.
fn node_view(books: &Books<'_>, unknown: Unknown<'_>, node: &Node, held: Vec<HeldView>) -> NodeView {
    let machine = &node.machine;
    let free = books.free(&node.name).unwrap_or_default();
    NodeView {
        name: node.name.clone(),
        path: node.path.iter().map(ToString::to_string).collect(),
        origin: machine.origin,
        admin: node.admin,
        address: node.address.clone(),
        model: models(node),
        devices: machine.device_count(),
        free: free.devices,
        foreign: node.foreign,
        unknown: unknown(&node.name).and(node.foreign),
        cpu_milli: machine.cpu_milli,
        cpu_free_milli: free.cpu_milli,
        memory_bytes: machine.memory_bytes,
        memory_free_bytes: free.memory_bytes,
        held,
        spot: node.spot,
        is_spare: node.spare != Spare::No,
        health: node.health.clone(),
        bandwidth: None,
        closed_by: None,
        window: None,
    }
}

/// `8 × NVIDIA H100`, per model.
pub(crate) fn models(node: &Node) -> String {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for device in &node.machine.devices {
        *counts.entry(device.model.as_str()).or_default() += 1;
    }
    let name = |model: &&str| if model.is_empty() { "GPU".to_owned() } else { (*model).to_owned() };
    let parts: Vec<String> = counts.iter().map(|(model, n)| format!("{n} × {}", name(model))).collect();
    parts.join(", ")
}

/// Which job holds which devices, node by node.
pub fn held(books: &Books<'_>) -> Held {
    held_on(books, |_| true)
}

/// The same of some nodes.
fn held_on(books: &Books<'_>, is_wanted: impl Fn(&NodeName) -> bool) -> Held {
    let mut nodes = Held::new();
    for (job, gangs) in books.jobs() {
        let held: Vec<_> = gangs.iter().filter_map(GangRecord::held).collect();
        for slot in held.iter().flat_map(|held| &held.slots).filter(|slot| is_wanted(&slot.node)) {
            let of_node = nodes.entry(slot.node.clone()).or_default();
            match of_node.iter_mut().find(|h| h.job == job.id) {
                Some(entry) => entry.devices = entry.devices.union(slot.devices),
                None => {
                    let name = job.name.to_string();
                    of_node.push(HeldView { job: job.id, name, devices: slot.devices });
                }
            }
        }
    }
    nodes
}
