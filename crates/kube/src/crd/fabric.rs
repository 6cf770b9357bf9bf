//! How the network is laid out: which labels are levels, or the whole map.

use std::borrow::Cow;

use kube::{CustomResource, KubeSchema};
use phalanx_discover::objects::{Preset, PresetError};
use phalanx_spec::SpecError;
use phalanx_spec::cluster::{Cluster, ClusterFile};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::Condition;

/// The levels of the cluster's network. There is one, named default; without it the labels of the nodes are looked at.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "phalanx.dev",
    version = "v1alpha1",
    kind = "Fabric",
    plural = "fabrics",
    category = "phalanx",
    derive = "PartialEq",
    status = "FabricStatus",
    doc = "The levels of the cluster's network. There is one, named default; without it the labels of the nodes are looked at.",
    printcolumn(name = "Levels", type_ = "string", json_path = ".status.levels[*].name"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "Unplaced", type_ = "integer", json_path = ".status.unplaced"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Accepted')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name == 'default'").message("a cluster has one Fabric, named default")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.preset) ? 1 : 0) + (has(self.levels) ? 1 : 0) + (has(self.hyperNodes) && self.hyperNodes ? 1 : 0) + (has(self.topology) ? 1 : 0) == 1")
        .message("give one of preset, levels, hyperNodes and topology")
)]
pub struct FabricSpec {
    /// Labels that a cloud or a tool writes; auto takes those that most nodes carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "presets")]
    pub preset: Option<String>,
    /// Levels by node label, outermost first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(
        validation = Rule::new("self.all(a, self.exists_one(b, a.name == b.name))").message("two levels have one name"),
        validation = Rule::new("self.all(a, self.exists_one(b, a.label == b.label))").message("two levels have one label")
    )]
    pub levels: Option<Vec<FabricLevel>>,
    /// Takes the levels from Volcano's HyperNodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hyper_nodes: Option<bool>,
    /// A cluster file, as phalanx topo import writes it: levels, nodes, and what the links between them carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1048576))]
    pub topology: Option<String>,
}

/// A level and the label that carries it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FabricLevel {
    /// Name of the level: leaf.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self != 'node'").message("node is the level of the machine itself"))]
    pub name: String,
    /// Key of the node label whose values are its domains.
    #[schemars(length(min = 1, max = 317))]
    #[x_kube(validation = Rule::new("self != 'kubernetes.io/hostname'").message("the node itself is no level above it"))]
    pub label: String,
}

/// What was made of the fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FabricStatus {
    /// The generation that is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub levels: Vec<LevelStatus>,
    /// Nodes that have a place.
    #[serde(default)]
    pub nodes: i64,
    /// Nodes that lack a level.
    #[serde(default)]
    pub unplaced: i64,
    /// What could not be understood, the first of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub gaps: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
}

/// A level that the cluster has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LevelStatus {
    pub name: String,
    pub domains: i64,
}

/// Where levels come from.
#[derive(Clone, Debug, PartialEq)]
pub enum FabricSource {
    /// Of the labels that most nodes carry.
    Detected,
    Labels(Preset),
    HyperNodes,
    Map(Box<Cluster>),
}

/// Why a fabric cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FabricError {
    #[error("spec.preset: {0:?} is not known; there are auto, {1}")]
    Preset(String, String),
    #[error("spec.levels: {0}")]
    Levels(#[from] PresetError),
    #[error("spec.topology: {0}")]
    Topology(Box<SpecError>),
    #[error("spec: nothing says the levels; give one of preset, levels, hyperNodes and topology")]
    Nothing,
}

const AUTO: &str = "auto";

fn presets(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<Cow<'static, str>> =
        std::iter::once(AUTO).chain(Preset::names()).map(Cow::Borrowed).collect();
    json_schema!({ "type": "string", "enum": names })
}

impl FabricSpec {
    /// Where the levels come from.
    ///
    /// # Errors
    /// When the preset is unknown, a level's name or label is none, or the topology is no cluster file.
    pub fn source(&self) -> Result<FabricSource, FabricError> {
        if let Some(name) = &self.preset {
            if name == AUTO {
                return Ok(FabricSource::Detected);
            }
            let known = || Preset::names().collect::<Vec<_>>().join(", ");
            let preset = Preset::named(name).ok_or_else(|| FabricError::Preset(name.clone(), known()))?;
            return Ok(FabricSource::Labels(preset));
        }
        if let Some(levels) = &self.levels {
            let levels = levels.iter().map(|level| (level.name.as_str(), level.label.as_str()));
            return Ok(FabricSource::Labels(Preset::custom(levels)?));
        }
        if let Some(text) = &self.topology {
            let cluster = ClusterFile::from_yaml(text, "spec.topology").and_then(ClusterFile::into_cluster);
            let cluster = cluster.map_err(|error| FabricError::Topology(Box::new(error)))?;
            return Ok(FabricSource::Map(Box::new(cluster)));
        }
        if self.hyper_nodes == Some(true) { Ok(FabricSource::HyperNodes) } else { Err(FabricError::Nothing) }
    }
}
