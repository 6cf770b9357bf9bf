//! The formats that are read, their names, and which one a file is in.

use std::fmt;

use super::number::shown;
use super::{
    BadRow, Trace, acme, chronus, elasticflow, gavel, helios, muri, openb, own, pai, philly, pollux, sacct,
    shockwave, swf, tiresias,
};

/// The largest file that is read.
pub const BYTES_MAX: usize = 1 << 30;
/// The most rows that are read.
pub const ROWS_MAX: u64 = 1 << 24;
/// The longest row that is read.
pub const LINE_BYTES_MAX: u64 = 1 << 16;
/// The most devices that one job may have.
pub const GPUS_MAX: u32 = 1 << 20;

/// Who wrote the file. `docs/traces.md` has columns, units and caveats of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// Microsoft Philly, as Pollux's artifact has it.
    Philly,
    /// Microsoft ElasticFlow ITP, raw and derived.
    ElasticFlow,
    /// SenseTime Helios, `cluster_log.csv`.
    Helios,
    /// Shanghai AI Lab Acme, `trace_seren.csv` and `trace_kalos.csv`.
    Acme,
    /// Alibaba PAI 2020, `pai_task_table.csv`.
    Pai,
    /// Alibaba openb, `openb_pod_list_*.csv`.
    Openb,
    /// Muri, `trace1.csv`.
    Muri,
    /// Tiresias, `60_job.csv`.
    Tiresias,
    /// Chronus, `trace_job_Philly_*.csv`.
    Chronus,
    /// Gavel, `*.trace`.
    Gavel,
    /// Shockwave, `*.trace`.
    Shockwave,
    /// Pollux and Sia, `workload-1.csv`.
    Pollux,
    /// Slurm, `sacct --parsable2`.
    Sacct,
    /// Standard Workload Format.
    Swf,
    /// Our own table.
    Csv,
    /// Our own, one JSON object in each line.
    Jsonl,
}

/// Why a file is no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    #[error("the file has {bytes} bytes, and at most {BYTES_MAX} are read; cut it into several")]
    TooLong { bytes: usize },
    #[error("the file has more than {ROWS_MAX} rows; cut it into several")]
    TooManyRows,
    #[error("the file has no row of a job")]
    Empty,
    #[error("the header {found:?} is not that of {format}: missing are {missing}")]
    Header { format: Format, missing: String, found: String },
    #[error("the column {unknown:?} is not known; known are {known}")]
    Column { unknown: String, known: String },
    #[error("none of {rows} rows can be read as {format}; the first is {first}")]
    NothingGood { format: Format, rows: u64, first: BadRow },
    #[error("no format begins with {first:?}; say which it is, one of {}", names())]
    Unknown { first: String },
    #[error(
        "this is the table of jobs of PAI, which says nothing of GPUs; read pai_task_table.csv and give this one beside it"
    )]
    PaiJobs,
}

fn names() -> String {
    Format::ALL.map(Format::name).join(", ")
}

