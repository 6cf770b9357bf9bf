//! Instances from a seed: clusters that are partly filled, and gangs that want a place there.
//!
//! Seeds go around the kinds (traffic, constraint, size, depth), so that every kind comes equally often, and the
//! rest is drawn. Bandwidths come from short lists, so that bottlenecks tie and trade places.

use std::sync::Arc;

use phalanx_model::{
    CostTable, Device, DeviceMask, DomainCost, DomainName, Gang, LevelCost, LevelName, Levels, Machine,
    Needs, Node, NodeName, Origin, Pattern, Program, Segment, Topology, Traffic,
};

use super::hardware;
use super::objective::{self, Used};
use super::rng::Rng;

/// A cluster with what is used of it ([`Node::foreign`]); nodes are sorted by path and name.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) levels: Levels,
    pub(super) table: CostTable,
    pub(super) nodes: Vec<Node>,
}

impl Cluster {
    /// Devices that nobody holds.
    pub(super) fn free(&self) -> u32 {
        self.nodes.iter().map(|node| free(node).count()).sum()
    }

    /// Devices that are taken are no longer free.
    pub(super) fn take(&mut self, used: &[Used]) {
        for used in used {
            let node = &mut self.nodes[used.node];
            node.foreign = node.foreign.union(used.devices);
        }
    }
}

/// How the gang talks. The model knows one all-reduce: large messages run on rings and small ones on trees, and
/// both cross the same domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Talk {
    Ring,
    Tree,
    AllToAll,
}

/// What the gang insists on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wish {
    Nothing,
    Segments,
    Required,
    PerNode,
    RequiredSegments,
}

const TALKS: [Talk; 3] = [Talk::Ring, Talk::Tree, Talk::AllToAll];
const WISHES: [Wish; 5] =
    [Wish::Nothing, Wish::Segments, Wish::Required, Wish::PerNode, Wish::RequiredSegments];
/// Nodes at most.
const SIZES: [u64; 3] = [8, 24, 64];
/// Names of the levels above the node, by how many there are.
const LEVELS: [&[&str]; 4] = [
    &["cluster"],
    &["cluster", "leaf"],
    &["cluster", "block", "leaf"],
    &["cluster", "zone", "block", "leaf"],
];
/// Uplinks in MB/s; 0: not known.
const UPLINKS: [u32; 8] = [0, 0, 5_000, 12_500, 25_000, 50_000, 100_000, 400_000];
const LATENCIES_NS: [u32; 5] = [0, 300, 1_000, 2_000, 5_000];
/// Uplinks and latencies as fabrics are built, for queues: a mean of gaps is not to hang on odd ratios.
const USUAL_UPLINKS: [u32; 3] = [100_000, 200_000, 400_000];
const USUAL_LATENCIES_NS: [u32; 3] = [1_000, 2_000, 5_000];

impl Talk {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::AllToAll => "all-to-all",
        }
    }
}

impl Wish {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Nothing => "anywhere",
            Self::Segments => "segments",
            Self::Required => "required level",
            Self::PerNode => "equal per node",
            Self::RequiredSegments => "required level, segments",
        }
    }
}

/// One gang and one cluster.
pub(super) struct Instance {
    pub(super) talk: Talk,
    pub(super) wish: Wish,
    pub(super) cluster: Cluster,
    pub(super) gang: Gang,
}

/// The instance of a seed.
pub(super) fn instance(seed: u64) -> Instance {
    let mut rng = Rng::new(seed);
    let (talk, wish) = (at(&TALKS, seed), at(&WISHES, seed / 3));
    let (size, levels) = (at(&SIZES, seed / 15), at(&LEVELS, seed / 45));
    let nodes = rng.between(if size > 8 { size / 2 } else { 2 }, size);
    let cluster = cluster(&mut rng, levels, nodes, Fabric::Odd);
    let most = match (talk, levels.len()) {
        (Talk::AllToAll, 4) => 20,
        (Talk::AllToAll, _) => 32,
        _ => 64,
    };
    let gang = gang(&mut rng, &cluster, talk, wish, most);
    Instance { talk, wish, cluster, gang }
}

