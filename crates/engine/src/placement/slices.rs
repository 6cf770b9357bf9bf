//! Gangs that are a box of chips of a torus: the devices of a member are a box of its own on one node.
//!
//! Every search reads the free chips again: the chips of a node count if it takes the gang, and has CPUs, memory and
//! all counted resources for as many members as its free chips could hold. For the boxes themselves the search is
//! exact, see [`crate::torus`].

use phalanx_model::{DeviceMask, Gang, Pattern, Reason};

use super::request::{Buffers, Request};
use super::search::{Ceiling, Fit, Found, PlacementCost, Search};
use crate::cluster::shape::NO_LIMIT;
use crate::cluster::sites::Site;
use crate::cluster::space::{Pick, Space};
use crate::cluster::traffic;
use crate::cluster::tree::{LevelAt, Tree};
use crate::torus::{
    BoxRequest, Chips, CubeSlice, Cubes, Form, Hosts, Placed, RankOrder, Scratch, Sides, all_reduce_ns,
    all_to_all_ns, refusal, volume,
};

/// Memory of searches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    buffers: Buffers,
    board: TorusBoard,
    picks: Vec<Pick>,
    trial: Vec<Pick>,
    domains: Vec<usize>,
}

/// One torus, and its free chips.
#[derive(Clone, Debug, Default)]
struct TorusBoard {
    chips: Chips,
    cubes: Cubes,
    placed: Option<Placed>,
    slice: CubeSlice,
    scratch: Scratch,
}

/// The part of a torus that a gang may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// The nodes of one domain of a level above the node.
    Domain(usize, usize),
    /// Any node.
    All,
    /// Of each node the n-th group of a level inside it.
    Group(usize, usize),
}

/// The inputs of a search.
#[derive(Clone, Copy)]
struct View<'a> {
    tree: &'a Tree,
    space: &'a Space,
    gang: &'a Gang,
    request: &'a Request<'a>,
}

/// Finds a place for the whole gang inside the ceiling, or nothing: the one that takes the least time, in the torus with
/// the fewest free chips. The picks are those of the search, a member each, in the order of ranks: neighbours in rank are
/// neighbours in the torus, and for a grid of parallelism the last side of the slice runs fastest.
pub(super) fn place(
    search: &mut Search,
    tree: &Tree,
    space: &Space,
    gang: &Gang,
    ceiling: Ceiling,
) -> Option<Found> {
    let mut memory = std::mem::take(&mut search.slices);
    let request = Request::within(tree, gang, ceiling.0, std::mem::take(&mut memory.buffers));
    let view = View { tree, space, gang, request: &request };
    let (mut picks, mut trial) = (std::mem::take(&mut memory.picks), std::mem::take(&mut memory.trial));
    picks.clear();
    let mut best: Option<(u64, u64, Found)> = None;
    each_scope(tree, view, &mut memory, |site, scope, board| {
        let Some(ask) = ask(site, gang, ceiling.0).filter(|_| is_whole(gang)) else { return };
        if matches!(scope, Scope::Domain(level, domain) if u64::from(space.free_devices(level, domain)) < volume(ask.sides))
        {
            return;
        }
        let free = board.load(site, scope, view);
        if free < volume(ask.sides) {
            return;
        }
        let Some(found) = board.place(site, ask, gang) else { return };
        if best.is_some_and(|(time_ns, least, _)| (time_ns, least) <= (found.cost.time_ns, free)) {
            return;
        }
        trial.clear();
        board.picks(site, gang, &mut trial);
        if are_within_limits(view, &trial) {
            std::mem::swap(&mut trial, &mut picks);
            best = Some((found.cost.time_ns, free, found));
        }
    });
    search.set_picks(&picks);
    (memory.picks, memory.trial) = (picks, trial);
    memory.buffers = request.into_buffers();
    search.slices = memory;
    best.map(|(.., found)| found)
}

