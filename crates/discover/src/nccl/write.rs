//! Writes a machine as a topology file for NCCL.
//!
//! A machine knows pairs, and NCCL's format a tree: ports that reach each other by one bridge stand below one
//! `<pci>`, and so on up to the CPU. Attributes of our own, which NCCL passes over, carry what its format
//! cannot say: `host_bridge` (NCCL knows no `NODE`), `mb_per_s`, `sliced` (MIG), `threads` (a mask of CPUs would be made
//! up, and NCCL would bind to it), `unknown_gpus` and `unknown_nics` (in a tree every pair has a way), and `true_busid`,
//! `true_numaid` and `true_cpu` beside what had to be made up.

mod fabric;
mod leaf;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use phalanx_model::{Device, DeviceMask, Link, LinkKind, Machine, Port};

use crate::pcie::{CpuKind, HexMask, lane_kv, named, nearest_link, pci_mb_per_s};
use crate::shape;
use fabric::Beside;
use leaf::{Clusters, Leaf, Level, leaves};

/// No machine has this domain. Made-up bridges have ffff, as in vendors' files.
const SWITCH_BUSID: &str = "fffc:00:00.0";

/// NCCL's topology XML. [`super::topo::parse`] reads the same links, NUMA nodes and NICs back from it, as far
/// as the links of the machine are those of a tree.
#[must_use]
pub fn write(machine: &Machine) -> String {
    // RCCL reads another version, and knows its GPUs by another class.
    let is_amd = machine.links.iter().any(|l| l.kind == LinkKind::Xgmi)
        || machine.devices.iter().any(|d| d.model.starts_with("AMD"));
    let (version, gpu_class) = if is_amd { ("2", "0x038000") } else { ("1", "0x030200") };
    let leaves = leaves(machine);
    let mut writer = Writer {
        machine,
        clusters: Clusters::new(machine, &leaves),
        beside: Beside::new(machine),
        leaves,
        gpu_class,
        bridges: 0,
        is_made_up: false,
        has_unknown: false,
        text: Text::default(),
    };
    let mut attributes = vec![("version", version.to_owned())];
    let told = [("threads", machine.cpu_milli / 1000), ("memory_bytes", machine.memory_bytes)];
    attributes.extend(told.iter().filter(|(_, n)| *n > 0).map(|(name, n)| (*name, n.to_string())));
    writer.text.open("system", &attributes);
    writer.cpus();
    writer.text.close("system");
    format!("<!-- Topology of the shape {}.\n{} -->\n{}", machine.shape, writer.notes(), writer.text.out)
}

type Attributes = Vec<(&'static str, String)>;

struct Writer<'a> {
    machine: &'a Machine,
    leaves: Vec<Leaf>,
    clusters: Clusters,
    beside: Beside,
    gpu_class: &'static str,
    /// How many bridges have been made up.
    bridges: u32,
    is_made_up: bool,
    /// Of some pair the machine does not say how it reaches each other.
    has_unknown: bool,
    text: Text,
}

