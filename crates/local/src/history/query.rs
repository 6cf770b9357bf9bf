//! The questions.

use std::collections::BTreeSet;

use phalanx_account::{HOUR_MS, State};
use phalanx_model::{FailureClass, JobId, Timestamp};
use rusqlite::types::Value;
use rusqlite::{OptionalExtension, Params, Row as Found, params};

use super::rows::integer;
use super::{AttemptRow, AuditRow, EventRow, History, HistoryError, JobRow, MemberRow, ROWS_MAX, error};
use phalanx_api::protocol::{AuditFilter, AuditView};

/// Which jobs; what is not set does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    pub owner_uid: Option<u32>,
    pub owner: Option<String>,
    pub queue: Option<String>,
    /// One of these words in [`JobRow::state`]; none: any.
    pub states: Vec<String>,
    pub name: Option<String>,
    /// A name, in which `*` stands for any text and `?` for one letter.
    pub like: Option<String>,
    /// A text that is in its number, name, owner or queue, in small or capital letters.
    pub text: Option<String>,
    /// Submitted at this time or later.
    pub since: Option<Timestamp>,
    /// Submitted before this time: for the next page.
    pub before: Option<Timestamp>,
    /// With a lower number than this: for the next page of a list by number.
    pub below: Option<JobId>,
    /// Only those that finished.
    pub finished: bool,
    /// At most [`ROWS_MAX`], which is also the default.
    pub limit: u32,
}

/// No column has a line feed, so that no text is found across two of them.
const OF_TEXT: &str = "instr(lower(id || char(10) || name || char(10) || owner || char(10) || queue), ?) > 0";

impl Default for Filter {
    fn default() -> Self {
        Self {
            owner_uid: None,
            owner: None,
            queue: None,
            states: Vec::new(),
            name: None,
            like: None,
            text: None,
            since: None,
            before: None,
            below: None,
            finished: false,
            limit: ROWS_MAX,
        }
    }
}

impl Filter {
    /// The question in SQL, newest first. Values are parameters, never part of the text.
    pub(super) fn sql(&self) -> (String, Vec<Value>) {
        let time = |at: Timestamp| Value::Integer(integer(at.0));
        let conditions = [
            ("owner_uid = ?", self.owner_uid.map(|uid| Value::Integer(uid.into()))),
            ("owner = ?", self.owner.clone().map(Value::Text)),
            ("queue = ?", self.queue.clone().map(Value::Text)),
            ("name = ?", self.name.clone().map(Value::Text)),
            // A bracket means nothing here, and much to SQLite.
            ("name GLOB ?", self.like.as_ref().map(|like| Value::Text(like.replace('[', "[[]")))),
            (OF_TEXT, self.text.as_ref().map(|text| Value::Text(text.to_ascii_lowercase()))),
            ("submitted_at >= ?", self.since.map(time)),
            ("submitted_at < ?", self.before.map(time)),
            ("id < ?", self.below.map(|id| Value::Integer(integer(id.0)))),
        ];
        let (mut sql, mut values) = narrowed("SELECT * FROM jobs", conditions);
        match &*self.states {
            [] => {}
            [_] => sql += " AND state = ?",
            // The plus keeps SQLite to the order: several states are no range of their index.
            states => sql = format!("{sql} AND +state IN ({})", vec!["?"; states.len()].join(", ")),
        }
        values.extend(self.states.iter().cloned().map(Value::Text));
        if self.finished {
            // The plus keeps SQLite from preferring this index to the order.
            sql += " AND +finished_at IS NOT NULL";
        }
        // The next page begins where this one ends.
        let by = if self.below.is_some() { "id DESC" } else { "submitted_at DESC, id DESC" };
        sql = format!("{sql} ORDER BY {by} LIMIT ?");
        values.push(Value::Integer(self.limit.min(ROWS_MAX).into()));
        (sql, values)
    }
}

/// A question about the rows for which all conditions hold that have a value, and these values in their order.
pub(super) fn narrowed<const N: usize>(
    question: &str,
    conditions: [(&str, Option<Value>); N],
) -> (String, Vec<Value>) {
    let mut sql = format!("{question} WHERE true");
    let mut values = Vec::new();
    for (condition, value) in conditions {
        if let Some(value) = value {
            sql = sql + " AND " + condition;
            values.push(value);
        }
    }
    (sql, values)
}

impl History {
    /// One job, if it is known.
    ///
    /// # Errors
    /// When the history cannot be read, as with every question here.
    pub fn job(&self, id: JobId) -> Result<Option<JobRow>, HistoryError> {
        self.one("SELECT * FROM jobs WHERE id = ?", [integer(id.0)], job)
    }

