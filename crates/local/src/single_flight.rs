//! A question that many ask at once is worked out once for all of them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Answers are shared by those who asked before they were begun: nobody gets one that is older than the question.
pub(crate) struct SingleFlight<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    /// How many were begun. One is worked out at a time.
    begun: u64,
    is_worked_out: bool,
    /// The last answer, and which it was.
    last: Option<(u64, Arc<T>)>,
}

impl<T> Default for SingleFlight<T> {
    fn default() -> Self {
        let state = State { begun: 0, is_worked_out: false, last: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<T> SingleFlight<T> {
    /// The answer of a computation that begins after this call.
    ///
    /// # Errors
    /// If this call works it out, and that fails. The others who wait try themselves.
    pub(crate) fn get<E>(&self, work_out: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let mut state = self.state();
        let wanted = state.begun + 1;
        loop {
            if let Some((_, answer)) = state.last.as_ref().filter(|(number, _)| *number >= wanted) {
                return Ok(Arc::clone(answer));
            }
            if !state.is_worked_out {
                break;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.begun += 1;
        state.is_worked_out = true;
        let number = state.begun;
        drop(state);
        let _turn = Turn(self); // Given back on a panic, too.
        let answer = Arc::new(work_out()?);
        self.state().last = Some((number, Arc::clone(&answer)));
        Ok(answer)
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn of one who works an answer out.
struct Turn<'a, T>(&'a SingleFlight<T>);

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.0.state().is_worked_out = false;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn those_who_ask_meanwhile_share_the_next_answer_and_get_none_that_is_older() {
        let flight = SingleFlight::default();
        let count = AtomicU32::new(0);
        let (begun, is_begun) = channel();
        let (go, may_go) = channel::<()>();
        let may_go = Mutex::new(may_go);
        let answers = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                flight.get(|| {
                    begun.send(()).unwrap();
                    may_go.lock().unwrap().recv().unwrap();
                    Ok::<_, ()>(count.fetch_add(1, SeqCst))
                })
            });
            is_begun.recv().unwrap();
            let (flight, count) = (&flight, &count);
            let late: Vec<_> = (0..8)
                .map(|_| scope.spawn(move || flight.get(|| Ok::<_, ()>(count.fetch_add(1, SeqCst)))))
                .collect();
            // Whoever waits by now shares one answer; whoever comes later has a later one.
            go.send(()).unwrap();
            let first = *first.join().unwrap().unwrap();
            let late: Vec<u32> = late.into_iter().map(|thread| *thread.join().unwrap().unwrap()).collect();
            (first, late)
        });
        assert_eq!(answers.0, 0);
        assert!(answers.1.iter().all(|answer| *answer >= 1), "{answers:?}");
        assert_eq!(*flight.get(|| Ok::<_, ()>(77)).unwrap(), 77, "nothing is kept for later questions");
    }

    #[test]
    fn one_who_fails_leaves_the_turn_to_the_next() {
        let flight = SingleFlight::<u32>::default();
        assert_eq!(flight.get(|| Err("no")).unwrap_err(), "no");
        assert_eq!(*flight.get(|| Ok::<_, ()>(1)).unwrap(), 1);
    }
}
