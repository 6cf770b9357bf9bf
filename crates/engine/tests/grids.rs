//! Gangs with grids of parallelism: every rank has a device, groups are where they must be, and a step is never longer
//! than on the placement and in the order that the search for equal members finds.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::collections::{BTreeMap, BTreeSet};

use phalanx_engine::Placer;
use phalanx_model::{
    Axis, AxisKind, Change, Collective, CollectiveCost, CostTable, DeviceMask, DomainName, Gang, Input,
    LevelCost, LevelName, Levels, Node, NodeName, Placement, Segment,
};
use phalanx_testkit::{Watched, costs, gang, job, levels, node};
use proptest::prelude::*;

/// Devices of every node.
const DEVICES: u32 = 4;

fn level(name: &str) -> LevelName {
    LevelName::new(name).unwrap()
}

fn axis(kind: AxisKind, degree: u32, collective: Collective, bytes: u64) -> Axis {
    Axis { kind, degree, collective, bytes, calls: 2 }
}

/// Ranks with one device each.
fn grid_of(tensor: u32, data: (u32, u64), pipeline: (u32, u64)) -> Gang {
    let mut gang: Gang = gang(tensor * data.0 * pipeline.0).devices(1).into();
    gang.grid = vec![
        axis(AxisKind::Tensor, tensor, Collective::AllReduce, 1 << 26),
        axis(AxisKind::Data, data.0, Collective::AllReduce, data.1),
        axis(AxisKind::Pipeline, pipeline.0, Collective::PointToPoint, pipeline.1),
    ];
    gang
}

/// Blocks of leaves of nodes, where others hold some devices of each node.
fn cluster(leaves: &[Vec<u32>], uplinks: &[u32]) -> (Levels, Vec<Node>, CostTable) {
    let mut nodes = Vec::new();
    for (leaf, held) in leaves.iter().enumerate() {
        for (at, held) in held.iter().enumerate() {
            let (block, leaf) = (format!("block-{}", leaf / 3), format!("leaf-{leaf}"));
            let name = format!("{leaf}-node-{at}");
            let mut node = node(&name).path(["all", &block, &leaf]).gpus(DEVICES).nvswitch().build();
            node.foreign = DeviceMask::first(*held);
            nodes.push(node);
        }
    }
    let mut table = costs(&nodes);
    let cost = |uplink_mb_per_s| LevelCost { uplink_mb_per_s, latency_ns: 1_000, inside_mb_per_s: 0 };
    table.levels.insert(level("block"), cost(40_000));
    table.levels.insert(level("leaf"), cost(20_000));
    for node in &nodes {
        let at: usize = node.path[2].as_str()[5..].parse().unwrap();
        let known =
            phalanx_model::DomainCost { path: node.path.clone(), cost: cost(uplinks[at % uplinks.len()]) };
        if !table.domains.contains(&known) {
            table.domains.push(known);
        }
    }
    table.domains.sort_by(|a, b| a.path.cmp(&b.path));
    (levels(&["cluster", "block", "leaf"]), nodes, table)
}

fn placed(placer: &mut Placer, gang: &Gang) -> Option<Placement> {
    placer.place(gang)?;
    placer.placement(gang)
}

fn paths(nodes: &[Node]) -> BTreeMap<&NodeName, &[DomainName]> {
    nodes.iter().map(|node| (&node.name, node.path.as_slice())).collect()
}

/// Checks that the placement has every rank, and every device once and free.
fn check_seats(nodes: &[Node], gang: &Gang, placement: &Placement) {
    let foreign: BTreeMap<&NodeName, DeviceMask> =
        nodes.iter().map(|node| (&node.name, node.foreign)).collect();
    let mut taken = BTreeSet::new();
    assert_eq!(placement.slots.len(), gang.size as usize);
    for (rank, slot) in (0..).zip(&placement.slots) {
        assert_eq!(slot.rank, rank);
        assert_eq!(slot.devices.count(), gang.needs.devices);
        for device in slot.devices.iter() {
            assert!(device < DEVICES && !foreign[&slot.node].contains(device));
            assert!(taken.insert((&slot.node, device)), "{slot:?} twice");
        }
    }
}

/// Checks that each `ranks` consecutive ranks are in one domain, given by a path of `depth`; in one node if `depth` is
/// longer.
fn check_together(nodes: &[Node], placement: &Placement, ranks: u32, depth: usize) {
    let paths = paths(nodes);
    for part in placement.slots.chunks(ranks as usize) {
        let domain = |slot: &phalanx_model::Slot| {
            let path = paths[&slot.node];
            (path[..depth.min(path.len())].to_vec(), (depth > path.len()).then(|| slot.node.clone()))
        };
        assert!(part.iter().all(|slot| domain(slot) == domain(&part[0])), "{part:?}");
    }
}

