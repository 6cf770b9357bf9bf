//! The client's side of the control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::protocol::{Answer, ErrorView, Request, VERSION, Verb};

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no daemon answers at {}: {source}", path.display())]
    NoDaemon { path: PathBuf, source: io::Error },
    #[error("the daemon broke off: {0}")]
    Broken(#[from] io::Error),
    #[error("the daemon said something that this version does not understand: {0}")]
    Misunderstood(#[from] serde_json::Error),
    #[error("{}", .0.message)]
    Refused(ErrorView),
}

/// A connection carries one request.
pub struct Answers {
    lines: io::Lines<BufReader<UnixStream>>,
}

/// Sends one request; the answers are read from the result.
///
/// # Errors
/// When no daemon listens there, or the connection breaks.
pub fn ask(socket: &Path, verb: Verb) -> Result<Answers, ClientError> {
    let no_daemon = |source| ClientError::NoDaemon { path: socket.to_owned(), source };
    let mut stream = UnixStream::connect(socket).map_err(no_daemon)?;
    stream.set_write_timeout(Some(Duration::from_secs(30)))?;
    let mut line = serde_json::to_vec(&Request { version: VERSION.to_owned(), verb })?;
    line.push(b'\n');
    stream.write_all(&line)?;
    Ok(Answers { lines: BufReader::new(stream).lines() })
}

/// Sends a request that has one answer.
///
/// # Errors
/// As [`ask`], and when the daemon refuses.
pub fn ask_once(socket: &Path, verb: Verb) -> Result<Answer, ClientError> {
    let broken = || io::Error::from(io::ErrorKind::UnexpectedEof);
    ask(socket, verb)?.next().unwrap_or_else(|| Err(broken().into()))
}

impl Iterator for Answers {
    type Item = Result<Answer, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = match self.lines.next()? {
            Ok(line) => line,
            Err(e) => return Some(Err(e.into())),
        };
        match serde_json::from_str(&line) {
            Ok(Answer::End) => None,
            Ok(Answer::Error(error)) => Some(Err(ClientError::Refused(error))),
            Ok(answer) => Some(Ok(answer)),
            Err(e) => Some(Err(e.into())),
        }
    }
}
