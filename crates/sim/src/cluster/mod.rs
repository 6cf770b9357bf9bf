//! Clusters to hang a trace on: drawn up as a Clos fabric, read from a cluster file, from a table of hosts and switches
//! (the real one of Lingjun), or from what comes beside public traces (Tiresias, Muri, openb).
//!
//! What is drawn up is written as a cluster file first, and read like one. So there is one way to machines and links, and
//! [`Clos::file`] is what a user can go on with.

mod published;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use phalanx_discover::fabric::clos_csv;
use phalanx_discover::{map, source};
use phalanx_model::domains::{derive, rules};
use phalanx_model::{CostTable, LevelCost, LevelName, Levels, Machine, Node, Product};
use phalanx_spec::quantity::parse_milli;
use phalanx_spec::{ClusterFile, Hardware};

pub use published::Beside;

/// What a machine has of which a cluster file says nothing: more CPUs, in thousandths, and bytes of memory than any job
/// asks for, so that devices alone decide.
const PLENTY: (u64, u64) = (1_000_000_000, 1 << 50);
/// Nodes of a fabric that is drawn up: as many as a file may have.
const NODES_MAX: u64 = phalanx_spec::cluster::NODES_MAX as u64;

/// Nodes in their levels, and what the links between them carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub levels: Levels,
    pub nodes: Vec<Node>,
    /// Of the machines, of the uplinks of each level, and of single uplinks that differ.
    pub costs: CostTable,
}

/// Why there is no cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    #[error("{0}")]
    File(String),
    #[error(
        "{0:?} is no fabric such as 16x32x8 (leaves, nodes, GPUs) or 4x16x32x8:2 (blocks before them, 2 to 1 above)"
    )]
    Clos(String),
    #[error("the fabric has {nodes} nodes, and at most {NODES_MAX} are drawn up, and at least one")]
    Nodes { nodes: u64 },
    #[error("{0}")]
    Fabric(String),
    #[error("row {row}: {problem}")]
    Row { row: u64, problem: String },
    #[error(
        "the header {found:?} is neither that of a cluster's shape (num_switch, …) nor that of a list of nodes (sn, …)"
    )]
    Header { found: String },
}

/// The machine that every node of a cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeShape {
    /// At most 64.
    pub gpus: u32,
    /// Product; its NVLinks join the devices where it has any.
    pub model: String,
    /// What all NICs for collectives carry together, one way, in MB/s; 0: not told.
    pub nic_mb_per_s: u64,
    /// Logical CPUs in thousandths, and bytes of memory; plenty where it is not told.
    pub cpu_milli: Option<u64>,
    pub memory_bytes: Option<u64>,
}

impl Default for NodeShape {
    /// Eight H100 with a NIC of 400 Gb/s each.
    fn default() -> Self {
        Self {
            gpus: 8,
            model: "NVIDIA H100 80GB HBM3".to_owned(),
            nic_mb_per_s: 400_000,
            cpu_milli: None,
            memory_bytes: None,
        }
    }
}

impl NodeShape {
    /// What stands behind the name in a cluster file.
    fn entry(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        if self.gpus > 0 {
            let has_nvlink =
                self.gpus > 1 && Product::of(&self.model).is_some_and(|product| product.nvlink_ports > 0);
            let link = if has_nvlink { "nvlink" } else { "pcie" };
            let _ = write!(out, ", devices: {{count: {}, link: {link}", self.gpus);
            if !self.model.is_empty() {
                let _ = write!(out, ", model: {}", quoted(&self.model));
            }
            out.push('}');
        }
        if self.nic_mb_per_s > 0 {
            let _ = write!(out, ", nic_bandwidth: {}MB/s", self.nic_mb_per_s);
        }
        if let Some(milli) = self.cpu_milli {
            let _ = write!(out, ", cpus: {}", quoted(&phalanx_spec::quantity::format_cpu_milli(milli)));
        }
        if let Some(bytes) = self.memory_bytes {
            let _ = write!(out, ", memory: {}", quoted(&phalanx_spec::quantity::format_memory(bytes)));
        }
        out
    }

