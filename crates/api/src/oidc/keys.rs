//! The keys of an issuer: which there are, when they are fetched again, and what they have signed.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

use super::Refused;
use super::token::Algorithm;

/// Keys that are fetched without being asked for: an issuer that takes a key back does not say so.
const FRESH: Duration = Duration::from_secs(600);
/// Shortest time between two fetches that tokens with unknown keys ask for.
const GAP: Duration = Duration::from_secs(10);
/// Keys are good for so long without an answer of their issuer: it may have taken them back meanwhile.
const STALE: Duration = Duration::from_secs(24 * 3_600);
/// How soon a failed fetch is tried again, doubled with each failure.
const RETRY: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// How long a request waits for a fetch, and how many do.
const PATIENCE: Duration = Duration::from_secs(5);
const WAITING_MAX: usize = 16;
/// Keys of an issuer at most.
const KEYS_MAX: usize = 64;

const UNKNOWN: Refused = Refused::Invalid("the token is signed with a key that its issuer does not publish");

/// The document of an issuer's keys.
#[derive(Deserialize)]
pub(super) struct KeySet {
    keys: Vec<serde_json::Value>,
}

/// A key as the document has it.
#[derive(Deserialize)]
struct Published {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// A public key of an issuer.
#[derive(Clone, Debug)]
pub(super) struct Key {
    kid: Option<String>,
    /// The one algorithm for which the issuer uses it.
    algorithm: Option<Algorithm>,
    public: Public,
}

#[derive(Clone, Debug)]
enum Public {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl KeySet {
    /// The keys that can be used; others are for other purposes.
    pub(super) fn keys(self) -> Vec<Key> {
        let read = |value| Key::of(serde_json::from_value(value).ok()?);
        self.keys.into_iter().filter_map(read).take(KEYS_MAX).collect()
    }
}

impl Key {
    fn of(published: Published) -> Option<Self> {
        let Published { kty, kid, alg, usage, crv, n, e, x, y } = published;
        if usage.is_some_and(|usage| usage != "sig") {
            return None;
        }
        let bytes = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
        // Some issuers write a number with a leading zero byte.
        let number = |text| {
            let bytes = bytes(text)?;
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            Some(bytes.into_iter().skip(zeros).collect())
        };
        let public = match (kty.as_str(), crv.as_deref()) {
            ("RSA", _) => Public::Rsa { n: number(n)?, e: number(e)? },
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes(x)?, bytes(y)?);
                Public::P256([vec![4], x, y].concat())
            }
            ("OKP", Some("Ed25519")) => Public::Ed25519(bytes(x)?),
            _ => return None,
        };
        // A key for an algorithm that is not taken is not taken for another one either.
        let algorithm = alg.map(|alg| Algorithm::named(&alg).ok_or(())).transpose().ok()?;
        Some(Self { kid, algorithm, public })
    }

    fn is_for(&self, algorithm: Algorithm) -> bool {
        let is_its_kind = matches!(
            (&self.public, algorithm),
            (Public::Rsa { .. }, Algorithm::Rs256 | Algorithm::Ps256)
                | (Public::P256(_), Algorithm::Es256)
                | (Public::Ed25519(_), Algorithm::EdDsa)
        );
        is_its_kind && self.algorithm.is_none_or(|only| only == algorithm)
    }

    /// Whether a signature is one of this key.
    pub(super) fn has_signed(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        let verified = match (&self.public, algorithm) {
            (Public::Rsa { n, e }, Algorithm::Rs256) => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature)
            }
            (Public::Rsa { n, e }, Algorithm::Ps256) => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PSS_2048_8192_SHA256, signed, signature)
            }
            (Public::P256(point), Algorithm::Es256) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
            }
            (Public::Ed25519(point), Algorithm::EdDsa) => {
                UnparsedPublicKey::new(&ED25519, point).verify(signed, signature)
            }
            _ => return false,
        };
        self.is_for(algorithm) && verified.is_ok()
    }
}

/// The keys that are known, and the fetch of others.
#[derive(Debug, Default)]
pub(super) struct Keys {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Of the last fetch that did not fail.
    known: Option<Vec<Arc<Key>>>,
    /// When that fetch began.
    answered_at: Option<Instant>,
    is_asked: bool,
    is_fetching: bool,
    begun_at: Option<Instant>,
    /// Fetches that ended.
    fetches: u64,
    failures: u32,
    waiting: usize,
}

