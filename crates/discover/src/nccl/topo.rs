//! Reads the topology of a machine.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{DEVICES_PER_NODE_MAX, Port};

use crate::gap::{Gap, listed};
use crate::pcie::{
    Address, Cpu, CpuKind, Fabric, FabricEnd, FabricLink, Gpu, HexMask, Net, Node, Part, Product, Tree,
    is_virtual_function, lane_kv, nvlink_mb_per_s, pci_mb_per_s, product, width_of, xgmi_mb_per_s,
};
use crate::topo_m::NICS_MAX;
use crate::xml::{self, Element};

use super::NcclError;

/// What a topology file told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NcclTopo {
    /// One for each host: more than one only in a dump over several hosts. Never empty.
    pub trees: Vec<Tree>,
    /// It names no `<gpu>`: a vendor's file, whose devices are slots by their PCI class.
    pub is_vendors: bool,
    /// In the order of the text.
    pub gaps: Vec<Gap>,
}

impl NcclTopo {
    /// The first host.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        self.trees.first().unwrap_or_else(|| unreachable!("a topology has a tree"))
    }
}

/// Reads the text of a topology file: NCCL's (`version="1"`), RCCL's (`version="2"`), with or without GPUs.
///
/// # Errors
/// When it is not XML, or holds no topology.
pub fn parse(text: &str) -> Result<NcclTopo, NcclError> {
    let document = xml::parse(text)?;
    let mut read = Read { has_gpu: false, unknown: BTreeSet::new(), gaps: document.gaps };
    let mut trees: Vec<Tree> = Vec::new();
    for root in document.roots.iter().filter(|root| root.name == "system") {
        trees.extend(read.system(root));
    }
    // A file that lost its head still has its CPUs.
    let cpus: Vec<&Element> = document.roots.iter().filter(|root| root.name == "cpu").collect();
    if trees.is_empty() && !cpus.is_empty() {
        trees.extend(read.hosts(&cpus));
    }
    // What [`super::write`] says of a machine; it writes one.
    if let [tree] = trees.as_mut_slice() {
        tree.unknown = read.unknown;
    }
    if trees.is_empty() {
        let first = document.roots.first();
        let (line, column) = first.map_or((1, 1), |root| root.at);
        let found = first.map(|root| root.name.clone()).unwrap_or_default();
        let (wanted, variable) = ("topology", "NCCL_TOPO_FILE or NCCL_TOPO_DUMP_FILE");
        return Err(NcclError::Other { line, column, found, wanted, variable });
    }
    read.gaps.extend(trees.iter_mut().flat_map(Tree::leave_out_virtual));
    Ok(NcclTopo { trees, is_vendors: !read.has_gpu, gaps: listed(read.gaps) })
}

struct Read {
    has_gpu: bool,
    unknown: BTreeSet<(Port, Port)>,
    gaps: Vec<Gap>,
}

impl Read {
    fn gap(&mut self, element: &Element, what: impl Into<String>) {
        self.gaps.push(Gap::new(element.at, what));
    }

    fn system(&mut self, system: &Element) -> Vec<Tree> {
        let mut cpus: Vec<&Element> = Vec::new();
        let mut is_bare = false;
        for child in &system.children {
            match child.name.as_str() {
                "cpu" => cpus.push(child),
                "pci" | "nic" => is_bare = true,
                _ => self.unknown(child),
            }
        }
        // Written by hand, without CPUs: the devices hang on one.
        let mut trees = self.hosts(&cpus);
        if is_bare && let Some(tree) = trees.first_mut() {
            let cpu = self.cpu(system);
            tree.cpus.push(cpu);
        }
        if let [tree] = trees.as_mut_slice() {
            tree.threads = system.number("threads").unwrap_or(tree.threads);
            tree.memory_bytes = system.number("memory_bytes").unwrap_or(0);
        }
        trees
    }

    /// CPUs of one `host_hash` are one machine; one machine at least.
    fn hosts(&mut self, cpus: &[&Element]) -> Vec<Tree> {
        let mut trees: Vec<(Tree, HexMask)> = Vec::new();
        let mut by_host: BTreeMap<Option<String>, usize> = BTreeMap::new();
        for element in cpus {
            let host = element.get("host_hash").map(str::to_owned);
            let cpu = self.cpu(element);
            let threads = HexMask::read(element.get("affinity").unwrap_or_default());
            let at = *by_host.entry(host.clone()).or_insert_with(|| {
                trees.push((Tree { host, ..Tree::default() }, HexMask::default()));
                trees.len() - 1
            });
            if let Some((tree, mask)) = trees.get_mut(at) {
                tree.cpus.push(cpu);
                mask.add(&threads);
            }
        }
        if trees.is_empty() {
            trees.push(Default::default());
        }
        trees.into_iter().map(|(tree, mask)| Tree { threads: mask.count(), ..tree }).collect()
    }

