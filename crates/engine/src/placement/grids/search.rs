//! Proposed placements, and the time of a step with the best order of ranks on each.

use std::collections::BTreeSet;

use phalanx_model::{Gang, Pattern, Segment, Traffic};

use super::sites::sites;
use crate::cluster::space::{Pick, Space};
use crate::cluster::tree::{LevelAt, Tree};
use crate::grid::{self, Axis, Collective, Grid, Mapping, Part};
use crate::placement::search::{Ceiling, Found, Search};

/// Sends nothing: of all places that with the fewest crossings.
pub(super) const SILENT: Traffic = Traffic { pattern: Pattern::AllReduce, bytes: 0, compute_ns: 0 };

/// The most places that are mapped for one gang; of large gangs fewer, so that all of them together cost about the
/// same: with the swaps about a tenth of a second.
pub(super) const PLACES_MAX: u32 = 1_024;
const PLACES_MIN: u32 = 32;
/// Blocks of ranks in all places together.
const BLOCKS_MAX: u32 = 1 << 17;

/// The best places are improved by swaps, stage by stage: so many of them, each with such a part of the swaps.
const STAGES: [(usize, u32); 2] = [(2 * KEPT_MAX, 8), (6, 1)];
const KEPT_MAX: usize = 16;

/// Several segments in one domain: fewer domains for more parts of the job.
pub(super) const TIMES: [u32; 4] = [1, 2, 4, 8];

/// A placement and its sort key; the least is the best.
struct Proposal {
    worth: (u64, u64),
    picks: Vec<Pick>,
}

/// Keeps the best. Of nearly equal proposals it keeps the best one, so that the kept ones differ.
fn keep(kept: &mut Vec<Proposal>, proposal: Proposal) {
    let coarse = |(first, second): (u64, u64)| (leading(first), leading(second));
    if let Some(at) = kept.iter().position(|before| coarse(before.worth) == coarse(proposal.worth)) {
        if kept[at].worth <= proposal.worth {
            return;
        }
        kept.remove(at);
    }
    let at = kept.partition_point(|before| before.worth < proposal.worth);
    if at < KEPT_MAX {
        kept.insert(at, proposal);
        kept.truncate(KEPT_MAX);
    }
}

/// The leading 13 bits: numbers that differ by less than one part in 8,192 are equal.
const fn leading(number: u64) -> u64 {
    let shift = (u64::BITS - number.leading_zeros()).saturating_sub(13);
    number >> shift << shift
}

pub(super) struct GridSearch<'a> {
    pub(super) search: &'a mut Search,
    pub(super) tree: &'a Tree,
    pub(super) space: &'a Space,
    pub(super) gang: &'a Gang,
    pub(super) grid: &'a Grid,
    pub(super) ceiling: Ceiling,
    /// Places that may still be mapped.
    pub(super) left: u32,
    /// The best so far, the shortest step first; of equal ones the first.
    kept: Vec<Proposal>,
    /// The same, sorted by the time of a step without its pipelines: these gain most from swaps.
    steady: Vec<Proposal>,
    seen: BTreeSet<Vec<(u32, u32)>>,
    scratch: grid::Scratch,
}

impl<'a> GridSearch<'a> {
    pub(super) fn new(
        search: &'a mut Search,
        tree: &'a Tree,
        space: &'a Space,
        gang: &'a Gang,
        grid: &'a Grid,
        ceiling: Ceiling,
    ) -> Self {
        let blocks = grid.ranks() / grid.together();
        Self {
            search,
            tree,
            space,
            gang,
            grid,
            ceiling,
            left: (BLOCKS_MAX / blocks.max(1)).clamp(PLACES_MIN, PLACES_MAX),
            kept: Vec::new(),
            steady: Vec::new(),
            seen: BTreeSet::new(),
            scratch: grid::Scratch::default(),
        }
    }

    /// Segments to try in innermost domains, none first. A gang that has its own above the node keeps to them.
    pub(super) fn segments(&self) -> Vec<Option<Segment>> {
        let mut found = vec![None];
        let Some(innermost) = self.tree.depth().checked_sub(1) else { return found };
        let is_above = |segment: &Segment| self.tree.level_at(&segment.level) < Some(LevelAt::Node);
        if self.gang.topology.segments.iter().any(is_above) {
            return found;
        }
        let largest = self.tree.domains[innermost].iter().map(|domain| domain.devices).max().unwrap_or(0);
        let devices = |size: u32| size.saturating_mul(self.gang.needs.devices);
        let level = self.tree.level_name(LevelAt::Above(innermost));
        let sizes = self.units().into_iter().filter(|size| devices(*size) <= largest);
        found.extend(sizes.map(|size| Some(Segment { size, level: level.clone() })));
        found
    }

