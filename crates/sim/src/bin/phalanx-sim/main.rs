//! `phalanx-sim`: the commands of `phalanx sim`, and scenarios.

#![forbid(unsafe_code)]

mod host;

use std::path::Path;
use std::process::ExitCode;

use phalanx_sim::command::{self, COMMANDS, CommandError};
use phalanx_sim::run_scenario;

use host::Terminal;

const CORRECTNESS: u8 = 1;
const USAGE_CODE: u8 = 2;
const LIVENESS: u8 = 3;
const CRASH: u8 = 4;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let code = match words.as_slice() {
        ["scenario", file] => scenario(Path::new(file)),
        ["--help" | "-h"] => {
            print!("{}", help());
            0
        }
        words => match command::run(words, &mut Terminal::default()) {
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

exit codes: 0 good, 1 correctness broken, 2 wrong usage or unreadable input, 3 liveness broken, 4 crash
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
        CommandError::Input(_) => USAGE_CODE,
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
