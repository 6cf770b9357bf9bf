//! Who changed what.

use phalanx_model::{NodeName, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Characters of a reason that a user gives.
pub const REASON_CHARS_MAX: usize = 200;

/// One line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditView {
    pub at: Timestamp,
    /// The user who asked, as the kernel and the name service know it.
    pub uid: u32,
    pub user: String,
    /// The name by which the issuer of the token knows the user, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// The verb of the command: `cordon`, `cancel`.
    pub verb: String,
    /// What it was about: a job, a node, queues.
    pub target: String,
    /// Arguments, or the reason that the user gave. May be empty.
    pub detail: String,
    /// Why it was refused; nothing if it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Which lines of the audit log; all that is said must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AuditFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// At this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// Who closed a node for new work or added a window of the calendar, when, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClosedBy {
    pub user: String,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
