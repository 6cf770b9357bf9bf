//! Placements of other schedulers, each written from its description, on one simple state: how many devices are free on
//! every node, and which nodes the domains hold.
//!
//! Where a description leaves something open, the choice that is better for the peer was taken: inside the
//! last domain nodes with the most room come first, and the last node is the tightest that holds the rest.

mod kueue;
mod plain;
mod slurm;

use std::ops::Range;

pub use kueue::kueue;
pub use plain::{bin_pack, first_fit};
pub use slurm::{block as slurm_block, tree as slurm_tree};

/// What is free where.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    /// By level, outermost first, the node last: the nodes of every domain.
    pub spans: &'a [Vec<Range<usize>>],
    /// Free devices by node.
    pub free: &'a [u32],
    /// Of the largest node.
    pub gpus_per_node: u32,
}

/// A gang: `pods` equal members with `gpus` each.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub pods: u32,
    pub gpus: u32,
    /// All pods in one domain of this level, or none.
    pub required: Option<usize>,
    /// All pods in one domain of this level or, where none holds them, of the next wider one.
    pub preferred: Option<usize>,
    /// Every so many consecutive pods inside one domain of this level.
    pub slice: Option<Slice>,
}

#[derive(Clone, Copy, Debug)]
pub struct Slice {
    pub pods: u32,
    pub level: usize,
}

/// Nodes with the number of pods on each, in rank order.
pub type Placed = Vec<(usize, u32)>;

/// What a gang finds: pods that fit on every node.
struct Room<'a> {
    ground: &'a Ground<'a>,
    ask: &'a Ask,
    pods: Vec<u32>,
}

impl<'a> Room<'a> {
    fn new(ground: &'a Ground<'a>, ask: &'a Ask) -> Self {
        Self { ground, ask, pods: ground.free.iter().map(|free| free / ask.gpus.max(1)).collect() }
    }

    /// The level of nodes; domains stand above it.
    const fn node_level(&self) -> usize {
        self.ground.spans.len() - 1
    }

    fn within(&self, span: &Range<usize>) -> u32 {
        self.pods[span.clone()].iter().sum()
    }

    /// The domain of `level` with this node in it.
    fn around(&self, level: usize, node: usize) -> usize {
        self.ground.spans[level].partition_point(|span| span.end <= node)
    }

    /// Takes `pods` from the nodes of a span: the roomiest first, and last the tightest that holds the rest.
    fn fill(&self, span: &Range<usize>, pods: u32, placed: &mut Placed) {
        let mut open: Vec<usize> = span.clone().filter(|node| self.pods[*node] > 0).collect();
        open.sort_by_key(|node| (std::cmp::Reverse(self.pods[*node]), *node));
        let mut left = pods;
        for at in 0..open.len() {
            if left == 0 {
                return;
            }
            let rest = &open[at..];
            if self.pods[rest[0]] >= left {
                let holding = rest.iter().filter(|node| self.pods[**node] >= left);
                let tightest = holding.min_by_key(|node| (self.pods[**node], **node));
                placed.extend(tightest.map(|node| (*node, left)));
                return;
            }
            placed.push((rest[0], self.pods[rest[0]]));
            left -= self.pods[rest[0]];
        }
    }
}
