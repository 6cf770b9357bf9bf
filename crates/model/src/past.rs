//! Run times of jobs that ended.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The most recorded runs of one user's jobs of one name.
pub const RUNS_MAX: usize = 8;

/// The run times of the last runs of a user's jobs of one name, as parts of their time limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PastRuns {
    pub uid: u32,
    /// The name without the digits at its end: `sweep-` for `sweep-12`. Tasks of an array have the name of their job.
    pub name: String,
    /// Thousandths of the time limit, oldest first; at most [`RUNS_MAX`].
    pub of_limit_milli: Vec<u32>,
    /// When the last run ended.
    pub last_at: Timestamp,
}
