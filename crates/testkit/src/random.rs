//! Strategies for small clusters that are nasty in small ways: names that are prefixes of each other, equal
//! names at two levels, numbers with leading zeros, foreign devices, closed nodes, several models.

use phalanx_model::{Admin, DeviceMask, Gang, LevelName, Levels, Needs, Node, NodeName, Segment};
use phalanx_scenario::Shape;
use proptest::prelude::*;

use crate::{gang, levels, node};

const LEVELS: [&str; 3] = ["cluster", "block", "leaf"];
/// Few, so that nodes meet in a domain.
const DOMAINS: [&str; 3] = ["a", "a1", "n1"];
const NODES: [&str; 8] = ["n", "n1", "n01", "n1a", "n10", "n2", "a", "a1"];

/// 1 to 3 levels above the node and 1 to 6 nodes, in any order.
pub fn any_cluster() -> impl Strategy<Value = (Levels, Vec<Node>)> {
    (1_usize..=3, proptest::sample::subsequence(NODES.to_vec(), 1..=6)).prop_flat_map(|(depth, names)| {
        let nodes: Vec<_> = names.into_iter().map(|name| any_node(name, depth)).collect();
        nodes.prop_shuffle().prop_map(move |nodes| (levels(&LEVELS[..depth]), nodes))
    })
}

/// One node below `depth` levels.
pub fn any_node(name: &str, depth: usize) -> impl Strategy<Value = Node> + use<> {
    let name = name.to_owned();
    // Half are small, so that a gang has to be spread.
    let shape = prop_oneof![
        3 => (0_u32..=2, Just(Shape::Pcie)),
        1 => Just((8, Shape::HybridCubeMesh)),
        1 => (0_u32..=8, Just(Shape::NvSwitch)),
        1 => (0_u32..=8, Just(Shape::Pcie)),
    ];
    let admin = prop_oneof![8 => Just(Admin::Open), 1 => Just(Admin::Cordoned), 1 => Just(Admin::Draining)];
    let foreign = prop_oneof![3 => Just(0_u64), 1 => 0_u64..256];
    let path = proptest::collection::vec(proptest::sample::select(DOMAINS.to_vec()), depth);
    let model = prop_oneof![Just("V100"), Just("H100 80GB")];
    (shape, admin, foreign, path, 0_u64..=12, 0_u64..=12, model).prop_map(
        move |((gpus, shape), admin, foreign, path, cpus, memory, model)| {
            let mut built = node(&name)
                .gpus(gpus)
                .shape(shape)
                .model(model)
                .cpus(cpus)
                .memory(memory)
                .admin(admin)
                .build();
            built.foreign = DeviceMask(foreign).and(built.machine.device_mask());
            built.path = path.iter().map(|d| phalanx_model::DomainName::new(*d).unwrap()).collect();
            built
        },
    )
}

/// Gangs for clusters of all three levels.
pub fn any_gang() -> impl Strategy<Value = Gang> {
    any_gang_for(&levels(&LEVELS))
}

/// Small gangs that name levels of this cluster.
pub fn any_gang_for(levels: &Levels) -> impl Strategy<Value = Gang> + use<> {
    let mut names: Vec<LevelName> = levels.above.clone();
    names.push(levels.node.clone());
    names.extend(["nvlink", "pcie", "socket"].map(|l| LevelName::new(l).unwrap()));
    let level =
        || prop_oneof![2 => Just(None), 1 => proptest::sample::select(names.clone()).prop_map(Some)].boxed();
    let per_node = prop_oneof![4 => Just(None), 1 => (1_u32..=3).prop_map(Some)];
    let model = prop_oneof![4 => Just(None), 1 => Just(Some("h100".to_owned()))];
    // Some of these names are of no node.
    let named = proptest::sample::subsequence(NODES.to_vec(), 1..=NODES.len());
    let named = prop_oneof![4 => Just(Vec::new()), 1 => named.prop_shuffle()];
    let needs = (0_u32..=4, 0_u64..=4, 0_u64..=4, model, named);
    let segments = any_segments(&names);
    (1_u32..=6, needs, level(), level(), 0_u64..3_000, per_node, segments).prop_map(
        |(size, (devices, cpus, memory, model, named), required, preferred, wait_ms, per_node, segments)| {
            let size = per_node.map_or(size, |n| size.div_ceil(n) * n);
            let mut built = gang(size).devices(devices).cpu_milli(cpus * 1_000).memory(memory).build();
            built.needs.models = model.map_or(Vec::new(), Needs::of_model);
            built.needs.nodes = named.into_iter().map(|n| NodeName::new(n).unwrap()).collect();
            built.members_per_node = per_node;
            built.topology.required = required;
            built.topology.preferred = preferred;
            built.topology.wait_ms = wait_ms;
            // With equal parts on nodes, what stays inside a node has to divide them; and a member without devices
            // is in no group of them.
            let suits = |segment: &Segment| {
                LEVELS.contains(&segment.level.as_str())
                    || per_node.is_none_or(|n| n.is_multiple_of(segment.size))
                        && (devices > 0 || !is_in_node(segment))
            };
            if segments.iter().all(suits) {
                built.topology.segments = segments;
            }
            built
        },
    )
}

/// None most often, or one or two inside each other, at most one of them inside the node.
fn any_segments(names: &[LevelName]) -> impl Strategy<Value = Vec<Segment>> + use<> {
    let levels = proptest::sample::subsequence(names.to_vec(), 1..=2);
    let some = (levels, 1_u32..=3, 1_u32..=3).prop_map(|(levels, narrow, times)| {
        let sizes = if levels.len() == 2 { [narrow * times, narrow] } else { [narrow * times, 0] };
        let nested = levels.into_iter().zip(sizes).map(|(level, size)| Segment { size, level });
        let mut segments: Vec<Segment> = nested.collect();
        if segments.iter().all(is_in_node) {
            segments.truncate(1);
        }
        segments
    });
    prop_oneof![2 => Just(Vec::new()), 1 => some]
}

fn is_in_node(segment: &Segment) -> bool {
    ["nvlink", "pcie", "socket"].contains(&segment.level.as_str())
}
