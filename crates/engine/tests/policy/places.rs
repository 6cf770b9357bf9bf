//! Guarantees that are places.

use phalanx_model::{Input, LevelName, PreemptMode, Queue, ShapeQuota};
use phalanx_testkit::proptest::collection::vec;
use phalanx_testkit::proptest::prelude::*;
use phalanx_testkit::{gang, job, levels, node, queue};

use crate::world::{MINUTE, SECOND, World, set_min_run, settings};

const CLASSES: [&str; 4] = ["serving", "training", "research", "opportunistic"];

/// Four leaves of two nodes; `team` is guaranteed one leaf.
fn world() -> World {
    let nodes: Vec<_> = (0..8)
        .map(|at| {
            node(&format!("n{at}")).path(["cluster", &format!("l{}", at / 2)]).gpus(8).nvswitch().build()
        })
        .collect();
    let mut world = World::with_levels(&levels(&["cluster", "leaf"]), &nodes);
    let shape = ShapeQuota { level: LevelName::new("leaf").unwrap(), count: 1, nodes: 2 };
    let team = Queue { shapes: vec![shape], ..queue("team").build() };
    let others = queue("others").build();
    world.tell(&[
        settings(|settings| set_min_run(settings, 0)),
        Input::QueueObserved { queue: Box::new(team) },
        Input::QueueObserved { queue: Box::new(others) },
    ]);
    world
}

#[test]
fn a_queue_that_is_told_otherwise_keeps_what_its_places_are_worth() {
    let mut world = world();
    let guaranteed = |world: &World| {
        let reports = world.watched.engine.queues();
        reports.iter().find(|report| report.queue.name.as_str() == "team").unwrap().resources[0].guaranteed
    };
    let of_two_nodes = guaranteed(&world);
    assert_eq!(of_two_nodes, 16_000);
    let shape = ShapeQuota { level: LevelName::new("leaf").unwrap(), count: 1, nodes: 2 };
    let heavier = Queue { shapes: vec![shape], weight_milli: 2_000, ..queue("team").build() };
    world.tell(&[Input::QueueObserved { queue: Box::new(heavier) }]);
    assert_eq!(guaranteed(&world), of_two_nodes);
}

#[derive(Clone, Debug)]
struct Other {
    size: u32,
    devices: u32,
    class: usize,
    stays: bool,
    ends: bool,
}

fn any_other() -> impl Strategy<Value = Other> {
    (1_u32..4, 1_u32..9, 0_usize..4, any::<bool>(), any::<bool>())
        .prop_map(|(size, devices, class, stays, ends)| Other { size, devices, class, stays, ends })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever others run, come and go: the team has its two whole nodes of one leaf as soon as the borrowers have
    /// ended, which takes a second here.
    #[test]
    fn a_place_can_be_had(others in vec(any_other(), 1..24)) {
        let mut world = world();
        for (at, other) in others.iter().enumerate() {
            let id = 1 + at as u64;
            let mode = if other.stays { PreemptMode::Never } else { PreemptMode::Requeue };
            let of = job(id, gang(other.size).devices(other.devices)).class(CLASSES[other.class]).preempt(mode);
            world.submit(of.queue("others"));
            world.advance(SECOND);
            if other.ends {
                world.cancel(1 + at as u64 / 2);
                world.advance(2 * SECOND);
            }
        }
        world.submit(job(100, gang(2).devices(8).required("leaf")).queue("team"));
        world.advance(MINUTE);
        prop_assert!(world.is_running(100), "{:?}", world.reason(100));
        let reports = world.watched.engine.queues();
        let team = reports.iter().find(|report| report.queue.name.as_str() == "team").unwrap();
        let leaf = world.watched.record(World::gang(100)).placement.as_ref().unwrap().slots[0].node.clone();
        let bound = &team.places[0].domains;
        let at = leaf.as_str().trim_start_matches('n').parse::<u32>().unwrap() / 2;
        prop_assert_eq!(bound, &vec![format!("cluster/l{at}")]);
    }
}
