//! Builders of levels and nodes. Names that are not names panic.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_model::{
    Admin, CostTable, DeviceMask, DomainLimit, DomainName, LevelName, Levels, LinkKind, Machine, Node,
    NodeName, ResourceName, ShapeCost, TorusPlace,
};
use phalanx_scenario::Shape;

/// Levels above the node, outermost first; the node's own is `node`.
#[must_use]
pub fn levels(above: &[&str]) -> Levels {
    Levels::new(above.iter().map(|l| level(l)).collect(), level("node"))
}

/// Limits a resource for all nodes of every domain of a level.
#[must_use]
pub fn limited(mut levels: Levels, name: &str, resource: &str, amount: u64) -> Levels {
    let limit = DomainLimit { level: level(name), path: None, resource: named(resource), amount };
    levels.limits.push(limit);
    levels
}

/// Limits a resource for one domain, which takes precedence over the limit of its level.
#[must_use]
pub fn limited_at(mut levels: Levels, path: &[&str], resource: &str, amount: u64) -> Levels {
    let level = levels.above[path.len() - 1].clone();
    let path = path.iter().map(|d| DomainName::new(*d).unwrap()).collect();
    levels.limits.push(DomainLimit { level, path: Some(path), resource: named(resource), amount });
    levels
}

pub(crate) fn level(text: &str) -> LevelName {
    LevelName::new(text).unwrap()
}

pub(crate) fn named(resource: &str) -> ResourceName {
    ResourceName::new(resource).unwrap()
}

/// A node in domain `cluster` with 64 CPUs, 512 GB and no devices.
#[must_use]
pub fn node(name: &str) -> NodeBuilder {
    NodeBuilder {
        name: name.to_owned(),
        path: vec!["cluster".to_owned()],
        gpus: 0,
        model: "V100".to_owned(),
        shape: Shape::Pcie,
        cpus: 64,
        memory_bytes: 512_000_000_000,
        busy: DeviceMask::EMPTY,
        admin: Admin::Open,
        device_memory_bytes: 0,
        share_limit_milli: 0,
        replicas: 0,
        named: BTreeMap::new(),
        torus: None,
    }
}

#[derive(Clone, Debug)]
pub struct NodeBuilder {
    name: String,
    path: Vec<String>,
    gpus: u32,
    model: String,
    shape: Shape,
    cpus: u64,
    memory_bytes: u64,
    busy: DeviceMask,
    admin: Admin,
    device_memory_bytes: u64,
    share_limit_milli: u32,
    replicas: u32,
    named: BTreeMap<ResourceName, u64>,
    torus: Option<TorusPlace>,
}

impl NodeBuilder {
    /// One domain per level above the node, outermost first.
    #[must_use]
    pub fn path<const N: usize>(self, path: [&str; N]) -> Self {
        Self { path: path.iter().map(ToString::to_string).collect(), ..self }
    }

    #[must_use]
    pub fn gpus(self, gpus: u32) -> Self {
        Self { gpus, ..self }
    }

    #[must_use]
    pub fn model(self, model: &str) -> Self {
        Self { model: model.to_owned(), ..self }
    }

    #[must_use]
    pub fn shape(self, shape: Shape) -> Self {
        Self { shape, ..self }
    }

    #[must_use]
    pub fn nvswitch(self) -> Self {
        self.shape(Shape::NvSwitch)
    }

    /// Eight devices in two islands.
    #[must_use]
    pub fn hybrid_cube_mesh(self) -> Self {
        self.gpus(8).shape(Shape::HybridCubeMesh)
    }

    #[must_use]
    pub fn pcie(self) -> Self {
        self.shape(Shape::Pcie)
    }

    #[must_use]
    pub fn cpus(self, cpus: u64) -> Self {
        Self { cpus, ..self }
    }

    #[must_use]
    pub fn memory(self, memory_bytes: u64) -> Self {
        Self { memory_bytes, ..self }
    }

    /// Devices in foreign use.
    #[must_use]
    pub fn busy(self, devices: impl IntoIterator<Item = u32>) -> Self {
        Self { busy: devices.into_iter().collect(), ..self }
    }

    #[must_use]
    pub fn admin(self, admin: Admin) -> Self {
        Self { admin, ..self }
    }

    /// The memory of each device.
    #[must_use]
    pub fn device_memory(self, device_memory_bytes: u64) -> Self {
        Self { device_memory_bytes, ..self }
    }

    /// The compute that shares of one device may use in total, in thousandths of the device.
    #[must_use]
    pub fn share_limit(self, share_limit_milli: u32) -> Self {
        Self { share_limit_milli, ..self }
    }

    /// The equal parts in which each device is offered.
    #[must_use]
    pub fn replicas(self, replicas: u32) -> Self {
        Self { replicas, ..self }
    }

    /// An amount of a named resource.
    #[must_use]
    pub fn has(mut self, resource: &str, amount: u64) -> Self {
        self.named.insert(named(resource), amount);
        self
    }

    /// The position of its first chip in one of the cluster's tori.
    #[must_use]
    pub fn chip(self, torus: u32, at: [u16; 3]) -> Self {
        Self { torus: Some(TorusPlace { torus, at }), ..self }
    }

    #[must_use]
    pub fn machine(&self) -> Machine {
        let mut machine = self.shape.machine(self.gpus, &self.model).unwrap();
        machine.cpu_milli = self.cpus.saturating_mul(1_000);
        machine.memory_bytes = self.memory_bytes;
        machine.share_limit_milli = self.share_limit_milli;
        machine.replicas = self.replicas;
        machine.named.clone_from(&self.named);
        machine.devices.iter_mut().for_each(|device| device.memory_bytes = self.device_memory_bytes);
        machine
    }

    #[must_use]
    pub fn build(self) -> Node {
        let machine = Arc::new(self.machine());
        let path = self.path.iter().map(|d| DomainName::new(d).unwrap()).collect();
        let node = Node::new(NodeName::new(self.name).unwrap(), path, machine);
        Node { admin: self.admin, foreign: self.busy, torus: self.torus, ..node }
    }
}

/// Costs by the kind of link alone, enough to distinguish near from far: NVLink before PCIe before sockets.
#[must_use]
pub fn costs<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> CostTable {
    let mut shapes = BTreeMap::new();
    for node in nodes {
        shapes.insert(node.machine.shape.clone(), shape_cost(&node.machine));
    }
    CostTable { shapes, ..CostTable::default() }
}

fn shape_cost(machine: &Machine) -> ShapeCost {
    let devices = machine.device_count();
    let pair = |a, b| match machine.device_link(a, b) {
        _ if a == b => 0,
        Some(LinkKind::Nvlink(links)) => 25_000 * u32::from(links),
        Some(LinkKind::PcieSwitch | LinkKind::PcieBridges) => 12_000,
        _ => 8_000,
    };
    let pair_mb_per_s = (0..devices).flat_map(|a| (0..devices).map(move |b| pair(a, b))).collect();
    // Slower than any pair, so that it never pays to leave a node.
    ShapeCost { devices, pair_mb_per_s, nic_mb_per_s: 5_000, ..ShapeCost::default() }
}
