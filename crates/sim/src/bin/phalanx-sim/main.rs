//! `phalanx-sim`: the commands of `phalanx sim`, and scenarios.

#![forbid(unsafe_code)]

mod host;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueHint};
use phalanx_sim::command::{Command, CommandError};
use phalanx_sim::run_scenario;

use host::Terminal;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CRASH: u8 = 1;
const CORRECTNESS: u8 = 2;
const LIVENESS: u8 = 3;
/// As `sysexits.h` has them: wrong usage, and input that cannot be read.
const USAGE_CODE: u8 = 64;
const NO_INPUT: u8 = 66;

const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   the engine crashed
  2   an invariant or an expectation is broken
  3   no progress
  64  wrong usage
  66  a file cannot be read or written";

/// Replay recorded jobs on a modelled cluster, compare policies, look for faults
#[derive(Debug, Parser)]
#[command(name = "phalanx-sim", version, after_help = EXIT_CODES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    #[command(flatten)]
    Command(Command),
    /// Run a scenario and print what happened
    Scenario {
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    let code = match Cli::try_parse() {
        Ok(Cli { verb: Verb::Scenario { file } }) => scenario(&file),
        Ok(Cli { verb: Verb::Command(command) }) => match command.run(&mut Terminal::new()) {
            Ok(()) => 0,
            Err(error) => refuse(&error),
        },
        Err(error) => {
            // Nobody is left to tell if that fails.
            let _ = error.print();
            if error.use_stderr() { USAGE_CODE } else { 0 }
        }
    };
    ExitCode::from(code)
}

fn refuse(error: &CommandError) -> u8 {
    eprintln!("phalanx-sim: {error}");
    match error {
        CommandError::Usage(_) => {
            eprintln!("\nFor more information, try '--help'.");
            USAGE_CODE
        }
        CommandError::Input(_) => NO_INPUT,
        CommandError::Correctness(_) => CORRECTNESS,
        CommandError::Liveness(_) => LIVENESS,
        CommandError::Crash(_) => CRASH,
    }
}

fn scenario(path: &Path) -> u8 {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("phalanx-sim: cannot read {}: {error}", path.display());
            return NO_INPUT;
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
