//! The control plane: every rank keeps its connection to rank 0, over which they agree at the end of each
//! step, and hear of a rank that is lost. So all of them name the same one, and not just a neighbour.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufReader;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::RingError;
use crate::ring::Failure;
use crate::settings::Settings;
use crate::wire::{Report, Vote, Word, receive, send};

/// How long rank 0 waits for signs of life when a rank got stuck.
const PING: Duration = Duration::from_secs(1);
/// How long the others wait until rank 0 says who was lost.
const VERDICT: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) struct Control {
    shared: Arc<Shared>,
    votes: Receiver<(u32, Vote)>,
    rank: u32,
    step_timeout: Duration,
}

/// What the threads that listen share with the one that computes.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The first rank that was lost.
    lost: Option<(u32, String)>,
    /// This rank is through: ends of connections are expected.
    leaving: bool,
    /// On rank 0 all others that still take part; elsewhere rank 0.
    peers: BTreeMap<u32, TcpStream>,
    /// Shut down when a rank is lost, so that nobody waits on them.
    watched: Vec<TcpStream>,
    /// Ranks that were asked for a sign of life and gave none yet.
    silent: BTreeSet<u32>,
    /// The first inquiry finds the one; a second only waits for it.
    inquiring: bool,
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is whole after every statement, so a poisoned lock holds no half-made change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first to be declared lost stays the one; everybody is told.
    fn declare_lost(&self, rank: u32, how: &str) {
        let mut state = self.state();
        if state.lost.is_none() && !state.leaving {
            state.lost = Some((rank, how.to_owned()));
            for peer in state.peers.values() {
                // One that cannot be told is gone itself.
                drop(send(peer, &Word::Lost { rank, how: how.to_owned() }));
            }
            for socket in &state.watched {
                drop(socket.shutdown(Shutdown::Both));
            }
            self.changed.notify_all();
        }
    }

    /// On rank 0: some rank got stuck on another, which may itself only be stuck. Whoever gives no sign of
    /// life is the one; if all do, it is the one that was named.
    fn inquire(&self, named: u32, how: &str) {
        let mut state = self.state();
        if std::mem::replace(&mut state.inquiring, true) {
            drop(self.changed.wait_timeout_while(state, PING * 2, |state| state.lost.is_none()));
            return;
        }
        state.silent = state.peers.keys().copied().collect();
        for peer in state.peers.values() {
            drop(send(peer, &Word::Ping));
        }
        let waiting = |state: &mut State| state.lost.is_none() && !state.silent.is_empty();
        let waited = self.changed.wait_timeout_while(state, PING, waiting);
        let silent = waited.unwrap_or_else(PoisonError::into_inner).0.silent.first().copied();
        match silent {
            Some(rank) => self.declare_lost(rank, "it hangs"),
            None => self.declare_lost(named, how),
        }
    }
}

impl Control {
    /// Begins to listen to the peers.
    pub(crate) fn new(
        settings: &Settings,
        peers: BTreeMap<u32, BufReader<TcpStream>>,
    ) -> Result<Self, RingError> {
        let (shared, (votes_in, votes)) = (Shared::new(), mpsc::channel());
        let here = settings.rank;
        for (rank, source) in peers {
            let stream = source.get_ref().try_clone().map_err(RingError::system("keep a connection"))?;
            shared.state().peers.insert(rank, stream);
            let (shared, votes) = (shared.clone(), votes_in.clone());
            thread::spawn(move || match here {
                0 => hear_rank(rank, source, &shared, &votes),
                _ => hear_root(source, &shared, &votes),
            });
        }
        Ok(Self { shared, votes, rank: here, step_timeout: settings.step_timeout() })
    }

    /// Shuts these down as soon as a rank is lost.
    pub(crate) fn watch(&self, sockets: Vec<TcpStream>) {
        let mut state = self.shared.state();
        if state.lost.is_some() {
            sockets.iter().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
        }
        state.watched = sockets;
    }

    /// Fails when a rank is lost.
    pub(crate) fn check(&self) -> Result<(), RingError> {
        match &self.shared.state().lost {
            Some((rank, how)) => Err(RingError::Lost { rank: *rank, how: how.clone() }),
            None => Ok(()),
        }
    }

