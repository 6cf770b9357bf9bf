//! What leaves the history, and when.

use std::collections::BTreeSet;

use phalanx_model::{JobId, Timestamp};
use rusqlite::{Params, Transaction, TransactionBehavior, params};

use super::bill::{self, BY_JOB_ROWS};
use super::rows::integer;
use super::{History, HistoryError, ROWS_MAX, error};

/// Finished jobs stay while they are young and among the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How long after its end a job stays.
    pub keep_ms: u64,
    /// How many finished jobs stay.
    pub keep_jobs: u32,
}

/// Finished before the first parameter.
pub(super) const OLD: &str = "SELECT id FROM jobs WHERE finished_at < ? ORDER BY finished_at LIMIT ?";
/// Finished jobs behind the newest ones.
pub(super) const SURPLUS: &str = "SELECT id FROM jobs WHERE finished_at IS NOT NULL
    ORDER BY finished_at DESC, id DESC LIMIT ?2 OFFSET ?1";

/// Acts behind the newest of each user. What was refused is counted apart, so that it takes no room from what was done.
pub(super) const OLD_ACTS: &str =
    "DELETE FROM audit WHERE id IN (SELECT id FROM (SELECT id, row_number() OVER
    (PARTITION BY uid, refused IS NULL ORDER BY id DESC) AS number FROM audit) WHERE number > ?)";
/// Acts of each user that are kept, and as many that were refused.
const ACTS_KEPT: u32 = 10_000;

impl History {
    /// Removes finished jobs that may go, with all that is known of them, and the oldest acts of each user, and returns the jobs, so that their
    /// files can go too. What does not fit into one transaction goes the next time.
    ///
    /// # Errors
    /// When the history cannot be written; nothing is removed then.
    pub fn prune(&mut self, retention: Retention, now: Timestamp) -> Result<Vec<JobId>, HistoryError> {
        self.remove(retention, now).map_err(error(&self.path, "prune"))
    }

    fn remove(&mut self, retention: Retention, now: Timestamp) -> rusqlite::Result<Vec<JobId>> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let before = integer(now.0.saturating_sub(retention.keep_ms));
        let mut gone = BTreeSet::new();
        gone.extend(ids(&transaction, OLD, params![before, ROWS_MAX])?);
        gone.extend(ids(&transaction, SURPLUS, params![retention.keep_jobs, ROWS_MAX])?);
        for id in &gone {
            for sql in [
                "DELETE FROM jobs WHERE id = ?",
                "DELETE FROM attempts WHERE job = ?",
                "DELETE FROM members WHERE job = ?",
                "DELETE FROM events WHERE job = ?",
                "DELETE FROM used WHERE job = ?",
            ] {
                transaction.prepare_cached(sql)?.execute([id])?;
            }
        }
        transaction.prepare_cached(OLD_ACTS)?.execute([ACTS_KEPT])?;
        bill::prune(&transaction, now, BY_JOB_ROWS)?;
        transaction.commit()?;
        // Ids are written from JobIds, so none is negative.
        Ok(gone.into_iter().filter_map(|id| u64::try_from(id).ok()).map(JobId).collect())
    }
}

fn ids(transaction: &Transaction<'_>, sql: &str, values: impl Params) -> rusqlite::Result<Vec<i64>> {
    let mut statement = transaction.prepare_cached(sql)?;
    let found = statement.query_map(values, |row| row.get(0))?;
    found.collect()
}
