use std::cmp::Reverse;
use std::sync::Arc;

use phalanx_model::{
    CostTable, Device, DeviceMask, DomainName, Gang, LevelCost, Levels, Machine, Needs, NicCost, Node,
    NodeName, Origin, Pattern, Placement, Program, Segment, ShapeCost, ShapeName, Slot, Topology, Traffic,
};

use super::draw::{self, Cluster, level};
use super::objective::{self, Used};
use super::problem::{Map, Problem, Sets};
use super::queue::{self, Total};
use super::single::{self, Ours};
use super::{ask, exhaustive};

/// Nodes of equal devices behind one switch, each device with a NIC of 50 GB/s. `leaves` lists the free devices of
/// each node of each leaf; of leaf and node costs there is bandwidth and latency.
fn cluster(leaves: &[&[u32]], leaf: (u32, u32), node: (u32, u32)) -> Cluster {
    let shape = ShapeName::new("switched").unwrap();
    let near = |device| NicCost { near: DeviceMask::one(device), mb_per_s: 50_000 };
    let pair = |a, b| if a == b { 0 } else { 400_000 };
    let cost = ShapeCost {
        devices: 8,
        pair_mb_per_s: (0..8).flat_map(|a| (0..8).map(move |b| pair(a, b))).collect(),
        nic_mb_per_s: 400_000,
        nics: (0..8).map(near).collect(),
        ..ShapeCost::default()
    };
    let mut machine = Machine::bare(Origin::Declared);
    machine.shape = shape.clone();
    machine.devices = vec![Device::default(); 8];
    let machine = Arc::new(machine);
    let mut table = CostTable { shapes: [(shape, cost)].into(), ..CostTable::default() };
    for (name, (uplink_mb_per_s, latency_ns)) in [("leaf", leaf), ("node", node)] {
        let cost = LevelCost { uplink_mb_per_s, latency_ns, inside_mb_per_s: 0 };
        table.levels.insert(level(name), cost);
    }
    let mut nodes = Vec::new();
    for (at, free) in leaves.iter().enumerate() {
        for free in *free {
            let name = format!("n{}", nodes.len());
            let path = ["all".to_owned(), format!("leaf{at}")].map(|name| DomainName::new(name).unwrap());
            let node = Node::new(NodeName::new(name).unwrap(), path.to_vec(), machine.clone());
            let foreign = machine.device_mask().minus(DeviceMask::first(*free));
            nodes.push(Node { foreign, ..node });
        }
    }
    Cluster { levels: Levels::new(vec![level("cluster"), level("leaf")], level("node")), table, nodes }
}

fn gang(size: u32, pattern: Pattern, bytes: u64) -> Gang {
    Gang {
        size,
        min: size,
        max: size,
        needs: Needs { devices: 1, ..Needs::default() },
        members_per_node: None,
        topology: Topology::default(),
        traffic: Some(Traffic { pattern, bytes, compute_ns: 0 }),
        program: Program::default(),
        roles: Vec::new(),
        grid: Vec::new(),
    }
}

/// Members on the first devices of nodes.
fn on(parts: &[(usize, u32)]) -> Vec<Used> {
    let part = |(node, members): &(usize, u32)| Used {
        node: *node,
        members: *members,
        devices: DeviceMask::first(*members),
    };
    parts.iter().map(part).collect()
}

fn members(cluster: &Cluster, gang: &Gang) -> Vec<u32> {
    let best = single::exact(cluster, gang).unwrap().best.unwrap();
    best.used.iter().map(|used| used.members).collect()
}

