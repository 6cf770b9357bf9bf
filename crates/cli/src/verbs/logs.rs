//! The output of a job.

use std::io;
use std::process::ExitCode;

use owo_colors::OwoColorize as _;
use owo_colors::{AnsiColors, Style};
use phalanx_local::client;
use phalanx_local::protocol::{Answer, GangView, JobRef, JobView, VERSION, Verb as Ask};

use super::Session;
use crate::args::Logs;
use crate::failure::Failure;
use crate::output::try_print;

pub(super) fn logs(session: &Session, logs: &Logs) -> Result<ExitCode, Failure> {
    let job = JobRef::parse(&logs.job);
    let Answer::Job(view) = session.ask(Ask::Get { job })? else {
        return Err(Failure::unexpected());
    };
    // Asked for by number from here on: the name may come to mean a newer job.
    let job = JobRef::Id(view.id);
    let has_prefix = logs.rank.is_none() && ranks(&view) > 1;
    let verb =
        Ask::Logs { job, rank: logs.rank, attempt: logs.attempt, tail: logs.tail, follow: logs.follow };
    let mut lines = 0_u64;
    for answer in client::ask(&session.paths.socket(), verb)? {
        let Answer::Log { rank, attempt, line } = answer? else { return Err(Failure::unexpected()) };
        let text = if session.out.format.is_document() {
            // One document per line: a stream has no end to wait for.
            let body = serde_json::json!({ "rank": rank, "attempt": attempt, "line": line });
            format!("{}\n", serde_json::json!({ "apiVersion": VERSION, "kind": "Log", "log": body }))
        } else {
            line_of(rank, &line, has_prefix)
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

/// A line of the program, as it is; with a coloured rank before it where there are several.
pub(super) fn line_of(rank: u32, line: &str, has_prefix: bool) -> String {
    const COLORS: [AnsiColors; 6] = [
        AnsiColors::Cyan,
        AnsiColors::Green,
        AnsiColors::Yellow,
        AnsiColors::Magenta,
        AnsiColors::Blue,
        AnsiColors::BrightBlack,
    ];
    if !has_prefix {
        return format!("{line}\n");
    }
    let at = usize::try_from(rank).unwrap_or(0) % COLORS.len();
    let color = COLORS.get(at).copied().unwrap_or(AnsiColors::Default);
    format!("{} {line}\n", format!("[{rank}]").style(Style::new().color(color)))
}
