//! `kubectl get resourceslices -o yaml`: what drivers publish for dynamic resource allocation, as machines.
//!
//! Versions v1alpha3 to v1. Slices tell products, memory, PCIe roots and NUMA nodes; NVLink they do not tell.

use std::collections::BTreeMap;

use phalanx_model::{
    DEVICES_PER_NODE_MAX, Device, Graph, Host, Machine, Nic, NodeName, Origin, Port, ids::natural_cmp,
};

use super::tree::{self, Tree};
use super::{Machines, NODES_MAX, ObjectError, Reading, printable, units};
use crate::gap::{self, Gap};
use crate::{shape, topo_m};

/// Devices of a list that stands alone are of a node that has no name.
const UNNAMED: &str = "unnamed";
/// The most devices that are looked at on one node, parts included.
const PUBLISHED_MAX: usize = 4096;
/// NVIDIA's second driver, for memory that is shared over NVLink between nodes.
const COMPUTE_DOMAIN: &str = "compute-domain.nvidia.com";

/// Machines by node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slices {
    /// Hosts by name; no levels.
    pub reading: Reading,
    /// In the order of the hosts.
    pub nodes: Vec<NodeDevices>,
}

/// What a machine has no word for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDevices {
    /// In the order of the machine's devices; empty where a device does not tell.
    pub uuids: Vec<String>,
    /// By parent, then by name.
    pub parts: Vec<Part>,
    /// Whether it can join a domain of shared memory.
    pub has_compute_domain: bool,
}

/// A part of a device that is allocated by itself: a MIG slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Index of the device it is cut from.
    pub parent: u32,
    pub name: String,
    /// Empty for a part that could be cut and is not.
    pub uuid: String,
    /// E.g. `1g.5gb`.
    pub profile: String,
    pub memory_bytes: u64,
}

/// Reads the ResourceSlice objects of a text, or a bare list of devices; other kinds are passed over.
///
/// # Errors
/// When the text is neither YAML nor JSON, holds no slice, or is beyond the limits.
pub fn parse(text: &str) -> Result<Slices, ObjectError> {
    let found = tree::read(text)?;
    let mut gaps = found.gaps;
    let slices: Vec<Slice<'_>> = found.objects.iter().filter_map(|tree| slice(tree, &mut gaps)).collect();
    if slices.is_empty() {
        let found = tree::kinds(&found.objects);
        return Err(ObjectError::Missing {
            wanted: "ResourceSlice",
            found,
            command: "kubectl get resourceslices -o yaml",
        });
    }
    let mut nodes: BTreeMap<NodeName, Vec<Published<'_>>> = BTreeMap::new();
    for slice in newest(slices, &mut gaps) {
        for device in slice.devices {
            let own = device.text_at(&["nodeName"]).or_else(|| device.text_at(&["basic", "nodeName"]));
            let Some(node) = own.or(slice.node) else {
                let what = format!("the device {} is left out: it is not of one node", name_of(device));
                gaps.push(Gap::new(device.place(), what));
                continue;
            };
            match NodeName::new(node) {
                Ok(node) => nodes.entry(node).or_default().push(Published::new(device, slice.driver)),
                Err(error) => {
                    gaps.push(Gap::new(
                        device.place(),
                        format!("{:?} is no name of a node: {error}", printable(node)),
                    ));
                }
            }
            if nodes.len() > NODES_MAX {
                return Err(ObjectError::TooManyNodes);
            }
        }
    }
    Ok(read_nodes(nodes, gaps))
}

fn read_nodes(nodes: BTreeMap<NodeName, Vec<Published<'_>>>, mut gaps: Vec<Gap>) -> Slices {
    let mut machines = Machines::default();
    let mut slices = Slices::default();
    for (name, devices) in nodes {
        let (machine, node) = read_node(&name, &devices, &mut gaps);
        slices.reading.graph.hosts.push(Host { machine: Some(machines.share(machine)), ..Host::new(name) });
        slices.nodes.push(node);
    }
    let is_several = |host: &Host| host.machine.as_ref().is_some_and(|machine| machine.devices.len() > 1);
    if slices.reading.graph.hosts.iter().any(is_several) {
        gaps.push(Gap::new(
            (0, 0),
            "slices do not tell which devices NVLink joins; links are those of PCIe alone",
        ));
    }
    slices.reading.gaps = gap::listed(gaps);
    slices
}