    /// The newest job that this owner submitted with this key.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub fn job_by_key(&self, owner_uid: u32, key: &str) -> Result<Option<JobRow>, HistoryError> {
        let sql = "SELECT * FROM jobs WHERE owner_uid = ? AND key = ? ORDER BY id DESC LIMIT 1";
        self.one(sql, params![owner_uid, key], job)
    }

    /// The highest number that a job here has.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub fn newest_id(&self) -> Result<Option<JobId>, HistoryError> {
        Ok(self.one("SELECT max(id) FROM jobs", [], |row| optional(row, 0))?.flatten().map(|t| JobId(t.0)))
    }

    /// The numbers of all jobs, without a limit: folders of other jobs are removed in time.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub fn ids(&self) -> Result<BTreeSet<JobId>, HistoryError> {
        let ids = self.many("SELECT id FROM jobs", [], |row| Ok(JobId(unsigned(0, row.get(0)?)?)))?;
        Ok(ids.into_iter().collect())
    }

    /// Jobs, newest submission first.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub fn jobs(&self, filter: &Filter) -> Result<Vec<JobRow>, HistoryError> {
        let (sql, values) = filter.sql();
        self.many(&sql, rusqlite::params_from_iter(values), job)
    }

    /// A job's attempts, by gang and number.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub fn attempts(&self, job: JobId) -> Result<Vec<AttemptRow>, HistoryError> {
        let sql = "SELECT * FROM attempts WHERE job = ? ORDER BY gang, attempt LIMIT ?";
        self.many(sql, params![integer(job.0), ROWS_MAX], attempt)
    }

    /// A job's members, by gang, attempt and rank.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub fn members(&self, job: JobId) -> Result<Vec<MemberRow>, HistoryError> {
        let sql = "SELECT * FROM members WHERE job = ? ORDER BY gang, attempt, rank LIMIT ?";
        self.many(sql, params![integer(job.0), ROWS_MAX], member)
    }

    /// What happened to a job, in order.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub fn events(&self, job: JobId) -> Result<Vec<EventRow>, HistoryError> {
        let sql = "SELECT * FROM events WHERE job = ? ORDER BY at, id LIMIT ?";
        self.many(sql, params![integer(job.0), ROWS_MAX], event)
    }

    /// What happened to all jobs, the newest first, each with the job's name where it is known.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub fn newest_events(&self, limit: u32) -> Result<Vec<(EventRow, Option<String>)>, HistoryError> {
        let sql = "SELECT e.*, j.name FROM events e LEFT JOIN jobs j ON j.id = e.job
            ORDER BY e.at DESC, e.id DESC LIMIT ?";
        self.many(sql, [limit.min(ROWS_MAX)], |row| Ok((event(row)?, row.get(6)?)))
    }

    /// Acts of users, the newest first; of one user if `uid` says so.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub fn audit(
        &self,
        uid: Option<u32>,
        filter: &AuditFilter,
        limit: u32,
    ) -> Result<Vec<AuditRow>, HistoryError> {
        let AuditFilter { user, node, since } = filter;
        let conditions = [
            ("uid = ?", uid.map(|uid| Value::Integer(uid.into()))),
            ("user = ?", user.clone().map(Value::Text)),
            ("node = ?", node.as_ref().map(|node| Value::Text(node.to_string()))),
            ("at >= ?", since.map(|at| Value::Integer(integer(at.0)))),
        ];
        let (mut sql, mut values) = narrowed("SELECT * FROM audit", conditions);
        sql += " ORDER BY id DESC LIMIT ?";
        values.push(Value::Integer(limit.min(ROWS_MAX).into()));
        self.many(&sql, rusqlite::params_from_iter(values), audit)
    }

    /// The last act that closed or opened each node.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub fn closings(&self) -> Result<Vec<AuditRow>, HistoryError> {
        let sql = "SELECT * FROM audit WHERE id IN (SELECT max(id) FROM audit WHERE node IS NOT NULL
            AND refused IS NULL GROUP BY node) ORDER BY id LIMIT ?";
        self.many(sql, [ROWS_MAX], audit)
    }

    /// How often gangs lost a node or a GPU since then, and the time that their ranks had devices, in milliseconds of one
    /// device. Both count from when losses were recorded first.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub(crate) fn losses(&self, since: Timestamp) -> Result<(u64, u64), HistoryError> {
        let begun = self.one("SELECT at FROM losses_since", [], |row| unsigned(0, row.get(0)?))?;
        let since = since.0.max(begun.unwrap_or(0));
        let losses = "SELECT count(*) FROM events WHERE at >= ?1 AND coalesce(
            record ->> '$.gang_stopping.cause.failure.class',
            record ->> '$.gang_stopping.cause.displaced.class') = ?2";
        let class = FailureClass::Node.word();
        let losses = self.one(losses, params![integer(since), class], |row| unsigned(0, row.get(0)?))?;
        let states = State::ALL.into_iter().filter(|state| state.is_held() && *state != State::Starting);
        let states: Vec<String> = states.map(|state| format!("'{}'", state.word())).collect();
        let held = format!(
            "SELECT coalesce(sum(device_us), 0) / 1000 FROM account WHERE hour >= ? AND state IN ({})",
            states.join(", ")
        );
        let held = self.one(&held, [integer(since / HOUR_MS)], |row| unsigned(0, row.get(0)?))?;
        Ok((losses.unwrap_or(0), held.unwrap_or(0)))
    }

    pub(super) fn one<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Found<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, HistoryError> {
        let statement = self.connection.prepare_cached(sql);
        let found = statement.and_then(|mut s| s.query_row(values, read).optional());
        found.map_err(error(&self.path, "read"))
    }

    pub(super) fn many<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Found<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, HistoryError> {
        let statement = self.connection.prepare_cached(sql);
        let found = statement.and_then(|mut s| s.query_map(values, read)?.collect());
        found.map_err(error(&self.path, "read"))
    }
}

