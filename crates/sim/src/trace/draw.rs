//! Random numbers of stated distributions by integer arithmetic alone, so that a seed means the same bytes on every
//! platform: logarithms and powers of two by squaring and by square roots, in fixed point with 32 bits behind the point.

use crate::Rng;

/// 1 in fixed point.
const ONE: u64 = 1 << 32;
/// ln 2 and log2 e in fixed point.
const LN_2: u64 = 2_977_044_472;
const LOG2_E: i128 = 6_196_328_019;

/// The powers 2^(1/2), 2^(1/4), … with 62 bits behind the point.
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    rng: Rng,
    roots: [u128; 32],
}

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        let mut root: u128 = 2 << 62;
        let roots = std::array::from_fn(|_| {
            root = (root << 62).isqrt();
            root
        });
        Self { rng: Rng::new(seed), roots }
    }

    /// 0 to `end - 1`.
    pub(super) const fn below(&mut self, end: u64) -> u64 {
        self.rng.below(end)
    }

    /// One of the items, as often as its weight says; none where all weights are 0.
    pub(super) fn weighted<'a, T>(&mut self, items: &'a [(T, u32)]) -> Option<&'a T> {
        let sum: u64 = items.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut at = self.below(sum);
        items.iter().find_map(|(item, weight)| {
            let here = at < u64::from(*weight);
            at = at.saturating_sub(u64::from(*weight));
            here.then_some(item)
        })
    }

    /// −log2 of a uniform number of (0, 1], in fixed point.
    fn bits(&mut self) -> u64 {
        64 * ONE - log2(self.rng.bits().max(1))
    }

    /// Exponential with this mean: −ln U, the inverse of its distribution.
    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        let unit = (u128::from(self.bits()) * u128::from(LN_2)) >> 32;
        u64::try_from((unit * u128::from(mean)) >> 32).unwrap_or(u64::MAX)
    }

    /// Pareto with this least value: least · U^(−1/α), α in thousandths and above 0.
    pub(super) fn pareto(&mut self, least: u64, alpha_milli: u32) -> u64 {
        let power = i128::from(self.bits()) * 1_000 / i128::from(alpha_milli.max(1));
        self.times_power(least, power)
    }

    /// Log-normal with this median: median · e^(σ·Z), σ in thousandths.
    pub(super) fn log_normal(&mut self, median: u64, sigma_milli: u32) -> u64 {
        let exponent = i128::from(self.normal()) * i128::from(sigma_milli) / 1_000;
        self.times_power(median, (exponent * LOG2_E) >> 32)
    }

    /// Log-uniform from `least` to `most`, both above 0: least · (most / least)^U.
    pub(crate) fn log_uniform(&mut self, least: u64, most: u64) -> u64 {
        let width = log2(most.max(least).max(1)) - log2(least.max(1));
        let power = (u128::from(width) * u128::from(self.rng.bits() >> 32)) >> 32;
        self.times_power(least.max(1), i128::try_from(power).unwrap_or(0))
    }

    /// Standard normal in fixed point, by the polar method (Marsaglia and Bray, SIAM Review 6, 1964).
    fn normal(&mut self) -> i64 {
        loop {
            let bits = self.rng.bits();
            // Two numbers from −1 to 1 with 31 bits behind the point.
            let [u, v] =
                [bits >> 32, bits & (ONE - 1)].map(|half| i64::try_from(half).unwrap_or(0) - (1 << 31));
            let square = (i128::from(u) * i128::from(u) + i128::from(v) * i128::from(v)).unsigned_abs();
            // Nearer to 0 than one in 2^42 is drawn again: the quotient below would leave 128 bits.
            let Some(square_u64) =
                u64::try_from(square).ok().filter(|_| (1 << 20..1 << 62).contains(&square))
            else {
                continue;
            };
            let twice_ln = 2 * ((u128::from(62 * ONE - log2(square_u64)) * u128::from(LN_2)) >> 32);
            let factor = (((twice_ln << 62) / square) << 32).isqrt();
            let normal = (i128::from(u) * i128::try_from(factor).unwrap_or(0)) >> 31;
            return i64::try_from(normal).unwrap_or(0);
        }
    }

    /// `value` times 2 to the `power`, in fixed point; at most what 64 bits hold.
    fn times_power(&self, value: u64, power: i128) -> u64 {
        let part = power.rem_euclid(i128::from(ONE));
        let mut factor: u128 = 1 << 62;
        for (root, bit) in self.roots.iter().zip((0..32).rev()) {
            if part >> bit & 1 == 1 {
                factor = (factor * root) >> 62;
            }
        }
        let scaled = u128::from(value) * factor;
        let shift = 62 - (power >> 32);
        let shifted = match u32::try_from(shift) {
            Ok(right) => scaled.checked_shr(right).unwrap_or(0),
            Err(_) if scaled == 0 => 0,
            Err(_) => u128::MAX,
        };
        u64::try_from(shifted).unwrap_or(u64::MAX)
    }
}

