//! What can be typed after `audit`.

use clap::Args;
use clap_complete::ArgValueCompleter;

use crate::complete;

#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// Only acts of this user.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Only acts on this node.
    #[arg(long, value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    pub(crate) node: Option<String>,
    /// Only acts of this time or later: `2026-12-01T08:00Z`, or `2h` ago.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// At most this many, the newest.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) limit: u32,
}
