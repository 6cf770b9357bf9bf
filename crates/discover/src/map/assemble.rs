//! From what was read to one map: machines completed, labels understood, fabrics joined.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use phalanx_model::{DomainName, End, Host, LevelName, Machine, Membership, NodeName, shape};

use super::join;
use crate::fabric::Reading;
use crate::gap::Gap;
use crate::objects::nodes::NodeObjects;
use crate::objects::{Preset, hyper_nodes};
use crate::pcie::Tree;
use crate::source::{Found, MachineReading, Overlay};

/// The level of NVLink domains that reach beyond a machine.
pub const NVLINK_DOMAIN: &str = "nvlink-domain";

/// What was read, and from where.
pub struct Part {
    /// As messages name it: the file.
    pub name: String,
    pub found: Found,
}

/// How to put it together.
#[derive(Default)]
pub struct Options {
    /// Which labels of nodes are levels; by what they carry when it is not given.
    pub preset: Option<Preset>,
    /// The name of the one host, where machines alone were read.
    pub host: Option<NodeName>,
}

/// All that was read, as one.
pub struct Assembled {
    pub reading: Reading,
    /// The machine that was read by itself, and stands in every host that has none of its own.
    pub machine: Option<MachineReading>,
    /// What could not be read, each with the file's name.
    pub gaps: Vec<(String, Gap)>,
    /// What was decided on the way; sentences without a full stop.
    pub notes: Vec<String>,
}

/// Puts together what was read.
///
/// Of machines, the first with devices counts: what is laid over it (NVLink state, `nvidia-smi -q`) adds to it,
/// then a vendor's tree, which has no devices or knows them by class alone, places them. `nvidia-smi -q` by
/// itself is a machine without links. Fabrics are joined by the names of hosts.
#[must_use]
pub fn assemble(parts: Vec<Part>, options: &Options) -> Assembled {
    let mut out =
        Assembled { reading: Reading::default(), machine: None, gaps: Vec::new(), notes: Vec::new() };
    let mut machines: Vec<(String, MachineReading)> = Vec::new();
    let mut overlays: Vec<(String, Overlay)> = Vec::new();
    let mut fabrics: Vec<Reading> = Vec::new();
    let mut nodes: Vec<NodeObjects> = Vec::new();
    let mut topologies = Vec::new();
    for Part { name, found } in parts {
        match found {
            Found::Machine(machine) => machines.push((name, *machine)),
            Found::Overlay(overlay) => overlays.push((name, *overlay)),
            Found::Fabric(mut reading) => {
                out.take_gaps(&name, &mut reading.gaps);
                fabrics.push(reading);
            }
            Found::Nodes(objects) => nodes.push(objects),
            Found::Topologies(mut found) => {
                out.take_gaps(&name, &mut found.gaps);
                topologies.push(found);
            }
            Found::Graphs(_) => {
                out.notes.push(format!("{name} says what NCCL chose and not what is there; it adds nothing"));
            }
        }
    }
    out.machine = one_machine(machines, &overlays, &mut out.gaps, &mut out.notes);
    let named = topologies.iter().flat_map(|found| &found.topologies).find_map(|t| t.preset.clone());
    let preset = options.preset.clone().or(named);
    for objects in &nodes {
        let preset = preset.clone().unwrap_or_else(|| Preset::detect(objects));
        let found = objects.by(&preset);
        out.notes.push(format!("labels are read as those of {}", found.preset));
        let mut reading = found.reading;
        out.take_gaps("nodes", &mut reading.gaps);
        fabrics.push(reading);
    }
    for found in topologies.iter().filter(|found| !found.hyper_nodes.is_empty()) {
        let mut reading = hyper_nodes::place(&found.hyper_nodes, nodes.first());
        out.take_gaps("hypernodes", &mut reading.gaps);
        fabrics.push(reading);
    }
    out.reading = join(fabrics);
    let is_alone = out.reading.graph.links.is_empty() && out.reading.graph.hosts.len() <= 1;
    out.place_machine(options.host.as_ref());
    out.take_nic_speeds();
    if let Some(found) = out.machine.as_ref().filter(|_| !is_alone) {
        // What is wrong with one machine by itself is no finding of a map.
        out.notes.extend(found.findings.iter().map(ToString::to_string));
    }
    out
}

