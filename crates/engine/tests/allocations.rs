//! Placing and taking allocate nothing once the memory of the search has grown to its size.
#![expect(unsafe_code, reason = "an allocator is unsafe by its nature; this one only counts")]
#![allow(clippy::unwrap_used)]

#[path = "policy/news.rs"]
mod news;

use phalanx_engine::{Placer, Share};
use phalanx_model::{Gang, LevelName, Segment};
use phalanx_testkit::{costs, gang, levels, node};

fn level(name: &str) -> LevelName {
    LevelName::new(name).unwrap()
}

/// 16 leaves of 10 nodes: too many nodes for the exact recursion.
fn placer() -> Placer {
    let nodes: Vec<_> = (0..160)
        .map(|i| {
            let leaf = format!("l{}", i / 10);
            let block = format!("b{}", i / 40);
            let node = node(&format!("n{i}")).path(["c", &block, &leaf]).gpus(8);
            node.model("NVIDIA H100 80GB HBM3").device_memory(80 << 30).build()
        })
        .collect();
    let costs = costs(&nodes);
    Placer::new(&levels(&["cluster", "block", "leaf"]), nodes, &costs)
}

fn gangs() -> Vec<Gang> {
    let mut gangs: Vec<Gang> =
        [1, 2, 3, 8, 13, 16, 40, 64, 100, 128].map(|size| gang(size).devices(1).build()).into();
    gangs.push(gang(40).devices(1).required("leaf").build());
    gangs.push(gang(5_000).devices(1).build());
    let mut parts = gang(96).devices(1).build();
    parts.topology.segments =
        vec![Segment { size: 32, level: level("leaf") }, Segment { size: 8, level: level("node") }];
    gangs.push(parts);
    gangs.extend(services());
    gangs
}

/// Gangs with parts of devices.
fn services() -> [Gang; 6] {
    let share = |size: u32, compute_milli| gang(size).share(compute_milli, 20 << 30, "services").build();
    let slice = |size: u32, compute_milli| gang(size).slice(compute_milli, 8 << 30).build();
    [
        share(1, 250),
        share(5, 500),
        share(40, 250),
        slice(1, 100),
        slice(8, 250),
        gang(3).profile("3g.40gb").build(),
    ]
}

fn round(placer: &mut Placer, gangs: &[Gang], held: &mut Vec<Share>) -> usize {
    let mut allocations = 0;
    for gang in gangs {
        let mut found = false;
        allocations += news::allocations(|| {
            found = placer.place(gang).is_some();
            if found {
                placer.take(gang);
            }
        });
        if found {
            held.clear();
            held.extend(placer.shares());
            placer.give_back(gang, held);
        }
    }
    allocations
}

#[test]
fn a_decision_allocates_nothing() {
    let (mut placer, gangs, mut held) = (placer(), gangs(), Vec::new());
    // Some devices are shared and partitioned all the while.
    for service in services() {
        assert!(placer.place(&service).is_some());
        placer.take(&service);
    }
    round(&mut placer, &gangs, &mut held);
    assert_eq!(round(&mut placer, &gangs, &mut held), 0);
}
