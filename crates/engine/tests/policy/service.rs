//! Services: as many replicas as are wanted, the minimum never preempted; sessions that are not used.

use phalanx_model::later::Metric;
use phalanx_model::{
    Change, Ending, GangId, Input, JobId, Phase, Queue, QueueName, Reason, Resource, Service, Session,
    StopCause,
};
use phalanx_testkit::{JobBuilder, gang, job, levels, node};

use crate::world::{MINUTE, SECOND, World};

const TOKENS: &str = "tokens";
const EACH: u64 = 1_000_000;

fn web(min: u32, max: usize) -> JobBuilder {
    job(1, gang(1).devices(2)).class("serving").service(min, max).restarts()
}

fn scaled_by_tokens(min: u32, max: usize) -> JobBuilder {
    web(min, max).target(TOKENS, EACH)
}

fn scale(world: &mut World, replicas: u32) {
    let service = Service { job: JobId(1), replicas, looks: Vec::new(), is_set: true };
    world.tell(&[Input::ServiceObserved { service }]);
}

fn replica(index: u32) -> GangId {
    JobId(1).gang(index)
}

/// Numbers of the replicas that run.
fn running(world: &World) -> Vec<u32> {
    let records = world.watched.records().into_iter().filter(|record| record.id.job == JobId(1));
    records.filter(|r| matches!(r.phase, Phase::Running { .. })).map(|record| record.id.index).collect()
}

/// Every running replica reports a value.
fn tell(world: &mut World, value_milli: i64) {
    let at = world.now();
    let metric = |index| Metric { gang: replica(index), name: TOKENS.to_owned(), value_milli, at };
    let facts: Vec<Input> =
        running(world).into_iter().map(|index| Input::MetricObserved { metric: metric(index) }).collect();
    world.tell(&facts);
}

/// The same every half minute for some minutes.
fn tell_for(world: &mut World, minutes: u64, value_milli: i64) {
    for _ in 0..2 * minutes {
        world.advance(MINUTE / 2);
        tell(world, value_milli);
    }
    world.advance(2 * SECOND);
}

fn queue(name: &str, guaranteed: u64) -> Input {
    let mut queue = Queue::named(QueueName::new(name).unwrap());
    queue.guaranteed.insert(Resource::Gpus, guaranteed * 1_000);
    Input::QueueObserved { queue: Box::new(queue) }
}

#[test]
fn as_many_replicas_run_as_somebody_says_and_the_others_rest() {
    let mut world = World::without_min_run(1);
    world.submit(web(1, 4));
    world.advance(SECOND);
    assert_eq!(running(&world), [0]);
    assert_eq!(world.watched.engine.reason(replica(3)), Some(Reason::ScaledIn { replicas: 1 }));
    scale(&mut world, 3);
    world.advance(SECOND);
    assert_eq!(running(&world), [0, 1, 2]);
    scale(&mut world, 2);
    world.advance(2 * SECOND);
    assert_eq!(running(&world), [0, 1], "the highest numbers go");
    assert_eq!(world.watched.record(replica(2)).failures, 0);
    for wrong in [0, 5] {
        scale(&mut world, wrong);
        let refused = matches!(world.changes.last(), Some((_, Change::InputRejected { .. })));
        assert!(refused, "{wrong} replicas of 1 to 4");
    }
    assert_eq!(running(&world), [0, 1]);
    world.watched.restart();
    world.cancel(1);
    world.advance(2 * SECOND);
    let ends = |(_, change): &(_, Change)| matches!(change, Change::JobFinished { .. });
    assert!(world.changes.iter().any(ends), "resting replicas do not keep a service that was cancelled");
}

#[test]
fn a_replica_that_ends_is_started_again_and_one_that_may_not_is_stood_in_for() {
    let mut world = World::without_min_run(1);
    // The program of a replica ends by itself, and with success; that is no success for a replica, which is to serve.
    world.submit_for(web(1, 3), 10 * SECOND);
    world.advance(12 * SECOND);
    assert_eq!(running(&world), [0]);
    assert_eq!(world.watched.record(replica(0)).failures, 1);

    let mut once = World::without_min_run(1);
    once.submit_for(job(1, gang(1).devices(2)).service(1, 3), 10 * SECOND);
    once.advance(12 * SECOND);
    assert!(once.watched.record(replica(0)).is_finished());
    assert_eq!(running(&once), [1], "the next stands in, and nobody is stopped for the one that failed");
}

