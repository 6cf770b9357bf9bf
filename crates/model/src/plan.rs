//! What a scheduling cycle decides, as data: the cycle writes a [`Plan`], the ledger commits it, and the journal records it.

use serde::{Deserialize, Serialize};

use crate::{GangId, Placement, Preemption, Reason, Reserved, Resize, WeighedLink};

/// The decisions of a step, in the order in which the ledger commits them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Plan {
    pub decisions: Vec<Decision>,
}

/// One decision about one gang. It carries everything that the ledger needs to commit it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// A pending gang loses its reservation and goes back into its queue.
    Release { gang: GangId, why: String },
    /// A pending gang gets a reservation.
    Reserve {
        gang: GangId,
        reserved: Reserved,
        /// Why the gang does not start now.
        #[serde(default = "no_reason", skip_serializing_if = "is_no_reason")]
        reason: Reason,
    },
    /// A starting or running gang is preempted.
    Preempt {
        gang: GangId,
        #[serde(rename = "eviction")]
        preemption: Preemption,
    },
    /// An elastic gang will be resized at its next boundary, or when it starts again.
    Resize { gang: GangId, resize: Resize },
    /// An elastic gang at its boundary stops, and restarts with more members.
    Grow { gang: GangId, size: u32 },
    /// A pending gang starts.
    Start {
        gang: GangId,
        placement: Placement,
        /// See [`crate::GangRecord::weighed`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        weighed: Vec<WeighedLink>,
    },
    /// A pending gang was bypassed once: another gang started with capacity that the pending gang could have used.
    Bypass { gang: GangId },
    /// A running gang moves to another placement, and so opens a place for the gang `by`, which has it reserved.
    Move { gang: GangId, by: GangId, to: Placement, lost_device_ms: u64 },
    /// A replica that is being replaced stops now: no other replica can take over from it first.
    Leave { gang: GangId },
}

impl Decision {
    /// The gang that the decision is about.
    #[must_use]
    pub const fn gang(&self) -> GangId {
        match self {
            Self::Release { gang, .. }
            | Self::Reserve { gang, .. }
            | Self::Preempt { gang, .. }
            | Self::Resize { gang, .. }
            | Self::Grow { gang, .. }
            | Self::Start { gang, .. }
            | Self::Bypass { gang }
            | Self::Move { gang, .. }
            | Self::Leave { gang } => *gang,
        }
    }

    /// What is decided, as a verb in lower case.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Release { .. } => "release",
            Self::Reserve { .. } => "reserve",
            Self::Preempt { .. } => "preempt",
            Self::Resize { .. } => "resize",
            Self::Grow { .. } => "grow",
            Self::Start { .. } => "start",
            Self::Bypass { .. } => "bypass",
            Self::Move { .. } => "move",
            Self::Leave { .. } => "leave",
        }
    }
}

impl Plan {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.decisions.is_empty()
    }
}

const fn no_reason() -> Reason {
    Reason::None
}

const fn is_no_reason(reason: &Reason) -> bool {
    matches!(reason, Reason::None)
}
