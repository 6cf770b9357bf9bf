//! The client of a keeper: this terminal, or these pipes, become those of the command.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

use super::frame::{Decoder, Frame};
use super::keeper::Surface;
use crate::protocol::socket_path;
use crate::sys;

/// Between two tries to reach a keeper that is being started.
const TRY_AGAIN: Duration = Duration::from_millis(20);
const READ_BYTES: usize = 16 << 10;
/// Ctrl-], as in telnet: what comes after it is for this client.
const ESCAPE: u8 = 0x1d;
const LEAVE: u8 = b'd';
/// Ends what a program may have asked of a terminal: the other screen, a hidden cursor, colours, reports of the mouse,
/// marks around what is pasted, other codes for keys. Sequences of xterm, <https://invisible-island.net/xterm/ctlseqs>.
const RESET: &str =
    "\x1b[?1049l\x1b[?25h\x1b[m\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\r\n";

/// How it came to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command ended.
    Ended { code: Option<i32>, signal: Option<i32> },
    /// The user left; the command goes on.
    Detached,
    /// The keeper is gone, or this was told to let go.
    Lost,
}

/// Why nothing could be attached to.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("cannot reach the terminal at {}: {source}", path.display())]
    Unreachable { path: PathBuf, source: io::Error },
    #[error("the process at {} is of uid {found} and not of uid {wanted}", path.display())]
    Stranger { path: PathBuf, found: u32, wanted: u32 },
    #[error("cannot use this terminal: {0}")]
    Terminal(#[from] io::Error),
}

/// Whom to expect, and when to give up.
pub struct Surroundings<'a> {
    /// The owner of the keeper.
    pub uid: u32,
    pub surface: Surface,
    /// How long a keeper that is not there yet is waited for.
    pub patience: Duration,
    /// Runs on a thread of its own, and returns when this is to let go: at an interrupt, say.
    pub let_go: Box<dyn FnOnce() + Send>,
    /// Called once the keeper answers, before anything is shown.
    pub on_attached: Box<dyn FnOnce() + 'a>,
}

/// Attaches to the keeper of this name in this folder, and returns when either end lets go.
///
/// With [`Surface::Terminal`] standard input must be a terminal: it is raw meanwhile, and as before afterwards.
///
/// # Errors
/// When there is no keeper, it is somebody else's, or this terminal cannot be used.
pub fn attach(dir: &Path, name: &str, around: Surroundings<'_>) -> Result<Outcome, AttachError> {
    let stream = connect(dir, name, &around)?;
    (around.on_attached)();
    let raw = match around.surface {
        Surface::Terminal => {
            block_window_changes();
            Some(Raw::of_stdin()?)
        }
        Surface::Pipes => None,
    };
    let line = Arc::new(Line { writer: Mutex::new(stream.try_clone()?), surface: around.surface });
    if raw.is_some() {
        line.send_size();
        let of_window = Arc::clone(&line);
        std::thread::spawn(move || of_window.follow_window());
    }
    let left = Arc::clone(&line);
    std::thread::spawn(move || {
        (around.let_go)();
        left.close();
    });
    let detached = Arc::new(Mutex::new(false));
    let (typed, leaves) = (Arc::clone(&line), Arc::clone(&detached));
    std::thread::spawn(move || {
        if typed.send_input() {
            *leaves.lock().unwrap_or_else(PoisonError::into_inner) = true;
            typed.close();
        }
    });
    let outcome = show(stream);
    if raw.is_some() && outcome == Outcome::Lost {
        // The program that set it up goes on elsewhere, and cleans up nothing here.
        let mut out = io::stdout();
        let _ = out.write_all(RESET.as_bytes()).and_then(|()| out.flush());
    }
    drop(raw);
    let left = *detached.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(if left && outcome == Outcome::Lost { Outcome::Detached } else { outcome })
}

/// Whether standard input is a terminal that can be attached.
#[must_use]
pub fn has_terminal() -> bool {
    io::stdin().is_terminal()
}

/// The socket lies in a folder of the job's owner, who could put anything there: who answers must be that owner.
fn connect(dir: &Path, name: &str, around: &Surroundings<'_>) -> Result<UnixStream, AttachError> {
    let path = dir.join(name);
    let until = Instant::now() + around.patience;
    let stream = loop {
        match File::open(dir).and_then(|folder| UnixStream::connect(socket_path(&folder, name))) {
            Ok(stream) => break stream,
            Err(e)
                if Instant::now() < until
                    && matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) =>
            {
                std::thread::sleep(TRY_AGAIN);
            }
            Err(source) => return Err(AttachError::Unreachable { path, source }),
        }
    };
    let found = getsockopt(&stream, PeerCredentials).map_err(io::Error::from)?.uid();
    if found != around.uid {
        return Err(AttachError::Stranger { path, found, wanted: around.uid });
    }
    Ok(stream)
}

