//! SenseTime Helios, the job log of one cluster (S-Lab-System-Group/HeliosData, `cluster_log.csv`). Its states are
//! Slurm's, and times are local and name no zone.

use super::number::{date, seconds, whole};
use super::table::{self, BadCell, Columns, Layout, Row, Zero};
use super::{Ended, Format, Trace, TraceError, TraceJob};

pub(super) const COLUMNS: &[&str] =
    &["job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time", "duration", "queue"];
const LAYOUT: Layout = Layout { format: Format::Helios, separator: b',', columns: Columns::Named(COLUMNS) };

pub(super) fn read(text: &[u8]) -> Result<Trace, TraceError> {
    table::read(text, &LAYOUT, Zero::Dates, |row| {
        Ok(Some(TraceJob {
            queue: row.string("vc")?,
            run_ms: row.get("duration", seconds)?,
            waited_ms: row.get("queue", seconds)?,
            ..job(row)?
        }))
    })
}

/// What the logs of Helios and Acme have alike.
pub(super) fn job(row: &Row<'_>) -> Result<TraceJob, BadCell> {
    let submit_ms = row.need("submit_time", date)?;
    Ok(TraceJob {
        user: row.string("user")?,
        nodes: row.get("node_num", whole)?,
        cpu_milli: row.get("cpu_num", super::number::milli)?,
        ended: row.text("state")?.and_then(ended),
        ..TraceJob::new(row.id("job_id")?, submit_ms, row.gpus("gpu_num")?)
    })
}

/// Slurm's states, `CANCELLED by 1000` among them; none of a job that goes on. What a job did not end by itself or its
/// user failed it (limits, nodes, memory, preemption).
pub(super) fn ended(state: &str) -> Option<Ended> {
    match state.split_whitespace().next()?.trim_end_matches('+') {
        "COMPLETED" => Some(Ended::Completed),
        "CANCELLED" | "REVOKED" => Some(Ended::Cancelled),
        "FAILED" | "TIMEOUT" | "NODE_FAIL" | "OUT_OF_MEMORY" | "BOOT_FAIL" | "DEADLINE" | "PREEMPTED" => {
            Some(Ended::Failed)
        }
        _ => None,
    }
}