#[test]
fn the_minimum_never_makes_way_and_what_is_beyond_it_does() {
    let mut world = World::without_min_run(1);
    world.tell(&[queue("chat", 2), queue("lab", 6)]);
    world.submit(web(1, 4).queue("chat"));
    scale(&mut world, 4);
    world.advance(SECOND);
    assert_eq!(running(&world), [0, 1, 2, 3], "what is beyond the minimum borrows, even of class serving");
    world.submit(job(2, gang(1).devices(6)).queue("lab"));
    world.advance(10 * SECOND);
    assert!(world.is_running(2));
    assert_eq!(running(&world), [0]);
    assert_eq!(world.watched.record(replica(3)).evictions, 1);
    // Of a higher class, and within no guarantee.
    world.submit(job(3, gang(1).devices(8)).queue("lab").class("serving"));
    world.advance(10 * SECOND);
    assert_eq!(running(&world), [0]);
}

#[test]
fn replicas_go_where_the_fewest_are_as_long_as_they_fit_there() {
    let nodes = ["a", "b", "c"].map(|name| node(name).gpus(4).build());
    let mut world = World::with_levels(&levels(&["cluster"]), &nodes);
    world.submit(job(2, gang(1).devices(3)).time_limit(MINUTE));
    world.submit(web(4, 5).apart("node"));
    world.advance(SECOND);
    let on = |world: &World, index| {
        let placement = world.watched.record(replica(index)).placement.clone();
        placement.map(|placement| placement.slots[0].node.to_string()).unwrap_or_default()
    };
    let all: Vec<String> = (0..4).map(|index| on(&world, index)).collect();
    let full = world.on(2)[0].clone();
    let count = |node: &str| all.iter().filter(|on| *on == node).count();
    let others: Vec<usize> = ["a", "b", "c"].into_iter().filter(|n| *n != full).map(count).collect();
    assert_eq!(others, [2, 2], "{all:?} beside {full}");
    world.advance(2 * MINUTE);
    scale(&mut world, 5);
    world.advance(SECOND);
    assert_eq!(on(&world, 4), full, "the node that has none of them");
}

#[test]
fn a_metric_above_its_target_scales_out_at_once_and_one_below_it_after_a_while() {
    let mut world = World::without_min_run(2);
    world.submit(scaled_by_tokens(1, 6));
    world.advance(SECOND);
    tell_for(&mut world, 10, 1_090_000);
    assert_eq!(running(&world), [0], "within the tolerance");
    tell(&mut world, 2_400_000);
    world.advance(SECOND);
    assert_eq!(running(&world), [0, 1, 2], "2.4 times the target of one");
    // Two of the three replicas report nothing yet: a missing report changes nothing.
    assert_eq!(world.watched.engine.reason(replica(3)), Some(Reason::ScaledIn { replicas: 3 }));

    tell_for(&mut world, 4, 300_000);
    tell_for(&mut world, 1, 600_000);
    assert_eq!(running(&world).len(), 3, "not before five minutes");
    tell_for(&mut world, 1, 300_000);
    assert_eq!(running(&world), [0, 1], "the most that was needed within five minutes: 3 × 0.6");
    tell_for(&mut world, 6, 300_000);
    assert_eq!(running(&world), [0], "2 × 0.3");
    tell_for(&mut world, 6, 0);
    assert_eq!(running(&world), [0], "never below the minimum");
    tell(&mut world, 99_000_000);
    world.advance(SECOND);
    assert_eq!(running(&world).len(), 6, "never above the most");
}

