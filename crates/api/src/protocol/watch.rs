//! What changes, as it changes.

use phalanx_model::{JobId, NodeName, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something changed: what is shown of it is to be read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeView {
    /// Ascending, also across restarts: to go on from after a break.
    pub id: u64,
    pub at: Timestamp,
    pub kind: ChangeKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// A word for what happened: `placed`, `running`, `cordoned`.
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Job,
    Node,
    Queues,
    /// Windows, blocks, drains by a time, nodes that are taken back.
    Calendar,
}
