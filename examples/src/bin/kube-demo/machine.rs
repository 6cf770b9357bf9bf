//! The machines of the demo, and what the cost model says of placements on them.

use std::collections::BTreeMap;

use phalanx_cost::{Bottleneck, Constants, Input, compile, predict};
use phalanx_discover::{shape, topo_m};
use phalanx_kube::crd::NodeTopologySpec;
use phalanx_model::{
    CostTable, DeviceMask, DomainName, LevelName, Levels, Machine, Node, NodeName, Pattern, Placement, Slot,
    Traffic,
};

use crate::cluster::NODES;

/// The hybrid cube mesh of a V100 machine, without network cards: two NVLink islands of four.
const TOPO: &str = include_str!("v100.txt");

/// As the label `nvidia.com/gpu.product` has it.
pub(crate) const PRODUCT: &str = "Tesla-V100-SXM2-32GB";

/// A model that is trained.
pub(crate) struct Model {
    pub(crate) name: &'static str,
    /// Gradients in FP32.
    bytes: u64,
    /// Of one step of one V100, from benchmarks of its time; `docs/cost-model.md` names them.
    compute_ns: u64,
    /// Images of one GPU and step.
    pub(crate) batch: u32,
}

/// 138 and 25.6 million parameters.
pub(crate) const MODELS: [Model; 2] = [
    Model { name: "VGG16", bytes: 552_000_000, compute_ns: 280_000_000, batch: 64 },
    Model { name: "ResNet-50", bytes: 102_400_000, compute_ns: 180_000_000, batch: 64 },
];

/// A worker, its node, and the devices that were chosen for it.
pub(crate) type Seat = (String, String, Option<String>);

/// Both nodes, as the cost model has them.
pub(crate) struct Site {
    machine: Machine,
    nodes: Vec<Node>,
    levels: Levels,
    table: CostTable,
}

/// What a step takes.
pub(crate) struct Step {
    pub(crate) step_ns: u64,
    pub(crate) communication_ns: u64,
    /// The slowest part of the way.
    pub(crate) bottleneck: String,
}

impl Site {
    pub(crate) fn read() -> Result<Self, String> {
        let machine = topo_m::parse(TOPO).map_err(|e| e.to_string())?.with_model(PRODUCT, 32 << 30).machine;
        let cluster = level("cluster")?;
        let levels = Levels::new(vec![cluster], level("node")?);
        let path = vec![DomainName::new("cluster").map_err(|e| e.to_string())?];
        let node = |name: &&str| Ok(Node::new(node_name(name)?, path.clone(), machine.clone().into()));
        let nodes = NODES.iter().map(node).collect::<Result<Vec<Node>, String>>()?;
        let table = compile(&nodes, &BTreeMap::new());
        Ok(Self { machine, nodes, levels, table })
    }

    /// For the object that a node's agent would write.
    pub(crate) fn topology(&self) -> NodeTopologySpec {
        NodeTopologySpec::of_machine(&self.machine)
    }

    /// Workers on the devices that Phalanx wrote onto their pods.
    pub(crate) fn placement(&self, seats: &[Seat]) -> Result<Placement, String> {
        let devices = |(worker, _, devices): &Seat| {
            let text = devices.as_deref().unwrap_or_default();
            text.parse().map_err(|e| format!("the devices {text:?} of {worker}: {e}"))
        };
        place(seats, seats.iter().map(devices).collect::<Result<_, String>>()?)
    }

    /// Workers on the first free devices of their nodes.
    pub(crate) fn regular(&self, seats: &[Seat]) -> Result<Placement, String> {
        let mut next: BTreeMap<&str, u32> = BTreeMap::new();
        let devices = seats.iter().map(|(_, node, _)| {
            let next = next.entry(node).or_default();
            *next += 1;
            DeviceMask::one(*next - 1)
        });
        let devices = devices.collect();
        place(seats, devices)
    }

    /// Whether all devices lie in one group of those that NVLink joins.
    pub(crate) fn is_island(&self, placement: &Placement) -> bool {
        let all = placement.slots.iter().fold(DeviceMask::default(), |all, slot| all.union(slot.devices));
        let mut islands = shape::groups(&self.machine, shape::NVLINK);
        islands.any(|island| all.minus(island).is_empty())
    }

    pub(crate) fn predict(&self, placement: &Placement, model: &Model) -> Result<Step, String> {
        let traffic =
            Traffic { pattern: Pattern::AllReduce, bytes: model.bytes, compute_ns: model.compute_ns };
        let (table, levels, nodes) = (&self.table, &self.levels, &*self.nodes);
        let input = Input { table, levels, nodes, placement, traffic, constants: &Constants::DEFAULT };
        let told = predict(&input).map_err(|e| e.to_string())?;
        let bottleneck = match told.bottleneck {
            Bottleneck::NvLink { .. } => "NVLink",
            Bottleneck::Pcie { .. } => "PCIe",
            Bottleneck::Socket { .. } => "sockets of the node",
            _ => "the network",
        };
        let (step_ns, communication_ns) = (told.step_ns, told.communication_ns);
        Ok(Step { step_ns, communication_ns, bottleneck: bottleneck.to_owned() })
    }
}

fn place(seats: &[Seat], devices: Vec<DeviceMask>) -> Result<Placement, String> {
    let slot = |(rank, ((_, node, _), devices)): (u32, (&Seat, DeviceMask))| {
        Ok(Slot { rank, node: node_name(node)?, devices, part: None })
    };
    let slots = (0..).zip(seats.iter().zip(devices)).map(slot).collect::<Result<_, String>>()?;
    Ok(Placement { slots, level: level("cluster")? })
}

fn level(name: &str) -> Result<LevelName, String> {
    LevelName::new(name).map_err(|e| e.to_string())
}

fn node_name(name: &str) -> Result<NodeName, String> {
    NodeName::new(name).map_err(|e| e.to_string())
}
