//! The commands of `phalanx sim` and of `phalanx-sim`: the options of each are a structure beside it, which clap reads.
//! The program lends the terminal and the clock as its [`Host`], and files if it has others than the file system.

mod compare;
mod files;
mod hang;
mod paper;
#[cfg(not(target_arch = "wasm32"))]
mod past;
mod studies;
mod swarms;
mod traces;
mod values;
mod whatif;

use clap::{Args, FromArgMatches as _, Subcommand, ValueEnum};
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::report::Progress;
pub use compare::{Compare, Run};
use paper::Paper;
#[cfg(not(target_arch = "wasm32"))]
pub use past::Replay;
pub use studies::Study;
pub use swarms::{Rerun, Swarm};
pub use traces::{Generate, Trace};
pub use whatif::WhatIf;

/// A command with its options.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Replay a trace on a modelled cluster under one policy: a table, a page and JSON
    Run(Box<Run>),
    /// Replay a trace under several policies and compare them
    Compare(Box<Compare>),
    /// List the policies
    Policies,
    /// Answer a question about schedulers on declared inputs
    ///
    /// The simulator answers it on an input file that declares every figure. Without NAME: list the studies.
    Study(Study),
    /// Show what a trace of jobs holds, or print a part of it
    Trace(Box<Trace>),
    /// Draw jobs from distributions and print them as CSV
    Generate(Generate),
    /// Test the engine with random jobs, clusters and faults
    ///
    /// Each run checks every step of the engine, then ends all faults, and checks that all jobs end.
    #[command(after_help = swarms::EXIT_CODES)]
    Swarm(Swarm),
    /// Repeat a failing run from the file that `swarm --shrink` wrote
    Rerun(Rerun),
    /// Predict what a change does to a live system: which gangs start, wait or are preempted
    ///
    /// The production engine continues from a snapshot twice, as it is and with the changes. Without changes: show what
    /// to expect. Nothing is done to any system.
    Whatif(Printed<WhatIf>),
    /// Show what happened to a live system, decision by decision, from its journal
    ///
    /// The journal of a live system goes through the engine again. The output ends with the state at that moment.
    #[cfg(not(target_arch = "wasm32"))]
    Replay(Printed<Replay>),
}

/// A command that prints text for people or one document.
#[derive(Debug, Args)]
pub struct Printed<T: Args> {
    /// Format of the output
    // `phalanx` has a global option with the id `output`, and clap wants one type for each id, so this id is another.
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
    #[command(flatten)]
    pub command: T,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[default]
    Table,
    Json,
    Yaml,
}

impl Command {
    /// Reads the words that follow `phalanx sim`.
    ///
    /// # Errors
    /// What clap says of them, which may be their help.
    pub fn read(words: &[&str]) -> Result<Self, clap::Error> {
        let mut line = Self::augment_subcommands(clap::Command::new("sim").no_binary_name(true));
        Self::from_arg_matches(&line.try_get_matches_from_mut(words)?)
    }

    /// # Errors
    /// What is wrong with the options or the files, or what a run found.
    pub fn run(&self, host: &mut dyn Host) -> Result<(), CommandError> {
        match self {
            Self::Run(run) => run.run(host),
            Self::Compare(compare) => compare.run(host),
            Self::Policies => compare::policies(host),
            Self::Study(study) => study.run(host),
            Self::Trace(trace) => trace.run(host),
            Self::Generate(generate) => generate.run(host),
            Self::Swarm(swarm) => swarm.run(host),
            Self::Rerun(rerun) => rerun.run(host),
            Self::Whatif(Printed { command, format }) => command.run(*format, host),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Replay(Printed { command, format }) => command.run(*format, host),
        }
    }
}

/// What the commands need from the program around them.
pub trait Host {
    /// The command line behind the name of `phalanx`: a report names the command that makes it again.
    fn words(&mut self) -> Vec<String>;

    /// The bytes of a file, at most so many; `-` is standard input.
    ///
    /// # Errors
    /// Why it cannot be read, with its name.
    fn read(&mut self, file: &str, bytes_max: u64) -> Result<Vec<u8>, String> {
        files::read(file, bytes_max)
    }

    /// # Errors
    /// Why it cannot be written, with its name.
    fn write(&mut self, file: &str, bytes: &[u8]) -> Result<(), String> {
        files::write(file, bytes)
    }

    /// To standard output.
    ///
    /// # Errors
    /// Why that is not possible.
    fn print(&mut self, text: &[u8]) -> Result<(), String> {
        files::print(text)
    }

    /// Folder of the journal of the system that runs here.
    ///
    /// # Errors
    /// Why there is none.
    #[cfg(not(target_arch = "wasm32"))]
    fn journal(&mut self) -> Result<String, String> {
        Err("DIR is missing: give the folder of a journal, as in `replay DIR`".to_owned())
    }

    /// The segments of the journal in a folder, oldest first.
    ///
    /// # Errors
    /// Why the folder cannot be read.
    #[cfg(not(target_arch = "wasm32"))]
    fn segments(&mut self, dir: &str) -> Result<Vec<String>, String> {
        files::segments(dir)
    }

