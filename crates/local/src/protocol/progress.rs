//! How a gang gets on, by what its ranks tell.

use phalanx_model::Timestamp;
use serde::{Deserialize, Serialize};

/// The progress of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressView {
    /// Of the rank that is least far. Nothing where no rank wrote anything that can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// Steps of the whole job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// When it was at that step first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_at: Option<Timestamp>,
    /// The time for one of the last steps, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_us: Option<u64>,
    /// If it goes on as in the last steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    /// It tells of no further step for much longer than steps took before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_since: Option<Timestamp>,
    /// Ranks that are not as far as the others while it stands still; at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<u32>,
    /// Ranks that work longer on a step than the others; at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stragglers: Vec<StragglerView>,
    /// If it tells how long its checkpoints take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointView>,
    /// What a rank wrote last, if that cannot be read, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
}

/// A rank that works longer on a step than the others of its gang, by itself, without the time in which it waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StragglerView {
    pub rank: u32,
    /// The mean of its last steps, in microseconds.
    pub work_us: u64,
    /// The median of all ranks.
    pub median_us: u64,
}

/// How often to save work costs least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointView {
    /// How long the last checkpoint took to write, in milliseconds.
    pub takes_ms: u64,
    /// The mean time between losses of a node of the gang that is expected, in milliseconds.
    pub loss_every_ms: u64,
    /// The advised time between checkpoints, in milliseconds.
    pub every_ms: u64,
}
