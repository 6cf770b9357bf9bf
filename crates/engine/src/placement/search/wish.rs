//! Nodes that a gang would rather have or be near to, and device models of different speed.

use phalanx_model::{Gang, ModelNeed};

use super::{Ceiling, Found, PlacementCost, Search};
use crate::cluster::space::Space;
use crate::cluster::tree::Tree;
use crate::placement::pools;

/// Whether a gang has any.
pub(super) fn has_wishes(gang: &Gang) -> bool {
    !gang.needs.prefer_pools.is_empty()
        || prefers_set(gang)
        || favours_set(gang)
        || !gang.needs.prefer.is_empty()
        || !gang.topology.near.is_empty()
        || speeds(gang).nth(1).is_some()
}

fn prefers_set(gang: &Gang) -> bool {
    gang.all_needs().any(|needs| needs.prefer_within.is_some())
}

fn favours_set(gang: &Gang) -> bool {
    gang.all_needs().any(|needs| needs.favour_within.is_some())
}

/// The best place inside the first preferred pool that holds the gang.
pub(super) fn place(
    search: &mut Search,
    tree: &Tree,
    space: &Space,
    gang: &Gang,
    ceiling: Ceiling,
) -> Option<Found> {
    let choices = pools::choices(gang);
    if choices.is_empty() {
        return favourably(search, tree, space, gang, ceiling);
    }
    choices.iter().find_map(|only| favourably(search, tree, space, only, ceiling))
}

/// The best place, and one inside the favoured sets in its stead if that is as good.
fn favourably(
    search: &mut Search,
    tree: &Tree,
    space: &Space,
    gang: &Gang,
    ceiling: Ceiling,
) -> Option<Found> {
    if !favours_set(gang) {
        return preferably(search, tree, space, gang, ceiling);
    }
    let (mut any, mut only) = (gang.clone(), gang.clone());
    any.all_needs_mut().for_each(|needs| needs.favour_within = None);
    let best = preferably(search, tree, space, &any, ceiling)?;
    let (picks, order) = (search.picks().to_vec(), search.order().to_vec());
    for needs in only.all_needs_mut() {
        if let Some(set) = needs.favour_within.take() {
            (needs.within, needs.prefer_within) = (Some(set), None);
        }
    }
    let favoured = preferably(search, tree, space, &only, ceiling);
    let is_as_good =
        |found: &Found| found.cost.time_ns <= best.cost.time_ns && found.cost.spans <= best.cost.spans;
    if let Some(found) = favoured.filter(is_as_good) {
        return Some(Found { least_ns: best.least_ns.min(found.cost.time_ns), ..found });
    }
    search.set_picks(&picks);
    search.set_order(order);
    Some(best)
}

/// Places the gang inside its preferred sets, or on its preferred nodes, if they hold it, and on any nodes otherwise.
fn preferably(
    search: &mut Search,
    tree: &Tree,
    space: &Space,
    gang: &Gang,
    ceiling: Ceiling,
) -> Option<Found> {
    let mut gang = gang.clone();
    if prefers_set(&gang) {
        let mut only = gang.clone();
        for needs in only.all_needs_mut() {
            needs.within = needs.prefer_within.take().or(needs.within.take());
        }
        if let Some(found) = on_preferred(search, tree, space, only, ceiling) {
            return Some(found);
        }
        gang.all_needs_mut().for_each(|needs| needs.prefer_within = None);
    }
    on_preferred(search, tree, space, gang, ceiling)
}

fn on_preferred(
    search: &mut Search,
    tree: &Tree,
    space: &Space,
    mut gang: Gang,
    ceiling: Ceiling,
) -> Option<Found> {
    let preferred = std::mem::take(&mut gang.needs.prefer);
    if !preferred.is_empty() {
        let mut only = gang.clone();
        only.needs.nodes = preferred
            .into_iter()
            .filter(|name| gang.needs.nodes.is_empty() || gang.needs.nodes.contains(name))
            .collect();
        // An empty list would mean any node.
        let found =
            if only.needs.nodes.is_empty() { None } else { nearest(search, tree, space, only, ceiling) };
        if found.is_some() {
            return found;
        }
    }
    nearest(search, tree, space, gang, ceiling)
}

