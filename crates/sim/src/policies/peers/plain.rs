//! Schedulers that fill nodes one after the other.

use super::{Ask, Ground, Placed, Room};

/// Pods on the first nodes that take them; ranks in the order in which pods were placed. The whole gang must
/// be placed, whatever domains it spans, unless a level is required.
#[must_use]
pub fn first_fit(ground: &Ground<'_>, ask: &Ask, order: &[usize]) -> Option<Placed> {
    let room = &Room::new(ground, ask);
    let Some(level) = room.ask.required else { return fill_in_order(room, order.iter().copied()) };
    let spans = &room.ground.spans[level];
    let span = order.iter().map(|node| &spans[room.around(level, *node)]);
    let first = span.into_iter().find(|span| room.within(span) >= room.ask.pods)?;
    fill_in_order(room, order.iter().copied().filter(|node| first.contains(node)))
}

fn fill_in_order(room: &Room<'_>, order: impl Iterator<Item = usize>) -> Option<Placed> {
    let mut left = room.ask.pods;
    let mut placed = Placed::new();
    for node in order.filter(|node| room.pods[*node] > 0) {
        let pods = room.pods[node].min(left);
        placed.push((node, pods));
        left -= pods;
        if left == 0 {
            return Some(placed);
        }
    }
    None
}

/// KAI ("bin-packing choice of domain") and Volcano (plugins `binpack` and `network-topology-aware`, which
/// bin-packs `HyperNodes`): the lowest tier with a domain that holds the gang, there the fullest domain, and
/// in it pod after pod on the fullest node that takes it. Ranks in the order in which pods were placed
/// (volcano#4233 asks for more).
#[must_use]
pub fn bin_pack(ground: &Ground<'_>, ask: &Ask) -> Option<Placed> {
    let room = &Room::new(ground, ask);
    let widest = room.ask.required.unwrap_or(0);
    for level in (widest..room.node_level()).rev() {
        let holding = room.ground.spans[level].iter().filter(|span| room.within(span) >= room.ask.pods);
        let fullest = holding.min_by_key(|span| {
            let free: u32 = room.ground.free[(*span).clone()].iter().sum();
            (free, span.start)
        });
        if let Some(span) = fullest {
            let mut nodes: Vec<usize> = span.clone().collect();
            nodes.sort_by_key(|node| (room.ground.free[*node], *node));
            return fill_in_order(room, nodes.into_iter());
        }
    }
    None
}
