//! The time of collectives over the links of a box of chips.

/// One ring per dimension, one after the other; data that the earlier dimensions have reduced is not sent again. A
/// closed ring uses both directions, an open row only one: `sum over d of 2 (d-1)/d x S / (product of the dimensions
/// before) / (b or 2b)`. It is the formula of the cost model (`docs/cost-model.md`,
/// `phalanx_cost::torus::all_reduce_ns`), in whole numbers. `sides` are along x, y, z; links are in MB/s, one way,
/// and 0 if their bandwidth is unknown.
pub(crate) fn all_reduce_ns(sides: [u16; 3], rings: [bool; 3], bytes: u64, link_mb_per_s: u32) -> u64 {
    let mut before = 1_u128;
    let mut ns = 0_u128;
    for (side, is_ring) in sides.into_iter().zip(rings).filter(|(side, _)| *side > 1) {
        let (side, links) = (u128::from(side), if is_ring { 2 } else { 1 });
        let over = side * before * links * u128::from(link_mb_per_s);
        ns += (2 * (side - 1) * u128::from(bytes) * 1_000).checked_div(over).unwrap_or(0);
        before *= side;
    }
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// All-to-all, `bytes` from each chip. The links across the middle of the longest dimension carry the most: d/8 of
/// the bytes of a chip on a ring, d/4 on an open row (Dally and Towles, "Principles and Practices of Interconnection
/// Networks", 2004, section 3.3.1: the channel load of uniform traffic).
pub(crate) fn all_to_all_ns(sides: [u16; 3], rings: [bool; 3], bytes: u64, link_mb_per_s: u32) -> u64 {
    let load = |(side, is_ring): (u16, bool)| u128::from(side) * if is_ring { 1 } else { 2 };
    let eighths = sides.into_iter().zip(rings).filter(|(side, _)| *side > 1).map(load).max().unwrap_or(0);
    let ns = (eighths * u128::from(bytes) * 1_000).checked_div(8 * u128::from(link_mb_per_s)).unwrap_or(0);
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_use_both_directions_and_later_dimensions_send_less() {
        let ns = |sides, rings| all_reduce_ns(sides, rings, 1_000_000_000, 100_000);
        // 1.5 GB at 200 GB/s along x, a quarter of it along y, a sixteenth along z.
        assert_eq!(ns([4; 3], [true; 3]), 7_500_000 + 1_875_000 + 468_750);
        assert_eq!(ns([4; 3], [false; 3]), 2 * ns([4; 3], [true; 3]));
        assert_eq!(ns([4, 1, 8], [true, true, false]), 7_500_000 + 4_375_000);
        assert_eq!((ns([1; 3], [true; 3]), all_reduce_ns([4; 3], [true; 3], u64::MAX, 0)), (0, 0));
        assert_eq!(all_reduce_ns([64; 3], [false; 3], u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn the_middle_of_the_longest_dimension_carries_all_to_all() {
        let ns = |sides, rings| all_to_all_ns(sides, rings, 800_000, 100_000);
        assert_eq!(ns([4, 4, 8], [true; 3]), 8_000);
        assert_eq!(ns([4, 4, 8], [true, true, false]), 16_000);
        assert_eq!(ns([8, 4, 8], [true, false, true]), 8_000);
        assert_eq!(ns([1; 3], [false; 3]), 0);
    }

    /// The loads of a row of eight, pair by pair along the shorter way (half each way if both are equally short).
    #[test]
    fn loads_are_those_of_every_pair() {
        for is_ring in [false, true] {
            let mut links = [0_u64; 8];
            for (a, b) in (0..8_usize).flat_map(|a| (0..8).map(move |b| (a, b))) {
                let ahead = (b + 8 - a) % 8;
                // In halves, forwards; traffic backwards loads the other direction equally.
                let halves =
                    if !is_ring { if b > a { 2 } else { 0 } } else { [0, 2, 2, 2, 1, 0, 0, 0][ahead] };
                (0..ahead).for_each(|step| links[(a + step) % 8] += halves);
            }
            // Eight chips send one byte to each of eight: 8 bytes from each.
            let most = links.into_iter().max().unwrap();
            assert_eq!(all_to_all_ns([8, 1, 1], [is_ring; 3], 8, 1), most * 500);
        }
    }
}
