//! Muri's traces (Rivendile/Muri, `simulator/trace-data`). All times are milliseconds.

use super::number::{millis, whole};
use super::table::{self, Columns, Layout, Zero};
use super::{BatchMode, Format, Trace, TraceError, TraceJob, Training};

pub(super) const COLUMNS: &[&str] = &[
    "job_id",
    "num_gpu",
    "submit_time",
    "iterations",
    "model_name",
    "batch_size",
    "duration",
    "interval",
    "iteration_time",
];
const LAYOUT: Layout = Layout { format: Format::Muri, separator: b',', columns: Columns::Named(COLUMNS) };

pub(super) fn read(text: &[u8]) -> Result<Trace, TraceError> {
    table::read(text, &LAYOUT, Zero::First, |row| {
        let submit_ms = row.need("submit_time", millis)?;
        let training = Training {
            model: row.id("model_name")?,
            batch_size: row.get("batch_size", whole)?,
            steps: row.get("iterations", whole)?,
            step_us: row.get("iteration_time", millis)?.map(|ms| ms.saturating_mul(1_000)),
            batch: BatchMode::Static,
        };
        Ok(Some(TraceJob {
            run_ms: Some(row.need("duration", millis)?),
            training: Some(training),
            ..TraceJob::new(row.id("job_id")?, submit_ms, row.gpus("num_gpu")?)
        }))
    })
}
