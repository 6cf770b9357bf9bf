//! What a shim is told about its member.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use phalanx_model::{MemberId, Slot};
use serde::{Deserialize, Serialize};

use crate::isolation::{CGROUP_ROOT, Isolation, Limits, make_room};

/// Everything a shim needs to know. Written to `member.json`, readable by the daemon's user alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSpec {
    pub member: MemberId,
    /// Marks every process of the member and names its cgroup; never used twice on a machine. 1 to 64
    /// letters, digits, `-` and `_`.
    pub token: String,
    /// The command; never empty. The first word is looked up in the `PATH` of `env`.
    pub argv: Vec<String>,
    /// The whole environment; only the token's and the secrets' variables are added.
    pub env: BTreeMap<String, String>,
    /// Absolute.
    pub workdir: PathBuf,
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Absolute; takes both stdout and stderr.
    pub log_path: PathBuf,
    /// How long the member waits at the gate, counted from the start of the shim.
    pub gate_deadline_ms: u64,
    /// TCP ports the rank will listen on; they must be free.
    pub ports: Vec<u16>,
    pub secrets: Vec<Secret>,
    /// Lifts the locked-memory and open-file limits as far as allowed.
    pub rdma: bool,
    /// CPUs the rank may run on; empty for any.
    #[serde(default)]
    pub cpus: Vec<u32>,
    pub cpu_milli: Option<u64>,
    /// CPU time in proportion to the other members where they compete for it, from 1 to
    /// [`CPU_WEIGHT_MAX`](crate::isolation::CPU_WEIGHT_MAX).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_weight: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// Processes and threads of the member.
    #[serde(default)]
    pub pids_max: Option<u64>,
    /// Processes and threads of its user on the whole machine: what binds where there are no cgroups. Root has no such
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids_of_user: Option<u64>,
    /// Processes and threads of all members of the machine together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids_of_all: Option<u64>,
    /// From SIGTERM to SIGKILL for what the rank leaves behind when it ends.
    pub term_grace_ms: u64,
    /// File mode mask of the rank; 022 if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    #[serde(default)]
    pub isolation: IsolationChoice,
    /// Bytes of output that are kept; the shim cuts off the beginning of what is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_bytes_max: Option<u64>,
    /// What it holds: a daemon that lost its books reads it here. Older daemons wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Slot>,
}

/// A file that is opened as the owner and handed over as an open descriptor, whose number is in
/// `PHALANX_SECRET_<name>_FD`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    /// Letters, digits and `_`.
    pub name: String,
    pub path: PathBuf,
}

/// Which isolation to use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IsolationChoice {
    /// The best this machine has.
    #[default]
    Best,
    /// The best below another mount point than `/sys/fs/cgroup`.
    Under(PathBuf),
    /// The best in the group of this path below each mount, see [`Isolation::detect_in`].
    In(PathBuf),
    ProcessGroups,
}

impl IsolationChoice {
    #[must_use]
    pub fn detect(&self) -> Isolation {
        match self {
            Self::Best => Isolation::detect_under(CGROUP_ROOT.as_ref()),
            Self::Under(root) => Isolation::detect_under(root),
            Self::In(group) => Isolation::detect_in_live(group),
            Self::ProcessGroups => Isolation::ProcessGroups,
        }
    }

    /// Readies the chosen group for members, see [`make_room`].
    ///
    /// # Errors
    /// When there is no such group.
    pub fn make_room(&self) -> io::Result<()> {
        match self {
            Self::In(group) => make_room(CGROUP_ROOT.as_ref(), group),
            _ => Ok(()),
        }
    }
}

/// A field of a [`MemberSpec`] that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct SpecError {
    pub field: String,
    pub why: String,
}

const TOKEN_BYTES_MAX: usize = 64;
/// Ports, secrets, CPUs and groups: more of one of them is a mistake.
const LIST_MAX: usize = 4096;
/// Command and environment together. Far above what exec takes by default (2 MiB), which is checked by exec.
const COMMAND_BYTES_MAX: usize = 8 << 20;

impl MemberSpec {
    /// Whether a shim could work by it.
    ///
    /// # Errors
    /// Names the first field that is wrong.
    pub fn check(&self) -> Result<(), SpecError> {
        let wrong = |field: &str, why: &str| Err(SpecError { field: field.to_owned(), why: why.to_owned() });
        let is_word = |text: &str, more: &str| {
            !text.is_empty()
                && text.len() <= TOKEN_BYTES_MAX
                && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        if !is_word(&self.token, "-_") {
            return wrong("token", "must be 1 to 64 letters, digits, '-' and '_'");
        }
        if self.argv.first().is_none_or(String::is_empty) {
            return wrong("argv", "has no command");
        }
        if self.argv.iter().any(|word| word.contains('\0')) {
            return wrong("argv", "holds a NUL character");
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return wrong("env", &format!("variable {name:?} has an impossible name or value"));
            }
        }
        let bytes = self.argv.iter().map(String::len).sum::<usize>()
            + self.env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        if bytes > COMMAND_BYTES_MAX {
            return wrong(
                "argv",
                &format!("command and environment are larger than {COMMAND_BYTES_MAX} bytes"),
            );
        }
        for (field, path) in [("workdir", &self.workdir), ("log_path", &self.log_path)] {
            if !path.is_absolute() || path.to_str().is_none_or(|text| text.contains('\0')) {
                return wrong(field, "must be an absolute path in UTF-8");
            }
        }
        if let Some(secret) = self.secrets.iter().find(|s| !is_word(&s.name, "_") || !s.path.is_absolute()) {
            let why =
                format!("{:?} needs a name of letters, digits and '_', and an absolute path", secret.name);
            return wrong("secrets", &why);
        }
        if self.ports.contains(&0) {
            return wrong("ports", "0 is no port");
        }
        let lists = [
            ("ports", self.ports.len()),
            ("secrets", self.secrets.len()),
            ("cpus", self.cpus.len()),
            ("groups", self.groups.len()),
        ];
        if let Some((field, _)) = lists.into_iter().find(|(_, length)| *length > LIST_MAX) {
            return wrong(field, &format!("has more than {LIST_MAX} entries"));
        }
        Ok(())
    }

    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            cpu_milli: self.cpu_milli,
            cpu_weight: self.cpu_weight,
            memory_bytes: self.memory_bytes,
            pids: self.pids_max,
            pids_of_all: self.pids_of_all,
            cpus: self.cpus.clone(),
        }
    }
}
