//! Watches the steps of a gang: the file in which rank 0 reports its progress.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use phalanx_local::Paths;
use phalanx_model::JobId;

use super::record::Sample;
use super::ring::progress;

const POLL: Duration = Duration::from_millis(10);

/// Reads the file until it is dropped, also while no daemon runs.
pub(super) struct Watch {
    samples: Arc<Mutex<Vec<Sample>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start(paths: &Paths, job: JobId) -> Self {
        let (samples, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (samples, is_over, paths) = (Arc::clone(&samples), Arc::clone(&is_over), paths.clone());
            std::thread::spawn(move || watch(&samples, &is_over, &paths, job))
        };
        Self { samples, is_over, thread: Some(thread) }
    }

    fn read(&self) -> MutexGuard<'_, Vec<Sample>> {
        // A sample is pushed whole.
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last completed step.
    pub(super) fn last(&self) -> Option<Sample> {
        self.read().last().copied()
    }

    pub(super) fn samples(&self) -> Vec<Sample> {
        self.read().clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(samples: &Mutex<Vec<Sample>>, is_over: &AtomicBool, paths: &Paths, job: JobId) {
    let mut attempt = 1;
    let mut last = None;
    while !is_over.load(Ordering::SeqCst) {
        let folder = |attempt| paths.attempt(job.gang(0), attempt);
        // The last step of an attempt is read once the next attempt has begun.
        let is_last = folder(attempt + 1).exists();
        let read = progress(&folder(attempt).join("progress.0"));
        if let Some((at_ms, step)) = read.filter(|(_, step)| last != Some((attempt, *step))) {
            last = Some((attempt, step));
            samples.lock().unwrap_or_else(PoisonError::into_inner).push(Sample { at_ms, attempt, step });
        }
        if is_last {
            attempt += 1;
        }
        std::thread::sleep(POLL);
    }
}
