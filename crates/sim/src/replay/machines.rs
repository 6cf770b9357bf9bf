//! The machines of a replay, in the order in which everything here counts them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use phalanx_model::{
    CostTable, Device, DeviceMask, DomainName, LevelName, Levels, Machine, NameError, Node, NodeName, Origin,
    ShapeName,
};

/// Machines under their domains. Nodes stand in the order of their paths, then of their names; everything here counts
/// them in that order.
#[derive(Clone, Debug)]
pub struct Machines {
    pub levels: Levels,
    pub nodes: Vec<Node>,
    pub costs: CostTable,
    /// By level above the node, outermost first, the node last: the nodes of every domain.
    pub spans: Vec<Vec<Range<usize>>>,
    /// Kinds of device, in the order of their names; a node has one of them.
    pub models: Vec<String>,
    /// By node, an index into [`Self::models`].
    pub model_of: Vec<usize>,
    by_name: BTreeMap<NodeName, usize>,
    /// By node: its domain on the level above it.
    leaf_of: Vec<usize>,
    /// By level above the nodes, by node: its domain there.
    domain_of: Vec<Vec<usize>>,
}

/// Thousandths of a device that a job has for itself.
pub const WHOLE_MILLI: u32 = 1_000;

/// Some devices of one node, or the same share of each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    pub node: usize,
    pub devices: DeviceMask,
    /// Thousandths of each device.
    pub milli: u32,
}

/// Where a job is: each device once.
pub type Place = Vec<Part>;

/// Devices of a place, those counted in full of which it has a share.
#[must_use]
pub fn gpus_of(place: &[Part]) -> u32 {
    place.iter().map(|part| part.devices.count()).sum()
}

/// Thousandths of devices of a place.
#[must_use]
pub fn milli_of(place: &[Part]) -> u64 {
    place.iter().map(Part::milli_in_all).sum()
}

impl Part {
    /// Whole devices.
    #[must_use]
    pub const fn whole(node: usize, devices: DeviceMask) -> Self {
        Self { node, devices, milli: WHOLE_MILLI }
    }

    /// Thousandths of devices.
    #[must_use]
    pub fn milli_in_all(&self) -> u64 {
        u64::from(self.devices.count()) * u64::from(self.milli)
    }
}

/// So many equal nodes, for [`Machines::plain`].
#[derive(Clone, Copy, Debug)]
pub struct Rack<'a> {
    pub model: &'a str,
    pub nodes: usize,
    pub gpus_per_node: u32,
}

impl From<crate::cluster::Cluster> for Machines {
    fn from(of: crate::cluster::Cluster) -> Self {
        Self::new(of.levels, of.nodes, of.costs)
    }
}

