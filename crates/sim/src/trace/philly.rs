//! Microsoft Philly as the artifact of Pollux has it (petuum/adaptdl, `osdi21-artifact`): filtered, about half of the
//! GPU-hours of the whole log. Times are local and name no zone.

use super::number::{date, seconds};
use super::table::{self, Columns, Layout, Zero};
use super::{Format, Trace, TraceError, TraceJob};

pub(super) const COLUMNS: &[&str] = &["timestamp", "duration", "num_gpus", "gpu_time", "cluster"];
const LAYOUT: Layout = Layout { format: Format::Philly, separator: b',', columns: Columns::Named(COLUMNS) };

pub(super) fn read(text: &[u8]) -> Result<Trace, TraceError> {
    table::read(text, &LAYOUT, Zero::Dates, |row| {
        let submit_ms = row.need("timestamp", date)?;
        Ok(Some(TraceJob {
            queue: row.string("cluster")?,
            run_ms: Some(row.need("duration", seconds)?),
            ..TraceJob::new(row.line.to_string(), submit_ms, row.gpus("num_gpus")?)
        }))
    })
}
