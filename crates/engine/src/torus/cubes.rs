//! Cubes of 4x4x4 chips whose faces end at optical switches, which join any of them to any torus.
//!
//! So slices of whole cubes only need a count of free cubes. A smaller slice is a box inside one cube: in the fullest
//! cube with room, so that whole cubes stay whole.

use phalanx_model::Torus;

use super::legal::check;
use super::{
    Along, BoxRequest, EDGE, Hosts, IllegalShape, Lay, RankOrder, host_of, hosts_under, lays, narrow, step,
    volume,
};

/// Chips of a cube, each a bit: x * 16 + y * 4 + z.
const FULL: u64 = u64::MAX;
const CUBE_CHIPS: u64 = 64;

/// The cubes behind one set of optical switches, and which of their chips are free. One memory serves all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cubes {
    /// Along x, y, z; the last runs fastest.
    grid: [u16; 3],
    host: [u16; 3],
    /// Free chips, cube by cube.
    free: Vec<u64>,
    spots: Vec<Spot>,
    counts: Vec<u32>,
}

/// The sort key of a position in a cube; less is better: whether the cube was whole, its free chips, the longest side
/// of a member, whether a host was whole, links to free chips.
type Merit = (bool, u32, u16, bool, u32);

/// The position of a box in a cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    chips: u64,
    at: [u16; 3],
    lay: Lay,
}

/// A slice that was found. Its memory can be used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CubeSlice {
    /// Sides of the requested box, in members.
    members: [u16; 3],
    /// Chips of each member along x, y, z.
    pub(crate) block: [u16; 3],
    pub(crate) is_whole: bool,
    /// The corners in the torus. A box inside a cube has one, its own; otherwise they are a grid of cubes whose last
    /// side runs fastest.
    corners: Vec<[u16; 3]>,
    /// The axis of each requested side.
    axes: [usize; 3],
    /// Links inside of a cube from the slice to free chips; 0 for whole cubes.
    pub(crate) exposed: u32,
}

impl Cubes {
    /// A torus of [`super::Form::Cubes`], of which nothing is free.
    pub(crate) fn lay_out(&mut self, torus: &Torus) {
        self.grid = torus.chips.map(|side| side / EDGE);
        self.host = host_of(torus);
        self.free.clear();
        self.free.resize(self.grid.into_iter().map(usize::from).product(), 0);
    }

    /// The chip is free. It is one of the torus.
    pub(crate) fn set_free(&mut self, at: [u16; 3]) {
        let [x, y, z] = at.map(|at| usize::from(at / EDGE));
        let [_, b, c] = self.grid.map(usize::from);
        let [bit_x, bit_y, bit_z] = at.map(|at| at % EDGE);
        self.free[(x * b + y) * c + z] |= 1 << (bit_x * 16 + bit_y * 4 + bit_z);
    }

    pub(crate) fn free_count(&self) -> u64 {
        self.free.iter().map(|free| u64::from(free.count_ones())).sum()
    }

    /// Whether there are such slices.
    ///
    /// # Errors
    /// When there are none, with those that come nearest.
    pub(crate) fn check(&self, sides: [u16; 3]) -> Result<(), IllegalShape> {
        check(sides, self.free.len() as u64 * CUBE_CHIPS)
    }

    /// The best slice. Of whole cubes it takes the first. A smaller slice takes the partly used cube with the fewest
    /// free chips that has room; if it is smaller than a host, a host in use comes first; then the position with the
    /// fewest links to free chips; then the first. If a slice exists, it is found.
    pub(crate) fn place(&mut self, request: BoxRequest, out: &mut CubeSlice) -> bool {
        if self.check(request.sides).is_err() {
            return false;
        }
        out.corners.clear();
        if !is_of_cubes(request.sides) {
            let is_loose = request.hosts == Hosts::Any && volume(self.host) > u64::from(request.member);
            return self.place_inside(request, true, out)
                || is_loose && self.place_inside(request, false, out);
        }
        let Some(lay) = self.lay_of_cubes(request) else { return false };
        (out.is_whole, out.block, out.axes, out.exposed) = (true, lay.block, lay.axes, 0);
        out.members = [0, 1, 2].map(|i| request.sides[i] / lay.block[i]);
        let needed = usize::try_from(volume(request.sides) / CUBE_CHIPS).unwrap_or(usize::MAX);
        let whole = self.free.iter().enumerate().filter(|(_, free)| **free == FULL);
        let corner = |number: usize| corner(self.grid, number);
        out.corners.extend(whole.take(needed).map(|(number, _)| corner(number)));
        out.corners.len() == needed
    }