    /// Waits for all ranks, and joins what they say.
    pub(crate) fn agree(&self, own: &Vote) -> Result<Vote, RingError> {
        let mut waiting: Vec<u32> = self.shared.state().peers.keys().copied().collect();
        let mut all = own.clone();
        if self.rank != 0 {
            self.tell(&Report::Vote(own.clone()));
        }
        // Rank 0 runs out of patience first, and finds out who it was.
        let patience = if self.rank == 0 { self.step_timeout } else { self.step_timeout + VERDICT };
        let until = Instant::now() + patience;
        while !waiting.is_empty() {
            self.check()?;
            match self.votes.recv_timeout(PAUSE) {
                Ok((rank, vote)) => {
                    waiting.retain(|r| *r != rank);
                    all = all.and(&vote);
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
                Err(_) => {
                    let rank = waiting.first().copied().unwrap_or(0);
                    let how = format!("it did not end its step within {} s", self.step_timeout.as_secs());
                    return Err(self.blame(Failure { rank, how }));
                }
            }
        }
        if self.rank == 0 {
            for peer in self.shared.state().peers.values() {
                // A rank that cannot be told is found lost by the thread that listens to it.
                drop(send(peer, &Word::Vote(all.clone())));
            }
        }
        Ok(all)
    }

    /// Finds out who was lost, when this rank got stuck on another.
    pub(crate) fn blame(&self, failure: Failure) -> RingError {
        let Failure { rank, how } = failure;
        if self.rank == 0 {
            self.shared.inquire(rank, &how);
        } else {
            self.tell(&Report::Blame { rank, how });
            let state = self.shared.state();
            drop(self.shared.changed.wait_timeout_while(state, VERDICT, |state| state.lost.is_none()));
        }
        let no_verdict = RingError::Lost { rank: 0, how: "it hangs".to_owned() };
        self.check().err().unwrap_or(no_verdict)
    }

    /// Takes leave; rank 0 waits a little for the others, so that its last word reaches them.
    pub(crate) fn leave(&self) {
        self.tell(&Report::Bye);
        let mut state = self.shared.state();
        state.leaving = true;
        if self.rank == 0 {
            let all_gone = self.shared.changed.wait_timeout_while(state, VERDICT, |s| !s.peers.is_empty());
            drop(all_gone);
        }
    }

    /// Tells rank 0; when it is gone, the thread that listens to it says so.
    fn tell(&self, message: &Report) {
        if self.rank != 0 {
            for peer in self.shared.state().peers.values() {
                drop(send(peer, message));
            }
        }
    }
}

/// On rank 0: what one other rank says, until it leaves or is lost.
fn hear_rank(rank: u32, mut source: BufReader<TcpStream>, shared: &Arc<Shared>, votes: &Sender<(u32, Vote)>) {
    loop {
        match receive(&mut source) {
            Ok(Report::Vote(vote)) => drop(votes.send((rank, vote))),
            Ok(Report::Blame { rank, how }) => {
                let shared = shared.clone();
                // Not here, where the answer of this rank is heard.
                thread::spawn(move || shared.inquire(rank, &how));
            }
            Ok(Report::Pong) => {
                shared.state().silent.remove(&rank);
                shared.changed.notify_all();
            }
            Ok(Report::Bye) => break,
            Ok(Report::Here { .. }) => {}
            Err(e) => {
                shared.declare_lost(rank, &format!("its connection to rank 0 ended: {e}"));
                break;
            }
        }
    }
    shared.state().peers.remove(&rank);
    shared.changed.notify_all();
}

/// On the other ranks: what rank 0 says, until it is gone.
fn hear_root(mut source: BufReader<TcpStream>, shared: &Shared, votes: &Sender<(u32, Vote)>) {
    loop {
        match receive(&mut source) {
            Ok(Word::Vote(vote)) => drop(votes.send((0, vote))),
            Ok(Word::Lost { rank, how }) => shared.declare_lost(rank, &how),
            Ok(Word::Ping) => {
                // Under the lock, as every line: two threads write to this connection.
                for peer in shared.state().peers.values() {
                    drop(send(peer, &Report::Pong));
                }
            }
            Ok(Word::Start(_) | Word::Refused { .. }) => {}
            Err(e) => return shared.declare_lost(0, &format!("its connection ended: {e}")),
        }
    }
}
