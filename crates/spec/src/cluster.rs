//! The cluster file: machines, where they stand, and what the links between them carry.
//!
//! No file is read here. A node may name a topology text (`nvidia-smi topo -m`), which the caller reads and
//! joins with what the file says.

mod build;
mod exceptions;
mod of_map;

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_model::{DEVICES_PER_NODE_MAX, DeviceMask, DomainName, LevelName, Levels, NodeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Place, Source, SpecError, listed, nearest, quote};
use crate::pattern::NamePattern;
use crate::place::At;
use crate::scalar::{Bandwidth, Count, Cpus, DeclaredLinkKind, DeviceRange, Memory, Span};
use crate::yaml;

pub use build::{BuildError, Hardware};
pub use of_map::Written;

/// Most nodes in one file, after patterns are written out.
pub const NODES_MAX: usize = 100_000;
/// Most levels above the node.
const LEVELS_MAX: usize = 16;
/// The level of the machine itself.
pub const NODE_LEVEL: &str = "node";
/// Largest bandwidth of a link: a cost table counts 10^6 bytes/s in a `u32`.
const BANDWIDTH_MAX: u64 = u32::MAX as u64 * 1_000_000;

/// Machines, where they stand, and what the links between them carry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Phalanx cluster")]
pub struct ClusterFile {
    /// Name of the cluster. Default: `cluster`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<At<DomainName>>,
    /// Levels above the node, outermost first, e.g. `[cluster, block, leaf]`. Default: `[cluster]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<Vec<At<LevelName>>>,
    /// The machines.
    pub nodes: Vec<NodeFile>,
    /// What the uplink of one domain of a level carries; `node` is the uplink of one node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<At<LevelName>, LinkFile>,
    /// Single domains or nodes whose uplink differs from that of their level.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uplinks: Vec<UplinkFile>,
    /// What was measured between nodes or devices; `phalanx topo probe` writes it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<MeasuredFile>,
    /// File with the constants of the cost model, relative to this file; `phalanx topo calibrate -o` writes it.
    /// Default: those of public measurements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constants: Option<At<String>>,
    /// The text that the places point into.
    #[serde(skip)]
    #[schemars(skip)]
    pub source: Source,
}

/// One machine, or several that differ in their name alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeFile {
    /// Name, or a pattern for several: `node-[1-4]`, `node-[01-16]`, `node-[1-4,7]`.
    pub name: At<NamePattern>,
    /// File with the output of `nvidia-smi topo -m`, relative to this file. Give this or `devices`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topo: Option<At<String>>,
    /// Devices that are declared and not found. Give this or `topo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<DevicesFile>,
    /// Product name of the devices of `topo`, e.g. `NVIDIA H100 80GB HBM3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<At<String>>,
    /// Memory of one device of `topo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<At<Memory>>,
    /// Logical CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<At<Cpus>>,
    /// Memory of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<At<Memory>>,
    /// Domain of each level: `{block: b1, leaf: leaf-1}`. The outermost may be left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub path: BTreeMap<At<LevelName>, At<DomainName>>,
    /// Host name or IP address that other ranks reach, with a pattern where the name has one. Default: the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<At<String>>,
    /// All network interfaces for collectives together, one way: `12.5GB/s` or `100Gb/s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic_bandwidth: Option<At<Bandwidth>>,
    /// Devices that others hold: `[GPU0, 3, "4-7"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy: Vec<At<DeviceRange>>,
}

/// Equal devices, linked alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DevicesFile {
    /// Number of devices, at most 64.
    pub count: At<Count>,
    /// Product name, e.g. `NVIDIA H100 80GB HBM3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<At<String>>,
    /// Memory of one device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<At<Memory>>,
    /// How every two devices are linked; `nvlink` counts the links of the `model`. Default: pcie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<At<DeclaredLinkKind>>,
}

/// What the uplink of one domain carries, and what joins its devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkFile {
    /// Of the uplink, one way: `50GB/s` or `400Gb/s`. Optional where `inside` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<At<Bandwidth>>,
    /// What one device has to any other of the domain without touching a NIC, one way, as the line carries it:
    /// `900GB/s` for the NVLinks of an NVL72 rack. Default: nothing but the NICs join the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<At<Bandwidth>>,
    /// Time of one crossing, e.g. `2us`. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<At<Span>>,
}

