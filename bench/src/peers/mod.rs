//! The simulator's placements of other schedulers on nodes of 8 GPUs. [`ours`] asks the engine for the same.

pub(crate) mod ours;

#[cfg(test)]
mod tests;

use std::ops::Range;

pub(crate) use phalanx_sim::policies::peers::{Ask, Placed, Slice};
use phalanx_sim::policies::peers::{Ground, bin_pack, first_fit, kueue, slurm_block, slurm_tree};

/// GPUs of every node here.
pub(crate) const GPUS_PER_NODE: u32 = 8;

/// What is free where.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    /// Names of the levels above the node, outermost first.
    pub(crate) levels: Vec<String>,
    /// By node, in topology order.
    pub(crate) names: Vec<String>,
    /// By node: the name of its domain on every level.
    pub(crate) paths: Vec<Vec<String>>,
    /// By node.
    pub(crate) free: Vec<u32>,
    /// By level, the node last: the nodes of every domain.
    pub(crate) spans: Vec<Vec<Range<usize>>>,
    /// Nodes in the order of their names.
    by_name: Vec<usize>,
}

/// Who places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// First fit in the order of node names.
    Naive,
    /// First fit in a random order.
    Random,
    /// Topology-aware scheduling of Kueue, `BestFit`.
    Kueue,
    /// Slurm topology/tree.
    SlurmTree,
    /// Slurm topology/block.
    SlurmBlock,
    /// Bin packing of domains and nodes, as KAI and Volcano describe theirs.
    BinPack,
}

impl Peer {
    pub(crate) const ALL: [Self; 6] =
        [Self::Naive, Self::Random, Self::Kueue, Self::SlurmTree, Self::SlurmBlock, Self::BinPack];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Random => "random",
            Self::Kueue => "kueue",
            Self::SlurmTree => "slurm_tree",
            Self::SlurmBlock => "slurm_block",
            Self::BinPack => "bin_pack",
        }
    }

    /// Places a gang whole, or not at all. Nothing is taken.
    pub(crate) fn place(self, cluster: &Cluster, ask: &Ask, rng: &mut Rng) -> Option<Placed> {
        let ground = &cluster.ground();
        match self {
            Self::Naive => first_fit(ground, ask, &cluster.by_name),
            Self::Random => {
                let mut order = cluster.by_name.clone();
                rng.shuffle(&mut order);
                first_fit(ground, ask, &order)
            }
            Self::Kueue => kueue(ground, ask),
            Self::SlurmTree => slurm_tree(ground, ask),
            Self::SlurmBlock => slurm_block(ground, ask),
            Self::BinPack => bin_pack(ground, ask),
        }
    }
}

impl Cluster {
    /// `nodes` are names and paths; they are sorted by path, then name.
    pub(crate) fn new(levels: &[&str], mut nodes: Vec<(String, Vec<String>)>) -> Self {
        nodes.sort_by(|a, b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
        let (names, paths): (Vec<String>, Vec<Vec<String>>) = nodes.into_iter().unzip();
        let mut spans: Vec<Vec<Range<usize>>> = Vec::new();
        for depth in 1..=levels.len() {
            let chunks = paths.chunk_by(|a, b| a.get(..depth) == b.get(..depth));
            let ends = chunks.scan(0, |end, chunk| {
                *end += chunk.len();
                Some(*end - chunk.len()..*end)
            });
            spans.push(ends.collect());
        }
        spans.push((0..names.len()).map(|node| node..node + 1).collect());
        let mut by_name: Vec<usize> = (0..names.len()).collect();
        by_name.sort_by(|a, b| names[*a].cmp(&names[*b]));
        let levels = levels.iter().map(ToString::to_string).collect();
        Self { levels, free: vec![GPUS_PER_NODE; names.len()], names, paths, spans, by_name }
    }

    const fn ground(&self) -> Ground<'_> {
        Ground { spans: self.spans.as_slice(), free: self.free.as_slice(), gpus_per_node: GPUS_PER_NODE }
    }

    pub(crate) fn take(&mut self, placed: &Placed, gpus: u32) {
        for (node, pods) in placed {
            self.free[*node] -= pods * gpus;
        }
    }

    pub(crate) fn give_back(&mut self, placed: &Placed, gpus: u32) {
        for (node, pods) in placed {
            self.free[*node] += pods * gpus;
        }
    }

    /// Whether every node has what a placement takes of it, and it is the whole gang.
    pub(crate) fn holds(&self, placed: &Placed, ask: &Ask) -> bool {
        let mut free = self.free.clone();
        let fits = placed.iter().all(|(node, pods)| {
            let left = free[*node].checked_sub(pods * ask.gpus);
            free[*node] = left.unwrap_or(0);
            left.is_some()
        });
        fits && placed.iter().map(|(_, pods)| pods).sum::<u32>() == ask.pods
    }

    /// Domains of a level in which a placement has pods.
    pub(crate) fn crossed(&self, level: usize, placed: &Placed) -> usize {
        let is_used = |span: &&Range<usize>| placed.iter().any(|(node, _)| span.contains(node));
        self.spans[level].iter().filter(is_used).count()
    }

    /// The fewest domains of a level that hold a gang now; none where all of them do not.
    pub(crate) fn fewest(&self, level: usize, ask: &Ask) -> Option<usize> {
        self.fewest_in(level, &(0..self.names.len()), ask)
    }

    /// The fewest domains of a level that hold a gang now inside one domain of the level above; of all where none of
    /// those holds it.
    pub(crate) fn fewest_nested(&self, level: usize, ask: &Ask) -> Option<usize> {
        let around = self.spans[level - 1].iter().filter_map(|span| self.fewest_in(level, span, ask));
        around.min().or_else(|| self.fewest(level, ask))
    }

    fn fewest_in(&self, level: usize, within: &Range<usize>, ask: &Ask) -> Option<usize> {
        let spans = self.spans[level].iter().filter(|span| within.contains(&span.start));
        let pods =
            |span: &Range<usize>| self.free[span.clone()].iter().map(|free| free / ask.gpus.max(1)).sum();
        let mut room: Vec<u32> = spans.map(pods).collect();
        room.sort_unstable_by(|a, b| b.cmp(a));
        let mut left = ask.pods;
        let enough = room.iter().position(|pods| {
            left = left.saturating_sub(*pods);
            left == 0
        });
        enough.map(|at| at + 1)
    }
}

/// A stream of random numbers from a seed (splitmix64, public domain, Vigna).
#[derive(Clone, Debug)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        crate::rng::split_mix(&mut self.0)
    }

    /// Below `bound`, which is at least 1.
    #[expect(clippy::cast_possible_truncation, reason = "the product's high half is below the bound")]
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Log-uniform between the two.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the bounds given")]
    pub(crate) fn log_uniform(&mut self, least: u32, most: u32) -> u32 {
        let share = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let (low, high) = (f64::from(least).ln(), f64::from(most).ln());
        ((low + share * (high - low)).exp().round() as u32).clamp(least, most)
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}
