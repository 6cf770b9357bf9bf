//! Costs of queues, and notices about their budgets.

use std::collections::BTreeSet;

use phalanx_model::{QueueName, Timestamp};
use rusqlite::{Connection, params};

use super::bill::micro;
use super::query::time;
use super::rows::integer;
use super::{History, HistoryError, ROWS_MAX};
use crate::budgets::Level;

/// A notice about a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetRow {
    pub queue: String,
    /// When its period begins.
    pub begins_at: Timestamp,
    pub level: &'static str,
}

impl History {
    /// The cost of jobs of these queues since an hour, as `phalanx bill` shows it, in millionths.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub(crate) fn spent(&self, queues: &BTreeSet<QueueName>, hour: u64) -> Result<u64, HistoryError> {
        let sql = "SELECT price_micro, sum(device_us) FROM account
            WHERE queue = ? AND hour >= ? AND price_micro > 0 GROUP BY 1";
        let mut cost = 0_i128;
        for queue in queues {
            let rows = self.many(sql, params![queue.as_str(), integer(hour)], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
            })?;
            let products = rows.into_iter().map(|(price, us)| i128::from(price) * i128::from(us));
            cost = cost.saturating_add(products.sum());
        }
        // Work that is found lost later is moved between hours of one period, and never makes less than nothing.
        Ok(u64::try_from(micro(cost)).unwrap_or_default())
    }

    /// The notices about budgets.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub(crate) fn budgets_told(&self) -> Result<BTreeSet<(String, Timestamp, Level)>, HistoryError> {
        let sql = "SELECT queue, begin, level FROM budgets ORDER BY begin DESC LIMIT ?";
        let rows =
            self.many(sql, [ROWS_MAX], |row| Ok((row.get(0)?, time(row, 1)?, row.get::<_, String>(2)?)))?;
        let known = |(queue, begins_at, word): (String, Timestamp, String)| {
            let level = Level::ALL.into_iter().find(|level| level.word() == word)?;
            Some((queue, begins_at, level))
        };
        Ok(rows.into_iter().filter_map(known).collect())
    }
}

pub(super) fn write_budget(connection: &Connection, row: &BudgetRow) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("INSERT OR IGNORE INTO budgets VALUES (?, ?, ?)")?;
    statement.execute(params![row.queue, integer(row.begins_at.0), row.level])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::*;

    #[test]
    fn queues_spend_what_their_bill_says_and_are_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut history = History::open(&dir.path().join("history.db")).unwrap();
        for (hour, queue, state, price, us) in [
            (9, "vision", "running", 2_000_000, 3_600_000_000_i64),
            (10, "vision", "running", 2_000_000, 1_800_000_000),
            (10, "vision-eval", "stopping", 1_000_000, 3_600_000_000),
            (11, "vision", "running", 2_000_000, -1_800_000_000),
            (11, "vision", "lost_to_failure", 2_000_000, 1_800_000_000),
            (11, "speech", "running", 9_000_000, 3_600_000_000),
        ] {
            let sql = "INSERT INTO account VALUES (?, ?, ?, 1, 'ada', 1, 'a', 'H100', 0, ?4, ?, ?4, '')";
            history.connection.execute(sql, params![hour, state, queue, price, us]).unwrap();
        }
        let queues: BTreeSet<QueueName> =
            ["vision", "vision-eval"].into_iter().map(|name| QueueName::new(name).unwrap()).collect();
        assert_eq!(history.spent(&queues, 10).unwrap(), 2_000_000);
        assert_eq!(history.spent(&queues, 0).unwrap(), 4_000_000);
        assert_eq!(history.spent(&BTreeSet::new(), 0).unwrap(), 0);
        let level = Level::Warned.word();
        let row = Row::Budget(BudgetRow { queue: "vision".to_owned(), begins_at: Timestamp(7), level });
        history.record(&[row.clone(), row]).unwrap();
        let told = history.budgets_told().unwrap();
        assert_eq!(
            told.into_iter().collect::<Vec<_>>(),
            [("vision".to_owned(), Timestamp(7), Level::Warned)]
        );
    }
}
