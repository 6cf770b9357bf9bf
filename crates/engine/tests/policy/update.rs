//! What users change of a job that they have submitted, and what they start anew.

use phalanx_model::{Change, Input, JobId, JobUpdate, QueueName, Reason};
use phalanx_testkit::{gang, job, queue};

use crate::world::{HOUR, MINUTE, World};

fn update(job: u64, update: JobUpdate) -> Input {
    Input::JobUpdated { job: JobId(job), update }
}

fn limit(ms: u64) -> JobUpdate {
    JobUpdate { time_limit_ms: Some(ms), ..JobUpdate::default() }
}

fn priority(priority: i32) -> JobUpdate {
    JobUpdate { priority: Some(priority), ..JobUpdate::default() }
}

fn to_queue(name: &str) -> JobUpdate {
    JobUpdate { queue: Some(QueueName::new(name).unwrap()), ..JobUpdate::default() }
}

/// Why the last facts were refused.
fn refused(world: &mut World, fact: Input) -> Option<String> {
    let before = world.changes.len();
    world.tell(&[fact]);
    world.changes[before..].iter().find_map(|(_, change)| match change {
        Change::InputRejected { why, .. } => Some(why.clone()),
        _ => None,
    })
}

#[test]
fn the_time_limit_of_a_running_job_ends_it_when_it_says_now() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(1).devices(8)).time_limit(HOUR));
    world.submit(job(2, gang(1).devices(8)).time_limit(HOUR));
    world.advance(MINUTE);
    let start =
        |world: &World| world.watched.engine.explain(World::gang(2)).unwrap().estimated_start.unwrap().at;
    let before = start(&world);
    world.tell(&[update(1, limit(30 * MINUTE))]);
    assert!(start(&world).plus(29 * MINUTE) < before, "who waits for its end knows");
    world.watched.restart();
    world.advance(31 * MINUTE);
    assert_eq!((world.phase(1), world.phase(2)), ("time_limit", "running"));
    world.tell(&[update(2, limit(3 * HOUR))]);
    world.advance(2 * HOUR);
    assert_eq!(world.phase(2), "running");
    world.advance(2 * HOUR);
    assert_eq!(world.phase(2), "time_limit");
}

#[test]
fn a_shorter_limit_lets_a_job_start_ahead_of_a_reservation() {
    let mut world = World::without_min_run(2);
    world.submit(job(1, gang(1).devices(8)).time_limit(HOUR));
    world.submit(job(2, gang(2).devices(8)).time_limit(HOUR));
    world.submit(job(3, gang(1).devices(8)).time_limit(3 * HOUR));
    world.advance(MINUTE);
    assert_eq!((world.phase(2), world.phase(3)), ("pending", "pending"));
    world.tell(&[update(3, limit(10 * MINUTE))]);
    world.advance(MINUTE);
    assert_eq!((world.phase(2), world.phase(3)), ("pending", "running"));
}

#[test]
fn a_priority_decides_who_goes_first() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(1).devices(8)));
    world.submit(job(2, gang(1).devices(8)));
    world.submit(job(3, gang(1).devices(8)));
    world.tell(&[update(3, priority(5))]);
    world.watched.restart();
    world.cancel(1);
    world.advance(MINUTE);
    assert_eq!((world.phase(2), world.phase(3)), ("pending", "running"));
}

#[test]
fn a_pending_job_moves_to_another_queue_and_a_running_one_does_not() {
    let mut world = World::without_min_run(2);
    world.tell(&[
        queue("small").limit("gpus", 8).observed(),
        queue("large").observed(),
        queue("short").time_limit_max(MINUTE).observed(),
    ]);
    world.submit(job(1, gang(1).devices(8)).queue("small"));
    world.submit(job(2, gang(1).devices(8)).queue("small"));
    assert!(matches!(world.reason(2), Some(Reason::QueueLimit(_))));
    world.tell(&[update(2, to_queue("large"))]);
    world.watched.restart();
    world.advance(MINUTE);
    assert_eq!(world.phase(2), "running");
    assert_eq!((world.used("small"), world.used("large")), (8_000, 8_000));

    let why = refused(&mut world, update(1, to_queue("large"))).unwrap();
    assert!(why.contains("another queue is for jobs that wait"), "{why}");
    world.submit(job(3, gang(1).devices(8)).queue("small").time_limit(HOUR));
    let why = refused(&mut world, update(3, to_queue("short"))).unwrap();
    assert!(why.contains("longer than queue short allows"), "{why}");
    let why = refused(&mut world, update(3, to_queue("none"))).unwrap();
    assert!(why.contains("none"), "{why}");
    assert_eq!(
        refused(&mut world, update(3, JobUpdate { queue: to_queue("short").queue, ..limit(MINUTE) })),
        None
    );
    let why = refused(&mut world, update(3, limit(2 * MINUTE))).unwrap();
    assert!(why.contains("at most 60 s"), "{why}");
}

#[test]
fn what_has_ended_is_not_changed() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(1).devices(8)));
    world.cancel(1);
    world.advance(MINUTE);
    assert!(refused(&mut world, update(1, priority(1))).unwrap().contains("has ended"));
    assert!(refused(&mut world, update(7, priority(1))).unwrap().contains("no such job"));
    assert!(refused(&mut world, update(1, limit(0))).is_some());
}

#[test]
fn a_requeued_job_starts_again_and_no_retry_counts() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(1).devices(8)));
    world.advance(MINUTE);
    let requeue = |job| Input::JobRequeued { job: JobId(job), by: "ada".to_owned() };
    world.tell(&[requeue(1)]);
    world.advance(MINUTE);
    let record = world.watched.record(World::gang(1)).clone();
    assert_eq!((record.phase.word(), record.attempt, record.failures), ("running", 2, 0));
    world.submit(job(2, gang(1).devices(8)));
    assert!(refused(&mut world, requeue(2)).unwrap().contains("nothing of it runs"));
    // With a hold it leaves its place to others.
    world.tell(&[Input::JobHeld { job: JobId(1), by: "ada".to_owned() }, requeue(1)]);
    world.advance(MINUTE);
    assert_eq!((world.phase(1), world.phase(2)), ("pending", "running"));
}

/// What is reserved for a job that preempts counts as used in its queue, and went on to count there after the job had left.
#[test]
fn a_job_that_moves_takes_its_claim_out_of_the_queue_that_it_leaves() {
    let mut world = World::without_min_run(1);
    world.tell(&[queue("left").observed(), queue("next").observed()]);
    world.submit(job(1, gang(1).devices(8)).queue("next").class("opportunistic").grace(HOUR));
    world.advance(MINUTE);
    world.tell(&[Input::JobSubmitted {
        job: Box::new(job(2, gang(1).devices(8)).queue("left").class("serving").build()),
    }]);
    let fact = update(2, to_queue("next"));
    assert_eq!(world.reason(2).map(|reason| reason.word()), Some("Preempting"));
    assert_eq!(refused(&mut world, fact), None);
    assert_eq!(world.used("left"), 0);
    world.watched.restart();
    world.advance(2 * HOUR);
    assert_eq!((world.phase(2), world.used("left")), ("running", 0));
}
