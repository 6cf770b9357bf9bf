//! Partly filled Clos clusters.

use phalanx_model::{CostTable, DomainCost, DomainName, LevelCost, LevelName};

use crate::peers::ours::RAIL_MB_PER_S;
use crate::peers::{Ask, Cluster, GPUS_PER_NODE, Peer, Placed, Rng};

const NODES_PER_LEAF: usize = 32;
const LEAVES_PER_BLOCK: usize = 8;
pub(crate) const LEAF: usize = 2;
/// What a hop through a leaf switch and through a spine takes.
const LEAF_NS: u32 = 1_000;
const BLOCK_NS: u32 = 2_000;

/// A cluster with work on it.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) fill: u32,
    pub(crate) oversubscription: u32,
    pub(crate) seed: u64,
    /// By level above the node, by domain: what a new job has of the uplink, MB/s. Everyone who runs keeps an
    /// equal part for each GPU, whatever they send now; the rest is for what is free.
    pub(crate) uplinks: Vec<Vec<u32>>,
    pub(crate) latencies: Vec<u32>,
}

impl Scene {
    /// Fills the cluster with gangs, then ends gangs at random until `fill` hundredths are left: holes as
    /// work leaves them.
    pub(crate) fn draw(blocks: usize, fill: u32, oversubscription: u32, seed: u64) -> Self {
        let mut nodes = Vec::new();
        for node in 0..blocks * LEAVES_PER_BLOCK * NODES_PER_LEAF {
            let leaf = node / NODES_PER_LEAF;
            let block = format!("b{:02}", leaf / LEAVES_PER_BLOCK);
            nodes.push((format!("n{node:05}"), vec!["c".to_owned(), block, format!("l{leaf:03}")]));
        }
        let mut cluster = Cluster::new(&["cluster", "block", "leaf"], nodes);
        let mut rng = Rng(seed);
        let mut running = fill_up(&mut cluster, &mut rng);
        let all = cluster.free.len() as u64 * u64::from(GPUS_PER_NODE);
        while used(&cluster) * 100 > all * u64::from(fill) && !running.is_empty() {
            let (placed, gpus) = running.swap_remove(rng.below(running.len()));
            cluster.give_back(&placed, gpus);
        }
        let mut scene = Self {
            cluster,
            fill,
            oversubscription,
            seed,
            uplinks: Vec::new(),
            latencies: vec![0, BLOCK_NS, LEAF_NS],
        };
        scene.uplinks = (0..=LEAF).map(|level| scene.left_of_uplinks(level)).collect();
        scene
    }

    fn left_of_uplinks(&self, level: usize) -> Vec<u32> {
        let tiers = LEAF + 1 - level;
        let narrower = u64::from(self.oversubscription).pow(u32::try_from(tiers).unwrap_or(1));
        let left = |span: &std::ops::Range<usize>| {
            let free: u64 = self.cluster.free[span.clone()].iter().map(|free| u64::from(*free)).sum();
            u32::try_from((free * u64::from(RAIL_MB_PER_S) / narrower).max(1)).unwrap_or(u32::MAX)
        };
        self.cluster.spans[level].iter().map(left).collect()
    }

    /// The same as the engine reads it.
    pub(crate) fn costs(&self) -> Result<CostTable, String> {
        let name = |e: phalanx_model::NameError| e.to_string();
        let mut table = CostTable::default();
        for level in 1..=LEAF {
            let (uplinks, latency_ns) = (&self.uplinks[level], self.latencies[level]);
            let cost = |uplink_mb_per_s| LevelCost { uplink_mb_per_s, latency_ns, inside_mb_per_s: 0 };
            let widest = uplinks.iter().max().copied().unwrap_or(0);
            table.levels.insert(LevelName::new(&self.cluster.levels[level]).map_err(name)?, cost(widest));
            for (span, uplink) in self.cluster.spans[level].iter().zip(uplinks) {
                let path = self.cluster.paths[span.start][..=level].iter().map(DomainName::new);
                let path = path.collect::<Result<_, _>>().map_err(name)?;
                table.domains.push(DomainCost { path, cost: cost(*uplink) });
            }
        }
        table.domains.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(table)
    }
}

fn used(cluster: &Cluster) -> u64 {
    cluster.free.iter().map(|free| u64::from(GPUS_PER_NODE - free)).sum()
}

/// Gangs of 1 to 256 GPUs, log-uniform, until several in a row find no room. Kueue's best fit places them.
fn fill_up(cluster: &mut Cluster, rng: &mut Rng) -> Vec<(Placed, u32)> {
    const MISSES_MAX: u32 = 20;
    let mut running = Vec::new();
    let mut misses = 0;
    while misses < MISSES_MAX {
        let gpus = rng.log_uniform(1, 256);
        let (pods, each) =
            if gpus < GPUS_PER_NODE { (1, gpus) } else { (gpus / GPUS_PER_NODE, GPUS_PER_NODE) };
        let ask = Ask { pods, gpus: each, required: None, preferred: Some(LEAF), slice: None };
        match Peer::Kueue.place(cluster, &ask, rng) {
            Some(placed) => {
                cluster.take(&placed, each);
                running.push((placed, each));
                misses = 0;
            }
            None => misses += 1,
        }
    }
    running
}
