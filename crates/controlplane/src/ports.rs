//! Free ports on loopback.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::error::Error;

/// Below what the kernel gives to outgoing connections, so that none of those takes a port between its choice and
/// the start of the server that it is for.
const FIRST: u16 = 20_000;
const LAST: u16 = 29_999;

/// A port that nobody listens on. Its lock keeps other control planes of the user from choosing it too.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    _lock: File,
}

/// One free port; the locks are files in `folder`.
pub(crate) fn free(folder: &Path) -> Result<Port, Error> {
    // Each process begins elsewhere, so that several do not try the same ports one after the other.
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = u16::try_from(std::process::id() % 1_000).unwrap_or(0) * 10;
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    for _ in FIRST..=LAST {
        let at = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let number = FIRST + at % (LAST - FIRST + 1);
        let path = folder.join(number.to_string());
        let lock = File::create(&path).map_err(Error::io("create", &path))?;
        if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
            return Ok(Port { number, _lock: lock });
        }
    }
    Err(Error::NoPort { first: FIRST, last: LAST })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_as_long_as_it_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let held: Vec<Port> = (0..50).map(|_| free(folder.path()).unwrap()).collect();
        let mut numbers: Vec<u16> = held.iter().map(|port| port.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50);
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let taken = free(folder.path()).unwrap();
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, taken.number)).unwrap();
        let number = taken.number;
        drop(taken);
        let others: Vec<Port> = (0..20).map(|_| free(folder.path()).unwrap()).collect();
        assert!(others.iter().all(|port| port.number != number));
    }
}
