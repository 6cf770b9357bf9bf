//! The keys of an issuer, from the addresses that it publishes.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::file::{OidcError, Settings, read_unchanged_by_others};
use super::keys::{Key, KeySet};
use crate::authorities::certificates;

/// Where an issuer says what it is, below its address.
const DISCOVERY: &str = "/.well-known/openid-configuration";
/// One request may take so long, and its answer have so many bytes.
const TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// A kube-apiserver gives its keys only to those who accept this type of them.
const ACCEPT: &str = "application/json, application/jwk-set+json";

/// The part of the discovery document that is used.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

/// Asks the issuer for its keys.
pub(super) fn keys(settings: &Settings) -> Result<Vec<Key>, String> {
    let agent = agent(settings).map_err(|e| e.to_string())?;
    let discovery: Discovery = get(&agent, &format!("{}{DISCOVERY}", settings.issuer.trim_end_matches('/')))?;
    if discovery.issuer != settings.issuer {
        return Err(format!("the issuer calls itself {:?}: `issuer` must be exactly that", discovery.issuer));
    }
    // None is an answer, too: an issuer that takes its keys back is obeyed.
    Ok(get::<KeySet>(&agent, &discovery.jwks_uri)?.keys())
}

/// The certificates of `ca_file`; none if the file is not given.
pub(super) fn authorities(settings: &Settings) -> Result<Vec<Certificate<'static>>, OidcError> {
    let Some(path) = &settings.ca_file else { return Ok(Vec::new()) };
    let text = read_unchanged_by_others(path)?;
    let found = certificates(&text);
    if found.is_empty() {
        return Err(OidcError::NoCertificate(path.clone()));
    }
    Ok(found)
}

/// Read anew each time: `ca_file` may have changed.
fn agent(settings: &Settings) -> Result<Agent, OidcError> {
    let authorities = authorities(settings)?;
    let roots =
        if authorities.is_empty() { RootCerts::WebPki } else { RootCerts::new_with_certs(&authorities) };
    let config = Agent::config_builder()
        .https_only(true)
        .max_redirects(0)
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .tls_config(TlsConfig::builder().root_certs(roots).build())
        .build();
    Ok(config.into())
}

fn get<T: DeserializeOwned>(agent: &Agent, url: &str) -> Result<T, String> {
    let broken = |e: ureq::Error| format!("{url}: {e}");
    let mut answer = agent
        .get(url)
        .header("accept", ACCEPT)
        .header("accept-encoding", "identity")
        .call()
        .map_err(broken)?;
    if answer.status() != 200 {
        return Err(format!("{url} answers with status {}", answer.status().as_u16()));
    }
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec().map_err(broken)?;
    serde_json::from_slice(&body).map_err(|e| format!("{url}: {e}"))
}
