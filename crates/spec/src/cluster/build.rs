//! From declared machines to nodes of the model. Equal machines are built once and shared.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_model::{
    Device, DomainCost, LevelCost, LevelName, Link, LinkKind, Machine, Nic, Node, NodeName, Origin, Port,
    Product, ResourceName, Transport, shape,
};

use super::{Cluster, DeclaredDevices, DeclaredHardware, DeclaredLink};
use crate::error::quote;
use crate::scalar::DeclaredLinkKind;

/// The resource that network interfaces are counted as.
const NIC: &str = "nic";

/// Where the machines come from that a cluster file only names.
pub trait Hardware {
    type Error;

    /// The machine that a topology text describes. Asked once per file and set of declared values.
    ///
    /// # Errors
    /// When the text cannot be read.
    fn topology(&mut self, file: &str) -> Result<Machine, Self::Error>;

    /// CPUs in thousandths, and bytes of memory, of a machine of which the file says neither.
    fn default_amounts(&mut self) -> (u64, u64);
}

/// Why a declared node is no node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError<E> {
    #[error("line {line}: the topology of node {node}: {why}")]
    Topology { node: String, line: u32, why: E },
    #[error("line {line}: node {node} has {count} devices, so {busy} cannot be busy; devices count from 0")]
    Busy { node: String, line: u32, count: u32, busy: String },
}

impl Cluster {
    /// The nodes, in the order of the file.
    ///
    /// # Errors
    /// When a topology text cannot be read, or devices are busy that a node does not have.
    pub fn nodes<H: Hardware>(&self, hardware: &mut H) -> Result<Vec<Node>, BuildError<H::Error>> {
        let node_link =
            self.links.get(&self.levels.node).map(|link| link.bytes_per_s).filter(|bytes| *bytes > 0);
        let mut built: BTreeMap<&DeclaredHardware, Arc<Machine>> = BTreeMap::new();
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for said in &self.nodes {
            let machine = match built.get(said.hardware.as_ref()) {
                Some(known) => Arc::clone(known),
                None => {
                    let machine = Arc::new(said.hardware.machine(hardware, node_link).map_err(|why| {
                        BuildError::Topology { node: said.name.to_string(), line: said.line, why }
                    })?);
                    built.insert(&said.hardware, Arc::clone(&machine));
                    machine
                }
            };
            let beyond = said.busy.minus(machine.device_mask());
            if !beyond.is_empty() {
                return Err(BuildError::Busy {
                    node: said.name.to_string(),
                    line: said.line,
                    count: machine.device_count(),
                    busy: beyond.to_string(),
                });
            }
            nodes.push(Node {
                address: said.address.clone().unwrap_or_else(|| "127.0.0.1".to_owned()),
                foreign: said.busy,
                labels: said.labels.clone(),
                spot: said.spot,
                torus: said.torus,
                ..Node::new(said.name.clone(), said.path.clone(), machine)
            });
        }
        Ok(nodes)
    }

    /// What the uplinks of levels carry, as a cost table has it.
    #[must_use]
    pub fn level_costs(&self) -> BTreeMap<LevelName, LevelCost> {
        self.links.iter().map(|(level, link)| (level.clone(), link.cost())).collect()
    }

    /// How the network interfaces of nodes talk, where that is said.
    #[must_use]
    pub fn transports(&self) -> BTreeMap<NodeName, Transport> {
        let said = self.nodes.iter().filter_map(|node| Some((node.name.clone(), node.hardware.transport?)));
        said.collect()
    }

    /// What single uplinks carry, sorted by path as a cost table has it.
    #[must_use]
    pub fn domain_costs(&self) -> Vec<DomainCost> {
        let cost =
            |(path, link): &(Vec<_>, DeclaredLink)| DomainCost { path: path.clone(), cost: link.cost() };
        self.uplinks.iter().map(cost).collect()
    }
}

impl DeclaredLink {
    fn cost(&self) -> LevelCost {
        let mb_per_s = |bytes_per_s: u64| u32::try_from(bytes_per_s / 1_000_000).unwrap_or(u32::MAX);
        LevelCost {
            uplink_mb_per_s: mb_per_s(self.bytes_per_s),
            inside_mb_per_s: mb_per_s(self.inside_bytes_per_s),
            latency_ns: u32::try_from(self.latency_ns).unwrap_or(u32::MAX),
        }
    }
}

