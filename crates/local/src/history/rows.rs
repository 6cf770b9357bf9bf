//! The rows, and how they are written.

use phalanx_model::{JobId, Timestamp};
use rusqlite::{Connection, TransactionBehavior, named_params};

use phalanx_account::{Payer, Priced};

use super::advise::{UsedRow, write_used};
use super::budgets::{BudgetRow, write_budget};
use super::windows::{WindowRow, write_window};
use super::{History, HistoryError, error};
use phalanx_api::protocol::AuditView;

/// One job: `sacct`'s line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    pub id: JobId,
    pub name: String,
    /// Idempotency key of the submission.
    pub key: Option<String>,
    pub owner_uid: u32,
    pub owner: String,
    pub queue: String,
    pub priority: i32,
    pub submitted_at: Timestamp,
    /// First start.
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// The word people read: `pending`, `running`, `succeeded`, …
    pub state: String,
    /// [`phalanx_model::Ending::word`], once finished.
    pub ending: Option<String>,
    pub exit_code: Option<i32>,
    pub detail: String,
    /// Node names, separated by commas.
    pub nodes: String,
    /// Number of devices of all members.
    pub devices: u32,
    pub attempts: u32,
    pub restarts: u32,
    /// What was submitted, without secrets.
    pub spec_json: String,
}

/// One start of one gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRow {
    pub job: JobId,
    pub gang: u32,
    /// Counts from 1.
    pub attempt: u32,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// Why it failed, where it did.
    pub class: Option<String>,
    pub detail: String,
}

/// One rank of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRow {
    pub job: JobId,
    pub gang: u32,
    pub attempt: u32,
    pub rank: u32,
    pub node: String,
    /// As `0-3,6`.
    pub devices: String,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub class: Option<String>,
    pub detail: String,
}

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    pub job: JobId,
    pub at: Timestamp,
    pub what: String,
    pub detail: String,
    /// Of what was decided about the job: all of it, as JSON.
    pub record: Option<String>,
}

/// An act of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    pub view: AuditView,
    /// The node that it was about, if it was about one.
    pub node: Option<String>,
}

/// What was charged since the rows before, and until when all is charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRows {
    pub entries: Vec<Priced>,
    pub until: Timestamp,
}

/// Something to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    Account(AccountRows),
    Audit(AuditRow),
    Job(JobRow),
    Attempt(AttemptRow),
    Member(MemberRow),
    Event(EventRow),
    Used(UsedRow),
    Budget(BudgetRow),
    Window(WindowRow),
}

/// SQLite's integers end at 2^63 − 1; so does time, 290 million years from now.
pub(super) fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn time(at: Option<Timestamp>) -> Option<i64> {
    at.map(|at| integer(at.0))
}

impl History {
    /// Records all of these, or on an error none. Jobs, attempts and members replace what is known of them;
    /// events are added.
    ///
    /// # Errors
    /// When the file cannot be written (a full disk, say), or is damaged.
    pub fn record(&mut self, rows: &[Row]) -> Result<(), HistoryError> {
        self.record_all(rows).map_err(error(&self.path, "write to"))
    }

    /// Records one job.
    ///
    /// # Errors
    /// As [`Self::record`].
    pub fn record_job(&mut self, row: &JobRow) -> Result<(), HistoryError> {
        write_job(&self.connection, row).map_err(error(&self.path, "write to"))
    }

    fn record_all(&mut self, rows: &[Row]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for row in rows {
            match row {
                Row::Job(row) => write_job(&transaction, row)?,
                Row::Attempt(row) => write_attempt(&transaction, row)?,
                Row::Member(row) => write_member(&transaction, row)?,
                Row::Event(row) => write_event(&transaction, row)?,
                Row::Audit(row) => write_audit(&transaction, row)?,
                Row::Account(rows) => write_account(&transaction, rows)?,
                Row::Used(row) => write_used(&transaction, row)?,
                Row::Budget(row) => write_budget(&transaction, row)?,
                Row::Window(row) => write_window(&transaction, row)?,
            }
        }
        transaction.commit()
    }
}

