//! What jobs are drawn from.

use phalanx_sim::Rng;

/// Between 0 and 1, 0 not among them.
#[expect(clippy::cast_precision_loss, reason = "53 bits")]
pub(super) fn unit(rng: &mut Rng) -> f64 {
    (rng.below(1 << 53) + 1) as f64 / (1_u64 << 53) as f64
}

/// An exponential time.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "ms of a year"
)]
pub(super) fn exponential_ms(rng: &mut Rng, mean_ms: u64) -> u64 {
    (-unit(rng).ln() * mean_ms as f64) as u64
}

/// One of the values, as often as its weight of a hundred says.
pub(super) fn weighted(rng: &mut Rng, values: &[(u32, u64)]) -> u32 {
    let mut at = rng.below(100);
    for (value, weight) in values {
        if at < *weight {
            return *value;
        }
        at -= weight;
    }
    values.last().map_or(1, |(value, _)| *value)
}
