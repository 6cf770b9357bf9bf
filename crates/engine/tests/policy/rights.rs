//! Which gang preempts by which rule, and which queue is charged: bugs that simulation testing found.

use phalanx_model::{Input, Kept, NodeSet};
use phalanx_testkit::{JobBuilder, gang, job, node, queue};

use crate::world::{HOUR, World, settings};

/// A preempted gang still holds its devices for a while. They were counted beside the placement that they were to make
/// free, so that the queue seemed to borrow what it was about to release, and a third gang was preempted for that.
#[test]
fn what_makes_way_pushes_nobody_out_of_a_guarantee() {
    let nodes = [node("a").gpus(8).nvswitch().build(), node("b").gpus(4).nvswitch().build()];
    let mut world = World::new(&nodes);
    world.tell(&[
        queue("lab").guaranteed("gpus", 8).observed(),
        queue("web").guaranteed("gpus", 4).observed(),
    ]);
    world.tell(&[queue("other").observed()]);
    world.submit(job(1, gang(1).devices(4)).queue("lab").class("opportunistic"));
    world.submit(job(2, gang(1).devices(4)).queue("lab").class("opportunistic"));
    world.advance(HOUR);
    // This gang fills the cluster, and has not run for its least time.
    world.submit(job(3, gang(1).devices(4)).queue("other").class("training"));
    world.tell(&[Input::GangCheckpointed { gang: World::gang(1), at: world.now() }]);
    world.submit(job(4, gang(1).devices(4)).queue("lab").class("serving"));
    assert_eq!((world.phase(1), world.used("lab")), ("stopping", 12_000), "the one that loses least");
    world.submit(job(5, gang(1).devices(4)).queue("web"));
    assert_eq!(world.evictions(2), 0, "its queue will use no more than the 8 that are its own");
    world.advance(HOUR);
    assert!([2, 4, 5].iter().all(|id| world.is_running(*id)), "{:?}", world.phase(5));
    assert_eq!((world.evictions(2), world.evictions(3)), (0, 1), "whoever borrowed made way");
}

/// Gangs that start together are placed jointly; their final placements may count for more than the amounts with which
/// each was admitted.
#[test]
fn gangs_that_are_moved_when_they_start_stay_within_the_limit() {
    let fast = node("fast").gpus(4).model("H100").nvswitch().build();
    let slow = node("slow").gpus(8).model("A100").pcie().build();
    let mut world = World::new(&[fast, slow]);
    let worth = settings(|settings| {
        settings.worth.insert("A100".into(), 500);
    });
    world.tell(&[worth, queue("lab").limit("gpus", 5).observed()]);
    // 3 of the fast and 4 of the slow devices count for 5. The other way round they would be faster, and count for 5.5.
    world.submit(job(1, gang(1).devices(3)).and(gang(4).devices(1)).queue("lab"));
    assert!(world.used("lab") <= 5_000, "a limit of 5, and {} are used", world.used("lab"));
    assert!(world.is_running(1));
}

/// Devices that are kept for some gangs are freed by preemption for those gangs alone.
#[test]
fn nobody_makes_way_on_devices_that_are_kept_for_others() {
    let few = NodeSet::new("few");
    let mut a = node("a").gpus(4).nvswitch().build();
    a.sets = vec![few.clone()];
    a.kept = Kept([(few.clone(), "2-3".parse().unwrap())].into());
    let mut world = World::new(&[a]);
    let submit = |world: &mut World, job: JobBuilder, is_of_few: bool| {
        let mut job = job.build();
        job.submitted_at = world.now();
        job.gangs[0].needs.within = is_of_few.then(|| few.clone());
        world.tell(&[Input::JobSubmitted { job: Box::new(job) }]);
    };
    submit(&mut world, job(1, gang(1).devices(2)).class("serving"), false);
    submit(&mut world, job(2, gang(1).devices(2)).class("opportunistic"), true);
    assert!(world.is_running(1) && world.is_running(2), "{:?}", world.reason(2));
    submit(&mut world, job(3, gang(1).devices(2)).class("serving"), false);
    world.advance(HOUR);
    assert_eq!(world.evictions(2), 0, "it may not have these");
    submit(&mut world, job(4, gang(1).devices(2)).class("serving"), true);
    world.advance(HOUR);
    assert_eq!((world.evictions(2), world.is_running(4)), (1, true), "{:?}", world.reason(4));
    assert!(!world.is_running(3));
}
