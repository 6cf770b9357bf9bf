//! HTTP: routes become verbs, answers become documents. The dashboard is served beside them.

pub(crate) mod asked;
mod certificate;
mod clients;
mod document;
mod guard;
mod hosts;
mod openapi;
mod page;
mod problem;
mod reply;
pub(crate) mod routes;
mod serve;
mod socket;
mod stream;

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::{Query, RawPathParams, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use ring::digest::{SHA256, digest};

use crate::protocol::{REQUEST_BYTES_MAX, Verb};
use crate::tokens::hex;
use crate::{Peer, Reply};
use asked::Asked;
use document::Document;
use guard::Guard;
use routes::{Body, Gives, Method, Route};
use socket::Caller;

pub use certificate::{Certificate, CertificateError, CertificateFiles};
pub use document::{Done, List, LogLine, Submitted, Version};
pub use hosts::{Hosts, check_host_name};
pub use openapi::openapi;
pub use problem::{FieldProblem, Problem};
pub use serve::{ANSWERING, Listening, Tls, listen, serve};
pub use socket::{CALLERS, serve_socket};

/// Bytes of a body that comes with a token: a job file may be as long as any other file.
const BODY_BYTES_MAX: usize = phalanx_spec::FILE_BYTES_MAX;

/// Who answers: a world.
pub trait Backend: Send + Sync + 'static {
    /// Who has this token; may block.
    ///
    /// # Errors
    /// Why it names nobody who may ask.
    fn peer(&self, token: &str) -> Result<Peer, NoPeer>;

    /// How a client gets a token, for one that has none.
    fn sign_in(&self) -> &'static str {
        "send a token: Authorization: Bearer TOKEN; `phalanx token create NAME` makes one, and `phalanx dashboard` opens a \
         page that has one"
    }

    /// Answers a verb; may block. A client that is gone is no error.
    ///
    /// # Errors
    /// What the client is to hear in place of an answer.
    fn answer(
        &self,
        peer: &Peer,
        verb: Verb,
        reply: &mut dyn Reply,
    ) -> Result<(), crate::protocol::ErrorView>;
}

/// Why a token names nobody who may ask. The texts go to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPeer {
    /// The token is not valid.
    Unauthorized(&'static str),
    /// The token is valid, and is for nobody of this machine.
    Forbidden(String),
    /// Whether the token is valid cannot be known now.
    Unavailable(&'static str),
}

/// What every request shares.
#[derive(Clone)]
struct Shared {
    backend: Arc<dyn Backend>,
    guard: Arc<Guard>,
}

/// All routes of the API, and the dashboard.
pub fn router(backend: Arc<dyn Backend>, hosts: Hosts) -> Router {
    let shared = Shared { backend, guard: Arc::new(Guard::new(hosts)) };
    let mut router = Router::new();
    for route in routes::all() {
        let handler = move |state: State<Shared>, path: RawPathParams, query, request| {
            handle(route, state, path, query, request)
        };
        let methods: MethodRouter<Shared> = match route.method {
            Method::Get => axum::routing::get(handler),
            Method::Post => axum::routing::post(handler),
            Method::Put => axum::routing::put(handler),
            Method::Patch => axum::routing::patch(handler),
            Method::Delete => axum::routing::delete(handler),
        };
        router = router.route(route.path, methods);
    }
    router
        .route("/v1/openapi.json", get(|| async { json(&OPENAPI) }))
        .route("/v1/schemas/job", get(|| async { json(&JOB_SCHEMA) }))
        .route("/v1/schemas/queues", get(|| async { json(&QUEUES_SCHEMA) }))
        .route("/v1/{*other}", axum::routing::any(|| async { Problem::not_found("there is no such route") }))
        .method_not_allowed_fallback(|| async {
            let hint = "GET /v1/openapi.json lists the methods of each route";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "bad_request", "the route has no such method", hint)
        })
        .fallback(get(page::serve))
        .layer(axum::middleware::from_fn_with_state(shared.clone(), guard::check))
        .with_state(shared)
}

/// Made once: nobody needs a token for them.
static OPENAPI: LazyLock<String> = LazyLock::new(|| openapi().to_string());
static JOB_SCHEMA: LazyLock<String> = LazyLock::new(|| phalanx_spec::job_schema().to_string());
static QUEUES_SCHEMA: LazyLock<String> = LazyLock::new(|| phalanx_spec::queues_schema().to_string());

