//! Cubes of 4x4x4 chips whose faces end at optical switches, which join any of them to any torus.
//!
//! What is made of whole cubes is therefore only counted. What is smaller lies inside of one cube, as a box: in the
//! cube that is fullest already, so that whole cubes stay whole.

use std::fmt;

use super::legal::{EDGE, can_twist};
use super::{IllegalShape, RankOrder, Sides, SliceRule, TorusError, rotations, volume};

/// The most cubes of one pod that are kept.
pub(super) const CUBES_MAX: u32 = 65_536;
/// Chips of a cube, each a bit: x * 16 + y * 4 + z.
const FULL: u64 = u64::MAX;
const CUBE_CHIPS: u64 = 64;

/// The cubes behind one set of optical switches, and which of their chips are free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubes {
    rule: SliceRule,
    cubes: Vec<Cube>,
    /// Where boxes of the sides 1 to 4 lie in a cube; those of sides a, b, c at (a-1) * 16 + (b-1) * 4 + (c-1).
    spots: Vec<Vec<Spot>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cube {
    taken: u64,
    broken: u64,
    /// Whether the cube cannot be joined to others, nor to itself.
    is_cut_off: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    chips: u64,
    at: [u16; 3],
    axes: [usize; 3],
}

/// A slice that was found. Its memory can be used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CubeSlice {
    /// As they were asked for.
    pub sides: [u16; 3],
    pub part: Part,
    /// The cubes by number: one for a part, else the grid of cubes, of which the last side runs fastest.
    pub cubes: Vec<u32>,
}

/// Which chips of its cubes a slice has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All. All sides are closed to rings.
    #[default]
    Whole,
    /// A box, and no side is a ring: the corner, and the axis along which each asked side lies.
    Inside { at: [u16; 3], axes: [usize; 3] },
}

/// Why there is no slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCubes {
    Illegal(IllegalShape),
    /// Fewer whole cubes are free than it takes. `partly` cubes have free chips as well, or are cut off.
    TooFew {
        asked: [u16; 3],
        needed: u64,
        whole: u64,
        partly: u64,
    },
    /// No cube has room. `most` is the largest number of free chips in one.
    NoRoom {
        asked: [u16; 3],
        free: u64,
        most: u32,
    },
}

impl fmt::Display for NoCubes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Illegal(illegal) => illegal.fmt(f),
            Self::TooFew { asked, needed, whole, partly } => write!(
                f,
                "{} takes {needed} whole cubes, and {whole} are free; {partly} more are so in part",
                Sides(*asked)
            ),
            Self::NoRoom { asked, free, most } => write!(
                f,
                "no cube has room for {}: {free} chips are free, {most} at most in one cube",
                Sides(*asked)
            ),
        }
    }
}

impl std::error::Error for NoCubes {}

impl Cubes {
    /// So many cubes, all free. `host` are the chips of a host along x, y, z; slices inside of a cube lie over no
    /// more hosts than they must.
    ///
    /// # Errors
    /// When there are more than 65,536 cubes, or hosts do not fill a cube.
    pub fn new(cubes: u32, host: [u16; 3], rule: SliceRule) -> Result<Self, TorusError> {
        if cubes > CUBES_MAX {
            return Err(TorusError::TooManyCubes(cubes));
        }
        if host.iter().any(|side| *side == 0 || !EDGE.is_multiple_of(*side)) {
            return Err(TorusError::Hosts { sides: [EDGE; 3], host });
        }
        let small = RankOrder::rows([EDGE; 3]);
        let sides = (0..small.len()).filter_map(|i| small.coordinates(i)).map(|at| at.map(|side| side + 1));
        let spots = sides.map(|sides| spots(sides, host)).collect();
        Ok(Self { rule, cubes: vec![Cube::default(); cubes as usize], spots })
    }

    /// Chips that are neither taken nor broken.
    #[must_use]
    pub fn free_count(&self) -> u64 {
        self.cubes.iter().map(|cube| u64::from(cube.free().count_ones())).sum()
    }

    /// Cubes that a larger slice can be made of.
    #[must_use]
    pub fn whole_count(&self) -> u64 {
        self.cubes.iter().filter(|cube| cube.is_whole()).count() as u64
    }

