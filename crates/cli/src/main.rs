//! The `phalanx` binary: what a user types, turned into requests to the daemon and pages on the terminal.

#![forbid(unsafe_code)]

mod args;
mod complete;
mod failure;
mod measure;
mod output;
mod show;
mod slurm;
mod submission;
mod verbs;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Asked by the shell and not by a person; answers and ends before anything else is read.
    complete::answer();
    verbs::main(std::env::args_os())
}
