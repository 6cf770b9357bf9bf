//! Facts about time to come and about measured values: calendars, spot notices and metrics. (Arrays and
//! [`crate::Replicas`] are jobs with many gangs. Elastic sizes are [`crate::Gang::min`] and [`crate::Gang::max`].
//! Checkpoints are an input of their own.)

use serde::{Deserialize, Serialize};

use crate::{GangId, NodeName, QueueName, Timestamp};

/// A window in which a node is not available (maintenance), or is reserved for a queue and its descendants. A gang
/// that would not end before the window begins is not started on the node, and gangs that still run there are moved
/// in time. A window with the same node and begin replaces the earlier window. A window that ends when it begins was
/// cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Calendar {
    pub node: NodeName,
    pub begins_at: Timestamp,
    /// The end. [`Timestamp::MAX`]: the window lasts until the node is uncordoned, as after a drain by a time.
    pub ends_at: Timestamp,
    pub held_for: Option<QueueName>,
    /// The window comes from the configuration, which is read at every start, and not from a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_declared: bool,
}

impl Calendar {
    /// Whether the end of the window is unknown.
    #[must_use]
    pub fn is_open_ended(&self) -> bool {
        self.ends_at == Timestamp::MAX
    }
}

/// A measured value of a gang, in thousandths of its unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Metric {
    pub gang: GangId,
    pub name: String,
    pub value_milli: i64,
    pub at: Timestamp,
}

/// A spot node will be reclaimed. It is not schedulable until it is uncordoned, or is removed and observed again.
/// Gangs that run there are moved, with the rest of their grace period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpotNotice {
    pub node: NodeName,
    pub ends_at: Timestamp,
}
