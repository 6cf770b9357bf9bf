//! A connection to a shim.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use phalanx_model::Exit;

use crate::protocol::{self, Command, EXIT_FILE, LINE_BYTES_MAX, ShimEvent};

/// A shim answers at once or is stuck; then a daemon must not be.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a shim that closed its connection may take to be gone.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a shim cannot be spoken to.
#[derive(Debug, thiserror::Error)]
pub enum HandleError {
    /// The shim ended, or let go of this connection, without a word of the member's end. [`crate::adopt`]
    /// tells which.
    #[error("the shim in {dir} closed the connection and left no exit")]
    Closed { dir: PathBuf },
    /// Everything was said: the last event was given before.
    #[error("the member in {dir} ended, and nothing more will come")]
    Over { dir: PathBuf },
    #[error("the shim in {dir} said something that cannot be read: {why}")]
    Garbled { dir: PathBuf, why: String },
    #[error("the shim in {dir} cannot be reached: {source}")]
    Io { dir: PathBuf, source: io::Error },
}

/// Why no command runs beside a rank.
#[derive(Debug, thiserror::Error)]
pub enum BesideError {
    #[error(transparent)]
    Shim(#[from] HandleError),
    #[error(
        "the shim of the rank does not answer; a rank that an older version started cannot run commands beside it"
    )]
    Silent,
    #[error("{0}")]
    Refused(String),
}

/// A shim to speak to: [`Orders`] to it, [`Events`] from it.
#[derive(Debug)]
pub struct Handle {
    orders: Orders,
    events: Events,
}

/// The half that gives orders. None of them waits for an answer.
#[derive(Debug)]
pub struct Orders {
    stream: UnixStream,
    dir: PathBuf,
}

/// The half that hears. Where this daemon started the shim, it also collects it when it ends: keep it until
/// the last event.
#[derive(Debug)]
pub struct Events {
    stream: UnixStream,
    dir: PathBuf,
    buffer: Vec<u8>,
    child: Option<Child>,
    over: bool,
}

impl Handle {
    pub(crate) fn new(stream: UnixStream, dir: &Path, child: Option<Child>) -> io::Result<Self> {
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let orders = Orders { stream: stream.try_clone()?, dir: dir.to_owned() };
        let events = Events { stream, dir: dir.to_owned(), buffer: Vec::new(), child, over: false };
        Ok(Self { orders, events })
    }

    /// One half for whoever decides, one for a thread that waits.
    #[must_use]
    pub fn split(self) -> (Orders, Events) {
        (self.orders, self.events)
    }

    /// See [`Orders::release`].
    ///
    /// # Errors
    /// When the shim cannot be reached.
    pub fn release(&mut self) -> Result<(), HandleError> {
        self.orders.release()
    }

    /// See [`Orders::signal`].
    ///
    /// # Errors
    /// When the shim cannot be reached.
    pub fn signal(&mut self, number: i32) -> Result<(), HandleError> {
        self.orders.signal(number)
    }

    /// See [`Orders::terminate`].
    ///
    /// # Errors
    /// When the shim cannot be reached.
    pub fn terminate(&mut self) -> Result<(), HandleError> {
        self.orders.terminate()
    }

    /// See [`Orders::kill`].
    ///
    /// # Errors
    /// When the shim cannot be reached.
    pub fn kill(&mut self) -> Result<(), HandleError> {
        self.orders.kill()
    }

    /// Runs a command beside the rank, and waits until the shim says that it began.
    ///
    /// # Errors
    /// When the shim cannot be reached, does not answer in time (one of an older version never does), or says why it
    /// did not begin.
    pub fn run_beside(
        &mut self,
        name: &str,
        argv: Vec<String>,
        timeout: Duration,
    ) -> Result<(), BesideError> {
        self.orders.send(&Command::RunBeside { name: name.to_owned(), argv })?;
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.events.next_event(left)? {
                Some(ShimEvent::Beside { name: of, failure }) if of == name => {
                    return failure.map_or(Ok(()), |why| Err(BesideError::Refused(why)));
                }
                None => return Err(BesideError::Silent),
                Some(event) if event.is_last() => {
                    return Err(BesideError::Refused("the rank has ended".into()));
                }
                Some(_) => {}
            }
        }
    }

    /// See [`Events::next_event`].
    ///
    /// # Errors
    /// When the shim is gone without a word, or cannot be understood.
    pub fn next_event(&mut self, timeout: Duration) -> Result<Option<ShimEvent>, HandleError> {
        self.events.next_event(timeout)
    }
}

