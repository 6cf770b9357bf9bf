//! Our own formats: a table, and one JSON object in each line. What is written is read back the same.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::number::{shown, whole, wrong};
use super::table::{self, BadCell, Collector, Columns, Layout, Row, Zero};
use super::{BatchMode, Ended, Format, LINE_BYTES_MAX, Trace, TraceError, TraceJob, Training, number};

pub(super) const NEEDED: &[&str] = &["id", "submit_ms", "gpus"];
const LAYOUT: Layout = Layout { format: Format::Csv, separator: b',', columns: Columns::Named(NEEDED) };

/// All columns of the table, in the order in which they are written. Absent is empty.
const COLUMNS: [&str; 21] = [
    "id",
    "user",
    "queue",
    "submit_ms",
    "run_ms",
    "waited_ms",
    "limit_ms",
    "deadline_ms",
    "gpus",
    "gpu_milli",
    "gpu_models",
    "nodes",
    "cpu_milli",
    "memory_bytes",
    "priority",
    "ended",
    "model",
    "batch_size",
    "steps",
    "step_us",
    "batch",
];

/// A line of JSON: the columns of the table, lists as lists.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    submit_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
    gpus: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu_milli: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gpu_models: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nodes: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu_milli: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<Ended>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    batch_size: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    steps: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    batch: Option<BatchMode>,
}

pub(super) fn read_csv(text: &[u8]) -> Result<Trace, TraceError> {
    refuse_unknown(text)?;
    table::read(text, &LAYOUT, Zero::Kept, |row| line_of(row)?.job().map(Some))
}

/// A column that is not ours is a slip of the pen, and what it says would be lost.
fn refuse_unknown(text: &[u8]) -> Result<(), TraceError> {
    let line = super::format::first_line(text);
    let cells = line.split(',').map(|cell| cell.trim().trim_matches('"'));
    match cells.filter(|cell| !COLUMNS.contains(cell)).map(shown).next() {
        Some(unknown) if line.contains("submit_ms") => {
            Err(TraceError::Column { unknown, known: COLUMNS.join(", ") })
        }
        _ => Ok(()),
    }
}

fn line_of(row: &Row<'_>) -> Result<Line, BadCell> {
    Ok(Line {
        id: row.id("id")?,
        user: row.string("user")?,
        queue: row.string("queue")?,
        submit_ms: row.need("submit_ms", whole)?,
        run_ms: row.get("run_ms", whole)?,
        waited_ms: row.get("waited_ms", whole)?,
        limit_ms: row.get("limit_ms", whole)?,
        deadline_ms: row.get("deadline_ms", whole)?,
        gpus: row.need("gpus", whole)?,
        gpu_milli: row.get("gpu_milli", whole)?,
        gpu_models: super::models(row.text("gpu_models")?.unwrap_or_default()),
        nodes: row.get("nodes", whole)?,
        cpu_milli: row.get("cpu_milli", integer)?,
        memory_bytes: row.get("memory_bytes", integer)?,
        priority: row.get("priority", |text| text.parse().map_err(|_| wrong(text, "is no whole number")))?,
        ended: row.get("ended", |text| word(text, "completed, failed, cancelled"))?,
        model: row.string("model")?,
        batch_size: row.get("batch_size", whole)?,
        steps: row.get("steps", integer)?,
        step_us: row.get("step_us", integer)?,
        batch: row.get("batch", |text| word(text, "static, accordion, gns"))?,
    })
}

/// All 64 bits.
fn integer(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| wrong(text, "is no whole number of zero or more"))
}

/// A word as JSON has it.
fn word<T: for<'de> Deserialize<'de>>(text: &str, known: &str) -> Result<T, String> {
    let read = T::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(text));
    read.map_err(|_| wrong(text, &format!("is none of {known}")))
}

pub(super) fn read_jsonl(text: &[u8]) -> Result<Trace, TraceError> {
    let mut jobs = Collector::new(Format::Jsonl);
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    for (row, text) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let text = text.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let line = if text.len() as u64 > LINE_BYTES_MAX {
            Err(BadCell::row(format!("the line has more than {LINE_BYTES_MAX} bytes")))
        } else {
            serde_json::from_slice::<Line>(text).map_err(|error| BadCell::row(said(&error)))
        };
        jobs.add(row, line.and_then(Line::job).map(|job| Some(TraceJob { row, ..job })))?;
    }
    jobs.finish(Zero::Kept)
}

/// What JSON is not, in its one line. Names of fields come from the file: nothing of them steers a terminal.
fn said(error: &serde_json::Error) -> String {
    let (text, column) = (error.to_string(), error.column());
    let place = format!(" at line {} column {column}", error.line());
    let text = text.strip_suffix(&place).unwrap_or(&text);
    let plain: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    format!("{plain} at column {column}")
}

