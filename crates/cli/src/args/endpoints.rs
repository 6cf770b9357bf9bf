//! What can be typed after `endpoints`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use clap_complete::ArgValueCompleter;

use crate::complete;
use crate::output::Format;

#[derive(Debug, Args)]
pub(crate) struct Endpoints {
    /// Service, by number or name.
    #[arg(value_name = "SERVICE", add = ArgValueCompleter::new(complete::jobs))]
    pub(crate) job: String,
    /// Node that the requests come from: its nearest replicas come first.
    #[arg(long, value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    pub(crate) from: Option<String>,
    /// Write to this file whenever it would be another, until interrupted.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) into: Option<PathBuf>,
    /// Run this shell command after each write, for example to reload the router.
    #[arg(long, value_name = "COMMAND", requires = "into")]
    pub(crate) then: Option<String>,
    /// Shape of what is printed; `haproxy`, `envoy` and `prometheus-sd` list endpoints that are ready.
    // The same flag as everywhere, which here knows three formats more.
    #[arg(short = 'o', long = "output", id = "output", value_name = "FORMAT", default_value = "table",
          value_parser = PossibleValuesParser::new(WORDS).map(|word| Format::of_endpoints(&word)))]
    pub(crate) format: Format,
}

const WORDS: [&str; 8] = ["table", "wide", "json", "yaml", "name", "haproxy", "envoy", "prometheus-sd"];
