//! Parts of devices against books that know nothing but the rules, and what must hold of every place.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_model::{
    Bandwidths, CostTable, Device, DeviceMask, DomainLimit, DomainName, Gang, LevelName, Levels, Machine,
    Needs, Node, NodeName, Origin, PartNeed, Program, ResourceName, ShapeName, Spread, Topology,
};
use proptest::prelude::*;

use crate::cluster::Shapes;
use crate::cluster::fractions::hardware::board;
use crate::cluster::space::{Pick, Piece, Space};
use crate::cluster::tree::{LevelAt, Tree};
use crate::placement::search::{Ceiling, Search, best_fit, placement};
use crate::share::mig::{A30, A100_40GB, A100_80GB, B200, Geometry, H100_80GB, H100_NVL, H200};

const GIB: u64 = 1 << 30;
const MODELS: [(&str, u64); 4] = [
    ("NVIDIA A100-SXM4-40GB", 40 * GIB),
    ("NVIDIA A30", 24 * GIB),
    ("NVIDIA H100 80GB HBM3", 80 * GIB),
    ("Tesla V100-SXM2-16GB", 16 * GIB),
];

fn level(name: &str) -> LevelName {
    LevelName::new(name).unwrap()
}

fn power() -> ResourceName {
    ResourceName::new("watts").unwrap()
}

/// A node of these models, with this many CPUs.
fn node(name: &str, leaf: &str, models: &[usize], cpus: u64, share_limit_milli: u32) -> Node {
    let device = |(i, model): (usize, &usize)| Device {
        name: format!("GPU{i}"),
        model: MODELS[*model].0.to_owned(),
        memory_bytes: MODELS[*model].1,
        ..Device::default()
    };
    let machine = Machine {
        shape: ShapeName::new(format!("shape-{models:?}").replace([' ', '[', ']', ','], "x")).unwrap(),
        devices: models.iter().enumerate().map(device).collect(),
        cpu_milli: cpus * 1_000,
        memory_bytes: 64 * GIB,
        share_limit_milli,
        ..Machine::bare(Origin::Declared)
    };
    Node {
        address: String::new(),
        ..Node::new(
            NodeName::new(name).unwrap(),
            ["c", leaf].iter().map(|name| DomainName::new(*name).unwrap()).collect(),
            Arc::new(machine),
        )
    }
}

fn levels() -> Levels {
    let limit = DomainLimit { level: level("leaf"), path: None, resource: power(), amount: 1_000 };
    Levels { limits: vec![limit], ..Levels::new(vec![level("cluster"), level("leaf")], level("node")) }
}

fn tree(nodes: &[Node]) -> Tree {
    let nodes: BTreeMap<_, _> = nodes.iter().map(|node| (node.name.clone(), node.clone())).collect();
    Tree::build(&levels(), &nodes, &CostTable::default(), &Bandwidths::default(), None, &Shapes::default())
}

fn gang(size: u32, needs: Needs) -> Gang {
    Gang {
        size,
        min: size,
        max: size,
        needs,
        roles: Vec::new(),
        members_per_node: None,
        topology: Topology::default(),
        traffic: None,
        grid: Vec::new(),
        program: Program::default(),
    }
}

fn part(size: u32, part: PartNeed) -> Gang {
    gang(size, Needs { part: Some(part), cpu_milli: 1_000, ..Needs::default() })
}

fn share(compute_milli: u32, gib: u64, trust: &str) -> PartNeed {
    PartNeed::Share { compute_milli, memory_bytes: gib * GIB, trust: trust.to_owned() }
}

fn profile(name: &str) -> PartNeed {
    PartNeed::Profile(name.to_owned())
}

/// A cluster and what runs in it.
struct Cluster {
    tree: Tree,
    space: Space,
    search: Search,
}

impl Cluster {
    fn new(nodes: &[Node]) -> Self {
        let tree = tree(nodes);
        Self { space: Space::free_of(&tree), search: Search::default(), tree }
    }

