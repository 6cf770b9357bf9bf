//! An estimate allocates nothing.
#![expect(unsafe_code, reason = "an allocator is unsafe by its nature; this one only counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use phalanx_cost::{Collective, Compiled, Constants, Rank, Scratch};
use phalanx_model::{
    CostTable, Device, DeviceMask, DomainName, LevelCost, LevelName, Levels, Link, LinkKind, Machine, Node,
    NodeName, Origin, Port,
};

struct Counting;

thread_local! {
    /// Of this thread alone: the test runner has others.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn level(name: &str) -> LevelName {
    LevelName::new(name).expect("a good name")
}

/// 128 nodes of 8 devices behind a switch, 32 to a leaf.
fn cluster() -> Compiled {
    let mut machine = Machine::bare(Origin::Declared);
    machine.devices = vec![Device { model: "H100".to_owned(), ..Device::default() }; 8];
    for a in 0..8 {
        let pair = |b| Link::new(Port::Device(a), Port::Device(b), LinkKind::Nvlink(18));
        machine.links.extend((a + 1..8).map(pair));
    }
    let machine = Arc::new(machine);
    let node = |index: usize| Node {
        address: String::new(),
        ..Node::new(
            NodeName::new(format!("n{index:03}")).expect("a good name"),
            vec![DomainName::new(format!("leaf{}", index / 32)).expect("a good name")],
            machine.clone(),
        )
    };
    let nodes: Vec<Node> = (0..128).map(node).collect();
    let levels = Levels::new(vec![level("leaf")], level("node"));
    let uplink = LevelCost { uplink_mb_per_s: 1_600_000, latency_ns: 600, ..LevelCost::default() };
    let table = CostTable { levels: [(level("leaf"), uplink)].into(), ..CostTable::default() };
    Compiled::new(&nodes, &levels, &table, &Constants::DEFAULT)
}

#[test]
fn an_estimate_for_1024_ranks_allocates_nothing() {
    let compiled = cluster();
    let ranks: Vec<Rank> = (0..128)
        .flat_map(|node| (0..8).map(move |device| Rank { node, devices: DeviceMask::one(device) }))
        .collect();
    let mut scratch = Scratch::default();
    let mut ask = |collective| compiled.time(&mut scratch, &ranks, collective, 1 << 30, None).time.ns;
    let first = ask(Collective::AllReduce);
    let before = ALLOCATIONS.get();
    let again = ask(Collective::AllReduce);
    let other = ask(Collective::AllToAll);
    assert_eq!(ALLOCATIONS.get(), before);
    assert!((first - again).abs() <= 0.0 && first > 0.0 && other > 0.0);
}
