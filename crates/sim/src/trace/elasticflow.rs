//! Microsoft ElasticFlow ITP (microsoft/elasticflow-traces): arrivals, run times and GPU counts of real clusters. The
//! derived files add columns that were drawn at random; [`Trace::generated`] names those that a file has.

use super::number::{seconds, whole};
use super::table::{self, Columns, Layout, Row, Zero};
use super::{BatchMode, Format, Trace, TraceError, TraceJob, Training};

pub(super) const COLUMNS: &[&str] = &["job_id", "submission_time", "duration", "num_gpu"];
const GENERATED: &[&str] = &["model_name", "batch_size", "num_iteration", "deadline"];
const LAYOUT: Layout =
    Layout { format: Format::ElasticFlow, separator: b',', columns: Columns::Named(COLUMNS) };

pub(super) fn read(text: &[u8]) -> Result<Trace, TraceError> {
    let mut trace = table::read(text, &LAYOUT, Zero::First, |row| {
        let submit_ms = row.need("submission_time", seconds)?;
        Ok(Some(TraceJob {
            run_ms: Some(row.need("duration", seconds)?),
            deadline_ms: row.get("deadline", seconds)?,
            training: training(row)?,
            ..TraceJob::new(row.id("job_id")?, submit_ms, row.gpus("num_gpu")?)
        }))
    })?;
    if trace.jobs.iter().any(|job| job.training.is_some() || job.deadline_ms.is_some()) {
        trace.generated = GENERATED;
    }
    Ok(trace)
}

fn training(row: &Row<'_>) -> Result<Option<Training>, table::BadCell> {
    let Some(model) = row.string("model_name")? else { return Ok(None) };
    Ok(Some(Training {
        model,
        batch_size: row.get("batch_size", whole)?,
        steps: row.get("num_iteration", whole)?,
        step_us: None,
        batch: BatchMode::Static,
    }))
}
