//! Everything that must pass before a change goes in, the quick things first, one line per stage.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use crate::cargo::cargo;

/// Tests on control planes that run at the same time: each has some gigabyte of memory.
const CONTROL_PLANES: &str = "4";

/// Runs the stages in order and stops at the first that fails; its own output says why.
pub(crate) fn run(root: &Path) -> ExitCode {
    let begin = Instant::now();
    for (name, mut command) in stages() {
        println!("{name} ...");
        let stage = Instant::now();
        let result = command.current_dir(root).status();
        let seconds = stage.elapsed().as_secs();
        match result {
            Ok(status) if status.success() => println!("{name}: ok in {seconds} s"),
            Ok(status) => {
                eprintln!("{name}: failed after {seconds} s ({status}); repeat it with: {}", show(&command));
                return ExitCode::FAILURE;
            }
            Err(error) => {
                eprintln!("{name}: {} cannot be started: {error}", show(&command));
                return ExitCode::FAILURE;
            }
        }
    }
    println!("all stages passed in {} s", begin.elapsed().as_secs());
    ExitCode::SUCCESS
}

fn stages() -> Vec<(&'static str, Command)> {
    let stage = |arguments: &[&str]| {
        let mut command = cargo();
        command.args(arguments);
        command
    };
    let mut stages = vec![
        ("format", stage(&["fmt", "--all", "--check"])),
        ("lints", stage(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"])),
        ("documentation", own("docs")),
        ("walls", own("walls")),
    ];
    // The same cases every time; `cargo test` by hand tries new ones.
    let seeded = |arguments: &[&str]| {
        let mut command = stage(arguments);
        command
            .env("PROPTEST_RNG_SEED", std::env::var("PROPTEST_RNG_SEED").unwrap_or_else(|_| "1".to_owned()));
        command
    };
    if has_nextest() {
        stages.push(("tests", seeded(&["nextest", "run", "--workspace", "--no-fail-fast"])));
        // nextest does not run the examples in documentation.
        stages.push(("documentation tests", stage(&["test", "--quiet", "--workspace", "--doc"])));
    } else {
        let others = ["test", "--quiet", "--workspace", "--exclude", "phalanx-tests", "--no-fail-fast"];
        stages.push(("tests", seeded(&others)));
        // Of the workspace as well: a package by itself has other features of its dependencies, and they would be built again.
        stages.push(("daemons", seeded(&["test", "--quiet", "--workspace", "--test", "real"])));
        // These wait for timers of Kubernetes more than for the processor.
        let threads = ["--", "--test-threads", CONTROL_PLANES];
        let kube = ["test", "--quiet", "--workspace", "--test", "kube"];
        stages.push(("control planes", seeded(&[&kube[..], &threads].concat())));
    }
    stages.push(("broken engines", own("mutants")));
    stages.push(("work", own("work")));
    stages
}

/// This program again: cargo would only find that it is up to date.
fn own(task: &str) -> Command {
    let mut command = std::env::current_exe().map_or_else(|_| Command::new("xtask"), Command::new);
    command.arg(task);
    command
}

fn has_nextest() -> bool {
    let status = cargo().args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
