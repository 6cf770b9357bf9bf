//! From the tree to every pair: which way two ports reach each other, and what the slowest hop carries.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use phalanx_model::ids::natural_cmp;
use phalanx_model::{
    DEVICES_PER_NODE_MAX, Device, DeviceGroup, DeviceMask, LevelName, Link, LinkKind, Machine, Nic, Origin,
    Port,
};

use super::{Address, Fabric, FabricEnd, Gpu, Grain, Net, Node, Part, Tree};
use crate::gap::{Gap, listed};
use crate::shape;
use crate::topo_m::NICS_MAX;

/// The most bridges of one path that are one switch with others, and the others of each; real ones are pairs.
const PEERS_MAX: usize = 4;

/// A domain that a path goes through, from the CPU down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step<'a> {
    /// By its place in [`Tree::cpus`].
    Cpu(usize),
    HostBridge(&'a str),
    /// By its place among all nodes; names of bridges may repeat.
    Bridge(usize),
}

/// A port and the way to it: each step with what its link towards the CPU carries, its own link apart.
struct Place<'a> {
    node: &'a Node,
    path: Vec<(Step<'a>, u32)>,
    /// Switches on the path, and those that are one with them.
    switches: Vec<Address>,
    /// What the GPU's own link to its CPU carries beside PCIe; 0 without.
    beside_mb_per_s: u32,
}

impl Tree {
    /// The machine and what contradicts itself in the tree. Devices are in the vendor's order where the source
    /// numbers them, and by PCI address otherwise; NICs likewise, or by name.
    #[must_use]
    pub fn machine(&self) -> (Machine, Vec<Gap>) {
        self.machine_with(&[])
    }

