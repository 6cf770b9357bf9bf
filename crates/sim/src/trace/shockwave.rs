//! Shockwave's traces (uw-mad-dash/shockwave, `scheduler/traces`): tabs and no header; jobs whose batch size changes while
//! they train. Times are seconds.

use super::number::{seconds, wrong};
use super::table::{self, Columns, Layout, Zero};
use super::{BatchMode, Format, Trace, TraceError, TraceJob, gavel};

const COLUMNS: &[&str] = &[
    "job_type",
    "command",
    "dir",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "scale_factor",
    "mode",
    "priority",
    "SLO",
    "duration",
    "arrival",
];
pub(super) const WIDTH: usize = COLUMNS.len();
const LAYOUT: Layout =
    Layout { format: Format::Shockwave, separator: b'\t', columns: Columns::Fixed(COLUMNS) };

pub(super) fn read(text: &[u8]) -> Result<Trace, TraceError> {
    table::read(text, &LAYOUT, Zero::First, |row| {
        let submit_ms = row.need("arrival", seconds)?;
        let batch = row.need("mode", |text| match text {
            "static" => Ok(BatchMode::Static),
            "accordion" => Ok(BatchMode::Accordion),
            "gns" => Ok(BatchMode::Gns),
            _ => Err(wrong(text, "is none of static, accordion, gns")),
        })?;
        Ok(Some(TraceJob {
            run_ms: Some(row.need("duration", seconds)?),
            training: Some(gavel::training(row, batch)?),
            ..TraceJob::new(row.line.to_string(), submit_ms, row.gpus("scale_factor")?)
        }))
    })
}
