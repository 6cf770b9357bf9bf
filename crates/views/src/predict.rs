//! What the cost model says of placements.

use std::collections::BTreeSet;

use phalanx_api::protocol::PredictedView;
use phalanx_model::{CostTable, Gang, Levels, Node, NodeName, Pattern, Placement, Traffic};
use phalanx_shell::cost;

/// The message that stands in where a job does not say what its ranks send: 1 GiB, all-reduced.
const STANDARD: Traffic = Traffic { pattern: Pattern::AllReduce, bytes: 1 << 30, compute_ns: 0 };

/// What does not change while the daemon runs: levels and costs, and what predictions rest on.
#[derive(Clone, Debug)]
pub struct Map {
    pub levels: Levels,
    pub costs: CostTable,
    pub constants: cost::Constants,
}

impl Map {
    /// What the cost model says of a placement.
    pub fn predict(&self, nodes: &[Node], gang: &Gang, placement: &Placement) -> Option<PredictedView> {
        let traffic = gang.traffic.unwrap_or(STANDARD);
        // What members of other roles send is not said.
        let own = placement.slots.iter().take(gang.size as usize).cloned().collect();
        let placement = &Placement { slots: own, level: placement.level.clone() };
        let Self { levels, costs: table, constants } = self;
        let input = cost::Input { table, levels, nodes, placement, traffic, constants };
        let said = cost::predict(&input).ok()?;
        let rests_on = if gang.traffic.is_some() { "as the job declares" } else { "for a 1 GiB all-reduce" };
        let assumed = assumed_speed(nodes, placement);
        Some(PredictedView {
            step_us: said.step_ns / 1_000,
            communication_us: said.communication_ns / 1_000,
            bandwidth_bytes_per_s: said.bandwidth_bytes_per_s,
            sentence: format!("{said} ({rests_on}{assumed}; predicted)"),
        })
    }
}

/// `; NICs assumed to have 400 Gb/s`, if a prediction over several nodes rests on a speed that no source gives.
fn assumed_speed(nodes: &[Node], placement: &Placement) -> String {
    let names: BTreeSet<&NodeName> = placement.slots.iter().map(|slot| &slot.node).collect();
    if names.len() < 2 {
        return String::new();
    }
    let used = nodes.iter().filter(|node| names.contains(&node.name)).map(|node| &node.machine);
    let speeds = used.flat_map(|machine| {
        let nic =
            |nic: u32| machine.nics.get(nic as usize).filter(|n| n.bytes_per_s.is_none() || n.is_assumed);
        machine.collective_nics().into_iter().filter_map(move |(at, _)| nic(at)).map(|nic| nic.bytes_per_s)
    });
    let least =
        speeds.map(|bytes| bytes.map_or(u64::from(cost::NIC_MB_PER_S) / 125, |b| b / 125_000_000)).min();
    least.map_or_else(String::new, |gb| format!("; NICs assumed to have {gb} Gb/s"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use phalanx_model::{Device, LevelName, Machine, Nic, Origin, Slot};

    use super::*;

    #[test]
    fn a_prediction_over_nodes_says_which_speed_is_assumed() {
        let node = |name: &str, model: &str, bytes_per_s: Option<u64>| {
            let mut machine = Machine::bare(Origin::Declared);
            machine.devices = vec![Device { model: model.to_owned(), ..Device::default() }];
            machine.nics = vec![Nic { bytes_per_s, ..Nic::default() }];
            machine.assume_nic_speeds();
            Node::new(NodeName::new(name).unwrap(), Vec::new(), Arc::new(machine))
        };
        let said = |nodes: &[Node]| {
            let slot = |(rank, node): (u32, &Node)| Slot {
                rank,
                node: node.name.clone(),
                devices: phalanx_model::DeviceMask::one(0),
                part: None,
            };
            let slots = (0..).zip(nodes).map(slot).collect();
            assumed_speed(nodes, &Placement { slots, level: LevelName::new("node").unwrap() })
        };
        let known = || node("a", "NVIDIA B200", Some(50_000_000_000));
        assert_eq!(said(&[known(), node("b", "NVIDIA B200", None)]), "; NICs assumed to have 400 Gb/s");
        assert_eq!(said(&[known(), node("b", "", None)]), "; NICs assumed to have 100 Gb/s");
        assert_eq!(said(&[known(), node("b", "", Some(1))]), "");
        // Inside of one node no NIC counts.
        assert_eq!(said(&[node("b", "", None)]), "");
    }
}
