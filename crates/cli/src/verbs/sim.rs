//! `phalanx sim`: the simulator's commands; files, the terminal and the clock are lent to them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use phalanx_sim::command::{self, COMMANDS, CommandError, Host};
use phalanx_sim::report::Progress;

use super::Session;
use crate::failure::Failure;
use crate::output;

pub(super) fn sim(session: &Session, words: &[String]) -> Result<ExitCode, Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if matches!(words.as_slice(), [] | ["--help" | "-h" | "help"]) {
        output::print(&format!("usage: phalanx sim COMMAND [options]\n\n{COMMANDS}\n\n{HINT}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut terminal = Terminal { session, bar: None, begin: Instant::now() };
    let unknown = || Failure::usage(format!("there is no command {:?}", words.join(" ")), HINT);
    command::run(&words, &mut terminal).ok_or_else(unknown)??;
    Ok(ExitCode::SUCCESS)
}

const HINT: &str =
    "`phalanx sim --help` lists the commands, `phalanx sim COMMAND --help` tells their options";

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
    bar: Option<ProgressBar>,
    begin: Instant,
}

impl Host for Terminal<'_> {
    fn read(&mut self, file: &str, bytes_max: u64) -> Result<Vec<u8>, String> {
        let mut text = Vec::new();
        let read = match file {
            "-" => io::stdin().lock().take(bytes_max).read_to_end(&mut text),
            _ => File::open(file).and_then(|file| file.take(bytes_max).read_to_end(&mut text)),
        };
        read.map(|_| text).map_err(|error| format!("cannot read {file}: {error}"))
    }

    fn write(&mut self, file: &str, text: &str) -> Result<(), String> {
        std::fs::write(file, text).map_err(|error| format!("cannot write {file}: {error}"))
    }

    fn print(&mut self, text: &[u8]) -> Result<(), String> {
        let mut out = io::stdout().lock();
        match out.write_all(text).and_then(|()| out.flush()) {
            // A reader that went away is no error.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(format!("cannot write to standard output: {error}"))
            }
            _ => Ok(()),
        }
    }

    fn segments(&mut self, dir: &str) -> Result<Vec<String>, String> {
        let segments = phalanx_journal::segments(Path::new(dir)).map_err(|error| error.to_string())?;
        Ok(segments.iter().map(|segment| segment.path.display().to_string()).collect())
    }

    fn seconds(&mut self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    fn note(&mut self, text: &str) {
        self.session.out.note(text);
    }

    fn progress(&mut self, progress: Option<Progress<'_>>) {
        let Some(Progress { policy, ended, jobs }) = progress else {
            self.bar.take().inspect(ProgressBar::finish_and_clear);
            return;
        };
        if !self.session.out.has_progress() {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(jobs as u64);
            let style = "{bar:30} {pos} of {len} jobs, {per_sec}, {eta} left  {msg}";
            bar.with_style(
                ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
            )
        });
        if bar.message() != policy {
            bar.set_message(policy.to_owned());
        }
        bar.set_position(ended as u64);
    }
}
