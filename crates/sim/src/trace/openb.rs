//! Alibaba's pods on openb (hkust-adsl/kubernetes-scheduler-simulator, `openb_pod_list_*.csv`). The lists of more
//! multi-GPU pods name no times: their pods are submitted at once, in the order of the file.

use super::number::{seconds, whole, wrong};
use super::table::{self, BadCell, Columns, Layout, Row, Zero};
use super::{Ended, Format, Trace, TraceError, TraceJob};

pub(super) const COLUMNS: &[&str] = &["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"];
const LAYOUT: Layout = Layout { format: Format::Openb, separator: b',', columns: Columns::Named(COLUMNS) };

pub(super) fn read(text: &[u8]) -> Result<Trace, TraceError> {
    table::read(text, &LAYOUT, Zero::First, |row| {
        let created = row.get("creation_time", seconds)?.unwrap_or(0);
        let scheduled = after(row, "scheduled_time", Some(created))?;
        let run_ms = after(row, "deletion_time", scheduled)?.zip(scheduled).map(|(end, start)| end - start);
        Ok(Some(TraceJob {
            queue: row.string("qos")?,
            waited_ms: scheduled.map(|at| at - created),
            run_ms,
            gpu_milli: gpu_milli(row)?,
            gpu_models: super::models(row.text("gpu_spec")?.unwrap_or_default()),
            cpu_milli: row.get("cpu_milli", whole)?,
            memory_bytes: row.get("memory_mib", super::mebibytes)?,
            ended: row.text("pod_phase")?.and_then(ended),
            ..TraceJob::new(row.id("name")?, created, row.gpus("num_gpu")?)
        }))
    })
}

/// A time that is not before another.
fn after(row: &Row<'_>, column: &'static str, earliest: Option<u64>) -> Result<Option<u64>, BadCell> {
    row.get(column, |text| match (seconds(text)?, earliest) {
        (at, Some(earliest)) if at < earliest => Err(wrong(text, "is before what comes before it")),
        (at, _) => Ok(at),
    })
}

/// A pod without devices has none to take a part of.
fn gpu_milli(row: &Row<'_>) -> Result<u32, BadCell> {
    let milli = row.need("gpu_milli", |text| match whole(text)? {
        milli @ 0..=1_000 => Ok(milli),
        _ => Err(wrong(text, "is more than a whole device")),
    })?;
    Ok(if milli == 0 { 1_000 } else { milli })
}

/// What was running when the trace ended has a time of deletion, and did not end by itself.
fn ended(phase: &str) -> Option<Ended> {
    match phase {
        "Succeeded" => Some(Ended::Completed),
        "Failed" => Some(Ended::Failed),
        _ => None,
    }
}
