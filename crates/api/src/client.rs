//! The client of the API: verbs become requests, documents become answers. It asks over the control socket of a daemon, where
//! the kernel says who asks, or at a port, with a token.

mod call;
mod events;
mod server;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use futures::future::{self, Either};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::http::Problem;
use crate::protocol::{
    Answer, ErrorCode, ErrorView, JobFilter, JobView, LIMIT_MAX, NodeFilter, NodesView, Verb,
};
use call::{Call, Hears};
use events::Events;

pub use server::{Port, PortError, Server};

/// Bytes that are read of a port at once.
const PIECE_BYTES: usize = 64 << 10;
/// How long a daemon may take to take a request.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no daemon answers at {}: {source}", path.display())]
    NoDaemon { path: PathBuf, source: io::Error },
    #[error("no server answers at {url}: {why}")]
    NoServer { url: String, why: String },
    #[error("the daemon broke off: {0}")]
    Broken(#[from] io::Error),
    #[error("the daemon said something that this version does not understand: {0}")]
    Misunderstood(#[from] serde_json::Error),
    #[error("what answers there speaks no HTTP: it is a daemon of an older version, or another program")]
    NoHttp,
    #[error("{}", .0.message)]
    Refused(ErrorView),
}

impl ClientError {
    fn broken(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Broken(io::Error::other(why))
    }
}

/// The answers to one verb, as they come.
pub struct Answers {
    body: Whence,
    rest: Rest,
}

/// Where the rest of an answer comes from.
enum Whence {
    /// The connection is served while it is read.
    Socket(Runtime, Incoming),
    Port(Box<dyn Read + Send>),
}

/// What is still to come.
enum Rest {
    /// One document.
    Document(fn(&[u8]) -> serde_json::Result<Answer>),
    Events(Events),
    Refusal(ErrorView),
    Nothing,
}

/// Asks one verb; the answers are read from the result.
///
/// # Errors
/// When nobody answers there, or the connection breaks. What the server refuses is in place of the first answer.
pub fn ask(server: impl Into<Server>, verb: Verb) -> Result<Answers, ClientError> {
    let call = Call::of(verb)?;
    let hears = call.hears;
    let (status, body) = match server.into() {
        Server::Socket(path) => {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (status, body) = runtime.block_on(send(&path, call))?;
            (status, Whence::Socket(runtime, body))
        }
        Server::Port(port) => {
            let (status, body) = port.send(call)?;
            (status, Whence::Port(body))
        }
    };
    let rest = match hears {
        Hears::Document(hear) => Rest::Document(hear),
        Hears::Events => Rest::Events(Events::default()),
    };
    let mut answers = Answers { body, rest };
    if !status.is_success() {
        let problem = answers.whole()?;
        let problem = serde_json::from_slice::<Problem>(&problem);
        answers.rest = Rest::Refusal(problem.map_err(|_| ClientError::broken(status.to_string()))?.into());
    }
    Ok(answers)
}

/// Asks a verb that has one answer. A list that is longer than the API gives at a time is put together.
///
/// # Errors
/// As [`ask`], and when the daemon refuses.
pub fn ask_once(server: impl Into<Server>, verb: Verb) -> Result<Answer, ClientError> {
    let server = server.into();
    if let Verb::List { finished, filter, limit } = verb {
        return jobs(&server, finished, filter, limit).map(Answer::Jobs);
    }
    ask(&server, verb)?.next().unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()))
}

/// All nodes, part by part.
///
/// # Errors
/// As [`ask_once`].
pub fn nodes(server: impl Into<Server>) -> Result<NodesView, ClientError> {
    let server = server.into();
    let part =
        |after| match ask_once(&server, Verb::FindNodes(NodeFilter { after, ..NodeFilter::default() }))? {
            Answer::Nodes(part) => Ok(part),
            _ => Err(ClientError::broken("nodes were asked for")),
        };
    let mut all: NodesView = part(None)?;
    while let Some(after) = all.next.take() {
        let more: NodesView = part(Some(after))?;
        all.next = more.next;
        all.nodes.extend(more.nodes);
    }
    Ok(all)
}

/// The newest jobs, part by part; the oldest of them first.
fn jobs(
    server: &Server,
    finished: bool,
    mut filter: JobFilter,
    limit: u32,
) -> Result<Vec<JobView>, ClientError> {
    let mut newest_first: Vec<JobView> = Vec::new();
    let mut left = limit;
    while left > 0 {
        let most = left.min(LIMIT_MAX);
        let verb = Verb::List { finished, filter: filter.clone(), limit: most };
        let answer = ask(server, verb)?.next();
        let Some(Answer::Jobs(part)) = answer.transpose()? else {
            return Err(ClientError::broken("jobs were asked for"));
        };
        let came = u32::try_from(part.len()).unwrap_or(u32::MAX);
        newest_first.extend(part.into_iter().rev());
        filter.before = newest_first.last().map(|job| job.id);
        left = left.saturating_sub(came);
        if came < most {
            break;
        }
    }
    newest_first.reverse();
    Ok(newest_first)
}

