//! How a job ends, starts again and makes way.

use serde::{Deserialize, Serialize};

use crate::FailureClass;

/// What happens at the time limit, when a member fails, and when the job is stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Policy {
    /// Running time of one attempt.
    pub time_limit_ms: Option<u64>,
    /// From the start order until every member has reached the start barrier.
    pub start_deadline_ms: u64,
    pub stop: Stop,
    pub retry: Retry,
    #[serde(default)]
    pub preempt: Preempt,
    /// The job is a session, and ends when no use is reported for this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_limit_ms: Option<u64>,
}

/// What happens to a gang that is preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Preempt {
    #[serde(default)]
    pub mode: PreemptMode,
    /// Only the nodes where the checkpoint was saved can read it, so the gang must resume there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_pinned: bool,
    /// The gang may be moved to other nodes to open a place for a gang that waits ([`crate::Defragmentation`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_move: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PreemptMode {
    /// The gang saves its work, exits, and is requeued at its original position.
    #[default]
    Requeue,
    /// The gang ends and is not requeued.
    Cancel,
    /// The gang cannot be preempted. So it may use only capacity that is guaranteed to its queue or to no queue.
    Never,
}

/// How a gang is stopped: the advisory signal if it is requested, then SIGTERM, then SIGKILL after the grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stop {
    pub advisory: Option<Advisory>,
    pub grace_ms: u64,
}

/// A signal that asks ranks to save their work, ahead of SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Advisory {
    /// Signal number, e.g. 10 for SIGUSR1 on Linux.
    pub signal: i32,
    pub lead_ms: u64,
}

/// Which failures restart the gang, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Retry {
    /// Restarts, not counting the first start.
    pub max: u32,
    pub on: Vec<FailureClass>,
    /// Doubles with every failure, up to `backoff_max_ms`; begins anew once the gang has run for `backoff_max_ms`.
    pub backoff_ms: u64,
    pub backoff_max_ms: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            time_limit_ms: None,
            start_deadline_ms: 60_000,
            stop: Stop { advisory: None, grace_ms: 30_000 },
            retry: Retry { max: 0, on: Vec::new(), backoff_ms: 1_000, backoff_max_ms: 300_000 },
            preempt: Preempt::default(),
            idle_limit_ms: None,
        }
    }
}
