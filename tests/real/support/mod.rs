//! What the tests of real processes share: a daemon with a state folder of its own, jobs, and processes.

mod bench;
pub(crate) mod issuer;
mod jobs;
mod processes;
mod tls;

pub(crate) use bench::{Bench, NODE_OF_8, TWO_NODES_OF_8, exe};
pub(crate) use issuer::Issuer;
pub(crate) use jobs::{TRAINER_EVERY, env, gang, refused, retry, shell, trainer};
pub(crate) use processes::signal;
pub(crate) use tls::{Authority, Https};

use std::time::{Duration, Instant};

use nix::unistd::geteuid;

/// Far longer than anything here takes; only a failing test waits for it.
pub(crate) const LONG: Duration = Duration::from_secs(180);
pub(crate) const NOBODY: u32 = 65_534;

/// Polls until there is an answer.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LONG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What stands in a file of the test's own folder; 0 while that is no number.
pub(crate) fn number(bench: &Bench, file: &str) -> u64 {
    bench.read(file).trim().parse().unwrap_or(0)
}

/// Polls until it is so.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    eventually(what, || so().then_some(()));
}

/// Whether this test can do what only root may; says so when it cannot.
pub(crate) fn is_root(test: &str) -> bool {
    let root = geteuid().is_root();
    if !root {
        eprintln!("skipped {test}: needs root");
    }
    root
}