#[test]
fn data_groups_stay_in_leaves_and_pipelines_cross() {
    // Leaves of two nodes. In the order of the tree, consecutive ranks are stages of one pipeline.
    let (levels, nodes, table) = cluster(&[vec![0, 0], vec![0, 0]], &[20_000]);
    let mut gang: Gang = gang(16).devices(1).into();
    gang.grid = vec![
        axis(AxisKind::Pipeline, 2, Collective::PointToPoint, 1 << 20),
        axis(AxisKind::Data, 8, Collective::AllReduce, 1 << 30),
    ];
    let mut placer = Placer::new(&levels, nodes.clone(), &table);
    let found = placer.place(&gang).unwrap();
    let placement = placer.placement(&gang).unwrap();
    let leaf_of = |rank: usize| paths(&nodes)[&placement.slots[rank].node][2].clone();
    // The even ranks are one data group, the odd ranks the other.
    for rank in 2..16 {
        assert_eq!(leaf_of(rank), leaf_of(rank % 2));
    }
    assert_ne!(leaf_of(0), leaf_of(1));
    let gain = placer.gain(&gang, &placement).unwrap();
    assert_eq!(found.time_ns, gain.chosen.ns);
    assert!(gain.in_order.ns > gain.chosen.ns * 3 / 2, "{gain:?}");
    let mut plain = gang.clone();
    plain.grid.clear();
    assert_eq!(placer.gain(&plain, &placement), None);
}

/// Two leaves of one node. The stages of the pipeline send more bytes; the ring of a data group has more hops.
#[test]
fn calibrated_constants_decide_which_axis_crosses() {
    let (levels, nodes, mut table) = cluster(&[vec![0], vec![0]], &[20_000]);
    let mut gang: Gang = gang(8).devices(1).into();
    gang.grid = vec![
        axis(AxisKind::Data, 4, Collective::AllReduce, 1 << 10),
        axis(AxisKind::Pipeline, 2, Collective::PointToPoint, 1 << 20),
    ];
    let built_in = CollectiveCost::default();
    let slow_hops = CollectiveCost { net_hop_ps: 10_000_000_000, ..built_in };
    let mut order = |collectives| {
        table.collectives = collectives;
        let mut placer = Placer::new(&levels, nodes.clone(), &table);
        let placement = placed(&mut placer, &gang).unwrap();
        let stage_crosses = placement.slots[0].node != placement.slots[4].node;
        (stage_crosses, placer.gain(&gang, &placement).unwrap(), placement)
    };
    let (stage_crosses, fast, _) = order(built_in);
    assert!(!stage_crosses, "the heavy pipeline stays on one node");
    let (stage_crosses, slow, placement) = order(slow_hops);
    assert!(stage_crosses, "a pipeline passes one slow hop, and an all-reduce two");
    assert!(slow.chosen.ns > fast.chosen.ns + 10_000_000, "{slow:?} {fast:?}");

    // An engine that has nodes already receives the constants.
    let mut world = Watched::with_nodes(&levels, &nodes);
    table.collectives = built_in;
    world.step(&[Input::CostsCompiled { table: table.clone() }]);
    let before = world.engine.grid_gain(&gang, &placement).unwrap();
    table.collectives = slow_hops;
    world.step(&[Input::CostsCompiled { table }]);
    let after = world.engine.grid_gain(&gang, &placement).unwrap();
    assert!((fast.chosen.ns..slow.chosen.ns).contains(&before.chosen.ns), "{before:?}");
    assert_eq!(after, slow);
}

#[test]
fn constants_of_any_size_stop_no_step() {
    let (levels, nodes, mut table) = cluster(&[vec![0], vec![0]], &[20_000]);
    let gang = grid_of(2, (2, 1 << 30), (2, 1 << 20));
    let of = |each: u64, share: u32| CollectiveCost {
        call_ps: each,
        inside_hop_ps: each,
        net_hop_ps: each,
        ring_share_ppm: share,
        pipeline_share_ppm: share,
        pipeline_bytes: each,
    };
    for collectives in [of(0, 0), of(u64::MAX, u32::MAX)] {
        table.collectives = collectives;
        assert!(placed(&mut Placer::new(&levels, nodes.clone(), &table), &gang).is_some());
    }
}

#[test]
fn groups_go_to_the_leaves_that_hold_them_whole() {
    // Three leaves with room for 6, 4 and 6: two data groups of 4 that do not cross, although filling the leaf with
    // most room first splits one of them.
    let (levels, nodes, table) = cluster(&[vec![0, 2], vec![0], vec![0, 2]], &[10_000]);
    let mut placer = Placer::new(&levels, nodes.clone(), &table);
    let gang = grid_of(1, (4, 1 << 30), (2, 1 << 10));
    let placement = placed(&mut placer, &gang).unwrap();
    check_together(&nodes, &placement, 4, 3);
}

