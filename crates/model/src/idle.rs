//! What a queue does with jobs that hold GPUs and run no kernel on them. No decision of the engine depends on it.

use serde::{Deserialize, Serialize};

use crate::{ClassName, Owner};

/// The rule of a queue for idle jobs. A world that samples GPUs enforces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IdlePolicy {
    /// The time without a kernel after which it applies.
    pub after_ms: u64,
    /// The least time between the notice to the owner and what happens then.
    pub notice_ms: u64,
    pub then: IdleThen,
    /// It applies only if another gang would start then, and to the fewest jobs with which it would.
    pub is_on_demand: bool,
    /// Users and classes whose jobs are only reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spared_users: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spared_classes: Vec<ClassName>,
}

/// What happens to an idle job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IdleThen {
    /// Its owner is notified.
    Warn,
    /// It is stopped, and held until it is released.
    Hold,
    /// It is cancelled.
    End,
}

impl Default for IdlePolicy {
    fn default() -> Self {
        let (spared_users, spared_classes) = (Vec::new(), Vec::new());
        let (after_ms, notice_ms) = (1_800_000, 300_000);
        Self { after_ms, notice_ms, then: IdleThen::Warn, is_on_demand: true, spared_users, spared_classes }
    }
}

impl IdlePolicy {
    /// Whether it does more than notify the owner of such a job. Users are named by name or number, or all at once.
    #[must_use]
    pub fn takes(&self, owner: &Owner, class: Option<&ClassName>) -> bool {
        let is_spared = self.spared_users.iter().any(|said| owner.is_meant_by(said))
            || class.is_some_and(|class| self.spared_classes.contains(class));
        self.then != IdleThen::Warn && !is_spared
    }
}
