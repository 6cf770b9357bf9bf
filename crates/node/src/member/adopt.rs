//! Find a shim again after a restart of the daemon, or clean up after one that is gone.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use phalanx_model::Exit;

use super::{Handle, HandleError, MemberSpec};
use crate::processes::{self, Process};
use crate::protocol::{
    self, EXIT_FILE, MEMBER_FILE, Record, SHIM_FILE, SOCKET_FILE, ShimEvent, TOKEN_VARIABLE,
};

/// How long a shim may take to say who it is.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a shim that answers no more may take to be gone.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// How long processes may take to die of SIGKILL before that is an error.
const REAP_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// What became of a member while nobody looked.
#[derive(Debug)]
pub enum Found {
    /// Its shim answers. The events begin with the present state.
    Alive(Handle),
    /// It ended, and all of its processes are gone.
    Ended(Exit),
    /// Its shim is gone, and it was never let through the gate: nothing of the user's ran.
    NeverStarted,
    /// Its shim is gone without a word, and why that is known. Processes may be left: [`reap`].
    Lost(String),
    /// The machine was started anew since.
    Rebooted,
}

/// Why it cannot be said what became of a member.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    #[error("cannot read what a shim left: {0}")]
    Io(#[from] io::Error),
    #[error("{dir} holds no member")]
    NoMember { dir: PathBuf },
    /// The shim lives, or something holds its socket, and it does not answer in time. Try again, or [`reap`] it.
    #[error("the shim in {dir} does not answer")]
    Silent { dir: PathBuf },
}

/// Looks up the shim of a folder that [`crate::spawn`] filled. A pid alone proves nothing: the shim must
/// answer, and be the process that wrote `shim.json`, started then, in this boot.
///
/// # Errors
/// When the folder cannot be read, or the shim does not answer.
pub fn adopt(dir: &Path) -> Result<Found, AdoptError> {
    if let Some(exit) = protocol::read_json(dir, EXIT_FILE)? {
        return Ok(Found::Ended(exit));
    }
    let boot_id = processes::boot_id()?;
    let record: Option<Record> = protocol::read_json(dir, SHIM_FILE)?;
    if record.as_ref().is_some_and(|r| r.boot_id != boot_id) {
        return Ok(Found::Rebooted);
    }
    if !dir.join(MEMBER_FILE).exists() {
        return Err(AdoptError::NoMember { dir: dir.to_owned() });
    }
    let folder = File::open(dir)?;
    let stream = match UnixStream::connect(protocol::socket_path(&folder, SOCKET_FILE)) {
        Ok(stream) => stream,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return gone(dir, "its shim is gone and left no exit");
        }
        // The queue of the socket is full: nobody takes connections off it.
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            return Err(AdoptError::Silent { dir: dir.to_owned() });
        }
        Err(e) => return Err(e.into()),
    };
    let mut handle = Handle::new(stream, dir, None)?;
    let (pid, start_time) = match handle.next_event(ANSWER_TIMEOUT) {
        Ok(Some(ShimEvent::Starting { pid, start_time, boot_id: theirs })) if theirs == boot_id => {
            (pid, start_time)
        }
        Ok(None) => return Err(AdoptError::Silent { dir: dir.to_owned() }),
        Ok(Some(_)) => return gone(dir, "what answers on its socket is not its shim"),
        Err(HandleError::Io { source, .. }) => return Err(source.into()),
        Err(_) => return gone(dir, "its shim is gone and left no exit"),
    };
    // Read again: the shim writes it before it answers.
    let record: Option<Record> = protocol::read_json(dir, SHIM_FILE)?;
    let answered = Process { pid, start_time };
    if record.is_some_and(|r| r.process() == answered) && answered.is_alive() {
        Ok(Found::Alive(handle))
    } else {
        gone(dir, "what answers on its socket is not its shim")
    }
}

/// Nobody answers for the member. The shim may be just ending, and write its last word; or it lives and has
/// no room for one more connection.
fn gone(dir: &Path, why: &str) -> Result<Found, AdoptError> {
    let record: Option<Record> = protocol::read_json(dir, SHIM_FILE)?;
    let until = Instant::now() + END_TIMEOUT;
    while record.as_ref().is_some_and(|r| r.process().is_alive()) {
        if Instant::now() > until {
            return Err(AdoptError::Silent { dir: dir.to_owned() });
        }
        std::thread::sleep(PAUSE);
    }
    if let Some(exit) = protocol::read_json(dir, EXIT_FILE)? {
        return Ok(Found::Ended(exit));
    }
    let record: Option<Record> = protocol::read_json(dir, SHIM_FILE)?;
    Ok(match record {
        Some(Record { released: true, .. }) => Found::Lost(why.to_owned()),
        _ => Found::NeverStarted,
    })
}

