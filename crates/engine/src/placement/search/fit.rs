//! How many members fit in the best domain of a level, at any speed: the counts behind a reason.

use phalanx_model::Gang;

use super::capacity::Capacities;
use super::{Search, Sort, View};
use crate::cluster::space::Space;
use crate::cluster::tree::{LevelAt, Tree};
use crate::placement::request::Request;
use crate::placement::{grids, parts, pools, roles, slices};

/// The capacity of the best domain of a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    pub(crate) fits: u32,
    pub(crate) domain: String,
    pub(crate) free_devices: u32,
    pub(crate) devices: u32,
}

/// How many members fit in the best domain of a level; of a gang with roles those of the gang itself.
pub(crate) fn best_fit(tree: &Tree, space: &Space, gang: &Gang, level: LevelAt) -> Fit {
    fit_as(Sort::of(gang), tree, space, gang, level)
}

/// The same of the gang's own members, without its roles.
pub(crate) fn fit_own(tree: &Tree, space: &Space, gang: &Gang, level: LevelAt) -> Fit {
    fit_as(Sort::of_own(gang), tree, space, gang, level)
}

fn fit_as(sort: Sort, tree: &Tree, space: &Space, gang: &Gang, level: LevelAt) -> Fit {
    if gang.needs.in_one_pool {
        let fits = pools::choices(gang).into_iter().map(|only| fit_as(sort, tree, space, &only, level));
        // The first of those that hold as much.
        let best = fits.reduce(|best, other| if other.fits > best.fits { other } else { best });
        if let Some(best) = best {
            return best;
        }
    }
    match sort {
        Sort::Members => fit_members(tree, space, gang, level),
        Sort::Grid => fit_members(tree, space, &grids::asked(tree, gang), level),
        Sort::Parts => parts::best_fit(tree, space, gang, level),
        Sort::Slice => slices::best_fit(tree, space, gang, level),
        Sort::Roles => roles::best_fit(tree, space, gang, level),
    }
}

/// The same for equal members with whole devices.
pub(crate) fn fit_members(tree: &Tree, space: &Space, gang: &Gang, level: LevelAt) -> Fit {
    let mut request = Request::of(tree, gang, level);
    // If the question is about a level other than the required one, the required one does not apply.
    let required = tree.level_of_required(gang);
    if level != required {
        request.also.retain(|group| LevelAt::Group(*group) != required);
    }
    let view = View { tree, space, request: &request };
    let mut capacities = Capacities::default();
    // A part as large as the gang may narrow the level.
    match request.ceiling {
        LevelAt::Above(level) => of_domains(view, &mut capacities, level),
        LevelAt::Node => of_nodes(view, None),
        LevelAt::Group(group) => of_nodes(view, Some(group)),
    }
}

impl Search {
    /// The most members that one domain of a level holds, at most the whole gang, and which domain that is.
    pub(crate) fn most(&mut self, tree: &Tree, space: &Space, gang: &Gang, level: LevelAt) -> (u32, usize) {
        if !tree.has_levels_of(gang) {
            return (0, 0);
        }
        if gang.needs.in_one_pool {
            let mut best = None;
            for only in pools::choices(gang) {
                let found = self.most(tree, space, &only, level);
                best = best.filter(|(most, _)| *most >= found.0).or(Some(found));
            }
            if let Some(best) = best {
                return best;
            }
        }
        if !matches!(Sort::of(gang), Sort::Members | Sort::Grid) {
            return (best_fit(tree, space, gang, level).fits, 0);
        }
        let gang = grids::asked(tree, gang);
        let request = Request::within(tree, &gang, level, std::mem::take(&mut self.buffers));
        let view = View { tree, space, request: &request };
        let most = match request.ceiling {
            LevelAt::Above(level) => most(view, &mut self.capacities, level),
            LevelAt::Node => (of_nodes(view, None).fits, 0),
            LevelAt::Group(group) => (of_nodes(view, Some(group)).fits, 0),
        };
        self.buffers = request.into_buffers();
        most
    }
}

/// Stops at the first domain that holds the whole gang: more need not be known.
fn most(view: View<'_>, capacities: &mut Capacities, level: usize) -> (u32, usize) {
    capacities.begin(view);
    capacities.set_whole(view);
    let unit = super::capacity::unit_at(view, LevelAt::Above(level));
    // The smaller last part may fit beside whole ones, which counts of whole parts do not show.
    let rest = view.request.size % unit;
    let mut most = (0, 0);
    for domain in 0..view.tree.domains.get(level).map_or(0, Vec::len) {
        let bound = capacities.bound(view, level, domain).saturating_add(rest);
        if most.0 < view.request.size && bound > most.0 {
            let holds = capacities.of(view, level, domain);
            let beside = if holds.rest { rest } else { 0 };
            let fits = holds.full.saturating_add(beside).min(view.request.size);
            most = if fits > most.0 { (fits, domain) } else { most };
        }
    }
    most
}

fn of_domains(view: View<'_>, capacities: &mut Capacities, level: usize) -> Fit {
    let (fits, domain) = most(view, capacities, level);
    let Some(found) = view.tree.domains.get(level).and_then(|domains| domains.get(domain)) else {
        return Fit { fits: 0, domain: String::new(), free_devices: 0, devices: 0 };
    };
    let (mut free_devices, mut devices) = (0, 0);
    for node in found.nodes.clone() {
        free_devices += view.request.devices(view.tree, view.space, node).count();
        devices += view.tree.nodes[node].total.devices.count();
    }
    Fit { fits, domain: view.tree.domain_name(level, found), free_devices, devices }
}

/// The best node, or the best group of one.
fn of_nodes(view: View<'_>, group: Option<usize>) -> Fit {
    let mut best = Fit { fits: 0, domain: String::new(), free_devices: 0, devices: 0 };
    let innermost = view.tree.depth().checked_sub(1);
    for (at, node) in view.tree.nodes.iter().enumerate() {
        let devices = view.request.devices(view.tree, view.space, at);
        let mut offer = |mask: phalanx_model::DeviceMask, name: &dyn Fn() -> String| {
            let inside = devices.and(mask);
            let room = innermost.map_or(u32::MAX, |level| {
                view.request.room(view.tree, view.space, level, node.leaf as usize)
            });
            let limit =
                view.request.limit(view.tree, view.space, at, inside).min(view.request.size).min(room);
            let fits = match view.request.members_per_node {
                Some(exactly) if limit < exactly => 0,
                Some(exactly) => exactly,
                None => limit,
            };
            if best.domain.is_empty() || fits > best.fits {
                best = Fit { fits, domain: name(), free_devices: inside.count(), devices: mask.count() };
            }
        };
        if group.is_none() && !view.request.insists_inside() {
            offer(node.total.devices, &|| node.name.to_string());
            continue;
        }
        for mask in view.request.sites(view.tree.kind(node), group) {
            offer(mask, &|| format!("{} devices {mask}", node.name));
        }
    }
    best
}
