//! The placement of a gang and the victims that free it, chosen together.
//!
//! For gangs of equal members with whole devices, sets of victims are weighed domain by domain ([`super::weigh`]); for
//! other gangs, candidates are taken in the order of their cost until the gang fits ([`super::take`]). Either way one
//! search finds the placement with the victims gone, and victims whose capacity that placement does not need are
//! dropped, the most expensive first. The work is counted, not timed: equal inputs give equal victims.

use phalanx_model::Gang;

use super::candidate::Candidate;
use super::useful::Useful;
use super::{take, weigh};
use crate::cluster::space::{Pick, Space};
use crate::cluster::tree::{LevelAt, Tree};
use crate::placement::Request;
use crate::placement::{Ceiling, Search, pools};

/// The budget of one selection: a unit is about the check of one node of one candidate.
const BUDGET: u64 = 1 << 18;
/// Weighed sets for which a placement is searched.
const SETS_MAX: usize = 4;
/// The cost of one search for a placement, in units of the budget.
const SEARCH_COST: u64 = 1 << 11;

/// The rest of the work that one selection may do.
#[derive(Debug)]
pub(crate) struct Budget(u64);

impl Budget {
    pub(super) const fn is_spent(&self) -> bool {
        self.0 == 0
    }

    pub(super) const fn spend(&mut self, units: u64) {
        self.0 = self.0.saturating_sub(units);
    }
}

/// A placement, and the victims that have to be preempted for it.
#[derive(Clone, Debug)]
pub(crate) struct Selected {
    pub(crate) picks: Vec<Pick>,
    pub(crate) order: Vec<u32>,
    /// Indices of candidates, in their order.
    pub(crate) victims: Vec<usize>,
    /// Of a step of communication there.
    pub(crate) time_ns: u64,
}

/// Selects a placement for a gang that fits nowhere now, and its victims among the candidates, which are sorted
/// cheapest first. The space is as before when this returns.
pub(crate) fn select(
    tree: &Tree,
    space: &mut Space,
    search: &mut Search,
    gang: &Gang,
    candidates: &[Candidate<'_>],
) -> Option<Selected> {
    if gang.needs.in_one_pool {
        let choices = pools::choices(gang);
        if !choices.is_empty() {
            return choices.iter().find_map(|only| select(tree, space, search, only, candidates));
        }
    }
    let request = Request::of(tree, gang, tree.level_of_required(gang));
    let useful = Useful::of(tree, space, &request, gang, candidates);
    let mut overlay = Overlay { tree, space, search, gang, candidates, time_ns: 0 };
    let mut budget = Budget(BUDGET);
    if weigh::can_weigh(&request, gang) {
        let rooms = match request.ceiling {
            LevelAt::Above(level) => overlay.search.rooms(tree, overlay.space, gang, level),
            LevelAt::Node | LevelAt::Group(_) => Vec::new(),
        };
        let sets = weigh::sets(tree, overlay.space, &request, &rooms, candidates, &useful, &mut budget);
        for set in sets.into_iter().take(SETS_MAX) {
            if let Some(selected) = overlay.place_without(&set) {
                return Some(selected);
            }
        }
        if useful.is_whole() {
            return None;
        }
    }
    take::until_it_fits(&mut overlay, &useful, &mut budget)
}

/// The space, from which candidates are removed for a while.
pub(super) struct Overlay<'a, 'c> {
    pub(super) tree: &'a Tree,
    pub(super) space: &'a mut Space,
    search: &'a mut Search,
    pub(super) gang: &'a Gang,
    pub(super) candidates: &'a [Candidate<'c>],
    /// Of the last search that found a placement.
    time_ns: u64,
}

impl Overlay<'_, '_> {
    /// Frees the capacity that a candidate holds.
    pub(super) fn free(&mut self, at: usize) {
        if let Some(candidate) = self.candidates.get(at) {
            self.space.give_back(self.tree, &candidate.picks, candidate.gang);
        }
    }

    /// Books the capacity that a candidate holds again.
    pub(super) fn book(&mut self, at: usize) {
        if let Some(candidate) = self.candidates.get(at) {
            self.space.take(self.tree, &candidate.picks, candidate.gang);
        }
    }

    /// Whether the gang fits with the candidates that have been freed so far.
    pub(super) fn fits(&mut self, budget: &mut Budget) -> bool {
        budget.spend(SEARCH_COST);
        let ceiling = Ceiling(self.tree.level_of_required(self.gang));
        let found = self.search.place(self.tree, self.space, self.gang, ceiling);
        self.time_ns = found.as_ref().map_or(self.time_ns, |found| found.cost.time_ns);
        found.is_some()
    }

    /// The placement of the gang without these candidates, and those of them that must be gone for it.
    fn place_without(&mut self, set: &[usize]) -> Option<Selected> {
        set.iter().for_each(|at| self.free(*at));
        let mut unlimited = Budget(u64::MAX);
        let found = self.fits(&mut unlimited);
        if !found {
            set.iter().rev().for_each(|at| self.book(*at));
            return None;
        }
        Some(self.without_bystanders(set))
    }

    /// The result of the last search, with those of the freed candidates that the placement needs gone: the most
    /// expensive are dropped first. All candidates are booked again.
    pub(super) fn without_bystanders(&mut self, freed: &[usize]) -> Selected {
        let (picks, order) = (self.search.picks().to_vec(), self.search.order().to_vec());
        let mut victims = Vec::new();
        for at in freed.iter().rev().copied() {
            self.book(at);
            if !self.space.has_room(self.tree, self.gang, &picks) {
                self.free(at);
                victims.push(at);
            }
        }
        victims.iter().for_each(|at| self.book(*at));
        victims.reverse();
        Selected { picks, order, victims, time_ns: self.time_ns }
    }
}
