//! The seeded swarm, in small. `phalanx-sim swarm` runs more; `SWARM_RUNS` raises it here.

#![allow(clippy::unwrap_used)]

use phalanx_model::{Input, Queue, QueueName};
use phalanx_sim::{
    Case, FailureKind, Faults, Operation, World, crowded_swarm, plain_swarm, recorded_swarm, shrink, swarm,
};

/// It stops at the first run that breaks: engines with a known bug, of which `crates/engine/tests/mutants.toml` has a list,
/// are found out by it.
#[test]
fn nothing_breaks_and_all_work_ends() {
    let runs = std::env::var("SWARM_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    let run = |seed| {
        let report = swarm(seed);
        assert!(report.failure.is_none(), "{report}");
        report
    };
    let reports: Vec<_> = (1..=runs).map(run).collect();
    // The swarm is worth something only while its runs really do things.
    assert!(reports.iter().map(|r| r.crashes).sum::<u64>() > runs);
    assert!(reports.iter().map(|r| r.starts).sum::<u64>() > 3 * runs);
    assert!(reports.iter().map(|r| r.succeeded).sum::<u64>() > runs);
    assert!(reports.iter().map(|r| r.evictions).sum::<u64>() > runs / 10);
}

#[test]
fn a_seed_is_the_whole_input() {
    for seed in [7, 14, 41] {
        assert_eq!(swarm(seed), swarm(seed));
    }
}

/// Seeds that once broke something, in the engine or in what watches it.
#[test]
fn seeds_that_broke_something_once() {
    for seed in [4, 13, 14, 41, 330, 539, 755, 785, 6067] {
        let report = plain_swarm(seed);
        assert!(report.failure.is_none(), "{report}");
    }
}

/// Heads that need much, and a stream of small jobs behind them: none waits longer than its bound.
#[test]
fn no_head_of_a_crowd_starves() {
    for seed in 1..=100 {
        let report = crowded_swarm(seed, &mut Case::default());
        assert!(report.failure.is_none(), "{report}");
    }
}

/// The same as short files, each named by what was broken; `phalanx-sim swarm --seed N --shrink FILE` writes them.
#[test]
fn cases_that_broke_something_once() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut cases: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    cases.sort();
    assert!(!cases.is_empty());
    for path in cases {
        let case = Case::from_text(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let failure = case.run().err();
        assert!(failure.is_none(), "{}: {}", path.display(), failure.unwrap());
    }
}

/// Two queues that stand below each other fail together, however much happens around them: the short case is these two,
/// fails as the long one does, also after it was read from its file, and either of them alone is no failure.
#[test]
fn a_failing_case_shrinks_to_what_makes_it_fail() {
    let stands_below = |name: &str, parent: &str| {
        let [name, parent] = [name, parent].map(|name| QueueName::new(name).unwrap());
        Operation::Tell(Box::new(Input::QueueObserved {
            queue: Box::new(Queue { parent: Some(parent), ..Queue::named(name) }),
        }))
    };
    // Where the engine starts anew in between, it knows nothing of the first.
    let failing = (1..30).filter_map(|seed| {
        let mut case = Case::default();
        assert!(recorded_swarm(seed, &mut case).failure.is_none());
        let third = case.operations.len() / 3;
        case.operations.insert(2 * third, stands_below("one", "other"));
        case.operations.insert(third, stands_below("other", "one"));
        let failure = case.run().err().filter(|_| third > 10)?;
        Some((case, failure))
    });
    let failing: Vec<_> = failing.take(3).collect();
    assert_eq!(failing.len(), 3);
    for (case, failure) in failing {
        let fails = |case: &Case| case.run().is_err_and(|other| other.is_like(&failure));
        let short = shrink(&case, fails);
        assert_eq!(short.operations, [stands_below("other", "one"), stands_below("one", "other")]);
        let read = Case::from_text(&short.to_text().unwrap()).unwrap();
        assert_eq!(read, short);
        assert!(fails(&read));
        for alone in &short.operations {
            let alone = Case { operations: vec![alone.clone()], ..short.clone() };
            assert!(alone.run().is_ok());
        }
    }
}

/// What the engine refuses breaks the run: a simulated world reports properly.
#[test]
fn a_world_that_tells_nonsense_is_found_out() {
    use phalanx_model::{JobId, Timestamp};
    let mut world = World::new(phalanx_engine::Config::default(), Faults::none(), 1);
    let failure = world.tell([Input::GangCheckpointed { gang: JobId(1).gang(0), at: Timestamp(1) }]);
    assert_eq!(failure.unwrap_err().kind, FailureKind::Correctness);
}
