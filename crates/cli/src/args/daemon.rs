//! The daemon of one machine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use phalanx_local::limits::LimitsGiven;
use phalanx_local::preflight::PreflightOptions;
use phalanx_spec::quantity::{parse_duration_ns, parse_memory};

use super::api::Api;
use super::log::Log;

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Cluster file with declared nodes [default: the file that was given last, else this machine as found].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cluster: Option<PathBuf>,
    /// Queue file: who may use how much, and who goes first [default: as it was in force last].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) queues: Option<PathBuf>,
    /// Use this machine as found, whatever was given before.
    #[arg(long, conflicts_with = "cluster")]
    pub(crate) found: bool,
    /// Put all ranks into this cgroup, given by its path below the mount: `/system.slice/phalanx-ranks.service`
    /// [default: below the daemon's own].
    #[arg(long, value_name = "PATH", env = "PHALANX_CGROUP")]
    pub(crate) cgroup: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) api: Api,
    /// Serve `/metrics` for Prometheus on this loopback address: `127.0.0.1:9464` [default: nowhere].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Where the kernel's messages are, for Xids of GPUs: `/dev/kmsg`, or a file that has the kernel's messages alone.
    #[arg(long, value_name = "FILE", default_value = "/dev/kmsg", value_hint = ValueHint::FilePath)]
    pub(crate) kernel_log: PathBuf,
    /// Sample GPUs by this DCGM exporter: `http://127.0.0.1:9400/metrics` [default: by NVML].
    #[arg(long, value_name = "URL", value_parser = phalanx_node::telemetry::check_url, value_hint = ValueHint::Url)]
    pub(crate) dcgm: Option<String>,
    /// How often GPUs and network ports are sampled.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = sample_every)]
    pub(crate) sample_every: Duration,
    /// A job on whose GPUs no kernel ran for so long is idle: its owner hears so, and the account says it.
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = idle_after)]
    pub(crate) idle_after: Duration,
    /// Write the jobs of each GPU to files in this folder, for DCGM's exporter (its `--hpc-job-mapping-dir`) [default:
    /// nowhere].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dcgm_job_mapping: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) preflight: Preflight,
    #[command(flatten)]
    pub(crate) limits: Limits,
    #[command(flatten)]
    pub(crate) log: Log,
    /// Leave it running in the background; its log is daemon.log in the state folder.
    #[arg(long)]
    pub(crate) detach: bool,
    /// Set on the process that `--detach` starts.
    #[arg(long = "__detached", hide = true)]
    pub(crate) detached: bool,
}

/// The check of GPUs before ranks start.
#[derive(Debug, Args)]
pub(crate) struct Preflight {
    /// Check the GPUs of a job with this command before its ranks start on a node, as the daemon's user. GPUs for which it ends
    /// with another exit code than 0 are closed [default: no check].
    #[arg(long = "preflight", value_name = "COMMAND")]
    command: Option<String>,
    /// GPUs that passed the preflight are not checked again for so long; 0: before each start.
    #[arg(long = "preflight-every", value_name = "TIME", default_value = "1h", value_parser = preflight_every)]
    every: Duration,
    /// A preflight that takes longer has failed.
    #[arg(long = "preflight-timeout", value_name = "TIME", default_value = "20s", value_parser = preflight_timeout)]
    timeout: Duration,
}

impl Preflight {
    pub(crate) fn options(&self) -> Option<PreflightOptions> {
        let (every, timeout) = (self.every, self.timeout);
        self.command.clone().map(|command| PreflightOptions { command, every, timeout })
    }