/// The uplink of one domain or node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UplinkFile {
    /// The node; give this or `path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<At<String>>,
    /// The domain: `{block: b1, leaf: leaf-3}`. The outermost level may be left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub path: BTreeMap<At<LevelName>, At<DomainName>>,
    /// One way: `50GB/s` or `400Gb/s`.
    pub bandwidth: At<Bandwidth>,
    /// Time of one crossing, e.g. `2us`. Default: that of the level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<At<Span>>,
}

/// What was measured between two nodes, or two devices of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasuredFile {
    /// One end: a node, or `NODE/2` for its device 2.
    pub a: At<String>,
    /// The other end.
    pub b: At<String>,
    /// One way.
    pub bandwidth: At<Bandwidth>,
    /// Of a small message, one way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<At<Span>>,
    /// How it was measured: the program and its transport.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<At<String>>,
}

/// A cluster file, checked, with every node written out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub name: DomainName,
    pub levels: Levels,
    /// In the order of the file.
    pub nodes: Vec<DeclaredNode>,
    /// By level, `node` included.
    pub links: BTreeMap<LevelName, DeclaredLink>,
    /// Sorted by path; a node's path ends with its own name.
    pub uplinks: Vec<(Vec<DomainName>, DeclaredLink)>,
    pub measured: Vec<MeasuredPair>,
    /// File with the constants of the cost model, as written: relative to the cluster file.
    pub constants: Option<String>,
}

/// What was measured between two ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredPair {
    pub a: MeasuredEnd,
    pub b: MeasuredEnd,
    /// One way.
    pub bytes_per_s: u64,
    /// 0 when it was not measured.
    pub latency_ns: u64,
    pub by: Option<String>,
}

/// A node, or one device of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MeasuredEnd {
    pub node: NodeName,
    pub device: Option<u32>,
}

/// One machine as the file tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredNode {
    pub name: NodeName,
    /// One domain for each level above the node, outermost first.
    pub path: Vec<DomainName>,
    /// Shared by the nodes of one entry.
    pub hardware: Arc<DeclaredHardware>,
    pub address: Option<String>,
    pub busy: DeviceMask,
    /// Line of the cluster file, for messages; 0 when unknown.
    pub line: u32,
}

/// What a node is made of. Equal declarations make equal machines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeclaredHardware {
    /// Path of a topology text, as written: relative to the cluster file.
    pub topo: Option<String>,
    /// Never together with `topo`; without both the node has no devices.
    pub devices: Option<DeclaredDevices>,
    /// Product name and memory that a topology text does not tell.
    pub model: Option<String>,
    pub gpu_memory_bytes: Option<u64>,
    pub cpu_milli: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// All network interfaces together, one way.
    pub nic_bytes_per_s: Option<u64>,
}

/// Equal devices, every two linked alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeclaredDevices {
    pub count: u32,
    /// Empty when unknown.
    pub model: String,
    /// Of one device; 0 when unknown.
    pub memory_bytes: u64,
    pub link: DeclaredLinkKind,
}

/// The uplink of one domain, and what joins its devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeclaredLink {
    /// One way; 0 when the file does not say.
    pub bytes_per_s: u64,
    pub latency_ns: u64,
    /// From one device to any other of the domain without a NIC, one way; 0: there is no such way.
    pub inside_bytes_per_s: u64,
}

impl ClusterFile {
    /// Reads one YAML document. `source_name` is shown in errors.
    ///
    /// # Errors
    /// When the text is no YAML, has an unknown field, or a value that its field does not take.
    pub fn from_yaml(text: &str, source_name: &str) -> Result<Self, SpecError> {
        let source = Source::new(source_name, text);
        let file: Self = yaml::read(&source, text)?;
        Ok(Self { source, ..file })
    }

