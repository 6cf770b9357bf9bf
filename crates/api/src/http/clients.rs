//! Whose connections come in: of each user of this machine and of each address elsewhere a limited number, whether they have
//! tokens or not.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::serve::CONNECTIONS;

/// Connections of one user at a time.
const OF_USER_MAX: usize = 64;
/// Connections of one address of another machine: people may share one.
const OF_ADDRESS_MAX: usize = 128;
/// Connections of all other machines: the users of this machine keep a part.
const FROM_ELSEWHERE_MAX: usize = CONNECTIONS / 4 * 3;
/// The kernel's table of connections, for IPv4 and IPv6.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// Who opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Opener {
    /// A process of this user on this machine; `None` if the kernel does not know whose it was.
    User(Option<u32>),
    /// Another machine; of an IPv6 address the first 64 bits, of which one machine may have all.
    Address(IpAddr),
}

/// Connections that are open, by who opened them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients(Arc<Mutex<BTreeMap<Opener, usize>>>);

/// One connection; given back when dropped.
#[derive(Debug)]
pub(crate) struct Client {
    clients: Clients,
    opener: Opener,
}

impl Clients {
    fn open(&self) -> MutexGuard<'_, BTreeMap<Opener, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection in, unless its user or its address has too many. Root has no limit, so that operators can always ask.
    pub(crate) fn let_in(&self, client: SocketAddr, own: SocketAddr) -> Option<Client> {
        self.of(opener(client, own))
    }

    fn of(&self, opener: Opener) -> Option<Client> {
        let mut open = self.open();
        let elsewhere = |open: &BTreeMap<Opener, usize>| -> usize {
            open.iter().filter(|(of, _)| matches!(of, Opener::Address(_))).map(|(_, count)| count).sum()
        };
        let count = open.get(&opener).copied().unwrap_or_default();
        let has_room = match opener {
            Opener::User(uid) => count < OF_USER_MAX || uid == Some(0),
            Opener::Address(_) => count < OF_ADDRESS_MAX && elsewhere(&open) < FROM_ELSEWHERE_MAX,
        };
        if !has_room {
            return None;
        }
        open.insert(opener, count + 1);
        Some(Client { clients: self.clone(), opener })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut open = self.clients.open();
        let left = open.get_mut(&self.opener).map_or(0, |count| {
            *count = count.saturating_sub(1);
            *count
        });
        if left == 0 {
            open.remove(&self.opener);
        }
    }
}

/// A process of this machine asks from a loopback address, or from the address that it asks.
fn opener(client: SocketAddr, own: SocketAddr) -> Opener {
    let (from, to) = (client.ip().to_canonical(), own.ip().to_canonical());
    if from.is_loopback() || from == to {
        return Opener::User(user_of(client, own));
    }
    Opener::Address(match from {
        IpAddr::V6(from) => {
            let [a, b, c, d, ..] = from.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    })
}

/// The user whose process opened a connection of this machine, as the kernel has it.
fn user_of(client: SocketAddr, own: SocketAddr) -> Option<u32> {
    // A server of both families sees an IPv4 client under an IPv6 address, and the client's socket is one of IPv4.
    let canonical = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
    let ends = [(client, own), (canonical(client), canonical(own))];
    let ends = ends.map(|(client, own)| (in_table(client), in_table(own)));
    let mut tables = TABLES.iter().filter_map(|table| fs::read_to_string(table).ok());
    tables.find_map(|table| ends.iter().find_map(|(client, own)| user_in(&table, client, own)))
}

/// A line has the number of the socket, its own address, the other's, its state, three fields, its user, a field, and its inode.
/// A socket that its process has closed has no inode, and root as its user.
fn user_in(table: &str, client: &str, own: &str) -> Option<u32> {
    let is_it = |line: &Vec<&str>| {
        line.get(1) == Some(&client)
            && line.get(2) == Some(&own)
            && line.get(9).is_some_and(|inode| *inode != "0")
    };
    let line = table.lines().skip(1).map(|line| line.split_ascii_whitespace().collect()).find(is_it)?;
    line.get(7)?.parse().ok()
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

    fn own_uid() -> Option<u32> {
        fs::read_to_string("/proc/self/status").unwrap().lines().find_map(|line| {
            let uids = line.strip_prefix("Uid:")?;
            uids.split_ascii_whitespace().next()?.parse().ok()
        })
    }

    #[test]
    fn the_user_of_a_connection_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = own_uid();
        let server = listener.local_addr().unwrap();
        assert_eq!(user_of(stream.local_addr().unwrap(), server), own);
        assert_eq!(user_of("127.0.0.1:1".parse().unwrap(), server), None);
        let table = "  sl  local_address rem_address\n   0: 0100007F:1BA5 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1007        0 5\n";
        assert_eq!(user_in(table, "0100007F:1BA5", "0100007F:D431"), Some(1007));
        assert_eq!(user_in(table, "0100007F:1BA5", "0100007F:D432"), None, "to another server");
        let closed = table.replace(" 5\n", " 0\n");
        assert_eq!(user_in(&closed, "0100007F:1BA5", "0100007F:D431"), None, "closed");
    }

    #[test]
    fn an_ipv4_client_of_a_server_of_both_families_is_known() {
        let Ok(listener) = TcpListener::bind("[::]:0") else { return };
        let port = listener.local_addr().unwrap().port();
        let _stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (accepted, from) = listener.accept().unwrap();
        assert_eq!(opener(from, accepted.local_addr().unwrap()), Opener::User(own_uid()));
    }

    #[test]
    fn each_user_and_each_address_has_a_limit_and_root_has_none() {
        let clients = Clients::default();
        let take = |uid| clients.of(Opener::User(uid));
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

        let from = |last: u8| clients.of(Opener::Address(IpAddr::from([192, 0, 2, last])));
        let all: Vec<Vec<Client>> = (0..20).map(|last| std::iter::from_fn(|| from(last)).collect()).collect();
        assert_eq!(all[0].len(), OF_ADDRESS_MAX);
        assert_eq!(all.iter().map(Vec::len).sum::<usize>(), FROM_ELSEWHERE_MAX);
        assert!(take(Some(1)).is_some(), "users of this machine keep a part");
        drop(all);
        assert!(from(1).is_some());
    }

    #[test]
    fn a_client_from_elsewhere_is_counted_by_its_address() {
        let own = "192.0.2.1:7077".parse().unwrap();
        let of = |client: &str| opener(client.parse().unwrap(), own);
        let address = |text: &str| Opener::Address(text.parse().unwrap());
        assert_eq!(of("192.0.2.9:4000"), address("192.0.2.9"));
        assert_eq!(of("[::ffff:192.0.2.9]:4000"), address("192.0.2.9"));
        assert_eq!(of("[2001:db8:1:2:3:4:5:6]:4000"), address("2001:db8:1:2::"));
        assert_eq!(of("192.0.2.1:1"), Opener::User(None), "of this machine, and gone");
        assert_eq!(of("127.0.0.1:1"), Opener::User(None));
    }
}
