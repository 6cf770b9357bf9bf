//! Workloads of Pollux (petuum/adaptdl, `osdi21-artifact`) and Sia (siasosp23/artifacts), which say what is trained and
//! with how many replicas its user would train it; how long that takes is in their tables of measured throughputs.

use super::number::{seconds, whole};
use super::table::{self, Columns, Layout, Zero};
use super::{BatchMode, Format, Trace, TraceError, TraceJob, Training};

pub(super) const COLUMNS: &[&str] = &["name", "time", "application", "num_replicas", "batch_size"];
const LAYOUT: Layout = Layout { format: Format::Pollux, separator: b',', columns: Columns::Named(COLUMNS) };

pub(super) fn read(text: &[u8]) -> Result<Trace, TraceError> {
    table::read(text, &LAYOUT, Zero::First, |row| {
        let submit_ms = row.need("time", seconds)?;
        let training = Training {
            model: row.id("application")?,
            batch_size: Some(row.need("batch_size", whole)?),
            steps: None,
            step_us: None,
            batch: BatchMode::Static,
        };
        Ok(Some(TraceJob {
            training: Some(training),
            ..TraceJob::new(row.id("name")?, submit_ms, row.gpus("num_replicas")?)
        }))
    })
}
