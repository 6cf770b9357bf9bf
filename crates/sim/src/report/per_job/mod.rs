//! What became of every job under every policy: a row each, for whoever goes on with other tools.

#[cfg(not(target_arch = "wasm32"))]
mod parquet;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::Report;
use crate::replay::{JobOutcome, WHOLE_MILLI};

/// How the rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerJob {
    /// With a header.
    Csv,
    /// An object in each line.
    Jsonl,
    /// Columns of UTF-8 and of signed 64-bit numbers, uncompressed.
    #[cfg(not(target_arch = "wasm32"))]
    Parquet,
}

/// A job under a policy.
#[derive(Clone, Copy)]
struct Row<'a> {
    policy: &'a str,
    job: &'a JobOutcome,
}

/// What a column has of a row; what did not happen is absent.
#[derive(Clone, Copy)]
enum Column {
    Text { is_always_there: bool, of: for<'a> fn(&Row<'a>) -> Option<&'a str> },
    Number { is_always_there: bool, of: fn(&JobOutcome) -> Option<u64> },
}

const fn word(of: for<'a> fn(&Row<'a>) -> Option<&'a str>) -> Column {
    Column::Text { is_always_there: true, of }
}

const fn number(of: fn(&JobOutcome) -> Option<u64>) -> Column {
    Column::Number { is_always_there: true, of }
}

const fn maybe(of: fn(&JobOutcome) -> Option<u64>) -> Column {
    Column::Number { is_always_there: false, of }
}

/// Times are ms since the start of the trace, or ms.
const COLUMNS: [(&str, Column); 18] = [
    ("policy", word(|row| Some(row.policy))),
    ("job", word(|row| Some(&row.job.name))),
    ("queue", Column::Text { is_always_there: false, of: |row| row.job.queue.as_deref() }),
    ("gpus", number(|job| Some(job.gpus.into()))),
    // Of each of them, in thousandths.
    ("gpu_milli", number(|job| Some(job.share_milli.unwrap_or(WHOLE_MILLI).into()))),
    ("ended", word(|row| Some(ended(row.job)))),
    ("submit_ms", number(|job| Some(job.submit_ms))),
    ("first_start_ms", maybe(|job| job.first_start_ms)),
    ("end_ms", maybe(|job| job.end_ms.or(job.killed_ms))),
    ("completion_ms", maybe(JobOutcome::completion_ms)),
    ("waited_ms", maybe(JobOutcome::waited_ms)),
    ("held_gpu_ms", number(|job| Some(job.held_gpu_us / u64::from(WHOLE_MILLI)))),
    ("starting_ms", number(|job| Some(job.starting_ms))),
    ("starts", number(|job| Some(job.starts.into()))),
    ("preemptions", number(|job| Some(job.preemptions.into()))),
    ("moves", number(|job| Some(job.moves.into()))),
    // Domains right above the nodes of its last start, and the fewest that would have held it then.
    ("leaves", number(|job| Some(job.leaves.into()))),
    ("leaves_least", number(|job| Some(job.leaves_least.into()))),
];

/// `completed`, `killed` at its time limit, or `left`: the replay was over before.
const fn ended(job: &JobOutcome) -> &'static str {
    match (job.end_ms, job.killed_ms) {
        (Some(_), _) => "completed",
        (None, Some(_)) => "killed",
        (None, None) => "left",
    }
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(COLUMNS.len()))?;
        for (name, column) in &COLUMNS {
            match column {
                Column::Text { of, .. } => map.serialize_entry(name, &of(self))?,
                Column::Number { of, .. } => map.serialize_entry(name, &of(self.job))?,
            }
        }
        map.end()
    }
}

impl PerJob {
    /// With the file, by the end of its name.
    ///
    /// # Errors
    /// When it is none of the formats.
    pub fn of_file(file: &str) -> Result<(String, Self), String> {
        let format = match file.rsplit_once('.').map(|(_, end)| end) {
            Some("csv") => Self::Csv,
            Some("jsonl" | "ndjson") => Self::Jsonl,
            #[cfg(not(target_arch = "wasm32"))]
            Some("parquet") => Self::Parquet,
            _ => return Err("expected a name that ends in .csv, .jsonl or .parquet".to_owned()),
        };
        Ok((file.to_owned(), format))
    }

    /// The rows of a report that kept its jobs, by policy and then in the order of submission.
    ///
    /// # Errors
    /// When a number is too large for the format.
    pub fn bytes(self, report: &Report) -> Result<Vec<u8>, String> {
        let rows = report.jobs.iter().flat_map(|(policy, jobs)| jobs.iter().map(|job| Row { policy, job }));
        match self {
            Self::Jsonl => rows.into_iter().try_fold(Vec::new(), |mut all, row| {
                serde_json::to_writer(&mut all, &row).map_err(|error| error.to_string())?;
                all.push(b'\n');
                Ok(all)
            }),
            Self::Csv => csv(rows).map_err(|error| error.to_string()),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Parquet => parquet::bytes(&rows.collect::<Vec<_>>()).map_err(|error| error.to_string()),
        }
    }
}

fn csv<'a>(rows: impl Iterator<Item = Row<'a>>) -> Result<Vec<u8>, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS.iter().map(|(name, _)| *name))?;
    for row in rows {
        let field = |(_, column): &(&str, Column)| match column {
            Column::Text { of, .. } => of(&row).unwrap_or_default().to_owned(),
            Column::Number { of, .. } => of(row.job).map(|number| number.to_string()).unwrap_or_default(),
        };
        writer.write_record(COLUMNS.iter().map(field))?;
    }
    writer.into_inner().map_err(|error| error.into_error().into())
}
