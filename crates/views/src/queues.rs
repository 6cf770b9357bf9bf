//! The tree of queues, and one queue with what waits in it.

use std::collections::BTreeMap;

use phalanx_model::{Gang, GangRecord, Job, QueueName, QueueReport, Reason, Report};
use phalanx_shell::sentences;

use crate::jobs::class_of;
use phalanx_api::protocol::{QueueDetailView, QueueView, WaitingView};

use crate::Books;

/// Gangs of one queue that are explained: each costs a search.
const WAITING_MAX: usize = 200;

/// Every queue, parents before their children; and those that jobs name and nobody configured, by name.
pub fn queues(books: &Books<'_>) -> Vec<QueueView> {
    let reports = books.queues();
    let parent = |name: &QueueName| {
        reports.iter().find(|r| r.queue.name == *name).and_then(|r| r.queue.parent.as_ref())
    };
    let mut sums: BTreeMap<&QueueName, QueueView> = BTreeMap::new();
    for (job, gang, record) in gangs(books) {
        // No deeper than there are queues, whatever the tree says.
        let path = std::iter::successors(Some(&job.queue), |name| parent(name)).take(reports.len().max(1));
        for name in path {
            count(sums.entry(name).or_insert_with(|| empty(name.as_str())), gang, record);
        }
    }
    let configured: Vec<QueueView> =
        reports.iter().map(|report| told(sums.remove(&report.queue.name), report)).collect();
    let is_bare = configured.is_empty() && sums.is_empty();
    let default = is_bare.then(|| empty("default"));
    configured.into_iter().chain(sums.into_values()).chain(default).collect()
}

/// A queue with every term of the order, and what waits there in the order in which it is looked at.
pub fn queue(books: &Books<'_>, name: &QueueName) -> Option<QueueDetailView> {
    let all = queues(books);
    let queue = all.iter().find(|queue| queue.name == name.as_str())?.clone();
    let below = names_below(&all, name);
    let is_here = |job: &Job| below.contains(&job.queue);
    let all = gangs(books).filter(|(job, _, record)| record.is_pending() && is_here(job));
    let (mut pending, hidden): (Vec<_>, Vec<_>) = all.partition(|(job, _, _)| books.sees(job));
    // The best guess without a search: only so many are asked about.
    pending.sort_by_key(|(job, _, record)| (std::cmp::Reverse(job.priority), job.submitted_at, record.id));
    // Those that the reader does not see are counted, and not named.
    let more = pending.len().saturating_sub(WAITING_MAX) + hidden.len();
    pending.truncate(WAITING_MAX);
    let mut waiting: Vec<WaitingView> = pending
        .into_iter()
        .map(|(job, gang, record)| waits(books, job, gang, record, books.explain(record.id).as_ref()))
        .collect();
    waiting.sort_by_key(|gang| (gang.position, gang.gang));
    Some(QueueDetailView { queue, waiting, more: u32::try_from(more).unwrap_or(u32::MAX) })
}

/// Gangs that are not finished, each with its job.
fn gangs<'a>(books: &Books<'a>) -> impl Iterator<Item = (&'a Job, &'a Gang, &'a GangRecord)> + use<'a> {
    let of_job = |(job, records): (_, _)| {
        let job: &'a Job = job;
        let records: &'a [GangRecord] = records;
        job.each_gang().zip(records).map(move |(gang, record)| (job, gang, record))
    };
    books.every_job().flat_map(of_job).filter(|(_, _, record)| !record.is_finished())
}

/// The queue itself and all below it.
fn names_below(all: &[QueueView], name: &QueueName) -> Vec<QueueName> {
    let mut names = vec![name.clone()];
    // Parents stand before their children.
    for report in all.iter().filter_map(|queue| queue.report.as_ref()) {
        if report.queue.parent.as_ref().is_some_and(|parent| names.contains(parent)) {
            names.push(report.queue.name.clone());
        }
    }
    names
}

fn empty(name: &str) -> QueueView {
    let (pending, running, devices_held, devices_wanted) = (0, 0, 0, 0);
    QueueView {
        name: name.to_owned(),
        pending,
        running,
        devices_held,
        devices_wanted,
        report: None,
        budget: None,
    }
}

fn count(queue: &mut QueueView, gang: &Gang, record: &GangRecord) {
    let (gangs, sum) = match record.is_pending() {
        true => (&mut queue.pending, &mut queue.devices_wanted),
        false => (&mut queue.running, &mut queue.devices_held),
    };
    *gangs = gangs.saturating_add(1);
    *sum = sum.saturating_add(gang.device_count());
}

/// The engine's word on its gangs is the last one.
fn told(sum: Option<QueueView>, report: &QueueReport) -> QueueView {
    let sum = sum.unwrap_or_else(|| empty(report.queue.name.as_str()));
    QueueView { pending: report.pending, running: report.running, report: Some(report.clone()), ..sum }
}

fn waits(
    books: &Books<'_>,
    job: &Job,
    gang: &Gang,
    record: &GangRecord,
    report: Option<&Report>,
) -> WaitingView {
    let reason = books.reason(record.id).unwrap_or(Reason::None);
    WaitingView {
        gang: record.id,
        name: job.name.to_string(),
        owner: job.owner.name.clone(),
        queue: job.queue.to_string(),
        class: class_of(job),
        priority: job.priority,
        position: report.map_or(0, |report| report.position),
        devices: gang.device_count(),
        waits_since: record.pending_since,
        evictions: record.evictions,
        reason: reason.word().to_owned(),
        detail: sentences::reason(books, &reason),
        estimated_start: report.and_then(|report| report.estimated_start).map(|estimate| estimate.at),
    }
}
