//! While a gang is being stopped, each member that is gone frees what it held at once.
//!
//! A trial on Kubernetes found the opposite: the workers of an MPIJob were deleted, its launcher (no GPU) was held by a
//! finalizer, and 32 GPUs counted as used until the launcher was gone.

#![allow(clippy::unwrap_used)]

use phalanx_model::{Answer, Exit, FailureClass, GangId, Input, JobId, Phase, Question, Resize, SyncKind};
use phalanx_testkit::proptest::collection::vec;
use phalanx_testkit::proptest::prelude::*;
use phalanx_testkit::{GangBuilder, JobBuilder, Watched, gang, job, levels, node, queue};

fn id(job: u64) -> GangId {
    JobId(job).gang(0)
}

fn submit(job: JobBuilder) -> Input {
    Input::JobSubmitted { job: Box::new(job.build()) }
}

fn cancel(job: u64) -> Input {
    Input::CancelRequested { job: JobId(job), by: "user".into() }
}

/// Nodes of eight devices in one cluster.
fn octets(count: usize) -> Watched {
    let nodes: Vec<_> = (0..count).map(|at| node(&format!("n{at}")).gpus(8).nvswitch().build()).collect();
    Watched::with_nodes(&levels(&["cluster"]), &nodes)
}

/// Four workers of eight devices each, and a launcher without devices, which is rank 4.
fn mpi() -> GangBuilder {
    gang(4).devices(8).role("launcher", gang(1).devices(0))
}

/// Devices that a queue uses, in thousandths.
fn used(watched: &Watched, queue: &str) -> u64 {
    let queues = watched.engine.queues();
    queues.iter().find(|report| report.queue.name.as_str() == queue).unwrap().resources[0].used
}

#[test]
fn members_that_are_gone_hold_nothing_while_their_launcher_lingers() {
    let mut watched = octets(4);
    watched.step(&[submit(job(1, mpi()))]);
    watched.run(1);
    watched.step(&[submit(job(2, gang(4).devices(8))), submit(job(3, gang(1).devices(8)))]);
    assert_eq!((watched.phase(2), watched.phase(3)), ("pending", "pending"));
    watched.step(&[cancel(1)]);
    assert_eq!(watched.phase(2), "pending", "all of them are there yet");
    watched.exit(1, 0..3);
    assert_eq!((watched.phase(1), watched.phase(2)), ("stopping", "pending"));
    watched.exit(1, [3]);
    assert_eq!((watched.phase(1), watched.phase(2)), ("stopping", "starting"));
    // It is read back so after a restart.
    watched.restart();
    watched.run(2);
    watched.exit(1, [4]);
    assert_eq!((watched.phase(1), watched.phase(2), watched.phase(3)), ("cancelled", "running", "pending"));
    watched.step(&[cancel(2)]);
    watched.exit(2, 0..4);
    assert_eq!(watched.phase(3), "starting", "and nothing is given back twice");
}

#[test]
fn a_member_that_is_gone_keeps_its_part_while_its_gang_runs() {
    let mut watched = octets(2);
    watched.step(&[submit(job(1, gang(2).devices(8)))]);
    watched.run(1);
    watched.step(&[submit(job(2, gang(1).devices(8)))]);
    let done = Input::MemberExited { member: watched.member(1, 0), exit: Exit::succeeded() };
    watched.step(&[done]);
    assert_eq!((watched.phase(1), watched.phase(2)), ("running", "pending"));
    watched.step(&[cancel(1)]);
    assert_eq!((watched.phase(1), watched.phase(2)), ("stopping", "starting"));
    watched.exit(1, [1]);
    assert_eq!(watched.phase(1), "cancelled");
}