impl Format {
    pub const ALL: [Self; 16] = [
        Self::Philly,
        Self::ElasticFlow,
        Self::Helios,
        Self::Acme,
        Self::Pai,
        Self::Openb,
        Self::Muri,
        Self::Tiresias,
        Self::Chronus,
        Self::Gavel,
        Self::Shockwave,
        Self::Pollux,
        Self::Sacct,
        Self::Swf,
        Self::Csv,
        Self::Jsonl,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Philly => "philly",
            Self::ElasticFlow => "elasticflow",
            Self::Helios => "helios",
            Self::Acme => "acme",
            Self::Pai => "pai",
            Self::Openb => "openb",
            Self::Muri => "muri",
            Self::Tiresias => "tiresias",
            Self::Chronus => "chronus",
            Self::Gavel => "gavel",
            Self::Shockwave => "shockwave",
            Self::Pollux => "pollux",
            Self::Sacct => "sacct",
            Self::Swf => "swf",
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
        }
    }

    /// By [`Self::name`].
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Columns that a header of this format has; none where there is no header.
    const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Philly => philly::COLUMNS,
            Self::ElasticFlow => elasticflow::COLUMNS,
            Self::Helios => helios::COLUMNS,
            Self::Acme => acme::COLUMNS,
            Self::Openb => openb::COLUMNS,
            Self::Muri => muri::COLUMNS,
            Self::Tiresias => tiresias::COLUMNS,
            Self::Chronus => chronus::COLUMNS,
            Self::Pollux => pollux::COLUMNS,
            Self::Sacct => sacct::COLUMNS,
            Self::Csv => own::NEEDED,
            Self::Pai | Self::Gavel | Self::Shockwave | Self::Swf | Self::Jsonl => &[],
        }
    }

    /// The format of a file by its name and what it begins with; none where neither tells. The first whole line is looked
    /// at, so some thousand bytes are enough.
    #[must_use]
    pub fn guess(file: &str, first: &[u8]) -> Option<Self> {
        let line = first_line(first);
        let by_name = || match file.rsplit_once('.')?.1 {
            "swf" => Some(Self::Swf),
            "jsonl" | "ndjson" => Some(Self::Jsonl),
            _ => None,
        };
        if line.starts_with('{') {
            return Some(Self::Jsonl);
        }
        if line.starts_with(';') {
            return Some(Self::Swf);
        }
        if line.contains('\t') {
            return match line.split('\t').count() {
                shockwave::WIDTH => Some(Self::Shockwave),
                count if gavel::columns(count).is_some() => Some(Self::Gavel),
                _ => by_name(),
            };
        }
        let separator = if line.contains('|') && !line.contains(',') { '|' } else { ',' };
        let header: Vec<&str> = line.split(separator).map(|cell| cell.trim().trim_matches('"')).collect();
        let has = |name: &&str| name.split('|').any(|name| header.contains(&name));
        let is_whole = |format: &Self| !format.columns().is_empty() && format.columns().iter().all(has);
        // The most telling header wins: Muri has all columns of Tiresias and more.
        let by_header = Self::ALL.into_iter().filter(is_whole).max_by_key(|format| format.columns().len());
        let is_pai = || pai::is_row(&header).then_some(Self::Pai);
        let is_swf = || swf::is_row(&line).then_some(Self::Swf);
        by_header.or_else(is_pai).or_else(is_swf).or_else(by_name)
    }

    /// Reads a whole file of this format.
    ///
    /// # Errors
    /// When the file is too large, its header is another format's, or no row of it is a job.
    pub fn read(self, text: &[u8]) -> Result<Trace, TraceError> {
        if text.len() > BYTES_MAX {
            return Err(TraceError::TooLong { bytes: text.len() });
        }
        match self {
            Self::Philly => philly::read(text),
            Self::ElasticFlow => elasticflow::read(text),
            Self::Helios => helios::read(text),
            Self::Acme => acme::read(text),
            Self::Pai => pai::read(text, None),
            Self::Openb => openb::read(text),
            Self::Muri => muri::read(text),
            Self::Tiresias => tiresias::read(text),
            Self::Chronus => chronus::read(text),
            Self::Gavel => gavel::read(text),
            Self::Shockwave => shockwave::read(text),
            Self::Pollux => pollux::read(text),
            Self::Sacct => sacct::read(text),
            Self::Swf => swf::read(text),
            Self::Csv => own::read_csv(text),
            Self::Jsonl => own::read_jsonl(text),
        }
    }

    /// Reads a whole file in the format that its name and beginning tell.
    ///
    /// # Errors
    /// Also when no format is recognised.
    pub fn read_any(file: &str, text: &[u8]) -> Result<(Self, Trace), TraceError> {
        let unknown = || TraceError::Unknown { first: shown(&first_line(text)) };
        let format = Self::guess(file, text).ok_or_else(unknown)?;
        Ok((format, format.read(text)?))
    }
}

/// The first line that is not empty, as far as a row may be long.
pub(super) fn first_line(text: &[u8]) -> String {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii_start();
    let end = usize::try_from(LINE_BYTES_MAX).unwrap_or(usize::MAX).min(text.len());
    let line = text.get(..end).unwrap_or_default().split(|byte| matches!(byte, b'\n' | b'\r')).next();
    String::from_utf8_lossy(line.unwrap_or_default()).into_owned()
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "row {}: {field}: {}", self.row, self.problem),
            None => write!(f, "row {}: {}", self.row, self.problem),
        }
    }
}
