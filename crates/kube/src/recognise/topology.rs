//! The levels of a cluster: from the labels of its nodes, or from Volcano's HyperNodes. Which labels of which cloud or tool
//! are levels is known in [`phalanx_discover::objects`].

use std::collections::BTreeMap;

use kube::api::DynamicObject;
use phalanx_discover::objects::nodes::{NodeObject, NodeObjects};
use phalanx_discover::objects::{ObjectError, Preset, Reading, hyper_nodes, topologies};
use phalanx_model::{DomainName, Graph, Host, LevelName, Membership, NodeName};
use phalanx_spec::cluster::{Cluster, NODE_LEVEL};

use super::spec::LevelRef;
use crate::api::Node;

/// The label of the node itself, which is the innermost level.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The level around all nodes, which every cluster has and a map may name.
pub(crate) const ROOT: &str = "cluster";

/// The domains of all nodes, and what each level is called elsewhere.
#[derive(Clone, Debug)]
pub struct Levels {
    /// Hosts with the domain of each level, by name; and what could not be understood.
    pub reading: Reading,
    /// The preset by whose labels the nodes were read, `hypernodes`, or `topology` for a map.
    pub preset: String,
    /// Levels by label key, as far as nodes have them.
    by_key: BTreeMap<String, LevelName>,
    /// Levels by Volcano's number: 1 is next to the nodes.
    by_tier: BTreeMap<u32, LevelName>,
}

/// Nothing in this cluster is called so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no level of this cluster is {asked}; there are {known}")]
pub struct UnknownLevel {
    pub asked: String,
    /// From the outermost.
    pub known: String,
}

impl Levels {
    /// By node labels. Without a preset, the one that most nodes carry is taken.
    #[must_use]
    pub fn by_labels<'a>(nodes: impl IntoIterator<Item = &'a Node>, preset: Option<&Preset>) -> Self {
        let objects = objects(nodes);
        let preset = preset.cloned().unwrap_or_else(|| Preset::detect(&objects));
        let reading = objects.by(&preset).reading;
        let mut by_key = BTreeMap::new();
        for level in preset.levels.into_iter().filter(|level| reading.levels.contains(&level.level)) {
            by_key.extend(level.keys.into_iter().map(|key| (key, level.level.clone())));
        }
        let by_tier = (1..).zip(reading.levels.iter().rev().cloned()).collect();
        Self { reading, preset: preset.name, by_key, by_tier }
    }

    /// By Volcano's HyperNodes.
    ///
    /// # Errors
    /// When none of the objects is a HyperNode that can be read.
    pub fn by_hyper_nodes<'a>(
        hyper_nodes: &[DynamicObject],
        nodes: impl IntoIterator<Item = &'a Node>,
    ) -> Result<Self, ObjectError> {
        // A list of objects cannot fail to be written.
        let text = serde_json::to_string(hyper_nodes).unwrap_or_default();
        let mut found = topologies::parse(&text)?;
        let mut reading = hyper_nodes::place(&found.hyper_nodes, Some(&objects(nodes)));
        reading.gaps.append(&mut found.gaps);
        let mut tiers: Vec<u32> = found.hyper_nodes.iter().map(|hyper_node| hyper_node.tier).collect();
        tiers.sort_unstable();
        tiers.dedup();
        let by_tier = tiers.into_iter().zip(reading.levels.iter().rev().cloned()).collect();
        Ok(Self { reading, preset: "hypernodes".to_owned(), by_key: BTreeMap::new(), by_tier })
    }

    /// As a map says: nodes by name, each with its domains.
    #[must_use]
    pub fn by_map(cluster: &Cluster) -> Self {
        let named = |level: &&LevelName| level.as_str() != ROOT;
        let mut graph = Graph::default();
        for node in &cluster.nodes {
            let mut host = Host::new(node.name.clone());
            let pairs = cluster.levels.above.iter().zip(&node.path).filter(|(level, _)| named(level));
            let membership = |(level, domain): (&LevelName, &DomainName)| Membership {
                level: level.clone(),
                domain: domain.clone(),
            };
            host.domains = pairs.map(membership).collect();
            graph.hosts.push(host);
        }
        let levels: Vec<LevelName> = cluster.levels.above.iter().filter(named).cloned().collect();
        let by_tier = (1..).zip(levels.iter().rev().cloned()).collect();
        let reading = Reading { graph, gaps: Vec::new(), levels };
        Self { reading, preset: "topology".to_owned(), by_key: BTreeMap::new(), by_tier }
    }

    /// The level that is meant, the node itself included.
    ///
    /// # Errors
    /// When no level of this cluster is called so.
    pub fn level(&self, asked: &LevelRef) -> Result<LevelName, UnknownLevel> {
        let node = || LevelName::new(NODE_LEVEL).ok();
        let found = match asked {
            LevelRef::Label(key) if key == HOSTNAME => node(),
            LevelRef::Label(key) => self.by_key.get(key).cloned(),
            LevelRef::Name(name) if name == NODE_LEVEL => node(),
            LevelRef::Name(name) => {
                let named = self.reading.levels.iter().find(|level| level.as_str() == name);
                named.or_else(|| self.by_key.get(name)).cloned()
            }
            LevelRef::Tier(tier) => self.by_tier.get(tier).cloned(),
        };
        found.ok_or_else(|| {
            let names = self.reading.levels.iter().map(LevelName::as_str).chain([NODE_LEVEL]);
            let known: Vec<&str> = names.collect();
            UnknownLevel { asked: asked.to_string(), known: known.join(", ") }
        })
    }
}

/// Nodes with their labels and what they offer. A name that is no name of a node is left out: the API server has none.
fn objects<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> NodeObjects {
    let object = |node: &Node| {
        let offered = node.status.allocatable.iter().map(|(name, amount)| (name.clone(), amount.0.clone()));
        let labels = node.metadata.labels.clone().unwrap_or_default();
        Some(NodeObject::new(NodeName::new(node.name()).ok()?, labels, offered.collect()))
    };
    nodes.into_iter().filter_map(object).collect()
}
