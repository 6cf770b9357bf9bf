//! The best free box of a torus, exactly.
//!
//! *Where* a box fits is found for all positions at once: a row of z is a word, and a box fits where the AND over a
//! window of its sides is set. *How well* is the number of links from the box to free chips outside of it, summed
//! for all positions at once by sliding sums over its faces. Few such links mean that the box lies in a corner of
//! what is free, and leaves what is free whole.

use std::fmt;

use super::chips::narrow;
use super::windows::{and_bits, and_rows, sum};
use super::{ChipBox, Chips, RankOrder, Sides, rotations, volume};

/// A box that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxAsk {
    /// Chips along each side, 1 where there is none.
    pub sides: [u16; 3],
    /// Whether sides may lie along any axis.
    pub rotate: bool,
    pub hosts: Hosts,
}

/// How a box may lie over hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Anywhere.
    Any,
    /// In the smallest block of hosts that can hold it, in the rotation that needs the fewest: in whole ones where
    /// its sides are multiples of theirs, and inside of one where it is no larger.
    Fewest,
}

/// A box that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// As it lies in the torus.
    pub chips: ChipBox,
    /// Chips along the sides in the order they were asked for.
    pub sides: [u16; 3],
    /// The axis (0 to 2: x, y, z) along which each asked side lies.
    pub axes: [usize; 3],
    /// Which asked sides are closed to rings: they take all of a side that wraps, and its links are live.
    pub rings: [bool; 3],
    /// Links from the box to free chips outside; two for the one chip between both ends of a nearly full ring.
    pub exposed: u16,
}

/// Why there is no box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBox {
    /// A side of 0.
    Empty,
    /// It would not fit if every chip were free.
    TooLarge { asked: [u16; 3], torus: [u16; 3] },
    /// Fewer chips are free than it has.
    TooFew { asked: [u16; 3], free: u64 },
    /// Enough chips are free, but in no position and rotation that was allowed are all of them. For the largest
    /// free box see [`Chips::largest`].
    Apart { asked: [u16; 3], free: u64 },
}

impl fmt::Display for NoBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a shape of no chips"),
            Self::TooLarge { asked, torus } => {
                write!(f, "{} does not fit a torus of {}", Sides(*asked), Sides(*torus))
            }
            Self::TooFew { asked, free } => {
                write!(f, "{} has {} chips, and {free} are free", Sides(*asked), volume(*asked))
            }
            Self::Apart { asked, free } => {
                write!(f, "{free} chips are free, and no {} of them lie together", Sides(*asked))
            }
        }
    }
}

impl std::error::Error for NoBox {}

/// Memory of a search, kept from one to the next: up to five words for every row of z and ten bytes for every chip.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// Where the box fits.
    fits: Vec<u64>,
    links: Vec<u64>,
    /// Where a side that takes a whole ring is closed by live links.
    closed: [Vec<u64>; 3],
    head: Vec<u64>,
    partial: Vec<u16>,
    /// Free chips in a row along z, and of how many chips; 0 when it is not known.
    along_z: (usize, Vec<u16>),
    /// Free chips in the face of a box across x, y, z.
    faces: [Vec<u16>; 3],
    /// Links to free chips outside, for the corners of one x.
    plane: Vec<u16>,
}

/// What makes one box better than another; less is better. The position counts chips in order of x, y, z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Merit {
    open_sides: u32,
    exposed: u16,
    position: usize,
}

impl Chips {
    /// The best free box: with the most sides closed to rings, then with the fewest links to free chips outside,
    /// then the first by position, then by rotation. If there is a free box, it is found.
    ///
    /// # Errors
    /// Why there is none.
    pub fn place(&self, ask: &BoxAsk, scratch: &mut Scratch) -> Result<Placed, NoBox> {
        let asked = ask.sides;
        if asked.contains(&0) {
            return Err(NoBox::Empty);
        }
        let inside = |sides: &[u16; 3]| sides.iter().zip(self.sides).all(|(side, most)| *side <= most);
        let able = || rotations(asked, ask.rotate).filter(|(_, sides)| inside(sides));
        let Some(fewest) = able().map(|(_, sides)| self.hosts_under(sides)).min() else {
            return Err(NoBox::TooLarge { asked, torus: self.sides });
        };
        let free = self.free_count;
        if volume(asked) > free {
            return Err(NoBox::TooFew { asked, free });
        }
        let mut best: Option<(Merit, [usize; 3], [u16; 3])> = None;
        scratch.along_z.0 = 0;
        for (axes, sides) in able() {
            if ask.hosts == Hosts::Fewest && self.hosts_under(sides) > fewest {
                continue;
            }
            if !self.find_fits(sides, ask.hosts, scratch) {
                continue;
            }
            let found = self.best_of(sides, best.map(|(merit, ..)| merit), scratch);
            best = found.map(|merit| (merit, axes, sides)).or(best);
        }
        let (merit, axes, sides) = best.ok_or(NoBox::Apart { asked, free })?;
        let [_, y, z] = self.sides.map(usize::from);
        let at = [merit.position / (y * z), merit.position / z % y, merit.position % z].map(narrow);
        let chips = ChipBox { at, sides };
        let rings = axes.map(|axis| self.is_ring(&chips, axis));
        Ok(Placed { chips, sides: asked, axes, rings, exposed: merit.exposed })
    }

