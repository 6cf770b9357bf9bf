//! One collective at several sizes on one placement, with the figures of nccl-tests.

use std::collections::BTreeMap;

use phalanx_model::{CostTable, DeviceMask, Levels, Node, NodeName, Placement, Port};

use crate::compiled::{Compiled, Scratch};
use crate::measurements::bus_factor;
use crate::{Bottleneck, Collective, Constants, CostError, PathClass, Time, path};

/// Where a collective runs, and by which constants it is predicted.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    pub table: &'a CostTable,
    pub levels: &'a Levels,
    /// At least the nodes of the placement, in any order.
    pub nodes: &'a [Node],
    pub placement: &'a Placement,
    /// [`Constants::DEFAULT`], or those of a site.
    pub constants: &'a Constants,
}

/// One call of a collective.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Size of the message, counted as [`Collective`] says.
    pub bytes: u64,
    pub time: Time,
    /// The slowest part of the way.
    pub bottleneck: Bottleneck,
    /// The farthest class of path between two of the devices that the bottleneck lies between. `None` if no devices
    /// of one node are the bottleneck.
    pub path: Option<PathClass>,
    /// Devices, and ranks without one.
    pub ranks: u32,
    /// Bus bandwidth is algorithm bandwidth times this (nccl-tests, doc/PERFORMANCE.md).
    pub bus_factor: f64,
}

impl Point {
    /// Algorithm bandwidth in bytes/s: the size over the time. 0 when nothing takes time.
    #[must_use]
    pub fn algorithm_bytes_per_s(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a message of 2^53 bytes is petabytes")]
        let bytes = self.bytes as f64;
        if self.time.ns > 0.0 { bytes / self.time.ns * 1e9 } else { 0.0 }
    }

    /// Bus bandwidth in bytes/s: what the slowest link would have to carry for this time, whatever the number of ranks.
    #[must_use]
    pub fn bus_bytes_per_s(&self) -> f64 {
        self.algorithm_bytes_per_s() * self.bus_factor
    }
}

/// The times of `collective` at each of `sizes`, in bytes, by the fastest algorithm of the library.
///
/// # Errors
/// When the placement names a node or a device that is not there, or one device twice.
pub fn sweep(ground: &Ground<'_>, collective: Collective, sizes: &[u64]) -> Result<Vec<Point>, CostError> {
    let all: BTreeMap<&NodeName, &Node> = ground.nodes.iter().map(|node| (&node.name, node)).collect();
    let mut used: BTreeMap<&NodeName, DeviceMask> = BTreeMap::new();
    for slot in &ground.placement.slots {
        let mask = used.entry(&slot.node).or_default();
        *mask = mask.union(slot.devices);
    }
    let nodes: Vec<Node> = used.keys().filter_map(|name| all.get(name)).map(|node| (*node).clone()).collect();
    let (compiled, ranks) =
        Compiled::of_placement(&nodes, ground.levels, ground.table, ground.constants, ground.placement)?;
    let mut scratch = Scratch::default();
    let point = |bytes: &u64| {
        let estimate = compiled.time(&mut scratch, &ranks, collective, *bytes, None);
        let bottleneck = compiled.bottleneck(&estimate);
        let inside = match &bottleneck {
            Bottleneck::NvLink { node }
            | Bottleneck::Xgmi { node }
            | Bottleneck::Pcie { node }
            | Bottleneck::Socket { node } => all.get(node).zip(used.get(node)),
            _ => None,
        };
        Point {
            bytes: *bytes,
            time: estimate.time,
            path: inside.and_then(|(node, devices)| farthest(node, *devices)),
            bottleneck,
            ranks: estimate.span.ranks,
            bus_factor: bus_factor(collective, estimate.span.ranks),
        }
    };
    Ok(sizes.iter().map(point).collect())
}

/// The farthest class of path between any two of these devices.
fn farthest(node: &Node, devices: DeviceMask) -> Option<PathClass> {
    let pairs = devices.iter().flat_map(|a| devices.iter().filter(move |b| a < *b).map(move |b| (a, b)));
    pairs.map(|(a, b)| path(&node.machine, Port::Device(a), Port::Device(b)).class).max()
}

#[cfg(test)]
mod tests {
    use phalanx_model::{LevelName, LinkKind, Slot};

    use super::*;
    use crate::{Limit, fixtures};

    fn at(slots: &[(&str, u32)]) -> Placement {
        let slot = |(rank, (node, device)): (u32, &(&str, u32))| Slot {
            rank,
            node: NodeName::new(*node).unwrap(),
            devices: DeviceMask::one(*device),
            part: None,
        };
        Placement { slots: (0..).zip(slots).map(slot).collect(), level: LevelName::new("node").unwrap() }
    }

    fn swept(nodes: &[Node], placement: &Placement, collective: Collective, sizes: &[u64]) -> Vec<Point> {
        let levels = Levels::new(vec![LevelName::new("cluster").unwrap()], LevelName::new("node").unwrap());
        let (table, constants) = (CostTable::default(), &Constants::DEFAULT);
        let ground = Ground { table: &table, levels: &levels, nodes, placement, constants };
        sweep(&ground, collective, sizes).unwrap()
    }

    #[test]
    fn bandwidths_are_those_of_nccl_tests() {
        let nodes = [fixtures::node("n1", &["c"], fixtures::switched("H100", 4, 18, 4))];
        let all = at(&[("n1", 0), ("n1", 1), ("n1", 2), ("n1", 3)]);
        let points = swept(&nodes, &all, Collective::AllReduce, &[8, 1 << 30]);
        let [small, large] = points.as_slice() else { panic!("{points:?}") };
        assert_eq!((small.ranks, small.time.limit), (4, Limit::Latency));
        let algorithm = (1_u64 << 30) as f64 / large.time.ns;
        assert!((large.algorithm_bytes_per_s() / 1e9 - algorithm).abs() < 1e-9);
        assert!((large.bus_bytes_per_s() / large.algorithm_bytes_per_s() - 1.5).abs() < 1e-9, "2(n-1)/n");
        assert_eq!(large.path, Some(PathClass::Nvl));
        assert!(large.time.ns > small.time.ns);
    }

    #[test]
    fn the_class_of_a_path_over_pcie_is_that_of_the_farthest_pair() {
        let kind = |a, b| if a / 2 == b / 2 { LinkKind::PcieSwitch } else { LinkKind::HostBridge };
        let nodes = [fixtures::node("n1", &["c"], fixtures::machine("A100", 4, kind))];
        let near = swept(&nodes, &at(&[("n1", 0), ("n1", 1)]), Collective::AllGather, &[1 << 30]);
        let far = swept(&nodes, &at(&[("n1", 0), ("n1", 3)]), Collective::AllGather, &[1 << 30]);
        assert_eq!((near[0].path, far[0].path), (Some(PathClass::Pix), Some(PathClass::Phb)));
        assert!(far[0].time.ns > near[0].time.ns);
    }

    #[test]
    fn one_rank_sends_nothing() {
        let nodes = [fixtures::node("n1", &["c"], fixtures::switched("H100", 4, 18, 4))];
        let alone = swept(&nodes, &at(&[("n1", 2)]), Collective::AllReduce, &[1 << 20]);
        assert_eq!(alone[0].bottleneck, Bottleneck::None);
        assert!(alone[0].algorithm_bytes_per_s() <= 0.0);
    }
}