/// How many members of the gang the best domain of a level holds in one position: it has no chips for the
/// others.
pub(super) fn best_fit(tree: &Tree, space: &Space, gang: &Gang, level: LevelAt) -> Fit {
    best_place(tree, space, gang, level)
        .map_or_else(|| Fit { fits: 0, domain: String::new(), free_devices: 0, devices: 0 }, |(_, fit)| fit)
}

/// Why no placement was found: the shape, the free chips of its best position, and the largest free box there.
pub(super) fn shortfall(tree: &Tree, space: &Space, gang: &Gang, level: LevelAt) -> Reason {
    let sides = gang.topology.slice.unwrap_or([0; 3]);
    let (asked, chips) = (Sides(sides).to_string(), u32::try_from(volume(sides)).unwrap_or(u32::MAX));
    let Some((Best { site, scope, most }, fit)) = best_place(tree, space, gang, level) else {
        return Reason::Shape { asked, chips, best: 0, free: 0, torus: String::new(), largest: None };
    };
    let request = Request::of(tree, gang, level);
    let view = View { tree, space, gang, request: &request };
    let mut board = TorusBoard::default();
    board.load(site, scope, view);
    let largest =
        ask(site, gang, level).and_then(|ask| board.largest(site, ask)).map(|sides| Sides(sides).to_string());
    let torus = site.torus.name.to_string();
    let best = u32::try_from(most).unwrap_or(u32::MAX);
    Reason::Shape { asked, chips, best, free: fit.free_devices, torus, largest }
}

/// Whether every domain has the counted resources for its members. Another box might keep within limits that this one
/// exceeds: so far there is one try in each torus.
fn are_within_limits(view: View<'_>, picks: &[Pick]) -> bool {
    let View { tree, space, request, .. } = view;
    !request.is_capped()
        || (0..tree.depth()).all(|level| {
            let mut domains: Vec<usize> =
                picks.iter().map(|pick| tree.domain_of(pick.node as usize, level)).collect();
            domains.sort_unstable();
            let used = domains.chunk_by(|a, b| a == b);
            used.into_iter().all(|used| used.len() as u32 <= request.room(tree, space, level, used[0]))
        })
}

/// Whether the members are as many chips as the slice.
pub(crate) fn is_whole(gang: &Gang) -> bool {
    let chips = u64::from(gang.size) * u64::from(gang.needs.devices);
    gang.topology.slice.is_some_and(|sides| volume(sides) == chips && chips > 0)
}

/// The position with the most free chips of a slice.
struct Best<'a> {
    site: &'a Site,
    scope: Scope,
    most: u64,
}

