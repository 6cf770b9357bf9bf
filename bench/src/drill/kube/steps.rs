//! Watches the steps of a gang: each run of rank 0 writes a file of its own, in a folder that all nodes share.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::drill::record::Sample;
use crate::drill::ring::progress;

const POLL: Duration = Duration::from_millis(20);

/// Reads the files until it is dropped.
pub(super) struct Steps {
    samples: Arc<Mutex<Vec<Sample>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Steps {
    pub(super) fn start(folder: &Path) -> Self {
        let (samples, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (samples, is_over, folder) = (Arc::clone(&samples), Arc::clone(&is_over), folder.to_owned());
            std::thread::spawn(move || watch(&samples, &is_over, &folder))
        };
        Self { samples, is_over, thread: Some(thread) }
    }

    /// The last completed step.
    pub(super) fn last(&self) -> Option<Sample> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).last().copied()
    }

    pub(super) fn samples(&self) -> Vec<Sample> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The runs are numbered as they appear, from 1.
fn watch(samples: &Mutex<Vec<Sample>>, is_over: &AtomicBool, folder: &Path) {
    let mut runs: Vec<PathBuf> = Vec::new();
    let mut last = None;
    while !is_over.load(Ordering::SeqCst) {
        // The last step of a run is read once the next run has begun.
        let known = runs.len();
        let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path());
        let new: Vec<PathBuf> = files.filter(|file| !runs.contains(file)).collect();
        runs.extend(new);
        for (attempt, file) in (1..).zip(&runs).skip(known.saturating_sub(1)) {
            let Some((at_ms, step)) = progress(file).filter(|(_, step)| last != Some((attempt, *step)))
            else {
                continue;
            };
            last = Some((attempt, step));
            samples.lock().unwrap_or_else(PoisonError::into_inner).push(Sample { at_ms, attempt, step });
        }
        std::thread::sleep(POLL);
    }
}
