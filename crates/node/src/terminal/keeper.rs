//! The keeper: runs a command, keeps its terminal, and serves the clients that attach.
//!
//! The keeper of a rank stands between the shim and the user's program: it ends as the program does, and what the
//! terminal shows goes to the output of the rank as well. The keeper of a command beside a rank lives for one client.

mod command;
mod serve;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use crate::{protocol, sys};
use command::Running;
use serve::Server;

/// How long the command of a client waits for it.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);
/// A terminal that lost its client, and nobody said that they meant to leave, is hung up after this time.
const LOST_KEPT: Duration = Duration::from_secs(600);
/// From the hang-up to SIGKILL, for the command of a client.
const HANGUP_GRACE: Duration = Duration::from_secs(5);
/// The hidden subcommand that every program with keepers has.
pub const SUBCOMMAND: &str = "__terminal";
/// What shells exit with for a command that cannot be found or started.
const NOT_STARTED: u8 = 127;

/// What a keeper is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The folder of the socket. It is the user's.
    pub dir: PathBuf,
    /// The name of the socket in it.
    pub name: String,
    pub surface: Surface,
    pub life: Life,
    /// For the variable `TERM` of the command.
    pub term: Option<String>,
    /// The command and its arguments; never empty.
    pub argv: Vec<String>,
}

impl Ask {
    /// The words by which a shim starts the keeper: with [`SUBCOMMAND`] its program must end in [`main`].
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let surface = match self.surface {
            Surface::Terminal => "terminal",
            Surface::Pipes => "pipes",
        };
        let life = match self.life {
            Life::Rank => "rank",
            Life::Client => "client",
        };
        let (exe, dir) = (crate::THIS_PROGRAM.to_owned(), self.dir.display().to_string());
        let term = self.term.clone().unwrap_or_default();
        let own =
            [exe, SUBCOMMAND.to_owned(), dir, self.name.clone(), surface.to_owned(), life.to_owned(), term];
        own.into_iter().chain(self.argv.iter().cloned()).collect()
    }

    /// Reads what [`Self::words`] wrote, after the subcommand.
    #[must_use]
    pub fn read(words: &[String]) -> Option<Self> {
        let [dir, name, surface, life, term, argv @ ..] = words else { return None };
        let surface = match surface.as_str() {
            "terminal" => Surface::Terminal,
            "pipes" => Surface::Pipes,
            _ => return None,
        };
        let life = match life.as_str() {
            "rank" => Life::Rank,
            "client" => Life::Client,
            _ => return None,
        };
        let term = Some(term.clone()).filter(|term| !term.is_empty());
        let (dir, name, argv) = (PathBuf::from(dir), name.clone(), argv.to_vec());
        (!argv.is_empty()).then_some(Self { dir, name, surface, life, term, argv })
    }
}

/// What the command reads from and writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    Terminal,
    /// Input, output and errors apart.
    Pipes,
}

/// What the command lives for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It is the program of the rank: clients come and go.
    Rank,
    /// It starts with the client that asked for it, and ends with it.
    Client,
}

/// Why a keeper could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    #[error("cannot {what}: {source}")]
    System { what: &'static str, source: io::Error },
    #[error("cannot start {program}: {source}")]
    Start { program: String, source: io::Error },
    #[error("nobody came for the command within {} s", CLIENT_TIMEOUT.as_secs())]
    NobodyCame,
}

fn cannot<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> KeeperError {
    move |source| KeeperError::System { what, source: source.into() }
}

/// Runs the keeper until its command has ended. Ends itself as the command did: with its code, or by its signal.
#[must_use]
pub fn main(ask: &Ask) -> ExitCode {
    let ended = run(ask);
    let _ = fs::remove_file(ask.dir.join(&ask.name));
    match ended {
        Ok(status) => end_as(status),
        Err(e) => {
            // Where nobody can be told, nothing is lost by silence; `eprintln` would panic.
            let _ = writeln!(io::stderr(), "phalanx: {e}");
            ExitCode::from(NOT_STARTED)
        }
    }
}

fn end_as(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    if let Some(signal) = status.signal() {
        sys::end_by(signal);
    }
    // A shell counts signals from 128 on; reached where the signal did not end this process.
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1))
}

fn run(ask: &Ask) -> Result<ExitStatus, KeeperError> {
    let signals = serve::signals().map_err(cannot("listen for signals"))?;
    let listener = listen(&ask.dir, &ask.name).map_err(cannot("make the socket of the terminal"))?;
    match ask.life {
        Life::Rank => {
            let running = Running::start(ask)?;
            Server::new(signals, Some(listener), running, ask.life).serve()
        }
        Life::Client => {
            let client = serve::first_client(&listener, &signals, CLIENT_TIMEOUT)
                .map_err(cannot("wait for a client"))?
                .ok_or(KeeperError::NobodyCame)?;
            // One client, once.
            let _ = fs::remove_file(ask.dir.join(&ask.name));
            match Running::start(ask) {
                Ok(running) => {
                    let mut server = Server::new(signals, None, running, ask.life);
                    server.take(client);
                    server.serve()
                }
                Err(e) => {
                    serve::tell_not_started(client, &e.to_string(), NOT_STARTED);
                    Err(e)
                }
            }
        }
    }
}

fn listen(dir: &Path, name: &str) -> io::Result<UnixListener> {
    let folder = File::open(dir)?;
    let socket = protocol::socket_path(&folder, name);
    // Left by a start that a crash cut short.
    let _ = fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
