//! Places one gang: the exact best placement for the whole of it.
//!
//! The time of a collective is the sum of the costs of its crossings, plus its bytes over the slowest part. So the
//! search goes through the few bottlenecks B that exist, fastest first. For each it keeps only the devices, NICs and
//! uplinks that reach B, finds the domain in which the crossings cost least ([`fill`]), and stops when no slower
//! bottleneck can win. A bound shows whether the result is the best; if it does not, and the work is within the
//! budget, the exact recursion solves the tree ([`exact`]).
//!
//! For equal members "fits" is a sum, so the search is complete: if any placement exists inside the ceiling, one is
//! found.

mod alone;
mod capacity;
mod domain;
mod exact;
mod fill;
mod fit;
mod measure;
mod slots;
mod wish;

use phalanx_model::{Gang, Placement};

use super::pack::Pack;
use super::request::{Buffers, Request};
use super::{grids, parts, roles, slices};
use crate::cluster::shape::NO_LIMIT;
use crate::cluster::space::{Pick, Row, Space};
use crate::cluster::tree::{LevelAt, Tree};
use capacity::Capacities;
use exact::Exact;
use measure::Measure;

pub(crate) use fill::{DOMAINS_MAX, LEVELS_MAX};
pub(crate) use fit::{Fit, best_fit, fit_own};
pub(crate) use slots::{domain_of_picks, level_of, placement};

/// The outermost level at which the gang may be spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ceiling(pub(crate) LevelAt);

/// Merged states of the exact recursion for one bottleneck: some milliseconds. Larger searches rest on their bound.
const EXACT_STEPS_MAX: u64 = 1 << 22;
/// Clusters of more nodes are not solved by recursion: decisions there come thousands a second.
const EXACT_NODES_MAX: usize = 128;

/// The sorts of gangs that are placed each in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Equal members with whole devices, or none.
    Members,
    /// A part of a device each.
    Parts,
    /// A box of chips of a torus.
    Slice,
    /// Members of several roles.
    Roles,
    /// Ranks in a grid of parallelism.
    Grid,
}

impl Sort {
    pub(crate) fn of(gang: &Gang) -> Self {
        if gang.roles.is_empty() { Self::of_own(gang) } else { Self::Roles }
    }

    /// The same of the gang's own members, without its roles.
    pub(crate) fn of_own(gang: &Gang) -> Self {
        match gang {
            _ if gang.needs.part.is_some() => Self::Parts,
            _ if gang.topology.slice.is_some() => Self::Slice,
            _ if !gang.grid.is_empty() => Self::Grid,
            _ => Self::Members,
        }
    }
}

/// The cost of a placement, compared from the first field to the last. Of equal costs the first in the order of the
/// tree wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlacementCost {
    /// Predicted time of one collective.
    pub(crate) time_ns: u64,
    /// Domains used per level, the outermost in the highest digits.
    pub(crate) spans: u128,
    /// The damage to others: whole nodes, then devices left over beside it.
    pub(crate) breaks: u64,
}

impl PlacementCost {
    pub(crate) const MAX: Self = Self { time_ns: u64::MAX, spans: u128::MAX, breaks: u64::MAX };
}

/// The memory of searches, and the result of the last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    buffers: Buffers,
    capacities: Capacities,
    exact: Exact,
    fill: fill::Fill,
    thresholds: Vec<u32>,
    trial: Vec<Pick>,
    found: Vec<Pick>,
    order: Vec<u32>,
    pub(crate) slices: slices::Memory,
    pub(crate) fractional: parts::FractionalSearch,
    pub(crate) pack: Pack,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) cost: PlacementCost,
    /// The slowest part.
    pub(crate) bottleneck_mb_per_s: u32,
    /// No placement takes less time than this; it equals the time of the result if the result is proved to be the
    /// best.
    pub(crate) least_ns: u64,
}

impl Found {
    pub(crate) const fn is_best(&self) -> bool {
        self.least_ns >= self.cost.time_ns
    }
}

/// Everything that a search reads.
#[derive(Clone, Copy)]
struct View<'a> {
    tree: &'a Tree,
    space: &'a Space,
    request: &'a Request<'a>,
}

impl<'a> View<'a> {
    /// The rows of the whole tree: those of the outermost domains, most often one.
    fn rows(self) -> impl Iterator<Item = &'a Row> {
        self.tree.roots().flat_map(move |domain| self.space.rows(0, domain))
    }
}

