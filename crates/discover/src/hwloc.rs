//! hwloc's XML (`lstopo machine.xml`), versions 1 to 3: sockets, NUMA nodes, the PCI tree, and the bandwidths
//! of NVLink and xGMI where hwloc was built with the vendors' libraries.

mod matrix;
mod object;

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::Machine;

use crate::gap::{Gap, listed};
use crate::pcie::{Address, Cpu, FabricLink, Gpu, Grain, HexMask, Net, Node, Part, Tree};
use crate::xml::{self, Element, XmlError};
use object::{Kind, PciDevice, is_gpu_of, kind_of, link_mb_per_s, os_index_in};

/// The most NUMA nodes that devices are placed on; Linux itself is built for at most 1024.
const NUMA_NODES_MAX: usize = 1024;

/// What a file told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hwloc {
    pub tree: Tree,
    /// In the order of the text.
    pub gaps: Vec<Gap>,
}

/// Why nothing of a text is usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HwlocError {
    #[error(transparent)]
    Xml(#[from] XmlError),
    #[error(
        "line {line}, column {column}: <{found}> is not what hwloc writes; give the file of `lstopo machine.xml`"
    )]
    Other { line: u32, column: u32, found: String },
    #[error(
        "line {line}, column {column}: there is no object in the topology; give the file of `lstopo machine.xml`"
    )]
    NoObject { line: u32, column: u32 },
}

impl Hwloc {
    /// The machine, and all gaps.
    #[must_use]
    pub fn machine(&self) -> (Machine, Vec<Gap>) {
        let (machine, more) = self.tree.machine();
        (machine, listed(self.gaps.iter().cloned().chain(more).collect()))
    }
}

/// Reads the text of hwloc's XML.
///
/// # Errors
/// When it is not XML, or not hwloc's.
pub fn parse(text: &str) -> Result<Hwloc, HwlocError> {
    let document = xml::parse(text)?;
    let Some(topology) = document.roots.iter().find(|root| root.name == "topology") else {
        let first = document.roots.first();
        let (line, column) = first.map_or((1, 1), |root| root.at);
        return Err(HwlocError::Other {
            line,
            column,
            found: first.map(|r| r.name.clone()).unwrap_or_default(),
        });
    };
    let (line, column) = topology.at;
    let machine = topology.named("object").next().ok_or(HwlocError::NoObject { line, column })?;
    let version = topology.get("version").and_then(|v| v.split('.').next()?.parse().ok()).unwrap_or(1);
    let mut read = Read { version, gaps: document.gaps, ..Read::default() };
    read.survey(machine, None);
    read.fabric = matrix::fabric(topology, &read.ends, &mut read.gaps);
    read.object(machine, None);
    read.tell_what_is_missing(machine);
    let mut tree = Tree {
        host: None,
        grain: Grain::Port,
        cpus: read.cpus.into_values().collect(),
        threads: threads(machine, read.threads),
        memory_bytes: read.memory_bytes,
        ..Tree::default()
    };
    read.gaps.extend(tree.leave_out_virtual());
    Ok(Hwloc { tree, gaps: listed(read.gaps) })
}

/// Logical CPUs that may be used, or that are there.
fn threads(machine: &Element, counted: u64) -> u64 {
    let masks = ["allowed_cpuset", "cpuset"].into_iter().filter_map(|name| machine.get(name));
    masks.map(|text| HexMask::read(text).count()).find(|count| *count > 0).unwrap_or(counted)
}

#[derive(Default)]
struct Read {
    /// The major version: 3 numbers the kinds of OS devices anew.
    version: u32,
    cpus: BTreeMap<Option<u32>, Cpu>,
    /// GPUs without a PCI device, by their numbers.
    lone: BTreeSet<u32>,
    /// Those of CPUs: the memory of a GPU may be a NUMA node too.
    numa_nodes: BTreeSet<u32>,
    memory_bytes: u64,
    threads: u64,
    /// Objects that matrices speak of, by hwloc's `gp_index`.
    ends: BTreeMap<u64, matrix::End>,
    fabric: BTreeMap<Address, Vec<FabricLink>>,
    has_bridge: bool,
    has_pci: bool,
    has_net: bool,
    /// NVML or ROCm SMI saw GPUs.
    has_vendor_os: bool,
    gaps: Vec<Gap>,
}

