//! The exact recursion: for every domain and every number of members below it, the least cost; children are merged by
//! (min,+) convolution (a knapsack over the tree).
//!
//! Among everything that reaches a bottleneck, the crossings are a sum over domains and nodes of a term that depends
//! only on the number of members below, so the best of a domain follows from the best of its children. Parts of the
//! gang restrict a domain to whole parts, except for the domain with the smaller last part: a second state records
//! whether it is below.

use phalanx_model::DeviceMask;

use super::capacity::Capacities;
use super::fill::choose_devices;
use super::measure::{broken, crossing_bytes, one_span};
use super::{PlacementCost, View, inside_of};
use crate::cluster::shape::NO_LIMIT;
use crate::cluster::space::Pick;
use crate::cluster::tree::LevelAt;

const ZERO: PlacementCost = PlacementCost { time_ns: 0, spans: 0, breaks: 0 };

/// The number of merged states of the recursion for one bottleneck.
pub(super) fn steps(view: View<'_>, outermost: usize) -> u64 {
    let size = u64::from(view.request.size);
    let states = if rest_level(view).is_some() { 4 } else { 1 };
    let (mut members, mut nodes) = (0_u64, 0_u64);
    for row in view.rows() {
        let offers = view.tree.kinds[usize::from(row.kind)].offers();
        for (offer, count) in offers.iter().zip(view.space.counts(view.tree, 0, row)) {
            let each = offer.devices.checked_div(view.request.needs.devices).unwrap_or(view.request.size);
            members += u64::from(*count) * u64::from(each.min(view.request.size));
            nodes += if each > 0 { u64::from(*count) } else { 0 };
        }
    }
    let merges = (view.tree.depth() - outermost) as u64;
    (nodes + members * (merges + 1)).saturating_mul(size).saturating_mul(states)
}

/// The level of the innermost part that does not divide the gang: there the smaller last part comes up.
fn rest_level(view: View<'_>) -> Option<LevelAt> {
    let parts = view.request.parts.iter().rev();
    parts.filter(|part| !view.request.size.is_multiple_of(part.size)).map(|part| part.level).next()
}

/// Costs by number of members, without and with the smaller last part below.
#[derive(Clone, Debug, Default)]
struct Table {
    costs: Vec<[PlacementCost; 2]>,
}

/// How the children of a domain were merged: for each child and state, the members of that child.
#[derive(Clone, Debug, Default)]
struct Merged {
    /// The child, and by members and state: `members of the child * 2 + its state`.
    children: Vec<(u32, Vec<[u32; 2]>)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Exact {
    caps: Capacities,
    merged: Vec<Vec<Merged>>,
    tables: Vec<Vec<Table>>,
}

impl Exact {
    /// The placement of least cost in which everything reaches the bottleneck; the picks are in the order of the
    /// tree. Whether there is one.
    pub(super) fn solve(
        &mut self,
        view: View<'_>,
        outermost: usize,
        threshold: u32,
        picks: &mut Vec<Pick>,
    ) -> bool {
        let depth = view.tree.depth();
        let mut best: Option<(PlacementCost, usize, usize)> = None;
        let (mut from, mut joined) = (depth, 0);
        self.caps.begin(view);
        // The bandwidth between nodes depends on the level that holds the gang.
        while from > outermost {
            let inside = inside_of(view, from - 1);
            let first = (outermost..from).find(|level| inside_of(view, *level) == inside).unwrap_or(from - 1);
            self.tabulate(view, first, threshold, inside);
            let mut found = None;
            for level in first..from {
                let state = usize::from(rest_level(view).is_some_and(|rest| rest > LevelAt::Above(level)));
                for (domain, table) in self.tables[level].iter().enumerate() {
                    let Some(costs) = table.costs.get(view.request.size as usize) else { continue };
                    let candidate = (costs[state], level, domain);
                    let has_room =
                        view.request.room(view.tree, view.space, level, domain) >= view.request.size;
                    if has_room
                        && costs[state] != PlacementCost::MAX
                        && found.is_none_or(|found| candidate < found)
                    {
                        found = Some(candidate);
                    }
                }
            }
            if let Some(found) = found
                && best.is_none_or(|best| found < best)
            {
                (best, joined) = (Some(found), inside);
                picks.clear();
                let state = usize::from(rest_level(view).is_some_and(|rest| rest > LevelAt::Above(found.1)));
                self.trace(view, found.1, found.2, view.request.size, state, picks);
            }
            from = first;
        }
        picks.sort_unstable_by_key(|pick| pick.node);
        best.is_some() && picks.iter_mut().all(|pick| choose_devices(view, threshold, joined, pick))
    }

