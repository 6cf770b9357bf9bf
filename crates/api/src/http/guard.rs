//! What every request has to pass: where it says that it goes, where it comes from, how many there are, how long it is.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use hyper::body::{Frame, SizeHint};
use phalanx_model::Owner;
use tokio::time::timeout;

use super::Shared;
use super::asked::Asked;
use super::hosts::Hosts;
use super::problem::Problem;
use super::routes::Route;
use super::socket::Caller;
use crate::Peer;

/// Requests of one user that are answered at once; streams are among them.
const AT_ONCE: usize = 32;
/// Streams of one user, and of all: each holds a thread. Operators are not counted among all.
const STREAMS_OF_USER: usize = 24;
const STREAMS: usize = 128;
/// Requests that one user may send in a burst, and in each second after it.
const BURST: f64 = 400.0;
const PER_SECOND: f64 = 100.0;
/// How long a client may take to send a body.
const PATIENCE: Duration = Duration::from_secs(30);

/// Nothing that a page could be made to load or to run comes from elsewhere, and no other page frames it.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Browsers ask this host over TLS alone for so long. A day: browsers take it for all ports of the host.
const ONLY_HTTPS: &str = "max-age=86400";

/// What is counted of requests.
pub(crate) struct Guard {
    hosts: Hosts,
    users: Users,
}

/// By number and name: users of a cluster have names alone.
type Users = Arc<Mutex<BTreeMap<(u32, String), Use>>>;

/// What one user takes.
#[derive(Clone, Copy, Debug)]
struct Use {
    at_once: usize,
    streams: usize,
    is_operator: bool,
    /// Requests that may come now.
    left: f64,
    counted_at: Instant,
}

/// A user's place among the requests that are answered; given back when dropped.
pub(crate) struct Place {
    users: Users,
    user: (u32, String),
    is_stream: bool,
}

fn held(users: &Users) -> MutexGuard<'_, BTreeMap<(u32, String), Use>> {
    users.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guard {
    pub(crate) fn new(hosts: Hosts) -> Self {
        Self { hosts, users: Arc::default() }
    }

    /// A place for one more request of a user.
    pub(crate) fn admit(&self, peer: &Peer, is_stream: bool) -> Result<Place, Box<Problem>> {
        let (user, now) = ((peer.owner.uid, peer.owner.name.clone()), Instant::now());
        let mut users = held(&self.users);
        // Who has asked nothing for a while is as good as new.
        users.retain(|_, of| of.at_once > 0 || of.left_at(now) < BURST);
        let streams: usize = users.values().filter(|of| !of.is_operator).map(|of| of.streams).sum();
        let anew =
            Use { at_once: 0, streams: 0, is_operator: peer.is_operator, left: BURST, counted_at: now };
        let of = users.entry(user.clone()).or_insert(anew);
        (of.left, of.counted_at) = (of.left_at(now), now);
        let too_many = |detail: String| {
            let status = StatusCode::TOO_MANY_REQUESTS;
            Err(Problem::new(status, "too_many_requests", detail, "wait a moment and try again"))
        };
        if of.at_once >= AT_ONCE {
            return too_many(format!("{AT_ONCE} requests of this user are answered already"));
        }
        if is_stream && of.streams >= STREAMS_OF_USER {
            return too_many(format!("this user has {STREAMS_OF_USER} streams already"));
        }
        if is_stream && streams >= STREAMS && !peer.is_operator {
            return too_many(format!("{STREAMS} streams are open already"));
        }
        if of.left < 1.0 {
            return too_many(format!("this user sends more than {PER_SECOND} requests a second"));
        }
        of.left -= 1.0;
        of.at_once += 1;
        of.streams += usize::from(is_stream);
        Ok(Place { users: Arc::clone(&self.users), user, is_stream })
    }
}

