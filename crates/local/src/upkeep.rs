//! Retention: finished jobs leave the engine's books soon, and the history and the disk in time.

mod unknown;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use phalanx_model::{Input, JobId, Phase};
use phalanx_node::output;
use tracing::warn;

use crate::Paths;
use crate::account;
use crate::budgets;
use crate::daemon::Daemon;
use crate::launch;
use crate::limits::Limits;
use crate::logs;

/// Finished jobs that stay in the engine's books; older ones are in the history alone.
const FINISHED_IN_BOOKS: usize = 100;
const DAY_MS: u64 = 24 * 3600 * 1000;
/// Finished jobs, with their logs, are kept for some days, and at most so many of them.
const KEEP_JOBS: u32 = 10_000;
const EVERY: Duration = Duration::from_secs(60);

pub(crate) fn start(daemon: &Arc<Daemon>) -> io::Result<()> {
    Daemon::watch(daemon, "upkeep", EVERY, |daemon| {
        let goes_on = forget_finished(daemon);
        forget_old(daemon);
        unknown::forget(daemon, SystemTime::now());
        daemon.clock.keep(&daemon.paths);
        account::write_down(daemon);
        let goes_on = budgets::look(daemon) && goes_on;
        if let Some(unfinished) = unfinished(daemon) {
            bound_output(&daemon.paths, &daemon.limits, &unfinished);
        }
        goes_on
    })
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
    match daemon.recorder.prune(daemon.limits.keep_days.saturating_mul(DAY_MS), KEEP_JOBS) {
        Ok(gone) => {
            for job in gone {
                launch::forget_secrets(&daemon.paths, job);
                let _ = fs::remove_dir_all(daemon.paths.job(job));
            }
        }
        Err(error) => warn!(error, "the history cannot be pruned"),
    }
}

fn unfinished(daemon: &Daemon) -> Option<BTreeSet<JobId>> {
    let unfinished = daemon.engine.look(|engine| {
        let living = engine.jobs().filter(|(_, gangs)| !gangs.iter().all(|gang| gang.is_finished()));
        living.map(|(job, _)| job.id).collect()
    });
    unfinished.ok()
}

/// The output of one rank in one attempt.
struct Output {
    job: JobId,
    path: PathBuf,
    /// Whose rank wrote it.
    uid: u32,
    bytes: u64,
    written_at: SystemTime,
}

/// Cuts output beyond what is kept of one user, and removes that of ended jobs beyond what is kept of all.
fn bound_output(paths: &Paths, limits: &Limits, unfinished: &BTreeSet<JobId>) {
    let mut outputs = outputs(paths);
    // That of ended jobs goes first, and of these what was written first.
    outputs.sort_by_key(|output| (unfinished.contains(&output.job), output.written_at));
    let mut users: BTreeMap<u32, u64> = BTreeMap::new();
    for output in &outputs {
        *users.entry(output.uid).or_default() += output.bytes;
    }
    for output in &mut outputs {
        let Some(sum) = users.get_mut(&output.uid) else { continue };
        let surplus = sum.saturating_sub(limits.log_bytes_per_user);
        let freed = cut(output, surplus);
        *sum = sum.saturating_sub(freed);
    }
    let mut sum: u64 = outputs.iter().map(|output| output.bytes).sum();
    for output in outputs.iter_mut().filter(|output| !unfinished.contains(&output.job)) {
        let surplus = sum.saturating_sub(limits.keep_bytes);
        sum = sum.saturating_sub(cut(output, surplus));
    }
}

/// Cuts so much off the beginning of an output, or all of it. Returns what was freed.
fn cut(output: &mut Output, surplus: u64) -> u64 {
    if surplus == 0 || output.bytes == 0 {
        return 0;
    }
    let freed = output::cut(&output.path, output.bytes.saturating_sub(surplus)).unwrap_or_else(|e| {
        warn!(file = %output.path.display(), error = %e, "output cannot be cut");
        0
    });
    output.bytes = output.bytes.saturating_sub(freed);
    freed
}

fn outputs(paths: &Paths) -> Vec<Output> {
    let jobs = logs::numbered(&paths.jobs(), "").unwrap_or_default();
    let of_job = |(_, number): (PathBuf, u32)| {
        let job = JobId(number.into());
        logs::all(paths, job).into_iter().filter_map(move |path| {
            let meta = fs::metadata(&path).ok()?;
            let written_at = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            Some(Output { job, path, uid: meta.uid(), bytes: output::bytes_on_disk(&meta), written_at })
        })
    };
    jobs.into_iter().flat_map(of_job).collect()
}

#[cfg(test)]
mod tests {
    use phalanx_model::MemberId;

    use super::*;

    #[test]
    fn output_is_bounded_for_a_user_and_for_all_and_the_oldest_goes_first() {
        const MIB: u64 = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        let log = |job: u64| paths.log(MemberId { gang: JobId(job).gang(0), attempt: 1, rank: 0 });
        for job in 1..=4 {
            fs::create_dir_all(log(job).parent().unwrap()).unwrap();
            fs::write(log(job), vec![b'x'; 1 << 20]).unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(job);
            fs::File::options().write(true).open(log(job)).unwrap().set_modified(at).unwrap();
        }
        let bytes = |job| output::bytes_on_disk(&fs::metadata(log(job)).unwrap());
        // Job 1 is the oldest, and runs.
        let running = BTreeSet::from([JobId(1)]);
        let limits = Limits { log_bytes_per_user: 5 * MIB / 2, ..Limits::default() };
        bound_output(&paths, &limits, &running);
        assert_eq!([1, 2, 3, 4].map(bytes), [MIB, 0, MIB / 2, MIB]);
        bound_output(&paths, &Limits { keep_bytes: 3 * MIB / 2, ..limits }, &running);
        assert_eq!([1, 2, 3, 4].map(bytes), [MIB, 0, 0, MIB / 2]);
        bound_output(&paths, &Limits { log_bytes_per_user: MIB / 4, ..limits }, &running);
        assert_eq!([1, 2, 3, 4].map(bytes), [MIB / 4, 0, 0, 0]);
    }
}
