//! What one step of a job costs on a placement.
//!
//! A ring all-reduce among n devices takes `latency + 2(n-1)/n x bytes / B`, where B is the slowest part of
//! the ring: the best ring inside each node, the NICs near the devices that are used, and the uplinks of the
//! domains that the ring leaves. An all-to-all puts `j(n-j)/n x bytes` through the cut around any j of the n.
//! The ring visits the nodes in the order of their lowest rank, as NCCL does.

use std::collections::BTreeMap;

use phalanx_model::{
    CostTable, DeviceMask, LevelCost, LevelName, Levels, Node, NodeName, Pattern, Placement, ShapeCost,
    Traffic,
};

use crate::link::{
    self, BASE_LATENCY_NS, HOST_MEMORY_MB_PER_S, NIC_LATENCY_NS, NIC_PERCENT, NVLINK_LATENCY_NS,
    PCIE_LATENCY_NS, SOCKET_LATENCY_NS, SOCKET_MB_PER_S,
};
use crate::ring::{Fabric, Ring, best_ring, is_switched};
use crate::table::{near_nics, shape_cost};

/// What a prediction is made from.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub table: &'a CostTable,
    pub levels: &'a Levels,
    /// At least the nodes of the placement, in any order.
    pub nodes: &'a [Node],
    pub placement: &'a Placement,
    pub traffic: Traffic,
}

/// Why there is no prediction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CostError {
    #[error(
        "rank {rank} is placed on {node}, which is not among the nodes; list it or place the rank elsewhere"
    )]
    UnknownNode { rank: u32, node: NodeName },
    #[error("rank {rank} has devices {devices} of {node}, which has only {count}")]
    UnknownDevice { rank: u32, node: NodeName, devices: DeviceMask, count: u32 },
    #[error("rank {rank} has devices {devices} of {node}, which another rank has as well")]
    SharedDevice { rank: u32, node: NodeName, devices: DeviceMask },
}

/// What one step takes, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// Computation and communication, one after the other.
    pub step_ns: u64,
    /// Latency and transfer.
    pub communication_ns: u64,
    /// What the communication takes however small the message is.
    pub latency_ns: u64,
    /// What the bottleneck gives this job, one way; 0 when nothing is sent.
    pub bandwidth_bytes_per_s: u64,
    pub bottleneck: Bottleneck,
    /// How often the ring through all ranks passes from one domain to another; outermost level first, the
    /// nodes themselves last.
    pub crossings: Vec<Crossings>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossings {
    pub level: LevelName,
    pub count: u32,
}

/// The slowest part of the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// Nothing is sent: one rank, or no bytes.
    None,
    NvLink {
        node: NodeName,
    },
    Xgmi {
        node: NodeName,
    },
    Pcie {
        node: NodeName,
    },
    /// Between the sockets of one node.
    Socket {
        node: NodeName,
    },
    /// Ranks without devices talk through the memory of their host.
    HostMemory {
        node: NodeName,
    },
    Nic {
        node: NodeName,
    },
    /// The uplink of one domain of a level; the domain by its whole path.
    Uplink {
        level: LevelName,
        domain: String,
    },
}

/// What the gang uses of one node.
struct Part<'a> {
    node: &'a Node,
    cost: ShapeCost,
    devices: DeviceMask,
    /// Ends of communication: devices, and ranks without one.
    ends: u64,
    ring: Option<Ring>,
}

/// One part of the way: how many bytes go through it, at which bandwidth.
struct Leg {
    bytes: u128,
    mb_per_s: u64,
    at: Bottleneck,
}

/// # Errors
/// When the placement names a node or a device that is not there, or one device twice.
pub fn predict(input: &Input<'_>) -> Result<Prediction, CostError> {
    let parts = parts(input)?;
    let ends: u64 = parts.iter().map(|part| part.ends).sum();
    let crossings = crossings(input.levels, &parts);
    let compute_ns = input.traffic.compute_ns;
    if ends < 2 {
        return Ok(Prediction {
            step_ns: compute_ns,
            communication_ns: 0,
            latency_ns: 0,
            bandwidth_bytes_per_s: 0,
            bottleneck: Bottleneck::None,
            crossings,
        });
    }
    let latency_ns = latency_ns(input, &parts, ends);
    let slowest = legs(input, &parts, ends)
        .into_iter()
        .filter(|leg| leg.bytes > 0)
        // The first of the slowest: from the inside of the nodes outwards, in the order of names.
        .reduce(|slow, leg| if leg.ns() > slow.ns() { leg } else { slow });
    let transfer_ns = slowest.as_ref().map_or(0, Leg::ns);
    let communication_ns = latency_ns.saturating_add(transfer_ns);
    Ok(Prediction {
        step_ns: compute_ns.saturating_add(communication_ns),
        communication_ns,
        latency_ns,
        bandwidth_bytes_per_s: slowest.as_ref().map_or(0, |leg| leg.mb_per_s.saturating_mul(1_000_000)),
        bottleneck: slowest.map_or(Bottleneck::None, |leg| leg.at),
        crossings,
    })
}

