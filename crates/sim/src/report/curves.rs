//! Charts as numbers: means over time, and how many jobs are below a value.

use super::OverTime;
use super::watch::Seen;
use crate::replay::{Outcome, Sample, WHOLE_MILLI};

/// Of everything over time.
pub const POINTS_MAX: usize = 1_000;
/// Values of an axis in one doubling.
const PER_OCTAVE: i32 = 8;
/// The eighth root of 2.
const STEP: f64 = 1.090_507_732_665_257_7;
/// The last value of the axis of finish-time fairness is 2^5.
const RHO_OCTAVES: i32 = 5;

/// Equal spans of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    pub(super) from_ms: u64,
    pub(super) end_ms: u64,
    pub(super) step_ms: u64,
    pub(super) points_max: usize,
}

impl Grid {
    /// Steps are doubled until there are no more than may be.
    pub(super) fn fitted(mut self) -> Self {
        while self.points() > self.points_max {
            self.step_ms = self.step_ms.saturating_mul(2);
        }
        self
    }

    pub(super) fn points(&self) -> usize {
        let points = self.end_ms.saturating_sub(self.from_ms).div_ceil(self.step_ms.max(1));
        usize::try_from(points).unwrap_or(usize::MAX)
    }

    /// Starts and ends.
    fn spans(&self) -> impl Iterator<Item = (u64, u64)> {
        let starts = (0..self.points() as u64).map(|at| self.from_ms + at * self.step_ms);
        starts.map(|start| (start, (start + self.step_ms).min(self.end_ms)))
    }
}

/// Values in ascending order.
#[derive(Clone, Debug)]
pub(super) struct Axis(pub(super) Vec<f64>);

impl Axis {
    /// Seconds from 1 to the longest completion, eight in a doubling.
    pub(super) fn of_times<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Self {
        let ms = outcomes.flat_map(|outcome| &outcome.jobs).filter_map(|job| job.completion_ms()).max();
        let longest = ms.unwrap_or(0) as f64 / 1_000.0;
        let mut values = vec![1.0];
        let mut last = 1.0;
        while last < longest {
            last *= STEP;
            values.push(last);
        }
        Self(values)
    }

    /// From 1/2 to 32.
    pub(super) fn of_fairness() -> Self {
        let mut value = 0.5;
        let step = |_| {
            let now = value;
            value *= STEP;
            now
        };
        Self((0..=PER_OCTAVE * (RHO_OCTAVES + 1)).map(step).collect())
    }

    /// Percent of the values that are not above each of the axis; nothing where there are none. They are sorted here.
    pub(super) fn shares(&self, values: &[f64]) -> Vec<f64> {
        if values.is_empty() {
            return Vec::new();
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let share =
            |at: &f64| sorted.partition_point(|value| value <= at) as f64 / sorted.len() as f64 * 100.0;
        self.0.iter().map(share).collect()
    }
}

pub(super) fn seconds(ms: impl Iterator<Item = u64>) -> Vec<f64> {
    ms.map(|ms| ms as f64 / 1_000.0).collect()
}

/// Means of each span.
pub(super) fn over_time(outcome: &Outcome, seen: &Seen, grid: &Grid, leaf_gpus: &[u32]) -> OverTime {
    let means = |of: fn(&Sample) -> f64| means(&outcome.samples, grid, of);
    let up = means(|sample| f64::from(sample.gpus_up));
    let of_up = |row: &Vec<f64>| row.iter().zip(&up).map(|(part, up)| percent(*part, *up)).collect();
    let wanted = means(Sample::wanted);
    let rows = |bins: &super::bins::Bins| {
        let mut rows = bins.clone().means(grid.end_ms, grid.step_ms);
        rows.iter_mut().for_each(|row| row.truncate(grid.points()));
        rows.iter_mut().flatten().for_each(|milli| *milli /= f64::from(WHOLE_MILLI));
        rows
    };
    let of_leaf =
        |(row, gpus): (Vec<f64>, &u32)| row.iter().map(|used| percent(*used, f64::from(*gpus))).collect();
    OverTime {
        allocated_percent: of_up(&means(Sample::allocated)),
        wanted_percent: of_up(&wanted),
        broken_percent: rows(&seen.broken).first().map(of_up).unwrap_or_default(),
        waiting_jobs: means(|sample| f64::from(sample.waiting)),
        running_jobs: means(|sample| f64::from(sample.running)),
        queues_percent: rows(&seen.queues).iter().map(of_up).collect(),
        leaves_percent: rows(&seen.leaves).into_iter().zip(leaf_gpus).map(of_leaf).collect(),
    }
}

/// The mean of what holds from one sample to the next, by span; the last sample holds to the end.
fn means(samples: &[Sample], grid: &Grid, of: impl Fn(&Sample) -> f64) -> Vec<f64> {
    let mut at = 0;
    let mean = |(start, end): (u64, u64)| {
        let (mut sum, mut from) = (0.0, start);
        while from < end {
            while samples.get(at + 1).is_some_and(|next| next.at_ms <= from) {
                at += 1;
            }
            let until = samples.get(at + 1).map_or(end, |next| next.at_ms.min(end));
            let level = samples.get(at).filter(|sample| sample.at_ms <= from).map_or(0.0, &of);
            // Before the first sample there is nothing.
            let until =
                samples.get(at).filter(|sample| sample.at_ms > from).map_or(until, |s| s.at_ms.min(end));
            sum += level * (until - from) as f64;
            from = until;
        }
        sum / (end - start).max(1) as f64
    };
    grid.spans().map(mean).collect()
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole * 100.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_weigh_levels_by_how_long_they_held() {
        let sample = |at_ms, gpus: u64| Sample { at_ms, milli_allocated: gpus * 1_000, ..Sample::default() };
        let samples = [sample(10, 8), sample(25, 4), sample(26, 0)];
        let grid = Grid { from_ms: 0, end_ms: 35, step_ms: 10, points_max: 4 };
        let means = means(&samples, &grid, Sample::allocated);
        assert_eq!(means, [0.0, 8.0, 4.4, 0.0]);
        assert_eq!(Grid { points_max: 2, ..grid }.fitted().step_ms, 20);
    }

    #[test]
    fn shares_count_what_is_not_above() {
        let axis = Axis(vec![1.0, 2.0, 4.0]);
        assert_eq!(axis.shares(&[2.0, 0.5, 9.0, 2.0]), [25.0, 75.0, 75.0]);
        assert!(axis.shares(&[]).is_empty());
        let axis = Axis::of_fairness();
        assert_eq!((axis.0.len(), axis.0[0]), (49, 0.5));
        assert!((axis.0[48] - 32.0).abs() < 1e-9, "{}", axis.0[48]);
    }
}
