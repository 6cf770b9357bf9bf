//! Nodes whose kubelets turn pods with devices away: their devices are not used for a while.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{NodeName, Timestamp};

/// So many pods in a row that a node turned away are chance.
const TURNED_AWAY_MAX: u32 = 1;

/// For so long no devices of a node are used that turned one more away; doubled with each that follows.
pub(crate) const DISTRUST_MS: u64 = 5 * 60_000;

/// It is tried again after this time, however often it turned pods away.
pub(crate) const DISTRUST_MAX_MS: u64 = 60 * 60_000;

/// Nodes whose kubelets turn pods with devices away.
#[derive(Default)]
pub(crate) struct DistrustedNodes {
    nodes: BTreeMap<NodeName, Trial>,
    /// When devices are used again.
    ends: BTreeSet<(Timestamp, NodeName)>,
}

/// How a node does.
#[derive(Default)]
struct Trial {
    /// Pods that it turned away since it last ran one.
    turned_away: u32,
    until: Option<Timestamp>,
}

impl DistrustedNodes {
    /// A node turned a pod away; whether its devices are not used from now on.
    pub(crate) fn turned_away(&mut self, now: Timestamp, node: &NodeName) -> bool {
        let trial = self.nodes.entry(node.clone()).or_default();
        trial.turned_away = trial.turned_away.saturating_add(1);
        let Some(beyond) = trial.turned_away.checked_sub(TURNED_AWAY_MAX + 1) else { return false };
        let doubled = 1_u64.checked_shl(beyond).map_or(u64::MAX, |times| DISTRUST_MS.saturating_mul(times));
        let until = now.plus(doubled.min(DISTRUST_MAX_MS));
        if let Some(before) = trial.until.replace(until) {
            self.ends.remove(&(before, node.clone()));
        }
        self.ends.insert((until, node.clone()));
        true
    }

    /// A node runs a pod with devices, or is gone; whether its devices were not used.
    pub(crate) fn forget(&mut self, node: &NodeName) -> bool {
        let until = self.nodes.remove(node).and_then(|trial| trial.until);
        until.is_some_and(|until| self.ends.remove(&(until, node.clone())))
    }

    /// A node whose time is over: its devices are used again, and the next pod that it turns away is one too many.
    pub(crate) fn pop_ended(&mut self, now: Timestamp) -> Option<NodeName> {
        let (_, node) = self.ends.first().filter(|(until, _)| *until <= now)?.clone();
        self.ends.pop_first();
        if let Some(trial) = self.nodes.get_mut(&node) {
            trial.until = None;
        }
        Some(node)
    }

    /// Whether devices of a node are not used for now.
    pub(crate) fn holds(&self, node: &NodeName) -> bool {
        self.nodes.get(node).is_some_and(|trial| trial.until.is_some())
    }

    pub(crate) fn wake(&self) -> Option<Timestamp> {
        self.ends.first().map(|(until, _)| *until)
    }
}
