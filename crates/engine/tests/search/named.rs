//! Single cases, most of them found by the other tests.

use std::collections::BTreeMap;

use phalanx_engine::{Found, Placer};
use phalanx_model::{
    CostTable, DeviceGroup, DeviceMask, Gang, LevelCost, Levels, NicCost, Node, Pattern, Segment, ShapeCost,
    Traffic,
};
use phalanx_testkit::{costs, gang, levels, limited, node};

use crate::draw::level;

fn all_to_all(mut gang: Gang, bytes: u64) -> Gang {
    gang.traffic = Some(Traffic { pattern: Pattern::AllToAll, bytes, compute_ns: 0 });
    gang
}

fn all_reduce(mut gang: Gang, bytes: u64) -> Gang {
    gang.traffic = Some(Traffic { pattern: Pattern::AllReduce, bytes, compute_ns: 0 });
    gang
}

#[test]
fn an_all_to_all_of_members_without_devices_finds_a_place() {
    let nodes = ["a", "b"].map(|name| node(name).gpus(4).cpus(2).build());
    let mut placer = Placer::new(&levels(&["cluster"]), nodes.clone(), &costs(&nodes));
    let gang = all_to_all(gang(4).cpu_milli(1_000).build(), 1_000);
    assert!(placer.place(&gang).is_some());
    assert_eq!(placer.shares().map(|share| share.members).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn a_segment_of_any_size_is_no_overflow() {
    let nodes = [node("a").nvswitch().gpus(8).build()];
    let mut placer = Placer::new(&levels(&["cluster"]), nodes.clone(), &costs(&nodes));
    let group = nodes[0].machine.groups[0].level.clone();
    let mut gang = gang(2).devices(2).build();
    gang.topology.segments = vec![Segment { size: u32::MAX, level: group }];
    assert!(placer.place(&gang).is_some());
    assert_eq!(placer.placement(&gang).map(|placement| placement.slots.len()), Some(2));
}

/// A segment of the whole gang in one group, and a required level of another group that the segment does not nest with.
#[test]
fn a_segment_as_large_as_the_gang_binds_beside_a_required_group() {
    let mut node = node("a").gpus(4).pcie().build();
    let group = |name: &str, devices| DeviceGroup::new(level(name), DeviceMask(devices));
    let mut machine = (*node.machine).clone();
    machine.groups = vec![
        group("island", 0b0011),
        group("island", 0b1100),
        group("socket", 0b0101),
        group("socket", 0b1010),
    ];
    node.machine = machine.into();
    let mut placer = Placer::new(&levels(&["cluster"]), [node.clone()], &costs([&node]));
    let mut pair = gang(2).devices(1).required("socket").build();
    pair.topology.segments = vec![Segment { size: 2, level: level("island") }];
    assert_eq!(placer.place(&pair), None, "an island and a socket have one device in common");
    assert!(placer.place(&Gang { size: 1, ..pair }).is_some());
}

/// Parts of eight and two: one leaf has room for a whole part, the others for two members each.
#[test]
fn a_last_segment_that_stands_alone_is_found_in_a_large_cluster() {
    let nodes: Vec<Node> = (0..140)
        .map(|i| {
            let gpus = if i < 4 { 2 } else { u32::from(i % 4 == 0) * 2 };
            node(&format!("n{i}")).path(["all", &format!("l{}", i / 4)]).gpus(gpus).build()
        })
        .collect();
    let mut placer = Placer::new(&levels(&["cluster", "leaf"]), nodes.clone(), &costs(&nodes));
    let mut gang = gang(10).devices(1).build();
    gang.topology.segments = vec![Segment { size: 8, level: level("leaf") }];
    assert!(placer.place(&gang).is_some());
    let members: Vec<u32> = placer.shares().map(|share| share.members).collect();
    assert_eq!(members, [2, 2, 2, 2, 2]);
}

/// Two blocks of two leaves of 40 nodes with a device each, and an uplink that two such gangs oversubscribe.
fn behind_uplinks() -> Placer {
    let nodes: Vec<Node> = (0..160)
        .map(|i| {
            let (block, leaf) = (format!("b{}", i / 80), format!("l{}", i / 40));
            node(&format!("n{i}")).path(["all", &block, &leaf]).gpus(1).build()
        })
        .collect();
    let cost = |uplink_mb_per_s| LevelCost { uplink_mb_per_s, latency_ns: 1_000, inside_mb_per_s: 0 };
    let shape =
        ShapeCost { devices: 1, pair_mb_per_s: vec![0], nic_mb_per_s: 12_500, ..ShapeCost::default() };
    let table = CostTable {
        shapes: BTreeMap::from([(nodes[0].machine.shape.clone(), shape)]),
        levels: BTreeMap::from([
            (level("block"), cost(100_000)),
            (level("leaf"), cost(20_000)),
            (level("node"), cost(12_500)),
        ]),
        ..CostTable::default()
    };
    let levels = Levels::new(["cluster", "block", "leaf"].map(level).to_vec(), level("node"));
    Placer::new(&levels, nodes, &table)
}

/// Leaves have 20 GB/s for gangs of 12.5 GB/s each: a second gang that has to cross takes the other block.
#[test]
fn two_heavy_gangs_are_not_put_behind_one_uplink() {
    let mut placer = behind_uplinks();
    let gang = all_reduce(gang(60).devices(1).build(), 1 << 28);
    let first = placer.place(&gang).unwrap();
    placer.take(&gang);
    let is_upper = |placer: &Placer| placer.shares().all(|share| share.node >= 80);
    assert!(!is_upper(&placer));
    // The second gang needs as much as is free beside the first, behind the same uplinks and across the block.
    let small = all_reduce(phalanx_testkit::gang(41).devices(1).build(), 1 << 28);
    let second = placer.place(&small).unwrap();
    assert!(is_upper(&placer), "{:?}", placer.shares().collect::<Vec<_>>());
    assert_eq!((second.bottleneck_mb_per_s, first.bottleneck_mb_per_s), (12_500, 12_500));
    placer.take(&small);
    // A gang that fits inside a leaf crosses nothing, and fills up the rest of a leaf.
    let inside = all_reduce(phalanx_testkit::gang(20).devices(1).build(), 1 << 28);
    assert_eq!(placer.place(&inside).unwrap().bottleneck_mb_per_s, 12_500);
    placer.take(&inside);
}

/// A gang that sends little does not keep another gang away.
#[test]
fn a_light_gang_is_not_held_against_a_heavy_one() {
    let mut placer = behind_uplinks();
    let mut light = all_reduce(gang(60).devices(1).build(), 1 << 28);
    light.traffic = light.traffic.map(|traffic| Traffic { compute_ns: 1 << 40, ..traffic });
    let alone = placer.place(&light).unwrap();
    placer.take(&light);
    let heavy = all_reduce(gang(81).devices(1).build(), 1 << 28);
    let beside = placer.place(&heavy).unwrap();
    assert_eq!(beside.bottleneck_mb_per_s, alone.bottleneck_mb_per_s);
}

/// Sixteen devices: the free devices of a machine are known by number alone, and the best set of that number may be
/// taken.
#[test]
#[ignore = "machines of 9 to 16 unequal devices: the best set of a size is not looked for over all nodes"]
fn of_sixteen_unequal_devices_the_best_is_found() {
    let found = four_of_sixteen_unequal_devices();
    assert_eq!(found.bottleneck_mb_per_s, 50_000, "{found:?}");
}

#[test]
fn of_sixteen_unequal_devices_nothing_is_said_to_be_proved() {
    let found = four_of_sixteen_unequal_devices();
    assert!(found.least_ns < found.time_ns, "{found:?}");
}

/// Two fast devices of each of two nodes send at 50 GB/s; four slow devices of a third at 1 GB/s.
fn four_of_sixteen_unequal_devices() -> Found {
    // Devices 0 to 7 are fast among each other; on one node they are free, on the other they are not.
    let pair = |a: u32, b: u32| match (a < 8, b < 8) {
        _ if a == b => 0,
        (true, true) => 100_000,
        _ => 1_000,
    };
    let pairs = (0..16).flat_map(|a| (0..16).map(move |b| pair(a, b))).collect();
    let shape = ShapeCost { devices: 16, pair_mb_per_s: pairs, nic_mb_per_s: 50_000, ..ShapeCost::default() };
    let slow = node("a").gpus(16).busy(0..8).build();
    let halves = ["b", "c"].map(|name| node(name).gpus(16).busy((2..8).chain(9..16)).build());
    let nodes: Vec<Node> = [slow].into_iter().chain(halves).collect();
    let shapes = BTreeMap::from([(nodes[0].machine.shape.clone(), shape)]);
    let table = CostTable { shapes, ..CostTable::default() };
    let mut placer = Placer::new(&levels(&["cluster"]), nodes, &table);
    placer.place(&all_reduce(gang(4).devices(1).build(), 1 << 28)).unwrap()
}

/// A V100 machine has one NIC beside GPUs 2 and 3: one GPU of each node was GPU 0, and took 179.9 ms where GPU 2 takes 86.6; two
/// of each node were 0 and 4.
#[test]
fn devices_beside_the_nic_go_to_gangs_over_several_nodes() {
    let pairs = (0..64).map(|at| if at % 9 == 0 { 0 } else { 20_000 }).collect();
    let nic = NicCost { near: [2, 3].into_iter().collect(), mb_per_s: 12_500 };
    let shape = ShapeCost {
        devices: 8,
        pair_mb_per_s: pairs,
        nic_mb_per_s: 12_500,
        nics: vec![nic],
        far_mb_per_s: 6_000,
        groups: [0b11, 0b1100, 0b11_0000, 0b1100_0000].map(DeviceMask).to_vec(),
        ..ShapeCost::default()
    };
    let nodes: Vec<Node> = (0..4).map(|i| node(&format!("n{i}")).gpus(8).build()).collect();
    let shapes = BTreeMap::from([(nodes[0].machine.shape.clone(), shape)]);
    let table = CostTable { shapes, ..CostTable::default() };
    let mut placer = Placer::new(&levels(&["cluster"]), nodes, &table);
    for (each, expected) in [(1, DeviceMask::one(2)), (2, nic.near)] {
        let mut spread = all_reduce(gang(4 * each).devices(1).build(), 1 << 28);
        spread.members_per_node = Some(each);
        let found = placer.place(&spread).unwrap();
        assert_eq!(found.bottleneck_mb_per_s, 12_500);
        assert!(placer.shares().all(|share| share.devices == expected), "{each} of each node");
    }
}

#[test]
#[ignore = "of segments at two levels inside the node only the wider ones are kept together"]
fn segments_at_two_levels_inside_the_node_nest() {
    // Two sockets, each with two switches of two devices.
    let mut node = node("a").gpus(8).pcie().build();
    let group = |name: &str, devices| DeviceGroup::new(level(name), DeviceMask(devices));
    let mut machine = (*node.machine).clone();
    machine.groups = vec![
        group("a-socket", 0x0f),
        group("a-socket", 0xf0),
        group("b-switch", 0b0101),
        group("b-switch", 0b1010),
        group("b-switch", 0b0101_0000),
        group("b-switch", 0b1010_0000),
    ];
    node.machine = machine.into();
    node.foreign = [3, 5, 7].into_iter().collect();
    let mut placer = Placer::new(&levels(&["cluster"]), [node.clone()], &costs([&node]));
    let mut gang = gang(4).devices(1).build();
    gang.topology.segments =
        vec![Segment { size: 2, level: level("a-socket") }, Segment { size: 2, level: level("b-switch") }];
    placer.place(&gang).unwrap();
    let placement = placer.placement(&gang).unwrap();
    for pair in placement.slots.chunks(2) {
        let both = pair[0].devices.union(pair[1].devices);
        let groups = node.machine.groups.iter().filter(|group| group.level == level("b-switch"));
        assert!(groups.clone().any(|group| both.is_subset_of(group.devices)), "{both}");
    }
}

/// Six units of power hold three members of two each, in a part of two and a part of one. (A job is refused if the
/// counts deny that it fits.)
#[test]
fn what_a_domain_holds_is_counted_with_the_smaller_part() {
    let levels = limited(levels(&["cluster"]), "cluster", "power", 6);
    let nodes = ["a", "b"].map(|name| node(name).gpus(4).build());
    let mut placer = Placer::new(&levels, nodes.clone(), &costs(&nodes));
    let gang = gang(3).devices(2).uses("power", 2).segment(2, "node").build();
    assert!(placer.place(&gang).is_some());
    assert_eq!(placer.most_that_fits(&gang, 0), 3);
}

/// Two members on one node that may not be together in one leaf: there is no such placement, and the counts say so.
#[test]
fn what_equal_numbers_per_node_and_a_spread_exclude_is_counted() {
    let nodes = ["a", "b"].map(|name| node(name).path(["all", name]).gpus(4).build());
    let mut placer = Placer::new(&levels(&["cluster", "leaf"]), nodes.clone(), &costs(&nodes));
    let gang = gang(2).devices(1).per_node(2).spread(1, "leaf").build();
    assert_eq!(placer.place(&gang), None);
    assert!(placer.most_that_fits(&gang, 0) < 2);
}

/// Shares of memory alone, on devices whose memory is not known: as many as are requested.
#[test]
fn shares_without_a_limit_are_no_overflow() {
    let nodes = [("a", "V100"), ("b", "H100")].map(|(name, model)| node(name).gpus(4).model(model).build());
    let mut placer = Placer::new(&levels(&["cluster"]), nodes.clone(), &costs(&nodes));
    for size in [1, 3, 1] {
        let gang = gang(size).share(0, 1 << 30, "user").build();
        assert!(placer.place(&gang).is_some());
        placer.take(&gang);
    }
}
