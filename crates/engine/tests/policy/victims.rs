//! The placement of a preempting gang and its victims are chosen together.

use phalanx_model::{Admin, DeviceMask, Input, Node};
use phalanx_testkit::proptest::collection::vec;
use phalanx_testkit::proptest::prelude::*;
use phalanx_testkit::{gang, job, levels, node};

use crate::world::{HOUR, MINUTE, World, octets, set_min_run, settings};

/// Two nodes of eight devices in each rack, all of one model.
fn rack(name: &str, model: &str) -> Vec<Node> {
    ["0", "1"]
        .iter()
        .map(|at| {
            let node = node(&format!("{name}-{at}")).path(["cluster", name]).gpus(8).model(model);
            node.nvswitch().build()
        })
        .collect()
}

fn world(nodes: &[Node]) -> World {
    let mut world = World::with_levels(&levels(&["cluster", "rack"]), nodes);
    world.tell(&[settings(|settings| set_min_run(settings, 0))]);
    world
}

/// Five A100 racks hold cheaper gangs than the H100 rack: only these gangs were tried.
#[test]
fn bug_4_five_a100_racks_hide_the_victims_of_an_h100_gang() {
    let mut nodes = rack("h", "H100");
    ["a", "b", "c", "d", "e"].iter().for_each(|name| nodes.extend(rack(name, "A100")));
    let mut world = world(&nodes);
    world.submit(job(1, gang(2).devices(8).model("H100").required("rack")));
    world.advance(HOUR);
    (2..7).for_each(|id| world.submit(job(id, gang(2).devices(8).model("A100").required("rack"))));
    world.submit(job(9, gang(2).devices(8).model("H100").required("rack")).class("serving"));
    assert_eq!(world.phase(1), "stopping", "its rack is the only one that the gang may use");
    world.advance(MINUTE);
    assert!(world.is_running(9), "{:?}", world.reason(9));
    assert!((2..7).all(|id| world.evictions(id) == 0));
}

/// Five racks with cordoned nodes hold cheaper gangs than the open rack.
#[test]
fn bug_4_cordoned_racks_hide_the_victims_of_the_open_one() {
    let mut nodes = rack("h", "H100");
    ["a", "b", "c", "d", "e"].iter().for_each(|name| nodes.extend(rack(name, "H100")));
    let mut world = world(&nodes);
    world.submit(job(1, gang(2).devices(8).required("rack")));
    world.advance(HOUR);
    let open = world.on(1);
    (2..7).for_each(|id| world.submit(job(id, gang(2).devices(8).required("rack"))));
    for node in nodes.iter().filter(|node| !open.contains(&node.name.to_string())) {
        world
            .tell(&[Input::NodeObserved { node: Box::new(Node { admin: Admin::Cordoned, ..node.clone() }) }]);
    }
    world.submit(job(9, gang(2).devices(8).required("rack")).class("serving"));
    world.advance(MINUTE);
    assert_eq!((world.phase(9), world.on(9)), ("running", open), "{:?}", world.reason(9));
    assert!((2..7).all(|id| world.evictions(id) == 0));
}

/// One victim on two nodes costs less than one victim on each of two other nodes, though each of these is cheaper.
#[test]
fn a_victim_of_several_nodes_is_weighed_as_a_whole() {
    let mut nodes = rack("a", "H100");
    nodes.extend(rack("b", "H100"));
    let mut world = world(&nodes);
    world.submit(job(1, gang(2).devices(8).required("rack")));
    world.submit(job(2, gang(1).devices(8)));
    world.submit(job(3, gang(1).devices(8)));
    world.advance(20 * MINUTE);
    world.tell(&[Input::GangCheckpointed { gang: World::gang(1), at: world.now() }]);
    world.advance(30 * MINUTE);
    // Job 1 loses 16 × 30 minutes, jobs 2 and 3 lose 8 × 50 minutes each.
    world.submit(job(9, gang(2).devices(8)).class("serving"));
    world.advance(MINUTE);
    assert!(world.is_running(9));
    assert_eq!([1, 2, 3].map(|id| world.evictions(id)), [1, 0, 0]);
}

