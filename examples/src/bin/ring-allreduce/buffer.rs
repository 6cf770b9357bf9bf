//! What is reduced, and what must come out.
//!
//! Rank r's element i in step s is (r + 1)·(1 + (i + s) mod 31). All sums are integers of at most
//! 31·1024·1025/2 < 2^24, so float32 holds them exactly in whatever order they are added, and a rank that
//! is counted twice or left out changes every one of them.

use std::fmt;

const PERIOD: u64 = 31;

/// This rank's contribution to a step.
pub(crate) fn fill(data: &mut [f32], rank: u32, step: u64) {
    cycle(data, step, rank + 1);
}

fn cycle(data: &mut [f32], step: u64, factor: u32) {
    let values = values(factor);
    let first = usize::try_from(step % PERIOD).unwrap_or(0);
    for (slot, value) in data.iter_mut().zip(values.iter().cycle().skip(first)) {
        *slot = *value;
    }
}

/// `factor`, `2·factor`, …: one period.
#[allow(clippy::cast_precision_loss, reason = "below 2^24, see above")]
fn values(factor: u32) -> Vec<f32> {
    (1..=31_u32).map(|value| (value * factor) as f32).collect()
}

/// An element that is not the sum.
pub(crate) struct Wrong {
    index: usize,
    found: f32,
    expected: f32,
    count: usize,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, found, expected, count } = self;
        write!(f, "{count} wrong elements, first: element {index} is {found}, and should be {expected}")
    }
}

/// Checks every element after an all-reduce among `world` ranks.
pub(crate) fn first_wrong(data: &[f32], world: u32, step: u64) -> Option<Wrong> {
    let values = values(world * (world + 1) / 2);
    let first = usize::try_from(step % PERIOD).unwrap_or(0);
    let expected = values.iter().cycle().skip(first);
    let mut wrong = data.iter().zip(expected).enumerate().filter(|(_, (found, expected))| found != expected);
    let (index, (found, expected)) = wrong.next()?;
    Some(Wrong { index, found: *found, expected: *expected, count: 1 + wrong.count() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::WORLD_SIZE_MAX;

    #[test]
    fn the_largest_sum_is_exact() {
        let sum = 31 * u64::from(WORLD_SIZE_MAX) * u64::from(WORLD_SIZE_MAX + 1) / 2;
        assert!(sum < 1 << 24);
    }

    #[test]
    fn only_the_sum_of_all_ranks_passes() {
        for world in [1, 2, 5, WORLD_SIZE_MAX] {
            let mut sum = vec![0.0; 100];
            let mut own = vec![0.0; 100];
            for rank in 0..world {
                fill(&mut own, rank, 7);
                sum.iter_mut().zip(&own).for_each(|(sum, own)| *sum += own);
            }
            assert!(first_wrong(&sum, world, 7).is_none());
            assert!(first_wrong(&sum, world, 8).is_some());
            sum[93] += 1.0;
            assert_eq!(first_wrong(&sum, world, 7).map(|w| (w.index, w.count)), Some((93, 1)));
        }
    }
}
