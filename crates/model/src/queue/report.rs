//! What a queue has, wants and is owed, as people see it.

use serde::{Deserialize, Serialize};

use super::{Pool, Queue, Resource, ShapeQuota};
use crate::Timestamp;

/// The state of a queue, with every term of its order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueReport {
    pub queue: Queue,
    /// The number of its ancestors.
    pub depth: u32,
    /// Gangs, including those of its descendants.
    pub pending: u32,
    pub running: u32,
    #[serde(rename = "goods")]
    pub resources: Vec<ResourceReport>,
    /// Its use above the guarantee of the dominant resource, as a part of the cluster, by weight, in millionths. The
    /// sibling with the least goes first.
    pub share: u64,
    pub dominant: Resource,
    /// Its decayed usage, as a part of the cluster over one half-life, by weight, in millionths. It is added to
    /// `share`.
    #[serde(rename = "past")]
    pub decayed_usage: u64,
    /// Its guaranteed domains, and the domains to which they are bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<ShapeReport>,
    /// Its pools, and its use of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolReport>,
}

/// A pool of a queue. A node that is in several pools counts in each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolReport {
    pub pool: Pool,
    pub nodes: u32,
    /// What Phalanx may use of the devices there, in thousandths of a device weighted by model.
    pub capacity: u64,
    /// What gangs of the queue and of those below it hold there, likewise.
    pub used: u64,
}

/// Equal guaranteed domains of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShapeReport {
    pub shape: ShapeQuota,
    /// The bound domains: fewer than [`ShapeQuota::count`] if there are too few whole nodes.
    pub domains: Vec<String>,
}

/// One resource of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResourceReport {
    pub resource: Resource,
    pub used: u64,
    /// The minimum that its pending gangs request.
    pub wanted: u64,
    pub guaranteed: u64,
    pub limit: Option<u64>,
    /// Its current fair share: its guarantee, and its part by weight of the capacity that other queues leave. For
    /// devices only.
    #[serde(rename = "due")]
    pub fair_share: Option<u64>,
    /// The capacity of the cluster.
    pub capacity: u64,
}

/// The decayed usage of a queue at `at`, in thousandths of a device times milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DecayedUsage {
    pub device_ms: u128,
    pub at: Timestamp,
}