impl Machines {
    /// Nodes as a cluster file or a map has them.
    #[must_use]
    pub fn new(levels: Levels, mut nodes: Vec<Node>, costs: CostTable) -> Self {
        nodes.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| a.name.cmp(&b.name)));
        let mut spans: Vec<Vec<Range<usize>>> = Vec::new();
        for depth in 1..=levels.above.len() {
            let chunks = nodes.chunk_by(|a, b| a.path.get(..depth) == b.path.get(..depth));
            let ends = chunks.scan(0, |end, chunk| {
                *end += chunk.len();
                Some(*end - chunk.len()..*end)
            });
            spans.push(ends.collect());
        }
        spans.push((0..nodes.len()).map(|node| node..node + 1).collect());
        let model = |node: &Node| node.machine.devices.first().map_or("", |d| d.model.as_str()).to_owned();
        let mut models: Vec<String> = nodes.iter().map(model).collect();
        models.sort();
        models.dedup();
        let model_of = nodes.iter().map(|node| models.binary_search(&model(node)).unwrap_or(0)).collect();
        let by_name = nodes.iter().enumerate().map(|(at, node)| (node.name.clone(), at)).collect();
        let mut leaf_of = vec![0; nodes.len()];
        for (leaf, span) in spans.iter().rev().nth(1).into_iter().flatten().enumerate() {
            leaf_of.iter_mut().take(span.end).skip(span.start).for_each(|of| *of = leaf);
        }
        let domains = |spans: &Vec<Range<usize>>| {
            spans.iter().enumerate().flat_map(|(at, span)| span.clone().map(move |_| at)).collect()
        };
        let domain_of = spans.iter().take(levels.above.len()).map(domains).collect();
        Self { levels, nodes, costs, spans, models, model_of, by_name, leaf_of, domain_of }
    }

    /// Racks of equal machines under one domain, with nothing between their devices that is known.
    ///
    /// # Errors
    /// When a model is no name.
    pub fn plain(racks: &[Rack<'_>]) -> Result<Self, NameError> {
        let levels = Levels::new(vec![LevelName::new("cluster")?], LevelName::new("node")?);
        let path = vec![DomainName::new("cluster")?];
        let mut nodes = Vec::new();
        for rack in racks {
            let device = Device { model: rack.model.to_owned(), ..Device::default() };
            let machine = Arc::new(Machine {
                shape: ShapeName::new(format!("{}-{}", rack.model, rack.gpus_per_node))?,
                devices: vec![device; rack.gpus_per_node as usize],
                ..Machine::bare(Origin::Declared)
            });
            for _ in 0..rack.nodes {
                let name = NodeName::new(format!("node-{}", nodes.len()))?;
                nodes.push(node(name, path.clone(), &machine));
            }
        }
        Ok(Self::new(levels, nodes, CostTable::default()))
    }

    #[must_use]
    pub fn gpus_on(&self, node: usize) -> u32 {
        self.nodes.get(node).map_or(0, |node| node.machine.device_count())
    }

    #[must_use]
    pub fn gpus(&self) -> u32 {
        (0..self.nodes.len()).map(|node| self.gpus_on(node)).sum()
    }

    /// Devices of one model.
    #[must_use]
    pub fn gpus_of_model(&self, model: usize) -> u32 {
        let of = self.model_of.iter().enumerate().filter(|(_, of)| **of == model);
        of.map(|(node, _)| self.gpus_on(node)).sum()
    }

    /// By node, every device of it.
    #[must_use]
    pub fn all_free(&self) -> Vec<DeviceMask> {
        self.nodes.iter().map(|node| node.machine.device_mask().minus(node.foreign)).collect()
    }

    #[must_use]
    pub fn index_of(&self, name: &NodeName) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Devices of a node's domain on a level above the nodes, outermost 0.
    #[must_use]
    pub fn gpus_beside(&self, depth: usize, node: usize) -> u32 {
        let spans = self.spans.get(depth).map(Vec::as_slice).unwrap_or_default();
        spans
            .get(self.domain_of(depth, node))
            .map_or(0, |span| span.clone().map(|node| self.gpus_on(node)).sum())
    }

    /// A node's domain on a level above the nodes, outermost 0, by number.
    #[must_use]
    pub fn domain_of(&self, depth: usize, node: usize) -> usize {
        self.domain_of.get(depth).and_then(|nodes| nodes.get(node)).copied().unwrap_or(0)
    }

    /// The domain right above a node, by number.
    #[must_use]
    pub fn leaf_of(&self, node: usize) -> usize {
        self.leaf_of.get(node).copied().unwrap_or(0)
    }

    /// Domains right above the nodes; one where nothing is above them.
    #[must_use]
    pub fn leaves(&self) -> usize {
        self.leaf_of.iter().max().map_or(1, |last| last + 1)
    }

    /// Domains right above the nodes in which a place has devices.
    #[must_use]
    pub fn leaves_of(&self, place: &[Part]) -> u32 {
        let mut leaves: Vec<usize> = place.iter().map(|part| self.leaf_of(part.node)).collect();
        leaves.sort_unstable();
        leaves.dedup();
        u32::try_from(leaves.len()).unwrap_or(u32::MAX)
    }
}

fn node(name: NodeName, path: Vec<DomainName>, machine: &Arc<Machine>) -> Node {
    Node::new(name, path, Arc::clone(machine))
}
