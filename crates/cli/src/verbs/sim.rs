//! `phalanx sim`: the simulator's commands; the terminal and the clock are lent to them.

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
