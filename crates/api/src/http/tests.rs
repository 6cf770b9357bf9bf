//! The translation, against a world that answers what it is told to.

use std::sync::Mutex;

use axum::body::Body as Content;
use axum::http::{Method as HttpMethod, Request};
use http_body_util::BodyExt as _;
use phalanx_model::{JobId, Owner, Timestamp};
use serde_json::Value;
use tower::ServiceExt as _;

use super::*;
use crate::protocol::{Answer, ChangeKind, ChangeView, ErrorCode, ErrorView, JobRef, JobView, WrongField};

const HOST: &str = "127.0.0.1:7077";

/// Remembers what it was asked; jobs 1 to 5 are there.
#[derive(Default)]
struct World(Mutex<Vec<String>>);

impl Backend for World {
    fn peer(&self, token: &str) -> Result<Peer, NoPeer> {
        let (uid, is_operator, is_reader) = match token {
            "ann" => (1, false, false),
            "wall" => (1, false, true),
            "root" => (0, true, false),
            "away" => return Err(NoPeer::Unavailable("the issuer does not answer")),
            "stranger" => return Err(NoPeer::Forbidden("there is no account \"stranger\"".to_owned())),
            _ => return Err(NoPeer::Unauthorized("the token is not valid, or no longer")),
        };
        let owner = Owner { uid, gid: uid, name: token.to_owned() };
        Ok(Peer { owner, is_operator, is_known: true, is_reader, login: None, cluster_user: None })
    }

    fn answer(&self, peer: &Peer, verb: Verb, reply: &mut dyn Reply) -> Result<(), ErrorView> {
        self.0.lock().unwrap().push(format!("{} {}", peer.owner.name, serde_json::to_string(&verb).unwrap()));
        let mut send = |answer: Answer| {
            let _ = reply.send(&answer);
            Ok(())
        };
        match verb {
            Verb::Ping => send(Answer::Pong { version: "0.1.0".to_owned(), pid: 1, epoch: 2 }),
            Verb::List { limit, filter, .. } => {
                let all = (1..=5).filter(|id| filter.before.is_none_or(|before| *id < before.0));
                let newest: Vec<JobView> = all.rev().take(limit as usize).map(job).collect();
                send(Answer::Jobs(newest.into_iter().rev().collect()))
            }
            Verb::Get { job: JobRef::Id(id) } if id.0 <= 5 => send(Answer::Job(Box::new(job(id.0)))),
            Verb::Get { .. } => Err(ErrorView::new(ErrorCode::NotFound, "no job 9", "`phalanx ps`")),
            Verb::SubmitFile { text, .. } if text.contains("wrong") => {
                let error = ErrorView::new(ErrorCode::BadRequest, "no such field", "");
                let field =
                    WrongField { path: "resources.wrong".to_owned(), what: "no such field".to_owned() };
                Err(ErrorView { field: Some(field), ..error })
            }
            Verb::SubmitFile { key, .. } => {
                send(Answer::Submitted { job: JobId(6), name: "x".to_owned(), existing: key.is_some() })
            }
            Verb::Logs { job: JobRef::Name(_), .. } => {
                Err(ErrorView::new(ErrorCode::Forbidden, "job 1 belongs to bob", ""))
            }
            Verb::Logs { .. } => {
                for rank in 0..2 {
                    let line = format!("line\nof {rank}");
                    send(Answer::Log { task: None, rank, attempt: 1, at: None, line })?;
                }
                send(Answer::End)
            }
            Verb::Watch { after } => {
                let change = ChangeView {
                    id: after.unwrap_or(7) + 1,
                    at: Timestamp(1),
                    kind: ChangeKind::Job,
                    job: Some(JobId(1)),
                    node: None,
                    what: "running".to_owned(),
                };
                send(Answer::Change(change))?;
                send(Answer::Reset { id: 99 })
            }
            _ => send(Answer::Done { detail: "done".to_owned() }),
        }
    }
}

