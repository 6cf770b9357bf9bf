//! The API server listens on the machine's loopback, and a node has a loopback of its own: here it has the same port. Pods reach
//! it at the address of the Service `kubernetes`, as if kube-proxy ran.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use nix::sched::{CloneFlags, setns};

use crate::error::Error;

use super::namespaces::Namespaces;

/// Connections are taken until it is dropped.
#[derive(Debug)]
pub(super) struct Relay {
    listener: Arc<TcpListener>,
}

impl Relay {
    /// An address in a node whose connections go to a port of the machine.
    pub(super) fn start(node: &Namespaces, inside: SocketAddrV4, port: u16) -> Result<Self, Error> {
        let network = node.network();
        let namespace = File::open(&network).map_err(Error::io("open", &network))?;
        // A socket belongs to the network of the thread that made it; this thread ends with that.
        let made = std::thread::spawn(move || -> io::Result<TcpListener> {
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            TcpListener::bind(inside)
        });
        let listener = made.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")));
        let listener = Arc::new(listener.map_err(Error::io("listen in", &network))?);
        let accepts = Arc::clone(&listener);
        std::thread::spawn(move || {
            // Fails once the listener is shut.
            while let Ok((inner, _)) = accepts.accept() {
                if let Ok(outer) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                    join(inner, outer);
                }
            }
        });
        Ok(Self { listener })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // It fails only where nobody listens any more.
        let _ = nix::sys::socket::shutdown(self.listener.as_raw_fd(), nix::sys::socket::Shutdown::Both);
    }
}

/// Carries bytes both ways until either side ends.
fn join(inner: TcpStream, outer: TcpStream) {
    let (Ok(inner_copy), Ok(outer_copy)) = (inner.try_clone(), outer.try_clone()) else { return };
    carry(inner, outer);
    carry(outer_copy, inner_copy);
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        // Whichever side ends first ends both; there is nobody to tell.
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}
