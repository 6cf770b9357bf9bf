//! The best free box of a torus, exactly.
//!
//! The positions at which a box *fits* are found for all positions at once: a row of z is a word, and a box fits if
//! the AND over a window of its sides is set. *How well* it fits is the number of links from the box to free chips
//! outside it, summed for all positions at once by sliding sums over its faces. A box with few such links lies in a
//! corner of the free chips, and leaves the rest whole.

use super::windows::{and_bits, and_rows, sum};
use super::{Along, BoxRequest, Chips, Hosts, Lay, RankOrder, hosts_under, lays, narrow, step, volume};

/// A box that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// The corner with the lowest coordinates. The box may run over the end of a side that wraps.
    pub(crate) at: [u16; 3],
    /// As they lie along x, y, z.
    pub(crate) sides: [u16; 3],
    /// Which of these are closed to rings: they take all of a side that wraps.
    pub(crate) rings: [bool; 3],
    /// Chips of each member along x, y, z.
    pub(crate) block: [u16; 3],
    /// Links from the box to free chips outside; two for the one chip between both ends of a nearly full ring.
    pub(crate) exposed: u16,
    pub(crate) time_ns: u64,
    /// The axis (0 to 2: x, y, z) of each requested side.
    axes: [usize; 3],
    torus: [u16; 3],
}

/// Memory of a search, kept from one to the next: two words for every row of z and ten bytes for every chip.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    /// The positions at which the box fits.
    fits: Vec<u64>,
    /// The corners of hosts that are free.
    hosts: Vec<u64>,
    head: Vec<u64>,
    partial: Vec<u16>,
    /// Free chips in a row along z, and of how many chips; 0 when it is not known.
    along_z: (usize, Vec<u16>),
    /// Free chips in the face of a box across x, y, z.
    faces: [Vec<u16>; 3],
    /// Links to free chips outside, for the corners of one x.
    plane: Vec<u16>,
}

/// The sort key of an orientation; less is better: time, sides that are no rings, the longest side of a member.
type Grade = (u64, u32, u16);

/// The sort key of a position; less is better: for a box smaller than a host, whether the host was free; links to
/// free chips outside; position in order of x, y, z.
type Spot = (bool, u16, usize);

impl Chips {
    /// The best free box: with the least time, given the sides as they lie and which are rings; then with the most
    /// rings, the most compact members, in a host that is in use if it is smaller than one, the fewest links to free
    /// chips outside; then the first by position and rotation. If there is a free box, it is found.
    pub(crate) fn place(
        &self,
        request: BoxRequest,
        time_ns: impl Fn([u16; 3], [bool; 3]) -> u64,
        scratch: &mut Scratch,
    ) -> Option<Placed> {
        if volume(request.sides) > self.free_count() {
            return None;
        }
        let able = || lays(request, self.sides, self.host);
        let fewest = able().map(|lay| hosts_under(lay.sides, self.host)).min()?;
        let is_loose = request.hosts == Hosts::Any && volume(self.host) > u64::from(request.member);
        scratch.along_z.0 = 0;
        for in_fewest in [true, false].into_iter().take(if is_loose { 2 } else { 1 }) {
            let mut best: Option<(Grade, Spot, Lay)> = None;
            for lay in able().filter(|lay| !in_fewest || hosts_under(lay.sides, self.host) == fewest) {
                let rings = self.rings(lay.sides);
                let open = rings.iter().map(|ring| u32::from(!ring)).sum();
                let longest = lay.block.into_iter().max().unwrap_or(1);
                let grade = (time_ns(lay.sides, rings), open, longest);
                let beaten = best.filter(|(best, ..)| *best <= grade);
                if beaten.is_some_and(|(best, ..)| best < grade) || !self.find_fits(lay, in_fewest, scratch) {
                    continue;
                }
                let found = self.best_of(lay.sides, beaten.map(|(_, spot, _)| spot), scratch);
                best = found.map(|spot| (grade, spot, lay)).or(best);
            }
            if let Some(((time_ns, ..), (_, exposed, position), Lay { axes, sides, block })) = best {
                let at = self.coordinates(position);
                let (rings, torus) = (self.rings(sides), self.sides);
                return Some(Placed { at, sides, rings, block, exposed, time_ns, axes, torus });
            }
        }
        None
    }

