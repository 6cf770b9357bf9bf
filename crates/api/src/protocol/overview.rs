//! The cluster at a glance: the documents that the dashboard's first pages draw.

use phalanx_model::{Admin, Grade, JobId, LevelName, Machine, NodeName, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{HealthView, NodeView, QueueView};

/// The cluster in numbers. Every number is counted at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OverviewView {
    pub now: Timestamp,
    /// Of the scheduler.
    pub version: String,
    pub nodes: NodeCounts,
    pub devices: DeviceCounts,
    pub jobs: JobCounts,
    /// Pending gangs by the reason for which they wait, the most first.
    pub waiting: Vec<WaitingReason>,
    /// Parents before their children.
    pub queues: Vec<QueueView>,
    pub warnings: Vec<String>,
}

/// Nodes, each in one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeCounts {
    pub open: u32,
    pub cordoned: u32,
    pub draining: u32,
    /// Closed by their health.
    pub broken: u32,
}

/// Devices, each in one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceCounts {
    pub total: u32,
    pub held: u32,
    pub free: u32,
    /// Free on nodes that take no new work.
    pub closed: u32,
    /// Closed by their health, or by that of their node, and not in use.
    pub broken: u32,
    /// In use by others than jobs of Phalanx.
    pub foreign: u32,
    /// Held by ranks that nobody knows of.
    pub unknown: u32,
    /// How busy the devices of running gangs are, on average. `None` where that cannot be read.
    pub busy_percent: Option<u32>,
    /// Of those that are held: devices of gangs on which no kernel has run for long.
    pub idle_held: u32,
}

/// Jobs that have not ended, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobCounts {
    pub pending: u32,
    pub starting: u32,
    pub running: u32,
    pub stopping: u32,
}

/// Jobs that wait for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitingReason {
    /// A stable word.
    pub reason: String,
    pub jobs: u32,
    /// That they ask for.
    pub devices: u64,
    /// The first of them.
    pub job: JobId,
    pub name: String,
    /// Why it waits, as a sentence.
    pub detail: String,
}

/// Every device with who holds it, small enough for a hundred thousand devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MapView {
    /// Levels above the node, outermost first.
    pub levels: Vec<LevelName>,
    /// The jobs that hold devices.
    pub jobs: Vec<MapJob>,
    pub nodes: Vec<MapNode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MapJob {
    pub id: JobId,
    pub name: String,
    pub owner: String,
    pub queue: String,
    pub state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MapNode {
    pub name: NodeName,
    /// One domain for each level above the node, outermost first.
    pub path: Vec<String>,
    /// `8 × NVIDIA H100`; empty without devices.
    pub model: String,
    pub admin: Admin,
    pub grade: Grade,
    /// Of each device: the number of the job that holds it, [`HELD_BY_OTHERS`], [`TAKES_NO_WORK`], or nothing if it is free.
    pub devices: Vec<Option<i64>>,
    /// Of each device how busy it is, in percent. `None` where no device of the node is sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<Vec<Option<u32>>>,
    /// Of each device its grade. `None` if all are ok.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grades: Option<Vec<Grade>>,
}

/// In [`MapNode::devices`]: a device that processes hold which no job of Phalanx started.
pub const HELD_BY_OTHERS: i64 = -1;
/// In [`MapNode::devices`]: a free device that takes no work, for its node is closed or its health is bad.
pub const TAKES_NO_WORK: i64 = -2;

/// One node with its hardware.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeDetailView {
    pub node: NodeView,
    pub machine: Machine,
    /// Levels above the node, outermost first.
    pub levels: Vec<LevelName>,
    pub health: HealthView,
    /// The ends of [`Self::links`]: devices, then NICs.
    pub link_names: Vec<String>,
    /// How each pair is linked, as `nvidia-smi topo -m` writes it: `NV18`, `PIX`, `SYS`; `X` for an end itself, `N/A` where
    /// nothing is known.
    pub links: Vec<Vec<String>>,
}

impl NodeDetailView {
    /// The names of devices and NICs, and the matrix of their links.
    #[must_use]
    pub fn matrix(machine: &Machine) -> (Vec<String>, Vec<Vec<String>>) {
        use phalanx_model::Port;
        let devices = (0..).zip(&machine.devices).map(|(i, d)| (Port::Device(i), named(&d.name, "GPU", i)));
        let nics = (0..).zip(&machine.nics).map(|(i, n)| (Port::Nic(i), named(&n.name, "NIC", i)));
        let (ports, names): (Vec<Port>, Vec<String>) = devices.chain(nics).unzip();
        let word = |a: Port, b: Port| {
            if a == b {
                return "X".to_owned();
            }
            machine.link(a, b).map_or_else(|| "N/A".to_owned(), |kind| kind.to_string())
        };
        let row = |a: &Port| ports.iter().map(|b| word(*a, *b)).collect();
        (names, ports.iter().map(row).collect())
    }
}

fn named(name: &str, kind: &str, index: u32) -> String {
    if name.is_empty() { format!("{kind}{index}") } else { name.to_owned() }
}