impl Orders {
    /// Lets the rank through the gate.
    ///
    /// # Errors
    /// When the shim cannot be reached.
    pub fn release(&mut self) -> Result<(), HandleError> {
        self.send(&Command::Release)
    }

    /// Signals the rank's own process if it handles the signal; [`ShimEvent::Signalled`] tells.
    ///
    /// # Errors
    /// When the shim cannot be reached.
    pub fn signal(&mut self, number: i32) -> Result<(), HandleError> {
        self.send(&Command::Signal { number })
    }

    /// Sends SIGTERM to every process of the member.
    ///
    /// # Errors
    /// When the shim cannot be reached.
    pub fn terminate(&mut self) -> Result<(), HandleError> {
        self.send(&Command::Terminate)
    }

    /// Ends every process of the member.
    ///
    /// # Errors
    /// When the shim cannot be reached.
    pub fn kill(&mut self) -> Result<(), HandleError> {
        self.send(&Command::Kill)
    }

    fn send(&mut self, command: &Command) -> Result<(), HandleError> {
        let sent = self.stream.write_all(&protocol::line(command));
        sent.map_err(|source| HandleError::Io { dir: self.dir.clone(), source })
    }
}

impl Events {
    /// The next event; `None` when none came within `timeout`. After the last event: [`HandleError::Over`].
    ///
    /// # Errors
    /// When the shim is gone without a word, or cannot be understood.
    pub fn next_event(&mut self, timeout: Duration) -> Result<Option<ShimEvent>, HandleError> {
        let until = Instant::now().checked_add(timeout);
        if self.over {
            return Err(HandleError::Over { dir: self.dir.clone() });
        }
        loop {
            if let Some(line) = protocol::take_line(&mut self.buffer) {
                return self.understand(&line).map(Some);
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(self.garbled("a line has no end"));
            }
            // A read time-out of zero would mean none.
            let left =
                until.map(|t| t.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
            self.stream.set_read_timeout(left).map_err(|e| self.io(e))?;
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => return self.ended().map(Some),
                Ok(count) => self.buffer.extend_from_slice(chunk.get(..count).unwrap_or_default()),
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return self.ended().map(Some),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.io(e)),
            }
        }
    }

    fn understand(&mut self, line: &[u8]) -> Result<ShimEvent, HandleError> {
        let event: ShimEvent = serde_json::from_slice(line).map_err(|e| self.garbled(&e.to_string()))?;
        if event.is_last() {
            self.over = true;
            self.collect();
        }
        Ok(event)
    }

    /// A shim that was quicker to end than to answer left its word in a file.
    fn ended(&mut self) -> Result<ShimEvent, HandleError> {
        self.collect();
        let exit: Option<Exit> =
            protocol::read_json(&self.dir, EXIT_FILE).map_err(|e| self.garbled(&e.to_string()))?;
        let exit = exit.ok_or_else(|| HandleError::Closed { dir: self.dir.clone() })?;
        self.over = true;
        Ok(ShimEvent::of_exit(exit))
    }

    /// Collects the shim, should this process be its parent; else it would stay a zombie.
    fn collect(&mut self) {
        let Some(child) = &mut self.child else { return };
        let until = Instant::now() + END_TIMEOUT;
        while let Ok(None) = child.try_wait() {
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.child = None;
    }

    fn garbled(&self, why: &str) -> HandleError {
        HandleError::Garbled { dir: self.dir.clone(), why: why.to_owned() }
    }

    fn io(&self, source: io::Error) -> HandleError {
        HandleError::Io { dir: self.dir.clone(), source }
    }
}
