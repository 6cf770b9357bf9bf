//! Strategies for small clusters with many corner cases: names that are prefixes of each other, equal names at two
//! levels, numbers with leading zeros, foreign devices, closed nodes, several models.
//!
//! Most gangs are plain: members with devices, CPUs and memory. Each other kind of request occurs in some gangs, and
//! sometimes several in one gang.

use phalanx_model::{
    Admin, Axis, AxisKind, Collective, DeviceMask, DomainLimit, DomainName, Gang, Kept, LevelName, Levels,
    ModelNeed, Needs, Node, NodeName, NodeSet, PartNeed, ResourceName, Role, RoleName, Segment, Spread,
};
use phalanx_scenario::Shape;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::{gang, levels, node};

const LEVELS: [&str; 3] = ["cluster", "block", "leaf"];
/// Few names, so that several nodes are in one domain.
const DOMAINS: [&str; 3] = ["a", "a1", "n1"];
const NODES: [&str; 8] = ["n", "n1", "n01", "n1a", "n10", "n2", "a", "a1"];
/// Named resources: of nodes, of domains, and of both.
const RESOURCES: [&str; 3] = ["nic", "power", "disk"];
/// The names of node sets.
const SETS: [&str; 2] = ["big", "new"];
const GB: u64 = 1_000_000_000;

/// 1 to 3 levels above the node and 1 to 6 nodes, in any order.
pub fn any_cluster() -> impl Strategy<Value = (Levels, Vec<Node>)> {
    (1_usize..=3, subsequence(NODES.to_vec(), 1..=6)).prop_flat_map(|(depth, names)| {
        let nodes: Vec<_> = names.into_iter().map(|name| any_node(name, depth)).collect();
        (any_levels(depth), nodes.prop_shuffle())
    })
}

/// The outermost levels, some with limits.
fn any_levels(depth: usize) -> impl Strategy<Value = Levels> {
    let limit = (0..depth, select(RESOURCES[1..].to_vec()), 0_u64..=8, any::<bool>()).prop_flat_map(
        |(at, resource, amount, is_of_one)| {
            let path = proptest::collection::vec(select(DOMAINS.to_vec()), at + 1);
            path.prop_map(move |path| DomainLimit {
                level: level(LEVELS[at]),
                path: is_of_one.then(|| path.into_iter().map(|d| DomainName::new(d).unwrap()).collect()),
                resource: ResourceName::new(resource).unwrap(),
                amount,
            })
        },
    );
    let limits = prop_oneof![2 => Just(Vec::new()), 1 => proptest::collection::vec(limit, 1..=3)];
    limits.prop_map(move |limits| Levels { limits, ..levels(&LEVELS[..depth]) })
}

