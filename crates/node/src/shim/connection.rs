//! One daemon's connection to the shim, without blocking.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::poll::PollFlags;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::{Uid, geteuid};

use super::complain;
use crate::protocol::{self, Command, LINE_BYTES_MAX, ShimEvent};

/// What may wait for a daemon that does not read; then it is cut off, and may come again.
const UNSENT_BYTES_MAX: usize = 256 << 10;
/// What is read at once; the rest waits for the next turn.
const READ_BYTES_MAX: usize = 64 << 10;

pub(super) struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
    unsent: Vec<u8>,
    open: bool,
}

impl Connection {
    /// `None` when it is another user's: only the daemon's and root may give orders.
    pub(super) fn new(stream: UnixStream) -> Option<Self> {
        let peer = Uid::from_raw(getsockopt(&stream, PeerCredentials).ok()?.uid());
        let may = peer.is_root() || peer == geteuid();
        (may && stream.set_nonblocking(true).is_ok()).then_some(Self {
            stream,
            received: Vec::new(),
            unsent: Vec::new(),
            open: true,
        })
    }

    pub(super) fn interest(&self) -> (BorrowedFd<'_>, PollFlags) {
        let write = if self.unsent.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
        (self.stream.as_fd(), PollFlags::POLLIN | write)
    }

    pub(super) const fn is_open(&self) -> bool {
        self.open
    }

    pub(super) const fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// The commands that have come in. One that cannot be read is dropped, and said so in the shim's log.
    pub(super) fn receive(&mut self) -> Vec<Command> {
        let mut chunk = [0; 4096];
        let mut taken = 0;
        while self.open && taken < READ_BYTES_MAX {
            match self.stream.read(&mut chunk) {
                Ok(0) => self.open = false,
                Ok(count) => {
                    taken += count;
                    self.received.extend_from_slice(chunk.get(..count).unwrap_or_default());
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.open = false,
            }
        }
        let mut commands = Vec::new();
        while let Some(line) = protocol::take_line(&mut self.received) {
            match serde_json::from_slice(&line) {
                Ok(command) => commands.push(command),
                Err(e) => complain(&format!("a command cannot be read: {e}")),
            }
        }
        if self.received.len() > LINE_BYTES_MAX {
            self.open = false;
        }
        commands
    }

    pub(super) fn push(&mut self, event: &ShimEvent) {
        self.unsent.extend(protocol::line(event));
        if self.unsent.len() > UNSENT_BYTES_MAX {
            self.open = false;
        }
    }

    pub(super) fn flush(&mut self) {
        while self.open && !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.open = false,
            }
        }
    }
}