#[test]
fn the_rest_of_a_gang_that_failed_holds_only_its_own_part() {
    let mut watched = octets(2);
    watched.step(&[submit(job(1, gang(2).devices(8)).retry(3, &[FailureClass::UserCode]))]);
    watched.run(1);
    watched.step(&[submit(job(2, gang(1).devices(8)))]);
    let failed = Input::MemberExited { member: watched.member(1, 0), exit: Exit::code(1) };
    watched.step(&[failed]);
    assert_eq!((watched.phase(1), watched.phase(2)), ("stopping", "starting"));
    watched.run(2);
    watched.exit(1, [1]);
    watched.advance(3_600_000);
    assert_eq!(watched.phase(1), "pending", "it does not fit beside the other");
    watched.step(&[cancel(2)]);
    watched.exit(2, [0]);
    assert_eq!(watched.phase(1), "starting");
}

#[test]
fn a_member_that_is_not_found_after_a_restart_holds_nothing() {
    let mut watched = octets(2);
    watched.step(&[submit(job(1, gang(2).devices(8)))]);
    watched.run(1);
    watched.step(&[submit(job(2, gang(1).devices(8))), cancel(1)]);
    let state = phalanx_model::MemberState::Running;
    let found = Input::MemberObserved { member: watched.member(1, 1), state };
    watched.step(&[
        Input::SyncBegin { kind: SyncKind::Members },
        found,
        Input::SyncEnd { kind: SyncKind::Members },
    ]);
    assert_eq!((watched.phase(1), watched.phase(2)), ("stopping", "starting"));
}

#[test]
fn the_limit_of_a_queue_counts_what_is_still_held() {
    let mut watched = octets(2);
    watched.step(&[queue("team").limit("gpus", 8).observed()]);
    watched.step(&[submit(job(1, gang(2).devices(4).per_node(1)).queue("team"))]);
    watched.run(1);
    watched.step(&[submit(job(2, gang(1).devices(4)).queue("team"))]);
    assert_eq!(used(&watched, "team"), 8_000);
    watched.step(&[cancel(1)]);
    assert_eq!(watched.phase(2), "pending");
    watched.exit(1, [1]);
    assert_eq!((watched.phase(2), used(&watched, "team")), ("starting", 8_000));
    watched.exit(1, [0]);
    assert_eq!(used(&watched, "team"), 4_000);
}

#[test]
fn a_gang_that_is_resized_keeps_its_placement_until_it_starts_again() {
    let mut watched = octets(2);
    watched.step(&[submit(job(1, gang(1).devices(8).elastic(1, 2)))]);
    watched.run(1);
    if watched.record(id(1)).members.len() == 1 {
        watched.step(&[Input::BoundaryReached { gang: id(1), at: watched.now }]);
        watched.exit(1, [0]);
        watched.run(1);
    }
    assert_eq!(watched.record(id(1)).members.len(), 2);
    watched.step(&[Input::GangResized { gang: id(1), size: Some(1) }]);
    let resize: Option<Resize> = watched.record(id(1)).resize.clone();
    assert_eq!(resize.unwrap().size, 1);
    watched.step(&[submit(job(2, gang(1).devices(8)))]);
    watched.step(&[Input::BoundaryReached { gang: id(1), at: watched.now }]);
    watched.exit(1, [0]);
    assert_eq!((watched.phase(1), watched.phase(2)), ("stopping", "pending"), "it may come back there");
    // If it does not start again, what its member held is free.
    watched.step(&[cancel(1)]);
    assert_eq!((watched.phase(1), watched.phase(2)), ("stopping", "starting"));
}

/// The preempted gang lingers on a node that the preempting gang does not use.
#[test]
fn a_gang_starts_once_its_victims_have_left_its_nodes() {
    let mut watched = octets(2);
    watched.step(&[submit(job(1, gang(2).devices(8).role("launcher", gang(1).devices(0))))]);
    watched.run(1);
    watched.advance(24 * 3_600_000);
    watched.step(&[submit(job(2, gang(1).devices(8)).class("serving"))]);
    watched.advance(120_000);
    assert_eq!(watched.phase(1), "stopping");
    let reserved = watched.record(id(2)).reserved.clone().unwrap().placement.slots[0].node.clone();
    let placement = watched.record(id(1)).placement.clone().unwrap();
    let mut on: Vec<u32> =
        placement.slots.iter().filter(|slot| slot.node == reserved).map(|slot| slot.rank).collect();
    let last = on.pop().unwrap();
    watched.exit(1, on);
    assert_eq!(watched.phase(2), "pending");
    watched.exit(1, [last]);
    assert_eq!((watched.phase(1), watched.phase(2)), ("stopping", "starting"));
}

