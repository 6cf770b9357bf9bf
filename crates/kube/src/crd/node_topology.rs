//! What stands in a node, as its agent found it: one object for each node, of the node's name.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use phalanx_model::{
    DEVICES_PER_NODE_MAX, Device, DeviceGroup, DeviceMask, LevelName, Link, LinkKind, Machine, NameError,
    Nic, Origin, Port, ResourceName, ShapeName,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::health::HealthSpec;

/// What stands in a node and how it is linked, as its agent found it.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "phalanx.dev",
    version = "v1alpha1",
    kind = "NodeTopology",
    plural = "nodetopologies",
    shortname = "ntopo",
    category = "phalanx",
    derive = "PartialEq",
    doc = "What stands in a node and how it is linked, as its agent found it. It has the name of the node.",
    printcolumn(name = "Shape", type_ = "string", json_path = ".spec.shape"),
    printcolumn(name = "Origin", type_ = "string", json_path = ".spec.origin"),
    printcolumn(name = "Model", type_ = "string", json_path = ".spec.devices[0].model"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.devices) || self.devices.all(a, self.devices.exists_one(b, a.name == b.name))")
        .message("two devices have one name")
)]
pub struct NodeTopologySpec {
    /// Equal for machines with equal devices and links.
    #[schemars(length(min = 1, max = 253))]
    pub shape: String,
    /// Whether the hardware was found or declared.
    #[serde(default)]
    pub origin: OriginSpec,
    /// In the order of their indices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub devices: Vec<DeviceSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub nics: Vec<NicSpec>,
    /// How two devices or network interfaces reach each other. A pair that is not listed could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8128))]
    pub links: Vec<LinkSpec>,
    /// Devices that share an island, a switch or a socket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub groups: Vec<GroupSpec>,
    /// Logical CPUs in thousandths.
    #[schemars(range(min = 0))]
    pub cpu_milli: i64,
    #[schemars(range(min = 0))]
    pub memory_bytes: i64,
    /// Of each resource that is counted by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub resources: BTreeMap<String, i64>,
    /// Compute that may be promised to shares of one device, in thousandths of it; 0: as much as there is.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub share_limit_milli: i64,
    /// How far the node itself can be trusted, where it is not ok.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthSpec>,
}

/// Whether hardware was found or declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OriginSpec {
    Found,
    #[default]
    Declared,
}

/// One device; its index is its place in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceSpec {
    /// As the vendor's tools print it: GPU0.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// Product name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub model: String,
    /// domain:bus:device.function, lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub pci_address: Option<String>,
    /// The vendor's name of this device alone: GPU-2fa81118-4b29-4a6d-b1a5-1c4c9b4f5a0e.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub uuid: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub numa: Option<i64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub memory_bytes: i64,
    /// It was there and does not answer any more. It keeps its number.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unhealthy: bool,
    /// Cut into slices: such a device has no NVLink.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sliced: bool,
    /// How far it can be trusted, where it is not ok.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthSpec>,
}

/// One network interface; its index is its place in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NicSpec {
    /// As the host names it: mlx5_0.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// The host's name where the other is that of a legend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub alias: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub pci_address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub numa: Option<i64>,
    /// One way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub bytes_per_s: Option<i64>,
}

/// How two of them reach each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkSpec {
    /// A device or network interface: device/0, nic/3.
    #[schemars(regex(pattern = "^(device|nic)/[0-9]{1,2}$"))]
    pub a: String,
    #[schemars(regex(pattern = "^(device|nic)/[0-9]{1,2}$"))]
    pub b: String,
    /// As nvidia-smi topo -m has it: NV18, PIX, PXB, PHB, NODE, SYS; XGMI between AMD's devices.
    #[schemars(regex(pattern = "^(NV[0-9]{1,3}|XGMI|PIX|PXB|PHB|NODE|SYS)$"))]
    pub kind: String,
    /// One way, where the source says it.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub mb_per_s: i64,
}

/// Devices that share a way out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupSpec {
    #[schemars(length(min = 1, max = 253))]
    pub level: String,
    /// Indices.
    #[schemars(length(max = 64), inner(range(min = 0, max = 63)))]
    pub devices: Vec<i32>,
    /// What the way out of the group carries, one way, where the source says it.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub uplink_mb_per_s: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
const fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Why a description is no machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    #[error("spec.{field}: {value:?} is no name: {error}")]
    Name { field: &'static str, value: String, error: NameError },
    #[error("spec.{field}: {value} is beyond what can be counted; let the node agent write it anew")]
    Number { field: &'static str, value: i64 },
    #[error("spec.devices: there are {0}, and a node has at most {DEVICES_PER_NODE_MAX}")]
    Devices(usize),
    #[error("spec.links: {0:?} is no device or network interface of this node")]
    Port(String),
    #[error("spec.links: {0:?} is no kind of link; there are NV1 to NV255, XGMI, PIX, PXB, PHB, NODE, SYS")]
    Kind(String),
}

const PLAIN_KINDS: [(LinkKind, &str); 6] = [
    (LinkKind::Xgmi, "XGMI"),
    (LinkKind::PcieSwitch, "PIX"),
    (LinkKind::PcieBridges, "PXB"),
    (LinkKind::HostBridge, "PHB"),
    (LinkKind::Numa, "NODE"),
    (LinkKind::Socket, "SYS"),
];

impl NodeTopologySpec {
    /// What is known of a machine. Numbers beyond 2⁶³ do not occur and are written as the largest there is.
    #[must_use]
    pub fn of_machine(machine: &Machine) -> Self {
        let device = |device: &Device| DeviceSpec {
            name: device.name.clone(),
            model: device.model.clone(),
            pci_address: device.pci_address.clone(),
            uuid: String::new(),
            numa: device.numa.map(i64::from),
            memory_bytes: signed(device.memory_bytes),
            unhealthy: false,
            sliced: device.is_sliced,
            health: None,
        };
        let nic = |nic: &Nic| NicSpec {
            name: nic.name.clone(),
            alias: nic.alias.clone(),
            pci_address: nic.pci_address.clone(),
            numa: nic.numa.map(i64::from),
            bytes_per_s: nic.bytes_per_s.map(signed),
        };
        let link = |link: &Link| LinkSpec {
            a: port_text(link.a),
            b: port_text(link.b),
            kind: kind_text(link.kind),
            mb_per_s: i64::from(link.nominal_mb_per_s),
        };
        let group = |group: &DeviceGroup| GroupSpec {
            level: group.level.to_string(),
            devices: group.devices.iter().filter_map(|index| i32::try_from(index).ok()).collect(),
            uplink_mb_per_s: i64::from(group.uplink_mb_per_s),
        };
        Self {
            shape: machine.shape.to_string(),
            origin: match machine.origin {
                Origin::Found => OriginSpec::Found,
                Origin::Declared => OriginSpec::Declared,
            },
            devices: machine.devices.iter().map(device).collect(),
            nics: machine.nics.iter().map(nic).collect(),
            links: machine.links.iter().map(link).collect(),
            groups: machine.groups.iter().map(group).collect(),
            cpu_milli: signed(machine.cpu_milli),
            memory_bytes: signed(machine.memory_bytes),
            resources: machine.named.iter().map(|(name, n)| (name.to_string(), signed(*n))).collect(),
            share_limit_milli: i64::from(machine.share_limit_milli),
            health: None,
        }
    }

    /// Devices that do not answer any more.
    #[must_use]
    pub fn lost(&self) -> DeviceMask {
        let lost = (0..DEVICES_PER_NODE_MAX).zip(&self.devices).filter(|(_, device)| device.unhealthy);
        lost.map(|(index, _)| index).collect()
    }

    /// Grades that are not ok; without a number that of the node itself.
    pub fn grades(&self) -> impl Iterator<Item = (Option<u32>, &HealthSpec)> {
        let devices = (0..DEVICES_PER_NODE_MAX).map(Some).zip(&self.devices);
        let devices = devices.filter_map(|(device, of)| Some((device, of.health.as_ref()?)));
        self.health.iter().map(|node| (None, node)).chain(devices)
    }

    /// The machine that is described.
    ///
    /// # Errors
    /// When a name is none, a number is negative or too large, or a link is between ports that are not there.
    pub fn machine(&self) -> Result<Machine, MachineError> {
        if self.devices.len() > DEVICES_PER_NODE_MAX as usize {
            return Err(MachineError::Devices(self.devices.len()));
        }
        let mut machine = Machine::bare(match self.origin {
            OriginSpec::Found => Origin::Found,
            OriginSpec::Declared => Origin::Declared,
        });
        machine.shape = ShapeName::new(self.shape.as_str()).map_err(name_error("shape", &self.shape))?;
        machine.devices = self.devices.iter().map(DeviceSpec::device).collect::<Result<_, _>>()?;
        machine.nics = self.nics.iter().map(NicSpec::nic).collect::<Result<_, _>>()?;
        machine.links = self.links.iter().map(|link| self.link(link)).collect::<Result<_, _>>()?;
        machine.links.sort_unstable_by_key(|link| (link.a, link.b));
        machine.groups = self.groups.iter().map(|group| self.group(group)).collect::<Result<_, _>>()?;
        machine.cpu_milli = number("cpuMilli", self.cpu_milli)?;
        machine.memory_bytes = number("memoryBytes", self.memory_bytes)?;
        machine.share_limit_milli = number("shareLimitMilli", self.share_limit_milli)?;
        for (name, amount) in &self.resources {
            let resource = ResourceName::new(name.as_str()).map_err(name_error("resources", name))?;
            machine.named.insert(resource, number("resources", *amount)?);
        }
        Ok(machine)
    }

    fn link(&self, link: &LinkSpec) -> Result<Link, MachineError> {
        let (a, b) = (self.port(&link.a)?, self.port(&link.b)?);
        Ok(Link {
            a: a.min(b),
            b: a.max(b),
            kind: kind(&link.kind).ok_or_else(|| MachineError::Kind(link.kind.clone()))?,
            nominal_mb_per_s: number("links.mbPerS", link.mb_per_s)?,
        })
    }

    fn port(&self, text: &str) -> Result<Port, MachineError> {
        let port = text.split_once('/').and_then(|(kind, index)| {
            let index: u32 = index.parse().ok()?;
            let (port, count) = match kind {
                "device" => (Port::Device(index), self.devices.len()),
                "nic" => (Port::Nic(index), self.nics.len()),
                _ => return None,
            };
            ((index as usize) < count).then_some(port)
        });
        port.ok_or_else(|| MachineError::Port(text.to_owned()))
    }

    fn group(&self, group: &GroupSpec) -> Result<DeviceGroup, MachineError> {
        let index = |index: &i32| {
            let known = u32::try_from(*index).ok().filter(|index| (*index as usize) < self.devices.len());
            known.ok_or(MachineError::Number { field: "groups.devices", value: i64::from(*index) })
        };
        Ok(DeviceGroup {
            level: LevelName::new(group.level.as_str()).map_err(name_error("groups.level", &group.level))?,
            devices: group.devices.iter().map(index).collect::<Result<_, _>>()?,
            uplink_mb_per_s: number("groups.uplinkMbPerS", group.uplink_mb_per_s)?,
        })
    }
}

impl DeviceSpec {
    fn device(&self) -> Result<Device, MachineError> {
        Ok(Device {
            name: self.name.clone(),
            model: self.model.clone(),
            pci_address: self.pci_address.clone(),
            numa: self.numa.map(|numa| number("devices.numa", numa)).transpose()?,
            memory_bytes: number("devices.memoryBytes", self.memory_bytes)?,
            is_sliced: self.sliced,
        })
    }
}

impl NicSpec {
    fn nic(&self) -> Result<Nic, MachineError> {
        Ok(Nic {
            name: self.name.clone(),
            alias: self.alias.clone(),
            pci_address: self.pci_address.clone(),
            numa: self.numa.map(|numa| number("nics.numa", numa)).transpose()?,
            bytes_per_s: self.bytes_per_s.map(|bytes| number("nics.bytesPerS", bytes)).transpose()?,
            is_assumed: false,
        })
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn number<T: TryFrom<i64>>(field: &'static str, value: i64) -> Result<T, MachineError> {
    T::try_from(value).map_err(|_| MachineError::Number { field, value })
}

fn name_error(field: &'static str, value: &str) -> impl FnOnce(NameError) -> MachineError {
    move |error| MachineError::Name { field, value: value.to_owned(), error }
}

fn port_text(port: Port) -> String {
    match port {
        Port::Device(index) => format!("device/{index}"),
        Port::Nic(index) => format!("nic/{index}"),
    }
}

fn kind_text(kind: LinkKind) -> String {
    match kind {
        LinkKind::Nvlink(links) => format!("NV{links}"),
        plain => {
            PLAIN_KINDS.iter().find(|(known, _)| *known == plain).map_or("SYS", |(_, text)| text).to_owned()
        }
    }
}

fn kind(text: &str) -> Option<LinkKind> {
    let plain = PLAIN_KINDS.iter().find(|(_, known)| *known == text).map(|(kind, _)| *kind);
    plain.or_else(|| text.strip_prefix("NV")?.parse().ok().map(LinkKind::Nvlink))
}
