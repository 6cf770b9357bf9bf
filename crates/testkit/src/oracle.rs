//! Whether any placement of a gang exists, by trying them all. For tiny clusters only.

use std::collections::BTreeMap;

use phalanx_model::{Admin, DeviceMask, Gang, LevelName, Levels, Needs, Node, NodeName, Placement, Segment};

/// What is free on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amounts {
    pub devices: DeviceMask,
    pub cpu_milli: i128,
    pub memory_bytes: i128,
}

/// Free amounts are signed; a machine with more than this is counted as having this.
const AMOUNT_MAX: u64 = i64::MAX as u64;

/// What is left on every node, closed ones included, when these hold what they hold.
#[must_use]
pub fn free<'a>(
    nodes: impl IntoIterator<Item = &'a Node>,
    held: &[(&Needs, &Placement)],
) -> BTreeMap<NodeName, Amounts> {
    let mut free = BTreeMap::new();
    for node in nodes {
        let mut amounts = Amounts {
            devices: node.machine.device_mask().minus(node.foreign),
            cpu_milli: i128::from(node.machine.cpu_milli.min(AMOUNT_MAX)),
            memory_bytes: i128::from(node.machine.memory_bytes.min(AMOUNT_MAX)),
        };
        for (needs, placement) in held {
            for slot in placement.slots.iter().filter(|s| s.node == node.name) {
                amounts.devices = amounts.devices.minus(slot.devices);
                amounts.cpu_milli -= i128::from(needs.cpu_milli);
                amounts.memory_bytes -= i128::from(needs.memory_bytes);
            }
        }
        free.insert(node.name.clone(), amounts);
    }
    free
}

/// The narrowest of the levels from the node outwards in which the whole gang has a place, the levels outside
/// of `required` left out. Levels inside the node are asked for with [`fits_in_group`].
#[must_use]
pub fn narrowest(
    levels: &Levels,
    nodes: &[Node],
    free: &BTreeMap<NodeName, Amounts>,
    gang: &Gang,
) -> Option<LevelName> {
    let outwards = std::iter::once(&levels.node).chain(levels.above.iter().rev());
    for level in outwards {
        if fits_in(levels, nodes, free, gang, level) {
            return Some(level.clone());
        }
        if gang.topology.required.as_ref() == Some(level) {
            return None;
        }
    }
    None
}

/// Whether the whole gang has a place inside one domain of a level, the node's or one above.
#[must_use]
pub fn fits_in(
    levels: &Levels,
    nodes: &[Node],
    free: &BTreeMap<NodeName, Amounts>,
    gang: &Gang,
    level: &LevelName,
) -> bool {
    let depth = levels.above.iter().position(|l| l == level);
    let mut domains: BTreeMap<Vec<String>, Vec<(&Node, Amounts)>> = BTreeMap::new();
    for node in nodes.iter().filter(|n| n.admin == Admin::Open) {
        let mut path: Vec<String> = node.path.iter().map(ToString::to_string).collect();
        match depth {
            Some(depth) => path.truncate(depth + 1),
            None => path.push(node.name.to_string()),
        }
        if let Some(amounts) = free.get(&node.name) {
            domains.entry(path).or_default().push((node, *amounts));
        }
    }
    domains.values().any(|members| has_place(levels, members, gang))
}

/// Whether the whole gang has a place inside one group of a level inside the node.
#[must_use]
pub fn fits_in_group(
    levels: &Levels,
    nodes: &[Node],
    free: &BTreeMap<NodeName, Amounts>,
    gang: &Gang,
    level: &LevelName,
) -> bool {
    nodes.iter().filter(|n| n.admin == Admin::Open).any(|node| {
        let groups = node.machine.groups.iter().filter(|g| g.level == *level);
        groups.into_iter().any(|group| {
            free.get(&node.name).is_some_and(|amounts| {
                let inside = Amounts { devices: amounts.devices.and(group.devices), ..*amounts };
                has_place(levels, &[(node, inside)], gang)
            })
        })
    })
}

fn has_place(levels: &Levels, nodes: &[(&Node, Amounts)], gang: &Gang) -> bool {
    if gang.topology.segments.is_empty() {
        return try_all(nodes, gang, gang.size);
    }
    let mut spots: Vec<Spot<'_>> = nodes.iter().flat_map(|of| spots(levels, of, gang)).collect();
    try_ranks(&mut spots, &mut Vec::new(), nodes, gang)
}

/// Where a rank can stand: on a node, and there in one group of each level inside the node that a segment names.
struct Spot<'a> {
    node: &'a Node,
    /// For each segment, its domain here.
    domains: Vec<Vec<String>>,
    amounts: Amounts,
    /// Ranks that stand here.
    ranks: u32,
}

