//! Whose connections come in: of each user a limited number, whether they have tokens or not.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections of one user at a time.
const OF_USER_MAX: usize = 64;
/// The kernel's table of connections, for IPv4 and IPv6.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// Connections that are open, by the user whose process opened them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients(Arc<Mutex<BTreeMap<Option<u32>, usize>>>);

/// One connection; given back when dropped.
#[derive(Debug)]
pub(crate) struct Client {
    clients: Clients,
    uid: Option<u32>,
}

impl Clients {
    fn open(&self) -> MutexGuard<'_, BTreeMap<Option<u32>, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection in, unless its user has too many. Root has no limit, so that operators can always ask.
    pub(crate) fn let_in(&self, client: SocketAddr) -> Option<Client> {
        self.of_user(user_of(client))
    }

    fn of_user(&self, uid: Option<u32>) -> Option<Client> {
        let mut open = self.open();
        let of_user = open.entry(uid).or_default();
        if *of_user >= OF_USER_MAX && uid != Some(0) {
            return None;
        }
        *of_user += 1;
        Some(Client { clients: self.clone(), uid })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut open = self.clients.open();
        let left = open.get_mut(&self.uid).map_or(0, |of_user| {
            *of_user = of_user.saturating_sub(1);
            *of_user
        });
        if left == 0 {
            open.remove(&self.uid);
        }
    }
}

/// The user whose process opened a connection of this machine, as the kernel has it.
fn user_of(client: SocketAddr) -> Option<u32> {
    let local = in_table(client);
    TABLES.iter().filter_map(|table| fs::read_to_string(table).ok()).find_map(|table| user_in(&table, &local))
}

/// A line has the number of the socket, its own address, the other's, its state, three fields, and its user.
fn user_in(table: &str, local: &str) -> Option<u32> {
    let mut lines = table.lines().skip(1).map(str::split_ascii_whitespace);
    let mut line = lines.find(|line| line.clone().nth(1) == Some(local))?;
    line.nth(7)?.parse().ok()
}

/// `0100007F:1BA5`: the bytes of an address as words of this machine, and its port.
fn in_table(address: SocketAddr) -> String {
    let words = match address.ip() {
        IpAddr::V4(ip) => vec![ip.octets()],
        IpAddr::V6(ip) => {
            ip.octets().chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]).collect()
        }
    };
    let words = words.into_iter().map(|word| format!("{:08X}", u32::from_ne_bytes(word)));
    format!("{}:{:04X}", words.collect::<String>(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_user_of_a_connection_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own: Option<u32> = fs::read_to_string("/proc/self/status").unwrap().lines().find_map(|line| {
            let uids = line.strip_prefix("Uid:")?;
            uids.split_ascii_whitespace().next()?.parse().ok()
        });
        assert_eq!(user_of(stream.local_addr().unwrap()), own);
        assert_eq!(user_of("127.0.0.1:1".parse().unwrap()), None);
        let table = "  sl  local_address rem_address\n   0: 0100007F:1BA5 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1007        0 5\n";
        assert_eq!(user_in(table, "0100007F:1BA5"), Some(1007));
    }

    #[test]
    fn each_user_has_a_limit_and_root_has_none() {
        let clients = Clients::default();
        let take = |uid| clients.of_user(uid);
        let of_ann: Vec<Client> = std::iter::from_fn(|| take(Some(1))).collect();
        assert_eq!(of_ann.len(), OF_USER_MAX);
        let of_nobody: Vec<Client> = std::iter::from_fn(|| take(None)).collect();
        assert_eq!(of_nobody.len(), OF_USER_MAX, "of which the user is not known");
        let of_root: Vec<Client> = (0..=OF_USER_MAX).filter_map(|_| take(Some(0))).collect();
        assert_eq!(of_root.len(), OF_USER_MAX + 1);
        drop((of_ann, of_root));
        assert!(take(Some(1)).is_some());
        drop(of_nobody);
        assert!(clients.open().is_empty());
    }
}
