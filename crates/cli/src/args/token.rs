//! What can be typed after `dashboard` and `token`.

use std::time::Duration;

use clap::{Args, Subcommand};
use phalanx_api::protocol::TOKEN_MS_MAX;
use phalanx_spec::quantity::parse_duration_ns;

#[derive(Debug, Args)]
pub(crate) struct Dashboard {
    #[command(flatten)]
    pub(crate) life: Life,
}

/// What a token may do, and for how long.
#[derive(Debug, Args)]
pub(crate) struct Life {
    /// It may read, and change nothing.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// How long it is valid, a year at most.
    #[arg(long = "for", value_name = "TIME", default_value = "12h", value_parser = life)]
    pub(crate) time: Duration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Make a token with which programs ask the API in your name; it is shown once.
    Create {
        /// What it is for: `ci`.
        name: String,
        #[command(flatten)]
        life: Life,
    },
    /// List your tokens; as an operator those of all users.
    List,
    /// From now on a token is not valid.
    Revoke {
        name: String,
        /// Another user's, by number; for operators.
        #[arg(long, value_name = "UID")]
        uid: Option<u32>,
    },
}

fn life(text: &str) -> Result<Duration, String> {
    let time = parse_duration_ns(text).map(Duration::from_nanos).map_err(|e| e.to_string())?;
    let most = Duration::from_millis(TOKEN_MS_MAX);
    if time < Duration::from_secs(1) || time > most {
        Err("expected 1s to 366d".to_owned())
    } else {
        Ok(time)
    }
}
