//! Slices of tori through the engine and its ledger, against brute force.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use phalanx_engine::{Found, Placer, Share};
use phalanx_model::{
    Admin, Change, CostTable, DeviceMask, DomainName, Gang, GangId, Input, JobId, LevelName, Levels, Node,
    NodeName, Outcome, Pattern, Placement, Reason, Rejection, Torus, TorusPlace, Traffic,
};
use phalanx_testkit::proptest::prelude::*;
use phalanx_testkit::proptest::{collection::vec, sample::select};
use phalanx_testkit::{Watched, gang, job, levels, node};

type Chip = [u16; 3];

fn torus(name: &str, chips: Chip, wraps: [bool; 3], host_chips: Chip) -> Torus {
    Torus {
        wraps,
        host_chips,
        link_mb_per_s: 100_000,
        ..Torus::new(DomainName::new(name).unwrap(), chips, false)
    }
}

fn every(sides: Chip) -> impl Iterator<Item = Chip> {
    let [x, y, z] = sides;
    (0..x).flat_map(move |x| (0..y).flat_map(move |y| (0..z).map(move |z| [x, y, z])))
}

fn volume(sides: Chip) -> u32 {
    sides.into_iter().map(u32::from).product()
}

/// The hosts of a torus, named by their coordinates.
fn hosts(index: u32, torus: &Torus) -> Vec<Node> {
    let host = torus.host_chips;
    let corner = |at: &Chip| (0..3).all(|i| at[i].is_multiple_of(host[i]));
    let build = |at: Chip| {
        let [x, y, z] = at;
        let mut node = node(&format!("{}-{x}-{y}-{z}", torus.name)).gpus(volume(host)).build();
        node.torus = Some(TorusPlace { torus: index, at });
        node
    };
    every(torus.chips).filter(corner).map(build).collect()
}

fn with(tori: &[Torus]) -> (Levels, Vec<Node>) {
    let levels = Levels { tori: tori.to_vec(), ..levels(&["cluster"]) };
    (levels, (0..).zip(tori).flat_map(|(index, torus)| hosts(index, torus)).collect())
}

fn slice(sides: Chip, each: u32) -> Gang {
    let mut gang = gang(volume(sides) / each).devices(each).build();
    gang.topology.slice = Some(sides);
    gang
}

fn placer(levels: &Levels, nodes: &[Node]) -> Placer {
    Placer::new(levels, nodes.iter().cloned(), &CostTable::default())
}

fn place(placer: &mut Placer, gang: &Gang) -> Option<(Found, Placement)> {
    let found = placer.place(gang)?;
    Some((found, placer.placement(gang).unwrap()))
}

/// The chips of each member, by rank.
fn chips(tori: &[Torus], nodes: &[Node], placement: &Placement) -> (u32, Vec<Vec<Chip>>) {
    let of_slot = |slot: &phalanx_model::Slot| {
        let place = nodes.iter().find(|node| node.name == slot.node).unwrap().torus.unwrap();
        let host = tori[place.torus as usize].host_chips;
        // Devices are chips with x running fastest, then y.
        let order: Vec<Chip> = every([host[2], host[1], host[0]]).map(|[z, y, x]| [x, y, z]).collect();
        let chip = |device: u32| [0, 1, 2].map(|i| place.at[i] + order[device as usize][i]);
        (place.torus, slot.devices.iter().map(chip).collect::<Vec<_>>())
    };
    let all: Vec<_> = placement.slots.iter().map(of_slot).collect();
    let torus = all[0].0;
    assert!(all.iter().all(|(of, _)| *of == torus), "one torus");
    (torus, all.into_iter().map(|(_, chips)| chips).collect())
}

/// The chips of a box, wrapped around closed dimensions; `None` if the box runs over an open end.
fn inside(torus: &Torus, at: Chip, sides: Chip) -> Option<BTreeSet<Chip>> {
    every(sides)
        .map(|by| {
            let beyond = [0, 1, 2].map(|i| at[i] + by[i]);
            let is_there = (0..3).all(|i| beyond[i] < torus.chips[i] || torus.wraps[i]);
            is_there.then(|| [0, 1, 2].map(|i| beyond[i] % torus.chips[i]))
        })
        .collect()
}

