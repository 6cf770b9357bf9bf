//! What requests carry beside jobs.

use phalanx_model::{QueueName, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WindowAsk {
    /// Each a name, a pattern such as `gpu-[1-4]`, or a domain such as `rack=r1` or, where several have that name,
    /// `rack=b1/r1`.
    pub nodes: Vec<String>,
    pub begins_at: Timestamp,
    pub ends_at: Timestamp,
    /// The queue that the nodes are kept for; none for maintenance.
    pub held_for: Option<QueueName>,
    /// Why, for all who list nodes or the calendar; at most 200 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BoostAsk {
    pub priority: i32,
    pub for_ms: u64,
}

/// What a gang's ranks tell the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum News {
    /// They saved their work, just now.
    Checkpoint,
    /// Somebody works in it.
    Active,
    /// They stand where the gang may change its size.
    Boundary,
    /// Something they measured, in thousandths of its unit.
    Metric { name: String, value_milli: i64 },
}

/// Which output of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LogAsk {
    /// None: of all ranks.
    pub rank: Option<u32>,
    /// None: of the newest.
    pub attempt: Option<u32>,
    /// The last lines of each rank.
    pub tail: Option<u32>,
    /// Lines of this time or later, by the wall clock.
    pub since: Option<Timestamp>,
    /// Also what is still to come, until the job has ended.
    pub follow: bool,
    /// Each line with its time.
    pub timestamps: bool,
}
