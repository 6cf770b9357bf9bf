//! The cluster of the benchmarks of decisions: leaves of 32 nodes of 8 GPUs, blocks of so many leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_cost::compile;
use phalanx_model::{
    CostTable, Device, DomainName, LevelCost, LevelName, Levels, Link, LinkKind, Machine, Nic, Node,
    NodeName, Origin, Port, ShapeName,
};

pub(crate) const GPUS_PER_NODE: u32 = 8;
const NODES_PER_LEAF: u32 = 32;

/// `nodes` machines of 8 H100 behind an NVSwitch with a 400 Gb/s NIC each.
pub(crate) fn build(nodes: u32, leaves_per_block: u32) -> Result<(Levels, Vec<Node>, CostTable), String> {
    let machine = Arc::new(machine()?);
    let text = |e: phalanx_model::NameError| e.to_string();
    let levels = Levels::new(
        ["cluster", "block", "leaf"]
            .iter()
            .map(|l| LevelName::new(*l))
            .collect::<Result<_, _>>()
            .map_err(text)?,
        LevelName::new("node").map_err(text)?,
    );
    let mut all = Vec::with_capacity(nodes as usize);
    for index in 0..nodes {
        let leaf = index / NODES_PER_LEAF;
        let names = [
            "cluster".to_owned(),
            format!("block-{}", leaf / leaves_per_block.max(1)),
            format!("leaf-{leaf}"),
        ];
        let path = names
            .iter()
            .map(|name| DomainName::new(name.as_str()))
            .collect::<Result<_, _>>()
            .map_err(text)?;
        all.push(Node {
            address: String::new(),
            ..Node::new(NodeName::new(format!("node-{index}")).map_err(text)?, path, machine.clone())
        });
    }
    // 32 x 400 GB/s below each leaf and as much above it; 2:1 above the blocks. Latencies as one switch hop each.
    let cost = |mb: u32, ns: u32| LevelCost { uplink_mb_per_s: mb, latency_ns: ns, ..LevelCost::default() };
    let names =
        [("node", cost(0, 5_000)), ("leaf", cost(12_800_000, 1_000)), ("block", cost(51_200_000, 2_000))];
    let mut of_levels = BTreeMap::new();
    for (name, cost) in names {
        of_levels.insert(LevelName::new(name).map_err(text)?, cost);
    }
    let costs = compile(&all[..1], &of_levels);
    Ok((levels, all, costs))
}

fn machine() -> Result<Machine, String> {
    let devices: Vec<Device> = (0..GPUS_PER_NODE)
        .map(|i| Device {
            name: format!("GPU{i}"),
            model: "NVIDIA H100 80GB HBM3".to_owned(),
            numa: Some(i / 4),
            memory_bytes: 80 << 30,
            ..Device::default()
        })
        .collect();
    let nics = (0..GPUS_PER_NODE)
        .map(|i| Nic { name: format!("mlx5_{i}"), bytes_per_s: Some(50_000_000_000), ..Nic::default() })
        .collect();
    let mut links = Vec::new();
    for a in 0..GPUS_PER_NODE {
        links.extend(
            (a + 1..GPUS_PER_NODE).map(|b| Link::new(Port::Device(a), Port::Device(b), LinkKind::Nvlink(18))),
        );
        links.extend((0..GPUS_PER_NODE).map(|nic| {
            let kind = if nic == a { LinkKind::PcieSwitch } else { LinkKind::Socket };
            Link::new(Port::Device(a), Port::Nic(nic), kind)
        }));
    }
    links.sort_by_key(|link| (link.a, link.b));
    Ok(Machine {
        shape: ShapeName::new("h100-8").map_err(|e| e.to_string())?,
        origin: Origin::Declared,
        devices,
        nics,
        links,
        groups: Vec::new(),
        cpu_milli: 192_000,
        memory_bytes: 2 << 40,
        named: std::collections::BTreeMap::new(),
        share_limit_milli: 0,
        replicas: 0,
    })
}
