//! What is remembered of jobs that ended.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Most runs that are remembered of one user's jobs of one name.
pub const RUNS_MAX: usize = 8;

/// How long the last runs of a user's jobs of one name took, against the limit that they had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastRuns {
    pub uid: u32,
    /// Without the digits at its end: `sweep-` for `sweep-12`. Tasks of an array have the name of their job.
    pub name: String,
    /// Thousandths of the limit, the oldest first; at most [`RUNS_MAX`].
    pub of_limit_milli: Vec<u32>,
    /// When the last of them ended.
    pub last_at: Timestamp,
}
