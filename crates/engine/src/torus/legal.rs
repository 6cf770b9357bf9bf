//! Which slices there are to ask for, and which come nearest to one that there is not.

use std::fmt;

use super::{Sides, volume};

/// Edge of the cube that optical switches join (Jouppi et al., "TPU v4", ISCA 2023, section 2).
pub(super) const EDGE: u16 = 4;

/// The shapes of one kind of chip. Sides may stand in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceRule {
    /// Chips of the largest slice.
    pub chips_max: u32,
    /// All shapes, where they are few; empty where slices are boxes inside of a cube or made of whole cubes.
    pub shapes: &'static [[u16; 3]],
}

/// cloud.google.com/tpu/docs/v4: AxBxC, all sides at most 4 or all multiples of 4, 4,096 chips.
pub const TPU_V4: SliceRule = SliceRule { chips_max: 4_096, shapes: &[] };
/// cloud.google.com/tpu/docs/v5p: the same shapes; a pod has 8,960 chips, the largest job is 16x16x24.
pub const TPU_V5P: SliceRule = SliceRule { chips_max: 6_144, shapes: &[] };
/// cloud.google.com/tpu/docs/tpu7x: the same shapes, 9,216 chips.
pub const TPU_V7X: SliceRule = SliceRule { chips_max: 9_216, shapes: &[] };
/// cloud.google.com/tpu/docs/v5e and v6e, "configurations".
pub const TPU_V5E: SliceRule = SliceRule {
    chips_max: 256,
    shapes: &[[1, 1, 1], [2, 2, 1], [2, 4, 1], [4, 4, 1], [4, 8, 1], [8, 8, 1], [8, 16, 1], [16, 16, 1]],
};

/// A shape that there is not, and what comes nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IllegalShape {
    pub asked: [u16; 3],
    pub rule: SliceRule,
    /// The legal shape with the fewest chips that has room for it; of equals the most compact.
    pub larger: Option<[u16; 3]>,
    /// The legal shape with the most chips that has room inside of it; of equals the most compact.
    pub smaller: Option<[u16; 3]>,
}

impl fmt::Display for IllegalShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, rule, larger, smaller } = self;
        write!(f, "{} is no slice: ", Sides(*asked))?;
        if volume(*asked) > u64::from(rule.chips_max) {
            write!(f, "it has {} chips, and there are {} at most", volume(*asked), rule.chips_max)?;
        } else if rule.shapes.is_empty() {
            write!(f, "sides are 1 to {EDGE}, or all of them multiples of {EDGE}")?;
        } else {
            f.write_str("there are ")?;
            for (i, shape) in rule.shapes.iter().enumerate() {
                write!(f, "{}{}", if i > 0 { ", " } else { "" }, Sides(*shape))?;
            }
        }
        if let Some(larger) = larger {
            write!(f, "; the next larger is {}", Sides(*larger))?;
        }
        if let Some(smaller) = smaller {
            write!(f, "; the next smaller is {}", Sides(*smaller))?;
        }
        Ok(())
    }
}

impl std::error::Error for IllegalShape {}

impl SliceRule {
    /// # Errors
    /// When there is no such slice, with those that come nearest.
    pub fn check(&self, sides: [u16; 3]) -> Result<(), IllegalShape> {
        let is_legal = if self.shapes.is_empty() {
            let below = sides.iter().all(|side| (1..=EDGE).contains(side));
            let whole = sides.iter().all(|side| *side > 0 && side.is_multiple_of(EDGE));
            (below || whole) && volume(sides) <= u64::from(self.chips_max)
        } else {
            self.shapes.iter().any(|shape| ascending(*shape) == ascending(sides))
        };
        if is_legal { Ok(()) } else { Err(self.nearest(sides)) }
    }

