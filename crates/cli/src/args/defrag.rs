//! What can be typed after `defrag`.

use clap::Args;
use clap_complete::ArgValueCompleter;

use crate::complete;

#[derive(Debug, Args)]
pub(crate) struct Defrag {
    /// Job that waits, by number or name; if none is given, the first for which moves open a place.
    #[arg(value_name = "JOB", add = ArgValueCompleter::new(complete::jobs))]
    pub(crate) job: Option<String>,
    /// Show what would move, what that saves and what it costs, and do nothing. The default.
    #[arg(long, conflicts_with = "apply")]
    pub(crate) plan: bool,
    /// Move the jobs; for operators.
    #[arg(long)]
    pub(crate) apply: bool,
}
