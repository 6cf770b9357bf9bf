//! Nodes that came, went or changed since the rules between pods were counted.
//!
//! Counts follow a node only if it is known how it was when they were made: until the change is taken, a pod that comes or goes is
//! counted by that.

use std::collections::BTreeMap;

use phalanx_model::NodeName;

use super::NodeState;
use crate::api;

/// Nodes as they were counted; nothing for one that was not there.
pub(crate) type MovedNodes = BTreeMap<NodeName, Option<Box<api::Node>>>;

impl NodeState {
    /// The node comes, goes, or is another one by its labels, its taints, or the conditions that close it.
    pub(super) fn note_moved(&mut self, name: &NodeName) {
        let before = || self.nodes.get(name).map(|entry| Box::new(entry.node.clone()));
        self.moved.entry(name.clone()).or_insert_with(before);
    }

    /// Nodes by which conditions have to be judged again.
    pub(crate) fn take_moved(&mut self) -> MovedNodes {
        std::mem::take(&mut self.moved)
    }

    /// A node as it was when its changes were last taken.
    pub(crate) fn as_counted(&self, name: &NodeName) -> Option<&api::Node> {
        match self.moved.get(name) {
            Some(before) => before.as_deref(),
            None => self.get(name),
        }
    }

    /// All nodes as they were then.
    pub(crate) fn all_as_counted(&self) -> impl Iterator<Item = &api::Node> {
        let now = self.iter().filter(|(name, _)| !self.moved.contains_key(*name)).map(|(_, node)| node);
        now.chain(self.moved.values().filter_map(Option::as_deref))
    }
}
