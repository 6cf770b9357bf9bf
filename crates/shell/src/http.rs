//! HTTP for people and their monitoring: a bounded server, with TLS if it has a certificate, and `/metrics` in the
//! OpenMetrics text format.

mod tls;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tower::Service;

pub use tls::Configuration;

/// How much clients may take of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections that are served at a time; others wait.
    pub connections: usize,
    /// How long a client may take for the handshake of TLS.
    pub handshake: Duration,
    /// How long a client may take for the head of a request, and may be idle between two.
    pub head: Duration,
    /// How long a client may take nothing of an answer.
    pub write: Duration,
    /// How long a connection may last: a client that reads slowly holds its place no longer. `None` where answers are streams.
    pub connection: Option<Duration>,
}

/// For `/metrics` and the like: short questions of a few programs.
pub const METRICS: Limits = Limits {
    connections: 64,
    handshake: Duration::from_secs(5),
    head: Duration::from_secs(5),
    write: Duration::from_secs(10),
    connection: Some(Duration::from_secs(60)),
};
/// How long the server waits if the process has no descriptors left.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves these routes until the task ends.
///
/// # Errors
/// Never while the listener lives; failures to accept are tried again.
pub async fn serve(listener: TcpListener, routes: Router, limits: Limits) -> io::Result<()> {
    serve_if(listener, routes, limits, None, |_, _| Some(())).await
}

/// Serves clients that are let in, over TLS if a configuration is given. `let_in` gets the address of the client and the one
/// that it connected to; what it returns is kept as long as the connection.
///
/// # Errors
/// As [`serve`].
pub async fn serve_if<P: Send + 'static>(
    listener: TcpListener,
    routes: Router,
    limits: Limits,
    tls: Option<Configuration>,
    let_in: impl Fn(SocketAddr, SocketAddr) -> Option<P>,
) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
        let Ok((stream, client)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let Ok(own) = stream.local_addr() else { continue };
        let Some(guest) = let_in(client, own) else { continue };
        // The configuration of this moment: a renewed certificate is for new connections.
        let (routes, tls) = (routes.clone(), tls.as_ref().map(|configuration| configuration()));
        tokio::spawn(async move {
            match tls {
                None => converse(patient(stream, limits), routes, limits).await,
                Some(configuration) => {
                    if let Some(stream) = tls::handshake(stream, configuration, limits).await {
                        converse(stream, routes, limits).await;
                    }
                }
            }
            drop((place, guest));
        });
    }
}

/// A stream that ends if the client takes nothing of an answer for too long.
fn patient<S: AsyncRead + AsyncWrite>(stream: S, limits: Limits) -> Pin<Box<TimeoutStream<S>>> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write));
    Box::pin(stream)
}

/// Serves one client of a socket of the machine. What it sends and takes is bounded as on a port.
pub async fn serve_one<S>(stream: UnixStream, routes: S, limits: Limits)
where
    S: Service<Request<Incoming>, Response = Response, Error = Infallible> + Clone,
{
    converse(patient(stream, limits), routes, limits).await;
}

/// Answers the requests of one connection.
async fn converse<S>(stream: impl AsyncRead + AsyncWrite + Unpin, routes: S, limits: Limits)
where
    S: Service<Request<Incoming>, Response = Response, Error = Infallible> + Clone,
{
    let mut server = Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(limits.head);
    let serving = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    // A client that breaks off is its own affair.
    let _ = match limits.connection {
        Some(most) => timeout(most, serving).await.map_or(Ok(()), |served| served),
        None => serving.await,
    };
}

/// The metrics of a registry as a response.
#[must_use]
pub fn exposition(registry: &Registry) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let mut text = String::new();
    let code = match prometheus_client::encoding::text::encode(&mut text, registry) {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (code, [(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response()
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silent_clients_lose_their_places_to_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Router::new().route("/", get(|| async { "here" })), METRICS));
        let mut silent = Vec::new();
        for _ in 0..METRICS.connections {
            silent.push(TcpStream::connect(at).await.unwrap());
        }
        let mut client = TcpStream::connect(at).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        timeout(100 * METRICS.head, client.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.ends_with("here"), "{answer}");
    }
}
