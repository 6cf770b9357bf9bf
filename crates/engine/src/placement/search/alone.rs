//! All members on one node, or inside one group of its devices.

use phalanx_model::DeviceMask;

use super::fill::{LEVELS_MAX, in_groups};
use super::measure::{Measure, broken};
use super::{Found, View};
use crate::cluster::share_request::members_request;
use crate::cluster::space::Pick;
use crate::cluster::tree::LevelAt;
use crate::placement::pack::Pack;

/// The value of one node for all members: time, then damage to others, then the share of its network, which the gang does
/// not need; less is better.
type Worth = (u64, u64, u16);

/// The best single node, if one holds the gang. Of equally fast nodes it is the one that costs others least: in a
/// cluster of several models [`Pack`] weighs that, elsewhere it is the fullest node.
pub(super) fn on_one_node(view: View<'_>, pack: &mut Pack, picks: &mut Vec<Pick>) -> Option<Found> {
    let request = view.request;
    let wanted = request.size.checked_mul(request.needs.devices)?;
    let by_one =
        request.is_particular() || request.is_capped() || wanted == 0 || request.members_per_node.is_some();
    let pick = match request.ceiling {
        _ if request.members_per_node.is_some_and(|exactly| exactly != request.size) => None,
        LevelAt::Group(group) => in_group(view, group, wanted),
        _ if by_one => one_by_one(view, wanted),
        _ => by_class(view, wanted),
    }?;
    let pick = packed(view, pack, &pick).unwrap_or(pick);
    picks.clear();
    picks.push(pick);
    let measured = Measure::of(view, picks)?;
    let time_ns = measured.cost.time_ns;
    Some(Found { cost: measured.cost, bottleneck_mb_per_s: measured.bottleneck, least_ns: time_ns })
}

/// A placement as fast as this one that costs others least.
fn packed(view: View<'_>, pack: &mut Pack, found: &Pick) -> Option<Pick> {
    let View { tree, space, request } = view;
    if !tree.is_mixed || request.part_in_node().is_some() || matches!(request.ceiling, LevelAt::Group(_)) {
        return None;
    }
    let ask = members_request(tree, request.needs, request.size)?;
    let wanted = found.devices.count();
    let ring = |node: usize, set| tree.kind(&tree.nodes[node]).ring(set);
    let least = request.traffic.over(ring(found.node as usize, found.devices));
    let set_on = |node: usize| {
        let devices = request.devices(tree, space, node);
        if request.limit(tree, space, node, devices) < request.size || !has_room_around(view, node) {
            return None;
        }
        let set = tree.kind(&tree.nodes[node]).table.best(devices, wanted)?;
        (request.traffic.over(ring(node, set)) <= least).then_some(set)
    };
    let (node, _) = pack.choose(tree, space, &ask, |node| set_on(node).is_some())?;
    Some(Pick::new(node as u32, request.size, set_on(node)?))
}

fn worth(view: View<'_>, node: usize, free: DeviceMask, set: DeviceMask) -> Worth {
    let kind = view.tree.kind(&view.tree.nodes[node]);
    let time_ns = view.request.traffic.over(kind.ring(set));
    (time_ns, broken(free.count(), free == kind.all(), set.count()), kind.network_permille())
}

/// Reads the classes of free masks from the best on, and takes a node of the class with the least free capacity
/// around it.
fn by_class(view: View<'_>, wanted: u32) -> Option<Pick> {
    let mut last: Option<(Worth, u16, u16)> = None;
    loop {
        let next = next_class(view, wanted, last)?;
        let (_, kind, class) = next;
        if let Some(node) = first_of_class(view, kind, class) {
            let table = &view.tree.kinds[usize::from(kind)].table;
            let devices = table.best(view.space.free(node).devices, wanted)?;
            return Some(Pick::new(node as u32, view.request.size, devices));
        }
        last = Some(next);
    }
}

/// The best class after the last one, of those that have open nodes.
fn next_class(view: View<'_>, wanted: u32, last: Option<(Worth, u16, u16)>) -> Option<(Worth, u16, u16)> {
    let mut best = None;
    for row in view.rows() {
        let kind = &view.tree.kinds[usize::from(row.kind)];
        if view.request.eligible[usize::from(row.kind)].is_empty() {
            continue;
        }
        let counts = view.space.counts(view.tree, 0, row);
        for ((class, offer), _) in (0_u16..).zip(kind.offers()).zip(counts).filter(|(_, nodes)| **nodes > 0) {
            let Some(ring) = offer.inside.get(wanted as usize) else { continue };
            let is_whole = offer.devices == kind.all().count();
            let time_ns = view.request.traffic.over(*ring);
            let worth = (time_ns, broken(offer.devices, is_whole, wanted), kind.network_permille());
            let candidate = (worth, row.kind, class);
            if last.is_none_or(|last| candidate > last) && best.is_none_or(|best| candidate < best) {
                best = Some(candidate);
            }
        }
    }
    best
}

