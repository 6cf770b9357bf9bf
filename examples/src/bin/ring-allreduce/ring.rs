//! The data plane: a connection from the rank before, one to the rank after.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::settings::Settings;
use crate::wire::Start;

/// Bytes are received and added in blocks of this size: it fits a second-level cache.
const BLOCK_BYTES: usize = 256 << 10;
/// First bytes of each connection, followed by the token and the rank.
const GREETING: [u8; 4] = *b"PXR1";
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) struct Ring {
    rank: usize,
    world: usize,
    pub(crate) resumed_from: u64,
    /// None when this rank is alone.
    links: Option<Links>,
    block: Vec<u8>,
}

struct Links {
    before: TcpStream,
    after: TcpStream,
    timeout: Duration,
    /// To the thread that sends to `after`, and used buffers back from it.
    outgoing: Sender<Vec<u8>>,
    used: Receiver<Vec<u8>>,
}

/// A neighbour that this rank cannot go on without.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) rank: u32,
    pub(crate) how: String,
}

impl Ring {
    /// Connects both neighbours. The listener was made when this rank joined, so nobody needs to wait long.
    pub(crate) fn connect(
        settings: &Settings,
        start: &Start,
        listener: &TcpListener,
    ) -> Result<Self, Failure> {
        let (rank, n) = (settings.rank as usize, settings.world_size as usize);
        let (resumed_from, block) = (start.resume, Vec::new());
        if n == 1 {
            return Ok(Self { rank, world: n, resumed_from, links: None, block });
        }
        let until = Instant::now() + settings.timeout();
        let (rank_after, rank_before) = ((rank + 1) % n, (rank + n - 1) % n);
        let lost = |rank| move |e: io::Error| failure(rank, format!("cannot connect: {e}"));
        let Some(address) = start.ring.get(rank_after) else {
            return Err(failure(0, "it gave out a ring that is too short".to_owned()));
        };
        let greeting = |rank: usize| greeting(start.token, u32::try_from(rank).unwrap_or(u32::MAX));
        let after =
            dial(*address, until).and_then(|s| greet(s, &greeting(rank))).map_err(lost(rank_after))?;
        let before = accept(listener, until, &greeting(rank_before)).map_err(lost(rank_before))?;
        let links = Links::new(before, after, settings.timeout()).map_err(lost(rank_after))?;
        Ok(Self { rank, world: n, resumed_from, links: Some(links), block })
    }

    /// Copies of both connections, to be shut down when a rank is lost.
    pub(crate) fn sockets(&self) -> Vec<TcpStream> {
        let links = self.links.iter().flat_map(|l| [&l.before, &l.after]);
        links.filter_map(|socket| socket.try_clone().ok()).collect()
    }

    /// Every rank's `data` becomes the sum of all.
    pub(crate) fn all_reduce(&mut self, data: &mut [f32]) -> Result<(), Failure> {
        let Self { rank, world: n, .. } = *self;
        let Some(links) = &mut self.links else { return Ok(()) };
        let length = data.len();
        let part = |index| chunk(length, n, index);
        // Reduce-scatter: after n − 1 exchanges, this rank has the sum of chunk rank + 1.
        for k in 0..n - 1 {
            links.send(n, rank, &data[part(rank + n - k)])?;
            let incoming = &mut data[part(rank + n - k - 1)];
            links.receive(n, rank, incoming, &mut self.block, |own, other| *own += other)?;
        }
        // All-gather: the sums go round.
        for k in 0..n - 1 {
            links.send(n, rank, &data[part(rank + 1 + n - k)])?;
            let incoming = &mut data[part(rank + n - k)];
            links.receive(n, rank, incoming, &mut self.block, |own, other| *own = other)?;
        }
        Ok(())
    }
}

/// Elements of the part `index mod n`; parts differ by one element at most, and may be empty.
fn chunk(length: usize, n: usize, index: usize) -> Range<usize> {
    let (index, size, rest) = (index % n, length / n, length % n);
    let begin = index * size + index.min(rest);
    begin..begin + size + usize::from(index < rest)
}

