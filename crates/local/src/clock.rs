//! The daemon's time. It begins where the wall clock stands and goes on with the boot clock, so a step of the wall clock
//! moves no deadline: neither a time limit, nor a back-off, nor the kill after a grace period. What lies between the two
//! clocks is made up for slowly.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use phalanx_model::Timestamp;
use phalanx_model::show::span;
use tracing::warn;

use crate::Paths;
use phalanx_node::file::replace;

const NS_PER_MS: i64 = 1_000_000;
/// A time limit may be wrong by this part of it, while the daemon's time follows the wall clock.
const SLEW: i64 = 100;
/// A wall clock that is further away than this is told to people, in whole minutes.
const TOLD_MS: u64 = 60_000;
/// Says which boot of the machine this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What the clocks of the machine say, in nanoseconds: since 1970, and since the boot.
#[derive(Clone, Copy, Debug)]
struct Reading {
    wall: i64,
    boot: i64,
}

#[derive(Clone)]
pub(crate) struct Clock {
    state: Arc<Mutex<State>>,
    read: Arc<dyn Fn() -> Reading + Send + Sync>,
}

/// What the daemon's time was, in nanoseconds since 1970, when the boot clock stood at `boot`.
struct State {
    now: i64,
    boot: i64,
}

impl Clock {
    /// The time after `last_at`, the last time in the journal. If ranks may run, and the machine was not booted since, it
    /// goes on as the last daemon kept it.
    pub(crate) fn begin(paths: &Paths, last_at: Timestamp, may_run: bool) -> Self {
        let kept = may_run.then(|| kept(paths)).flatten();
        let clock = Self::of(Arc::new(read), kept, last_at);
        clock.keep(paths);
        clock
    }

    fn of(read: Arc<dyn Fn() -> Reading + Send + Sync>, offset: Option<i64>, last_at: Timestamp) -> Self {
        let Reading { wall, boot } = read();
        let begins = offset.map_or(wall, |offset| boot.saturating_add(offset));
        let state = State { now: begins.max(nanoseconds(last_at)), boot };
        Self { state: Arc::new(Mutex::new(state)), read }
    }

    pub(crate) fn now(&self) -> Timestamp {
        milliseconds(self.at(&(self.read)()))
    }

    /// The daemon's time at a time of the wall clock, such as a person says or a file has.
    pub(crate) fn of_wall(&self, at: Timestamp) -> Timestamp {
        let ahead_ms = self.ahead_ns() / NS_PER_MS;
        if ahead_ms.unsigned_abs() < TOLD_MS {
            return at; // It is made up for soon, and whole seconds stay whole.
        }
        at.0.checked_add_signed(ahead_ms.saturating_neg()).map_or(at, Timestamp)
    }

    /// What the wall clock says at a time of the daemon, as it stands now.
    pub(crate) fn to_wall(&self, at: Timestamp) -> Timestamp {
        let ahead_ms = self.ahead_ns() / NS_PER_MS;
        at.0.checked_add_signed(ahead_ms).map_or(at, Timestamp)
    }

    /// How far the wall clock is ahead of the daemon's time.
    fn ahead_ns(&self) -> i64 {
        let reading = (self.read)();
        reading.wall.saturating_sub(self.at(&reading))
    }

    /// What people should know of times that they are shown.
    pub(crate) fn warning(&self) -> Option<String> {
        let ahead_ms = self.ahead_ns() / NS_PER_MS;
        let way = if ahead_ms > 0 { "ahead" } else { "back" };
        let minutes = ahead_ms.unsigned_abs().saturating_add(TOLD_MS / 2) / TOLD_MS;
        (ahead_ms.unsigned_abs() >= TOLD_MS).then(|| {
            format!(
                "the clock of this machine was set {} {way}: deadlines do not move, and times that are shown differ \
                 from the machine's until `phalanx up` is run while nothing runs",
                span(minutes.saturating_mul(TOLD_MS))
            )
        })
    }

    /// Remembers where the clock stands, for the next daemon.
    pub(crate) fn keep(&self, paths: &Paths) {
        let Some(boot_id) = boot_id() else { return };
        let reading = (self.read)();
        let offset = self.at(&reading).saturating_sub(reading.boot);
        if let Err(e) = replace(&paths.clock(), &format!("{boot_id} {offset}\n")) {
            warn!(file = %paths.clock().display(), error = %e, "the clock cannot be kept for the next daemon");
        }
    }

    fn at(&self, reading: &Reading) -> i64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Two threads may come here in another order than they read the clocks.
        let elapsed = reading.boot.saturating_sub(state.boot).max(0);
        let apart = reading.wall.saturating_sub(state.now.saturating_add(elapsed));
        let slew = elapsed / SLEW;
        state.now = state.now.saturating_add(elapsed).saturating_add(apart.clamp(-slew, slew));
        state.boot = state.boot.saturating_add(elapsed);
        state.now
    }
}