    /// Tables of all domains from the innermost level to `outermost`.
    fn tabulate(&mut self, view: View<'_>, outermost: usize, threshold: u32, inside: u32) {
        self.caps.set(view, threshold, inside);
        self.tables.resize(view.tree.depth(), Vec::new());
        self.merged.resize(view.tree.depth(), Vec::new());
        for level in (outermost..view.tree.depth()).rev() {
            let domains = view.tree.domains[level].len();
            self.tables[level].resize(domains, Table::default());
            self.merged[level].resize(domains, Merged::default());
            for domain in 0..domains {
                let mut table = std::mem::take(&mut self.tables[level][domain]);
                let mut merged = std::mem::take(&mut self.merged[level][domain]);
                table.costs.clear();
                table.costs.push([ZERO, PlacementCost::MAX]);
                merged.children.clear();
                if level + 1 == view.tree.depth() {
                    for node in view.tree.domains[level][domain].nodes.clone() {
                        let offers = self.of_node(view, node, threshold, inside);
                        merge(view, &mut table, &mut merged, node as u32, &offers);
                    }
                } else {
                    for child in view.tree.domains[level][domain].children.clone() {
                        let offers = self.of_child(view, level + 1, child, threshold, inside);
                        merge(view, &mut table, &mut merged, child as u32, &offers);
                    }
                }
                self.tables[level][domain] = table;
                self.merged[level][domain] = merged;
            }
        }
    }

    /// The possible members of one node and their cost: `(members, state, cost)`.
    fn of_node(
        &self,
        view: View<'_>,
        node: usize,
        threshold: u32,
        inside: u32,
    ) -> Vec<(u32, usize, PlacementCost)> {
        let request = view.request;
        let kind = view.tree.kind(&view.tree.nodes[node]);
        let devices = request.devices(view.tree, view.space, node);
        let most = request.limit(view.tree, view.space, node, devices).min(request.size - 1);
        let offer = &kind.offers()[usize::from(kind.class_of(devices))];
        let (unit, free) = (request.unit(), view.space.free(node).devices);
        let rest = request.size % unit;
        let mut offers = Vec::new();
        for members in 1..=most {
            let is_whole = members.is_multiple_of(unit);
            let has_rest = rest > 0 && members % unit == rest;
            let suits = request.members_per_node.is_none_or(|exactly| exactly == members);
            if !(is_whole || has_rest) || !suits || request.beyond(kind, offer, members, inside) < threshold {
                continue;
            }
            let mut time_ns = request.crossing_ns(kind.crossing_ns);
            let count = members * request.needs.devices;
            let grouped = match request.part_in_node() {
                Some(_) => match grouped(view, node, members, threshold, inside) {
                    None => continue,
                    devices => devices,
                },
                None => None,
            };
            if request.is_all_to_all() {
                let nics = match (count, grouped) {
                    (0, _) => Some(kind.nics(kind.all())),
                    (_, Some(set)) => Some(kind.nics(set)),
                    _ => kind.table.best_nics(devices, count, threshold).map(|(nics, _)| kind.beyond(nics)),
                };
                let Some(nics) = nics else { continue };
                time_ns = time_ns.saturating_add(crossing_bytes(view, u64::from(members), nics));
            }
            let breaks = broken(free.count(), free == kind.all(), count);
            offers.push((members, usize::from(!is_whole), PlacementCost { time_ns, spans: 1, breaks }));
        }
        offers
    }