/// One ResourceSlice object.
struct Slice<'a> {
    driver: &'a str,
    pool: &'a str,
    generation: u64,
    /// How many slices the pool has.
    of: usize,
    node: Option<&'a str>,
    devices: Vec<&'a Tree>,
    place: (u32, u32),
}

fn slice<'a>(tree: &'a Tree, gaps: &mut Vec<Gap>) -> Option<Slice<'a>> {
    let place = tree.place();
    if tree.kind() == "ResourceSlice" {
        let Some(spec) = tree.get("spec") else {
            let what = format!(
                "the slice {} has no spec and is left out; versions before v1alpha3 are not read",
                name_of(tree)
            );
            gaps.push(Gap::new(place, what));
            return None;
        };
        let number = |path: &[&str]| spec.at(path).and_then(Tree::number::<u64>);
        return Some(Slice {
            driver: spec.text_at(&["driver"]).unwrap_or_default(),
            pool: spec.text_at(&["pool", "name"]).unwrap_or_default(),
            generation: number(&["pool", "generation"]).unwrap_or(0),
            of: number(&["pool", "resourceSliceCount"]).and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
            node: spec.text_at(&["nodeName"]).filter(|node| !node.is_empty()),
            devices: spec.items_at(&["devices"]).iter().collect(),
            place,
        });
    }
    let is_device =
        tree.kind().is_empty() && (tree.get("attributes").is_some() || tree.get("basic").is_some());
    is_device.then(|| {
        gaps.push(Gap::new(place, format!("no slice says which node the device {} is of", name_of(tree))));
        let driver = if tree.at(&["attributes", "uuid"]).is_some() { "gpu.nvidia.com" } else { "" };
        Slice { driver, pool: "", generation: 0, of: 0, node: Some(UNNAMED), devices: vec![tree], place }
    })
}

/// The slices of each pool's newest generation: older ones are about to be removed.
fn newest<'a>(slices: Vec<Slice<'a>>, gaps: &mut Vec<Gap>) -> Vec<Slice<'a>> {
    let mut pools: BTreeMap<(&str, &str), Vec<Slice<'a>>> = BTreeMap::new();
    for slice in slices {
        pools.entry((slice.driver, slice.pool)).or_default().push(slice);
    }
    let mut kept = Vec::new();
    for ((driver, pool), mut slices) in pools {
        let newest = slices.iter().map(|slice| slice.generation).max().unwrap_or(0);
        slices.retain(|slice| slice.generation == newest);
        if let Some(first) = slices.first()
            && first.of > slices.len()
        {
            let (have, of) = (slices.len(), first.of);
            let what =
                format!("the pool {} of {} has {have} of {of} slices", printable(pool), printable(driver));
            gaps.push(Gap::new(first.place, what));
        }
        kept.extend(slices);
    }
    kept
}

/// A device as its driver publishes it.
#[derive(Clone, Copy)]
struct Published<'a> {
    tree: &'a Tree,
    /// Where attributes and capacity are; before v1beta2 they stood in `basic`.
    body: &'a Tree,
    driver: &'a str,
}

impl<'a> Published<'a> {
    fn new(tree: &'a Tree, driver: &'a str) -> Self {
        Self { tree, body: tree.get("basic").unwrap_or(tree), driver }
    }

