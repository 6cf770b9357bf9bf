//! Alibaba PAI 2020 (alibaba/clusterdata, `cluster-trace-gpu-v2020`): a row for each task of a job, without a header. All
//! tasks of a job are one [`TraceJob`], as they start together. The table of jobs, which knows users and submissions and
//! nothing of GPUs, can be read beside it.

use std::collections::BTreeMap;

use super::number::{milli, seconds, whole, wrong};
use super::table::{self, BadCell, Collector, Columns, Layout, Row, Zero};
use super::{BYTES_MAX, Ended, Format, GPUS_MAX, Trace, TraceError, TraceJob};

const TASKS: &[&str] = &[
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
];
const JOBS: &[&str] = &["job_name", "inst_id", "user", "status", "start_time", "end_time"];
const STATES: &[&str] = &["Running", "Terminated", "Failed", "Waiting"];

const fn layout(columns: &'static [&'static str]) -> Layout {
    Layout { format: Format::Pai, separator: b',', columns: Columns::Fixed(columns) }
}

/// Whether a line is one of the tables of jobs or tasks, or names their columns.
pub(super) fn is_row(cells: &[&str]) -> bool {
    (cells.len() == TASKS.len() || cells.len() == JOBS.len())
        && (cells.iter().any(|cell| STATES.contains(cell)) || cells == TASKS || cells == JOBS)
}

/// Tasks of one job, put together.
#[derive(Clone, Debug)]
struct Tasks {
    /// Of the first one.
    line: u64,
    count: u64,
    start_ms: u64,
    /// None when one of them has not ended.
    end_ms: Option<u64>,
    gpus: u32,
    /// Of each device; whole ones where tasks differ.
    gpu_milli: Option<u32>,
    gpu_models: Vec<String>,
    cpu_milli: u64,
    memory_bytes: u64,
    ended: Option<Ended>,
}

/// What the table of jobs adds.
#[derive(Clone, Debug)]
struct Submitted {
    user: Option<String>,
    at_ms: u64,
}

/// Reads the table of tasks, and that of jobs where it is there.
///
/// # Errors
/// As [`Format::read`].
pub fn read(tasks: &[u8], jobs: Option<&[u8]>) -> Result<Trace, TraceError> {
    let sizes = [tasks.len(), jobs.map_or(0, <[u8]>::len)];
    if let Some(bytes) = sizes.into_iter().find(|bytes| *bytes > BYTES_MAX) {
        return Err(TraceError::TooLong { bytes });
    }
    let mut collector = Collector::new(Format::Pai);
    let submitted = match jobs {
        Some(jobs) => submissions(jobs, &mut collector)?,
        None => BTreeMap::new(),
    };
    let mut all: BTreeMap<String, Tasks> = BTreeMap::new();
    table::rows(tasks, &layout(TASKS), |line, row| {
        let row = match row {
            Err(_) if line == 1 && is_job_table(tasks) => return Err(TraceError::PaiJobs),
            row => row,
        };
        match row.and_then(|row| task(&row)) {
            Ok(None) => Ok(()),
            Ok(Some((name, task))) => {
                join(&mut all, name, task).map_or(Ok(()), |bad| collector.add(line, Err(bad)))
            }
            Err(bad) => collector.add(line, Err(bad)),
        }
    })?;
    for (name, tasks) in all {
        collector.count(tasks.count - 1);
        collector.add(tasks.line, Ok(Some(job(name, tasks, &submitted))))?;
    }
    collector.finish(Zero::First)
}

/// Whether the first line has the columns of the table of jobs.
fn is_job_table(text: &[u8]) -> bool {
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.split(|byte| *byte == b',').count() == JOBS.len()
}

/// The table of jobs by name.
fn submissions(text: &[u8], bad: &mut Collector) -> Result<BTreeMap<String, Submitted>, TraceError> {
    let mut all = BTreeMap::new();
    table::rows(text, &layout(JOBS), |line, row| {
        let read = |row: Row<'_>| {
            if row.text("job_name")? == Some("job_name") {
                return Ok(());
            }
            let at_ms = row.need("start_time", seconds)?;
            all.insert(row.id("job_name")?, Submitted { user: row.string("user")?, at_ms });
            Ok(())
        };
        // The row is no job of its own: it is counted where it is bad alone.
        let in_jobs =
            |why: BadCell| BadCell { problem: format!("{} (in the table of jobs)", why.problem), ..why };
        row.and_then(read).map_or_else(|why| bad.add(line, Err(in_jobs(why))), Ok)
    })?;
    Ok(all)
}

