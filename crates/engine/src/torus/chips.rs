//! The chips of a torus: which are free, which are broken, and which links are.

use phalanx_model::Torus;

use super::{ChipBox, TorusError, windows::Axis};

/// The longest side: a row of z is one machine word.
pub const SIDE_MAX: u16 = 64;

/// A torus or mesh of up to three dimensions, and which of its chips are free.
///
/// Memory is three bits for links, three for chips and two bytes for sums per chip. Shapes are found by
/// [`Self::place`], and taken by [`Self::take`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chips {
    pub(super) sides: [u16; 3],
    pub(super) wraps: [bool; 3],
    pub(super) host: [u16; 3],
    /// One row of z per word, bit z; rows in order of x, then y.
    pub(super) free: Vec<u64>,
    taken: Vec<u64>,
    broken: Vec<u64>,
    /// Links that carry traffic from a chip to the next one along x, y, z, as rows of bits; at an open end the
    /// bit is set and means nothing.
    pub(super) live: [Vec<u64>; 3],
    pub(super) dead_links: [u32; 3],
    /// 1 for a free chip, else 0, in order of x, y, z: what windows are summed over.
    pub(super) cells: Vec<u16>,
    pub(super) free_count: u64,
}

impl Chips {
    /// All chips free, all links live.
    ///
    /// # Errors
    /// When a side is 0 or longer than [`SIDE_MAX`], when hosts do not fill the sides, or when the torus is
    /// twisted. A host side of 0 counts as 1.
    pub fn new(torus: &Torus) -> Result<Self, TorusError> {
        let sides = torus.chips;
        if sides.iter().any(|side| *side == 0 || *side > SIDE_MAX) {
            return Err(TorusError::Sides(sides));
        }
        if torus.is_twisted {
            return Err(TorusError::Twisted);
        }
        let host = torus.host_chips.map(|side| side.max(1));
        if sides.iter().zip(host).any(|(side, host)| !side.is_multiple_of(host)) {
            return Err(TorusError::Hosts { sides, host });
        }
        let [x, y, z] = sides.map(usize::from);
        let ones = vec![u64::MAX >> (64 - z); x * y];
        Ok(Self {
            sides,
            wraps: torus.wraps,
            host,
            taken: vec![0; x * y],
            broken: vec![0; x * y],
            live: [ones.clone(), ones.clone(), ones.clone()],
            free: ones,
            dead_links: [0; 3],
            cells: vec![1; x * y * z],
            free_count: super::volume(sides),
        })
    }

    /// Chips along x, y, z.
    #[must_use]
    pub const fn sides(&self) -> [u16; 3] {
        self.sides
    }

    /// Chips that are neither taken nor broken.
    #[must_use]
    pub const fn free_count(&self) -> u64 {
        self.free_count
    }

    /// Whether a chip is there and free.
    #[must_use]
    pub fn is_free(&self, at: [u16; 3]) -> bool {
        self.row_of(at).is_ok_and(|row| self.free.get(row).is_some_and(|bits| bits >> at[2] & 1 == 1))
    }

    /// Takes all chips of a box, or none.
    ///
    /// # Errors
    /// When the box is outside, or a chip of it is taken or broken.
    pub fn take(&mut self, chips: &ChipBox) -> Result<(), TorusError> {
        self.check(chips)?;
        if let Some(at) = self.first_without(chips, |books, row| books.free[row]) {
            return Err(TorusError::NotFree(at));
        }
        self.mark(chips, |books, row, bits| books.taken[row] |= bits);
        Ok(())
    }

    /// Gives back all chips of a box that was taken, or none. Broken ones stay out of use.
    ///
    /// # Errors
    /// When the box is outside, or a chip of it was not taken.
    pub fn release(&mut self, chips: &ChipBox) -> Result<(), TorusError> {
        self.check(chips)?;
        if let Some(at) = self.first_without(chips, |books, row| books.taken[row]) {
            return Err(TorusError::NotTaken(at));
        }
        self.mark(chips, |books, row, bits| books.taken[row] &= !bits);
        Ok(())
    }

    /// Marks a chip as broken or as whole again. Who has taken it keeps it.
    ///
    /// # Errors
    /// When there is no such chip.
    pub fn set_broken(&mut self, at: [u16; 3], is_broken: bool) -> Result<(), TorusError> {
        let chip = ChipBox::one(at);
        self.check(&chip)?;
        self.mark(&chip, |books, row, bits| {
            if is_broken {
                books.broken[row] |= bits;
            } else {
                books.broken[row] &= !bits;
            }
        });
        Ok(())
    }