fn rotations([a, b, c]: Chip) -> BTreeSet<Chip> {
    BTreeSet::from([[a, b, c], [a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]])
}

/// Every box of the sides, as sets of chips.
fn boxes(torus: &Torus, sides: Chip) -> impl Iterator<Item = BTreeSet<Chip>> + '_ {
    let fits = |sides: &Chip| (0..3).all(|i| sides[i] <= torus.chips[i]);
    let ways: Vec<Chip> = rotations(sides).into_iter().filter(fits).collect();
    ways.into_iter().flat_map(move |sides| every(torus.chips).filter_map(move |at| inside(torus, at, sides)))
}

/// Whether a box is whole members: boxes of so many chips at multiples of their own sides, which fill hosts. Naive: all
/// ways to cut hosts are tried.
fn is_cut(torus: &Torus, chips: &BTreeSet<Chip>, each: u32) -> bool {
    let host = torus.host_chips;
    let ways = every(host)
        .map(|at| at.map(|side| side + 1))
        .filter(|block| volume(*block) == each && (0..3).all(|i| host[i].is_multiple_of(block[i])));
    ways.into_iter().any(|block| {
        let mut parts: BTreeMap<Chip, u32> = BTreeMap::new();
        chips.iter().for_each(|at| *parts.entry([0, 1, 2].map(|i| at[i] / block[i])).or_default() += 1);
        parts.values().all(|count| *count == each)
    })
}

fn is_feasible(torus: &Torus, free: &BTreeSet<Chip>, sides: Chip, each: u32) -> bool {
    boxes(torus, sides).any(|chips| chips.is_subset(free) && is_cut(torus, &chips, each))
}

prop_compose! {
    fn any_torus()(
        host in select(vec![[1, 1, 1], [2, 1, 1], [2, 2, 1], [2, 4, 1]]),
        hosts in select(vec![[2, 2, 2], [2, 1, 3], [1, 2, 4], [3, 1, 2], [2, 2, 3], [1, 1, 1]]),
        wraps in any::<[bool; 3]>(),
    ) -> Torus {
        torus("pod", [host[0] * hosts[0], host[1] * hosts[1], host[2] * hosts[2]], wraps, host)
    }
}

