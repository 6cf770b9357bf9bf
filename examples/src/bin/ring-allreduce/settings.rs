//! What the user and the launcher say.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Parser;
use phalanx_examples::touch::touch;

use crate::error::RingError;

/// Largest ring: the largest sum is then below 2^24, so that float32 is exact (see `buffer`).
pub(crate) const WORLD_SIZE_MAX: u32 = 1024;
const BYTES_MAX: u64 = 64 << 30;

/// A ring all-reduce over TCP; verifies every sum and prints the bandwidth.
#[derive(Debug, Clone, Parser)]
#[command(name = "ring-allreduce", version)]
pub(crate) struct Settings {
    /// This process's rank, from 0.
    #[arg(long, env = "RANK", default_value_t = 0)]
    pub(crate) rank: u32,
    /// Number of ranks.
    #[arg(long, env = "WORLD_SIZE", default_value_t = 1)]
    pub(crate) world_size: u32,
    /// Where rank 0 listens.
    #[arg(long, env = "MASTER_ADDR", default_value = "127.0.0.1")]
    pub(crate) master_addr: String,
    #[arg(long, env = "MASTER_PORT", default_value_t = 29500)]
    pub(crate) master_port: u16,
    /// Size of each rank's buffer: `64MB`, `1GiB`, or bytes.
    #[arg(long, default_value = "64MB", value_parser = parse_bytes)]
    pub(crate) bytes: u64,
    /// Steps that count.
    #[arg(long, default_value_t = 20)]
    pub(crate) steps: u64,
    /// Run until this file exists, in place of a number of steps.
    #[arg(long, value_name = "FILE", conflicts_with = "steps")]
    pub(crate) until: Option<PathBuf>,
    /// Steps before those.
    #[arg(long, default_value_t = 2)]
    pub(crate) warmup: u64,
    /// Folder for step numbers; a restart resumes from there.
    #[arg(long, env = "PHALANX_CKPT_DIR", value_name = "DIR")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Steps between checkpoints. SIGUSR1 asks for one at the end of the current step.
    #[arg(long, default_value_t = 1, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) checkpoint_every: u64,
    /// File that rank 0 touches after each checkpoint.
    #[arg(long, env = "PHALANX_CHECKPOINTED", value_name = "FILE")]
    pub(crate) checkpointed: Option<PathBuf>,
    /// File that the rank writes its progress to.
    #[arg(long, env = "PHALANX_PROGRESS", value_name = "FILE")]
    pub(crate) progress: Option<PathBuf>,
    /// Pause after each step, in place of computing.
    #[arg(long, default_value_t = 0, value_name = "MS")]
    pub(crate) step_sleep_ms: u64,
    /// Makes a rank (by default the last) fail when it begins this step, unless it was resumed.
    #[arg(long, value_name = "STEP[:RANK]")]
    pub(crate) fail_at: Option<FailAt>,
    /// How long to wait for a rank: to come, and in a step.
    #[arg(long, default_value_t = 60, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout_s: u64,
}

/// `STEP` or `STEP:RANK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FailAt {
    pub(crate) step: u64,
    pub(crate) rank: Option<u32>,
}

impl FromStr for FailAt {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (step, rank) = text.split_once(':').map_or((text, None), |(step, rank)| (step, Some(rank)));
        let bad = |_| format!("{text:?} is not STEP or STEP:RANK, e.g. 5 or 5:1");
        Ok(Self { step: step.parse().map_err(bad)?, rank: rank.map(str::parse).transpose().map_err(bad)? })
    }
}

impl Settings {
    pub(crate) fn check(&self) -> Result<(), RingError> {
        let Self { rank, world_size, .. } = *self;
        if !(1..=WORLD_SIZE_MAX).contains(&world_size) {
            return Err(RingError::Usage(format!("WORLD_SIZE is 1 to {WORLD_SIZE_MAX}, not {world_size}")));
        }
        if rank >= world_size {
            let last = world_size - 1;
            return Err(RingError::Usage(format!(
                "with WORLD_SIZE {world_size}, RANK is 0 to {last}, not {rank}"
            )));
        }
        Ok(())
    }

    /// No number of steps ends a run with `--until`.
    pub(crate) fn last_step(&self) -> u64 {
        if self.until.is_some() { u64::MAX } else { self.steps }
    }

    /// Whether the file of `--until` exists.
    pub(crate) fn is_finished(&self) -> bool {
        self.until.as_deref().is_some_and(Path::exists)
    }

    /// Writes how far the rank is, and how long its own work for the last step took. A file that is gone is no reason to end.
    pub(crate) fn report(&self, done: u64, work: Duration) {
        if let Some(file) = &self.progress {
            let of = if self.until.is_some() { String::new() } else { format!(" of={}", self.steps) };
            let _ = fs::write(file, format!("step={done}{of} work={}us\n", work.as_micros()));
        }
    }

    /// Reports that the step number is saved, on one rank for all.
    pub(crate) fn report_checkpoint(&self) {
        if let Some(file) = self.checkpointed.as_deref().filter(|_| self.rank == 0) {
            let _ = touch(file);
        }
    }

    pub(crate) fn elements(&self) -> usize {
        usize::try_from(self.bytes / 4).unwrap_or(usize::MAX)
    }

    pub(crate) const fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s)
    }

    /// A whole step may also sleep.
    pub(crate) const fn step_timeout(&self) -> Duration {
        self.timeout().saturating_add(Duration::from_millis(self.step_sleep_ms))
    }
}

/// Powers of ten for `KB MB GB`, of two for `KiB MiB GiB`. Rounded down to whole float32.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "KB" | "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        other => return Err(format!("{other:?} is no unit; use B, KB, MB, GB, KiB, MiB or GiB")),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    let bytes = number.checked_mul(factor).map(|bytes| bytes / 4 * 4);
    bytes
        .filter(|bytes| (4..=BYTES_MAX).contains(bytes))
        .ok_or_else(|| format!("{text:?} is not between 4 B and {} GiB", BYTES_MAX >> 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        assert_eq!(parse_bytes("64MB"), Ok(64_000_000));
        assert_eq!(parse_bytes("1 MiB"), Ok(1 << 20));
        assert_eq!(parse_bytes("7"), Ok(4));
        for bad in
            ["", "MB", "3", "-4", "4.5MB", "64 mb", "65GiB", "99999999999999999999", "18446744073709551615KB"]
        {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn failures_are_asked_for_by_step_and_rank() {
        assert_eq!("5".parse(), Ok(FailAt { step: 5, rank: None }));
        assert_eq!("5:1".parse(), Ok(FailAt { step: 5, rank: Some(1) }));
        for bad in ["", ":", "5:", ":1", "a", "5:1:2"] {
            assert!(bad.parse::<FailAt>().is_err(), "{bad}");
        }
    }
}