impl Search {
    /// Finds a place for the whole gang inside the ceiling, or nothing. The picks are in [`Self::picks`].
    pub(crate) fn place(
        &mut self,
        tree: &Tree,
        space: &Space,
        gang: &Gang,
        ceiling: Ceiling,
    ) -> Option<Found> {
        if !tree.has_levels_of(gang) {
            return None;
        }
        if !wish::has_wishes(gang) {
            return self.place_as_asked(tree, space, gang, ceiling);
        }
        wish::place(self, tree, space, gang, ceiling)
    }

    /// The same if no nodes are preferred and models do not differ.
    fn place_as_asked(&mut self, tree: &Tree, space: &Space, gang: &Gang, ceiling: Ceiling) -> Option<Found> {
        self.place_as(Sort::of(gang), tree, space, gang, ceiling)
    }

    /// The same for the gang's own members, without its roles.
    pub(crate) fn place_own(
        &mut self,
        tree: &Tree,
        space: &Space,
        gang: &Gang,
        ceiling: Ceiling,
    ) -> Option<Found> {
        self.place_as(Sort::of_own(gang), tree, space, gang, ceiling)
    }

    fn place_as(
        &mut self,
        sort: Sort,
        tree: &Tree,
        space: &Space,
        gang: &Gang,
        ceiling: Ceiling,
    ) -> Option<Found> {
        self.order.clear();
        let place = match sort {
            Sort::Members => Self::place_members,
            Sort::Parts => parts::place,
            Sort::Slice => slices::place,
            Sort::Roles => roles::place,
            Sort::Grid => grids::place,
        };
        place(self, tree, space, gang, ceiling)
    }

    /// The same for equal members with whole devices.
    pub(crate) fn place_members(
        &mut self,
        tree: &Tree,
        space: &Space,
        gang: &Gang,
        ceiling: Ceiling,
    ) -> Option<Found> {
        // In a full cluster most searches end here.
        let asked = u64::from(gang.size) * u64::from(gang.needs.devices);
        let free: u64 = tree.roots().map(|root| u64::from(space.free_devices(0, root))).sum();
        if free < asked {
            self.found.clear();
            return None;
        }
        let request = Request::within(tree, gang, ceiling.0, std::mem::take(&mut self.buffers));
        let found = self.place_request(View { tree, space, request: &request });
        self.buffers = request.into_buffers();
        found
    }

    /// The placement of the members, in the order of the tree; a smaller last part comes last.
    pub(crate) fn picks(&self) -> &[Pick] {
        &self.found
    }

    /// By rank, the index of its member along the picks; empty if the ranks are in the order of the picks.
    pub(crate) fn order(&self) -> &[u32] {
        &self.order
    }

    /// A placement of another search becomes the result of this one.
    pub(crate) fn set_picks(&mut self, picks: &[Pick]) {
        self.found.clear();
        self.found.extend_from_slice(picks);
    }

    /// Sets the order of ranks of the result.
    pub(crate) fn set_order(&mut self, order: Vec<u32>) {
        self.order = order;
    }

    fn place_request(&mut self, view: View<'_>) -> Option<Found> {
        self.found.clear();
        self.capacities.begin(view);
        let mut best = alone::on_one_node(view, &mut self.pack, &mut self.found);
        if let LevelAt::Above(outermost) = view.request.ceiling
            && view.request.size > 1
            && !view.tree.nodes.is_empty()
        {
            let (open, is_possible) = self.across_nodes(view, outermost, &mut best);
            let is_small = view.tree.nodes.len() <= EXACT_NODES_MAX;
            // Parts that do not divide the gang may fit although filling does not find it.
            let is_missed = !is_small && is_possible;
            if is_missed && exact::steps(view, outermost) <= EXACT_STEPS_MAX {
                self.at_bottleneck(view, outermost, 0, &mut best);
            }
            if let Some(found) = &mut best {
                found.least_ns = open.min(found.cost.time_ns);
            }
            let is_proved = best.is_some_and(|found| found.is_best());
            if !is_proved && is_small && exact::steps(view, outermost) <= EXACT_STEPS_MAX {
                self.exactly(view, outermost, &mut best);
            }
        }
        if let Some(found) = &mut best {
            rest_last(view, &mut self.found);
            let kinds = view.tree.kinds.iter().zip(&view.request.eligible);
            if kinds.into_iter().any(|(kind, mask)| !mask.is_empty() && kind.table.is_estimated()) {
                // The bandwidth of single sets is unknown, so nothing is proved.
                found.least_ns = 0;
            }
        }
        best
    }

