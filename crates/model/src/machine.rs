//! One machine: its devices, its NICs, and the links between them, as a reader found them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{DeviceMask, LevelName, Product, ResourceName, ShapeName};

/// Whether hardware was found on this host or only declared in a file. Shown wherever a device is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Found,
    #[default]
    Declared,
}

/// One schedulable accelerator. Its index is its place in [`Machine::devices`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Device {
    /// As the vendor's tools print it: `GPU0`.
    pub name: String,
    /// Product name, e.g. `NVIDIA H100 80GB HBM3`; empty when unknown.
    pub model: String,
    /// `domain:bus:device.function`, lower case.
    pub pci_address: Option<String>,
    pub numa: Option<u32>,
    pub memory_bytes: u64,
    /// Cut into slices (NVIDIA MIG): such a device has no NVLink.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_sliced: bool,
}

/// One network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Nic {
    /// As the host names it: `mlx5_0`, `NIC3`.
    pub name: String,
    /// Host's name for a `NICn` of a legend, e.g. `mlx5_3`.
    pub alias: Option<String>,
    /// `domain:bus:device.function`, lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    pub numa: Option<u32>,
    /// One way; `None` when unknown.
    pub bytes_per_s: Option<u64>,
    /// No source gives the speed: it is that of the usual machine of the product.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_assumed: bool,
}

/// An end of a [`Link`]: an index into the machine's devices or NICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Port {
    Device(u32),
    Nic(u32),
}

/// How two ports of one machine reach each other; nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// A bonded set of this many NVLinks (`NV#`).
    Nvlink(u8),
    /// AMD xGMI.
    Xgmi,
    /// At most one PCIe bridge (`PIX`).
    PcieSwitch,
    /// Several PCIe bridges, no host bridge (`PXB`).
    PcieBridges,
    /// A PCIe host bridge (`PHB`).
    HostBridge,
    /// Between host bridges of one NUMA node (`NODE`).
    Numa,
    /// Between sockets (`SYS`, old `SOC`).
    Socket,
}

/// As `nvidia-smi topo -m` writes it: `NV18`, `PIX`, `SYS`. `XGMI` is the one that it does not have.
impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nvlink(count) => write!(f, "NV{count}"),
            Self::Xgmi => f.write_str("XGMI"),
            Self::PcieSwitch => f.write_str("PIX"),
            Self::PcieBridges => f.write_str("PXB"),
            Self::HostBridge => f.write_str("PHB"),
            Self::Numa => f.write_str("NODE"),
            Self::Socket => f.write_str("SYS"),
        }
    }
}

/// An edge of the machine's graph: how two ports reach each other. At most one per pair, `a < b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Link {
    pub a: Port,
    pub b: Port,
    pub kind: LinkKind,
    /// The bandwidth that the source gives, one way. 0 if the source gives only the kind.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nominal_mb_per_s: u32,
}

impl Link {
    /// A link with an unknown bandwidth.
    #[must_use]
    pub const fn new(a: Port, b: Port, kind: LinkKind) -> Self {
        Self { a, b, kind, nominal_mb_per_s: 0 }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A domain inside the node: devices that share a socket, a PCIe switch or an NVLink island. Traffic that leaves the
/// group shares its uplink, so the group is a capacity group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceGroup {
    pub level: LevelName,
    pub devices: DeviceMask,
    /// The bandwidth of the uplink, one way. 0 if the source does not give it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uplink_mb_per_s: u32,
}

impl DeviceGroup {
    /// A group with an unknown uplink.
    #[must_use]
    pub const fn new(level: LevelName, devices: DeviceMask) -> Self {
        Self { level, devices, uplink_mb_per_s: 0 }
    }
}

/// One of so many replicas of a device, in thousandths of the device: rounded down, and at least 1. 0: the device is whole.
#[must_use]
pub fn replica_milli(replicas: u32) -> u32 {
    (1_000 / replicas.max(1)).max(1)
}

/// The hardware of one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// Equal for machines with equal devices and links, so that tables are built once per shape. Equal machines
    /// differ only in their PCI addresses, so nodes share one machine in memory.
    pub shape: ShapeName,
    pub origin: Origin,
    pub devices: Vec<Device>,
    pub nics: Vec<Nic>,
    /// Sorted by `(a, b)`. A pair without a link was not readable.
    pub links: Vec<Link>,
    /// Domains inside the node, per level; groups of one level are disjoint.
    pub groups: Vec<DeviceGroup>,
    /// Logical CPUs in thousandths.
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// The amounts of named resources.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub named: BTreeMap<ResourceName, u64>,
    /// The compute that shares of one device may use in total, in thousandths of the device. 0: all of it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub share_limit_milli: u32,
    /// The equal parts in which the node offers each device (time-slicing, MPS, or MIG slices of one size): a member has
    /// one of them, by [`crate::PartNeed::Replica`], and no member has a whole device. 0: devices are whole.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replicas: u32,
}

