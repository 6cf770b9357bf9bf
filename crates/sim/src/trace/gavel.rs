//! Gavel's traces (stanford-futuredata/gavel, `scheduler/traces`): tabs and no header, steps to do instead of run times.
//! Those of the Philly clusters have 7 columns, later ones 9, with the arrival last.

use super::number::{seconds, whole};
use super::table::{self, BadCell, Columns, Layout, Row, Zero};
use super::{BatchMode, Format, Trace, TraceError, TraceJob, Training};

const SEVEN: &[&str] = &[
    "job_type",
    "command",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "arrival_time",
    "scale_factor",
];
const NINE: &[&str] = &[
    "job_type",
    "command",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "scale_factor",
    "priority_weight",
    "SLO",
    "arrival_time",
];

/// The columns of a row with so many cells; none where no trace has so many.
pub(super) fn columns(count: usize) -> Option<&'static [&'static str]> {
    [SEVEN, NINE].into_iter().find(|columns| columns.len() == count)
}

pub(super) fn read(text: &[u8]) -> Result<Trace, TraceError> {
    let first =
        text.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
    let width = first.split(|byte| *byte == b'\t').count();
    let columns = columns(width).unwrap_or(SEVEN);
    let layout = Layout { format: Format::Gavel, separator: b'\t', columns: Columns::Fixed(columns) };
    table::read(text, &layout, Zero::First, |row| {
        let submit_ms = row.need("arrival_time", seconds)?;
        Ok(Some(TraceJob {
            training: Some(training(row, BatchMode::Static)?),
            ..TraceJob::new(row.line.to_string(), submit_ms, row.gpus("scale_factor")?)
        }))
    })
}

/// `ResNet-18 (batch size 32)`; some models have one batch size, and the type is the name alone.
pub(super) fn training(row: &Row<'_>, batch: BatchMode) -> Result<Training, BadCell> {
    let (model, batch_size) = row.need("job_type", |text| match text.split_once(" (batch size ") {
        Some((model, size)) => Ok((model.to_owned(), Some(whole(size.trim_end_matches(')'))?))),
        None => Ok((text.to_owned(), None)),
    })?;
    let steps = Some(row.need("total_steps", whole)?);
    Ok(Training { model, batch_size, steps, step_us: None, batch })
}
