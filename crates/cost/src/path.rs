//! How two ports reach each other, in the classes of NCCL (`src/graph/topo.h`, `paths.cc`), nearest first.

use phalanx_model::{LinkKind, Machine, Port};

use crate::link;

/// NCCL's order: a smaller class is nearer. `C2C`, `P2C` (through a CPU joined to its GPU) and `PXN` (through a
/// GPU next to the NIC) are ways that a [`Machine`] does not tell of; they are here for their place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathClass {
    /// The port itself.
    Loc,
    /// `NVLink` or xGMI.
    Nvl,
    /// `NVLink` by way of one other GPU.
    Nvb,
    C2c,
    /// At most one PCIe bridge.
    Pix,
    /// Several PCIe bridges.
    Pxb,
    P2c,
    Pxn,
    /// A PCIe host bridge.
    Phb,
    /// Between host bridges or sockets: NCCL does not tell them apart.
    Sys,
    /// Through the network.
    Net,
    /// Nothing is known.
    Dis,
}

impl PathClass {
    /// As NCCL's log and `nvidia-smi topo -m` write it: `PHB`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loc => "LOC",
            Self::Nvl => "NVL",
            Self::Nvb => "NVB",
            Self::C2c => "C2C",
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::P2c => "P2C",
            Self::Pxn => "PXN",
            Self::Phb => "PHB",
            Self::Sys => "SYS",
            Self::Net => "NET",
            Self::Dis => "DIS",
        }
    }
}

/// A path inside one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    pub class: PathClass,
    /// The least of its hops, one way; 0 where nothing is known or a NIC is an end.
    pub mb_per_s: u32,
    /// The GPU in between, for [`PathClass::Nvb`].
    pub by_way_of: Option<u32>,
}

/// The path that NCCL takes between two ports of a machine.
#[must_use]
pub fn path(machine: &Machine, a: Port, b: Port) -> Path {
    if a == b {
        return Path { class: PathClass::Loc, mb_per_s: 0, by_way_of: None };
    }
    let (Port::Device(a), Port::Device(b)) = (a, b) else {
        return Path { class: class(machine.link(a, b)), mb_per_s: 0, by_way_of: None };
    };
    let direct =
        Path { class: class(link::kind(machine, a, b)), mb_per_s: pair(machine, a, b), by_way_of: None };
    if direct.class <= PathClass::Nvb {
        return direct;
    }
    let nvlink = |a, b| matches!(link::kind(machine, a, b), Some(LinkKind::Nvlink(1..)));
    let between = (0..machine.device_count()).filter(|by| nvlink(a, *by) && nvlink(*by, b));
    let ways = between.map(|by| (pair(machine, a, by).min(pair(machine, by, b)), by));
    // The fastest, and of equals the one with the lowest number.
    let best = ways.reduce(|best, way| if way.0 > best.0 { way } else { best });
    best.map_or(direct, |(mb_per_s, by)| Path { class: PathClass::Nvb, mb_per_s, by_way_of: Some(by) })
}

fn pair(machine: &Machine, a: u32, b: u32) -> u32 {
    let device = |index: u32| machine.devices.get(index as usize);
    let (Some(from), Some(to)) = (device(a), device(b)) else { return 0 };
    link::pair_mb_per_s(from, to, link::between(machine, a, b))
}

const fn class(kind: Option<LinkKind>) -> PathClass {
    match kind {
        Some(LinkKind::Nvlink(_) | LinkKind::Xgmi) => PathClass::Nvl,
        Some(LinkKind::PcieSwitch) => PathClass::Pix,
        Some(LinkKind::PcieBridges) => PathClass::Pxb,
        Some(LinkKind::HostBridge) => PathClass::Phb,
        Some(LinkKind::Numa | LinkKind::Socket) => PathClass::Sys,
        None => PathClass::Dis,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn a_hybrid_cube_mesh_has_ways_over_one_other_gpu() {
        let machine = fixtures::hybrid_cube_mesh();
        let to = |b| path(&machine, Port::Device(0), Port::Device(b));
        assert_eq!(to(0).class, PathClass::Loc);
        assert_eq!((to(3).class, to(3).mb_per_s), (PathClass::Nvl, 40_000));
        // 0 and 4 have no link; 2 and 6 are next to both, with one link at the least.
        assert_eq!((to(4).class, to(4).mb_per_s, to(4).by_way_of), (PathClass::Nvb, 20_000, Some(2)));
        assert!((1..8).all(|b| to(b).class <= PathClass::Nvb), "two hops reach every GPU");
    }

    #[test]
    fn nics_and_unreadable_pairs_have_classes() {
        let mut machine = fixtures::two_sockets("A100", 4);
        fixtures::add_nic(&mut machine, &[(0, LinkKind::PcieBridges)]);
        let class = |a, b| path(&machine, a, b).class;
        assert_eq!(class(Port::Device(0), Port::Nic(0)), PathClass::Pxb);
        assert_eq!(class(Port::Device(1), Port::Nic(0)), PathClass::Dis);
        assert_eq!(class(Port::Device(0), Port::Device(3)), PathClass::Sys);
        assert_eq!(class(Port::Device(0), Port::Device(9)), PathClass::Dis);
    }
}