impl Read {
    /// Counts what the second walk needs to know of the whole.
    fn survey(&mut self, object: &Element, above: Option<&PciDevice>) {
        let kind = kind_of(object, self.version);
        let own = (kind == Kind::Pci).then(|| PciDevice::read(object));
        let pci = own.as_ref().or(above);
        let is_gpu_memory = object.get("subtype") == Some("GPUMemory");
        if !is_gpu_memory {
            let memory_bytes = object.number("local_memory").unwrap_or(0);
            self.memory_bytes = self.memory_bytes.saturating_add(memory_bytes);
        }
        match kind {
            Kind::Numa if is_gpu_memory || self.numa_nodes.len() >= NUMA_NODES_MAX => {}
            Kind::Numa => self.numa_nodes.extend(object.number::<u32>("os_index")),
            Kind::Pu => self.threads += 1,
            Kind::Bridge | Kind::HostBridge => self.has_bridge = true,
            Kind::Pci => self.has_pci = true,
            Kind::Network | Kind::OpenFabrics => self.has_net = true,
            Kind::Gpu => self.has_vendor_os |= os_index_in(object, &["nvml", "rsmi"]).is_some(),
            Kind::OtherOs | Kind::Other => {}
        }
        if let Some(gp_index) = object.number::<u64>("gp_index") {
            let end = match (pci, kind) {
                (Some(pci), _) if is_gpu_of(pci, object) => pci.address.map(|address| matrix::End::Gpu {
                    address,
                    wire_mb_per_s: pci.product().map_or(0, |p| p.wire_mb_per_s),
                }),
                (Some(pci), _) if pci.is_nvswitch => Some(matrix::End::Switch),
                (None, Kind::Numa | Kind::Other) => Some(matrix::End::Cpu),
                _ => None,
            };
            self.ends.extend(end.map(|end| (gp_index, end)));
        }
        for child in object.named("object") {
            self.survey(child, pci);
        }
    }

    /// Objects that are no I/O: what hangs on them is near their NUMA node, if they have one.
    fn object(&mut self, object: &Element, numa: Option<u32>) {
        let numa = self.numa_of(object, numa);
        for child in object.named("object") {
            match kind_of(child, self.version) {
                Kind::HostBridge => self.host_bridge(child, numa),
                Kind::Bridge | Kind::Pci => {
                    let node = self.pci(child, numa);
                    self.hang(node, numa);
                }
                Kind::Gpu => self.lone_gpu(child, numa),
                Kind::Network | Kind::OpenFabrics | Kind::OtherOs => {}
                Kind::Numa | Kind::Pu | Kind::Other => self.object(child, numa),
            }
        }
    }

    fn numa_of(&self, object: &Element, above: Option<u32>) -> Option<u32> {
        if self.numa_nodes.len() < 2 {
            return Some(self.numa_nodes.first().copied().unwrap_or(0));
        }
        match object.get("nodeset") {
            Some(mask) => HexMask::read(mask).single_of(&self.numa_nodes),
            None if kind_of(object, self.version) == Kind::Numa => object.number("os_index"),
            None => above,
        }
    }

    fn hang(&mut self, node: Option<Node>, numa: Option<u32>) {
        let Some(node) = node else { return };
        let cpu = self.cpus.entry(numa).or_insert(Cpu { numa, uplink_mb_per_s: 0, nodes: Vec::new() });
        cpu.nodes.push(node);
    }

    fn host_bridge(&mut self, bridge: &Element, numa: Option<u32>) {
        // Its buses are its name; where they are missing, its place is.
        let name = bridge.get("bridge_pci").map_or_else(|| format!("{:?}", bridge.at), str::to_owned);
        for child in bridge.named("object") {
            let node = self.pci(child, numa).map(|node| Node { host_bridge: Some(name.clone()), ..node });
            self.hang(node, numa);
        }
    }

    /// A bridge with what hangs below, a GPU or a NIC; nothing for devices of no interest.
    fn pci(&mut self, object: &Element, numa: Option<u32>) -> Option<Node> {
        let mb_per_s = link_mb_per_s(object.get("pci_link_speed").unwrap_or_default());
        let pci = PciDevice::read(object);
        let (vendor, is_virtual) = (pci.vendor, pci.is_virtual_function);
        let address = pci.address;
        let node = Node { address, numa, mb_per_s, vendor, is_virtual, at: object.at, ..Node::default() };
        let kind = kind_of(object, self.version);
        if matches!(kind, Kind::Bridge | Kind::HostBridge) {
            let nodes: Vec<Node> = object.named("object").filter_map(|child| self.pci(child, numa)).collect();
            return (!nodes.is_empty()).then_some(Node { part: Part::Bridge, nodes, ..node });
        }
        if kind != Kind::Pci {
            return None;
        }
        if pci.address.is_none() {
            self.gaps.push(Gap::new(object.at, "the PCI device has no pci_busid of the form 0000:3b:00.0"));
        }
        if is_gpu_of(&pci, object) {
            return Some(Node { part: Part::Gpu(self.gpu(object, &pci)), ..node });
        }
        self.net(object, &pci).map(|nets| Node { part: Part::Nic(nets), ..node })
    }

