//! Engines that are broken on purpose: a small range of seeds finds every one out, and an engine that is whole passes.
//! `cargo test -p phalanx-sim --features mutation --test mutations -- --nocapture` prints who said what.

#![cfg(feature = "mutation")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use phalanx_engine::{Engine, Guard};
use phalanx_sim::{Case, Failure, FailureKind, recorded_swarm, shrink};

type Prepare = fn(&mut Engine);

/// Seeds 1 to this find out all of them.
const SEEDS: u64 = 60;

macro_rules! mutations {
    ($($what:literal: $guard:ident,)*) => {
        const MUTATIONS: &[(&str, Prepare)] = &[$(($what, |engine| engine.take_away(Guard::$guard)),)*];
    };
}

mutations! {
    "forgets to give back what ended": GivenBack,
    "gives the same devices to two in one step": TakenAtOnce,
    "ignores the level that a gang requires": InsideLevel,
    "does not wake who waits for a place": FreedWakes,
    "drops the word that a member ended": EndIsHeard,
    "ignores the limit of a queue": WithinLimit,
    "orders a part of a gang to start": OrderedWhole,
    "opens the gate before all are there": AllAtTheGate,
    "places on a node that is cordoned": ClosedTakesNothing,
    "lets no timer expire": TimersExpire,
    "forgets after a restart what runs": RunsAfterRestart,
    "forgets who runs when nodes are counted": HeldIsTaken,
    "evicts whoever is in the way": StandsBetter,
    "takes the devices of others": OthersCounted,
    "keeps what ran on a node that is gone": GoneWithNode,
    "takes the answer to an older leader for its own": EpochTellsApart,
    "resumes where nothing was saved": PinnedStays,
    "evicts who had no more service": ServedMoreYields,
    "forgets after a restart what gangs had": ServiceSurvives,
}

/// What a seed finds in an engine, a panic included; and what it did.
fn found(seed: u64, prepare: Prepare) -> (Option<Failure>, Case) {
    let mut case = Case::default();
    let run = catch_unwind(AssertUnwindSafe(|| recorded_swarm(seed, prepare, &mut case)));
    (run.map_or_else(|panic| Some(crash(&*panic)), |report| report.failure), case)
}

fn crash(panic: &(dyn std::any::Any + Send)) -> Failure {
    let what = panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
    Failure { kind: FailureKind::Crash, what: what.unwrap_or_default(), log: String::new() }
}

#[test]
fn every_broken_engine_is_caught_and_a_whole_one_passes() {
    std::panic::set_hook(Box::new(|_| ()));
    for seed in 1..=SEEDS {
        let (failure, _) = found(seed, |_| ());
        assert!(failure.is_none(), "seed {seed}, nothing taken away: {}", failure.unwrap());
    }
    let mut missed = Vec::new();
    for (what, prepare) in MUTATIONS {
        let caught = (1..=SEEDS).find_map(|seed| Some((seed, found(seed, *prepare).0?)));
        match caught {
            Some((seed, Failure { kind, what: said, .. })) => {
                let said: String = said.chars().take(90).collect();
                println!("{what:<50} seed {seed:>3}  {kind:?}: {said}");
            }
            None => missed.push(what),
        }
    }
    assert!(missed.is_empty(), "seeds 1 to {SEEDS} miss these: {missed:?}");
}

/// A short case fails as the long one does, also after it was read from its file, and passes on an engine that is whole.
#[test]
fn a_failing_seed_shrinks() {
    let broken: &[Prepare] = &[
        |engine| engine.take_away(Guard::TakenAtOnce),
        |engine| engine.take_away(Guard::ClosedTakesNothing),
        |engine| engine.take_away(Guard::GivenBack),
    ];
    for prepare in broken {
        let (failure, case) = (1..=SEEDS)
            .find_map(|seed| {
                let (failure, case) = found(seed, *prepare);
                Some((failure.filter(|_| case.operations.len() >= 50)?, case))
            })
            .unwrap();
        let run = |case: &Case, prepare: Prepare| {
            catch_unwind(AssertUnwindSafe(|| case.run(prepare))).unwrap_or_else(|panic| Err(crash(&*panic)))
        };
        let fails = |case: &Case| run(case, *prepare).is_err_and(|other| other.is_like(&failure));
        assert!(fails(&case), "a case is what the run was: {failure}");
        let short = shrink(&case, fails);
        assert!(
            short.operations.len() * 5 <= case.operations.len(),
            "{} of {}",
            short.operations.len(),
            case.operations.len()
        );
        println!("{} operations of {}: {}", short.operations.len(), case.operations.len(), failure.what);
        let read = Case::from_text(&short.to_text().unwrap()).unwrap();
        assert_eq!(read, short);
        assert!(fails(&read));
        let whole = run(&read, |_| ());
        assert!(whole.is_ok(), "{}", whole.unwrap_err());
    }
}