impl Keys {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of a token. If it is not known, the issuer is asked, unless that was done a short time ago.
    pub(super) fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<Arc<Key>, Refused> {
        let mut state = self.state();
        state.forget_stale(Instant::now());
        if let Some(found) = state.find(kid, algorithm) {
            return Ok(found);
        }
        if state.may_ask(Instant::now()) && state.waiting < WAITING_MAX {
            state.is_asked |= !state.is_fetching;
            state.waiting += 1;
            self.changed.notify_all();
            let fetches = state.fetches;
            let waited = self.changed.wait_timeout_while(state, PATIENCE, |state| state.fetches == fetches);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
        // While the issuer does not answer, nobody knows whether it has a new key.
        let refused = if state.known.is_none() || state.failures > 0 { Refused::NoKeys } else { UNKNOWN };
        state.find(kid, algorithm).ok_or(refused)
    }

    /// Fetches at the start, when asked, and from time to time.
    pub(super) fn keep(&self, issuer: &str, fetch: &dyn Fn() -> Result<Vec<Key>, String>) {
        loop {
            self.renew(issuer, fetch);
            let state = self.state();
            let pause = state.pause();
            // The answer is no: what it was asked for is in the state.
            let _ = self.changed.wait_timeout_while(state, pause, |state| !state.is_asked);
        }
    }

    /// One fetch. If it fails, the keys that are known stay.
    pub(super) fn renew(&self, issuer: &str, fetch: &dyn Fn() -> Result<Vec<Key>, String>) {
        {
            let mut state = self.state();
            (state.is_asked, state.is_fetching, state.begun_at) = (false, true, Some(Instant::now()));
        }
        let fetched = fetch();
        let mut state = self.state();
        state.is_fetching = false;
        state.fetches += 1;
        match fetched {
            Ok(keys) => {
                let had_some = state.known.as_ref().is_some_and(|known| !known.is_empty());
                if keys.is_empty() && (had_some || state.known.is_none()) {
                    tracing::warn!(issuer, "the issuer publishes no key for RS256, PS256, ES256 or EdDSA");
                } else if state.known.is_none() || state.failures > 0 {
                    tracing::info!(issuer, keys = keys.len(), "the keys of the issuer are known");
                }
                state.answered_at = state.begun_at;
                state.known = Some(keys.into_iter().map(Arc::new).collect());
                state.failures = 0;
            }
            Err(error) => {
                if state.failures == 0 {
                    let has_keys = state.known.is_some();
                    tracing::warn!(issuer, error, has_keys, "the keys of the issuer cannot be fetched");
                }
                state.failures = state.failures.saturating_add(1);
            }
        }
        self.changed.notify_all();
    }
}

impl State {
    fn forget_stale(&mut self, now: Instant) {
        let is_fresh = self.answered_at.is_some_and(|at| now.saturating_duration_since(at) < STALE);
        if !is_fresh && self.known.take().is_some() {
            tracing::warn!("the keys of the issuer are no longer good: it has not answered for a day");
        }
    }

    /// The key with the name that the token gives. A token without one has the only key of its algorithm.
    fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<Arc<Key>> {
        let mut fitting = self.known.iter().flatten().filter(|key| key.is_for(algorithm));
        match kid {
            Some(kid) => fitting.find(|key| key.kid.as_deref() == Some(kid)).cloned(),
            None => fitting.next().filter(|_| fitting.next().is_none()).cloned(),
        }
    }

    /// Whether another fetch may be waited for, or asked for.
    fn may_ask(&self, now: Instant) -> bool {
        let since = self.begun_at.map(|at| now.saturating_duration_since(at));
        self.is_fetching || self.is_asked || since.is_none_or(|since| since >= GAP)
    }

    fn pause(&self) -> Duration {
        match self.failures {
            0 => FRESH,
            failures => RETRY.saturating_mul(1 << failures.saturating_sub(1).min(5)).min(RETRY_MAX),
        }
    }
}

#[cfg(test)]
impl Keys {
    /// As if the last fetch was long ago.
    pub(super) fn age(&self) {
        self.state().begun_at = None;
    }

    /// As if the issuer had not answered for longer than keys are good.
    pub(super) fn outlive(&self) {
        self.state().answered_at = None;
    }
}