impl DeclaredHardware {
    fn machine<H: Hardware>(&self, hardware: &mut H, node_link: Option<u64>) -> Result<Machine, H::Error> {
        let mut machine = match (&self.topo, &self.devices) {
            (Some(file), _) => self.fill(hardware.topology(file)?),
            (None, Some(devices)) => uniform(devices),
            (None, None) => Machine::bare(Origin::Declared),
        };
        machine.origin = Origin::Declared;
        set_nics(&mut machine, self.nic_bytes_per_s);
        if let Some(all) = node_link {
            machine.share_nic_speed(all);
        }
        machine.assume_nic_speeds();
        if let Some(cpu_milli) = self.cpu_milli {
            machine.cpu_milli = cpu_milli;
        } else if machine.cpu_milli == 0 {
            machine.cpu_milli = hardware.default_amounts().0;
        }
        if let Some(memory_bytes) = self.memory_bytes {
            machine.memory_bytes = memory_bytes;
        } else if machine.memory_bytes == 0 {
            machine.memory_bytes = hardware.default_amounts().1;
        }
        machine.share_limit_milli = self.share_limit_milli;
        machine.named.extend(self.named.clone());
        count_nics(&mut machine);
        if self.topo.is_some() {
            shape::rename(&mut machine);
        } else {
            shape::finish(&mut machine);
        }
        Ok(machine)
    }

    /// Product name and memory that the file adds to a topology text.
    fn fill(&self, mut machine: Machine) -> Machine {
        for device in &mut machine.devices {
            if let Some(model) = &self.model {
                device.model.clone_from(model);
            }
            if let Some(memory_bytes) = self.gpu_memory_bytes {
                device.memory_bytes = memory_bytes;
            }
        }
        machine
    }
}

/// Devices that are all linked alike. Neither CPUs nor memory, and [`shape::finish`] is still to be called.
#[must_use]
pub fn uniform(said: &DeclaredDevices) -> Machine {
    let kind = match said.link {
        // A file that was read says a product that has some.
        DeclaredLinkKind::Nvlink => LinkKind::Nvlink(nvlinks(&said.model).unwrap_or(1)),
        DeclaredLinkKind::Pcie => LinkKind::HostBridge,
    };
    let device = |i: u32| Device {
        name: format!("GPU{i}"),
        model: said.model.clone(),
        memory_bytes: said.memory_bytes,
        ..Device::default()
    };
    let pairs = (0..said.count).flat_map(|a| (a + 1..said.count).map(move |b| (a, b)));
    Machine {
        devices: (0..said.count).map(device).collect(),
        links: pairs.map(|(a, b)| Link::new(Port::Device(a), Port::Device(b), kind)).collect(),
        ..Machine::bare(Origin::Declared)
    }
}

/// NVLinks of one device, or why there is no number.
pub(super) fn nvlinks(model: &str) -> Result<u8, String> {
    match Product::of(model).map(|product| product.nvlink_ports) {
        Some(0) => Err(format!("{} has no NVLink", quote(model))),
        Some(ports) => Ok(ports),
        None if model.is_empty() => Err("`nvlink` needs a `model`, whose links are counted".to_owned()),
        None => Err(format!("how many NVLinks {} has is not known", quote(model))),
    }
}

/// What NVLinks that join whole machines carry from one device, one way, in MB/s. NVIDIA's product pages, which
/// count both directions: 1.8 TB/s of GB200 and GB300 (18 links of 50 GB/s one way), 900 GB/s of GH200 (18 of 25).
/// Other products are joined by NICs alone.
pub(super) fn nvlink_domain_mb_per_s(model: &str) -> Option<u64> {
    let words = model.split(|c: char| !c.is_ascii_alphanumeric());
    words.map(str::to_ascii_uppercase).find_map(|word| match word.as_str() {
        "GB200" | "GB300" => Some(18 * 50_000),
        "GH200" => Some(18 * 25_000),
        _ => None,
    })
}

/// Counts the network interfaces for collectives as the resource `nic`, unless it is said how many there are.
pub fn count_nics(machine: &mut Machine) {
    let count = machine.collective_nics().len() as u64;
    if let Ok(nic) = ResourceName::new(NIC)
        && count > 0
    {
        machine.named.entry(nic).or_insert(count);
    }
}

/// The declared bandwidth is that of all NICs of the collective together: those that stand farther from every device,
/// for storage and management, keep what they have. A machine that lists no NIC gets one.
fn set_nics(machine: &mut Machine, all_bytes_per_s: Option<u64>) {
    let Some(all) = all_bytes_per_s else { return };
    if machine.nics.is_empty() {
        machine.nics.push(Nic { name: "NIC0".to_owned(), ..Nic::default() });
    }
    let counting = machine.collective_nics();
    let each = all / (counting.len() as u64).max(1);
    for (nic, _) in counting {
        if let Some(nic) = machine.nics.get_mut(nic as usize) {
            (nic.bytes_per_s, nic.is_assumed) = (Some(each), false);
        }
    }
}
