//! The slices that switches can make of cubes, and the nearest ones to a slice that they cannot make.
//!
//! The rule is that of cloud.google.com/tpu/docs (v4, v5p, tpu7x): all sides at most 4, or all multiples of 4. The
//! limit of chips in one slice is a limit of the generation's jobs, and not of the torus: a job may request all of
//! its chips.

use std::fmt;

use super::{EDGE, Sides, volume};

/// A shape that does not exist, and the nearest ones that do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IllegalShape {
    asked: [u16; 3],
    chips_max: u64,
    /// The shape with the fewest chips that has room for it; of equals the most compact.
    larger: Option<[u16; 3]>,
    /// The shape with the most chips that has room inside of it; of equals the most compact.
    pub(crate) smaller: Option<[u16; 3]>,
}

impl fmt::Display for IllegalShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, chips_max, larger, smaller } = self;
        write!(f, "{} is not a valid slice of cubes: ", Sides(*asked))?;
        if volume(*asked) > *chips_max {
            write!(f, "it has {} chips, and the torus has {chips_max}", volume(*asked))?;
        } else {
            write!(f, "each side must be 1 to {EDGE}, or all sides must be multiples of {EDGE}")?;
        }
        if let Some(larger) = larger {
            write!(f, "; the next larger slice is {}", Sides(*larger))?;
        }
        if let Some(smaller) = smaller {
            write!(f, "; the next smaller slice is {}", Sides(*smaller))?;
        }
        Ok(())
    }
}

/// # Errors
/// When switches make no such slice of so many chips, with the shapes that come nearest.
pub(crate) fn check(sides: [u16; 3], chips_max: u64) -> Result<(), IllegalShape> {
    let below = sides.iter().all(|side| (1..=EDGE).contains(side));
    let whole = sides.iter().all(|side| *side > 0 && side.is_multiple_of(EDGE));
    if (below || whole) && volume(sides) <= chips_max { Ok(()) } else { Err(nearest(sides, chips_max)) }
}

fn nearest(asked: [u16; 3], chips_max: u64) -> IllegalShape {
    let wanted = ascending(asked);
    let within = |inner: [u16; 3], outer: [u16; 3]| inner.iter().zip(outer).all(|(a, b)| *a <= b);
    let (mut larger, mut smaller) = (None, None);
    each(chips_max, &mut |shape: [u16; 3]| {
        let merit = (volume(shape), shape[2]);
        if within(wanted, shape) && larger.is_none_or(|(best, _)| merit < best) {
            larger = Some((merit, shape));
        }
        let merit = (u64::MAX - merit.0, merit.1);
        if within(shape, wanted) && smaller.is_none_or(|(best, _)| merit < best) {
            smaller = Some((merit, shape));
        }
    });
    let shape = |found: Option<((u64, u16), [u16; 3])>| found.map(|(_, shape)| shape);
    IllegalShape { asked, chips_max, larger: shape(larger), smaller: shape(smaller) }
}

/// Every shape of cubes and below one, in ascending sides.
fn each(chips_max: u64, visit: &mut impl FnMut([u16; 3])) {
    let mut ascend = |unit: u16, most: u64, side_max: u64| {
        let side = |n: u64| u16::try_from(n).unwrap_or(u16::MAX).saturating_mul(unit);
        for x in 1..=most.min(side_max) {
            for y in x..=(most / x).min(side_max) {
                for z in y..=(most / (x * y)).min(side_max) {
                    visit([side(x), side(y), side(z)]);
                }
            }
        }
    };
    ascend(1, chips_max, EDGE.into());
    ascend(EDGE, chips_max / u64::from(EDGE).pow(3), u64::MAX);
}

fn ascending(mut sides: [u16; 3]) -> [u16; 3] {
    sides.sort_unstable();
    sides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_those_of_the_pages() {
        for sides in [[1, 1, 1], [2, 2, 1], [2, 2, 4], [4, 4, 4], [4, 4, 8], [16, 16, 16], [12, 12, 24]] {
            assert_eq!(check(sides, 4_096), Ok(()), "{sides:?}");
        }
        assert_eq!(check([16, 20, 28], 8_960), Ok(()), "all of a pod");
        for sides in [[0, 4, 4], [4, 4, 6], [2, 4, 8], [16, 16, 20], [u16::MAX; 3]] {
            assert!(check(sides, 4_096).is_err(), "{sides:?}");
        }
    }

    #[test]
    fn an_illegal_shape_names_its_neighbours() {
        let says = |sides, chips_max| check(sides, chips_max).unwrap_err().to_string();
        assert_eq!(
            says([6, 4, 8], 4_096),
            "6x4x8 is not a valid slice of cubes: each side must be 1 to 4, or all sides must be multiples of 4; the next larger slice is \
             4x8x8; the next smaller slice is 4x4x8"
        );
        assert_eq!(
            says([16, 20, 28], 6_144),
            "16x20x28 is not a valid slice of cubes: it has 8960 chips, and the torus has 6144; the next smaller slice is 16x16x24"
        );
        assert!(
            says([2, 4, 8], 4_096)
                .ends_with("the next larger slice is 4x4x8; the next smaller slice is 2x4x4")
        );
    }
}