/// Why a member's processes are not known to be gone.
#[derive(Debug, thiserror::Error)]
pub enum ReapError {
    #[error("cannot read what a shim left: {0}")]
    Io(#[from] io::Error),
    #[error("processes {} live on {} s after SIGKILL; something in the kernel holds them", pids.iter()
        .map(i32::to_string).collect::<Vec<_>>().join(", "), REAP_TIMEOUT.as_secs())]
    Unkillable { pids: Vec<i32> },
}

/// CPU time that a member used so far, its processes that ended included, in milliseconds; none where nobody holds it.
#[must_use]
pub fn cpu_ms(dir: &Path) -> Option<u64> {
    let record: Record = protocol::read_json(dir, SHIM_FILE).ok()??;
    processes::cpu_ms(record.process())
}

/// A member that has not ended, as its folder says. It is not asked.
#[derive(Clone, Debug)]
pub struct Inspected {
    pub spec: MemberSpec,
    pub shim: Process,
    /// Its shim lives. Without it processes may be left: [`reap`].
    pub is_alive: bool,
    /// It was let through the gate.
    pub is_released: bool,
}

/// Looks at the folder of a member. `None` if the member ended, never had a shim, or is of an earlier boot.
///
/// # Errors
/// When the folder cannot be read.
pub fn inspect(dir: &Path) -> io::Result<Option<Inspected>> {
    if dir.join(EXIT_FILE).exists() {
        return Ok(None);
    }
    let record: Option<Record> = protocol::read_json(dir, SHIM_FILE)?;
    let spec: Option<MemberSpec> = protocol::read_json(dir, MEMBER_FILE)?;
    let Some((record, spec)) = record.zip(spec) else { return Ok(None) };
    if record.boot_id != processes::boot_id()? {
        return Ok(None);
    }
    let shim = record.process();
    Ok(Some(Inspected { spec, shim, is_alive: shim.is_alive(), is_released: record.released }))
}

/// What a member was told, also after its end.
///
/// # Errors
/// When the folder cannot be read.
pub fn spec_of(dir: &Path) -> io::Result<Option<MemberSpec>> {
    protocol::read_json(dir, MEMBER_FILE)
}

/// Ends whatever is left of a member, its shim included, and removes its cgroups. Returns how many processes
/// there were. They are found by cgroup and by the token in their environment; where there are no cgroups, a
/// process escapes that dropped the token and outlived its parents.
///
/// # Errors
/// When the folder cannot be read, or processes do not die.
pub fn reap(dir: &Path) -> Result<usize, ReapError> {
    let Some(spec) = protocol::read_json::<MemberSpec>(dir, MEMBER_FILE)? else { return Ok(0) };
    let record: Option<Record> = protocol::read_json(dir, SHIM_FILE)?;
    let boot_id = processes::boot_id()?;
    if record.as_ref().is_some_and(|r| r.boot_id != boot_id) {
        return Ok(0);
    }
    let shim = record.as_ref().map(Record::process);
    let group = record.map_or_else(|| spec.isolation.detect().group(&spec.token), |r| r.group);
    let left = || {
        let mut left = group.processes();
        left.extend(processes::with_environment(TOKEN_VARIABLE, &spec.token));
        left.extend(shim.filter(|shim| shim.is_alive()));
        left
    };
    let until = Instant::now() + REAP_TIMEOUT;
    let mut seen: BTreeSet<Process> = BTreeSet::new();
    loop {
        let now = left();
        if now.is_empty() {
            break;
        }
        if Instant::now() > until {
            return Err(ReapError::Unkillable { pids: now.iter().map(|p| p.pid).collect() });
        }
        seen.extend(now);
        group.kill();
        processes::kill_round(left);
        std::thread::sleep(PAUSE);
    }
    // An empty group that stays behind takes no room and harms nobody.
    let _ = group.remove();
    Ok(seen.len())
}