prop_compose! {
    fn any_slice()(
        sides in select(vec![
            [1, 1, 1], [1, 2, 1], [2, 2, 1], [2, 2, 2], [1, 4, 1], [4, 2, 1], [2, 2, 4], [3, 2, 1], [4, 4, 1], [1, 3, 1],
            [4, 4, 2], [2, 3, 4], [6, 2, 2],
        ]),
        each in select(vec![1, 1, 2, 4, 8_u32]),
    ) -> Gang {
        slice(sides, if volume(sides).is_multiple_of(each) { each } else { 1 })
    }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(config(400))]

    /// Slices come and go: each is a free box if there is one, and no slice is refused that has one.
    #[test]
    fn a_slice_is_placed_exactly_when_a_box_is_free(
        torus in any_torus(),
        turns in vec((any_slice(), any::<prop::sample::Index>(), any::<bool>()), 1..14),
        closed in vec(0..8_u32, 32),
        busy in vec(0..20_u32, 96),
    ) {
        let tori = [torus.clone()];
        let (levels, mut nodes) = with(&tori);
        let mut free: BTreeSet<Chip> = every(torus.chips).collect();
        for (node, _) in nodes.iter_mut().zip(closed).filter(|(_, closed)| *closed == 0) {
            node.admin = Admin::Cordoned;
            let at = node.torus.unwrap().at;
            free.retain(|chip| (0..3).any(|i| chip[i] < at[i] || chip[i] >= at[i] + torus.host_chips[i]));
        }
        for (node, _) in nodes.iter_mut().zip(busy).filter(|(_, busy)| *busy == 0) {
            // Another user has the first chip of a host.
            node.foreign = DeviceMask::one(0);
            free.remove(&node.torus.unwrap().at);
        }
        let before = free.clone();
        let mut placer = placer(&levels, &nodes);
        let mut held: Vec<(Gang, BTreeSet<Chip>, Vec<Share>)> = Vec::new();
        for (gang, which, goes) in turns {
            if goes && !held.is_empty() {
                let (gang, chips, shares) = held.swap_remove(which.index(held.len()));
                placer.give_back(&gang, &shares);
                free.extend(chips);
            }
            let (sides, each) = (gang.topology.slice.unwrap(), gang.needs.devices);
            let found = place(&mut placer, &gang);
            prop_assert_eq!(found.is_some(), is_feasible(&torus, &free, sides, each), "{:?} in {:?}", sides, free);
            let fits = placer.most_that_fits(&gang, 0);
            prop_assert_eq!(found.is_some(), fits >= gang.size, "the counts agree: {} of {}", fits, gang.size);
            let Some((found, placement)) = found else { continue };
            prop_assert!(found.least_ns <= found.time_ns);
            let (_, members) = chips(&tori, &nodes, &placement);
            prop_assert!(members.iter().all(|member| member.len() == each as usize));
            let all: BTreeSet<Chip> = members.iter().flatten().copied().collect();
            prop_assert!(all.is_subset(&free) && boxes(&torus, sides).any(|chips| chips == all), "a free box");
            free.retain(|chip| !all.contains(chip));
            let shares: Vec<_> = placer.shares().collect();
            placer.take(&gang);
            prop_assert_eq!(placer.free_devices() as usize, open(&nodes, &torus, &free));
            held.push((gang, all, shares));
        }
        for (gang, _, shares) in held {
            placer.give_back(&gang, &shares);
        }
        prop_assert_eq!(placer.free_devices() as usize, before.len(), "all is given back");
    }

    /// Nodes in another order, and one more free node.
    #[test]
    fn the_order_of_nodes_does_not_matter_and_a_free_one_never_hurts(
        torus in any_torus(),
        gang in any_slice(),
        gone in vec(0..4_u32, 32),
        turn in 0..32_usize,
    ) {
        let tori = [torus];
        let (levels, all) = with(&tori);
        let mut nodes: Vec<Node> =
            all.iter().zip(gone).filter(|(_, gone)| *gone > 0).map(|(node, _)| node.clone()).collect();
        let missing = all.iter().find(|node| !nodes.contains(node));
        let found = place(&mut placer(&levels, &nodes), &gang);
        let more = nodes.iter().chain(missing).cloned().collect::<Vec<_>>();
        prop_assert!(found.is_none() || place(&mut placer(&levels, &more), &gang).is_some());
        let by = turn % nodes.len().max(1);
        nodes.rotate_left(by);
        nodes.reverse();
        prop_assert_eq!(place(&mut placer(&levels, &nodes), &gang), found);
    }
}

/// Free devices that the ledger counts: those of open nodes.
fn open(nodes: &[Node], torus: &Torus, free: &BTreeSet<Chip>) -> usize {
    let host = torus.host_chips;
    let node_of = |chip: &Chip| [0, 1, 2].map(|i| chip[i] / host[i] * host[i]);
    let is_open =
        |at: Chip| nodes.iter().any(|node| node.torus.unwrap().at == at && node.admin == Admin::Open);
    free.iter().filter(|chip| is_open(node_of(chip))).count()
}

fn pod(cube: u16) -> Torus {
    Torus { cube, ..torus("pod", [16, 20, 28], [true; 3], [2, 2, 1]) }
}

