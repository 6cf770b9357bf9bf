//! What a gang as a whole needs of an autoscaler: its pods by what they ask, while nodes would help.

use std::collections::BTreeMap;

use crate::filter::Requirements;
use crate::gang::Lifecycle;
use crate::messages::Provision;
use crate::messages::{Call, PodRef, WaitsFor};
use crate::recognise::GangKey;

impl Lifecycle {
    /// Has autoscalers told what gangs need as a whole.
    #[must_use]
    pub const fn provisioning(mut self) -> Self {
        self.provisions = true;
        self
    }

    /// Asks for the nodes of a gang, or for no more where it does not wait for nodes.
    pub(in crate::gang) fn provision(&mut self, key: &GangKey, waits_for: Option<WaitsFor>) {
        if !self.provisions {
            return;
        }
        let sets = if waits_for == Some(WaitsFor::Nodes) { self.pod_sets(key) } else { Vec::new() };
        let Some(gang) = self.gangs.get(key).filter(|gang| gang.asked.as_ref() != Some(&sets)) else {
            return;
        };
        let about = self.about(gang).filter(|_| !sets.is_empty());
        let wanted = about.map(|about| Provision { about, sets: sets.clone() });
        self.calls.push(Call::Provision { gang: key.to_string(), wanted });
        if let Some(gang) = self.gangs.get_mut(key) {
            gang.asked = Some(sets);
        }
    }

    /// Pods of a gang that have no node, by what they ask. One alone says it by itself.
    fn pod_sets(&self, key: &GangKey) -> Vec<Vec<PodRef>> {
        let mut sets: BTreeMap<&Requirements, Vec<PodRef>> = BTreeMap::new();
        let Some(gang) = self.gangs.get(key).filter(|gang| gang.pods.len() > 1) else { return Vec::new() };
        for (name, pod) in &gang.pods {
            let is_free = pod.known.node.is_none() && !pod.known.is_going && !pod.known.is_over();
            if is_free && let Some(pod_ref) = gang.pod_ref(name) {
                sets.entry(&*pod.known.requirements).or_default().push(pod_ref);
            }
        }
        sets.into_values().collect()
    }
}