/// Sends a request on a connection of its own. The connection is served while its answer is waited for.
async fn send(socket: &Path, call: Call) -> Result<(StatusCode, Incoming), ClientError> {
    let no_daemon = |source| ClientError::NoDaemon { path: socket.to_owned(), source };
    let stream = UnixStream::connect(socket).await.map_err(no_daemon)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(of_hyper)?;
    let request = call.begun_at("").header(header::HOST, "localhost");
    let request = request.body(Body::from(call.body)).map_err(ClientError::broken)?;
    let connection = Box::pin(connection);
    let sending = Box::pin(timeout(PATIENCE, sender.send_request(request)));
    // A daemon that has no place answers before it has read the request.
    let response = match future::select(sending, connection).await {
        Either::Left((response, connection)) => {
            tokio::spawn(connection);
            response
        }
        Either::Right((ended, sending)) => {
            ended.map_err(of_hyper)?;
            sending.await
        }
    };
    let response =
        response.map_err(|_| ClientError::Broken(io::ErrorKind::TimedOut.into()))?.map_err(of_hyper)?;
    Ok((response.status(), response.into_body()))
}

fn of_hyper(error: hyper::Error) -> ClientError {
    if error.is_parse() { ClientError::NoHttp } else { ClientError::broken(error) }
}

async fn piece_of(body: &mut Incoming) -> Option<Result<Bytes, ClientError>> {
    loop {
        let frame = future::poll_fn(|context| std::pin::Pin::new(&mut *body).poll_frame(context)).await?;
        match frame.map(hyper::body::Frame::into_data) {
            Ok(Ok(piece)) => return Some(Ok(piece)),
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(of_hyper(error))),
        }
    }
}

impl Answers {
    /// The next piece of the body; `None` at its end.
    fn piece(&mut self) -> Option<Result<Bytes, ClientError>> {
        match &mut self.body {
            Whence::Socket(runtime, body) => runtime.block_on(piece_of(body)),
            Whence::Port(reader) => {
                let mut piece = vec![0; PIECE_BYTES];
                match reader.read(&mut piece) {
                    Ok(0) => None,
                    Ok(read) => {
                        piece.truncate(read);
                        Some(Ok(piece.into()))
                    }
                    Err(error) => Some(Err(error.into())),
                }
            }
        }
    }

    fn whole(&mut self) -> Result<Vec<u8>, ClientError> {
        let mut whole = Vec::new();
        while let Some(piece) = self.piece() {
            whole.extend_from_slice(&piece?);
        }
        Ok(whole)
    }

    fn event(&mut self) -> Option<Result<Answer, ClientError>> {
        loop {
            let Rest::Events(events) = &mut self.rest else { return None };
            if let Some(event) = events.next() {
                return event.hear();
            }
            let piece = match self.piece() {
                Some(Ok(piece)) => piece,
                Some(Err(error)) => return Some(Err(error)),
                // A stream that ends without its end was cut off.
                None => return Some(Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())),
            };
            if let Rest::Events(events) = &mut self.rest {
                events.add(&piece);
            }
        }
    }
}

impl Iterator for Answers {
    type Item = Result<Answer, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Rest::Events(_) = self.rest {
            let answer = self.event();
            if !matches!(answer, Some(Ok(_))) {
                self.rest = Rest::Nothing;
            }
            return answer;
        }
        match std::mem::replace(&mut self.rest, Rest::Nothing) {
            Rest::Document(hear) => Some(self.whole().and_then(|json| Ok(hear(&json)?))),
            Rest::Refusal(error) => Some(Err(ClientError::Refused(error))),
            Rest::Events(_) | Rest::Nothing => None,
        }
    }
}

impl From<Problem> for ErrorView {
    fn from(problem: Problem) -> Self {
        let code = match problem.code.as_str() {
            "not_found" => ErrorCode::NotFound,
            "forbidden" | "unauthorized" => ErrorCode::Forbidden,
            "rejected" => ErrorCode::Rejected,
            "unavailable" | "too_many_requests" => ErrorCode::Unavailable,
            "internal" => ErrorCode::Internal,
            _ => ErrorCode::BadRequest,
        };
        let field = problem.errors.into_iter().next();
        let field = field.map(|of| crate::protocol::WrongField { path: of.field, what: of.detail });
        Self { code, message: problem.detail, hint: problem.hint, field }
    }
}

#[cfg(test)]
pub(crate) mod tests;
