//! The hardware and its free capacity: nodes and their kinds, the domain tree over them, free capacity by class,
//! resources counted by name, and devices that are shared or cut.

#![allow(
    clippy::cast_possible_truncation,
    reason = "nodes, domains, levels and classes: far fewer than 2^32"
)]

mod claims;
mod disputed;
pub(crate) mod fractions;
pub(crate) mod kind;
pub(crate) mod measured;
pub(crate) mod mix;
pub(crate) mod named;
pub(crate) mod shape;
pub(crate) mod share_request;
pub(crate) mod sites;
pub(crate) mod space;
pub(crate) mod traffic;
pub(crate) mod tree;

pub(crate) use fractions::hardware::milli_of_slice;
pub(crate) use measured::{At, MeasuredLink, Nominal};
pub use shape::Shapes;
pub use space::Piece;
pub(crate) use space::{Pick, Space};
pub use tree::Free;

/// The capacity of the hardware, whatever runs: the bound of every placement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hardware<'a> {
    pub(crate) tree: &'a Tree,
    /// All capacity of the nodes, including the devices that others use.
    pub(crate) empty: &'a Space,
    /// The same if no node were cordoned.
    pub(crate) empty_opened: &'a Space,
    /// All capacity that others do not use: what is free if no gang of ours runs.
    pub(crate) usable: &'a Space,
    /// The cluster without measured links, if it has any.
    pub(crate) nominal: Option<&'a Nominal>,
}

impl Hardware<'_> {
    /// The cluster if no link were measured, and all capacity that others do not use.
    pub(crate) fn unmeasured(&self) -> (&Tree, &Space) {
        self.nominal.map_or((self.tree, self.usable), |nominal| (&nominal.tree, &nominal.usable))
    }
}

pub(crate) use tree::{LevelAt, Tree};