/// A node of a class with room for all: in the domain with the least free devices, level by level.
fn first_of_class(view: View<'_>, kind: u16, class: u16) -> Option<usize> {
    let tree = view.tree;
    let mut open: [std::ops::Range<usize>; LEVELS_MAX] = std::array::from_fn(|_| 0..0);
    let mut last: [Option<(bool, u32, usize)>; LEVELS_MAX] = [None; LEVELS_MAX];
    open[0] = 0..tree.domains.first()?.len();
    let mut level = 0;
    loop {
        let has = |domain: &usize| {
            let rows = view.space.rows(level, *domain);
            let row = rows.iter().find(|row| row.kind == kind);
            row.is_some_and(|row| view.space.counts(tree, level, row)[usize::from(class)] > 0)
        };
        let key = |domain: usize| {
            let free = view.space.free_devices(level, domain);
            (free == tree.domains[level][domain].devices, free, domain)
        };
        let next = open[level]
            .clone()
            .filter(has)
            .map(key)
            .filter(|at| last[level].is_none_or(|last| *at > last))
            .min();
        let Some(at) = next else {
            level = level.checked_sub(1)?;
            continue;
        };
        last[level] = Some(at);
        let domain = &tree.domains[level][at.2];
        if level + 1 < tree.depth() {
            level += 1;
            open[level] = domain.children.clone();
            last[level] = None;
            continue;
        }
        let holds = |node: &usize| {
            let place = &tree.nodes[*node];
            let free = view.space.free(*node);
            place.kind == kind
                && view.space.class(*node) == class
                && view.request.limit(tree, view.space, *node, free.devices) >= view.request.size
        };
        if let Some(node) = domain.nodes.clone().find(holds) {
            return Some(node);
        }
    }
}

/// Whether the domains around a node may have the whole gang.
fn has_room_around(view: View<'_>, node: usize) -> bool {
    let Some(innermost) = view.tree.depth().checked_sub(1) else { return true };
    let leaf = view.tree.nodes[node].leaf as usize;
    view.request.room(view.tree, view.space, innermost, leaf) >= view.request.size
}

/// Reads every node: if some devices are not eligible, nodes are named, or no devices are requested.
fn one_by_one(view: View<'_>, wanted: u32) -> Option<Pick> {
    let mut best: Option<(Worth, Pick)> = None;
    for node in 0..view.tree.nodes.len() {
        let devices = view.request.devices(view.tree, view.space, node);
        if view.request.limit(view.tree, view.space, node, devices) < view.request.size
            || !has_room_around(view, node)
        {
            continue;
        }
        let kind = view.tree.kind(&view.tree.nodes[node]);
        let set = match view.request.part_in_node() {
            Some(part) => in_groups(view, kind, devices, view.request.size, part, |set| Some(kind.ring(set))),
            None => kind.table.best(devices, wanted),
        };
        let Some(set) = set else { continue };
        let worth = worth(view, node, view.space.free(node).devices, set);
        if best.is_none_or(|(found, _)| worth < found) {
            best = Some((worth, Pick::new(node as u32, view.request.size, set)));
        }
    }
    best.map(|(_, pick)| pick)
}

/// One group of one node for all: the fastest, then the tightest, then the first.
fn in_group(view: View<'_>, group: usize, wanted: u32) -> Option<Pick> {
    let request = view.request;
    let mut best: Option<(Worth, Pick)> = None;
    for node in 0..view.tree.nodes.len() {
        let devices = request.devices(view.tree, view.space, node);
        if devices.count() < wanted
            || request.limit(view.tree, view.space, node, devices) < request.size
            || !has_room_around(view, node)
        {
            continue;
        }
        let kind = view.tree.kind(&view.tree.nodes[node]);
        for site in request.sites(kind, Some(group)) {
            let inside = devices.and(site);
            let set = match request.part_in_node() {
                Some(part) if part.0 != group => {
                    in_groups(view, kind, inside, request.size, part, |set| Some(kind.ring(set)))
                }
                _ => kind.table.best(inside, wanted),
            };
            let Some(set) = set else { continue };
            let worth = worth(view, node, inside, set);
            if best.is_none_or(|(found, _)| worth < found) {
                best = Some((worth, Pick::new(node as u32, request.size, set)));
            }
        }
    }
    best.map(|(_, pick)| pick)
}