#[test]
fn a_whole_pod_is_taken_at_once_and_given_back() {
    for cube in [0, 4] {
        let tori = [pod(cube)];
        let (levels, nodes) = with(&tori);
        let mut placer = placer(&levels, &nodes);
        let whole = slice([16, 20, 28], 4);
        let (found, placement) = place(&mut placer, &whole).unwrap();
        let (_, members) = chips(&tori, &nodes, &placement);
        assert_eq!(members.iter().flatten().collect::<BTreeSet<_>>().len(), 8_960);
        // 64 MiB over rings of 100 GB/s in both directions: 2 (1 - 1/8960) of the bytes at 200 GB/s.
        assert!(found.time_ns.abs_diff(671_000) < 1_000, "{found:?}");
        assert_eq!((found.least_ns, found.bottleneck_mb_per_s), (found.time_ns, 200_000));
        let shares: Vec<_> = placer.shares().collect();
        placer.take(&whole);
        assert_eq!((placer.free_devices(), placer.place(&slice([1, 1, 1], 1))), (0, None));
        placer.give_back(&whole, &shares);
        assert_eq!((placer.free_devices(), placer.place(&whole).is_some()), (8_960, true));
        // With one chip in use the pod is not whole.
        assert!(placer.place(&slice([1, 1, 1], 1)).is_some());
        placer.take(&slice([1, 1, 1], 1));
        assert_eq!((placer.place(&whole), placer.most_that_fits(&whole, 0)), (None, 2_239));
    }
}

#[test]
fn any_free_cubes_are_a_slice_and_small_ones_share_a_cube() {
    let tori = [Torus { cube: 4, ..torus("pod", [4, 8, 8], [true; 3], [2, 2, 1]) }];
    let (levels, nodes) = with(&tori);
    let mut placer = placer(&levels, &nodes);
    let cubes = |placement: &Placement| -> BTreeSet<Chip> {
        chips(&tori, &nodes, placement).1.iter().flatten().map(|at| at.map(|at| at / 4)).collect()
    };
    let small = slice([2, 2, 2], 4);
    let (_, first) = place(&mut placer, &small).unwrap();
    placer.take(&small);
    let (_, second) = place(&mut placer, &small).unwrap();
    assert_eq!(cubes(&first), cubes(&second), "the cube that is begun");
    let large = slice([4, 4, 12], 4);
    let (found, placement) = place(&mut placer, &large).unwrap();
    assert_eq!(
        cubes(&placement),
        BTreeSet::from([[0, 0, 1], [0, 1, 0], [0, 1, 1]]),
        "no box, but three whole cubes"
    );
    assert_eq!(found.bottleneck_mb_per_s, 200_000, "switches close all sides");
    placer.take(&large);
    assert!(placer.place(&slice([4, 4, 4], 4)).is_none() && placer.place(&slice([2, 4, 4], 4)).is_some());
}

#[test]
fn ranks_are_neighbours_and_a_grid_lies_along_the_sides() {
    let tori = [torus("pod", [4, 4, 4], [true; 3], [2, 2, 1])];
    let (levels, nodes) = with(&tori);
    let mut placer = placer(&levels, &nodes);
    let ranks = |placer: &mut Placer, gang: &Gang| chips(&tori, &nodes, &place(placer, gang).unwrap().1).1;
    let ring: Vec<Chip> = ranks(&mut placer, &slice([4, 4, 4], 1)).concat();
    let is_link = |a: Chip, b: Chip| {
        (0..3).any(|axis| [true, false].iter().any(|way| tori[0].neighbour(a, axis, *way) == Some(b)))
    };
    assert!(ring.windows(2).all(|pair| is_link(pair[0], pair[1])) && is_link(ring[63], ring[0]));
    let mut grid = slice([4, 4, 4], 1);
    let axis = |kind, degree| phalanx_model::Axis {
        kind,
        degree,
        collective: phalanx_model::Collective::AllReduce,
        bytes: 1,
        calls: 1,
    };
    grid.grid = vec![axis(phalanx_model::AxisKind::Tensor, 4), axis(phalanx_model::AxisKind::Data, 16)];
    let rows: Vec<Chip> = ranks(&mut placer, &grid).concat();
    assert_eq!(rows, every([4, 4, 4]).collect::<Vec<_>>(), "groups of the innermost axis lie along z");
    // Hosts of 2x2x1: members of two chips are halves of a host.
    let halves = ranks(&mut placer, &slice([4, 4, 1], 2));
    assert!(halves.iter().all(|pair| is_link(pair[0], pair[1])));
}

