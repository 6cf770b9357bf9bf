//! A machine as a tree: NUMA nodes, PCI bridges below them, GPUs and NICs at the leaves, and the links that
//! go beside PCIe (NVLink, xGMI, C2C).
//!
//! Readers of XML maps build a [`Tree`]; [`Tree::machine`] says from it how every two ports reach each other,
//! with the words of NCCL's `src/graph/paths.cc` and the slowest hop of each path.

mod adapters;
mod address;
mod ids;
mod machine;
mod mask;
mod speed;

use std::collections::BTreeSet;

use phalanx_model::Port;

pub(crate) use adapters::{functions_left_out, is_virtual_function, is_virtual_name};
pub use address::Address;
pub(crate) use ids::{Product, named, product};
pub(crate) use mask::HexMask;
pub(crate) use speed::{
    CpuKind, lane_kv, nearest_link, nvlink_mb_per_s, pci_mb_per_s, width_of, xgmi_mb_per_s,
};

/// One machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Which host it is, where a map holds several.
    pub host: Option<String>,
    pub grain: Grain,
    pub cpus: Vec<Cpu>,
    /// Logical CPUs; 0 when unknown.
    pub threads: u64,
    pub memory_bytes: u64,
    /// Pairs, by the vendor's numbers of GPUs and interfaces, of which the source says that it does not know how
    /// they reach each other, whatever the tree looks like.
    pub unknown: BTreeSet<(Port, Port)>,
}

/// What a [`Part::Bridge`] of the tree stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grain {
    /// A whole switch, as NCCL has it: devices below one bridge are `PIX`.
    #[default]
    Switch,
    /// One port, as the kernel and hwloc have it: a switch is an upstream port and the downstream ports below.
    Port,
}

/// A NUMA node and the PCI devices near it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    pub numa: Option<u32>,
    /// The way to other NUMA nodes, one way; 0 when unknown.
    pub uplink_mb_per_s: u32,
    pub nodes: Vec<Node>,
}

/// A PCI function, or a NIC that does not hang on PCI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub address: Option<Address>,
    /// The source had to give the device an address to speak of it: a machine does not show it.
    pub is_made_up: bool,
    /// The PCI host bridge, on the topmost functions, where the source tells.
    pub host_bridge: Option<String>,
    pub numa: Option<u32>,
    /// Its link towards the CPU, one way; 0 when unknown.
    pub mb_per_s: u32,
    pub part: Part,
    /// PCI vendor; 0 when unknown.
    pub vendor: u16,
    /// A virtual function (SR-IOV).
    pub is_virtual: bool,
    pub nodes: Vec<Self>,
    /// Bridges that are the same switch as this one (`pcilink`).
    pub peers: Vec<Address>,
    /// Line and column in the source.
    pub at: (u32, u32),
}

/// What a [`Node`] is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Part {
    Bridge,
    Gpu(Gpu),
    /// The interfaces of the function; none where the source names the function alone.
    Nic(Vec<Net>),
    /// A slot whose device the source does not name, or a device of no interest.
    #[default]
    Other,
}

/// A GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// The vendor's number.
    pub index: Option<u32>,
    /// Product name; empty when unknown.
    pub model: String,
    pub memory_bytes: u64,
    /// Cut into slices (NVIDIA MIG).
    pub is_sliced: bool,
    pub fabric: Vec<FabricLink>,
}

/// An interface of a NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Net {
    pub name: String,
    pub alias: Option<String>,
    pub index: Option<u32>,
    pub bytes_per_s: Option<u64>,
}

/// What a GPU is joined with beside PCIe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricLink {
    pub kind: Fabric,
    pub to: FabricEnd,
    /// Links of the bundle.
    pub count: u32,
    /// The whole bundle, one way; 0 when unknown. To another GPU or a switch it is what the source says; to a
    /// CPU it is a hop like those of PCIe, and counted as they are.
    pub mb_per_s: u32,
    pub at: (u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fabric {
    Nvlink,
    Xgmi,
    /// NVLink-C2C to a Grace CPU.
    C2c,
}

/// The other end of a [`FabricLink`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FabricEnd {
    Gpu(Address),
    /// All GPUs that reach a switch reach each other.
    Switch,
    Cpu,
    /// As the source writes it.
    Unknown(String),
}

impl Tree {
    /// Every node of the tree, parents before children.
    #[must_use]
    pub fn nodes(&self) -> Vec<&Node> {
        let mut found = Vec::new();
        let mut open: Vec<&Node> = self.cpus.iter().rev().flat_map(|cpu| cpu.nodes.iter().rev()).collect();
        while let Some(node) = open.pop() {
            found.push(node);
            open.extend(node.nodes.iter().rev());
        }
        found
    }
}