    /// The best slice of these sides: whole cubes by number; or room in a cube that is partly used, with the fewest
    /// free chips, then where the fewest links lead to free chips, then the first. If there is one, it is found.
    ///
    /// # Errors
    /// Why there is none. `out` then says nothing.
    pub fn place(&self, sides: [u16; 3], out: &mut CubeSlice) -> Result<(), NoCubes> {
        self.rule.check(sides).map_err(NoCubes::Illegal)?;
        out.sides = sides;
        out.cubes.clear();
        if sides.iter().any(|side| !side.is_multiple_of(EDGE)) {
            return self.place_inside(sides, out);
        }
        out.part = Part::Whole;
        let needed = volume(sides) / CUBE_CHIPS;
        let whole = (0..).zip(&self.cubes).filter(|(_, cube)| cube.is_whole()).map(|(number, _)| number);
        out.cubes.extend(whole.take(usize::try_from(needed).unwrap_or(usize::MAX)));
        if out.cubes.len() as u64 == needed {
            return Ok(());
        }
        let partly = self.cubes.iter().filter(|cube| cube.free() != 0 && !cube.is_whole()).count() as u64;
        Err(NoCubes::TooFew { asked: sides, needed, whole: out.cubes.len() as u64, partly })
    }

    fn place_inside(&self, sides: [u16; 3], out: &mut CubeSlice) -> Result<(), NoCubes> {
        let [a, b, c] = sides.map(usize::from);
        let spots = self.spots.get((a - 1) * 16 + (b - 1) * 4 + c - 1).map_or(&[][..], Vec::as_slice);
        let mut best: Option<((bool, u32, u32), u32, Spot)> = None;
        for (number, cube) in (0..).zip(&self.cubes) {
            let free = cube.free();
            let (is_whole, left) = (cube.is_whole(), free.count_ones());
            if best.is_some_and(|((best_whole, best_left, _), ..)| (best_whole, best_left) < (is_whole, left))
            {
                continue;
            }
            for spot in spots.iter().filter(|spot| spot.chips & !free == 0) {
                let merit = (is_whole, left, exposed(spot.chips, free));
                if best.is_none_or(|(least, ..)| merit < least) {
                    best = Some((merit, number, *spot));
                }
            }
        }
        let Some((_, number, Spot { at, axes, .. })) = best else {
            let most = self.cubes.iter().map(|cube| cube.free().count_ones()).max().unwrap_or(0);
            return Err(NoCubes::NoRoom { asked: sides, free: self.free_count(), most });
        };
        out.part = Part::Inside { at, axes };
        out.cubes.push(number);
        Ok(())
    }

    /// Takes all chips of a slice, or none.
    ///
    /// # Errors
    /// When a cube is not there, or a chip is taken or broken.
    pub fn take(&mut self, slice: &CubeSlice) -> Result<(), TorusError> {
        let chips = slice.chips();
        self.check(slice, |cube| chips & !cube.free(), TorusError::NotFree)?;
        self.change(slice, |cube| cube.taken |= chips);
        Ok(())
    }

    /// Gives back all chips of a slice that was taken, or none.
    ///
    /// # Errors
    /// When a cube is not there, or a chip was not taken.
    pub fn release(&mut self, slice: &CubeSlice) -> Result<(), TorusError> {
        let chips = slice.chips();
        self.check(slice, |cube| chips & !cube.taken, TorusError::NotTaken)?;
        self.change(slice, |cube| cube.taken &= !chips);
        Ok(())
    }

    /// Marks a chip of a cube as broken or as whole again. Who has taken it keeps it.
    ///
    /// # Errors
    /// When there is no such cube or chip.
    pub fn set_broken(&mut self, cube: u32, at: [u16; 3], is_broken: bool) -> Result<(), TorusError> {
        let found = self.cubes.get_mut(cube as usize).ok_or(TorusError::NoCube(cube))?;
        if at.iter().any(|at| *at >= EDGE) {
            return Err(TorusError::Outside(super::ChipBox::one(at)));
        }
        let bit = box_bits(at, [1; 3]);
        found.broken = if is_broken { found.broken | bit } else { found.broken & !bit };
        Ok(())
    }

    /// Marks the way from a cube to the switches as dead or live. A cube that is cut off takes boxes still.
    ///
    /// # Errors
    /// When there is no such cube.
    pub fn set_cut_off(&mut self, cube: u32, is_cut_off: bool) -> Result<(), TorusError> {
        let found = self.cubes.get_mut(cube as usize).ok_or(TorusError::NoCube(cube))?;
        found.is_cut_off = is_cut_off;
        Ok(())
    }

    /// The first cube that is not there or lacks a chip, if any; numbers ascend, so that none counts twice.
    fn check(
        &self,
        slice: &CubeSlice,
        lacks: impl Fn(&Cube) -> u64,
        error: impl Fn([u16; 3]) -> TorusError,
    ) -> Result<(), TorusError> {
        for (i, number) in slice.cubes.iter().enumerate() {
            let is_first = i == 0 || slice.cubes.get(i - 1).is_some_and(|before| before < number);
            let cube = self.cubes.get(*number as usize).filter(|_| is_first);
            let lacking = lacks(cube.ok_or(TorusError::NoCube(*number))?);
            if lacking != 0 {
                return Err(error(coordinates(lacking.trailing_zeros())));
            }
        }
        Ok(())
    }

