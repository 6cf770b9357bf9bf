//! An authority that signs certificates, and a client that trusts it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Signs certificates of servers.
pub(crate) struct Authority {
    issuer: rcgen::Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Not the name of the certificates that it signs.
        params.distinguished_name.push(rcgen::DnType::CommonName, "An authority under test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pair = KeyPair::generate().unwrap();
        let pem = params.self_signed(&pair).unwrap().pem();
        Self { issuer: rcgen::Issuer::new(params, pair), pem }
    }

    /// The certificate of a server and its key, both as PEM.
    pub(crate) fn sign(&self, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let pair = KeyPair::generate().unwrap();
        let made = CertificateParams::new(names).unwrap().signed_by(&pair, &self.issuer).unwrap();
        (made.pem(), pair.serialize_pem())
    }

    /// Writes a new certificate and its key as `cert.pem` and `key.pem`.
    pub(crate) fn write(&self, folder: &Path, names: &[&str]) {
        let (certificate, key) = self.sign(names);
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("cert.pem"), certificate).unwrap();
        fs::write(folder.join("key.pem"), key).unwrap();
        fs::set_permissions(folder.join("key.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn client(&self, base: &str) -> Https {
        let roots = [Certificate::from_pem(self.pem.as_bytes()).unwrap()];
        let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&roots)).build();
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .tls_config(tls)
            .build();
        Https { base: base.to_owned(), agent: config.into(), authority: self.pem.clone() }
    }
}

/// A client of one server.
pub(crate) struct Https {
    pub(crate) base: String,
    agent: ureq::Agent,
    authority: String,
}

impl Https {
    /// The address without its scheme.
    pub(crate) fn host(&self) -> &str {
        self.base.trim_start_matches("https://")
    }

    pub(crate) fn get(&self, path: &str, token: &str) -> (u16, Value) {
        let (status, text) = self.ask("GET", path, &[("authorization", &format!("Bearer {token}"))], "");
        (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}")))
    }

    pub(crate) fn post(&self, path: &str, token: &str, body: &Value) -> (u16, Value) {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let (status, text) = self.ask("POST", path, &headers, &body.to_string());
        (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}")))
    }

    /// The status and the body.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String) {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = match body {
            "" => self.agent.run(request.body(()).unwrap()),
            body => self.agent.run(request.body(body.to_owned()).unwrap()),
        };
        let mut answer = answer.unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    }

    /// A connection over TLS.
    pub(crate) fn connect(&self) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        let name = self.host().rsplit_once(':').unwrap().0.to_owned();
        let connection = ClientConnection::new(config, ServerName::try_from(name).unwrap()).unwrap();
        let stream = TcpStream::connect(self.host()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        StreamOwned::new(connection, stream)
    }

    /// All that is answered to these bytes.
    pub(crate) fn raw(&self, request: &str) -> String {
        let mut stream = self.connect();
        // The server may answer and close before all of it is sent.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The certificate that the server shows.
    pub(crate) fn shown(&self) -> Vec<u8> {
        let mut stream = self.connect();
        stream.conn.complete_io(&mut stream.sock).unwrap();
        stream.conn.peer_certificates().unwrap()[0].to_vec()
    }
}