fn level(text: &str) -> LevelName {
    LevelName::new(text).unwrap()
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
    let path = proptest::collection::vec(select(DOMAINS.to_vec()), depth);
    let model = prop_oneof![Just("V100"), Just("H100 80GB")];
    // The compute that shares may have, and replicas.
    let division =
        prop_oneof![6 => Just((0, 0)), 2 => Just((2_000, 0)), 1 => Just((0, 1)), 1 => Just((0, 3))];
    let sharing = (prop_oneof![Just(0), Just(16 * GB), Just(80 * GB)], division);
    // A resource that no node counts is unknown.
    let named = (0_u64..=8, proptest::option::weighted(0.2, 0_u64..=4));
    // The foreign use may exceed the capacity.
    let others = prop_oneof![3 => Just((0, 0, 0)), 1 => (0_u64..=13, 0_u64..=13, 0_u64..=3)];
    // Some devices are restricted to gangs within a set.
    let kept = proptest::option::weighted(0.2, (select(SETS.to_vec()), 0_u64..256));
    let beside = (named, others, subsequence(SETS.to_vec(), 0..=2), kept);
    (shape, admin, foreign, path, 0_u64..=12, 0_u64..=12, model, sharing, beside).prop_map(
        move |((gpus, shape), admin, foreign, path, cpus, memory, model, sharing, beside)| {
            let ((nics, disks), (others_cpus, others_memory, others_nics), sets, kept) = beside;
            let mut built = node(&name)
                .gpus(gpus)
                .shape(shape)
                .model(model)
                .cpus(cpus)
                .memory(memory)
                .admin(admin)
                .device_memory(sharing.0)
                .share_limit(sharing.1.0)
                .replicas(sharing.1.1)
                .has("nic", nics);
            if let Some(disks) = disks {
                built = built.has("disk", disks);
            }
            let mut built = built.build();
            built.foreign = DeviceMask(foreign).and(built.machine.device_mask());
            built.foreign_use.cpu_milli = others_cpus * 1_000;
            built.foreign_use.memory_bytes = others_memory * GB;
            if others_nics > 0 {
                built.foreign_use.named.insert(ResourceName::new("nic").unwrap(), others_nics);
            }
            built.sets = sets.iter().map(|set| NodeSet::new(set)).collect();
            let kept = kept.map(|(set, devices)| {
                (NodeSet::new(set), DeviceMask(devices).and(built.machine.device_mask()))
            });
            built.kept = Kept(kept.into_iter().collect());
            built.path = path.iter().map(|d| DomainName::new(*d).unwrap()).collect();
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
    let extras = (any_wishes(levels), any_roles(), any_part(), any_grid());
    (any_plain_gang(levels), extras).prop_map(|(mut gang, (wishes, role, part, grid))| {
        wishes.put(&mut gang);
        // The search is complete for roles or parts, not both, and for neither with segments.
        if let Some(role) = role {
            gang.topology.segments.clear();
            gang.roles.push(role);
        } else if let Some(part) = part {
            gang.topology.segments.clear();
            gang.needs.devices = 0;
            gang.needs.part = Some(part);
        } else if let Some(grid) = grid {
            gang.topology.segments.clear();
            gang.members_per_node = None;
            gang.size = grid.iter().map(|axis| axis.degree).product();
            (gang.min, gang.max) = (gang.size, gang.size);
            gang.grid = grid;
        }
        gang
    })
}

/// Members with whole devices, CPUs and memory, and their topology rules.
fn any_plain_gang(levels: &Levels) -> impl Strategy<Value = Gang> + use<> {
    let mut names: Vec<LevelName> = levels.above.clone();
    names.push(levels.node.clone());
    names.extend(["nvlink", "pcie", "socket"].map(level));
    let level = || prop_oneof![2 => Just(None), 1 => select(names.clone()).prop_map(Some)].boxed();
    let per_node = prop_oneof![4 => Just(None), 1 => (1_u32..=3).prop_map(Some)];
    let model = prop_oneof![4 => Just(None), 1 => Just(Some("h100".to_owned()))];
    // Some of these nodes do not exist.
    let named = subsequence(NODES.to_vec(), 1..=NODES.len());
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
            // With equal parts on nodes, segments inside a node have to divide the part; and a member without devices
            // is in no group.
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

/// Further requests of some gangs.
#[derive(Clone, Debug)]
struct Wishes {
    named: Vec<(&'static str, u64)>,
    spread: Option<Spread>,
    is_exclusive: bool,
    /// Speeds of two models.
    speeds: Option<(u32, u32)>,
    avoid: Vec<&'static str>,
    prefer: Vec<&'static str>,
    within: Option<&'static str>,
}

impl Wishes {
    fn put(self, gang: &mut Gang) {
        let names = |names: Vec<&str>| names.into_iter().map(|n| NodeName::new(n).unwrap()).collect();
        let needs = &mut gang.needs;
        needs.named = self.named.into_iter().map(|(name, n)| (ResourceName::new(name).unwrap(), n)).collect();
        needs.is_exclusive = self.is_exclusive;
        needs.avoid = names(self.avoid);
        needs.prefer = names(self.prefer);
        needs.within = self.within.map(NodeSet::new);
        if let Some((h100, v100)) = self.speeds {
            let model = |model: &str, speed_milli| ModelNeed { model: model.to_owned(), speed_milli };
            needs.models = vec![model("h100", h100), model("V100", v100)];
        }
        gang.topology.spread = self.spread.into_iter().collect();
    }
}

fn any_wishes(levels: &Levels) -> impl Strategy<Value = Wishes> + use<> {
    let names: Vec<LevelName> = levels.above.iter().chain([&levels.node]).cloned().collect();
    let spread = (select(names), 1_u32..=3).prop_map(|(level, max)| Spread { level, max });
    let speeds = prop_oneof![Just((1_000, 500)), Just((400, 1_000)), Just((1_000, 1_000))];
    let nodes = || prop_oneof![9 => Just(Vec::new()), 1 => subsequence(NODES.to_vec(), 1..=4)];
    let parts = (
        any_named(),
        proptest::option::weighted(0.12, spread),
        prop::bool::weighted(0.08),
        proptest::option::weighted(0.1, speeds),
        nodes(),
        nodes(),
        proptest::option::weighted(0.1, select(SETS.to_vec())),
    );
    parts.prop_map(|(named, spread, is_exclusive, speeds, avoid, prefer, within)| Wishes {
        named,
        spread,
        is_exclusive,
        speeds,
        avoid,
        prefer,
        within,
    })
}

fn any_named() -> impl Strategy<Value = Vec<(&'static str, u64)>> {
    let one = (select(RESOURCES.to_vec()), 0_u64..=3);
    prop_oneof![5 => Just(Vec::new()), 1 => proptest::collection::vec(one, 1..=2)]
}

/// A launcher, or servers with devices of their own.
fn any_roles() -> impl Strategy<Value = Option<Role>> {
    let model = prop_oneof![3 => Just(None), 1 => Just(Some("v100"))];
    let role = (1_u32..=2, 0_u32..=2, 0_u64..=3, any_named(), model).prop_map(
        |(size, devices, cpus, named, model)| {
            let mut needs = gang(1).devices(devices).cpu_milli(cpus * 1_000).build().needs;
            needs.named = named.into_iter().map(|(name, n)| (ResourceName::new(name).unwrap(), n)).collect();
            needs.models = model.map_or(Vec::new(), Needs::of_model);
            Role { name: RoleName::new("other").unwrap(), size, needs, segments: Vec::new(), program: None }
        },
    );
    proptest::option::weighted(0.12, role)
}

fn any_part() -> impl Strategy<Value = Option<PartNeed>> {
    let share = (0_u32..=4, 0_u64..=4, select(vec!["alice", "bob"])).prop_map(|(compute, memory, trust)| {
        // At least one of the two amounts.
        let compute_milli = if memory == 0 { 250 * compute.max(1) } else { 250 * compute };
        PartNeed::Share { compute_milli, memory_bytes: memory * 8 * GB, trust: trust.to_owned() }
    });
    // V100s do not support MIG.
    let profile =
        select(vec!["1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]);
    // 40 GB are within the tolerance of the name 3g.40gb.
    let slice =
        (0_u32..=4, select(vec![0_u64, 1, 2, 3, 4, 6])).prop_map(|(sevenths, memory)| PartNeed::Slice {
            compute_milli: if memory == 0 { sevenths.max(1) * 142 } else { sevenths * 142 },
            memory_bytes: memory * 8 * GB,
        });
    let part = prop_oneof![
        2 => share,
        1 => profile.prop_map(|name| PartNeed::Profile(name.to_owned())),
        1 => slice,
        1 => Just(PartNeed::Replica),
    ];
    proptest::option::weighted(0.15, part)
}

/// Tensor groups, and rings or pipelines between them.
fn any_grid() -> impl Strategy<Value = Option<Vec<Axis>>> {
    let outer = prop_oneof![
        Just((AxisKind::Data, Collective::AllReduce)),
        Just((AxisKind::Pipeline, Collective::PointToPoint)),
        Just((AxisKind::Expert, Collective::AllToAll)),
    ];
    let bytes = || prop_oneof![Just(0), Just(1_000), Just(1 << 28)];
    let grid = (1_u32..=3, 1_u32..=3, outer, bytes(), bytes()).prop_map(
        |(tensor, others, (kind, collective), bytes, other_bytes)| {
            let all_reduce = Collective::AllReduce;
            vec![
                Axis { kind: AxisKind::Tensor, degree: tensor, collective: all_reduce, bytes, calls: 2 },
                Axis { kind, degree: others, collective, bytes: other_bytes, calls: 1 },
            ]
        },
    );
    proptest::option::weighted(0.1, grid)
}

/// Mostly no segments, or one or two nested segments, at most one of them inside the node.
fn any_segments(names: &[LevelName]) -> impl Strategy<Value = Vec<Segment>> + use<> {
    let levels = subsequence(names.to_vec(), 1..=2);
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
