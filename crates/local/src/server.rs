//! The control socket: who asks is what the kernel says, and one thread serves each connection.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use phalanx_api::{Peer, Reply};
use phalanx_model::Owner;

use crate::daemon::Daemon;
use crate::threads;
use crate::user;
use crate::verbs;
use phalanx_api::protocol::{Answer, ErrorCode, ErrorView, REQUEST_BYTES_MAX, Request, VERSION};

/// Connections of one user served at once; one more is told to come back.
const CONNECTIONS_PER_USER: usize = 64;
/// Connections of all users, and of one operator.
const CONNECTIONS_MAX: usize = 1_024;
/// Bytes of requests of one user that are held at once: what is being read, and what is being answered.
const REQUEST_BYTES_PER_USER: usize = 2 * REQUEST_BYTES_MAX;
/// Characters of a client's version in an answer.
const VERSION_SHOWN: usize = 40;
/// How long a client may take to send its request, or to take an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Answers as lines of JSON.
struct Lines {
    out: BufWriter<UnixStream>,
}

impl Reply for Lines {
    fn send(&mut self, answer: &Answer) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, answer)?;
        self.out.write_all(b"\n")
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn is_gone(&self) -> bool {
        let stream = self.out.get_ref();
        let mut byte = [0];
        if stream.set_nonblocking(true).is_err() {
            return true;
        }
        let read = (&mut &*stream).read(&mut byte);
        let back = stream.set_nonblocking(false);
        matches!(read, Ok(0)) || back.is_err()
    }
}

/// Serves until the listener is closed.
pub(crate) fn serve(listener: &UnixListener, daemon: &Arc<Daemon>) {
    let serving: Serving = Arc::default();
    for stream in listener.incoming() {
        let Ok((stream, peer)) = stream.and_then(|s| peer_of(&s).map(|p| (s, p))) else {
            // Out of descriptors, most likely: let some close.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        let Some(place) = Place::take(&serving, &peer) else {
            refuse(stream);
            continue;
        };
        let Ok(spare) = stream.try_clone() else { continue };
        let daemon = Arc::clone(daemon);
        let conversation = move || {
            let peer = named(peer);
            // A client that breaks off is its own affair.
            let _ = converse(stream, &peer, &daemon, place);
        };
        if threads::single("client", conversation).is_err() {
            refuse(spare);
        }
    }
}

/// Who is served, by user.
type Serving = Arc<Mutex<BTreeMap<u32, Served>>>;

/// What one user takes of the server.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    connections: usize,
    request_bytes: usize,
    is_operator: bool,
}

/// A user's place among the connections; given back when dropped, with the bytes of its request.
struct Place {
    serving: Serving,
    uid: u32,
    bytes: usize,
}

impl Place {
    /// No user can take the places of others, and no number of users those of operators.
    fn take(serving: &Serving, peer: &Peer) -> Option<Self> {
        let uid = peer.owner.uid;
        let mut served = serving.lock().unwrap_or_else(PoisonError::into_inner);
        let of_users = served.values().filter(|of| !of.is_operator).map(|of| of.connections).sum::<usize>();
        let own = served.entry(uid).or_default();
        own.is_operator = peer.is_operator;
        let has_room = if peer.is_operator {
            own.connections < CONNECTIONS_MAX
        } else {
            own.connections < CONNECTIONS_PER_USER && of_users < CONNECTIONS_MAX
        };
        if !has_room {
            if own.connections == 0 {
                served.remove(&uid);
            }
            return None;
        }
        own.connections += 1;
        Some(Self { serving: Arc::clone(serving), uid, bytes: 0 })
    }

