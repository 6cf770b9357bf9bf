//! Elastic gangs: as many members as fit, more if no gang waits, fewer if others wait.

use phalanx_model::{Change, Input, StopCause};
use phalanx_testkit::{gang, job, levels, node};

use crate::world::{HOUR, MINUTE, World, set_min_run, settings};

fn evicted(world: &World) -> usize {
    let is_one =
        |change: &Change| matches!(change, Change::GangStopping { cause: StopCause::Preempted(_), .. });
    world.changes.iter().filter(|(_, change)| is_one(change)).count()
}

#[test]
fn it_starts_with_what_fits() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(1).devices(4)));
    world.submit(job(2, gang(8).devices(1).elastic(2, 8)));
    assert_eq!((world.phase(2), world.size(2)), ("running", 4));
    world.submit(job(3, gang(8).devices(1).elastic(1, 8)));
    assert_eq!(world.phase(3), "pending");
    world.watched.restart();
    assert_eq!(world.size(2), 4);
}

#[test]
fn it_grows_at_its_boundary_where_nobody_waits() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(1).devices(4)));
    world.submit(job(2, gang(4).devices(1).elastic(2, 8)));
    world.boundary(2);
    assert_eq!(world.size(2), 4);
    world.cancel(1);
    world.advance(MINUTE);
    // Not before the gang declares a boundary.
    assert_eq!(world.size(2), 4);
    world.boundary(2);
    assert_eq!(world.phase(2), "stopping");
    world.watched.restart();
    world.advance(MINUTE);
    assert_eq!((world.phase(2), world.size(2)), ("running", 8));
    assert_eq!(world.watched.record(World::gang(2)).failures, 0);
    assert_eq!(evicted(&world), 0);
}

/// Between its end and its start the gang keeps its placement: gangs that came meanwhile do not take it.
#[test]
fn its_place_is_its_own_while_it_grows() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(4).devices(1).elastic(2, 8)));
    world.boundary(1);
    world.submit(job(2, gang(1).devices(8)).priority(9));
    world.submit(job(3, gang(1).devices(4)).priority(9));
    world.advance(MINUTE);
    assert_eq!((world.phase(1), world.size(1), world.phase(3)), ("running", 4, "running"));
    assert_eq!(world.phase(2), "pending");
}

#[test]
fn it_does_not_grow_into_what_somebody_waits_for() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(1).devices(1)));
    world.submit(job(2, gang(4).devices(1).elastic(4, 8)));
    world.submit(job(3, gang(1).devices(6)));
    world.boundary(2);
    world.advance(MINUTE);
    assert_eq!((world.phase(2), world.size(2)), ("running", 4));
}

/// Surplus members go to a pending gang that is entitled to no less; at a boundary, so that no work is lost.
#[test]
fn it_shrinks_at_its_boundary_for_one_that_waits() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(8).devices(1).elastic(2, 8)));
    world.advance(HOUR);
    world.submit(job(2, gang(1).devices(4)));
    assert_eq!(world.phase(2), "pending");
    // The gang never declared that its size may change: this boundary shows that it does.
    world.boundary(1);
    assert_eq!((world.phase(1), world.size(1)), ("running", 8));
    world.watched.restart();
    world.advance(MINUTE);
    assert_eq!(world.phase(1), "running");
    world.boundary(1);
    world.advance(MINUTE);
    assert_eq!((world.phase(1), world.size(1), world.phase(2)), ("running", 4, "running"));
    assert_eq!(evicted(&world), 0);
}

#[test]
fn whoever_it_would_shrink_for_is_gone() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(8).devices(1).elastic(2, 8)));
    world.boundary(1);
    world.submit(job(2, gang(1).devices(4)));
    world.cancel(2);
    world.boundary(1);
    world.advance(MINUTE);
    assert_eq!((world.phase(1), world.size(1), world.evictions(1)), ("running", 8, 0));
}

/// By a preemption rule the gang is asked to shrink at once, and gives up no more than is needed.
#[test]
fn it_shrinks_rather_than_make_way() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(8).devices(1).elastic(2, 8)).class("research"));
    world.submit(job(2, gang(1).devices(4)).class("serving"));
    world.watched.restart();
    world.advance(MINUTE);
    assert_eq!((world.phase(1), world.size(1), world.phase(2)), ("running", 4, "running"));
    assert_eq!(world.evictions(1), 1);
    world.submit(job(3, gang(1).devices(4)).class("serving"));
    world.advance(MINUTE);
    assert_eq!((world.phase(1), world.phase(3)), ("pending", "running"));
}

