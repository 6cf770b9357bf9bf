//! The manual pages, from the definition of the command line.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::args::Cli;
use crate::failure::Failure;

/// Writes `phalanx.1`, `phalanx-submit.1` and so on.
pub(super) fn man(into: &Path) -> Result<ExitCode, Failure> {
    std::fs::create_dir_all(into).map_err(|e| Failure::file("make", into, &e))?;
    clap_mangen::generate_to(Cli::command(), into).map_err(|e| Failure::file("write", into, &e))?;
    Ok(ExitCode::SUCCESS)
}
