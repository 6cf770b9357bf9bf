//! When and where a gang would start if no other gang started: the first placement that becomes free as running gangs
//! end.

use std::borrow::Cow;

use phalanx_model::{GangId, Timestamp};

use super::draft::{Mark, Trial};
use super::reserve::ReservedPlacement;
use super::run::Cycle;
use super::windows::A_WINDOW;
use crate::cluster::Pick;
use crate::placement::Ceiling;
use crate::queueing::{RequestClassId, RequestKey};

/// Ends that are checked one by one if windows of the calendar close nodes in between.
const ONE_BY_ONE_MAX: usize = 256;

/// The first placement that becomes free for a gang.
#[derive(Clone, Debug)]
pub(super) struct Soonest {
    pub(super) picks: Vec<Pick>,
    pub(super) order: Vec<u32>,
    /// `None` if a gang has to end whose end is not known.
    pub(super) at: Option<Timestamp>,
    /// The gangs that have to end before this gang fits.
    pub(super) ends: Vec<GangId>,
    /// Of a step of communication there.
    pub(super) time_ns: u64,
    /// It is inside one domain of the level of the nearest place.
    pub(super) is_near: bool,
}

impl Soonest {
    /// Nobody knows when and where.
    pub(super) const UNKNOWN: Self =
        Self { picks: Vec::new(), order: Vec::new(), at: None, ends: Vec::new(), time_ns: 0, is_near: false };

    pub(super) fn into_place(self) -> ReservedPlacement {
        ReservedPlacement { picks: self.picks, order: self.order, at: self.at, evicts: false }
    }
}

impl Cycle<'_> {
    /// The first placement that becomes free for a gang of a request class, beside the reservations that are booked now: the
    /// nearest, if that is worth a wait.
    pub(super) fn soonest(&mut self, id: GangId, request: RequestClassId) -> Option<Soonest> {
        let key = self.draft.pending.request(request).key.clone();
        let far = self.soonest_for(&key);
        let Some(narrow) = far.as_ref().and_then(|_| self.nearest_of(request, &key.gang)) else { return far };
        let near = self.soonest_for(&RequestKey { gang: narrow, ..key });
        match (near, far) {
            (Some(near), Some(far)) if self.prefers_near(id, request, &near, &far) => {
                Some(Soonest { is_near: true, ..near })
            }
            (_, far) => far,
        }
    }

    fn soonest_for(&mut self, key: &RequestKey) -> Option<Soonest> {
        let ledger = self.ledger;
        // Gangs that start in this cycle end too, and nodes become available again when their windows end.
        let mut new: Vec<(Option<Timestamp>, GangId)> = self.chosen_ends().collect();
        new.extend(ledger.windows().ends(ledger.now()).map(|at| (Some(at), A_WINDOW)));
        new.sort_by_key(|(at, gang)| (at.is_none(), *at, *gang));
        let source = in_order(ledger.ends(), &new).chain(ledger.endless().map(|gang| (None, gang)));
        let mut future = Future {
            cycle: self,
            key,
            source: Box::new(source),
            ends: Vec::new(),
            marks: vec![Mark::START],
            trial: Trial::new(),
            time_ns: 0,
        };
        let enough = future.enough();
        let found = enough.map(|enough| future.found(enough));
        future.close();
        found
    }

    /// The placement of a gang after these gangs have ended, although other gangs start now; `None` if the gang does
    /// not fit.
    pub(super) fn fits_after(
        &mut self,
        request: RequestClassId,
        ends: &[GangId],
        is_near: bool,
    ) -> Option<(Vec<Pick>, Vec<u32>)> {
        let mut key = self.draft.pending.request(request).key.clone();
        if is_near && let Some(narrow) = self.nearest_of(request, &key.gang) {
            key.gang = narrow;
        }
        let known = ends.iter().map(|gang| (None, *gang));
        let mut future = Future {
            cycle: self,
            key: &key,
            source: Box::new(known),
            ends: Vec::new(),
            marks: vec![Mark::START],
            trial: Trial::new(),
            time_ns: 0,
        };
        let fits = future.fits_at(ends.len());
        let found = fits.then(|| future.found(ends.len()));
        future.close();
        found.map(|found| (found.picks, found.order))
    }
}

/// Free capacity as it will be after a number of gangs have ended.
struct Future<'p, 'a, 's> {
    cycle: &'p mut Cycle<'a>,
    key: &'s RequestKey,
    /// Ends that were not needed yet.
    source: Box<dyn Iterator<Item = (Option<Timestamp>, GangId)> + 's>,
    ends: Vec<(Option<Timestamp>, GangId)>,
    /// The mark of the trial after each end.
    marks: Vec<Mark>,
    trial: Trial<'a>,
    /// Of a step of communication at the last place that was found.
    time_ns: u64,
}

