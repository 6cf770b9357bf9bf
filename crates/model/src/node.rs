//! Nodes and where they stand in the domain tree.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{DeviceMask, DomainName, LevelName, Machine, Needs, NodeName, ResourceName, Torus, TorusPlace};

/// The levels of the domain tree above the machine, outermost first, e.g. `cluster, block, leaf`. The level
/// of the machine itself is [`Levels::node`]; levels below it come with each machine's groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels {
    pub above: Vec<LevelName>,
    pub node: LevelName,
    /// What domains have of a named resource for all of their nodes together: the power of a rack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<DomainLimit>,
    /// Tori that nodes stand in, see [`Node::torus`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tori: Vec<Torus>,
}

/// What a domain has of a resource for everything inside of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainLimit {
    /// A level above the node.
    pub level: LevelName,
    /// One domain by its path; every domain of the level where none is named. A named one goes before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Vec<DomainName>>,
    pub resource: ResourceName,
    pub amount: u64,
}

impl Levels {
    /// Levels and nothing more.
    #[must_use]
    pub const fn new(above: Vec<LevelName>, node: LevelName) -> Self {
        Self { above, node, limits: Vec::new(), tori: Vec::new() }
    }
}

/// What the operator allows on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Admin {
    #[default]
    Open,
    /// Nothing new is placed here; what runs goes on.
    Cordoned,
    /// Nothing new is placed here, and what runs is stopped and placed elsewhere.
    Draining,
}

/// A machine and its place in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub name: NodeName,
    /// One domain for each of [`Levels::above`], outermost first.
    pub path: Vec<DomainName>,
    /// Where ranks on this node are reached by other ranks: a host name or IP address.
    pub address: String,
    pub admin: Admin,
    /// Shared among equal nodes.
    pub machine: Arc<Machine>,
    /// As the vendor names each device, in their order; empty where that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uuids: Vec<String>,
    /// Devices that others hold: declared busy, or seen in use by foreign processes.
    pub foreign: DeviceMask,
    /// What others use beside devices.
    #[serde(default, skip_serializing_if = "ForeignUse::is_nothing")]
    pub foreign_use: ForeignUse,
    /// The sets of nodes that it is in, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<NodeSet>,
    /// Devices that are not for everybody.
    #[serde(default, skip_serializing_if = "Kept::is_nothing")]
    pub kept: Kept,
    /// Where its first chip stands, in one of [`Levels::tori`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torus: Option<TorusPlace>,
    /// It may be taken back at short notice: only gangs with [`Needs::takes_spot`](crate::Needs::takes_spot) go there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot: Option<Spot>,
}

impl Node {
    /// An open node that nobody else uses. Its ranks are reached by its name.
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
            sets: Vec::new(),
            kept: Kept::default(),
            torus: None,
            spot: None,
        }
    }
}

/// What others use of a node beside its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// Devices of a node that only gangs within some sets may have, see [`Needs::within`]: by the set, those that are for its
/// gangs too. One that stands with no set is for everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Kept(pub BTreeMap<NodeSet, DeviceMask>);

impl Kept {
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.all().is_empty()
    }

    /// Those that are not for everybody.
    #[must_use]
    pub fn all(&self) -> DeviceMask {
        self.0.values().fold(DeviceMask::EMPTY, |all, devices| all.union(*devices))
    }

    /// Those that such a member may not have.
    #[must_use]
    pub fn away_from(&self, needs: &Needs) -> DeviceMask {
        let own = needs.within.as_ref().and_then(|set| self.0.get(set)).copied().unwrap_or_default();
        self.all().minus(own)
    }
}

/// Nodes that a world put together, such as those that satisfy a selector: which nodes are in it stands with the
/// nodes, see [`Node::sets`]. Its name is what a person reads; sets are the same when their names are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// Capacity that is lent until somebody wants it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spot {
    /// Of one device, in millionths of whatever unit the site counts in; 0 where nobody said.
    pub price_micro_per_device_hour: u64,
    /// From the notice to the end, at least; 0 where nobody said.
    pub notice_ms: u64,
}
