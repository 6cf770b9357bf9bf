//! How long slices of a pod take to place: `cargo run --release -p phalanx-engine --example shapes`.

#![allow(clippy::disallowed_types, clippy::unwrap_used, reason = "this measures; the engine has no clock")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use phalanx_engine::{Placer, Share};
use phalanx_model::{
    CostTable, Device, DomainName, Gang, LevelName, Levels, Machine, Needs, Node, NodeName, Origin, Program,
    Topology, Torus, TorusPlace,
};

fn main() {
    for cube in [0, 4] {
        for percent in [0, 50, 90] {
            pod_of(cube, percent);
        }
    }
}

/// A pod of 8,960 chips in hosts of 2x2x1, of cubes behind switches or none.
fn pod_of(cube: u16, percent: u32) {
    let torus = Torus {
        cube,
        host_chips: [2, 2, 1],
        link_mb_per_s: 100_000,
        ..Torus::new(DomainName::new("pod").unwrap(), [16, 20, 28], true)
    };
    let levels = Levels {
        tori: vec![torus],
        ..Levels::new(vec![LevelName::new("cluster").unwrap()], LevelName::new("node").unwrap())
    };
    let mut placer = Placer::new(&levels, hosts(), &CostTable::default());
    fill(&mut placer, percent);
    let kind = if cube > 0 { "cubes" } else { "box" };
    println!("{kind}, {percent} % used: {} free of 8960", placer.free_devices());
    for (sides, each) in [
        ([1, 1, 1], 1),
        ([2, 2, 1], 4),
        ([2, 2, 4], 4),
        ([4, 4, 4], 4),
        ([4, 4, 4], 1),
        ([8, 8, 16], 4),
        ([16, 16, 24], 4),
        ([16, 20, 28], 4),
    ] {
        let gang = slice(sides, each);
        let found = if placer.place(&gang).is_some() { "found" } else { "none" };
        let what = format!("{sides:?} in members of {each}: {found}");
        time(&what, || _ = black_box(placer.place(black_box(&gang))));
        time(&format!("{what}: the best place counted"), || _ = black_box(placer.most_that_fits(&gang, 0)));
    }
}

fn hosts() -> impl Iterator<Item = Node> {
    let device = Device { model: "TPU v5p".to_owned(), ..Device::default() };
    let machine = Arc::new(Machine { devices: vec![device; 4], ..Machine::bare(Origin::Declared) });
    let corners = (0..8).flat_map(|x| (0..10).flat_map(move |y| (0..28).map(move |z| [2 * x, 2 * y, z])));
    corners.map(move |at| Node {
        address: String::new(),
        torus: Some(TorusPlace { torus: 0, at }),
        ..Node::new(
            NodeName::new(format!("host-{}-{}-{}", at[0], at[1], at[2])).unwrap(),
            vec![DomainName::new("cluster").unwrap()],
            Arc::clone(&machine),
        )
    })
}

fn slice(sides: [u16; 3], each: u32) -> Gang {
    let size = sides.into_iter().map(u32::from).product::<u32>() / each;
    Gang {
        size,
        min: size,
        max: size,
        needs: Needs { devices: each, ..Needs::default() },
        roles: Vec::new(),
        members_per_node: None,
        topology: Topology { slice: Some(sides), ..Topology::default() },
        traffic: None,
        grid: Vec::new(),
        program: Program::default(),
    }
}

fn time(what: &str, mut run: impl FnMut()) {
    const ROUNDS: u32 = 200;
    run();
    let mut all: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    all.sort_unstable();
    println!("{what:68} p50 {:>10.1?}  max {:>10.1?}", all[all.len() / 2], all[all.len() - 1]);
}

/// A generator that needs no crate (Marsaglia's xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Slices come and go until so many percent of the pod are used.
fn fill(placer: &mut Placer, percent: u32) {
    let (mut state, mut misses, all) = (42, 0, placer.free_devices());
    let mut held: Vec<(Gang, Vec<Share>)> = Vec::new();
    while placer.free_devices() > all * (100 - percent) / 100 && misses < 20_000 {
        let side = |state: &mut u64| 2 << (next(state) % 2);
        let gang = slice([side(&mut state), side(&mut state), side(&mut state)], 4);
        if placer.place(&gang).is_some() {
            held.push((gang.clone(), placer.shares().collect()));
            placer.take(&gang);
        } else {
            misses += 1;
        }
        if held.len() > 20 && next(&mut state).is_multiple_of(3) {
            let (gang, shares) = held.swap_remove(usize::try_from(next(&mut state)).unwrap() % held.len());
            placer.give_back(&gang, &shares);
        }
    }
}
