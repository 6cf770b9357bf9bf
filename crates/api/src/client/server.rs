//! Where the API is asked: the control socket of a daemon, or a port, with a token.

use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::{StatusCode, Uri, header};
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use super::ClientError;
use super::call::Call;
use crate::authorities::certificates;

/// How long a connection to a port may take, and how long its server may take to begin an answer.
const CONNECT: Duration = Duration::from_secs(10);
const BEGIN: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub enum Server {
    /// The kernel says who asks.
    Socket(PathBuf),
    /// A token says who asks.
    Port(Port),
}

impl Server {
    /// Whether paths and variables of the client may mean something else there.
    #[must_use]
    pub const fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Port(_))
    }
}

impl From<&Path> for Server {
    fn from(socket: &Path) -> Self {
        Self::Socket(socket.to_owned())
    }
}

impl From<&PathBuf> for Server {
    fn from(socket: &PathBuf) -> Self {
        Self::Socket(socket.clone())
    }
}

impl From<&Self> for Server {
    fn from(server: &Self) -> Self {
        server.clone()
    }
}

/// A port with a token.
#[derive(Clone)]
pub struct Port {
    url: String,
    token: String,
    agent: Agent,
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the token.
        f.debug_struct("Port").field("url", &self.url).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PortError {
    #[error("{0:?} is no address of a server, such as https://gpu1.example.com:7077")]
    Address(String),
    #[error("{0} is not on this machine: the token would cross the network in the clear")]
    InTheClear(String),
    #[error("cannot read {}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{} holds no certificate in PEM", .0.display())]
    NoCertificate(PathBuf),
}

impl Port {
    /// A port at this address. The authorities of its certificate are those of the file, else Mozilla's.
    ///
    /// # Errors
    /// When the address is none, would carry the token in the clear to another machine, or the file has no certificate.
    pub fn new(url: &str, token: String, ca_file: Option<&Path>) -> Result<Self, PortError> {
        let url = url.trim_end_matches('/').to_owned();
        let wrong = || PortError::Address(url.clone());
        let parts: Uri = url.parse().map_err(|_| wrong())?;
        let host = parts.host().ok_or_else(wrong)?.trim_start_matches('[').trim_end_matches(']');
        let is_here = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        match parts.scheme_str() {
            Some("https") => {}
            Some("http") if is_here => {}
            Some("http") => return Err(PortError::InTheClear(url)),
            _ => return Err(wrong()),
        }
        if parts.query().is_some() || !matches!(parts.path(), "" | "/") {
            return Err(wrong());
        }
        let roots = ca_file.map_or(Ok(RootCerts::WebPki), authorities)?;
        let config = Agent::config_builder()
            .max_redirects(0)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(BEGIN))
            .http_status_as_error(false)
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .build();
        Ok(Self { url, token, agent: config.into() })
    }

    /// Sends a request. The rest of the answer is read from the reader.
    pub(super) fn send(&self, call: Call) -> Result<(StatusCode, Box<dyn Read + Send>), ClientError> {
        let request = call
            .begun_at(&self.url)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::ACCEPT_ENCODING, "identity");
        let answered = if call.body.is_empty() {
            self.agent.run(request.body(()).map_err(ClientError::broken)?)
        } else {
            self.agent.run(request.body(call.body).map_err(ClientError::broken)?)
        };
        let unreachable =
            |why: ureq::Error| ClientError::NoServer { url: self.url.clone(), why: why.to_string() };
        let answer = answered.map_err(unreachable)?;
        let status = answer.status();
        let body = answer.into_body().into_with_config().limit(u64::MAX).reader();
        Ok((status, Box::new(body)))
    }
}

fn authorities(file: &Path) -> Result<RootCerts, PortError> {
    let text = std::fs::read(file).map_err(|source| PortError::File { path: file.to_owned(), source })?;
    let found = certificates(&text);
    if found.is_empty() {
        return Err(PortError::NoCertificate(file.to_owned()));
    }
    Ok(RootCerts::new_with_certs(&found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_to_another_machine_by_tls_alone() {
        let port = |url: &str| Port::new(url, "phx_secret".to_owned(), None);
        for good in
            ["https://gpu1.example.com:7077", "https://gpu1/", "http://127.0.0.1:1002", "http://[::1]:7077"]
        {
            let made = port(good).unwrap();
            assert!(!format!("{made:?}").contains("phx_secret"));
        }
        for clear in ["http://gpu1.example.com:7077", "http://192.0.2.1", "http://localhost:7077"] {
            assert!(matches!(port(clear), Err(PortError::InTheClear(_))), "{clear}");
        }
        for wrong in ["", "gpu1:7077", "ftp://gpu1", "https://", "https://gpu1/v1", "https://gpu1?x=1"] {
            assert!(matches!(port(wrong), Err(PortError::Address(_))), "{wrong}");
        }
        let file = Path::new("/no/such/file");
        assert!(matches!(Port::new("https://gpu1", String::new(), Some(file)), Err(PortError::File { .. })));
    }
}
