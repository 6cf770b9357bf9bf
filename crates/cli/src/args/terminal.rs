//! What can be typed to work in a terminal of a job.

use clap::{Args, ValueHint};
use clap_complete::engine::ArgValueCompleter;

use super::JobArgs;
use crate::complete;

#[derive(Debug, Args)]
pub(crate) struct Alloc {
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// Number or name; `7.3` for a task of an array.
    #[arg(add = ArgValueCompleter::new(complete::jobs))]
    pub(crate) job: String,
    /// The rank to run beside [default: the one with the terminal, else 0].
    #[arg(short, long, value_name = "N")]
    pub(crate) rank: Option<u32>,
    /// In a terminal [default: where standard input and output are terminals].
    #[arg(short = 't', long, visible_alias = "tty", overrides_with = "no_pty")]
    pub(crate) pty: bool,
    /// Not in a terminal: standard output and standard error stay apart.
    #[arg(short = 'T', long, visible_alias = "no-tty")]
    pub(crate) no_pty: bool,
    /// Program and arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<String>,
}