/// The nodes in the order in which the ring visits them.
fn parts<'a>(input: &Input<'a>) -> Result<Vec<Part<'a>>, CostError> {
    let by_name: BTreeMap<&NodeName, &Node> = input.nodes.iter().map(|node| (&node.name, node)).collect();
    let mut at: BTreeMap<&NodeName, usize> = BTreeMap::new();
    let mut parts: Vec<Part<'a>> = Vec::new();
    for slot in &input.placement.slots {
        let (rank, devices) = (slot.rank, slot.devices);
        let Some(&node) = by_name.get(&slot.node) else {
            return Err(CostError::UnknownNode { rank, node: slot.node.clone() });
        };
        if !devices.is_subset_of(node.machine.device_mask()) {
            let count = node.machine.device_count();
            return Err(CostError::UnknownDevice { rank, node: node.name.clone(), devices, count });
        }
        let index = *at.entry(&node.name).or_insert(parts.len());
        if index == parts.len() {
            let known = input.table.shapes.get(&node.machine.shape).cloned();
            let cost = known.unwrap_or_else(|| shape_cost(&node.machine));
            parts.push(Part { node, cost, devices: DeviceMask::EMPTY, ends: 0, ring: None });
        }
        let Some(part) = parts.get_mut(index) else { continue };
        if !part.devices.and(devices).is_empty() {
            return Err(CostError::SharedDevice { rank, node: node.name.clone(), devices });
        }
        part.devices = part.devices.union(devices);
        part.ends += u64::from(devices.count().max(1));
    }
    add_rings(&mut parts);
    Ok(parts)
}

/// Nodes of one shape that use the same devices have the same ring: it is searched once.
fn add_rings(parts: &mut [Part<'_>]) {
    let mut found = BTreeMap::new();
    for part in parts {
        let machine = &part.node.machine;
        part.ring = *found
            .entry((&machine.shape, part.devices))
            .or_insert_with(|| best_ring(machine, &part.cost, part.devices));
    }
}

fn legs(input: &Input<'_>, parts: &[Part<'_>], ends: u64) -> Vec<Leg> {
    let bytes = u128::from(input.traffic.bytes);
    let n = u128::from(ends);
    // What passes through a cut around `inside` of the ends.
    let through = |inside: u64| match input.traffic.pattern {
        Pattern::AllReduce => ceil_div(2 * (n - 1) * bytes, n),
        Pattern::AllToAll => ceil_div(u128::from(inside) * u128::from(ends - inside) * bytes, n),
    };
    let mut legs: Vec<Leg> = parts.iter().filter_map(|part| part.inner_leg(input.traffic, ends)).collect();
    if parts.len() > 1 {
        let declared = declared_nic(input);
        legs.extend(parts.iter().map(|part| part.nic_leg(through(part.ends), declared)));
        legs.extend(uplink_legs(input, parts, through));
    }
    legs.sort_by_key(|leg| leg.at.sort_key());
    legs
}

