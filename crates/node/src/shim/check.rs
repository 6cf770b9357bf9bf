//! What can fail before the gate: everything that can be tried without running anything of the user's.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::unistd::{
    AccessFlags, Gid, Pid, Uid, faccessat, getegid, geteuid, getgroups, setegid, seteuid, setgroups,
};
use phalanx_model::FailureClass;

use crate::isolation::{Doors, Group};
use crate::member::MemberSpec;

/// Where a command is looked up when the environment has no `PATH`.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";
/// Open files of an RDMA rank: queue pairs and registrations are descriptors.
const RDMA_FILES: u64 = 1_048_576;

/// Everything a rank needs, ready to be used.
pub(super) struct Prepared {
    pub(super) program: PathBuf,
    pub(super) workdir: CString,
    pub(super) log: File,
    /// The way into the member's cgroups.
    pub(super) doors: Doors,
    /// By the spec's order.
    pub(super) secrets: Vec<File>,
    /// What could not be had and is not fatal.
    pub(super) notes: Vec<String>,
}

/// Why the member cannot start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) class: FailureClass,
    pub(super) detail: String,
}

impl Failure {
    /// The user, or the state of the node, can do something about it.
    pub(super) fn start_up(detail: impl Into<String>) -> Self {
        Self { class: FailureClass::StartUp, detail: detail.into() }
    }

    pub(super) fn infrastructure(detail: impl Into<String>) -> Self {
        Self { class: FailureClass::Infrastructure, detail: detail.into() }
    }
}

/// Prepares the rank, and the group that will hold it.
pub(super) fn prepare(spec: &MemberSpec, group: &mut Group) -> Result<Prepared, Failure> {
    let own = geteuid();
    if !own.is_root() && own.as_raw() != spec.uid {
        return Err(Failure::infrastructure(format!(
            "phalanx runs as uid {own} and cannot start processes of uid {}; run its daemon as root",
            spec.uid
        )));
    }
    let log = open_log(&spec.log_path, spec.uid, spec.gid).map_err(|e| {
        Failure::infrastructure(format!("cannot open the log {}: {e}", spec.log_path.display()))
    })?;
    let mut notes = group.create(&spec.limits());
    let doors = group
        .doors()
        .map_err(|e| Failure::infrastructure(format!("the member's cgroup cannot be entered: {e}")))?;
    notes.extend(set_own_limits(spec)?);
    let workdir = CString::new(spec.workdir.as_os_str().as_bytes())
        .map_err(|_| Failure::start_up("the working directory's name holds a NUL character"))?;
    let (program, secrets) = as_owner(spec, || {
        check_workdir(spec)?;
        let program = find_program(spec)?;
        check_ports(spec)?;
        let secrets =
            spec.secrets.iter().map(|s| open_secret(spec, &s.name, &s.path)).collect::<Result<_, _>>()?;
        Ok((program, secrets))
    })
    .map_err(|e| Failure::infrastructure(format!("cannot act as uid {}: {e}", spec.uid)))??;
    Ok(Prepared { program, workdir, log, doors, secrets, notes })
}

/// Does something with the rights of the job's owner, and takes the shim's own back.
fn as_owner<T>(spec: &MemberSpec, work: impl FnOnce() -> T) -> io::Result<T> {
    let own = geteuid();
    if !own.is_root() {
        return Ok(work());
    }
    let (gid, groups) = (getegid(), getgroups()?);
    let (owner, owner_groups) = owner(spec);
    setgroups(&owner_groups)?;
    setegid(Gid::from_raw(spec.gid))?;
    seteuid(owner)?;
    let done = work();
    seteuid(own)?;
    setegid(gid)?;
    setgroups(&groups)?;
    Ok(done)
}

pub(super) fn owner(spec: &MemberSpec) -> (Uid, Vec<Gid>) {
    (Uid::from_raw(spec.uid), spec.groups.iter().copied().map(Gid::from_raw).collect())
}

/// The log is the daemon's; the rank only has it open. Nothing that somebody else put in its place is
/// written to.
fn open_log(path: &Path, uid: u32, gid: u32) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let log =
        OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags.bits()).open(path)?;
    let meta = log.metadata()?;
    let own = [geteuid().as_raw(), uid].contains(&meta.uid());
    if !meta.is_file() || !own || meta.nlink() != 1 {
        return Err(io::Error::other("is no plain file of this daemon's own"));
    }
    if geteuid().is_root() {
        // The rank opens it again as /dev/stderr; the folder stays closed to it.
        std::os::unix::fs::fchown(&log, Some(uid), Some(gid))?;
    }
    // O_NONBLOCK means nothing for a plain file, but the rank could see it.
    nix::fcntl::fcntl(&log, nix::fcntl::F_SETFL(OFlag::O_APPEND))?;
    Ok(log)
}

