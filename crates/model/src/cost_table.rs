//! Bandwidths and latencies as integers: what `cost` compiles and the engine reads, so that every platform decides alike.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{DeviceMask, DomainName, LevelName, NodeName, ShapeName};

/// Costs of every hardware shape and every level. Megabytes are 10^6 bytes, one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CostTable {
    pub shapes: BTreeMap<ShapeName, ShapeCost>,
    /// The cost of crossing a domain of this level: the uplink of one domain.
    pub levels: BTreeMap<LevelName, LevelCost>,
    /// Domains whose uplink differs from that of their level, sorted by path: a leaf that lost a cable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainCost>,
    /// How the NICs of a node talk, where it is declared. The engine does not read it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub transports: BTreeMap<NodeName, Transport>,
    /// Left out of a journal while it is the default, which is also what older journals mean.
    #[serde(default, skip_serializing_if = "CollectiveCost::is_default")]
    pub collectives: CollectiveCost,
}

/// How nodes talk through their NICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// RDMA over `InfiniBand`.
    Verbs,
    /// RDMA over Ethernet.
    Roce,
    /// Elastic Fabric Adapter of AWS.
    Efa,
    /// `GPUDirect-TCPX` of Google Cloud (A3 High).
    Tcpx,
    /// `GPUDirect-TCPXO` of Google Cloud (A3 Mega).
    Tcpxo,
    /// TCP through the kernel.
    Sockets,
}

/// How long the collective library takes by itself, and which share of a link it reaches. The default is
/// `constants.toml` of `phalanx-cost`; a site that is calibrated has its own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CollectiveCost {
    /// One call of a ring, before any byte is sent, in picoseconds: nanoseconds are too coarse for a hop.
    pub call_ps: u64,
    /// A hop between devices that are joined without NICs.
    pub inside_hop_ps: u64,
    /// A hop between nodes, without the latencies that [`LevelCost`] has.
    pub net_hop_ps: u64,
    /// The bandwidth that a ring inside a node reaches, in millionths of the nominal one.
    pub ring_share_ppm: u32,
    /// The share of the time to fill a pipeline that is seen, in millionths.
    pub pipeline_share_ppm: u32,
    /// From about this size on, the parts of a message no longer grow.
    pub pipeline_bytes: u64,
}

impl Default for CollectiveCost {
    fn default() -> Self {
        Self {
            call_ps: 8_400_000,
            inside_hop_ps: 3_400_000,
            net_hop_ps: 16_060_000,
            ring_share_ppm: 982_000,
            pipeline_share_ppm: 566_000,
            pipeline_bytes: 100_000_000,
        }
    }
}

impl CollectiveCost {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The uplink of one domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DomainCost {
    /// Outermost first; a node's path ends with its own name.
    pub path: Vec<DomainName>,
    pub cost: LevelCost,
}

impl CostTable {
    /// The uplink of the domain at `path` on `level`. `None` if it is unknown.
    #[must_use]
    pub fn uplink(&self, level: &LevelName, path: &[DomainName]) -> Option<LevelCost> {
        if let Ok(at) = self.domains.binary_search_by(|known| known.path.as_slice().cmp(path)) {
            return self.domains.get(at).map(|known| known.cost);
        }
        self.levels.get(level).copied()
    }
}

/// Pairwise bandwidths inside one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShapeCost {
    pub devices: u32,
    /// `pair_mb_per_s[a * devices + b]`; the diagonal is 0. Symmetric.
    pub pair_mb_per_s: Vec<u32>,
    /// All NICs of the machine together; 0 when it has none that is known.
    pub nic_mb_per_s: u32,
    /// The NICs for collectives one by one. Empty if only their sum is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<NicCost>,
    /// What devices without a near NIC get at most through a far one, past sockets and host bridges. 0: nothing limits it,
    /// or every device has a near NIC.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub far_mb_per_s: u32,
    /// What the slot of one device carries, where the NICs near to a device are faster than that; 0 elsewhere.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slot_mb_per_s: u32,
    /// Devices behind a link that they share: a PCIe switch, a socket. Each set once, in ascending order; without those of one
    /// device or of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<DeviceMask>,
    /// The bandwidth of an all-reduce over a device set inside the machine, by its mask, if rings over direct links
    /// add up. Empty if the slowest pair of one ring decides it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets_mb_per_s: Vec<u32>,
}

/// One NIC of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NicCost {
    /// The devices near the NIC. A gang on other devices does not use it.
    pub near: DeviceMask,
    pub mb_per_s: u32,
}

impl ShapeCost {
    /// Whether the bandwidth out of the machine is known.
    #[must_use]
    pub fn knows_nics(&self) -> bool {
        match self.nics.as_slice() {
            [] => self.nic_mb_per_s > 0,
            nics => nics.iter().any(|nic| nic.mb_per_s > 0),
        }
    }

    /// The total bandwidth of the NICs near these devices, one way, as far as the devices' own slots carry it. 0 if it
    /// is unknown. Devices without a near NIC use the slowest NIC, as far as the way there carries.
    #[must_use]
    pub fn nics_of(&self, devices: DeviceMask) -> u32 {
        if self.nics.is_empty() {
            return self.nic_mb_per_s;
        }
        let near = self.nics.iter().filter(|nic| !nic.near.and(devices).is_empty());
        let sum = near.fold(0_u32, |sum, nic| sum.saturating_add(nic.mb_per_s));
        if sum == 0 {
            let slowest = self.nics.iter().map(|nic| nic.mb_per_s).min().unwrap_or(0);
            return slowest.min(limit(self.far_mb_per_s));
        }
        sum.min(limit(self.slot_mb_per_s.saturating_mul(devices.count())))
    }

    /// Bandwidth between two devices, 0 when out of range.
    #[must_use]
    pub fn pair(&self, a: u32, b: u32) -> u32 {
        let at = u64::from(a) * u64::from(self.devices) + u64::from(b);
        usize::try_from(at).ok().and_then(|at| self.pair_mb_per_s.get(at)).copied().unwrap_or(0)
    }
}

/// The uplink of one domain of a level, and the links between the devices below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LevelCost {
    pub uplink_mb_per_s: u32,
    pub latency_ns: u32,
    /// The bandwidth from one device to any other device inside a domain of this level without a NIC, one way, at
    /// line rate: the NVLinks of an NVL72 rack. 0: only NICs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inside_mb_per_s: u32,
}

/// A bandwidth that 0 stands for where nothing limits it.
const fn limit(mb_per_s: u32) -> u32 {
    if mb_per_s == 0 { u32::MAX } else { mb_per_s }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}