    fn gpu(&self, object: &Element, pci: &PciDevice) -> Gpu {
        let os = || object.named("object");
        let name = os().find_map(|o| object::info(o, "GPUModel")).filter(|name| !name.is_empty());
        let model =
            name.or_else(|| pci.product().map(|p| p.name)).or_else(|| object::info(object, "PCIDevice"));
        Gpu {
            index: os().find_map(|o| os_index_in(o, &["nvml", "rsmi"])),
            model: model.or_else(|| object.get("name")).unwrap_or_default().to_owned(),
            memory_bytes: os().find_map(object::memory_bytes).unwrap_or(0),
            is_sliced: false,
            fabric: pci.address.and_then(|a| self.fabric.get(&a)).cloned().unwrap_or_default(),
        }
    }

    /// An accelerator that hangs on no PCI device: built into the CPU, or the file was written without PCI.
    /// Several libraries see the same one; the vendors' own is asked before CUDA.
    fn lone_gpu(&mut self, object: &Element, numa: Option<u32>) {
        let Some(index) = os_index_in(object, &["nvml", "rsmi"]).or_else(|| os_index_in(object, &["cuda"]))
        else {
            return;
        };
        // CUDA may number otherwise, and sees no others.
        let is_cuda = object.get("name").is_some_and(|name| name.starts_with("cuda"));
        let is_alone = !is_cuda || !self.has_vendor_os;
        if !is_alone || !self.lone.insert(index) {
            return;
        }
        let gpu = Gpu {
            index: Some(index),
            model: object::info(object, "GPUModel").unwrap_or_default().to_owned(),
            memory_bytes: object::memory_bytes(object).unwrap_or(0),
            is_sliced: false,
            fabric: Vec::new(),
        };
        self.hang(Some(Node { numa, part: Part::Gpu(gpu), at: object.at, ..Node::default() }), numa);
    }

    /// The NIC of a PCI function: by its InfiniBand name, or else as the kernel names its interface.
    fn net(&mut self, object: &Element, pci: &PciDevice) -> Option<Vec<Net>> {
        if !pci.is_nic() && !pci.is_other_network() {
            return None;
        }
        let version = self.version;
        let of = |wanted: Kind| {
            let mut named = object.named("object").filter(move |o| kind_of(o, version) == wanted);
            named.find_map(|o| o.get("name")).map(str::to_owned)
        };
        let verbs = of(Kind::OpenFabrics);
        if pci.is_other_network() && verbs.is_none() {
            let interface = of(Kind::Network);
            let name = interface.or_else(|| pci.address.map(|a| a.to_string())).unwrap_or_default();
            let what = format!(
                "{name} is a network controller of PCI class 0280 without InfiniBand verbs; left out"
            );
            self.gaps.push(Gap::new(object.at, what));
            return None;
        }
        let Some(name) = verbs.or_else(|| of(Kind::Network)) else {
            // In a file that names interfaces, a function without one is free to guests or processes.
            return (!self.has_net).then(Vec::new);
        };
        Some(vec![Net { name, alias: None, index: None, bytes_per_s: None }])
    }

    fn tell_what_is_missing(&mut self, machine: &Element) {
        if !self.has_pci && !self.has_bridge {
            let what = "there is no PCI device in the file; write it with I/O objects (`lstopo --filter io:important`)";
            self.gaps.push(Gap::new(machine.at, what));
        } else if !self.has_bridge {
            let what = "there is no PCI bridge in the file: which devices share a switch is unknown; write it without `--no-bridges`";
            self.gaps.push(Gap::new(machine.at, what));
        }
        if self.cpus.len() > 1
            && let Some(cpu) = self.cpus.get(&None)
        {
            let at = cpu.nodes.first().map_or(machine.at, |node| node.at);
            self.gaps.push(Gap::new(at, "from here on, PCI devices hang on no NUMA node in particular"));
        }
    }
}
