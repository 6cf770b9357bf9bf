//! What became of every job under every policy: a row each, for whoever goes on with other tools.

use serde::Serialize;

use super::Report;
use crate::replay::JobOutcome;

/// How the rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerJob {
    /// With a header.
    Csv,
    /// An object in each line.
    Jsonl,
}

/// Times are ms since the start of the trace, or ms; what did not happen is absent.
#[derive(Serialize)]
struct Row<'a> {
    policy: &'a str,
    job: &'a str,
    queue: Option<&'a str>,
    gpus: u32,
    /// `completed`, `killed` at its time limit, or `left`: the replay was over before.
    ended: &'static str,
    submit_ms: u64,
    first_start_ms: Option<u64>,
    end_ms: Option<u64>,
    completion_ms: Option<u64>,
    waited_ms: Option<u64>,
    held_gpu_ms: u64,
    starting_ms: u64,
    starts: u32,
    preemptions: u32,
    moves: u32,
    /// Domains right above the nodes of its last start, and the fewest that would have held it then.
    leaves: u32,
    leaves_least: u32,
}

impl<'a> Row<'a> {
    fn of(policy: &'a str, job: &'a JobOutcome) -> Self {
        let ended = match (job.end_ms, job.killed_ms) {
            (Some(_), _) => "completed",
            (None, Some(_)) => "killed",
            (None, None) => "left",
        };
        Self {
            policy,
            job: &job.name,
            queue: job.queue.as_deref(),
            gpus: job.gpus,
            ended,
            submit_ms: job.submit_ms,
            first_start_ms: job.first_start_ms,
            end_ms: job.end_ms.or(job.killed_ms),
            completion_ms: job.completion_ms(),
            waited_ms: job.waited_ms(),
            held_gpu_ms: job.held_gpu_ms,
            starting_ms: job.starting_ms,
            starts: job.starts,
            preemptions: job.preemptions,
            moves: job.moves,
            leaves: job.leaves,
            leaves_least: job.leaves_least,
        }
    }
}

impl PerJob {
    /// With the file, by the end of its name.
    ///
    /// # Errors
    /// When it ends in neither `.csv` nor `.jsonl`.
    pub fn of_file(file: &str) -> Result<(&str, Self), String> {
        match file.rsplit_once('.').map(|(_, end)| end) {
            Some("csv") => Ok((file, Self::Csv)),
            Some("jsonl" | "ndjson") => Ok((file, Self::Jsonl)),
            _ => Err(format!("--per-job: {file:?} ends in neither .csv nor .jsonl")),
        }
    }

    /// The rows of a report that kept its jobs, by policy and then in the order of submission.
    #[must_use]
    pub fn text(self, report: &Report) -> String {
        let rows = report.jobs.iter().flat_map(|(policy, jobs)| jobs.iter().map(|job| Row::of(policy, job)));
        match self {
            Self::Jsonl => rows
                .filter_map(|row| serde_json::to_string(&row).ok())
                .fold(String::new(), |text, row| text + &row + "\n"),
            Self::Csv => {
                let mut writer = csv::Writer::from_writer(Vec::new());
                // Writing to memory does not fail.
                rows.for_each(|row| drop(writer.serialize(row)));
                writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
            }
        }
    }
}
