//! What the searches for domains of all gangs may cost together, counted in trials: one may take a hundred thousand, and
//! other gangs wait meanwhile.
//!
//! In one turn of the scheduler searches begin until their trials are spent. A gang whose search was long goes on in its turn:
//! after a rest as long as the last such search was, the gang that was searched least lately goes first.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::Timestamp;

use crate::recognise::GangKey;

/// Searches do not begin after so many trials in one turn.
pub(crate) const TURN_MAX: u32 = 100_000;
/// A search of so many trials is a long one.
const LONG: u32 = 20_000;
/// Trials of a long search for each millisecond of the rest after it: a fraction of the time of one core.
const TRIALS_PER_MS: u32 = 500;

/// See the module.
#[derive(Default)]
pub(crate) struct Searches {
    now: Timestamp,
    /// Trials in this turn.
    spent: u32,
    /// Gangs whose last search was long, and which of all long searches that was.
    long: BTreeMap<GangKey, u64>,
    next: u64,
    rests_until: Timestamp,
    /// Gangs with a long search that asked for another.
    asking: BTreeSet<(u64, GangKey)>,
    /// The one of them whose turn it is.
    first: Option<(u64, GangKey)>,
}

impl Searches {
    pub(crate) fn begin_turn(&mut self, now: Timestamp) {
        (self.now, self.spent) = (now, 0);
        // It did not ask again when its turn had come.
        if let Some(first) = self.first.take() {
            self.asking.remove(&first);
        }
        if now >= self.rests_until {
            self.first = self.asking.first().cloned();
        }
    }

    /// Whether the domains of a gang may be searched now.
    ///
    /// # Errors
    /// When it is to be tried again.
    pub(crate) fn may_begin(&mut self, key: &GangKey) -> Result<(), Timestamp> {
        let soon = self.now.plus(1);
        let Some(last) = self.long.get(key).copied() else {
            return if self.spent < TURN_MAX { Ok(()) } else { Err(soon) };
        };
        let asks = (last, key.clone());
        let is_next = self.first.as_ref().is_none_or(|first| *first == asks);
        if self.now >= self.rests_until && is_next && self.spent < TURN_MAX {
            return Ok(());
        }
        self.asking.insert(asks);
        Err(self.rests_until.max(soon))
    }

    /// A search took so many trials.
    pub(crate) fn end(&mut self, key: &GangKey, trials: u32) {
        self.spent = self.spent.saturating_add(trials);
        if let Some(last) = self.long.remove(key) {
            let asked = (last, key.clone());
            self.asking.remove(&asked);
            self.first = self.first.take().filter(|first| *first != asked);
        }
        if trials >= LONG {
            self.long.insert(key.clone(), self.next);
            self.next += 1;
            self.rests_until = self.rests_until.max(self.now.plus(u64::from(trials / TRIALS_PER_MS)));
        }
    }

    /// A gang is no more.
    pub(crate) fn forget(&mut self, key: &GangKey) {
        if let Some(last) = self.long.remove(key) {
            self.asking.remove(&(last, key.clone()));
        }
    }

    /// Trials in this turn.
    #[cfg(test)]
    pub(crate) const fn spent(&self) -> u32 {
        self.spent
    }

    /// Gangs whose last search was long.
    #[cfg(test)]
    pub(crate) fn long(&self) -> usize {
        self.long.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recognise::Source;

    #[test]
    fn long_searches_go_by_turns_with_rests_and_the_others_at_once() {
        let key = |name: &str| GangKey {
            source: Source::Job,
            namespace: "x".into(),
            name: name.into(),
            part: None,
            uid: None,
        };
        let (a, b, c, easy) = (key("a"), key("b"), key("c"), key("easy"));
        let mut searches = Searches::default();
        searches.begin_turn(Timestamp(1_000));
        searches.may_begin(&a).unwrap();
        searches.end(&a, TURN_MAX);
        // The trials of this turn are spent.
        assert_eq!(searches.may_begin(&b), Err(Timestamp(1_001)));
        searches.begin_turn(Timestamp(1_001));
        searches.may_begin(&b).unwrap();
        searches.end(&b, LONG);
        searches.may_begin(&c).unwrap();
        searches.end(&c, LONG);
        searches.may_begin(&easy).unwrap();
        searches.end(&easy, 10);
        let rest = Timestamp(1_000 + u64::from(TURN_MAX / TRIALS_PER_MS));
        for at in 1_010..1_013 {
            searches.begin_turn(Timestamp(at));
            for long in [&a, &b, &c] {
                assert_eq!(searches.may_begin(long), Err(rest));
            }
            searches.may_begin(&easy).unwrap();
        }
        // After the rest: the one that was searched first of all, whoever asks before it.
        searches.begin_turn(rest);
        assert!(searches.may_begin(&c).is_err() && searches.may_begin(&b).is_err());
        searches.may_begin(&a).unwrap();
        searches.end(&a, LONG);
        let rest = rest.plus(u64::from(LONG / TRIALS_PER_MS));
        searches.begin_turn(rest);
        assert!(searches.may_begin(&a).is_err() && searches.may_begin(&c).is_err());
        // The next one has given up: it keeps nobody waiting.
        searches.begin_turn(rest.plus(1));
        assert!(searches.may_begin(&a).is_err());
        searches.may_begin(&c).unwrap();
        searches.end(&c, 10);
        searches.may_begin(&c).unwrap();
    }
}
