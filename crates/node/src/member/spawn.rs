//! Start a shim.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::fcntl::OFlag;

use super::{Handle, MemberSpec, SpecError};
use crate::protocol::{self, LOG_FILE, MEMBER_FILE, SOCKET_FILE, TOKEN_VARIABLE};

/// Why no shim was started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("the member cannot be: {0}")]
    Spec(#[from] SpecError),
    #[error("{dir} already holds a member; give every start its own folder")]
    Used { dir: PathBuf },
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

/// Starts a shim for a member, in a folder that is the member's alone (made if need be, for this user only).
/// Returns when the shim's process exists; what it has to say comes as events.
///
/// The shim outlives this process, unless a service manager ends the whole cgroup: under systemd the daemon
/// needs `KillMode=process`.
///
/// `shim_exe` (absolute) with `shim_args` and the folder must end in [`crate::shim::main`].
///
/// # Errors
/// When the spec is impossible, the folder was used before, or the shim cannot be started.
pub fn spawn(
    dir: &Path,
    spec: &MemberSpec,
    shim_exe: &Path,
    shim_args: &[&OsStr],
) -> Result<Handle, SpawnError> {
    let at = |what: &'static str, path: &Path| {
        let path = path.to_owned();
        move |source| SpawnError::Io { what, path, source }
    };
    spec.check()?;
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(at("make the folder", dir))?;
    let dir = fs::canonicalize(dir).map_err(at("find", dir))?;
    if dir.join(MEMBER_FILE).exists() {
        return Err(SpawnError::Used { dir });
    }
    protocol::write_json(&dir, MEMBER_FILE, spec).map_err(at("write", &dir.join(MEMBER_FILE)))?;
    let folder = File::open(&dir).map_err(at("open", &dir))?;
    let socket = protocol::socket_path(&folder, SOCKET_FILE);
    // Left by a start that did not get as far as a shim.
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).map_err(at("listen on", &dir.join(SOCKET_FILE)))?;
    let stream = UnixStream::connect(&socket).map_err(at("connect to", &dir.join(SOCKET_FILE)))?;
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(dir.join(LOG_FILE))
        .map_err(at("open", &dir.join(LOG_FILE)))?;

    // The listening socket goes as stdin, the one descriptor that can be handed over without a race against
    // other threads that start processes.
    let child = Command::new(shim_exe)
        .args(shim_args)
        .arg(&dir)
        .env_clear()
        .env(TOKEN_VARIABLE, &spec.token)
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .stderr(Stdio::from(log))
        .spawn()
        .map_err(at("start the shim", shim_exe))?;
    Handle::new(stream, &dir, Some(child)).map_err(at("connect to", &dir.join(SOCKET_FILE)))
}
