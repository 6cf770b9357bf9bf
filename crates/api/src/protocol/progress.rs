//! Progress of a gang, from the reports of its ranks.

use phalanx_model::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The progress of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgressView {
    /// Completed steps of the slowest rank. `None` if no rank has written a line that can be parsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// Steps of the whole job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// When the slowest rank completed that step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_at: Option<Timestamp>,
    /// The time for one of the last steps, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_us: Option<u64>,
    /// Predicted from the last steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    /// The slowest rank completes no further step for much longer than steps took before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_since: Option<Timestamp>,
    /// Ranks with fewer completed steps than others while the gang is stalled; at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<u32>,
    /// At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stragglers: Vec<StragglerView>,
    /// `None` if no rank reports how long its checkpoints take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointView>,
    /// A line that cannot be parsed, with its rank and the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
}

/// A rank whose own work for a step, without the time that it waits for other ranks, takes longer than that of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StragglerView {
    pub rank: u32,
    /// Mean of the last reported steps, in microseconds.
    pub work_us: u64,
    /// Median of the gang, in microseconds.
    pub median_us: u64,
}

/// The checkpoint interval with the least expected cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointView {
    /// How long the last checkpoint took to write, in milliseconds.
    pub takes_ms: u64,
    /// Expected mean time between losses of a node of the gang, in milliseconds.
    pub loss_every_ms: u64,
    /// Time between checkpoints, in milliseconds.
    pub every_ms: u64,
}