    /// The highest number of free chips at one position of a box, which is all of its chips if the box is free; 0 if
    /// there is no position for it.
    pub(crate) fn most_free(&self, request: BoxRequest, scratch: &mut Scratch) -> u64 {
        let mut most = 0;
        for Lay { sides, block, .. } in lays(request, self.sides, self.host) {
            let [x, y, z] = sides.map(usize::from);
            let Scratch { partial, faces: [all, ..], .. } = &mut *scratch;
            sum(&self.cells, self.axis(2, true), z, all);
            sum(all, self.axis(1, true), y, partial);
            // Windows that reach beyond an open end are parts of other windows.
            sum(partial, self.axis(0, true), x, all);
            let in_fewest = request.hosts != Hosts::Any;
            let corners = |axis: usize| {
                let along = self.along(sides, block, axis);
                (0..self.sides[axis]).filter(move |at| along.is_corner(*at, in_fewest))
            };
            let [_, y, z] = self.sides.map(usize::from);
            for row in corners(0).flat_map(|x| corners(1).map(move |at| usize::from(x) * y + usize::from(at)))
            {
                let line = &all[row * z..(row + 1) * z];
                most = corners(2).map(|at| line[usize::from(at)]).fold(most, u16::max);
            }
        }
        u64::from(most)
    }

    /// The sides of the free box with the most chips, at corners of blocks and made of whole blocks; of equal ones
    /// the box with the shortest side along x, then y. It takes a hundred times as long as a placement, and serves
    /// only to explain why there is none.
    pub(crate) fn largest(&self, block: [u16; 3], scratch: &mut Scratch) -> Option<[u16; 3]> {
        let [x, y, z] = self.sides;
        let (mut most, mut best) = (0, None);
        for i in (block[0]..=x).step_by(block[0].into()) {
            // A box that fits with a longer side y fits with a shorter one: z only ever shrinks.
            let mut k = z;
            for j in (block[1]..=y).step_by(block[1].into()) {
                let lay = |k| Lay { axes: [0, 1, 2], sides: [i, j, k], block };
                while k > 0 && volume([i, j, k]) > most && !self.find_fits(lay(k), false, scratch) {
                    k -= block[2];
                }
                if volume([i, j, k]) > most {
                    (most, best) = (volume([i, j, k]), Some([i, j, k]));
                }
            }
        }
        best
    }

    fn coordinates(&self, position: usize) -> [u16; 3] {
        let [_, y, z] = self.sides.map(usize::from);
        [position / (y * z), position / z % y, position % z].map(narrow)
    }

    /// Sets `scratch.fits` to the corners of free boxes that lie so. False when there is none.
    fn find_fits(&self, lay: Lay, in_fewest: bool, scratch: &mut Scratch) -> bool {
        let Scratch { fits, head, .. } = scratch;
        fits.clone_from(&self.free);
        self.and_box(fits, lay.sides, head);
        self.keep_corners(fits, lay, in_fewest);
        fits.iter().any(|row| *row != 0)
    }

    /// Bits become the AND over boxes of these sides.
    fn and_box(&self, rows: &mut [u64], sides: [u16; 3], head: &mut Vec<u64>) {
        let [x, y, z] = sides.map(usize::from);
        and_bits(rows, usize::from(self.sides[2]), z, self.wraps[2]);
        and_rows(rows, self.axis(1, false), y, head);
        and_rows(rows, self.axis(0, false), x, head);
    }

    /// Leaves the corners at which such a box may begin.
    fn keep_corners(&self, fits: &mut [u64], Lay { sides, block, .. }: Lay, in_fewest: bool) {
        let along = [0, 1, 2].map(|axis| self.along(sides, block, axis));
        let may = |axis: usize, at: u16| along[axis].is_corner(at, in_fewest);
        let bits = (0..self.sides[2]).filter(|at| may(2, *at)).fold(0, |bits, at| bits | 1_u64 << at);
        for (x, rows) in (0..).zip(fits.chunks_exact_mut(usize::from(self.sides[1]))) {
            for (y, row) in (0..).zip(rows) {
                *row &= if may(0, x) && may(1, y) { bits } else { 0 };
            }
        }
    }

    fn along(&self, sides: [u16; 3], block: [u16; 3], axis: usize) -> Along {
        Along { side: sides[axis], block: block[axis], host: self.host[axis], len: self.sides[axis] }
    }

    /// Which sides of a box close to rings.
    fn rings(&self, sides: [u16; 3]) -> [bool; 3] {
        [0, 1, 2].map(|axis| self.wraps[axis] && sides[axis] == self.sides[axis] && sides[axis] > 1)
    }

    /// Whether all of the host is free that has the chip at this row and bit.
    fn is_whole_host(&self, hosts: &[u64], row: usize, at: usize) -> bool {
        let [x, y, z] = self.host.map(usize::from);
        let width = usize::from(self.sides[1]);
        let corner = row / width / x * x * width + row % width / y * y;
        hosts[corner] >> (at / z * z) & 1 == 1
    }