#[test]
fn values_that_are_old_or_of_an_earlier_attempt_count_for_nothing() {
    let mut world = World::without_min_run(2);
    world.submit(scaled_by_tokens(2, 6));
    world.advance(SECOND);
    tell(&mut world, 1_000_000);
    world.advance(3 * MINUTE);
    let metric =
        |index, at| Metric { gang: replica(index), name: TOKENS.to_owned(), value_milli: 1_700_000, at };
    let at = world.now();
    world.tell(&[Input::MetricObserved { metric: metric(0, at) }]);
    assert_eq!(
        running(&world),
        [0, 1],
        "the other value is three minutes old, and one alone is not above 2.2"
    );
    world.tell(&[Input::MetricObserved { metric: metric(1, at) }]);
    world.advance(SECOND);
    assert_eq!(running(&world).len(), 4, "3.4 times the target");
    // No replica reports anything any more: nothing changes.
    world.advance(30 * MINUTE);
    assert_eq!(running(&world).len(), 4);
}

#[test]
fn what_is_known_of_a_service_survives_a_restart() {
    let mut world = World::without_min_run(2);
    world.submit(scaled_by_tokens(1, 6));
    world.advance(SECOND);
    tell(&mut world, 3_000_000);
    world.advance(SECOND);
    tell_for(&mut world, 4, 100_000);
    assert_eq!(running(&world).len(), 3);
    world.watched.restart();
    tell_for(&mut world, 2, 100_000);
    assert_eq!(running(&world), [0], "the five minutes are counted from before the restart");
    let scaled = |(_, change): &&(_, Change)| matches!(change, Change::ServiceScaled { .. });
    assert_eq!(world.changes.iter().filter(scaled).count(), 2, "a restart is no news");
}

/// The metric would undo what a user says within seconds.
#[test]
fn replicas_that_a_user_sets_stay_until_the_metric_decides_again() {
    let mut world = World::without_min_run(2);
    world.submit(scaled_by_tokens(1, 6));
    world.advance(SECOND);
    scale(&mut world, 4);
    tell_for(&mut world, 10, 100_000);
    assert_eq!(running(&world).len(), 4, "the metric alone would need one");
    world.watched.restart();
    tell_for(&mut world, 10, 9_000_000);
    assert_eq!(running(&world).len(), 4, "and here six");
    let service = Service { job: JobId(1), replicas: 4, looks: Vec::new(), is_set: false };
    world.tell(&[Input::ServiceObserved { service }]);
    tell_for(&mut world, 10, 100_000);
    assert_eq!(running(&world), [0]);
}

#[test]
fn a_session_ends_when_nobody_used_it_for_as_long_as_its_limit() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(1).devices(1)).idle_limit(30 * MINUTE));
    world.submit(job(2, gang(1).devices(1)).idle_limit(30 * MINUTE));
    world.advance(20 * MINUTE);
    let session = Session { job: JobId(2), used_at: world.now() };
    world.tell(&[Input::SessionObserved { session }]);
    world.advance(11 * MINUTE);
    let ending = |world: &World, job: u64| match &world.watched.record(JobId(job).gang(0)).phase {
        Phase::Finished { ending, .. } => Some(ending.clone()),
        _ => None,
    };
    assert_eq!(ending(&world, 1), Some(Ending::IdleLimit));
    assert!(world.is_running(2), "it was used since");
    world.watched.restart();
    world.advance(18 * MINUTE);
    assert!(world.is_running(2));
    world.advance(2 * MINUTE);
    assert_eq!(ending(&world, 2), Some(Ending::IdleLimit));
    let stops = |(_, change): &(_, Change)| {
        matches!(change, Change::GangStopping { cause: StopCause::IdleLimit, .. })
    };
    assert!(world.changes.iter().any(stops), "the normal stop, with its grace");
}

#[test]
fn what_is_no_service_is_not_scaled_and_what_is_no_session_is_not_used() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(1).devices(1)));
    scale(&mut world, 2);
    world.tell(&[Input::SessionObserved { session: Session { job: JobId(1), used_at: world.now() } }]);
    let refused = |(_, change): &&(_, Change)| matches!(change, Change::InputRejected { .. });
    assert_eq!(world.changes.iter().filter(refused).count(), 2);
    assert_eq!(world.watched.engine.facts(), world.successor().facts());
}
