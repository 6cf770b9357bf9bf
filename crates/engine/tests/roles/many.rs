//! Gangs of many roles: a member for each of many nodes, and members that may be anywhere beside them.

use std::collections::BTreeMap;

use phalanx_engine::Placer;
use phalanx_model::{Gang, Node, NodeSet};
use phalanx_testkit::{costs, gang, levels, node};

/// So many nodes in racks of 32, each in a set of its own and in one with the next; of 8 devices and 16 CPUs.
fn nodes(count: usize) -> Vec<Node> {
    let node = |at: usize| {
        let rack = format!("rack-{}", at / 32);
        let mut node = node(&format!("n{at}")).path(["all", &rack]).gpus(8).model("H100").cpus(16).build();
        node.sets = vec![only(at), pair(at)];
        node
    };
    (0..count).map(node).collect()
}

fn only(at: usize) -> NodeSet {
    NodeSet::new(&format!("only-{at}"))
}

fn pair(at: usize) -> NodeSet {
    NodeSet::new(&format!("pair-{}", at / 2))
}

/// A gang with a member of eight devices for each of these sets, the first of them its own.
fn of_sets(sets: Vec<Option<NodeSet>>) -> Gang {
    let roles = sets.len() - 1;
    let names: Vec<String> = (0..roles).map(|at| format!("role-{at}")).collect();
    let first = gang(1).devices(8).cpu_milli(1_000);
    let with_roles =
        names.iter().fold(first, |all, name| all.role(name, gang(1).devices(8).cpu_milli(1_000)));
    let mut asked = with_roles.build();
    for (needs, set) in
        std::iter::once(&mut asked.needs).chain(asked.roles.iter_mut().map(|role| &mut role.needs)).zip(sets)
    {
        needs.within = set;
    }
    asked
}

fn placed(placer: &mut Placer, gang: &Gang) -> Option<BTreeMap<u32, String>> {
    placer.place(gang)?;
    let slots = placer.placement(gang)?.slots;
    Some(slots.into_iter().map(|slot| (slot.rank, slot.node.to_string())).collect())
}

#[test]
fn a_member_for_each_of_many_nodes_has_its_node() {
    let nodes = nodes(256);
    let mut placer = Placer::new(&levels(&["cluster", "rack"]), nodes.clone(), &costs(&nodes));
    // Every third node, from the last: 64 requests.
    let at = |rank: usize| 255 - rank * 3;
    let found = placed(&mut placer, &of_sets((0..64).map(|rank| Some(only(at(rank)))).collect())).unwrap();
    for rank in 0..64 {
        assert_eq!(found[&u32::try_from(rank).unwrap()], format!("n{}", at(rank)));
    }
}

/// Members that may be anywhere were placed first, and took the only node of another.
#[test]
fn of_many_roles_those_with_the_fewest_nodes_choose_first() {
    let nodes = nodes(64);
    let mut placer = Placer::new(&levels(&["cluster", "rack"]), nodes.clone(), &costs(&nodes));
    // By turns anywhere, on one of two nodes, and on one node: all nodes are needed.
    let set = |rank: usize| match rank % 4 {
        0 | 1 => None,
        2 => Some(pair(rank / 4 * 2)),
        _ => Some(only(rank / 4 * 2)),
    };
    let found = placed(&mut placer, &of_sets((0..64).map(set).collect())).unwrap();
    let used: std::collections::BTreeSet<&String> = found.values().collect();
    assert_eq!(used.len(), 64);
    // One node less, and there is no place.
    let mut placer = Placer::new(&levels(&["cluster", "rack"]), nodes[..63].to_vec(), &costs(&nodes));
    assert_eq!(placed(&mut placer, &of_sets((0..64).map(set).collect())), None);
}
