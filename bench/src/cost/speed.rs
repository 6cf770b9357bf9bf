//! How long one estimate takes.

use std::time::Instant;

use phalanx_cost::{Collective, Compiled, Constants, Rank, Scratch};
use phalanx_model::{
    CostTable, Device, DeviceMask, DomainName, LevelCost, LevelName, Levels, Link, LinkKind, Machine, Nic,
    Node, NodeName, Origin, Port,
};
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct Speed {
    gpus: usize,
    compile_ms: f64,
    /// One all-reduce among so many ranks, median of many.
    us_per_estimate: Vec<(usize, f64)>,
}

const PER_LEAF: usize = 32;

pub(crate) fn report() -> Result<Vec<Speed>, String> {
    [1_600, 12_800, 102_400].into_iter().map(measure).collect()
}

fn measure(gpus: usize) -> Result<Speed, String> {
    let (nodes, levels, table) = cluster(gpus / 8).map_err(|error| error.to_string())?;
    let begin = Instant::now();
    let compiled = Compiled::new(&nodes, &levels, &table, &Constants::DEFAULT);
    let compile_ms = begin.elapsed().as_secs_f64() * 1e3;
    let ranks: Vec<Rank> = (0..)
        .take(nodes.len())
        .flat_map(|node| (0..8).map(move |device| Rank { node, devices: DeviceMask::one(device) }))
        .collect();
    let mut scratch = Scratch::default();
    let us_per_estimate = [8, 1_024, gpus].map(|count| {
        let ranks = ranks.get(..count).unwrap_or(&ranks);
        let mut times: Vec<f64> = (0..201)
            .map(|_| {
                let begin = Instant::now();
                let estimate = compiled.time(&mut scratch, ranks, Collective::AllReduce, 1 << 30, None);
                assert!(estimate.time.ns > 0.0);
                begin.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        (ranks.len(), times[times.len() / 2])
    });
    Ok(Speed { gpus, compile_ms, us_per_estimate: us_per_estimate.to_vec() })
}

/// Leaves of 32 nodes with 8 H100 and 8 rails each, under one spine.
fn cluster(count: usize) -> Result<(Vec<Node>, Levels, CostTable), phalanx_model::NameError> {
    let mut machine = Machine::bare(Origin::Declared);
    machine.devices = vec![Device { model: "NVIDIA H100 80GB HBM3".to_owned(), ..Device::default() }; 8];
    machine.nics = (0..8)
        .map(|rail| Nic { name: format!("mlx5_{rail}"), bytes_per_s: Some(50_000_000_000), ..Nic::default() })
        .collect();
    for a in 0..8 {
        machine
            .links
            .extend((a + 1..8).map(|b| Link::new(Port::Device(a), Port::Device(b), LinkKind::Nvlink(18))));
        let near = |nic| if nic == a { LinkKind::PcieBridges } else { LinkKind::Numa };
        machine.links.extend((0..8).map(|nic| Link::new(Port::Device(a), Port::Nic(nic), near(nic))));
    }
    machine.links.sort_by_key(|link| (link.a, link.b));
    let machine = std::sync::Arc::new(machine);
    let leaf = LevelName::new("leaf")?;
    let levels = Levels::new(vec![LevelName::new("cluster")?, leaf.clone()], LevelName::new("node")?);
    let uplink = LevelCost { uplink_mb_per_s: 12_800_000, latency_ns: 600, ..LevelCost::default() };
    let table = CostTable { levels: [(leaf, uplink)].into(), ..CostTable::default() };
    let node = |index: usize| {
        let path = vec![DomainName::new("c")?, DomainName::new(format!("leaf{:05}", index / PER_LEAF))?];
        Ok(Node {
            address: String::new(),
            ..Node::new(NodeName::new(format!("n{index:05}"))?, path, machine.clone())
        })
    };
    Ok(((0..count).map(node).collect::<Result<_, _>>()?, levels, table))
}

pub(crate) fn print(speeds: &[Speed]) {
    println!("\n(f) One estimate of an all-reduce, median");
    for Speed { gpus, compile_ms, us_per_estimate } in speeds {
        print!("{gpus:>7} GPUs: compiled in {compile_ms:.1} ms");
        for (ranks, us) in us_per_estimate {
            print!("; {ranks} ranks {us:.1} us");
        }
        println!();
    }
}