#[test]
fn time_is_that_of_the_rings_and_the_tightest_torus_is_taken() {
    let tori = [
        torus("large", [8, 8, 8], [true; 3], [2, 2, 1]),
        torus("small", [4, 4, 8], [true; 3], [2, 2, 1]),
        torus("open", [4, 4, 4], [false; 3], [2, 2, 1]),
    ];
    let (levels, nodes) = with(&tori);
    let mut placer = placer(&levels, &nodes);
    let with_traffic = |pattern, bytes| Gang {
        traffic: Some(Traffic { pattern, bytes, compute_ns: 0 }),
        ..slice([4, 4, 4], 4)
    };
    let mut at = |gang: &Gang| {
        let (found, placement) = place(&mut placer, gang).unwrap();
        (chips(&tori, &nodes, &placement).0, found.time_ns)
    };
    // Two sides closed, in the first that is as tight: 7.5 ms along x, a quarter along y, an eighth along z.
    let reduce = with_traffic(Pattern::AllReduce, 1_000_000_000);
    assert_eq!(at(&reduce), (1, 7_500_000 + 1_875_000 + 937_500));
    assert_eq!(at(&with_traffic(Pattern::AllToAll, 1_000_000_000)), (2, 10_000_000));
    assert_eq!(
        at(&with_traffic(Pattern::AllReduce, 0)),
        (2, 0),
        "it sends nothing: the one with the least to spare"
    );
}

fn step(tori: &[Torus], nodes: &[Node], gangs: Vec<Gang>) -> (Watched, Outcome) {
    let (levels, _) = with(tori);
    let mut watched = Watched::with_nodes(&levels, nodes);
    let submit = |(id, gang): (u64, Gang)| Input::JobSubmitted { job: Box::new(job(id, gang).build()) };
    let inputs: Vec<Input> = (1..).zip(gangs).map(submit).collect();
    let out = watched.step(&inputs);
    (watched, out)
}

fn rejected(out: &Outcome) -> Vec<String> {
    let why = |change: &Change| match change {
        Change::JobRejected { why: Rejection::BadField { field, why }, .. } => {
            Some(format!("{field}: {why}"))
        }
        Change::JobRejected { why, .. } => Some(why.to_string()),
        _ => None,
    };
    out.changes.iter().filter_map(why).collect()
}

#[test]
fn the_engine_says_what_blocks_a_slice() {
    let tori = [torus("pod", [4, 4, 4], [true; 3], [2, 2, 1])];
    let (_, mut nodes) = with(&tori);
    nodes.iter_mut().filter(|node| node.name == NodeName::new("pod-2-2-3").unwrap()).for_each(|node| {
        node.foreign = DeviceMask::one(3);
    });
    let (watched, out) = step(&tori, &nodes, vec![slice([4, 4, 4], 4), slice([2, 4, 4], 4)]);
    assert!(rejected(&out).is_empty());
    let reason = watched.engine.reason(GangId { job: JobId(1), index: 0 }).unwrap();
    let shape = |best, free, largest: &str| Reason::Shape {
        asked: "4x4x4".to_owned(),
        chips: 64,
        best,
        torus: "pod".to_owned(),
        free,
        largest: Some(largest.to_owned()),
    };
    assert_eq!(reason, shape(28, 28, "2x4x2"));
    assert_eq!(reason.word(), "Topology");
    assert_eq!(
        reason.to_string(),
        "needs a free box of 4x4x4 chips; at the best position, in pod, 28 of 64 chips are free; \
         the largest free box there is 2x4x2, and 28 chips are free"
    );
}