fn json(text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// One request: who asks, what, and the answer.
async fn handle(
    route: &'static Route,
    State(shared): State<Shared>,
    path: RawPathParams,
    query: Result<Query<Vec<(String, String)>>, axum::extract::rejection::QueryRejection>,
    request: axum::extract::Request,
) -> Response {
    answer(route, &shared, &path, query, request).await.unwrap_or_else(|problem| problem.into_response())
}

async fn answer(
    route: &'static Route,
    shared: &Shared,
    path: &RawPathParams,
    query: Result<Query<Vec<(String, String)>>, axum::extract::rejection::QueryRejection>,
    request: axum::extract::Request,
) -> Result<Response, Box<Problem>> {
    let (parts, body) = request.into_parts();
    let caller = parts.extensions.get::<Caller>();
    let peer = match caller {
        Some(caller) => Some(caller.peer.clone()),
        None if route.needs_token() => Some(shared.peer(&parts.headers).await?),
        None => None,
    };
    let is_stream = matches!(route.gives, Gives::Events(_));
    // A caller has the place of the connection.
    let counted = peer.as_ref().filter(|_| caller.is_none());
    let place = counted.map(|peer| shared.guard.admit(peer, is_stream)).transpose()?;
    let body_max = match (&route.body, caller) {
        (Body::Nothing, _) => 0,
        (_, Some(_)) => REQUEST_BYTES_MAX,
        (_, None) => BODY_BYTES_MAX,
    };
    let Query(query) = query.map_err(|e| Problem::field("query", e.body_text(), ""))?;
    let asked = Asked {
        path: path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        query,
        body: guard::read(body, body_max, caller).await?,
        key: header_text(&parts.headers, "idempotency-key")?.map(str::to_owned),
        last_event: header_text(&parts.headers, "last-event-id")?.and_then(|text| text.parse().ok()),
    };
    asked.check(route)?;
    guard::check_type(&parts.headers, &asked, route)?;
    let work =
        Work { route, asked, peer: peer.unwrap_or_else(guard::nobody), backend: Arc::clone(&shared.backend) };
    let response = match route.gives {
        Gives::Json(_) | Gives::Created(_) => {
            let known = header_text(&parts.headers, "if-none-match")?.map(str::to_owned);
            one(work, known.filter(|_| route.method == Method::Get)).await?
        }
        Gives::Events(_) => stream::begun(work).await?,
    };
    // Until all of it is sent: a client that reads slowly takes a place.
    Ok(response.map(|body| axum::body::Body::new(guard::Held::new(body, place))))
}

/// A request that was read.
struct Work {
    route: &'static Route,
    asked: Asked,
    peer: Peer,
    backend: Arc<dyn Backend>,
}

impl Work {
    /// Reads what is asked, and has it answered. May take long, and wait.
    fn carry_out(&self, reply: &mut dyn Reply) -> Result<(), Box<Problem>> {
        let verb = (self.route.ask)(&self.asked)?;
        if self.peer.is_reader && !verb.is_read() {
            let hint = "make one without `--read-only`";
            return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", "this token only reads", hint));
        }
        Ok(self.backend.answer(&self.peer, verb, reply)?)
    }
}

/// The one answer to a verb, with its tag. A client that knows the tag has the document, and hears so and nothing more.
async fn one(work: Work, known: Option<String>) -> Result<Response, Box<Problem>> {
    let mut first = reply::First::default();
    let _listener = first.listener();
    // On a thread that may wait: large documents are written there, too.
    let working = tokio::task::spawn_blocking(move || {
        work.carry_out(&mut first)?;
        let document = (work.route.tell)(&work.asked, first.answer.ok_or_else(Problem::unexpected)?)?;
        let tag = (work.route.method == Method::Get).then(|| tag_of(&document.json));
        Ok::<_, Box<Problem>>((document, tag))
    });
    let (Document { status, json }, tag) = working.await.map_err(|_| Problem::unexpected())??;
    let is_same = tag.as_ref().is_some_and(|tag| {
        known.is_some_and(|known| known.split(',').any(|of| of.trim().trim_start_matches("W/") == tag))
    });
    let mut response = if is_same {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        (status, [(header::CONTENT_TYPE, "application/json")], json).into_response()
    };
    if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(&tag).ok()) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

impl Shared {
    /// Who asks, by the token of the request. The daemon looks up who that is, so this may wait.
    async fn peer(&self, headers: &HeaderMap) -> Result<Peer, Box<Problem>> {
        let unknown = |detail: &str| {
            let hint = self.backend.sign_in();
            Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail, hint)
        };
        let Some(said) = header_text(headers, "authorization")? else {
            return Err(unknown("the request has no token"));
        };
        let token =
            said.strip_prefix("Bearer ").ok_or_else(|| unknown("the token is no bearer token"))?.to_owned();
        let backend = Arc::clone(&self.backend);
        let found = tokio::task::spawn_blocking(move || backend.peer(&token)).await;
        found.map_err(|_| Problem::unexpected())?.map_err(|why| match why {
            NoPeer::Unauthorized(detail) => unknown(detail),
            NoPeer::Forbidden(detail) => {
                let hint = "an operator gives the account: `users` in the file of `phalanx up --api-oidc`";
                Problem::new(StatusCode::FORBIDDEN, "forbidden", detail, hint)
            }
            NoPeer::Unavailable(detail) => {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail, "try again in a moment")
            }
        })
    }
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Box<Problem>> {
    let text = headers.get(name).map(HeaderValue::to_str).transpose();
    text.map_err(|_| Problem::field(name, "the header is no text", ""))
}

fn tag_of(body: &[u8]) -> String {
    let digest = hex(digest(&SHA256, body).as_ref());
    format!("\"{}\"", &digest[..digest.len() / 2])
}

#[cfg(test)]
mod tests;
