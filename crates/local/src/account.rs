//! The account of the cluster goes to the history.
//!
//! Only the thread of the engine tells the clerk anything, so the order of tellings is that of the steps.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use phalanx_model::{Change, Input, NodeName, Timestamp};
use phalanx_shell::{Clerk, Engine};

use crate::daemon::Daemon;
use crate::history::AccountRows;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Accounting {
    clerk: Arc<Mutex<Clerk>>,
}

impl Accounting {
    pub(crate) fn new(list_prices: BTreeMap<NodeName, u64>, charged_until: Option<Timestamp>) -> Self {
        Self { clerk: Arc::new(Mutex::new(Clerk::new(list_prices, charged_until))) }
    }

    fn clerk(&self) -> MutexGuard<'_, Clerk> {
        // What a panicking thread left still adds up.
        self.clerk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a step: what it may have changed.
    pub(crate) fn stepped(&self, now: Timestamp, facts: &[Input], changes: &[Change], engine: &Engine) {
        self.clerk().stepped(now, facts, changes, engine);
    }

    /// What was charged since the last time.
    fn take(&self, now: Timestamp, engine: &Engine) -> AccountRows {
        let mut clerk = self.clerk();
        clerk.look_at_all(now, engine);
        AccountRows { entries: clerk.take_entries(now), until: now }
    }
}

/// Hands what was charged so far to the history.
pub(crate) fn write_down(daemon: &Daemon) {
    let (account, clock, recorder) = (daemon.account.clone(), daemon.clock.clone(), daemon.recorder.clone());
    // On the thread of the engine: what is written follows what the steps before it told. A daemon that stops does so at
    // its end.
    let _ = daemon.engine.look(move |engine| recorder.account(account.take(clock.now(), engine)));
}

/// The same once the engine is gone.
pub(crate) fn close(daemon: &Daemon) {
    let until = daemon.clock.now();
    let entries = daemon.account.clerk().take_entries(until);
    daemon.recorder.account(AccountRows { entries, until });
}
