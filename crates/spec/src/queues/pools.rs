//! The nodes of a queue: pools in an order of preference.

use std::collections::BTreeMap;

use phalanx_model::{DomainName, LevelName, NodeName, NodeSet, Pool, Pools, Queue};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::{QueueEntry, QueueFile};
use crate::cluster::NODES_MAX;
use crate::error::{SpecError, quote};
use crate::gpus::ModelName;
use crate::pattern::NamePattern;
use crate::place::At;

/// Most pools of one queue.
const POOLS_MAX: usize = 16;
/// What the name of a label's set begins with.
const LABEL: &str = "label ";
/// Longest key or value of a label.
const LABEL_BYTES_MAX: usize = 317;

/// The nodes of a queue. Give `required` or `preferred`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueNodesFile {
    /// Pools in order of preference: a job goes to the first that has room for all of it, and nowhere else.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schemars(with = "Vec<PoolFile>")]
    pub required: Option<Vec<PoolFile>>,
    /// The same, and a job for which none of them has room goes to any node.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schemars(with = "Vec<PoolFile>")]
    pub preferred: Option<Vec<PoolFile>>,
}

/// The nodes for which all of this holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PoolFile {
    /// Nodes by name or pattern: `[gpu-1, "gpu-[4-8]"]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<At<NamePattern>>,
    /// Nodes with GPUs whose model contains the text, ignoring case: `H100`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<At<ModelName>>,
    /// Nodes inside a domain: `{rack: r1}`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub path: BTreeMap<At<LevelName>, At<DomainName>>,
    /// Nodes with these labels, as the cluster file or Kubernetes has them: `{tier: gold}`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<At<String>, At<String>>,
}

/// A list that is there, though empty where nothing is written: a template that yields nothing opens no queue to all nodes.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<PoolFile>>, D::Error> {
    Ok(Some(Option::deserialize(deserializer)?.unwrap_or_default()))
}

impl QueueNodesFile {
    pub(super) fn of_queue(queue: &Queue) -> Option<Self> {
        if queue.nodes.are_none() {
            return None;
        }
        let pools = Some(queue.nodes.pools.iter().map(PoolFile::of_pool).collect());
        Some(match queue.nodes.or_any {
            true => Self { preferred: pools, ..Self::default() },
            false => Self { required: pools, ..Self::default() },
        })
    }
}

impl PoolFile {
    fn of_pool(pool: &Pool) -> Self {
        let hosts = pool.nodes.iter().filter_map(|name| NamePattern::parse(name.as_str()).ok());
        let path = pool.path.iter().map(|(level, domain)| (level.clone().into(), domain.clone().into()));
        let labels = pool.sets.iter().filter_map(|set| set.as_str().strip_prefix(LABEL)?.split_once('='));
        Self {
            hosts: hosts.map(At::from).collect(),
            model: pool.model.clone().map(|model| ModelName(model).into()),
            path: path.collect(),
            labels: labels.map(|(key, value)| (key.to_owned().into(), value.to_owned().into())).collect(),
        }
    }
}

impl QueueFile {
    pub(super) fn pools(&self, entry: &QueueEntry) -> Result<Pools, SpecError> {
        let Some(QueueNodesFile { required, preferred }) = &entry.nodes else { return Ok(Pools::default()) };
        let refuse = |what: String, accepted: &str| Err(self.source.error(entry.name.place, what, accepted));
        let nothing = Vec::new();
        let (pools, or_any) = match (required, preferred) {
            (None, None) => (&nothing, false),
            (Some(required), None) => (required, false),
            (None, Some(preferred)) => (preferred, true),
            (Some(_), Some(_)) => {
                let what = format!("the nodes of {} are both required and preferred", entry.name.value);
                return refuse(what, "give one of `required` and `preferred`");
            }
        };
        if pools.is_empty() {
            let what = format!("the nodes of {} are in no pool", entry.name.value);
            return refuse(what, "name a pool, or leave `nodes` out for any node");
        }
        if pools.len() > POOLS_MAX {
            let what = format!("{} has {} pools", entry.name.value, pools.len());
            return refuse(what, &format!("at most {POOLS_MAX}"));
        }
        let pools: Result<Vec<Pool>, SpecError> = pools.iter().map(|pool| self.pool(entry, pool)).collect();
        Ok(Pools { pools: pools?, or_any })
    }

    fn pool(&self, entry: &QueueEntry, file: &PoolFile) -> Result<Pool, SpecError> {
        if *file == PoolFile::default() {
            let what = format!("a pool of {} says nothing", entry.name.value);
            let accepted = "expected one or more of `hosts`, `model`, `path` and `labels`";
            return Err(self.source.error(entry.name.place, what, accepted));
        }
        let mut nodes = Vec::new();
        for pattern in &file.hosts {
            if nodes.len() + pattern.value.count() > NODES_MAX {
                let what = format!("{} are more hosts than a cluster has", quote(pattern.value.text()));
                return Err(self.source.error(pattern.place, what, format!("at most {NODES_MAX}")));
            }
            for name in pattern.value.names() {
                let name = NodeName::new(name);
                nodes.push(name.map_err(|bad| self.source.error(pattern.place, bad.to_string(), ""))?);
            }
        }
        nodes.sort();
        nodes.dedup();
        let mut sets = Vec::with_capacity(file.labels.len());
        for (key, value) in &file.labels {
            sets.push(
                label(&key.value, &value.value).map_err(|what| self.source.error(key.place, what, ""))?,
            );
        }
        let path = file.path.iter().map(|(level, domain)| (level.value.clone(), domain.value.clone()));
        Ok(Pool {
            nodes,
            // Equal pools are written alike.
            model: file.model.as_ref().map(|model| model.value.0.to_uppercase()),
            path: path.collect(),
            sets,
        })
    }
}

/// The set of the nodes that have a label.
///
/// # Errors
/// When the key or the value is no label.
pub fn label(key: &str, value: &str) -> Result<NodeSet, String> {
    let is_plain = |text: &str| {
        text.len() <= LABEL_BYTES_MAX
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'))
    };
    if key.is_empty() || !is_plain(key) || !is_plain(value) {
        let what = "is no label: letters, digits, and - _ . / are allowed";
        return Err(format!("{} {what}", quote(&format!("{key}: {value}"))));
    }
    Ok(NodeSet::new(&format!("{LABEL}{key}={value}")))
}