    fn place(&mut self, gang: &Gang) -> Option<Vec<Pick>> {
        let ceiling = Ceiling(self.tree.level_of_required(gang));
        self.search.place(&self.tree, &self.space, gang, ceiling)?;
        Some(self.search.picks().to_vec())
    }

    /// Places and takes.
    fn start(&mut self, gang: &Gang) -> Option<Vec<Pick>> {
        let picks = self.place(gang)?;
        assert!(self.space.has_room(&self.tree, gang, &picks), "{picks:?}");
        self.space.take(&self.tree, &picks, gang);
        Some(picks)
    }

    fn end(&mut self, gang: &Gang, picks: &[Pick]) {
        self.space.give_back(&self.tree, picks, gang);
    }

    /// Profile and start of each pick.
    fn slices(&self, picks: &[Pick]) -> Vec<(&'static str, u8)> {
        let name = |pick: &Pick| {
            let Piece::Slice { profile, start } = pick.piece else { panic!("{pick:?}") };
            let hardware = &self.tree.kind(&self.tree.nodes[pick.node as usize]).hardware[0].0;
            (hardware.geometry.unwrap().profile(profile).unwrap().name, start)
        };
        picks.iter().map(name).collect()
    }
}

#[test]
fn boards_are_known_by_their_product_names() {
    let known: [(&str, u64, &Geometry); 14] = [
        ("NVIDIA A100-SXM4-40GB", 40, &A100_40GB),
        ("NVIDIA A100-PCIE-40GB", 0, &A100_40GB),
        ("NVIDIA A100-SXM4-80GB", 0, &A100_80GB),
        ("NVIDIA A100 80GB PCIe", 80, &A100_80GB),
        ("A100", 0, &A100_40GB),
        ("a100", 80, &A100_80GB),
        ("NVIDIA A800-SXM4-80GB", 80, &A100_80GB),
        ("NVIDIA A30", 24, &A30),
        ("NVIDIA H100 80GB HBM3", 80, &H100_80GB),
        ("NVIDIA H100 PCIe", 80, &H100_80GB),
        ("NVIDIA H100 NVL", 94, &H100_NVL),
        ("NVIDIA H800", 80, &H100_80GB),
        ("NVIDIA H200", 141, &H200),
        ("NVIDIA B200", 180, &B200),
    ];
    for (model, gib, geometry) in known {
        assert_eq!(board(model, gib * GIB).map(|found| found.board), Some(geometry.board), "{model}");
    }
    for model in [
        "",
        "Tesla V100-SXM3-32GB-H",
        "NVIDIA GB200",
        "NVIDIA GB300 NVL",
        "Tesla K40m",
        "NVIDIA A10",
        "A3000",
    ] {
        assert_eq!(board(model, 0), None, "{model}");
    }
}

#[test]
fn a_training_job_stands_beside_services_on_one_gpu() {
    let mut cluster = Cluster::new(&[node("n", "l", &[2], 64, 0)]);
    let service = part(1, PartNeed::Slice { compute_milli: 100, memory_bytes: 5 * GIB });
    let training = part(1, PartNeed::Slice { compute_milli: 500, memory_bytes: 30 * GIB });
    let mut all = Vec::new();
    for gang in [&service, &service, &training, &service] {
        all.extend(cluster.start(gang).expect("all stand on one GPU"));
    }
    assert_eq!(cluster.slices(&all), [("1g.10gb", 6), ("1g.10gb", 5), ("4g.40gb", 0), ("1g.10gb", 4)]);
    assert_eq!(cluster.place(&service), None, "seven compute slices are in use");
    let placed = placement(&cluster.tree, &all[2..3], &[], &training).unwrap();
    assert_eq!(shown(&placed), "n 0 4g.40gb@0");
    assert_eq!(cluster.tree.picks_of(&placed, &training), &all[2..3], "and back");
}

