//! Traces: what a collector is told of gangs on a real control plane, and that a dead one disturbs nobody.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::TcpListener as StdListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use nix::sys::signal::{Signal, kill};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::support::{Cluster, JOBS, job};

/// What was sent, each batch with the name of its service and the token that came along.
#[derive(Default)]
struct Received {
    spans: Vec<Span>,
    from: Vec<(String, String)>,
}

/// An OTLP receiver; it serves until it is dropped.
struct Collector {
    endpoint: String,
    received: Arc<Mutex<Received>>,
    /// How long it takes over a request, in milliseconds.
    takes_ms: Arc<AtomicU64>,
    _runtime: Runtime,
}

impl Collector {
    fn begin() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let received: Arc<Mutex<Received>> = Arc::default();
        let takes_ms: Arc<AtomicU64> = Arc::default();
        runtime.spawn(serve(listener, Arc::clone(&received), Arc::clone(&takes_ms)));
        Self { endpoint, received, takes_ms, _runtime: runtime }
    }

    /// The spans of a gang, its own and those below it, once its own is there.
    fn of_gang(&self, name: &str) -> Option<(Span, Vec<Span>)> {
        let received = self.received.lock().unwrap();
        let is_it = |span: &&Span| span.name == "gang" && text(&span.attributes, "phalanx.gang") == name;
        let gang = received.spans.iter().find(is_it)?.clone();
        let below = received.spans.iter().filter(|span| span.parent_span_id == gang.span_id);
        Some((gang.clone(), below.cloned().collect()))
    }
}

async fn serve(listener: TcpListener, received: Arc<Mutex<Received>>, takes_ms: Arc<AtomicU64>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (received, takes_ms) = (Arc::clone(&received), Arc::clone(&takes_ms));
        let service = hyper::service::service_fn(move |request| {
            take(Arc::clone(&received), Duration::from_millis(takes_ms.load(Ordering::Relaxed)), request)
        });
        tokio::spawn(async move {
            let http = hyper::server::conn::http1::Builder::new();
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn take(
    received: Arc<Mutex<Received>>,
    takes: Duration,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    assert_eq!((parts.method.as_str(), parts.uri.path()), ("POST", "/v1/traces"));
    assert_eq!(parts.headers["content-type"], "application/x-protobuf");
    let token = parts.headers["authorization"].to_str().unwrap().to_owned();
    let batch = ExportTraceServiceRequest::decode(body.collect().await.unwrap().to_bytes()).unwrap();
    tokio::time::sleep(takes).await;
    let mut received = received.lock().unwrap();
    for of_resource in batch.resource_spans {
        let service = text(&of_resource.resource.unwrap().attributes, "service.name");
        received.from.push((service, token.clone()));
        received.spans.extend(of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans));
    }
    Ok(Response::new(Full::default()))
}

/// Attributes in words.
fn said(attributes: &[KeyValue]) -> BTreeMap<&str, String> {
    let word = |value: &Option<AnyValue>| match value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Any::StringValue(text)) => text.clone(),
        Some(Any::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    };
    attributes.iter().map(|attribute| (&*attribute.key, word(&attribute.value))).collect()
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    said(attributes).remove(key).unwrap_or_default()
}

fn events(span: &Span) -> Vec<&str> {
    span.events.iter().map(|event| &*event.name).collect()
}

#[test]
fn a_collector_sees_how_gangs_came_to_their_places_and_the_rest_when_the_scheduler_ends() {
    let collector = Collector::begin();
    let mut cluster = Cluster::of(2);
    cluster.environment = vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint.clone()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20one".to_owned()),
        ("OTEL_SERVICE_NAME", "under-test".to_owned()),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "120000".to_owned()),
        ("OTEL_BSP_SCHEDULE_DELAY", "50".to_owned()),
    ];
    let scheduler = cluster.schedule(0);
    cluster.create(JOBS, &job("first", 4, 4, &json!({})));
    cluster.until_runs("first", 4);
    let (gang, below) = cluster.until("the span of first", |_| collector.of_gang("first"));
    let expected = [
        ("k8s.namespace.name", "default"),
        ("phalanx.attempt", "1"),
        ("phalanx.gang", "first"),
        ("phalanx.gang.kind", "Job"),
        ("phalanx.level", "leaf"),
        ("phalanx.nodes", "2"),
        ("phalanx.outcome", "bound"),
        ("phalanx.pods", "4"),
        ("phalanx.queue", "default"),
    ];
    assert_eq!(said(&gang.attributes), expected.map(|(key, value)| (key, value.to_owned())).into());
    assert_eq!(events(&gang), ["queued", "decided", "bound"]);
    assert!(gang.parent_span_id.is_empty());
    let [bind] = &below[..] else { panic!("{below:?}") };
    assert_eq!((&*bind.name, &bind.trace_id), ("bind", &gang.trace_id));
    let decided = gang.events[1].time_unix_nano;
    let times = [
        gang.start_time_unix_nano,
        decided,
        bind.start_time_unix_nano,
        bind.end_time_unix_nano,
        gang.end_time_unix_nano,
    ];
    assert!(times.is_sorted() && bind.start_time_unix_nano < bind.end_time_unix_nano, "{times:?}");

    // It waits for the place of the first, which is given up; and one waits that is taken away.
    cluster.create(JOBS, &job("second", 2, 8, &json!({})));
    cluster.until_explained(&waiting_pod(&cluster, "second"), "");
    cluster.create(JOBS, &job("unwanted", 2, 8, &json!({})));
    cluster.until_explained(&waiting_pod(&cluster, "unwanted"), "");
    cluster.api().delete(&format!("{JOBS}/unwanted?propagationPolicy=Background")).unwrap();
    let (unwanted, below) = cluster.until("the span of unwanted", |_| collector.of_gang("unwanted"));
    assert_eq!((&*text(&unwanted.attributes, "phalanx.outcome"), below), ("ended", Vec::new()));
    cluster.api().delete(&format!("{JOBS}/first?propagationPolicy=Background")).unwrap();
    cluster.until_runs("second", 2);
    let (second, _) = cluster.until("the span of second", |_| collector.of_gang("second"));
    assert_eq!(events(&second), ["queued", "waits", "decided", "bound"]);
    assert_eq!(text(&second.attributes, "phalanx.reason"), "Unschedulable");
    let why = text(&second.events[1].attributes, "phalanx.why");
    assert!(!why.is_empty(), "in words");
    {
        let received = collector.received.lock().unwrap();
        let all = ("under-test".to_owned(), "Bearer one".to_owned());
        assert!(received.from.iter().all(|from| *from == all), "{:?}", received.from);
        let is_bad =
            |span: &&Span| span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error);
        assert_eq!(received.spans.iter().find(is_bad), None);
    }

    // What waits to be sent is sent before the process ends.
    kill(cluster.pid(scheduler), Signal::SIGTERM).unwrap();
    assert!(cluster.until_ended().success());
    cluster.environment.last_mut().unwrap().1 = "3600000".to_owned();
    // The collector takes longer than a scheduler would wait at its end unless it is told to.
    cluster.environment.push(("OTEL_BSP_EXPORT_TIMEOUT", "120000".to_owned()));
    collector.takes_ms.store(2_500, Ordering::Relaxed);
    let scheduler = cluster.schedule(0);
    cluster.create(JOBS, &job("small", 1, 0, &json!({})));
    cluster.until_runs("small", 1);
    // When the next one runs, all is told of the one before.
    cluster.create(JOBS, &job("next", 1, 0, &json!({})));
    cluster.until_runs("next", 1);
    assert!(collector.of_gang("small").is_none(), "it waits for an hour");
    kill(cluster.pid(scheduler), Signal::SIGTERM).unwrap();
    assert!(cluster.until_ended().success());
    assert!(collector.of_gang("small").is_some(), "{}", cluster.log());
}

