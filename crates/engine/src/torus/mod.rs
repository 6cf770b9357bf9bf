//! Shapes: placements that are boxes of chips, and not counts in a tree.
//!
//! - [`Chips`]: a torus or mesh of chips; a slice is a free box, in any rotation, around wrapping sides.
//! - [`Cubes`]: cubes of 4x4x4 chips behind optical switches (TPU v4 and later); any free cubes are a torus.
//!
//! Each knows its free chips and finds the best position. If there is none, it reports the most chips that are free at
//! one position. Members are boxes of their own, each inside one host. Pictures are in `docs/placement-shapes.md`.

mod chips;
mod cubes;
mod legal;
mod order;
mod place;
mod time;
mod windows;

#[cfg(test)]
mod tests;

use std::fmt;

use phalanx_model::Torus;

pub(crate) use chips::Chips;
pub(crate) use cubes::{CubeSlice, Cubes};
pub(crate) use legal::IllegalShape;
pub(crate) use order::RankOrder;
pub(crate) use place::{Placed, Scratch};
pub(crate) use time::{all_reduce_ns, all_to_all_ns};

/// The longest side: a row of z is one machine word.
const SIDE_MAX: u16 = 64;
/// The most chips of a torus: sums over it are half words. The largest pod has 9,216.
const CHIPS_MAX: u64 = u16::MAX as u64;
/// Edge of the cube that optical switches join (Jouppi et al., "TPU v4", ISCA 2023, section 2).
const EDGE: u16 = 4;

/// A requested box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BoxRequest {
    /// Chips along each side, 1 for a missing side. The sides may lie along any axes.
    pub(crate) sides: [u16; 3],
    /// Chips of a member.
    pub(crate) member: u32,
    pub(crate) hosts: Hosts,
}

/// How a box may lie over hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hosts {
    /// In the smallest block of hosts that can hold it if that is free, else anywhere.
    Any,
    /// Over whole hosts alone.
    Whole,
    /// Inside of one.
    One,
}

/// How chips are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they lie.
    Box,
    /// By switches, cube by cube.
    Cubes,
}

impl Form {
    /// # Errors
    /// If slices cannot be placed in such a torus: it has sides of 0, too many chips, or hosts that do not fill it; or
    /// it is twisted and not made of cubes: the rings of a twisted torus are no rows of chips, so boxes cannot be moved.
    pub(crate) fn of(torus: &Torus) -> Result<Self, TorusError> {
        let (sides, host) = (torus.chips, host_of(torus));
        if sides.iter().any(|side| *side == 0 || *side > SIDE_MAX) || volume(sides) > CHIPS_MAX {
            return Err(TorusError::Sides(sides));
        }
        let of_cubes = torus.cube == EDGE && sides.iter().all(|side| side.is_multiple_of(EDGE));
        let unit = if of_cubes { [EDGE; 3] } else { sides };
        let is_filled = unit.iter().zip(host).all(|(side, host)| side.is_multiple_of(host));
        if !is_filled || volume(host) > u64::from(phalanx_model::DEVICES_PER_NODE_MAX) {
            return Err(TorusError::Hosts { sides: unit, host });
        }
        match (of_cubes, torus.is_twisted) {
            (true, _) => Ok(Self::Cubes),
            (false, false) => Ok(Self::Box),
            (false, true) => Err(TorusError::Twisted),
        }
    }
}

/// Chips of a host along x, y, z; a side of 0 counts as 1.
pub(crate) fn host_of(torus: &Torus) -> [u16; 3] {
    torus.host_chips.map(|side| side.max(1))
}

/// Why no slices are placed in a torus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TorusError {
    /// A side of 0, a longer one than [`SIDE_MAX`], or more chips than [`CHIPS_MAX`].
    Sides([u16; 3]),
    /// The blocks of the hosts do not fill the sides, or a host has more chips than a node has devices.
    Hosts {
        sides: [u16; 3],
        host: [u16; 3],
    },
    Twisted,
}

impl fmt::Display for TorusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sides(sides) => {
                write!(
                    f,
                    "a torus of {}: each side must be 1 to {SIDE_MAX}, with at most {CHIPS_MAX} chips in total",
                    Sides(*sides)
                )
            }
            Self::Hosts { sides, host } => {
                write!(f, "hosts of {} chips do not fill {}", Sides(*host), Sides(*sides))
            }
            Self::Twisted => f.write_str("a twisted torus is one slice and is allocated whole"),
        }
    }
}

/// Sides as they are written: `4x4x8`.
pub(crate) struct Sides(pub(crate) [u16; 3]);

impl fmt::Display for Sides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.0;
        write!(f, "{x}x{y}x{z}")
    }
}

pub(crate) fn volume(sides: [u16; 3]) -> u64 {
    sides.into_iter().map(u64::from).product()
}

