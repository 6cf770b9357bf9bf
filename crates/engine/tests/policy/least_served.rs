//! Queues that order by service: gangs that had less go first, and gangs that had more are preempted, no sooner than
//! needed.

use phalanx_engine::{Config, Engine};
use phalanx_model::{Epoch, Input, Outcome, PreemptionRule, Reason, Timestamp};
use phalanx_testkit::{JobBuilder, gang, job, queue};

use crate::world::{HOUR, MINUTE, SECOND, World, octets};

/// One rank with some devices, in the queue.
fn of_lab(number: u64, devices: u32) -> JobBuilder {
    job(number, gang(1).devices(devices)).queue("lab").grace(SECOND)
}

/// Eight devices, and a queue with these thresholds in hours of one device; running gangs may be preempted at once.
fn lab(hours: &[u64]) -> World {
    let mut world = World::without_min_run(1);
    let levels: Vec<u64> = hours.iter().map(|hours| hours * HOUR).collect();
    world.tell(&[queue("lab").least_served(&levels).observed()]);
    world
}

#[test]
fn who_had_more_makes_way_when_it_reaches_the_level_and_no_sooner() {
    let mut world = lab(&[1]);
    world.submit(of_lab(1, 8));
    world.advance(MINUTE);
    world.submit(of_lab(2, 8));
    // An hour of one device is seven and a half minutes of eight.
    world.advance(6 * MINUTE + 29 * SECOND);
    assert_eq!((world.is_running(1), world.is_running(2)), (true, false));
    world.advance(3 * SECOND);
    assert_eq!((world.evictions(1), world.is_running(2)), (1, true));
    let rule = world.watched.record(World::gang(1)).evicted.clone().map(|eviction| eviction.rule);
    assert!(matches!(rule, Some(PreemptionRule::LessServed { level: 0, over: 1, .. })), "{rule:?}");
    // On one level gangs go in the order in which they came, and do not alternate.
    world.advance(20 * HOUR);
    assert_eq!((world.evictions(1), world.evictions(2)), (1, 0));
}

#[test]
fn in_a_queue_of_the_other_order_nobody_makes_way_for_service() {
    let mut world = World::without_min_run(1);
    world.tell(&[queue("lab").observed()]);
    world.submit(of_lab(1, 8));
    world.submit(of_lab(2, 8));
    world.advance(100 * HOUR);
    assert_eq!((world.evictions(1), world.is_running(2)), (0, false));
}

#[test]
fn whoever_just_started_is_left_alone_and_makes_way_right_after() {
    let mut world = World::new(&octets(1));
    world.tell(&[queue("lab").least_served(&[HOUR]).observed()]);
    world.submit(of_lab(1, 8));
    world.submit(of_lab(2, 8));
    world.advance(10 * MINUTE - SECOND);
    assert!(world.is_running(1), "at seven and a half minutes it has its hour, and is left alone for ten");
    world.advance(3 * SECOND);
    assert!(world.is_running(2));
}

#[test]
fn of_those_that_wait_less_service_goes_first_whatever_the_priority() {
    let mut world = lab(&[1]);
    world.submit(of_lab(1, 8).priority(50));
    world.advance(HOUR);
    world.submit_for(of_lab(2, 8), 5 * MINUTE);
    world.submit(of_lab(3, 8));
    world.advance(2 * SECOND);
    assert!(world.is_running(2));
    let report = world.watched.engine.explain(World::gang(1)).unwrap();
    assert_eq!(
        report.by_service().as_deref(),
        Some("ordered after 1 gang of its queue that has attained less service")
    );
    world.advance(5 * MINUTE);
    assert_eq!((world.is_running(3), world.is_running(1)), (true, false), "before one with more priority");
}

/// The first pending gang had a placement reserved at the end of running gangs, by their limits; with a reservation it
/// was outside of the queue, and did not preempt a gang that had come to have more service meanwhile.
#[test]
fn one_with_a_place_reserved_need_not_wait_for_it() {
    let mut world = lab(&[1]);
    world.submit(of_lab(1, 8).time_limit(100 * HOUR));
    world.submit(of_lab(2, 8).time_limit(HOUR));
    world.advance(MINUTE);
    assert!(world.watched.record(World::gang(2)).reserved.is_some());
    world.advance(8 * MINUTE);
    assert!(world.is_running(2));
}

/// A timer for the next level that fired when the queue no longer ordered by service was taken for the timer of the
/// time limit, and ended the job.
#[test]
fn a_queue_that_goes_by_service_no_longer_ends_nobody() {
    let mut world = lab(&[1]);
    world.submit(of_lab(1, 8).time_limit(100 * HOUR));
    world.advance(MINUTE);
    world.tell(&[queue("lab").observed()]);
    world.advance(HOUR);
    assert!(world.is_running(1), "{}", world.phase(1));
    // And its service counts once the queue orders by service again.
    world.tell(&[queue("lab").least_served(&[HOUR]).observed()]);
    world.submit(of_lab(2, 8));
    world.advance(2 * SECOND);
    assert!(world.is_running(2));
}

#[test]
fn a_level_stays_with_the_next_leader_though_its_clock_stands_earlier() {
    let mut world = lab(&[1]);
    world.submit(of_lab(1, 8));
    world.advance(8 * MINUTE);
    let mut next = Engine::new(Epoch(2), Config::default());
    let mut out = Outcome::default();
    let _ = next.step(Timestamp(MINUTE), &world.watched.engine.facts(), &mut out);
    let record = |engine: &Engine| engine.gang(World::gang(1)).cloned().unwrap();
    assert_eq!(record(&next).served, record(&world.watched.engine).served);
    let mut second = of_lab(2, 8).build();
    second.submitted_at = Timestamp(MINUTE);
    let _ = next.step(Timestamp(MINUTE), &[Input::JobSubmitted { job: Box::new(second) }], &mut out);
    assert!(
        matches!(next.reason(World::gang(2)), Some(Reason::Preempting { .. })),
        "it had its hour all the same"
    );
}

#[test]
fn the_highest_level_makes_way_and_across_queues_none_does() {
    let mut world = lab(&[1, 8]);
    world.tell(&[queue("other").least_served(&[HOUR]).observed()]);
    world.submit(of_lab(1, 4));
    world.advance(3 * HOUR);
    world.submit(of_lab(2, 4));
    world.advance(HOUR);
    // One gang has sixteen hours of a device and the other four.
    world.submit(of_lab(3, 4));
    world.advance(2 * SECOND);
    assert_eq!((world.evictions(1), world.evictions(2), world.is_running(3)), (1, 0, true));
}