    fn machine(&self) -> Result<Arc<Machine>, ClusterError> {
        let one = Cluster::of_file(&format!("nodes:\n  - {{name: one{}}}\n", self.entry()), "", no_topology)?;
        one.nodes.into_iter().next().map(|node| node.machine).ok_or(ClusterError::Nodes { nodes: 0 })
    }
}

/// A text as JSON has it, which YAML reads alike.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A folded Clos fabric of two tiers of switches, or of three with blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clos {
    /// 0: there are no blocks, and leaves hang on the spine.
    pub blocks: u32,
    /// Of each block, or in all.
    pub leaves: u32,
    /// Of each leaf.
    pub nodes: u32,
    pub node: NodeShape,
    /// In thousandths, at the outermost uplinks (of the blocks, or else of the leaves): what the nodes below have over what
    /// leaves upwards. 1000: nothing is lost.
    pub oversubscription_milli: u32,
}

impl Clos {
    /// `16x32x8`: leaves, nodes of each and GPUs of each; `4x16x32x8` with blocks before; `:2` behind, twice as much below the
    /// outermost uplinks as above.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn read(text: &str) -> Result<Self, ClusterError> {
        let bad = || ClusterError::Clos(text.to_owned());
        let (sizes, ratio) = text.split_once(':').unwrap_or((text, "1"));
        let sizes: Vec<u32> = sizes
            .split('x')
            .map(|size| size.parse().ok().filter(|size| *size > 0))
            .collect::<Option<_>>()
            .ok_or_else(bad)?;
        let (blocks, leaves, nodes, gpus) = match *sizes.as_slice() {
            [leaves, nodes, gpus] => (0, leaves, nodes, gpus),
            [blocks, leaves, nodes, gpus] => (blocks, leaves, nodes, gpus),
            _ => return Err(bad()),
        };
        let ratio = parse_milli(ratio).ok().and_then(|ratio| u32::try_from(ratio).ok());
        let oversubscription_milli = ratio.filter(|ratio| *ratio > 0).ok_or_else(bad)?;
        // A NIC for each device, as in the machines of today.
        let node = NodeShape { gpus, nic_mb_per_s: 50_000 * u64::from(gpus), ..NodeShape::default() };
        Ok(Self { blocks, leaves, nodes, node, oversubscription_milli })
    }

    /// The cluster file.
    ///
    /// # Errors
    /// When there are too many nodes, or none.
    pub fn file(&self) -> Result<String, ClusterError> {
        let [blocks, leaves, nodes] = [self.blocks.max(1), self.leaves, self.nodes].map(u64::from);
        let count = blocks.saturating_mul(leaves).saturating_mul(nodes);
        if !(1..=NODES_MAX).contains(&count) {
            return Err(ClusterError::Nodes { nodes: count });
        }
        let entry = self.node.entry();
        let has_blocks = self.blocks > 0;
        let mut out = format!("levels: [cluster, {}leaf]\nnodes:\n", if has_blocks { "block, " } else { "" });
        let last = nodes - 1;
        for (block, leaf) in (0..blocks).flat_map(|block| (0..leaves).map(move |leaf| (block, leaf))) {
            let (name, path) = match has_blocks {
                true => (format!("b{block}-l{leaf}"), format!("block: b{block}, leaf: b{block}-l{leaf}")),
                false => (format!("l{leaf}"), format!("leaf: l{leaf}")),
            };
            let _ = writeln!(out, "  - {{name: \"{name}-n[0-{last}]\"{entry}, path: {{{path}}}}}");
        }
        let below = self.node.nic_mb_per_s.saturating_mul(nodes);
        let narrowed = |mb: u64| mb.saturating_mul(1_000) / u64::from(self.oversubscription_milli.max(1));
        // A switch takes about a microsecond to pass; a pair of them two.
        let links = match has_blocks {
            _ if below == 0 => Vec::new(),
            true => vec![("leaf", below, 1), ("block", narrowed(below.saturating_mul(leaves)), 2)],
            false => vec![("leaf", narrowed(below), 1)],
        };
        if !links.is_empty() {
            out.push_str("links:\n");
        }
        for (level, mb_per_s, latency_us) in links {
            // What a cost table can count.
            let mb_per_s = mb_per_s.clamp(1, u64::from(u32::MAX));
            let _ = writeln!(out, "  {level}: {{bandwidth: {mb_per_s}MB/s, latency: {latency_us}us}}");
        }
        Ok(out)
    }
}

