//! What can go wrong, and what the process then exits with.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub(crate) enum RingError {
    #[error("{0}")]
    Usage(String),
    #[error("rank {rank} lost: {how}")]
    Lost { rank: u32, how: String },
    #[error("cannot listen on {address}: {source}; is another process using the port?")]
    Listen { address: String, source: io::Error },
    #[error("cannot reach rank 0 at {address} within {seconds} s: {source}; does it run?")]
    NoRoot { address: String, seconds: u64, source: io::Error },
    #[error("only {came} of {world} ranks came within {seconds} s; missing: {missing}")]
    Missing { came: usize, world: u32, seconds: u64, missing: String },
    #[error("rank 0 refused this rank: {0}")]
    Refused(String),
    #[error("cannot {doing} {}: {source}", path.display())]
    Checkpoint { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("{} holds no step number: {found:?}; remove it to begin again", path.display())]
    BadCheckpoint { path: PathBuf, found: String },
    #[error("cannot {doing}: {source}")]
    System { doing: &'static str, source: io::Error },
    #[error("verification failed: rank {rank} has a wrong sum in step {step}")]
    WrongSum { rank: u32, step: u64 },
    #[error("fails at step {step}, as asked")]
    AskedToFail { step: u64 },
    #[error("stopped by SIGTERM after step {step}")]
    Stopped { step: u64 },
}

impl RingError {
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::AskedToFail { .. } => 3,
            // 128 + SIGTERM.
            Self::Stopped { .. } => 143,
            _ => 1,
        }
    }

    pub(crate) const fn is_known_to_all(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::WrongSum { .. } | Self::Stopped { .. })
    }

    pub(crate) const fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { doing, source }
    }
}
