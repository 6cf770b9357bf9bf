//! `phalanx sim`: the simulator's commands; the terminal and the clock are lent to them.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use jiff::tz::TimeZone;
use phalanx_sim::command::{self, Command, CommandError, Host, Printed};
use phalanx_sim::report::Progress;

use phalanx_api::protocol::{Answer, Verb as Ask};
use phalanx_model::{Input, Snapshot};
use serde_json::json;

use super::{Session, kubernetes};
use crate::args::{Reach, SimVerb};
use crate::failure::Failure;
use crate::output::{self, Document, Format, Output};

pub(super) fn sim(session: &Session, SimVerb { mut command, cluster }: SimVerb) -> Result<ExitCode, Failure> {
    // Before the command `-o` is meant for those that print documents.
    let printed = match &mut command {
        Command::Whatif(Printed { format, .. }) | Command::Replay(Printed { format, .. }) => Some(format),
        _ => None,
    };
    if let (Some(printed), Some(format)) = (printed, document(session)) {
        *printed = format;
    }
    run(session, &command, cluster, "`phalanx sim COMMAND --help` lists the options")
}

/// The same as `sim replay`.
pub(super) fn replay(session: &Session, command: command::Replay) -> Result<ExitCode, Failure> {
    let command = Command::Replay(Printed { command, format: document(session).unwrap_or_default() });
    run(session, &command, None, "`phalanx replay --help` lists the options")
}

/// The document that `-o` asks for.
const fn document(session: &Session) -> Option<command::Format> {
    match session.out.format {
        Format::Json => Some(command::Format::Json),
        Format::Yaml => Some(command::Format::Yaml),
        _ => None,
    }
}

fn run(
    session: &Session,
    command: &Command,
    cluster: Option<Reach>,
    hint: &str,
) -> Result<ExitCode, Failure> {
    let mut terminal = Terminal { session, cluster, bar: None, begin: Instant::now() };
    command.run(&mut terminal).map_err(|error| failure(&error, hint))?;
    Ok(ExitCode::SUCCESS)
}

/// To a file, or to standard output.
pub(super) fn snapshot(session: &Session, file: Option<&Path>) -> Result<ExitCode, Failure> {
    write(&session.out, &ask(session)?, file)
}

/// The same of a snapshot that is there.
pub(super) fn write(out: &Output, snapshot: &Snapshot, file: Option<&Path>) -> Result<ExitCode, Failure> {
    let line = Document::new("Snapshot", snapshot).line()?;
    let Some(file) = file else {
        output::print(&line)?;
        return Ok(ExitCode::SUCCESS);
    };
    std::fs::write(file, &line).map_err(|e| Failure::file("write", file, &e))?;
    let count = |is_one: fn(&Input) -> bool| snapshot.facts.iter().filter(|fact| is_one(fact)).count();
    let nodes = count(|fact| matches!(fact, Input::NodeObserved { .. }));
    let jobs = count(|fact| matches!(fact, Input::JobObserved { .. }));
    let detail = format!("{nodes} nodes and {jobs} jobs are in {}", file.display());
    let body = json!({ "file": file, "nodes": nodes, "jobs": jobs, "taken_at": snapshot.taken_at });
    out.show(
        "SnapshotWritten",
        body,
        |page| if page.quiet { String::new() } else { detail + "\n" },
        Vec::new,
    )?;
    Ok(ExitCode::SUCCESS)
}

fn ask(session: &Session) -> Result<Snapshot, Failure> {
    match session.ask(Ask::Snapshot)? {
        Answer::Snapshot(snapshot) => Ok(*snapshot),
        _ => Err(Failure::unexpected()),
    }
}

fn failure(error: &CommandError, hint: &str) -> Failure {
    let text = error.to_string();
    let (message, more) = text.split_once('\n').unwrap_or((&text, ""));
    let failure = match error {
        CommandError::Usage(_) => Failure::usage(message, hint),
        CommandError::Input(_) => Failure::usage(message, ""),
        // As the help of `swarm` has them.
        CommandError::Crash(_) => Failure { exit: 1, ..Failure::internal(message) },
        CommandError::Correctness(_) => Failure { exit: 2, ..Failure::internal(message) },
        CommandError::Liveness(_) => Failure { exit: 3, ..Failure::internal(message) },
    };
    Failure { excerpt: more.to_owned(), ..failure }
}

struct Terminal<'a> {
    session: &'a Session,
    /// Whom `--live` asks, where that is not this machine.
    cluster: Option<Reach>,
    bar: Option<ProgressBar>,
    begin: Instant,
}

impl Host for Terminal<'_> {
    fn words(&mut self) -> Vec<String> {
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
    }

    fn journal(&mut self) -> Result<String, String> {
        Ok(self.session.paths.journal().display().to_string())
    }

    fn snapshot(&mut self) -> Result<Vec<u8>, String> {
        let taken = match &self.cluster {
            Some(reach) => kubernetes::snapshot(&self.session.out, reach),
            None => ask(self.session),
        };
        let line = taken.and_then(|snapshot| Document::new("Snapshot", snapshot).line());
        line.map(String::into_bytes).map_err(|Failure { message, hint, .. }| format!("{message}; {hint}"))
    }

    fn width(&mut self) -> Option<usize> {
        self.session.out.page.width.map(usize::from)
    }

    fn zone(&mut self) -> TimeZone {
        self.session.out.page.tz.clone()
    }

    fn seconds(&mut self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    fn note(&mut self, text: &str) {
        self.session.out.note(text);
    }

    fn progress(&mut self, progress: Option<Progress<'_>>) {
        let Some(Progress { what, done, all, unit }) = progress else {
            self.bar.take().inspect(ProgressBar::finish_and_clear);
            return;
        };
        if !self.session.out.has_progress() {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(all);
            let style = format!("{{bar:30}} {{pos}} of {{len}} {unit}, {{per_sec}}, {{eta}} left  {{msg}}");
            bar.with_style(
                ProgressStyle::with_template(&style).unwrap_or_else(|_| ProgressStyle::default_bar()),
            )
        });
        if bar.message() != what {
            bar.set_message(what.to_owned());
        }
        bar.set_position(done);
    }
}
