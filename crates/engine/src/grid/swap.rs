//! Swaps that make a step shorter: of two places of a whole axis, or of two blocks of ranks.

use super::time::{Cost, Lane, Measure};

/// Where the swaps ended.
pub(super) struct End {
    pub(super) cost: Cost,
    pub(super) tried: u32,
    /// Swaps that were kept.
    pub(super) made: u32,
}

/// An order of ranks while it gets better.
struct Search<'m, 'a> {
    measure: &'m mut Measure<'a>,
    seated: &'m mut [u32],
    homes: &'m [u32],
    cost: Cost,
    tried: u32,
    budget: u32,
}

/// Tries at most `budget` swaps and keeps each that is better. Everything is tried in order, so the end is
/// always the same.
pub(super) fn improve(
    measure: &mut Measure<'_>,
    seated: &mut [u32],
    homes: &[u32],
    cost: Cost,
    budget: u32,
) -> End {
    let mut search = Search { measure, seated, homes, cost, tried: 0, budget };
    let mut slow: Vec<u32> = Vec::new();
    let (mut made, mut axis) = (0, 0);
    // Axes in a row without a better swap.
    let mut idle = 0;
    while idle < search.measure.axes.len() && search.tried < budget {
        if search.swap_slices(axis) || search.swap_blocks(axis, &mut slow) {
            made += 1;
            idle = 0;
        } else {
            idle += 1;
            axis = (axis + 1) % search.measure.axes.len();
        }
    }
    End { cost: search.cost, tried: search.tried, made }
}

impl Search<'_, '_> {
    /// Exchanges two places of an axis, such as two stages of a pipeline: the groups of all other axes stay
    /// as they are. Whether that made a step shorter.
    fn swap_slices(&mut self, axis: usize) -> bool {
        let Some(lane) = self.measure.axes.get(axis).copied() else { return false };
        for a in 0..lane.degree {
            for b in a + 1..lane.degree {
                if self.tried >= self.budget {
                    return false;
                }
                self.exchange(lane, a, b);
                if self.is_better() {
                    return true;
                }
                self.exchange(lane, a, b);
            }
        }
        false
    }

    fn exchange(&mut self, lane: Lane, a: u32, b: u32) {
        let blocks = u32::try_from(self.seated.len()).unwrap_or(u32::MAX);
        for block in (0..blocks).filter(|block| block / lane.stride % lane.degree == a) {
            self.seated.swap(block as usize, (block + (b - a) * lane.stride) as usize);
        }
    }

    /// Exchanges a block of the slowest group of an axis with any other: nothing else shortens the axis.
    /// Whether that made a step shorter.
    fn swap_blocks(&mut self, axis: usize, slow: &mut Vec<u32>) -> bool {
        self.measure.slowest(axis, self.seated, self.homes, slow);
        for block in slow.iter().map(|block| *block as usize) {
            for other in 0..self.seated.len() {
                if self.home(block) == self.home(other) {
                    continue;
                }
                if self.tried >= self.budget {
                    return false;
                }
                self.seated.swap(block, other);
                if self.is_better() {
                    return true;
                }
                self.seated.swap(block, other);
            }
        }
        false
    }

    fn home(&self, block: usize) -> Option<u32> {
        self.seated.get(block).and_then(|place| self.homes.get(*place as usize)).copied()
    }

    /// Whether the order as it is now costs less than the best before, which it then is.
    fn is_better(&mut self) -> bool {
        self.tried += 1;
        let cost = self.measure.cost(self.seated, self.homes);
        let is_better = cost < self.cost;
        if is_better {
            self.cost = cost;
        }
        is_better
    }
}
