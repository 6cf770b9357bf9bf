//! What one member of a gang needs on its node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{NodeName, NodeSet, ResourceName};

/// What one member needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "WrittenNeeds")]
pub struct Needs {
    /// Whole devices; none where it needs a part of one.
    pub devices: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartNeed>,
    /// Any of these models; any model where none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelNeed>,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Of each resource that the cluster counts by name: NICs, watts, local disk.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub named: BTreeMap<ResourceName, u64>,
    /// Only these nodes, in any order; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeName>,
    /// None of these nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<NodeName>,
    /// Only nodes that are in this set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<NodeSet>,
    /// These nodes alone where the whole gang fits on them, any other set of nodes where it does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefer: Vec<NodeName>,
    /// Nobody else on the nodes of the gang, before and while it runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_exclusive: bool,
    /// Also on nodes that may be taken back at short notice, see [`Node::spot`](crate::Node::spot). The engine sets it for
    /// all members by [`Turn::takes_spot`](crate::Turn::takes_spot).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_spot: bool,
}

/// As it is and was written: of one model it once said the name alone.
#[derive(Deserialize)]
struct WrittenNeeds {
    devices: u32,
    #[serde(default)]
    part: Option<PartNeed>,
    #[serde(default)]
    models: Vec<ModelNeed>,
    #[serde(default)]
    device_model: Option<String>,
    cpu_milli: u64,
    memory_bytes: u64,
    #[serde(default)]
    named: BTreeMap<ResourceName, u64>,
    #[serde(default)]
    nodes: Vec<NodeName>,
    #[serde(default)]
    avoid: Vec<NodeName>,
    #[serde(default)]
    within: Option<NodeSet>,
    #[serde(default)]
    prefer: Vec<NodeName>,
    #[serde(default)]
    is_exclusive: bool,
    #[serde(default)]
    takes_spot: bool,
}

impl From<WrittenNeeds> for Needs {
    fn from(written: WrittenNeeds) -> Self {
        let WrittenNeeds { devices, part, models, device_model, cpu_milli, memory_bytes, .. } = written;
        let WrittenNeeds { named, nodes, avoid, within, prefer, is_exclusive, takes_spot, .. } = written;
        let models = device_model.map_or(models, Self::of_model);
        let what = Self { devices, part, models, cpu_milli, memory_bytes, named, ..Self::default() };
        Self { nodes, avoid, within, prefer, is_exclusive, takes_spot, ..what }
    }
}

/// A device model that will do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ModelNeed {
    /// Devices whose model contains this text, ignoring case.
    pub model: String,
    /// How fast a step computes there, in thousandths of what [`crate::Traffic::compute_ns`] was said of. A gang on
    /// several models is as fast as the slowest.
    pub speed_milli: u32,
}

/// A part of one device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartNeed {
    /// Beside others on the same device, by time-slicing or MPS. Not both amounts are zero.
    Share {
        /// Thousandths of what a device computes.
        compute_milli: u32,
        /// 0: as large a part of a device's memory as of its compute, see [`PartNeed::share_bytes`].
        memory_bytes: u64,
        /// Shares of different trust never stand on one device.
        trust: String,
    },
    /// The smallest MIG slice that has this much.
    Slice { compute_milli: u32, memory_bytes: u64 },
    /// A MIG slice by its name: `1g.10gb`.
    Profile(String),
}

/// Which part of its device a member has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DevicePart {
    Share,
    /// A MIG slice, and the memory slice that it begins at.
    Slice {
        profile: String,
        start: u8,
    },
}

impl Needs {
    /// Any device of one model.
    #[must_use]
    pub fn of_model(model: impl Into<String>) -> Vec<ModelNeed> {
        vec![ModelNeed { model: model.into(), speed_milli: ModelNeed::AS_SAID }]
    }
}

impl PartNeed {
    /// What a share takes of a device's memory: what it says, or else as large a part as of the compute; nothing where the
    /// device's memory is not known (0).
    #[must_use]
    pub fn share_bytes(compute_milli: u32, memory_bytes: u64, of_device_bytes: u64) -> u64 {
        if memory_bytes > 0 {
            return memory_bytes;
        }
        let part = u128::from(of_device_bytes) * u128::from(compute_milli.min(1_000)) / 1_000;
        u64::try_from(part).unwrap_or(of_device_bytes)
    }
}

impl ModelNeed {
    /// As fast as the job says.
    pub const AS_SAID: u32 = 1_000;
}
