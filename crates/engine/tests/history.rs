//! The memory of how long jobs took: it improves the displayed estimate, and decides nothing.
#![allow(clippy::unwrap_used)]

use phalanx_model::{Confidence, Estimate, Exit, GangId, Input, JobId, LikelyStart, PastRuns, Reason};
use phalanx_testkit::{JobBuilder, Watched, gang, job, levels, node};

const HOUR: u64 = 3_600_000;

/// One node with eight devices.
fn world() -> Watched {
    Watched::with_nodes(&levels(&["cluster"]), &[node("a").gpus(8).build()])
}

fn of(id: u64) -> GangId {
    JobId(id).gang(0)
}

/// A job with some devices of the node and a time limit.
fn sized(id: u64, name: &str, devices: u32, limit_ms: u64) -> JobBuilder {
    job(id, gang(devices).devices(1).build()).name(name).time_limit(limit_ms).grace(0)
}

/// A whole run of a job on the whole node.
fn ran(world: &mut Watched, id: u64, name: &str, limit_ms: u64, took_ms: u64, exit: &Exit) {
    world.submit(sized(id, name, 8, limit_ms));
    world.run(id);
    world.advance(took_ms);
    world.end(id, exit);
}

fn known(world: &Watched) -> Vec<PastRuns> {
    let runs = |fact: Input| if let Input::RunsObserved { runs } = fact { Some(runs) } else { None };
    world.engine.facts().into_iter().filter_map(runs).collect()
}

#[test]
fn an_estimate_has_the_bound_and_what_the_last_runs_say() {
    let mut world = world();
    // Runs of 40, 20, 30 and 60 of 100 minutes; and runs that say nothing: failed, without a limit.
    for (id, minutes) in [(1, 40), (2, 20), (3, 30), (4, 60)] {
        ran(&mut world, id, &format!("sweep-{id}"), 100 * HOUR / 60, minutes * HOUR / 60, &Exit::succeeded());
    }
    ran(&mut world, 5, "sweep-5", HOUR, 1_000, &Exit::code(1));
    let said = known(&world);
    assert_eq!((said.len(), said[0].name.as_str(), said[0].uid), (1, "sweep-", 1_000));
    assert_eq!(said[0].of_limit_milli, [400, 200, 300, 600]);

    world.submit(sized(6, "sweep-6", 8, 10 * HOUR));
    world.run(6);
    let began = world.now;
    world.submit(sized(7, "next", 8, HOUR));
    for _ in 0..2 {
        let report = world.engine.explain(of(7)).unwrap();
        let latest = Estimate { at: began.plus(10 * HOUR), confidence: Confidence::AtLatest };
        assert_eq!(report.estimated_start, Some(latest));
        // The longer of the two runs in the middle: 40 %.
        assert_eq!(report.likely_start, Some(LikelyStart { at: began.plus(4 * HOUR), runs: 4 }));
        world.restart();
    }
    // The job takes longer than its past runs: it may end any time from now on.
    world.advance(5 * HOUR);
    let likely = world.engine.explain(of(7)).unwrap().likely_start.unwrap();
    assert_eq!((likely.at, likely.runs), (world.now, 4));
    // A user whose jobs are not known.
    world.submit(sized(8, "after", 8, HOUR));
    let report = world.engine.explain(of(8)).unwrap();
    assert!(report.likely_start.unwrap().at < report.estimated_start.unwrap().at);
}

#[test]
fn too_few_runs_and_other_names_say_nothing() {
    let mut world = world();
    ran(&mut world, 1, "sweep-1", HOUR, HOUR / 2, &Exit::succeeded());
    ran(&mut world, 2, "sweep-2", HOUR, HOUR / 2, &Exit::succeeded());
    for (id, name) in [(3, "sweep-3"), (5, "other")] {
        world.submit(sized(id, name, 8, HOUR));
        world.run(id);
        world.submit(sized(id + 1, "next", 8, HOUR));
        let report = world.engine.explain(of(id + 1)).unwrap();
        assert!(report.estimated_start.is_some() && report.likely_start.is_none(), "{report:?}");
        world.step(&[Input::CancelRequested { job: JobId(id + 1), by: "user".to_owned() }]);
        world.advance(HOUR / 2);
        world.end(id, &Exit::succeeded());
    }
}

/// By the last runs, a job of an hour would be over in six minutes, and so before the reservation begins. Its limit
/// counts.
#[test]
fn reservations_and_back_fill_rest_on_limits_alone() {
    let decide = |with_past: bool| {
        let mut world = world();
        let took = if with_past { HOUR / 10 } else { 0 };
        for id in 1..=4 {
            ran(&mut world, id, &format!("short-{id}"), HOUR, took, &Exit::succeeded());
        }
        if !with_past {
            world.advance(4 * HOUR / 10);
        }
        world.submit(sized(10, "short-10", 6, HOUR));
        world.run(10);
        world.submit(sized(11, "whole", 8, HOUR));
        let reserved = world.record(of(11)).reserved.clone().unwrap();
        world.submit(sized(12, "short-12", 2, 2 * HOUR));
        let reason = world.engine.reason(of(12)).unwrap();
        (
            reserved.at.unwrap().since(world.now),
            reason,
            world.engine.explain(of(11)).unwrap().likely_start,
            world.now,
        )
    };
    let (at_ms, reason, likely, now) = decide(true);
    assert_eq!(at_ms, HOUR, "the limit, and no sooner");
    assert!(matches!(reason, Reason::Priority { ahead, at: Some(_) } if ahead == of(11)), "{reason:?}");
    assert_eq!(likely, Some(LikelyStart { at: now.plus(HOUR / 10), runs: 4 }));
    let (without_ms, same, _, _) = decide(false);
    assert_eq!((without_ms, same), (at_ms, reason), "the past changes nothing");
}