    /// The free box with the most chips; of equals the one with the shortest side along x, then y. It takes a
    /// hundred times as long as a place, and is for those who ask why there is none.
    #[must_use]
    pub fn largest(&self, scratch: &mut Scratch) -> Option<ChipBox> {
        let [x, y, z] = self.sides;
        let (mut most, mut best) = (0, None);
        for i in 1..=x {
            // What fits with a longer side y fits with a shorter one: z only ever shrinks.
            let mut k = z;
            for j in 1..=y {
                while k > 0 && volume([i, j, k]) > most && !self.find_fits([i, j, k], Hosts::Any, scratch) {
                    k -= 1;
                }
                if volume([i, j, k]) > most {
                    most = volume([i, j, k]);
                    let row = scratch.fits.iter().position(|bits| *bits != 0).unwrap_or(0);
                    let bit = scratch.fits.get(row).map_or(0, |bits| bits.trailing_zeros());
                    let y = usize::from(y);
                    let at = [row / y, row % y, bit as usize].map(narrow);
                    best = Some(ChipBox { at, sides: [i, j, k] });
                }
            }
        }
        best
    }

    /// Hosts that a box has to lie over, at least.
    fn hosts_under(&self, sides: [u16; 3]) -> u64 {
        sides.iter().zip(self.host).map(|(side, host)| u64::from(side.div_ceil(host))).product()
    }

    /// Sets `scratch.fits` to the corners of free boxes with these sides (each 1 to the torus's). False when there
    /// is none.
    fn find_fits(&self, sides: [u16; 3], hosts: Hosts, scratch: &mut Scratch) -> bool {
        let Scratch { fits, links, head, .. } = scratch;
        fits.clone_from(&self.free);
        self.and_box(fits, sides, head);
        for axis in 0..3 {
            // All links inside of the box carry traffic.
            if self.dead_links[axis] > 0 && sides[axis] > 1 {
                let mut inside = sides;
                inside[axis] -= 1;
                links.clone_from(&self.live[axis]);
                self.and_box(links, inside, head);
                fits.iter_mut().zip(&*links).for_each(|(fit, link)| *fit &= link);
            }
        }
        if hosts == Hosts::Fewest && self.host != [1; 3] {
            self.keep_host_corners(fits, sides);
        }
        fits.iter().any(|row| *row != 0)
    }

    /// Bits become the AND over boxes of these sides.
    fn and_box(&self, rows: &mut [u64], sides: [u16; 3], head: &mut Vec<u64>) {
        let [x, y, z] = sides.map(usize::from);
        and_bits(rows, usize::from(self.sides[2]), z, self.wraps[2]);
        and_rows(rows, self.axis(1, false), y, head);
        and_rows(rows, self.axis(0, false), x, head);
    }

    /// Leaves corners from which a box lies in the smallest block of hosts that can hold it.
    fn keep_host_corners(&self, fits: &mut [u64], sides: [u16; 3]) {
        let is_corner = |axis: usize, at: u16| {
            let (side, host) = (sides[axis], self.host[axis]);
            at % host + side <= side.div_ceil(host) * host
        };
        let bits = (0..self.sides[2]).filter(|at| is_corner(2, *at)).fold(0, |bits, at| bits | 1_u64 << at);
        for (x, rows) in (0..).zip(fits.chunks_exact_mut(usize::from(self.sides[1]))) {
            for (y, row) in (0..).zip(rows) {
                *row &= if is_corner(0, x) && is_corner(1, y) { bits } else { 0 };
            }
        }
    }

    /// Whether a box takes all of a side that wraps.
    fn is_whole_ring(&self, sides: [u16; 3], axis: usize) -> bool {
        self.wraps[axis] && sides[axis] == self.sides[axis] && sides[axis] > 1
    }

    /// Whether the links of a box along an axis close it to rings.
    fn is_ring(&self, chips: &ChipBox, axis: usize) -> bool {
        self.is_whole_ring(chips.sides, axis)
            && (self.dead_links[axis] == 0 || each_chip(chips, self.sides).all(|at| self.is_live(at, axis)))
    }

