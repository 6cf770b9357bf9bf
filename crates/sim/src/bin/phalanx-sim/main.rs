//! `phalanx-sim`: the commands of `phalanx sim`, and scenarios.

#![forbid(unsafe_code)]

mod host;

use std::path::Path;
use std::process::ExitCode;

use phalanx_sim::command::{self, COMMANDS, CommandError};
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

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let code = match words.as_slice() {
        ["scenario", file] => scenario(Path::new(file)),
        ["--help" | "-h"] => {
            print!("{}", help());
            0
        }
        words => match command::run(words, &mut Terminal::new()) {
            Some(Ok(())) => 0,
            Some(Err(error)) => refuse(&error),
            None => refuse(&CommandError::Usage("a command is missing".to_owned())),
        },
    };
    ExitCode::from(code)
}

fn help() -> String {
    format!(
        "\
usage: phalanx-sim COMMAND [options]; `phalanx-sim COMMAND --help` tells the options

{COMMANDS}
  scenario FILE                      a scenario; prints what happened

exit codes: 0 good, 1 a crash, 2 an invariant or an expectation is broken, 3 no progress,
            64 wrong usage, 66 a file that cannot be read or written
"
    )
}

fn refuse(error: &CommandError) -> u8 {
    eprintln!("phalanx-sim: {error}");
    match error {
        CommandError::Usage(_) => {
            eprint!("{}", help());
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