/// A small cluster and the gangs that want it at once, in the order of their submission. Most of them ask for a
/// power of two of ranks with a device each and nothing else; all send large messages.
pub(super) fn queue(seed: u64) -> (Cluster, Vec<Gang>) {
    let mut rng = Rng::new(!seed);
    let levels = at(&LEVELS, 1 + seed % 2);
    let nodes = rng.between(3, 5);
    let cluster = cluster(&mut rng, levels, nodes, Fabric::Usual);
    let count = rng.between(4, 8);
    // From a third of what is free to all there is; what does not fit into the sum is not asked for.
    let mut left = u64::from(cluster.free());
    let mean = left * rng.between(30, 110) / 100 / count;
    let gangs = (0..count).map(|_| {
        let talk = at(&TALKS, rng.bits());
        let wish = if rng.chance(80) { Wish::Nothing } else { at(&WISHES, rng.bits()) };
        let devices = (rng.between(mean / 2, mean * 2).max(2) / 2 + 1).next_power_of_two();
        let mut gang = gang(&mut rng, &cluster, talk, wish, devices);
        if gang.members_per_node.is_none() {
            let size = u32::try_from(devices).unwrap_or(2);
            (gang.needs.devices, gang.size, gang.min, gang.max) = (1, size, size, size);
        }
        // Messages of one order, so that times can be added up.
        let bytes = rng.between(1 << 26, 1 << 28);
        gang.traffic = gang.traffic.map(|traffic| Traffic { bytes, ..traffic });
        gang
    });
    let mut gangs: Vec<Gang> = gangs.collect();
    gangs.retain(|gang| {
        let rest = left.checked_sub(super::queue::weight(gang));
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    (cluster, gangs)
}

fn at<T: Copy>(items: &[T], index: u64) -> T {
    items[usize::try_from(index % items.len() as u64).unwrap_or(0)]
}

/// Devices that nobody holds.
pub(super) fn free(node: &Node) -> DeviceMask {
    node.machine.device_mask().minus(node.foreign)
}

pub(super) fn level(text: &str) -> LevelName {
    LevelName::new(text).unwrap_or_else(|_| unreachable!("a word is a name"))
}

fn domain(text: String) -> DomainName {
    DomainName::new(text).unwrap_or_else(|_| unreachable!("a word and a number are a name"))
}

/// What a cluster is drawn from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fabric {
    /// Anything that the model can say.
    Odd,
    Usual,
}

fn cluster(rng: &mut Rng, names: &[&str], nodes: u64, fabric: Fabric) -> Cluster {
    let levels = Levels::new(names.iter().map(|name| level(name)).collect(), level("node"));
    let mut paths = Vec::new();
    let is_regular = rng.chance(50);
    grow(rng, names, &mut vec![domain("all".to_owned())], nodes, is_regular, &mut paths);
    let kinds = if rng.chance(70) { 1 } else { 2 };
    let shape = if fabric == Fabric::Odd { hardware::any } else { hardware::for_queue };
    let kinds: Vec<_> = (0..kinds).map(|index| shape(rng, index)).collect();
    let used_percents: &[u64] = if fabric == Fabric::Odd { &[0, 20, 40, 60, 80] } else { &[0, 20, 40] };
    let used_percent = *rng.pick(used_percents);
    let mut numbers: Vec<usize> = (0..paths.len()).collect();
    rng.shuffle(&mut numbers);
    let nodes = paths.into_iter().zip(numbers).map(|(path, number)| {
        let machine = machine(rng.pick(&kinds));
        let foreign = used(rng, machine.device_count(), used_percent);
        let name =
            NodeName::new(format!("n{number}")).unwrap_or_else(|_| unreachable!("a letter and a number"));
        let address = name.to_string();
        Node { address, foreign, ..Node::new(name, path, Arc::new(machine)) }
    });
    let mut nodes: Vec<Node> = nodes.collect();
    nodes.sort_by(|a, b| (&a.path, &a.name).cmp(&(&b.path, &b.name)));
    let mut table = costs(rng, &levels, &nodes, fabric);
    table.shapes = kinds.into_iter().map(|kind| (kind.name, kind.cost)).collect();
    Cluster { levels, table, nodes }
}

/// The paths of so many nodes below `path`.
fn grow(
    rng: &mut Rng,
    names: &[&str],
    path: &mut Vec<DomainName>,
    nodes: u64,
    is_regular: bool,
    out: &mut Vec<Vec<DomainName>>,
) {
    let Some(name) = names.get(path.len()) else {
        out.extend((0..nodes).map(|_| path.clone()));
        return;
    };
    let children = if rng.chance(15) { 1 } else { rng.between(2, 4).min(nodes) };
    let mut left = nodes;
    for child in 0..children {
        let after = children - child - 1;
        let here = match after {
            0 => left,
            _ if is_regular => left / (after + 1),
            _ => rng.between(1, left - after),
        };
        left -= here;
        path.push(domain(format!("{name}{child}")));
        grow(rng, names, path, here, is_regular, out);
        path.pop();
    }
}

fn machine(kind: &hardware::Hardware) -> Machine {
    let device = |index| Device { name: format!("GPU{index}"), ..Device::default() };
    let mut machine = Machine::bare(Origin::Declared);
    machine.shape = kind.name.clone();
    machine.devices = (0..kind.cost.devices).map(device).collect();
    machine
}

/// A node is empty, full, or loses each device with a chance.
fn used(rng: &mut Rng, devices: u32, percent: u64) -> DeviceMask {
    match rng.below(10) {
        0 | 1 => DeviceMask::EMPTY,
        2 if percent > 0 => DeviceMask::first(devices),
        _ => (0..devices).filter(|_| rng.chance(percent)).collect(),
    }
}

fn costs(rng: &mut Rng, levels: &Levels, nodes: &[Node], fabric: Fabric) -> CostTable {
    let mut table = CostTable::default();
    if fabric == Fabric::Usual {
        for name in &levels.above {
            table.levels.insert(name.clone(), cost(rng, &USUAL_UPLINKS, &USUAL_LATENCIES_NS));
        }
        return table;
    }
    for name in levels.above.iter().chain([&levels.node]) {
        if rng.chance(95) {
            table.levels.insert(name.clone(), cost(rng, &UPLINKS, &LATENCIES_NS));
        }
    }
    for node in nodes {
        let path = objective::whole_path(node);
        for end in 1..=path.len() {
            let is_known = table.domains.iter().any(|known| known.path == path[..end]);
            if !is_known && rng.chance(8) {
                let cost = cost(rng, &UPLINKS, &LATENCIES_NS);
                table.domains.push(DomainCost { path: path[..end].to_vec(), cost });
            }
        }
    }
    table.domains.sort_by(|a, b| a.path.cmp(&b.path));
    table
}

fn cost(rng: &mut Rng, uplinks: &[u32], latencies_ns: &[u32]) -> LevelCost {
    LevelCost { uplink_mb_per_s: *rng.pick(uplinks), latency_ns: *rng.pick(latencies_ns), inside_mb_per_s: 0 }
}

/// A gang of at most so many members that mostly, and not always, fits.
fn gang(rng: &mut Rng, cluster: &Cluster, talk: Talk, wish: Wish, devices_max: u64) -> Gang {
    let largest = cluster.nodes.iter().map(|node| free(node).count()).max().unwrap_or(0).max(1);
    let allowed = u32::try_from(devices_max).unwrap_or(u32::MAX);
    let mut devices = *rng.pick(&[1, 1, 1, 2, 2, 3, 4, 8]);
    if devices > largest.min(allowed) {
        devices = if rng.chance(95) { 1 } else { devices };
    }
    let fits = |node: &Node| u64::from(free(node).count() / devices);
    let depth = cluster.levels.above.len();
    let mut topology = Topology::default();
    let mut room: u64 = cluster.nodes.iter().map(fits).sum();
    if matches!(wish, Wish::Required | Wish::RequiredSegments) {
        let required = rng.index(depth).min(rng.index(depth)) + 1;
        topology.required = Some(level_at(&cluster.levels, required));
        // Nodes are sorted by path, so those of one domain stand together.
        let together = |a: &Node, b: &Node| required < depth && a.path[..=required] == b.path[..=required];
        let domains = cluster.nodes.chunk_by(together);
        room = domains.map(|nodes| nodes.iter().map(fits).sum()).max().unwrap_or(0);
    }
    let most = (devices_max / u64::from(devices)).clamp(1, 64).min(room.max(1));
    let mut size = match rng.below(20) {
        0 => room + 1,
        1 => 1,
        2..=6 => rng.up_to(most),
        _ => rng.between((most / 4).max(2).min(most), most),
    };
    let mut members_per_node = None;
    if wish == Wish::PerNode {
        let each = rng.up_to(u64::from(largest / devices).max(1));
        size = (size / each).max(1) * each;
        members_per_node = u32::try_from(each).ok();
    }
    if matches!(wish, Wish::Segments | Wish::RequiredSegments) {
        topology.segments = segments(rng, &cluster.levels);
    }
    let bits = match talk {
        Talk::Ring => (24, 32),
        Talk::Tree => (10, 20),
        Talk::AllToAll => (16, 30),
    };
    let bytes = (1 << rng.between(bits.0, bits.1)) + rng.below(1_000);
    let pattern = if talk == Talk::AllToAll { Pattern::AllToAll } else { Pattern::AllReduce };
    let size = u32::try_from(size).unwrap_or(1);
    Gang {
        size,
        min: size,
        max: size,
        needs: Needs { devices, ..Needs::default() },
        members_per_node,
        topology,
        traffic: Some(Traffic { pattern, bytes, compute_ns: 0 }),
        program: Program::default(),
        roles: Vec::new(),
        grid: Vec::new(),
    }
}

/// The level at a depth: 0 is the whole cluster, the last is the node.
fn level_at(levels: &Levels, depth: usize) -> LevelName {
    levels.above.get(depth).unwrap_or(&levels.node).clone()
}

/// One or two levels of parts, widest first.
fn segments(rng: &mut Rng, levels: &Levels) -> Vec<Segment> {
    let inner = rng.index(levels.above.len()) + 1;
    let size = *rng.pick(&[2, 2, 3, 4]);
    let mut segments = vec![Segment { size, level: level_at(levels, inner) }];
    if inner > 1 && rng.chance(50) {
        let outer = Segment { size: size * *rng.pick(&[1, 2, 3]), level: level_at(levels, inner - 1) };
        segments.insert(0, outer);
    }
    segments
}
