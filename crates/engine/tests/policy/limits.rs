//! Reasons of pending gangs refresh when the limits of their queue move, and no other reasons do: autoscalers act on
//! reports.

use phalanx_model::{Change, GangId, Input, Reason};
use phalanx_testkit::{gang, job, queue};

use crate::world::{MINUTE, World, octets};

/// Two queues below a parent, and one beside it; both nodes are in use: half by `left`, half by `beside`.
fn full(limit: u64) -> World {
    let mut world = World::new(&octets(2));
    world.tell(&[
        queue("above").observed(),
        queue("left").parent("above").limit("gpus", limit).observed(),
        queue("right").parent("above").observed(),
        queue("beside").limit("gpus", 8).observed(),
    ]);
    for (id, of) in [(1, "left"), (2, "beside")] {
        world.submit(job(id, gang(1).devices(8)).queue(of));
    }
    for (id, of, devices) in [(3, "left", 8), (4, "right", 8), (5, "beside", 4)] {
        world.submit(job(id, gang(1).devices(devices)).queue(of));
    }
    world
}

/// The reports that follow from this fact.
fn told(world: &mut World, fact: Input) -> Vec<(GangId, Reason)> {
    let before = world.changes.len();
    world.tell(&[fact]);
    let told = world.changes[before..].iter().filter_map(|(_, change)| match change {
        Change::ReasonChanged { gang, reason } => Some((*gang, reason.clone())),
        _ => None,
    });
    told.collect()
}

fn words(told: &[(GangId, Reason)]) -> Vec<(u64, &'static str)> {
    told.iter().map(|(gang, reason)| (gang.job.0, reason.word())).collect()
}

/// The pods of the gang still reported that it waits for the share of its queue, and no autoscaler bought a node for
/// it.
#[test]
fn who_waited_for_a_limit_that_was_raised_is_told_that_it_waits_for_nodes() {
    let mut world = full(8);
    assert_eq!(
        [3, 4, 5].map(|id| world.reason(id).unwrap().word()),
        ["QueueLimit", "Resources", "QueueLimit"]
    );
    let raised = queue("left").parent("above").limit("gpus", 16).observed();
    assert_eq!(words(&told(&mut world, raised)), [(3, "Resources")], "and of `beside` nothing");
}

/// Nodes were bought for a gang that may not have them by the limit of its queue.
#[test]
fn who_waited_for_nodes_is_told_that_it_waits_for_a_limit_that_was_lowered() {
    let mut world = full(16);
    world.cancel(5);
    assert_eq!([3, 4].map(|id| world.reason(id).unwrap().word()), ["Resources"; 2]);
    let lowered = queue("left").parent("above").limit("gpus", 8).observed();
    assert_eq!(words(&told(&mut world, lowered)), [(3, "QueueLimit")]);
    world.cancel(2);
    world.advance(MINUTE);
    assert_eq!(
        [3, 4].map(|id| world.phase(id)),
        ["pending", "running"],
        "what came free is for who has room"
    );
    let raised = queue("left").parent("above").limit("gpus", 16).observed();
    assert_eq!(words(&told(&mut world, raised)), [(3, "Resources")]);
    world.cancel(4);
    world.advance(MINUTE);
    assert_eq!(world.phase(3), "running");
}

/// Both gangs are of one request class, in two queues.
#[test]
fn the_limit_of_a_queue_above_is_told_to_all_below_it() {
    let mut world = full(16);
    let lowered = queue("above").limit("gpus", 8).observed();
    assert_eq!(words(&told(&mut world, lowered)), [(3, "QueueLimit"), (4, "QueueLimit")]);
    let raised = queue("above").limit("gpus", 24).observed();
    assert_eq!(words(&told(&mut world, raised)), [(3, "Resources"), (4, "Resources")]);
}

#[test]
fn who_may_not_run_more_gangs_is_told_when_it_may() {
    let mut world = full(16);
    let one = || queue("left").parent("above").limit("gpus", 16).running_max(1);
    assert_eq!(words(&told(&mut world, one().observed())), [(3, "QueueLimit")]);
    let two = queue("left").parent("above").limit("gpus", 16).running_max(2);
    assert_eq!(words(&told(&mut world, two.observed())), [(3, "Resources")]);
}

/// Weights change the order and the shares, and no reason.
#[test]
fn what_moves_no_limit_is_told_to_nobody() {
    let mut world = full(8);
    let heavier = queue("left").parent("above").limit("gpus", 8).weight_milli(3_000).observed();
    assert_eq!(told(&mut world, heavier), []);
    // The engine does not report the same reason twice either.
    let raised = || queue("left").parent("above").limit("gpus", 16).observed();
    assert_eq!(told(&mut world, raised()).len(), 1);
    assert_eq!(told(&mut world, queue("left").parent("above").limit("gpus", 24).observed()), []);
}
