//! The output of a job.

use std::io;
use std::process::ExitCode;

use owo_colors::OwoColorize as _;
use owo_colors::{AnsiColors, Style};
use phalanx_api::client;
use phalanx_api::protocol::{Answer, GangView, JobRef, JobView, LogAsk, VERSION, Verb as Ask};

use super::Session;
use super::calendar::past;
use crate::args::Logs;
use crate::failure::Failure;
use crate::output::{now, try_print};

pub(super) fn logs(session: &Session, logs: &Logs) -> Result<ExitCode, Failure> {
    let asked = JobRef::parse(&logs.job);
    let Answer::Job(view) = session.ask(Ask::Get { job: asked.clone() })? else {
        return Err(Failure::unexpected());
    };
    // Asked for by number from here on: the name may come to mean a newer job.
    let (id, tasks) = (view.id, asked.tasks().cloned());
    let prefix = Prefix { task: has_many_tasks(&view), rank: logs.rank.is_none() && ranks(&view) > 1 };
    let job = tasks.map_or(JobRef::Id(id), |tasks| JobRef::Tasks(id, tasks));
    let since = logs.since.as_deref().map(|text| past("--since", text, now())).transpose()?;
    let Logs { rank, attempt, tail, follow, timestamps, .. } = *logs;
    let verb = Ask::Logs { job, ask: LogAsk { rank, attempt, tail, since, follow, timestamps } };
    let mut lines = 0_u64;
    for answer in client::ask(session.server()?, verb)? {
        let Answer::Log { task, rank, attempt, at, line } = answer? else {
            return Err(Failure::unexpected());
        };
        let text = if session.out.format.is_document() {
            // One document per line: a stream has no end to wait for.
            let mut body = serde_json::json!({ "rank": rank, "attempt": attempt, "line": line });
            if let Some(task) = task {
                body["task"] = task.into();
            }
            if let Some(at) = at {
                body["at"] = at.0.into();
            }
            format!("{}\n", serde_json::json!({ "apiVersion": VERSION, "kind": "Log", "log": body }))
        } else {
            let time = at.map_or_else(String::new, |at| format!("{} ", session.out.page.date(at).dimmed()));
            time + &line_of(task, rank, &line, prefix)
        };
        match try_print(&text) {
            Ok(()) => lines += 1,
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            Err(e) => return Err(Failure::unavailable(format!("cannot write to standard output: {e}"), "")),
        }
    }
    if lines == 0 && view.started_at.is_none() && view.ending.is_none() {
        session.out.note(&format!("job {} has not started; `phalanx why {}` says why", view.id, view.id));
    }
    Ok(ExitCode::SUCCESS)
}

/// Ranks of the largest gang.
pub(super) fn ranks(job: &JobView) -> u32 {
    job.gangs.iter().map(GangView::member_count).max().unwrap_or(1)
}

/// Whether lines of several tasks may be read together.
pub(super) fn has_many_tasks(job: &JobView) -> bool {
    let listed = job.gangs.len();
    job.array.as_ref().is_some_and(|array| listed > 1 || listed < 1 && array.tasks > 1)
}

/// What is written before a line.
#[derive(Clone, Copy)]
pub(super) struct Prefix {
    pub(super) task: bool,
    pub(super) rank: bool,
}

/// A line of the program, as it is; with the coloured number of its task, or its rank, before it if there are several.
pub(super) fn line_of(task: Option<u32>, rank: u32, line: &str, prefix: Prefix) -> String {
    const COLORS: [AnsiColors; 6] = [
        AnsiColors::Cyan,
        AnsiColors::Green,
        AnsiColors::Yellow,
        AnsiColors::Magenta,
        AnsiColors::Blue,
        AnsiColors::BrightBlack,
    ];
    let (first, text) = match (task.filter(|_| prefix.task), prefix.rank) {
        (None, false) => return format!("{line}\n"),
        (None, true) => (rank, rank.to_string()),
        (Some(task), false) => (task, format!("task {task}")),
        (Some(task), true) => (task, format!("task {task}/{rank}")),
    };
    let at = usize::try_from(first).unwrap_or(0) % COLORS.len();
    let color = COLORS.get(at).copied().unwrap_or(AnsiColors::Default);
    format!("{} {line}\n", format!("[{text}]").style(Style::new().color(color)))
}