    /// Checks what concerns more than one field and writes the patterns out.
    ///
    /// # Errors
    /// When two nodes have one name, a level is not known, a path is not complete, or fields contradict.
    pub fn into_cluster(self) -> Result<Cluster, SpecError> {
        let above = self.levels()?;
        if self.nodes.is_empty() {
            let accepted = "expected a list of machines, such as `nodes: [{name: a, devices: {count: 8}}]`";
            return Err(self.source.error(Place::Nowhere, "the cluster has no nodes", accepted));
        }
        let mut nodes = Vec::new();
        let mut places: BTreeMap<NodeName, Place> = BTreeMap::new();
        for file in &self.nodes {
            for node in self.expand(file, &above, NODES_MAX - nodes.len())? {
                if let Some(first) = places.insert(node.name.clone(), file.name.place) {
                    return Err(self.duplicate(&node.name, first, file.name.place));
                }
                nodes.push(node);
            }
        }
        let links = self.links(&above)?;
        let known: BTreeMap<&NodeName, &DeclaredNode> =
            nodes.iter().map(|node: &DeclaredNode| (&node.name, node)).collect();
        let uplinks = self.uplinks(&above, &links, &known)?;
        let measured = self.measured(&known)?;
        let name = self.name.as_ref().map_or_else(default_cluster, |name| name.value.clone());
        if let Some(empty) = self.constants.as_ref().filter(|file| file.value.is_empty()) {
            return Err(self.source.error(
                empty.place,
                "is empty",
                "expected the path of a file of constants",
            ));
        }
        let constants = self.constants.map(|file| file.value);
        let levels = Levels::new(above, node_level());
        Ok(Cluster { name, levels, nodes, links, uplinks, measured, constants })
    }

    fn levels(&self) -> Result<Vec<LevelName>, SpecError> {
        let Some(levels) = &self.levels else { return Ok(vec![cluster_level()]) };
        let mut seen: BTreeMap<&LevelName, Place> = BTreeMap::new();
        for level in levels {
            if level.value.as_str() == NODE_LEVEL {
                let accepted = "expected the levels above it only; the machine is always the level `node`";
                return Err(self.source.error(
                    level.place,
                    "`node` is the level of the machine itself",
                    accepted,
                ));
            }
            if let Some(first) = seen.insert(&level.value, level.place) {
                let what = format!("the level {} is given twice", level.value);
                let error = self.source.error(level.place, what, "give every level once, outermost first");
                return Err(error.also(&self.source, first, "the first"));
            }
        }
        match levels.get(LEVELS_MAX).or_else(|| levels.first()) {
            None => Err(self.source.error(
                Place::Nowhere,
                "`levels` is empty",
                "leave it out, or name at least one",
            )),
            Some(level) if levels.len() > LEVELS_MAX => {
                let what = format!("{} levels", levels.len());
                Err(self.source.error(level.place, what, format!("at most {LEVELS_MAX}")))
            }
            Some(_) => Ok(levels.iter().map(|level| level.value.clone()).collect()),
        }
    }

    /// The nodes of one entry.
    fn expand(
        &self,
        file: &NodeFile,
        above: &[LevelName],
        room: usize,
    ) -> Result<Vec<DeclaredNode>, SpecError> {
        let wanted = file.name.value.count();
        if wanted > room {
            let what = format!(
                "{} is {wanted} nodes more, and a cluster has at most {NODES_MAX}",
                quote(file.name.value.text())
            );
            return Err(self.source.error(file.name.place, what, ""));
        }
        let hardware = Arc::new(DeclaredHardware {
            topo: file.topo.as_ref().map(|topo| topo.value.clone()),
            devices: self.devices(file)?,
            model: file.model.as_ref().map(|model| model.value.clone()),
            gpu_memory_bytes: file.gpu_memory.map(|memory| memory.value.0),
            cpu_milli: file.cpus.map(|cpus| cpus.value.0),
            memory_bytes: file.memory.map(|memory| memory.value.0),
            nic_bytes_per_s: file.nic_bandwidth.map(|bandwidth| bandwidth.value.0),
        });
        let busy = self.busy(file)?;
        let path = self.path(&file.path, file.name.place, above)?;
        let addresses = self.addresses(file)?;
        let mut nodes = Vec::with_capacity(wanted);
        for (at, name) in file.name.value.names().enumerate() {
            let name = NodeName::new(name)
                .map_err(|error| self.source.error(file.name.place, error.to_string(), ""))?;
            nodes.push(DeclaredNode {
                name,
                path: path.clone(),
                hardware: Arc::clone(&hardware),
                address: addresses.get(at).cloned(),
                busy,
                line: if let Place::File { line, .. } = file.name.place { line } else { 0 },
            });
        }
        Ok(nodes)
    }

