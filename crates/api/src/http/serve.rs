//! Where the API listens.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use phalanx_shell::http::{self, Configuration, Limits};
use tokio::time::{MissedTickBehavior, interval};

use super::certificate::Certificate;
use super::clients::Clients;
use super::hosts::{Hosts, with_port};
use super::{Backend, router};

/// Connections at a time: streams of many people among them. A user has a part of them.
pub(crate) const CONNECTIONS: usize = 1_024;
/// Threads on which requests are answered: each stream holds one.
pub const ANSWERING: usize = 256;
/// How long a client may take for the handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may take for the head of a request, and may be idle between two.
const HEAD: Duration = Duration::from_secs(30);
/// How long a client may take nothing of an answer.
const WRITE: Duration = Duration::from_secs(30);
/// How often the files of the certificate are looked at.
const RENEWAL: Duration = Duration::from_secs(2);

/// TLS for a port.
#[derive(Clone, Debug)]
pub struct Tls {
    pub certificate: Arc<Certificate>,
    /// Hosts under which clients ask, beside those of the certificate. The first is in the address for people.
    pub names: Vec<String>,
}

/// A port that is open.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    at: SocketAddr,
    url: String,
    tls: Option<Tls>,
}

impl Listening {
    /// The address for people: `http://127.0.0.1:7077`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.clone()
    }
}

/// Opens a port. Without TLS only loopback addresses will do: tokens and jobs would cross a network in the clear.
///
/// # Errors
/// When the address is no loopback address and there is no TLS, no host can be named for people, or the address cannot be had.
pub fn listen(at: SocketAddr, tls: Option<Tls>) -> io::Result<Listening> {
    let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    if tls.is_none() && !at.ip().is_loopback() {
        return wrong(
            "without TLS only a loopback address will do, such as 127.0.0.1:7077, because tokens would cross the network in the \
             clear: give a certificate (`--api-cert FILE --api-key FILE`); or serve others by a proxy with TLS or by `ssh -L \
             7077:127.0.0.1:7077 HOST`",
        );
    }
    let listener = TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    let url = match &tls {
        None => Some(format!("http://{at}")),
        Some(tls) => tls.url(at),
    };
    let Some(url) = url else {
        return wrong(
            "the certificate names neither a host nor this address: name one with `--api-name HOST`",
        );
    };
    Ok(Listening { listener, at, url, tls })
}

impl Tls {
    fn url(&self, at: SocketAddr) -> Option<String> {
        let given = self.names.first().cloned();
        let host = given.or_else(|| self.certificate.host(at.ip()))?;
        Some(format!("https://{}", with_port(&host, at.port())))
    }

    fn configuration(&self) -> Configuration {
        let certificate = Arc::clone(&self.certificate);
        Arc::new(move || certificate.configuration())
    }
}

/// Serves until the task ends.
///
/// # Errors
/// When the runtime cannot take the listener.
pub async fn serve(listening: Listening, backend: Arc<dyn Backend>) -> io::Result<()> {
    let Listening { listener, at, tls, .. } = listening;
    let hosts = match &tls {
        None => Hosts::plain(at),
        Some(Tls { certificate, names }) => Hosts::of(Arc::clone(certificate), at.port(), names),
    };
    if let Some(tls) = &tls {
        tokio::spawn(renew(Arc::clone(&tls.certificate)));
    }
    let limits =
        Limits { connections: CONNECTIONS, handshake: HANDSHAKE, head: HEAD, write: WRITE, connection: None };
    let configuration = tls.as_ref().map(Tls::configuration);
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let clients = Clients::default();
    let let_in = move |client: SocketAddr, own: SocketAddr| clients.let_in(client, own);
    http::serve_if(listener, router(backend, hosts), limits, configuration, let_in).await
}

/// Looks at the files of the certificate until the runtime ends.
async fn renew(certificate: Arc<Certificate>) {
    let mut renewal = certificate.renewal();
    let mut looks = interval(RENEWAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let certificate = Arc::clone(&certificate);
        // The files may be on a disk that hangs.
        let looking = tokio::task::spawn_blocking(move || {
            certificate.look(&mut renewal);
            renewal
        });
        let Ok(looked) = looking.await else { return };
        renewal = looked;
    }
}