fn best_place<'a>(tree: &'a Tree, space: &Space, gang: &Gang, level: LevelAt) -> Option<(Best<'a>, Fit)> {
    let request = Request::of(tree, gang, level);
    let view = View { tree, space, gang, request: &request };
    let mut best: Option<(Best<'a>, Fit)> = None;
    each_scope(tree, view, &mut Memory::default(), |site, scope, board| {
        let Some(ask) = ask(site, gang, level) else { return };
        let free = board.load(site, scope, view);
        let most = board.most_free(site, ask);
        if best.as_ref().is_some_and(|(best, _)| most <= best.most) {
            return;
        }
        let fits = most / u64::from(ask.member.max(1));
        let is_in = |node: &&(u32, [u16; 3])| scope.has(view, node.0 as usize);
        let devices: u64 = site.nodes.iter().filter(is_in).count() as u64 * volume(site.host);
        let domain = match scope {
            Scope::Domain(level, domain) => tree.domain_name(level, &tree.domains[level][domain]),
            Scope::All | Scope::Group(..) => site.torus.name.to_string(),
        };
        let fits = u32::try_from(fits).unwrap_or(u32::MAX).min(gang.size);
        let fit = Fit { fits, domain, free_devices: free as u32, devices: devices as u32 };
        best = Some((Best { site, scope, most }, fit));
    });
    best
}

/// The request for one torus; `None` if its hosts cannot hold such members.
fn ask(site: &Site, gang: &Gang, level: LevelAt) -> Option<BoxRequest> {
    let sides = gang.topology.slice?;
    let (member, host) = (gang.needs.devices, volume(site.host));
    let hosts = match gang.members_per_node {
        _ if level >= LevelAt::Node => Hosts::One,
        None => Hosts::Any,
        // A host has that many members when its chips are as many.
        Some(each) if u64::from(each) * u64::from(member) == host => Hosts::Whole,
        Some(_) => return None,
    };
    (member > 0).then_some(BoxRequest { sides, member, hosts })
}

/// Every torus, domain by domain of the level inside which the gang has to be.
fn each_scope<'a>(
    tree: &'a Tree,
    view: View<'_>,
    memory: &mut Memory,
    mut visit: impl FnMut(&'a Site, Scope, &mut TorusBoard),
) {
    let Memory { board, domains, .. } = memory;
    for site in &tree.tori {
        match view.request.ceiling {
            LevelAt::Above(level) => {
                domains.clear();
                domains.extend(site.nodes.iter().map(|(node, _)| tree.domain_of(*node as usize, level)));
                domains.dedup();
                domains.sort_unstable();
                domains.dedup();
                domains.iter().for_each(|domain| visit(site, Scope::Domain(level, *domain), board));
            }
            LevelAt::Node => visit(site, Scope::All, board),
            LevelAt::Group(group) => {
                let most = tree.kinds.iter().map(|kind| kind.groups_of(group).count()).max().unwrap_or(0);
                (0..most).for_each(|nth| visit(site, Scope::Group(group, nth), board));
            }
        }
    }
}

impl Scope {
    fn has(self, view: View<'_>, node: usize) -> bool {
        match self {
            Self::Domain(level, domain) => view.tree.domains[level][domain].nodes.contains(&node),
            Self::All | Self::Group(..) => true,
        }
    }

    /// The devices of a node that count.
    fn of(self, view: View<'_>, node: usize) -> DeviceMask {
        let kind = view.tree.kind(&view.tree.nodes[node]);
        match self {
            Self::Group(group, nth) => kind.groups_of(group).nth(nth).unwrap_or(DeviceMask::EMPTY),
            _ => kind.all(),
        }
    }
}

impl TorusBoard {
    /// Reads the free chips. Returns their number.
    fn load(&mut self, site: &Site, scope: Scope, view: View<'_>) -> u64 {
        match site.form {
            Form::Box => self.chips.lay_out(&site.torus),
            Form::Cubes => self.cubes.lay_out(&site.torus),
        }
        let View { tree, space, request, gang } = view;
        for (node, first) in &site.nodes {
            let node = *node as usize;
            let devices = request.devices(tree, space, node);
            if devices.is_empty() || !scope.has(view, node) {
                continue;
            }
            let devices = devices.and(scope.of(view, node));
            let members = (devices.count() / gang.needs.devices.max(1)).min(gang.size);
            if members == 0 || request.limit(tree, space, node, devices) < members {
                continue;
            }
            match site.form {
                Form::Box => site.chips(*first, devices).for_each(|chip| self.chips.set_free(chip)),
                Form::Cubes => site.chips(*first, devices).for_each(|chip| self.cubes.set_free(chip)),
            }
        }
        match site.form {
            Form::Box => self.chips.free_count(),
            Form::Cubes => self.cubes.free_count(),
        }
    }

    fn place(&mut self, site: &Site, ask: BoxRequest, gang: &Gang) -> Option<Found> {
        let (time_ns, rings, exposed) = match site.form {
            Form::Box => {
                let time = |sides, rings| time_ns(site, gang, sides, rings);
                let placed = self.chips.place(ask, time, &mut self.scratch)?;
                self.placed = Some(placed);
                let rings = [0, 1, 2].map(|axis| placed.rings[axis] || placed.sides[axis] == 1);
                (placed.time_ns, rings, placed.exposed.into())
            }
            Form::Cubes => {
                if !self.cubes.place(ask, &mut self.slice) {
                    return None;
                }
                let rings = [self.slice.is_whole; 3];
                (time_ns(site, gang, ask.sides, rings), rings, self.slice.exposed)
            }
        };
        let links = if rings == [true; 3] { 2 } else { 1 };
        let is_limited = volume(ask.sides) > 1 && site.torus.link_mb_per_s > 0;
        let bottleneck = if is_limited { site.torus.link_mb_per_s.saturating_mul(links) } else { NO_LIMIT };
        let cost = PlacementCost { time_ns, spans: 0, breaks: exposed.into() };
        Some(Found { cost, bottleneck_mb_per_s: bottleneck, least_ns: time_ns })
    }

    /// The members of the last placement.
    fn picks(&self, site: &Site, gang: &Gang, picks: &mut Vec<Pick>) {
        let order = if gang.grid.is_empty() { RankOrder::ring } else { |sides, _| RankOrder::rows(sides) };
        let mut add = |corner, block| {
            picks.extend(site.devices(corner, block).map(|(node, devices)| Pick::new(node, 1, devices)));
        };
        match (site.form, &self.placed) {
            (Form::Box, Some(placed)) => placed.corners(order).for_each(|corner| add(corner, placed.block)),
            (Form::Box, None) => {}
            (Form::Cubes, _) => self.slice.corners(order).for_each(|corner| add(corner, self.slice.block)),
        }
    }

    fn most_free(&mut self, site: &Site, ask: BoxRequest) -> u64 {
        match site.form {
            Form::Box => self.chips.most_free(ask, &mut self.scratch),
            Form::Cubes => self.cubes.most_free(ask),
        }
    }

    /// The largest slice that could be had.
    fn largest(&mut self, site: &Site, ask: BoxRequest) -> Option<[u16; 3]> {
        let is_whole = u64::from(ask.member) == volume(site.host) || ask.hosts == Hosts::Whole;
        match site.form {
            Form::Box => self.chips.largest(if is_whole { site.host } else { [1; 3] }, &mut self.scratch),
            Form::Cubes => self.cubes.largest(ask),
        }
    }
}

/// Predicted time of one collective of the gang on a box.
fn time_ns(site: &Site, gang: &Gang, sides: [u16; 3], rings: [bool; 3]) -> u64 {
    let (pattern, bytes) = traffic::said(gang);
    let time = match pattern {
        Pattern::AllReduce => all_reduce_ns,
        Pattern::AllToAll => all_to_all_ns,
    };
    time(sides, rings, bytes, site.torus.link_mb_per_s)
}

/// Why a gang can never be a slice of this cluster: the field, and the fault.
pub(crate) fn refused(tree: &Tree, gang: &Gang) -> Option<(&'static str, String)> {
    let sides = gang.topology.slice?;
    let (size, each) = (gang.size, gang.needs.devices);
    let beside = [
        (!gang.roles.is_empty(), "roles"),
        (!gang.topology.segments.is_empty(), "segments"),
        (!gang.topology.spread.is_empty(), "spread"),
    ];
    if let Some((_, field)) = beside.into_iter().find(|(has, _)| *has) {
        return Some((field, format!("a slice cannot have {field}: all of its chips form one box")));
    }
    if !is_whole(gang) {
        let (shape, chips) = (Sides(sides), u64::from(size) * u64::from(each));
        let why =
            format!("{shape} has {} chips, and {size} members of {each} devices need {chips}", volume(sides));
        return Some(("slice", why));
    }
    let level = tree.level_of_required(gang);
    let mut refusals = tree.tori.iter().map(|site| match ask(site, gang, level) {
        Some(ask) => refusal(&site.torus, site.form, ask),
        None => Some("its members do not fill a host".to_owned()),
    });
    let first = refusals.next().unwrap_or_else(|| Some("this cluster has no torus".to_owned()))?;
    refusals.all(|why| why.is_some()).then_some(("slice", first))
}