    fn name(&self) -> &'a str {
        self.tree.text_at(&["name"]).unwrap_or_default()
    }

    /// An attribute by its name, with or without the domain before it; the driver's own goes first.
    fn attribute(&self, name: &str) -> Option<&'a str> {
        let entries = self.body.get("attributes").map_or(&[][..], Tree::entries);
        let own = entries.iter().find(|(key, _)| key == name);
        let any =
            || entries.iter().find(|(key, _)| key.rsplit_once('/').is_some_and(|(_, last)| last == name));
        let (_, value) = own.or_else(any)?;
        // One of string, int, bool and version; lists have the plural.
        let (_, value) = value.entries().first()?;
        value.text().or_else(|| value.items().first()?.text()).map(str::trim).filter(|text| !text.is_empty())
    }

    fn first_of(&self, names: &[&str]) -> Option<&'a str> {
        names.iter().find_map(|name| self.attribute(name))
    }

    /// A capacity; v1alpha3 wrote the quantity without `value`.
    fn memory(&self) -> u64 {
        let entries = self.body.get("capacity").map_or(&[][..], Tree::entries);
        let of = |name: &str| entries.iter().find(|(key, _)| key.rsplit('/').next() == Some(name));
        let found = of("memory").or_else(|| of("addressableMemory"));
        let text = found.and_then(|(_, value)| value.text_at(&["value"]).or_else(|| value.text()));
        text.and_then(units::whole).unwrap_or(0)
    }

    fn kind(&self) -> &'a str {
        self.attribute("type").unwrap_or_default()
    }

    fn is_gpu(&self) -> bool {
        let of_driver =
            ["gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com", "tpu.google.com"].contains(&self.driver);
        of_driver || matches!(self.kind(), "gpu" | "mig" | "vfio" | "amdgpu")
    }

    /// A MIG slice or a partition of an AMD device.
    fn is_part(&self) -> bool {
        self.kind() == "mig" || self.kind().contains("partition")
    }

    fn is_nic(&self) -> bool {
        let is_virtual = self.attribute("virtual") == Some("true");
        !self.is_gpu()
            && !is_virtual
            && self.first_of(&["rdmaDevice", "ifName", "rdma", "pfName", "RDMADevice"]).is_some()
    }

    fn pci(&self) -> Option<String> {
        units::pci_address(self.first_of(&["pciBusID", "pciAddress", "pciAddr", "pciBusId"])?)
    }

    /// The PCIe root complex. Azure's VMs have `vmbus-numa-1` there, which is none.
    fn root(&self) -> Option<&'a str> {
        self.attribute("pcieRoot").filter(|root| root.starts_with("pci"))
    }

    fn numa(&self) -> Option<u32> {
        self.first_of(&["numa", "numaNode", "numaNodeID", "NUMANode"])?.parse().ok()
    }
}

fn name_of(tree: &Tree) -> String {
    printable(tree.name().unwrap_or("without a name"))
}

/// A device, and what is published about it under one UUID or PCI address.
struct Whole<'a> {
    device: Device,
    uuid: String,
    root: Option<&'a str>,
    index: Option<u32>,
    /// As published, for the order.
    name: String,
}

fn read_node(node: &NodeName, published: &[Published<'_>], gaps: &mut Vec<Gap>) -> (Machine, NodeDevices) {
    if published.len() > PUBLISHED_MAX {
        let count = published.len();
        let what = format!("the node {node} publishes {count} devices, and {PUBLISHED_MAX} are looked at");
        gaps.push(Gap::new((0, 0), what));
    }
    let published = published.get(..PUBLISHED_MAX).unwrap_or(published);
    let has_compute_domain = published.iter().any(|p| p.driver == COMPUTE_DOMAIN);
    let (parts, whole): (Vec<&Published<'_>>, Vec<&Published<'_>>) =
        published.iter().filter(|p| p.driver != COMPUTE_DOMAIN && p.is_gpu()).partition(|p| p.is_part());
    let mut devices: Vec<Whole<'_>> = Vec::new();
    // A GPU that may be passed through is published a second time, as vfio.
    for published in whole {
        let uuid = published.attribute("uuid").unwrap_or_default();
        merge(&mut devices, published, uuid, published.memory());
    }
    for published in &parts {
        // A GPU in MIG mode is not published itself.
        let uuid = published.first_of(&["parentUUID", "parentUuid"]).unwrap_or_default();
        merge(&mut devices, published, uuid, 0);
    }
    devices.sort_by(|a, b| {
        a.index
            .is_none()
            .cmp(&b.index.is_none())
            .then(a.index.cmp(&b.index))
            .then_with(|| natural_cmp(&a.name, &b.name))
    });
    let most = DEVICES_PER_NODE_MAX as usize;
    if devices.len() > most {
        gaps.push(Gap::new(
            (0, 0),
            format!(
                "{} of the node {node} are there, and {most} are kept",
                super::counted(devices.len(), "device")
            ),
        ));
        devices.truncate(most);
    }
    let mut nics: Vec<(Nic, Option<&str>)> = published.iter().filter(|p| p.is_nic()).map(nic).collect();
    nics.sort_by(|(a, _), (b, _)| {
        natural_cmp(&a.name, &b.name).then_with(|| a.pci_address.cmp(&b.pci_address))
    });
    nics.dedup_by(|(a, _), (b, _)| a == b);
    nics.truncate(topo_m::NICS_MAX);
    let parts = parts.iter().filter_map(|p| part(p, &mut devices, node, gaps)).collect();
    let (machine, uuids) = assemble(devices, nics);
    (machine, NodeDevices { uuids, parts: ordered(parts), has_compute_domain })
}

/// Adds what is published to the device of the same UUID or PCI address, or begins one.
fn merge<'a>(devices: &mut Vec<Whole<'a>>, published: &Published<'a>, uuid: &str, memory_bytes: u64) {
    let pci = published.pci();
    let is_same = |known: &&mut Whole<'_>| {
        if uuid.is_empty() || known.uuid.is_empty() {
            pci.is_some() && known.device.pci_address == pci
        } else {
            known.uuid == uuid
        }
    };
    let number = |names: &[&str]| published.first_of(names).and_then(|text| text.parse().ok());
    let index = if published.is_part() { None } else { number(&["index", "minor", "cardIndex"]) };
    if let Some(known) = devices.iter_mut().find(is_same) {
        known.device.numa = known.device.numa.or(published.numa());
        known.device.pci_address = known.device.pci_address.take().or(pci);
        known.device.memory_bytes = known.device.memory_bytes.max(memory_bytes);
        known.root = known.root.or(published.root());
        known.index = known.index.or(index);
        return;
    }
    let model = published.first_of(&["productName", "model", "chipType"]).unwrap_or_default();
    devices.push(Whole {
        device: Device {
            model: printable(model),
            pci_address: pci,
            numa: published.numa(),
            memory_bytes,
            ..Device::default()
        },
        uuid: printable(uuid),
        root: published.root(),
        index,
        name: printable(published.name()),
    });
}

