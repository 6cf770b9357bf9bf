//! A token that an issuer signed (RFC 7515, RFC 7519): its parts, and what it says.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use phalanx_model::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::file::Settings;
use super::{Identity, Refused};
use crate::protocol::Role;

/// How far the clocks of the issuer and of this machine may differ.
const LEEWAY: Duration = Duration::from_secs(30);
const LOGIN_CHARS_MAX: usize = 256;

/// How tokens are signed. `none` and all that share a secret are not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Ps256,
    Es256,
    EdDsa,
}

impl Algorithm {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "PS256" => Self::Ps256,
            "ES256" => Self::Es256,
            "EdDSA" | "Ed25519" => Self::EdDsa,
            _ => return None,
        })
    }
}

/// A token in parts. Nothing of them is checked yet.
pub(super) struct Parts<'a> {
    pub(super) header: Header,
    /// The bytes that are signed.
    pub(super) signed: &'a [u8],
    pub(super) payload: Vec<u8>,
    pub(super) signature: Vec<u8>,
}

pub(super) struct Header {
    pub(super) algorithm: Algorithm,
    pub(super) kid: Option<String>,
}

#[derive(Deserialize)]
struct RawHeader {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
}

/// When a token says that it is no longer valid. Nothing of the token is checked: only for one that its issuer took.
pub(super) fn expiry(token: &str) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct Said {
        exp: u64,
    }
    let payload = token.split('.').nth(1)?;
    let said: Said = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
    Some(Timestamp(said.exp.saturating_mul(1_000)))
}

const fn no<T>(why: &'static str) -> Result<T, Refused> {
    Err(Refused::Invalid(why))
}

pub(super) fn split(token: &str) -> Result<Parts<'_>, Refused> {
    const BROKEN: Refused = Refused::Invalid("the token is no signed token of an issuer");
    let (signed, signature) = token.rsplit_once('.').ok_or(BROKEN)?;
    let (header, payload) = signed.split_once('.').ok_or(BROKEN)?;
    let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| BROKEN);
    let raw: RawHeader = serde_json::from_slice(&bytes(header)?).map_err(|_| BROKEN)?;
    if raw.crit.is_some() {
        return no("the token asks for an extension that is not known");
    }
    // Tokens for other purposes have other types.
    let kind = raw.typ.as_deref().map_or("jwt", |typ| typ.strip_prefix("application/").unwrap_or(typ));
    if !kind.eq_ignore_ascii_case("jwt") && !kind.eq_ignore_ascii_case("at+jwt") {
        return no("the token is not for signing in");
    }
    let Some(algorithm) = Algorithm::named(&raw.alg) else {
        return no("the token is not signed with RS256, PS256, ES256 or EdDSA");
    };
    let header = Header { algorithm, kid: raw.kid };
    Ok(Parts { header, signed: signed.as_bytes(), payload: bytes(payload)?, signature: bytes(signature)? })
}

/// Whom the claims of a token name, whose signature was verified.
pub(super) fn identity(payload: &[u8], settings: &Settings, now: SystemTime) -> Result<Identity, Refused> {
    let Ok(claims) = serde_json::from_slice::<Map<String, Value>>(payload) else {
        return no("the claims of the token are no JSON object");
    };
    if text(&claims, "iss") != Some(&settings.issuer) {
        return no("the token is of another issuer");
    }
    if !strings(claims.get("aud")).any(|audience| audience == settings.audience) {
        return no("the token is for another audience");
    }
    check_times(&claims, now)?;
    let login = text(&claims, &settings.username_claim)
        .filter(|login| !login.is_empty() && login.chars().count() <= LOGIN_CHARS_MAX);
    let Some(login) = login.filter(|login| !login.chars().any(char::is_control)) else {
        return no("the token has no claim that names its user");
    };
    // An address that was not confirmed is whatever the user typed.
    let is_unconfirmed = claims.get("email_verified").is_some_and(|is| *is != Value::Bool(true));
    if settings.username_claim == "email" && is_unconfirmed {
        return no("the issuer has not verified the email address of the user");
    }
    let listed = settings.users.get(login);
    let groups = || strings(claims.get(&settings.groups_claim));
    let role = if groups().any(|group| settings.operators.contains(group)) {
        Some(Role::Operator)
    } else if groups().any(|group| settings.viewers.contains(group)) {
        Some(Role::Viewer)
    } else {
        None
    };
    Ok(Identity {
        login: login.to_owned(),
        account: listed.map_or(login, String::as_str).to_owned(),
        is_listed: listed.is_some(),
        role,
    })
}

fn check_times(claims: &Map<String, Value>, now: SystemTime) -> Result<(), Refused> {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let leeway = LEEWAY.as_secs_f64();
    let Some(expires) = claims.get("exp").and_then(Value::as_f64) else {
        return no("the token does not say when it expires");
    };
    if now >= expires + leeway {
        return no("the token has expired");
    }
    match claims.get("nbf").map(Value::as_f64) {
        Some(None) => no("the token does not say from when on it is valid"),
        Some(Some(begins)) if now < begins - leeway => no("the token is not valid yet"),
        _ => Ok(()),
    }
}

fn text<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    claims.get(name).and_then(Value::as_str)
}

/// A string, or the strings of a list.
fn strings(value: Option<&Value>) -> impl Iterator<Item = &str> {
    let (one, many) = match value {
        Some(Value::Array(many)) => (None, many.as_slice()),
        one => (one, [].as_slice()),
    };
    one.into_iter().chain(many).filter_map(Value::as_str)
}
