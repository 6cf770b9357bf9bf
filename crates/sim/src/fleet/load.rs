//! Requests a second over the day.

use crate::Rng;

const HOUR_MS: u64 = 3_600_000;

/// By hour of the day, in thousandths of the peak: low at night, high in the afternoon. A declared shape, whose mean is 623.
pub const DAY_MILLI: [u32; 24] = [
    300, 240, 200, 180, 180, 220, 320, 470, 640, 780, 870, 930, 960, 980, 1_000, 990, 960, 920, 870, 800,
    700, 590, 480, 380,
];

/// The load of a service: the same shape every day, and noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// In thousandths of a request a second.
    pub peak_milli: u64,
    /// By how much its day begins later.
    pub later_ms: u64,
    /// Each value is up to so many thousandths more or less.
    pub noise_milli: u32,
    pub seed: u64,
}

impl Load {
    /// In thousandths of a request a second; between two hours in proportion. The same for a time whenever it is asked for.
    #[must_use]
    pub fn at(&self, now_ms: u64) -> u64 {
        let of_day = (now_ms + 24 * HOUR_MS - self.later_ms % (24 * HOUR_MS)) % (24 * HOUR_MS);
        let hour = |at: u64| u64::from(DAY_MILLI[usize::try_from(at % 24).unwrap_or(0)]);
        let (at, past) = (of_day / HOUR_MS, of_day % HOUR_MS);
        let level_milli = (hour(at) * (HOUR_MS - past) + hour(at + 1) * past) / HOUR_MS;
        let mut rng = Rng::new(self.seed ^ now_ms.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let noise_milli = 1_000 - u64::from(self.noise_milli.min(1_000))
            + rng.below(2 * u64::from(self.noise_milli.min(1_000)) + 1);
        self.peak_milli * level_milli / 1_000 * noise_milli / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_goes_from_night_to_noon_and_back() {
        let load = Load { peak_milli: 10_000, later_ms: 0, noise_milli: 0, seed: 1 };
        assert_eq!(load.at(14 * HOUR_MS), 10_000);
        assert_eq!(load.at(7 * HOUR_MS + HOUR_MS / 2), 5_550, "half way from 0.47 to 0.64");
        assert_eq!(load.at(25 * HOUR_MS), load.at(HOUR_MS));
        let later = Load { later_ms: 8 * HOUR_MS, ..load };
        assert_eq!(later.at(22 * HOUR_MS), load.at(14 * HOUR_MS));
        let noisy = Load { noise_milli: 50, ..load };
        let all: Vec<u64> = (0..1_000).map(|at| noisy.at(14 * HOUR_MS + at)).collect();
        assert!(all.iter().all(|one| (9_490..=10_500).contains(one)) && all[0] != all[1]);
    }
}
