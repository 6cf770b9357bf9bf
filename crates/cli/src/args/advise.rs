//! What can be typed after `advise`.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap_complete::ArgValueCompleter;

use crate::complete;
use crate::output::Format;

#[derive(Debug, Args)]
pub(crate) struct Advise {
    /// Only jobs of this name, in which `*` stands for any text; says also why there is no advice.
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(complete::job_names))]
    pub(crate) job: Option<String>,
    /// Only jobs of this user.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Only runs that began after this: `2026-12-01T08:00Z`, or `90d` ago.
    #[arg(long, value_name = "TIME", default_value = "30d")]
    pub(crate) since: String,
    /// Shape of what is printed.
    // The same flag as everywhere, which here knows one format more.
    #[arg(short = 'o', long = "output", id = "output", value_name = "FORMAT", default_value = "table",
          value_parser = PossibleValuesParser::new(WORDS).map(|word| Format::of_table(&word)))]
    pub(crate) format: Format,
}

const WORDS: [&str; 6] = ["table", "wide", "json", "yaml", "name", "csv"];
