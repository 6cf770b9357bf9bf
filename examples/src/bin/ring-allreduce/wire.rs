//! What ranks tell each other besides data: one line of JSON each, over a connection to rank 0.

use std::io::{self, BufRead, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Longest line: the addresses of the largest ring.
const LINE_BYTES_MAX: u64 = 1 << 17;

/// To rank 0.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// First of all. `listens` takes the connection of the rank before this one.
    Here {
        rank: u32,
        shape: Shape,
        listens: SocketAddr,
        resume: u64,
    },
    Vote(Vote),
    /// This rank cannot go on because of that one.
    Blame {
        rank: u32,
        how: String,
    },
    /// Answers [`Word::Ping`].
    Pong,
    /// This rank is through.
    Bye,
}

/// From rank 0.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    Refused {
        why: String,
    },
    Start(Start),
    Vote(Vote),
    /// Do you live? A process that hangs does not answer; one that waits for it does.
    Ping,
    Lost {
        rank: u32,
        how: String,
    },
}

/// What every rank must have been told alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) world_size: u32,
    pub(crate) bytes: u64,
    pub(crate) steps: u64,
    pub(crate) warmup: u64,
    pub(crate) checkpoint_every: u64,
}

/// The ring.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// Where each rank listens, by rank.
    pub(crate) ring: Vec<SocketAddr>,
    /// Tells this run's connections from those of others.
    pub(crate) token: u64,
    /// Steps that every rank has behind it.
    pub(crate) resume: u64,
}

/// What a rank says at the end of a step, or all of them together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Vote {
    /// Time of the slowest.
    pub(crate) nanos: u64,
    /// The lowest rank whose sums are wrong.
    pub(crate) wrong: Option<u32>,
    /// Somebody was asked for a checkpoint.
    pub(crate) checkpoint: bool,
    /// Somebody was asked to stop.
    pub(crate) stop: bool,
    /// A rank has seen the file of `--until`.
    pub(crate) finish: bool,
}

impl Vote {
    pub(crate) fn and(&self, other: &Self) -> Self {
        Self {
            nanos: self.nanos.max(other.nanos),
            wrong: self.wrong.into_iter().chain(other.wrong).min(),
            checkpoint: self.checkpoint || other.checkpoint,
            stop: self.stop || other.stop,
            finish: self.finish || other.finish,
        }
    }
}

pub(crate) fn send(mut stream: &TcpStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// The next line; an end of the stream is an error.
pub(crate) fn receive<T: DeserializeOwned>(source: &mut impl BufRead) -> io::Result<T> {
    let mut line = Vec::new();
    source.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
    }
    Ok(serde_json::from_slice(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_join() {
        let a = Vote { nanos: 5, wrong: Some(3), ..Vote::default() };
        let b = Vote { nanos: 4, wrong: Some(1), stop: true, ..Vote::default() };
        let both = Vote { nanos: 5, wrong: Some(1), stop: true, ..Vote::default() };
        assert_eq!((a.and(&b), b.and(&a)), (both.clone(), both));
        assert_eq!(a.and(&Vote::default()), a);
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut endless = std::io::BufReader::new(std::io::repeat(b' '));
        assert!(receive::<Vote>(&mut endless).is_err());
        assert!(receive::<Vote>(&mut &b"{}"[..]).is_err());
        assert!(receive::<Vote>(&mut &b"{}\n"[..]).is_err());
    }
}