impl Links {
    fn new(before: TcpStream, after: TcpStream, timeout: Duration) -> io::Result<Self> {
        before.set_read_timeout(Some(timeout))?;
        after.set_write_timeout(Some(timeout))?;
        let (outgoing, queue) = mpsc::channel::<Vec<u8>>();
        let (back, used) = mpsc::channel();
        let mut target = after.try_clone()?;
        thread::Builder::new().name("send".to_owned()).spawn(move || {
            for buffer in queue {
                // Its end closes the queue, which the next send notices.
                if target.write_all(&buffer).is_err() || back.send(buffer).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { before, after, timeout, outgoing, used })
    }

    fn send(&self, n: usize, rank: usize, data: &[f32]) -> Result<(), Failure> {
        let mut buffer = self.used.try_recv().unwrap_or_default();
        buffer.resize(size_of_val(data), 0);
        for (bytes, value) in buffer.chunks_exact_mut(4).zip(data) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        self.outgoing.send(buffer).map_err(|_| {
            let how = format!("it took nothing for {} s, or closed its connection", self.timeout.as_secs());
            failure((rank + 1) % n, how)
        })
    }

    /// Joins what the rank before sends with `data`.
    fn receive(
        &mut self,
        n: usize,
        rank: usize,
        data: &mut [f32],
        block: &mut Vec<u8>,
        join: impl Fn(&mut f32, f32),
    ) -> Result<(), Failure> {
        for part in data.chunks_mut(BLOCK_BYTES / 4) {
            block.resize(size_of_val(part), 0);
            self.before.read_exact(block).map_err(|e| {
                let how = match e.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        format!("it sent nothing for {} s", self.timeout.as_secs())
                    }
                    _ => format!("its connection broke: {e}"),
                };
                failure((rank + n - 1) % n, how)
            })?;
            for (own, bytes) in part.iter_mut().zip(block.chunks_exact(4)) {
                // chunks_exact gives four bytes.
                join(own, f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
            }
        }
        Ok(())
    }
}

fn failure(rank: usize, how: String) -> Failure {
    Failure { rank: u32::try_from(rank).unwrap_or(u32::MAX), how }
}

/// Connects, again and again until it works or time is up.
pub(crate) fn dial(address: SocketAddr, until: Instant) -> io::Result<TcpStream> {
    loop {
        let left = until.saturating_duration_since(Instant::now()).max(PAUSE);
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(e) if Instant::now() >= until => return Err(e),
            Err(_) => thread::sleep(PAUSE * 4),
        }
    }
}

fn greeting(token: u64, rank: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&GREETING);
    bytes[4..12].copy_from_slice(&token.to_le_bytes());
    bytes[12..].copy_from_slice(&rank.to_le_bytes());
    bytes
}

fn greet(mut stream: TcpStream, greeting: &[u8]) -> io::Result<TcpStream> {
    stream.write_all(greeting)?;
    Ok(stream)
}

/// Takes the connection that greets as expected; any other is closed.
fn accept(listener: &TcpListener, until: Instant, expected: &[u8; 16]) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    while Instant::now() < until {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Ok(stream) = greeted(stream, expected) {
                    return Ok(stream);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "it did not connect in time"))
}

fn greeted(mut stream: TcpStream, expected: &[u8; 16]) -> io::Result<TcpStream> {
    let mut found = [0; 16];
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.read_exact(&mut found)?;
    if found != *expected {
        return Err(io::ErrorKind::InvalidData.into());
    }
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_everything_once() {
        for (length, n) in [(0, 1), (1, 4), (3, 4), (4, 4), (1_000, 7), (8, 3)] {
            let mut next = 0;
            for index in 0..n {
                let range = chunk(length, n, index + n);
                assert_eq!(range.start, next);
                assert!(range.len().abs_diff(length / n) <= 1);
                next = range.end;
            }
            assert_eq!(next, length);
        }
    }
}