/// The axis of each requested side: the requested order first, and rotations with the same side along z together.
const ROTATIONS: [[usize; 3]; 6] = [[0, 1, 2], [1, 0, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// The sides as they lie along x, y, z.
fn lie(sides: [u16; 3], axes: [usize; 3]) -> [u16; 3] {
    let mut along = [0; 3];
    for (axis, side) in axes.into_iter().zip(sides) {
        along[axis] = side;
    }
    along
}

/// The different rotations of sides: for each the axes, and the sides as they lie along x, y, z.
fn rotations(sides: [u16; 3]) -> impl Iterator<Item = ([usize; 3], [u16; 3])> {
    let is_first =
        move |i: &usize| (0..*i).all(|before| lie(sides, ROTATIONS[before]) != lie(sides, ROTATIONS[*i]));
    (0..ROTATIONS.len()).filter(is_first).map(move |i| (ROTATIONS[i], lie(sides, ROTATIONS[i])))
}

/// The boxes that a member's chips can be: they fill a host, so that those at multiples of their sides are each inside
/// of one.
fn blocks(host: [u16; 3], member: u32) -> impl Iterator<Item = [u16; 3]> {
    let parts = |side: u16| (1..=side).filter(move |part| side.is_multiple_of(*part));
    let boxes = parts(host[0]).flat_map(move |x| parts(host[1]).map(move |y| (x, y)));
    let boxes = boxes.flat_map(move |(x, y)| parts(host[2]).map(move |z| [x, y, z]));
    boxes.filter(move |block| volume(*block) == u64::from(member))
}

/// Hosts that sides have to lie over, at least.
fn hosts_under(sides: [u16; 3], host: [u16; 3]) -> u64 {
    sides.iter().zip(host).map(|(side, host)| u64::from(side.div_ceil(host))).product()
}

/// One orientation of a box: the axis of each requested side, the sides along x, y, z, and the box of each member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lay {
    axes: [usize; 3],
    sides: [u16; 3],
    block: [u16; 3],
}

/// The ways for a box to lie in something of these sides.
fn lays(request: BoxRequest, within: [u16; 3], host: [u16; 3]) -> impl Iterator<Item = Lay> {
    let fills = |sides: [u16; 3], unit: [u16; 3]| {
        sides.iter().zip(unit).all(|(side, unit)| side.is_multiple_of(unit))
    };
    let of_sides = move |(axes, sides): ([usize; 3], [u16; 3])| {
        blocks(host, request.member)
            .map(move |block| Lay { axes, sides, block })
            .filter(move |lay| fills(sides, lay.block))
    };
    rotations(request.sides)
        .filter(move |(_, sides)| {
            !sides.contains(&0) && sides.iter().zip(within).all(|(side, most)| *side <= most)
        })
        .filter(move |(_, sides)| match request.hosts {
            Hosts::Any => true,
            Hosts::Whole => fills(*sides, host),
            Hosts::One => hosts_under(*sides, host) == 1,
        })
        .flat_map(of_sides)
}

/// One axis of a box: its side, that of its members, that of a host, and the length of all.
#[derive(Clone, Copy, Debug)]
struct Along {
    side: u16,
    block: u16,
    host: u16,
    len: u16,
}

impl Along {
    /// Whether a box may begin here: at a corner of members, and, if it is to use the fewest hosts, inside the
    /// smallest block of hosts that can hold it.
    fn is_corner(self, at: u16, in_fewest: bool) -> bool {
        let Self { side, block, host, len } = self;
        let over = side.div_ceil(host) * host;
        at.is_multiple_of(block) && (!in_fewest || over == len || at % host + side <= over)
    }
}

/// Coordinates and sides are 64 at most.
fn narrow(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// Converts a corner in the requested box to the box as it lies: the steps along the requested sides go along these
/// axes.
fn step(corner: [u16; 3], axes: [usize; 3], along: [u16; 3], block: [u16; 3]) -> [u16; 3] {
    let mut at = corner;
    for (axis, by) in axes.into_iter().zip(along) {
        at[axis] += by * block[axis];
    }
    at
}

/// Why a torus never has such a slice, even if all of it is free; `None` if it can have one.
pub(crate) fn refusal(torus: &Torus, form: Form, request: BoxRequest) -> Option<String> {
    let host = host_of(torus);
    let within = match form {
        Form::Box => torus.chips,
        Form::Cubes => {
            if let Err(illegal) = legal::check(request.sides, volume(torus.chips)) {
                return Some(illegal.to_string());
            }
            [EDGE; 3]
        }
    };
    let is_of_cubes = form == Form::Cubes && request.sides.iter().all(|side| side.is_multiple_of(EDGE));
    let inside = if is_of_cubes { BoxRequest { sides: [EDGE; 3], ..request } } else { request };
    let spans_hosts = request.hosts == Hosts::One && volume(request.sides) > volume(host);
    if lays(inside, within, host).next().is_some() && !spans_hosts {
        return None;
    }
    let (asked, name, all, host) = (Sides(request.sides), &torus.name, Sides(torus.chips), Sides(host));
    Some(match request.hosts {
        Hosts::One => format!("{asked} does not fit one host: each host of {name} has {host} chips"),
        _ => format!(
            "{asked} in members of {} does not fit {name}, which has {all} chips in hosts of {host}: each member must be a box inside one host",
            request.member
        ),
    })
}