/// volcano #5984: ten gangs are preempted although one is enough.
#[test]
fn bug_15_more_evicted_than_needed() {
    let mut world = World::new(&octets(2));
    world.submit(job(1, gang(1).devices(8)).class("training"));
    world.submit(job(2, gang(1).devices(2)).class("opportunistic"));
    world.submit(job(3, gang(1).devices(6)).class("serving"));
    world.advance(HOUR);
    // The two devices of the cheapest gang do not help a gang that needs a whole node.
    world.submit(job(4, gang(1).devices(8)).class("serving"));
    world.advance(MINUTE);
    assert_eq!((world.phase(4), world.evictions(1), world.evictions(2)), ("running", 1, 0));
    // No gang is preempted for a gang that would not fit even then.
    world.submit(job(5, gang(2).devices(8)).class("serving"));
    world.advance(HOUR);
    assert_eq!((world.phase(5), world.evictions(2)), ("pending", 0));
}

/// KAI #1591: full domains are dropped before victims are sought.
#[test]
fn bug_16_full_domains_are_not_looked_at() {
    let nodes = [("a", "l1"), ("b", "l1"), ("c", "l2")];
    let nodes = nodes.map(|(name, leaf)| node(name).path(["cluster", leaf]).gpus(8).nvswitch().build());
    let mut world = World::with_levels(&levels(&["cluster", "leaf"]), &nodes);
    world.submit(job(1, gang(2).devices(8).required("leaf")));
    world.submit(job(2, gang(1).devices(6)));
    world.advance(HOUR);
    world.submit(job(3, gang(2).devices(8).required("leaf")).class("serving"));
    world.advance(MINUTE);
    assert_eq!((world.on(3), world.evictions(2)), (vec!["a".to_owned(), "b".to_owned()], 0));
}

/// Devices that a job holds, by node.
fn devices_of(world: &World, id: u64) -> Vec<(String, DeviceMask)> {
    let record = world.watched.record(World::gang(id));
    let slots = record.placement.iter().flat_map(|placement| &placement.slots);
    slots.map(|slot| (slot.node.to_string(), slot.devices)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every victim holds devices of the gang's new placement; so none is on a node of another model or a cordoned
    /// node.
    #[test]
    fn every_victim_is_needed(
        racks in vec((0_usize..3, any::<bool>()), 5..9),
        running in vec((0_usize..3, 1_u32..3, 0_u32..4, 0_u64..30), 8..24),
        (model, members, is_inside) in (0_usize..3, 1_u32..3, any::<bool>()),
    ) {
        let models = ["H100", "A100", "B200"];
        // There are nodes of each model.
        let all = racks.iter().enumerate().map(|(at, (model, _))| rack(&format!("r{at}"), models[if at < 3 { at } else { *model }]));
        let nodes: Vec<Node> = all.flatten().collect();
        let mut world = world(&nodes);
        for (id, (model, members, devices, minutes)) in (1_u64..).zip(&running) {
            world.submit(job(id, gang(*members).devices(1 << devices).model(models[*model])));
            world.advance(minutes * MINUTE);
        }
        for (at, _) in racks.iter().enumerate().filter(|(_, (_, is_cordoned))| *is_cordoned) {
            let node = Node { admin: Admin::Cordoned, ..nodes[2 * at].clone() };
            world.tell(&[Input::NodeObserved { node: Box::new(node) }]);
        }
        let count = running.len() as u64;
        let before: Vec<_> = (1..=count).map(|id| devices_of(&world, id)).collect();
        let wants = gang(members).devices(8).model(models[model]);
        let wants = if is_inside { wants.required("rack") } else { wants };
        world.submit(job(99, wants).class("serving"));
        world.advance(MINUTE);
        let victims: Vec<usize> = (0..before.len()).filter(|at| world.evictions(*at as u64 + 1) > 0).collect();
        prop_assert!(victims.is_empty() || world.is_running(99), "{:?}", world.reason(99));
        let place = devices_of(&world, 99);
        for at in victims {
            let is_needed = before[at].iter().any(|(node, devices)| {
                place.iter().any(|(of, wanted)| of == node && !wanted.and(*devices).is_empty())
            });
            prop_assert!(is_needed, "{at} holds {:?}, and {place:?} is the place", before[at]);
        }
    }
}
