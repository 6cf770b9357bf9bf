//! `phalanx sim`: the simulator's commands; the terminal and the clock are lent to them.

use std::process::ExitCode;
use std::time::Instant;

use std::path::Path;

use clap::Parser as _;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::tz::TimeZone;
use phalanx_sim::command::{self, COMMANDS, CommandError, Host};
use phalanx_sim::report::Progress;

use phalanx_api::protocol::{Answer, Verb as Ask};
use phalanx_model::{Input, Snapshot};
use serde_json::json;

use super::{Session, kubernetes};
use crate::args::{OfReach, Reach, Replay, World};
use crate::failure::Failure;
use crate::output::{self, Document, Format, Output};

pub(super) fn sim(session: &Session, words: &[String]) -> Result<ExitCode, Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if matches!(words.as_slice(), [] | ["--help" | "-h" | "help"]) {
        output::print(&format!("usage: phalanx sim COMMAND [options]\n\n{COMMANDS}\n\n{HINT}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    run(session, words)
}

fn run(session: &Session, mut words: Vec<&str>) -> Result<ExitCode, Failure> {
    // Said before the command, it holds for those that print documents.
    if matches!(words.first(), Some(&"whatif" | &"replay")) {
        words.extend(match session.out.format {
            Format::Json => ["-o", "json"].as_slice(),
            Format::Yaml => &["-o", "yaml"],
            _ => &[],
        });
    }
    let cluster = cluster_of(&mut words)?;
    let mut terminal = Terminal { session, cluster, bar: None, begin: Instant::now() };
    let unknown = || Failure::usage(format!("there is no command {:?}", words.join(" ")), HINT);
    command::run(&words, &mut terminal).ok_or_else(unknown)??;
    Ok(ExitCode::SUCCESS)
}

/// The cluster that `--live` is to ask, if it is one. The simulator knows none, so these words are taken out.
fn cluster_of(words: &mut Vec<&str>) -> Result<Option<Reach>, Failure> {
    if words.first() != Some(&"whatif") || !words.contains(&"--live") {
        return Ok(None);
    }
    let mut own = vec!["phalanx"];
    let mut rest = Vec::new();
    let mut left = words.iter().copied();
    while let Some(word) = left.next() {
        let flag = word.split_once('=').map_or(word, |(flag, _)| flag);
        if !matches!(flag, "--to" | "--context") {
            rest.push(word);
            continue;
        }
        own.push(word);
        own.extend((flag == word).then(|| left.next()).flatten());
    }
    let refused = |error: clap::Error| {
        let text = error.render().to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Failure::usage(message, "say --to kubernetes, or --to machine")
    };
    let reach = OfReach::try_parse_from(own).map_err(refused)?.reach;
    *words = rest;
    Ok((reach.to == World::Kubernetes).then_some(reach))
}

/// The same as `sim replay`; without a folder the journal of this daemon.
pub(super) fn replay(session: &Session, asked: &Replay) -> Result<ExitCode, Failure> {
    let Replay { dir, from, until, job, queue, check, snapshot } = asked;
    let shown = |path: &Path| path.display().to_string();
    let dir = shown(&dir.clone().unwrap_or_else(|| session.paths.journal()));
    let snapshot = snapshot.as_deref().map(shown);
    let mut words = vec!["replay", &dir];
    let options =
        [("--from", from), ("--until", until), ("--job", job), ("--queue", queue), ("--snapshot", &snapshot)];
    for (option, value) in options {
        words.extend(value.iter().flat_map(|value| [option, value.as_str()]));
    }
    if *check {
        words.push("--check");
    }
    let own = |failure: Failure| match failure.hint == HINT {
        true => failure.with_hint("`phalanx replay --help` tells the options"),
        false => failure,
    };
    run(session, words).map_err(own)
}

const HINT: &str =
    "`phalanx sim --help` lists the commands, `phalanx sim COMMAND --help` tells their options";

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

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Self {
        let text = error.to_string();
        let (message, more) = text.split_once('\n').unwrap_or((&text, ""));
        let failure = match error {
            CommandError::Usage(_) => Self::usage(message, HINT),
            CommandError::Input(_) => Self::usage(message, ""),
            // As the help of `swarm` has them.
            CommandError::Crash(_) => Self { exit: 1, ..Self::internal(message) },
            CommandError::Correctness(_) => Self { exit: 2, ..Self::internal(message) },
            CommandError::Liveness(_) => Self { exit: 3, ..Self::internal(message) },
        };
        Self { excerpt: more.to_owned(), ..failure }
    }
}

struct Terminal<'a> {
    session: &'a Session,
    /// Whom `--live` asks, where that is not this machine.
    cluster: Option<Reach>,
    bar: Option<ProgressBar>,
    begin: Instant,
}

impl Host for Terminal<'_> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_world_of_a_live_snapshot_is_read_among_the_words_of_the_simulator() {
        let taken = |line: &str| {
            let mut words: Vec<&str> = line.split(' ').collect();
            let reach = cluster_of(&mut words).map(|reach| reach.map(|reach| reach.context));
            (reach.map_err(|failure| failure.message), words.join(" "))
        };
        let of_cluster = "whatif --live --to kubernetes --drain a --context=test";
        assert_eq!(
            taken(of_cluster),
            (Ok(Some(Some("test".to_owned()))), "whatif --live --drain a".to_owned())
        );
        let here = "whatif --live --to=machine --all";
        assert_eq!(taken(here), (Ok(None), "whatif --live --all".to_owned()));
        // Without --live they are the simulator's to refuse.
        let file = "whatif s.json --to kubernetes";
        assert_eq!(taken(file), (Ok(None), file.to_owned()));
        let (refused, _) = taken("whatif --live --to mars");
        assert!(refused.as_ref().is_err_and(|message| message.contains("mars")), "{refused:?}");
    }
}
