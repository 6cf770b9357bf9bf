//! Which jobs a list has.

use phalanx_api::protocol::{Answer, JobFilter, Verb};
use phalanx_model::{Job, JobId, JobName, QueueName};

use crate::support::{Bench, NODE_OF_8, gang, shell};

fn named(name: &str, script: &str) -> Job {
    let mut job = shell(1, script);
    job.name = JobName::new(name).unwrap();
    gang(&mut job).needs.devices = 8;
    job
}

fn listed(bench: &Bench, finished: bool, filter: JobFilter, limit: u32) -> Vec<JobId> {
    let Ok(Answer::Jobs(jobs)) = bench.ask(Verb::List { finished, filter, limit }) else { panic!() };
    jobs.iter().map(|job| job.id).collect()
}

/// A filter sees all jobs, and the limit counts those that it lets through.
#[test]
fn a_list_has_the_jobs_that_are_meant_those_of_the_history_too() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let states = |words: &[&str]| JobFilter {
        states: words.iter().map(|word| (*word).to_owned()).collect(),
        ..JobFilter::default()
    };
    let name = |name: &str| JobFilter { name: Some(name.to_owned()), ..JobFilter::default() };
    let good = bench.submit(named("sweep-1", "exit 0"));
    let bad = bench.submit(named("sweep-2", "exit 3"));
    bench.ended(good);
    bench.ended(bad);
    let runs = bench.submit(named("sweep-3", "exec sleep 1000"));
    bench.await_state(runs, "running");
    let waits = bench.submit(named("eval", "exit 0"));
    for is_over in [false, true] {
        if is_over {
            // Then the ended jobs are in the history alone.
            bench.kill();
            bench.up();
        }
        assert_eq!(listed(&bench, true, JobFilter::default(), 10), [good, bad, runs, waits]);
        assert_eq!(listed(&bench, true, states(&["running", "failed"]), 10), [bad, runs]);
        assert_eq!(listed(&bench, false, states(&["pending"]), 10), [waits]);
        assert_eq!(listed(&bench, true, name("sweep-*"), 10), [good, bad, runs]);
        assert_eq!(listed(&bench, true, name("sweep-?"), 1), [runs], "the newest");
        assert_eq!(listed(&bench, true, name("sweep"), 10), []);
        let queue = |queue: &str| JobFilter { queue: QueueName::new(queue).ok(), ..JobFilter::default() };
        assert_eq!(listed(&bench, true, queue("elsewhere"), 10), []);
        assert_eq!(listed(&bench, false, JobFilter { uid: Some(4_000_000_000), ..queue("default") }, 10), []);
        let owner = bench.get(waits).owner;
        let user = JobFilter { user: Some(owner), ..name("eval") };
        assert_eq!(listed(&bench, true, user, 10), [waits]);
    }
    bench.cancel(waits);
    bench.cancel(runs);
    bench.await_nobody();
}
