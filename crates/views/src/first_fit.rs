//! What a scheduler that only counts devices would choose, under the same rules of the job.

use std::collections::BTreeMap;

use phalanx_model::{DeviceMask, DomainName, Gang, LevelName, Levels, Needs, Node, NodeName};
use phalanx_shell::cost;

use crate::Map;
use phalanx_api::protocol::FirstFitView;

use crate::Books;

type FreeDevices = BTreeMap<NodeName, DeviceMask>;

/// The first fit of a gang, and what the cost model says of it. `None` where it does not fit, and where the gang has
/// rules that counting cannot keep: a place that breaks them is no comparison.
pub(crate) fn first_fit(books: &Books<'_>, map: &Map, nodes: &[&Node], gang: &Gang) -> Option<FirstFitView> {
    if !is_comparable(gang) {
        return None;
    }
    let free: FreeDevices = nodes
        .iter()
        .filter(|node| takes(node, &gang.needs))
        .filter_map(|node| Some((node.name.clone(), usable(books, node, &gang.needs)?)))
        .collect();
    let fit = |free: &FreeDevices| {
        cost::baseline::first_fit(nodes, &map.levels, free, gang.size, gang.needs.devices)
    };
    let placement =
        domains(nodes, &map.levels, gang.topology.required.as_ref(), &free)?.iter().find_map(fit)?;
    // Equal parts are kept where there is one.
    let first = placement.slots.first().map(|slot| &slot.node);
    if gang.members_per_node.is_some() && !placement.slots.iter().all(|slot| Some(&slot.node) == first) {
        return None;
    }
    let predicted = map.predict(&crate::jobs::nodes_of(books, &placement), gang, &placement)?;
    Some(FirstFitView { placement, predicted })
}

/// Whether all rules of the gang are those that counting keeps: devices of a model, nodes by name, CPUs, memory, and one
/// required level.
fn is_comparable(gang: &Gang) -> bool {
    let (needs, topology) = (&gang.needs, &gang.topology);
    let has_other_needs = needs.part.is_some()
        || !needs.named.is_empty()
        || needs.within.is_some()
        || needs.prefer_within.is_some()
        || !needs.prefer.is_empty()
        || !needs.prefer_pools.is_empty()
        || needs.is_exclusive;
    let has_other_rules = !topology.segments.is_empty()
        || !topology.spread.is_empty()
        || topology.slice.is_some()
        || !topology.together.is_empty()
        || gang.members_per_node.is_some_and(|members| members != gang.size);
    gang.roles.is_empty() && needs.devices > 0 && !has_other_needs && !has_other_rules
}

fn takes(node: &Node, needs: &Needs) -> bool {
    node.kept.is_nothing()
        && (node.spot.is_none() || needs.takes_spot)
        && !node.spare.refuses(needs)
        && needs.pools.iter().all(|pool| node.pools.contains(pool))
        && (needs.nodes.is_empty() || needs.nodes.contains(&node.name))
        && !needs.avoid.contains(&node.name)
}

/// Free devices of a model that the gang accepts, for as many members as the node has CPUs and memory.
fn usable(books: &Books<'_>, node: &Node, needs: &Needs) -> Option<DeviceMask> {
    let free = books.free(&node.name).filter(|free| free.open)?;
    let is_of_model = |at: &u32| {
        let device = usize::try_from(*at).ok().and_then(|at| node.machine.devices.get(at));
        let model = device.map(|device| device.model.as_str().to_lowercase()).unwrap_or_default();
        needs.models.is_empty() || needs.models.iter().any(|need| model.contains(&need.model.to_lowercase()))
    };
    let times = |free: i128, each: u128| u128::try_from(free).unwrap_or(0).checked_div(each);
    let by_cpu = times(free.cpu_milli.into(), needs.cpu_milli.into());
    let by_memory = times(free.memory_bytes.into(), needs.memory_bytes.into());
    let members = by_cpu.unwrap_or(u128::MAX).min(by_memory.unwrap_or(u128::MAX));
    let devices = usize::try_from(members.saturating_mul(needs.devices.into())).unwrap_or(usize::MAX);
    Some(free.devices.iter().filter(is_of_model).take(devices).collect())
}

/// The free devices of each domain of the required level, in natural order; of all nodes together where none is
/// required. `None`: the level is inside of nodes, of which counting knows nothing.
fn domains(
    nodes: &[&Node],
    levels: &Levels,
    required: Option<&LevelName>,
    free: &FreeDevices,
) -> Option<Vec<FreeDevices>> {
    let Some(level) = required else { return Some(vec![free.clone()]) };
    let depth = match levels.above.iter().position(|above| above == level) {
        Some(at) => at + 1,
        None if *level == levels.node => usize::MAX,
        None => return None,
    };
    let mut domains: BTreeMap<(&[DomainName], Option<&NodeName>), FreeDevices> = BTreeMap::new();
    for node in nodes {
        let Some(devices) = free.get(&node.name) else { continue };
        let path = node.path.get(..depth.min(node.path.len())).unwrap_or_default();
        let alone = (depth == usize::MAX).then_some(&node.name);
        domains.entry((path, alone)).or_default().insert(node.name.clone(), *devices);
    }
    Some(domains.into_values().collect())
}