    fn devices(&self, file: &NodeFile) -> Result<Option<DeclaredDevices>, SpecError> {
        if let Some(topo) = &file.topo
            && topo.value.is_empty()
        {
            return Err(self.source.error(topo.place, "is empty", "expected the path of a topology text"));
        }
        let Some(devices) = &file.devices else { return Ok(None) };
        if let Some(topo) = &file.topo {
            let error =
                self.source.error(topo.place, "`topo` and `devices` are both given", "give one of them");
            return Err(error.also(&self.source, devices.count.place, "the other one"));
        }
        let again = [
            (file.model.as_ref().map(|at| at.place), devices.model.as_ref().map(|at| at.place)),
            (file.gpu_memory.map(|at| at.place), devices.memory.map(|at| at.place)),
        ];
        if let Some((outer, inner)) = again.iter().find_map(|(outer, inner)| Some(((*outer)?, (*inner)?))) {
            let error = self.source.error(outer, "is given a second time", "give it inside `devices` only");
            return Err(error.also(&self.source, inner, "the first"));
        }
        let count = devices.count.value.0;
        if count > DEVICES_PER_NODE_MAX {
            let what = format!("{count} devices on one node");
            return Err(self.source.error(
                devices.count.place,
                what,
                format!("at most {DEVICES_PER_NODE_MAX}"),
            ));
        }
        let model = devices.model.as_ref().or(file.model.as_ref());
        let model = model.map(|model| model.value.clone()).unwrap_or_default();
        if let Some(link) = devices.link.filter(|link| link.value == DeclaredLinkKind::Nvlink) {
            let accepted =
                "expected a known product such as `model: NVIDIA H100`, or `topo:` in place of `devices:`";
            build::nvlinks(&model).map_err(|what| self.source.error(link.place, what, accepted))?;
        }
        Ok(Some(DeclaredDevices {
            count,
            model,
            memory_bytes: devices.memory.or(file.gpu_memory).map_or(0, |memory| memory.value.0),
            link: devices.link.map_or(DeclaredLinkKind::Pcie, |link| link.value),
        }))
    }

    fn busy(&self, file: &NodeFile) -> Result<DeviceMask, SpecError> {
        let count = file.devices.as_ref().map(|devices| devices.count.value.0);
        let mut mask = DeviceMask::EMPTY;
        for range in &file.busy {
            let limit = match (count, &file.topo) {
                (Some(count), _) => count,
                (None, Some(_)) => DEVICES_PER_NODE_MAX,
                (None, None) => 0,
            };
            if range.value.last >= limit {
                let what = format!("device {} does not exist: the node has {limit}", range.value.last);
                return Err(self.source.error(range.place, what, "devices count from 0"));
            }
            mask = mask.union((range.value.first..=range.value.last).collect());
        }
        Ok(mask)
    }

    /// One domain for each level; the outermost is the cluster itself unless it is named.
    fn path(
        &self,
        said: &BTreeMap<At<LevelName>, At<DomainName>>,
        place: Place,
        above: &[LevelName],
    ) -> Result<Vec<DomainName>, SpecError> {
        if let Some((level, _)) = said.iter().find(|(level, _)| !above.contains(&level.value)) {
            return Err(self.unknown_level(level, above));
        }
        let mut path = Vec::with_capacity(above.len());
        for (depth, level) in above.iter().enumerate() {
            match said.get(&At::from(level.clone())) {
                Some(domain) => path.push(domain.value.clone()),
                None if depth == 0 => {
                    path.push(self.name.as_ref().map_or_else(default_cluster, |name| name.value.clone()));
                }
                None => {
                    let what = format!("the path says nothing about the level {level}");
                    let accepted =
                        format!("expected `path: {{{level}: NAME}}`; the levels are {}", listed(above));
                    return Err(self.source.error(place, what, accepted));
                }
            }
        }
        Ok(path)
    }

