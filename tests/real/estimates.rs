//! When a job is likely to start, by how long such jobs took before.

use std::collections::BTreeSet;

use phalanx_api::protocol::{Answer, JobRef, Verb};
use phalanx_model::{Job, JobName, LevelName, ModelNeed, NodeName, Spread};

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

/// A scheduler that counts devices keeps the job's own rules too: a place that breaks them is no comparison.
#[test]
fn what_counting_would_choose_keeps_the_rules_of_the_job() {
    let bench = Bench::up_with(
        "levels: [cluster, rack]\nnodes:
- {name: a1, devices: {count: 8, model: NVIDIA A100}, path: {rack: r1}, busy: [GPU0, GPU1, GPU2, GPU3]}
- {name: 'b[1-2]', devices: {count: 8, model: NVIDIA H100}, path: {rack: r2}}\n",
    );
    let nodes_of = |job: &Job| -> Option<Vec<String>> {
        let answer = bench.ask(Verb::DryRun { job: Box::new(job.clone()) });
        let Ok(Answer::DryRun(mut view)) = answer else { panic!("{answer:?}") };
        let slots = view.first_fit.remove(0)?.placement.slots;
        let nodes: BTreeSet<String> = slots.iter().map(|slot| slot.node.to_string()).collect();
        Some(nodes.into_iter().collect())
    };
    let mut job = shell(12, "exit 0");
    gang(&mut job).needs.devices = 1;
    assert_eq!(nodes_of(&job).unwrap(), ["a1", "b1"]);

    gang(&mut job).topology.required = Some(LevelName::new("rack").unwrap());
    assert_eq!(nodes_of(&job).unwrap(), ["b1", "b2"], "the first rack has four");
    gang(&mut job).topology.required = None;
    gang(&mut job).needs.models = vec![ModelNeed { model: "h100".to_owned(), speed_milli: 1_000 }];
    assert_eq!(nodes_of(&job).unwrap(), ["b1", "b2"]);
    bench.done(Verb::Cordon { node: NodeName::new("b1").unwrap(), reason: None });
    assert_eq!(nodes_of(&job), None, "b2 alone has eight");
    gang(&mut job).needs.models.clear();
    assert_eq!(nodes_of(&job).unwrap(), ["a1", "b2"]);
    gang(&mut job).topology.spread = vec![Spread { level: LevelName::new("rack").unwrap(), max: 8 }];
    assert_eq!(nodes_of(&job), None, "counting does not spread");
}
