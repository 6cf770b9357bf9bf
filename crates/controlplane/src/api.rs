//! A slim client of the API: JSON in, JSON out.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use ureq::http::{Request, Response};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

use crate::error::Error;

/// One request may take this long, a list of 50,000 pods on a busy machine included.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The largest answer: 100,000 pods are about 300 MB.
const ANSWER_BYTES: u64 = 1 << 30;
/// Connections kept open for use by as many threads.
const CONNECTIONS: usize = 256;

/// A user's way to the API. Clones share their connections, and threads may use one at the same time.
#[derive(Clone, Debug)]
pub struct Api {
    agent: Agent,
    server: Arc<str>,
    authorization: Arc<str>,
}

impl Api {
    /// As whoever the kubeconfig of a [`crate::ControlPlane`] is of.
    ///
    /// # Errors
    /// When the file cannot be read or is none of ours: others may be written in other ways.
    pub fn of_kubeconfig(path: &Path) -> Result<Self, Error> {
        let text = fs::read(path).map_err(Error::io("read", path))?;
        let config: Value = serde_json::from_slice(&text).unwrap_or_default();
        let cluster = &config["clusters"][0]["cluster"];
        let words =
            [&cluster["server"], &cluster["certificate-authority"], &config["users"][0]["user"]["token"]];
        let [Some(server), Some(authority), Some(token)] = words.map(Value::as_str) else {
            let why = "it names no server, certificate authority file and token as JSON";
            return Err(Error::io("use", path)(io::Error::new(io::ErrorKind::InvalidData, why)));
        };
        let authority = fs::read(authority).map_err(Error::io("read", authority))?;
        Self::new(server, &authority, token)
    }

    /// `server` as in `https://127.0.0.1:6443`, which must show a certificate of `authority` (PEM).
    fn new(server: &str, authority: &[u8], token: &str) -> Result<Self, Error> {
        let certificates: Vec<Certificate<'static>> = parse_pem(authority)
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        if certificates.is_empty() {
            let why = "the certificate authority holds no certificate".to_owned();
            return Err(Error::NoAnswer { method: "GET".to_owned(), path: server.to_owned(), why });
        }
        let tls = TlsConfig::builder().root_certs(RootCerts::Specific(Arc::new(certificates))).build();
        Ok(Self { agent: agent(tls), server: server.into(), authorization: format!("Bearer {token}").into() })
    }

    /// Without identity, and whatever certificate is shown: for the health of servers on loopback.
    pub(crate) fn unverified(server: &str) -> Self {
        let tls = TlsConfig::builder().disable_verification(true).build();
        Self { agent: agent(tls), server: server.into(), authorization: "".into() }
    }

    /// As in `https://127.0.0.1:6443`.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// # Errors
    /// When the server refuses or cannot be reached; so for all that follow.
    pub fn get(&self, path: &str) -> Result<Value, Error> {
        self.send("GET", path, "application/json", String::new())
    }

