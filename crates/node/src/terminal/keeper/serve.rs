//! The loop of a keeper: one thread between the command, its clients, signals and time.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::{Uid, geteuid};

use super::command::{Running, Stream};
use super::{HANGUP_GRACE, KeeperError, LOST_KEPT, Life, cannot};
use crate::ready;
use crate::terminal::frame::{Decoder, Frame, Size};

/// Clients at once.
const CLIENTS_MAX: usize = 8;
/// What is kept of what the command wrote while nobody was attached.
const UNSEEN_BYTES_MAX: usize = 64 << 10;
/// The command is not read while a client has not taken this much.
const UNSENT_BYTES_MAX: usize = 256 << 10;
/// How long a client may take nothing while the command waits for it.
const STALLED: Duration = Duration::from_secs(10);
/// How long after the end of the command what it left behind may still write.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How long clients may take to hear of the end.
const FLUSH: Duration = Duration::from_secs(2);

/// SIGCHLD, and what is sent to end this process, to be read and not to interrupt.
pub(super) fn signals() -> io::Result<SignalFd> {
    let mut wanted = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        wanted.add(signal);
    }
    wanted.thread_block()?;
    Ok(SignalFd::with_flags(&wanted, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// One that attached.
pub(super) struct Client {
    stream: UnixStream,
    decoder: Decoder,
    unsent: VecDeque<u8>,
    /// When it last took something, or had nothing to take.
    took_at: Instant,
    open: bool,
    /// It said that it leaves.
    detached: bool,
    /// It told the size of its window.
    is_sized: bool,
}

impl Client {
    /// `None` for another user than the owner of this process, and root.
    fn new(stream: UnixStream) -> Option<Self> {
        let peer = Uid::from_raw(getsockopt(&stream, PeerCredentials).ok()?.uid());
        let may = peer.is_root() || peer == geteuid();
        (may && stream.set_nonblocking(true).is_ok()).then(|| Self {
            stream,
            decoder: Decoder::default(),
            unsent: VecDeque::new(),
            took_at: Instant::now(),
            open: true,
            detached: false,
            is_sized: false,
        })
    }

    fn push(&mut self, frame: &Frame) {
        if self.unsent.is_empty() {
            self.took_at = Instant::now();
        }
        self.unsent.extend(frame.bytes());
    }

    fn flush(&mut self) {
        while self.open && !self.unsent.is_empty() {
            let (head, _) = self.unsent.as_slices();
            match self.stream.write(head) {
                Ok(count) => {
                    self.unsent.drain(..count);
                    self.took_at = Instant::now();
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.open = false,
            }
        }
    }

    /// One read, and the frames that are whole by now.
    fn receive(&mut self) -> Vec<Frame> {
        let mut chunk = [0; 16 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.open = false,
            Ok(count) => self.decoder.push(chunk.get(..count).unwrap_or_default()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.open = false,
        }
        let mut frames = Vec::new();
        loop {
            match self.decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => return frames,
                Err(_) => {
                    self.open = false;
                    return frames;
                }
            }
        }
    }
}

/// Waits for the one client of a command.
pub(super) fn first_client(
    listener: &UnixListener,
    signals: &SignalFd,
    timeout: Duration,
) -> io::Result<Option<Client>> {
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        ready::wait(
            vec![(listener.as_fd(), PollFlags::POLLIN), (signals.as_fd(), PollFlags::POLLIN)],
            Some(left),
        )?;
        if let Ok(Some(_)) = signals.read_signal() {
            return Ok(None);
        }
        if let Ok((stream, _)) = listener.accept()
            && let Some(client) = Client::new(stream)
        {
            return Ok(Some(client));
        }
    }
}

/// Tells a client that its command could not be started.
pub(super) fn tell_not_started(mut client: Client, why: &str, code: u8) {
    client.push(&Frame::Error(format!("phalanx: {why}\n").into_bytes()));
    client.push(&Frame::Ended { code: Some(i32::from(code)), signal: None });
    let _ = client.stream.set_nonblocking(false);
    let _ = client.stream.set_write_timeout(Some(FLUSH));
    client.flush();
}

/// A keeper at work.
pub(super) struct Server {
    signals: SignalFd,
    /// None where no further client is taken.
    listener: Option<UnixListener>,
    running: Running,
    life: Life,
    clients: Vec<Client>,
    /// What the command wrote since the last client went. What a client has seen is not shown again: programs ask
    /// terminals questions, and those would be asked again.
    unseen: VecDeque<u8>,
    /// When a terminal that lost its client is hung up.
    hang_up_at: Option<Instant>,
    /// When a command that was hung up is killed.
    kill_at: Option<Instant>,
    ended: Option<(ExitStatus, Instant)>,
}

impl Server {
    pub(super) const fn new(
        signals: SignalFd,
        listener: Option<UnixListener>,
        running: Running,
        life: Life,
    ) -> Self {
        Self {
            signals,
            listener,
            running,
            life,
            clients: Vec::new(),
            unseen: VecDeque::new(),
            hang_up_at: None,
            kill_at: None,
            ended: None,
        }
    }

    /// Serves this client too.
    pub(super) fn take(&mut self, mut client: Client) {
        client.push(&Frame::Output(std::mem::take(&mut self.unseen).into()));
        self.clients.push(client);
        self.hang_up_at = None;
    }

    /// Until the command has ended and its clients have heard of it.
    pub(super) fn serve(mut self) -> Result<ExitStatus, KeeperError> {
        loop {
            self.wait().map_err(cannot("poll"))?;
            self.hear_signals();
            self.accept();
            self.hear_clients();
            self.running.write();
            let has_written = self.pass_on();
            self.keep_time();
            if let Some(status) = self.running.ended().filter(|_| self.ended.is_none()) {
                self.ended = Some((status, Instant::now() + LAST_WORDS));
            }
            if let Some((status, until)) = self.ended
                && self.may_read()
                && !has_written
                && (self.running.is_silent() || Instant::now() >= until)
            {
                self.say_the_end(status);
                return Ok(status);
            }
        }
    }

    /// A client that is slow holds up the command, as a terminal would.
    fn may_read(&self) -> bool {
        self.clients.iter().all(|client| client.unsent.len() < UNSENT_BYTES_MAX)
    }

    fn wait(&self) -> io::Result<()> {
        let mut fds: Vec<(BorrowedFd<'_>, PollFlags)> = vec![(self.signals.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.listener.as_ref().map(|listener| (listener.as_fd(), PollFlags::POLLIN)));
        if self.may_read() {
            fds.extend(self.running.outputs().map(|fd| (fd, PollFlags::POLLIN)));
        }
        fds.extend(self.running.waits_to_write().map(|fd| (fd, PollFlags::POLLOUT)));
        for client in &self.clients {
            let read = if self.running.has_room() { PollFlags::POLLIN } else { PollFlags::empty() };
            let write = if client.unsent.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
            // One that hung up would wake this again and again while it is not to be read.
            if !(read | write).is_empty() {
                fds.push((client.stream.as_fd(), read | write));
            }
        }
        let stalls = self.clients.iter().filter(|c| !c.unsent.is_empty()).map(|c| c.took_at + STALLED);
        let ends = self.ended.filter(|_| self.may_read()).map(|(_, until)| until);
        let times = [self.hang_up_at, self.kill_at, ends].into_iter().flatten().chain(stalls);
        ready::wait(fds, times.min().map(|at| at.saturating_duration_since(Instant::now())))
    }

    fn hear_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if i32::try_from(signal.ssi_signo).ok() != Some(Signal::SIGCHLD as i32) {
                self.running.hang_up();
            }
        }
    }

    fn accept(&mut self) {
        while let Some(Ok((stream, _))) = self.listener.as_ref().map(UnixListener::accept) {
            if self.clients.len() < CLIENTS_MAX
                && let Some(client) = Client::new(stream)
            {
                self.take(client);
            }
        }
    }

    fn hear_clients(&mut self) {
        for client in &mut self.clients {
            if !self.running.has_room() {
                break;
            }
            for frame in client.receive() {
                match frame {
                    Frame::Input(input) => self.running.give(&input),
                    Frame::InputEnd => self.running.end_input(),
                    Frame::Size(size) => {
                        if !std::mem::replace(&mut client.is_sized, true) {
                            // A program draws everything anew where the size changes, and does nothing where it does not.
                            self.running.resize(Size { rows: size.rows.saturating_sub(1).max(1), ..size });
                        }
                        self.running.resize(size);
                    }
                    Frame::Detach => client.detached = true,
                    // A keeper's own words: no client says them.
                    Frame::Output(_) | Frame::Error(_) | Frame::Ended { .. } => client.open = false,
                }
            }
        }
    }

    /// What the command wrote goes to every client, and to the output of the rank. Says whether there was some.
    fn pass_on(&mut self) -> bool {
        let written = if self.may_read() { self.running.read() } else { Vec::new() };
        for (stream, bytes) in &written {
            if self.life == Life::Rank {
                let mut out = io::stdout();
                // A full disk must not end the program.
                let _ = out.write_all(bytes).and_then(|()| out.flush());
            }
            if self.clients.is_empty() {
                self.unseen.extend(bytes);
                self.unseen.drain(..self.unseen.len().saturating_sub(UNSEEN_BYTES_MAX));
            }
            let frame = match stream {
                Stream::Output => Frame::Output(bytes.clone()),
                Stream::Error => Frame::Error(bytes.clone()),
            };
            self.clients.iter_mut().for_each(|client| client.push(&frame));
        }
        self.clients.iter_mut().for_each(Client::flush);
        !written.is_empty()
    }

    /// Lets go of clients that are gone, and hangs up where none is left.
    fn keep_time(&mut self) {
        let now = Instant::now();
        let before = self.clients.len();
        let mut meant = false;
        self.clients.retain(|client| {
            let stalls = !client.unsent.is_empty() && now >= client.took_at + STALLED;
            let stays = client.open && !client.detached && !stalls;
            meant |= client.detached;
            stays
        });
        let lost = before > 0 && self.clients.is_empty();
        match self.life {
            Life::Client if lost => {
                self.running.hang_up();
                self.kill_at = Some(now + HANGUP_GRACE);
            }
            Life::Rank if lost && !meant => self.hang_up_at = Some(now + LOST_KEPT),
            _ => {}
        }
        if self.hang_up_at.take_if(|at| now >= *at).is_some() {
            self.running.hang_up();
        }
        if self.kill_at.take_if(|at| now >= *at).is_some() {
            self.running.signal(Signal::SIGKILL);
        }
    }

    fn say_the_end(&mut self, status: ExitStatus) {
        use std::os::unix::process::ExitStatusExt;
        let frame = Frame::Ended { code: status.code(), signal: status.signal() };
        self.clients.iter_mut().for_each(|client| client.push(&frame));
        let until = Instant::now() + FLUSH;
        loop {
            self.clients.iter_mut().for_each(Client::flush);
            self.clients.retain(|client| client.open && !client.unsent.is_empty());
            let left = until.saturating_duration_since(Instant::now());
            if self.clients.is_empty() || left.is_zero() {
                return;
            }
            let fds = self.clients.iter().map(|client| (client.stream.as_fd(), PollFlags::POLLOUT)).collect();
            if ready::wait(fds, Some(left)).is_err() {
                return;
            }
        }
    }
}
