//! Gaps and their distribution.

use serde::Serialize;

/// How much longer than the best, as a part of the best. Where the best takes no time, any time is 1: all of it.
pub(super) fn gap(ours: u64, best: u64) -> f64 {
    match (ours, best) {
        (0, _) => 0.0,
        (_, 0) => 1.0,
        _ => (ours as f64 - best as f64) / best as f64,
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Distribution {
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) max: f64,
}

impl Distribution {
    pub(super) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |percent: usize| values.get((values.len() * percent / 100).min(values.len().max(1) - 1));
        let at = |percent| at(percent).copied().unwrap_or(0.0);
        let mean = values.iter().fold(0.0, |sum, value| sum + value) / values.len().max(1) as f64;
        Self { mean, p50: at(50), p95: at(95), max: at(100) }
    }

    pub(super) fn percent(&self) -> String {
        let [mean, p50, p95, max] = [self.mean, self.p50, self.p95, self.max].map(|part| 100.0 * part);
        format!("mean {mean:.2} %, p50 {p50:.2} %, p95 {p95:.2} %, max {max:.2} %")
    }
}
