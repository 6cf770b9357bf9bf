//! Answers that are kept for a while: each until a time of its own, and never more than a number of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ring::digest::{SHA256, digest};

/// A digest in place of what was asked: tokens are kept nowhere, and every key has the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key([u8; 32]);

impl Key {
    /// Of several texts; where one ends is a part of the digest.
    pub(super) fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all = Vec::new();
        for text in texts {
            all.extend_from_slice(&(text.len() as u64).to_be_bytes());
            all.extend_from_slice(text.as_bytes());
        }
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, &all).as_ref());
        Self(key)
    }
}

/// See the module.
pub(super) struct Bounded<T> {
    most: usize,
    kept: Mutex<BTreeMap<Key, (Instant, T)>>,
}

impl<T: Clone> Bounded<T> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<Key, (Instant, T)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, key: Key, now: Instant) -> Option<T> {
        self.kept().get(&key).filter(|(until, _)| now < *until).map(|(_, value)| value.clone())
    }

    /// If there is no room, those go first that would go next.
    pub(super) fn keep(&self, key: Key, until: Instant, value: T, now: Instant) {
        let mut kept = self.kept();
        if kept.len() >= self.most && !kept.contains_key(&key) {
            kept.retain(|_, (until, _)| now < *until);
            // A quarter at once: a sweep for each that comes would cost more than it saves.
            if kept.len() >= self.most {
                let mut ends: Vec<(Instant, Key)> =
                    kept.iter().map(|(key, (until, _))| (*until, *key)).collect();
                ends.sort_unstable();
                for (_, key) in ends.into_iter().take(self.most.div_ceil(4)) {
                    kept.remove(&key);
                }
            }
        }
        kept.insert(key, (until, value));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_answer_is_kept_until_its_time_and_the_number_of_answers_is_bounded() {
        let (kept, now) = (Bounded::new(8), Instant::now());
        let at = |s| now + Duration::from_secs(s);
        kept.keep(Key::of(["a"]), at(5), 1, now);
        assert_eq!(kept.get(Key::of(["a"]), at(4)), Some(1));
        assert_eq!(kept.get(Key::of(["a"]), at(5)), None, "its time is over");
        for n in 0..1_000_u64 {
            kept.keep(Key::of([&*n.to_string()]), at(10 + n), 2, now);
            assert!(kept.kept().len() <= 8);
        }
        assert_eq!(kept.get(Key::of(["999"]), at(1)), Some(2), "the newest is kept");
    }

    #[test]
    fn where_one_text_ends_matters() {
        assert_ne!(Key::of(["ab", "c"]), Key::of(["a", "bc"]));
        assert_ne!(Key::of(["a"]), Key::of(["a", ""]));
    }
}