/// One of the pods of a gang, once it is there.
fn waiting_pod(cluster: &Cluster, gang: &str) -> String {
    cluster.until(&format!("a pod of {gang}"), |cluster| {
        cluster.seats().into_iter().find(|seat| seat.gang == gang).map(|seat| seat.name)
    })
}

#[test]
fn a_collector_that_never_answers_disturbs_no_gang_and_a_misspelled_one_is_refused() {
    // Connections are taken, and nothing is ever read from them.
    let silent = StdListener::bind(("127.0.0.1", 0)).unwrap();
    let mut cluster = Cluster::of(3);
    cluster.environment = vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", silent.local_addr().unwrap())),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "200".to_owned()),
        ("OTEL_BSP_SCHEDULE_DELAY", "20".to_owned()),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "2".to_owned()),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1".to_owned()),
    ];
    let scheduler = cluster.schedule(0);
    for at in 0..8 {
        cluster.create(JOBS, &job(&format!("gang-{at}"), 2, 1, &json!({})));
    }
    for at in 0..8 {
        cluster.until_runs(&format!("gang-{at}"), 2);
    }
    cluster.until("a word of it", |cluster| cluster.log().contains("traces are not taken").then_some(()));
    cluster.create(JOBS, &job("after", 2, 1, &json!({})));
    cluster.until_runs("after", 2);
    assert_eq!(cluster.log().matches("traces are not taken").count(), 1, "it is said once");
    kill(cluster.pid(scheduler), Signal::SIGTERM).unwrap();
    assert!(cluster.until_ended().success());

    cluster.environment = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318".to_owned())];
    cluster.schedule(0);
    assert!(!cluster.until_ended().success());
    let last = cluster.lines().pop().unwrap();
    assert_eq!((&last["level"], &last["message"]), (&json!("ERROR"), &json!("the process ends")));
    let why = last["error"].as_str().unwrap();
    assert!(why.starts_with("no traces: OTEL_EXPORTER_OTLP_ENDPOINT: \"collector:4318/v1/traces\""), "{why}");
}
