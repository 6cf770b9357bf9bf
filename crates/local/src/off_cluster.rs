//! Gangs that run on nodes or GPUs which the cluster of this daemon does not have: its cluster file was changed while they
//! ran. They go on; what they hold is counted nowhere, so an operator has to know of it.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{DeviceMask, GangId, GangRecord, Node, NodeName};
use phalanx_shell::{Engine, Recovered};

use crate::daemon::records;

/// Gangs that one warning names.
const GANGS_NAMED: usize = 5;

#[derive(Clone, Debug)]
pub(crate) struct OffCluster(BTreeMap<GangId, BTreeSet<NodeName>>);

impl OffCluster {
    /// The nodes of a daemon stay as they are while it runs, so this holds until the gangs end.
    pub(crate) fn of(nodes: &[Node], recovered: &Recovered) -> Self {
        let nodes: BTreeMap<&NodeName, DeviceMask> =
            nodes.iter().map(|node| (&node.name, node.machine.device_mask())).collect();
        let missing = |record: &GangRecord| {
            let held = record.held()?;
            let is_missing = |node: &NodeName, devices: DeviceMask| {
                nodes.get(node).is_none_or(|known| !devices.minus(*known).is_empty())
            };
            let slots = held.slots.iter().filter(|slot| is_missing(&slot.node, slot.devices));
            let names: BTreeSet<NodeName> = slots.map(|slot| slot.node.clone()).collect();
            (!names.is_empty()).then_some((record.id, names))
        };
        Self(records(recovered).filter_map(|(_, record)| missing(record)).collect())
    }

    /// What an operator should know, as long as these gangs run.
    pub(crate) fn warning(&self, engine: &Engine) -> Option<String> {
        let running =
            self.0.iter().filter(|(id, _)| engine.gang(**id).is_some_and(GangRecord::holds_capacity));
        let mut gangs = running.map(|(id, nodes)| {
            let name = engine.job(id.job).map(|job| format!(" ({})", job.name)).unwrap_or_default();
            let nodes: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
            format!("job {}{name} on {}", id.job, nodes.join(", "))
        });
        let mut named: Vec<String> = gangs.by_ref().take(GANGS_NAMED).collect();
        let more = gangs.count();
        if more > 0 {
            named.push(format!("{more} more"));
        }
        (!named.is_empty()).then(|| {
            format!(
                "gangs run on nodes or GPUs that this cluster does not have: {}. They go on and what they hold is counted \
                 nowhere: start the daemon with the cluster file of before, or cancel them",
                named.join("; ")
            )
        })
    }
}
