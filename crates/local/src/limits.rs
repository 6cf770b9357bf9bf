//! What the daemon lets one user take of what all users share.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use phalanx_model::JobId;
use serde::{Deserialize, Serialize};

use crate::Paths;
use phalanx_node::file::replace;

/// Limits that an operator may set. They are remembered in `limits.json` of the state folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of one user's jobs that have not ended, as the journal holds them.
    pub pending_bytes_per_user: u64,
    /// Bytes of output that are kept of one rank.
    pub log_bytes_per_rank: u64,
    /// Bytes of output that are kept of all ranks of one user.
    pub log_bytes_per_user: u64,
    /// Days that ended jobs are kept in the history, with their output.
    pub keep_days: u64,
    /// Bytes of output that are kept of all jobs; the output of jobs that ended first goes first.
    pub keep_bytes: u64,
    /// Processes and threads of one user, and of a rank that has a whole node; a rank with a part of it has that part. 0:
    /// half of what the kernel allows.
    pub pids: u64,
    /// Memory of a rank that asks for none, in percent of the share of the node that its devices are. 0: no limit.
    pub memory_share_percent: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pending_bytes_per_user: 64 << 20,
            log_bytes_per_rank: 64 << 20,
            log_bytes_per_user: 4 << 30,
            keep_days: 30,
            keep_bytes: 16 << 30,
            pids: 0,
            memory_share_percent: 100,
        }
    }
}

/// Limits as they are given to `up`: what is not given is as it was given last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitsGiven {
    pub pending_bytes_per_user: Option<u64>,
    pub log_bytes_per_rank: Option<u64>,
    pub log_bytes_per_user: Option<u64>,
    pub keep_days: Option<u64>,
    pub keep_bytes: Option<u64>,
    pub pids: Option<u64>,
    pub memory_share_percent: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("{}: {source}; correct or remove the file", path.display())]
    Unreadable { path: PathBuf, source: serde_json::Error },
}

impl Limits {
    /// The remembered limits, or the defaults.
    fn remembered(paths: &Paths) -> Result<Self, LimitsError> {
        let path = paths.limits();
        match fs::read(&path) {
            Ok(text) => {
                serde_json::from_slice(&text).map_err(|source| LimitsError::Unreadable { path, source })
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(LimitsError::Io { doing: "read", path, source }),
        }
    }

    /// Processes and threads of one user, where the kernel allows `kernel` of all.
    pub(crate) const fn pids_or(&self, kernel: u64) -> u64 {
        if self.pids == 0 { kernel / 2 } else { self.pids }
    }

    /// The remembered limits with those that are given now, which are remembered from now on.
    pub(crate) fn settle(paths: &Paths, given: &LimitsGiven) -> Result<Self, LimitsError> {
        let before = Self::remembered(paths)?;
        let now = Self {
            pending_bytes_per_user: given.pending_bytes_per_user.unwrap_or(before.pending_bytes_per_user),
            log_bytes_per_rank: given.log_bytes_per_rank.unwrap_or(before.log_bytes_per_rank),
            log_bytes_per_user: given.log_bytes_per_user.unwrap_or(before.log_bytes_per_user),
            keep_days: given.keep_days.unwrap_or(before.keep_days),
            keep_bytes: given.keep_bytes.unwrap_or(before.keep_bytes),
            pids: given.pids.unwrap_or(before.pids),
            memory_share_percent: given.memory_share_percent.unwrap_or(before.memory_share_percent),
        };
        if now != before {
            let path = paths.limits();
            write(&path, &now).map_err(|source| LimitsError::Io { doing: "write", path, source })?;
        }
        Ok(now)
    }
}

fn write(path: &Path, limits: &Limits) -> io::Result<()> {
    replace(path, &serde_json::to_string_pretty(limits)?)
}

/// Bytes of the jobs of each user that have not ended.
#[derive(Debug, Default)]
pub(crate) struct PendingBytes(Mutex<Sums>);

#[derive(Debug, Default)]
struct Sums {
    jobs: BTreeMap<JobId, (u32, u64)>,
    users: BTreeMap<u32, u64>,
}

impl PendingBytes {
    fn sums(&self) -> MutexGuard<'_, Sums> {
        // What a panicking thread left are still sums.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a job, if its user's jobs then take no more than `max`; otherwise says how much they take without it.
    pub(crate) fn admit(&self, job: JobId, uid: u32, bytes: u64, max: u64) -> Result<(), u64> {
        let mut sums = self.sums();
        let used = sums.users.get(&uid).copied().unwrap_or(0);
        if used.saturating_add(bytes) > max {
            return Err(used);
        }
        sums.add(job, uid, bytes);
        Ok(())
    }

    /// Counts a job that is there already.
    pub(crate) fn count(&self, job: JobId, uid: u32, bytes: u64) {
        self.sums().add(job, uid, bytes);
    }

    /// The job ended, or was never taken.
    pub(crate) fn forget(&self, job: JobId) {
        let mut sums = self.sums();
        let Some((uid, bytes)) = sums.jobs.remove(&job) else { return };
        if let Some(used) = sums.users.get_mut(&uid) {
            *used = used.saturating_sub(bytes);
            if *used == 0 {
                sums.users.remove(&uid);
            }
        }
    }
}

impl Sums {
    fn add(&mut self, job: JobId, uid: u32, bytes: u64) {
        if self.jobs.insert(job, (uid, bytes)).is_none() {
            let used = self.users.entry(uid).or_default();
            *used = used.saturating_add(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_of_one_user_have_a_limit_and_ended_jobs_do_not_count() {
        let pending = PendingBytes::default();
        let admit = |job, uid, bytes| pending.admit(JobId(job), uid, bytes, 100);
        assert_eq!(admit(1, 7, 60), Ok(()));
        assert_eq!(admit(2, 7, 50), Err(60));
        assert_eq!(admit(3, 8, 50), Ok(()), "another user");
        assert_eq!(admit(4, 7, 40), Ok(()));
        pending.forget(JobId(1));
        pending.forget(JobId(1));
        assert_eq!(admit(2, 7, 60), Ok(()));
        assert_eq!(admit(5, 7, 1), Err(100));
    }

    #[test]
    fn limits_are_those_given_last() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        let nothing = LimitsGiven::default();
        assert_eq!(Limits::settle(&paths, &nothing).unwrap(), Limits::default());
        let given = LimitsGiven { pending_bytes_per_user: Some(5), ..nothing };
        let limits = Limits { pending_bytes_per_user: 5, ..Limits::default() };
        assert_eq!(Limits::settle(&paths, &given).unwrap(), limits);
        assert_eq!(Limits::settle(&paths, &nothing).unwrap(), limits);
        fs::write(paths.limits(), "{\"pending_bytes\": 5}").unwrap();
        let error = Limits::settle(&paths, &nothing).unwrap_err().to_string();
        assert!(error.contains("limits.json: unknown field `pending_bytes`"), "{error}");
    }
}
