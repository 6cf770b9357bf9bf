//! Defragmentation: running gangs move to other nodes, and so open a place for a gang that waits.

use serde::{Deserialize, Serialize};

use crate::{Estimate, GangId, Placement, Timestamp};

/// Which gangs move to open a place for a gang that waits, and when. Only gangs move that [may](crate::Preempt::may_move).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Defragmentation {
    /// Gangs move without a request, if the wait that this saves is worth more than the moves cost.
    pub is_automatic: bool,
    /// A gang does not move without a request before it has run for so long.
    pub stays_ms: u64,
    /// The most gangs that move for one gang.
    pub gangs_max: u32,
}

impl Defragmentation {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether moves pay: the devices of the gang that waits, for as long as it would wait for, against the devices of the
    /// gangs that move, for as long as they do not work. If nobody knows how long it would wait, it is as long as it has waited:
    /// that costs at most twice what the better choice would have cost (rent or buy: Karlin, Manasse, Rudolph and Sleator,
    /// Algorithmica 3, 1988).
    #[must_use]
    pub fn pays(waits_ms: u64, devices: u32, lost_device_ms: u64) -> bool {
        u128::from(waits_ms) * u128::from(devices) > u128::from(lost_device_ms)
    }
}

impl Default for Defragmentation {
    /// On request only; without one, at most once an hour each.
    fn default() -> Self {
        Self { is_automatic: false, stays_ms: 60 * 60_000, gangs_max: 8 }
    }
}

/// A place that opens for a pending gang when others move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Opening {
    /// The gang that waits, and where it starts.
    pub gang: GangId,
    pub placement: Placement,
    /// When it starts at the latest, if gangs take all of the time that they have to save their work.
    pub at: Option<Timestamp>,
    /// When it would start otherwise, if that is known.
    pub otherwise: Option<Estimate>,
    /// Since when it is pending.
    pub pending_since: Timestamp,
    /// How long a restart is assumed to take.
    pub restart_ms: u64,
    pub moves: Vec<Move>,
}

/// A gang that moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Move {
    pub gang: GangId,
    pub from: Placement,
    pub to: Placement,
    /// The devices that it holds, for as long as its restart takes and for its work that is not saved.
    pub lost_device_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_pay_if_the_wait_costs_more() {
        // 16 GPUs that wait for 10 minutes, against 8 GPUs that do not work for 2.
        let minute_ms = 60_000;
        assert!(Defragmentation::pays(10 * minute_ms, 16, 8 * 2 * minute_ms));
        assert!(!Defragmentation::pays(minute_ms, 16, 8 * 2 * minute_ms), "as much is not enough");
        assert!(Defragmentation::pays(u64::MAX, u32::MAX, u64::MAX), "no overflow");
    }
}