    /// The best of the corners in `scratch.fits` that is better than `limit`.
    fn best_of(&self, sides: [u16; 3], limit: Option<Spot>, scratch: &mut Scratch) -> Option<Spot> {
        self.sum_faces(sides, scratch);
        let is_small = hosts_under(sides, self.host) == 1 && sides != self.host;
        if is_small {
            let Scratch { hosts, head, .. } = scratch;
            hosts.clone_from(&self.free);
            self.and_box(hosts, self.host, head);
        }
        let (mut best, mut found) = (limit, None);
        let [_, y, z] = self.sides.map(usize::from);
        let mut exposed_x = None;
        for row in 0..scratch.fits.len() {
            let mut bits = scratch.fits[row];
            if bits == 0 {
                continue;
            }
            if exposed_x != Some(row / y) {
                self.expose(row / y, sides, &scratch.faces, &mut scratch.plane);
                exposed_x = Some(row / y);
            }
            let line = &scratch.plane[row % y * z..(row % y + 1) * z];
            while bits != 0 {
                let at = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let breaks_host = is_small && self.is_whole_host(&scratch.hosts, row, at);
                let spot = (breaks_host, line[at], row * z + at);
                if best.is_none_or(|best| spot < best) {
                    (best, found) = (Some(spot), Some(spot));
                }
            }
        }
        found
    }

    /// Sets `scratch.faces`: free chips in a window as large as the box's face across each axis. A side that takes
    /// all of its axis has no face.
    fn sum_faces(&self, sides: [u16; 3], scratch: &mut Scratch) {
        let [x, y, z] = sides.map(usize::from);
        let has_face = [0, 1, 2].map(|axis| sides[axis] < self.sides[axis]);
        let Scratch { partial, along_z: (summed, along_z), faces, .. } = scratch;
        if *summed != z && (has_face[0] || has_face[1]) {
            sum(&self.cells, self.axis(2, true), z, along_z);
            *summed = z;
        }
        if has_face[0] {
            sum(along_z, self.axis(1, true), y, &mut faces[0]);
        }
        if has_face[1] {
            sum(along_z, self.axis(0, true), x, &mut faces[1]);
        }
        if has_face[2] {
            sum(&self.cells, self.axis(1, true), y, partial);
            sum(partial, self.axis(0, true), x, &mut faces[2]);
        }
    }

    /// Sets `plane` to the number of links to free chips outside the boxes whose corners have this x.
    fn expose(&self, x: usize, sides: [u16; 3], faces: &[Vec<u16>; 3], plane: &mut Vec<u16>) {
        let [len, y, z] = self.sides.map(usize::from);
        let [size, size_y, size_z] = sides.map(usize::from);
        let at = |x: usize| x * y * z..(x + 1) * y * z;
        plane.clear();
        plane.resize(y * z, 0);
        if size < len {
            let before = if x > 0 { Some(x - 1) } else { self.wraps[0].then_some(len - 1) };
            let behind =
                if x + size < len { Some(x + size) } else { self.wraps[0].then_some(x + size - len) };
            before.into_iter().chain(behind).for_each(|x| add(plane, &faces[0][at(x)]));
        }
        if size_y < y {
            add_beside(plane, &faces[1][at(x)], size_y * z, z, self.wraps[1]);
        }
        if size_z < z {
            for (row, face) in plane.chunks_exact_mut(z).zip(faces[2][at(x)].chunks_exact(z)) {
                add_beside(row, face, size_z, 1, self.wraps[2]);
            }
        }
    }
}

fn add(all: &mut [u16], more: &[u16]) {
    all.iter_mut().zip(more).for_each(|(all, more)| *all += more);
}

/// Adds the faces one step before each item and `size` items behind it, on a line with `step` items each.
fn add_beside(all: &mut [u16], face: &[u16], size: usize, step: usize, wraps: bool) {
    let len = all.len();
    add(&mut all[step..], face);
    add(all, &face[size..]);
    if wraps {
        add(&mut all[..step], &face[len - step..]);
        add(&mut all[len - size..], face);
    }
}

impl Placed {
    /// The corners of members, in the given order of the grid of members along the requested sides.
    pub(crate) fn corners(
        &self,
        order: fn([u16; 3], [bool; 3]) -> RankOrder,
    ) -> impl Iterator<Item = [u16; 3]> + use<> {
        let Self { at, axes, block, torus, .. } = *self;
        let order = order(axes.map(|axis| self.sides[axis] / block[axis]), axes.map(|axis| self.rings[axis]));
        (0..order.len()).filter_map(move |rank| {
            let beyond = step(at, axes, order.coordinates(rank)?, block);
            Some([0, 1, 2].map(|axis| beyond[axis] % torus[axis]))
        })
    }
}
