//! What to ask for next time.

use phalanx_account::advice::{Advice, Charged};
use phalanx_model::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which jobs; all that is said must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AdviseAsk {
    /// A name of jobs, in which `*` stands for any text and `?` for one letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Runs that began at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// Advice by the jobs of one user and name, first where it saves most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdviceView {
    pub since: Timestamp,
    pub until: Timestamp,
    /// Also those without advice.
    pub jobs: Vec<JobAdvice>,
    /// There are more runs than were looked at.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// Jobs of one user whose names differ in the digits at their end alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobAdvice {
    /// `sweep-*` for `sweep-1` and `sweep-2`.
    pub name: String,
    pub user: String,
    pub uid: u32,
    /// Attempts of its gangs, and those of which the use of GPUs is known.
    pub runs: u32,
    pub sampled_runs: u32,
    /// From the start of the first run until now.
    pub span_ms: u64,
    /// What the account charged for the jobs of these runs.
    pub charged: Charged,
    pub advice: Vec<Advice>,
}
