//! Gangs whose members need a part of a device: shares and MIG slices.

use phalanx_model::{DevicePart, Gang};

use super::search::{Ceiling, Fit, Found, Search};
use super::space::{Pick, Space};
use super::tree::{LevelAt, Tree};

/// Finds a place for the whole gang inside the ceiling, or nothing. The picks are those of the search.
pub(super) fn place(
    search: &mut Search,
    tree: &Tree,
    space: &Space,
    gang: &Gang,
    ceiling: Ceiling,
) -> Option<Found> {
    search.place_members(tree, space, gang, ceiling)
}

/// How many members of the gang the best domain of a level holds.
pub(super) fn best_fit(tree: &Tree, space: &Space, gang: &Gang, level: LevelAt) -> Fit {
    super::search::fit_members(tree, space, gang, level)
}

/// Which part of its device the member of a pick has.
pub(super) fn part_of(tree: &Tree, pick: &Pick) -> Option<DevicePart> {
    let _ = (tree, pick);
    None
}
