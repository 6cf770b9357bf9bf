//! Clusters and gangs from a seed. Numbers come from short lists, so that bottlenecks tie and change order.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_model::{
    Admin, CostTable, Device, DeviceGroup, DeviceMask, DomainCost, DomainLimit, DomainName, Gang, LevelCost,
    LevelName, Levels, Machine, Needs, NicCost, Node, NodeName, Origin, Pattern, Program, ResourceName,
    Segment, ShapeCost, ShapeName, Spread, Topology, Traffic,
};

/// `SplitMix64` (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another generator that leaves this generator as it is: draws from it change nothing else that a seed determines.
    fn beside(&self) -> Self {
        Self(self.0 ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number between both, inclusive.
    pub(crate) fn between(&mut self, first: u32, last: u32) -> u32 {
        first + (self.bits() % u64::from(last - first + 1)) as u32
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.bits() % 100 < percent
    }

    pub(crate) fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[(self.bits() % items.len() as u64) as usize].clone()
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.between(0, last as u32) as usize);
        }
    }
}

/// A cluster, its nodes in the order of the tree: by path, then by name.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) levels: Levels,
    pub(crate) table: CostTable,
    pub(crate) nodes: Vec<Node>,
}

/// The size of a cluster, and its irregularity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Up to five nodes of up to six devices: every placement can be tried.
    Tiny,
    /// 130 to 300 nodes.
    Large,
}

const LEVELS: [&[&str]; 3] = [&["cluster"], &["cluster", "leaf"], &["cluster", "block", "leaf"]];
/// Levels inside nodes, in the order in which they nest: the order of their names.
pub(crate) const ISLAND: &str = "island";
pub(crate) const SOCKET: &str = "socket";
const RATES: [u32; 6] = [5_000, 8_000, 12_500, 25_000, 50_000, 100_000];

/// A resource that is counted on nodes.
const NIC: &str = "nic";
/// A resource that is counted in domains.
const POWER: &str = "power";

fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).unwrap()
}

pub(crate) fn level(text: &str) -> LevelName {
    LevelName::new(text).unwrap()
}

pub(crate) fn domain(text: impl Into<String>) -> DomainName {
    DomainName::new(text).unwrap()
}

/// The domains from the root to the node itself.
pub(crate) fn whole_path(node: &Node) -> Vec<DomainName> {
    node.path.iter().cloned().chain([domain(node.name.as_str())]).collect()
}

pub(crate) fn cluster(rng: &mut Rng, scale: Scale) -> Cluster {
    let mut beside = rng.beside();
    let names = match scale {
        Scale::Tiny => rng.pick(&LEVELS),
        Scale::Large => rng.pick(&LEVELS[1..]),
    };
    let mut levels = Levels::new(names.iter().map(|name| level(name)).collect(), level("node"));
    let (count, fan) = match scale {
        Scale::Tiny => (rng.between(1, 5), [rng.between(1, 2), rng.between(1, 3)]),
        Scale::Large => (rng.between(130, 300), [rng.between(2, 5), rng.between(2, 12)]),
    };
    let kinds = (0..rng.pick(&[1, 1, 2])).map(|kind| {
        let (cost, mut machine) = machine(rng, kind, scale);
        if beside.chance(70) {
            machine.named.insert(resource(NIC), beside.between(0, 8).into());
        }
        (cost, Arc::new(machine))
    });
    let kinds: Vec<(ShapeCost, Arc<Machine>)> = kinds.collect();
    let used = rng.pick(&[0, 0, 0, 20, 50]);
    let mut numbers: Vec<u32> = (0..count).collect();
    rng.shuffle(&mut numbers);
    let roots = if rng.chance(5) { 2 } else { 1 };
    let nodes = numbers.into_iter().map(|number| {
        let mut path = vec![domain(format!("all{}", rng.between(1, roots)))];
        path.extend((1..names.len()).map(|at| domain(format!("d{}", rng.between(0, fan[at - 1])))));
        let machine = rng.pick(&kinds).1;
        let foreign = if rng.chance(30) { 0 } else { used };
        Node {
            admin: if rng.chance(8) { Admin::Cordoned } else { Admin::Open },
            foreign: (0..machine.device_count()).filter(|_| rng.chance(foreign)).collect(),
            ..Node::new(NodeName::new(format!("n{number}")).unwrap(), path, machine)
        }
    });
    let mut nodes: Vec<Node> = nodes.collect();
    nodes.sort_by(|a, b| (&a.path, &a.name).cmp(&(&b.path, &b.name)));
    levels.limits = limits(&mut beside, &levels, &nodes, scale);
    let mut table = costs(rng, &levels, &nodes);
    table.shapes = kinds.into_iter().map(|(cost, machine)| (machine.shape.clone(), cost)).collect();
    Cluster { levels, table, nodes }
}