impl Writer<'_> {
    /// What a person should know of the file.
    fn notes(&self) -> String {
        let mut notes = vec![if self.is_made_up {
            "  Where true_busid, true_numaid or true_cpu stands, the source did not tell\n  a PCI address, NUMA node or kind of CPU: what stands beside it is made up."
        } else {
            "  All PCI addresses and NUMA nodes are those of the machine."
        }];
        let is_between_devices = |l: &Link| matches!((l.a, l.b), (Port::Device(_), Port::Device(_)));
        if self.machine.devices.len() > 1 && !self.machine.links.iter().any(is_between_devices) {
            notes.push("  The source tells of no link between devices: the tree is made up.");
        } else if self.has_unknown {
            notes.push("  unknown_gpus and unknown_nics are masks of the peers that the source tells no link to:\n  between these the tree is made up.");
        }
        notes.join("\n")
    }

    fn cpus(&mut self) {
        let mut used = BTreeSet::new();
        let known = self.leaves.iter().filter_map(|leaf| leaf.numa);
        let mut free = known.max().map_or(0, |most| most.saturating_add(1));
        for cpu in self.clusters.of(Level::Numa, &(0..self.leaves.len()).collect::<Vec<_>>()) {
            let numa = cpu.iter().find_map(|leaf| self.leaves.get(*leaf)?.numa);
            let numaid = numa.filter(|n| used.insert(*n)).unwrap_or_else(|| {
                let made_up = free;
                free = free.saturating_add(1);
                made_up
            });
            let mut attributes = vec![("numaid", numaid.to_string())];
            if numa != Some(numaid) {
                attributes.push(true_numaid(numa));
                self.is_made_up = true;
            }
            attributes.extend(self.cpu_attributes(&cpu));
            self.is_made_up |= attributes.iter().any(|(name, _)| *name == "true_cpu");
            self.text.open("cpu", &attributes);
            // Without a pair that says NODE, NCCL's own view is enough: all of a CPU's devices are PHB.
            let has_node = self.clusters.has(LinkKind::Numa, &cpu);
            for (at, below) in self.clusters.of(Level::HostBridge, &cpu).iter().enumerate() {
                for top in self.clusters.of(Level::Bridges, below) {
                    let host_bridge = has_node.then(|| ("host_bridge", at.to_string()));
                    self.top(&top, numa, host_bridge);
                }
            }
            self.text.close("cpu");
        }
    }

    /// What has one way up: a device alone, a switch, or switches below one.
    fn top(&mut self, below: &[usize], numa: Option<u32>, mut host_bridge: Option<(&'static str, String)>) {
        let switches = self.clusters.of(Level::Switch, below);
        let is_nested = switches.len() > 1;
        if is_nested {
            self.open_bridge(below, host_bridge.take());
        }
        for below in &switches {
            let is_bridged = is_nested || below.len() > 1;
            if is_bridged {
                self.open_bridge(below, host_bridge.take());
            }
            for leaf in below {
                self.leaf(*leaf, numa, host_bridge.take());
            }
            if is_bridged {
                self.text.close("pci");
            }
        }
        if is_nested {
            self.text.close("pci");
        }
    }

    fn open_bridge(&mut self, below: &[usize], host_bridge: Option<(&'static str, String)>) {
        let (bus, device) = ((self.bridges >> 5) & 0xff, self.bridges & 0x1f);
        self.bridges += 1;
        let mut attributes =
            vec![("busid", format!("ffff:{bus:02x}:{device:02x}.0")), ("class", "0x060400".into())];
        attributes.extend(link_attributes(self.uplink(below)));
        attributes.extend(host_bridge);
        self.text.open("pci", &attributes);
    }

    /// What the way out of a set carries: by its pairs, or what the machine says of a group of these devices.
    fn uplink(&self, below: &[usize]) -> u32 {
        let (inside, devices) = self.ports_of(below);
        let links = self.machine.links.iter();
        let pairs = fastest(links.filter(|l| inside.contains(&l.a) != inside.contains(&l.b)));
        let mut groups = self.machine.groups.iter();
        let group = groups.find(|g| g.level.as_str() == shape::PCIE && g.devices == devices);
        pairs.max(group.map_or(0, |g| g.uplink_mb_per_s))
    }

    /// All ports of these leaves, and the devices among them.
    fn ports_of(&self, below: &[usize]) -> (BTreeSet<Port>, DeviceMask) {
        let leaves = below.iter().filter_map(|leaf| self.leaves.get(*leaf));
        let ports: BTreeSet<Port> = leaves.flat_map(|leaf| leaf.ports.iter().copied()).collect();
        let device = |port: &Port| if let Port::Device(i) = port { Some(*i) } else { None };
        let devices = ports.iter().filter_map(device).collect();
        (ports, devices)
    }

    /// A CPU whose way to other sockets carries what this one's does; which one it is a machine does not tell.
    fn cpu_attributes(&self, cpu: &[usize]) -> Attributes {
        let (inside, devices) = self.ports_of(cpu);
        let mut groups = self.machine.groups.iter();
        let group = groups.find(|g| g.level.as_str() == shape::SOCKET && g.devices == devices);
        let far = self
            .machine
            .links
            .iter()
            .filter(|l| l.kind == LinkKind::Socket && inside.contains(&l.a) != inside.contains(&l.b));
        // Without a group that tells, the fastest pair does.
        let pairs = far.map(|l| l.nominal_mb_per_s).max().unwrap_or(0);
        let mb_per_s = group.map_or(pairs, |g| g.uplink_mb_per_s);
        match CpuKind::with_uplink(mb_per_s) {
            Some(kind) if kind.vendor.is_empty() => {
                vec![("arch", kind.arch.into()), ("true_cpu", "unknown".into())]
            }
            Some(kind) => vec![
                ("arch", kind.arch.into()),
                ("vendor", kind.vendor.into()),
                ("familyid", kind.family.to_string()),
                ("modelid", kind.model.to_string()),
                ("true_cpu", "unknown".into()),
            ],
            None if mb_per_s > 0 => vec![("mb_per_s", mb_per_s.to_string())],
            None => Vec::new(),
        }
    }

    fn leaf(&mut self, at: usize, cpu_numa: Option<u32>, host_bridge: Option<(&'static str, String)>) {
        let Some(leaf) = self.leaves.get(at) else { return };
        let device = leaf.ports.first().and_then(|port| match port {
            Port::Device(i) => Some((*i, self.machine.devices.get(*i as usize)?)),
            Port::Nic(_) => None,
        });
        let class = if device.is_some() { self.gpu_class } else { "0x020700" };
        let mut attributes = vec![("busid", leaf.busid.to_string()), ("class", class.to_owned())];
        if leaf.is_made_up {
            attributes.push(("true_busid", "unknown".into()));
            self.is_made_up = true;
        }
        if leaf.numa != cpu_numa {
            attributes.push(true_numaid(leaf.numa));
        }
        if let Some(product) = device.and_then(|(_, device)| named(&device.model)) {
            attributes.push(("vendor", format!("0x{:04x}", product.vendor)));
            attributes.push(("device", format!("0x{:04x}", product.device)));
        }
        let links = self.machine.links.iter();
        let own = links.filter(|l| leaf.ports.contains(&l.a) || leaf.ports.contains(&l.b));
        attributes.extend(link_attributes(fastest(own)));
        attributes.extend(host_bridge);
        self.text.open("pci", &attributes);
        match device {
            Some((index, device)) => self.gpu(index, device),
            None => self.nic(at),
        }
        self.text.close("pci");
    }

    fn gpu(&mut self, index: u32, device: &Device) {
        let product = named(&device.model);
        let mut attributes = vec![("dev", index.to_string())];
        attributes.extend(product.filter(|p| p.sm > 0).map(|p| ("sm", p.sm.to_string())));
        if product.is_none() && !device.model.is_empty() {
            attributes.push(("model", device.model.clone()));
        }
        if device.memory_bytes > 0 {
            attributes.push(("memory_bytes", device.memory_bytes.to_string()));
        }
        if device.is_sliced {
            attributes.push(("sliced", "1".into()));
        }
        attributes.extend(self.unknown_from(Port::Device(index)));
        self.text.open("gpu", &attributes);
        if let Some((count, mb_per_s)) = self.beside.switch.get(&index) {
            let attributes = link_beside(SWITCH_BUSID.into(), *count, *mb_per_s, "0x068000");
            self.text.single("nvlink", &attributes);
        } else {
            for (to, kind, mb_per_s) in self.beside.of(index) {
                // Leaves begin with the devices, in their order.
                let Some(to) = self.leaves.get(*to as usize) else { continue };
                let (name, count) =
                    if let LinkKind::Nvlink(count) = kind { ("nvlink", *count) } else { ("xgmi", 1) };
                self.text.single(name, &link_beside(to.busid.to_string(), count, *mb_per_s, self.gpu_class));
            }
        }
        self.text.close("gpu");
    }

    fn nic(&mut self, at: usize) {
        self.text.open("nic", &[]);
        for port in &self.leaves.get(at).map_or_else(Vec::new, |leaf| leaf.ports.clone()) {
            let Port::Nic(index) = port else { continue };
            let Some(nic) = self.machine.nics.get(*index as usize) else { continue };
            let mut attributes = vec![("name", nic.name.clone()), ("dev", index.to_string())];
            if let Some(bytes_per_s) = nic.bytes_per_s.filter(|_| !nic.is_assumed) {
                let mb = bytes_per_s / 125_000;
                attributes.push(("speed", mb.to_string()));
                if mb * 125_000 != bytes_per_s || mb == 0 || mb >= u64::from(u32::MAX) {
                    attributes.push(("bytes_per_s", bytes_per_s.to_string()));
                }
            }
            attributes.extend(nic.alias.clone().map(|alias| ("alias", alias)));
            attributes.extend(self.unknown_from(*port));
            self.text.single("net", &attributes);
        }
        self.text.close("nic");
    }

    /// The later ports to which the machine has no link, as masks: short however many they are, as NCCL's parser
    /// takes 255 characters.
    fn unknown_from(&mut self, port: Port) -> Attributes {
        let is_unknown = |other: &Port| *other > port && self.machine.link(port, *other).is_none();
        let gpus = (0..self.machine.device_count()).filter(|i| is_unknown(&Port::Device(*i)));
        let nics = (0..).zip(&self.machine.nics).map(|(i, _)| i).filter(|i| is_unknown(&Port::Nic(*i)));
        let masks: [(_, HexMask); 2] = [("unknown_gpus", gpus.collect()), ("unknown_nics", nics.collect())];
        let masks = masks.iter().filter(|(_, mask)| mask.count() > 0);
        let attributes: Attributes = masks.map(|(name, mask)| (*name, mask.to_string())).collect();
        self.has_unknown |= !attributes.is_empty();
        attributes
    }
}

fn true_numaid(numa: Option<u32>) -> (&'static str, String) {
    ("true_numaid", numa.map_or_else(|| "unknown".into(), |n| n.to_string()))
}

fn link_beside(target: String, count: u8, mb_per_s: u32, tclass: &str) -> Attributes {
    vec![
        ("target", target),
        ("count", count.to_string()),
        ("mb_per_s", mb_per_s.to_string()),
        ("tclass", tclass.into()),
    ]
}

/// What a hop carries at least: as much as the fastest pair that takes it. A pair of unknown speed on one CPU
/// has no hop of known speed.
fn fastest<'a>(links: impl Iterator<Item = &'a Link>) -> u32 {
    let mut most = 0;
    for link in links.filter(|l| !shape::is_fabric(l.kind)) {
        if link.nominal_mb_per_s == 0 && link.kind != LinkKind::Socket {
            return 0;
        }
        most = most.max(link.nominal_mb_per_s);
    }
    most
}

/// Speed and lanes as NCCL counts them, and the number itself where no link has just this.
fn link_attributes(mb_per_s: u32) -> Attributes {
    if mb_per_s == 0 {
        return Vec::new();
    }
    let (speed, width) = nearest_link(mb_per_s);
    let mut attributes = vec![("link_speed", speed.to_owned()), ("link_width", width.to_string())];
    if lane_kv(speed).map(|kv| pci_mb_per_s(width, kv)) != Some(mb_per_s) {
        attributes.push(("mb_per_s", mb_per_s.to_string()));
    }
    attributes
}

/// XML in the form that NCCL's own parser reads: spaces alone, double quotes, one element a line.
#[derive(Default)]
struct Text {
    out: String,
    depth: usize,
}

impl Text {
    fn line(&mut self, name: &str, attributes: &[(&'static str, String)], end: &str) {
        let _ = write!(self.out, "{:1$}<{name}", "", self.depth * 2);
        for (key, value) in attributes {
            let _ = write!(self.out, " {key}=\"{}\"", escaped(value));
        }
        self.out += end;
    }

    fn open(&mut self, name: &str, attributes: &[(&'static str, String)]) {
        self.line(name, attributes, ">\n");
        self.depth += 1;
    }

    fn close(&mut self, name: &str) {
        self.depth = self.depth.saturating_sub(1);
        // An element without children is one tag.
        if self
            .out
            .trim_end()
            .rsplit('\n')
            .next()
            .is_some_and(|last| last.trim_start().starts_with(&format!("<{name}")) && !last.ends_with("/>"))
        {
            self.out.truncate(self.out.trim_end().len().saturating_sub(1));
            self.out += "/>\n";
        } else {
            let _ = writeln!(self.out, "{:1$}</{name}>", "", self.depth * 2);
        }
    }

    fn single(&mut self, name: &str, attributes: &[(&'static str, String)]) {
        self.line(name, attributes, "/>\n");
    }
}

fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '&' => text += "&amp;",
            '<' => text += "&lt;",
            '>' => text += "&gt;",
            '"' => text += "&quot;",
            c if c.is_control() => text.push(' '),
            c => text.push(c),
        }
    }
    text
}
