//! A device that two users hold: no new gang goes to it, and nothing else is closed.

use phalanx_model::{DeviceMask, Input};
use phalanx_testkit::{gang, job, node};

use crate::world::{HOUR, MINUTE, World, octets};

/// Node `a` runs job 1 on all of its devices, and then one of them is in use by others too.
fn disputed(nodes: usize) -> World {
    let mut world = World::new(&octets(nodes));
    world.submit(job(1, gang(1).devices(8).on(["a"])).class("serving"));
    assert!(world.is_running(1));
    world.tell(&[used_by_others(&[3])]);
    world
}

fn used_by_others(devices: &[u32]) -> Input {
    let node = node("a").gpus(8).nvswitch().busy(devices.iter().copied()).build();
    Input::NodeObserved { node: Box::new(node) }
}

#[test]
fn preemption_goes_on_beside_a_disputed_device() {
    let mut world = disputed(2);
    world.submit(job(2, gang(1).devices(8)).class("opportunistic"));
    world.advance(HOUR);
    world.submit(job(3, gang(1).devices(8)).class("serving"));
    world.advance(MINUTE);
    assert_eq!((world.phase(3), world.evictions(2)), ("running", 1));
}

#[test]
fn reservations_are_made_beside_a_disputed_device() {
    let mut world = disputed(2);
    world.submit_for(job(2, gang(1).devices(4)).time_limit(HOUR), HOUR);
    world.submit(job(3, gang(1).devices(8)));
    let reserved = world.watched.record(World::gang(3)).reserved.clone();
    assert!(reserved.is_some_and(|reserved| reserved.at.is_some()), "it is known when job 2 ends");
}

#[test]
fn a_disputed_device_is_free_once_neither_uses_it() {
    let free = |world: &World| {
        world.watched.engine.free(&phalanx_model::NodeName::new("a").unwrap()).unwrap().devices
    };
    let mut world = disputed(1);
    world.cancel(1);
    world.advance(MINUTE);
    assert_eq!(free(&world), DeviceMask::first(8).minus(DeviceMask::one(3)), "others have it still");
    world.tell(&[used_by_others(&[])]);
    assert_eq!(free(&world), DeviceMask::first(8));

    let mut world = disputed(1);
    world.tell(&[used_by_others(&[])]);
    assert_eq!(free(&world), DeviceMask::EMPTY, "job 1 has it still");
    world.cancel(1);
    world.advance(MINUTE);
    assert_eq!(free(&world), DeviceMask::first(8));
}