/// The spots of a node. Groups of one level are disjoint, so spots share no device; they share CPUs and memory.
fn spots<'a>(levels: &Levels, (node, amounts): &(&'a Node, Amounts), gang: &Gang) -> Vec<Spot<'a>> {
    let whole = Spot { node, domains: Vec::new(), amounts: *amounts, ranks: 0 };
    gang.topology.segments.iter().fold(vec![whole], |spots, Segment { level, .. }| {
        let mut path: Vec<String> = node.path.iter().map(ToString::to_string).collect();
        let depth = levels.above.iter().position(|l| l == level);
        path.truncate(depth.map_or(path.len(), |depth| depth + 1));
        let parts: Vec<(Vec<String>, DeviceMask)> = if depth.is_some() {
            vec![(path, amounts.devices)]
        } else if *level == levels.node {
            path.push(node.name.to_string());
            vec![(path, amounts.devices)]
        } else {
            path.push(node.name.to_string());
            let groups = node.machine.groups.iter().filter(|group| group.level == *level);
            groups.map(|group| ([&path[..], &[group.devices.to_string()]].concat(), group.devices)).collect()
        };
        let inside = |spot: &Spot<'a>, (domain, devices): &(Vec<String>, DeviceMask)| Spot {
            domains: [&spot.domains[..], std::slice::from_ref(domain)].concat(),
            amounts: Amounts { devices: spot.amounts.devices.and(*devices), ..spot.amounts },
            ..*spot
        };
        let inside = &inside;
        spots.iter().flat_map(|spot| parts.iter().map(move |part| inside(spot, part))).collect()
    })
}

/// Tries every spot for the next rank, then for the others.
fn try_ranks(
    spots: &mut [Spot<'_>],
    placed: &mut Vec<usize>,
    nodes: &[(&Node, Amounts)],
    gang: &Gang,
) -> bool {
    let on = |spots: &[Spot<'_>], node: &Node| -> u32 {
        spots.iter().filter(|s| s.node.name == node.name).map(|s| s.ranks).sum()
    };
    if placed.len() == gang.size as usize {
        return nodes.iter().all(|(node, amounts)| holds(node, amounts, gang, on(spots, node)));
    }
    (0..spots.len()).any(|at| {
        // Beside the rank before it, unless a segment begins here.
        let together = placed.last().is_none_or(|before| {
            (0..).zip(&gang.topology.segments).all(|(i, segment): (usize, _)| {
                placed.len().is_multiple_of(segment.size as usize)
                    || spots[at].domains[i] == spots[*before].domains[i]
            })
        });
        let loose = Gang { members_per_node: None, ..gang.clone() };
        let of_node = nodes.iter().find(|(node, _)| node.name == spots[at].node.name).unwrap().1;
        spots[at].ranks += 1;
        placed.push(at);
        let has_room = together
            && holds(spots[at].node, &spots[at].amounts, &loose, spots[at].ranks)
            && holds(spots[at].node, &of_node, &loose, on(spots, spots[at].node));
        let fits = has_room && try_ranks(spots, placed, nodes, gang);
        placed.pop();
        spots[at].ranks -= 1;
        fits
    })
}

/// Tries every number of members on the first node, then the rest on the others.
fn try_all(nodes: &[(&Node, Amounts)], gang: &Gang, left: u32) -> bool {
    let Some(((node, amounts), rest)) = nodes.split_first() else { return left == 0 };
    (0..=left).any(|here| holds(node, amounts, gang, here) && try_all(rest, gang, left - here))
}

fn holds(node: &Node, amounts: &Amounts, gang: &Gang, members: u32) -> bool {
    if members == 0 {
        return true;
    }
    let needs = &gang.needs;
    if !needs.nodes.is_empty() && !needs.nodes.contains(&node.name) {
        return false;
    }
    let fitting = amounts.devices.iter().filter(|d| {
        let model = node.machine.devices.get(*d as usize).map_or("", |d| d.model.as_str());
        let model = model.to_lowercase();
        needs.models.is_empty() || needs.models.iter().any(|m| model.contains(&m.model.to_lowercase()))
    });
    let members_wide = i128::from(members);
    let amount = |free: i128, need: u64| need == 0 || members_wide * i128::from(need) <= free;
    gang.members_per_node.is_none_or(|exactly| members == exactly)
        && u128::from(members) * u128::from(needs.devices) <= fitting.count() as u128
        && amount(amounts.cpu_milli, needs.cpu_milli)
        && amount(amounts.memory_bytes, needs.memory_bytes)
}