impl Use {
    fn left_at(&self, now: Instant) -> f64 {
        let since = now.saturating_duration_since(self.counted_at);
        since.as_secs_f64().mul_add(PER_SECOND, self.left).min(BURST)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(of) = held(&self.users).get_mut(&self.user) {
            of.at_once = of.at_once.saturating_sub(1);
            of.streams = of.streams.saturating_sub(usize::from(self.is_stream));
        }
    }
}

/// A body, and the place that it takes until it is sent.
pub(crate) struct Held {
    body: Body,
    _place: Option<Place>,
}

impl Held {
    pub(crate) const fn new(body: Body, place: Option<Place>) -> Self {
        Self { body, _place: place }
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Refuses what goes or comes from elsewhere, and puts the headers on every answer.
pub(crate) async fn check(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let mut response = match check_host(&shared.guard, &request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if shared.guard.hosts.is_https() {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(ONLY_HTTPS));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
    response
}

fn check_host(guard: &Guard, request: &Request) -> Result<(), Box<Problem>> {
    if request.extensions().get::<Caller>().is_some() {
        // No page of another site reaches a socket of the machine.
        return Ok(());
    }
    let text =
        |name| request.headers().get(name).map(|value: &HeaderValue| value.to_str().unwrap_or_default());
    let host = request.uri().authority().map(|of| of.as_str()).or_else(|| text(header::HOST));
    if !host.is_some_and(|host| guard.hosts.has(host)) {
        let hint = format!("ask at {}", guard.hosts.shown());
        let detail = "the request names another host";
        return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "bad_request", detail, hint));
    }
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let origin = text(header::ORIGIN).filter(|_| !is_safe);
    let is_own = |origin: &str| {
        let (scheme, host) = origin.split_once("://").unwrap_or_default();
        scheme == guard.hosts.scheme() && guard.hosts.has(host)
    };
    match origin {
        Some(origin) if !is_own(origin) => {
            let detail = "the request comes from a page of another site";
            Err(Problem::new(
                StatusCode::FORBIDDEN,
                "forbidden",
                detail,
                "ask without a browser, or from the dashboard",
            ))
        }
        _ => Ok(()),
    }
}

/// The body, if it comes in time, is no longer than this, and there is room for it.
pub(crate) async fn read(body: Body, most: usize, caller: Option<&Caller>) -> Result<Vec<u8>, Box<Problem>> {
    let mut stream = body.into_data_stream();
    let reading = async {
        let mut all = Vec::new();
        while let Some(chunk) = stream.next().await {
            let chunk: Bytes = chunk.map_err(|_| Problem::field("body", "broke off", "send it again"))?;
            if most == 0 && !chunk.is_empty() {
                return Err(Problem::field("body", "this route takes none", "send the request without one"));
            }
            if all.len() + chunk.len() > most {
                let detail = format!("the body has more than {most} bytes");
                let status = StatusCode::PAYLOAD_TOO_LARGE;
                return Err(Problem::new(status, "too_large", detail, "put large values into files"));
            }
            caller.map_or(Ok(()), |caller| caller.hold(chunk.len()))?;
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    };
    timeout(PATIENCE, reading).await.unwrap_or_else(|_| {
        let detail = format!("the body did not come within {} s", PATIENCE.as_secs());
        Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "bad_request", detail, "send it at once"))
    })
}

/// A document comes as JSON, which no form of another site can send; a file as JSON or YAML.
pub(crate) fn check_type(headers: &HeaderMap, asked: &Asked, route: &Route) -> Result<(), Box<Problem>> {
    if asked.body.is_empty() {
        return Ok(());
    }
    let said = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let said = said.split(';').next().unwrap_or_default().trim();
    let taken = route.body.content_types();
    if taken.contains(&said) {
        return Ok(());
    }
    let hint = format!("send Content-Type: {}", taken.join(" or "));
    let detail = "the body is of another kind";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_request", detail, hint))
}

/// Who asks where no token is needed.
pub(crate) fn nobody() -> Peer {
    let owner = Owner { uid: u32::MAX, gid: u32::MAX, name: "nobody".to_owned() };
    Peer { owner, is_operator: false, is_known: false, is_reader: true, login: None, cluster_user: None }
}