fn costs(rng: &mut Rng, levels: &Levels, nodes: &[Node]) -> CostTable {
    let mut table = CostTable::default();
    let joins = rng.chance(15);
    for name in levels.above.iter().chain([&levels.node]) {
        if rng.chance(90) {
            let mut cost = any_cost(rng);
            if joins && *name != levels.node && rng.chance(50) {
                // Faster than any NICs: a slower one would not be used.
                cost.inside_mb_per_s = rng.pick(&[400_000, 900_000]);
            }
            table.levels.insert(name.clone(), cost);
        }
    }
    let mut odd: BTreeMap<Vec<DomainName>, LevelCost> = BTreeMap::new();
    for node in nodes {
        let path = whole_path(node);
        for end in 1..=path.len() {
            if rng.chance(3) {
                odd.insert(path[..end].to_vec(), any_cost(rng));
            }
        }
    }
    table.domains = odd.into_iter().map(|(path, cost)| DomainCost { path, cost }).collect();
    table
}

fn any_cost(rng: &mut Rng) -> LevelCost {
    let uplink_mb_per_s = if rng.chance(20) { 0 } else { rng.pick(&RATES) };
    LevelCost { uplink_mb_per_s, latency_ns: rng.pick(&[0, 300, 2_000, 5_000]), inside_mb_per_s: 0 }
}

/// Domains that share an amount of a resource, a whole level or a single domain.
fn limits(rng: &mut Rng, levels: &Levels, nodes: &[Node], scale: Scale) -> Vec<DomainLimit> {
    let most = if scale == Scale::Tiny { 12 } else { 200 };
    let count = if rng.chance(30) { rng.between(1, 2) } else { 0 };
    let limit = |_| {
        let at = rng.between(0, levels.above.len() as u32 - 1) as usize;
        let path = rng.chance(30).then(|| rng.pick(nodes).path[..=at].to_vec());
        let amount = rng.between(0, most).into();
        DomainLimit { level: levels.above[at].clone(), path, resource: resource(POWER), amount }
    };
    (0..count).map(limit).collect()
}

fn machine(rng: &mut Rng, kind: u32, scale: Scale) -> (ShapeCost, Machine) {
    let devices: u32 = match scale {
        Scale::Tiny => rng.pick(&[1, 2, 3, 4, 4, 4, 6]),
        Scale::Large => rng.pick(&[4, 8, 8]),
    };
    let (near, far, is_motley) = (rng.pick(&RATES), rng.pick(&RATES), rng.chance(30));
    let half = devices.div_ceil(2);
    let mut pair_mb_per_s = vec![0; (devices * devices) as usize];
    for a in 0..devices {
        for b in 0..a {
            let same = (a < half) == (b < half);
            let rate = if is_motley { rng.pick(&RATES) } else { [far, near][usize::from(same)] };
            pair_mb_per_s[(a * devices + b) as usize] = rate;
            pair_mb_per_s[(b * devices + a) as usize] = rate;
        }
    }
    let nic = |rng: &mut Rng| NicCost {
        near: DeviceMask(rng.bits()).and(DeviceMask::first(devices)),
        mb_per_s: rng.pick(&RATES),
    };
    let nics = if rng.chance(60) { Vec::new() } else { (0..rng.between(1, 3)).map(|_| nic(rng)).collect() };
    let sets = if rng.chance(15) { 1 << devices } else { 0 };
    let cost = ShapeCost {
        devices,
        pair_mb_per_s,
        nic_mb_per_s: rng.pick(&[0, 5_000, 12_500, 25_000]),
        nics,
        sets_mb_per_s: (0..sets).map(|_| rng.pick(&RATES)).collect(),
        far_mb_per_s: rng.pick(&[0, 0, 3_000, 11_000]),
        slot_mb_per_s: rng.pick(&[0, 0, 0, 9_000]),
        ..ShapeCost::default()
    };
    let mixed = rng.chance(15);
    let mut machine = Machine::bare(Origin::Declared);
    machine.shape = ShapeName::new(format!("shape{kind}")).unwrap();
    machine.devices = (0..devices)
        .map(|at| Device {
            model: if (kind == 0) ^ (mixed && at % 2 == 1) { "NVIDIA A100" } else { "NVIDIA H100" }.into(),
            ..Device::default()
        })
        .collect();
    let halves = [DeviceMask::first(half), DeviceMask::first(devices).minus(DeviceMask::first(half))];
    let even: DeviceMask = (0..devices).filter(|at| at % 2 == 0).collect();
    if rng.chance(50) {
        machine.groups.extend(halves.map(|mask| DeviceGroup::new(level(ISLAND), mask)));
    }
    if rng.chance(30) {
        let sets = [even, DeviceMask::first(devices).minus(even)];
        machine.groups.extend(sets.map(|mask| DeviceGroup::new(level(SOCKET), mask)));
    }
    machine.groups.retain(|group| !group.devices.is_empty());
    machine.cpu_milli = rng.pick(&[3_000, 8_000, 64_000]);
    machine.memory_bytes = rng.pick(&[4, 7, 64]);
    (cost, machine)
}

