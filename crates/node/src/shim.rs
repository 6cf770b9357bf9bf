//! The shim: one small process per rank. It prepares the rank, holds it at the gate, starts it, and keeps its
//! end until somebody asks. It is of its own session, has one thread, and needs no daemon while it runs.

mod beside;
mod check;
mod connection;
mod stages;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{Mode, umask};

use crate::member::MemberSpec;
use crate::processes;
use crate::protocol::{self, MEMBER_FILE, Record, SHIM_FILE};
use crate::{ready, sys};
use connection::Connection;
use stages::Shim;

/// Daemons that listen at once; there is one, and another for a moment while it is replaced.
const CONNECTIONS_MAX: usize = 8;

/// Why a shim could not do its work. Goes to `shim.log`.
#[derive(Debug, thiserror::Error)]
enum ShimError {
    #[error("cannot {what}: {source}")]
    System { what: &'static str, source: io::Error },
    #[error("there is no {MEMBER_FILE} in the folder")]
    NoMember,
    #[error("the member cannot be: {0}")]
    Spec(#[from] crate::member::SpecError),
}

fn cannot<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> ShimError {
    move |source| ShimError::System { what, source: source.into() }
}

/// Runs the shim of the member in this folder until the member's last process is gone. Called by the hidden
/// subcommand that [`crate::spawn`] starts, in a process of its own with the listening socket as stdin.
#[must_use]
pub fn main(dir: &Path) -> ExitCode {
    match run(dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            complain(&format!("shim of {}: {e}", dir.display()));
            ExitCode::FAILURE
        }
    }
}

/// To `shim.log`. A disk without room for it must not end the shim, as a failing `eprintln` would.
fn complain(message: &str) {
    let _ = writeln!(io::stderr(), "{message}");
}

fn run(dir: &Path) -> Result<(), ShimError> {
    sys::close_inherited();
    let signals = detach().map_err(cannot("leave the daemon's session"))?;
    let listener = take_listener().map_err(cannot("take over the socket"))?;
    let spec: MemberSpec = protocol::read_json(dir, MEMBER_FILE)
        .map_err(cannot("read the member"))?
        .ok_or(ShimError::NoMember)?;
    spec.check()?;

    let record = identify(&spec).map_err(cannot("read /proc"))?;
    protocol::write_json(dir, SHIM_FILE, &record).map_err(cannot("write shim.json"))?;
    let mut shim = Shim::prepare(dir, spec, record);
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        wait(&signals, &listener, &connections, shim.wake_at()).map_err(cannot("poll"))?;
        while let Ok(Some(_)) = signals.read_signal() {}
        accept(&listener, &mut connections, &shim);
        for connection in &mut connections {
            for command in connection.receive() {
                shim.obey(&command);
            }
        }
        shim.advance();
        let events = shim.take_events();
        for connection in &mut connections {
            events.iter().for_each(|event| connection.push(event));
            connection.flush();
        }
        connections.retain(Connection::is_open);
        if shim.is_over(connections.iter().all(Connection::is_flushed)) {
            return Ok(());
        }
    }
}

/// Becomes a session leader that no terminal and no daemon can end. Every signal is blocked (the rank's are
/// not: its mask is cleared before it runs), and only the end of children is listened for.
fn detach() -> io::Result<SignalFd> {
    sys::reset_signals();
    SigSet::all().thread_block()?;
    match nix::unistd::setsid() {
        // Leads a group already, so it was started by hand, or by a daemon that saw to this.
        Ok(_) | Err(Errno::EPERM) => {}
        Err(e) => return Err(e.into()),
    }
    nix::sys::prctl::set_child_subreaper(true)?;
    umask(Mode::from_bits_truncate(0o022));
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    Ok(SignalFd::with_flags(&children, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// The socket came as stdin; `/dev/null` takes its place.
fn take_listener() -> io::Result<UnixListener> {
    let listener = UnixListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    // Fails for anything that is no listening socket.
    listener.local_addr()?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn identify(spec: &MemberSpec) -> io::Result<Record> {
    let pid = nix::unistd::getpid().as_raw();
    let stat = processes::stat(pid).ok_or_else(|| io::Error::other("this process is not in /proc"))?;
    Ok(Record {
        pid,
        start_time: stat.start_time,
        boot_id: processes::boot_id()?,
        released: false,
        rank_pid: None,
        group: spec.isolation.detect().group(&spec.token),
    })
}

/// Sleeps until something happens or it is time.
fn wait(
    signals: &SignalFd,
    listener: &UnixListener,
    connections: &[Connection],
    wake_at: Option<Instant>,
) -> io::Result<()> {
    let mut fds: Vec<(BorrowedFd<'_>, PollFlags)> =
        vec![(signals.as_fd(), PollFlags::POLLIN), (listener.as_fd(), PollFlags::POLLIN)];
    fds.extend(connections.iter().map(Connection::interest));
    ready::wait(fds, wake_at.map(|at| at.saturating_duration_since(Instant::now())))
}

/// Takes new connections; each is told the present state. A refused one (too many, another user) is closed.
fn accept(listener: &UnixListener, connections: &mut Vec<Connection>, shim: &Shim) {
    while let Ok((stream, _)) = listener.accept() {
        if connections.len() >= CONNECTIONS_MAX {
            continue;
        }
        if let Some(mut connection) = Connection::new(stream) {
            shim.present().iter().for_each(|event| connection.push(event));
            connections.push(connection);
        }
    }
}
