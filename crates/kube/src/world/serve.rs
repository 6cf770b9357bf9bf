//! What others ask of the process: is it alive, is it ready, how does it go.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::pulse::Pulse;

/// What is counted. Labels are few and bounded: never the name of a pod or a job.
#[derive(Clone, Default)]
pub(super) struct Metrics {
    pub(super) is_leader: Gauge,
    pub(super) nodes: Gauge,
    /// Whose pods hold more than they have.
    pub(super) nodes_overcommitted: Gauge,
    pub(super) gangs: Gauge,
    /// Bindings by how they ended.
    pub(super) bindings: Family<Ended, Counter>,
    pub(super) binding_time: Option<Histogram>,
    pub(super) starts: Counter,
    pub(super) evictions: Counter,
    pub(super) refusals: Counter,
    pub(super) troubles: Counter,
    /// 1 for each that cannot be watched now.
    kinds_unwatched: Family<OfKind, Gauge>,
    pub(super) traces: TraceCounts,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Ended {
    pub(super) result: &'static str,
}

/// As many as there are kinds that are watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

/// Spans by what became of them.
#[derive(Clone, Debug, Default)]
pub(super) struct TraceCounts {
    spans: Family<Ended, Counter>,
}

impl TraceCounts {
    /// The collector took them.
    pub(super) fn sent(&self, spans: usize) {
        self.count("sent", spans);
    }

    /// It did not, in time.
    pub(super) fn failed(&self, spans: usize) {
        self.count("failed", spans);
    }

    /// There was no room for them.
    pub(super) fn dropped(&self, spans: usize) {
        self.count("dropped", spans);
    }

    fn count(&self, result: &'static str, spans: usize) {
        self.spans.get_or_create(&Ended { result }).inc_by(spans as u64);
    }

    /// Sent, failed and dropped.
    #[cfg(test)]
    pub(super) fn each(&self) -> (u64, u64, u64) {
        let of = |result| self.spans.get_or_create(&Ended { result }).get();
        (of("sent"), of("failed"), of("dropped"))
    }
}

impl Metrics {
    pub(super) fn registered() -> (Self, Registry) {
        let mut registry = Registry::with_prefix("phalanx_scheduler");
        // From 1 ms to 32 s.
        let binding_time = Histogram::new(exponential_buckets(0.001, 2.0, 16));
        let metrics = Self { binding_time: Some(binding_time.clone()), ..Self::default() };
        let Self { is_leader, nodes, gangs, bindings, starts, evictions, refusals, troubles, .. } = &metrics;
        registry.register("leader", "1 while this process decides", is_leader.clone());
        registry.register("nodes", "Nodes that are known", nodes.clone());
        registry.register(
            "nodes_overcommitted",
            "Nodes whose pods hold more than there is, because others bind there as well",
            metrics.nodes_overcommitted.clone(),
        );
        registry.register("gangs", "Gangs with pods that have not ended", gangs.clone());
        registry.register("bindings", "Bindings of pods, by how they ended", bindings.clone());
        let help = "From the first try of a binding to its answer";
        registry.register_with_unit("binding_duration", help, Unit::Seconds, binding_time);
        registry.register("gang_starts", "Decisions to start a gang", starts.clone());
        registry.register("gang_evictions", "Decisions to evict a gang for another", evictions.clone());
        registry.register(
            "gang_refusals",
            "Gangs that no set of the nodes of then could hold",
            refusals.clone(),
        );
        registry.register(
            "troubles",
            "Calls and watches that went wrong and were said in the log",
            troubles.clone(),
        );
        registry.register(
            "kinds_unwatched",
            "1 for each kind that cannot be listed or watched: what depends on it waits",
            metrics.kinds_unwatched.clone(),
        );
        let help = "Spans of traces, by what became of them";
        registry.register("trace_spans", help, metrics.traces.spans.clone());
        (metrics, registry)
    }

    pub(super) fn unwatched(&self, kind: &'static str) {
        self.kinds_unwatched.get_or_create(&OfKind { kind }).set(1);
    }

    /// Whether it was not.
    pub(super) fn watched(&self, kind: &'static str) -> bool {
        let of = OfKind { kind };
        self.kinds_unwatched.get(&of).is_some_and(|gauge| gauge.set(0) == 1)
    }

    pub(super) fn bound(&self, result: &'static str, took: Duration) {
        self.bindings.get_or_create(&Ended { result }).inc();
        if let Some(times) = &self.binding_time {
            times.observe(took.as_secs_f64());
        }
    }
}

/// Serves until the process ends, which lives as long as it answers.
pub(crate) async fn serve(
    at: SocketAddr,
    registry: Registry,
    is_ready: Arc<AtomicBool>,
) -> std::io::Result<()> {
    serve_pulse(at, registry, is_ready, Pulse::default()).await
}

/// The same of a process that does its work elsewhere.
pub(super) async fn serve_pulse(
    at: SocketAddr,
    registry: Registry,
    is_ready: Arc<AtomicBool>,
    pulse: Pulse,
) -> std::io::Result<()> {
    let registry = Arc::new(registry);
    let metrics = move || async move {
        let mut text = String::new();
        let code = match prometheus_client::encoding::text::encode(&mut text, &registry) {
            Ok(()) => StatusCode::OK,
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        (code, [(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response()
    };
    let ready = move || async move {
        match is_ready.load(Ordering::Acquire) {
            true => (StatusCode::OK, "ok\n"),
            false => (StatusCode::SERVICE_UNAVAILABLE, "the first lists are not complete\n"),
        }
    };
    let lives = move || async move {
        match pulse.check() {
            Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
            Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        }
    };
    let routes = Router::new()
        .route("/healthz", get(lives))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics));
    let listener = tokio::net::TcpListener::bind(at).await?;
    tracing::info!(address = %listener.local_addr()?, "serves /healthz, /readyz and /metrics");
    axum::serve(listener, routes).await
}
