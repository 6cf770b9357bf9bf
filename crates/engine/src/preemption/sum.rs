//! The cost of several victims together.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use phalanx_model::GangId;

use super::candidate::Candidate;

/// Compared by the highest class, then by the least service of any victim, then by lost work, then by the number of
/// victims and which they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sum {
    rank: Option<i32>,
    level: Option<Reverse<u32>>,
    lost_device_ms: u64,
    gangs: usize,
    /// The cost of each gang: the parts of an elastic gang are several candidates.
    of: BTreeMap<GangId, u64>,
}

impl Sum {
    /// Adds a candidate. Of an elastic gang the most expensive part counts: with it the whole gang is preempted.
    pub(super) fn add(&mut self, candidate: &Candidate<'_>) {
        let before = self.of.get(&candidate.id).copied();
        let more = candidate.costs_device_ms.saturating_sub(before.unwrap_or(0));
        if before.is_none() || more > 0 {
            self.of.insert(candidate.id, candidate.costs_device_ms);
        }
        self.rank = self.rank.max(Some(candidate.rank));
        self.level = self.level.max(Some(candidate.level));
        self.lost_device_ms = self.lost_device_ms.saturating_add(more);
        self.gangs = self.of.len();
    }

    pub(super) fn of(candidates: &[Candidate<'_>], victims: &[usize]) -> Self {
        let mut sum = Self::default();
        victims.iter().filter_map(|at| candidates.get(*at)).for_each(|candidate| sum.add(candidate));
        sum
    }

    /// Whether the highest class of the other sum is higher.
    pub(super) fn is_below_class_of(&self, other: &Self) -> bool {
        self.rank < other.rank
    }
}