    /// Marks the link from a chip to the next one along an axis (0 to 2) as dead or live. New boxes do not have
    /// dead links inside; a ring that is closed by one is an open row.
    ///
    /// # Errors
    /// When there is no such chip or link.
    pub fn set_link(&mut self, at: [u16; 3], axis: usize, is_live: bool) -> Result<(), TorusError> {
        let row = self.row_of(at)?;
        let no_link = TorusError::NoLink { at, axis };
        let (Some(side), Some(wraps), Some(here)) =
            (self.sides.get(axis), self.wraps.get(axis), at.get(axis))
        else {
            return Err(no_link);
        };
        if *side < 2 || (here + 1 == *side && !wraps) {
            return Err(no_link);
        }
        let bits = &mut self.live[axis][row];
        let bit = 1 << at[2];
        match (*bits & bit != 0, is_live) {
            (true, false) => self.dead_links[axis] += 1,
            (false, true) => self.dead_links[axis] -= 1,
            _ => {}
        }
        *bits = if is_live { *bits | bit } else { *bits & !bit };
        Ok(())
    }

    /// Whether the link from a chip to the next one along an axis carries traffic.
    pub(super) fn is_live(&self, at: [u16; 3], axis: usize) -> bool {
        self.row_of(at).is_ok_and(|row| self.live[axis][row] >> at[2] & 1 == 1)
    }

    /// The axis as it lies in memory: in rows of bits, which have no z, and in cells.
    pub(super) fn axis(&self, axis: usize, in_cells: bool) -> Axis {
        let [x, y, z] = self.sides.map(usize::from);
        let z = if in_cells { z } else { 1 };
        let (len, inner) = [(x, y * z), (y, z), (z, 1)][axis];
        Axis { len, inner, wraps: self.wraps[axis] }
    }

    /// The row of a chip, which is there if this is.
    fn row_of(&self, at: [u16; 3]) -> Result<usize, TorusError> {
        if at.iter().zip(self.sides).any(|(at, side)| *at >= side) {
            return Err(TorusError::Outside(ChipBox::one(at)));
        }
        Ok(usize::from(at[0]) * usize::from(self.sides[1]) + usize::from(at[1]))
    }

    fn check(&self, chips: &ChipBox) -> Result<(), TorusError> {
        let fits = (0..3).all(|axis| {
            let (at, size, side) = (chips.at[axis], chips.sides[axis], self.sides[axis]);
            // Sides are 64 at most, so that the sum does not overflow.
            at < side && (1..=side).contains(&size) && (self.wraps[axis] || at + size <= side)
        });
        if fits { Ok(()) } else { Err(TorusError::Outside(*chips)) }
    }

    /// The rows of a box that was checked, in order, and the bits it has in each of them.
    fn rows(&self, chips: &ChipBox) -> (impl Iterator<Item = usize> + use<>, u64) {
        let [x, y, z] = self.sides.map(usize::from);
        let [at_x, at_y, at_z] = chips.at.map(usize::from);
        let [size_x, size_y, size_z] = chips.sides.map(usize::from);
        let run = u64::MAX >> (64 - size_z);
        let around = if at_z + size_z > z { run >> (z - at_z) } else { 0 };
        let bits = run << at_z & u64::MAX >> (64 - z) | around;
        let rows =
            (0..size_x).flat_map(move |i| (0..size_y).map(move |j| (at_x + i) % x * y + (at_y + j) % y));
        (rows, bits)
    }

    fn first_without(&self, chips: &ChipBox, rows: impl Fn(&Self, usize) -> u64) -> Option<[u16; 3]> {
        let (mut all, bits) = self.rows(chips);
        let row = all.find(|row| rows(self, *row) & bits != bits)?;
        let y = usize::from(self.sides[1]);
        let z = (bits & !rows(self, row)).trailing_zeros();
        Some([row / y, row % y, z as usize].map(narrow))
    }

    /// Changes the books of a box, and what follows from them.
    fn mark(&mut self, chips: &ChipBox, change: impl Fn(&mut Self, usize, u64)) {
        let (rows, bits) = self.rows(chips);
        let (z, full) = (usize::from(self.sides[2]), u64::MAX >> (64 - self.sides[2]));
        for row in rows {
            change(self, row, bits);
            let (before, now) = (self.free[row], full & !(self.taken[row] | self.broken[row]));
            self.free_count = self.free_count + u64::from(now.count_ones()) - u64::from(before.count_ones());
            self.free[row] = now;
            for (i, cell) in self.cells[row * z..(row + 1) * z].iter_mut().enumerate() {
                *cell = u16::from(now >> i & 1 == 1);
            }
        }
    }
}

/// Coordinates and sides are 64 at most.
pub(super) fn narrow(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}
