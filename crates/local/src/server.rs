//! The control socket: who asks is what the kernel says, and one thread serves each connection.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use phalanx_model::Owner;

use crate::daemon::Daemon;
use crate::protocol::{Answer, ErrorCode, ErrorView, REQUEST_BYTES_MAX, Request, VERSION};
use crate::say::say;
use crate::threads;
use crate::user;
use crate::verbs;

/// Connections of one user served at once; one more is told to come back. Operators have no limit.
const CONNECTIONS_PER_USER: usize = 64;
/// How long a client may take to send its request, or to take an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who is on the other end.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) owner: Owner,
    /// Root, or the user that the daemon runs as.
    pub(crate) is_operator: bool,
}

/// Where answers go; a client that is gone ends the work for it.
pub(crate) struct Reply {
    out: BufWriter<UnixStream>,
}

impl Reply {
    pub(crate) fn send(&mut self, answer: &Answer) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, answer)?;
        self.out.write_all(b"\n")
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Whether the client hung up while nothing was to be sent.
    pub(crate) fn is_gone(&self) -> bool {
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
            let _place = place;
            // A client that breaks off is its own affair.
            let _ = converse(stream, &peer, &daemon);
        };
        if threads::single("client", conversation).is_err() {
            refuse(spare);
        }
    }
}

/// Connections per user.
type Serving = Arc<Mutex<BTreeMap<u32, usize>>>;

/// A user's place among the connections; given back when dropped.
struct Place {
    serving: Serving,
    uid: u32,
}

impl Place {
    /// No user can take the places of others; operators always get one.
    fn take(serving: &Serving, peer: &Peer) -> Option<Self> {
        let uid = peer.owner.uid;
        let mut counts = serving.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(uid).or_default();
        if *count >= CONNECTIONS_PER_USER && !peer.is_operator {
            return None;
        }
        *count += 1;
        Some(Self { serving: Arc::clone(serving), uid })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.uid) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.uid);
            }
        }
    }
}

fn refuse(stream: UnixStream) {
    let mut reply = Reply { out: BufWriter::new(stream) };
    let busy = ErrorView::new(ErrorCode::Unavailable, "too many connections", "try again in a moment");
    // Without waiting: a client that does not read must not hold up the others.
    let quick = reply.out.get_ref().set_write_timeout(Some(Duration::from_millis(100)));
    let _ = quick.and_then(|()| reply.send(&Answer::Error(busy))).and_then(|()| reply.flush());
}

fn converse(stream: UnixStream, peer: &Peer, daemon: &Arc<Daemon>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reply = Reply { out: BufWriter::new(stream.try_clone()?) };
    let request = match read_request(stream) {
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
    let peer = getsockopt(stream, PeerCredentials)?;
    let is_operator = peer.uid() == 0 || peer.uid() == nix::unistd::geteuid().as_raw();
    Ok(Peer { owner: user::owner(peer.uid(), peer.gid()), is_operator })
}

fn read_request(stream: UnixStream) -> Result<Request, String> {
    let mut line = Vec::new();
    let limit = REQUEST_BYTES_MAX as u64;
    BufReader::new(stream).take(limit).read_until(b'\n', &mut line).map_err(|e| e.to_string())?;
    if line.last() != Some(&b'\n') {
        return Err(format!("the request has no end, or is longer than {limit} bytes"));
    }
    let request: Request = serde_json::from_slice(&line).map_err(|e| format!("not a request: {e}"))?;
    if request.version != VERSION {
        say(&format!("a client speaks {}, this daemon {VERSION}", request.version));
        return Err(format!("the request is of version {}, this daemon speaks {VERSION}", request.version));
    }
    Ok(request)
}