fn write_job(connection: &Connection, row: &JobRow) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT OR REPLACE INTO jobs VALUES (:id, :name, :key, :owner_uid, :owner, :queue, :priority,
            :submitted_at, :started_at, :finished_at, :state, :ending, :exit_code, :detail, :nodes, :devices,
            :attempts, :restarts, :spec_json)",
    )?;
    statement.execute(named_params! {
        ":id": integer(row.id.0), ":name": row.name, ":key": row.key,
        ":owner_uid": row.owner_uid, ":owner": row.owner, ":queue": row.queue, ":priority": row.priority,
        ":submitted_at": integer(row.submitted_at.0),
        ":started_at": time(row.started_at), ":finished_at": time(row.finished_at),
        ":state": row.state, ":ending": row.ending, ":exit_code": row.exit_code, ":detail": row.detail,
        ":nodes": row.nodes, ":devices": row.devices,
        ":attempts": row.attempts, ":restarts": row.restarts, ":spec_json": row.spec_json,
    })?;
    Ok(())
}

fn write_attempt(connection: &Connection, row: &AttemptRow) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO attempts VALUES (:job, :gang, :attempt, :started_at, :ended_at, :class, :detail)
            ON CONFLICT DO UPDATE SET started_at = coalesce(started_at, excluded.started_at),
            ended_at = excluded.ended_at, class = excluded.class, detail = excluded.detail",
    )?;
    statement.execute(named_params! {
        ":job": integer(row.job.0), ":gang": row.gang, ":attempt": row.attempt,
        ":started_at": time(row.started_at), ":ended_at": time(row.ended_at),
        ":class": row.class, ":detail": row.detail,
    })?;
    Ok(())
}

fn write_member(connection: &Connection, row: &MemberRow) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO members VALUES (:job, :gang, :attempt, :rank, :node, :devices, :started_at,
            :ended_at, :code, :signal, :class, :detail)
            ON CONFLICT DO UPDATE SET node = excluded.node, devices = excluded.devices,
            started_at = coalesce(started_at, excluded.started_at),
            ended_at = coalesce(ended_at, excluded.ended_at),
            code = excluded.code, signal = excluded.signal, class = excluded.class, detail = excluded.detail",
    )?;
    statement.execute(named_params! {
        ":job": integer(row.job.0), ":gang": row.gang, ":attempt": row.attempt, ":rank": row.rank,
        ":node": row.node, ":devices": row.devices,
        ":started_at": time(row.started_at), ":ended_at": time(row.ended_at),
        ":code": row.code, ":signal": row.signal, ":class": row.class, ":detail": row.detail,
    })?;
    Ok(())
}

fn write_event(connection: &Connection, row: &EventRow) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO events (job, at, what, detail, record) VALUES (:job, :at, :what, :detail, :record)",
    )?;
    statement.execute(named_params! {
        ":job": integer(row.job.0), ":at": integer(row.at.0), ":what": row.what, ":detail": row.detail,
        ":record": row.record,
    })?;
    Ok(())
}

fn write_audit(connection: &Connection, AuditRow { view, node }: &AuditRow) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO audit (at, uid, user, verb, target, node, detail, refused, login)
            VALUES (:at, :uid, :user, :verb, :target, :node, :detail, :refused, :login)",
    )?;
    statement.execute(named_params! {
        ":at": integer(view.at.0), ":uid": view.uid, ":user": view.user, ":verb": view.verb,
        ":target": view.target, ":node": node, ":detail": view.detail, ":refused": view.refused,
        ":login": view.login,
    })?;
    Ok(())
}

/// Amounts are added to those of the same hour.
fn write_account(connection: &Connection, rows: &AccountRows) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO account VALUES (:hour, :state, :queue, :uid, :user, :job, :name, :model, :spot,
            :price_micro, :device_us, :list_micro, :rate)
            ON CONFLICT DO UPDATE SET device_us = device_us + excluded.device_us",
    )?;
    for Priced { entry, rate } in &rows.entries {
        let key = &entry.key;
        let payer: Option<&Payer> = key.payer.as_deref();
        statement.execute(named_params! {
            ":hour": integer(entry.hour), ":state": key.state.word(),
            ":queue": payer.map_or("", |payer| payer.queue.as_str()),
            ":uid": payer.map(|payer| payer.uid),
            ":user": payer.map_or("", |payer| payer.user.as_str()),
            ":job": integer(payer.map_or(0, |payer| payer.job.0)),
            ":name": payer.map_or("", |payer| payer.name.as_str()),
            ":model": key.class.model, ":spot": key.class.is_spot,
            ":price_micro": integer(rate.price_micro), ":device_us": entry.device_us,
            ":list_micro": integer(rate.list_micro), ":rate": rate.rule,
        })?;
    }
    let mut until = connection.prepare_cached("INSERT OR REPLACE INTO account_until VALUES (1, ?)")?;
    until.execute([integer(rows.until.0)])?;
    Ok(())
}