    fn cpu(&mut self, element: &Element) -> Cpu {
        let numa = numa(element, "numaid", None);
        if element.name == "cpu" && element.get("numaid").is_none_or(|n| n.trim().parse::<i32>().is_err()) {
            self.gap(element, "the CPU has no numaid; its NUMA node is unknown");
        }
        let kind = CpuKind {
            arch: element.get("arch").unwrap_or_default(),
            vendor: element.get("vendor").unwrap_or_default(),
            family: element.number("familyid").unwrap_or(0),
            model: element.number("modelid").unwrap_or(0),
        };
        let uplink_mb_per_s = element.number("mb_per_s").unwrap_or_else(|| kind.uplink_mb_per_s());
        let mut nodes = Vec::new();
        for child in &element.children {
            match child.name.as_str() {
                "pci" => nodes.push(self.pci(child, numa)),
                // Without a PCI device: an interface of a virtual machine.
                "nic" => {
                    let part = Part::Nic(self.nets(child));
                    nodes.push(Node { numa, part, at: child.at, ..Node::default() });
                }
                "cpu" if element.name == "system" => {}
                _ => self.unknown(child),
            }
        }
        Cpu { numa, uplink_mb_per_s, nodes }
    }

    fn pci(&mut self, element: &Element, cpu_numa: Option<u32>) -> Node {
        let address = element.get("busid").and_then(Address::read);
        if address.is_none() {
            self.gap(element, "the PCI device has no busid of the form 0000:3b:00.0");
        }
        let class = class(element.get("class").unwrap_or_default());
        let (mut gpu, mut nets, mut is_nic) = (None, Vec::new(), false);
        let mut node = Node {
            address,
            is_made_up: element.get("true_busid").is_some(),
            host_bridge: element.get("host_bridge").map(str::to_owned),
            numa: numa(element, "numaid", cpu_numa),
            mb_per_s: link_mb_per_s(element),
            vendor: id(element, "vendor").unwrap_or(0),
            is_virtual: id(element, "vendor")
                .zip(id(element, "device"))
                .is_some_and(|(vendor, device)| is_virtual_function(vendor, device)),
            at: element.at,
            ..Node::default()
        };
        for child in &element.children {
            match child.name.as_str() {
                "pci" => node.nodes.push(self.pci(child, cpu_numa)),
                "gpu" => {
                    self.has_gpu = true;
                    gpu = Some(self.gpu(child, element));
                }
                "nic" => {
                    is_nic = true;
                    nets.extend(self.nets(child));
                }
                "pcilink" => node.peers.extend(child.get("target").and_then(Address::read)),
                _ => self.unknown(child),
            }
        }
        node.part = match class {
            _ if let Some(gpu) = gpu => Part::Gpu(gpu),
            _ if is_nic => Part::Nic(nets),
            _ if !node.nodes.is_empty() => Part::Bridge,
            0x0300..=0x03ff | 0x1200..=0x12ff if is_gpu_vendor(element) => Part::Gpu(self.bare_gpu(element)),
            0x0200..=0x02ff | 0x0c06 => Part::Nic(Vec::new()),
            0x0604 => Part::Bridge,
            _ => Part::Other,
        };
        if !matches!(node.part, Part::Bridge | Part::Other) && !node.nodes.is_empty() {
            self.gap(element, "PCI devices below a GPU or NIC are left out");
            node.nodes.clear();
        }
        node
    }

    fn bare_gpu(&self, pci: &Element) -> Gpu {
        Gpu { model: product_of(pci).map(|p| p.name.to_owned()).unwrap_or_default(), ..Gpu::default() }
    }

    fn gpu(&mut self, element: &Element, pci: &Element) -> Gpu {
        let mut gpu = Gpu { index: element.number("dev"), ..self.bare_gpu(pci) };
        if let Some(model) = element.get("model") {
            gpu.model = model.to_owned();
        }
        gpu.memory_bytes = element.number("memory_bytes").unwrap_or(0);
        gpu.is_sliced = element.get("sliced") == Some("1");
        self.unknown_to(gpu.index.map(Port::Device), element);
        for child in &element.children {
            let kind = match child.name.as_str() {
                "nvlink" => Fabric::Nvlink,
                "xgmi" => Fabric::Xgmi,
                "c2c" => Fabric::C2c,
                _ => {
                    self.unknown(child);
                    continue;
                }
            };
            gpu.fabric.extend(self.fabric(child, kind, element, pci));
        }
        gpu
    }

    fn fabric(&mut self, link: &Element, kind: Fabric, gpu: &Element, pci: &Element) -> Option<FabricLink> {
        let Some(count) = link.number::<u32>("count").or((kind == Fabric::C2c).then_some(1)) else {
            self.gap(link, format!("<{}> has no count; it is left out", link.name));
            return None;
        };
        let to = match kind {
            Fabric::C2c => FabricEnd::Cpu,
            _ => end(link),
        };
        let one = match kind {
            Fabric::Xgmi => Some(xgmi_mb_per_s(gpu.get("gcn").unwrap_or_default())),
            Fabric::C2c => link.number("bw"), // MB/s of one link
            Fabric::Nvlink if to == FabricEnd::Cpu => {
                let sm = gpu.number("sm").or_else(|| product_of(pci).map(|p| p.sm));
                sm.and_then(nvlink_mb_per_s)
            }
            // The file has no rate, and NCCL's constants are below that of the wire.
            Fabric::Nvlink => None,
        };
        let mb_per_s = link.number("mb_per_s").unwrap_or_else(|| one.unwrap_or(0).saturating_mul(count));
        (count > 0).then_some(FabricLink { kind, to, count, mb_per_s, at: link.at })
    }

