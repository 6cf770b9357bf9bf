//! What people ask about past jobs, in SQLite: `history.db` beside the journal.
//!
//! A projection: the journal is the truth, no decision reads this, and a file that is damaged is set aside
//! and begun anew. Anyone may read it with their own tools, so columns are plain: times are Unix
//! milliseconds, device sets read `0-3,6`, words are those the commands print. One thread writes; every
//! [`History::record`] is one transaction, so a crash leaves whole steps (perhaps not the last ones: they are
//! synced when the write-ahead log is, and the daemon brings them up to date when it starts).

mod advise;
mod bill;
mod budgets;
mod prune;
mod query;
mod rows;
mod schema;
mod windows;

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

pub use advise::{Amounts, Had, UsedRow};
pub(crate) use advise::{Basis, Group, RUNS_MAX};
pub use budgets::BudgetRow;
pub use prune::Retention;
pub use query::Filter;
pub use rows::{AccountRows, AttemptRow, AuditRow, EventRow, JobRow, MemberRow, Row};
pub(crate) use windows::WINDOWS_KEPT;
pub use windows::WindowRow;

/// Most rows that one question returns.
pub const ROWS_MAX: u32 = 100_000;

/// How long to wait for somebody else's transaction.
const BUSY: Duration = Duration::from_secs(5);
/// The write-ahead log is cut back to this after a checkpoint.
const WAL_BYTES: i64 = 16 << 20;

/// Why the history cannot be used. No job is affected by any of these.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    #[error("the history {} is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error(
        "the history {} has version {version}, and this phalanx knows versions up to {known}; \
         use the phalanx that wrote it, or set the file aside", path.display()
    )]
    Newer { path: PathBuf, version: i64, known: i64 },
    #[error("{} is a database of another program; move it away", path.display())]
    Foreign { path: PathBuf },
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot {doing} the history {}: {source}", path.display())]
    Sql { doing: &'static str, path: PathBuf, source: rusqlite::Error },
}

/// An open history.
#[derive(Debug)]
pub struct History {
    connection: Connection,
    path: PathBuf,
}

impl History {
    /// Opens the history, creates it if need be, and brings an older one up to date. Only its owner can read
    /// the file: job files are in it.
    ///
    /// # Errors
    /// When the file cannot be written, is damaged, is newer than this program, or is not a history.
    pub fn open(path: &Path) -> Result<Self, HistoryError> {
        create_private(path).map_err(|source| HistoryError::Io {
            doing: "open the history",
            path: path.to_owned(),
            source,
        })?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(error(path, "open"))?;
        let mut history = Self { connection, path: path.to_owned() };
        history.prepare().map_err(error(path, "open"))?;
        schema::check(&history.connection, path)?;
        schema::migrate(&mut history.connection, schema::MIGRATIONS)
            .map_err(error(path, "bring up to date"))?;
        Ok(history)
    }

    /// [`Self::open`], but a damaged file is set aside and an empty one takes its place; then the message to
    /// show comes with it.
    ///
    /// # Errors
    /// As [`Self::open`], but for damage.
    pub fn open_or_begin_anew(path: &Path) -> Result<(Self, Option<String>), HistoryError> {
        match Self::open(path) {
            Err(damaged @ HistoryError::Damaged { .. }) => {
                let aside = set_aside(path)?;
                let message = format!("{damaged}; it was moved to {}", aside.display());
                Ok((Self::open(path)?, Some(message)))
            }
            opened => Ok((opened?, None)),
        }
    }

    fn prepare(&self) -> rusqlite::Result<()> {
        let connection = &self.connection;
        connection.busy_timeout(BUSY)?;
        // Readers never wait for the writer; in this mode NORMAL loses no consistency, only the newest rows.
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "journal_size_limit", WAL_BYTES)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(())
    }
}

/// Moves a history and its companions away, to the first free `history.db.damaged-N`, and returns that name.
///
/// # Errors
/// When a file cannot be renamed.
pub fn set_aside(path: &Path) -> Result<PathBuf, HistoryError> {
    let with = |suffix: &str| PathBuf::from(format!("{}{suffix}", path.display()));
    // Each start makes one at most; past the last number the oldest name is used again.
    let free = (1..1000).map(|n| format!(".damaged-{n}")).find(|s| !with(s).exists());
    let aside = free.unwrap_or_else(|| ".damaged-1".to_owned());
    for companion in ["-wal", "-shm", ""] {
        let (from, to) = (with(companion), with(&format!("{aside}{companion}")));
        match fs::rename(&from, to) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(HistoryError::Io { doing: "set aside", path: from, source: e });
            }
            _ => {}
        }
    }
    Ok(with(&aside))
}

/// SQLite gives the companions of the file the same permissions.
fn create_private(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Tells damage from everything else that SQLite reports.
fn error(path: &Path, doing: &'static str) -> impl FnOnce(rusqlite::Error) -> HistoryError {
    move |source| {
        let path = path.to_owned();
        let code = source.sqlite_error_code();
        let value = matches!(
            source,
            rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::InvalidColumnType(..)
        );
        if value || matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)) {
            return HistoryError::Damaged { path, why: source.to_string() };
        }
        HistoryError::Sql { doing, path, source }
    }
}

#[cfg(test)]
mod tests;
