//! Answers of a service that may hang. Each question is asked on a thread of its own, answers are kept for minutes, and
//! nobody waits longer than the deadline.

use crate::threads;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer is good without asking again.
const FRESH: Duration = Duration::from_secs(300);
/// How long one question is waited for.
const DEADLINE: Duration = Duration::from_secs(2);
/// Questions that are asked at once. A thread that asks a hanging service cannot be ended.
const THREADS_MAX: usize = 8;
/// Answers that are kept; the oldest goes first.
const KNOWN_MAX: usize = 4_096;

/// Nothing is known, and the service does not say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name service of this machine does not answer{}", .0.as_ref().map_or_else(String::new, |why| format!(": {why}")))]
pub(crate) struct Unanswered(Option<String>);

type Ask<K, V> = Arc<dyn Fn(&K) -> Result<V, String> + Send + Sync>;

pub(crate) struct Cache<K, V> {
    ask: Ask<K, V>,
    shared: Arc<Shared<K, V>>,
    fresh: Duration,
    deadline: Duration,
}

struct Shared<K, V> {
    state: Mutex<State<K, V>>,
    answered: Condvar,
}

struct State<K, V> {
    known: BTreeMap<K, (V, Instant)>,
    /// Questions that are being asked, and since when.
    asking: BTreeMap<K, Instant>,
    /// What the service said when it last failed.
    failure: Option<String>,
}

impl<K, V> Shared<K, V> {
    fn state(&self) -> MutexGuard<'_, State<K, V>> {
        // What a panicking thread left are still answers.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V> Cache<K, V>
where
    K: Clone + Debug + Ord + Send + 'static,
    V: Clone + Send + 'static,
{
    pub(crate) fn new(ask: impl Fn(&K) -> Result<V, String> + Send + Sync + 'static) -> Self {
        Self::with(ask, FRESH, DEADLINE)
    }

    pub(super) fn with(
        ask: impl Fn(&K) -> Result<V, String> + Send + Sync + 'static,
        fresh: Duration,
        deadline: Duration,
    ) -> Self {
        let state = State { known: BTreeMap::new(), asking: BTreeMap::new(), failure: None };
        let shared = Shared { state: Mutex::new(state), answered: Condvar::new() };
        Self { ask: Arc::new(ask), shared: Arc::new(shared), fresh, deadline }
    }

    /// A recent answer; does not wait. Without one the question is on its way.
    pub(crate) fn fresh(&self, key: &K) -> Option<V> {
        let mut state = self.shared.state();
        let fresh = self.recent(&state, key);
        if fresh.is_none() {
            self.begin(&mut state, key);
        }
        fresh
    }

    /// The answer, which is waited for until the deadline. If there is none by then, an old answer is good, however old.
    pub(crate) fn get(&self, key: &K) -> Result<V, Unanswered> {
        let mut state = self.shared.state();
        if self.recent(&state, key).is_none() && self.begin(&mut state, key) {
            // Counted from the question: one that hangs already is not waited for once more.
            while let Some(since) = state.asking.get(key) {
                let left = (*since + self.deadline).saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let woken = self.shared.answered.wait_timeout(state, left);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        let known = state.known.get(key).map(|(answer, _)| answer.clone());
        known.ok_or_else(|| Unanswered(state.failure.clone()))
    }

    fn recent(&self, state: &State<K, V>, key: &K) -> Option<V> {
        let (answer, at) = state.known.get(key)?;
        (at.elapsed() < self.fresh).then(|| answer.clone())
    }

    /// Asks, if it is not being asked. False if too many questions hang.
    fn begin(&self, state: &mut State<K, V>, key: &K) -> bool {
        if state.asking.contains_key(key) {
            return true;
        }
        if state.asking.len() >= THREADS_MAX {
            return false;
        }
        let (key, shared, ask) = (key.clone(), Arc::clone(&self.shared), Arc::clone(&self.ask));
        state.asking.insert(key.clone(), Instant::now());
        let asked = key.clone();
        let asking = move || {
            // Made here: if no thread can be started, nothing is dropped that takes the lock.
            let mut question = Question { key, shared, answer: None };
            question.answer = Some(ask(&question.key));
        };
        let is_asked = threads::single("accounts", asking).is_ok();
        if !is_asked {
            state.asking.remove(&asked);
        }
        is_asked
    }
}

/// A question on its way: its end is noticed however it ends.
struct Question<K: Ord + Clone, V> {
    key: K,
    shared: Arc<Shared<K, V>>,
    answer: Option<Result<V, String>>,
}

impl<K: Ord + Clone, V> Drop for Question<K, V> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.asking.remove(&self.key);
        match self.answer.take() {
            Some(Ok(answer)) => {
                state.failure = None;
                state.known.insert(self.key.clone(), (answer, Instant::now()));
                if state.known.len() > KNOWN_MAX {
                    let oldest = state.known.iter().min_by_key(|(_, (_, at))| *at);
                    if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                        state.known.remove(&oldest);
                    }
                }
            }
            Some(Err(why)) => state.failure = Some(why),
            None => state.failure = Some("the look-up was cut short".to_owned()),
        }
        drop(state);
        self.shared.answered.notify_all();
    }
}

#[cfg(test)]
mod tests;
