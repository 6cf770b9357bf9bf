//! What daemon and shim say to each other: files in the member's folder, and lines over its socket.
//!
//! | file | written by | what |
//! |---|---|---|
//! | `member.json` | daemon | [`crate::MemberSpec`] |
//! | `ctl.sock` | daemon | bound before the shim starts and inherited, so that no connect comes too early |
//! | `shim.json` | shim | who it is, see [`Record`] |
//! | `shim.log` | shim | what it has to complain about |
//! | `exit.json` | shim | [`phalanx_model::Exit`], when the last process is gone |
//!
//! Each line is one JSON object: a [`Command`] to the shim, a [`ShimEvent`] from it. A new connection is
//! first told the present state as events, then what changes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use phalanx_model::{Exit, FailureClass};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::isolation::Group;
use crate::processes::Process;

pub const MEMBER_FILE: &str = "member.json";
pub const SOCKET_FILE: &str = "ctl.sock";
pub const SHIM_FILE: &str = "shim.json";
pub const LOG_FILE: &str = "shim.log";
pub const EXIT_FILE: &str = "exit.json";
/// Every process of a member carries its token in this variable.
pub const TOKEN_VARIABLE: &str = "PHALANX_MEMBER_TOKEN";

/// Longest line, in bytes.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;
/// Largest file that is read, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 16 << 20;

/// An order to the shim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Lets the rank through the gate. Again is the same as once.
    Release,
    /// To the rank's own process, and only if it handles the signal.
    Signal { number: i32 },
    /// Runs a command beside the rank, as its user and with its limits and environment; it ends with the rank.
    /// [`ShimEvent::Beside`] answers.
    RunBeside { name: String, argv: Vec<String> },
    /// SIGTERM to every process of the member. At the gate: ends it.
    Terminate,
    /// Ends every process of the member.
    Kill,
}

/// A fact from the shim. `Failed` and `Exited` are the last, and come after the last process is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ShimEvent {
    /// Who answers: the first line of every connection.
    Starting { pid: i32, start_time: u64, boot_id: String },
    /// All is prepared and nothing of the user's runs. `notes` say what could not be had and is not fatal.
    Ready { pid: i32, start_time: u64, notes: Vec<String> },
    /// The user's program never ran.
    Failed { class: FailureClass, detail: String },
    /// Let through the gate; the rank's own process.
    Running { pid: i32 },
    /// What became of a [`Command::Signal`]; not repeated to later connections.
    Signalled { number: i32, delivered: bool, detail: String },
    /// What became of a [`Command::RunBeside`]; not repeated to later connections.
    Beside { name: String, failure: Option<String> },
    /// The rank's own process ended so, and every other process of the member is gone.
    Exited { exit: Exit },
}

impl ShimEvent {
    /// Nothing comes after it.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Exited { .. })
    }

    /// How a member with this exit is told of.
    pub(crate) fn of_exit(exit: Exit) -> Self {
        match exit {
            Exit { code: None, signal: None, class: Some(class), detail, .. } => {
                Self::Failed { class, detail }
            }
            exit => Self::Exited { exit },
        }
    }
}

/// Who the shim is, and what it holds: enough to find it again, or to clean up after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub pid: i32,
    pub start_time: u64,
    pub boot_id: String,
    /// Set before the rank is let through the gate: from then on something of the user's may have run.
    pub released: bool,
    pub rank_pid: Option<i32>,
    pub group: Group,
}

impl Record {
    #[must_use]
    pub const fn process(&self) -> Process {
        Process { pid: self.pid, start_time: self.start_time }
    }
}

/// Writes a file whole or not at all, and durably.
pub(crate) fn write_json<T: Serialize>(dir: &Path, name: &str, value: &T) -> io::Result<()> {
    let new = dir.join(format!(".{name}.new"));
    let bytes = serde_json::to_vec(value)?;
    let flags = OFlag::O_NOFOLLOW.bits();
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(flags)
        .open(&new)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&new, dir.join(name))?;
    File::open(dir)?.sync_all()
}

/// Reads a file that [`write_json`] wrote; `None` when there is none.
pub(crate) fn read_json<T: DeserializeOwned>(dir: &Path, name: &str) -> io::Result<Option<T>> {
    let path = dir.join(name);
    let annotate = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(annotate(e)),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(annotate)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let e = io::Error::other(format!("larger than {FILE_BYTES_MAX} bytes"));
        return Err(annotate(e));
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|e| annotate(e.into()))
}

/// A short path of a socket in a folder: its real one may be longer than the 107 bytes an address holds. Valid while
/// the opened folder lives.
pub(crate) fn socket_path(dir: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}

/// One line, ready to be sent.
pub(crate) fn line<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Takes the first whole line out of the buffer, without its end.
pub(crate) fn take_line(buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = buffer.iter().position(|byte| *byte == b'\n')?;
    let mut line: Vec<u8> = buffer.drain(..=end).collect();
    line.pop();
    Some(line)
}
