//! The cluster file: machines, where they stand, and what the links between them carry.
//!
//! No file is read here. A node may name a topology text (`nvidia-smi topo -m`), which the caller reads and
//! joins with what the file says.

mod build;
mod calendar;
mod exceptions;
mod limits;
mod nodes;
mod of_map;
mod prices;
mod spot;
mod torus;

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_model::later::Calendar;
use phalanx_model::{
    DeviceMask, DomainName, LevelName, Levels, NodeName, NodeSet, ResourceName, Spot, Tariff, TorusPlace,
    Transport,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Place, Source, SpecError, listed, nearest};
use crate::gpus::ComputeLimit;
use crate::pattern::NamePattern;
use crate::place::At;
pub use crate::scalar::DeclaredLinkKind;
use crate::scalar::{Amount, Bandwidth, Count, Cpus, DeviceRange, Memory, Span};
use crate::yaml;

pub use build::{BuildError, Hardware, count_nics, uniform};
pub use calendar::WindowFile;
pub use limits::LimitFile;
pub use of_map::Written;
pub use prices::{DaysOfWeek, HourOfDay, HoursFile, Multiplier, PricesFile};
pub use spot::{Price, SpotFile};
pub use torus::{TorusFile, TorusPlaceFile};

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
    /// What domains have of a named resource for all of their nodes together: the power of a rack.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitFile>,
    /// Tori that nodes stand in, such as TPU pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tori: Vec<TorusFile>,
    /// What was measured between nodes or devices; `phalanx topo probe` writes it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<MeasuredFile>,
    /// File with the constants of the cost model, relative to this file; `phalanx topo calibrate -o` writes it.
    /// Default: those of public measurements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constants: Option<At<String>>,
    /// When nodes are closed for maintenance or kept for a queue.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calendar: Vec<WindowFile>,
    /// What the prices of devices are multiplied by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<PricesFile>,
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
    /// How these interfaces talk: `verbs`, `roce`, `efa`, `tcpx`, `tcpxo` or `sockets`. Default: as their names say, and
    /// otherwise verbs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<At<Transport>>,
    /// Devices that others hold: `[GPU0, 3, "4-7"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy: Vec<At<DeviceRange>>,
    /// Of each resource that jobs may ask for by name: `{nic: 8, disk_gb: 7000}`. Default of `nic`: the network
    /// interfaces for collectives that `topo` tells.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<At<ResourceName>, At<Amount>>,
    /// What queues choose nodes by: `{tier: gold}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<At<String>, At<String>>,
    /// How far shares may be promised more than a GPU has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_sharing: Option<GpuSharingFile>,
    /// Where the first node stands in one of `tori`; the others follow it along x, then y, then z.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torus: Option<TorusPlaceFile>,
    /// What one device costs for an hour, in a unit that the site chooses: `3.50`. It decides nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<At<Price>>,
    /// The machines may be taken back at short notice: only jobs that say `spot: true` go there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot: Option<SpotFile>,
}

/// How far shares may be promised more than a GPU has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuSharingFile {
    /// Compute promised to the shares of one GPU together, in GPUs: `2.0` lets eight quarters stand on it. Memory is
    /// never promised twice. Default: 1.
    pub compute_limit: At<ComputeLimit>,
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
    /// One for each node and window; those that are over are among them.
    pub windows: Vec<Calendar>,
    pub tariff: Tariff,
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
    /// A set for each of its labels, in order.
    pub labels: Vec<NodeSet>,
    /// Where its first chip stands, in one of [`Levels::tori`].
    pub torus: Option<TorusPlace>,
    /// What one device costs for an hour, in millionths of the site's unit.
    pub price_micro_per_device_hour: Option<u64>,
    /// It may be taken back at short notice.
    pub spot: Option<Spot>,
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
    pub transport: Option<Transport>,
    /// Of each resource that is counted by name.
    pub named: BTreeMap<ResourceName, u64>,
    /// Compute that may be promised to shares of one device, in thousandths of it; 0: as much as there is.
    pub share_limit_milli: u32,
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

yaml::define_file!(ClusterFile);

impl ClusterFile {
    /// Checks what concerns more than one field and writes the patterns out.
    ///
    /// # Errors
    /// When two nodes have one name, a level is not known, a path is not complete, or fields contradict.
    pub fn into_cluster(self) -> Result<Cluster, SpecError> {
        let above = self.levels()?;
        let tori = self.tori()?;
        if self.nodes.is_empty() {
            let accepted = "expected a list of machines, such as `nodes: [{name: a, devices: {count: 8}}]`";
            return Err(self.source.error(Place::Nowhere, "the cluster has no nodes", accepted));
        }
        let mut nodes = Vec::new();
        let mut places: BTreeMap<NodeName, Place> = BTreeMap::new();
        for file in &self.nodes {
            for node in self.expand(file, (&above, &tori), NODES_MAX - nodes.len())? {
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
        let limits = self.limits(&above, &known)?;
        let windows = self.windows(&above, &known)?;
        let tariff = self.tariff()?;
        self.check_places(&tori, &nodes, &places)?;
        let name = self.name.as_ref().map_or_else(default_cluster, |name| name.value.clone());
        if let Some(empty) = self.constants.as_ref().filter(|file| file.value.is_empty()) {
            return Err(self.source.error(
                empty.place,
                "is empty",
                "expected the path of a file of constants",
            ));
        }
        let constants = self.constants.map(|file| file.value);
        let levels = Levels { limits, tori, ..Levels::new(above, node_level()) };
        Ok(Cluster { name, levels, nodes, links, uplinks, measured, constants, windows, tariff })
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

fn default_cluster() -> DomainName {
    DomainName::new("cluster").expect("`cluster` is a name")
}

fn cluster_level() -> LevelName {
    LevelName::new("cluster").expect("`cluster` is a name")
}

fn node_level() -> LevelName {
    LevelName::new(NODE_LEVEL).expect("`node` is a name")
}
