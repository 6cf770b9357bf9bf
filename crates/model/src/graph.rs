//! The fabric between machines as a graph: hosts, switches and the links between them.
//!
//! A machine is a graph of its own ([`crate::Machine`]), shared among equal hosts. Names in a graph are whole
//! identities: where a fabric uses a switch name again in every pod, the reader puts the path before it
//! (`pod-1/leaf-3`). Some sources know no switches and name domains outright (labels, block lists); a host
//! carries these as [`Membership`]s. [`crate::domains`] derives the
//! domain tree from either.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{DomainName, LevelName, Machine, NodeName};

/// Hosts, switches, and the links between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Graph {
    pub hosts: Vec<Host>,
    pub switches: Vec<Switch>,
    /// At most one per pair of ends; parallel cables are counted in it.
    pub links: Vec<FabricLink>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tori: Vec<Torus>,
}

/// A machine as the fabric sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host {
    pub name: NodeName,
    /// Domains that the source names outright, in any order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<Membership>,
    /// The machine inside the host, if the source describes it. Equal hosts share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Arc<Machine>>,
    /// The position of the host in a torus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torus: Option<TorusPlace>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// A domain to which the source assigns a host, with its level.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Membership {
    pub level: LevelName,
    pub domain: DomainName,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Switch {
    /// Its identity, unique in the graph.
    pub name: DomainName,
    /// The tier: 1 for a switch that is cabled to hosts, 2 above it, and so on, if the source gives it. Otherwise it
    /// is derived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<u8>,
    /// The number of its parallel fabric, if the source gives it: the n-th NIC of every host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rail: Option<u16>,
}

/// An end of a [`FabricLink`]: an index into the graph's hosts or switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum End {
    Host(u32),
    Switch(u32),
}

/// All cables between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FabricLink {
    pub a: End,
    pub b: End,
    /// The number of cables.
    pub cables: u16,
    /// The number of cables that carry traffic.
    pub live: u16,
    /// One cable, one way, as its kind or the source has it; 0 when unknown.
    pub mb_per_s: u32,
    /// One crossing; 0 when unknown.
    pub latency_ns: u32,
    /// The measurement over all live cables together, kept next to the nominal bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// A measurement between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Measured {
    /// One way.
    pub mb_per_s: u32,
    pub latency_ns: u32,
}

/// Chips in a grid whose opposite faces may be joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Torus {
    pub name: DomainName,
    /// Chips along x, y, z; 1 where a dimension is absent.
    pub chips: [u16; 3],
    /// Whether a dimension is closed to a ring.
    pub wraps: [bool; 3],
    /// Whether the wrap links of the short dimensions are shifted along the long one (TPU v4).
    pub is_twisted: bool,
    /// Chips along each edge of the block that optical switches join; 0 without them.
    pub cube: u16,
    /// Chips of one host along x, y, z.
    pub host_chips: [u16; 3],
    /// One link, one way.
    pub link_mb_per_s: u32,
}

/// The position of a host's first chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TorusPlace {
    /// Index into [`Graph::tori`].
    pub torus: u32,
    pub at: [u16; 3],
}

impl Host {
    #[must_use]
    pub const fn new(name: NodeName) -> Self {
        Self { name, domains: Vec::new(), machine: None, torus: None, address: None }
    }
}

impl FabricLink {
    /// One cable of unknown speed that carries traffic.
    #[must_use]
    pub const fn new(a: End, b: End) -> Self {
        Self { a, b, cables: 1, live: 1, mb_per_s: 0, latency_ns: 0, measured: None }
    }

    /// The current bandwidth, one way: the measurement, or the sum of its live cables.
    #[must_use]
    pub fn carries_mb_per_s(&self) -> u64 {
        match self.measured {
            Some(measured) if self.live > 0 => u64::from(measured.mb_per_s),
            _ => u64::from(self.mb_per_s) * u64::from(self.live),
        }
    }

    /// The bandwidth with all cables up, one way.
    #[must_use]
    pub fn nominal_mb_per_s(&self) -> u64 {
        u64::from(self.mb_per_s) * u64::from(self.cables)
    }
}
