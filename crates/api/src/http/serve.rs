//! Where the API listens.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use phalanx_shell::http::{self, Limits};

use super::clients::Clients;
use super::{Backend, router};

/// Browsers leave it out.
const HTTP_PORT: u16 = 80;

/// Connections at a time: streams of many people among them. A user has a part of them.
const CONNECTIONS: usize = 1_024;
/// Threads on which requests are answered: each stream holds one.
pub const ANSWERING: usize = 256;
/// How long a client may take for the head of a request, and may be idle between two.
const HEAD: Duration = Duration::from_secs(30);
/// How long a client may take nothing of an answer.
const WRITE: Duration = Duration::from_secs(30);

/// A port that is open.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    at: SocketAddr,
}

impl Listening {
    /// The address for people: `http://127.0.0.1:7077`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.at)
    }
}

/// Opens a port. Only loopback addresses will do: tokens and jobs would cross a network in the clear.
///
/// # Errors
/// When the address is no loopback address, or cannot be had.
pub fn listen(at: SocketAddr) -> io::Result<Listening> {
    if !at.ip().is_loopback() {
        let why = "only a loopback address will do, such as 127.0.0.1:7077: tokens would cross the network in the clear; a \
                   proxy with TLS, or `ssh -L 7077:127.0.0.1:7077 HOST`, serves others";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let listener = TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    Ok(Listening { listener, at })
}

/// Serves until the task ends.
///
/// # Errors
/// When the runtime cannot take the listener.
pub async fn serve(listening: Listening, backend: Arc<dyn Backend>) -> io::Result<()> {
    let Listening { listener, at } = listening;
    // By its number alone: a name may lead to another address, where another process listens.
    let mut hosts = vec![at.to_string()];
    if at.port() == HTTP_PORT {
        hosts.push(at.ip().to_string());
    }
    let limits = Limits { connections: CONNECTIONS, head: HEAD, write: WRITE, connection: None };
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let clients = Clients::default();
    http::serve_if(listener, router(backend, hosts), limits, move |client| clients.let_in(client)).await
}
