//! The command of a keeper, and the descriptors through which it is spoken to.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::fcntl::{F_GETFL, F_SETFD, F_SETFL, FdFlag, OFlag, fcntl};
use nix::pty::openpty;
use nix::sys::signal::Signal;

use super::{Ask, KeeperError, Surface, cannot};
use crate::sys;
use crate::terminal::Size;

/// Input that the command has not read yet; a client is not read while there is more.
const INPUT_BYTES_MAX: usize = 64 << 10;
const READ_BYTES: usize = 16 << 10;

/// Which of its outputs a command wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Output,
    Error,
}

/// A started command.
pub(super) struct Running {
    child: Child,
    surface: Surface,
    input: Option<File>,
    unread: Vec<u8>,
    /// No input comes any more: the end is told once everything is written.
    input_ends: bool,
    outputs: Vec<(File, Stream)>,
}

impl Running {
    pub(super) fn start(ask: &Ask) -> Result<Self, KeeperError> {
        let program = ask.argv.first().cloned().unwrap_or_default();
        let mut command = Command::new(&program);
        command.args(ask.argv.iter().skip(1));
        if let Some(term) = &ask.term {
            command.env("TERM", term);
        }
        let start = |command: &mut Command| {
            command.spawn().map_err(|source| KeeperError::Start { program: program.clone(), source })
        };
        match ask.surface {
            Surface::Terminal => {
                let pair = openpty(None, None).map_err(cannot("make a terminal"))?;
                let prepared = set_close_on_exec(&pair.master)
                    .and_then(|()| sys::set_window_size(&pair.slave, Size { rows: 24, columns: 80 }));
                prepared.map_err(cannot("set up a terminal"))?;
                let share = || pair.slave.try_clone().map_err(cannot("share a terminal"));
                command.stdin(share()?).stdout(share()?).stderr(share()?);
                sys::set_up_command(&mut command, true);
                let child = start(&mut command)?;
                // The last ends of this side: else the terminal would never be at its end.
                drop(command);
                drop(pair.slave);
                let input = File::from(pair.master);
                let output = input.try_clone().map_err(cannot("share a terminal"))?;
                Self::new(child, ask.surface, input, vec![(output, Stream::Output)])
            }
            Surface::Pipes => {
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
                sys::set_up_command(&mut command, false);
                let mut child = start(&mut command)?;
                let (input, output, error) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
                let input = input.map(OwnedFd::from).ok_or_else(|| cannot("give input")(no_pipe()))?;
                let output = output.map(|pipe| (File::from(OwnedFd::from(pipe)), Stream::Output));
                let error = error.map(|pipe| (File::from(OwnedFd::from(pipe)), Stream::Error));
                let outputs = output.into_iter().chain(error).collect();
                Self::new(child, ask.surface, File::from(input), outputs)
            }
        }
    }

    fn new(
        child: Child,
        surface: Surface,
        input: File,
        outputs: Vec<(File, Stream)>,
    ) -> Result<Self, KeeperError> {
        for end in std::iter::once(&input).chain(outputs.iter().map(|(file, _)| file)) {
            set_nonblocking(end).map_err(cannot("set up a terminal"))?;
        }
        Ok(Self { child, surface, input: Some(input), unread: Vec::new(), input_ends: false, outputs })
    }

    /// How it ended, if it did.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// To every process of its group: a terminal that hangs up says SIGHUP, and a shell ends by that alone.
    pub(super) fn hang_up(&self) {
        let signal = match self.surface {
            Surface::Terminal => Signal::SIGHUP,
            Surface::Pipes => Signal::SIGTERM,
        };
        self.signal(signal);
    }

    pub(super) fn signal(&self, signal: Signal) {
        // It led a group of this number; while it is not collected the number is its own.
        let leader = i32::try_from(self.child.id()).unwrap_or(0);
        if leader > 1 {
            let _ = sys::signal_pid(-leader, signal as i32);
        }
    }

    pub(super) fn resize(&self, size: Size) {
        if let (Surface::Terminal, Some((terminal, _))) = (self.surface, self.outputs.first()) {
            let _ = sys::set_window_size(terminal, size);
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.unread.len() < INPUT_BYTES_MAX
    }

    pub(super) fn give(&mut self, input: &[u8]) {
        if self.input.is_some() {
            self.unread.extend_from_slice(input);
        }
    }

    /// No input comes any more. A terminal has no end of input; what a user types says so.
    pub(super) fn end_input(&mut self) {
        self.input_ends = self.surface == Surface::Pipes;
    }

    /// Where input can be written, if there is some.
    pub(super) fn waits_to_write(&self) -> Option<BorrowedFd<'_>> {
        self.input.as_ref().filter(|_| !self.unread.is_empty()).map(File::as_fd)
    }

    /// Writes what the command takes.
    pub(super) fn write(&mut self) {
        while let Some(input) = self.input.as_mut().filter(|_| !self.unread.is_empty()) {
            match input.write(&self.unread) {
                Ok(count) => drop(self.unread.drain(..count)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // It reads no more.
                Err(_) => {
                    self.input = None;
                    self.unread.clear();
                }
            }
        }
        if self.input_ends {
            self.input = None;
        }
    }

    pub(super) fn outputs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.outputs.iter().map(|(file, _)| file.as_fd())
    }

    /// Whether the command, and all that it started, has closed its outputs.
    pub(super) fn is_silent(&self) -> bool {
        self.outputs.is_empty()
    }

    /// What has been written and fits one read of each output. An output that is closed is forgotten.
    pub(super) fn read(&mut self) -> Vec<(Stream, Vec<u8>)> {
        let mut read = Vec::new();
        self.outputs.retain_mut(|(file, stream)| {
            let mut chunk = vec![0; READ_BYTES];
            match file.read(&mut chunk) {
                Ok(0) => false,
                Ok(count) => {
                    chunk.truncate(count);
                    read.push((*stream, chunk));
                    true
                }
                Err(e) => matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            }
        });
        read
    }
}

fn no_pipe() -> io::Error {
    io::Error::other("no pipe was made")
}

fn set_close_on_exec(fd: &OwnedFd) -> io::Result<()> {
    fcntl(fd, F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(())
}

fn set_nonblocking(file: &File) -> io::Result<()> {
    let flags = OFlag::from_bits_truncate(fcntl(file, F_GETFL)?);
    fcntl(file, F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}
