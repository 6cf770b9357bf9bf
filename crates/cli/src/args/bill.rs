//! What can be typed after `bill`.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use phalanx_api::protocol::BillBy;

use crate::output::Format;

#[derive(Debug, Args)]
pub(crate) struct Bill {
    /// One line for each of these, or of several: `queue,model`; `queue,job,state`.
    #[arg(long, value_name = "WHAT,…", value_delimiter = ',', default_value = "queue",
          value_parser = PossibleValuesParser::new(BillBy::ALL.map(BillBy::word)).map(|word| by(&word)))]
    pub(crate) by: Vec<BillBy>,
    /// From this hour on: `2026-12-01T08:00Z`, or `30d` ago [default: the beginning of this month in UTC].
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Up to the end of the hour before this time [default: now].
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Only jobs of this user.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Only jobs of this queue, without those below it.
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    /// Currency of the prices in the cluster file, for `-o focus`: an ISO 4217 code.
    #[arg(long, value_name = "CODE", default_value = "XXX")]
    pub(crate) currency: String,
    /// Shape of what is printed; `focus` is CSV by day and job with the columns of FOCUS 1.0.
    // The same flag as everywhere, which here knows two formats more.
    #[arg(short = 'o', long = "output", id = "output", value_name = "FORMAT", default_value = "table",
          value_parser = PossibleValuesParser::new(WORDS).map(|word| Format::of_table(&word)))]
    pub(crate) format: Format,
}

const WORDS: [&str; 7] = ["table", "wide", "json", "yaml", "name", "csv", "focus"];

fn by(word: &str) -> BillBy {
    BillBy::ALL.into_iter().find(|by| by.word() == word).unwrap_or(BillBy::Queue)
}