impl Part<'_> {
    /// The way between the ends on this node.
    fn inner_leg(&self, traffic: Traffic, ends: u64) -> Option<Leg> {
        if self.ends < 2 {
            return None;
        }
        let (bytes, n) = (u128::from(traffic.bytes), u128::from(ends));
        let (mb_per_s, at) = self.inner();
        let through = match traffic.pattern {
            Pattern::AllReduce => ceil_div(2 * (n - 1) * bytes, n),
            // Direct links carry the pairs side by side; a port carries one peer after the other.
            Pattern::AllToAll if self.all_pairs_direct() => ceil_div(bytes, n),
            Pattern::AllToAll => ceil_div(u128::from(self.ends - 1) * bytes, n),
        };
        let mb_per_s = match traffic.pattern {
            Pattern::AllReduce => mb_per_s,
            Pattern::AllToAll => self.slowest_pair().map_or(mb_per_s, |pair| pair.min(mb_per_s)),
        };
        Some(Leg { bytes: through, mb_per_s, at })
    }

    /// What a ring inside the node gets, and over what.
    fn inner(&self) -> (u64, Bottleneck) {
        let node = self.node.name.clone();
        let memory = u64::from(HOST_MEMORY_MB_PER_S);
        let has_hosts = self.ends > u64::from(self.devices.count());
        match self.ring {
            Some(ring) if !has_hosts || u64::from(ring.mb_per_s) <= memory => {
                let at = match ring.fabric {
                    Fabric::NvLink => Bottleneck::NvLink { node },
                    Fabric::Xgmi => Bottleneck::Xgmi { node },
                    Fabric::Pcie => Bottleneck::Pcie { node },
                    Fabric::Socket => Bottleneck::Socket { node },
                };
                (u64::from(ring.mb_per_s), at)
            }
            _ => (memory, Bottleneck::HostMemory { node }),
        }
    }

    fn slowest_pair(&self) -> Option<u64> {
        let pairs = self.devices.iter().flat_map(|a| self.devices.iter().map(move |b| (a, b)));
        let known = pairs.filter(|(a, b)| a < b).map(|(a, b)| self.cost.pair(a, b).max(1));
        known.min().map(u64::from)
    }

    fn all_pairs_direct(&self) -> bool {
        use phalanx_model::LinkKind::{Nvlink, Xgmi};
        let machine = &self.node.machine;
        let direct = |a, b| matches!(machine.device_link(a, b), Some(Nvlink(_) | Xgmi));
        self.ends == u64::from(self.devices.count())
            && !is_switched(machine)
            && self.devices.iter().all(|a| self.devices.iter().all(|b| a == b || direct(a, b)))
    }

    /// What the table declares for the uplink of a node is reached as it is, and stands for NICs that nobody
    /// found; of those that were found, a ring gets [`NIC_PERCENT`].
    fn nic_leg(&self, bytes: u128, declared: Option<u32>) -> Leg {
        let found = u64::from(self.nic_mb_per_s()) * NIC_PERCENT / 100;
        let mb_per_s = match declared.map(u64::from) {
            Some(declared) if self.cost.nic_mb_per_s == 0 => declared,
            Some(declared) => declared.min(found),
            None => found,
        };
        Leg { bytes, mb_per_s: mb_per_s.max(1), at: Bottleneck::Nic { node: self.node.name.clone() } }
    }

    /// The NICs near the devices that are used: one GPU of eight gets its own rail, not all of them. Sockets
    /// where there are none.
    fn nic_mb_per_s(&self) -> u32 {
        let machine = &self.node.machine;
        let all = self.cost.nic_mb_per_s;
        if all == 0 {
            return SOCKET_MB_PER_S;
        }
        if self.devices.is_empty() {
            return all;
        }
        let (near, total) = (near_nics(machine, self.devices), near_nics(machine, machine.device_mask()));
        if near == 0 {
            // No NIC of its own: through those of other devices, as far as the way there carries.
            let far = machine.devices.first().map_or(SOCKET_MB_PER_S, link::far_nic_mb_per_s);
            return far.min(all);
        }
        let share = u64::from(all) * u64::from(near) / u64::from(total.max(1));
        u32::try_from(share).unwrap_or(u32::MAX)
    }
}

/// The uplink that the table declares for a node, which is its NICs.
fn declared_nic(input: &Input<'_>) -> Option<u32> {
    let cost = input.table.levels.get(&input.levels.node)?;
    Some(cost.uplink_mb_per_s).filter(|mb_per_s| *mb_per_s > 0)
}

/// The uplink of every domain above the nodes that the ring leaves. For an all-reduce, rings that leave a domain more than
/// once share its uplink; for an all-to-all everything that goes out counts already.
fn uplink_legs(input: &Input<'_>, parts: &[Part<'_>], through: impl Fn(u64) -> u128) -> Vec<Leg> {
    let mut legs = Vec::new();
    for (depth, level) in input.levels.above.iter().enumerate() {
        let Some(cost) = input.table.levels.get(level).filter(|cost| cost.uplink_mb_per_s > 0) else {
            continue;
        };
        let mut domains: BTreeMap<Vec<&str>, (u64, u64)> = BTreeMap::new();
        for (here, next) in ring_edges(parts) {
            let (inside, exits) = domains.entry(domain(input.levels, here.node, depth)).or_default();
            *inside += here.ends;
            *exits +=
                u64::from(domain(input.levels, here.node, depth) != domain(input.levels, next.node, depth));
        }
        for (path, (inside, exits)) in domains.into_iter().filter(|(_, (_, exits))| *exits > 0) {
            let shares = if input.traffic.pattern == Pattern::AllReduce { exits } else { 1 };
            let mb_per_s = (u64::from(cost.uplink_mb_per_s) / shares).max(1);
            let at = Bottleneck::Uplink { level: level.clone(), domain: path.join("/") };
            legs.push(Leg { bytes: through(inside), mb_per_s, at });
        }
    }
    legs
}

