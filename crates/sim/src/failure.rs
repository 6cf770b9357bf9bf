//! How a run can fail.

use std::fmt;

/// What was broken. The process exit codes of `phalanx-sim` tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Something happened that must never happen.
    Correctness,
    /// Something did not happen that must happen in the end.
    Liveness,
    /// The engine stopped at a broken invariant.
    Crash,
}

/// A run that failed, with what is needed to look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    pub what: String,
    /// The last steps: time, facts, orders.
    pub log: String,
}

impl Failure {
    /// Whether the same is broken, by what is said of it: whom it befell is left aside, as are the details behind a colon.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let words = |failure: &Self| -> Vec<String> {
            let rule = failure.what.split(": ").next().unwrap_or_default();
            let is_word = |word: &&str| !word.contains(|c: char| c.is_ascii_digit());
            rule.split_whitespace().filter(is_word).map(str::to_owned).collect()
        };
        self.kind == other.kind && words(self) == words(other)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            FailureKind::Correctness => "correctness",
            FailureKind::Liveness => "liveness",
            FailureKind::Crash => "crash",
        };
        write!(f, "{kind}: {}", self.what)?;
        if self.log.is_empty() { Ok(()) } else { write!(f, "\nthe last steps:\n{}", self.log) }
    }
}

impl std::error::Error for Failure {}
