//! Retention: finished jobs leave the engine's books soon, and the history and the disk in time.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use phalanx_model::{Input, JobId, Phase};

use crate::daemon::Daemon;
use crate::launch;
use crate::say::say;

/// Finished jobs that stay in the engine's books; older ones are in the history alone.
const FINISHED_IN_BOOKS: usize = 100;
/// Finished jobs, with their logs, are kept this long …
const KEEP_MS: u64 = 30 * 24 * 3600 * 1000;
/// … and at most so many of them.
const KEEP_JOBS: u32 = 10_000;
const EVERY: Duration = Duration::from_secs(60);

pub(crate) fn start(daemon: &Arc<Daemon>) {
    Daemon::watch(daemon, EVERY, |daemon| {
        let goes_on = forget_finished(daemon);
        forget_old(daemon);
        goes_on
    });
}

fn forget_finished(daemon: &Daemon) -> bool {
    let surplus = daemon.engine.look(|engine| {
        let mut finished: Vec<_> = engine
            .jobs()
            .filter_map(|(job, gangs)| {
                let ends = gangs.iter().map(|g| match g.phase {
                    Phase::Finished { at, .. } => Some(at),
                    _ => None,
                });
                Some((ends.collect::<Option<Vec<_>>>()?.into_iter().max()?, job.id))
            })
            .collect();
        finished.sort_unstable();
        let surplus = finished.len().saturating_sub(FINISHED_IN_BOOKS);
        finished.into_iter().take(surplus).map(|(_, id)| id).collect::<Vec<JobId>>()
    });
    let Ok(surplus) = surplus else { return false };
    if surplus.is_empty() {
        return true;
    }
    for job in &surplus {
        daemon.recorder.let_go(*job);
        daemon.metrics.forget(*job);
    }
    daemon.engine.report(surplus.into_iter().map(|job| Input::JobForgotten { job }).collect()).is_ok()
}

fn forget_old(daemon: &Daemon) {
    match daemon.recorder.prune(KEEP_MS, KEEP_JOBS) {
        Ok(gone) => {
            for job in gone {
                launch::forget_secrets(&daemon.paths, job);
                let _ = fs::remove_dir_all(daemon.paths.job(job));
            }
        }
        Err(why) => say(&format!("the history cannot be pruned: {why}")),
    }
}