/// A ring has 2(n-1) hops, of which 2(k-1) leave a node (NCCL). In an all-to-all each end sends n-1 messages.
fn latency_ns(input: &Input<'_>, parts: &[Part<'_>], ends: u64) -> u64 {
    let inner =
        parts.iter().filter(|part| part.ends > 1).map(|part| match part.ring.map(|ring| ring.fabric) {
            Some(Fabric::NvLink | Fabric::Xgmi) => NVLINK_LATENCY_NS,
            _ => PCIE_LATENCY_NS,
        });
    let inner_ns = inner.max().unwrap_or(0);
    let nodes = parts.len() as u64;
    let outer_ns = if nodes > 1 { outer_hop_ns(input, parts) } else { 0 };
    let (inner_hops, outer_hops) = match input.traffic.pattern {
        Pattern::AllReduce => (2 * (ends - nodes), 2 * (nodes - 1)),
        Pattern::AllToAll => {
            let fewest = parts.iter().map(|part| part.ends).min().unwrap_or(ends);
            let most = parts.iter().map(|part| part.ends).max().unwrap_or(ends);
            (most - 1, ends - fewest)
        }
    };
    BASE_LATENCY_NS.saturating_add(inner_ns * inner_hops).saturating_add(outer_ns.saturating_mul(outer_hops))
}

/// The slowest hop between two nodes: the NICs, and every level it crosses.
fn outer_hop_ns(input: &Input<'_>, parts: &[Part<'_>]) -> u64 {
    let sockets = declared_nic(input).is_none() && parts.iter().any(|part| part.cost.nic_mb_per_s == 0);
    let nic = if sockets { SOCKET_LATENCY_NS } else { NIC_LATENCY_NS };
    let levels: Vec<LevelCost> = level_names(input.levels)
        .map(|level| input.table.levels.get(level).copied().unwrap_or_default())
        .collect();
    let hops = ring_edges(parts).map(|(here, next)| {
        let crossed = levels.iter().enumerate().filter(|(depth, _)| {
            domain(input.levels, here.node, *depth) != domain(input.levels, next.node, *depth)
        });
        crossed.map(|(_, cost)| u64::from(cost.latency_ns)).sum::<u64>()
    });
    nic + hops.max().unwrap_or(0)
}

fn crossings(levels: &Levels, parts: &[Part<'_>]) -> Vec<Crossings> {
    let count = |depth| {
        let crossed = ring_edges(parts)
            .filter(|(here, next)| domain(levels, here.node, depth) != domain(levels, next.node, depth));
        u32::try_from(crossed.count()).unwrap_or(u32::MAX)
    };
    let names = level_names(levels).cloned().enumerate();
    names.map(|(depth, level)| Crossings { level, count: count(depth) }).collect()
}

/// Outermost first; the level of the machine itself is last.
fn level_names(levels: &Levels) -> impl Iterator<Item = &LevelName> {
    levels.above.iter().chain(std::iter::once(&levels.node))
}

/// The domain of a node at a depth, by its whole path.
fn domain<'a>(levels: &Levels, node: &'a Node, depth: usize) -> Vec<&'a str> {
    let path = node.path.iter().map(AsRef::as_ref);
    if depth >= levels.above.len() {
        return path.chain(std::iter::once(node.name.as_ref())).collect();
    }
    path.take(depth + 1).collect()
}

/// Each part with the next around the ring.
fn ring_edges<'a, 'b>(parts: &'b [Part<'a>]) -> impl Iterator<Item = (&'b Part<'a>, &'b Part<'a>)> {
    parts.iter().zip(parts.iter().cycle().skip(1))
}

impl Bottleneck {
    /// From the inside of the nodes outwards, then by name.
    fn sort_key(&self) -> (u8, Option<NodeName>, Option<(LevelName, String)>) {
        match self {
            Self::None => (0, None, None),
            Self::NvLink { node }
            | Self::Xgmi { node }
            | Self::Pcie { node }
            | Self::Socket { node }
            | Self::HostMemory { node } => (1, Some(node.clone()), None),
            Self::Nic { node } => (2, Some(node.clone()), None),
            Self::Uplink { level, domain } => (3, None, Some((level.clone(), domain.clone()))),
        }
    }
}

impl Leg {
    /// MB/s are bytes per microsecond.
    fn ns(&self) -> u64 {
        let ns = ceil_div(self.bytes.saturating_mul(1_000), u128::from(self.mb_per_s.max(1)));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

fn ceil_div(a: u128, b: u128) -> u128 {
    a.div_ceil(b.max(1))
}