impl Line {
    /// What the table cannot say, JSON cannot either, so that both can be turned into each other.
    fn job(self) -> Result<TraceJob, BadCell> {
        let field = |field, problem: String| BadCell { field: Some(field), problem };
        let texts = [("id", Some(&self.id)), ("user", self.user.as_ref()), ("queue", self.queue.as_ref())];
        let texts = texts.into_iter().chain([("model", self.model.as_ref())]);
        let models = self.gpu_models.iter().map(|model| ("gpu_models", Some(model)));
        for (name, text) in texts.chain(models).filter_map(|(name, text)| Some((name, text?))) {
            if text.is_empty() || text.trim() != text || (name == "gpu_models" && text.contains('|')) {
                return Err(field(
                    name,
                    wrong(text, "is empty, begins or ends with a blank, or is a model with |"),
                ));
            }
        }
        let times = [
            ("submit_ms", Some(self.submit_ms)),
            ("run_ms", self.run_ms),
            ("waited_ms", self.waited_ms),
            ("limit_ms", self.limit_ms),
            ("deadline_ms", self.deadline_ms),
        ];
        for (name, ms) in times.into_iter().filter_map(|(name, ms)| Some((name, ms?))) {
            number::millis(&ms.to_string()).map_err(|problem| field(name, problem))?;
        }
        table::gpus(&self.gpus.to_string()).map_err(|problem| field("gpus", problem))?;
        let gpu_milli = self.gpu_milli.unwrap_or(1_000);
        if !(1..=1_000).contains(&gpu_milli) {
            return Err(field("gpu_milli", format!("\"{gpu_milli}\" is not 1 to 1000")));
        }
        let (batch_size, steps, step_us) = (self.batch_size, self.steps, self.step_us);
        let batch = self.batch.unwrap_or_default();
        let training = self.model.map(|model| Training { model, batch_size, steps, step_us, batch });
        if training.is_none()
            && (batch_size.is_some() || steps.is_some() || step_us.is_some() || self.batch.is_some())
        {
            return Err(field("model", "is empty, and what is trained is told".to_owned()));
        }
        Ok(TraceJob {
            row: 0,
            id: self.id,
            user: self.user,
            queue: self.queue,
            submit_ms: self.submit_ms,
            run_ms: self.run_ms,
            waited_ms: self.waited_ms,
            limit_ms: self.limit_ms,
            deadline_ms: self.deadline_ms,
            gpus: self.gpus,
            gpu_milli,
            gpu_models: self.gpu_models,
            nodes: self.nodes,
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
            priority: self.priority,
            ended: self.ended,
            training,
        })
    }

    fn of(job: &TraceJob) -> Self {
        let training = job.training.as_ref();
        Self {
            id: job.id.clone(),
            user: job.user.clone(),
            queue: job.queue.clone(),
            submit_ms: job.submit_ms,
            run_ms: job.run_ms,
            waited_ms: job.waited_ms,
            limit_ms: job.limit_ms,
            deadline_ms: job.deadline_ms,
            gpus: job.gpus,
            gpu_milli: Some(job.gpu_milli).filter(|milli| *milli != 1_000),
            gpu_models: job.gpu_models.clone(),
            nodes: job.nodes,
            cpu_milli: job.cpu_milli,
            memory_bytes: job.memory_bytes,
            priority: job.priority,
            ended: job.ended,
            model: training.map(|training| training.model.clone()),
            batch_size: training.and_then(|training| training.batch_size),
            steps: training.and_then(|training| training.steps),
            step_us: training.and_then(|training| training.step_us),
            batch: training.map(|training| training.batch).filter(|batch| *batch != BatchMode::Static),
        }
    }
}

/// Writes the table.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write_csv(trace: &Trace, out: impl Write) -> io::Result<()> {
    let mut out = csv::Writer::from_writer(out);
    out.write_record(COLUMNS)?;
    let said = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    for job in &trace.jobs {
        let line = Line::of(job);
        out.write_record([
            line.id,
            line.user.unwrap_or_default(),
            line.queue.unwrap_or_default(),
            line.submit_ms.to_string(),
            said(line.run_ms),
            said(line.waited_ms),
            said(line.limit_ms),
            said(line.deadline_ms),
            line.gpus.to_string(),
            said(line.gpu_milli.map(u64::from)),
            line.gpu_models.join("|"),
            said(line.nodes.map(u64::from)),
            said(line.cpu_milli),
            said(line.memory_bytes),
            line.priority.map_or_else(String::new, |priority| priority.to_string()),
            line.ended.map_or("", Ended::name).to_owned(),
            line.model.unwrap_or_default(),
            said(line.batch_size.map(u64::from)),
            said(line.steps),
            said(line.step_us),
            line.batch.map_or("", BatchMode::name).to_owned(),
        ])?;
    }
    out.flush()
}

/// Writes one JSON object in each line.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write_jsonl(trace: &Trace, mut out: impl Write) -> io::Result<()> {
    for job in &trace.jobs {
        serde_json::to_writer(&mut out, &Line::of(job))?;
        out.write_all(b"\n")?;
    }
    out.flush()
}
