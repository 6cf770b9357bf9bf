//! The pace of a gang, from the reports of its ranks: completed steps, time per step, stragglers, and stalls.

use std::collections::{BTreeMap, VecDeque};

use phalanx_model::Timestamp;

use super::line::Line;
use phalanx_api::protocol::{ProgressView, StragglerView};

/// A rank becomes a straggler above the first ratio of its work to the median of its gang, and ceases to be one below the
/// second, in thousandths. Chosen: ranks with equal shares of work differ by less, and a restart is worth more.
const STRAGGLES_MILLI: u64 = 1_200;
const STRAGGLED_MILLI: u64 = 1_100;
/// Ranks are compared if at least this many have reported at least this many steps.
const RANKS_MIN: usize = 3;
const STEPS_MIN: usize = 4;
/// Reports kept of each rank, and steps of the gang.
const KEPT: usize = 16;
/// A gang is stalled after this many times the usual time between two steps, and at least after this time.
const STALLED_TIMES: u64 = 10;
const STALLED_MIN_MS: u64 = 60_000;
/// The same while the usual time is not known: the first steps of a job may take minutes, in which programs are compiled.
const STALLED_UNKNOWN_MS: u64 = 30 * 60_000;
/// Most ranks that a view or an event names.
const NAMED_MAX: usize = 16;

/// A change of a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Straggles(StragglerView),
    StragglesNoMore(u32),
    /// With the last completed step, and the ranks that have completed fewer steps than others.
    Stalled {
        since: Timestamp,
        step: u64,
        behind: Vec<u32>,
    },
    GoesOn {
        after_ms: u64,
    },
}

/// One attempt of a gang.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    ranks: BTreeMap<u32, OfRank>,
    /// When the slowest rank completed which step.
    steps: VecDeque<(Timestamp, u64)>,
    /// As of the last [`Pace::judge`].
    stragglers: BTreeMap<u32, StragglerView>,
    stalled: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct OfRank {
    line: Line,
    /// Own work of the last reported steps, in microseconds.
    work_us: VecDeque<u64>,
}

impl OfRank {
    /// The mean, if enough steps were reported.
    fn work_us(&self) -> Option<u64> {
        let count = self.work_us.len();
        let sum = self.work_us.iter().fold(0_u64, |sum, us| sum.saturating_add(*us));
        (count >= STEPS_MIN).then(|| sum / count as u64)
    }
}

impl Pace {
    pub(super) fn report(&mut self, rank: u32, at: Timestamp, line: Line) {
        let known = self.ranks.entry(rank).or_insert(OfRank { line, work_us: VecDeque::new() });
        // A rank need not repeat these in each report.
        let kept =
            Line { of: line.of.or(known.line.of), saved_ms: line.saved_ms.or(known.line.saved_ms), ..line };
        known.line = kept;
        known.work_us.extend(line.work_us);
        known.work_us.drain(..known.work_us.len().saturating_sub(KEPT));
        let step = self.step().unwrap_or_default();
        match self.steps.back() {
            Some((_, last)) if *last == step => {}
            Some((before, last)) => {
                let at = at.max(*before);
                // The gang went back to a checkpoint.
                if step < *last {
                    self.steps.clear();
                }
                self.steps.push_back((at, step));
            }
            None => self.steps.push_back((at, step)),
        }
        self.steps.drain(..self.steps.len().saturating_sub(KEPT));
    }

    /// The completed steps of the slowest rank.
    fn step(&self) -> Option<u64> {
        self.ranks.values().map(|rank| rank.line.step).min()
    }

    /// The steps of the whole job.
    fn of(&self) -> Option<u64> {
        self.ranks.values().filter_map(|rank| rank.line.of).max()
    }

    /// The time for one step, in microseconds.
    fn step_us(&self) -> Option<u64> {
        let ((from, first), (to, last)) = (self.steps.front()?, self.steps.back()?);
        let steps = last.checked_sub(*first).filter(|steps| *steps > 0)?;
        Some(to.since(*from).saturating_mul(1_000) / steps)
    }

    /// The longest checkpoint of its ranks, in milliseconds.
    pub(super) fn saved_ms(&self) -> Option<u64> {
        self.ranks.values().filter_map(|rank| rank.line.saved_ms).max().filter(|ms| *ms > 0)
    }

