//! Swaps that make a step shorter: of two places of a whole axis, or of two blocks of ranks.

use super::Kept;
use super::time::{Lane, Measure, StepCost};

/// The result of the swaps.
pub(super) struct End {
    pub(super) cost: StepCost,
    pub(super) tried: u32,
    /// Swaps that were kept.
    pub(super) made: u32,
}

/// An order of ranks while it gets better.
struct Search<'m, 'a> {
    measure: &'m mut Measure<'a>,
    seated: &'m mut [u32],
    homes: &'m [u32],
    kept: Kept<'m>,
    /// By axis.
    costs: Vec<StepCost>,
    /// The same of the order that is tried.
    trial: Vec<StepCost>,
    tried: u32,
    budget: u32,
}

/// Tries at most `budget` swaps and keeps each that is better. Everything is tried in order, so the end is
/// always the same.
pub(super) fn improve(
    measure: &mut Measure<'_>,
    seated: &mut [u32],
    (homes, kept): (&[u32], Kept<'_>),
    budget: u32,
) -> End {
    let axes = measure.axes.len();
    let costs: Vec<StepCost> = (0..axes).map(|axis| measure.cost_of(axis, seated, homes)).collect();
    let trial = costs.clone();
    let mut search = Search { measure, seated, homes, kept, costs, trial, tried: 0, budget };
    let mut slow: Vec<u32> = Vec::new();
    // The outermost first: its groups are the fewest, and often it is the cheapest to mend.
    let (mut made, mut axis) = (0, axes.saturating_sub(1));
    // Axes in a row without a better swap.
    let mut idle = 0;
    while idle < axes && search.tried < budget {
        if search.swap_slices(axis) || search.swap_blocks(axis, &mut slow) {
            made += 1;
            idle = 0;
        } else {
            idle += 1;
            axis = axis.checked_sub(1).unwrap_or(axes - 1);
        }
    }
    End { cost: StepCost::sum(&search.costs), tried: search.tried, made }
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
                // The groups of all other axes do not change.
                if self.is_better(axis, true) {
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
                if self.is_better(axis, false) {
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

    /// Whether the order as it is now costs less than the best before, which it then is. It must be so along the axis
    /// that it was changed for; `alone`: along no other it was changed.
    fn is_better(&mut self, axis: usize, alone: bool) -> bool {
        self.tried += 1;
        let cost = self.measure.cost_of(axis, self.seated, self.homes);
        if self.costs.get(axis).is_none_or(|before| cost >= *before) || !self.kept.allows(self.seated) {
            return false;
        }
        self.trial.clone_from(&self.costs);
        for other in 0..self.trial.len() {
            let cost = match other {
                _ if other == axis => cost,
                _ if alone => continue,
                _ => self.measure.cost_of(other, self.seated, self.homes),
            };
            if let Some(before) = self.trial.get_mut(other) {
                *before = cost;
            }
        }
        let is_better = StepCost::sum(&self.trial) < StepCost::sum(&self.costs);
        if is_better {
            std::mem::swap(&mut self.costs, &mut self.trial);
        }
        is_better
    }
}
