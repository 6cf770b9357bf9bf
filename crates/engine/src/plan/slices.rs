//! Gangs that are a box of chips of a torus.

use phalanx_model::Gang;

use super::search::{Ceiling, Fit, Found, Search};
use super::space::Space;
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
