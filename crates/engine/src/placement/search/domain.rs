//! Parts of a gang in single domains, for a search that chooses the domains itself.

use phalanx_model::Gang;

use super::capacity::unit_at;
use super::measure::Measure;
use super::{Found, Search, View, rest_last};
use crate::cluster::space::{Pick, Space};
use crate::cluster::tree::{LevelAt, Tree};
use crate::placement::request::Request;

impl Search {
    /// By domain of a level: the members that it holds in whole parts, at any speed.
    pub(crate) fn rooms(&mut self, tree: &Tree, space: &Space, gang: &Gang, level: usize) -> Vec<u32> {
        let request = Request::within(tree, gang, LevelAt::Above(0), std::mem::take(&mut self.buffers));
        let view = View { tree, space, request: &request };
        self.capacities.begin(view);
        self.capacities.set_whole(view);
        let unit = unit_at(view, LevelAt::Above(level));
        let domains = 0..tree.domains.get(level).map_or(0, Vec::len);
        let rooms =
            domains.map(|domain| self.capacities.of(view, level, domain).full / unit * unit).collect();
        self.buffers = request.into_buffers();
        rooms
    }

    /// Whether domains above the node hold fewer members than their nodes do, by rules of the gang or of theirs.
    pub(crate) fn is_capped(&mut self, tree: &Tree, gang: &Gang) -> bool {
        let request = Request::within(tree, gang, LevelAt::Above(0), std::mem::take(&mut self.buffers));
        let is_capped = request.is_capped();
        self.buffers = request.into_buffers();
        is_capped
    }

    /// Adds the picks of the whole gang inside one domain of a level: as few nodes as can be, at any speed. Whether
    /// it fits.
    pub(crate) fn place_in(
        &mut self,
        tree: &Tree,
        space: &Space,
        gang: &Gang,
        (level, domain): (usize, usize),
        picks: &mut Vec<Pick>,
    ) -> bool {
        let request = Request::within(tree, gang, LevelAt::Above(level), std::mem::take(&mut self.buffers));
        let view = View { tree, space, request: &request };
        self.capacities.begin(view);
        self.capacities.set_whole(view);
        self.trial.clear();
        let is_filled = self.fill.domain(view, &mut self.capacities, level, domain, &mut self.trial);
        if is_filled {
            picks.extend_from_slice(&self.trial);
        }
        self.buffers = request.into_buffers();
        is_filled
    }

    /// Puts picks in the order of ranks: the domain with the smaller last part last.
    pub(crate) fn in_rank_order(tree: &Tree, space: &Space, gang: &Gang, picks: &mut [Pick]) {
        let request = Request::of(tree, gang, LevelAt::Above(0));
        rest_last(View { tree, space, request: &request }, picks);
    }

    /// The cost of a placement that another search found, as one collective of the whole gang; its picks are in the
    /// order of the tree.
    pub(crate) fn measured(
        &mut self,
        tree: &Tree,
        space: &Space,
        gang: &Gang,
        picks: &[Pick],
    ) -> Option<Found> {
        let request = Request::within(tree, gang, LevelAt::Above(0), std::mem::take(&mut self.buffers));
        let measure = Measure::of(View { tree, space, request: &request }, picks);
        self.buffers = request.into_buffers();
        measure.map(|Measure { cost, bottleneck }| Found {
            cost,
            bottleneck_mb_per_s: bottleneck,
            least_ns: 0,
        })
    }
}