    /// Tries the bottlenecks, fastest first. Returns a time below which nothing was left out, and whether the counts
    /// show that a placement exists though none was found.
    fn across_nodes(&mut self, view: View<'_>, outermost: usize, best: &mut Option<Found>) -> (u64, bool) {
        let mut open = u64::MAX;
        let thresholds = self.thresholds(view, outermost);
        let mut is_possible = None;
        for threshold in thresholds.iter().copied() {
            let bytes_ns = view.request.traffic.over(threshold);
            self.capacities.set(view, threshold, inside_of(view, view.tree.depth() - 1));
            let is_beaten = |best: &Option<Found>, least: u64| {
                best.is_some_and(|found| found.cost.time_ns <= bytes_ns.saturating_add(least))
            };
            if is_beaten(best, measure::least_crossings(view)) {
                break;
            }
            match self.least_crossings(view) {
                Some(crossings) if !is_beaten(best, crossings) => {}
                _ => continue,
            }
            for level in (outermost..view.tree.depth()).rev() {
                if view.request.traffic.is_silent() && best.is_some() {
                    break;
                }
                let inside = inside_of(view, level);
                self.capacities.set(view, threshold, inside);
                open = open.min(self.at_level(view, level, threshold, best));
            }
            // If even the slowest finds no placement, the others need not be tried.
            if best.is_none() && is_possible.is_none() {
                let slowest = thresholds.last().copied().unwrap_or(0);
                let possible = self.is_possible(view, outermost, slowest);
                is_possible = Some(possible);
                if !possible {
                    break;
                }
            }
        }
        self.thresholds = thresholds;
        (open, best.is_none() && is_possible == Some(true))
    }

    /// A lower bound on the cost of the crossings of nodes, in any domain at this bottleneck; `None` if no domain
    /// holds the gang.
    fn least_crossings(&self, view: View<'_>) -> Option<u64> {
        let nodes =
            view.tree.roots().filter_map(|domain| self.capacities.least_nodes(view, 0, domain)).min()?;
        Some(nodes.max(2) * view.request.crossing_ns(view.tree.least_node_crossing_ns))
    }

    /// Whether some domain of the outermost level holds the gang, at any speed.
    fn is_possible(&mut self, view: View<'_>, outermost: usize, slowest: u32) -> bool {
        self.capacities.set(view, slowest, inside_of(view, outermost));
        let unit = capacity::unit_at(view, LevelAt::Above(outermost));
        (0..view.tree.domains[outermost].len())
            .any(|domain| self.capacities.of(view, outermost, domain).is_enough(view.request.size, unit))
    }

    /// The distinct bottlenecks, fastest first.
    fn thresholds(&mut self, view: View<'_>, outermost: usize) -> Vec<u32> {
        let mut all = std::mem::take(&mut self.thresholds);
        all.clear();
        let View { tree, space, request } = view;
        if request.traffic.bytes == 0 {
            // Links without traffic do not count: only the crossings do.
            all.push(0);
            return all;
        }
        for level in outermost..tree.depth() {
            let inside = inside_of(view, level);
            if level > outermost && inside == inside_of(view, level - 1) {
                continue;
            }
            for row in view.rows() {
                let kind = &tree.kinds[usize::from(row.kind)];
                all.extend_from_slice(if inside > 0 || request.is_all_to_all() {
                    kind.rings()
                } else {
                    kind.beyonds()
                });
                all.extend((inside > 0).then_some(inside));
            }
        }
        all.sort_unstable_by_key(|rate| std::cmp::Reverse(*rate));
        all.dedup();
        let fastest = all.first().copied().unwrap_or(NO_LIMIT);
        if !request.is_all_to_all() {
            let before = all.len();
            for level in (outermost + 1)..tree.depth() {
                if space.least_uplink(level) < fastest {
                    all.extend(space.uplinks(level).iter().copied().filter(|uplink| *uplink < fastest));
                }
            }
            if all.len() > before {
                all.sort_unstable_by_key(|rate| std::cmp::Reverse(*rate));
                all.dedup();
            }
        }
        if all.is_empty() {
            all.push(NO_LIMIT);
        }
        all
    }

