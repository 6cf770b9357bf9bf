//! `phalanx-sim`: the seeded swarm, scenarios, the replay of journals, and traces.

#![forbid(unsafe_code)]

mod swarm;
mod trace;

use std::path::Path;
use std::process::ExitCode;

use phalanx_sim::run_scenario;

const USAGE: &str = "\
usage: phalanx-sim swarm [options]               random work, clusters and faults
       phalanx-sim rerun FILE                    a failing run of the swarm, made short, again
       phalanx-sim swarm --help                  the options of both, and their exit codes
       phalanx-sim run FILE                      a scenario; prints what happened
       phalanx-sim replay JOURNAL_DIR            every recorded step is decided again, and must be the same
       phalanx-sim trace FILE [options]          what a trace of jobs holds, and parts of it
       phalanx-sim generate [options]            jobs drawn from distributions
       phalanx-sim trace --help                  the options of both

exit codes of the others: 0 good, 1 not as expected, 2 wrong usage or unreadable input";

const CORRECTNESS: u8 = 1;
const USAGE_CODE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let code = match words.as_slice() {
        ["swarm", "--help" | "-h"] => {
            println!("{}", swarm::help());
            0
        }
        ["swarm", options @ ..] => swarm::swarms(options),
        ["rerun", file] => swarm::rerun(Path::new(file)),
        ["run", file] => run(Path::new(file)),
        ["replay", dir] => replay::replay(Path::new(dir)),
        ["trace" | "generate", "--help" | "-h"] => {
            println!("{}", trace::help());
            0
        }
        ["trace", file, options @ ..] => trace::trace(file, options),
        ["generate", options @ ..] => trace::generate(options),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            0
        }
        _ => usage("a command is missing"),
    };
    ExitCode::from(code)
}

fn usage(what: impl std::fmt::Display) -> u8 {
    eprintln!("phalanx-sim: {what}\n{USAGE}");
    USAGE_CODE
}

fn run(path: &Path) -> u8 {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("phalanx-sim: cannot read {}: {error}", path.display());
            return USAGE_CODE;
        }
    };
    match run_scenario(&text) {
        Ok(output) => {
            print!("{output}");
            0
        }
        Err(error) => {
            print!("{}", error.output);
            eprintln!("{}: {error}", path.display());
            CORRECTNESS
        }
    }
}

/// Files are read here and not in the library, which knows none.
#[cfg(not(target_arch = "wasm32"))]
mod replay {
    use std::path::Path;

    use phalanx_engine::{Config, Engine, VERSION};
    use phalanx_journal::{JournalError, Record, read, segments};
    use phalanx_model::Outcome;

    use super::{CORRECTNESS, USAGE_CODE};

    pub(super) fn replay(dir: &Path) -> u8 {
        match replay_all(dir) {
            Ok(Replayed { steps: 0, .. }) => {
                eprintln!("phalanx-sim: {} holds no step of version {VERSION}", dir.display());
                USAGE_CODE
            }
            Ok(Replayed { steps, differing: 0 }) => {
                println!("{}: all {steps} steps are decided as they were", dir.display());
                0
            }
            Ok(Replayed { steps, differing }) => {
                eprintln!("{}: {differing} of {steps} steps are decided otherwise", dir.display());
                CORRECTNESS
            }
            Err(error) => {
                eprintln!("phalanx-sim: {error}");
                USAGE_CODE
            }
        }
    }

    /// Over all segments: steps with recorded decisions, and those that are decided otherwise now.
    #[derive(Default)]
    struct Replayed {
        steps: u64,
        differing: u64,
    }

    fn replay_all(dir: &Path) -> Result<Replayed, JournalError> {
        let mut replayed = Replayed::default();
        for segment in segments(dir)? {
            let (header, records, torn) = read(&segment.path)?;
            let path = segment.path.display();
            if let Some(torn) = torn {
                println!("{path}: ends in an incomplete step: {torn:?}");
            }
            if header.engine != VERSION {
                println!("{path}: written by version {}, skipped by {VERSION}", header.engine);
                continue;
            }
            let mut engine = Engine::new(header.epoch, Config::default());
            let mut out = Outcome::default();
            for record in records {
                match record {
                    Record::Facts { now, inputs, .. } => {
                        let _ = engine.step(now, &inputs, &mut out);
                    }
                    Record::Decisions { seq, effects, changes } => {
                        replayed.steps += 1;
                        if out.effects != effects || out.changes != changes {
                            println!("{path}: step {seq} is decided otherwise");
                            println!("  then {effects:?} {changes:?}");
                            println!("  now  {:?} {:?}", out.effects, out.changes);
                            replayed.differing += 1;
                        }
                    }
                }
            }
        }
        Ok(replayed)
    }
}

#[cfg(target_arch = "wasm32")]
mod replay {
    pub(super) fn replay(_: &std::path::Path) -> u8 {
        eprintln!("phalanx-sim: there are no files here");
        super::USAGE_CODE
    }
}
