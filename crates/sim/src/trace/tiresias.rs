//! The trace of Tiresias (SymbioticLab/Tiresias, `simulator/60_job.csv`). Times are seconds; Muri took the columns over
//! and counts milliseconds.

use super::number::{seconds, whole};
use super::table::{self, Columns, Layout, Zero};
use super::{BatchMode, Format, Trace, TraceError, TraceJob, Training};

pub(super) const COLUMNS: &[&str] =
    &["job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval"];
const LAYOUT: Layout = Layout { format: Format::Tiresias, separator: b',', columns: Columns::Named(COLUMNS) };

pub(super) fn read(text: &[u8]) -> Result<Trace, TraceError> {
    table::read(text, &LAYOUT, Zero::First, |row| {
        let submit_ms = row.need("submit_time", seconds)?;
        let training = Training {
            model: row.id("model_name")?,
            batch_size: None,
            steps: row.get("iterations", whole)?,
            step_us: None,
            batch: BatchMode::Static,
        };
        Ok(Some(TraceJob {
            run_ms: Some(row.need("duration", seconds)?),
            training: Some(training),
            ..TraceJob::new(row.id("job_id")?, submit_ms, row.gpus("num_gpu")?)
        }))
    })
}
