//! Places one gang: the search for the best placement, one module for each sort of gang, and the verdict on a gang.

#![allow(
    clippy::cast_possible_truncation,
    reason = "nodes, domains, levels and classes: far fewer than 2^32"
)]

mod grids;
mod measured;
mod pack;
mod parts;
pub(crate) mod pools;
mod request;
mod roles;
mod search;
mod slices;
mod verdict;

pub(crate) use grids::{check as check_grid, gain as grid_gain};
pub(crate) use measured::weighed_links;
pub use parts::{Instance, Reshape};
pub(crate) use parts::{refused as refused_part, reshapes};
pub(crate) use request::Request;
pub(crate) use search::{
    Ceiling, LEVELS_MAX, Search, Sort, best_fit, domain_of_picks, level_of, place, placement,
};
pub(crate) use slices::refused as refused_slice;
pub(crate) use verdict::{Verdict, shortfall, verdict, waits_for_capacity, with_spares};
