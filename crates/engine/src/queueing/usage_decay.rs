//! Decayed usage: past use counts half after every half-life.
//!
//! `v(t) = v·2^(-t/h)`, and at a constant use `u` the added value is `u·h/ln 2·(1 - 2^(-t/h))`. In integers: whole
//! halvings are shifts, the rest is a product of the roots 2^(-1/2), 2^(-1/4), … as fractions of 2^64.

use phalanx_model::{DecayedUsage, Timestamp};

/// `2^(-2^-k)·2^64` for k = 1, 2, …, 20.
const ROOTS: [u64; STEPS as usize] = [
    13_043_817_825_332_782_212,
    15_511_800_964_685_064_948,
    16_915_738_899_553_466_670,
    17_664_662_643_191_237_676,
    18_051_468_387_014_017_850,
    18_248_035_989_933_441_396,
    18_347_121_020_861_646_923,
    18_396_865_112_328_554_661,
    18_421_787_711_448_657_617,
    18_434_261_669_329_232_139,
    18_440_501_815_349_552_981,
    18_443_622_680_442_407_997,
    18_445_183_311_048_607_332,
    18_445_963_675_871_538_003,
    18_446_353_870_663_572_145,
    18_446_548_971_154_807_802,
    18_446_646_522_174_239_825,
    18_446_695_297_877_410_579,
    18_446_719_685_777_359_790,
    18_446_731_879_739_425_374,
];
const STEPS: u32 = 20;
/// `1/ln 2` in thousands of millionths.
const PER_LN2: u128 = 1_442_695_041;
const PER_LN2_UNIT: u128 = 1_000_000_000;
/// Bits kept below one millisecond while use is summed up.
const FINE: u32 = 20;

/// The rest of a value after a time.
pub(crate) fn faded(value: u128, after_ms: u64, half_life_ms: u64) -> u128 {
    let half_life_ms = half_life_ms.max(1);
    let Ok(halvings) = u32::try_from(after_ms / half_life_ms) else { return 0 };
    let Some(mut left) = value.checked_shr(halvings) else { return 0 };
    let rest = (u128::from(after_ms % half_life_ms) << STEPS) / u128::from(half_life_ms);
    for (root, at) in ROOTS.iter().zip((0..STEPS).rev()) {
        if rest >> at & 1 == 1 {
            left = (left >> 64).saturating_mul(u128::from(*root))
                + (((left & u128::from(u64::MAX)) * u128::from(*root)) >> 64);
        }
    }
    left
}

/// The decayed usage of a use of one that was always constant: a half-life divided by ln 2, in milliseconds.
pub(crate) fn span_ms(half_life_ms: u64) -> u128 {
    u128::from(half_life_ms.max(1)) * PER_LN2 / PER_LN2_UNIT
}

/// The decayed usage at `now`, if `used` was held since `last`.
pub(crate) fn accrued(last: DecayedUsage, used: u128, now: Timestamp, half_life_ms: u64) -> DecayedUsage {
    let after_ms = now.since(last.at);
    if after_ms == 0 {
        return last;
    }
    let span = span_ms(half_life_ms) << FINE;
    let added = (span - faded(span, after_ms, half_life_ms)).saturating_mul(used) >> FINE;
    DecayedUsage { device_ms: faded(last.device_ms, after_ms, half_life_ms).saturating_add(added), at: now }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn half_is_left_after_a_half_life_and_the_square_root_after_half_of_one() {
        assert_eq!(faded(1 << 40, HOUR, HOUR), 1 << 39);
        assert_eq!(faded(1 << 40, 3 * HOUR, HOUR), 1 << 37);
        assert_eq!(faded(1_000_000, HOUR / 2, HOUR), 707_106);
        assert_eq!(faded(u128::MAX, u64::MAX, 1), 0);
        assert_eq!(faded(5, 0, 0), 5);
    }

    #[test]
    fn a_constant_use_comes_to_rest_at_its_span() {
        let long = accrued(DecayedUsage::default(), 1_000, Timestamp(100 * HOUR), HOUR);
        assert_eq!(long.device_ms / 1_000, span_ms(HOUR));
        // Over short spans, decayed usage equals the use.
        let short = accrued(DecayedUsage::default(), 8_000, Timestamp(60_000), 7 * 24 * HOUR);
        let exact = 8_000 * 60_000;
        assert!(short.device_ms.abs_diff(exact) < exact / 1_000, "{short:?}");
    }

    #[test]
    fn two_steps_are_as_one() {
        let one = accrued(DecayedUsage::default(), 3_000, Timestamp(5 * HOUR), HOUR);
        let half = accrued(DecayedUsage::default(), 3_000, Timestamp(2 * HOUR), HOUR);
        let two = accrued(half, 3_000, Timestamp(5 * HOUR), HOUR);
        assert!(one.device_ms.abs_diff(two.device_ms) <= one.device_ms / 10_000, "{one:?} {two:?}");
    }
}
