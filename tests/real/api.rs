//! The HTTP API of a real daemon: what it answers, to whom, and what it keeps from others.

mod what_if;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use phalanx_api::protocol::{Answer, NewTokenView, NodeFilter, TokenAsk, Verb};
use phalanx_model::JobId;
use serde_json::{Value, json};

use crate::support::{Bench, NOBODY, TWO_NODES_OF_8, env, gang, is_root, shell};

/// A client with a token.
struct Client {
    base: String,
    token: String,
    agent: ureq::Agent,
}

impl Client {
    fn of(NewTokenView { text, address, .. }: NewTokenView) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .build();
        Self { base: address, token: text, agent: config.into() }
    }

    /// In the name of whoever runs the test, who is an operator.
    fn new(bench: &Bench, name: &str) -> Self {
        match bench.ask(Verb::NewToken(ask(name, false))) {
            Ok(Answer::Token(made)) => Self::of(made),
            other => panic!("{other:?}"),
        }
    }

    fn as_nobody(bench: &Bench) -> Self {
        match bench.ask_as(NOBODY, &Verb::NewToken(ask("theirs", false))).as_slice() {
            [Answer::Token(made)] => Self::of(made.clone()),
            other => panic!("{other:?}"),
        }
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.token)
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let request = self.agent.get(format!("{}{path}", self.base)).header("authorization", self.bearer());
        read(request.call())
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.agent.post(format!("{}{path}", self.base)).header("authorization", self.bearer());
        match body {
            Value::Null => read(request.send_empty()),
            body => read(request.header("content-type", "application/json").send(body.to_string())),
        }
    }

    fn delete(&self, path: &str) -> (u16, Value) {
        let request =
            self.agent.delete(format!("{}{path}", self.base)).header("authorization", self.bearer());
        read(request.call())
    }

    /// Lines of a stream, until it ends or the reader has enough.
    fn stream(&self, path: &str, last_event: Option<u64>) -> impl Iterator<Item = String> + use<> {
        let mut request =
            self.agent.get(format!("{}{path}", self.base)).header("authorization", self.bearer());
        if let Some(id) = last_event {
            request = request.header("last-event-id", id.to_string());
        }
        let response = request.call().unwrap();
        assert_eq!(response.status(), 200);
        BufReader::new(response.into_body().into_reader()).lines().map_while(Result::ok)
    }
}

fn ask(name: &str, read_only: bool) -> TokenAsk {
    TokenAsk { name: name.to_owned(), read_only, for_ms: 3_600_000 }
}

