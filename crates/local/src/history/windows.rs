//! Who added which windows of the calendar, and why: what `phalanx calendar` and `phalanx nodes` say after a restart.

use phalanx_api::protocol::ClosedBy;
use phalanx_model::{NodeName, Timestamp};
use rusqlite::{Connection, Row as Found, named_params};

use super::query::{optional, time};
use super::rows::integer;
use super::{History, HistoryError};

/// Requests for windows that are remembered.
pub(crate) const WINDOWS_KEPT: u32 = 1_000;

/// The windows of one request: one for each of these nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowRow {
    pub begins_at: Timestamp,
    /// None: when they are uncordoned.
    pub ends_at: Option<Timestamp>,
    /// In order.
    pub nodes: Vec<NodeName>,
    pub by: ClosedBy,
}

impl History {
    /// Who added windows that are not over, the oldest request first.
    ///
    /// # Errors
    /// As [`Self::job`].
    pub fn windows(&self, now: Timestamp) -> Result<Vec<WindowRow>, HistoryError> {
        let sql = "SELECT * FROM (SELECT * FROM windows WHERE ends_at IS NULL OR ends_at > ?
            ORDER BY id DESC LIMIT ?) ORDER BY id";
        self.many(sql, (integer(now.0), WINDOWS_KEPT), window)
    }
}

/// The newest are kept.
pub(super) fn write_window(connection: &Connection, row: &WindowRow) -> rusqlite::Result<()> {
    let nodes =
        serde_json::to_string(&row.nodes).map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
    let mut statement = connection.prepare_cached(
        "INSERT INTO windows (begins_at, ends_at, nodes, user, at, reason)
            VALUES (:begins_at, :ends_at, :nodes, :user, :at, :reason)",
    )?;
    statement.execute(named_params! {
        ":begins_at": integer(row.begins_at.0), ":ends_at": row.ends_at.map(|at| integer(at.0)), ":nodes": nodes,
        ":user": row.by.user, ":at": integer(row.by.at.0), ":reason": row.by.reason,
    })?;
    let old = "DELETE FROM windows WHERE id <= (SELECT max(id) FROM windows) - ?";
    connection.prepare_cached(old)?.execute([WINDOWS_KEPT])?;
    Ok(())
}

fn window(row: &Found<'_>) -> rusqlite::Result<WindowRow> {
    let nodes: String = row.get(3)?;
    Ok(WindowRow {
        begins_at: time(row, 1)?,
        ends_at: optional(row, 2)?,
        // Names that cannot be read are names of no node.
        nodes: serde_json::from_str(&nodes).unwrap_or_default(),
        by: ClosedBy { user: row.get(4)?, at: time(row, 5)?, reason: row.get(6)? },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Row;

    #[test]
    fn the_newest_windows_that_are_not_over_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let mut history = History::open(&dir.path().join("history.db")).unwrap();
        let row = |at: u64, ends_at: Option<u64>| WindowRow {
            begins_at: Timestamp(at),
            ends_at: ends_at.map(Timestamp),
            nodes: vec![NodeName::new("n1").unwrap(), NodeName::new("n2").unwrap()],
            by: ClosedBy { user: "ada".to_owned(), at: Timestamp(at), reason: Some("fan".to_owned()) },
        };
        let all = [row(1, Some(10)), row(2, None), row(3, Some(30))];
        history.record(&all.clone().map(Row::Window)).unwrap();
        assert_eq!(history.windows(Timestamp(9)).unwrap(), all);
        assert_eq!(history.windows(Timestamp(10)).unwrap(), all[1..]);
        let many: Vec<Row> =
            (0..u64::from(WINDOWS_KEPT)).map(|at| Row::Window(row(100 + at, None))).collect();
        history.record(&many).unwrap();
        let kept = history.windows(Timestamp(0)).unwrap();
        assert_eq!((kept.len(), kept[0].begins_at), (WINDOWS_KEPT as usize, Timestamp(100)));
    }
}
