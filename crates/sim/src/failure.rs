//! How a run can fail.

use std::fmt;

/// What was broken. The process exit codes of `phalanx-sim` tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Something happened that must never happen.
    Correctness,
    /// Something did not happen that must happen in the end.
    Liveness,
}

/// A run that failed, with what is needed to look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    pub what: String,
    /// The last steps: time, facts, orders.
    pub log: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            FailureKind::Correctness => "correctness",
            FailureKind::Liveness => "liveness",
        };
        write!(f, "{kind}: {}\nthe last steps:\n{}", self.what, self.log)
    }
}

impl std::error::Error for Failure {}
