//! How long shapes take to place: `cargo run --release -p phalanx-engine --example shapes`.

#![allow(clippy::disallowed_types, clippy::unwrap_used, reason = "this measures; the engine has no clock")]

use std::hint::black_box;
use std::time::Instant;

use phalanx_engine::torus::{
    BoxAsk, Chips, CubeSlice, Cubes, Hosts, RackAsk, RackChoice, Racks, Scratch, TPU_V7X,
};
use phalanx_model::{DomainName, Torus};

fn main() {
    boxes_of_a_pod();
    cubes_and_racks();
}

/// A pod of 8,960 chips in hosts of 2x2x1.
fn pod() -> Torus {
    let name = DomainName::new("pod").unwrap();
    Torus { host_chips: [2, 2, 1], ..Torus::new(name, [16, 20, 28], true) }
}

fn ask(sides: [u16; 3]) -> BoxAsk {
    BoxAsk { sides, rotate: true, hosts: Hosts::Any }
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
    println!("{what:48} p50 {:>10.1?}  max {:>10.1?}", all[all.len() / 2], all[all.len() - 1]);
}

/// A generator that needs no crate (Marsaglia's xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Fills a pod with boxes until so many percent are used.
fn fill(percent: u64, scratch: &mut Scratch) -> Chips {
    let (mut chips, mut state, mut misses) = (Chips::new(&pod()).unwrap(), 42, 0);
    let total = chips.free_count();
    let mut held = Vec::new();
    while chips.free_count() > total * (100 - percent) / 100 && misses < 20_000 {
        let side = |state: &mut u64| 1 << (next(state) % 4);
        let ask = ask([side(&mut state), side(&mut state), side(&mut state)]);
        match chips.place(&ask, scratch) {
            Ok(placed) => {
                chips.take(&placed.chips).unwrap();
                held.push(placed.chips);
            }
            Err(_) => misses += 1,
        }
        if held.len() > 20 && next(&mut state).is_multiple_of(3) {
            let gone = held.swap_remove(usize::try_from(next(&mut state)).unwrap() % held.len());
            chips.release(&gone).unwrap();
        }
    }
    chips
}

fn boxes_of_a_pod() {
    let mut scratch = Scratch::default();
    for percent in [0, 50, 90] {
        let mut chips = fill(percent, &mut scratch);
        println!(
            "{percent} % used: {} free of 8960, largest {:?}",
            chips.free_count(),
            chips.largest(&mut scratch)
        );
        for sides in [[1, 1, 1], [2, 2, 4], [4, 4, 4], [4, 8, 16], [8, 8, 16], [2, 7, 13], [16, 20, 28]] {
            let found = chips.place(&ask(sides), &mut scratch).map(|placed| placed.chips);
            let what = found.map_or_else(|why| format!("none: {why}"), |found| found.to_string());
            time(&what, || _ = black_box(chips.place(black_box(&ask(sides)), &mut scratch)));
        }
        time("largest box", || _ = black_box(chips.largest(&mut scratch)));
        chips.set_link([0, 0, 0], 0, false).unwrap();
        time("2x7x13 with a dead link", || _ = black_box(chips.place(&ask([2, 7, 13]), &mut scratch)));
    }
}

fn cubes_and_racks() {
    let (mut pod, mut slice, mut state) =
        (Cubes::new(144, [2, 2, 1], TPU_V7X).unwrap(), CubeSlice::default(), 7);
    for _ in 0..400 {
        let side = |state: &mut u64| [1, 2, 4][usize::try_from(next(state) % 3).unwrap()];
        if pod.place([side(&mut state), side(&mut state), 4], &mut slice).is_ok() {
            pod.take(&slice).unwrap();
        }
    }
    for sides in [[2, 2, 1], [2, 2, 4], [2, 4, 4], [4, 4, 8], [8, 8, 8]] {
        let found = pod.place(sides, &mut slice).map(|()| slice.cubes.len());
        time(&format!("{sides:?} of 144 cubes: {found:?}"), || {
            assert!(black_box(pod.place(sides, &mut slice)).is_ok())
        });
    }
    let free: Vec<u32> = (0..1_400)
        .map(|_| {
            if next(&mut state).is_multiple_of(3) {
                18
            } else {
                u32::try_from(next(&mut state) % 19).unwrap()
            }
        })
        .collect();
    let (mut racks, mut out) = (Racks::new(&[4]).unwrap(), RackChoice::default());
    for (nodes, segment) in [
        (1, 1),
        (18, 18),
        (64, 16),
        (64, 1),
        (600, 16),
        (601, 16),
        (600, 1),
        (4_000, 8),
        (9_000, 1),
        (20_000, 16),
    ] {
        let ask = RackAsk { nodes, segment, within: None };
        let found = racks.place(&free, &ask, &mut out).map(|()| (out.racks.len(), out.left, out.is_best));
        let what = format!(
            "{nodes} nodes by {segment} of 1,400 racks: {}",
            found.map_or_else(|_| "none".to_owned(), |f| format!("{f:?}"))
        );
        time(&what, || _ = black_box(racks.place(&free, &ask, &mut out)));
    }
}
