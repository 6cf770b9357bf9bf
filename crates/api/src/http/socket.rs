//! The control socket: HTTP for the users of this machine. Who asks is what the kernel says, and no token is needed.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::{Extension, Router};
use phalanx_shell::http::{self, Limits};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tower::Layer as _;

use super::hosts::Hosts;
use super::problem::Problem;
use super::{Backend, router};
use crate::Peer;
use crate::protocol::REQUEST_BYTES_MAX;

/// Connections of one user served at once; one more is told to come back.
const CONNECTIONS_OF_USER: usize = 64;
/// Connections of all users, and of one operator.
pub const CALLERS: usize = 1_024;
/// Bytes of requests of one user that are held at once: what is being read, and what is being answered.
const REQUEST_BYTES_OF_USER: usize = 2 * REQUEST_BYTES_MAX;
/// How long a client may take to send the head of its request, and may take nothing of an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the server waits if the process has no descriptors left.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a client that is told to come back may take to read it: it must not hold up the others.
const REFUSAL: Duration = Duration::from_millis(100);

const LIMITS: Limits = Limits {
    connections: 2 * CALLERS,
    handshake: PATIENCE,
    head: PATIENCE,
    write: PATIENCE,
    connection: None,
};

/// Who asks over a socket. Every request of the connection has it among its extensions.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) peer: Peer,
    place: Arc<Mutex<Place>>,
}

impl Caller {
    /// Room for a request that has grown by so many bytes; none if the requests of the user take too much together.
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), Box<Problem>> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        place.hold(bytes).ok_or_else(|| {
            let detail = "the requests of this user take too much memory together";
            let status = axum::http::StatusCode::SERVICE_UNAVAILABLE;
            Problem::new(status, "unavailable", detail, "try again in a moment")
        })
    }
}

/// Serves until the task ends. `peer` tells who a user and a group are, without waiting; `named` gives the peer its name, and
/// may wait for the name service.
///
/// # Errors
/// When the runtime cannot take the listener; failures to accept are tried again.
pub async fn serve_socket(
    listener: UnixListener,
    backend: Arc<dyn Backend>,
    peer: fn(u32, u32) -> Peer,
    named: fn(Peer) -> Peer,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let (routes, callers) = (router(backend, Hosts::of_socket()), Callers::default());
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let Ok(credentials) = stream.peer_cred() else { continue };
        let peer = peer(credentials.uid(), credentials.gid());
        let Some(place) = callers.take(&peer) else {
            tokio::spawn(refuse(stream));
            continue;
        };
        let routes = routes.clone();
        tokio::spawn(async move {
            let Ok(peer) = spawn_blocking(move || named(peer)).await else { return };
            converse(stream, routes, Caller { peer, place: Arc::new(Mutex::new(place)) }).await;
        });
    }
}

/// The place is held until the connection ends.
async fn converse(stream: UnixStream, routes: Router, caller: Caller) {
    http::serve_one(stream, Extension(caller).layer(routes), LIMITS).await;
}

async fn refuse(mut stream: UnixStream) {
    let hint = "try again in a moment";
    let status = axum::http::StatusCode::SERVICE_UNAVAILABLE;
    let problem = Problem::new(status, "unavailable", "too many connections", hint);
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let head =
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nconnection: close\r\n";
    let text = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    // A client that does not read it has gone, or comes back.
    let _ = timeout(REFUSAL, stream.write_all(text.as_bytes())).await;
}

/// Who is served, by user.
#[derive(Clone, Default)]
struct Callers(Arc<Mutex<BTreeMap<u32, Served>>>);

/// What one user takes of the server.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    connections: usize,
    request_bytes: usize,
    is_operator: bool,
}

/// A user's place among the connections; given back when dropped, with the bytes of its requests.
struct Place {
    callers: Callers,
    uid: u32,
    bytes: usize,
}

impl Callers {
    fn served(&self) -> MutexGuard<'_, BTreeMap<u32, Served>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No user can take the places of others, and no number of users those of operators.
    fn take(&self, peer: &Peer) -> Option<Place> {
        let uid = peer.owner.uid;
        let mut served = self.served();
        let of_users = served.values().filter(|of| !of.is_operator).map(|of| of.connections).sum::<usize>();
        let own = served.entry(uid).or_default();
        own.is_operator = peer.is_operator;
        let has_room = if peer.is_operator {
            own.connections < CALLERS
        } else {
            own.connections < CONNECTIONS_OF_USER && of_users < CALLERS
        };
        if !has_room {
            if own.connections == 0 {
                served.remove(&uid);
            }
            return None;
        }
        own.connections += 1;
        Some(Place { callers: self.clone(), uid, bytes: 0 })
    }
}

impl Place {
    fn hold(&mut self, bytes: usize) -> Option<()> {
        let mut served = self.callers.served();
        let own = served.entry(self.uid).or_default();
        let held = own.request_bytes.saturating_add(bytes);
        if held > REQUEST_BYTES_OF_USER {
            return None;
        }
        own.request_bytes = held;
        self.bytes = self.bytes.saturating_add(bytes);
        Some(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut served = self.callers.served();
        if let Some(own) = served.get_mut(&self.uid) {
            own.connections = own.connections.saturating_sub(1);
            own.request_bytes = own.request_bytes.saturating_sub(self.bytes);
            if own.connections == 0 {
                served.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use phalanx_model::Owner;

    use super::*;

    fn peer(uid: u32, is_operator: bool) -> Peer {
        Peer {
            owner: Owner { uid, gid: uid, name: uid.to_string() },
            is_operator,
            is_known: true,
            is_reader: false,
            login: None,
            cluster_user: None,
        }
    }

    #[test]
    fn connections_are_bounded_for_a_user_for_all_users_and_for_operators() {
        let callers = Callers::default();
        let take = |uid, is_operator| callers.take(&peer(uid, is_operator));
        let mut places: Vec<Place> = (1..).map_while(|_| take(1, false)).collect();
        assert_eq!(places.len(), CONNECTIONS_OF_USER);
        places.extend((2..2_000).filter_map(|uid| take(uid, false)));
        assert_eq!(places.len(), CALLERS);
        let operators: Vec<Place> = (1..).map_while(|_| take(0, true)).collect();
        assert_eq!(operators.len(), CALLERS, "whatever users take");
        places.remove(0);
        assert!(take(1, false).is_some() && take(5_000, false).is_some());
        drop((places, operators));
        assert!(callers.served().is_empty());
    }

    #[test]
    fn requests_of_one_user_are_bounded_together() {
        let callers = Callers::default();
        let take = |uid| callers.take(&peer(uid, false)).unwrap();
        let mut own = [take(1), take(1), take(1)];
        let held: Vec<bool> = own.iter_mut().map(|place| place.hold(REQUEST_BYTES_MAX).is_some()).collect();
        assert_eq!(held, [true, true, false]);
        assert!(take(2).hold(REQUEST_BYTES_MAX).is_some(), "another user has room");
        drop(own);
        assert!(callers.served().is_empty());
    }
}
