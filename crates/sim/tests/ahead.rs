//! Whatever state a swarm brings a system into, a snapshot of it goes on, always in the same way.

#![allow(clippy::unwrap_used, reason = "tests")]

use phalanx_model::Snapshot;
use phalanx_sim::ahead::{Basis, ahead};
use phalanx_sim::{Case, Rng, recorded_swarm};

/// Longer than any limit of a swarm's job.
const HORIZON_MS: u64 = 2 * 3_600_000;

#[test]
fn every_state_of_a_swarm_goes_on() {
    let (mut gangs, mut ended) = (0, 0);
    for seed in 1..=90 {
        let mut case = Case::default();
        let _ = recorded_swarm(seed, &mut case);
        let mut world = case.conditions.world();
        let some = Rng::new(seed).below(case.operations.len() as u64 + 1);
        for operation in case.operations.iter().take(usize::try_from(some).unwrap()) {
            world.carry(operation).unwrap();
        }
        let snapshot = Snapshot { taken_at: world.now(), ..world.engine().snapshot() };
        let next = ahead(&snapshot, Vec::new(), HORIZON_MS)
            .unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        let again = ahead(&snapshot, Vec::new(), HORIZON_MS).unwrap();
        assert_eq!(format!("{:?}", next.gangs), format!("{:?}", again.gangs), "seed {seed}");
        for (id, course) in &next.gangs {
            gangs += 1;
            ended += usize::from(course.ends_at.is_some());
            // With a limit it holds its devices no longer than that.
            let is_to_end = course.is_running && course.basis != Basis::Nothing && course.starts.is_empty();
            let runs_on =
                course.held_device_ms > 0 && course.held_device_ms == u64::from(course.devices) * HORIZON_MS;
            assert!(!is_to_end || !runs_on, "seed {seed}: {id} runs on: {course:?}");
        }
    }
    assert!(gangs > 100 && ended > 20, "{gangs} gangs, of which {ended} ended");
}
