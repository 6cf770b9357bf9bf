//! When a job is likely to start, by how long such jobs took before.

use phalanx_local::protocol::{Answer, JobRef, Verb};
use phalanx_model::{Job, JobName};

use crate::support::{Bench, NODE_OF_8, gang, shell};

const HOUR: u64 = 3_600_000;

/// All devices of the node, for an hour at most.
fn whole(name: &str, script: &str) -> Job {
    let mut job = shell(1, script);
    job.name = JobName::new(name).unwrap();
    gang(&mut job).needs.devices = 8;
    job.policy.time_limit_ms = Some(HOUR);
    job
}

#[test]
fn why_says_what_the_last_runs_say_beside_the_bound_also_after_a_restart() {
    let mut bench = Bench::up_with(NODE_OF_8);
    for n in 1..=3 {
        let quick = bench.submit(whole(&format!("sweep-{n}"), "exit 0"));
        assert_eq!(bench.ended(quick).state, "succeeded");
    }
    let running = bench.submit(whole("sweep-4", "exec sleep 1000"));
    bench.await_state(running, "running");
    let waiting = bench.submit(whole("next", "exit 0"));
    for restart in [false, true] {
        if restart {
            bench.kill();
            bench.up();
        }
        let Ok(Answer::Why(why)) = bench.ask(Verb::Why { job: JobRef::Id(waiting) }) else { panic!() };
        let report = &why.reports[0];
        let (latest, likely) = (report.estimated_start.unwrap().at, report.likely_start.unwrap());
        assert_eq!(likely.runs, 3);
        // The limit and a second of grace; and some moments, or now.
        assert!(latest.since(why.now) > HOUR / 2, "{report:?}");
        assert!(likely.at.since(why.now) < HOUR / 2, "{report:?}");
    }
    bench.cancel(running);
    assert_eq!(bench.ended(waiting).state, "succeeded");
}