    /// Room for a request that has grown by so many bytes; none if the user's requests take too much together.
    fn hold(&mut self, bytes: usize) -> Option<()> {
        let mut served = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        let own = served.entry(self.uid).or_default();
        let held = own.request_bytes.saturating_add(bytes);
        if held > REQUEST_BYTES_PER_USER {
            return None;
        }
        own.request_bytes = held;
        self.bytes = self.bytes.saturating_add(bytes);
        Some(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut served = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = served.get_mut(&self.uid) {
            own.connections = own.connections.saturating_sub(1);
            own.request_bytes = own.request_bytes.saturating_sub(self.bytes);
            if own.connections == 0 {
                served.remove(&self.uid);
            }
        }
    }
}

fn refuse(stream: UnixStream) {
    let mut reply = Lines { out: BufWriter::new(stream) };
    let busy = ErrorView::new(ErrorCode::Unavailable, "too many connections", "try again in a moment");
    // Without waiting: a client that does not read must not hold up the others.
    let quick = reply.out.get_ref().set_write_timeout(Some(Duration::from_millis(100)));
    let _ = quick.and_then(|()| reply.send(&Answer::Error(busy))).and_then(|()| reply.flush());
}

/// The place is held until the answer is sent.
fn converse(stream: UnixStream, peer: &Peer, daemon: &Arc<Daemon>, mut place: Place) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reply = Lines { out: BufWriter::new(stream.try_clone()?) };
    let request = match read_request(stream, &mut place) {
        Ok(request) => request,
        Err(why) => {
            let error =
                ErrorView::new(ErrorCode::BadRequest, why, "use the phalanx command of the daemon's version");
            reply.send(&Answer::Error(error))?;
            return reply.flush();
        }
    };
    if let Err(error) = verbs::answer(daemon, peer, request.verb, &mut reply) {
        match error {
            verbs::Failure::Told(error) => reply.send(&Answer::Error(error))?,
            verbs::Failure::Gone => return Ok(()),
        }
    }
    reply.flush()
}

fn peer_of(stream: &UnixStream) -> io::Result<Peer> {
    let credentials = getsockopt(stream, PeerCredentials)?;
    Ok(peer(credentials.uid(), credentials.gid()))
}

/// Root, or the user that the daemon runs as.
pub(crate) fn is_of_daemon(uid: u32) -> bool {
    uid == 0 || uid == nix::unistd::geteuid().as_raw()
}

/// A user by number.
pub(crate) fn peer(uid: u32, gid: u32) -> Peer {
    let is_operator = is_of_daemon(uid);
    let owner = Owner { uid, gid, name: uid.to_string() };
    Peer { owner, is_operator, is_known: false, is_reader: false, login: None, cluster_user: None }
}

/// With the name of the peer. Waits for the name service: to be called on the thread of the connection alone.
pub(crate) fn named(peer: Peer) -> Peer {
    match user::account(peer.owner.uid, peer.owner.gid) {
        Ok(account) => Peer { owner: Owner { name: account.name, ..peer.owner }, is_known: true, ..peer },
        Err(_) => peer,
    }
}

fn read_request(mut stream: UnixStream, place: &mut Place) -> Result<Request, String> {
    let until = Instant::now() + PATIENCE;
    let mut line: Vec<u8> = Vec::new();
    let mut chunk = [0; 16 << 10];
    while line.last() != Some(&b'\n') {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let got = stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut chunk));
        let read = chunk.get(..got.map_err(|e| e.to_string())?).unwrap_or_default();
        if read.is_empty() || line.len() + read.len() > REQUEST_BYTES_MAX {
            return Err(format!("the request has no end, or is longer than {REQUEST_BYTES_MAX} bytes"));
        }
        place.hold(read.len()).ok_or("the requests of this user take too much memory together; try again")?;
        // What comes behind the end belongs to no request.
        let end = read.iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(end.map_or(read, |end| read.get(..=end).unwrap_or(read)));
    }
    let request: Request = serde_json::from_slice(&line).map_err(|e| format!("not a request: {e}"))?;
    if request.version != VERSION {
        // A client's word goes no further than to itself.
        let version: String = request.version.chars().take(VERSION_SHOWN).collect();
        return Err(format!("the request is of version {version:?}, this daemon speaks {VERSION}"));
    }
    Ok(request)
}

#[cfg(test)]
mod tests;