    /// The same with links that go beside PCIe, by the machine's own order of devices.
    pub(crate) fn machine_with(&self, beside: &[Link]) -> (Machine, Vec<Gap>) {
        let mut gaps = Vec::new();
        let (mut gpus, mut nics) = (Vec::new(), Vec::new());
        for place in places(self) {
            match &place.node.part {
                Part::Gpu(gpu) => gpus.push((place, gpu)),
                Part::Nic(nets) if nets.is_empty() => nics.push((Rc::new(place), None)),
                Part::Nic(nets) => {
                    let place = Rc::new(place);
                    nics.extend(nets.iter().map(|net| (place.clone(), Some(net))));
                }
                Part::Bridge | Part::Other => {}
            }
        }
        let is_numbered = sort_gpus(&mut gpus);
        sort_nics(&mut nics);
        cut("devices", &mut gpus, DEVICES_PER_NODE_MAX as usize, &mut gaps, |(place, _)| place.node.at);
        cut("NICs", &mut nics, NICS_MAX, &mut gaps, |(place, _)| place.node.at);
        let mut machine = Machine {
            devices: (0..)
                .zip(&gpus)
                .map(|(i, (place, gpu))| device(i, place.node, gpu, is_numbered))
                .collect(),
            nics: (0..).zip(&nics).map(|(i, (place, net))| nic(i, place.node, *net)).collect(),
            cpu_milli: self.threads.saturating_mul(1000),
            memory_bytes: self.memory_bytes,
            ..Machine::bare(Origin::Declared)
        };
        let devices = (0..).map(Port::Device).zip(gpus.iter().map(|(place, _)| place));
        let ports: Vec<(Port, &Place<'_>)> =
            devices.chain((0..).map(Port::Nic).zip(nics.iter().map(|(place, _)| &**place))).collect();
        let unknown = self.unknown_pairs(&gpus, &nics);
        let mut switches: Vec<DeviceMask> = Vec::new();
        for (i, (a, from)) in ports.iter().enumerate() {
            for (b, to) in ports.iter().skip(i + 1) {
                let Some(kind) = kind_between(self.grain, from, to) else { continue };
                if let (Port::Device(a), Port::Device(b)) = (a, b)
                    && matches!(kind, LinkKind::PcieSwitch | LinkKind::PcieBridges)
                {
                    join(&mut switches, *a, *b);
                }
                if unknown.contains(&(*a, *b)) {
                    continue;
                }
                let nominal_mb_per_s = self.slowest(from, to, kind);
                machine.links.push(Link { nominal_mb_per_s, ..Link::new(*a, *b, kind) });
            }
        }
        // Of two links of a pair, the nearer one stays: NVLink before PCIe.
        machine.links.extend(fabric_links(&gpus, &mut gaps));
        machine.links.extend_from_slice(beside);
        set_switches(&mut machine, switches);
        shape::finish(&mut machine);
        self.set_uplinks(&mut machine, &gpus);
        // Uplinks count in the name of the shape.
        shape::finish(&mut machine);
        (machine, listed(gaps))
    }

    /// [`Tree::unknown`] by the machine's own order.
    fn unknown_pairs(
        &self,
        gpus: &[(Place<'_>, &Gpu)],
        nics: &[(Rc<Place<'_>>, Option<&Net>)],
    ) -> BTreeSet<(Port, Port)> {
        let gpus =
            (0..).zip(gpus).filter_map(|(i, (_, gpu))| Some((Port::Device(gpu.index?), Port::Device(i))));
        let nics =
            (0..).zip(nics).filter_map(|(i, (_, net))| Some((Port::Nic((*net)?.index?), Port::Nic(i))));
        let places: BTreeMap<Port, Port> = gpus.chain(nics).collect();
        let pair = |(a, b): &(Port, Port)| {
            let (a, b) = (*places.get(a)?, *places.get(b)?);
            Some((a.min(b), a.max(b)))
        };
        self.unknown.iter().filter_map(pair).collect()
    }

    /// The slowest hop between two ports; hops of unknown speed do not count, and 0 means that all are unknown.
    fn slowest(&self, a: &Place<'_>, b: &Place<'_>, kind: LinkKind) -> u32 {
        let common = common(a, b);
        let over_cpu = matches!(kind, LinkKind::HostBridge | LinkKind::Numa | LinkKind::Socket);
        let side = |place: &Place<'_>| {
            let hops = place.path.iter().skip(common).map(|(_, mb)| *mb);
            let pcie = least(hops.chain([place.node.mb_per_s]));
            if over_cpu { pcie.max(place.beside_mb_per_s) } else { pcie }
        };
        let between = match kind {
            LinkKind::Socket => least([self.uplink(a), self.uplink(b)]),
            _ => 0,
        };
        least([side(a), side(b), between])
    }

    fn uplink(&self, place: &Place<'_>) -> u32 {
        match place.path.first() {
            Some((Step::Cpu(cpu), _)) => self.cpus.get(*cpu).map_or(0, |cpu| cpu.uplink_mb_per_s),
            _ => 0,
        }
    }

    /// The way out of a PCIe group is the link of its topmost bridge; of a socket, the way to other sockets.
    fn set_uplinks(&self, machine: &mut Machine, gpus: &[(Place<'_>, &Gpu)]) {
        for group in &mut machine.groups {
            let members = gpus
                .iter()
                .enumerate()
                .filter(|(i, _)| u32::try_from(*i).is_ok_and(|i| group.devices.contains(i)));
            let mut tops: Vec<(Step<'_>, u32)> = match group.level.as_str() {
                shape::PCIE => members.filter_map(|(_, (place, _))| top_bridge(place)).collect(),
                shape::SOCKET if self.cpus.len() > 1 => members
                    .filter_map(|(_, (place, _))| {
                        place.path.first().map(|(step, _)| (*step, self.uplink(place)))
                    })
                    .collect(),
                _ => continue,
            };
            tops.dedup();
            // Two bridges that are one switch (`pcilink`) have two ways out.
            let is_known = tops.iter().all(|(_, mb)| *mb > 0);
            group.uplink_mb_per_s = match tops.as_slice() {
                [(_, mb)] => *mb,
                many if group.level.as_str() == shape::PCIE && is_known => {
                    many.iter().fold(0, |sum, (_, mb)| sum.saturating_add(*mb))
                }
                _ => 0,
            };
        }
    }
}

fn top_bridge<'a>(place: &Place<'a>) -> Option<(Step<'a>, u32)> {
    place.path.iter().find(|(step, _)| matches!(step, Step::Bridge(_))).copied()
}

/// Joins the sets that hold two devices.
fn join(sets: &mut Vec<DeviceMask>, a: u32, b: u32) {
    let pair = DeviceMask::one(a).union(DeviceMask::one(b));
    let (near, mut rest): (Vec<_>, Vec<_>) = sets.drain(..).partition(|set| !set.and(pair).is_empty());
    rest.push(near.into_iter().fold(pair, DeviceMask::union));
    *sets = rest;
}

/// The tree knows the devices of a switch also where NVLink hides it from the links.
fn set_switches(machine: &mut Machine, switches: Vec<DeviceMask>) {
    let Ok(level) = LevelName::new(shape::PCIE) else { return };
    machine.groups = switches.into_iter().map(|devices| DeviceGroup::new(level.clone(), devices)).collect();
}

/// The least of those that are known; 0 when none is.
fn least(speeds: impl IntoIterator<Item = u32>) -> u32 {
    speeds.into_iter().filter(|mb| *mb > 0).min().unwrap_or(0)
}

fn cut<T>(what: &str, all: &mut Vec<T>, most: usize, gaps: &mut Vec<Gap>, at: impl Fn(&T) -> (u32, u32)) {
    if let Some(first) = all.get(most) {
        gaps.push(Gap::new(at(first), format!("{} {what}, of which the first {most} are read", all.len())));
        all.truncate(most);
    }
}

/// All GPUs and NICs with their paths, in the order of the source.
fn places(tree: &Tree) -> Vec<Place<'_>> {
    let mut found = Vec::new();
    let mut seen = 0;
    let mut open = Vec::new();
    for (index, cpu) in tree.cpus.iter().enumerate().rev() {
        open.extend(cpu.nodes.iter().rev().map(|node| (node, vec![(Step::Cpu(index), 0)], Vec::new())));
    }
    while let Some((node, mut path, mut switches)) = open.pop() {
        seen += 1;
        path.extend(node.host_bridge.as_deref().map(|name| (Step::HostBridge(name), 0)));
        match &node.part {
            Part::Gpu(gpu) => {
                let to_cpu = gpu.fabric.iter().filter(|l| l.to == FabricEnd::Cpu).map(|l| l.mb_per_s);
                let beside_mb_per_s = to_cpu.fold(0, u32::saturating_add);
                found.push(Place { node, path, switches, beside_mb_per_s });
            }
            Part::Nic(_) => found.push(Place { node, path, switches, beside_mb_per_s: 0 }),
            Part::Bridge | Part::Other => {
                path.push((Step::Bridge(seen), node.mb_per_s));
                if !node.peers.is_empty() && switches.len() < PEERS_MAX {
                    switches.extend(node.address.iter().chain(&node.peers).take(PEERS_MAX));
                }
                open.extend(node.nodes.iter().rev().map(|child| (child, path.clone(), switches.clone())));
            }
        }
    }
    found
}

/// By the vendor's numbers if each GPU has its own. Says whether they have.
fn sort_gpus(gpus: &mut [(Place<'_>, &Gpu)]) -> bool {
    let is_numbered = is_numbering(gpus.iter().map(|(_, gpu)| gpu.index));
    gpus.sort_by_key(|(place, gpu)| (gpu.index.filter(|_| is_numbered), place.node.address));
    is_numbered
}

fn sort_nics(nics: &mut [(Rc<Place<'_>>, Option<&Net>)]) {
    let is_numbered = is_numbering(nics.iter().map(|(_, net)| net.and_then(|n| n.index)));
    nics.sort_by(|(a, x), (b, y)| {
        let name = |net: &Option<&Net>| net.map(|n| n.name.clone()).unwrap_or_default();
        let index = |net: &Option<&Net>| net.and_then(|n| n.index).filter(|_| is_numbered);
        let unnamed = name(x).is_empty().cmp(&name(y).is_empty());
        index(x)
            .cmp(&index(y))
            .then(unnamed)
            .then_with(|| natural_cmp(&name(x), &name(y)))
            .then_with(|| a.node.address.cmp(&b.node.address))
    });
}

/// Whether everything has a number, and no number stands twice.
fn is_numbering(numbers: impl Iterator<Item = Option<u32>>) -> bool {
    let mut seen = BTreeSet::new();
    let mut all = numbers.peekable();
    all.peek().is_some() && all.all(|number| number.is_some_and(|n| seen.insert(n)))
}

fn device(place: u32, node: &Node, gpu: &Gpu, is_numbered: bool) -> Device {
    Device {
        name: format!("GPU{}", gpu.index.filter(|_| is_numbered).unwrap_or(place)),
        model: gpu.model.clone(),
        pci_address: address_of(node),
        numa: node.numa,
        memory_bytes: gpu.memory_bytes,
        is_sliced: gpu.is_sliced,
    }
}

fn address_of(node: &Node) -> Option<String> {
    node.address.filter(|_| !node.is_made_up).map(|a| a.to_string())
}

fn nic(place: u32, node: &Node, net: Option<&Net>) -> Nic {
    let name = net.map(|n| n.name.clone()).filter(|name| !name.is_empty());
    Nic {
        name: name.unwrap_or_else(|| format!("NIC{place}")),
        alias: net.and_then(|n| n.alias.clone()),
        pci_address: address_of(node),
        numa: node.numa,
        bytes_per_s: net.and_then(|n| n.bytes_per_s),
        is_assumed: false,
    }
}

/// How many steps two paths share.
fn common(a: &Place<'_>, b: &Place<'_>) -> usize {
    a.path.iter().zip(&b.path).take_while(|((x, _), (y, _))| x == y).count()
}

/// As NCCL has it (`ncclTopoSetPaths` in `src/graph/paths.cc`), and `nvidia-smi topo` where host bridges are
/// known: what the two paths share last decides.
fn kind_between(grain: Grain, a: &Place<'_>, b: &Place<'_>) -> Option<LinkKind> {
    // Interfaces of one NIC, or functions of one device.
    let is_one_device = match (a.node.address, b.node.address) {
        (Some(x), Some(y)) => x.is_beside(y),
        _ => std::ptr::eq(a.node, b.node),
    };
    if is_one_device {
        return Some(LinkKind::PcieSwitch);
    }
    let common = common(a, b);
    let is_host_bridge = |place: &Place<'_>| matches!(place.path.get(common), Some((Step::HostBridge(_), _)));
    let is_one_switch = a.switches.iter().any(|switch| b.switches.contains(switch));
    match common.checked_sub(1).and_then(|last| a.path.get(last)).map(|(step, _)| *step) {
        Some(Step::Bridge(_)) => {
            // Bridges that one end has to itself. A switch that is told by its ports has one for each end.
            let own = |place: &Place<'_>| place.path.len().saturating_sub(common);
            let free = if grain == Grain::Port { 1 } else { 0 };
            let is_near = own(a) <= free && own(b) <= free;
            Some(if is_near { LinkKind::PcieSwitch } else { LinkKind::PcieBridges })
        }
        _ if is_one_switch => Some(LinkKind::PcieBridges),
        Some(Step::HostBridge(_)) => Some(LinkKind::HostBridge),
        Some(Step::Cpu(_)) if is_host_bridge(a) && is_host_bridge(b) => {
            // Host bridges that hang on no NUMA node in particular may be far from each other.
            let is_near = a.node.numa.is_some() || grain == Grain::Switch;
            is_near.then_some(LinkKind::Numa)
        }
        Some(Step::Cpu(_)) => Some(LinkKind::HostBridge),
        // Ports of machines that do not say where they hang are far only where both say so.
        None if grain == Grain::Port && (a.node.numa.is_none() || b.node.numa.is_none()) => None,
        None => Some(LinkKind::Socket),
    }
}

/// The pairs that NVLink or xGMI joins: kind and what it carries, one way.
fn fabric_links(gpus: &[(Place<'_>, &Gpu)], gaps: &mut Vec<Gap>) -> Vec<Link> {
    let by_address: BTreeMap<Address, u32> =
        gpus.iter().zip(0..).filter_map(|((place, _), i)| Some((place.node.address?, i))).collect();
    // What each GPU says of each other: links and MB/s, NVLink and xGMI apart.
    let mut told: BTreeMap<(u32, u32, bool), (u32, u32)> = BTreeMap::new();
    // Ends of unknown class, and who leads there.
    let mut shared: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for ((_, gpu), from) in gpus.iter().zip(0..) {
        for link in &gpu.fabric {
            if let FabricEnd::Unknown(text) = &link.to {
                shared.entry(text).or_default().insert(from);
            }
        }
    }
    let mut switched: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    for ((_, gpu), from) in gpus.iter().zip(0..) {
        for link in &gpu.fabric {
            let slot = match resolve(&link.to, &by_address, &shared) {
                Ok(None) => continue,
                Ok(Some(Target::Switch)) => switched.entry(from).or_default(),
                Ok(Some(Target::Gpu(to))) if to != from => {
                    told.entry((from, to, link.kind == Fabric::Xgmi)).or_default()
                }
                Ok(Some(Target::Gpu(_))) => {
                    gaps.push(Gap::new(link.at, "the GPU is linked with itself; the link is left out"));
                    continue;
                }
                Err(to) => {
                    gaps.push(Gap::new(
                        link.at,
                        format!("a link leads to {to:?}, which is no GPU of this map"),
                    ));
                    continue;
                }
            };
            *slot = (slot.0.saturating_add(link.count), slot.1.saturating_add(link.mb_per_s));
        }
    }
    let mut found = Vec::new();
    let mut add = |a: u32, b: u32, kind, nominal_mb_per_s| {
        let (a, b) = (Port::Device(a.min(b)), Port::Device(a.max(b)));
        found.push(Link { a, b, kind, nominal_mb_per_s });
    };
    for (a, x) in &switched {
        for (b, y) in switched.range(a + 1..) {
            // Through a switch, a pair has as many as the one with fewer.
            let links = x.0.min(y.0);
            add(*a, *b, nvlinks(links), least([x.1, y.1]));
        }
    }
    for ((from, to, is_xgmi), there) in &told {
        let back = told.get(&(*to, *from, *is_xgmi));
        if let Some(back) = back.filter(|back| back.0 != there.0 && from < to) {
            let at = gpus.get(*from as usize).map_or((0, 0), |(place, _)| place.node.at);
            let what = format!(
                "GPU {from} says {} links to GPU {to}, which says {}; the fewer are taken",
                there.0, back.0
            );
            gaps.push(Gap::new(at, what));
        }
        let links = back.map_or(there.0, |back| back.0.min(there.0));
        let kind = if *is_xgmi { LinkKind::Xgmi } else { nvlinks(links) };
        // One of two ends tells for both.
        if back.is_none() || from < to {
            add(*from, *to, kind, least([there.1, back.map_or(0, |back| back.1)]));
        }
    }
    found
}

enum Target {
    Gpu(u32),
    Switch,
}

/// Where a link leads: nowhere of interest for a CPU. An end of unknown class is a switch if more than one GPU
/// leads there and it is none.
fn resolve(
    to: &FabricEnd,
    by_address: &BTreeMap<Address, u32>,
    shared: &BTreeMap<&str, BTreeSet<u32>>,
) -> Result<Option<Target>, String> {
    match to {
        FabricEnd::Cpu => Ok(None),
        FabricEnd::Switch => Ok(Some(Target::Switch)),
        FabricEnd::Gpu(address) => {
            by_address.get(address).map(|gpu| Some(Target::Gpu(*gpu))).ok_or_else(|| address.to_string())
        }
        FabricEnd::Unknown(text) => {
            if let Some(gpu) = Address::read(text).and_then(|address| by_address.get(&address)) {
                return Ok(Some(Target::Gpu(*gpu)));
            }
            let is_shared = shared.get(text.as_str()).is_some_and(|from| from.len() > 1);
            if is_shared { Ok(Some(Target::Switch)) } else { Err(text.clone()) }
        }
    }
}

fn nvlinks(count: u32) -> LinkKind {
    LinkKind::Nvlink(u8::try_from(count).unwrap_or(u8::MAX))
}