#[test]
fn a_slice_that_can_never_be_is_refused_at_the_door() {
    let tori = [torus("pod", [4, 4, 8], [true; 3], [2, 2, 1])];
    let (_, nodes) = with(&tori);
    let with = |change: &dyn Fn(&mut Gang)| {
        let mut gang = slice([4, 4, 4], 4);
        change(&mut gang);
        gang
    };
    let gangs = vec![
        with(&|gang| gang.needs.devices = 2),
        with(&|gang| {
            gang.topology
                .segments
                .push(phalanx_model::Segment { size: 4, level: LevelName::new("cluster").unwrap() })
        }),
        slice([8, 8, 2], 4),
        slice([3, 4, 3], 4),
        with(&|gang| gang.members_per_node = Some(2)),
        with(&|gang| gang.topology.required = Some(LevelName::new("node").unwrap())),
        with(&|gang| gang.members_per_node = Some(1)),
    ];
    let (_, out) = step(&tori, &nodes, gangs);
    assert_eq!(
        rejected(&out),
        [
            "slice: 4x4x4 has 64 chips, and 16 members of 2 devices need 32",
            "segments: a slice cannot have segments: all of its chips form one box",
            "slice: 8x8x2 in members of 4 does not fit pod, which has 4x4x8 chips in hosts of 2x2x1: each member must be a box inside one host",
            "slice: 3x4x3 in members of 4 does not fit pod, which has 4x4x8 chips in hosts of 2x2x1: each member must be a box inside one host",
            "slice: its members do not fill a host",
            "slice: 4x4x4 does not fit one host: each host of pod has 2x2x1 chips",
        ]
    );
}

/// Racks of an NVL72: 18 nodes of 4 devices, two blocks of four racks.
fn racks() -> (Levels, Vec<Node>) {
    let in_rack = |(rack, at): (u32, u32)| {
        let (block, rack) = (format!("block-{}", rack / 4), format!("rack-{rack}"));
        node(&format!("{rack}-{at:02}")).path(["cluster", &block, &rack]).gpus(4).build()
    };
    let all = (0..8).flat_map(|rack| (0..18).map(move |at| (rack, at)));
    (levels(&["cluster", "block", "rack"]), all.map(in_rack).collect())
}

/// Slurm's `--segment`: parts of 16 or 18 nodes that never leave a rack, and racks of one block if it has the room.
#[test]
fn segments_of_nodes_take_racks_that_are_next_to_each_other() {
    let (levels, nodes) = racks();
    let mut placer = placer(&levels, &nodes);
    let of = |size, segment| {
        let mut gang = gang(size).devices(4).build();
        let level = LevelName::new("rack").unwrap();
        gang.topology.segments = vec![phalanx_model::Segment { size: segment, level }];
        gang
    };
    let used = |placer: &Placer, gang: &Gang| {
        let mut used: BTreeMap<(String, String), Vec<u32>> = BTreeMap::new();
        for slot in placer.placement(gang).unwrap().slots {
            let path = &nodes.iter().find(|node| node.name == slot.node).unwrap().path;
            used.entry((path[1].to_string(), path[2].to_string())).or_default().push(slot.rank);
        }
        used
    };
    let sixteens = of(64, 16);
    assert!(placer.place(&sixteens).is_some());
    let racks = used(&placer, &sixteens);
    assert_eq!(racks.values().map(Vec::len).collect::<Vec<_>>(), [16; 4], "16 of each of four racks");
    assert_eq!(racks.keys().map(|(block, _)| block).collect::<BTreeSet<_>>().len(), 1, "of one block");
    assert!(racks.values().all(|ranks| ranks.iter().all(|rank| rank / 16 == ranks[0] / 16)));
    placer.take(&sixteens);
    let whole = of(72, 18);
    assert!(placer.place(&whole).is_some());
    let racks = used(&placer, &whole);
    assert_eq!(racks.values().map(Vec::len).collect::<Vec<_>>(), [18; 4], "whole racks");
    assert_eq!(racks.keys().map(|(block, _)| block).collect::<BTreeSet<_>>().len(), 1);
    placer.take(&whole);
    // Two nodes are left in each of four racks.
    assert_eq!((placer.place(&of(4, 4)), placer.place(&of(8, 2)).is_some()), (None, true));
}
