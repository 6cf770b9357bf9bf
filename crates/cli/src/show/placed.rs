//! Placements: which devices of which node, and what else is on that node.

use std::collections::BTreeMap;

use phalanx_api::protocol::NodeView;
use phalanx_model::{DeviceMask, NodeName, Origin, Placement};

use super::table::{Grid, cell, dim};
use super::{Page, count, declared};

/// Nodes of a placement that are listed before the rest is only counted.
const NODES_SHOWN: usize = 24;

/// What is known of the nodes beside a placement: origin, product, and what is free.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fleet(BTreeMap<NodeName, NodeView>);

impl Fleet {
    pub(crate) fn new(nodes: Vec<NodeView>) -> Self {
        Self(nodes.into_iter().map(|node| (node.name.clone(), node)).collect())
    }

    pub(crate) fn is_declared(&self, node: &NodeName) -> bool {
        self.0.get(node).is_some_and(|n| n.origin == Origin::Declared)
    }

    /// Declared nodes among those of a placement, for documents.
    pub(crate) fn declared_of<'a>(&self, placements: impl Iterator<Item = &'a Placement>) -> Vec<NodeName> {
        let mut names: Vec<NodeName> = placements.flat_map(|p| &p.slots).map(|s| s.node.clone()).collect();
        names.sort();
        names.dedup();
        names.retain(|name| self.is_declared(name));
        names
    }
}

/// What a placement takes of one node.
pub(super) struct Share {
    pub(super) node: NodeName,
    pub(super) devices: DeviceMask,
    pub(super) ranks: Vec<u32>,
}

/// A placement node by node, in rank order of the first rank on each.
pub(super) fn shares(placement: &Placement) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    let mut index: BTreeMap<&NodeName, usize> = BTreeMap::new();
    for slot in &placement.slots {
        let at = *index.entry(&slot.node).or_insert_with(|| {
            shares.push(Share { node: slot.node.clone(), devices: DeviceMask::EMPTY, ranks: Vec::new() });
            shares.len() - 1
        });
        if let Some(share) = shares.get_mut(at) {
            share.devices = share.devices.union(slot.devices);
            share.ranks.push(slot.rank);
        }
    }
    shares
}

/// `2 nodes, inside one leaf`.
pub(super) fn summary(placement: &Placement) -> String {
    let shares = shares(placement);
    let nodes = count(shares.len() as u64, "node");
    match shares.as_slice() {
        [one] => format!("on {}", one.node),
        _ => format!("on {nodes}, inside one {}", placement.level),
    }
}

/// `node-a:0-3, node-b:0-3`, and how many more.
pub(super) fn short(placement: &Placement, fleet: &Fleet) -> String {
    const SHOWN: usize = 4;
    let shares = shares(placement);
    let one = |s: &Share| {
        let mark = declared(fleet.is_declared(&s.node));
        if s.devices.is_empty() {
            format!("{}{mark}", s.node)
        } else {
            format!("{}:{}{mark}", s.node, s.devices)
        }
    };
    let mut parts: Vec<String> = shares.iter().take(SHOWN).map(one).collect();
    if shares.len() > SHOWN {
        parts.push(format!("and {} more", shares.len() - SHOWN));
    }
    parts.join(", ")
}

/// Runs of numbers: `0-7,9`.
pub(super) fn runs(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for n in numbers {
        match parts.last_mut() {
            Some((_, end)) if end.checked_add(1) == Some(*n) => *end = *n,
            _ => parts.push((*n, *n)),
        }
    }
    let shown = parts.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    shown.collect::<Vec<_>>().join(",")
}

/// One line for each node: which devices, a strip of all of them, which ranks.
pub(super) fn table(page: &Page, placement: &Placement, fleet: &Fleet) -> String {
    let shares = shares(placement);
    let shown = if page.wide { shares.len() } else { shares.len().min(NODES_SHOWN) };
    let mut grid = Grid::new(page, &["NODE", "GPUS", "", "RANKS", "HARDWARE"]).indented(2);
    for share in shares.iter().take(shown) {
        let known = fleet.0.get(&share.node);
        let strip = known.map_or_else(String::new, |node| strip(page, node, share.devices));
        let model = known.map_or("", |node| node.model.as_str());
        let model = if model.is_empty() { "no GPUs" } else { model };
        let mark = declared(fleet.is_declared(&share.node));
        grid.row(vec![
            cell(&share.node),
            cell(share.devices),
            cell(strip),
            cell(runs(&share.ranks)),
            dim(format!("{model}{mark}")),
        ]);
    }
    let mut text = grid.render();
    if shown < shares.len() {
        text += &format!("  and {} more nodes; `-o wide` lists them\n", shares.len() - shown);
    }
    text
}

/// Every device of a node as one character: taken by this placement, free, or in use.
fn strip(page: &Page, node: &NodeView, taken: DeviceMask) -> String {
    let (mine, free, used) = marks(page);
    let mark = |device: u32| match (taken.contains(device), node.free.contains(device)) {
        (true, _) => mine,
        (_, true) => free,
        _ => used,
    };
    (0..node.devices.min(64)).map(mark).collect()
}

const fn marks(page: &Page) -> (char, char, char) {
    if page.ascii { ('#', 'o', '.') } else { ('■', '□', '·') }
}

/// What the marks of a strip mean.
pub(super) fn legend(page: &Page) -> String {
    let (mine, free, used) = marks(page);
    format!("{mine} this job   {free} free   {used} in use")
}
