//! Whether RDMA works on this host: kernel modules, device files, rights, ports, and the path between adapters and GPUs.
//!
//! A collective falls back to TCP, or copies through host memory, without a word where one of these is missing. Sources:
//! NCCL's user guide ("Troubleshooting": ACS, IOMMU, RoCE, memory), NVIDIA's GPUDirect RDMA guide (peer memory, dma-buf),
//! rdma-core's `70-persistent-ipoib.rules` and `kernel-boot` rules (device files), and the kernel's
//! `Documentation/ABI/stable/sysfs-class-infiniband`.

mod peer;
mod port;

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde::Serialize;

use crate::sysfs::{entries, name_of, text};

/// Whether something stands in the way of RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Good,
    /// It cannot be seen.
    Unknown,
    /// It works for some, or slower than it might.
    Weak,
    /// RDMA does not work.
    Broken,
}

impl Verdict {
    /// The word users read.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Unknown => "unknown",
            Self::Weak => "weak",
            Self::Broken => "broken",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub verdict: Verdict,
    /// `modules`, `files`, `memory`, `mlx5_0:1`, `GPUDirect`, `IOMMU`, `ACS`.
    pub subject: String,
    pub detail: String,
    /// What to do; may be empty.
    pub hint: String,
}

fn check(
    verdict: Verdict,
    subject: impl Into<String>,
    detail: impl Into<String>,
    hint: impl Into<String>,
) -> Check {
    Check { verdict, subject: subject.into(), detail: detail.into(), hint: hint.into() }
}

/// What a rank has to be able to lock: buffers of collectives are registered, gigabytes of them.
const LOCKED_BYTES: u64 = 64 << 30;

/// Looks at a host whose root folder is `root`. A host without an RDMA adapter has one check, which says so.
#[must_use]
pub fn examine(root: &Path) -> Vec<Check> {
    let adapters = entries(&root.join("sys/class/infiniband"));
    if adapters.is_empty() {
        let detail = "no RDMA adapter: collectives between nodes use TCP";
        return vec![check(Verdict::Good, "adapters", detail, "")];
    }
    let mut found = modules(root);
    found.push(files(root));
    found.push(memory(root));
    for adapter in &adapters {
        let ports = entries(&adapter.join("ports"));
        found.extend(ports.iter().flat_map(|port| port::examine(root, &name_of(adapter), port)));
    }
    found.extend(peer::examine(root));
    found
}

fn modules(root: &Path) -> Vec<Check> {
    let has = |module: &str| root.join("sys/module").join(module).exists();
    let mut found = Vec::new();
    if !has("ib_uverbs") {
        let detail = "ib_uverbs is not loaded: no program can use an adapter";
        found.push(check(
            Verdict::Broken,
            "modules",
            detail,
            "modprobe ib_uverbs, and name it in /etc/modules-load.d",
        ));
    }
    if !has("rdma_ucm") {
        let detail = "rdma_ucm is not loaded: connections by IP address fail (UCX, some MPI libraries)";
        found.push(check(
            Verdict::Weak,
            "modules",
            detail,
            "modprobe rdma_ucm, and name it in /etc/modules-load.d",
        ));
    }
    if found.is_empty() {
        found.push(check(Verdict::Good, "modules", "ib_uverbs and rdma_ucm are loaded", ""));
    }
    found
}

/// The files through which programs reach adapters.
fn files(root: &Path) -> Check {
    let names: Vec<String> = entries(&root.join("sys/class/infiniband_verbs"))
        .iter()
        .map(|path| name_of(path))
        .filter(|name| name.starts_with("uverbs"))
        .collect();
    let folder = root.join("dev/infiniband");
    let mode = |name: &str| fs::metadata(folder.join(name)).ok().map(|meta| meta.permissions().mode());
    let missing: Vec<&str> = names.iter().filter(|name| mode(name).is_none()).map(String::as_str).collect();
    if !missing.is_empty() {
        let detail = format!("/dev/infiniband has no {}", missing.join(", "));
        let hint = "in a container, pass /dev/infiniband in; on a host, install rdma-core, whose udev rules make the files";
        return check(Verdict::Broken, "files", detail, hint);
    }
    let closed: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .chain(Some("rdma_cm").filter(|name| mode(name).is_some()))
        .filter(|name| mode(name).is_some_and(|mode| mode & 0o006 != 0o006))
        .collect();
    if closed.is_empty() {
        return check(
            Verdict::Good,
            "files",
            format!("{} of /dev/infiniband are open to all users", names.len()),
            "",
        );
    }
    let detail = format!("not all users may open {} in /dev/infiniband", closed.join(", "));
    check(
        Verdict::Weak,
        "files",
        detail,
        "set MODE=\"0666\" in a udev rule, as rdma-core does, or add users to the files' group",
    )
}

/// How much memory a process may lock.
fn memory(root: &Path) -> Check {
    let limits = text(&root.join("proc/self/limits")).unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let hard = line.and_then(|line| line.split_whitespace().nth(1));
    let bytes = hard.and_then(|hard| hard.parse::<u64>().ok());
    match (hard, bytes) {
        (Some("unlimited"), _) => check(Verdict::Good, "memory", "a process may lock all memory", ""),
        (_, Some(bytes)) if bytes >= LOCKED_BYTES => {
            check(Verdict::Good, "memory", format!("a process may lock {} GiB", bytes >> 30), "")
        }
        (_, Some(bytes)) => {
            let detail = format!(
                "a process may lock {}, and RDMA registers its buffers in locked memory",
                size(bytes)
            );
            let hint = "set LimitMEMLOCK=infinity in the unit that starts the daemon, or `* - memlock unlimited` in /etc/security/limits.conf";
            check(Verdict::Weak, "memory", detail, hint)
        }
        _ => check(
            Verdict::Unknown,
            "memory",
            "/proc/self/limits does not say how much memory may be locked",
            "",
        ),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 30 => format!("{} GiB", bytes >> 30),
        _ if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        _ => format!("{} KiB", bytes >> 10),
    }
}

#[cfg(test)]
mod tests;
