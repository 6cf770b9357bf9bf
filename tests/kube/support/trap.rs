//! A scheduler that is killed with one of its own calls.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::front::Fault;

/// Whom the front kills, and with which of its requests from now.
#[derive(Default)]
pub(crate) struct Trap {
    armed: Mutex<Option<(Pid, u64, bool)>>,
    before: AtomicU64,
}

impl Trap {
    pub(crate) fn arm(&self, scheduler: Pid, after: u64, is_made: bool) {
        self.before.store(0, Ordering::Release);
        *self.armed.lock().unwrap() = Some((scheduler, after, is_made));
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.armed.lock().unwrap().is_some()
    }

    /// One of these requests.
    pub(crate) fn spring(&self) -> Fault {
        let before = self.before.fetch_add(1, Ordering::AcqRel);
        let mut armed = self.armed.lock().unwrap();
        let Some((scheduler, after, is_made)) = *armed else { return Fault::None };
        if before < after {
            return Fault::None;
        }
        *armed = None;
        kill(scheduler, Signal::SIGKILL).unwrap();
        if is_made { Fault::None } else { Fault::Drop }
    }
}
