//! The client's side of the control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use phalanx_api::protocol::{Answer, ErrorView, Request, VERSION, Verb};

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
    /// Nothing more is to come: the end was said, or told as missing.
    over: bool,
    /// Answers so far, and whether more than one may come.
    streams: bool,
}

/// Sends one request; the answers are read from the result.
///
/// # Errors
/// When no daemon listens there, or the connection breaks.
pub fn ask(socket: &Path, verb: Verb) -> Result<Answers, ClientError> {
    let no_daemon = |source| ClientError::NoDaemon { path: socket.to_owned(), source };
    let streams = matches!(verb, Verb::Logs { .. } | Verb::Follow { .. } | Verb::Wait { .. });
    let mut stream = UnixStream::connect(socket).map_err(no_daemon)?;
    stream.set_write_timeout(Some(Duration::from_secs(30)))?;
    let mut line = serde_json::to_vec(&Request { version: VERSION.to_owned(), verb })?;
    line.push(b'\n');
    stream.write_all(&line)?;
    Ok(Answers { lines: BufReader::new(stream).lines(), over: false, streams })
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
        if self.over {
            return None;
        }
        let line = match self.lines.next() {
            Some(Ok(line)) => line,
            Some(Err(e)) => return Some(Err(e.into())),
            None => {
                self.over = true;
                // A stream that ends without its end was cut off.
                let cut = || ClientError::Broken(io::Error::from(io::ErrorKind::UnexpectedEof));
                return self.streams.then(|| Err(cut()));
            }
        };
        match serde_json::from_str(&line) {
            Ok(Answer::End) => {
                self.over = true;
                None
            }
            Ok(Answer::Error(error)) => {
                self.over = true;
                Some(Err(ClientError::Refused(error)))
            }
            Ok(answer) => Some(Ok(answer)),
            Err(e) => Some(Err(e.into())),
        }
    }
}
