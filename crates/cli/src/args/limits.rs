//! Limits of what one user may take.

use clap::Args;
use phalanx_local::limits::LimitsGiven;
use phalanx_spec::quantity::parse_memory;

/// Each is remembered: what is not given is as it was given last.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Limits (remembered)")]
pub(crate) struct Limits {
    /// Bytes of one user's jobs that have not ended [default: 64MiB].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pending_per_user: Option<u64>,
}

fn size(text: &str) -> Result<u64, String> {
    parse_memory(text).map_err(|e| e.to_string())
}

impl Limits {
    pub(crate) const fn given(&self) -> LimitsGiven {
        LimitsGiven { pending_bytes_per_user: self.pending_per_user }
    }

    /// The same flags for another process.
    pub(crate) fn flags(&self) -> Vec<String> {
        let bytes = |flag: &str, bytes: Option<u64>| bytes.map(|bytes| format!("{flag}={bytes}"));
        [bytes("--pending-per-user", self.pending_per_user)].into_iter().flatten().collect()
    }
}