    /// Compares ranks with each other, and the time since the last step with the usual time of a step.
    pub(super) fn judge(&mut self, now: Timestamp) -> Vec<Change> {
        let mut changes = Vec::new();
        let stragglers = self.compare();
        let new = stragglers.iter().filter(|(rank, _)| !self.stragglers.contains_key(rank));
        changes.extend(new.map(|(_, straggler)| Change::Straggles(*straggler)));
        let over = self.stragglers.keys().filter(|rank| !stragglers.contains_key(rank));
        changes.extend(over.map(|rank| Change::StragglesNoMore(*rank)));
        self.stragglers = stragglers;

        let last = self.steps.back().map(|(at, _)| *at);
        match (self.stalled, self.stalls_at()) {
            (None, Some(at)) if at <= now => {
                let (since, step) = (last.unwrap_or(now), self.step().unwrap_or_default());
                self.stalled = Some(since);
                changes.push(Change::Stalled { since, step, behind: self.behind() });
            }
            (Some(since), _) if last.is_some_and(|at| at > since) => {
                self.stalled = None;
                changes.push(Change::GoesOn { after_ms: last.unwrap_or(now).since(since) });
            }
            _ => {}
        }
        changes
    }

    /// When the gang is stalled if it reports no further step.
    fn stalls_at(&self) -> Option<Timestamp> {
        let ((from, _), (to, _)) = (self.steps.front()?, self.steps.back()?);
        let between = (self.steps.len() as u64).saturating_sub(1);
        let least_ms = match to.since(*from).checked_div(between).filter(|_| between >= 2) {
            Some(usual_ms) => usual_ms.saturating_mul(STALLED_TIMES).max(STALLED_MIN_MS),
            None => STALLED_UNKNOWN_MS,
        };
        // A gang that has completed all steps reports no more.
        let is_done = self.of().is_some_and(|of| self.step() >= Some(of));
        (!is_done).then(|| to.plus(least_ms))
    }

    /// Ranks that have completed fewer steps than others.
    fn behind(&self) -> Vec<u32> {
        let most = self.ranks.values().map(|rank| rank.line.step).max();
        let is_behind = |(_, of): &(&u32, &OfRank)| Some(of.line.step) < most;
        self.ranks.iter().filter(is_behind).map(|(rank, _)| *rank).take(NAMED_MAX).collect()
    }

    /// The stragglers by rank.
    fn compare(&self) -> BTreeMap<u32, StragglerView> {
        let works: Vec<(u32, u64)> =
            self.ranks.iter().filter_map(|(rank, of)| Some((*rank, of.work_us()?))).collect();
        if works.len() < RANKS_MIN {
            return BTreeMap::new();
        }
        let mut sorted: Vec<u64> = works.iter().map(|(_, us)| *us).collect();
        sorted.sort_unstable();
        let median_us = sorted[sorted.len() / 2];
        let is_slow = |(rank, us): &(u32, u64)| {
            let least = if self.stragglers.contains_key(rank) { STRAGGLED_MILLI } else { STRAGGLES_MILLI };
            us.saturating_mul(1_000) > median_us.saturating_mul(least)
        };
        let slow = works.into_iter().filter(is_slow);
        slow.map(|(rank, work_us)| (rank, StragglerView { rank, work_us, median_us })).collect()
    }