    /// The highest number of free chips at one position of a slice, which is all of its chips if a free position
    /// exists; 0 if there is no position.
    pub(crate) fn most_free(&mut self, request: BoxRequest) -> u64 {
        if self.check(request.sides).is_err() {
            return 0;
        }
        if !is_of_cubes(request.sides) {
            self.find_spots(request, request.hosts != Hosts::Any);
            let most = |free: &u64| self.spots.iter().map(|spot| (spot.chips & free).count_ones()).max();
            return self.free.iter().filter_map(most).max().unwrap_or(0).into();
        }
        if self.lay_of_cubes(request).is_none() {
            return 0;
        }
        let needed = usize::try_from(volume(request.sides) / CUBE_CHIPS).unwrap_or(usize::MAX);
        self.counts.clear();
        self.counts.extend(self.free.iter().map(|free| free.count_ones()));
        self.counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
        self.counts.iter().take(needed).map(|count| u64::from(*count)).sum()
    }

    /// The largest free slice that fits inside the requested one.
    pub(crate) fn largest(&mut self, request: BoxRequest) -> Option<[u16; 3]> {
        let whole = self.free.iter().filter(|free| **free == FULL).count() as u64 * CUBE_CHIPS;
        let of_cubes =
            check(request.sides, whole).map_or_else(|illegal| illegal.smaller, |()| Some(request.sides));
        let of_cubes = of_cubes.filter(|sides| whole > 0 && is_of_cubes(*sides));
        of_cubes.or_else(|| self.largest_inside(request))
    }

    /// The largest free box inside one cube that fits inside the requested one.
    fn largest_inside(&mut self, request: BoxRequest) -> Option<[u16; 3]> {
        let most = request.sides.map(|side| side.min(EDGE));
        let smaller = RankOrder::rows(most);
        let mut best: Option<(u64, [u16; 3])> = None;
        for sides in
            (0..smaller.len()).filter_map(|i| smaller.coordinates(i)).map(|at| at.map(|side| side + 1))
        {
            if best.is_some_and(|(chips, _)| volume(sides) <= chips) {
                continue;
            }
            self.find_spots(BoxRequest { sides, ..request }, false);
            let is_free = |free: &u64| self.spots.iter().any(|spot| spot.chips & !free == 0);
            if self.free.iter().any(is_free) {
                best = Some((volume(sides), sides));
            }
        }
        best.map(|(_, sides)| sides)
    }

    fn place_inside(&mut self, request: BoxRequest, in_fewest: bool, out: &mut CubeSlice) -> bool {
        self.find_spots(request, in_fewest);
        let mut best: Option<(Merit, usize, Spot)> = None;
        for (number, free) in self.free.iter().copied().enumerate() {
            let (is_whole, left) = (free == FULL, free.count_ones());
            if best.is_some_and(|((whole, least, ..), ..)| (whole, least) < (is_whole, left)) {
                continue;
            }
            for spot in self.spots.iter().filter(|spot| spot.chips & !free == 0) {
                let longest = spot.lay.block.into_iter().max().unwrap_or(1);
                let merit =
                    (is_whole, left, longest, self.breaks_host(spot, free), exposed(spot.chips, free));
                if best.is_none_or(|(least, ..)| merit < least) {
                    best = Some((merit, number, *spot));
                }
            }
        }
        let Some(((.., exposed), number, Spot { at, lay, .. })) = best else { return false };
        let cube = corner(self.grid, number);
        out.corners.push([0, 1, 2].map(|axis| cube[axis] + at[axis]));
        (out.is_whole, out.block, out.axes, out.exposed) = (false, lay.block, lay.axes, exposed);
        out.members = [0, 1, 2].map(|i| request.sides[i] / lay.block[lay.axes[i]]);
        true
    }

