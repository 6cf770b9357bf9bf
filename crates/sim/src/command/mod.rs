//! What a user types after `phalanx sim`, and after `phalanx-sim`: one reading and one doing of both. The terminal and the
//! clock are the [`Host`]'s, and files where it has others than those that there are.

mod compare;
mod files;
mod hang;
mod offer;
mod paper;
#[cfg(not(target_arch = "wasm32"))]
mod past;
mod studies;
mod swarms;
mod traces;
mod whatif;
mod words;

use jiff::tz::TimeZone;
use serde::Serialize;

use crate::report::Progress;
pub use offer::{Choice, Offer, offers};
use paper::Paper;

/// What the commands need from around them.
pub trait Host {
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
        Err("no daemon is asked here: `phalanx snapshot FILE` asks it, and its file can be given".to_owned())
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

    /// In one line, as it is kept in files.
    #[cfg(not(target_arch = "wasm32"))]
    fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

/// Why a command came to no good end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// It was typed wrong.
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

/// The commands that are carried out here.
pub const COMMANDS: &str =
    "  run --trace FILE --policy NAME     jobs of a trace on a modelled cluster; a table, a page and JSON
  compare --trace FILE               the same under several policies, side by side
  policies                           what they can be compared under
  study NAME                         a question about schedulers, answered on declared inputs
  trace FILE                         what a trace of jobs holds, and parts of it
  generate                           jobs drawn from distributions
  swarm, rerun FILE                  random work, clusters and faults; a failing run, made short, again
  whatif SNAPSHOT                    who would start, wait or be evicted in a live system, if it were otherwise
  replay JOURNAL_DIR                 what happened to a live system, decision by decision";

/// The same, one by one.
#[cfg(not(target_arch = "wasm32"))]
const VERBS: [&str; 10] =
    ["run", "compare", "policies", "study", "trace", "generate", "swarm", "rerun", "whatif", "replay"];
#[cfg(target_arch = "wasm32")]
const VERBS: [&str; 9] =
    ["run", "compare", "policies", "study", "trace", "generate", "swarm", "rerun", "whatif"];

fn help_of(verb: &str) -> Option<String> {
    Some(match verb {
        "run" => compare::help("run", "--policy NAME     the policy; without it phalanx"),
        "compare" => compare::help("compare", &compare::policies_line()),
        "policies" => "usage: policies\n\nA line for each policy.\n".to_owned(),
        "study" => studies::help(),
        "trace" => traces::trace_help(),
        "generate" => traces::generate_help(),
        "swarm" => swarms::SWARM_HELP.to_owned(),
        "rerun" => swarms::RERUN_HELP.to_owned(),
        "whatif" => whatif::HELP.to_owned(),
        #[cfg(not(target_arch = "wasm32"))]
        "replay" => past::HELP.to_owned(),
        _ => return None,
    })
}

/// Carries out a command; `None` when it is none of [`COMMANDS`].
///
/// # Errors
/// What is wrong with the words or the files, or what a run found.
pub fn run(words: &[&str], host: &mut dyn Host) -> Option<Result<(), CommandError>> {
    let (verb, options) = words.split_first()?;
    if options.iter().any(|word| matches!(*word, "--help" | "-h")) {
        return help_of(verb).map(|text| host.print(text.as_bytes()).map_err(CommandError::Input));
    }
    Some(match *verb {
        "run" => compare::run(options, host),
        "compare" => compare::compare(options, host),
        "policies" => compare::policies(options, host),
        "study" => studies::study(options, host),
        "trace" => traces::trace(options, host),
        "generate" => traces::generate(options, host),
        "whatif" => whatif::whatif(options, host),
        "swarm" => swarms::swarm(options, host),
        "rerun" => swarms::rerun(options, host),
        #[cfg(not(target_arch = "wasm32"))]
        "replay" => past::replay(options, host),
        _ => return None,
    })
}