impl Cluster {
    /// # Errors
    /// When there are too many nodes, or more devices in one than a node can have.
    pub fn of_clos(clos: &Clos) -> Result<Self, ClusterError> {
        Self::of_file(&clos.file()?, "", no_topology)
    }

    /// A cluster file; `topology` gives the text of a file that it names. CPUs and memory that it does not tell are plenty.
    ///
    /// # Errors
    /// What is wrong in the file, with line and caret.
    pub fn of_file(
        text: &str,
        name: &str,
        topology: impl FnMut(&str) -> Result<String, String>,
    ) -> Result<Self, ClusterError> {
        let wrong = |error: phalanx_spec::SpecError| ClusterError::File(error.to_string());
        let file = ClusterFile::from_yaml(text, name).and_then(|file| file.into_cluster()).map_err(wrong)?;
        let nodes =
            file.nodes(&mut Texts(topology)).map_err(|error| ClusterError::File(error.to_string()))?;
        let mut costs = phalanx_cost::compile(&nodes, &file.level_costs());
        costs.domains = file.domain_costs();
        Ok(Self { levels: file.levels, nodes, costs })
    }

    /// A table of hosts and the switches above them, such as `topo.csv` of Lingjun: one row for each host, a column for each
    /// tier (`docs/formats/csv.md`). It tells no machines: all are `node`. Nor does it tell speeds: the uplinks of each level
    /// carry what the NICs below them do, divided by `oversubscription_milli` thousandths.
    ///
    /// # Errors
    /// When the table names no hosts or no switches.
    pub fn of_table(text: &str, node: &NodeShape, oversubscription_milli: u32) -> Result<Self, ClusterError> {
        let wrong = |error: &dyn std::fmt::Display| ClusterError::Fabric(error.to_string());
        let reading = clos_csv::parse(text).map_err(|error| wrong(&error))?;
        let level = |name: &str| LevelName::new(name).map_err(|error| wrong(&error));
        let domains = derive(&reading.graph, &rules(&reading.graph, &level("cluster")?, &reading.levels));
        let machine = node.machine()?;
        let mut nodes = map::to_nodes(&reading.graph, &domains);
        nodes.iter_mut().for_each(|node| node.machine = Arc::clone(&machine));
        // The fullest domain of a level stands for all: a switch has as many ports upwards whatever hangs below it.
        let mut uplinks = BTreeMap::new();
        for (depth, name) in (0_u32..).zip(&domains.levels).skip(1) {
            let hosts = domains.level(depth).map(|(_, domain)| u64::from(domain.hosts)).max().unwrap_or(0);
            let mb = hosts.saturating_mul(node.nic_mb_per_s).saturating_mul(1_000)
                / u64::from(oversubscription_milli.max(1));
            let uplink_mb_per_s = u32::try_from(mb).unwrap_or(u32::MAX);
            uplinks.insert(
                name.clone(),
                LevelCost { uplink_mb_per_s, latency_ns: 1_000, ..LevelCost::default() },
            );
        }
        let levels = Levels::new(domains.levels, level(phalanx_spec::cluster::NODE_LEVEL)?);
        let costs = phalanx_cost::compile(&nodes, &uplinks);
        Ok(Self { levels, nodes, costs })
    }

    /// Of all nodes.
    #[must_use]
    pub fn gpus(&self) -> u64 {
        self.nodes.iter().map(|node| u64::from(node.machine.device_count())).sum()
    }
}

/// For files that name none.
fn no_topology(file: &str) -> Result<String, String> {
    Err(format!("{file} is named, and no file is read here"))
}

/// Texts of topology files.
struct Texts<F>(F);

impl<F: FnMut(&str) -> Result<String, String>> Hardware for Texts<F> {
    type Error = String;

    fn topology(&mut self, file: &str) -> Result<Machine, String> {
        let read = source::read_machine(&(self.0)(file)?).map_err(|error| format!("{file}: {error}"))?;
        Ok(read.machine)
    }

    fn default_amounts(&mut self) -> (u64, u64) {
        PLENTY
    }
}
