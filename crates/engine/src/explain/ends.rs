//! What the ends of running gangs make free, and when: the fewest ends that a gang needs, and its likely start.
//!
//! More free capacity never keeps a gang from fitting. So the fewest ends are searched for in steps that double and then
//! halve, and what is not needed is left out in ranges: the number of searches for a place grows with the logarithm of
//! the number of gangs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use phalanx_model::{Confidence, Estimate, Gang, GangId, LikelyStart, Placement, Report, Timestamp, Unblock};

use super::Outlook;
use crate::cluster::{Pick, Space, Tree};
use crate::ledger::known_end;
use crate::placement::{Ceiling, Search, placement};
use crate::queueing::longest_ms;

/// A running gang, and its end as far as it is known.
pub(super) struct Running<'a> {
    id: GangId,
    gang: &'a Gang,
    placement: Cow<'a, Placement>,
    ends_at: Option<Timestamp>,
    /// When past runs of such jobs ended, and the number of these runs.
    likely_end: Option<(Timestamp, u32)>,
}

/// What an end makes free.
struct Freed<'a> {
    /// When it comes, and its number among those of one time.
    at: (Timestamp, usize),
    picks: Vec<Pick>,
    gang: &'a Gang,
}

/// The free capacity as ends come, and whether a gang fits in it.
struct Room<'a> {
    tree: &'a Tree,
    free: Space,
    search: Search,
}

impl<'a> Room<'a> {
    /// Whether the gang fits now; if it does, the search has its place.
    fn fits(&mut self, gang: &Gang) -> bool {
        let ceiling = Ceiling(self.tree.level_of_required(gang));
        self.search.place(self.tree, &self.free, gang, ceiling).is_some()
    }

