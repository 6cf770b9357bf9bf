//! A fixed stream of decisions on a cluster in use, for counting what they cost: `decisions NODES DECISIONS`.
//! `cargo run -p xtask -- work` counts its instructions, which no other work on the machine changes.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a program of its own: it reads its arguments, and a wrong one ends it"
)]

use phalanx_engine::{Placer, Share};
use phalanx_model::{Gang, LevelName, PartNeed, Segment};
use phalanx_testkit::{costs, gang, levels, node};

/// Percent of the GPUs that are used.
const USED: u32 = 90;
const GPUS_PER_NODE: u32 = 8;
/// Sizes in GPUs; each is equally likely.
const SIZES: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>().expect("a number"));
    let (nodes, decisions) = (arguments.next().expect("nodes"), arguments.next().expect("decisions"));
    let mut stream =
        Stream { placer: placer(nodes), random: 42, gpus: nodes * GPUS_PER_NODE, running: Vec::new() };
    let placed = (0..decisions).filter(|_| stream.decide()).count();
    println!("{placed} of {decisions} placed");
}

struct Stream {
    placer: Placer,
    random: u64,
    gpus: u32,
    running: Vec<(Gang, Vec<Share>)>,
}

impl Stream {
    /// Numerical Recipes' linear congruential generator: only that it is always the same matters.
    fn below(&mut self, end: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).unwrap() % end
    }

    /// One gang is placed or refused; then others end until the cluster is as full as it should be.
    fn decide(&mut self) -> bool {
        let asked = self.gang();
        let is_placed = self.placer.place(&asked).is_some();
        if is_placed {
            self.placer.take(&asked);
            self.running.push((asked, self.placer.shares().collect()));
        }
        while (self.gpus - self.placer.free_devices()) * 100 > self.gpus * USED && !self.running.is_empty() {
            let at = self.below(self.running.len());
            let (ended, shares) = self.running.swap_remove(at);
            self.placer.give_back(&ended, &shares);
        }
        is_placed
    }

    fn gang(&mut self) -> Gang {
        let level = |name| LevelName::new(name).unwrap();
        let size = SIZES[self.below(SIZES.len())];
        let mut asked = gang(size).devices(1).cpu_milli(4_000).build();
        match self.below(10) {
            0 => {
                asked = gang(1).build();
                let trust = "all".to_owned();
                asked.needs.part = Some(PartNeed::Share { compute_milli: 250, memory_bytes: 0, trust });
            }
            1 | 2 if size <= 128 => asked.topology.required = Some(level("leaf")),
            3 => asked.topology.required = Some(level("block")),
            4 | 5 if size >= 32 => {
                asked.topology.segments = vec![
                    Segment { size: 32, level: level("leaf") },
                    Segment { size: 8, level: level("node") },
                ];
            }
            _ => {}
        }
        asked
    }
}

/// Leaves of 20 nodes, blocks of 5 leaves.
fn placer(nodes: u32) -> Placer {
    let all: Vec<_> = (0..nodes)
        .map(|i| {
            let (leaf, block) = (format!("leaf-{}", i / 20), format!("block-{}", i / 100));
            let built =
                node(&format!("node-{i}")).path(["all", &block, &leaf]).gpus(GPUS_PER_NODE).nvswitch();
            built.cpus(64).build()
        })
        .collect();
    let costs = costs(&all);
    Placer::new(&levels(&["cluster", "block", "leaf"]), all, &costs)
}
