//! Shanghai AI Lab Acme (InternLM/AcmeTrace, `trace_seren.csv` and `trace_kalos.csv`). Dates name their offset from UTC.

use super::helios;
use super::number::{date, seconds};
use super::table::{self, Columns, Layout, Zero};
use super::{Format, Trace, TraceError, TraceJob};

pub(super) const COLUMNS: &[&str] = &[
    "job_id",
    "user",
    "node_num",
    "gpu_num",
    "cpu_num",
    "type",
    "state",
    "submit_time",
    "start_time",
    "end_time",
    "queue",
    "gpu_time",
];
const LAYOUT: Layout = Layout { format: Format::Acme, separator: b',', columns: Columns::Named(COLUMNS) };

/// The run is the time from start to end: the column `duration` is that in Seren, and counts the wait as well in Kalos.
pub(super) fn read(text: &[u8]) -> Result<Trace, TraceError> {
    table::read(text, &LAYOUT, Zero::Dates, |row| {
        let (start, end) = (row.get("start_time", date)?, row.get("end_time", date)?);
        let run_ms = match (start, end) {
            (Some(start), Some(end)) if end < start => {
                let problem = "is before the start".to_owned();
                return Err(table::BadCell { field: Some("end_time"), problem });
            }
            (Some(start), Some(end)) => Some(end - start),
            _ => None,
        };
        Ok(Some(TraceJob {
            queue: row.string("type")?,
            run_ms,
            waited_ms: row.get("queue", seconds)?,
            ..helios::job(row)?
        }))
    })
}
