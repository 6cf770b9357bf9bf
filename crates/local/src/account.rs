//! The account of the cluster goes to the history.
//!
//! Only the thread of the engine tells the clerk anything, so the order of tellings is that of the steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use phalanx_account::{Entry, Priced};
use phalanx_model::{Change, GangId, Input, NodeName, Tariff, Timestamp};
use phalanx_shell::{Clerk, Engine};

use crate::daemon::Daemon;
use crate::history::AccountRows;

/// A user's bill may be older by so much.
const FRESH_MS: u64 = 1_000;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Accounting {
    clerk: Arc<Mutex<Clerk>>,
    tariff: Arc<Tariff>,
    /// Until when it was handed to the history.
    written_until: Arc<AtomicU64>,
}

impl Accounting {
    pub(crate) fn new(
        list_prices: BTreeMap<NodeName, u64>,
        tariff: Tariff,
        charged_until: Option<Timestamp>,
    ) -> Self {
        let clerk = Arc::new(Mutex::new(Clerk::new(list_prices, charged_until)));
        Self { clerk, tariff: Arc::new(tariff), written_until: Arc::default() }
    }

    fn clerk(&self) -> MutexGuard<'_, Clerk> {
        // What a panicking thread left still adds up.
        self.clerk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a step: what it may have changed.
    pub(crate) fn stepped(&self, now: Timestamp, facts: &[Input], changes: &[Change], engine: &Engine) {
        self.clerk().stepped(now, facts, changes, engine);
    }

    /// From now on these gangs do not use their devices. On the thread of the engine.
    pub(crate) fn set_idle(&self, now: Timestamp, idle: BTreeSet<GangId>, engine: &Engine) {
        self.clerk().set_idle(now, idle, engine);
    }

    /// What was charged since the last time.
    fn take(&self, until: Timestamp, default_class: &str, engine: &Engine) -> AccountRows {
        let mut clerk = self.clerk();
        clerk.look_at_all(until, engine);
        self.written_until.store(until.0, Ordering::Relaxed);
        self.rows(clerk.take_entries(until), until, default_class)
    }

    fn rows(&self, entries: Vec<Entry>, until: Timestamp, default_class: &str) -> AccountRows {
        let priced = |entry| Priced::of(entry, &self.tariff, default_class);
        AccountRows { entries: entries.into_iter().map(priced).collect(), until }
    }
}

/// Hands what was charged so far to the history.
pub(crate) fn write_down(daemon: &Daemon) {
    let (account, clock, recorder) = (daemon.account.clone(), daemon.clock.clone(), daemon.recorder.clone());
    let class = daemon.access.default_class();
    // On the thread of the engine: what is written follows what the steps before it told. A daemon that stops does so at
    // its end.
    let _ = daemon.engine.look(move |engine| recorder.account(account.take(clock.now(), &class, engine)));
}

/// The same, but for a client that could ask without end: what was handed over is good for a second.
pub(crate) fn write_down_for_a_user(daemon: &Daemon) {
    let written = Timestamp(daemon.account.written_until.load(Ordering::Relaxed));
    if daemon.clock.now().since(written) >= FRESH_MS {
        write_down(daemon);
    }
}

/// Hands over the rest, once the engine is gone.
pub(crate) fn close(daemon: &Daemon) {
    let until = daemon.clock.now();
    let entries = daemon.account.clerk().take_entries(until);
    daemon.recorder.account(daemon.account.rows(entries, until, &daemon.access.default_class()));
}
