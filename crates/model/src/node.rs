//! Nodes and their domains.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    DeviceMask, DomainName, LevelName, Machine, Needs, NodeHealth, NodeName, ResourceName, Torus, TorusPlace,
};

/// The levels of the domain tree above the machine, outermost first, e.g. `cluster, block, leaf`. The level
/// of the machine itself is [`Levels::node`]; levels below it come with each machine's groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Levels {
    pub above: Vec<LevelName>,
    pub node: LevelName,
    /// Limits of domains for a named resource over all of their nodes, such as the power of a rack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<DomainLimit>,
    /// Tori that contain nodes, see [`Node::torus`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tori: Vec<Torus>,
}

/// The capacity of a resource that all nodes of a domain share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DomainLimit {
    /// A level above the node.
    pub level: LevelName,
    /// The path of one domain. Empty: every domain of the level. A limit of one domain takes precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Vec<DomainName>>,
    pub resource: ResourceName,
    pub amount: u64,
}

impl Levels {
    /// Levels without limits and tori.
    #[must_use]
    pub const fn new(above: Vec<LevelName>, node: LevelName) -> Self {
        Self { above, node, limits: Vec::new(), tori: Vec::new() }
    }
}

/// The operator's setting of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Admin {
    #[default]
    Open,
    /// No new gangs are placed on the node. Running gangs go on.
    Cordoned,
    /// No new gangs are placed on the node, and running gangs are stopped and placed elsewhere.
    Draining,
}

/// A machine with its domains and its state in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Node {
    pub name: NodeName,
    /// One domain for each of [`Levels::above`], outermost first.
    pub path: Vec<DomainName>,
    /// The address of ranks on this node: a host name or an IP address.
    pub address: String,
    pub admin: Admin,
    /// Shared among equal nodes.
    pub machine: Arc<Machine>,
    /// The vendor's identifier of each device, in order. Empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uuids: Vec<String>,
    /// Devices in foreign use: declared busy, or used by foreign processes.
    pub foreign: DeviceMask,
    /// The foreign use besides devices.
    #[serde(default, skip_serializing_if = "ForeignUse::is_nothing")]
    pub foreign_use: ForeignUse,
    /// What the engine was told of its health ([`Input::HealthGraded`](crate::Input::HealthGraded)). A world that
    /// observes a node leaves it empty.
    #[serde(default, skip_serializing_if = "NodeHealth::is_ok")]
    pub health: NodeHealth,
    /// The node sets that contain the node, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<NodeSet>,
    /// More sets, by which queues choose nodes and members do not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<NodeSet>,
    /// The [pools](crate::Pool) of queues that contain the node, in order. The engine sets the field.
    #[serde(skip)]
    pub pools: Vec<NodeSet>,
    /// Devices that only some gangs may use.
    #[serde(default, skip_serializing_if = "Kept::is_nothing")]
    pub kept: Kept,
    /// The position of its first chip in one of [`Levels::tori`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torus: Option<TorusPlace>,
    /// A spot node, which can be reclaimed at short notice: only gangs with
    /// [`Needs::takes_spot`](crate::Needs::takes_spot) run there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot: Option<Spot>,
    /// Whether the node is one of the [spare nodes](crate::Spares) now. The engine sets the field.
    #[serde(skip)]
    pub spare: Spare,
}

/// Whether a node is kept for gangs that lose hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spare {
    #[default]
    No,
    /// Only gangs that lost hardware start there.
    Kept,
    /// So do gangs that take spot nodes, until the node is needed.
    Filled,
}

impl Spare {
    /// Whether a member of a gang may not start on such a node.
    #[must_use]
    pub const fn refuses(self, needs: &Needs) -> bool {
        match self {
            Self::No => false,
            Self::Kept => !needs.takes_spare,
            Self::Filled => !needs.takes_spare && !needs.takes_spot,
        }
    }
}

impl Node {
    /// An open node without foreign use. Its ranks are reached by its name.
    #[must_use]
    pub fn new(name: NodeName, path: Vec<DomainName>, machine: Arc<Machine>) -> Self {
        Self {
            address: name.as_str().to_owned(),
            name,
            path,
            admin: Admin::Open,
            machine,
            uuids: Vec::new(),
            foreign: DeviceMask::EMPTY,
            foreign_use: ForeignUse::default(),
            health: NodeHealth::default(),
            sets: Vec::new(),
            labels: Vec::new(),
            pools: Vec::new(),
            kept: Kept::default(),
            torus: None,
            spot: None,
            spare: Spare::No,
        }
    }

    /// Whether new gangs may be placed on the node: the operator opened it, and its health does not close it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.admin == Admin::Open && self.health.is_open()
    }

    /// The devices that no new gang may have: those in foreign use, and those that their health closes.
    #[must_use]
    pub fn barred_devices(&self) -> DeviceMask {
        self.foreign.union(self.health.closed_devices())
    }

    /// The devices that new gangs may have.
    #[must_use]
    pub fn usable_devices(&self) -> DeviceMask {
        self.machine.device_mask().minus(self.barred_devices())
    }
}

/// The foreign use of a node besides devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForeignUse {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// As in [`Machine::named`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub named: BTreeMap<ResourceName, u64>,
}

impl ForeignUse {
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Devices that only gangs within some node sets may use, see [`Needs::within`]. A device that is listed with no set
/// is for all gangs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Kept(pub BTreeMap<NodeSet, DeviceMask>);

impl Kept {
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.all().is_empty()
    }

    /// The devices that are restricted to sets.
    #[must_use]
    pub fn all(&self) -> DeviceMask {
        self.0.values().fold(DeviceMask::EMPTY, |all, devices| all.union(*devices))
    }

    /// The devices that a member with these needs may not use.
    #[must_use]
    pub fn away_from(&self, needs: &Needs) -> DeviceMask {
        let own = needs.within.as_ref().and_then(|set| self.0.get(set)).copied().unwrap_or_default();
        self.all().minus(own)
    }
}

/// A set of nodes that a world defines, such as the nodes that satisfy a selector. The nodes name their sets, see
/// [`Node::sets`]. The name is for people, and sets with the same name are the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct NodeSet(Arc<str>);

impl NodeSet {
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Spot capacity, which its provider can reclaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spot {
    /// The price of one device, in millionths of the site's unit. 0 if unknown.
    pub price_micro_per_device_hour: u64,
    /// The least time from the notice to the end. 0 if unknown.
    pub notice_ms: u64,
}