#[test]
fn shares_of_one_device_are_freed_one_by_one() {
    let nodes = [node("a").gpus(1).device_memory(80 << 30).build()];
    let mut watched = Watched::with_nodes(&levels(&["cluster"]), &nodes);
    watched.step(&[submit(job(1, gang(2).share(500, 0, "team")))]);
    watched.run(1);
    watched.step(&[submit(job(2, gang(1).share(500, 0, "team"))), submit(job(3, gang(1).devices(1)))]);
    watched.step(&[cancel(1)]);
    watched.exit(1, [1]);
    assert_eq!((watched.phase(1), watched.phase(2)), ("stopping", "starting"));
    watched.exit(1, [0]);
    assert_eq!((watched.phase(1), watched.phase(3)), ("cancelled", "pending"));
}

#[test]
fn the_answer_to_a_question_counts_what_a_gang_keeps_that_has_to_leave_one_node() {
    let mut watched = octets(2);
    watched.step(&[submit(job(1, gang(2).devices(8)))]);
    watched.run(1);
    watched.step(&[submit(job(2, gang(1).devices(8)))]);
    let done = Input::MemberExited { member: watched.member(1, 0), exit: Exit::succeeded() };
    watched.step(&[done]);
    let last = watched.record(id(1)).placement.clone().unwrap().slots[1].node.clone();
    let answer = watched.engine.what_if(&Question::Drained(last));
    // The first job starts again on the node where its other member ended: nobody else takes it meanwhile.
    assert_eq!(answer, Answer::Moves { start: Vec::new(), stop: vec![JobId(1)] });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever ends in whatever order: free amounts, queues, a follower and a successor agree after every step
    /// ([`Watched`] counts them again), and nothing is held in the end.
    #[test]
    fn every_order_of_exits_frees_what_the_members_held(
        gangs in vec((1_u32..5, 0_u32..4, 0_u8..4), 2..6),
        exits in vec((0_usize..6, 0_u32..6, any::<bool>()), 1..40),
        restarts in 0_usize..40,
    ) {
        let mut watched = octets(4);
        for (at, (size, devices, sort)) in (1_u64..).zip(&gangs) {
            let asked = gang(*size).devices(1 << devices).cpu_milli(1_000);
            let asked = match sort {
                0 => gang(*size).share(250, 0, "team"),
                1 => asked.role("launcher", gang(1).devices(0)),
                2 => asked.exclusive(),
                _ => asked,
            };
            watched.step(&[submit(job(at, asked))]);
        }
        for (step, (at, rank, stops)) in exits.into_iter().enumerate() {
            let job = (at % gangs.len()) as u64 + 1;
            let (phase, count) = (watched.record(id(job)).phase.clone(), watched.record(id(job)).members.len());
            match phase {
                Phase::Starting { .. } => watched.run(job),
                Phase::Running { .. } if stops => drop(watched.step(&[cancel(job)])),
                Phase::Running { .. } => {
                    let done = watched.member(job, rank % u32::try_from(count).unwrap());
                    watched.step(&[Input::MemberExited { member: done, exit: Exit::succeeded() }]);
                }
                Phase::Stopping { .. } => drop(watched.exit(job, [rank % u32::try_from(count).unwrap()])),
                _ => {}
            }
            if step == restarts {
                watched.restart();
            }
        }
        for job in 1..=gangs.len() as u64 {
            watched.step(&[cancel(job)]);
            let count = u32::try_from(watched.record(id(job)).members.len()).unwrap();
            if watched.record(id(job)).holds_capacity() {
                (0..count).rev().for_each(|rank| {
                    if watched.record(id(job)).holds_capacity() {
                        watched.exit(job, [rank]);
                    }
                });
            }
        }
        prop_assert!(watched.checker.holds_nothing());
    }
}