    fn change(&mut self, slice: &CubeSlice, change: impl Fn(&mut Cube)) {
        for number in &slice.cubes {
            if let Some(cube) = self.cubes.get_mut(*number as usize) {
                change(cube);
            }
        }
    }
}

impl Cube {
    const fn free(&self) -> u64 {
        !(self.taken | self.broken)
    }

    const fn is_whole(&self) -> bool {
        self.free() == FULL && !self.is_cut_off
    }
}

impl CubeSlice {
    /// Whether the switches can join it as a twisted torus instead.
    #[must_use]
    pub fn can_twist(&self) -> bool {
        can_twist(self.sides)
    }

    /// The chips by rank: the cube, and x, y, z inside of it. Neighbours in rank are neighbours in the slice, and
    /// the ring over all of them comes back where it can ([`RankOrder::ring`]).
    pub fn chips_by_rank(&self) -> impl Iterator<Item = (u32, [u16; 3])> {
        let order = RankOrder::ring(self.sides, [self.part == Part::Whole; 3]);
        let [_, b, c] = self.sides.map(|side| usize::from(side.div_ceil(EDGE)));
        (0..order.len()).filter_map(move |rank| {
            let along = order.coordinates(rank)?;
            match self.part {
                Part::Whole => {
                    let [x, y, z] = along.map(|at| usize::from(at / EDGE));
                    let cube = self.cubes.get((x * b + y) * c + z)?;
                    Some((*cube, along.map(|at| at % EDGE)))
                }
                Part::Inside { at, axes } => {
                    let mut found = at;
                    for (axis, by) in axes.into_iter().zip(along) {
                        *found.get_mut(axis)? += by;
                    }
                    Some((*self.cubes.first()?, found))
                }
            }
        })
    }

    /// Chips as bits of each of its cubes.
    fn chips(&self) -> u64 {
        let Part::Inside { at, axes } = self.part else {
            return FULL;
        };
        let mut sides = [1; 3];
        for (axis, side) in axes.into_iter().zip(self.sides) {
            if let Some(along) = sides.get_mut(axis) {
                *along = side;
            }
        }
        box_bits(at, sides)
    }
}

/// The places in a cube over no more hosts than needed.
fn spots(sides: [u16; 3], host: [u16; 3]) -> Vec<Spot> {
    let under =
        |sides: [u16; 3]| sides.iter().zip(host).map(|(side, host)| side.div_ceil(host)).product::<u16>();
    let fewest = rotations(sides, true).map(|(_, lie)| under(lie)).min();
    let corners = RankOrder::rows([EDGE; 3]);
    let mut found = Vec::new();
    for (axes, lie) in rotations(sides, true).filter(|(_, lie)| Some(under(*lie)) == fewest) {
        for at in (0..corners.len()).filter_map(|corner| corners.coordinates(corner)) {
            let fits = (0..3).all(|i| {
                at[i] + lie[i] <= EDGE && at[i] % host[i] + lie[i] <= lie[i].div_ceil(host[i]) * host[i]
            });
            if fits {
                found.push(Spot { chips: box_bits(at, lie), at, axes });
            }
        }
    }
    found
}

/// The chips of a box as bits; what is outside of the cube is left out.
fn box_bits(at: [u16; 3], sides: [u16; 3]) -> u64 {
    let order = RankOrder::rows([EDGE; 3]);
    let inside = |chip: [u16; 3]| (0..3).all(|i| chip[i] >= at[i] && chip[i] - at[i] < sides[i]);
    (0..order.len())
        .filter(|bit| order.coordinates(*bit).is_some_and(inside))
        .fold(0, |bits, bit| bits | 1 << bit)
}

fn coordinates(bit: u32) -> [u16; 3] {
    RankOrder::rows([EDGE; 3]).coordinates(u64::from(bit)).unwrap_or_default()
}

/// Links from chips of a cube to free ones beside them.
fn exposed(chips: u64, free: u64) -> u32 {
    /// Chips with y = 0 and z = 0, in the bit order of [`FULL`].
    const Y_FIRST: u64 = 0x000F_000F_000F_000F;
    const Z_FIRST: u64 = 0x1111_1111_1111_1111;
    let beside = [
        chips << 16,
        chips >> 16,
        chips << 4 & !Y_FIRST,
        chips >> 4 & !(Y_FIRST << 12),
        chips << 1 & !Z_FIRST,
        chips >> 1 & !(Z_FIRST << 3),
    ];
    beside.into_iter().map(|beside| (beside & free & !chips).count_ones()).sum()
}
