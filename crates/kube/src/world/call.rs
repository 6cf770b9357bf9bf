//! One call of the API: sent, repeated while that can help, and what came of it.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::lease::Term;
use crate::messages::PodRef;

/// Longer nobody waits for an answer.
pub const ANSWER: Duration = Duration::from_secs(10);

/// What requests and answers are written in.
pub(super) const JSON: &str = "application/json";

/// Between two tries.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// The same, whatever a server asks for: what waits longer is decided anew.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// What requests are sent by.
pub(super) trait Requests: Sync {
    /// Sends one, once.
    fn ask(&self, request: Request<'_>) -> impl Future<Output = Result<String, CallError>> + Send;
}

impl Requests for Client {
    async fn ask(&self, request: Request<'_>) -> Result<String, CallError> {
        send(self, request, ANSWER).await
    }
}

/// So many requests at once, and only as long as no other may lead. What waits between two tries counts as none.
#[derive(Clone)]
pub(super) struct Limited {
    client: Client,
    term: Term,
    permits: Arc<Semaphore>,
}

impl Limited {
    pub(super) const fn new(client: Client, term: Term, permits: Arc<Semaphore>) -> Self {
        Self { client, term, permits }
    }

    /// As many as there are.
    pub(super) fn by_term(client: Client, term: Term) -> Self {
        Self::new(client, term, Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)))
    }
}

impl Requests for Limited {
    async fn ask(&self, request: Request<'_>) -> Result<String, CallError> {
        let _permit = self.permits.acquire().await.map_err(|_| CallError::Over)?;
        if !self.term.may_begin().await {
            return Err(CallError::Over);
        }
        send(&self.client, request, ANSWER).await
    }
}

/// An object as it is now.
pub(super) async fn read(client: &impl Requests, path: &str) -> Result<String, CallError> {
    repeat(client, "GET", path, JSON, &Value::Null).await
}

/// One request, until it is no use any more; nothing is sent along where there is no body.
pub(super) async fn repeat(
    client: &impl Requests,
    method: &str,
    path: &str,
    content: &str,
    body: &Value,
) -> Result<String, CallError> {
    const TRIES: u32 = 20;
    let bytes = bytes_of(body);
    let request = Request { method, path, content, body: &bytes };
    let mut tries = 0;
    loop {
        tries += 1;
        match client.ask(request).await {
            Err(error) if error.may_pass() && tries < TRIES => tokio::time::sleep(error.pause()).await,
            other => return other,
        }
    }
}

/// The same once, for what decides itself whether it is of use again.
pub(super) async fn once(
    client: &impl Requests,
    method: &str,
    path: &str,
    content: &str,
    body: &Value,
) -> Result<String, CallError> {
    client.ask(Request { method, path, content, body: &bytes_of(body) }).await
}

fn bytes_of(body: &Value) -> Vec<u8> {
    if body.is_null() { Vec::new() } else { body.to_string().into_bytes() }
}

/// Too many requests, trouble of the server, or no answer at all.
pub(super) const fn may_pass(code: Option<u16>) -> bool {
    matches!(code, None | Some(429 | 500..=599))
}

/// Merges a patch into the status of a pod. Whoever may write a status may write annotations too, and not what a pod runs. A pod
/// that is gone needs nothing.
pub(super) async fn patch_status(
    client: &impl Requests,
    pod: &PodRef,
    mut patch: Value,
) -> Result<(), CallError> {
    patch["metadata"]["uid"] = Value::from(&*pod.uid);
    let path = format!("{}/status", path_of(pod));
    match repeat(client, "PATCH", &path, "application/merge-patch+json", &patch).await {
        Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(()),
        other => other.map(drop),
    }
}

pub(super) fn path_of(pod: &PodRef) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name)
}

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("{message} (HTTP {code})")]
    Refused { code: u16, message: String, after: Option<Duration> },
    #[error("{0}")]
    Transport(String),
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// It was not sent.
    #[error("this process leads no longer")]
    Over,
}

impl CallError {
    pub(super) const fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Transport(_) | Self::Late(_) | Self::Over => None,
        }
    }

    /// Whether it may go well another time.
    pub(super) const fn may_pass(&self) -> bool {
        !matches!(self, Self::Over) && may_pass(self.code())
    }

    /// The same a while later: also a right that is missing comes, as while an API server starts.
    pub(super) const fn may_pass_later(&self) -> bool {
        self.may_pass() || matches!(self.code(), Some(401 | 403))
    }

    pub(super) fn pause(&self) -> Duration {
        match self {
            Self::Refused { after: Some(after), .. } => (*after).min(PAUSE_MAX),
            _ => PAUSE,
        }
    }
}

/// A request as it is sent.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) content: &'a str,
    pub(super) body: &'a [u8],
}

impl<'a> Request<'a> {
    pub(super) const fn get(path: &'a str) -> Self {
        Self { method: "GET", path, content: JSON, body: &[] }
    }
}

/// Sends it once; longer than `patience` nobody waits for the answer.
pub(super) async fn send(
    client: &Client,
    request: Request<'_>,
    patience: Duration,
) -> Result<String, CallError> {
    let Request { method, path, content, body } = request;
    let request = http::Request::builder().method(method).uri(path).header("content-type", content);
    let request =
        request.body(Body::from(body.to_vec())).map_err(|error| CallError::Transport(error.to_string()))?;
    let answer = async {
        let response = client.send(request).await.map_err(|error| CallError::Transport(error.to_string()))?;
        let (code, after) = (response.status().as_u16(), retry_after(response.headers()));
        let bytes = response
            .into_body()
            .collect_bytes()
            .await
            .map_err(|error| CallError::Transport(error.to_string()))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if code < 300 { Ok(text) } else { Err(CallError::Refused { code, message: said(&text), after }) }
    };
    tokio::time::timeout(patience, answer).await.unwrap_or(Err(CallError::Late(patience)))
}

fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    headers.get("retry-after")?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

/// What a status object says.
fn said(text: &str) -> String {
    let status: Value = serde_json::from_str(text).unwrap_or_default();
    status["message"].as_str().map_or_else(|| text.chars().take(200).collect(), str::to_owned)
}
