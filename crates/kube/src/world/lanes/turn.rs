//! The turn of a binding: while it has one, few others are made.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// So many claims are read at once to see whether their devices are ready, beside all bindings.
const POLLS: usize = 4;

/// Why a binding is not made.
const STOPPED: &str = "its gang is stopped";
const ENDED: &str = "this scheduler ends";

/// What all turns share.
#[derive(Clone)]
pub(in crate::world) struct Turns {
    bindings: Arc<Semaphore>,
    polls: Arc<Semaphore>,
    binding: Duration,
}

impl Turns {
    pub(super) fn new(bindings: Arc<Semaphore>, binding: Duration) -> Self {
        Self { bindings, polls: Arc::new(Semaphore::new(POLLS)), binding }
    }

    /// Waits for the next; nothing when there is none any more. What waits here first goes first.
    pub(super) async fn next(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.bindings).acquire_owned().await.ok()
    }

    /// `ready_until` is for how long devices may take.
    pub(super) fn begin(
        &self,
        held: OwnedSemaphorePermit,
        ready_until: Instant,
        is_off: watch::Receiver<bool>,
    ) -> Turn {
        let until = Instant::now() + self.binding;
        Turn { turns: self.clone(), held: Some(held), until, ready_until, is_off }
    }
}

/// One of them.
pub(in crate::world) struct Turn {
    turns: Turns,
    held: Option<OwnedSemaphorePermit>,
    until: Instant,
    ready_until: Instant,
    /// Whether its binding was called off. Without a sender it never is.
    is_off: watch::Receiver<bool>,
}

impl Turn {
    /// By when a binding is tried for the last time.
    pub(in crate::world) const fn until(&self) -> Instant {
        self.until
    }

    /// By when devices have to be ready.
    pub(in crate::world) const fn ready_until(&self) -> Instant {
        self.ready_until
    }

    /// Why it goes no further, where it was called off.
    pub(in crate::world) fn check(&self) -> Result<(), &'static str> {
        if *self.is_off.borrow() { Err(STOPPED) } else { Ok(()) }
    }

    /// Waits without the turn, which others take meanwhile.
    pub(in crate::world) async fn rest(&mut self, pause: Duration) -> Result<(), &'static str> {
        self.held = None;
        let is_off = async { self.is_off.wait_for(|is_off| *is_off).await.is_ok() };
        match tokio::time::timeout(pause, is_off).await {
            Ok(true) => Err(STOPPED),
            // Nothing ever calls it off.
            Ok(false) => {
                tokio::time::sleep(pause).await;
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    /// Looks at something while it rests, as one of few.
    pub(in crate::world) async fn poll<T>(&self, look: impl Future<Output = T>) -> T {
        let _one = self.turns.polls.acquire().await;
        look.await
    }

    /// Takes a turn again after a rest. A binding has its whole time then.
    pub(in crate::world) async fn resume(&mut self) -> Result<(), &'static str> {
        if self.held.is_none() {
            self.held = Some(self.turns.next().await.ok_or(ENDED)?);
            self.until = Instant::now() + self.turns.binding;
        }
        self.check()
    }

    /// Waits without the turn until what came before has ended.
    pub(in crate::world) async fn after(&mut self, before: watch::Sender<bool>) -> Result<(), &'static str> {
        self.held = None;
        before.closed().await;
        self.resume().await
    }
}
