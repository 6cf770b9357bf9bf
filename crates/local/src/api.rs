//! The HTTP API and the dashboard of this machine: where they are served, and who has tokens for them.

mod sign_in;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use phalanx_api::http::{self, Backend, Certificate, Listening, NoPeer, Tls};
use phalanx_api::oidc::Oidc;
use phalanx_api::protocol::{Answer, ErrorCode, ErrorView, NewTokenView, TokenAsk, Verb};
use phalanx_api::tokens::{TokenError, Tokens};
use phalanx_api::{Peer, Reply};
use phalanx_model::Owner;

use crate::Paths;
use crate::daemon::{ApiAt, ApiTls, Daemon, UpError, UpOptions};
use crate::server;
use crate::threads;
use crate::user;
use crate::verbs::{self, Failure, known, operator, refuse};

/// The ports of a daemon of root, if the operator names none. Only root can open them: another user who had the port while no
/// daemon runs would receive the tokens of clients that still ask there. IANA has assigned none of them.
const OF_ROOT: [RangeInclusive<u16>; 2] = [1002..=1009, 914..=952];
/// The ports of a daemon that serves one user. 0 stands for any free port.
const OF_USER: [RangeInclusive<u16>; 2] = [7077..=7077, 0..=0];

/// Whether it is served, and who may ask.
#[derive(Debug)]
pub(crate) struct Api {
    at: ApiAt,
    tokens: Tokens,
    /// Tokens of this issuer are good, too.
    oidc: Option<Arc<Oidc>>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Closed,
    /// The port is open, and nobody serves it yet.
    Open(Listening),
    /// Served at this address.
    Served(String),
}

impl Api {
    /// Reads the tokens and the certificate, and opens the port if it is to be open from the start.
    pub(crate) fn open(options: &UpOptions) -> Result<Self, UpError> {
        let (paths, at) = (&options.paths, options.api);
        let tls = options.api_tls.as_ref().map(|tls| open_tls(tls, at)).transpose()?;
        let oidc = options.api_oidc.as_deref().map(|file| open_oidc(file, at)).transpose()?;
        let tokens = open_tokens(&paths.tokens()).map_err(|e| UpError::Tokens(paths.tokens(), e))?;
        let state = match at {
            ApiAt::Address(at) => State::Open(http::listen(at, tls).map_err(|e| UpError::Api(at, e))?),
            // Pages that are open find the new daemon where the old one was, if nobody else took the port.
            ApiAt::WhenAsked => remembered(paths).and_then(open_again).map_or(State::Closed, State::Open),
            ApiAt::Nowhere => State::Closed,
        };
        Ok(Self { at, tokens, oidc, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panicking thread leaves a port that is served or one that is not.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open_tls(tls: &ApiTls, at: ApiAt) -> Result<Tls, UpError> {
    needs_address("`--api-cert`", at)?;
    let certificate = Arc::new(Certificate::open(tls.files.clone())?);
    Ok(Tls { certificate, names: tls.names.clone() })
}

fn open_oidc(file: &Path, at: ApiAt) -> Result<Arc<Oidc>, UpError> {
    needs_address("`--api-oidc`", at)?;
    Ok(Arc::new(Oidc::open(file)?))
}

fn needs_address(flag: &'static str, at: ApiAt) -> Result<(), UpError> {
    if matches!(at, ApiAt::Address(_)) { Ok(()) } else { Err(UpError::NoAddress(flag)) }
}

fn remembered(paths: &Paths) -> Option<SocketAddr> {
    fs::read_to_string(paths.api()).ok()?.trim().parse().ok()
}

/// A file that is damaged is set aside: tokens can be made again, and jobs do not wait for that.
fn open_tokens(path: &Path) -> io::Result<Tokens> {
    match Tokens::open(path) {
        Err(e) if e.kind() != io::ErrorKind::PermissionDenied => {
            let aside = path.with_extension("damaged");
            tracing::warn!(error = %e, aside = %aside.display(), "no token is valid any more: their file is damaged");
            fs::rename(path, aside)?;
            Tokens::open(path)
        }
        opened => opened,
    }
}

fn open_again(at: SocketAddr) -> Option<Listening> {
    let opened = http::listen(at, None);
    if let Err(error) = &opened {
        let what = "the API is not served where it was: clients that still ask there send their tokens to somebody else";
        tracing::warn!(address = %at, %error, "{what}");
    }
    opened.ok()
}

/// The first port of those that this daemon may have.
fn listen_anywhere(is_root: bool) -> io::Result<Listening> {
    let ports = if is_root { OF_ROOT } else { OF_USER };
    let mut opened = Err(io::ErrorKind::AddrInUse.into());
    for port in ports.into_iter().flatten() {
        opened = http::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), None);
        if opened.is_ok() {
            break;
        }
    }
    opened
}

/// Serves the port that is open from the start, if there is one.
pub(crate) fn start(daemon: &Arc<Daemon>) -> io::Result<()> {
    if let Some(oidc) = daemon.api.oidc.clone() {
        // The daemon starts whether its issuer answers or not.
        threads::single("oidc", move || oidc.keep_keys())?;
    }
    let mut state = daemon.api.state();
    if let State::Open(listening) = std::mem::replace(&mut *state, State::Closed) {
        *state = State::Served(serve(daemon, listening)?);
    }
    Ok(())
}

/// The address at which it is served; from now on, if it was not.
fn address(daemon: &Arc<Daemon>) -> Result<String, Failure> {
    let mut state = daemon.api.state();
    if let State::Served(url) = &*state {
        return Ok(url.clone());
    }
    if daemon.api.at == ApiAt::Nowhere {
        let message = "this daemon serves no API";
        return Err(refuse(
            ErrorCode::Rejected,
            message,
            "an operator starts it without `phalanx up --api off`",
        ));
    }
    let failed = |e: io::Error| {
        let message = format!("no port can be opened for the API: {e}");
        refuse(
            ErrorCode::Unavailable,
            message,
            "an operator names a free one: `phalanx up --api 127.0.0.1:PORT`",
        )
    };
    let listening = listen_anywhere(daemon.is_root).map_err(failed)?;
    let url = serve(daemon, listening).map_err(failed)?;
    if let Some(at) = url.strip_prefix("http://") {
        // Without it the next daemon waits until it is asked again.
        let _ = fs::write(daemon.paths.api(), at);
    }
    *state = State::Served(url.clone());
    Ok(url)
}

/// Serves on a thread of its own until the process ends.
fn serve(daemon: &Arc<Daemon>, listening: Listening) -> io::Result<String> {
    let url = listening.url();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).max_blocking_threads(http::ANSWERING);
    let runtime = runtime.thread_name("api").enable_all().build()?;
    let backend = Arc::new(OfDaemon(Arc::clone(daemon)));
    tracing::info!(address = url, "serves the API and the dashboard");
    threads::vital("api", move || {
        if let Err(error) = runtime.block_on(http::serve(listening, backend)) {
            tracing::warn!(%error, "the API is no longer served");
        }
    })?;
    Ok(url)
}

/// The daemon as HTTP sees it.
struct OfDaemon(Arc<Daemon>);

impl Backend for OfDaemon {
    fn peer(&self, token: &str) -> Result<Peer, NoPeer> {
        if let Some(oidc) = self.0.api.oidc.as_ref().filter(|_| Oidc::is_one(token)) {
            return sign_in::peer(oidc, token);
        }
        let not_valid = NoPeer::Unauthorized("the token is not valid, or no longer");
        let found = self.0.api.tokens.find(token, self.0.clock.now());
        let Some((owner, is_reader)) = found else { return Err(not_valid) };
        let peer = server::named(server::peer(owner.uid, owner.gid));
        // The account that made it, and no other that has its number by now.
        let is_same = peer.is_known && peer.owner.name == owner.name;
        if is_same { Ok(Peer { is_reader, ..peer }) } else { Err(not_valid) }
    }