fn job(id: u64) -> JobView {
    JobView {
        id: JobId(id),
        name: format!("job-{id}"),
        owner: "ann".to_owned(),
        uid: 1,
        queue: "default".to_owned(),
        priority: 0,
        class: String::new(),
        state: "running".to_owned(),
        reason: String::new(),
        detail: String::new(),
        submitted_at: Timestamp(1),
        started_at: None,
        finished_at: None,
        ending: None,
        exit_code: None,
        gangs: Vec::new(),
        array: None,
        service: None,
        job: None,
        events: Vec::new(),
        spot: None,
    }
}

struct Answered {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Answered {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{}", self.text))
    }
}

/// A request that the world is asked, with more headers and a body.
async fn ask_with(
    world: &Arc<World>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Content>,
) -> Answered {
    let mut request = Request::builder().method(HttpMethod::from_bytes(method.as_bytes()).unwrap()).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", HOST);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let backend: Arc<dyn Backend> = Arc::<World>::clone(world);
    let response = router(backend, Hosts::plain(HOST.parse().unwrap()))
        .oneshot(request.body(body.into()).unwrap())
        .await
        .unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    Answered { status: parts.status, headers: parts.headers, text }
}

const ANN: (&str, &str) = ("authorization", "Bearer ann");
const JSON: (&str, &str) = ("content-type", "application/json");

async fn get_as_ann(world: &Arc<World>, path: &str) -> Answered {
    ask_with(world, "GET", path, &[ANN], Content::empty()).await
}

#[tokio::test]
async fn only_a_valid_token_opens_a_route() {
    let world = Arc::new(World::default());
    for headers in [
        vec![],
        vec![("authorization", "Bearer nobody")],
        vec![("authorization", "Basic YTph")],
        vec![("authorization", "ann")],
        vec![("authorization", "Bearer ")],
    ] {
        for route in routes::all().filter(|route| route.path != "/v1/version") {
            let path = route.path.replace(['{', '}'], "");
            let method = format!("{:?}", route.method).to_uppercase();
            let refused = ask_with(&world, &method, &path, &headers, Content::empty()).await;
            assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{method} {path} {headers:?}");
            assert_eq!(refused.headers[header::WWW_AUTHENTICATE], "Bearer");
            assert!(refused.json()["hint"].as_str().unwrap().contains("phalanx token create"));
        }
    }
    assert!(world.0.lock().unwrap().is_empty(), "nobody was asked");
    let version = ask_with(&world, "GET", "/v1/version", &[], Content::empty()).await;
    assert_eq!((version.status, version.json()["epoch"].as_u64()), (StatusCode::OK, Some(2)));
}

#[tokio::test]
async fn a_token_that_reads_changes_nothing() {
    let world = Arc::new(World::default());
    let wall = ("authorization", "Bearer wall");
    let submission = serde_json::json!({ "job": crate::client::tests::resolved_job() }).to_string();
    let policy =
        serde_json::json!({ "settings": phalanx_model::Settings::default(), "queues": [] }).to_string();
    for route in routes::all().filter(|route| route.method != Method::Get) {
        let path = route.path.replace("{job}", "1").replace("{node}", "n1").replace("{name}", "t");
        let method = format!("{:?}", route.method).to_uppercase();
        let body = match route.path {
            _ if route.method == Method::Delete => "",
            "/v1/jobs/{job}/news" => r#"{"news":"checkpoint"}"#,
            "/v1/health/reports" => r#"{"node":"n1","device":null,"finding":{"xid":79}}"#,
            "/v1/calendar" => r#"{"nodes":["n1"],"begins_at":1,"ends_at":2,"held_for":null}"#,
            "/v1/queues" => "queues: []",
            "/v1/policy" => &policy,
            "/v1/submissions" | "/v1/submissions/dry-run" => &submission,
            "/v1/waits" => r#"{"jobs":[1]}"#,
            "/v1/tokens" => r#"{"name":"t","for_ms":1}"#,
            "/v1/jobs/{job}/exec" => r#"{"rank":null,"argv":["x"],"terminal":null}"#,
            "/v1/jobs" | "/v1/jobs/dry-run" => "command: [x]",
            _ => "",
        };
        let kind = if body.starts_with('{') { JSON } else { ("content-type", "application/yaml") };
        let answered = ask_with(&world, &method, &path, &[wall, kind], body.to_owned()).await;
        let may =
            ["/v1/jobs/dry-run", "/v1/submissions/dry-run", "/v1/waits", "/v1/what-if"].contains(&route.path);
        assert_eq!(answered.status == StatusCode::FORBIDDEN, !may, "{method} {path}: {}", answered.text);
    }
    let asked = world.0.lock().unwrap().clone();
    let reads = ["dry_run\":true", "dry_run", "wait", "what_if"];
    let are_reads = asked.iter().zip(reads).all(|(asked, read)| asked.contains(read));
    assert!(asked.len() == reads.len() && are_reads, "{asked:?}");
    let read = ask_with(&world, "GET", "/v1/jobs", &[wall], Content::empty()).await;
    assert_eq!(read.status, StatusCode::OK);
}

