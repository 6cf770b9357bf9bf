//! Orders to a world. An order is not a fact until the world answers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Change, GangId, Placement, Plan, Timestamp};

/// Counts leaders (on one machine: starts of the daemon). A world refuses orders of an older epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// Numbers an order within its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EffectId {
    pub epoch: Epoch,
    pub seq: u64,
}

impl fmt::Display for EffectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch.0, self.seq)
    }
}

/// A numbered order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    pub id: EffectId,
    pub order: Order,
}

/// What a world is to do. Orders are about one attempt of one gang, and carrying one out twice is the same
/// as once. After `KillMembers` the world owes a `MemberExited` for every member of the attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Bring every member of the placement to the gate: prepared, nothing of the user's running.
    StartMembers { gang: GangId, attempt: u32, placement: Placement, deadline: Timestamp },
    /// All are ready: let them through.
    ReleaseMembers { gang: GangId, attempt: u32 },
    /// Signal the members that still live.
    SignalMembers { gang: GangId, attempt: u32, signal: Signal },
    /// End every process of every member, grandchildren included.
    KillMembers { gang: GangId, attempt: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// To rank processes only, and only where they handle it: asks them to save their work.
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

/// What one step decided. Reused between steps: `clear` keeps the allocations.
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

/// When the engine wants to be stepped again, even without inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Wake(pub Option<Timestamp>);
