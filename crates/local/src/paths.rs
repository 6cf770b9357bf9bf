//! Where things are kept on this machine.

use std::env;
use std::path::{Path, PathBuf};

use phalanx_model::{GangId, JobId, MemberId};

/// The state folder of root's daemon, which serves every user.
const SHARED: &str = "/var/lib/phalanx";

/// The output of a rank, in its folder.
pub(crate) const LOG: &str = "output.log";

/// The state folder and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    root: PathBuf,
}

impl Paths {
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// `$PHALANX_STATE`; else `/var/lib/phalanx` for root, and the user's state folder for others.
    #[must_use]
    pub fn from_env() -> Self {
        if let Some(given) = env::var_os("PHALANX_STATE").filter(|v| !v.is_empty()) {
            return Self::new(given);
        }
        if nix::unistd::geteuid().is_root() {
            return Self::new(SHARED);
        }
        let state = env::var_os("XDG_STATE_HOME").filter(|v| !v.is_empty()).map(PathBuf::from);
        let home = || {
            PathBuf::from(env::var_os("HOME").filter(|v| !v.is_empty()).unwrap_or_else(|| "/tmp".into()))
                .join(".local/state")
        };
        Self::new(state.unwrap_or_else(home).join("phalanx"))
    }

    /// Where a client looks: as [`Self::from_env`], but a user without a daemon of their own asks root's.
    #[must_use]
    pub fn of_client() -> Self {
        let own = Self::from_env();
        let given = env::var_os("PHALANX_STATE").is_some_and(|v| !v.is_empty());
        let shared = Self::new(SHARED);
        if !given && !own.socket().exists() && shared.socket().exists() { shared } else { own }
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The control socket: anyone may connect, the kernel says who it is.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.root.join("phalanx.sock")
    }

    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    #[must_use]
    pub fn daemon_log(&self) -> PathBuf {
        self.root.join("daemon.log")
    }

    /// Digests of the tokens of users.
    #[must_use]
    pub fn tokens(&self) -> PathBuf {
        self.root.join("tokens.json")
    }

    /// The address at which the API is served, once somebody asked for it.
    #[must_use]
    pub fn api(&self) -> PathBuf {
        self.root.join("api")
    }

    /// The limits that an operator set.
    #[must_use]
    pub fn limits(&self) -> PathBuf {
        self.root.join("limits.json")
    }

    /// How far the daemon's time is ahead of the boot clock.
    #[must_use]
    pub fn clock(&self) -> PathBuf {
        self.root.join("clock")
    }

    /// The last epoch of which the journal was durable.
    #[must_use]
    pub fn epoch(&self) -> PathBuf {
        self.root.join("epoch")
    }

    /// What was lost and no operator has seen yet.
    #[must_use]
    pub fn losses(&self) -> PathBuf {
        self.root.join("losses")
    }

    /// The health of nodes and devices, with its evidence.
    #[must_use]
    pub fn health(&self) -> PathBuf {
        self.root.join("health.json")
    }

    /// Thresholds of health that an operator set.
    #[must_use]
    pub fn health_policy(&self) -> PathBuf {
        self.root.join("health.toml")
    }

    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    #[must_use]
    pub fn history(&self) -> PathBuf {
        self.root.join("history.db")
    }

    #[must_use]
    pub fn jobs(&self) -> PathBuf {
        self.root.join("jobs")
    }

    #[must_use]
    pub fn job(&self, job: JobId) -> PathBuf {
        self.jobs().join(job.to_string())
    }

    /// What the ranks of one attempt may read: host file, rank file, topology.
    #[must_use]
    pub fn attempt(&self, gang: GangId, attempt: u32) -> PathBuf {
        self.job(gang.job).join(format!("gang-{}", gang.index)).join(format!("attempt-{attempt}"))
    }

    #[must_use]
    pub fn member(&self, member: MemberId) -> PathBuf {
        self.attempt(member.gang, member.attempt).join(format!("rank-{}", member.rank))
    }

    /// Sockets of the terminals of one attempt, in a folder of the job's owner.
    #[must_use]
    pub fn terminals(&self, member: MemberId) -> PathBuf {
        self.attempt(member.gang, member.attempt).join("terminals")
    }

    #[must_use]
    pub fn log(&self, member: MemberId) -> PathBuf {
        self.member(member).join(LOG)
    }

    #[must_use]
    pub fn all_secrets(&self) -> PathBuf {
        self.root.join("secrets")
    }

    #[must_use]
    pub fn secrets(&self, job: JobId) -> PathBuf {
        self.all_secrets().join(job.to_string())
    }
}