    /// The possible members of a child domain if the gang goes beyond it.
    fn of_child(
        &self,
        view: View<'_>,
        level: usize,
        child: usize,
        threshold: u32,
        inside: u32,
    ) -> Vec<(u32, usize, PlacementCost)> {
        let request = view.request;
        let uplink = view.space.uplink(level, child);
        if inside == 0 && !request.is_all_to_all() && uplink < threshold {
            return Vec::new();
        }
        let part = request.part_at(LevelAt::Above(level)).unwrap_or(1);
        let rest = request.size % part;
        let comes_up = rest_level(view) == Some(LevelAt::Above(level));
        let room = request.room(view.tree, view.space, level, child);
        let mut offers = Vec::new();
        for (members, costs) in (0_u32..).zip(&self.tables[level][child].costs) {
            if members == 0 || members >= request.size || members > room {
                continue;
            }
            let mut own = PlacementCost {
                time_ns: request.crossing_ns(view.tree.domains[level][child].crossing_ns),
                spans: one_span(view, level),
                breaks: 0,
            };
            if request.is_all_to_all() {
                own.time_ns = own.time_ns.saturating_add(crossing_bytes(view, u64::from(members), uplink));
            }
            let is_whole = members.is_multiple_of(part);
            let has_rest = rest > 0 && members % part == rest;
            for (below, cost) in costs.iter().enumerate().filter(|(_, cost)| **cost != PlacementCost::MAX) {
                // At the level where the last part comes up, the number tells whether it is there; at the levels
                // above, the number must agree with the state below.
                let state = match (comes_up, below) {
                    _ if is_whole && below == 0 => 0,
                    (true, 0) if has_rest => 1,
                    (false, 1) if has_rest || part == 1 || (rest == 0 && is_whole) => 1,
                    _ => continue,
                };
                offers.push((members, state, cost.plus(own)));
            }
        }
        offers
    }

    /// Walks back through the merged tables.
    fn trace(
        &self,
        view: View<'_>,
        level: usize,
        domain: usize,
        members: u32,
        state: usize,
        picks: &mut Vec<Pick>,
    ) {
        let (mut members, mut state) = (members, state);
        for (child, choices) in self.merged[level][domain].children.iter().rev() {
            let Some(choice) = choices.get(members as usize).map(|of| of[state]) else { return };
            let (below, of_child) = (choice >> 1, (choice & 1) as usize);
            if below == 0 {
                continue;
            }
            if level + 1 == view.tree.depth() {
                picks.push(Pick::new(*child, below, DeviceMask::EMPTY));
                members -= below;
                state -= of_child;
                continue;
            }
            // A part that comes up at the child has no state inside it.
            let comes_up = rest_level(view) == Some(LevelAt::Above(level + 1));
            let inner = if comes_up { 0 } else { of_child };
            self.trace(view, level + 1, *child as usize, below, inner, picks);
            members -= below;
            state -= of_child;
        }
    }
}

/// The devices of a node whose parts stay inside groups, if those reach the bottleneck.
fn grouped(view: View<'_>, node: usize, members: u32, threshold: u32, inside: u32) -> Option<DeviceMask> {
    let kind = view.tree.kind(&view.tree.nodes[node]);
    let mut pick = Pick::new(node as u32, members, DeviceMask::EMPTY);
    let is_there = choose_devices(view, threshold, inside, &mut pick);
    let stays = inside > 0 || view.request.is_all_to_all() || pick.devices.is_empty();
    let nics = if stays { NO_LIMIT } else { kind.nics(pick.devices) };
    (is_there && kind.ring(pick.devices).min(nics) >= threshold).then_some(pick.devices)
}

/// Adds the possible members of one child to those of the children before it.
fn merge(
    view: View<'_>,
    table: &mut Table,
    merged: &mut Merged,
    child: u32,
    offers: &[(u32, usize, PlacementCost)],
) {
    let Some(most) = offers.iter().map(|(members, _, _)| *members).max() else { return };
    let before = table.costs.len();
    let after = (before + most as usize).min(view.request.size as usize + 1);
    table.costs.resize(after, [PlacementCost::MAX; 2]);
    let mut choices = vec![[0_u32; 2]; after];
    // Counts down, so that a read entry is not written yet: every offer has at least one member.
    for members in (1..after).rev() {
        for state in [0, 1] {
            let mut best = table.costs[members][state];
            for (here, of_child, cost) in offers {
                let (Some(others), Some(left)) =
                    (members.checked_sub(*here as usize), state.checked_sub(*of_child))
                else {
                    continue;
                };
                if others >= before || table.costs[others][left] == PlacementCost::MAX {
                    continue;
                }
                let candidate = table.costs[others][left].plus(*cost);
                if candidate < best {
                    best = candidate;
                    choices[members][state] = *here << 1 | *of_child as u32;
                }
            }
            table.costs[members][state] = best;
        }
    }
    merged.children.push((child, choices));
}

impl PlacementCost {
    const fn plus(self, other: Self) -> Self {
        Self {
            time_ns: self.time_ns.saturating_add(other.time_ns),
            spans: self.spans.saturating_add(other.spans),
            breaks: self.breaks.saturating_add(other.breaks),
        }
    }
}