impl Machine {
    /// A machine without known hardware. Its shape has no name until its devices and links are known.
    #[must_use]
    pub fn bare(origin: Origin) -> Self {
        Self {
            shape: ShapeName::new("unnamed").unwrap_or_else(|_| unreachable!("letters are a name")),
            origin,
            devices: Vec::new(),
            nics: Vec::new(),
            links: Vec::new(),
            groups: Vec::new(),
            cpu_milli: 0,
            memory_bytes: 0,
            named: BTreeMap::new(),
            share_limit_milli: 0,
            replicas: 0,
        }
    }

    /// What one replica of a device is, in thousandths of the device. A whole device if the node offers whole devices.
    #[must_use]
    pub fn replica_milli(&self) -> u32 {
        replica_milli(self.replicas)
    }

    /// The link between two devices, if it is known.
    #[must_use]
    pub fn device_link(&self, a: u32, b: u32) -> Option<LinkKind> {
        self.link(Port::Device(a.min(b)), Port::Device(a.max(b)))
    }

    /// The link between two ports, if it is known.
    #[must_use]
    pub fn link(&self, a: Port, b: Port) -> Option<LinkKind> {
        let (a, b) = if a < b { (a, b) } else { (b, a) };
        let at = self.links.binary_search_by(|l| (l.a, l.b).cmp(&(a, b))).ok()?;
        Some(self.links[at].kind)
    }

    /// The NICs of a collective, each with the devices that it is near to.
    ///
    /// A machine also has NICs for storage and management. They are farther from every device than the NICs for
    /// collectives, so only the nearest class counts. If no link was readable, every NIC is near to all devices.
    #[must_use]
    pub fn collective_nics(&self) -> Vec<(u32, DeviceMask)> {
        let nics = || (0..).zip(&self.nics).map(|(nic, _)| nic);
        let nearest = nics().filter_map(|nic| self.nic_distance(nic, self.device_mask())).min();
        let near = |nic: u32| -> DeviceMask {
            let is_near = |device: &u32| {
                nearest.is_none() || self.nic_distance(nic, DeviceMask::one(*device)) == nearest
            };
            self.device_mask().iter().filter(is_near).collect()
        };
        let sets = nics().map(|nic| (nic, near(nic)));
        sets.filter(|(_, near)| !near.is_empty() || self.devices.is_empty()).collect()
    }

    /// Sets the speed of each collective NIC whose speed no source gives, if the product has a usual machine.
    pub fn assume_nic_speeds(&mut self) {
        let usual =
            |device: &Device| Product::of(&device.model).and_then(|product| product.usual_nic_mb_per_s);
        let Some(mb_per_s) = self.devices.first().and_then(usual) else { return };
        for (nic, _) in self.collective_nics() {
            if let Some(nic) = self.nics.get_mut(nic as usize).filter(|nic| nic.bytes_per_s.is_none()) {
                nic.bytes_per_s = Some(u64::from(mb_per_s) * 1_000_000);
                nic.is_assumed = true;
            }
        }
    }

    /// Sets the speed of the NICs of a collective from what all of them carry together. Speeds that a source gives stay.
    pub fn share_nic_speed(&mut self, all_bytes_per_s: u64) {
        let counting = self.collective_nics();
        let each = all_bytes_per_s / (counting.len() as u64).max(1);
        let is_unknown = |nic: &Nic| nic.bytes_per_s.is_none() || nic.is_assumed;
        if each == 0 || !counting.iter().all(|(nic, _)| self.nics.get(*nic as usize).is_some_and(is_unknown))
        {
            return;
        }
        for (nic, _) in counting {
            if let Some(nic) = self.nics.get_mut(nic as usize) {
                (nic.bytes_per_s, nic.is_assumed) = (Some(each), false);
            }
        }
    }

    /// How far a NIC is from the nearest of some devices. Behind one or several PCIe bridges is equally near.
    fn nic_distance(&self, nic: u32, devices: DeviceMask) -> Option<LinkKind> {
        let kinds = devices.iter().filter_map(|device| self.link(Port::Device(device), Port::Nic(nic)));
        kinds.map(|kind| kind.max(LinkKind::PcieBridges)).min()
    }

    /// All devices.
    #[must_use]
    pub fn device_mask(&self) -> DeviceMask {
        DeviceMask::first(self.device_count())
    }

    #[must_use]
    pub fn device_count(&self) -> u32 {
        u32::try_from(self.devices.len()).unwrap_or(u32::MAX)
    }
}