    fn answer(&self, peer: &Peer, verb: Verb, reply: &mut dyn Reply) -> Result<(), ErrorView> {
        if let Some(why) = only_at_the_socket(&verb) {
            return Err(ErrorView::new(
                ErrorCode::Forbidden,
                why,
                "use the `phalanx` command on this machine",
            ));
        }
        match verbs::answer(&self.0, peer, verb, reply) {
            Ok(()) | Err(Failure::Gone) => Ok(()),
            Err(Failure::Told(error)) => Err(error),
        }
    }
}

/// Why a token does not suffice for a verb: it must not make further tokens, open terminals or stop the daemon.
fn only_at_the_socket(verb: &Verb) -> Option<&'static str> {
    match verb {
        Verb::NewToken(_) => Some("a token is not made with a token"),
        Verb::Terminal { .. } | Verb::Exec { .. } => Some("a terminal is not given to a token"),
        Verb::Stop => Some("the daemon is not stopped with a token"),
        _ => None,
    }
}

/// Makes a token for the caller.
pub(crate) fn new_token(daemon: &Arc<Daemon>, peer: &Peer, ask: &TokenAsk) -> Result<Answer, Failure> {
    known(peer)?;
    // The group is that of the account: what a shell has for a while is not in a token for months.
    let gid = user::primary_group(peer.owner.uid).unwrap_or(peer.owner.gid);
    let owner = Owner { gid, ..peer.owner.clone() };
    Tokens::check(ask).map_err(|e| refused(&e))?;
    let address = address(daemon)?;
    let made = daemon.api.tokens.create(&owner, ask, daemon.clock.now()).map_err(|e| refused(&e))?;
    let (text, token) = made;
    Ok(Answer::Token(NewTokenView { token, text, address }))
}

/// Tokens that the caller may see.
pub(crate) fn tokens(daemon: &Daemon, peer: &Peer) -> Answer {
    let uid = (!peer.is_operator).then_some(peer.owner.uid);
    Answer::Tokens(daemon.api.tokens.list(uid, daemon.clock.now()))
}

pub(crate) fn revoke(daemon: &Daemon, peer: &Peer, name: &str, uid: Option<u32>) -> Result<Answer, Failure> {
    let uid = uid.unwrap_or(peer.owner.uid);
    if uid != peer.owner.uid {
        operator(peer)?;
    }
    daemon.api.tokens.revoke(uid, name).map_err(|e| refused(&e))?;
    Ok(Answer::Done { detail: format!("token {name} is no longer valid") })
}

fn refused(e: &TokenError) -> Failure {
    let (code, hint) = match e {
        TokenError::Name(_) => {
            (ErrorCode::BadRequest, "40 characters at most, of a-z, 0-9, `-`, `_` and `.`")
        }
        TokenError::Life => (ErrorCode::BadRequest, "give a shorter time, above 0"),
        TokenError::Many | TokenError::Taken(_) => {
            (ErrorCode::Rejected, "`phalanx token list` shows them, and `phalanx token revoke NAME` ends one")
        }
        TokenError::Unknown(_) => (ErrorCode::NotFound, "`phalanx token list` shows them"),
        TokenError::Io(_) | TokenError::Random => (ErrorCode::Unavailable, "see the daemon's log"),
    };
    refuse(code, e.to_string(), hint)
}
