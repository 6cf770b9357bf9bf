//! Shapes: places that are not counts in a tree, but boxes, cubes and runs of racks.
//!
//! - [`Chips`]: a torus or mesh of chips; a slice is a free box, in any rotation, around wrapping sides.
//! - [`Cubes`]: cubes of 4x4x4 chips behind optical switches (TPU v4 and later); any free cubes are a torus.
//! - [`Racks`]: racks in a row, aggregated by powers of two; segments of a job stay inside a rack (Slurm's
//!   `topology/block`, NVL72).
//!
//! Each finds a place if there is one, the best by a stated order, and else says why there is none. Nothing here
//! takes anything by looking: the answer is taken and released with its own functions. Pictures are in
//! `docs/placement-shapes.md`.

mod chips;
mod cubes;
mod legal;
mod order;
mod place;
mod rack_sets;
mod racks;
mod windows;

#[cfg(test)]
mod tests;

use std::fmt;

pub use chips::{Chips, SIDE_MAX};
pub use cubes::{CubeSlice, Cubes, NoCubes, Part};
pub use legal::{IllegalShape, SliceRule, TPU_V4, TPU_V5E, TPU_V5P, TPU_V7X};
pub use order::RankOrder;
pub use place::{BoxAsk, Hosts, NoBox, Placed, Scratch};
pub use racks::{NoRacks, RackAsk, RackChoice, RackUse, Racks, RacksError};

/// Chips that lie together: the corner with the lowest coordinates, and how many follow along x, y, z. A box may
/// run over the end of a side that wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChipBox {
    pub at: [u16; 3],
    pub sides: [u16; 3],
}

impl ChipBox {
    #[must_use]
    pub const fn one(at: [u16; 3]) -> Self {
        Self { at, sides: [1; 3] }
    }

    #[must_use]
    pub fn chip_count(&self) -> u64 {
        volume(self.sides)
    }
}

impl fmt::Display for ChipBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.at;
        write!(f, "{} at {x},{y},{z}", Sides(self.sides))
    }
}

/// Why a torus cannot be kept, or chips cannot be taken, released or marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TorusError {
    /// A side of 0, or one longer than [`SIDE_MAX`].
    Sides([u16; 3]),
    /// The blocks of the hosts do not fill the sides.
    Hosts { sides: [u16; 3], host: [u16; 3] },
    /// The rings of a twisted torus are no rows of chips, so that boxes cannot be moved in it.
    Twisted,
    /// Chips beyond the ends of the torus.
    Outside(ChipBox),
    /// An axis that is none of x, y, z (0 to 2), or has no link there.
    NoLink { at: [u16; 3], axis: usize },
    /// The first chip of a box that is taken or broken.
    NotFree([u16; 3]),
    /// The first chip of a box that nobody has taken.
    NotTaken([u16; 3]),
    /// More cubes than are kept.
    TooManyCubes(u32),
    /// A cube that is not there.
    NoCube(u32),
}

impl fmt::Display for TorusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sides(sides) => write!(f, "a torus of {} chips: sides are 1 to {SIDE_MAX}", Sides(*sides)),
            Self::Hosts { sides, host } => {
                write!(f, "hosts of {} chips do not fill a torus of {}", Sides(*host), Sides(*sides))
            }
            Self::Twisted => f.write_str("a twisted torus is one slice, and is given whole"),
            Self::Outside(chips) => write!(f, "{chips} is outside of the torus"),
            Self::NoLink { at: [x, y, z], axis } => {
                write!(f, "chip {x},{y},{z} has no link along axis {axis}")
            }
            Self::NotFree([x, y, z]) => write!(f, "chip {x},{y},{z} is not free"),
            Self::NotTaken([x, y, z]) => write!(f, "chip {x},{y},{z} is not taken"),
            Self::TooManyCubes(cubes) => write!(f, "{cubes} cubes, and {} at most", cubes::CUBES_MAX),
            Self::NoCube(cube) => write!(f, "there is no cube {cube}"),
        }
    }
}

impl std::error::Error for TorusError {}

/// Sides as they are written: `4x4x8`.
struct Sides([u16; 3]);

impl fmt::Display for Sides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.0;
        write!(f, "{x}x{y}x{z}")
    }
}

fn volume(sides: [u16; 3]) -> u64 {
    sides.into_iter().map(u64::from).product()
}

/// The axis along which each asked side lies: as it was asked first, and those with the same side along z together.
const ROTATIONS: [[usize; 3]; 6] = [[0, 1, 2], [1, 0, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// The different rotations of sides: for each the axes, and the sides as they lie along x, y, z.
fn rotations(sides: [u16; 3], rotate: bool) -> impl Iterator<Item = ([usize; 3], [u16; 3])> {
    let lie = move |axes: [usize; 3]| {
        let mut along = [0; 3];
        for (axis, side) in axes.into_iter().zip(sides) {
            along[axis] = side;
        }
        along
    };
    let most = if rotate { ROTATIONS.len() } else { 1 };
    (0..most)
        .filter(move |i| (0..*i).all(|earlier| lie(ROTATIONS[earlier]) != lie(ROTATIONS[*i])))
        .map(move |i| (ROTATIONS[i], lie(ROTATIONS[i])))
}