/// One row; none of a line that names the columns.
fn task(row: &Row<'_>) -> Result<Option<(String, Tasks)>, BadCell> {
    if row.text("job_name")? == Some("job_name") {
        return Ok(None);
    }
    let start_ms = row.need("start_time", seconds)?;
    let end_ms = row.get("end_time", |text| match seconds(text)? {
        end if end < start_ms => Err(wrong(text, "is before the start")),
        end => Ok(end),
    })?;
    let instances: u32 = row.need("inst_num", whole)?;
    // In hundredths of a device.
    let plan = row.get("plan_gpu", milli)?.unwrap_or(0) / 10;
    let each = u32::try_from(plan.div_ceil(10_000)).unwrap_or(u32::MAX);
    let gpus = each.checked_mul(instances).filter(|gpus| *gpus <= GPUS_MAX);
    let gpus = gpus.ok_or_else(|| BadCell::row(format!("a task asks for more than {GPUS_MAX} devices")))?;
    let gpu_milli = (gpus > 0).then(|| u32::try_from(plan / 10 / u64::from(each)).unwrap_or(1_000).max(1));
    let amount = |each: Option<u64>| each.unwrap_or(0).saturating_mul(u64::from(instances));
    let memory = row.get("plan_mem", super::gibibytes)?;
    let tasks = Tasks {
        line: row.line,
        count: 1,
        start_ms,
        end_ms,
        gpus,
        gpu_milli,
        gpu_models: row.string("gpu_type")?.filter(|_| gpus > 0).into_iter().collect(),
        cpu_milli: amount(row.get("plan_cpu", milli)?.map(|plan| plan / 100)),
        memory_bytes: amount(memory),
        ended: row.text("status")?.and_then(ended),
    };
    Ok(Some((row.id("job_name")?, tasks)))
}

fn ended(status: &str) -> Option<Ended> {
    match status {
        "Terminated" => Some(Ended::Completed),
        "Failed" => Some(Ended::Failed),
        _ => None,
    }
}

/// Adds a task to its job, unless the job becomes too large.
fn join(all: &mut BTreeMap<String, Tasks>, name: String, task: Tasks) -> Option<BadCell> {
    let Some(job) = all.get_mut(&name) else {
        all.insert(name, task);
        return None;
    };
    let gpus = job.gpus.saturating_add(task.gpus);
    if gpus > GPUS_MAX {
        return Some(BadCell::row(format!("its job asks for more than {GPUS_MAX} devices")));
    }
    job.gpu_milli = match (job.gpu_milli, task.gpu_milli) {
        (Some(one), Some(other)) if one != other => Some(1_000),
        (one, other) => one.or(other),
    };
    job.gpus = gpus;
    job.count += 1;
    job.start_ms = job.start_ms.min(task.start_ms);
    job.end_ms = job.end_ms.zip(task.end_ms).map(|(one, other)| one.max(other));
    job.gpu_models.extend(task.gpu_models);
    job.gpu_models.sort();
    job.gpu_models.dedup();
    job.cpu_milli = job.cpu_milli.saturating_add(task.cpu_milli);
    job.memory_bytes = job.memory_bytes.saturating_add(task.memory_bytes);
    job.ended = match (job.ended, task.ended) {
        (Some(Ended::Failed), _) | (_, Some(Ended::Failed)) => Some(Ended::Failed),
        (one, other) if one == other => one,
        _ => None,
    };
    None
}

fn job(name: String, tasks: Tasks, submitted: &BTreeMap<String, Submitted>) -> TraceJob {
    let known = submitted.get(&name);
    // A job that was there after its tasks says nothing of its wait.
    let submit_ms = known.map_or(tasks.start_ms, |known| known.at_ms.min(tasks.start_ms));
    TraceJob {
        row: tasks.line,
        user: known.and_then(|known| known.user.clone()),
        run_ms: tasks.end_ms.map(|end| end - tasks.start_ms),
        waited_ms: known.map(|_| tasks.start_ms - submit_ms),
        gpu_milli: tasks.gpu_milli.unwrap_or(1_000),
        gpu_models: tasks.gpu_models,
        cpu_milli: Some(tasks.cpu_milli),
        memory_bytes: Some(tasks.memory_bytes),
        ended: tasks.ended,
        ..TraceJob::new(name, submit_ms, tasks.gpus)
    }
}