impl Assembled {
    fn take_gaps(&mut self, name: &str, gaps: &mut Vec<Gap>) {
        self.gaps.extend(gaps.drain(..).map(|gap| (name.to_owned(), gap)));
    }

    /// The machine stands in every host that has none; alone, it is the one host.
    fn place_machine(&mut self, host: Option<&NodeName>) {
        let Some(found) = &self.machine else { return };
        let machine = Arc::new(found.machine.clone());
        if self.reading.graph.hosts.is_empty()
            && let Some(name) = host
        {
            let mut host = Host::new(name.clone());
            let level = LevelName::new(NVLINK_DOMAIN).ok();
            let domain = found.nvlink_domain.as_ref().and_then(|text| DomainName::new(text.as_str()).ok());
            host.domains.extend(level.zip(domain).map(|(level, domain)| Membership { level, domain }));
            self.reading.graph.hosts.push(host);
        }
        let mut kept = 0;
        for host in &mut self.reading.graph.hosts {
            match &host.machine {
                Some(own) if own.links.is_empty() && own.device_count() == machine.device_count() => {
                    host.machine = Some(Arc::new(linked_as(own, &machine)));
                }
                Some(_) => kept += 1,
                None => host.machine = Some(Arc::clone(&machine)),
            }
        }
        if kept > 0 {
            self.notes.push(format!("{kept} hosts have machines of their own, which stay as they are"));
        }
    }
}

impl Assembled {
    /// The cables of a host tell what its NICs carry, if nothing else does; otherwise the product tells what is usual.
    fn take_nic_speeds(&mut self) {
        let mut carried: Vec<Cables> = vec![Vec::new(); self.reading.graph.hosts.len()];
        for link in &self.reading.graph.links {
            for end in [link.a, link.b] {
                if let End::Host(host) = end
                    && link.mb_per_s > 0
                    && let Some(cables) = carried.get_mut(host as usize)
                {
                    cables.push((link.mb_per_s, link.cables));
                }
            }
        }
        // Hosts with one machine and equal cables share the new machine too.
        let mut known: BTreeMap<(*const Machine, Cables), Arc<Machine>> = BTreeMap::new();
        let mut kept = Vec::new();
        for (host, mut cables) in self.reading.graph.hosts.iter_mut().zip(carried) {
            let Some(machine) = &host.machine else { continue };
            cables.sort_unstable_by_key(|cable| Reverse(*cable));
            let key = (Arc::as_ptr(machine), cables);
            let with_speeds = match known.get(&key) {
                Some(known) => known,
                None => {
                    let new = with_nic_speeds(machine, &key.1);
                    known.entry(key).or_insert(new)
                }
            };
            let with_speeds = Arc::clone(with_speeds);
            // As long as it is a key.
            kept.extend(host.machine.replace(with_speeds));
        }
        if let Some(found) = &mut self.machine {
            found.machine.assume_nic_speeds();
            shape::rename(&mut found.machine);
        }
    }
}

/// Speed in MB/s one way, and how many of them.
type Cables = Vec<(u32, u16)>;

/// The fastest cables are those of the NICs for collectives; others are for storage and management. If there are fewer
/// cables than NICs, the other NICs are as fast: what the host has in total is its uplink.
fn with_nic_speeds(machine: &Arc<Machine>, cables: &[(u32, u16)]) -> Arc<Machine> {
    let mut new = Machine::clone(machine);
    let nics = u64::try_from(machine.collective_nics().len()).unwrap_or(u64::MAX);
    let (mut used, mut mb_per_s) = (0_u64, 0_u64);
    for (speed, count) in cables {
        let more = nics.saturating_sub(used).min(u64::from(*count));
        used += more;
        mb_per_s = mb_per_s.saturating_add(u64::from(*speed).saturating_mul(more));
    }
    let each = mb_per_s.checked_div(used).unwrap_or(0);
    new.share_nic_speed(each.saturating_mul(nics).saturating_mul(1_000_000));
    new.assume_nic_speeds();
    if new.nics == machine.nics {
        return Arc::clone(machine);
    }
    shape::rename(&mut new);
    Arc::new(new)
}

