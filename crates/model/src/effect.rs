//! Orders to a world. An order is not a fact until the world answers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Change, GangId, Placement, Plan, Timestamp};

/// Counts leaders (on one machine: starts of the daemon). A world refuses orders of an older epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// Numbers an order within its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EffectId {
    pub epoch: Epoch,
    pub seq: u64,
}

impl fmt::Display for EffectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch.0, self.seq)
    }
}

/// An order with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Effect {
    pub id: EffectId,
    pub order: Order,
}

/// An order to a world. It concerns one attempt of one gang, and carrying it out twice has the same effect as once.
/// After `KillMembers` the world reports a `MemberExited` for every member of the attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Prepare every member of the placement up to the start barrier. No user process runs yet.
    StartMembers { gang: GangId, attempt: u32, placement: Placement, deadline: Timestamp },
    /// All members are ready: release them from the start barrier.
    ReleaseMembers { gang: GangId, attempt: u32 },
    /// Signal the live members.
    SignalMembers { gang: GangId, attempt: u32, signal: Signal },
    /// End every process of every member, grandchildren included.
    KillMembers { gang: GangId, attempt: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// A signal that asks rank processes to save their work. It is sent only to ranks that handle it.
    Advisory(i32),
    Terminate,
}

impl Order {
    #[must_use]
    pub const fn starts_members(&self) -> bool {
        matches!(self, Self::StartMembers { .. })
    }

    #[must_use]
    pub const fn gang(&self) -> GangId {
        match self {
            Self::StartMembers { gang, .. }
            | Self::ReleaseMembers { gang, .. }
            | Self::SignalMembers { gang, .. }
            | Self::KillMembers { gang, .. } => *gang,
        }
    }

    #[must_use]
    pub const fn attempt(&self) -> u32 {
        match self {
            Self::StartMembers { attempt, .. }
            | Self::ReleaseMembers { attempt, .. }
            | Self::SignalMembers { attempt, .. }
            | Self::KillMembers { attempt, .. } => *attempt,
        }
    }
}

/// The outcome of one step. It is reused between steps: `clear` keeps the allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The decisions of all scheduling cycles of the step. The effects and changes follow from these and from the facts.
    pub plan: Plan,
    pub effects: Vec<Effect>,
    pub changes: Vec<Change>,
}

impl Outcome {
    pub fn clear(&mut self) {
        self.plan.decisions.clear();
        self.effects.clear();
        self.changes.clear();
    }
}

/// When the engine must be stepped again, even without inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Wake(pub Option<Timestamp>);