/// What the keeper says, until its last word or the end of the connection.
fn show(mut stream: UnixStream) -> Outcome {
    let (mut out, mut errors) = (io::stdout(), io::stderr());
    let mut decoder = Decoder::default();
    let mut chunk = vec![0; READ_BYTES];
    loop {
        loop {
            let shown = match decoder.next_frame() {
                Ok(Some(Frame::Output(bytes))) => out.write_all(&bytes).and_then(|()| out.flush()),
                Ok(Some(Frame::Error(bytes))) => errors.write_all(&bytes),
                Ok(Some(Frame::Ended { code, signal })) => return Outcome::Ended { code, signal },
                Ok(None) => break,
                // Of another version, or no keeper.
                Ok(Some(_)) | Err(_) => return Outcome::Lost,
            };
            if shown.is_err() {
                return Outcome::Lost;
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) => return Outcome::Lost,
            Ok(count) => decoder.push(chunk.get(..count).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Outcome::Lost,
        }
    }
}

/// The way to the keeper.
struct Line {
    writer: Mutex<UnixStream>,
    surface: Surface,
}

impl Line {
    fn send(&self, frame: &Frame) -> io::Result<()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).write_all(&frame.bytes())
    }

    /// The other threads see the end of the connection.
    fn close(&self) {
        let _ = self.writer.lock().unwrap_or_else(PoisonError::into_inner).shutdown(Shutdown::Both);
    }

    fn send_size(&self) {
        if let Some(size) = sys::window_size(&io::stdin()) {
            let _ = self.send(&Frame::Size(size));
        }
    }

    fn follow_window(&self) {
        let mut changes = SigSet::empty();
        changes.add(Signal::SIGWINCH);
        while changes.wait().is_ok() {
            self.send_size();
        }
    }

    /// Standard input, until its end. Says whether the user wants to leave.
    fn send_input(&self) -> bool {
        let mut chunk = vec![0; READ_BYTES];
        let mut escape = Escape::default();
        let mut input = io::stdin();
        loop {
            let read = match input.read(&mut chunk) {
                Ok(0) => {
                    let _ = self.send(&Frame::InputEnd);
                    // A terminal that is gone: the keeper is told by the end of the connection.
                    if self.surface == Surface::Terminal {
                        self.close();
                    }
                    return false;
                }
                Ok(count) => chunk.get(..count).unwrap_or_default(),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => {
                    self.close();
                    return false;
                }
            };
            let (bytes, leaves) = match self.surface {
                Surface::Terminal => escape.take(read),
                Surface::Pipes => (read.to_vec(), false),
            };
            if self.send(&Frame::Input(bytes)).is_err() {
                return false;
            }
            if leaves {
                let _ = self.send(&Frame::Detach);
                return true;
            }
        }
    }
}

/// Finds what is meant for the client in what is typed: Ctrl-] d leaves, Ctrl-] twice is typed once.
#[derive(Clone, Copy, Debug, Default)]
struct Escape {
    begun: bool,
}

impl Escape {
    /// What is for the command, and whether the user wants to leave.
    fn take(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut rest = Vec::with_capacity(typed.len());
        for byte in typed.iter().copied() {
            match (std::mem::take(&mut self.begun), byte) {
                (true, LEAVE) => return (rest, true),
                (true, ESCAPE) => rest.push(ESCAPE),
                (true, other) => rest.extend([ESCAPE, other]),
                (false, ESCAPE) => self.begun = true,
                (false, other) => rest.push(other),
            }
        }
        (rest, false)
    }
}

/// Blocked in this thread and in those that it starts, so that one of them can wait for it.
fn block_window_changes() {
    let mut changes = SigSet::empty();
    changes.add(Signal::SIGWINCH);
    let _ = changes.thread_block();
}

/// A terminal that passes everything on as it is typed; as before when dropped.
struct Raw {
    before: Termios,
}

impl Raw {
    fn of_stdin() -> Result<Self, AttachError> {
        let input = io::stdin();
        let before = tcgetattr(input.as_fd()).map_err(io::Error::from)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(input.as_fd(), SetArg::TCSADRAIN, &raw).map_err(io::Error::from)?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin().as_fd(), SetArg::TCSADRAIN, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_escape_is_for_the_client_and_what_else_is_typed_for_the_command() {
        let mut escape = Escape::default();
        assert_eq!(escape.take(b"ls\n"), (b"ls\n".to_vec(), false));
        assert_eq!(escape.take(b"a\x1d"), (b"a".to_vec(), false));
        assert_eq!(escape.take(b"x"), (b"\x1dx".to_vec(), false), "another key: both are typed");
        assert_eq!(escape.take(b"\x1d\x1d"), (b"\x1d".to_vec(), false));
        assert_eq!(escape.take(b"b\x1dd rest"), (b"b".to_vec(), true));
    }
}
