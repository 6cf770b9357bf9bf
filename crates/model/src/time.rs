//! Time as the engine sees it: milliseconds since an epoch that the world chose.

use serde::{Deserialize, Serialize};

/// A point in time, in milliseconds since an epoch chosen by the world (Unix time in live worlds).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The end of time; used where a timer is not set.
    pub const MAX: Self = Self(u64::MAX);

    /// `self + span_ms`, saturating: a deadline that overflows never comes.
    #[must_use]
    pub const fn plus(self, span_ms: u64) -> Self {
        Self(self.0.saturating_add(span_ms))
    }

    /// Milliseconds from `earlier` to `self`, zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