/// Worked out by hand from the definition.
#[test]
fn an_all_reduce_is_latency_and_bytes_over_the_slowest() {
    let cluster = cluster(&[&[8, 8], &[8]], (30_000, 500), (0, 100));
    let gang = gang(4, Pattern::AllReduce, 1_000_000);
    // 1.5 MB at 400 GB/s inside one node, and nothing crossed.
    assert_eq!(objective::time_ns(&cluster, &gang, &on(&[(0, 4)])), 3_750);
    // Two nodes of one leaf, 100 GB/s of NICs each, and 2 x 100 ns for either.
    assert_eq!(objective::time_ns(&cluster, &gang, &on(&[(0, 2), (1, 2)])), 400 + 15_000);
    // Across leaves: 2 x 500 ns more for either, and uplinks of 30 GB/s.
    assert_eq!(objective::time_ns(&cluster, &gang, &on(&[(0, 2), (2, 2)])), 400 + 2_000 + 50_000);
}

#[test]
fn an_all_to_all_pays_at_every_crossing() {
    let cluster = cluster(&[&[8, 8], &[8]], (30_000, 500), (0, 100));
    let gang = gang(4, Pattern::AllToAll, 4_000_000);
    assert_eq!(objective::time_ns(&cluster, &gang, &on(&[(0, 4)])), 10_000);
    // 1 MB a pair: 3 pairs across either node, at 50 and at 150 GB/s.
    let time = objective::time_ns(&cluster, &gang, &on(&[(0, 1), (1, 3)]));
    assert_eq!(time, 400 + 3_000_000 / 50 + 3_000_000 / 150 + 10_000);
}

#[test]
fn two_full_nodes_across_leaves_beat_sixteen_in_one() {
    let cluster = cluster(&[&[1; 16], &[8], &[8]], (400_000, 1_000), (0, 1_000));
    assert_eq!(members(&cluster, &gang(16, Pattern::AllReduce, 1 << 30)), [8, 8]);
}

#[test]
fn equal_parts_beat_a_full_node_and_a_rest() {
    let cluster = cluster(&[&[8, 8]], (0, 0), (0, 1_000));
    assert_eq!(members(&cluster, &gang(12, Pattern::AllReduce, 1 << 30)), [6, 6]);
}

#[test]
fn a_placement_that_does_not_hold_is_told_from_one_that_does() {
    let cluster = cluster(&[&[8, 2], &[8]], (0, 0), (0, 0));
    let mut gang = gang(6, Pattern::AllReduce, 1);
    gang.topology.segments = vec![Segment { size: 4, level: level("leaf") }];
    let check = |gang: &Gang, parts: &[(usize, u32)]| objective::check(&cluster, gang, &on(parts)).is_ok();
    assert!(check(&gang, &[(0, 4), (2, 2)]) && check(&gang, &[(0, 4), (1, 2)]));
    assert!(!check(&gang, &[(0, 3), (2, 3)]), "both leaves have a part of a segment");
    assert!(!check(&gang, &[(0, 2), (1, 3), (2, 1)]), "more than is free");
    assert!(!check(&gang, &[(0, 4)]), "not the whole gang");
    gang.topology.segments.clear();
    gang.topology.required = Some(level("leaf"));
    assert!(check(&gang, &[(0, 4), (1, 2)]) && !check(&gang, &[(0, 4), (2, 2)]));
    gang.members_per_node = Some(3);
    assert!(!check(&gang, &[(0, 4), (1, 2)]));
}

#[test]
fn ranks_of_a_segment_stand_together() {
    let cluster = cluster(&[&[8], &[8]], (0, 0), (0, 0));
    let mut gang = gang(5, Pattern::AllReduce, 1);
    gang.topology.segments = vec![Segment { size: 2, level: level("leaf") }];
    let used = |nodes: [usize; 5]| {
        let slot = |(rank, node): (u32, &usize)| Slot {
            rank,
            node: cluster.nodes[*node].name.clone(),
            devices: DeviceMask::one(rank),
            part: None,
        };
        let slots = (0..).zip(&nodes).map(slot).collect();
        objective::used(&cluster, &gang, &Placement { slots, level: level("cluster") })
    };
    assert!(used([0, 0, 1, 1, 1]).is_ok() && used([0, 1, 1, 0, 0]).is_ok());
    assert!(used([0, 1, 0, 1, 1]).is_err() && used([1, 0, 0, 0, 1]).is_err());
}