pub(super) fn unsigned(column: usize, value: i64) -> rusqlite::Result<u64> {
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}

pub(super) fn time(row: &Found<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    unsigned(column, row.get(column)?).map(Timestamp)
}

pub(super) fn optional(row: &Found<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    let value: Option<i64> = row.get(column)?;
    value.map(|value| unsigned(column, value).map(Timestamp)).transpose()
}

/// Columns in the order of the table, here and below.
fn job(row: &Found<'_>) -> rusqlite::Result<JobRow> {
    Ok(JobRow {
        id: JobId(unsigned(0, row.get(0)?)?),
        name: row.get(1)?,
        key: row.get(2)?,
        owner_uid: row.get(3)?,
        owner: row.get(4)?,
        queue: row.get(5)?,
        priority: row.get(6)?,
        submitted_at: time(row, 7)?,
        started_at: optional(row, 8)?,
        finished_at: optional(row, 9)?,
        state: row.get(10)?,
        ending: row.get(11)?,
        exit_code: row.get(12)?,
        detail: row.get(13)?,
        nodes: row.get(14)?,
        devices: row.get(15)?,
        attempts: row.get(16)?,
        restarts: row.get(17)?,
        spec_json: row.get(18)?,
    })
}

fn audit(row: &Found<'_>) -> rusqlite::Result<AuditRow> {
    Ok(AuditRow {
        view: AuditView {
            at: time(row, 1)?,
            uid: row.get(2)?,
            user: row.get(3)?,
            login: row.get(9)?,
            verb: row.get(4)?,
            target: row.get(5)?,
            detail: row.get(7)?,
            refused: row.get(8)?,
        },
        node: row.get(6)?,
    })
}

fn attempt(row: &Found<'_>) -> rusqlite::Result<AttemptRow> {
    Ok(AttemptRow {
        job: JobId(unsigned(0, row.get(0)?)?),
        gang: row.get(1)?,
        attempt: row.get(2)?,
        started_at: optional(row, 3)?,
        ended_at: optional(row, 4)?,
        class: row.get(5)?,
        detail: row.get(6)?,
    })
}

fn member(row: &Found<'_>) -> rusqlite::Result<MemberRow> {
    Ok(MemberRow {
        job: JobId(unsigned(0, row.get(0)?)?),
        gang: row.get(1)?,
        attempt: row.get(2)?,
        rank: row.get(3)?,
        node: row.get(4)?,
        devices: row.get(5)?,
        started_at: optional(row, 6)?,
        ended_at: optional(row, 7)?,
        code: row.get(8)?,
        signal: row.get(9)?,
        class: row.get(10)?,
        detail: row.get(11)?,
    })
}

fn event(row: &Found<'_>) -> rusqlite::Result<EventRow> {
    Ok(EventRow {
        job: JobId(unsigned(1, row.get(1)?)?),
        at: time(row, 2)?,
        what: row.get(3)?,
        detail: row.get(4)?,
        record: row.get(5)?,
    })
}
