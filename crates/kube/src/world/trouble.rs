//! What did not work, for an operator.

use std::fmt::Display;

/// Something that came to nothing and is tried again or goes on without.
pub(crate) struct Trouble {
    /// A sentence that never changes.
    what: &'static str,
    /// Which object or list.
    about: String,
    error: String,
}

impl Trouble {
    pub(crate) fn new(what: &'static str, about: impl Into<String>, error: impl Display) -> Self {
        Self { what, about: about.into(), error: error.to_string() }
    }

    /// For whoever reads the log.
    pub(crate) fn say(&self) {
        let Self { what, about, error } = self;
        tracing::warn!(about, error, "{what}");
    }
}
