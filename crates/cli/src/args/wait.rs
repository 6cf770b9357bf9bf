//! What can be typed to wait for jobs.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::complete;

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Numbers or names.
    #[arg(required = true, value_name = "JOB", add = ArgValueCompleter::new(complete::jobs))]
    pub(crate) jobs: Vec<String>,
    /// Wait for the first of these jobs to end, and exit with its code [default: wait for all].
    #[arg(long)]
    pub(crate) any: bool,
    /// Stop waiting after this time with exit code 75: `90s`, `2h`; the jobs go on.
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<String>,
}
