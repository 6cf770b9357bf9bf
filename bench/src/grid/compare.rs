//! One job on one state, placed by everyone, and what comes of it.

use std::collections::BTreeMap;
use std::fmt;

use phalanx_engine::grid::{self, Grid, Mapping, Site, Sites};
use phalanx_model::Slot;
use serde::Serialize;

use super::evaluate::{self, Times};
use super::job::Job;
use super::scene::{LEAF, Scene};
use crate::peers::ours::{self, RAIL_MB_PER_S, machine};
use crate::peers::{Ask, Peer, Placed, Rng, Slice};

/// Who is compared with: a policy, and whether it is told to keep each data parallel group in a leaf where it
/// can.
const AGAINST: [(Peer, bool); 8] = [
    (Peer::Naive, false),
    (Peer::Random, false),
    (Peer::Kueue, false),
    (Peer::Kueue, true),
    (Peer::SlurmTree, false),
    (Peer::SlurmBlock, false),
    (Peer::SlurmBlock, true),
    (Peer::BinPack, false),
];

/// What a comparison may be off by: the last digits of a sum.
const SAME: f64 = 1e-9;

/// Gains of ours over one peer in one size, in hundredths of the peer's time.
#[derive(Serialize)]
pub(crate) struct Figures {
    pub(crate) ranks: u32,
    pub(crate) peer: String,
    pub(crate) cases: usize,
    /// The peer's ranks in its own order.
    pub(crate) own: Gain,
    /// Our order on the peer's placement.
    pub(crate) mapped: Gain,
}

#[derive(Serialize)]
pub(crate) struct Gain {
    pub(crate) mean: f64,
    pub(crate) max: f64,
    pub(crate) min: f64,
    /// Without what stays inside the nodes, which is the same for all.
    pub(crate) mean_outside: f64,
}

/// A case in which a peer was faster, with the better of its two orders.
#[derive(Serialize)]
pub(crate) struct Loss {
    peer: String,
    ranks: u32,
    tensor: u32,
    pipeline: u32,
    data: u32,
    fill: u32,
    oversubscription: u32,
    seed: u64,
    ours_ms: f64,
    peer_ms: f64,
    /// Leaves used.
    ours_leaves: usize,
    peer_leaves: usize,
}

#[derive(Default)]
pub(crate) struct Bench {
    by: BTreeMap<(u32, usize), Vec<Pair>>,
    cases: usize,
    worse: usize,
    pub(crate) losses: Vec<Loss>,
    scratch: grid::Scratch,
}

struct Pair {
    own: [f64; 2],
    mapped: [f64; 2],
}

impl Bench {
    pub(crate) const fn cases(&self) -> usize {
        self.cases
    }

    pub(crate) const fn worse(&self) -> usize {
        self.worse
    }

    /// Places one job on one state by everyone. A job that does not fit is no case.
    pub(crate) fn case(&mut self, scene: &Scene, job: &Job) -> Result<(), String> {
        let mut ask = Ask {
            pods: job.data * job.pipeline,
            gpus: job.tensor,
            required: None,
            preferred: Some(LEAF),
            slice: None,
        };
        let cost = phalanx_cost::shape_cost(&machine()?);
        let inside_mb = f64::from(cost.pair(0, 1));
        let fits = Peer::Naive.place(&scene.cluster, &ask, &mut Rng(0)).is_some();
        let Some(order) = engine(scene, job)? else {
            return if fits { Err(format!("ours found no place for {job:?}")) } else { Ok(()) };
        };
        let ours = taken(&order, job.tensor);
        if !scene.cluster.holds(&ours, &ask) {
            return Err(format!("ours took what is not free for {job:?}"));
        }
        let time = |nodes: &[usize]| evaluate::step(scene, job, nodes, inside_mb);
        let best = time(&order);
        self.cases += 1;
        let mut is_worse = false;
        for (index, (peer, is_sliced)) in AGAINST.into_iter().enumerate() {
            ask.slice = is_sliced.then_some(Slice { pods: job.data, level: LEAF });
            let sliced = peer.place(&scene.cluster, &ask, &mut Rng(scene.seed));
            ask.slice = None;
            let placed = sliced.or_else(|| peer.place(&scene.cluster, &ask, &mut Rng(scene.seed)));
            let placed = placed.filter(|placed| scene.cluster.holds(placed, &ask));
            let placed = placed.ok_or_else(|| format!("{} found no place for {job:?}", peer.name()))?;
            let own = time(&in_order(job, &placed));
            let mapped = time(&self.mapped(scene, job, &placed, cost.pair(0, 1))?.1);
            let pair = Pair { own: gains(&best, &own), mapped: gains(&best, &mapped) };
            self.by.entry((job.ranks, index)).or_default().push(pair);
            let peer_ms = own.all().min(mapped.all());
            if best.all() > peer_ms * (1.0 + SAME) {
                is_worse = true;
                self.losses.push(Loss {
                    peer: name(index),
                    ranks: job.ranks,
                    tensor: job.tensor,
                    pipeline: job.pipeline,
                    data: job.data,
                    fill: scene.fill,
                    oversubscription: scene.oversubscription,
                    seed: scene.seed,
                    ours_ms: best.all(),
                    peer_ms,
                    ours_leaves: scene.cluster.crossed(LEAF, &ours),
                    peer_leaves: scene.cluster.crossed(LEAF, &placed),
                });
            }
        }
        self.worse += usize::from(is_worse);
        Ok(())
    }

