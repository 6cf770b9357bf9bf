//! Folders of jobs that neither the engine nor the history knows, as after the loss of the history. Without a row in
//! the history no other rule would ever remove them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use phalanx_model::JobId;
use tracing::{info, warn};

use super::{DAY_MS, KEEP_JOBS};
use crate::daemon::Daemon;
use crate::launch;
use crate::logs::numbered;
use crate::orphans;

/// Removes the folders of unknown jobs that are older than what is kept. (Their output counts to what is kept of all
/// jobs, known or not, and is cut with theirs.)
pub(super) fn forget(daemon: &Daemon, now: SystemTime) {
    // Listed before the jobs are: a job that is submitted meanwhile is then no candidate.
    let folders = match numbered(&daemon.paths.jobs(), "") {
        Ok(folders) => folders,
        Err(e) => {
            return warn!(folder = %daemon.paths.jobs().display(), error = %e, "folders of jobs cannot be listed");
        }
    };
    if folders.is_empty() {
        return;
    }
    // A history that cannot be read may know the jobs.
    let Ok(mut known) = daemon.recorder.ids() else { return };
    let of_engine = daemon.engine.look(|engine| engine.jobs().map(|(job, _)| job.id).collect::<Vec<_>>());
    let Ok(of_engine) = of_engine else { return };
    known.extend(of_engine);
    let keep = Duration::from_millis(daemon.limits.keep_days.saturating_mul(DAY_MS));
    for (folder, job) in surplus(folders, &known, keep, now) {
        if is_inhabited(&folder) {
            continue;
        }
        launch::forget_secrets(&daemon.paths, job);
        match fs::remove_dir_all(&folder) {
            Ok(()) => info!(%job, folder = %folder.display(), "an old folder of an unknown job is removed"),
            Err(e) => warn!(%job, folder = %folder.display(), error = %e, "an old folder cannot be removed"),
        }
    }
}

/// The folders of unknown jobs that are older than `keep`, and the oldest beyond [`KEEP_JOBS`].
fn surplus(
    folders: Vec<(PathBuf, u32)>,
    known: &BTreeSet<JobId>,
    keep: Duration,
    now: SystemTime,
) -> Vec<(PathBuf, JobId)> {
    let unknown = folders.into_iter().map(|(folder, number)| (folder, JobId(number.into())));
    let unknown = unknown.filter(|(_, job)| !known.contains(job));
    let mut aged: Vec<_> = unknown.map(|(folder, job)| (changed_at(&folder), folder, job)).collect();
    aged.sort();
    let too_many = aged.len().saturating_sub(KEEP_JOBS as usize);
    let is_old = |at: SystemTime| now.duration_since(at).is_ok_and(|age| age >= keep);
    let gone = aged.into_iter().enumerate().filter(|(place, (at, ..))| *place < too_many || is_old(*at));
    gone.map(|(_, (_, folder, job))| (folder, job)).collect()
}

/// When something of the job last began or ended. Folders alone count: they are the daemon's, and a user can give files
/// of the job any time.
fn changed_at(job: &Path) -> SystemTime {
    let at =
        |dir: &Path| fs::metadata(dir).and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut newest = at(job);
    for dir in inside(job) {
        newest = newest.max(at(&dir));
    }
    newest
}

/// A rank of the job lives, or may.
fn is_inhabited(job: &Path) -> bool {
    inside(job).iter().any(|dir| orphans::lives(dir))
}

/// Folders of the gangs, attempts and ranks of a job.
fn inside(job: &Path) -> Vec<PathBuf> {
    let list = |dirs: &[PathBuf], prefix: &str| -> Vec<PathBuf> {
        dirs.iter().flat_map(|dir| numbered(dir, prefix).unwrap_or_default()).map(|(dir, _)| dir).collect()
    };
    let gangs = list(&[job.to_owned()], "gang-");
    let attempts = list(&gangs, "attempt-");
    let ranks = list(&attempts, "rank-");
    [gangs, attempts, ranks].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_folders_of_unknown_jobs_go_and_the_newest_part_of_a_folder_says_how_old_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let day = Duration::from_millis(DAY_MS);
        let touched = |folder: &Path, days: u32| {
            let at = SystemTime::UNIX_EPOCH + day * days;
            fs::File::open(folder).unwrap().set_modified(at).unwrap();
        };
        for job in 1..=3 {
            let rank = dir.path().join(format!("{job}/gang-0/attempt-1/rank-0"));
            fs::create_dir_all(&rank).unwrap();
            // Its owner can set the time of the output.
            fs::write(rank.join("output.log"), "").unwrap();
            rank.ancestors().take(4).for_each(|folder| touched(folder, 10));
        }
        touched(&dir.path().join("3/gang-0/attempt-1/rank-0"), 50);
        let now = SystemTime::UNIX_EPOCH + day * 60;
        let gone = |known: &[u64], days: u32| -> Vec<u64> {
            let known = known.iter().map(|id| JobId(*id)).collect();
            let folders = numbered(dir.path(), "").unwrap();
            surplus(folders, &known, day * days, now).into_iter().map(|(_, job)| job.0).collect()
        };
        assert_eq!(gone(&[], 51), [0u64; 0]);
        assert_eq!(gone(&[2], 30), [1]);
        assert_eq!(gone(&[], 30), [1, 2]);
        assert_eq!(gone(&[], 10), [1, 2, 3]);
    }
}
