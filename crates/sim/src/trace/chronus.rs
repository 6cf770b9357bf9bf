//! Chronus's parts of the trace of Philly (S-Lab-System-Group/ChronusArtifact, `trace_job_Philly_*.csv`): the columns of
//! Tiresias, and what its users expect. All times are minutes.

use super::number::{minutes, whole};
use super::table::{self, BadCell, Columns, Layout, Row, Zero};
use super::{BatchMode, Format, Trace, TraceError, TraceJob, Training};

pub(super) const COLUMNS: &[&str] = &[
    "job_id",
    "user",
    "num_gpu",
    "submit_time",
    "iterations",
    "model_name",
    "duration",
    "interval",
    "expect_time_list",
    "best_effort",
];
const LAYOUT: Layout = Layout { format: Format::Chronus, separator: b',', columns: Columns::Named(COLUMNS) };

pub(super) fn read(text: &[u8]) -> Result<Trace, TraceError> {
    table::read(text, &LAYOUT, Zero::First, |row| {
        let submit_ms = row.need("submit_time", minutes)?;
        let training = Training {
            model: row.id("model_name")?,
            batch_size: None,
            steps: row.get("iterations", whole)?,
            step_us: None,
            batch: BatchMode::Static,
        };
        // Its users are the virtual clusters of Philly.
        Ok(Some(TraceJob {
            user: row.string("user")?,
            queue: row.string("user")?,
            run_ms: Some(row.need("duration", minutes)?),
            deadline_ms: expected(row)?.map(|within_ms| submit_ms + within_ms),
            training: Some(training),
            ..TraceJob::new(row.id("job_id")?, submit_ms, row.gpus("num_gpu")?)
        }))
    })
}

/// The time from its submission within which a job is to end; nothing for best effort. A soft deadline is a list of
/// times with falling values, `90-120`, and counts by the first.
fn expected(row: &Row<'_>) -> Result<Option<u64>, BadCell> {
    if row.get("best_effort", whole::<u8>)?.unwrap_or(0) > 0 {
        return Ok(None);
    }
    let first = |text: &str| minutes(text.split('-').next().unwrap_or(text));
    row.get("expect_time_list", first)
}