    /// The same as flags.
    pub(crate) fn flags(&self) -> Vec<String> {
        let flags = |command: &String| {
            let (every, timeout) = (self.every.as_millis(), self.timeout.as_millis());
            let every = if every == 0 { "0".to_owned() } else { format!("{every}ms") };
            let times = [format!("--preflight-every={every}"), format!("--preflight-timeout={timeout}ms")];
            [format!("--preflight={command}")].into_iter().chain(times)
        };
        self.command.iter().flat_map(flags).collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Cut the journal at its damage; the daemon must not run, and a copy of what is cut is kept beside it.
    #[arg(long)]
    pub(crate) cut: bool,
    /// Take losses off the list once they were dealt with.
    #[arg(long, conflicts_with = "cut")]
    pub(crate) seen: bool,
    /// Look at RDMA on this machine instead: modules, device files, rights, ports, and the path to GPUs.
    #[arg(long, conflicts_with_all = ["cut", "seen"])]
    pub(crate) rdma: bool,
}

/// Each is remembered: what is not given is as it was given last.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Limits (remembered)")]
pub(crate) struct Limits {
    /// Bytes of one user's jobs that have not ended [default: 64MiB].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pending_per_user: Option<u64>,
    /// Bytes of output that are kept of one rank; older output is cut off [default: 64MiB].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    log_per_rank: Option<u64>,
    /// Bytes of output that are kept of all ranks of one user [default: 4GiB].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    log_per_user: Option<u64>,
    /// Days that ended jobs are kept in the history, with their output [default: 30].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=36_500))]
    keep_days: Option<u64>,
    /// Bytes of output that are kept of all jobs; that of jobs that ended first goes first [default: 16GiB].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    keep_bytes: Option<u64>,
    /// Processes and threads of one user, and of a rank with a whole node; a rank with a part of a node has that part. 0
    /// means half of what the kernel allows [default: 0].
    #[arg(long, value_name = "N", value_parser = pids)]
    pids: Option<u64>,
    /// Memory of a rank that asks for none, in percent of its share of the node; 0 sets no limit [default: 100].
    #[arg(long = "memory-share", value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    memory_share_percent: Option<u64>,
}

/// Fewer processes than this, and no shell script runs.
const PIDS_MIN: u64 = 64;

fn sample_every(text: &str) -> Result<Duration, String> {
    let is_good = |time: Duration| (1..=3_600).contains(&time.as_secs());
    duration(text).and_then(|time| if is_good(time) { Ok(time) } else { Err("expected 1s to 1h".to_owned()) })
}

fn preflight_every(text: &str) -> Result<Duration, String> {
    let is_good = |time: &Duration| time.as_secs() <= 30 * 24 * 3_600;
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    duration(text).and_then(|time| Some(time).filter(is_good).ok_or_else(|| "expected 0 to 30d".to_owned()))
}

/// A start that is not done after a minute is given up.
fn preflight_timeout(text: &str) -> Result<Duration, String> {
    let is_good = |time: &Duration| (1..=45).contains(&time.as_secs());
    duration(text).and_then(|time| Some(time).filter(is_good).ok_or_else(|| "expected 1s to 45s".to_owned()))
}

fn idle_after(text: &str) -> Result<Duration, String> {
    let is_good = |time: Duration| (60..=30 * 24 * 3_600).contains(&time.as_secs());
    duration(text)
        .and_then(|time| if is_good(time) { Ok(time) } else { Err("expected 1m to 30d".to_owned()) })
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration_ns(text).map(Duration::from_nanos).map_err(|e| e.to_string())
}

fn pids(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(pids) if pids == 0 || pids >= PIDS_MIN => Ok(pids),
        _ => Err(format!("expected 0, or a number from {PIDS_MIN}")),
    }
}

fn size(text: &str) -> Result<u64, String> {
    parse_memory(text).map_err(|e| e.to_string())
}

impl Limits {
    pub(crate) const fn given(&self) -> LimitsGiven {
        LimitsGiven {
            pending_bytes_per_user: self.pending_per_user,
            log_bytes_per_rank: self.log_per_rank,
            log_bytes_per_user: self.log_per_user,
            keep_days: self.keep_days,
            keep_bytes: self.keep_bytes,
            pids: self.pids,
            memory_share_percent: self.memory_share_percent,
        }
    }

    /// The same flags for another process.
    pub(crate) fn flags(&self) -> Vec<String> {
        let flag = |flag: &str, number: Option<u64>| number.map(|number| format!("{flag}={number}"));
        let flags = [
            flag("--pending-per-user", self.pending_per_user),
            flag("--log-per-rank", self.log_per_rank),
            flag("--log-per-user", self.log_per_user),
            flag("--keep-days", self.keep_days),
            flag("--keep-bytes", self.keep_bytes),
            flag("--pids", self.pids),
            flag("--memory-share", self.memory_share_percent),
        ];
        flags.into_iter().flatten().collect()
    }
}
