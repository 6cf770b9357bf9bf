//! Tables, and how older ones become today's.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::{HistoryError, error};

/// `PHLX`: tells a history from other databases.
const APPLICATION: i64 = 0x5048_4c58;

/// The n-th of these (from 1) makes version n of version n − 1. Released ones are never changed.
pub(super) const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE jobs (
        id           INTEGER PRIMARY KEY,
        name         TEXT NOT NULL,
        key          TEXT,
        owner_uid    INTEGER NOT NULL,
        owner        TEXT NOT NULL,
        queue        TEXT NOT NULL,
        priority     INTEGER NOT NULL,
        submitted_at INTEGER NOT NULL,
        started_at   INTEGER,
        finished_at  INTEGER,
        state        TEXT NOT NULL,
        ending       TEXT,
        exit_code    INTEGER,
        detail       TEXT NOT NULL,
        nodes        TEXT NOT NULL,
        devices      INTEGER NOT NULL,
        attempts     INTEGER NOT NULL,
        restarts     INTEGER NOT NULL,
        spec_json    TEXT NOT NULL
    ) STRICT;
    CREATE INDEX jobs_by_time   ON jobs (submitted_at);
    CREATE INDEX jobs_by_owner  ON jobs (owner_uid, submitted_at);
    CREATE INDEX jobs_by_state  ON jobs (state, submitted_at);
    CREATE INDEX jobs_by_name   ON jobs (name, submitted_at);
    CREATE INDEX jobs_by_key    ON jobs (owner_uid, key) WHERE key IS NOT NULL;
    CREATE INDEX jobs_by_finish ON jobs (finished_at) WHERE finished_at IS NOT NULL;

    CREATE TABLE attempts (
        job        INTEGER NOT NULL,
        gang       INTEGER NOT NULL,
        attempt    INTEGER NOT NULL,
        started_at INTEGER,
        ended_at   INTEGER,
        class      TEXT,
        detail     TEXT NOT NULL,
        PRIMARY KEY (job, gang, attempt)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE members (
        job        INTEGER NOT NULL,
        gang       INTEGER NOT NULL,
        attempt    INTEGER NOT NULL,
        rank       INTEGER NOT NULL,
        node       TEXT NOT NULL,
        devices    TEXT NOT NULL,
        started_at INTEGER,
        ended_at   INTEGER,
        code       INTEGER,
        signal     INTEGER,
        class      TEXT,
        detail     TEXT NOT NULL,
        PRIMARY KEY (job, gang, attempt, rank)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE events (
        id     INTEGER PRIMARY KEY,
        job    INTEGER NOT NULL,
        at     INTEGER NOT NULL,
        what   TEXT NOT NULL,
        detail TEXT NOT NULL
    ) STRICT;
    CREATE INDEX events_by_job ON events (job, at);
",
    "
    ALTER TABLE events ADD COLUMN record TEXT;
    CREATE INDEX events_by_time ON events (at);
",
    "
    CREATE TABLE audit (
        id      INTEGER PRIMARY KEY,
        at      INTEGER NOT NULL,
        uid     INTEGER NOT NULL,
        user    TEXT NOT NULL,
        verb    TEXT NOT NULL,
        target  TEXT NOT NULL,
        node    TEXT,
        detail  TEXT NOT NULL,
        refused TEXT
    ) STRICT;
    CREATE INDEX audit_by_user ON audit (uid, id);
    CREATE INDEX audit_by_node ON audit (node, id) WHERE node IS NOT NULL;
",
    "
    CREATE TABLE account (
        hour        INTEGER NOT NULL,
        state       TEXT NOT NULL,
        queue       TEXT NOT NULL,
        uid         INTEGER,
        user        TEXT NOT NULL,
        job         INTEGER NOT NULL,
        name        TEXT NOT NULL,
        model       TEXT NOT NULL,
        spot        INTEGER NOT NULL,
        price_micro INTEGER NOT NULL,
        device_us   INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX account_by_all ON account (hour, job, state, queue, user, name, model, spot, price_micro);
    CREATE TABLE account_until (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        at  INTEGER NOT NULL
    ) STRICT;
",
    "
    CREATE TABLE losses_since (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        at  INTEGER NOT NULL
    ) STRICT;
    INSERT INTO losses_since VALUES (1, CAST(strftime('%s', 'now') AS INTEGER) * 1000);
",
    "
    CREATE TABLE used (
        job            INTEGER NOT NULL,
        gang           INTEGER NOT NULL,
        attempt        INTEGER NOT NULL,
        ranks          INTEGER NOT NULL,
        nodes          INTEGER NOT NULL,
        devices        INTEGER NOT NULL,
        is_whole       INTEGER NOT NULL,
        model          TEXT NOT NULL,
        device_bytes   INTEGER NOT NULL,
        samples        INTEGER NOT NULL,
        sampled_ms     INTEGER NOT NULL,
        busy_ms        INTEGER NOT NULL,
        busiest_ms     INTEGER NOT NULL,
        used_mask      INTEGER NOT NULL,
        peak_bytes     INTEGER,
        steps          INTEGER NOT NULL,
        steps_ms       INTEGER NOT NULL,
        steps_of       INTEGER,
        takes_ms       INTEGER,
        saves_every_ms INTEGER,
        PRIMARY KEY (job, gang, attempt)
    ) STRICT, WITHOUT ROWID;
",
    "
    ALTER TABLE account ADD COLUMN list_micro INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE account ADD COLUMN rate TEXT NOT NULL DEFAULT '';
    UPDATE account SET list_micro = price_micro;
    DROP INDEX account_by_all;
    CREATE UNIQUE INDEX account_by_all
        ON account (hour, job, state, queue, user, name, model, spot, price_micro, list_micro, rate);
    CREATE INDEX account_by_cost ON account (hour, queue, price_micro, device_us) WHERE price_micro > 0;
    CREATE INDEX account_by_user ON account (uid, hour);
    CREATE INDEX jobs_unfinished ON jobs (owner_uid) WHERE finished_at IS NULL;
    CREATE TABLE budgets (
        queue TEXT NOT NULL,
        begin INTEGER NOT NULL,
        level TEXT NOT NULL,
        PRIMARY KEY (queue, begin, level)
    ) STRICT, WITHOUT ROWID;
",
    "
    ALTER TABLE audit ADD COLUMN login TEXT;
",
    "
    CREATE TABLE windows (
        id        INTEGER PRIMARY KEY,
        begins_at INTEGER NOT NULL,
        ends_at   INTEGER,
        nodes     TEXT NOT NULL,
        user      TEXT NOT NULL,
        at        INTEGER NOT NULL,
        reason    TEXT
    ) STRICT;
",
];

/// Refuses what is damaged, newer, or no history at all.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<(), HistoryError> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let read = || Ok((number("application_id")?, number("user_version")?, number("schema_version")?));
    let (application, version, changes) = read().map_err(error(path, "read"))?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    // An empty file is a history of version 0.
    if application != APPLICATION && (application, version, changes) != (0, 0, 0) {
        return Err(HistoryError::Foreign { path: path.to_owned() });
    }
    if version > known {
        return Err(HistoryError::Newer { path: path.to_owned(), version, known });
    }
    let verdict: String =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(error(path, "check"))?;
    if verdict != "ok" {
        return Err(HistoryError::Damaged { path: path.to_owned(), why: verdict });
    }
    Ok(())
}

/// Applies what is missing, each migration whole or not at all.
pub(super) fn migrate(connection: &mut Connection, migrations: &[&str]) -> rusqlite::Result<()> {
    for (version, migration) in (1_i64..).zip(migrations) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if found < version {
            transaction.execute_batch(migration)?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
            transaction.pragma_update(None, "user_version", version)?;
        }
        transaction.commit()?;
    }
    Ok(())
}
