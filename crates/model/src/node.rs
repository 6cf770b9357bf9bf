//! Nodes and where they stand in the domain tree.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{DeviceMask, DomainName, LevelName, Machine, NodeName, ResourceName, Torus, TorusPlace};

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
    /// Where its first chip stands, in one of [`Levels::tori`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torus: Option<TorusPlace>,
    /// It may be taken back at short notice: only gangs with [`Needs::takes_spot`](crate::Needs::takes_spot) go there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot: Option<Spot>,
}

/// Capacity that is lent until somebody wants it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spot {
    /// Of one device, in millionths of whatever unit the site counts in; 0 where nobody said.
    pub price_micro_per_device_hour: u64,
    /// From the notice to the end, at least; 0 where nobody said.
    pub notice_ms: u64,
}