    pub(super) fn view(&self) -> ProgressView {
        let Some(&(told_at, step)) = self.steps.back() else { return ProgressView::default() };
        let of = self.of();
        let step_us = self.step_us();
        let left_ms = of.zip(step_us).map(|(of, us)| of.saturating_sub(step).saturating_mul(us) / 1_000);
        ProgressView {
            step: Some(step),
            of,
            told_at: Some(told_at),
            step_us,
            ends_at: left_ms.filter(|_| self.stalled.is_none()).map(|ms| told_at.plus(ms)),
            stalled_since: self.stalled,
            behind: if self.stalled.is_some() { self.behind() } else { Vec::new() },
            stragglers: self.stragglers.values().take(NAMED_MAX).copied().collect(),
            checkpoint: None,
            unread: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp(second * 1_000)
    }

    fn line(step: u64, work_ms: u64) -> Line {
        Line { step, of: Some(100), work_us: Some(work_ms * 1_000), saved_ms: None }
    }

    /// Each of four ranks tells of a step a second; rank 3 has its own time for it.
    fn run(pace: &mut Pace, steps: std::ops::Range<u64>, slow_ms: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        for step in steps {
            for rank in 0..4 {
                pace.report(
                    rank,
                    at(step),
                    line(step, if rank == 3 { slow_ms } else { 400 + u64::from(rank) }),
                );
            }
            changes.extend(pace.judge(at(step)));
        }
        changes
    }

    #[test]
    fn steps_tell_how_fast_a_gang_is_and_when_it_ends() {
        let mut pace = Pace::default();
        assert_eq!(pace.view(), ProgressView::default());
        assert_eq!(run(&mut pace, 1..2, 400), []);
        let view = pace.view();
        assert_eq!((view.step, view.step_us, view.ends_at), (Some(1), None, None));
        assert_eq!(run(&mut pace, 2..40, 400), []);
        // One rank is ahead: the gang is where the last of them is.
        pace.report(0, at(40), line(45, 400));
        let view = pace.view();
        assert_eq!(
            (view.step, view.of, view.step_us, view.ends_at),
            (Some(39), Some(100), Some(1_000_000), Some(at(100)))
        );
        // Back to a checkpoint.
        (0..4).for_each(|rank| pace.report(rank, at(50), line(30, 400)));
        assert_eq!((pace.view().step, pace.view().step_us), (Some(30), None));
    }

    #[test]
    fn a_rank_that_works_longer_than_the_others_is_named_until_it_does_no_more() {
        let mut pace = Pace::default();
        assert_eq!(run(&mut pace, 1..20, 480), [], "a fifth more is nothing yet");
        let changes = run(&mut pace, 20..60, 520);
        let [Change::Straggles(straggler)] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!((straggler.rank, straggler.median_us), (3, 402_000));
        assert!(straggler.work_us > 482_400);
        assert_eq!(pace.view().stragglers[0].work_us, 520_000);
        assert_eq!(run(&mut pace, 60..90, 450), [], "once it is one, it stays so for less");
        assert_eq!(run(&mut pace, 90..120, 400), [Change::StragglesNoMore(3)]);
    }

    #[test]
    fn two_ranks_are_not_compared_nor_ranks_that_do_not_say_how_long_they_work() {
        let mut pace = Pace::default();
        for step in 1..40 {
            pace.report(0, at(step), line(step, 100));
            pace.report(1, at(step), line(step, 900));
            pace.report(2, at(step), Line { work_us: None, ..line(step, 0) });
            assert_eq!(pace.judge(at(step)), []);
        }
    }

    #[test]
    fn a_gang_that_tells_of_no_further_step_stands_still_and_who_is_behind_is_named() {
        let mut pace = Pace::default();
        run(&mut pace, 1..20, 400);
        for rank in [0, 1, 3] {
            pace.report(rank, at(20), line(20, 400));
        }
        assert_eq!(pace.judge(at(78)), []);
        let stalled = Change::Stalled { since: at(19), step: 19, behind: vec![2] };
        assert_eq!(pace.judge(at(79)), [stalled]);
        assert_eq!(pace.judge(at(500)), [], "it is said once");
        let view = pace.view();
        assert_eq!((view.stalled_since, view.behind, view.ends_at), (Some(at(19)), vec![2], None));
        pace.report(2, at(600), line(20, 400));
        assert_eq!(pace.judge(at(600)), [Change::GoesOn { after_ms: 581_000 }]);
        // What is done tells no more.
        run(&mut pace, 601..700, 400);
        let mut done = Pace::default();
        run(&mut done, 90..101, 400);
        assert_eq!(done.judge(at(9_000)), []);
    }

    #[test]
    fn a_gang_stands_still_in_its_last_step_too() {
        let mut pace = Pace::default();
        run(&mut pace, 80..100, 400);
        pace.report(0, at(100), line(100, 400));
        let stalled = Change::Stalled { since: at(99), step: 99, behind: vec![1, 2, 3] };
        assert_eq!(pace.judge(at(1_000)), [stalled]);
    }

    /// Nobody knows how long its steps take, and so it is given longer.
    #[test]
    fn a_gang_that_hangs_in_its_first_steps_stands_still_after_a_while() {
        let mut pace = Pace::default();
        run(&mut pace, 1..3, 400);
        assert_eq!(pace.judge(at(2 + 30 * 60 - 1)), []);
        let stalled = Change::Stalled { since: at(2), step: 2, behind: Vec::new() };
        assert_eq!(pace.judge(at(2 + 30 * 60)), [stalled]);
    }

    #[test]
    fn a_gang_that_seldom_tells_is_given_its_time() {
        let mut pace = Pace::default();
        for step in 1..5 {
            pace.report(0, at(step * 600), line(step, 400));
        }
        assert_eq!(pace.judge(at(4 * 600 + 5_999)), []);
        assert_eq!(pace.judge(at(4 * 600 + 6_000)).len(), 1);
    }
}