#[test]
fn what_a_grid_cannot_be_is_refused() {
    let (levels, nodes, _) = cluster(&[vec![0, 0]], &[20_000]);
    let mut world = Watched::with_nodes(&levels, &nodes);
    let refused = |world: &mut Watched, gang: Gang| {
        let out = world.step(&[Input::JobSubmitted { job: Box::new(job(1, gang).build()) }]);
        let why = out.changes.iter().find_map(|change| match change {
            Change::JobRejected { why, .. } => Some(format!("{why:?}")),
            _ => None,
        });
        why.unwrap()
    };
    let mut few = grid_of(2, (2, 1), (1, 1));
    (few.size, few.min, few.max) = (8, 8, 8);
    assert!(refused(&mut world, few).contains("the product of its degrees is 4, and the gang has 8 members"));
    let mut twice = grid_of(2, (2, 1), (2, 1));
    twice.grid[2].kind = AxisKind::Data;
    assert!(refused(&mut world, twice).contains("two axes are data"));
    let mut cut = grid_of(4, (2, 1), (1, 1));
    cut.topology.segments = vec![Segment { size: 6, level: level("leaf") }];
    assert!(refused(&mut world, cut).contains("segments of 6 split tensor groups of 4"));
    let split = grid_of(8, (1, 1), (1, 1));
    assert!(refused(&mut world, split).contains("8"), "no node has eight devices");
}

fn clusters() -> impl Strategy<Value = (Vec<Vec<u32>>, Vec<u32>)> {
    let leaf = prop::collection::vec(0..=DEVICES, 1..5);
    (prop::collection::vec(leaf, 1..7), prop::collection::vec(5_000_u32..80_000, 1..4))
}

fn grids() -> impl Strategy<Value = Gang> {
    let degrees = (prop::sample::select(vec![1_u32, 2, 4]), 1_u32..6, 1_u32..5);
    let segment = prop::option::weighted(0.3, (1_u32..4, any::<bool>()));
    let required = prop::option::weighted(0.3, prop::sample::select(vec!["block", "leaf"]));
    (degrees, 10_u32..32, 10_u32..28, segment, required).prop_map(
        |((t, d, p), data, pipeline, segment, required)| {
            let mut gang = grid_of(t, (d, 1 << data), (p, 1 << pipeline));
            gang.topology.required = required.map(level);
            let segment = segment.map(|(times, in_leaf)| Segment {
                size: t * times,
                level: level(if in_leaf { "leaf" } else { "block" }),
            });
            gang.topology.segments = segment.into_iter().collect();
            gang
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn every_rank_has_its_seat_and_no_step_is_longer((leaves, uplinks) in clusters(), gang in grids()) {
        let (levels, nodes, table) = cluster(&leaves, &uplinks);
        let mut placer = Placer::new(&levels, nodes.clone(), &table);
        let tensor = gang.grid[0].degree;
        // The same members without a grid, but with whole tensor groups on nodes.
        let mut equal = Gang { grid: Vec::new(), ..gang.clone() };
        if tensor > 1 {
            equal.topology.segments.push(Segment { size: tensor, level: level("node") });
        }
        let core = placed(&mut placer, &equal);
        let found = placer.place(&gang);
        prop_assert_eq!(found.is_some(), core.is_some(), "a place is found where there is one");
        let (Some(found), Some(core)) = (found, core) else { return Ok(()) };
        let placement = placer.placement(&gang).unwrap();
        check_seats(&nodes, &gang, &placement);
        check_together(&nodes, &placement, tensor, 4);
        if let Some(required) = &gang.topology.required {
            check_together(&nodes, &placement, gang.size, if required.as_str() == "leaf" { 3 } else { 2 });
        }
        if let Some(segment) = gang.topology.segments.first() {
            check_together(&nodes, &placement, segment.size, if segment.level.as_str() == "leaf" { 3 } else { 2 });
        }
        let chosen = placer.gain(&gang, &placement).unwrap().chosen.ns;
        prop_assert!(chosen <= placer.gain(&gang, &core).unwrap().chosen.ns);
        // Their sums are rounded in another order.
        prop_assert!(found.time_ns.abs_diff(chosen) <= 1, "{} and {chosen}", found.time_ns);
        // Nodes that arrive in another order change nothing, nor does memory that was used.
        let mut backwards = Placer::new(&levels, nodes.into_iter().rev(), &table);
        let again = placed(&mut backwards, &gang).unwrap();
        prop_assert_eq!(&again, &placement);
        prop_assert_eq!(placed(&mut placer, &gang).unwrap(), placement);
    }
}
