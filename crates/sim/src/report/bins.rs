//! Levels that change over time, summed over equal spans of it.

/// Width of a bin at first.
const WIDTH_MS: u64 = 1_000;

/// Rows of levels over time. The end need not be known: where it goes beyond so many bins, two become one.
#[derive(Clone, Debug)]
pub(super) struct Bins {
    from_ms: u64,
    width_ms: u64,
    bins_max: usize,
    rows: Vec<Row>,
}

/// A level since when, and by bin the sum of level times ms until then.
#[derive(Clone, Debug, Default)]
struct Row {
    level: u64,
    since_ms: u64,
    sums: Vec<u64>,
}

impl Bins {
    /// All levels are 0 from `from_ms` on.
    pub(super) fn new(rows: usize, from_ms: u64, bins_max: usize) -> Self {
        let row = Row { since_ms: from_ms, ..Row::default() };
        Self { from_ms, width_ms: WIDTH_MS, bins_max: bins_max.max(1), rows: vec![row; rows] }
    }

    pub(super) const fn width_ms(&self) -> u64 {
        self.width_ms
    }

    /// From here on it has another level.
    pub(super) fn set(&mut self, row: usize, now_ms: u64, level: u64) {
        self.reach(now_ms);
        if let Some(row) = self.rows.get_mut(row) {
            row.count(self.from_ms, self.width_ms, now_ms);
            row.level = level;
        }
    }

    pub(super) fn change(&mut self, row: usize, now_ms: u64, change: i64) {
        let level = self.rows.get(row).map_or(0, |row| row.level);
        self.set(row, now_ms, level.saturating_add_signed(change));
    }

    /// Bins are made wider until there is room for this time.
    fn reach(&mut self, now_ms: u64) {
        while self.index(now_ms) >= self.bins_max {
            self.widen();
        }
    }

    fn widen(&mut self) {
        self.width_ms = self.width_ms.saturating_mul(2);
        for row in &mut self.rows {
            row.sums = row.sums.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
    }

    fn index(&self, now_ms: u64) -> usize {
        usize::try_from(now_ms.saturating_sub(self.from_ms) / self.width_ms).unwrap_or(usize::MAX)
    }

    /// The mean level of each bin until `end_ms`, by row; bins are at least so wide, and the last is a part of one.
    pub(super) fn means(mut self, end_ms: u64, width_ms: u64) -> Vec<Vec<f64>> {
        self.reach(end_ms);
        while self.width_ms < width_ms {
            self.widen();
        }
        let (from_ms, width_ms) = (self.from_ms, self.width_ms);
        let count = end_ms.saturating_sub(from_ms).div_ceil(width_ms);
        let mean = |(at, sum): (u64, u64)| {
            let start_ms = from_ms + at * width_ms;
            sum as f64 / (end_ms - start_ms).clamp(1, width_ms) as f64
        };
        let row = |mut row: Row| {
            row.count(from_ms, width_ms, end_ms);
            row.sums.resize(usize::try_from(count).unwrap_or(0), 0);
            (0..).zip(row.sums).map(mean).collect()
        };
        self.rows.into_iter().map(row).collect()
    }
}

impl Row {
    fn count(&mut self, from_ms: u64, width_ms: u64, now_ms: u64) {
        while self.since_ms < now_ms {
            let at = (self.since_ms - from_ms) / width_ms;
            let until_ms = (from_ms + (at + 1) * width_ms).min(now_ms);
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            if self.sums.len() <= at {
                self.sums.resize(at + 1, 0);
            }
            if let Some(sum) = self.sums.get_mut(at) {
                *sum = sum.saturating_add(self.level.saturating_mul(until_ms - self.since_ms));
            }
            self.since_ms = until_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_grow_with_time_and_lose_nothing() {
        let mut bins = Bins::new(2, 500, 4);
        bins.set(0, 500, 8);
        bins.change(0, 2_500, -6);
        bins.set(1, 4_000, 1);
        // 4 bins of 4 s are from 0.5 s to 16.5 s.
        bins.change(0, 10_500, -2);
        assert_eq!(bins.width_ms(), 4_000);
        assert_eq!(bins.clone().means(10_500, 0), [[5.0, 2.0, 2.0], [0.125, 1.0, 1.0]]);
        assert_eq!(bins.means(12_500, 8_000), [[3.5, 1.0], [0.5625, 1.0]]);
    }
}
