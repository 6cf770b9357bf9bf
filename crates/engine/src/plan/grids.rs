//! Gangs whose ranks are a grid of parallelism: where they go, and which rank sits where.

use phalanx_model::Gang;

use super::search::{Ceiling, Found, Search};
use super::space::Space;
use super::tree::Tree;

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
