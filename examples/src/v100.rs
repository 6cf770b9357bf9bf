//! Machines of eight V100, and what the cost model says of placements on them.

use std::collections::BTreeMap;

use phalanx_cost::{Bottleneck, Constants, Input, compile, predict};
use phalanx_discover::{shape, topo_m};
use phalanx_kube::crd::NodeTopologySpec;
use phalanx_model::{
    CostTable, DeviceMask, DomainName, LevelName, Levels, Link, LinkKind, Machine, Node, NodeName, Pattern,
    Placement, Port, ShapeName, Slot, Traffic,
};
use serde_json::{Value, json};

/// The hybrid cube mesh of a V100 machine, without network cards: two NVLink islands of four.
const TOPO: &str = include_str!("v100.txt");

/// As the label `nvidia.com/gpu.product` has it.
pub const PRODUCT: &str = "Tesla-V100-SXM2-32GB";

/// A model that is trained.
pub struct Model {
    pub name: &'static str,
    /// Gradients in FP32.
    pub bytes: u64,
    /// Of one step of one V100, from benchmarks of its time; `docs/cost-model.md` names them.
    pub compute_ns: u64,
    /// Images of one GPU and step.
    pub batch: u32,
}

/// 138 and 25.6 million parameters.
pub const MODELS: [Model; 2] = [
    Model { name: "VGG16", bytes: 552_000_000, compute_ns: 280_000_000, batch: 64 },
    Model { name: "ResNet-50", bytes: 102_400_000, compute_ns: 180_000_000, batch: 64 },
];

/// A worker, its node, and the devices that were chosen for it.
pub type Seat = (String, String, Option<String>);

/// Nodes of one cluster, as the cost model has them.
pub struct Site {
    machine: Machine,
    nodes: Vec<Node>,
    levels: Levels,
    table: CostTable,
    constants: Constants,
}

/// What a step takes.
pub struct Step {
    pub step_ns: u64,
    pub communication_ns: u64,
    /// The slowest part of the way.
    pub bottleneck: String,
}

impl Site {
    /// Of these names.
    ///
    /// # Errors
    /// When one is no name of a node.
    pub fn of(nodes: &[&str]) -> Result<Self, String> {
        let machine = topo_m::parse(TOPO).map_err(|e| e.to_string())?.with_model(PRODUCT, 32 << 30).machine;
        let cluster = level("cluster")?;
        let levels = Levels::new(vec![cluster], level("node")?);
        let path = vec![DomainName::new("cluster").map_err(|e| e.to_string())?];
        let node = |name: &&str| Ok(Node::new(node_name(name)?, path.clone(), machine.clone().into()));
        let nodes = nodes.iter().map(node).collect::<Result<Vec<Node>, String>>()?;
        let table = compile(&nodes, &BTreeMap::new());
        Ok(Self { machine, nodes, levels, table, constants: Constants::DEFAULT })
    }

    /// The same nodes with so many MB/s between any two devices of one; the network stays that of 10 Gbit/s.
    ///
    /// The constants of the collective library are the default ones, but for what NCCL leaves of a network with a single
    /// pair of streams: a token bucket gives one stream all that it has.
    ///
    /// # Errors
    /// Never with these names.
    pub fn with_links(&self, inside_mb_per_s: u32) -> Result<Self, String> {
        let mut machine = self.machine.clone();
        machine.shape = ShapeName::new("shaped").map_err(|e| e.to_string())?;
        machine.groups.clear();
        let pairs = (0..machine.device_count()).flat_map(|b| (0..b).map(move |a| (a, b)));
        let link = |(a, b)| Link {
            nominal_mb_per_s: inside_mb_per_s,
            ..Link::new(Port::Device(a), Port::Device(b), LinkKind::PcieSwitch)
        };
        machine.links = pairs.map(link).collect();
        machine.links.sort_by_key(|link| (link.a, link.b));
        let node = |node: &Node| Node::new(node.name.clone(), node.path.clone(), machine.clone().into());
        let nodes: Vec<Node> = self.nodes.iter().map(node).collect();
        let table = compile(&nodes, &BTreeMap::new());
        let constants = Constants { socket_pair_share: 1.0, ..Constants::DEFAULT };
        Ok(Self { machine, nodes, levels: self.levels.clone(), table, constants })
    }

    /// For an agent, as a file of NVML's simulation.
    pub fn profile(&self, node: &str) -> Value {
        let links = |from: u32| -> Vec<Value> {
            let peers = (0..self.machine.device_count()).filter(|&to| to != from);
            let bonded = |to| match self.machine.device_link(from, to) {
                Some(LinkKind::Nvlink(bonded)) => usize::from(bonded),
                _ => 0,
            };
            peers.flat_map(|to| vec![json!({ "remote_index": to, "state": "active" }); bonded(to)]).collect()
        };
        let each = || 0..self.machine.device_count();
        let devices = each().map(|index| json!({ "index": index, "uuid": format!("GPU-{node}-{index}") }));
        let device_links = each().map(|index| json!({ "index": index, "links": links(index) }));
        json!({
            "system": { "nvml_version": "12.560.35" },
            "device_defaults": { "name": PRODUCT, "memory": { "total_bytes": 32_u64 << 30 } },
            "devices": devices.collect::<Vec<_>>(),
            "nvlink": { "device_links": device_links.collect::<Vec<_>>() },
        })
    }

    /// For the object that a node's agent would write.
    pub fn topology(&self) -> NodeTopologySpec {
        NodeTopologySpec::of_machine(&self.machine)
    }

    /// Workers on the devices that Phalanx wrote onto their pods.
    pub fn placement(&self, seats: &[Seat]) -> Result<Placement, String> {
        let devices = |(worker, _, devices): &Seat| {
            let text = devices.as_deref().unwrap_or_default();
            text.parse().map_err(|e| format!("the devices {text:?} of {worker}: {e}"))
        };
        place(seats, seats.iter().map(devices).collect::<Result<_, String>>()?)
    }

    /// Workers on the first free devices of their nodes.
    pub fn regular(&self, seats: &[Seat]) -> Result<Placement, String> {
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
    pub fn is_island(&self, placement: &Placement) -> bool {
        let all = placement.slots.iter().fold(DeviceMask::default(), |all, slot| all.union(slot.devices));
        let mut islands = shape::groups(&self.machine, shape::NVLINK);
        islands.any(|island| all.minus(island).is_empty())
    }

    /// # Errors
    /// When the placement is on other nodes or devices.
    pub fn predict(&self, placement: &Placement, model: &Model) -> Result<Step, String> {
        let traffic =
            Traffic { pattern: Pattern::AllReduce, bytes: model.bytes, compute_ns: model.compute_ns };
        let (table, levels, nodes) = (&self.table, &self.levels, &*self.nodes);
        let input = Input { table, levels, nodes, placement, traffic, constants: &self.constants };
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
