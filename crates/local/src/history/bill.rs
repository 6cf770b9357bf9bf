//! What the account says of a time, in lines.

use std::collections::BTreeMap;

use phalanx_account::{HOUR_MS, State};
use phalanx_model::Timestamp;
use rusqlite::types::Value;
use rusqlite::{OptionalExtension as _, Row, Transaction};

use super::query::{narrowed, time};
use super::rows::integer;
use super::{History, HistoryError, ROWS_MAX};
use phalanx_api::protocol::{BillAsk, BillBy, BillLine, BillView};

/// The account is kept so long, in hours: a year and a month.
pub(super) const KEPT_HOURS: u64 = 396 * DAY_HOURS;
/// Job by job it is kept so long, in hours, and in so many rows at most.
pub(super) const BY_JOB_HOURS: u64 = 90 * DAY_HOURS;
pub(super) const BY_JOB_ROWS: i64 = 1_000_000;
const DAY_HOURS: u64 = 24;

/// The jobs of a day, as one for each queue and user.
const GATHER: &str = "INSERT INTO account
    SELECT hour / 24 * 24, state, queue, uid, user, -1, '', model, spot, price_micro, sum(device_us), list_micro, rate
    FROM account WHERE hour < ?1 AND job > 0 GROUP BY 1, 2, 3, 4, 5, 8, 9, 10, 12, 13
    ON CONFLICT DO UPDATE SET device_us = device_us + excluded.device_us";

/// The text of a line, as SQLite makes it of a row.
const fn sql(by: BillBy) -> &'static str {
    match by {
        BillBy::Queue => "queue",
        BillBy::User => "user",
        BillBy::Job => "CASE job WHEN 0 THEN '' WHEN -1 THEN 'older jobs' ELSE job || ' ' || name END",
        BillBy::Model => "model",
        BillBy::State => "state",
        BillBy::Month => "strftime('%Y-%m', hour * 3600, 'unixepoch')",
        BillBy::Day => "strftime('%Y-%m-%d', hour * 3600, 'unixepoch')",
        BillBy::Hour => "strftime('%Y-%m-%dT%H:00Z', hour * 3600, 'unixepoch')",
        BillBy::Spot => "CASE spot WHEN 0 THEN '' ELSE 'spot' END",
        BillBy::Price => "CASE price_micro WHEN 0 THEN '' ELSE CAST(price_micro AS TEXT) END",
        BillBy::ListPrice => "CASE list_micro WHEN 0 THEN '' ELSE CAST(list_micro AS TEXT) END",
        BillBy::Rate => "rate",
    }
}

impl History {
    /// The account of a time; only what jobs of one user held if `uid` says so.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub fn bill(&self, uid: Option<u32>, ask: &BillAsk) -> Result<BillView, HistoryError> {
        let hour = |at: Timestamp| Value::Integer(integer(at.0 / HOUR_MS));
        let conditions = [
            ("uid = ?", uid.map(|uid| Value::Integer(uid.into()))),
            ("user = ?", ask.user.clone().map(Value::Text)),
            ("queue = ?", ask.queue.clone().map(Value::Text)),
            ("hour >= ?", ask.since.map(hour)),
            ("hour < ?", ask.until.map(hour)),
        ];
        let columns: String = ask.by.iter().map(|by| format!("{}, ", sql(*by))).collect();
        let groups: Vec<String> = (1..=ask.by.len() + 4).map(|column| column.to_string()).collect();
        let groups = groups.join(", ");
        let question =
            format!("SELECT {columns}state, price_micro, list_micro, rate, sum(device_us) FROM account");
        let (sql, mut values) = narrowed(&question, conditions);
        let sql = format!("{sql} GROUP BY {groups} ORDER BY {groups} LIMIT ?");
        values.push(Value::Integer(i64::from(ROWS_MAX) + 1));
        let count = ask.by.len();
        let rows = self.many(&sql, rusqlite::params_from_iter(values), |row| {
            let of = (0..count).map(|column| row.get(column)).collect::<rusqlite::Result<Vec<String>>>()?;
            Ok((of, Charge::read(row, count)?))
        })?;
        let is_cut = rows.len() > ROWS_MAX as usize;
        let mut lines: BTreeMap<Vec<String>, Sum> = BTreeMap::new();
        for (of, charge) in rows {
            // A state that a later version writes is in no bill of this one.
            let Some(state) = State::of_word(&charge.state) else { continue };
            lines.entry(of).or_default().add(state, charge);
        }
        let until = self.charged_until()?.unwrap_or_default();
        let mut lines: Vec<BillLine> = lines
            .into_iter()
            .map(|(of, sum)| sum.line(of))
            // Time that moved to hours at another price may be nothing in sum, and cost something.
            .filter(|line| !line.device_us.is_empty() || line.cost_micro != 0 || line.list_cost_micro != 0)
            .collect();
        if let Some(job) = ask.by.iter().position(|by| *by == BillBy::Job) {
            lines
                .sort_by_cached_key(|line| (line.of[..job].to_vec(), number(&line.of[job]), line.of.clone()));
        }
        Ok(BillView { by: ask.by.clone(), until, lines, is_cut })
    }

    /// Until when the account is charged; `None` if it never was.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub fn charged_until(&self) -> Result<Option<Timestamp>, HistoryError> {
        self.one("SELECT at FROM account_until", [], |row| time(row, 0))
    }
}