    /// Tries the domains of one level that hold the gang at this bottleneck. Returns the least time that a domain
    /// might still reach: no placement that fast was found.
    fn at_level(&mut self, view: View<'_>, level: usize, threshold: u32, best: &mut Option<Found>) -> u64 {
        let bytes_ns = view.request.traffic.over(threshold);
        let mut open = u64::MAX;
        let mut looked_at = 0;
        let is_silent = view.request.traffic.is_silent();
        let mut walk = fill::Walk::new(view, level);
        let above = measure::crossings_of_level(view, level) - measure::least_crossings(view);
        let Some(of_nodes) = self.least_crossings(view) else { return u64::MAX };
        let bound_of_level = bytes_ns.saturating_add(above + of_nodes);
        while let Some(domain) = walk.next(view, &mut self.capacities) {
            // If no placement is faster than another, several are compared by the domains that they use.
            if !is_silent && best.is_some_and(|found| found.cost.time_ns <= bound_of_level) {
                break;
            }
            let Some(crossings) = self.fill.least(view, &mut self.capacities, level, domain) else {
                continue;
            };
            let bound = bytes_ns.saturating_add(crossings);
            let wins = |best: &Option<Found>| best.is_none_or(|found| bound < found.cost.time_ns);
            if !wins(best) && !is_silent {
                continue;
            }
            looked_at += 1;
            if looked_at > fill::DOMAINS_MAX && is_silent {
                break;
            }
            if looked_at > fill::DOMAINS_MAX {
                open = open.min(bound);
                continue;
            }
            self.trial.clear();
            if self.fill.domain(view, &mut self.capacities, level, domain, &mut self.trial) {
                self.keep_if_better(view, best);
            }
            if wins(best) {
                open = open.min(bound);
            }
        }
        open
    }

    fn exactly(&mut self, view: View<'_>, outermost: usize, best: &mut Option<Found>) {
        let thresholds = self.thresholds(view, outermost);
        for threshold in thresholds.iter().copied() {
            let bytes_ns = view.request.traffic.over(threshold);
            if best.is_some_and(|found| found.cost.time_ns <= bytes_ns) {
                break;
            }
            self.at_bottleneck(view, outermost, threshold, best);
        }
        if let Some(found) = best {
            found.least_ns = found.cost.time_ns;
        }
        self.thresholds = thresholds;
    }

    /// The least crossings with which everything reaches one bottleneck, by recursion.
    fn at_bottleneck(&mut self, view: View<'_>, outermost: usize, threshold: u32, best: &mut Option<Found>) {
        self.trial.clear();
        if self.exact.solve(view, outermost, threshold, &mut self.trial) {
            self.keep_if_better(view, best);
        }
    }

    /// The trial becomes the result, if it costs less.
    fn keep_if_better(&mut self, view: View<'_>, best: &mut Option<Found>) {
        if let Some(Measure { cost, bottleneck }) = Measure::of(view, &self.trial)
            && best.is_none_or(|found| cost < found.cost)
        {
            *best = Some(Found { cost, bottleneck_mb_per_s: bottleneck, least_ns: 0 });
            self.found.clone_from(&self.trial);
        }
    }
}

/// The bandwidth that joins the devices of nodes inside one domain of a level without a NIC, in MB/s; 0 if there is
/// none.
fn inside_of(view: View<'_>, level: usize) -> u32 {
    view.tree.inside_mb_per_s[..=level].iter().copied().max().unwrap_or(0)
}

/// Segments are consecutive ranks, so the domain with the smaller last one comes last, level by level. The time of a
/// ring does not depend on the order in which it visits domains.
fn rest_last(view: View<'_>, picks: &mut [Pick]) {
    let (tree, parts) = (view.tree, &view.request.parts);
    let smaller = parts.iter().rev().find(|part| !view.request.size.is_multiple_of(part.size));
    let Some(part) = smaller.filter(|_| picks.len() > 1) else { return };
    let domain = |pick: &Pick| match part.level {
        LevelAt::Above(level) => tree.domain_of(pick.node as usize, level),
        _ => pick.node as usize,
    };
    let whole = |at: usize| {
        let inside = picks.iter().filter(|pick| domain(pick) == at).map(|pick| pick.members);
        inside.sum::<u32>().is_multiple_of(part.size)
    };
    let Some(rest) = picks.iter().find(|pick| !whole(domain(pick))).copied() else { return };
    let is_beside = |pick: &Pick, level: usize| {
        tree.domain_of(pick.node as usize, level) == tree.domain_of(rest.node as usize, level)
    };
    picks.sort_by_key(|pick| {
        let shared = (0..tree.depth()).take_while(|level| is_beside(pick, *level)).count();
        let is_it = domain(pick) == domain(&rest);
        // The more levels it shares with the last part, the later it comes.
        (shared, is_it, pick.node)
    });
}

/// Finds a place, as a placement by names.
pub(crate) fn place(tree: &Tree, space: &Space, gang: &Gang, ceiling: Ceiling) -> Option<Placement> {
    let mut search = Search::default();
    search.place(tree, space, gang, ceiling)?;
    placement(tree, search.picks(), search.order(), gang)
}