/// Of a number of 1 or more, in fixed point: the fraction bit by bit, by squaring.
fn log2(number: u64) -> u64 {
    let leading = number.leading_zeros();
    let mut rest = number << leading;
    let mut log = u64::from(63 - leading);
    for _ in 0..32 {
        let square = u128::from(rest) * u128::from(rest);
        let is_two = square >> 127;
        log = log << 1 | u64::try_from(is_two).unwrap_or(0);
        // Back to 63 bits behind the point, from 1 to 2.
        rest = u64::try_from(square >> (63 + is_two)).unwrap_or(u64::MAX);
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: usize = 100_000;

    fn sorted(mut draw: impl FnMut(&mut Draw) -> u64) -> Vec<u64> {
        let mut source = Draw::new(7);
        let mut all: Vec<u64> = (0..DRAWN).map(|_| draw(&mut source)).collect();
        all.sort_unstable();
        all
    }

    /// Within two hundredths of each quantile of the distribution, in percent.
    #[track_caller]
    fn check(all: &[u64], quantiles: &[(usize, u64)]) {
        for (percent, expected) in quantiles {
            let found = all[DRAWN * percent / 100];
            assert!(found.abs_diff(*expected) * 50 <= *expected, "p{percent}: {found}, expected {expected}");
        }
    }

    #[test]
    fn logarithms_are_those_of_the_tables() {
        // log2 of 3, 10 and 2^64 - 1, times 2^32.
        for (number, expected) in [(1, 0), (2, ONE), (3, 6_807_362_102), (10, 14_267_572_527)] {
            assert!(log2(number).abs_diff(expected) <= 4, "{number}: {}", log2(number));
        }
        assert!(64 * ONE - log2(u64::MAX) <= 4);
    }

    #[test]
    fn powers_undo_logarithms() {
        let draw = Draw::new(0);
        for number in [1, 3, 10, 12_345, 1 << 40] {
            let back = draw.times_power(1 << 20, i128::from(log2(number)));
            assert!(back.abs_diff(number << 20) <= 1 + ((number << 20) >> 26), "{number}: {back}");
        }
        assert_eq!(draw.times_power(1, i128::from(ONE) * 200), u64::MAX);
        assert_eq!(draw.times_power(u64::MAX, -i128::from(ONE) * 200), 0);
        assert_eq!(draw.times_power(0, i128::from(ONE) * 200), 0);
    }

    #[test]
    fn quantiles_are_those_of_the_formulas() {
        // −ln(1 − p).
        check(
            &sorted(|d| d.exponential(1_000_000)),
            &[(10, 105_361), (50, 693_147), (90, 2_302_585), (99, 4_605_170)],
        );
        // (1 − p)^(−1/1.5).
        check(&sorted(|d| d.pareto(1_000_000, 1_500)), &[(10, 1_072_765), (50, 1_587_401), (90, 4_641_589)]);
        // e^(0.5 z), z of −1.2816, 0 and 1.2816.
        check(&sorted(|d| d.log_normal(1_000_000, 500)), &[(10, 526_900), (50, 1_000_000), (90, 1_897_900)]);
        // 10^(3 p).
        check(
            &sorted(|d| d.log_uniform(1_000_000, 1_000_000_000)),
            &[(10, 1_995_262), (50, 31_622_777), (90, 501_187_234)],
        );
    }

    #[test]
    fn weights_are_shares() {
        let mut draw = Draw::new(1);
        let items = [("a", 1), ("never", 0), ("b", 3)];
        let all: Vec<&str> = (0..4_000).filter_map(|_| draw.weighted(&items)).copied().collect();
        let count = all.iter().filter(|item| **item == "a").count();
        assert!((900..1_100).contains(&count), "{count}");
        assert!(!all.contains(&"never"));
        assert_eq!(draw.weighted(&[("none", 0)]), None);
    }
}