    fn give_back(&mut self, ends: &[Freed<'_>]) {
        ends.iter().for_each(|end| self.free.give_back(self.tree, &end.picks, end.gang));
    }

    fn take(&mut self, ends: &[Freed<'_>]) {
        ends.iter().for_each(|end| self.free.take(self.tree, &end.picks, end.gang));
    }

    /// Lets ends come until the gang fits: the fewest, in the order in which `next` has them. The ends that came are
    /// first in what is returned, and how many these are; those behind them were looked at and did not come.
    ///
    /// `None`: the gang does not fit after all ends.
    fn let_come(
        &mut self,
        gang: &Gang,
        mut next: impl FnMut() -> Option<Freed<'a>>,
    ) -> Option<(Vec<Freed<'a>>, usize)> {
        let (mut ends, mut least) = (Vec::new(), 0);
        while !self.fits(gang) {
            least = ends.len();
            // Twice as many each time: one, two, four.
            ends.extend(std::iter::from_fn(&mut next).take(least + 1));
            if ends.len() == least {
                return None;
            }
            self.give_back(&ends[least..]);
        }
        let mut most = ends.len();
        while most > least + 1 {
            let middle = least.midpoint(most);
            self.take(&ends[middle..most]);
            if self.fits(gang) {
                most = middle;
            } else {
                self.give_back(&ends[middle..most]);
                least = middle;
            }
        }
        Some((ends, most))
    }

    /// Which of these ends the gang needs, given the later ones that it needs: later ends are given up first.
    fn needed(&mut self, gang: &Gang, ends: &[Freed<'_>]) -> Vec<usize> {
        let mut needed = Vec::new();
        let mut ranges = vec![(0, ends.len())];
        while let Some((from, to)) = ranges.pop() {
            let Some(some) = ends.get(from..to).filter(|some| !some.is_empty()) else { continue };
            self.take(some);
            if self.fits(gang) {
                continue;
            }
            self.give_back(some);
            match some {
                [_] => needed.push(from),
                _ => {
                    let middle = from.midpoint(to);
                    ranges.extend([(from, middle), (middle, to)]);
                }
            }
        }
        needed.reverse();
        needed
    }
}

impl<'a> Outlook<'a> {
    /// Running gangs, those with a known end first, in the order in which they end.
    fn running(&self) -> Vec<Running<'a>> {
        let mut running: Vec<Running<'a>> = self
            .ledger
            .active()
            .filter_map(|(job, gang, record)| {
                let placement = record.held()?;
                let (ends_at, likely_end) = (known_end(job, record), self.ledger.likely_end(job, record));
                Some(Running { id: record.id, gang, placement, ends_at, likely_end })
            })
            .collect();
        running.sort_by_key(|r| (r.ends_at.is_none(), r.ends_at, r.id));
        running
    }

    fn room(&self) -> Room<'a> {
        Room { tree: self.ledger.tree(), free: self.space.clone(), search: Search::default() }
    }

    /// The fewest running gangs, in the order in which they end, after which this gang fits.
    pub(super) fn ends_needed(&self, gang: &Gang) -> Option<Unblock> {
        let tree = self.ledger.tree();
        let running = self.running();
        let freed =
            |r: &Running<'a>, at| Freed { at, picks: tree.picks_of(&r.placement, r.gang), gang: r.gang };
        let mut room = self.room();
        let mut coming = running.iter().enumerate().map(|(at, r)| freed(r, (Timestamp::MAX, at)));
        let (ends, came) = room.let_come(gang, || coming.next())?;
        // A gang that fits is told one end: the reason says that it does not start.
        let last = came.saturating_sub(1);
        running.get(last)?;
        // The last end is needed: without it the gang does not fit.
        let mut chosen = room.needed(gang, ends.get(..last).unwrap_or_default());
        chosen.push(last);
        let chosen: Vec<&Running<'_>> = chosen.into_iter().filter_map(|at| running.get(at)).collect();
        let at = chosen.iter().map(|r| r.ends_at).max_by_key(|e| e.unwrap_or(Timestamp::MAX)).flatten();
        Some(Unblock::GangsEnd { gangs: chosen.iter().map(|r| r.id).collect(), at })
    }

    /// The latest start if all gangs ahead start in order and none bypasses them. Known only if every end on the way is
    /// known. If past runs say more of those ends, also the likely start.
    pub(super) fn estimate(&self, gang: &Gang, report: &mut Report) {
        let longest = |id: &GangId| longest_ms(&self.ledger.job(id.job)?.policy);
        let running = self.running();
        let Some((at, placement)) = self.starts(gang, &running, |running| running.ends_at, longest) else {
            return;
        };
        report.estimated_start = Some(Estimate { at, confidence: Confidence::AtLatest });
        report.nearest = Some(placement);
        let mut runs = u32::MAX;
        let mut by_past = |known: Option<(u64, u32)>| {
            let (what, of) = known?;
            runs = runs.min(of);
            Some(what)
        };
        let ends: BTreeMap<GangId, Timestamp> = running
            .iter()
            .filter_map(|r| by_past(r.likely_end.map(|(at, of)| (at.0, of))).map(|at| (r.id, Timestamp(at))))
            .collect();
        let spans: BTreeMap<GangId, u64> = self
            .ahead_ids
            .iter()
            .filter_map(|id| Some((*id, by_past(self.ledger.likely_ms(self.ledger.job(id.job)?))?)))
            .collect();
        if ends.is_empty() && spans.is_empty() {
            return;
        }
        let end = |running: &Running<'_>| ends.get(&running.id).copied().or(running.ends_at);
        let span = |id: &GangId| spans.get(id).copied().or_else(|| longest(id));
        let likely = self.starts(gang, &running, end, span).map(|(at, _)| at);
        report.likely_start = likely.filter(|likely| *likely < at).map(|at| LikelyStart { at, runs });
    }

    /// When and where the gang starts, by the ends of running gangs and the run times of the gangs ahead.
    fn starts(
        &self,
        gang: &Gang,
        running: &[Running<'a>],
        end: impl Fn(&Running<'a>) -> Option<Timestamp>,
        span: impl Fn(&GangId) -> Option<u64>,
    ) -> Option<(Timestamp, Placement)> {
        let tree = self.ledger.tree();
        // By time, and at one time as they came in here.
        let mut ends: BTreeMap<(Timestamp, usize), Freed<'_>> = BTreeMap::new();
        for (number, r) in running.iter().enumerate() {
            let Some(at) = end(r).map(|at| (at, number)) else { continue };
            ends.insert(at, Freed { at, picks: tree.picks_of(&r.placement, r.gang), gang: r.gang });
        }
        let mut number = running.len();
        let mut room = self.room();
        let mut now = self.ledger.now();
        let spans = self.ahead_ids.iter().map(span);
        let queue = self.ahead.iter().map(AsRef::as_ref).zip(spans).chain([(gang, None)]);
        for (next, span_ms) in queue {
            // If the start of a gang ahead is not known, neither is the start of this gang.
            let (mut came, count) = room.let_come(next, || ends.pop_first().map(|(_, end)| end))?;
            ends.extend(came.drain(count..).map(|end| (end.at, end)));
            now = came.last().map_or(now, |end| now.max(end.at.0));
            // The last search may have been for fewer ends.
            room.fits(next);
            let picks = room.search.picks().to_vec();
            if std::ptr::eq(next, gang) {
                let placement = placement(tree, &picks, room.search.order(), next)?;
                return Some((now.max(self.earliest), placement));
            }
            room.free.take(tree, &picks, next);
            if let Some(span_ms) = span_ms {
                let at = (now.plus(span_ms), number);
                ends.insert(at, Freed { at, picks, gang: next });
                number += 1;
            }
        }
        None
    }
}
