//! EASY backfill (Lifka, 1995) and conservative backfill (Mu'alem and Feitelson, 2001): first come first served, and others
//! pass where they delay nobody who has a promise. How long a job takes is what its user said, or else what it took.

use super::places::{Packing, Room};
use crate::replay::{Act, Job, Scheduler, View};

/// Who has a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// The first that waits.
    First,
    /// All that wait, up to so many: what is behind them neither starts nor is promised anything.
    All { at_most: usize },
}

/// First come first served, with backfill. Promises are counted in devices.
#[derive(Debug)]
pub struct Backfill {
    name: &'static str,
    promise: Promise,
    room: Room,
}

/// Free devices from now on, in thousandths: by time, what is free from then.
struct Profile(Vec<(u64, i64)>);

impl Profile {
    fn new(view: &View<'_>) -> Self {
        let end = |job: &usize| (view.now + left_ms(view, *job), milli(&view.jobs[*job]));
        let mut ends: Vec<(u64, i64)> = view.running.iter().map(end).collect();
        ends.sort_unstable();
        let mut free = signed(view.free.milli());
        let mut steps = vec![(view.now, free)];
        for (at, milli) in ends {
            free += milli;
            match steps.last_mut() {
                Some(last) if last.0 == at => last.1 = free,
                _ => steps.push((at, free)),
            }
        }
        Self(steps)
    }

    /// The first time from which so many devices are free for so long.
    fn first(&self, milli: i64, ms: u64) -> Option<u64> {
        let mut begin = None;
        for (at, free) in &self.0 {
            if begin.is_some_and(|begin: u64| *at >= begin.saturating_add(ms)) {
                break;
            }
            begin = if *free < milli { None } else { begin.or(Some(*at)) };
        }
        begin
    }

    fn take(&mut self, at: u64, ms: u64, milli: i64) {
        let end = at.saturating_add(ms);
        for edge in [at, end] {
            if let Err(place) = self.0.binary_search_by_key(&edge, |(at, _)| *at) {
                let before = self.0[..place].last().map_or(0, |(_, free)| *free);
                self.0.insert(place, (edge, before));
            }
        }
        self.0.iter_mut().filter(|(step, _)| (at..end).contains(step)).for_each(|(_, free)| *free -= milli);
    }
}

fn milli(of: &Job) -> i64 {
    signed(of.milli())
}

fn signed(milli: u64) -> i64 {
    i64::try_from(milli).unwrap_or(i64::MAX)
}

/// How long a job takes from now, by what is known of it beforehand.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn left_ms(view: &View<'_>, job: usize) -> u64 {
    let of = &view.jobs[job];
    let whole_ms = of.limit_ms.unwrap_or(of.work as u64);
    // Whoever has passed its limit is about to end.
    whole_ms.saturating_sub(view.held_ms(job)).max(1)
}

impl Backfill {
    #[must_use]
    pub fn new(promise: Promise, packing: Packing) -> Self {
        let name = match promise {
            Promise::First => "easy",
            Promise::All { .. } => "conservative",
        };
        Self { name, promise, room: Room::new(packing) }
    }

    /// Under another name: that of a system whose placement it has.
    #[must_use]
    pub fn called(self, name: &'static str) -> Self {
        Self { name, ..self }
    }
}

impl Scheduler for Backfill {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn decide(&mut self, view: &View<'_>, acts: &mut Vec<Act>) -> Option<u64> {
        if view.waiting.is_empty() || view.free.milli() == 0 {
            return None;
        }
        self.room.become_free(view.cluster, view.free);
        let mut profile = Profile::new(view);
        let mut promised = 0;
        let promises_max = match self.promise {
            Promise::First => 1,
            Promise::All { at_most } => at_most,
        };
        for job in view.waiting.iter().copied() {
            let (milli, ms) = (milli(&view.jobs[job]), left_ms(view, job));
            let Some(at) = profile.first(milli, ms) else { continue };
            let place =
                (at <= view.now).then(|| self.room.find(view.cluster, &view.jobs[job], view.jobs[job].gpus));
            if let Some(place) = place.flatten() {
                self.room.take(&place);
                profile.take(at, ms, milli);
                acts.push(Act::Start { job, place });
            } else if promised < promises_max {
                promised += 1;
                profile.take(at, ms, milli);
            } else if matches!(self.promise, Promise::All { .. }) {
                break;
            }
            if self.room.is_full() {
                break;
            }
        }
        None
    }
}