    /// As many addresses as names, or none.
    fn addresses(&self, file: &NodeFile) -> Result<Vec<String>, SpecError> {
        let Some(address) = &file.address else { return Ok(Vec::new()) };
        let names = file.name.value.count();
        // A colon or percent sign may stand in an IPv6 address, so brackets are the only thing looked at.
        let pattern =
            NamePattern::parse(&address.value).map_err(|what| self.source.error(address.place, what, ""))?;
        if pattern.count() != names {
            let what = format!("{} for {names} nodes", counted(pattern.count(), "address", "addresses"));
            let accepted = "expected a pattern with as many numbers as the name has, such as 10.0.0.[1-4]";
            let error = self.source.error(address.place, what, accepted);
            return Err(error.also(&self.source, file.name.place, "the nodes"));
        }
        let addresses: Vec<String> = pattern.names().collect();
        if !addresses.iter().all(|address| is_address(address)) {
            let what = format!("{} is neither a host name nor an IP address", quote(&address.value));
            return Err(self.source.error(
                address.place,
                what,
                "expected one such as node-1.example or 10.0.0.1",
            ));
        }
        Ok(addresses)
    }

    fn links(&self, above: &[LevelName]) -> Result<BTreeMap<LevelName, DeclaredLink>, SpecError> {
        let mut links = BTreeMap::new();
        for (level, link) in &self.links {
            if level.value.as_str() != NODE_LEVEL && !above.contains(&level.value) {
                return Err(self.unknown_level(level, above));
            }
            if link.bandwidth.is_none() && link.inside.is_none() {
                let accepted =
                    "expected `bandwidth` for the uplink, `inside` for what joins the devices, or both";
                let what = format!("the links of {} say no bandwidth", level.value);
                return Err(self.source.error(level.place, what, accepted));
            }
            if let Some(inside) = link.inside.filter(|_| level.value.as_str() == NODE_LEVEL) {
                let accepted =
                    "expected it for a level above; the links inside a machine are those of its devices";
                return Err(self.source.error(inside.place, "`inside` stands at the level `node`", accepted));
            }
            links.insert(level.value.clone(), self.level_link(link)?);
        }
        Ok(links)
    }

    fn level_link(&self, link: &LinkFile) -> Result<DeclaredLink, SpecError> {
        let speed = |said: Option<At<Bandwidth>>| said.map_or(Ok(0), |said| self.speed(said));
        Ok(DeclaredLink {
            bytes_per_s: speed(link.bandwidth)?,
            latency_ns: self.latency(link.latency)?.unwrap_or(0),
            inside_bytes_per_s: speed(link.inside)?,
        })
    }

    /// In bytes/s, within what a cost table counts.
    fn speed(&self, bandwidth: At<Bandwidth>) -> Result<u64, SpecError> {
        match bandwidth.value.0 {
            fits @ ..=BANDWIDTH_MAX => Ok(fits),
            _ => Err(self.source.error(bandwidth.place, "is too fast for a link", "at most 4294PB/s")),
        }
    }

    /// In ns, within what a cost table counts.
    fn latency(&self, latency: Option<At<Span>>) -> Result<Option<u64>, SpecError> {
        if let Some(latency) = latency.filter(|latency| latency.value.0 > u64::from(u32::MAX)) {
            return Err(self.source.error(latency.place, "is too long for a link", "at most 4.2s"));
        }
        Ok(latency.map(|latency| latency.value.0))
    }

    fn unknown_level(&self, level: &At<LevelName>, above: &[LevelName]) -> SpecError {
        let known: Vec<&str> = above.iter().map(LevelName::as_str).chain([NODE_LEVEL]).collect();
        let meant = nearest(level.value.as_str(), &known)
            .map_or_else(String::new, |m| format!("did you mean {m:?}?"));
        let error =
            self.source.error(level.place, format!("no level is named {:?}", level.value.as_str()), meant);
        error.note(format!("this cluster has {}", listed(&known)))
    }

    fn duplicate(&self, name: &NodeName, first: Place, second: Place) -> SpecError {
        let line = |place: Place| if let Place::File { line, .. } = place { line } else { 0 };
        let what =
            format!("the node {name} is declared twice, on lines {} and {}", line(first), line(second));
        let error = self.source.error(second, what, "give every node a name of its own");
        error.also(&self.source, first, "the first")
    }
}

/// Whether it can be the name of a host, or an IP address.
fn is_address(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
    !text.is_empty() && text.len() <= 253 && text.chars().all(good)
}

fn counted(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

fn default_cluster() -> DomainName {
    DomainName::new("cluster").expect("`cluster` is a name")
}

fn cluster_level() -> LevelName {
    LevelName::new("cluster").expect("`cluster` is a name")
}

fn node_level() -> LevelName {
    LevelName::new(NODE_LEVEL).expect("`node` is a name")
}