    /// The system that runs here, as a snapshot of it is written.
    ///
    /// # Errors
    /// Why there is none.
    fn snapshot(&mut self) -> Result<Vec<u8>, String> {
        Err("--live needs `phalanx sim`, which asks the daemon; give a file that `phalanx snapshot FILE` wrote".to_owned())
    }

    /// Columns of the terminal that is printed to; none where there is no terminal.
    fn width(&mut self) -> Option<usize> {
        None
    }

    /// Where clocks are read.
    fn zone(&mut self) -> TimeZone {
        TimeZone::system()
    }

    /// Of a clock that never goes back.
    fn seconds(&mut self) -> f64;

    /// A remark beside the result.
    fn note(&mut self, text: &str);

    /// How far a long command is; nothing when it is over.
    fn progress(&mut self, progress: Option<Progress<'_>>);
}

impl dyn Host + '_ {
    fn paper(&mut self) -> Paper {
        Paper { width: self.width(), zone: self.zone() }
    }
}

/// Version of documents, as that of the other verbs' documents.
const API_VERSION: &str = "phalanx/v1";

/// One answer as a document.
#[derive(Serialize)]
struct Document<'a, T> {
    #[serde(rename = "apiVersion")]
    api_version: &'a str,
    kind: &'a str,
    #[serde(flatten)]
    body: &'a T,
}

impl<'a, T: Serialize> Document<'a, T> {
    const fn new(kind: &'a str, body: &'a T) -> Self {
        Self { api_version: API_VERSION, kind, body }
    }

    /// For people to read as well. Nothing of ours refuses to be written.
    fn pretty(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// By way of JSON, so that both have the same keys and the same spelling of values.
    fn yaml(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        serde_saphyr::to_string(&value).unwrap_or_default()
    }

    /// In one line, as it is kept in files.
    #[cfg(not(target_arch = "wasm32"))]
    fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// Options do not fit each other or the trace. What clap can refuse alone, it refuses before.
    #[error("{0}")]
    Usage(String),
    /// A file is not what it should be.
    #[error("{0}")]
    Input(String),
    /// A rule that always holds was broken.
    #[error("{0}")]
    Correctness(String),
    /// Work that could run did not.
    #[error("{0}")]
    Liveness(String),
    #[error("{0}")]
    Crash(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> clap::Command {
        Command::augment_subcommands(clap::Command::new("sim"))
    }

    #[test]
    fn the_command_line_is_consistent() {
        line().debug_assert();
    }

    /// A value of each option by what the help calls it.
    fn value(command: &str, arg: &clap::Arg) -> String {
        if let Some(possible) = arg.get_possible_values().first() {
            return possible.get_name().to_owned();
        }
        let name = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
        let value = match (command, name, arg.get_id().as_str()) {
            ("replay", "TIME", _) => "2026-11-20T14:03",
            (_, "TIME", _) => "2h",
            (_, "N" | "K", _) => "3",
            (_, "X", "traffic") => "0.3",
            (_, "X", _) => "1.5",
            (_, "A-B", _) => "1-8",
            (_, "LIST", _) => "1:70,2:10",
            (_, "WHAT", "run") => "pareto:1m:1.1",
            (_, "PATH=VALUE", _) => "half_life=3d",
            (_, "N:DOMAIN", _) => "16:leaf-9",
            _ => "x.csv",
        };
        value.to_owned()
    }

    #[test]
    fn each_option_of_each_command_is_read() {
        for command in line().get_subcommands() {
            let verb = command.get_name();
            for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
                let name = match (arg.get_long(), arg.get_short()) {
                    (Some(long), _) => format!("--{long}"),
                    (None, short) => format!("-{}", short.unwrap()),
                };
                let mut words = vec![verb.to_owned(), name.clone()];
                if arg.get_action().takes_values() {
                    words.push(value(verb, arg));
                }
                let needed = match verb {
                    "run" | "compare" if name != "--trace" => vec!["--trace", "t.csv"],
                    "trace" | "rerun" => vec!["t.csv"],
                    "whatif" if name != "--live" => vec!["now.json"],
                    "study" => vec!["spot"],
                    _ => Vec::new(),
                };
                words.extend(needed.into_iter().map(str::to_owned));
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let read = Command::read(&words);
                assert!(read.is_ok(), "{words:?}: {}", read.unwrap_err());
            }
        }
    }

    #[test]
    fn a_mistyped_command_or_option_is_answered_with_a_similar_one() {
        for (words, similar) in [
            (["wahtif", "now.json"], "whatif"),
            (["swarm", "--crowdde"], "--crowded"),
            (["run", "--polcy=fifo"], "--policy"),
            (["study", "sppot"], "spot"),
        ] {
            let error = Command::read(&words).unwrap_err().to_string();
            assert!(error.contains("similar") && error.contains(similar), "{error}");
        }
    }

    /// Global options of `phalanx` have these ids or names, and other types.
    #[test]
    fn no_option_takes_the_id_of_a_global_option() {
        for command in line().get_subcommands() {
            for arg in command.get_arguments() {
                assert!(!["output", "quiet", "state", "color"].contains(&arg.get_id().as_str()), "{arg:?}");
                assert!(
                    !["quiet", "state", "color"].contains(&arg.get_long().unwrap_or_default()),
                    "{arg:?}"
                );
            }
        }
    }
}