    /// Whether a box that is smaller than a host takes a part of a free host.
    fn breaks_host(&self, Spot { at, lay, .. }: &Spot, free: u64) -> bool {
        let corner = [0, 1, 2].map(|axis| at[axis] / self.host[axis] * self.host[axis]);
        let is_small = hosts_under(lay.sides, self.host) == 1 && lay.sides != self.host;
        is_small && box_bits(corner, self.host) & !free == 0
    }

    /// How the members of a slice of whole cubes are laid: along the requested sides, and as compact as possible.
    fn lay_of_cubes(&self, request: BoxRequest) -> Option<Lay> {
        if request.hosts == Hosts::One && hosts_under(request.sides, self.host) > 1 {
            return None;
        }
        let inside = BoxRequest { sides: [EDGE; 3], ..request };
        lays(inside, [EDGE; 3], self.host).min_by_key(|lay| lay.block.into_iter().max())
    }

    /// The places in a cube, over no more hosts than needed or anywhere.
    fn find_spots(&mut self, request: BoxRequest, in_fewest: bool) {
        self.spots.clear();
        let able = || lays(request, [EDGE; 3], self.host);
        let Some(fewest) = able().map(|lay| hosts_under(lay.sides, self.host)).min() else { return };
        let corners = RankOrder::rows([EDGE; 3]);
        for lay in able().filter(|lay| !in_fewest || hosts_under(lay.sides, self.host) == fewest) {
            for at in (0..corners.len()).filter_map(|corner| corners.coordinates(corner)) {
                let fits = (0..3).all(|i| {
                    let (side, block, host) = (lay.sides[i], lay.block[i], self.host[i]);
                    at[i] + side <= EDGE && Along { side, block, host, len: EDGE }.is_corner(at[i], in_fewest)
                });
                if fits {
                    self.spots.push(Spot { chips: box_bits(at, lay.sides), at, lay });
                }
            }
        }
    }
}

impl CubeSlice {
    /// The corners of members in the torus, in the given order of the grid of members along the requested sides. All
    /// sides of whole cubes are rings; a box inside a cube has none.
    pub(crate) fn corners(
        &self,
        order: fn([u16; 3], [bool; 3]) -> RankOrder,
    ) -> impl Iterator<Item = [u16; 3]> {
        let order = order(self.members, [self.is_whole; 3]);
        let in_cube = self.block.map(|side| EDGE / side.max(1));
        let cubes = [0, 1, 2].map(|i| usize::from(self.members[i].div_ceil(in_cube[i].max(1))));
        (0..order.len()).filter_map(move |rank| {
            let along = order.coordinates(rank)?;
            if !self.is_whole {
                return Some(step(*self.corners.first()?, self.axes, along, self.block));
            }
            let [x, y, z] = [0, 1, 2].map(|i| usize::from(along[i] / in_cube[i]));
            let cube = self.corners.get((x * cubes[1] + y) * cubes[2] + z)?;
            Some([0, 1, 2].map(|i| cube[i] + along[i] % in_cube[i] * self.block[i]))
        })
    }
}

/// The corner of a cube in its torus.
fn corner(grid: [u16; 3], number: usize) -> [u16; 3] {
    let [_, b, c] = grid.map(usize::from);
    [number / (b * c), number / c % b, number % c].map(|at| narrow(at) * EDGE)
}

fn is_of_cubes(sides: [u16; 3]) -> bool {
    sides.iter().all(|side| side.is_multiple_of(EDGE))
}

/// The chips of a box inside of a cube as bits.
fn box_bits([x, y, z]: [u16; 3], [size_x, size_y, size_z]: [u16; 3]) -> u64 {
    let row = ((1_u64 << size_z) - 1) << z;
    let plane = (0..size_y).fold(0, |bits, i| bits | row << (4 * (y + i)));
    (0..size_x).fold(0, |bits, i| bits | plane << (16 * (x + i)))
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
