//! Costs of queues, and notices about their budgets.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_account::HOUR_MS;
use phalanx_model::{Period, Timestamp};
use rusqlite::{Connection, params};

use super::bill::micro;
use super::query::time;
use super::rows::integer;
use super::{History, HistoryError, ROWS_MAX};
use crate::budgets::{Level, OfQueue};

/// The time of each queue at each price in this day, week and month. The index `account_by_cost` has all of it.
const SPENT: &str = "SELECT queue, price_micro, sum(iif(hour >= ?3 AND hour < ?4, device_us, 0)),
        sum(iif(hour >= ?5 AND hour < ?6, device_us, 0)), sum(iif(hour >= ?7 AND hour < ?8, device_us, 0))
    FROM account WHERE hour >= ?1 AND hour < ?2 AND price_micro > 0 GROUP BY 1, 2";

/// A notice about a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetRow {
    pub queue: String,
    /// When its period begins.
    pub begins_at: Timestamp,
    pub level: &'static str,
}

impl History {
    /// What is spent of each of these budgets in the period that is now, as `phalanx bill` shows it, in millionths.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub(crate) fn spent(&self, budgets: &[OfQueue], now: Timestamp) -> Result<Vec<u64>, HistoryError> {
        let hours = |period: Period| {
            let (begins_at, renews_at) = period.around(now);
            [begins_at, renews_at].map(|at| integer(at.0 / HOUR_MS))
        };
        let asked: Vec<[i64; 2]> = budgets.iter().map(|of| hours(of.budget.per)).collect();
        let Some(first) = asked.iter().map(|[first, _]| *first).min() else { return Ok(Vec::new()) };
        let end = asked.iter().map(|[_, end]| *end).max().unwrap_or(first);
        let [day, week, month] = Period::ALL.map(hours);
        let values = [first, end, day[0], day[1], week[0], week[1], month[0], month[1]];
        let rows = self.many(SPENT, values, |row| {
            let us = [row.get::<_, i64>(2)?, row.get(3)?, row.get(4)?];
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, us))
        })?;
        let mut costs: BTreeMap<String, [i128; 3]> = BTreeMap::new();
        for (queue, price_micro, us) in rows {
            for (cost, us) in costs.entry(queue).or_default().iter_mut().zip(us) {
                *cost = cost.saturating_add(i128::from(price_micro) * i128::from(us));
            }
        }
        let of_budget = |of: &OfQueue| {
            let at = Period::ALL.iter().position(|period| *period == of.budget.per).unwrap_or_default();
            let cost = of.queues.iter().filter_map(|queue| Some(costs.get(queue.as_str())?[at])).sum();
            // Work that is found lost later is moved between hours of one period, and never makes less than nothing.
            u64::try_from(micro(cost)).unwrap_or_default()
        };
        Ok(budgets.iter().map(of_budget).collect())
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
    use phalanx_model::{Budget, QueueName};

    use super::super::Row;
    use super::*;

    /// 1970-01-15 was a Thursday; the week began on the 12th.
    const NOW: Timestamp = Timestamp((14 * 24 + 12) * HOUR_MS);

    fn of(per: Period, queues: &[&str]) -> OfQueue {
        let name = |name: &&str| QueueName::new(*name).unwrap();
        let budget = Budget { amount_micro: 1, per, warn_milli: 0, holds: true };
        OfQueue { queue: name(&queues[0]), budget, queues: queues.iter().map(name).collect() }
    }

    #[test]
    fn queues_spend_what_their_bill_says_and_are_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut history = History::open(&dir.path().join("history.db")).unwrap();
        let (day, week) = (14 * 24, 11 * 24);
        for (hour, queue, state, price, us) in [
            (week - 1, "vision", "running", 2_000_000, 3_600_000_000_i64),
            (week, "vision", "running", 2_000_000, 1_800_000_000),
            (day, "vision-eval", "stopping", 1_000_000, 3_600_000_000),
            (day + 1, "vision", "running", 2_000_000, -1_800_000_000),
            (day + 1, "vision", "lost_to_failure", 2_000_000, 1_800_000_000),
            (day + 1, "speech", "running", 9_000_000, 3_600_000_000),
            // The clock was set back.
            (day + 24, "vision", "running", 4_000_000, 3_600_000_000),
            (31 * 24, "vision", "running", 4_000_000, 3_600_000_000),
        ] {
            let sql = "INSERT INTO account VALUES (?, ?, ?, 1, 'ada', 1, 'a', 'H100', 0, ?4, ?, ?4, '')";
            history.connection.execute(sql, params![hour, state, queue, price, us]).unwrap();
        }
        let both = ["vision", "vision-eval"];
        let budgets = [
            of(Period::Day, &both),
            of(Period::Week, &both),
            of(Period::Month, &both),
            of(Period::Day, &["vision"]),
            of(Period::Day, &["none"]),
        ];
        let spent = history.spent(&budgets, NOW).unwrap();
        assert_eq!(spent, [1_000_000, 6_000_000, 8_000_000, 0, 0]);
        assert_eq!(history.spent(&budgets[..1], NOW).unwrap(), [1_000_000]);
        assert_eq!(history.spent(&[], NOW).unwrap(), [0; 0]);
        let plan = history.many(&format!("EXPLAIN QUERY PLAN {SPENT}"), [0_i64; 8], |row| row.get(3));
        let plan: Vec<String> = plan.unwrap();
        assert!(plan.iter().any(|step| step.contains("USING COVERING INDEX account_by_cost")), "{plan:?}");
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