    /// Whole groups of the grid and several of them, in ranks, ascending; less than all.
    pub(super) fn units(&self) -> Vec<u32> {
        let groups = self.grid.segments().into_iter();
        let mut units: Vec<u32> =
            groups.flat_map(|ranks| TIMES.map(|times| ranks.saturating_mul(times))).collect();
        units.sort_unstable();
        units.dedup();
        units.retain(|unit| *unit < self.grid.ranks());
        units
    }

    /// Proposes the placement that the search finds for a gang.
    pub(super) fn propose(&mut self, gang: &Gang) {
        if self.search.place_members(self.tree, self.space, gang, self.ceiling).is_some() {
            self.propose_found();
        }
    }

    /// Proposes the placement that the search holds.
    pub(super) fn propose_found(&mut self) {
        let picks = self.search.picks().to_vec();
        self.consider(picks);
    }

    /// The time of a step on a placement with the best order, before swaps; `None` if the placement was considered
    /// before.
    pub(super) fn consider(&mut self, picks: Vec<Pick>) -> Option<u64> {
        let key = picks.iter().map(|pick| (pick.node, pick.members)).collect();
        if self.left == 0 || !self.seen.insert(key) {
            return None;
        }
        self.left -= 1;
        let found = self.map(&picks, 0)?.found;
        let is_steady = |axis: &&Axis| axis.collective != Collective::PointToPoint;
        let axes = self.grid.axes().iter().zip(&found.axes_ns);
        let steady_ns =
            axes.filter(|(axis, _)| is_steady(axis)).fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns));
        keep(&mut self.kept, Proposal { worth: (found.ns, 0), picks: picks.clone() });
        keep(&mut self.steady, Proposal { worth: (steady_ns, found.ns), picks });
        Some(found.ns)
    }

    /// The placement with the shortest step, swaps included, becomes the result of the search.
    pub(super) fn choose(mut self) -> Option<Found> {
        let mut best: Option<(Mapping, Vec<Pick>)> = None;
        let mut kept = std::mem::take(&mut self.kept);
        let steady = std::mem::take(&mut self.steady).into_iter();
        let others: Vec<Proposal> =
            steady.filter(|other| kept.iter().all(|of| of.picks != other.picks)).collect();
        kept.extend(others);
        for (count, part) in STAGES {
            kept.truncate(count);
            for proposal in &mut kept {
                let Some(mapping) = self.map(&proposal.picks, self.grid.swaps() / part) else { continue };
                proposal.worth = (mapping.found.ns, 0);
                if best.as_ref().is_none_or(|(least, _)| mapping.found.ns < least.found.ns) {
                    best = Some((mapping, proposal.picks.clone()));
                }
            }
            kept.sort_by_key(|proposal| proposal.worth);
        }
        let (mapping, picks) = best?;
        let (sites, _) = sites(self.tree, self.space, &picks).ok()?;
        let first = |first: &mut u32, ranks: u32| Some(std::mem::replace(first, *first + ranks));
        let firsts: Vec<u32> = sites.sites().iter().map(|site| site.ranks).scan(0, first).collect();
        let member = |seat: &grid::Seat| Some(firsts.get(seat.site as usize)? + seat.index);
        let order: Vec<u32> = mapping.seats.iter().map(member).collect::<Option<_>>()?;
        let mut in_order = picks.clone();
        in_order.sort_unstable_by_key(|pick| pick.node);
        let mut found = self.search.measured(self.tree, self.space, self.gang, &in_order)?;
        found.cost.time_ns = mapping.found.ns;
        self.search.set_picks(&picks);
        self.search.set_order(order);
        Some(found)
    }

    fn map(&mut self, picks: &[Pick], swaps: u32) -> Option<Mapping> {
        let (sites, _) = sites(self.tree, self.space, picks).ok()?;
        let parts: Vec<Part> =
            self.gang.topology.segments.iter().filter_map(|s| self.part(s, picks)).collect();
        grid::map_within(self.grid, &sites, &parts, swaps, &mut self.scratch).ok()
    }

    /// A segment as the mapping keeps it; nothing for those that are inside a tensor group, which moves as one.
    fn part(&self, segment: &Segment, picks: &[Pick]) -> Option<Part> {
        if segment.size <= self.grid.together() {
            return None;
        }
        let level = self.tree.level_at(&segment.level)?;
        let mut labels = Vec::with_capacity(self.grid.ranks() as usize);
        for pick in picks {
            for member in 0..pick.members {
                labels.push(match level {
                    LevelAt::Above(level) => self.tree.domain_of(pick.node as usize, level) as u32,
                    LevelAt::Node => pick.node,
                    // The devices of a node are dealt out group by group, part by part.
                    LevelAt::Group(_) => labels.len() as u32 - member % segment.size,
                });
            }
        }
        Some(Part { ranks: segment.size, labels })
    }
}
