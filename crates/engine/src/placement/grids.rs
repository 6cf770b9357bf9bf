//! Gangs whose ranks are a grid of parallelism: their placement, and the seat of each rank.
//!
//! The best placement depends on the order of the ranks on it, and [`grid::map_within`] computes the time of the best
//! order. So candidates are proposed, each is mapped, and the candidate with the shortest step wins. The search for
//! equal members proposes the first ones, without segments and with those that the grid may gain from ([`seeds`]).
//! Then whole groups are dealt to innermost domains in several ways, and moved between them for as long as the step
//! gets shorter ([`deal`]). A counted budget bounds all of it: see [`search::PLACES_MAX`].

mod deal;
mod search;
mod sites;

use std::borrow::Cow;

use phalanx_model::{AxisKind, Gang, Placement, Segment, Traffic};

use self::search::GridSearch;
use super::search::{Ceiling, Found, Search};
use crate::cluster::space::{Pick, Space};
use crate::cluster::tree::{LevelAt, Tree};
use crate::grid::{self, Gain, Grid, Seat};

/// Finds a place for the whole gang inside the ceiling, or nothing. The picks and the order of ranks are those of the
/// search.
pub(super) fn place(
    search: &mut Search,
    tree: &Tree,
    space: &Space,
    gang: &Gang,
    ceiling: Ceiling,
) -> Option<Found> {
    let grid = check(tree, gang).ok()?;
    let asked = asked(tree, gang);
    let found = search.place_members(tree, space, &asked, ceiling)?;
    let is_alone = search.picks().len() < 2;
    let mut board = GridSearch::new(search, tree, space, &asked, &grid, ceiling);
    board.propose_found();
    // No place is better than a single node.
    if !is_alone {
        seeds(&mut board);
        deal::deal(&mut board);
    }
    board.choose().or(Some(found))
}

/// The grid of a gang, and why it cannot be one.
pub(crate) fn check(tree: &Tree, gang: &Gang) -> Result<Grid, String> {
    let grid = Grid::new(&gang.grid).map_err(|error| error.to_string())?;
    if grid.ranks() != gang.size {
        return Err(format!(
            "the product of its degrees is {}, and the gang has {} members",
            grid.ranks(),
            gang.size
        ));
    }
    let tensor = grid.together();
    let is_cut = |segment: &&Segment| {
        let is_inside = tree.level_at(&segment.level) >= Some(LevelAt::Node);
        let holds_it = is_inside && tensor.is_multiple_of(segment.size.max(1));
        segment.size < gang.size && !segment.size.is_multiple_of(tensor) && !holds_it
    };
    if let Some(Segment { size, .. }) = gang.topology.segments.iter().find(is_cut) {
        return Err(format!("segments of {size} split tensor groups of {tensor}"));
    }
    let is_split = |segment: &Segment, each: u32| {
        tree.level_at(&segment.level) >= Some(LevelAt::Node) && !each.is_multiple_of(segment.size.max(1))
    };
    match gang.members_per_node {
        Some(each) if asked(tree, gang).topology.segments.iter().any(|segment| is_split(segment, each)) => {
            Err(format!("a tensor group of {tensor} must be on one node, and each node gets {each} members"))
        }
        _ => Ok(grid),
    }
}

/// The gang with its tensor groups as segments. Each group stays on one node; if no node can hold a group, it stays
/// in a domain whose devices are joined without NICs.
pub(super) fn asked<'a>(tree: &Tree, gang: &'a Gang) -> Cow<'a, Gang> {
    let tensor = gang.grid.first().filter(|axis| axis.kind == AxisKind::Tensor).map_or(1, |axis| axis.degree);
    let devices = tensor.saturating_mul(gang.needs.devices);
    let largest = tree.nodes.iter().map(|node| node.total.devices.count()).max();
    let joined = (0..tree.depth()).find(|level| tree.inside_mb_per_s[*level] > 0);
    let level = match joined.filter(|_| Some(devices) > largest) {
        Some(level) => LevelAt::Above(level),
        None => LevelAt::Node,
    };
    let segments = &gang.topology.segments;
    let level_of = |segment: &Segment| tree.level_at(&segment.level);
    let holds_groups = |size: u32| size.is_multiple_of(tensor) || size >= gang.size;
    let is_kept = |segment: &Segment| level_of(segment) >= Some(level) && holds_groups(segment.size);
    if tensor < 2 || segments.iter().any(is_kept) {
        return Cow::Borrowed(gang);
    }
    let mut gang = gang.clone();
    // A segment of the user at this level is a part of a tensor group, which stays together.
    gang.topology.segments.retain(|segment| level_of(segment) != Some(level));
    let at = gang.topology.segments.iter().take_while(|segment| level_of(segment) < Some(level)).count();
    gang.topology.segments.insert(at, Segment { size: tensor, level: tree.level_name(level) });
    Cow::Owned(gang)
}

/// Proposes the placements of the search for equal members, with each segment that the grid may gain from: once for
/// bandwidth and once for the fewest crossings. The mapping decides which counts more.
fn seeds(board: &mut GridSearch<'_>) {
    let heaviest = board.gang.grid.iter().filter(|axis| axis.kind != AxisKind::Tensor).map(|axis| axis.bytes);
    let heavy = Traffic { bytes: heaviest.max().unwrap_or(0), ..search::SILENT };
    let said = board.gang.traffic.unwrap_or(heavy);
    for segment in board.segments() {
        for traffic in [said, search::SILENT] {
            let mut gang = board.gang.clone();
            gang.traffic = Some(traffic);
            gang.topology.segments.splice(0..0, segment.clone());
            board.propose(&gang);
        }
    }
}

/// The gain of the rank order of a placement, given the present load of every uplink.
pub(crate) fn gain(tree: &Tree, space: &Space, gang: &Gang, placement: &Placement) -> Option<Gain> {
    let grid = check(tree, gang).ok()?;
    let slots = placement.slots.get(..gang.size as usize)?;
    let nodes: Vec<u32> =
        slots.iter().map(|slot| Some(tree.index_of(&slot.node)? as u32)).collect::<Option<_>>()?;
    let mut picks: Vec<Pick> =
        nodes.iter().zip(slots).map(|(node, slot)| Pick::new(*node, 1, slot.devices)).collect();
    picks.sort_by_key(|pick| pick.node);
    picks.dedup_by(|next, first| {
        let is_same = next.node == first.node;
        if is_same {
            first.members += 1;
            first.devices = first.devices.union(next.devices);
        }
        is_same
    });
    let (sites, of_picks) = sites::sites(tree, space, &picks).ok()?;
    let mut taken = vec![0; sites.sites().len()];
    let seat = |node: &u32| {
        let pick = picks.binary_search_by_key(node, |pick| pick.node).ok()?;
        let site = *of_picks.get(pick)?;
        let next = taken.get_mut(site as usize)?;
        *next += 1;
        Some(Seat { site, index: *next - 1 })
    };
    let seats: Vec<Seat> = nodes.iter().map(seat).collect::<Option<_>>()?;
    let mut in_order = seats.clone();
    in_order.sort_unstable();
    let mut scratch = grid::Scratch::default();
    let mut predict = |seats: &[Seat]| grid::predict(&grid, &sites, seats, &mut scratch).ok();
    Some(Gain { in_order: predict(&in_order)?, chosen: predict(&seats)? })
}
