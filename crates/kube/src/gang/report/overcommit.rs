//! Nodes whose pods hold more than there is: whoever binds beside this scheduler may do that. Nothing more goes there until it
//! is over; here it is counted for people.

use std::collections::BTreeMap;

use phalanx_model::NodeName;

use crate::filter::{Capacity, Held, Lack};
use crate::gang::Lifecycle;

impl Lifecycle {
    /// Those nodes, with what is exceeded. Looks at every pod.
    #[must_use]
    pub fn overcommitted(&self) -> BTreeMap<NodeName, Vec<Lack>> {
        let mut held: BTreeMap<&NodeName, Held> = self.cluster.nodes.held_by_others().collect();
        for gang in self.gangs.values() {
            // Strays are counted among the others.
            let bound = gang.pods.iter().filter(|(name, _)| !gang.strays.contains_key(*name));
            for (_, pod) in bound.filter(|(_, pod)| !pod.known.is_over()) {
                if let Some(node) = &pod.known.node {
                    held.entry(node).or_default().add(&pod.known.requirements);
                }
            }
        }
        let exceeded = |(name, held): (&NodeName, Held)| {
            let exceeded = Capacity::of(self.cluster.nodes.get(name)?).ok()?.exceeded(&held);
            (!exceeded.is_empty()).then(|| (name.clone(), exceeded))
        };
        held.into_iter().filter_map(exceeded).collect()
    }
}