    /// What our order on a placement is predicted to take, and the node of each rank in it.
    fn mapped(
        &mut self,
        scene: &Scene,
        job: &Job,
        placed: &Placed,
        inside: u32,
    ) -> Result<(u64, Vec<usize>), String> {
        let grid = Grid::new(&job.axes).map_err(|e| e.to_string())?;
        let mut sorted = placed.clone();
        sorted.sort_unstable();
        let mut best: Option<(u64, Vec<usize>)> = None;
        // The order of the placement may be a good one, where it is not that of the topology.
        for placed in [&sorted, placed] {
            let sites = sites(scene, placed, job.tensor, inside)?;
            let mapping = grid::map(&grid, &sites, grid.swaps(), &mut self.scratch);
            let Mapping { seats, found, .. } = mapping.map_err(|e| e.to_string())?;
            if best.as_ref().is_none_or(|(least, _)| found.ns < *least) {
                best = Some((found.ns, seats.iter().map(|seat| placed[seat.site as usize].0).collect()));
            }
        }
        best.ok_or_else(|| "no order was found".to_owned())
    }

    pub(crate) fn figures(&self) -> Vec<Figures> {
        let figures = self.by.iter().map(|((ranks, index), pairs)| Figures {
            ranks: *ranks,
            peer: name(*index),
            cases: pairs.len(),
            own: Gain::of(pairs, |pair| pair.own),
            mapped: Gain::of(pairs, |pair| pair.mapped),
        });
        figures.collect()
    }
}

fn name(index: usize) -> String {
    let (peer, is_sliced) = AGAINST[index];
    if is_sliced { format!("{}+dp", peer.name()) } else { peer.name().to_owned() }
}

/// The node of each rank, as the engine places and orders them by itself.
fn engine(scene: &Scene, job: &Job) -> Result<Option<Vec<usize>>, String> {
    let mut placer = ours::placer(&scene.cluster, scene.costs()?)?;
    let gang = job.gang();
    if placer.place(&gang).is_none() {
        return Ok(None);
    }
    let placement = placer.placement(&gang).ok_or("a place without a placement")?;
    let nodes: BTreeMap<&str, usize> = scene.cluster.names.iter().map(String::as_str).zip(0..).collect();
    let node =
        |slot: &Slot| nodes.get(slot.node.as_str()).copied().ok_or("placed on a node that is not there");
    Ok(Some(placement.slots.iter().map(node).collect::<Result<_, _>>()?))
}

/// How many pods each node has when these are the nodes of the ranks.
fn taken(nodes: &[usize], tensor: u32) -> Placed {
    let mut ranks: BTreeMap<usize, u32> = BTreeMap::new();
    nodes.iter().for_each(|node| *ranks.entry(*node).or_default() += 1);
    ranks.into_iter().map(|(node, ranks)| (node, ranks.div_ceil(tensor))).collect()
}

/// The node of each rank, pods in the order of the placement.
pub(super) fn in_order(job: &Job, placed: &Placed) -> Vec<usize> {
    let ranks = |(node, pods): &(usize, u32)| std::iter::repeat_n(*node, (pods * job.tensor) as usize);
    placed.iter().flat_map(ranks).collect()
}

/// Of all communication, and of what leaves the nodes, in hundredths.
fn gains(ours: &Times, peer: &Times) -> [f64; 2] {
    let gain = |ours: f64, peer: f64| if peer > 0.0 { (1.0 - ours / peer) * 100.0 } else { 0.0 };
    [gain(ours.all(), peer.all()), gain(ours.outside(), peer.outside())]
}

impl Gain {
    fn of(pairs: &[Pair], of: fn(&Pair) -> [f64; 2]) -> Self {
        let count = pairs.len().max(1) as f64;
        let all = || pairs.iter().map(|pair| of(pair)[0]);
        Self {
            mean: all().sum::<f64>() / count,
            max: all().fold(f64::NEG_INFINITY, f64::max),
            min: all().fold(f64::INFINITY, f64::min),
            mean_outside: pairs.iter().map(|pair| of(pair)[1]).sum::<f64>() / count,
        }
    }
}

impl Loss {
    /// By how much, in hundredths of the peer's time.
    pub(crate) fn percent(&self) -> f64 {
        (self.ours_ms / self.peer_ms - 1.0) * 100.0
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, ranks, tensor, pipeline, data, fill, oversubscription, seed, .. } = self;
        write!(
            f,
            "{ranks} ranks (tp {tensor}, dp {data}, pp {pipeline}), {fill} % full, {oversubscription}:1, seed {seed}: "
        )?;
        let (ours_leaves, peer_leaves) = (self.ours_leaves, self.peer_leaves);
        write!(
            f,
            "ours {:.2} ms on {ours_leaves} leaves, {peer} {:.2} ms on {peer_leaves}",
            self.ours_ms, self.peer_ms
        )
    }
}

/// The nodes of a placement as the engine's mapping reads them: every block and leaf with its uplink.
pub(super) fn sites(
    scene: &Scene,
    placed: &Placed,
    gpus: u32,
    inside_mb_per_s: u32,
) -> Result<Sites, String> {
    let mut domains = Vec::new();
    let mut known: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    let mut sites = Vec::new();
    for (node, pods) in placed {
        let mut parent = None;
        for level in 1..=LEAF {
            let at = scene.cluster.spans[level].partition_point(|span| span.end <= *node);
            let next = u32::try_from(domains.len()).map_err(|e| e.to_string())?;
            parent = Some(*known.entry((level, at)).or_insert_with(|| {
                domains.push(grid::Domain {
                    parent,
                    uplink_mb_per_s: scene.uplinks[level][at],
                    latency_ns: scene.latencies[level],
                });
                next
            }));
        }
        let ranks = pods * gpus;
        let nic_mb_per_s = ranks * RAIL_MB_PER_S;
        sites.push(Site { parent, ranks, nic_mb_per_s, latency_ns: 0, inside_mb_per_s });
    }
    Sites::new(&domains, &sites).map_err(|e| e.to_string())
}
