//! What a step's communication takes for ranks on nodes, by the equations of `phalanx_cost`. Written for this
//! bench alone: it shares nothing with what the engine optimises but the description of the job.
//!
//! All-reduces are rings in rank order: of other algorithms the traffic through an uplink does not follow
//! from the placement. All groups of an axis talk at once and share NICs and uplinks by how often they pass
//! through them.

use phalanx_cost::{Algorithm, Collective, Constants, Era, Inner, Span, collective};
use phalanx_engine::grid;

use super::job::Job;
use super::scene::Scene;
use crate::peers::ours::RAIL_MB_PER_S;

/// Milliseconds of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Times {
    /// Inside the nodes.
    pub(crate) tensor: f64,
    pub(crate) data: f64,
    pub(crate) pipeline: f64,
}

impl Times {
    pub(crate) fn all(&self) -> f64 {
        self.tensor + self.outside()
    }

    pub(crate) fn outside(&self) -> f64 {
        self.data + self.pipeline
    }
}

/// `nodes` has the node of every rank; `inside_mb` is what two GPUs of a node have to each other.
pub(crate) fn step(scene: &Scene, job: &Job, nodes: &[usize], inside_mb: f64) -> Times {
    let [tensor, data, pipeline] = job.axes;
    let mut ground = Ground::new(scene, nodes, inside_mb);
    Times {
        tensor: ground.axis(&tensor, 1),
        data: ground.axis(&data, job.tensor as usize),
        pipeline: ground.axis(&pipeline, (job.tensor * job.data) as usize),
    }
}

struct Ground<'a> {
    scene: &'a Scene,
    nodes: &'a [usize],
    inside_mb: f64,
    /// Ranks of the job on each node.
    ranks: Vec<u32>,
    /// By level, the node last, by domain: how often the rings of an axis leave it.
    exits: Vec<Vec<u32>>,
}

impl<'a> Ground<'a> {
    fn new(scene: &'a Scene, nodes: &'a [usize], inside_mb: f64) -> Self {
        let mut ranks = vec![0; scene.cluster.names.len()];
        for node in nodes {
            ranks[*node] += 1;
        }
        let exits = scene.cluster.spans.iter().map(|spans| vec![0; spans.len()]).collect();
        Self { scene, nodes, inside_mb, ranks, exits }
    }

    fn domain(&self, level: usize, node: usize) -> usize {
        self.scene.cluster.spans[level].partition_point(|span| span.end <= node)
    }

    /// Milliseconds of the slowest group of an axis.
    fn axis(&mut self, axis: &grid::Axis, stride: usize) -> f64 {
        let degree = axis.degree as usize;
        if degree < 2 {
            return 0.0;
        }
        let heads = (0..self.nodes.len()).filter(|rank| (rank / stride).is_multiple_of(degree));
        let group = |head: usize| (0..degree).map(|at| self.nodes[head + at * stride]).collect();
        let groups: Vec<Vec<usize>> = heads.map(group).collect();
        let is_ring = axis.collective != grid::Collective::PointToPoint;
        self.exits.iter_mut().for_each(|exits| exits.fill(0));
        for group in &groups {
            for (from, to) in hops(group, is_ring) {
                self.pass(from, to);
                if !is_ring {
                    self.pass(to, from);
                }
            }
        }
        let times = groups.iter().map(|group| match is_ring {
            true => self.time(group, axis, Collective::AllReduce),
            // Every stage sends at once, so the slowest hop is what counts.
            false => hops(group, false)
                .map(|(from, to)| self.time(&[from, to], axis, Collective::PointToPoint))
                .fold(0.0, f64::max),
        });
        times.fold(0.0, f64::max) * f64::from(axis.calls) / 1e6
    }

    fn pass(&mut self, from: usize, to: usize) {
        for level in 0..self.exits.len() {
            let (a, b) = (self.domain(level, from), self.domain(level, to));
            if a != b {
                self.exits[level][a] += 1;
            }
        }
    }

    fn time(&self, group: &[usize], axis: &grid::Axis, collective: Collective) -> f64 {
        let mut sorted = group.to_vec();
        sorted.sort_unstable();
        let on_nodes = || sorted.chunk_by(|a, b| a == b).map(<[usize]>::len);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let mut span = Span {
            ranks: count(group.len()),
            // A ring that comes back to a node leaves it again, and waits for that as for another node.
            nodes: count(hops(group, true).filter(|(from, to)| from != to).count().max(1)),
            per_node: count(on_nodes().max().unwrap_or(1)),
            ring_mb: self.inside_mb,
            pair_mb: self.inside_mb,
            inner: Inner::Nvlink,
            era: Era::Hopper,
            ..Span::ALONE
        };
        let node_level = self.exits.len() - 1;
        for (from, to) in hops(group, true).filter(|(from, to)| from != to) {
            let mut hop_ns = 0;
            for level in 0..=node_level {
                let (a, b) = (self.domain(level, from), self.domain(level, to));
                if a == b {
                    continue;
                }
                let exits = f64::from(self.exits[level][a].max(1));
                if level == node_level {
                    let nic_mb = f64::from(self.ranks[a] * RAIL_MB_PER_S) / exits;
                    span.nic_mb = span.nic_mb.min(nic_mb);
                } else {
                    hop_ns += 2 * self.scene.latencies[level];
                    let uplink_mb = f64::from(self.scene.uplinks[level][a]) / exits;
                    span.uplink_mb = span.uplink_mb.min(uplink_mb);
                }
            }
            span.hop_ns = span.hop_ns.max(f64::from(hop_ns));
        }
        let forced = (collective == Collective::AllReduce).then_some(Algorithm::Ring);
        collective::time(&span, collective, axis.bytes, forced, &Constants::DEFAULT).ns
    }
}

/// Neighbours in a ring, or in a chain.
fn hops(group: &[usize], is_ring: bool) -> impl Iterator<Item = (usize, usize)> {
    let edges = if is_ring { group.len() } else { group.len() - 1 };
    (0..edges).map(|at| (group[at], group[(at + 1) % group.len()]))
}