fn read(response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> (u16, Value) {
    let mut response = response.unwrap();
    let text = response.body_mut().read_to_string().unwrap();
    let json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    (response.status().as_u16(), json)
}

/// A job file: so many ranks with a GPU each, and a script.
fn file(name: &str, ranks: u32, script: &str) -> Value {
    json!({ "name": name, "ranks": ranks, "resources": { "gpus": ranks }, "command": ["sh", "-c", script] })
}

fn submit(client: &Client, file: &Value) -> JobId {
    let (status, made) = client.post("/v1/jobs", file);
    assert_eq!(status, 201, "{made}");
    JobId(made["job"].as_u64().unwrap())
}

#[test]
fn nodes_come_in_parts_and_are_found_by_a_text_as_jobs_are() {
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let client = Client::new(&bench, "finder");
    let names = |query: &str| {
        let (status, found) = client.get(&format!("/v1/nodes?{query}"));
        assert_eq!(status, 200, "{found}");
        let nodes = found["nodes"].as_array().unwrap().iter();
        let names: Vec<String> = nodes.map(|node| node["name"].as_str().unwrap().to_owned()).collect();
        (names.join(" "), found["matching"].as_u64().unwrap(), found["next"].clone())
    };
    assert_eq!(names(""), ("n1 n2".to_owned(), 2, Value::Null));
    assert_eq!(names("limit=1"), ("n1".to_owned(), 2, json!("n1")));
    assert_eq!(names("limit=1&after=n1"), ("n2".to_owned(), 2, Value::Null));
    // A node that has gone meanwhile leaves its place in the order.
    assert_eq!(names("after=n1x"), ("n2".to_owned(), 2, Value::Null));
    assert_eq!(names("text=N2"), ("n2".to_owned(), 1, Value::Null));
    assert_eq!(names("text=nowhere"), (String::new(), 0, Value::Null));

    let job = submit(&client, &file("Bert-large", 8, "exec sleep 1000"));
    bench.await_state(job, "running");
    let (_, seen) = client.get("/v1/jobs/Bert-large");
    let node = seen["gangs"][0]["members"][0]["node"].as_str().unwrap().to_owned();
    assert_eq!(names("text=bert"), (node.clone(), 1, Value::Null));
    client.post(&format!("/v1/nodes/{node}/cordon"), &json!({}));
    assert_eq!(names("state=cordoned").0, node);
    assert_eq!(names("state=unhealthy").1, 0);
    let (status, problem) = client.get("/v1/nodes?state=tired");
    assert_eq!((status, &problem["errors"][0]["field"]), (400, &json!("state")), "{problem}");

    let found =
        |text: &str| client.get(&format!("/v1/jobs?text={text}")).1["items"].as_array().unwrap().len();
    assert_eq!([found("LARGE"), found(&job.to_string()), found("default"), found("gpt")], [1, 1, 1, 0]);
    bench.cancel(job);
    bench.ended(job);
    assert_eq!(client.get("/v1/jobs?finished=true&text=large").1["items"].as_array().unwrap().len(), 1);
}

#[test]
fn every_document_is_as_the_openapi_document_says() {
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let client = Client::new(&bench, "reader");
    let done = submit(&client, &file("done", 1, "echo hello"));
    bench.ended(done);
    let runs = submit(&client, &file("runs", 10, "echo hello; exec sleep 1000"));
    bench.await_state(runs, "running");
    submit(&client, &file("waits", 8, "true"));
    submit(
        &client,
        &json!({ "name": "tasks", "array": "0-3", "resources": { "gpus": 1 }, "command": ["true"] }),
    );
    let (status, _) = client.post("/v1/nodes/n2/cordon", &json!({ "reason": "fan" }));
    assert_eq!(status, 200);

    let (_, document) = client.get("/v1/openapi.json");
    let components = &document["components"];
    let mut seen = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        let Some(operation) = operations.get("get") else { continue };
        let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        // Only services have endpoints, and only some jobs moves.
        if schema.is_null() || path.ends_with("/endpoints") || path.ends_with("/moves") {
            continue;
        }
        let mut root = schema.clone();
        root["components"] = components.clone();
        let validator = jsonschema::validator_for(&root).unwrap_or_else(|e| panic!("{path}: {e}"));
        let jobs: &[&str] = if path.contains("{job}") { &["done", "runs", "waits", "tasks"] } else { &[""] };
        for job in jobs {
            let asked = path.replace("{job}", job).replace("{node}", "n1").replace("{queue}", "default");
            let query = if path == "/v1/jobs" { "?finished=true" } else { "" };
            let (status, answer) = client.get(&format!("{asked}{query}"));
            assert_eq!(status, 200, "{asked}: {answer}");
            let errors: Vec<String> =
                validator.iter_errors(&answer).map(|e| format!("{}: {e}", e.instance_path())).collect();
            assert_eq!(errors, [""; 0], "{asked}: {answer}");
            seen += 1;
        }
    }
    assert!(seen >= 20, "{seen} documents");
    let (_, jobs) = client.get("/v1/jobs?finished=true&limit=2");
    assert_eq!(jobs["items"].as_array().unwrap().len(), 2);
    let (_, rest) = client.get(&format!("/v1/jobs?finished=true&after={}", jobs["next"].as_str().unwrap()));
    let names: Vec<&str> =
        rest["items"].as_array().unwrap().iter().map(|j| j["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["runs", "done"], "ended jobs too");
    bench.cancel(runs);
}

#[test]
fn the_overview_and_the_map_agree_with_what_runs() {
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let client = Client::new(&bench, "reader");
    let runs = submit(&client, &file("runs", 6, "exec sleep 1000"));
    bench.await_state(runs, "running");
    submit(&client, &file("waits", 16, "true"));
    client.post("/v1/nodes/n2/cordon", &json!({}));
    let (_, overview) = client.get("/v1/overview");
    let devices = &overview["devices"];
    let number = |name: &str| devices[name].as_u64().unwrap();
    assert_eq!((number("total"), number("held")), (16, 6), "{overview}");
    let states = ["held", "free", "closed", "broken", "foreign", "unknown"];
    assert_eq!(states.iter().map(|state| number(state)).sum::<u64>(), 16, "each device is in one state");
    assert_eq!((&overview["jobs"]["running"], &overview["jobs"]["pending"]), (&json!(1), &json!(1)));
    assert_eq!((&overview["nodes"]["open"], &overview["nodes"]["cordoned"]), (&json!(1), &json!(1)));
    let waiting = &overview["waiting"][0];
    assert_eq!(
        (&waiting["name"], &waiting["jobs"], &waiting["devices"]),
        (&json!("waits"), &json!(1), &json!(16))
    );
    let (_, map) = client.get("/v1/map");
    let devices: Vec<&Value> = map["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|node| node["devices"].as_array().unwrap())
        .collect();
    let held = devices.iter().filter(|device| ***device == json!(runs.0)).count();
    let closed = devices.iter().filter(|device| ***device == json!(-2)).count();
    assert_eq!((devices.len(), held, map["jobs"][0]["name"].as_str()), (16, 6, Some("runs")), "{map}");
    let free = devices.iter().filter(|device| device.is_null()).count();
    assert_eq!(free + closed, 10, "{map}");
    let (_, why) = client.get("/v1/jobs/waits/why");
    let sentences: Vec<&str> =
        why["sentences"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
    assert!(sentences.len() >= 3 && sentences.iter().all(|said| said.ends_with('.')), "{sentences:?}");
    let (status, dry) = client.post("/v1/jobs/dry-run", &file("try", 1, "true"));
    assert_eq!(status, 200);
    assert!(dry["sentences"][0].as_str().unwrap().starts_with("It would start now on n1"), "{dry}");
    bench.cancel(runs);
}

#[test]
fn a_job_is_submitted_watched_and_cancelled_over_http() {
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let client = Client::new(&bench, "worker");
    let (_, wrong) = client.post("/v1/jobs", &json!({ "resources": { "gpu": 1 }, "command": ["x"] }));
    assert_eq!(wrong["errors"][0]["field"], "resources.gpu", "{wrong}");
    let mut changes = client.stream("/v1/stream", None);
    assert_eq!(changes.next().as_deref(), Some("event: reset"), "what is read from here on misses nothing");
    let script = "echo at $PWD, path $PATH; for i in 1 2 3; do echo line $i; done; exec sleep 1000";
    let id = submit(&client, &file("talks", 2, script));
    let first = changes.find(|line| line.contains(r#""kind":"#)).unwrap();
    let first: Value = serde_json::from_str(first.trim_start_matches("data: ")).unwrap();
    assert_eq!((&first["kind"], &first["job"]), (&json!("job"), &json!(id.0)), "{first}");
    drop(changes);
    let mut logs = client.stream(&format!("/v1/jobs/{id}/logs?follow=true&rank=1"), None);
    let home = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().dir;
    let said = logs.find(|line| line.contains("at ")).unwrap();
    assert!(said.contains(&format!("at {}, path /usr/local/bin:/usr/bin:/bin", home.display())), "{said}");
    assert!(logs.any(|line| line.contains(r#""rank":1"#) && line.contains(r#""line":"line 3""#)));
    let (status, _) = client.delete(&format!("/v1/jobs/{id}"));
    assert_eq!(status, 200);
    // The stream ends with the job.
    assert_eq!(logs.filter(|line| line == "event: end").count(), 1);
    assert_eq!(bench.ended(id).state, "cancelled");
    // What came between is not lost on whoever goes on where it was.
    let after = first["id"].as_u64().unwrap();
    let ended = client.stream("/v1/stream", Some(after)).find(|line| line.contains(r#""what":"cancelled""#));
    assert!(ended.is_some());
    let reset = client.stream("/v1/stream", Some(1)).find(|line| line.starts_with("event: "));
    assert_eq!(reset.as_deref(), Some("event: reset"), "of another daemon");
}

#[test]
fn a_token_is_valid_after_a_restart_and_not_after_it_is_revoked() {
    let mut bench = Bench::up_with(TWO_NODES_OF_8);
    let client = Client::new(&bench, "lasting");
    let reader = match bench.ask(Verb::NewToken(ask("wall", true))) {
        Ok(Answer::Token(made)) => Client::of(made),
        other => panic!("{other:?}"),
    };
    let (status, user) = reader.get("/v1/whoami");
    assert_eq!((status, &user["role"]), (200, &json!("viewer")));
    assert_eq!(reader.post("/v1/nodes/n1/cordon", &json!({})).0, 403);
    let kept = bench.paths.tokens();
    assert!(!std::fs::read_to_string(&kept).unwrap().contains(&client.token[4..]), "only its digest is kept");
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    bench.kill();
    bench.up();
    // Where the old one was, unless somebody else took the port; then whoever asks hears where it is.
    let Ok(Answer::Token(made)) = bench.ask(Verb::NewToken(ask("new", false))) else { panic!() };
    let client = Client { base: made.address.clone(), ..client };
    assert_eq!(client.get("/v1/whoami").0, 200);
    let (_, tokens) = client.get("/v1/tokens");
    assert_eq!(tokens["items"].as_array().unwrap().len(), 3, "{tokens}");
    assert_eq!(client.delete("/v1/tokens/wall").0, 200);
    assert_eq!(Client { base: made.address, ..reader }.get("/v1/whoami").0, 401);
    assert!(bench.ask(Verb::RevokeToken { name: "wall".to_owned(), uid: None }).is_err());
}

#[test]
fn another_user_s_token_reads_what_that_user_may_read() {
    if !is_root("another_user_s_token_reads_what_that_user_may_read") {
        return;
    }
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let (operator, nobody) = (Client::new(&bench, "mine"), Client::as_nobody(&bench));
    let mut private = shell(1, "echo private; exec sleep 1000");
    gang(&mut private).program.env = env(&[("TOKEN", "a-private-value")]);
    let id = bench.submit(private);
    bench.await_state(id, "running");
    let (_, user) = nobody.get("/v1/whoami");
    assert_eq!((&user["role"], &user["uid"]), (&json!("user"), &json!(NOBODY)));
    for (path, of) in [
        (format!("/v1/jobs/{id}/logs"), "logs"),
        (format!("/v1/jobs/{id}/logs?follow=true"), "followed logs"),
    ] {
        let (status, problem) = nobody.get(&path);
        assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{of}: {problem}");
    }
    assert_eq!(nobody.delete(&format!("/v1/jobs/{id}")).0, 403);
    for act in ["hold", "release", "requeue", "resize"] {
        assert_eq!(nobody.post(&format!("/v1/jobs/{id}/{act}"), &Value::Null).0, 403, "{act}");
    }
    assert_eq!(nobody.post("/v1/nodes/n1/drain", &json!({})).0, 403);
    assert_eq!(nobody.delete("/v1/tokens/mine?uid=0").0, 403);
    for path in [
        format!("/v1/jobs/{id}"),
        format!("/v1/jobs/{id}/why"),
        "/v1/jobs".to_owned(),
        "/v1/topology".to_owned(),
    ] {
        let (status, answer) = nobody.get(&path);
        assert!(status == 200 && !answer.to_string().contains("a-private-value"), "{path}: {answer}");
    }
    let (_, whole) = operator.get(&format!("/v1/jobs/{id}"));
    assert!(whole.to_string().contains("a-private-value"), "its owner sees all of it");
    let (_, tokens) = nobody.get("/v1/tokens");
    assert_eq!(tokens["items"].as_array().unwrap().len(), 1, "their own alone");
    let (_, audit) = nobody.get("/v1/audit");
    assert!(audit["items"].as_array().unwrap().iter().all(|act| act["uid"] == NOBODY), "{audit}");
    let mut theirs = file("theirs", 1, "id -u");
    // Their home is no folder.
    theirs["workdir"] = json!("/");
    let theirs = submit(&nobody, &theirs);
    assert_eq!((bench.ended(theirs).uid, bench.logs(theirs)), (NOBODY, vec![(0, NOBODY.to_string())]));
}

/// Clients that send nothing, too slowly or too much end alone, and others are served meanwhile.
#[test]
fn hostile_clients_end_in_refusals() {
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let client = Client::new(&bench, "good");
    let host = client.base.trim_start_matches("http://").to_owned();
    let raw = |request: &str| {
        let mut stream = TcpStream::connect(&host).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // The server may answer and close before all of it is sent.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    };
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&host).unwrap()).collect();
    assert_eq!(client.get("/v1/whoami").0, 200);
    drop(silent);
    let token = client.bearer();
    let long = "x".repeat(1 << 20);
    for (request, begins) in [
        ("nonsense\r\n\r\n".to_owned(), "HTTP/1.1 400"),
        (format!("GET /{long} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"), "HTTP/1.1 4"),
        (
            format!("GET /v1/jobs HTTP/1.1\r\nhost: {host}\r\nx: {long}\r\nconnection: close\r\n\r\n"),
            "HTTP/1.1 4",
        ),
        (
            format!(
                "GET /v1/jobs HTTP/1.1\r\nhost: evil.example\r\nauthorization: {token}\r\nconnection: close\r\n\r\n"
            ),
            "HTTP/1.1 421",
        ),
        (
            format!("GET /v1/jobs HTTP/1.1\r\nauthorization: {token}\r\nconnection: close\r\n\r\n"),
            "HTTP/1.1 4",
        ),
        (
            format!("GET /../../etc/passwd HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"),
            "HTTP/1.1 404",
        ),
        (
            format!(
                "POST /v1/jobs HTTP/1.1\r\nhost: {host}\r\nauthorization: {token}\r\ncontent-type: application/json\r\ncontent-length: 99999999999\r\nconnection: close\r\n\r\n{long}{long}{long}{long}{long}"
            ),
            "HTTP/1.1 413",
        ),
    ] {
        let answer = raw(&request);
        assert!(answer.starts_with(begins), "{answer:?} to {}", &request[..request.len().min(80)]);
    }
    // One user has so many streams, and is told so; the control socket serves all the same.
    let streams: Vec<_> = (0..24).map(|_| client.stream("/v1/stream", None)).collect();
    let (status, problem) = client.get("/v1/stream");
    assert_eq!((status, &problem["code"]), (429, &json!("too_many_requests")));
    assert_eq!(client.get("/v1/whoami").0, 200, "streams leave room for requests");
    assert!(bench.ask(Verb::FindNodes(NodeFilter::default())).is_ok());
    drop(streams);
    let is_free = || {
        let mut first = client.agent.get(format!("{}/v1/stream", client.base));
        first = first.header("authorization", client.bearer());
        first.call().unwrap().status() == 200
    };
    crate::support::until("a place is free again", is_free);
    let long = "x".repeat(300);
    assert_eq!(client.get(&format!("/v1/jobs?name={long}")).0, 400);
}
