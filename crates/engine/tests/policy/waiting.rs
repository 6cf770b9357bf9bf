//! No gang starves: if all gangs ahead end by a known time, so does the wait.

use phalanx_model::Timestamp;
use phalanx_testkit::proptest::collection::vec;
use phalanx_testkit::proptest::prelude::*;
use phalanx_testkit::{gang, job};

use crate::world::{MINUTE, SECOND, World, octets, set_min_run, settings};

/// A job with a time limit: its members, the devices of each, its limit and the part of it that the job runs, in
/// minutes and per cent; and when it comes, in minutes after the job before it.
#[derive(Clone, Debug)]
struct Timed {
    size: u32,
    devices: u32,
    limit: u64,
    runs: u64,
    comes: u64,
    priority: i32,
}

fn any_timed() -> impl Strategy<Value = Timed> {
    (1_u32..5, 1_u32..9, 1_u64..60, 1_u64..=100, 0_u64..10, 0_i32..3).prop_map(
        |(size, devices, limit, runs, comes, priority)| Timed { size, devices, limit, runs, comes, priority },
    )
}

const NODES: usize = 3;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// In one class and one queue, with a reservation for the first gang: a gang that fits an empty cluster has started
    /// by the time at which all gangs before it in the queue, and all gangs that ran when it came, would have run one
    /// after another.
    #[test]
    fn who_is_behind_those_that_end_starts_within_their_spans(jobs in vec(any_timed(), 2..14), depth in 1_u32..4) {
        let mut world = World::new(&octets(NODES));
        let all = settings(|settings| {
            (settings.reservation_depth, settings.ageing_ms) = (depth, 0);
            set_min_run(settings, 0);
        });
        world.tell(&[all]);
        // The longest time from the order to start to the end of the gang.
        let span = |timed: &Timed| MINUTE + timed.limit * MINUTE + 30 * SECOND;
        let mut came: Vec<(u64, Timestamp, u64)> = Vec::new();
        for (at, timed) in jobs.iter().enumerate() {
            world.advance(timed.comes * MINUTE);
            let id = 1 + at as u64;
            let submitted = job(id, gang(timed.size).devices(timed.devices)).time_limit(timed.limit * MINUTE).priority(timed.priority);
            let runs_ms = (timed.limit * MINUTE * timed.runs / 100).max(1);
            world.submit_for(submitted, runs_ms);
            let is_known = world.watched.engine.gang(World::gang(id)).is_some();
            if is_known {
                came.push((id, world.now(), span(timed)));
            }
        }
        let last = world.now();
        let all: u64 = jobs.iter().map(span).sum();
        world.advance(all);
        for (id, at, own) in &came {
            // All gangs of an equal or a higher priority may be before this gang, and the others may run when it comes.
            let bound = at.plus(all - own);
            let started = world.watched.record(World::gang(*id)).first_started_at;
            prop_assert!(started.is_some_and(|started| started <= bound.max(last)), "job {id} came at {at:?}, started {started:?}, bound {bound:?}");
        }
    }

    /// The first gang of the queue starts no later than its reservation promised when it was made.
    #[test]
    fn a_reservation_is_kept(jobs in vec(any_timed(), 2..16), depth in 1_u32..5) {
        let mut world = World::new(&octets(NODES));
        world.tell(&[settings(|settings| settings.reservation_depth = depth)]);
        for (at, timed) in jobs.iter().enumerate() {
            world.advance(timed.comes * MINUTE);
            let submitted = job(1 + at as u64, gang(timed.size).devices(timed.devices)).time_limit(timed.limit * MINUTE);
            world.submit_for(submitted.priority(timed.priority), (timed.limit * MINUTE * timed.runs / 100).max(1));
        }
        world.advance(jobs.len() as u64 * 62 * MINUTE);
        for (at, change) in &world.changes {
            let phalanx_model::Change::GangReserved { gang, reserved } = change else { continue };
            let by = reserved.at.unwrap_or(Timestamp::MAX);
            let placed = world.changes.iter().find_map(|(when, change)| match change {
                phalanx_model::Change::GangPlaced { gang: placed, .. } if placed == gang && when >= at => Some(*when),
                _ => None,
            });
            prop_assert!(placed.is_some_and(|placed| placed <= by), "{gang} has a place from {by:?}, and started {placed:?}");
        }
        let dropped = world.changes.iter().filter(|(_, change)| matches!(change, phalanx_model::Change::ReservationDropped { .. }));
        prop_assert_eq!(dropped.count(), 0);
    }
}

/// Found by the property above: job 4 would end after job 2 is to start, and has a reservation of its own behind job 2.
/// When everything was planned again, job 4 got the devices reserved for job 2, because it was to start sooner.
#[test]
fn who_is_second_does_not_take_what_is_held_for_the_first() {
    let mut world = World::new(&octets(NODES));
    world.tell(&[settings(|settings| settings.reservation_depth = 2)]);
    world.submit_for(job(1, gang(3).devices(2)).time_limit(32 * MINUTE), 32 * MINUTE);
    world.submit(job(2, gang(3).devices(7)).time_limit(MINUTE));
    world.submit_for(job(3, gang(1).devices(2)).time_limit(10 * MINUTE), 4 * MINUTE + 6 * SECOND);
    world.advance(4 * MINUTE);
    world.submit(job(4, gang(3).devices(1)).time_limit(28 * MINUTE));
    assert_eq!(world.phase(4), "pending");
    world.watched.plan_anew();
    assert_eq!(world.phase(4), "pending");
    world.advance(29 * MINUTE);
    let started = world.watched.record(World::gang(2)).first_started_at;
    assert!(started.is_some_and(|at| at <= Timestamp(SECOND + 32 * MINUTE + 30 * SECOND)), "{started:?}");
}

/// GPUs that are kept for a gang whose start nobody knows are lent to whoever has to be gone within a tenth of what it had
/// waited by then; a successor knows that time too.
#[test]
fn what_is_kept_without_a_time_is_lent_for_a_part_of_the_wait() {
    let mut world = World::without_min_run(2);
    world.submit(job(1, gang(8).devices(1)));
    world.submit(job(2, gang(16).devices(1)));
    // The sixteenth starts after 165 minutes, and the place is kept from then on.
    for id in 3..19 {
        world.submit_for(job(id, gang(4).devices(1)), 10 * MINUTE);
        world.advance(11 * MINUTE);
    }
    world.watched.restart();
    world.submit(job(20, gang(4).devices(1)).time_limit(10 * MINUTE));
    world.submit(job(21, gang(4).devices(1)));
    world.submit_for(job(22, gang(4).devices(1)).time_limit(2 * MINUTE), MINUTE);
    assert_eq!([20, 21, 22].map(|id| world.phase(id)), ["pending", "pending", "running"]);
    world.advance(4 * MINUTE);
    world.submit(job(23, gang(4).devices(1)).time_limit(2 * MINUTE));
    assert_eq!(world.phase(23), "pending", "the time is over");
    world.cancel(1);
    world.advance(MINUTE);
    assert!(world.is_running(2));
}