    /// Creates `object`, or calls a subresource such as `…/pods/NAME/binding`.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn post(&self, path: &str, object: &Value) -> Result<Value, Error> {
        self.send("POST", path, "application/json", object.to_string())
    }

    /// Creates what a YAML document describes.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn post_yaml(&self, path: &str, document: &str) -> Result<Value, Error> {
        self.send("POST", path, "application/yaml", document.to_owned())
    }

    /// # Errors
    /// As [`Self::get`].
    pub fn put(&self, path: &str, object: &Value) -> Result<Value, Error> {
        self.send("PUT", path, "application/json", object.to_string())
    }

    /// A JSON merge patch (RFC 7386).
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn patch(&self, path: &str, patch: &Value) -> Result<Value, Error> {
        self.send("PATCH", path, "application/merge-patch+json", patch.to_string())
    }

    /// # Errors
    /// As [`Self::get`].
    pub fn delete(&self, path: &str) -> Result<Value, Error> {
        self.send("DELETE", path, "application/json", String::new())
    }

    /// Without the grace period, which a kubelet would end.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn delete_now(&self, path: &str) -> Result<Value, Error> {
        self.delete(&format!("{path}?gracePeriodSeconds=0"))
    }

    /// The events of a watch, `path` with its query: `/api/v1/pods?watch=true&resourceVersion=…`.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn watch(&self, path: &str) -> Result<Watch, Error> {
        let request = self.request("GET", path, "application/json", String::new())?;
        let request = self.agent.configure_request(request).timeout_global(None).build();
        let answer = self.run("GET", path, request)?;
        let reader = answer.into_body().into_with_config().limit(u64::MAX).reader();
        Ok(Watch { path: path.to_owned(), lines: BufReader::with_capacity(1 << 16, Box::new(reader)) })
    }

    /// What becomes of the objects of a path from now on. The server ends a watch that is read too slowly; the next goes on
    /// where it was.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn follow(&self, path: &str) -> Result<Follow, Error> {
        let list = self.get(&format!("{path}?limit=1"))?;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let watch = Some(self.watch_from(path, &version)?);
        Ok(Follow { api: self.clone(), path: path.to_owned(), version, watch })
    }

    fn watch_from(&self, path: &str, version: &str) -> Result<Watch, Error> {
        self.watch(&format!("{path}?watch=true&resourceVersion={version}"))
    }

    pub(crate) fn text(&self, path: &str) -> Result<String, Error> {
        let request = self.request("GET", path, "application/json", String::new())?;
        let mut answer = self.run("GET", path, request)?;
        answer.body_mut().read_to_string().map_err(|e| no_answer("GET", path, &e))
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: String) -> Result<Value, Error> {
        let request = self.request(method, path, kind, body)?;
        let answer = self.run(method, path, request)?;
        let reader = BufReader::new(answer.into_body().into_with_config().limit(ANSWER_BYTES).reader());
        serde_json::from_reader(reader).map_err(|e| no_answer(method, path, &e))
    }

    fn request(&self, method: &str, path: &str, kind: &str, body: String) -> Result<Request<String>, Error> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.server));
        if !self.authorization.is_empty() {
            request = request.header("authorization", &*self.authorization);
        }
        if !body.is_empty() {
            request = request.header("content-type", kind);
        }
        request.body(body).map_err(|e| no_answer(method, path, &e))
    }

    /// An answer of success; others become errors with what the server said.
    fn run(
        &self,
        method: &str,
        path: &str,
        request: Request<impl ureq::AsSendBody>,
    ) -> Result<Response<Body>, Error> {
        let mut answer = self.agent.run(request).map_err(|e| no_answer(method, path, &e))?;
        let status = answer.status().as_u16();
        if answer.status().is_success() {
            return Ok(answer);
        }
        let text = answer.body_mut().read_to_string().unwrap_or_default();
        let message = serde_json::from_str::<Value>(&text)
            .ok()
            .and_then(|said| said.get("message")?.as_str().map(str::to_owned))
            .unwrap_or(text);
        Err(Error::Refused { method: method.to_owned(), path: path.to_owned(), status, message })
    }
}

fn agent(tls: TlsConfig) -> Agent {
    Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .timeout_global(Some(TIMEOUT))
        .max_idle_connections(CONNECTIONS)
        .max_idle_connections_per_host(CONNECTIONS)
        .proxy(None)
        .build()
        .into()
}

fn no_answer(method: &str, path: &str, why: &dyn std::fmt::Display) -> Error {
    Error::NoAnswer { method: method.to_owned(), path: path.to_owned(), why: why.to_string() }
}

/// The events of a watch, in their order: `{"type": "ADDED", "object": {…}}`. Ends when the server ends it.
pub struct Watch {
    path: String,
    lines: BufReader<Box<dyn Read + Send>>,
}

impl Iterator for Watch {
    type Item = Result<Value, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = Vec::new();
        match self.lines.read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_slice(&line).map_err(|e| no_answer("GET", &self.path, &e))),
            Err(e) => Some(Err(no_answer("GET", &self.path, &e))),
        }
    }
}

/// The events of one watch after another, see [`Api::follow`]. Ends behind an event `ERROR`, or with why there is no further
/// watch.
pub struct Follow {
    api: Api,
    path: String,
    /// Of the last event.
    version: String,
    watch: Option<Watch>,
}

impl Iterator for Follow {
    type Item = Result<Value, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // A line that was cut off comes again.
            let Some(Ok(event)) = self.watch.as_mut()?.next() else {
                match self.api.watch_from(&self.path, &self.version) {
                    Ok(watch) => self.watch = Some(watch),
                    Err(error) => {
                        self.watch = None;
                        return Some(Err(error));
                    }
                }
                continue;
            };
            if event["type"] == "ERROR" {
                self.watch = None;
            } else if let Some(newer) = event["object"]["metadata"]["resourceVersion"].as_str() {
                newer.clone_into(&mut self.version);
            }
            return Some(Ok(event));
        }
    }
}
