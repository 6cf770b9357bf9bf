//! Windows in which nodes are closed for maintenance, or kept for a queue.

use std::collections::BTreeMap;

use phalanx_model::later::Calendar;
use phalanx_model::{DomainName, LevelName, NodeName, QueueName, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ClusterFile;
use super::exceptions::Known;
use crate::error::{Place, SpecError, quote};
use crate::moment::Moment;
use crate::pattern::NamePattern;
use crate::place::At;

/// Most windows in one file, each counted once for each of its nodes: as many as the engine takes.
const WINDOWS_MAX: usize = 100_000;

/// A time in which nodes do no work, or none for others than a queue. What would not end before is not started there,
/// and what still runs there is told in time to save its work and move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowFile {
    /// Nodes by name or pattern: `[gpu-1, "gpu-[4-8]"]`; give this or `path`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<At<NamePattern>>,
    /// All nodes of one domain: `{block: b1, rack: r3}`. The outermost level may be left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub path: BTreeMap<At<LevelName>, At<DomainName>>,
    /// When it begins: `2026-12-01T08:00Z`.
    pub from: At<Moment>,
    /// When it ends.
    pub until: At<Moment>,
    /// The queue that the nodes are kept for, with those below it. Default: nobody, for maintenance.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub held_for: Option<At<QueueName>>,
}

impl ClusterFile {
    /// One window for each node.
    pub(super) fn windows(&self, above: &[LevelName], known: &Known<'_>) -> Result<Vec<Calendar>, SpecError> {
        let mut seen: BTreeMap<(NodeName, Timestamp), Place> = BTreeMap::new();
        let mut windows = Vec::new();
        for said in &self.calendar {
            let (begins_at, ends_at) = (self.instant(&said.from)?, self.instant(&said.until)?);
            if ends_at <= begins_at {
                let error =
                    self.source.error(said.until.place, "ends before it begins", "expected a later time");
                return Err(error.also(&self.source, said.from.place, "the begin"));
            }
            for node in self.nodes_of(said, above, known)? {
                if let Some(first) = seen.insert((node.clone(), begins_at), said.from.place) {
                    let what = format!("two windows of node {node} begin then");
                    let error = self.source.error(said.from.place, what, "give every window once");
                    return Err(error.also(&self.source, first, "the first"));
                }
                let held_for = said.held_for.as_ref().map(|queue| queue.value.clone());
                windows.push(Calendar { node, begins_at, ends_at, held_for, is_declared: true });
                if windows.len() > WINDOWS_MAX {
                    let what = format!("more than {WINDOWS_MAX} windows of nodes");
                    return Err(self.source.error(said.from.place, what, "leave out those that are over"));
                }
            }
        }
        Ok(windows)
    }

    /// The file is read at every start, so what is so long from now has no meaning in it.
    fn instant(&self, at: &At<Moment>) -> Result<Timestamp, SpecError> {
        match at.value {
            Moment::At(time) => Ok(time),
            Moment::In(_) => {
                let accepted = "expected a time with its offset from UTC, such as 2026-12-01T08:00Z";
                Err(self.source.error(at.place, "is another time at every start", accepted))
            }
        }
    }

    fn nodes_of(
        &self,
        said: &WindowFile,
        above: &[LevelName],
        known: &Known<'_>,
    ) -> Result<Vec<NodeName>, SpecError> {
        match (said.nodes.is_empty(), said.path.is_empty()) {
            (true, false) => {
                let (_, path) = self.domain_path(&said.path, said.from.place, above, known)?;
                let inside = known.values().filter(|node| node.path.starts_with(&path));
                Ok(inside.map(|node| node.name.clone()).collect())
            }
            (false, true) => {
                let mut nodes = Vec::new();
                for pattern in &said.nodes {
                    if nodes.len() + pattern.value.count() > known.len() {
                        let what = format!("{} names more nodes than there are", quote(pattern.value.text()));
                        return Err(self.source.error(
                            pattern.place,
                            what,
                            "give every node of a window once",
                        ));
                    }
                    for name in pattern.value.names() {
                        let found = NodeName::new(name.as_str()).ok().filter(|name| known.contains_key(name));
                        nodes.push(found.ok_or_else(|| {
                            let what = format!("no node is named {}", quote(&name));
                            self.source.error(pattern.place, what, "expected nodes of this file")
                        })?);
                    }
                }
                Ok(nodes)
            }
            _ => {
                let what = "a window is that of `nodes` or of a domain's `path`";
                Err(self.source.error(said.from.place, what, "give one of them"))
            }
        }
    }
}
