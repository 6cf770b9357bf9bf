//! Answers that come one after the other, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use super::Work;
use super::document::Document;
use super::problem::Problem;
use super::reply::Batches;
use crate::Reply as _;
use crate::protocol::Answer;

/// A stream begins with its first answer, and after this time without one.
const AT_ONCE: Duration = Duration::from_millis(200);
/// A comment is sent after this time without an answer: what lies between does not close the connection, and a client that
/// is gone is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Batches of answers on their way to a client that reads slowly.
const ON_THE_WAY: usize = 4;

type Answers = Receiver<Vec<Answer>>;
type Working = JoinHandle<Result<(), Box<Problem>>>;

/// A stream, unless the verb is refused before it begins: that is an error with its status.
pub(super) async fn begun(work: Work) -> Result<Response, Box<Problem>> {
    let (sender, mut answers) = channel(ON_THE_WAY);
    let runtime = tokio::runtime::Handle::current();
    let work = Arc::new(work);
    let of_stream = Arc::clone(&work);
    let working = spawn_blocking(move || {
        let mut reply = Batches::new(sender, runtime);
        let carried_out = work.carry_out(&mut reply);
        // A client that is gone takes nothing.
        let _ = reply.flush();
        carried_out
    });
    match timeout(AT_ONCE, answers.recv()).await {
        Ok(None) => {
            working.await.map_err(|_| Problem::unexpected())??;
            Ok(events(of_stream, Vec::new(), answers, tokio::spawn(async { Ok(()) })))
        }
        Ok(Some(first)) => Ok(events(of_stream, first, answers, working)),
        Err(_) => Ok(events(of_stream, Vec::new(), answers, working)),
    }
}

/// Answers as events, until the verb ends or the client goes.
fn events(work: Arc<Work>, first: Vec<Answer>, answers: Answers, working: Working) -> Response {
    let begin = written(&work, first);
    let rest = futures::stream::unfold(answers, move |mut answers| {
        let work = Arc::clone(&work);
        async move {
            match timeout(KEEP_ALIVE, answers.recv()).await {
                Ok(Some(batch)) => Some((written(&work, batch), answers)),
                Ok(None) => None,
                Err(_) => Some((b":\n\n".to_vec(), answers)),
            }
        }
    });
    let last = futures::stream::once(working).filter_map(async |said| match said {
        Ok(Ok(())) => None,
        Ok(Err(problem)) => Some(of_problem(&problem)),
        Err(_) => Some(of_problem(&Problem::unexpected())),
    });
    let all = futures::stream::once(async { begin }).chain(rest).chain(last);
    let pieces = all.filter(|piece| std::future::ready(!piece.is_empty()));
    let body = Body::from_stream(pieces.map(|piece| Ok::<_, Infallible>(Bytes::from(piece))));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

/// The events of answers that came together: one piece of the body.
fn written(work: &Work, answers: Vec<Answer>) -> Vec<u8> {
    let mut text = Vec::new();
    for answer in answers {
        let (name, id) = match &answer {
            Answer::Change(change) => ("change", Some(change.id)),
            Answer::Reset { id } => ("reset", Some(*id)),
            Answer::Log { .. } => ("log", None),
            Answer::Job(_) => ("job", None),
            Answer::End => {
                write(&mut text, "end", None, b"{}");
                continue;
            }
            _ => ("event", None),
        };
        match (work.route.tell)(&work.asked, answer) {
            Ok(Document { json, .. }) => write(&mut text, name, id, &json),
            Err(problem) => text.extend(of_problem(&problem)),
        }
    }
    text
}

/// A stream has begun with 200, so what goes wrong later is an event of it.
fn of_problem(problem: &Problem) -> Vec<u8> {
    let mut text = Vec::new();
    write(&mut text, "problem", None, &serde_json::to_vec(problem).unwrap_or_default());
    text
}

/// A document of JSON has no line ends, so it is one line of data.
fn write(text: &mut Vec<u8>, name: &str, id: Option<u64>, json: &[u8]) {
    text.extend_from_slice(b"event: ");
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b"\ndata: ");
    text.extend_from_slice(json);
    if let Some(id) = id {
        text.extend(format!("\nid: {id}").into_bytes());
    }
    text.extend_from_slice(b"\n\n");
}