    /// The best of the corners in `scratch.fits` that is better than `limit`.
    fn best_of(&self, sides: [u16; 3], limit: Option<Merit>, scratch: &mut Scratch) -> Option<Merit> {
        let rings = [0, 1, 2].map(|axis| self.is_whole_ring(sides, axis));
        let open_least = rings.iter().filter(|ring| !**ring).count();
        let open_least = u32::try_from(open_least).unwrap_or(u32::MAX);
        if limit.is_some_and(|limit| limit.open_sides < open_least) {
            return None;
        }
        let doubtful = [0, 1, 2].map(|axis| rings[axis] && self.dead_links[axis] > 0);
        self.find_closed(sides, doubtful, scratch);
        self.sum_faces(sides, scratch);
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
            let least = line.iter().copied().min().unwrap_or(0);
            let bound = Merit { open_sides: open_least, exposed: least, position: row * z };
            if best.is_some_and(|best| best <= bound) {
                continue;
            }
            while bits != 0 {
                let at = bits.trailing_zeros();
                bits &= bits - 1;
                let is_open = |axis: &usize| doubtful[*axis] && scratch.closed[*axis][row] >> at & 1 == 0;
                let opened = (0..3).filter(is_open).count();
                let merit = Merit {
                    open_sides: open_least + u32::try_from(opened).unwrap_or(u32::MAX),
                    exposed: line[at as usize],
                    position: row * z + at as usize,
                };
                if best.is_none_or(|best| merit < best) {
                    (best, found) = (Some(merit), Some(merit));
                }
            }
        }
        found
    }

    /// Sets `scratch.closed` for the axes that may be rings and have dead links.
    fn find_closed(&self, sides: [u16; 3], doubtful: [bool; 3], scratch: &mut Scratch) {
        for axis in (0..3).filter(|axis| doubtful[*axis]) {
            let closed = &mut scratch.closed[axis];
            closed.clone_from(&self.live[axis]);
            self.and_box(closed, sides, &mut scratch.head);
        }
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

    /// Sets `plane` to the links to free chips outside of the boxes whose corners have this x.
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

/// The chips of a box in a torus of these sides.
fn each_chip(chips: &ChipBox, torus: [u16; 3]) -> impl Iterator<Item = [u16; 3]> + use<> {
    let (order, chips) = (RankOrder::rows(chips.sides), *chips);
    (0..order.len()).filter_map(move |rank| Some(around(chips.at, order.coordinates(rank)?, torus)))
}

/// Both are below 64, so that their sum does not overflow.
fn around(at: [u16; 3], by: [u16; 3], torus: [u16; 3]) -> [u16; 3] {
    [0, 1, 2].map(|axis| (at[axis] + by[axis]) % torus[axis])
}

impl Placed {
    /// The chips of the box by rank, in the torus they were found in: neighbours in rank are neighbours in the
    /// torus, and a ring over all of them comes back where it can ([`RankOrder::ring`]).
    pub fn chips_by_rank(&self, torus: &Chips) -> impl Iterator<Item = [u16; 3]> + use<> {
        self.in_order(RankOrder::ring(self.sides, self.rings), [1; 3], torus.sides)
    }

    /// The first chips of the hosts of the box in the order of their processes: neighbours in rank are neighbours
    /// in the torus. None where the box does not take whole hosts.
    pub fn hosts_by_rank(&self, torus: &Chips) -> Option<impl Iterator<Item = [u16; 3]> + use<>> {
        let ChipBox { at, sides } = self.chips;
        let whole = |axis: usize| {
            at[axis].is_multiple_of(torus.host[axis]) && sides[axis].is_multiple_of(torus.host[axis])
        };
        if !(0..3).all(whole) {
            return None;
        }
        let host = self.axes.map(|axis| torus.host[axis]);
        let sides = [0, 1, 2].map(|i| self.sides[i] / host[i]);
        Some(self.in_order(RankOrder::ring(sides, self.rings), host, torus.sides))
    }

    /// Coordinates along the asked sides, times the steps, as they lie in the torus.
    fn in_order(
        &self,
        order: RankOrder,
        steps: [u16; 3],
        torus: [u16; 3],
    ) -> impl Iterator<Item = [u16; 3]> + use<> {
        let Self { chips, axes, .. } = *self;
        (0..order.len()).filter_map(move |rank| {
            let mut by = [0; 3];
            for (i, along) in order.coordinates(rank)?.into_iter().enumerate() {
                by[axes[i]] = along * steps[i];
            }
            Some(around(chips.at, by, torus))
        })
    }
}
