//! The names under which clients may ask.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::uri::Authority;

use super::certificate::Certificate;

/// Clients leave these ports out of a name.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// The names of a server, with their ports: a page of another site whose name was made to lead here asks under another.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// As clients write them.
    listed: Vec<String>,
    /// All names of the certificate are good too, with this port.
    certificate: Option<(Arc<Certificate>, u16)>,
}

impl Hosts {
    /// Without TLS the number of the address alone: a name may lead to another address, where another process listens.
    #[must_use]
    pub fn plain(at: SocketAddr) -> Self {
        let mut listed = vec![at.to_string()];
        if at.port() == HTTP_PORT {
            listed.push(at.ip().to_string());
        }
        Self { listed, certificate: None }
    }

    /// The names of a certificate, and `names`: with a port if that is not the port of the server.
    #[must_use]
    pub fn of(certificate: Arc<Certificate>, port: u16, names: &[String]) -> Self {
        let listed = names.iter().flat_map(|name| {
            let whole = with_port(name, port);
            let short = whole.strip_suffix(":443").map(str::to_owned);
            [Some(whole), short].into_iter().flatten()
        });
        Self { listed: listed.collect(), certificate: Some((certificate, port)) }
    }

    /// None: clients of a socket of the machine may write any name.
    pub(crate) const fn of_socket() -> Self {
        Self { listed: Vec::new(), certificate: None }
    }

    pub(crate) const fn scheme(&self) -> &'static str {
        if self.is_https() { "https" } else { "http" }
    }

    pub(crate) const fn is_https(&self) -> bool {
        self.certificate.is_some()
    }

    /// Whether a name is one of ours.
    pub(crate) fn has(&self, host: &str) -> bool {
        self.listed.iter().any(|ours| ours.eq_ignore_ascii_case(host)) || self.is_in_certificate(host)
    }

    fn is_in_certificate(&self, host: &str) -> bool {
        let Some((certificate, port)) = &self.certificate else { return false };
        let Ok(of) = host.parse::<Authority>() else { return false };
        // Not the user in front of a host.
        let is_whole = !host.contains('@');
        let name = of.host().trim_start_matches('[').trim_end_matches(']');
        is_whole && of.port_u16().unwrap_or(HTTPS_PORT) == *port && certificate.is_for(name)
    }

    /// The names for people.
    pub(crate) fn shown(&self) -> String {
        let of_certificate = self.certificate.iter().flat_map(|(certificate, port)| {
            certificate.names().into_iter().map(move |name| format!("{name}:{port}"))
        });
        let mut all: Vec<String> = self.listed.clone();
        all.extend(of_certificate);
        if all.is_empty() {
            return "an address of the certificate".to_owned();
        }
        all.join(" or ")
    }
}

/// A host with the port that it is given with, or this one.
pub(super) fn with_port(host: &str, port: u16) -> String {
    let has_port = host.parse::<Authority>().is_ok_and(|of| of.port().is_some());
    if has_port { host.to_owned() } else { format!("{host}:{port}") }
}

/// Whether a text is a host as clients name one, perhaps with a port.
///
/// # Errors
/// What was expected.
pub fn check_host_name(text: &str) -> Result<(), String> {
    let expected =
        || "expected a host as clients name it: gpu1.example.com, or gpu1.example.com:8443".to_owned();
    let of: Authority = text.parse().map_err(|_| expected())?;
    let is_plain = !text.contains('@') && !of.host().is_empty();
    let has_good_port = of.as_str().len() == of.host().len() || of.port_u16().is_some_and(|port| port > 0);
    if is_plain && has_good_port { Ok(()) } else { Err(expected()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_server_has_the_number_of_its_address() {
        let hosts = Hosts::plain("127.0.0.1:7077".parse().unwrap());
        assert!(hosts.has("127.0.0.1:7077"));
        for other in ["127.0.0.1", "localhost:7077", "127.0.0.1:7078", "", "user@127.0.0.1:7077"] {
            assert!(!hosts.has(other), "{other}");
        }
        assert!(Hosts::plain("127.0.0.1:80".parse().unwrap()).has("127.0.0.1"));
    }

    #[test]
    fn a_host_that_is_given_has_a_name_and_perhaps_a_port() {
        for good in ["gpu1", "gpu1.example.com", "gpu1.example.com:8443", "192.0.2.7", "[2001:db8::1]:443"] {
            assert_eq!(check_host_name(good), Ok(()), "{good}");
        }
        for bad in ["", ":443", "https://gpu1", "a@b", "gpu1:", "gpu1:0", "gpu1:x", "gpu1/", "a b"] {
            assert!(check_host_name(bad).is_err(), "{bad}");
        }
    }
}
