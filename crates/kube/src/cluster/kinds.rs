//! Objects of the cluster as a whole, of kinds that others define.

use kube::api::DynamicObject;

use super::Cluster;
use crate::recognise::group_of;

/// Group, kind and plural of what is looked at: Volcano's domains, and classes of priority.
pub const CLUSTER_KINDS: [(&str, &str, &str); 3] = [
    ("kueue.x-k8s.io", "WorkloadPriorityClass", "workloadpriorityclasses"),
    ("scheduling.k8s.io", "PriorityClass", "priorityclasses"),
    ("topology.volcano.sh", "HyperNode", "hypernodes"),
];

/// Whether objects of a kind are looked at here.
#[must_use]
pub fn is_of_cluster(group: &str, kind: &str) -> bool {
    CLUSTER_KINDS.iter().any(|(of, named, _)| (*of, *named) == (group, kind))
}

impl Cluster {
    /// Takes an object of one of these kinds; whether it was one.
    pub(crate) fn see_of_cluster(&mut self, object: &DynamicObject, is_gone: bool) -> bool {
        let Some(types) = &object.types else { return false };
        let group = group_of(&types.api_version);
        if !is_of_cluster(group, &types.kind) {
            return false;
        }
        match types.kind.as_str() {
            "HyperNode" => self.nodes.see_fabric(|book| book.see_hyper_node(object, is_gone)),
            kind => self.priorities.see(kind, object, is_gone),
        }
        true
    }
}
