//! Slurm's topology plugins: tree (`eval_nodes_tree.c`) and block (`eval_nodes_block.c`). Ranks follow the
//! order of nodes.

use std::cmp::Reverse;
use std::ops::Range;

use super::{Ask, Ground, Placed, Room};

/// The top switch is that of the lowest level that covers the request. Below it leaf after leaf: the closest
/// to those that are used, then the tightest fit (of those that hold all that is left the smallest, else the
/// largest), then the one with fewer nodes.
#[must_use]
pub fn tree(ground: &Ground<'_>, ask: &Ask) -> Option<Placed> {
    let room = &Room::new(ground, ask);
    let widest = room.ask.required.unwrap_or(0);
    let (leaf_level, pods) = (room.node_level() - 1, room.ask.pods);
    let top = (widest..=leaf_level).rev().find_map(|level| {
        let covering = room.ground.spans[level].iter().filter(|span| room.within(span) >= pods);
        covering.min_by_key(|span| (span.len(), span.start))
    })?;
    let first = room.around(leaf_level, top.start);
    let last = room.around(leaf_level, top.end - 1);
    let mut leaves: Vec<&Range<usize>> = room.ground.spans[leaf_level][first..=last].iter().collect();
    let (mut left, mut used, mut placed) = (pods, Vec::new(), Placed::new());
    while left > 0 {
        let best =
            leaves.iter().enumerate().filter(|(_, leaf)| room.within(leaf) > 0).min_by_key(|(_, leaf)| {
                let holds = room.within(leaf);
                let fit = if holds >= left { (0, holds) } else { (1, u32::MAX - holds) };
                let distance = used.iter().map(|other| distance(room, leaf.start, *other)).min().unwrap_or(0);
                (distance, fit, leaf.len(), leaf.start)
            });
        let leaf = leaves.swap_remove(best?.0);
        let here = room.within(leaf).min(left);
        room.fill(leaf, here, &mut placed);
        used.push(leaf.start);
        left -= here;
    }
    placed.sort_unstable();
    Some(placed)
}

/// Levels to climb from one node until the other is in the same domain.
fn distance(room: &Room<'_>, a: usize, b: usize) -> usize {
    let shared = (0..room.node_level()).rev().find(|level| room.around(*level, a) == room.around(*level, b));
    room.node_level() - shared.map_or(0, |level| level + 1)
}

/// Base blocks are leaves, aggregated contiguously by powers of two. The level is at least log2 of the base
/// blocks that the request fills; of the blocks of the lowest level that holds it, the one with the fewest
/// free nodes; in it as few base blocks as can be. Segments stay inside a base block.
#[must_use]
pub fn block(ground: &Ground<'_>, ask: &Ask) -> Option<Placed> {
    let room = &Room::new(ground, ask);
    let bases = &room.ground.spans[room.node_level() - 1];
    let segment = room.ask.slice.map_or(1, |slice| slice.pods);
    if !room.ask.pods.is_multiple_of(segment) {
        return None;
    }
    let holds = |span: &Range<usize>| room.within(span) / segment * segment;
    let nodes = room.ask.pods.div_ceil((room.ground.gpus_per_node / room.ask.gpus.max(1)).max(1));
    let base_nodes = bases.iter().map(ExactSizeIterator::len).max()?;
    let fewest = (nodes as usize).div_ceil(base_nodes);
    let mut width = fewest.next_power_of_two();
    loop {
        let blocks =
            bases.chunks(width).filter(|block| block.iter().map(holds).sum::<u32>() >= room.ask.pods);
        let free_nodes = |block: &&[Range<usize>]| {
            block.iter().flat_map(Clone::clone).filter(|node| room.pods[*node] > 0).count()
        };
        if let Some(block) = blocks.min_by_key(|block| (free_nodes(block), block[0].start)) {
            return Some(fill_block(room, block, segment));
        }
        if width >= bases.len() {
            return None;
        }
        width *= 2;
    }
}

/// The roomiest base blocks first, and last the tightest that holds the rest; each in whole segments.
fn fill_block(room: &Room<'_>, block: &[Range<usize>], segment: u32) -> Placed {
    let holds = |span: &Range<usize>| room.within(span) / segment * segment;
    let mut bases: Vec<&Range<usize>> = block.iter().collect();
    bases.sort_by_key(|base| (Reverse(holds(base)), base.start));
    let (mut left, mut placed) = (room.ask.pods, Placed::new());
    for at in 0..bases.len() {
        if holds(bases[at]) >= left {
            let holding = bases[at..].iter().filter(|base| holds(base) >= left);
            if let Some(tightest) = holding.min_by_key(|base| (holds(base), base.start)) {
                room.fill(tightest, left, &mut placed);
            }
            break;
        }
        room.fill(bases[at], holds(bases[at]), &mut placed);
        left -= holds(bases[at]);
    }
    placed.sort_unstable();
    placed
}