fn nic<'a>(published: &Published<'a>) -> (Nic, Option<&'a str>) {
    let rdma = published.first_of(&["rdmaDevice", "RDMADevice"]).filter(|name| *name != "true");
    let name = rdma.or_else(|| published.attribute("ifName")).unwrap_or(published.name());
    let nic =
        Nic { name: printable(name), pci_address: published.pci(), numa: published.numa(), ..Nic::default() };
    (nic, published.root())
}

fn part(
    published: &Published<'_>,
    devices: &mut [Whole<'_>],
    node: &NodeName,
    gaps: &mut Vec<Gap>,
) -> Option<Part> {
    let parent = published.first_of(&["parentUUID", "parentUuid"]).unwrap_or_default();
    let pci = published.pci();
    let is_parent = |known: &&mut (u32, &mut Whole<'_>)| {
        if parent.is_empty() {
            pci.is_some() && known.1.device.pci_address == pci
        } else {
            known.1.uuid == parent
        }
    };
    let mut numbered: Vec<(u32, &mut Whole<'_>)> = (0..).zip(devices.iter_mut()).collect();
    let Some((at, whole)) = numbered.iter_mut().find(is_parent) else {
        let what = format!(
            "{} of the node {node} names no device that it is a part of",
            printable(published.name())
        );
        gaps.push(Gap::new(published.tree.place(), what));
        return None;
    };
    let uuid = published.attribute("uuid").unwrap_or_default();
    // A part without a UUID could be cut, and is not.
    whole.device.is_sliced |= !uuid.is_empty();
    Some(Part {
        parent: *at,
        name: printable(published.name()),
        uuid: printable(uuid),
        profile: printable(published.first_of(&["profile", "partitionProfile"]).unwrap_or_default()),
        memory_bytes: published.memory(),
    })
}

fn ordered(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_by(|a, b| a.parent.cmp(&b.parent).then_with(|| natural_cmp(&a.name, &b.name)));
    parts
}

fn assemble(wholes: Vec<Whole<'_>>, nics: Vec<(Nic, Option<&str>)>) -> (Machine, Vec<String>) {
    let mut machine = Machine::bare(Origin::Declared);
    let mut ports: Vec<super::Placed<'_>> = Vec::new();
    let mut uuids = Vec::with_capacity(wholes.len());
    for (at, whole) in (0..).zip(wholes) {
        ports.push((Port::Device(at), whole.root, whole.device.numa));
        uuids.push(whole.uuid);
        machine.devices.push(Device { name: format!("GPU{at}"), ..whole.device });
    }
    for (at, (nic, root)) in (0..).zip(nics) {
        ports.push((Port::Nic(at), root, nic.numa));
        machine.nics.push(nic);
    }
    machine.links = super::pcie_links(&ports);
    shape::finish(&mut machine);
    (machine, uuids)
}

impl From<Slices> for Graph {
    fn from(slices: Slices) -> Self {
        slices.reading.graph
    }
}
