//! Facts that the model knew before a policy used them: calendars and spot notices, which one uses now, and services,
//! sessions, metrics and health grades, which are only kept. (Arrays are jobs with many gangs; elastic sizes are
//! [`crate::Gang::min`] and [`crate::Gang::max`]; checkpoints are an input of their own.)

use serde::{Deserialize, Serialize};

use crate::{DeviceMask, GangId, JobId, NodeName, QueueName, Timestamp};

/// A serving job with a wanted number of replicas, each one gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    pub job: JobId,
    pub replicas: u32,
}

/// An interactive allocation and when somebody last used it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub job: JobId,
    pub used_at: Timestamp,
}

/// A window in which a node is not available (maintenance) or is kept for a queue and those below it. What would not end
/// before it begins is not started there, and what still runs there is moved in time. Told again with the same node and
/// begin, it replaces what was told before; one that ends when it begins was called off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calendar {
    pub node: NodeName,
    pub begins_at: Timestamp,
    /// [`Timestamp::MAX`]: not before the node is uncordoned, which is how a drain by a time is told.
    pub ends_at: Timestamp,
    pub held_for: Option<QueueName>,
    /// It stands in the configuration, which is read anew at every start, and was not told by a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_declared: bool,
}

impl Calendar {
    /// Whether nobody knows when it ends.
    #[must_use]
    pub fn is_open_ended(&self) -> bool {
        self.ends_at == Timestamp::MAX
    }
}

/// A measured value of a gang, in thousandths of its unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    pub gang: GangId,
    pub name: String,
    pub value_milli: i64,
    pub at: Timestamp,
}

/// A node will be taken back: it takes no new work until it is uncordoned, or gone and there again, and what runs there is
/// moved, with as much of its grace as is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpotNotice {
    pub node: NodeName,
    pub ends_at: Timestamp,
}

/// How much the devices of a node can be trusted: 0 is broken, 100 is healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    pub node: NodeName,
    pub devices: DeviceMask,
    pub grade: u8,
}
