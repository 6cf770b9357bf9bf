//! Resources that are counted by name: of nodes, and of domains for all of their nodes together.

use std::collections::BTreeMap;

use phalanx_model::{DomainLimit, DomainName, LevelName, ResourceName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::exceptions::Known;
use super::{ClusterFile, NODE_LEVEL, NodeFile};
use crate::error::SpecError;
use crate::place::At;
use crate::scalar::Amount;

/// Most limits in one file.
const LIMITS_MAX: usize = 10_000;
/// What a node has a field for.
const FIELDS: [(&str, &str); 4] =
    [("gpus", "devices"), ("gpu", "devices"), ("cpus", "cpus"), ("memory", "memory")];

/// What a domain has of a resource for everything inside of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitFile {
    /// Every domain of this level; give this or `path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<At<LevelName>>,
    /// One domain: `{block: b1, rack: rack-3}`. The outermost level may be left out. It goes before its level.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub path: BTreeMap<At<LevelName>, At<DomainName>>,
    /// Name of the resource, e.g. `power_w`.
    pub resource: At<ResourceName>,
    /// Units of it.
    pub amount: At<Amount>,
}

impl ClusterFile {
    pub(super) fn named(&self, file: &NodeFile) -> Result<BTreeMap<ResourceName, u64>, SpecError> {
        for name in file.resources.keys() {
            if let Some((_, field)) = FIELDS.iter().find(|(own, _)| *own == name.value.as_str()) {
                let what = format!("{} are not counted by name", name.value);
                return Err(self.source.error(name.place, what, format!("give `{field}` of the node")));
            }
        }
        Ok(file.resources.iter().map(|(name, amount)| (name.value.clone(), amount.value.0)).collect())
    }

    pub(super) fn limits(
        &self,
        above: &[LevelName],
        nodes: &Known<'_>,
    ) -> Result<Vec<DomainLimit>, SpecError> {
        if let Some(beyond) = self.limits.get(LIMITS_MAX) {
            let what = format!("{} limits", self.limits.len());
            return Err(self.source.error(beyond.amount.place, what, format!("at most {LIMITS_MAX}")));
        }
        let mut seen = BTreeMap::new();
        let mut limits = Vec::with_capacity(self.limits.len());
        for said in &self.limits {
            let limit = self.limit(said, above, nodes)?;
            let key = (limit.level.clone(), limit.path.clone(), limit.resource.clone());
            if let Some(first) = seen.insert(key, said.resource.place) {
                let what = format!("{} of {} is limited twice", limit.resource, limit.level);
                let error = self.source.error(said.resource.place, what, "give every limit once");
                return Err(error.also(&self.source, first, "the first"));
            }
            limits.push(limit);
        }
        Ok(limits)
    }

    fn limit(
        &self,
        said: &LimitFile,
        above: &[LevelName],
        nodes: &Known<'_>,
    ) -> Result<DomainLimit, SpecError> {
        let (resource, amount) = (said.resource.value.clone(), said.amount.value.0);
        match (&said.level, said.path.is_empty()) {
            (Some(level), true) if level.value.as_str() == NODE_LEVEL => {
                let accepted = "expected a level above it; what a node has stands in its `resources`";
                Err(self.source.error(level.place, "is the level of the machine itself", accepted))
            }
            (Some(level), true) if !above.contains(&level.value) => Err(self.unknown_level(level, above)),
            (Some(level), true) => {
                Ok(DomainLimit { level: level.value.clone(), path: None, resource, amount })
            }
            (None, false) => {
                let (level, path) = self.domain_path(&said.path, said.resource.place, above, nodes)?;
                Ok(DomainLimit { level, path: Some(path), resource, amount })
            }
            _ => {
                let what = "a limit is that of every domain of a `level` or of one domain's `path`";
                Err(self.source.error(said.resource.place, what, "give one of them"))
            }
        }
    }
}
