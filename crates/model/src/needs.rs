//! The needs of one member of a gang on its node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{NodeName, NodeSet, ResourceName};

/// A whole device in thousandths.
const WHOLE_MILLI: u32 = 1_000;

/// The needs of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(from = "WrittenNeeds")]
pub struct Needs {
    /// Whole devices. 0 if the member needs a part of a device.
    pub devices: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartNeed>,
    /// The accepted device models. Empty: any model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelNeed>,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Amounts of named resources: NICs, watts, local disk.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub named: BTreeMap<ResourceName, u64>,
    /// The required nodes, in any order. Empty: any node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeName>,
    /// The avoided nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<NodeName>,
    /// The node set that the member must stay in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<NodeSet>,
    /// The preferred node set: used alone if the whole gang, with the preferred sets of its roles, fits there, and not
    /// considered otherwise. Its nodes are in [`Self::within`] too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer_within: Option<NodeSet>,
    /// The favoured node set: chosen where a place in it is as good as the best elsewhere, with as short a collective and as
    /// few domains. Its nodes are in [`Self::within`] too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub favour_within: Option<NodeSet>,
    /// The [pools](crate::Pools) that its queue and those above it require: the member must stay in all of these sets.
    /// The engine sets the field for all members.
    #[serde(skip)]
    pub pools: Vec<NodeSet>,
    /// The pools of its queue in order of preference, each as sets that a member must all be in: the first in which the
    /// whole gang fits is used alone. The engine sets the field for all members.
    #[serde(skip)]
    pub prefer_pools: Vec<Vec<NodeSet>>,
    /// The gang is placed in one of the preferred pools, or not at all. The engine sets the field for all members.
    #[serde(skip)]
    pub in_one_pool: bool,
    /// The preferred nodes: used alone if the whole gang fits on them, and not considered otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefer: Vec<NodeName>,
    /// The nodes of the gang are exclusive, before and while it runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_exclusive: bool,
    /// Spot nodes are accepted too, see [`Node::spot`](crate::Node::spot). The engine sets the field for all members
    /// by [`Turn::takes_spot`](crate::Turn::takes_spot).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_spot: bool,
    /// Spare nodes are accepted too, see [`Spares`](crate::Spares). The engine sets the field for gangs that lost
    /// hardware.
    #[serde(skip)]
    pub takes_spare: bool,
}

/// The current and the former format: the former format had only the name of one model.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    prefer_within: Option<NodeSet>,
    #[serde(default)]
    favour_within: Option<NodeSet>,
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
        let WrittenNeeds { named, nodes, avoid, within, .. } = written;
        let WrittenNeeds { prefer_within, favour_within, prefer, .. } = written;
        let WrittenNeeds { is_exclusive, takes_spot, .. } = written;
        let models = device_model.map_or(models, Self::of_model);
        let what = Self { devices, part, models, cpu_milli, memory_bytes, named, ..Self::default() };
        Self { nodes, avoid, within, prefer_within, favour_within, prefer, is_exclusive, takes_spot, ..what }
    }
}

/// An accepted device model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelNeed {
    /// Devices whose model contains this text, ignoring case.
    pub model: String,
    /// The speed of a step on the model, in thousandths of the speed that [`crate::Traffic::compute_ns`] refers to. A
    /// gang on several models is as fast as the slowest.
    pub speed_milli: u32,
}

/// A part of one device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PartNeed {
    /// A share of a device by time-slicing or MPS, next to other shares. At least one amount is above 0.
    Share {
        /// Compute in thousandths of a device.
        compute_milli: u32,
        /// Memory. 0: the same part of the device's memory as of its compute, see [`PartNeed::share_bytes`].
        memory_bytes: u64,
        /// Shares with different trust are never on one device.
        trust: String,
    },
    /// The smallest MIG slice with at least these amounts.
    Slice { compute_milli: u32, memory_bytes: u64 },
    /// A MIG slice by its name: `1g.10gb`.
    Profile(String),
    /// A device as its node offers it: one of its [replicas](crate::Machine::replicas), or the whole device if the node
    /// offers whole devices.
    Replica,
}

/// The part of a device that a member has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DevicePart {
    Share,
    /// A MIG slice, and the memory slice at which it begins.
    Slice {
        profile: String,
        start: u8,
    },
}

impl Needs {
    /// Whether its queues restrict the member to pools.
    #[must_use]
    pub const fn is_pooled(&self) -> bool {
        !self.pools.is_empty() || self.in_one_pool
    }

    /// Forgets the pools of its queues.
    pub fn forget_pools(&mut self) {
        self.pools.clear();
        self.prefer_pools.clear();
        self.in_one_pool = false;
    }

    /// Any device of one model.
    #[must_use]
    pub fn of_model(model: impl Into<String>) -> Vec<ModelNeed> {
        vec![ModelNeed { model: model.into(), speed_milli: ModelNeed::AS_SAID }]
    }
}

impl PartNeed {
    /// What a member has of its device, in thousandths: the larger part of compute and of memory, where the memory of
    /// the device is known (not 0); of a replica `replica_milli`, see
    /// [`Machine::replica_milli`](crate::Machine::replica_milli).
    #[must_use]
    pub fn device_milli(&self, replica_milli: u32, device_bytes: u64) -> u32 {
        match self {
            Self::Replica => replica_milli,
            Self::Share { compute_milli, memory_bytes, .. } | Self::Slice { compute_milli, memory_bytes } => {
                let of_memory = u128::from(*memory_bytes) * u128::from(WHOLE_MILLI);
                let of_memory = of_memory.checked_div(device_bytes.into()).unwrap_or_default();
                u32::try_from(of_memory).unwrap_or(WHOLE_MILLI).min(WHOLE_MILLI).max(*compute_milli)
            }
            Self::Profile(name) => profile_milli(name),
        }
    }

    /// The device memory of a share: the requested amount, or the same part as of the compute. 0 if the memory of the
    /// device is unknown (0).
    #[must_use]
    pub fn share_bytes(compute_milli: u32, memory_bytes: u64, of_device_bytes: u64) -> u64 {
        if memory_bytes > 0 {
            return memory_bytes;
        }
        let part = u128::from(of_device_bytes) * u128::from(compute_milli.min(1_000)) / 1_000;
        u64::try_from(part).unwrap_or(of_device_bytes)
    }
}

/// What a MIG slice is of its device, in thousandths: `3g.40gb` is three of the seven parts that MIG cuts a GPU into.
#[must_use]
pub fn profile_milli(name: &str) -> u32 {
    let parts = name.split_once('g').and_then(|(parts, _)| parts.parse::<u32>().ok());
    parts.map_or(WHOLE_MILLI, |parts| parts.min(7) * WHOLE_MILLI / 7)
}

impl ModelNeed {
    /// As fast as the job says.
    pub const AS_SAID: u32 = 1_000;
}
