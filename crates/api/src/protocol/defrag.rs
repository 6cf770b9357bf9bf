//! Moves of running jobs that open a place for a job that waits.

use phalanx_model::{Estimate, GangId, NodeName, Placement, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What opens, for whom, what it saves and what it costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DefragView {
    pub gang: GangId,
    pub name: String,
    pub devices: u32,
    /// Where it starts.
    pub placement: Placement,
    /// When it starts at the latest.
    pub at: Option<Timestamp>,
    /// When it would start without moves, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<Estimate>,
    pub pending_since: Timestamp,
    /// The cheapest moves that were found, the jobs that are hardest to place first.
    pub moves: Vec<MoveView>,
    /// How long a restart is assumed to take.
    pub restart_ms: u64,
    /// The jobs are moving; else nothing was done.
    pub is_applied: bool,
}

/// A job that moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MoveView {
    pub gang: GangId,
    pub name: String,
    pub devices: u32,
    pub from: Vec<NodeName>,
    pub to: Vec<NodeName>,
    /// Its devices, for as long as the restart takes and for its work that is not saved.
    pub lost_device_ms: u64,
}

impl DefragView {
    /// The time for which the job that waits would wait longer without moves, if that is known.
    #[must_use]
    pub fn saved_ms(&self) -> Option<u64> {
        let (otherwise, at) = self.otherwise.as_ref().map(|estimate| estimate.at).zip(self.at)?;
        Some(otherwise.since(at))
    }

    /// What all moves cost, in milliseconds of one device.
    #[must_use]
    pub fn lost_device_ms(&self) -> u64 {
        self.moves.iter().fold(0, |sum, one| sum.saturating_add(one.lost_device_ms))
    }
}