fn shown(placement: &phalanx_model::Placement) -> String {
    let slot = &placement.slots[0];
    match &slot.part {
        Some(phalanx_model::DevicePart::Slice { profile, start }) => {
            format!("{} {} {profile}@{start}", slot.node, slot.devices)
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn whole_devices_and_parts_never_mix() {
    let mut cluster = Cluster::new(&[node("n", "l", &[2, 2], 64, 0)]);
    let (half, whole) = (part(1, share(500, 10, "me")), gang(1, Needs { devices: 1, ..Needs::default() }));
    let first = cluster.start(&half).unwrap();
    let beside = cluster.start(&whole).unwrap();
    assert!(first[0].devices.and(beside[0].devices).is_empty());
    assert_eq!(cluster.place(&whole), None);
    let second = cluster.start(&half).unwrap();
    assert_eq!(first[0].devices, second[0].devices, "an open device goes before another");
    assert_eq!(cluster.place(&half), None);
    cluster.end(&half, &first);
    assert_eq!(cluster.place(&whole), None, "the other half runs");
    cluster.end(&half, &second);
    assert!(cluster.place(&whole).is_some());
}

#[test]
fn who_does_not_trust_does_not_share() {
    let mut cluster = Cluster::new(&[node("n", "l", &[3], 64, 0), node("m", "l", &[2], 64, 0)]);
    let (mine, theirs) = (part(1, share(100, 1, "me")), part(1, share(100, 1, "them")));
    let here = cluster.start(&mine).unwrap();
    let there = cluster.start(&theirs).unwrap();
    assert_ne!(here[0].node, there[0].node);
    assert_eq!(cluster.start(&mine).unwrap()[0].node, here[0].node);
    assert_eq!(cluster.place(&part(1, share(100, 1, "others"))), None);
}

#[test]
fn compute_is_promised_as_far_as_declared_and_memory_as_far_as_known() {
    let mut cluster = Cluster::new(&[node("n", "l", &[3], 64, 2_000)]);
    assert!(cluster.place(&part(4, share(500, 4, "me"))).is_some());
    assert_eq!(cluster.place(&part(5, share(500, 3, "me"))), None);
    assert_eq!(cluster.place(&part(4, share(500, 5, "me"))), None);
    let mut unknown = node("n", "l", &[3], 64, 0);
    Arc::make_mut(&mut unknown.machine).devices[0].memory_bytes = 0;
    let mut cluster = Cluster::new(&[unknown]);
    assert!(cluster.place(&part(4, share(250, 500, "me"))).is_some());
}

/// A device more is opened where less breaks: not on the node that is whole.
#[test]
fn whole_nodes_are_left() {
    let nodes =
        [node("a", "l", &[2, 2], 64, 0), node("b", "l", &[2, 2], 64, 0), node("c", "m", &[2, 2], 64, 0)];
    let mut cluster = Cluster::new(&nodes);
    let whole = gang(1, Needs { devices: 1, nodes: vec![NodeName::new("b").unwrap()], ..Needs::default() });
    cluster.start(&whole).unwrap();
    let quarters = part(1, share(250, 10, "me"));
    for _ in 0..4 {
        assert_eq!(cluster.start(&quarters).unwrap()[0].node, 1);
    }
    assert_eq!(cluster.start(&quarters).unwrap()[0].node, 0, "a leaf that is broken goes before a whole one");
    assert_eq!(cluster.place(&part(7, share(500, 10, "them"))), None, "three devices are whole");
    let four = part(4, share(500, 10, "them"));
    assert!(cluster.start(&four).unwrap().iter().all(|pick| pick.node == 2), "one node for all");
}

/// What the world says twice is booked once, and nothing fails.
#[test]
fn a_world_that_over_commits_is_survived() {
    let mut cluster = Cluster::new(&[node("n", "l", &[2], 64, 0)]);
    let (half, slice) = (part(2, share(500, 10, "me")), part(1, profile("1g.10gb")));
    let (whole, none) = (gang(1, Needs { devices: 1, ..Needs::default() }), part(1, profile("9g.90gb")));
    let fresh = cluster.space.clone();
    let halves = cluster.place(&half).unwrap();
    let sliced = cluster.place(&slice).unwrap();
    let all = cluster.place(&whole).unwrap();
    let odd = [Pick { piece: Piece::Slice { profile: 200, start: 77 }, ..sliced[0] }];
    let two =
        [Pick { devices: DeviceMask(3), ..sliced[0] }, Pick { devices: DeviceMask::EMPTY, ..sliced[0] }];
    assert!(cluster.space.has_room(&cluster.tree, &half, &halves));
    cluster.space.take(&cluster.tree, &halves, &half);
    for (picks, gang) in
        [(&sliced[..], &slice), (&all, &whole), (&odd, &none), (&two, &slice), (&halves, &half)]
    {
        assert!(!cluster.space.has_room(&cluster.tree, gang, picks));
        cluster.space.take(&cluster.tree, picks, gang);
        cluster.space.give_back(&cluster.tree, picks, gang);
    }
    cluster.space = fresh;
    assert!(cluster.start(&half).is_some());
}

/// Books that know the rules and nothing else.
#[derive(Clone, Debug, Default, PartialEq)]
enum Use {
    #[default]
    Free,
    Whole,
    Shared(String, u32, u64),
    Cut(Vec<(u8, u8)>),
}

#[derive(Clone, Debug, PartialEq)]
struct Naive {
    uses: Vec<Vec<Use>>,
    cpu_milli: Vec<u64>,
    watts: Vec<u64>,
}

/// One way to put one member somewhere.
type Way = (usize, u32, u8, u8);

fn fits_rules(geometry: &Geometry, cut: &[(u8, u8)], (index, start): (u8, u8)) -> bool {
    let profile = geometry.profile(index).unwrap();
    let covered = |(index, start): (u8, u8)| start..start + geometry.profile(index).unwrap().memory_slices;
    let is_like = |other| other == index || profile.has_media && geometry.profile(other).unwrap().has_media;
    let is_apart = |other: &(u8, u8)| covered((index, start)).all(|slice| !covered(*other).contains(&slice));
    profile.starts >> start & 1 == 1
        && cut.iter().all(is_apart)
        && cut.iter().filter(|(other, _)| is_like(*other)).count() < usize::from(profile.max)
}

impl Naive {
    fn new(nodes: &[Node]) -> Self {
        let uses = nodes.iter().map(|node| vec![Use::Free; node.machine.devices.len()]).collect();
        Self {
            uses,
            cpu_milli: nodes.iter().map(|node| node.machine.cpu_milli).collect(),
            watts: vec![1_000; nodes.len()],
        }
    }

    /// Puts a member somewhere; false where it must not be.
    fn put(&mut self, nodes: &[Node], gang: &Gang, (node, device, index, start): Way) -> bool {
        let of = &nodes[node].machine.devices[device as usize];
        let leaf = nodes.iter().position(|other| other.path == nodes[node].path).unwrap();
        let watts = gang.needs.named.get(&power()).copied().unwrap_or(0);
        if self.cpu_milli[node] < gang.needs.cpu_milli || self.watts[leaf] < watts {
            return false;
        }
        let geometry = board(&of.model, of.memory_bytes);
        let there = &mut self.uses[node][device as usize];
        match gang.needs.part.as_ref().unwrap() {
            PartNeed::Share { compute_milli, memory_bytes, trust } => {
                let limit = nodes[node].machine.share_limit_milli.max(1_000);
                let wanted = PartNeed::share_bytes(*compute_milli, *memory_bytes, of.memory_bytes);
                let (mut compute, mut memory) = (*compute_milli, wanted);
                match there {
                    Use::Shared(whose, promised, held) if whose == trust => {
                        compute += *promised;
                        memory += *held;
                    }
                    Use::Free => {}
                    _ => return false,
                }
                if compute > limit || memory > of.memory_bytes || *compute_milli > 1_000 {
                    return false;
                }
                *there = Use::Shared(trust.clone(), compute, memory);
            }
            need => {
                let Some(geometry) = geometry else { return false };
                let is_it = match need {
                    PartNeed::Profile(name) => geometry.profile(index).unwrap().name == name,
                    PartNeed::Slice { compute_milli, memory_bytes } => {
                        let enough = |index: u8| {
                            let of = geometry.profile(index).unwrap();
                            let whole = u32::from(geometry.compute_slices);
                            !of.has_media
                                && u32::from(of.compute_slices) * 1_000 >= compute_milli * whole
                                && u64::from(of.memory_mib) << 20 >= *memory_bytes
                        };
                        // The table of a board is in the order of size.
                        (0..geometry.profiles.len() as u8).find(|index| enough(*index)) == Some(index)
                    }
                    PartNeed::Share { .. } | PartNeed::Replica => unreachable!(),
                };
                let mut cut = match there {
                    Use::Cut(cut) => cut.clone(),
                    Use::Free => Vec::new(),
                    _ => return false,
                };
                if !is_it || !fits_rules(geometry, &cut, (index, start)) {
                    return false;
                }
                cut.push((index, start));
                cut.sort_unstable();
                *there = Use::Cut(cut);
            }
        }
        self.cpu_milli[node] -= gang.needs.cpu_milli;
        self.watts[leaf] -= watts;
        true
    }

    /// The most members that fit at once in these nodes, at most `left`, by trying all ways in order.
    fn most(&self, nodes: &[Node], gang: &Gang, inside: &[usize], from: usize, left: u32) -> u32 {
        let ways: Vec<Way> = inside
            .iter()
            .flat_map(|node| {
                let devices = 0..nodes[*node].machine.devices.len() as u32;
                devices.flat_map(move |device| {
                    let all =
                        (0..7).flat_map(move |index| (0..8).map(move |start| (*node, device, index, start)));
                    all.filter(|(.., index, start)| {
                        (*index, *start) == (0, 0) || !matches!(gang.needs.part, Some(PartNeed::Share { .. }))
                    })
                })
            })
            .collect();
        let mut most = 0;
        for (at, way) in ways.iter().enumerate().skip(from) {
            let model = &nodes[way.0].machine.devices[way.1 as usize];
            let profiles = board(&model.model, model.memory_bytes).map_or(1, |board| board.profiles.len());
            let mut then = self.clone();
            if usize::from(way.2) >= profiles || most >= left || !then.put(nodes, gang, *way) {
                continue;
            }
            most = most.max(1 + if left > 1 { then.most(nodes, gang, inside, at, left - 1) } else { 0 });
        }
        most
    }
}

fn any_nodes() -> impl Strategy<Value = Vec<Node>> {
    let one = (
        prop::collection::vec(0_usize..4, 0..=2),
        0_u64..6,
        0_usize..2,
        prop_oneof![Just(0_u32), Just(1_500)],
    );
    prop::collection::vec(one, 1..=3).prop_map(|all| {
        let named = all.into_iter().enumerate();
        named
            .map(|(i, (models, cpus, leaf, limit))| {
                node(&format!("n{i}"), ["l0", "l1"][leaf], &models, cpus, limit)
            })
            .collect()
    })
}

fn any_part() -> impl Strategy<Value = PartNeed> {
    prop_oneof![
        3 => (prop::sample::select(vec![200_u32, 250, 334, 500, 1_000]), 0_u64..20, prop::sample::select(vec!["me", "them"]))
            .prop_map(|(compute, gib, trust)| share(compute, gib, trust)),
        2 => (0_u32..700, 1_u64..45).prop_map(|(compute_milli, gib)| PartNeed::Slice { compute_milli, memory_bytes: gib * GIB }),
        3 => prop::sample::select(vec!["1g.5gb", "2g.10gb", "3g.20gb", "1g.6gb", "2g.12gb", "1g.10gb", "3g.40gb", "4g.40gb", "1g.10gb+me", "1g.6gb+me", "2g.12gb+me"])
            .prop_map(profile),
    ]
}

fn any_gang() -> impl Strategy<Value = Gang> {
    let level_of = prop::sample::select(vec![None, Some("leaf"), Some("node")]);
    let watts = prop_oneof![2 => Just(0_u64), 1 => 100_u64..600];
    (1_u32..5, any_part(), 0_u64..2, level_of, 0_u32..3, watts).prop_map(
        |(size, need, cpus, required, rule, watts)| {
            let mut gang = part(size, need);
            gang.needs.cpu_milli = cpus * 1_000;
            gang.topology.required = required.map(level);
            if watts > 0 {
                gang.needs.named.insert(power(), watts);
            }
            match rule {
                1 => gang.topology.spread = vec![Spread { level: level("leaf"), max: 2 }],
                2 if size % 2 == 0 => gang.members_per_node = Some(2),
                _ => {}
            }
            gang
        },
    )
}

/// The most members of a gang that the best domain of a level holds, rules of the gang included.
fn most_by_trying(naive: &Naive, nodes: &[Node], gang: &Gang, level: LevelAt) -> u32 {
    let all: Vec<usize> = (0..nodes.len()).collect();
    let leaf_of = |node: usize| nodes[node].path.clone();
    let of_node = |node: usize| {
        let most = naive.most(nodes, gang, &[node], 0, gang.size);
        gang.members_per_node.map_or(most, |each| if most >= each { each } else { 0 })
    };
    let portion = gang.members_per_node.unwrap_or(1);
    let spread = gang.topology.spread.first().map_or(u32::MAX, |rule| rule.max);
    let of_leaf = |leaf: &[DomainName]| {
        let inside: Vec<usize> = all.iter().copied().filter(|node| leaf_of(*node) == leaf).collect();
        let watts = gang.needs.named.get(&power()).copied().unwrap_or(0);
        let left = naive.watts[inside[0]].checked_div(watts).map_or(u32::MAX, |most| most as u32);
        let sum: u32 = inside.iter().map(|node| of_node(*node)).sum();
        (sum.min(spread).min(left) / portion * portion).min(gang.size)
    };
    let mut leaves: Vec<Vec<DomainName>> = all.iter().map(|node| leaf_of(*node)).collect();
    leaves.sort();
    leaves.dedup();
    match level {
        LevelAt::Above(0) => leaves.iter().map(|leaf| of_leaf(leaf)).sum::<u32>().min(gang.size),
        LevelAt::Above(_) => leaves.iter().map(|leaf| of_leaf(leaf)).max().unwrap_or(0),
        _ => all.iter().map(|node| of_node(*node).min(of_leaf(&leaf_of(*node)))).max().unwrap_or(0),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// A place is found exactly when there is one; it holds by the rules; what fits in the best domain of a level is what
    /// trying everything says; and when all have ended the books are empty.
    #[test]
    fn places_are_found_exactly_when_there_are_some(
        nodes in any_nodes(),
        steps in prop::collection::vec((any_gang(), 0_u32..4, any::<prop::sample::Index>()), 1..12),
    ) {
        let mut cluster = Cluster::new(&nodes);
        // The tree sorts nodes by path.
        let nodes: Vec<Node> = cluster.tree.nodes.iter().map(|of| nodes.iter().find(|n| n.name == of.name).unwrap().clone()).collect();
        let mut naive = Naive::new(&nodes);
        let mut running: Vec<(Gang, Vec<Pick>)> = Vec::new();
        for (gang, choice, index) in steps {
            let gang = if choice == 3 { crate::placement::parts::tests::gang(1, Needs { devices: 1, ..Needs::default() }) } else { gang };
            if choice == 0 && !running.is_empty() {
                let (gang, picks) = running.swap_remove(index.index(running.len()));
                cluster.end(&gang, &picks);
                naive = Naive::new(&nodes);
                running.iter().for_each(|(gang, picks)| apply(&mut naive, &nodes, gang, picks));
            }
            if gang.needs.part.is_some() {
                let required = cluster.tree.level_of_required(&gang);
                for level in [LevelAt::Above(0), LevelAt::Above(1), LevelAt::Node] {
                    let fit = best_fit(&cluster.tree, &cluster.space, &gang, level);
                    prop_assert_eq!(fit.fits, most_by_trying(&naive, &nodes, &gang, level), "{:?} {:?}", level, gang.needs);
                }
                let fits = most_by_trying(&naive, &nodes, &gang, required) >= gang.size;
                prop_assert_eq!(cluster.place(&gang).is_some(), fits, "{:?}", gang);
            }
            if let Some(picks) = cluster.start(&gang) {
                prop_assert_eq!(picks.iter().map(|pick| pick.members).sum::<u32>(), gang.size);
                apply(&mut naive, &nodes, &gang, &picks);
                let placed = placement(&cluster.tree, &picks, &[], &gang).unwrap();
                prop_assert_eq!(cluster.tree.picks_of(&placed, &gang), picks.clone());
                running.push((gang, picks));
            }
        }
        for (gang, picks) in running {
            cluster.end(&gang, &picks);
        }
        let fresh = Space::free_of(&cluster.tree);
        for node in 0..nodes.len() {
            prop_assert_eq!(cluster.space.free(node), fresh.free(node));
            prop_assert!(cluster.space.parts().devices(node).is_empty());
        }
    }
}

/// Puts members where the picks say.
fn apply(naive: &mut Naive, nodes: &[Node], gang: &Gang, picks: &[Pick]) {
    for pick in picks {
        let node = pick.node as usize;
        if pick.piece == Piece::Whole {
            for device in pick.devices.iter() {
                let there = &mut naive.uses[node][device as usize];
                assert_eq!(*there, Use::Free);
                *there = Use::Whole;
            }
            continue;
        }
        let (index, start) = match pick.piece {
            Piece::Slice { profile, start } => (profile, start),
            _ => (0, 0),
        };
        assert!(naive.put(nodes, gang, (node, pick.devices.0.trailing_zeros(), index, start)), "{pick:?}");
    }
}

/// Picks of one gang on the one node of the next test.
fn claim((kind, mask): (u8, u64)) -> (Vec<Pick>, Gang) {
    let whole = |is_exclusive| Needs { devices: 1, is_exclusive, cpu_milli: 1_000, ..Needs::default() };
    let first = DeviceMask::one((mask % 3) as u32);
    let (gang, devices, piece) = match kind {
        0 => (part(1, share(500, 10, "me")), first, Piece::Share),
        1 => (part(1, share(300, 10, "them")), first, Piece::Share),
        2 => (gang(1, whole(true)), DeviceMask(mask & 7), Piece::Whole),
        _ => (gang(1, whole(false)), DeviceMask(mask & 7), Piece::Whole),
    };
    (vec![Pick { piece, devices, ..Pick::new(0, 1, DeviceMask::EMPTY) }], gang)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Whatever several gangs hold at once, a device is free if nobody holds it, and all is free when all ended, in
    /// whatever order that is.
    #[test]
    fn disputed_devices_come_free_with_their_last_holder(
        claims in prop::collection::vec((0_u8..5, 0_u64..64), 1..5),
        order in Just([0_usize, 1, 2, 3]).prop_shuffle(),
        foreign in 0_u64..8,
    ) {
        let mut node = node("n", "l", &[2, 2, 2], 64, 0);
        node.foreign = DeviceMask(foreign & foreign >> 1);
        let mut cluster = Cluster::new(std::slice::from_ref(&node));
        let fresh = cluster.space.clone();
        let mut holding: Vec<_> = claims.into_iter().map(claim).collect();
        for (picks, gang) in &holding {
            cluster.space.take(&cluster.tree, picks, gang);
        }
        let mut gangs: Vec<Option<(Vec<Pick>, Gang)>> = holding.drain(..).map(Some).collect();
        for at in order {
            let Some((picks, gang)) = gangs.get_mut(at).and_then(Option::take) else { continue };
            cluster.space.give_back(&cluster.tree, &picks, &gang);
            let left = gangs.iter().flatten().flat_map(|(picks, _)| picks);
            let used = left.fold(node.foreign, |used, pick| used.union(pick.devices));
            prop_assert_eq!(cluster.space.free(0).devices, DeviceMask::first(3).minus(used));
        }
        prop_assert_eq!(cluster.space.free(0), fresh.free(0));
        prop_assert!(cluster.space.parts().on(0).is_empty());
    }
}