/// On the nodes that it is to be near to, or inside the innermost domains around them that hold it, or anywhere.
fn nearest(
    search: &mut Search,
    tree: &Tree,
    space: &Space,
    mut gang: Gang,
    ceiling: Ceiling,
) -> Option<Found> {
    let near = std::mem::take(&mut gang.topology.near);
    let near: Vec<usize> = near.iter().filter_map(|name| tree.index_of(name)).collect();
    if near.is_empty() {
        return by_speed(search, tree, space, gang, ceiling);
    }
    let listed = tree.listed(&gang.needs);
    let mut inside = vec![false; tree.nodes.len()];
    let mut known = 0;
    // The nodes themselves, then level by level outwards.
    for level in (0..=tree.depth()).rev() {
        for at in &near {
            let domain = (level < tree.depth()).then(|| &tree.domains[level][tree.domain_of(*at, level)]);
            inside[domain.map_or(*at..*at + 1, |domain| domain.nodes.clone())].fill(true);
        }
        let nodes = inside.iter().enumerate().filter(|(at, is_inside)| **is_inside && listed.has(*at));
        let nodes: Vec<usize> = nodes.map(|(at, _)| at).collect();
        let is_more = nodes.len() > std::mem::replace(&mut known, nodes.len());
        // If the class has all nodes, the plain request below covers it.
        if !is_more || nodes.len() == tree.nodes.len() {
            continue;
        }
        let mut only = gang.clone();
        only.needs.nodes = nodes.into_iter().map(|at| tree.nodes[at].name.clone()).collect();
        let found = by_speed(search, tree, space, only, ceiling);
        if found.is_some() {
            return found;
        }
    }
    by_speed(search, tree, space, gang, ceiling)
}

/// The distinct speeds of the models that will do.
fn speeds(gang: &Gang) -> impl Iterator<Item = u32> + '_ {
    let models = &gang.needs.models;
    let is_first =
        |(at, need): &(usize, &ModelNeed)| !models[..*at].iter().any(|m| m.speed_milli == need.speed_milli);
    models.iter().enumerate().filter(is_first).map(|(_, need)| need.speed_milli)
}

/// A gang computes as fast as its slowest device, so speeds are bottlenecks as bandwidths are: for each speed, the
/// fastest first, the best placement on devices that reach it, and of these the one with the shortest step. If a gang
/// does not declare its compute time, the fastest devices that hold it win.
fn by_speed(
    search: &mut Search,
    tree: &Tree,
    space: &Space,
    mut gang: Gang,
    ceiling: Ceiling,
) -> Option<Found> {
    let mut speeds: Vec<u32> = speeds(&gang).collect();
    speeds.sort_unstable_by_key(|speed| std::cmp::Reverse(*speed));
    let Some(fastest) = speeds.first().copied().filter(|_| speeds.len() > 1) else {
        return search.place_as_asked(tree, space, &gang, ceiling);
    };
    let models = gang.needs.models.clone();
    let compute_ns = gang.traffic.map_or(0, |traffic| traffic.compute_ns);
    let mut best: Option<(Found, Vec<super::Pick>, Vec<u32>)> = None;
    let mut least_ns = u64::MAX;
    for speed in speeds {
        let longer_ns = step_ns(compute_ns, speed).saturating_sub(step_ns(compute_ns, fastest));
        if best.as_ref().is_some_and(|(found, ..)| compute_ns == 0 || found.cost.time_ns <= longer_ns) {
            break;
        }
        gang.needs.models = models.iter().filter(|need| need.speed_milli >= speed).cloned().collect();
        let Some(found) = search.place_as_asked(tree, space, &gang, ceiling) else { continue };
        least_ns = least_ns.min(found.least_ns.saturating_add(longer_ns));
        let time_ns = found.cost.time_ns.saturating_add(longer_ns);
        if best.as_ref().is_none_or(|(before, ..)| time_ns < before.cost.time_ns) {
            let found = Found { cost: PlacementCost { time_ns, ..found.cost }, ..found };
            best = Some((found, search.picks().to_vec(), search.order().to_vec()));
        }
    }
    let (found, picks, order) = best?;
    search.set_picks(&picks);
    search.set_order(order);
    Some(Found { least_ns: least_ns.min(found.cost.time_ns), ..found })
}

fn step_ns(compute_ns: u64, speed_milli: u32) -> u64 {
    let ns = u128::from(compute_ns) * u128::from(ModelNeed::AS_SAID) / u128::from(speed_milli.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}
