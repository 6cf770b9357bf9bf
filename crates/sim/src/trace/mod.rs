//! Jobs as somebody recorded them. A reader for each format makes a [`Trace`] of it; nothing here knows which it was.

mod acme;
mod chronus;
pub(crate) mod draw;
mod elasticflow;
mod format;
mod gavel;
pub mod generate;
mod helios;
mod muri;
pub(crate) mod number;
mod openb;
mod own;
pub mod pai;
mod philly;
mod pollux;
mod sacct;
mod select;
mod shockwave;
mod summary;
mod swf;
mod table;
mod tiresias;

use serde::{Deserialize, Serialize};

pub(crate) use number::shown;

pub use format::{BYTES_MAX, Format, GPUS_MAX, LINE_BYTES_MAX, ROWS_MAX, TraceError};
pub use own::{write_csv, write_jsonl};
pub use select::{Selection, SelectionError};
pub use summary::{Spread, Summary};

/// One recorded job. What a format does not say is absent, never guessed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceJob {
    /// The line it came from, counted from 1 with the header.
    pub row: u64,
    /// Unique in its trace.
    pub id: String,
    pub user: Option<String>,
    /// Virtual cluster, partition, queue or tenant.
    pub queue: Option<String>,
    /// Since the start of the trace.
    pub submit_ms: u64,
    /// How long it ran with what it had there. Absent where the format says what there was to do instead (see
    /// [`Training`]), and of jobs that never started or had not ended.
    pub run_ms: Option<u64>,
    /// How long it waited there.
    pub waited_ms: Option<u64>,
    /// What its user said it would take at most.
    pub limit_ms: Option<u64>,
    /// Since the start of the trace.
    pub deadline_ms: Option<u64>,
    /// Devices in all; 0 for work without any.
    pub gpus: u32,
    /// Of each device, in thousandths: 1000 for whole ones.
    pub gpu_milli: u32,
    /// Models of device that will do; empty for any.
    pub gpu_models: Vec<String>,
    /// Nodes, where the format records them.
    pub nodes: Option<u32>,
    /// In all, in thousandths of a CPU.
    pub cpu_milli: Option<u64>,
    /// In all.
    pub memory_bytes: Option<u64>,
    /// Greater runs first.
    pub priority: Option<i32>,
    pub ended: Option<Ended>,
    /// What was trained, where the format says so: finds its row in a table of measured throughputs.
    pub training: Option<Training>,
}

impl TraceJob {
    /// Whole devices of any model, and nothing else known.
    #[must_use]
    pub const fn new(id: String, submit_ms: u64, gpus: u32) -> Self {
        Self {
            row: 0,
            id,
            user: None,
            queue: None,
            submit_ms,
            run_ms: None,
            waited_ms: None,
            limit_ms: None,
            deadline_ms: None,
            gpus,
            gpu_milli: 1_000,
            gpu_models: Vec::new(),
            nodes: None,
            cpu_milli: None,
            memory_bytes: None,
            priority: None,
            ended: None,
            training: None,
        }
    }

    /// Devices times how much of each times how long it ran, in thousandths of a device and milliseconds; nothing where
    /// it is not known how long it ran.
    #[must_use]
    pub fn gpu_time(&self) -> u128 {
        u128::from(self.gpus) * u128::from(self.gpu_milli) * u128::from(self.run_ms.unwrap_or(0))
    }
}

/// How the recorded run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    Completed,
    Failed,
    Cancelled,
}

impl Ended {
    /// As files have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What was trained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Training {
    pub model: String,
    pub batch_size: Option<u32>,
    /// Iterations to do.
    pub steps: Option<u64>,
    /// Time of one iteration on all its devices, in microseconds, where the format has it.
    pub step_us: Option<u64>,
    pub batch: BatchMode,
}

/// Whether the batch size changes while a job trains (Shockwave, NSDI 2023).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchMode {
    #[default]
    Static,
    Accordion,
    /// By the gradient noise scale.
    Gns,
}

impl BatchMode {
    /// As files have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Accordion => "accordion",
            Self::Gns => "gns",
        }
    }
}

/// A row that could not be read. It is left out, and counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// The line, counted from 1 with the header.
    pub row: u64,
    /// The column, where one is at fault.
    pub field: Option<String>,
    /// What is wrong, with the text that is.
    pub problem: String,
}

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// By time of submission, then in the order of the file.
    pub jobs: Vec<TraceJob>,
    pub bad: Vec<BadRow>,
    /// Rows of jobs in the file, bad ones among them.
    pub rows: u64,
    /// The date of the start of the trace, in milliseconds since 1970, where the format has dates. Those without an
    /// offset from UTC are taken as UTC.
    pub start_unix_ms: Option<u64>,
    /// Columns that whoever published the file drew at random: never to be shown as measured.
    pub generated: &'static [&'static str],
}

/// Models of device between bars.
fn models(text: &str) -> Vec<String> {
    text.split('|').map(str::trim).filter(|model| !model.is_empty()).map(str::to_owned).collect()
}

/// Bytes of so many units of two to the `shift`.
fn binary(text: &str, shift: u32) -> Result<u64, String> {
    let bytes = (u128::from(number::milli(text)?) << shift) / 1_000;
    u64::try_from(bytes).map_err(|_| number::wrong(text, "is too large"))
}

fn mebibytes(text: &str) -> Result<u64, String> {
    binary(text, 20)
}

fn gibibytes(text: &str) -> Result<u64, String> {
    binary(text, 30)
}