/// The daemon's time less the boot clock, as the last daemon of this boot kept it.
fn kept(paths: &Paths) -> Option<i64> {
    let text = fs::read_to_string(paths.clock()).ok()?;
    let (of_boot, offset) = text.trim().split_once(' ')?;
    (of_boot == boot_id()?).then(|| offset.parse().ok()).flatten()
}

/// When a file was written last, by the wall clock.
pub(crate) fn written_at(file: &Path) -> Option<Timestamp> {
    let since = fs::metadata(file).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp(u64::try_from(since.as_millis()).ok()?))
}

fn boot_id() -> Option<String> {
    Some(fs::read_to_string(BOOT_ID).ok()?.trim().to_owned())
}

fn read() -> Reading {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
    // Every Linux that this builds for has this clock.
    let boot = clock_gettime(ClockId::CLOCK_BOOTTIME)
        .map_or(wall, |at| at.tv_sec().saturating_mul(1_000_000_000).saturating_add(at.tv_nsec()));
    Reading { wall, boot }
}

fn nanoseconds(at: Timestamp) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX).saturating_mul(NS_PER_MS)
}

fn milliseconds(ns: i64) -> Timestamp {
    Timestamp(u64::try_from(ns / NS_PER_MS).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

    use super::*;

    const SECOND: i64 = 1_000 * NS_PER_MS;
    const HOUR: i64 = 3_600 * SECOND;

    /// Clocks that a test sets: the wall clock and the boot clock.
    #[derive(Default)]
    struct Clocks(AtomicI64, AtomicI64);

    impl Clocks {
        fn new(wall: i64) -> Arc<Self> {
            Arc::new(Self(wall.into(), 0.into()))
        }

        fn clock(self: &Arc<Self>, last_at: u64) -> Clock {
            let clocks = Arc::clone(self);
            let read = move || Reading { wall: clocks.0.load(SeqCst), boot: clocks.1.load(SeqCst) };
            Clock::of(Arc::new(read), None, Timestamp(last_at))
        }

        fn pass(&self, ns: i64) {
            self.0.fetch_add(ns, SeqCst);
            self.1.fetch_add(ns, SeqCst);
        }
    }

    #[test]
    fn a_step_of_the_wall_clock_moves_the_time_by_a_hundredth_of_what_passes() {
        for step in [HOUR, -HOUR, -24 * HOUR] {
            let clocks = Clocks::new(30 * HOUR);
            let clock = clocks.clock(0);
            let begins = clock.now().0;
            clocks.0.fetch_add(step, SeqCst);
            assert_eq!(clock.now().0, begins);
            for _ in 0..100 {
                clocks.pass(SECOND);
                clock.now();
            }
            let passed = clock.now().0 - begins;
            assert_eq!(passed, if step > 0 { 101_000 } else { 99_000 }, "{step}");
            assert!(clock.warning().is_some());
        }
    }

    #[test]
    fn a_small_step_is_made_up_for_and_no_time_comes_twice() {
        let clocks = Clocks::new(HOUR);
        let clock = clocks.clock(0);
        clocks.0.fetch_sub(SECOND, SeqCst);
        let mut last = clock.now();
        for _ in 0..101 {
            clocks.pass(SECOND);
            assert!(clock.now() > last);
            last = clock.now();
        }
        assert_eq!(last, clock.to_wall(last));
        assert_eq!(clock.warning(), None);
    }

    #[test]
    fn times_of_people_and_files_are_those_of_the_wall_clock() {
        let clocks = Clocks::new(10 * HOUR);
        let clock = clocks.clock(0);
        clocks.0.fetch_add(HOUR, SeqCst);
        let begins = clock.now();
        assert_eq!(clock.to_wall(begins), begins.plus(3_600_000));
        assert_eq!(clock.of_wall(begins.plus(3_600_000 + 5)), begins.plus(5));
    }

    #[test]
    fn the_time_begins_behind_the_journal_and_goes_on_in_one_boot() {
        assert_eq!(Clocks::new(HOUR).clock(7_200_000).now(), Timestamp(7_200_000));
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        let first = Clock::begin(&paths, Timestamp(0), false);
        // As if the wall clock had been set back by an hour since.
        first.state.lock().unwrap().now += HOUR;
        first.keep(&paths);
        let apart = |clock: &Clock| clock.ahead_ns() / SECOND;
        assert_eq!(apart(&Clock::begin(&paths, Timestamp(0), true)), -3_599, "{}", apart(&first));
        assert_eq!(apart(&Clock::begin(&paths, Timestamp(0), false)), 0);
    }
}
