//! Metrics, and notices of nodes that are reclaimed. The ledger keeps them, and they survive a restart.

use std::collections::BTreeMap;

use phalanx_model::later::{Metric, SpotNotice};
use phalanx_model::{GangId, Input, JobId, NodeName};

impl super::Ledger {
    /// Nodes that will be reclaimed.
    pub(crate) fn notices(&self) -> impl Iterator<Item = &SpotNotice> {
        self.noted.notices()
    }
}

/// Guards the memory: more facts than this are refused.
const NOTED_MAX: usize = 100_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Metric(GangId, String),
    Spot(NodeName),
}

/// The latest fact of each kind and subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Noted(BTreeMap<Key, Input>);

impl Noted {
    pub(super) fn note(&mut self, input: &Input) -> Result<(), String> {
        let key = match input {
            Input::MetricObserved { metric } => Key::Metric(metric.gang, metric.name.clone()),
            Input::SpotNoticed { notice } => Key::Spot(notice.node.clone()),
            _ => return Err("is not a fact of the kinds that are only recorded".into()),
        };
        if self.0.len() >= NOTED_MAX && !self.0.contains_key(&key) {
            return Err(format!("more than {NOTED_MAX} recorded facts"));
        }
        self.0.insert(key, input.clone());
        Ok(())
    }

    pub(super) fn forget(&mut self, job: JobId) {
        self.0.retain(|key, _| match key {
            Key::Metric(gang, _) => gang.job != job,
            Key::Spot(_) => true,
        });
    }

    /// The latest value of a metric that a gang reported.
    pub(super) fn metric(&self, gang: GangId, name: &str) -> Option<&Metric> {
        match self.0.get(&Key::Metric(gang, name.to_owned())) {
            Some(Input::MetricObserved { metric }) => Some(metric),
            _ => None,
        }
    }

    /// Whether a node is to be reclaimed.
    pub(super) fn is_noticed(&self, node: &NodeName) -> bool {
        self.0.contains_key(&Key::Spot(node.clone()))
    }

    fn notices(&self) -> impl Iterator<Item = &SpotNotice> {
        let all = self.0.values();
        all.filter_map(|input| if let Input::SpotNoticed { notice } = input { Some(notice) } else { None })
    }

    pub(super) fn forget_notice(&mut self, node: &NodeName) {
        self.0.remove(&Key::Spot(node.clone()));
    }

    pub(super) fn facts(&self) -> impl Iterator<Item = Input> {
        self.0.values().cloned()
    }
}
