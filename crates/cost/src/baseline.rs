//! The placement of a scheduler that sees devices as a count: what a topology-aware one is compared with.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use phalanx_model::{DeviceMask, LevelName, Levels, MEMBERS_PER_GANG_MAX, Node, NodeName, Placement, Slot};

/// Nodes in natural order, on each the lowest free devices first, as many members as fit, then on to the next
/// node. `free` says what may be used; a node that it does not name has nothing free. Members without devices
/// all land on the first node. `None` when not all members fit, or there are more than
/// [`MEMBERS_PER_GANG_MAX`].
#[must_use]
pub fn first_fit(
    nodes: &[impl Borrow<Node>],
    levels: &Levels,
    free: &BTreeMap<NodeName, DeviceMask>,
    members: u32,
    devices_per_member: u32,
) -> Option<Placement> {
    if members > MEMBERS_PER_GANG_MAX {
        return None;
    }
    let nodes = nodes.iter().map(Borrow::borrow);
    let mut sorted: Vec<&Node> = nodes.filter(|node: &&Node| free.contains_key(&node.name)).collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let mut slots = Vec::new();
    let mut used = Vec::new();
    let mut ranks = 0..members;
    for node in sorted {
        let mut rest = free.get(&node.name).copied().unwrap_or_default().and(node.machine.device_mask());
        let before = slots.len();
        while rest.count() >= devices_per_member
            && let Some(rank) = ranks.next()
        {
            let devices: DeviceMask = rest.iter().take(devices_per_member as usize).collect();
            rest = rest.minus(devices);
            slots.push(Slot { rank, node: node.name.clone(), devices, part: None });
        }
        if slots.len() > before {
            used.push(node);
        }
    }
    ranks.is_empty().then(|| Placement { slots, level: narrowest_level(levels, &used) })
}

/// The narrowest level whose single domain holds all of these nodes; the outermost where none does.
fn narrowest_level(levels: &Levels, nodes: &[&Node]) -> LevelName {
    let Some((first, rest)) = nodes.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return levels.node.clone();
    };
    let shared = |node: &&Node| first.path.iter().zip(&node.path).take_while(|(a, b)| a == b).count();
    let depth = rest.iter().map(shared).min().unwrap_or(0);
    let level = levels.above.get(depth.saturating_sub(1)).or_else(|| levels.above.first());
    level.unwrap_or(&levels.node).clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn levels() -> Levels {
        let name = |text| LevelName::new(text).unwrap();
        Levels::new(vec![name("cluster"), name("leaf")], name("node"))
    }

    fn cluster() -> Vec<Node> {
        let machine = || fixtures::switched("H100", 4, 18, 4);
        vec![
            fixtures::node("n10", &["c", "l2"], machine()),
            fixtures::node("n9", &["c", "l1"], machine()),
            fixtures::node("n1", &["c", "l1"], machine()),
        ]
    }

    fn all_free() -> BTreeMap<NodeName, DeviceMask> {
        cluster().iter().map(|node| (node.name.clone(), node.machine.device_mask())).collect()
    }

    fn slots(placement: &Placement) -> Vec<String> {
        placement.slots.iter().map(|slot| format!("{}:{}:{}", slot.rank, slot.node, slot.devices)).collect()
    }

    #[test]
    fn takes_the_first_devices_and_splits_as_it_goes() {
        let mut free = all_free();
        free.insert(NodeName::new("n1").unwrap(), DeviceMask(0b1010));
        let placement = first_fit(&cluster(), &levels(), &free, 3, 1).unwrap();
        assert_eq!(slots(&placement), ["0:n1:1", "1:n1:3", "2:n9:0"]);
        assert_eq!(placement.level.as_str(), "leaf");
        let wide = first_fit(&cluster(), &levels(), &free, 3, 4);
        assert_eq!(wide, None, "a member is never split over nodes");
    }

    #[test]
    fn all_or_nothing() {
        assert_eq!(first_fit(&cluster(), &levels(), &all_free(), 12, 1).unwrap().level.as_str(), "cluster");
        assert_eq!(first_fit(&cluster(), &levels(), &all_free(), 13, 1), None);
        assert_eq!(first_fit(&cluster(), &levels(), &all_free(), u32::MAX, 0), None);
        assert_eq!(first_fit(&[] as &[Node], &levels(), &all_free(), 1, 0), None);
        assert_eq!(first_fit(&cluster(), &levels(), &all_free(), 2, 0).unwrap().level.as_str(), "node");
    }

    #[test]
    fn devices_that_a_node_does_not_have_are_not_given() {
        let free = all_free().into_keys().map(|name| (name, DeviceMask(u64::MAX))).collect();
        assert_eq!(first_fit(&cluster(), &levels(), &free, 13, 1), None);
    }
}
