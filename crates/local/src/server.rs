//! The control socket: who asks is what the kernel says.

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use phalanx_api::http::{self, Backend, NoPeer};
use phalanx_api::protocol::{ErrorView, Verb};
use phalanx_api::{Peer, Reply};
use phalanx_model::Owner;

use crate::daemon::Daemon;
use crate::threads;
use crate::user;
use crate::verbs::{self, Failure};

/// Serves on a thread of its own until the process ends.
pub(crate) fn serve(listener: UnixListener, daemon: &Arc<Daemon>) -> io::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // Every caller may hold a thread, and one more while its name is looked up.
    let runtime = runtime.worker_threads(2).max_blocking_threads(2 * http::CALLERS);
    let runtime = runtime.thread_name("client").enable_all().build()?;
    let backend = Arc::new(AtSocket(Arc::clone(daemon)));
    threads::vital("server", move || {
        if let Err(error) = runtime.block_on(http::serve_socket(listener, backend, peer, named)) {
            tracing::warn!(%error, "the control socket is no longer served");
        }
    })?;
    Ok(())
}

/// The daemon as the users of this machine see it.
struct AtSocket(Arc<Daemon>);

impl Backend for AtSocket {
    fn peer(&self, _: &str) -> Result<Peer, NoPeer> {
        Err(NoPeer::Unauthorized("the kernel says who asks at this socket"))
    }

    fn answer(&self, peer: &Peer, verb: Verb, reply: &mut dyn Reply) -> Result<(), ErrorView> {
        match verbs::answer(&self.0, peer, verb, reply) {
            Ok(()) | Err(Failure::Gone) => Ok(()),
            Err(Failure::Told(error)) => Err(error),
        }
    }
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