    /// The interfaces of a NIC; one that a plugin lists again is read once.
    fn nets(&mut self, nic: &Element) -> Vec<Net> {
        let mut nets: Vec<Net> = Vec::new();
        let mut names = BTreeSet::new();
        for child in &nic.children {
            if child.name != "net" {
                self.unknown(child);
                continue;
            }
            let name = child.get("name").unwrap_or_default().trim();
            if name.is_empty() {
                self.gap(child, "the interface has no name");
            }
            if !name.is_empty() && !names.insert(name) {
                continue;
            }
            self.unknown_to(child.number("dev").map(Port::Nic), child);
            // Mb/s; some drivers say -1 or all ones for unknown.
            let speed = child.number::<u64>("speed").filter(|mb| (1..u64::from(u32::MAX)).contains(mb));
            nets.push(Net {
                name: name.to_owned(),
                alias: child.get("alias").map(str::to_owned),
                index: child.number("dev"),
                bytes_per_s: child.number("bytes_per_s").or(speed.map(|mb| mb * 1_000_000 / 8)),
            });
        }
        nets
    }

    /// The ports of which the source does not know how this one reaches them.
    fn unknown_to(&mut self, port: Option<Port>, element: &Element) {
        let of = |name: &str| HexMask::read(element.get(name).unwrap_or_default());
        let (gpus, nics) = (of("unknown_gpus"), of("unknown_nics"));
        let peers = gpus.numbers().map(Port::Device).chain(nics.numbers().map(Port::Nic));
        let can_be = |port: &Port| match port {
            Port::Device(i) => *i < DEVICES_PER_NODE_MAX,
            Port::Nic(i) => (*i as usize) < NICS_MAX,
        };
        if let Some(port) = port.filter(can_be) {
            self.unknown.extend(peers.filter(can_be).map(|peer| (port, peer)));
        }
    }

    fn unknown(&mut self, element: &Element) {
        // Known, and of no interest: searched graphs, and interfaces that GPUs drive themselves.
        if !matches!(element.name.as_str(), "graphs" | "gin") {
            self.gap(element, format!("<{}> is not known here; it is left out", element.name));
        }
    }
}

/// `-1` is unknown. What [`super::write`] made up stands beside the truth.
fn numa(element: &Element, name: &str, otherwise: Option<u32>) -> Option<u32> {
    match element.get("true_numaid") {
        Some(told) => told.trim().parse().ok(),
        None => element.number(name).or(otherwise),
    }
}

fn link_mb_per_s(pci: &Element) -> u32 {
    if let Some(mb) = pci.number("mb_per_s") {
        return mb;
    }
    let lane = pci.get("link_speed").and_then(lane_kv);
    lane.zip(width_of(pci.get("link_width"))).map_or(0, |(kv, width)| pci_mb_per_s(width, kv))
}

/// Class and subclass of `0x030200`, `0x0302` and the like; 0 when there is none.
fn class(text: &str) -> u32 {
    let digits = text.trim().trim_start_matches("0x");
    let digits = digits.get(..4).unwrap_or(digits);
    u32::from_str_radix(digits, 16).unwrap_or(0)
}

fn id(element: &Element, name: &str) -> Option<u16> {
    u16::from_str_radix(element.get(name)?.trim().trim_start_matches("0x"), 16).ok()
}

/// NVIDIA and AMD; a file that names no vendor means a GPU by the class alone.
fn is_gpu_vendor(pci: &Element) -> bool {
    matches!(id(pci, "vendor"), None | Some(0x10de | 0x1002 | 0xffff))
}

fn product_of(pci: &Element) -> Option<&'static Product> {
    product(id(pci, "vendor")?, id(pci, "device")?)
}

/// By the class of the target: a GPU, an NVSwitch (06 80 00), or a CPU (06 80 01, the NVLink bridge of POWER).
/// What a target without a class is shows when all devices are known.
fn end(link: &Element) -> FabricEnd {
    let target = link.get("target").unwrap_or_default().trim();
    let address = Address::read(target);
    let tclass = link.get("tclass").unwrap_or_default().trim();
    match (class(tclass), address) {
        (0x0680, _) if tclass.ends_with("8001") => FabricEnd::Cpu,
        (0x0680, _) => FabricEnd::Switch,
        (class, Some(address)) if class != 0 => FabricEnd::Gpu(address),
        _ => FabricEnd::Unknown(target.to_owned()),
    }
}