/// A machine of which only the devices are known, linked as another one of as many devices.
fn linked_as(own: &Machine, other: &Machine) -> Machine {
    let mut machine = other.clone();
    for (device, known) in machine.devices.iter_mut().zip(&own.devices) {
        if !known.model.is_empty() {
            device.model.clone_from(&known.model);
        }
        if known.memory_bytes > 0 {
            device.memory_bytes = known.memory_bytes;
        }
    }
    machine.cpu_milli = if own.cpu_milli > 0 { own.cpu_milli } else { machine.cpu_milli };
    machine.memory_bytes = if own.memory_bytes > 0 { own.memory_bytes } else { machine.memory_bytes };
    shape::rename(&mut machine);
    machine
}

/// A vendor's file, and what it tells by itself.
struct Vendors {
    name: String,
    tree: Tree,
    reading: MachineReading,
}

fn one_machine(
    machines: Vec<(String, MachineReading)>,
    overlays: &[(String, Overlay)],
    gaps: &mut Vec<(String, Gap)>,
    notes: &mut Vec<String>,
) -> Option<MachineReading> {
    let mut vendors: VecDeque<Vendors> = VecDeque::new();
    let mut chosen: Option<(String, MachineReading)> = None;
    for (name, mut reading) in machines {
        // A vendor's tree says where devices are, and not which.
        let is_vendors = reading.is_vendors || reading.machine.devices.is_empty();
        match (&chosen, reading.tree.take()) {
            (_, Some(tree)) if is_vendors => vendors.push_back(Vendors { name, tree, reading }),
            (None, tree) => {
                reading.tree = tree;
                chosen = Some((name, reading));
            }
            (Some((first, _)), _) => {
                notes.push(format!("{name} is a second machine beside {first}; it is left out"));
            }
        }
    }
    let (name, mut reading) = match chosen.or_else(|| of_overlays(overlays, notes)) {
        Some(chosen) => chosen,
        None => alone(vendors.pop_front()?, notes),
    };
    for (_, overlay) in overlays {
        reading.lay(overlay);
    }
    gaps.extend(reading.gaps.iter().map(|gap| (name.clone(), gap.clone())));
    // After what tells PCI addresses, by which the tree places devices.
    for Vendors { name: vendor, tree, reading: of_tree } in vendors {
        if reading.machine.devices.iter().all(|device| device.pci_address.is_none()) {
            let what = "which tells no PCI addresses; give the output of nvidia-smi -q as well";
            notes.push(format!("{vendor} cannot place the devices of {name}, {what}"));
            continue;
        }
        notes.push(format!("{vendor} places the devices of {name}"));
        gaps.extend(of_tree.gaps.into_iter().map(|gap| (vendor.clone(), gap)));
        let before = reading.gaps.len();
        reading.place(&tree);
        gaps.extend(reading.gaps.iter().skip(before).map(|gap| (name.clone(), gap.clone())));
    }
    Some(reading)
}

/// The devices of `nvidia-smi -q` where no reading tells how they are linked. Says what is missing.
fn of_overlays(overlays: &[(String, Overlay)], notes: &mut Vec<String>) -> Option<(String, MachineReading)> {
    for (name, overlay) in overlays {
        notes.push(format!("{name}: {}; give the output of nvidia-smi topo -m as well", overlay.lacks()));
    }
    overlays.iter().find_map(|(name, overlay)| match overlay {
        Overlay::Query(query) => Some((name.clone(), MachineReading::of_query(query))),
        _ => None,
    })
}

/// A vendor's file without a machine that it could place.
fn alone(vendors: Vendors, notes: &mut Vec<String>) -> (String, MachineReading) {
    let Vendors { name, tree, mut reading } = vendors;
    let what =
        if reading.machine.devices.is_empty() { "has no devices" } else { "has devices by class alone" };
    notes.push(format!("{name} {what}; give a reading of the machine as well, to complete it"));
    reading.tree = Some(tree);
    (name, reading)
}
