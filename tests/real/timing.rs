//! Questions stay quick with a long history.

use std::time::{Duration, Instant};

use phalanx_api::protocol::{Answer, JobFilter, JobRef, NodeFilter, Verb};
use phalanx_model::JobId;

use crate::support::{Bench, TWO_NODES_OF_8, gang, shell};

const FINISHED: usize = 1_000;
/// Meant is 50 ms; a loaded machine and a debug build get more.
const BOUND: Duration = Duration::from_millis(250);

#[test]
fn questions_are_quick_with_a_thousand_finished_jobs() {
    let mut bench = Bench::up_with(TWO_NODES_OF_8);
    let mut holding = shell(2, "exec sleep 1000");
    gang(&mut holding).needs.devices = 8;
    let held = bench.submit(holding.clone());
    bench.await_state(held, "running");
    // Submitted and cancelled while they wait: the quickest way to a history.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..FINISHED / 4 {
                    let id = bench.submit(holding.clone());
                    bench.cancel(id);
                }
            });
        }
    });
    let waiting = bench.submit(holding);
    // The next daemon keeps a few of them in its books, and the rest in its history.
    bench.down();
    bench.up();
    let job = || JobRef::Id(waiting);
    let questions = [
        ("nodes", Verb::FindNodes(NodeFilter::default())),
        ("list", Verb::List { finished: false, filter: JobFilter::default(), limit: 100 }),
        ("list all", Verb::List { finished: true, filter: JobFilter::default(), limit: 100 }),
        ("get", Verb::Get { job: job() }),
        ("get an old one", Verb::Get { job: JobRef::Id(JobId(5)) }),
        ("why", Verb::Why { job: job() }),
        ("topology", Verb::Topology),
    ];
    for (name, verb) in questions {
        let mut took: Vec<Duration> = (0..20)
            .map(|_| {
                let began = Instant::now();
                let answer = bench.ask(verb.clone()).unwrap();
                if let Answer::Jobs(jobs) = answer {
                    assert!(jobs.len() == 2 || jobs.len() == 100, "{}", jobs.len());
                }
                began.elapsed()
            })
            .collect();
        took.sort();
        let (median, most) = (took[10], took[19]);
        println!("{name}: median {median:?}, most {most:?}");
        assert!(median < BOUND, "{name} took {median:?}");
    }
    bench.cancel(waiting);
    bench.cancel(held);
    bench.ended(held);
    bench.await_nobody();
}
