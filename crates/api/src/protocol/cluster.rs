//! What people see of the cluster: nodes, what is to come for them, queues.

use phalanx_model::{
    Admin, Bandwidth, Budget, CostTable, DeviceMask, GangId, JobId, Levels, Node, NodeHealth, NodeName,
    Origin, QueueName, QueueReport, Spot, Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::audit::ClosedBy;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodesView {
    pub nodes: Vec<NodeView>,
    /// How many nodes match the filter, of which these are a part.
    #[serde(default)]
    pub matching: u32,
    /// The value of `after` for the next part. `null`: this is the last.
    #[serde(default)]
    pub next: Option<NodeName>,
    /// How processes of a job are held together on this host.
    pub isolation: String,
    /// What discovery could not find, and why.
    pub notes: Vec<String>,
    /// What was lost, and what lives that nobody knows of.
    #[serde(default)]
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeView {
    pub name: NodeName,
    pub path: Vec<String>,
    pub origin: Origin,
    pub admin: Admin,
    pub address: String,
    /// Product of the devices, e.g. `8 × NVIDIA H100`; empty without devices.
    pub model: String,
    pub devices: u32,
    pub free: DeviceMask,
    pub foreign: DeviceMask,
    /// The part of it that ranks of unknown jobs hold.
    #[serde(default, skip_serializing_if = "no_devices")]
    pub unknown: DeviceMask,
    pub cpu_milli: u64,
    pub cpu_free_milli: i64,
    pub memory_bytes: u64,
    pub memory_free_bytes: i64,
    /// Which job holds which devices.
    pub held: Vec<HeldView>,
    /// It may be taken back at short notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot: Option<Spot>,
    /// It is kept for jobs that lose hardware.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_spare: bool,
    /// What is not ok of it and its devices.
    #[serde(default, skip_serializing_if = "NodeHealth::is_ok")]
    pub health: NodeHealth,
    /// What its network was measured to have, if that is less than it should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// Who closed it, if it takes no new work and a user said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_by: Option<ClosedBy>,
    /// What the calendar says of it: the window that is on now, or else the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<NodeWindowView>,
}

/// A window of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeWindowView {
    pub kind: WindowKind,
    /// Of a spot notice: when it is gone.
    pub begins_at: Timestamp,
    /// None: when it is uncordoned.
    pub ends_at: Option<Timestamp>,
    /// The queue of a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_for: Option<QueueName>,
    /// Who added it, when, and why; nothing if no user did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added_by: Option<ClosedBy>,
}

impl NodeWindowView {
    /// Whether it closes its node now: a node that is to be taken back takes no work from the notice on.
    #[must_use]
    pub fn is_on(&self, now: Timestamp) -> bool {
        self.begins_at <= now || self.kind == WindowKind::SpotNotice
    }
}

/// What is to come for some nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WindowView {
    pub kind: WindowKind,
    pub nodes: Vec<NodeName>,
    /// Of a spot notice: when they are gone.
    pub begins_at: Timestamp,
    /// None: when they are uncordoned.
    pub ends_at: Option<Timestamp>,
    /// The queue of a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_for: Option<QueueName>,
    /// It stands in the cluster file.
    #[serde(default)]
    pub is_declared: bool,
    /// Who added it, when, and why; nothing if no user did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added_by: Option<ClosedBy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WindowKind {
    Maintenance,
    /// Kept for a queue.
    Block,
    /// To be empty by a time.
    Drain,
    /// Taken back.
    SpotNotice,
}

impl WindowKind {
    /// The state of a node while such a window is on.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Maintenance => "maintenance",
            Self::Block => "kept",
            Self::Drain => "drained",
            Self::SpotNotice => "leaving",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldView {
    pub job: JobId,
    pub name: String,
    pub devices: DeviceMask,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopologyView {
    pub levels: Levels,
    pub costs: CostTable,
    pub nodes: Vec<Node>,
    pub held: Vec<(NodeName, Vec<HeldView>)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueView {
    pub name: String,
    /// Gangs, those of the queues below included, as with devices.
    pub pending: u32,
    pub running: u32,
    pub devices_held: u32,
    pub devices_wanted: u32,
    /// Every term of the order; none for a queue that jobs name and nobody configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<QueueReport>,
    /// Its budget, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetView>,
}

/// A budget and its use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetView {
    #[serde(flatten)]
    pub budget: Budget,
    /// In this period, by the account; in millionths.
    pub spent_micro: u64,
    pub begins_at: Timestamp,
    pub renews_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueDetailView {
    pub queue: QueueView,
    /// What waits in it and below, in the order in which it is looked at.
    pub waiting: Vec<WaitingView>,
    /// Gangs that wait and are not listed.
    pub more: u32,
}

/// A gang that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitingView {
    pub gang: GangId,
    pub name: String,
    pub owner: String,
    pub queue: String,
    pub class: String,
    pub priority: i32,
    /// Place in the order of the whole cluster, from 1.
    pub position: u32,
    pub devices: u32,
    pub waits_since: Timestamp,
    pub evictions: u32,
    /// A stable word, and a sentence.
    pub reason: String,
    pub detail: String,
    pub estimated_start: Option<Timestamp>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn no_devices(devices: &DeviceMask) -> bool {
    devices.is_empty()
}
