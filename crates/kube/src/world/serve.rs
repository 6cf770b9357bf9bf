//! What others ask of the process: is it alive, is it ready, how does it go.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use phalanx_shell::http;
use prometheus_client::registry::Registry;

use super::pulse::Pulse;

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
    let metrics = move || async move { http::exposition(&registry) };
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
    http::serve(listener, routes, http::METRICS).await
}
