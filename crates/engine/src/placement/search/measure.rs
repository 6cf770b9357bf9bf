//! The cost of a placement. This is the one definition: everything else bounds it or minimises it.

use super::{PlacementCost, View, inside_of};
use crate::cluster::shape::NO_LIMIT;
use crate::cluster::space::Pick;
use crate::cluster::traffic::transfer_ns;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measure {
    pub(super) cost: PlacementCost,
    pub(super) bottleneck: u32,
}

/// A whole node that is broken counts more than any devices that stay free beside.
const BROKEN_NODE: u64 = 1 << 20;

impl Measure {
    /// The picks are in the order of the tree. `None` if they are not the whole gang.
    pub(super) fn of(view: View<'_>, picks: &[Pick]) -> Option<Self> {
        let (first, last) = (picks.first()?, picks.last()?);
        let members: u64 = picks.iter().map(|pick| u64::from(pick.members)).sum();
        if members != u64::from(view.request.size) {
            return None;
        }
        let View { tree, space, request } = view;
        let is_alone = picks.len() == 1;
        // The picks are sorted, so the first and the last show whether one domain holds all.
        let holds_all = |level: &usize| {
            tree.domain_of(first.node as usize, *level) == tree.domain_of(last.node as usize, *level)
        };
        let top = (0..tree.depth()).rev().find(holds_all).unwrap_or(0);
        let joined = if is_alone { 0 } else { inside_of(view, top) };
        let (mut time_ns, mut bottleneck, mut spans) = (0_u64, NO_LIMIT, picks.len() as u128);
        for level in 0..tree.depth() {
            let crossed = |domain: usize, below: u64| {
                if is_alone || level <= top {
                    return;
                }
                time_ns += request.crossing_ns(tree.domains[level][domain].crossing_ns);
                let uplink = space.uplink(level, domain);
                if request.is_all_to_all() {
                    time_ns = time_ns.saturating_add(crossing_bytes(view, below, uplink));
                } else if joined == 0 {
                    bottleneck = bottleneck.min(uplink);
                }
            };
            let used = if level <= top { 1 } else { count_domains(view, level, picks, crossed) };
            spans |= u128::from(used) * one_span(view, level);
        }
        let mut breaks = 0;
        for pick in picks {
            let node = &tree.nodes[pick.node as usize];
            let kind = tree.kind(node);
            bottleneck = bottleneck.min(kind.ring(pick.devices));
            if !is_alone {
                time_ns += request.crossing_ns(kind.crossing_ns);
                let nics =
                    if pick.devices.is_empty() { kind.nics(kind.all()) } else { kind.nics(pick.devices) };
                if joined > 0 && !request.is_all_to_all() {
                    bottleneck = bottleneck.min(joined);
                } else if request.is_all_to_all() {
                    time_ns = time_ns.saturating_add(crossing_bytes(view, u64::from(pick.members), nics));
                } else {
                    bottleneck = bottleneck.min(nics);
                }
            }
            let free = space.free(pick.node as usize).devices;
            breaks += broken(free.count(), free == kind.all(), pick.devices.count());
        }
        time_ns = time_ns.saturating_add(request.traffic.over(bottleneck));
        Some(Self { cost: PlacementCost { time_ns, spans, breaks }, bottleneck })
    }
}

/// One domain of a level in [`PlacementCost::spans`]: levels are digits, the outermost the highest.
pub(super) fn one_span(view: View<'_>, level: usize) -> u128 {
    let digits = 128 / (view.tree.depth() as u32 + 1);
    1 << (digits * (view.tree.depth() - level) as u32)
}

/// The damage to others if a gang takes devices of a node.
pub(super) const fn broken(free: u32, is_whole: bool, taken: u32) -> u64 {
    let left = free.saturating_sub(taken) as u64;
    left + if is_whole && left > 0 { BROKEN_NODE } else { 0 }
}

/// The transfer time of an all-to-all through a crossing with so many members below it.
pub(super) fn crossing_bytes(view: View<'_>, below: u64, mb_per_s: u32) -> u64 {
    let pairs = below * u64::from(view.request.size).saturating_sub(below);
    transfer_ns(view.request.traffic.pair_bytes.saturating_mul(pairs), mb_per_s)
}

/// Calls back for every domain of a level that is used, with the members below it. How many there are.
fn count_domains(view: View<'_>, level: usize, picks: &[Pick], mut each: impl FnMut(usize, u64)) -> u32 {
    let mut used = 0;
    let mut run: Option<(usize, u64)> = None;
    for pick in picks {
        let domain = view.tree.domain_of(pick.node as usize, level);
        match &mut run {
            Some((of, below)) if *of == domain => *below += u64::from(pick.members),
            _ => {
                if let Some((of, below)) = run.replace((domain, u64::from(pick.members))) {
                    each(of, below);
                }
                used += 1;
            }
        }
    }
    if let Some((of, below)) = run {
        each(of, below);
    }
    used
}

/// A lower bound on the cost of the crossings of any placement on several nodes.
pub(super) fn least_crossings(view: View<'_>) -> u64 {
    2 * view.request.crossing_ns(view.tree.least_node_crossing_ns)
}

/// A lower bound on that cost in a domain of this level, if no domain inside it holds the gang.
pub(super) fn crossings_of_level(view: View<'_>, level: usize) -> u64 {
    let inner = &view.tree.least_crossing_ns[level + 1..];
    least_crossings(view) + inner.iter().map(|least| 2 * view.request.crossing_ns(*least)).sum::<u64>()
}
