//! Migration off degraded hardware: what it costs, and what it saves.

use serde::{Deserialize, Serialize};

/// Migration: a gang on hardware that is closed to new gangs by its health, and would let it stay, moves to equal nodes
/// after a checkpoint, if the work that it would lose on average by staying takes longer than its restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Migration {
    /// Mean time until hardware with such a grade fails.
    pub fails_within_ms: u64,
    /// How long a gang takes from its stop to the first step after its restart.
    pub restart_ms: u64,
    /// Gangs move whatever they lose by staying.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unconditional: bool,
}

impl Migration {
    /// Time that a gang loses on average by staying, if it runs for `left_ms` longer and saves its work as often as this. The
    /// hardware fails meanwhile with the probability left / (left + mean time to failure): of two events at constant rates, the
    /// failure comes before the end of the gang. A failure costs a restart and half of the time between two checkpoints.
    #[must_use]
    pub fn loss_by_staying_ms(self, left_ms: u64, saves_every_ms: u64) -> u64 {
        let of_failure = u128::from(self.restart_ms) + u128::from(saves_every_ms / 2);
        let left = u128::from(left_ms);
        let expected = of_failure * left / (left + u128::from(self.fails_within_ms)).max(1);
        u64::try_from(expected).unwrap_or(u64::MAX)
    }

    /// Time that a gang loses by moving now, with so much work that is not saved.
    #[must_use]
    pub const fn cost_ms(self, unsaved_ms: u64) -> u64 {
        self.restart_ms.saturating_add(unsaved_ms)
    }
}

impl Default for Migration {
    /// Assumed, not measured: degraded hardware fails within a day, and a restart takes two minutes.
    fn default() -> Self {
        Self { fails_within_ms: 24 * 60 * 60_000, restart_ms: 2 * 60_000, is_unconditional: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: u64 = 60_000;

    /// A journal of a version without migrations is replayed as that version decided.
    #[test]
    fn settings_that_name_no_migration_have_none() {
        let read: crate::Settings = serde_json::from_str("{}").unwrap();
        assert_eq!(
            (read.migration, crate::Settings::default().migration),
            (None, Some(Migration::default()))
        );
    }

    #[test]
    fn moving_pays_if_much_is_at_stake_for_long() {
        let migration = Migration::default();
        let pays = |left_min: u64, every_min: u64| {
            let loss_ms = migration.loss_by_staying_ms(left_min * MINUTE_MS, every_min * MINUTE_MS);
            loss_ms > migration.cost_ms(0)
        };
        // 9.5 minutes are at stake, so a failure has to be likelier than 2 in 9.5.
        assert!(pays(7 * 60, 15) && !pays(6 * 60, 15));
        // With a checkpoint in each minute a failure costs hardly more than the move itself.
        assert!(!pays(24 * 60, 1) && pays(24 * 60, 10));
        assert!(migration.loss_by_staying_ms(u64::MAX, u64::MAX) > u64::MAX / 4, "no overflow");
        assert_eq!(Migration { fails_within_ms: 0, restart_ms: 1, ..migration }.loss_by_staying_ms(0, 0), 0);
    }
}
