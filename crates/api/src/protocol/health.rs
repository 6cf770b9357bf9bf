//! What people see of the health of nodes and devices.

use phalanx_health::Line;
use phalanx_model::{Bandwidth, Grade, NodeName, PortVitals, Pressure, Timestamp, Vitals};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Evidence that an operator has, or a tool with an operator's rights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthReport {
    pub node: NodeName,
    /// `None`: the node itself.
    pub device: Option<u32>,
    pub finding: HealthFinding,
    /// At most [`super::REASON_CHARS_MAX`] characters.
    #[serde(default)]
    pub reason: String,
}

/// `GPU gpu-1:3`, or `node gpu-1` for the node itself.
#[must_use]
pub fn hardware(node: &NodeName, device: Option<u32>) -> String {
    device.map_or_else(|| format!("node {node}"), |device| format!("GPU {node}:{device}"))
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthFinding {
    /// The grade that it has until it is cleared.
    Grade(Grade),
    /// An Xid that was seen elsewhere; the table of Xids decides.
    Xid(u32),
    /// The share of its nominal bandwidth that the network of the node has, in thousandths. It counts for less with time.
    Bandwidth(u16),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthView {
    /// What is not ok, or has evidence; worst first.
    pub lines: Vec<Line>,
    /// The last sample of each device that is sampled.
    pub samples: Vec<SampleView>,
    /// The last sample of each network port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortView>,
    /// The last pressure on each node where it is counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pressure: Vec<PressureView>,
    /// The links of nodes that are slower than they should be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bandwidths: Vec<Bandwidth>,
    /// Of the nodes that are asked for.
    pub devices: u32,
    /// What the daemon watches: `NVML every 15s`.
    pub sources: Vec<String>,
    /// What the daemon cannot watch, and why.
    pub missing: Vec<String>,
    /// Why the circuit breaker holds grades, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SampleView {
    pub node: NodeName,
    pub device: u32,
    pub at: Timestamp,
    pub vitals: Vitals,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortView {
    pub node: NodeName,
    pub at: Timestamp,
    pub port: PortVitals,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PressureView {
    pub node: NodeName,
    pub at: Timestamp,
    pub pressure: Pressure,
}
