//! Arrays: how far they are, and the few of their tasks that a view lists.

use std::collections::BTreeSet;

use phalanx_model::{Ending, GangId, GangRecord, Job, Phase, Progress, Tasks};

use phalanx_api::protocol::ArrayView;

use crate::Books;

/// Tasks in the view of one array.
const SHOWN_MAX: usize = 64;
/// Tasks in a list of jobs, for each array.
const SHOWN_IN_LIST: usize = 8;
/// Tasks that are explained without being named: pending tasks are equal.
const EXPLAINED_MAX: usize = 4;

/// The next task that is to start.
pub(crate) fn next<'a>(books: &'a Books<'_>, job: &Job) -> Option<&'a GangRecord> {
    books.active_of(job.id).find(|record| record.is_pending())
}

/// The tasks that a view lists: those that run, then those that failed and the next one; a full view also lists the
/// others from the first on.
pub(crate) fn shown<'a>(books: &'a Books<'_>, job: &Job, full: bool) -> Vec<&'a GangRecord> {
    let most = if full { SHOWN_MAX } else { SHOWN_IN_LIST };
    let mut listed = running(books, job, most);
    let next = next(books, job).into_iter();
    if full || books.ending(job.id).is_some() {
        let records = books.records_of(job.id).iter();
        let failed = records.clone().filter(|record| has_failed(record));
        list(&mut listed, most, failed.chain(next).chain(records));
    } else {
        list(&mut listed, most, next);
    }
    listed.into_iter().filter_map(|id| books.gang(id)).collect()
}

/// The tasks in the record of an array: those that run or are next, and those that changed. Its cost follows these,
/// until the array ends.
pub(crate) fn changed<'a>(books: &'a Books<'_>, job: &Job, gangs: &BTreeSet<GangId>) -> Vec<&'a GangRecord> {
    if books.ending(job.id).is_some() {
        let mut listed: BTreeSet<GangId> = shown(books, job, true).iter().map(|record| record.id).collect();
        listed.extend(has_run(books, job, gangs));
        return listed.into_iter().filter_map(|id| books.gang(id)).collect();
    }
    let mut listed = running(books, job, SHOWN_MAX);
    listed.extend(next(books, job).map(|record| record.id));
    listed.extend(has_run(books, job, gangs));
    listed.into_iter().filter_map(|id| books.gang(id)).collect()
}

fn has_run(books: &Books<'_>, job: &Job, gangs: &BTreeSet<GangId>) -> impl Iterator<Item = GangId> {
    let of_job = gangs.range(job.id.gang(0)..=job.id.gang(u32::MAX)).copied();
    of_job.filter(|id| books.gang(*id).is_some_and(|record| record.placement.is_some()))
}

fn running(books: &Books<'_>, job: &Job, most: usize) -> BTreeSet<GangId> {
    let running = books.active_of(job.id).filter(|record| record.holds_capacity());
    // Tasks start in the order of their numbers, so few pending tasks are before the last that runs.
    let progress = books.progress(job.id).unwrap_or_default();
    let count = progress.starting + progress.running + progress.stopping;
    running.take(most.min(count as usize)).map(|record| record.id).collect()
}

fn list<'a>(listed: &mut BTreeSet<GangId>, most: usize, records: impl Iterator<Item = &'a GangRecord>) {
    for record in records {
        if listed.len() >= most {
            return;
        }
        listed.insert(record.id);
    }
}

/// The tasks with these numbers.
pub(crate) fn asked<'a>(books: &'a Books<'_>, job: &Job, tasks: &Tasks) -> Vec<&'a GangRecord> {
    let ids = tasks.numbers().filter_map(|number| Some(job.id.gang(job.task_index(number)?)));
    ids.take(SHOWN_MAX).filter_map(|id| books.gang(id)).collect()
}

/// The tasks that `why` explains: the named ones, or a few that wait, or else those that run.
pub(crate) fn explained<'a>(books: &'a Books<'_>, job: &Job, tasks: Option<&Tasks>) -> Vec<&'a GangRecord> {
    if let Some(tasks) = tasks {
        return asked(books, job, tasks);
    }
    let waiting = books.active_of(job.id).filter(|record| record.is_pending()).take(EXPLAINED_MAX);
    let waiting: Vec<_> = waiting.collect();
    if waiting.is_empty() { shown(books, job, false) } else { waiting }
}

fn has_failed(record: &GangRecord) -> bool {
    matches!(&record.phase, Phase::Finished { ending, .. } if *ending != Ending::Succeeded)
}

pub(crate) fn view(job: &Job, progress: Progress, listed: &[&GangRecord]) -> Option<ArrayView> {
    let array = job.turn.array.as_ref()?;
    let tasks = job.gang_count();
    let numbers = if array.tasks.is_empty() { Tasks::first(tasks) } else { array.tasks.clone() };
    let left_out = tasks.saturating_sub(u32::try_from(listed.len()).unwrap_or(u32::MAX));
    Some(ArrayView { numbers, tasks, running_max: array.running_max, progress, left_out })
}

/// The state of an array that has not ended: what the task that is farthest does.
pub(crate) const fn state(progress: Progress) -> &'static str {
    match progress {
        Progress { running: 1.., .. } => "running",
        Progress { starting: 1.., .. } => "starting",
        Progress { stopping: 1.., .. } => "stopping",
        _ => "pending",
    }
}