/// Sets on the shim itself what the rank inherits: affinity, the processes of its user, and the limits that RDMA needs.
fn set_own_limits(spec: &MemberSpec) -> Result<Vec<String>, Failure> {
    let mut notes = Vec::new();
    // The kernel counts by user, and lets root have any number: neither this shim nor a rank of root is bound.
    if let Some(pids) = spec.pids_of_user {
        let hard = getrlimit(Resource::RLIMIT_NPROC).map_or(pids, |(_, hard)| hard.min(pids));
        if let Err(e) = setrlimit(Resource::RLIMIT_NPROC, hard, hard) {
            notes.push(format!("the limit of the user's processes is not enforced: {e}"));
        }
    }
    if !spec.cpus.is_empty() {
        let mut set = CpuSet::new();
        let filled =
            spec.cpus.iter().try_for_each(|cpu| set.set(usize::try_from(*cpu).unwrap_or(usize::MAX)));
        if let Err(e) = filled.and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)) {
            return Err(Failure::start_up(format!("cannot run on CPUs {:?}: {e}", spec.cpus)));
        }
    }
    if spec.rdma {
        if setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_err() {
            notes.push(
                "the locked-memory limit stays as it is, and RDMA may fail: raise LimitMEMLOCK of the daemon"
                    .into(),
            );
        }
        let hard = getrlimit(Resource::RLIMIT_NOFILE).map_or(RDMA_FILES, |(_, hard)| hard);
        let raised = setrlimit(Resource::RLIMIT_NOFILE, RDMA_FILES, hard.max(RDMA_FILES));
        if raised.or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, hard.min(RDMA_FILES), hard)).is_err() {
            notes.push("the open-file limit stays as it is".into());
        }
    }
    Ok(notes)
}

fn may(path: &Path, how: AccessFlags) -> nix::Result<()> {
    faccessat(AT_FDCWD, path, how, AtFlags::AT_EACCESS)
}

fn check_workdir(spec: &MemberSpec) -> Result<(), Failure> {
    let dir = &spec.workdir;
    let wrong = |why: String| Failure::start_up(format!("working directory {}: {why}", dir.display()));
    match std::fs::metadata(dir) {
        Err(e) => Err(wrong(format!("{e}"))),
        Ok(meta) if !meta.is_dir() => Err(wrong("is no directory".into())),
        Ok(_) => may(dir, AccessFlags::X_OK).map_err(|_| wrong(format!("uid {} may not enter it", spec.uid))),
    }
}

/// Looks the command up as a shell would, with the rank's `PATH`; relative names count from the working
/// directory.
fn find_program(spec: &MemberSpec) -> Result<PathBuf, Failure> {
    let name = spec.argv.first().map_or("", String::as_str);
    let path = spec.env.get("PATH").map_or(PATH_DEFAULT, String::as_str);
    let candidates: Vec<PathBuf> = if name.contains('/') {
        vec![spec.workdir.join(name)]
    } else {
        path.split(':').map(|dir| spec.workdir.join(dir).join(name)).collect()
    };
    let mut denied = None;
    for candidate in candidates {
        match std::fs::metadata(&candidate) {
            Ok(meta) if meta.is_file() => {
                if may(&candidate, AccessFlags::X_OK).is_ok() {
                    return Ok(candidate);
                }
                denied.get_or_insert((candidate, "is not executable"));
            }
            Ok(_) if name.contains('/') => denied = Some((candidate, "is no file that could be executed")),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                denied.get_or_insert((candidate, "cannot be reached"));
            }
            _ => {}
        }
    }
    Err(Failure::start_up(match denied {
        Some((found, why)) => format!("command {} {why} for uid {}", found.display(), spec.uid),
        None if name.contains('/') => format!("command not found: {name}"),
        None => format!("command not found: {name} (PATH is {path})"),
    }))
}

/// Binds and lets go. Somebody may still be quicker before the release; then the rank itself will say so.
fn check_ports(spec: &MemberSpec) -> Result<(), Failure> {
    for port in &spec.ports {
        if let Err(e) = TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, *port))) {
            return Err(Failure::start_up(format!("port {port}: {e}")));
        }
        match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port))) {
            // Other errors mean that there is no IPv6 here.
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                return Err(Failure::start_up(format!("port {port}: {e}")));
            }
            _ => {}
        }
    }
    Ok(())
}

fn open_secret(spec: &MemberSpec, name: &str, path: &Path) -> Result<File, Failure> {
    let wrong = |why: String| {
        Failure::start_up(format!("secret {name}: {} as uid {}: {why}", path.display(), spec.uid))
    };
    // Without O_NONBLOCK, a pipe put there would hold the shim.
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let file =
        OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|e| wrong(e.to_string()))?;
    match file.metadata() {
        Ok(meta) if meta.is_file() => Ok(file),
        Ok(_) => Err(wrong("is no plain file".into())),
        Err(e) => Err(wrong(e.to_string())),
    }
}