/// Levels of a cluster that a gang can name, from the outermost inwards.
fn named_levels(cluster: &Cluster) -> Vec<LevelName> {
    let groups = cluster.nodes.iter().flat_map(|node| &node.machine.groups);
    let mut inside: Vec<LevelName> = groups.map(|group| group.level.clone()).collect();
    inside.sort();
    inside.dedup();
    cluster.levels.above.iter().chain([&cluster.levels.node]).cloned().chain(inside).collect()
}

/// A gang; one of three has requirements beside members with devices, CPUs and memory in their places.
pub(crate) fn gang(rng: &mut Rng, cluster: &Cluster, most: u32) -> Gang {
    let mut beside = rng.beside();
    let mut gang = plain_gang(rng, cluster, most);
    if beside.chance(33) {
        vary(&mut beside, cluster, &mut gang);
    }
    gang
}

fn vary(rng: &mut Rng, cluster: &Cluster, gang: &mut Gang) {
    let needs = &mut gang.needs;
    let has_nics = cluster.nodes.iter().any(|node| !node.machine.named.is_empty());
    if has_nics && rng.chance(35) {
        needs.named.insert(resource(NIC), rng.between(1, 3).into());
    }
    if !cluster.levels.limits.is_empty() && rng.chance(60) {
        needs.named.insert(resource(POWER), rng.between(1, 3).into());
    }
    if rng.chance(20) {
        needs.avoid = (0..rng.between(1, 2)).map(|_| rng.pick(&cluster.nodes).name).collect();
    }
    needs.is_exclusive = rng.chance(20);
    if rng.chance(40) {
        let level =
            rng.pick(&[&cluster.levels.above[..], std::slice::from_ref(&cluster.levels.node)].concat());
        gang.topology.spread.push(Spread { level, max: rng.between(1, 4) });
    }
}

fn plain_gang(rng: &mut Rng, cluster: &Cluster, most: u32) -> Gang {
    let levels = named_levels(cluster);
    let devices = rng.pick(&[1, 1, 1, 1, 2, 2, 3, 0]);
    let mut size = rng.between(1, (most / u32::max(devices, 1)).max(1));
    let mut members_per_node = None;
    if rng.chance(15) {
        let each = rng.between(1, 3);
        size = (size / each).max(1) * each;
        members_per_node = Some(each);
    }
    let required = rng.chance(25).then(|| rng.pick(&levels));
    let segments = if rng.chance(40) { segments(rng, cluster, &levels) } else { Vec::new() };
    let fits_node = |segment: &Segment| {
        cluster.levels.above.contains(&segment.level)
            || members_per_node.is_none_or(|each| each % segment.size == 0)
                && (devices > 0 || segment.level == cluster.levels.node)
    };
    let segments: Vec<Segment> = segments.into_iter().filter(fits_node).collect();
    let names = if rng.chance(10) { rng.between(1, 4) } else { 0 };
    let nodes = (0..names).map(|_| rng.pick(&cluster.nodes).name).collect();
    let pattern = if rng.chance(35) { Pattern::AllToAll } else { Pattern::AllReduce };
    let bytes = rng.pick(&[0, 1_000, 1 << 20, (1 << 28) + 7]);
    let compute_ns = rng.pick(&[0, 0, 1 << 20, 1 << 28]);
    Gang {
        size,
        min: size,
        max: size,
        needs: Needs {
            devices,
            models: if rng.chance(15) {
                Needs::of_model(rng.pick(&["a100", "H100", "nvidia", "nvidia", "V100"]))
            } else {
                Vec::new()
            },
            cpu_milli: rng.pick(&[0, 0, 0, 500, 1_000, 2_000]),
            memory_bytes: rng.pick(&[0, 0, 0, 1, 2]),
            nodes,
            ..Needs::default()
        },
        members_per_node,
        topology: Topology { required, segments, ..Topology::default() },
        traffic: rng.chance(75).then_some(Traffic { pattern, bytes, compute_ns }),
        program: Program::default(),
        roles: Vec::new(),
        grid: Vec::new(),
    }
}

/// One to three nested parts, widest first. At most one of the levels inside the node: two of them need not nest.
fn segments(rng: &mut Rng, cluster: &Cluster, levels: &[LevelName]) -> Vec<Segment> {
    let mut size = rng.between(1, 3);
    let mut segments: Vec<Segment> = Vec::new();
    let is_inside = |level: &LevelName| level.as_str() == ISLAND || level.as_str() == SOCKET;
    for level in levels.iter().rev() {
        let has_inside = segments.iter().any(|segment| is_inside(&segment.level));
        if segments.len() < 3 && rng.chance(35) && !(is_inside(level) && has_inside) {
            segments.push(Segment { size, level: level.clone() });
            size *= rng.between(1, 3);
        }
    }
    segments.reverse();
    debug_assert!(cluster.levels.above.len() < levels.len());
    segments
}