/// The sweep, every placement and, where it is built, the solver: [`single::exact`] is an error when they differ.
#[test]
fn the_exact_methods_agree() {
    let judged: Vec<_> = (0..180)
        .filter(|seed| seed % 45 < 20)
        .map(|seed| {
            let drawn = draw::instance(seed);
            single::exact(&drawn.cluster, &drawn.gang).unwrap()
        })
        .collect();
    assert!(judged.iter().filter(|exact| exact.tried.is_some()).count() > judged.len() / 2);
    assert!(judged.iter().any(|exact| exact.best.is_none()));
    assert!(judged.iter().all(|exact| exact.is_solved) || !cfg!(feature = "milp"));
}

/// A node offers only device sets that no other beats; with all sets the best is the same.
#[test]
fn sets_that_are_left_out_are_never_better() {
    let mut compared = 0;
    for seed in 0..180 {
        let drawn = draw::instance(seed);
        let map = Map::new(&drawn.cluster).unwrap();
        let problem = |sets| Problem::new(&map, &drawn.cluster, &drawn.gang, sets);
        let (few, all) = (problem(Sets::Best), problem(Sets::All));
        if exhaustive::count(&all, 5_000) < 5_000 {
            let ns = |problem| exhaustive::best(problem).map(|best| best.ns);
            assert_eq!(ns(&few), ns(&all), "seed {seed}");
            compared += 1;
        }
    }
    assert!(compared > 50, "only {compared} are small enough");
}

/// Three gangs of a queue, every placement of each with every placement of the others, and nothing remembered.
#[test]
fn a_queue_comes_to_what_all_combinations_do() {
    fn best(map: &Map<'_>, cluster: &Cluster, gangs: &[Gang]) -> (u64, Reverse<u64>) {
        let Some((gang, rest)) = gangs.split_first() else { return (0, Reverse(0)) };
        let mut most = best(map, cluster, rest);
        let mut places = Vec::new();
        let problem = Problem::new(map, cluster, gang, Sets::All);
        exhaustive::each(&problem, &mut |chosen, ns| {
            places.push((problem.used(chosen.iter().copied().enumerate()), ns));
        });
        for (used, ns) in places {
            let mut left = cluster.clone();
            left.take(&used);
            let (devices, Reverse(time)) = best(map, &left, rest);
            most = most.max((devices + queue::weight(gang), Reverse(time + ns)));
        }
        most
    }
    let mut compared = 0;
    for seed in 0..40 {
        let (cluster, gangs) = draw::queue(seed);
        let gangs = &gangs[..gangs.len().min(3)];
        let map = Map::new(&cluster).unwrap();
        let count = |gang| exhaustive::count(&Problem::new(&map, &cluster, gang, Sets::All), 1_000).max(1);
        if gangs.iter().map(count).product::<u64>() > 300 {
            continue;
        }
        let (devices, Reverse(ns)) = best(&map, &cluster, gangs);
        assert_eq!(queue::exact(&cluster, gangs).unwrap(), Some(Total { devices, ns }), "queue {seed}");
        compared += 1;
    }
    assert!(compared >= 5, "only {compared} are small enough");
}

/// Of the engine nothing is demanded here but that it understands what it is asked.
#[test]
fn the_engine_understands_every_instance() {
    for seed in 0..180 {
        let drawn = draw::instance(seed);
        ask::engine(&drawn.cluster, &[drawn.gang]).unwrap();
    }
}

#[test]
fn the_engine_is_optimal() {
    for seed in (0..180).filter(|seed| seed / 15 % 3 == 0) {
        let judged = single::judge(seed).unwrap();
        let ours = match &judged.ours {
            Ours::Placed { ns, .. } => ns.to_string(),
            Ours::NoPlace => "no place".to_owned(),
            Ours::Wrong(why) => why.clone(),
        };
        let best = judged.exact.best.as_ref().map(|best| best.ns);
        assert!(judged.is_optimal(), "seed {seed}: ours {ours}, best {best:?}");
    }
}
