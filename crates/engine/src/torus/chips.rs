//! The chips of a torus that are free.

use phalanx_model::Torus;

use super::host_of;
use super::windows::Axis;

/// A torus or mesh of up to three dimensions, and which of its chips are free. One memory serves all tori.
///
/// Memory is a bit and two bytes for each chip. Places are found by [`Self::place`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Chips {
    pub(super) sides: [u16; 3],
    pub(super) wraps: [bool; 3],
    pub(super) host: [u16; 3],
    /// One row of z per word, bit z; rows in order of x, then y.
    pub(super) free: Vec<u64>,
    /// 1 for a free chip, else 0, in order of x, y, z: windows are sums of these.
    pub(super) cells: Vec<u16>,
}

impl Chips {
    /// A torus of [`super::Form::Box`], of which nothing is free.
    pub(crate) fn lay_out(&mut self, torus: &Torus) {
        let [x, y, z] = torus.chips.map(usize::from);
        (self.sides, self.wraps, self.host) = (torus.chips, torus.wraps, host_of(torus));
        self.free.clear();
        self.free.resize(x * y, 0);
        self.cells.clear();
        self.cells.resize(x * y * z, 0);
    }

    /// The chip is free. It is one of the torus.
    pub(crate) fn set_free(&mut self, [x, y, z]: [u16; 3]) {
        let row = usize::from(x) * usize::from(self.sides[1]) + usize::from(y);
        self.free[row] |= 1 << z;
        self.cells[row * usize::from(self.sides[2]) + usize::from(z)] = 1;
    }

    pub(crate) fn free_count(&self) -> u64 {
        self.free.iter().map(|row| u64::from(row.count_ones())).sum()
    }

    /// The axis as it lies in memory: in rows of bits, which have no z, and in cells.
    pub(super) fn axis(&self, axis: usize, in_cells: bool) -> Axis {
        let [x, y, z] = self.sides.map(usize::from);
        let z = if in_cells { z } else { 1 };
        let (len, inner) = [(x, y * z), (y, z), (z, 1)][axis];
        Axis { len, inner, wraps: self.wraps[axis] }
    }
}
