//! The thread that reads the cluster: it takes what watches report, and derives a new picture when something changed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use phalanx_shell::unix_now;

use super::metrics::Metrics;
use super::objects::Objects;
use super::picture::Picture;
use crate::gang::{Numbers, Options};
use crate::messages::Event;
use crate::world::{Observed, Observer};

/// Between two pictures at least.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause is also this many times as long as the last picture took, so that a large cluster in motion takes a fifth of
/// one core at most.
const PAUSE_TIMES: u32 = 4;
/// How long nothing is waited for while nothing is to be done.
const IDLE: Duration = Duration::from_secs(3_600);

/// The newest picture, for the threads that answer requests.
#[derive(Default)]
pub(super) struct Shown {
    newest: Mutex<Option<Arc<Picture>>>,
    changed: Condvar,
}

impl Shown {
    fn newest(&self) -> MutexGuard<'_, Option<Arc<Picture>>> {
        // It is replaced as a whole.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing until the first lists are complete.
    pub(super) fn get(&self) -> Option<Arc<Picture>> {
        self.newest().clone()
    }

    fn set(&self, picture: Picture) {
        let before = self.newest().replace(Arc::new(picture));
        self.changed.notify_all();
        drop(before);
    }

    /// The number of the newest picture, if one comes in time that is not `last`.
    pub(super) fn after(&self, last: Option<u64>, patience: Duration) -> Option<u64> {
        let number = |picture: &Option<Arc<Picture>>| picture.as_ref().map(|picture| picture.number);
        let is_old =
            |picture: &mut Option<Arc<Picture>>| number(picture).is_none() || number(picture) == last;
        let waited = self.changed.wait_timeout_while(self.newest(), patience, is_old);
        let (newest, _) = waited.unwrap_or_else(PoisonError::into_inner);
        number(&newest).filter(|number| Some(*number) != last)
    }
}

/// See the module.
pub(super) struct Keeper {
    options: Options,
    observer: Observer,
    objects: Objects,
    numbers: Numbers,
    shown: Arc<Shown>,
    is_ready: Arc<AtomicBool>,
    metrics: Metrics,
}

impl Keeper {
    pub(super) fn new(
        options: Options,
        observer: Observer,
        shown: Arc<Shown>,
        is_ready: Arc<AtomicBool>,
        metrics: Metrics,
    ) -> Self {
        let (objects, numbers) = (Objects::default(), Numbers::default());
        Self { options, observer, objects, numbers, shown, is_ready, metrics }
    }

    /// Goes on until it cannot, and returns why.
    pub(super) fn run(mut self) -> String {
        let (mut number, mut is_new, mut next) = (0, true, Instant::now());
        loop {
            let is_due = is_new && self.observer.unlisted.is_empty();
            let patience = if is_due { next.saturating_duration_since(Instant::now()) } else { IDLE };
            if is_due && patience.is_zero() {
                number += 1;
                let took = match self.derive(number) {
                    Ok(took) => took,
                    Err(why) => return why,
                };
                is_new = false;
                next = Instant::now() + PAUSE.max(took * PAUSE_TIMES);
                continue;
            }
            match self.observer.next(patience) {
                Ok(observed) => is_new |= self.take(observed),
                Err(_) => return "all watches have ended".to_owned(),
            }
        }
    }

    /// Whether it is news.
    fn take(&mut self, observed: Observed) -> bool {
        match observed {
            Observed::Event(event) => self.objects.observe(*event),
            Observed::Listed(list) => self.objects.observe(Event::Unreadable { list, is_unreadable: false }),
            Observed::Unwatched(list) => {
                self.metrics.errors.inc();
                self.objects.observe(Event::Unreadable { list, is_unreadable: true })
            }
            Observed::Failed => {
                self.metrics.errors.inc();
                false
            }
            Observed::Nothing => false,
        }
    }

    /// A new picture. How long it took.
    fn derive(&mut self, number: u64) -> Result<Duration, String> {
        let begun = Instant::now();
        let picture = Picture::derive(&self.objects, &self.options, &mut self.numbers, (number, unix_now()));
        let picture = picture.ok_or_else(|| "the levels of the cluster cannot be read".to_owned())?;
        let (nodes, jobs) = (picture.engine.nodes().count(), picture.engine.jobs().count());
        self.shown.set(picture);
        let took = begun.elapsed();
        self.metrics.derived(took, nodes, jobs);
        if !self.is_ready.swap(true, Ordering::AcqRel) {
            tracing::info!(nodes, jobs, "the first lists are complete");
        }
        Ok(took)
    }
}