#[tokio::test]
async fn pages_of_other_sites_get_nothing() {
    let world = Arc::new(World::default());
    for host in ["evil.example", "127.0.0.1:1", "127.0.0.1.evil.example:7077", "localhost:7077", ""] {
        let refused = ask_with(&world, "GET", "/v1/jobs", &[ANN, ("host", host)], Content::empty()).await;
        assert_eq!(refused.status, StatusCode::MISDIRECTED_REQUEST, "{host}");
    }
    for origin in ["http://evil.example", "null", "https://127.0.0.1:7077", "http://127.0.0.1:7078"] {
        let refused =
            ask_with(&world, "DELETE", "/v1/jobs/1", &[ANN, ("origin", origin)], Content::empty()).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{origin}");
    }
    let own = ask_with(
        &world,
        "DELETE",
        "/v1/jobs/1",
        &[ANN, ("origin", "http://127.0.0.1:7077")],
        Content::empty(),
    );
    assert_eq!(own.await.status, StatusCode::OK);
    let read = get_as_ann(&world, "/v1/jobs").await;
    assert!(!read.headers.keys().any(|name| name.as_str().starts_with("access-control")));
    for name in ["content-security-policy", "x-content-type-options", "x-frame-options", "referrer-policy"] {
        assert!(read.headers.contains_key(name), "{name}");
    }
    // A form of another site can send this kind, and no document is taken from it.
    let form = ("content-type", "text/plain");
    let refused = ask_with(&world, "POST", "/v1/jobs", &[ANN, form], "command: [x]").await;
    assert_eq!(refused.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn errors_name_the_part_that_is_wrong() {
    let world = Arc::new(World::default());
    for (path, field) in [
        ("/v1/jobs?limt=3", "limt"),
        ("/v1/jobs?limit=0", "limit"),
        ("/v1/jobs?limit=10001", "limit"),
        ("/v1/jobs?limit=x", "limit"),
        ("/v1/jobs?limit=1&limit=2", "limit"),
        ("/v1/jobs?finished=yes", "finished"),
        ("/v1/jobs?queue=a%20b", "queue"),
        ("/v1/jobs?after=-1", "after"),
        ("/v1/bill?by=colour", "by"),
        ("/v1/jobs/1/logs?rank=many", "rank"),
    ] {
        let refused = get_as_ann(&world, path).await;
        let problem = refused.json();
        assert_eq!(
            (refused.status, problem["status"].as_u64()),
            (StatusCode::BAD_REQUEST, Some(400)),
            "{path}"
        );
        assert_eq!(problem["errors"][0]["field"], field, "{path}: {problem}");
        assert_eq!(refused.headers[header::CONTENT_TYPE], "application/problem+json");
    }
    for (method, path, body, field) in [
        ("POST", "/v1/nodes/n1/cordon", r#"{"reson":"fan"}"#, "reson"),
        ("PATCH", "/v1/jobs/1", r#"{"priorty":5}"#, "priorty"),
        ("PATCH", "/v1/jobs/1", r#"{"priority":"high"}"#, "priority"),
        (
            "POST",
            "/v1/calendar",
            r#"{"nodes":["n"],"begins_at":1,"ends_at":2,"held_for":null,"held":"q"}"#,
            "held",
        ),
    ] {
        let refused = ask_with(&world, method, path, &[ANN, JSON], body).await;
        assert_eq!(refused.json()["errors"][0]["field"], field, "{path}: {}", refused.text);
    }
    let refused = ask_with(&world, "POST", "/v1/jobs", &[ANN, JSON], r#"{"wrong":1}"#).await;
    assert_eq!(refused.json()["errors"][0]["field"], "resources.wrong");
    let refused = ask_with(&world, "POST", "/v1/jobs/1/hold", &[ANN, JSON], "{}").await;
    assert_eq!(refused.json()["errors"][0]["field"], "body");
    let missing = get_as_ann(&world, "/v1/jobs/9").await;
    assert_eq!((missing.status, missing.json()["code"].as_str()), (StatusCode::NOT_FOUND, Some("not_found")));
    assert_eq!(get_as_ann(&world, "/v1/nothing").await.status, StatusCode::NOT_FOUND);
    let wrong = ask_with(&world, "PUT", "/v1/jobs/1", &[ANN], Content::empty()).await;
    assert_eq!(wrong.status, StatusCode::METHOD_NOT_ALLOWED);
    let long = "x".repeat(BODY_BYTES_MAX + 1);
    let refused = ask_with(&world, "POST", "/v1/jobs", &[ANN, JSON], long).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn lists_come_in_parts() {
    let world = Arc::new(World::default());
    let ids = |document: &Value| -> Vec<u64> {
        document["items"].as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect()
    };
    let first = get_as_ann(&world, "/v1/jobs?limit=2").await.json();
    assert_eq!((ids(&first), first["next"].as_str()), (vec![5, 4], Some("4")));
    let second = get_as_ann(&world, "/v1/jobs?limit=2&after=4").await.json();
    assert_eq!((ids(&second), second["next"].as_str()), (vec![3, 2], Some("2")));
    let last = get_as_ann(&world, "/v1/jobs?limit=2&after=2").await.json();
    assert_eq!((ids(&last), &last["next"]), (vec![1], &Value::Null));
    let exact = get_as_ann(&world, "/v1/jobs?limit=5").await.json();
    assert_eq!((ids(&exact).len(), &exact["next"]), (5, &Value::Null));
}

#[tokio::test]
async fn a_document_that_did_not_change_is_not_sent_again() {
    let world = Arc::new(World::default());
    let first = get_as_ann(&world, "/v1/jobs/1").await;
    let tag = first.headers[header::ETAG].to_str().unwrap().to_owned();
    let again = [ANN, ("if-none-match", &*format!("\"other\", {tag}"))];
    let same = ask_with(&world, "GET", "/v1/jobs/1", &again, Content::empty()).await;
    assert_eq!((same.status, same.text.as_str()), (StatusCode::NOT_MODIFIED, ""));
    let other = ask_with(&world, "GET", "/v1/jobs/2", &again, Content::empty()).await;
    assert_eq!(other.status, StatusCode::OK);
}

#[tokio::test]
async fn a_key_makes_a_submission_one_job() {
    let world = Arc::new(World::default());
    let made = ask_with(&world, "POST", "/v1/jobs", &[ANN, JSON], r#"{"command":["x"]}"#).await;
    assert_eq!((made.status, made.json()["job"].as_u64()), (StatusCode::CREATED, Some(6)));
    let again = [ANN, JSON, ("idempotency-key", "k1")];
    let same = ask_with(&world, "POST", "/v1/jobs", &again, r#"{"command":["x"]}"#).await;
    assert_eq!((same.status, &same.json()["existing"]), (StatusCode::OK, &Value::Bool(true)));
    let asked = world.0.lock().unwrap().last().unwrap().clone();
    assert!(asked.contains(r#""key":"k1""#), "{asked}");
}

#[tokio::test]
async fn streams_are_events_that_a_client_can_go_on_after() {
    let world = Arc::new(World::default());
    let logs = get_as_ann(&world, "/v1/jobs/1/logs?follow=true&tail=5").await;
    assert_eq!(logs.headers[header::CONTENT_TYPE], "text/event-stream");
    assert_eq!(logs.text.matches("event: log").count(), 2);
    assert!(
        logs.text.contains(r#""line":"line\nof 1""#) && logs.text.contains("event: end"),
        "{}",
        logs.text
    );
    let refused = get_as_ann(&world, "/v1/jobs/bobs/logs").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "before a stream begins");
    let after =
        ask_with(&world, "GET", "/v1/stream", &[ANN, ("last-event-id", "41")], Content::empty()).await;
    assert!(after.text.contains("id: 42") && after.text.contains("event: change"), "{}", after.text);
    assert!(after.text.contains("event: reset") && after.text.contains("id: 99"), "{}", after.text);
}

#[tokio::test]
async fn one_user_cannot_take_all_places() {
    let guard = Guard::new(Hosts::plain(HOST.parse().unwrap()));
    let peer = |uid| Peer {
        owner: Owner { uid, gid: uid, name: String::new() },
        is_operator: false,
        is_known: true,
        is_reader: false,
        login: None,
        cluster_user: None,
    };
    let ann: Vec<_> = std::iter::from_fn(|| guard.admit(&peer(1), false).ok()).collect();
    assert_eq!(ann.len(), 32);
    assert!(guard.admit(&peer(2), false).is_ok());
    let refused = guard.admit(&peer(1), false).err().unwrap();
    assert_eq!(refused.status, 429);
    // Users of a cluster have names alone.
    let of_cluster = Owner { uid: 1, gid: 1, name: "system:serviceaccount:a:b".to_owned() };
    assert!(guard.admit(&Peer { owner: of_cluster, ..peer(1) }, false).is_ok());
    drop(ann);
    let streams: Vec<_> = std::iter::from_fn(|| guard.admit(&peer(3), true).ok()).collect();
    assert!(streams.len() < 32 && guard.admit(&peer(3), false).is_ok(), "streams leave room for requests");
    let all: Vec<_> = (100..340).filter_map(|at| guard.admit(&peer(at / 8), true).ok()).collect();
    assert_eq!(all.len() + streams.len(), 128, "of all users");
    let operator = Peer { is_operator: true, ..peer(0) };
    assert!(guard.admit(&operator, true).is_ok());
    drop((all, streams));
    let burst = std::iter::from_fn(|| guard.admit(&peer(1), false).ok().map(drop)).take(1_000).count();
    assert!((300..500).contains(&burst), "{burst} at once after a rest");
}

#[tokio::test]
async fn the_page_is_served_and_no_file_beside_it() {
    let world = Arc::new(World::default());
    for path in ["/", "/jobs/7", "/map", "/nodes/gpu-1.example.com"] {
        let page = ask_with(&world, "GET", path, &[], Content::empty()).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        assert!(page.text.contains("Phalanx"), "{}", page.text);
    }
    for path in [
        "/../Cargo.toml",
        "/assets/../../package.json",
        "/%2e%2e/package.json",
        "/assets/none.js",
        "//etc/passwd.txt",
    ] {
        let none = ask_with(&world, "GET", path, &[], Content::empty()).await;
        assert_eq!(none.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[test]
fn the_document_names_every_route_and_every_shape() {
    let document = openapi();
    assert_eq!(document["openapi"], "3.1.0");
    let mut names = std::collections::BTreeSet::new();
    for route in routes::all() {
        let operation = &document["paths"][route.path][format!("{:?}", route.method).to_lowercase()];
        assert_eq!(operation["operationId"], route.name);
        assert!(names.insert(route.name), "{} stands twice", route.name);
        assert!(route.summary.ends_with('.'), "{}", route.summary);
        let in_path = route.path.matches('{').count() + route.query.len();
        let parameters = operation["parameters"].as_array().map_or(0, Vec::len);
        assert!(parameters >= in_path, "{}", route.path);
    }
    let text = document.to_string();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for part in text.split("\"#/components/schemas/").skip(1) {
        let name = part.split(['"', '/']).next().unwrap();
        assert!(schemas.contains_key(name), "{name} is referred to and not there");
    }
    assert!(!text.contains("\"$ref\":\"#/$defs"), "definitions are found from the root");
}
