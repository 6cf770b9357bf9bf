//! The wall clock of the machine is set while jobs run: no deadline moves.

use std::time::{Duration, Instant};

use crate::support::{Bench, NODE_OF_8, eventually, shell};

const LIMIT_MS: u64 = 3_000;

/// A daemon whose wall clock can be set; none where that cannot be done.
fn with_a_wall_clock() -> Option<Bench> {
    let mut bench = Bench::new(NODE_OF_8);
    if !bench.set_wall_clock("+0") {
        println!("SKIPPED: no libfaketime");
        return None;
    }
    bench.up();
    Some(bench)
}

#[test]
fn a_wall_clock_that_is_set_ahead_ends_no_job() {
    let Some(mut bench) = with_a_wall_clock() else { return };
    let mut job = shell(1, "while [ ! -e end ]; do sleep 0.05; done");
    job.policy.time_limit_ms = Some(600_000);
    let end = bench.path("end");
    job.gangs[0].program.workdir = bench.path("").display().to_string();
    let id = bench.submit(job);
    bench.await_state(id, "running");
    assert!(bench.set_wall_clock("+3600"));
    // A job that is submitted later starts and ends at the time that the daemon has now.
    let later = bench.submit(shell(1, "true"));
    assert_eq!(bench.ended(later).state, "succeeded");
    assert_eq!(bench.get(id).state, "running");
    let warnings = bench.warnings();
    assert!(warnings.iter().any(|w| w.contains("was set 1h") && w.contains("ahead")), "{warnings:?}");
    // The next daemon goes on in the time of this one, for the job runs in it.
    bench.down();
    bench.up();
    let later = bench.submit(shell(1, "true"));
    assert_eq!(bench.ended(later).state, "succeeded");
    assert_eq!(bench.get(id).state, "running");
    std::fs::write(end, "").unwrap();
    let view = bench.ended(id);
    assert_eq!(view.state, "succeeded");
    assert!(view.finished_at.unwrap().since(view.started_at.unwrap()) < 300_000, "{view:?}");
    // Nothing runs: the daemon takes the clock as it is.
    bench.down();
    bench.up();
    assert_eq!(bench.warnings(), [] as [&str; 0]);
}

#[test]
fn a_wall_clock_that_is_set_back_delays_no_deadline() {
    let Some(bench) = with_a_wall_clock() else { return };
    let began = Instant::now();
    // It does not end at SIGTERM: both the limit and the grace period have to come.
    let mut job = shell(1, "trap '' TERM; while true; do sleep 0.05; done");
    (job.policy.time_limit_ms, job.policy.stop.grace_ms) = (Some(LIMIT_MS), 500);
    let id = bench.submit(job);
    bench.await_state(id, "running");
    assert!(bench.set_wall_clock("-86400"));
    let view = bench.ended(id);
    assert!(began.elapsed() >= Duration::from_millis(LIMIT_MS), "{view:?}");
    assert_eq!(view.exit_code, Some(124), "{view:?}");
    bench.await_nobody();
}

#[test]
fn a_checkpoint_counts_once_whatever_the_wall_clock_does() {
    let Some(bench) = with_a_wall_clock() else { return };
    assert!(bench.set_wall_clock("+3600"));
    // The clock of the filesystem is not set with it, so the file says what it would.
    let id = bench.submit(shell(1, "touch -d '+1 hour' $PHALANX_CHECKPOINTED; exec sleep 1000"));
    let saved = || bench.get(id).gangs[0].checkpointed_at;
    let first = eventually("the checkpoint", saved);
    // Files are looked at once a second.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(saved(), Some(first));
}