impl Future<'_, '_, '_> {
    /// Returns the fewest ends, in their order, after which the gang fits. The search doubles the number of ends until
    /// the gang fits, then halves the interval. Windows that begin in between close nodes again, so if there are
    /// windows, ends are checked one by one from the end after which the gang would fit without windows.
    fn enough(&mut self) -> Option<usize> {
        let has_windows = !self.cycle.ledger.windows().is_clear(None);
        let fits = |future: &mut Self, count: usize| {
            if has_windows { future.fits_without_windows(count) } else { future.fits_at(count) }
        };
        let mut enough = 1;
        loop {
            self.read_up_to(enough);
            let there = self.ends.len();
            if fits(self, there.min(enough)) {
                enough = there.min(enough);
                break;
            }
            if there < enough {
                return None;
            }
            enough *= 2;
        }
        let mut short = (enough.next_power_of_two() / 2).min(enough.saturating_sub(1));
        while enough - short > 1 {
            let middle = short.midpoint(enough);
            if fits(self, middle) { enough = middle } else { short = middle }
        }
        if !has_windows {
            return Some(enough);
        }
        let mut counts = enough..enough.saturating_add(ONE_BY_ONE_MAX);
        counts.find(|count| {
            self.read_up_to(*count);
            *count <= self.ends.len() && self.fits_at(*count)
        })
    }

    fn read_up_to(&mut self, count: usize) {
        let missing = count.saturating_sub(self.ends.len());
        self.ends.extend(self.source.by_ref().take(missing));
    }

    /// The placement after a number of ends.
    fn found(&mut self, count: usize) -> Soonest {
        self.fits_at(count);
        let search = &self.cycle.draft.search;
        let (picks, order) = (search.picks().to_vec(), search.order().to_vec());
        let at = self.ends.get(count.saturating_sub(1)).and_then(|(at, _)| *at);
        let ends = self.ends.iter().take(count).map(|(_, gang)| *gang).collect();
        Soonest { picks, order, at, ends, time_ns: self.time_ns, is_near: false }
    }

    fn move_to(&mut self, wanted: usize) {
        self.read_up_to(wanted);
        let tree = self.cycle.tree();
        if let Some(mark) = self.marks.get(wanted).copied() {
            self.trial.back_to(tree, &mut self.cycle.draft.space, mark);
            self.marks.truncate(wanted + 1);
        }
        while self.marks.len() <= wanted {
            let Some((_, id)) = self.ends.get(self.marks.len() - 1).copied() else { return };
            if let Some((gang, picks)) = self.cycle.held_by(id) {
                self.trial.give_back(tree, &mut self.cycle.draft.space, &picks, gang);
            }
            self.marks.push(self.trial.mark());
        }
    }

    fn fits_at(&mut self, count: usize) -> bool {
        self.move_to(count);
        let ended = self.ends.get(..count).unwrap_or_default();
        let last = ended.iter().filter_map(|(at, _)| *at).next_back();
        self.cycle.close_for_future(self.key, last, ended.last().and_then(|(at, _)| *at));
        self.fits()
    }

    fn fits_without_windows(&mut self, count: usize) -> bool {
        self.move_to(count);
        self.cycle.open_all();
        self.fits()
    }

    fn fits(&mut self) -> bool {
        let tree = self.cycle.tree();
        let draft = &mut self.cycle.draft;
        let gang = &self.key.gang;
        let found = draft.search.place(tree, &draft.space, gang, Ceiling(tree.level_of_required(gang)));
        self.time_ns = found.as_ref().map_or(self.time_ns, |found| found.cost.time_ns);
        found.is_some()
    }

    fn close(self) {
        let tree = self.cycle.tree();
        self.trial.roll_back(tree, &mut self.cycle.draft.space);
    }
}

impl<'a> Cycle<'a> {
    /// The gang and the picks of a gang that runs or starts in this cycle.
    pub(super) fn held_by(&self, id: GangId) -> Option<(Cow<'a, phalanx_model::Gang>, Vec<Pick>)> {
        Some((Cow::Borrowed(self.ledger.gang(id)?), self.picks_of(id)?))
    }
}

/// Known ends and those of gangs that start in this cycle, by time; of gangs whose end is not known, those that start
/// now come last.
fn in_order<'a>(
    known: impl Iterator<Item = (Timestamp, GangId)> + 'a,
    new: &'a [(Option<Timestamp>, GangId)],
) -> impl Iterator<Item = (Option<Timestamp>, GangId)> + 'a {
    let mut known = known.map(|(at, gang)| (Some(at), gang)).peekable();
    let mut new = new.iter().copied().peekable();
    std::iter::from_fn(move || match (known.peek(), new.peek()) {
        (Some(old), Some(next)) if next.0.is_some() && (next.0, next.1) < (old.0, old.1) => new.next(),
        (Some(_), _) => known.next(),
        (None, _) => new.next(),
    })
}