/// The charge of one state at one rate.
struct Charge {
    state: String,
    price_micro: i64,
    list_micro: i64,
    rate: String,
    device_us: i64,
}

impl Charge {
    fn read(row: &Row<'_>, column: usize) -> rusqlite::Result<Self> {
        Ok(Self {
            state: row.get(column)?,
            price_micro: row.get(column + 1)?,
            list_micro: row.get(column + 2)?,
            rate: row.get(column + 3)?,
            device_us: row.get(column + 4)?,
        })
    }
}

/// A line of a bill; its costs are divided once, when all is added up.
#[derive(Default)]
struct Sum {
    device_us: BTreeMap<State, i64>,
    cost: i128,
    list_cost: i128,
    rates: BTreeMap<String, i64>,
}

impl Sum {
    fn add(&mut self, state: State, charge: Charge) {
        let of = |micro: i64| i128::from(micro) * i128::from(charge.device_us);
        *self.device_us.entry(state).or_default() += charge.device_us;
        self.cost += of(charge.price_micro);
        self.list_cost += of(charge.list_micro);
        if !charge.rate.is_empty() {
            *self.rates.entry(charge.rate).or_default() += charge.device_us;
        }
    }

    fn line(self, of: Vec<String>) -> BillLine {
        let Self { mut device_us, cost, list_cost, mut rates } = self;
        device_us.retain(|_, us| *us != 0);
        rates.retain(|_, us| *us != 0);
        BillLine { of, device_us, cost_micro: micro(cost), list_cost_micro: micro(list_cost), rates }
    }
}

/// Prices of an hour times microseconds, in the millionths of the prices.
pub(super) fn micro(cost: i128) -> i64 {
    i64::try_from(cost / i128::from(HOUR_MS) / 1_000).unwrap_or(i64::MAX)
}

/// Removes what is too old, and gathers the jobs of days that are old, or whose rows are too many.
pub(super) fn prune(transaction: &Transaction<'_>, now: Timestamp, rows_max: i64) -> rusqlite::Result<()> {
    let before = |hours: u64| integer((now.0 / HOUR_MS).saturating_sub(hours));
    transaction.prepare_cached("DELETE FROM account WHERE hour < ?")?.execute([before(KEPT_HOURS)])?;
    let old = integer(now.0.saturating_sub(KEPT_HOURS * HOUR_MS));
    transaction.prepare_cached("DELETE FROM budgets WHERE begin < ?")?.execute([old])?;
    // Whole days, and none that is not over.
    let (day, today) = (integer(DAY_HOURS), before(0) / integer(DAY_HOURS));
    let mut gathered = before(BY_JOB_HOURS) / day;
    // Rows are counted by their numbers: to count them one by one takes long.
    let rows: i64 = transaction
        .prepare_cached("SELECT ifnull(max(rowid) - min(rowid), 0) FROM account")?
        .query_row([], |row| row.get(0))?;
    if rows > rows_max {
        let sql = "SELECT hour FROM account WHERE job > 0 ORDER BY hour DESC LIMIT 1 OFFSET ?";
        let surplus: Option<i64> =
            transaction.prepare_cached(sql)?.query_row([rows_max], |row| row.get(0)).optional()?;
        gathered = gathered.max(surplus.map_or(0, |hour| hour / day + 1));
    }
    let gathered = gathered.min(today) * day;
    if transaction.prepare_cached(GATHER)?.execute([gathered])? > 0 {
        transaction.prepare_cached("DELETE FROM account WHERE hour < ? AND job > 0")?.execute([gathered])?;
    }
    Ok(())
}

/// `7` of `7 llama`.
fn number(job: &str) -> Option<u64> {
    job.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_whose_time_is_nothing_in_sum_still_has_its_cost() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::open(&dir.path().join("history.db")).unwrap();
        // An hour of work moved from a cheap hour to a dear one.
        for (hour, price, us) in [(1, 1_000_000, -3_600_000_000_i64), (2, 3_000_000, 3_600_000_000)] {
            let sql = "INSERT INTO account
                VALUES (?, 'running', 'default', 7, 'ada', 1, 'a', 'H100', 0, ?2, ?, ?2, '')";
            history.connection.execute(sql, [hour, price, us]).unwrap();
        }
        let ask = BillAsk { by: vec![BillBy::User], ..BillAsk::default() };
        let lines = history.bill(None, &ask).unwrap().lines;
        assert_eq!(
            lines.iter().map(|line| (line.total_us(), line.cost_micro)).collect::<Vec<_>>(),
            [(0, 2_000_000)]
        );
    }
}