/// 16 devices are idle, four on each of four nodes, and a job requests two whole nodes.
#[test]
fn scattered_capacity_is_gathered() {
    let mut world = World::without_min_run(4);
    let spread = gang(4).devices(4).elastic(2, 4);
    world.submit(job(1, phalanx_testkit::GangBuilder::spread(spread, 1, "node")));
    assert_eq!(world.on(1).len(), 4);
    world.submit(job(2, gang(2).devices(8)));
    world.boundary(1);
    world.boundary(1);
    world.advance(MINUTE);
    assert_eq!((world.size(1), world.phase(2), world.on(2).len()), (2, "running", 2));
}

#[test]
fn segments_leave_whole() {
    let mut world = World::without_min_run(2);
    let segments = |size| gang(size).devices(2).segment(2, "node").elastic(4, 8);
    world.submit(job(1, segments(8)));
    world.boundary(1);
    world.submit(job(2, gang(1).devices(2)));
    world.boundary(1);
    world.advance(MINUTE);
    assert_eq!((world.size(1), world.phase(2)), (6, "running"));
}

#[test]
fn a_size_set_by_hand_waits_for_the_boundary_and_stays() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(4).devices(1).elastic(2, 8)));
    let wish = |size| Input::GangResized { gang: World::gang(1), size: Some(size) };
    let by_itself = Input::GangResized { gang: World::gang(1), size: None };
    let next = |world: &World| {
        let resize = world.watched.record(World::gang(1)).resize.clone();
        resize.map(|resize| resize.size)
    };
    world.tell(&[wish(2)]);
    world.tell(&[wish(4)]);
    assert_eq!(next(&world), None, "it has that size");
    world.tell(&[wish(2)]);
    assert_eq!((world.size(1), next(&world)), (4, Some(2)));
    world.boundary(1);
    world.advance(MINUTE);
    assert_eq!((world.phase(1), world.size(1)), ("running", 2));
    world.watched.restart();
    world.boundary(1);
    world.advance(MINUTE);
    assert_eq!((world.phase(1), world.size(1)), ("running", 2), "nobody waits, and the user said two");
    // What the user did not get yet is taken back with it.
    world.tell(&[wish(4), by_itself]);
    assert_eq!(next(&world), None);
    world.boundary(1);
    world.advance(MINUTE);
    assert_eq!(world.size(1), 8, "it grows by itself again");
    // The gang may not take back what it gives up for others.
    world.submit(job(2, gang(1).devices(4)));
    world.boundary(1);
    world.tell(&[wish(8)]);
    world.boundary(1);
    world.advance(MINUTE);
    assert_eq!((world.size(1), world.phase(2)), (4, "running"));
}

/// A size that a user set is the most that the gang has, and not the least: it shrinks for others, and grows back to it.
#[test]
fn a_gang_of_a_set_size_shrinks_for_others_and_grows_back_to_it() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(8).devices(1).elastic(2, 8)));
    world.tell(&[Input::GangResized { gang: World::gang(1), size: Some(6) }]);
    world.boundary(1);
    world.advance(MINUTE);
    assert_eq!(world.size(1), 6);
    world.boundary(1);
    world.submit(job(2, gang(1).devices(6)));
    world.boundary(1);
    world.advance(MINUTE);
    assert_eq!((world.size(1), world.phase(2)), (2, "running"));
    world.cancel(2);
    world.advance(MINUTE);
    world.boundary(1);
    world.advance(MINUTE);
    assert_eq!((world.phase(1), world.size(1)), ("running", 6));
}

#[test]
fn a_gang_of_one_size_is_not_resized() {
    let mut world = World::without_min_run(1);
    world.submit(job(1, gang(4).devices(1)));
    for size in [Some(2), None] {
        world.tell(&[Input::GangResized { gang: World::gang(1), size }]);
        let refused = |(_, change): &&(_, Change)| matches!(change, Change::InputRejected { .. });
        assert_eq!(world.changes.drain(..).filter(|change| refused(&change)).count(), 1, "{size:?}");
    }
}

/// If all ranks of a gang go, its work is lost, whatever the first ranks cost.
#[test]
fn an_elastic_gang_that_goes_as_a_whole_costs_its_work() {
    let leaf =
        |at: u32| node(&format!("n{at}")).path(["cluster", &format!("l{at}")]).gpus(8).nvswitch().build();
    let mut world = World::with_levels(&levels(&["cluster", "leaf"]), &[leaf(0), leaf(1)]);
    world.tell(&[settings(|settings| set_min_run(settings, 0))]);
    world.submit(job(1, gang(8).devices(1).elastic(4, 8).on(["n0"])));
    world.advance(HOUR);
    world.submit(job(2, gang(1).devices(8).on(["n1"])));
    world.advance(MINUTE);
    assert_eq!((world.size(1), world.phase(2)), (8, "running"));
    world.submit(job(3, gang(1).devices(8).required("leaf")).class("serving"));
    world.advance(MINUTE);
    assert_eq!((world.evictions(1), world.evictions(2), world.phase(3)), (0, 1, "running"));
}