    fn nearest(&self, asked: [u16; 3]) -> IllegalShape {
        let wanted = ascending(asked);
        let within = |inner: [u16; 3], outer: [u16; 3]| inner.iter().zip(outer).all(|(a, b)| *a <= b);
        let (mut larger, mut smaller) = (None, None);
        self.each(&mut |shape| {
            let sorted = ascending(shape);
            let merit = (volume(shape), sorted[2]);
            if within(wanted, sorted) && larger.is_none_or(|(best, _)| merit < best) {
                larger = Some((merit, shape));
            }
            let merit = (u64::MAX - merit.0, merit.1);
            if within(sorted, wanted) && smaller.is_none_or(|(best, _)| merit < best) {
                smaller = Some((merit, shape));
            }
        });
        let shape = |found: Option<((u64, u16), [u16; 3])>| found.map(|(_, shape)| shape);
        IllegalShape { asked, rule: *self, larger: shape(larger), smaller: shape(smaller) }
    }

    /// Every legal shape; those of cubes in ascending sides.
    fn each(&self, visit: &mut impl FnMut([u16; 3])) {
        self.shapes.iter().for_each(|shape| visit(*shape));
        if !self.shapes.is_empty() {
            return;
        }
        let steps = |from: u16, to: u32| u32::from(from)..=to;
        let mut ascend = |unit: u16, most: u32, side_max: u32| {
            let side = |n: u32| u16::try_from(n).unwrap_or(u16::MAX).saturating_mul(unit);
            for x in steps(1, most.min(side_max)) {
                for y in x..=(most / x).min(side_max) {
                    for z in y..=(most / (x * y)).min(side_max) {
                        visit([side(x), side(y), side(z)]);
                    }
                }
            }
        };
        ascend(1, self.chips_max, u32::from(EDGE));
        ascend(EDGE, self.chips_max / u32::from(EDGE).pow(3), u32::MAX);
    }
}

/// Whether a slice of whole cubes has a twisted variant: n x n x 2n or n x 2n x 2n. It takes the same cubes; only
/// the switches are set otherwise.
#[must_use]
pub(super) fn can_twist(sides: [u16; 3]) -> bool {
    let [a, b, c] = ascending(sides).map(u32::from);
    sides.iter().all(|side| *side > 0 && side.is_multiple_of(EDGE)) && c == 2 * a && (b == a || b == c)
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
            assert_eq!(TPU_V4.check(sides), Ok(()), "{sides:?}");
        }
        assert_eq!(TPU_V5P.check([16, 16, 24]), Ok(()));
        assert_eq!(TPU_V5E.check([8, 4, 1]), Ok(()), "sides in any order");
        for sides in [[0, 4, 4], [4, 4, 6], [2, 4, 8], [16, 16, 20], [u16::MAX; 3]] {
            assert!(TPU_V4.check(sides).is_err(), "{sides:?}");
        }
        assert!(TPU_V5E.check([2, 2, 2]).is_err());
    }

    #[test]
    fn an_illegal_shape_names_its_neighbours() {
        let says = |rule: SliceRule, sides| rule.check(sides).unwrap_err().to_string();
        assert_eq!(
            says(TPU_V4, [6, 4, 8]),
            "6x4x8 is no slice: sides are 1 to 4, or all of them multiples of 4; the next larger is 4x8x8; the \
             next smaller is 4x4x8"
        );
        assert_eq!(
            says(TPU_V5P, [16, 20, 28]),
            "16x20x28 is no slice: it has 8960 chips, and there are 6144 at most; the next smaller is 16x16x24"
        );
        assert!(says(TPU_V5E, [3, 3, 1]).ends_with("the next larger is 4x4x1; the next smaller is 2x2x1"));
        assert!(says(TPU_V4, [2, 4, 8]).ends_with("the next larger is 4x4x8; the next smaller is 2x4x4"));
    }

    #[test]
    fn twists_are_those_of_the_pages() {
        for sides in [[4, 4, 8], [4, 8, 8], [8, 8, 16], [12, 24, 12]] {
            assert!(can_twist(sides), "{sides:?}");
        }
        assert!(!can_twist([4, 4, 4]) && !can_twist([2, 2, 4]) && !can_twist([4, 8, 16]));
    }
}
