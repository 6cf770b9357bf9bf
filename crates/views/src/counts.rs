//! The cluster in numbers.

use std::collections::BTreeMap;

use phalanx_api::protocol::{DeviceCounts, JobCounts, NodeCounts, WaitingReason};
use phalanx_model::{Admin, DeviceMask, Job, Reason};
use phalanx_shell::sentences;

use crate::jobs::{Reasons, records, state, waiting_gang};
use crate::nodes::held;

use crate::{Books, Unknown};

/// Nodes and devices, each in one state. How busy devices are is not in the books.
pub fn counts(books: &Books<'_>, unknown: Unknown<'_>) -> (NodeCounts, DeviceCounts) {
    let (mut nodes, mut devices) = (NodeCounts::default(), DeviceCounts::default());
    let (held, hidden) = (held(books), books.hidden());
    for node in books.nodes() {
        let all = node.machine.device_mask();
        let strays = unknown(&node.name).and(node.foreign);
        let free = books.free(&node.name).unwrap_or_default().devices;
        let idle = match (node.health.is_open(), node.admin) {
            (false, _) => &mut devices.broken,
            (true, Admin::Open) => &mut devices.free,
            (true, Admin::Cordoned | Admin::Draining) => &mut devices.closed,
        };
        *idle += free.count();
        let of_jobs = held.get(&node.name).into_iter().flatten();
        let of_others = hidden.get(&node.name).copied().unwrap_or(DeviceMask::EMPTY);
        let of_jobs = of_jobs.fold(of_others, |all, of| all.union(of.devices));
        let broken = node.health.closed_devices().minus(node.foreign).minus(of_jobs);
        devices.total += all.count();
        devices.broken += broken.count();
        devices.unknown += strays.count();
        devices.foreign += node.foreign.minus(strays).count();
        devices.held += all.minus(node.foreign).minus(free).minus(broken).count();
        match (node.health.is_open(), node.admin) {
            (false, _) => nodes.broken += 1,
            (true, Admin::Open) => nodes.open += 1,
            (true, Admin::Cordoned) => nodes.cordoned += 1,
            (true, Admin::Draining) => nodes.draining += 1,
        }
    }
    (nodes, devices)
}

/// Jobs that the reader sees and that have not ended, by state.
pub fn job_counts(books: &Books<'_>) -> JobCounts {
    let mut counts = JobCounts::default();
    for (job, _) in books.jobs().filter(|(job, _)| books.ending(job.id).is_none()) {
        match state(books, job) {
            "pending" => counts.pending += 1,
            "starting" => counts.starting += 1,
            "stopping" => counts.stopping += 1,
            _ => counts.running += 1,
        }
    }
    counts
}

/// Jobs that the reader sees and that wait, by the reason for which they do, the most first.
pub fn waiting(books: &Books<'_>, reasons: &Reasons) -> Vec<WaitingReason> {
    let mut by_reason: BTreeMap<&str, WaitingReason> = BTreeMap::new();
    for (job, _) in books.jobs().filter(|(job, _)| books.ending(job.id).is_none()) {
        if job.turn.array.is_some() && state(books, job) != "pending" {
            continue;
        }
        let Some(gang) = waiting_gang(books, &records(books, job)) else { continue };
        let reason = reasons.get(&gang).unwrap_or(&Reason::None);
        let of = by_reason.entry(reason.word()).or_insert_with(|| WaitingReason {
            reason: reason.word().to_owned(),
            jobs: 0,
            devices: 0,
            job: job.id,
            name: job.name.to_string(),
            detail: sentences::reason(books, reason),
        });
        of.jobs += 1;
        of.devices += devices_of(job);
    }
    let mut all: Vec<WaitingReason> = by_reason.into_values().collect();
    all.sort_by(|a, b| (b.jobs, &a.reason).cmp(&(a.jobs, &b.reason)));
    all
}

/// Devices that all gangs of a job ask for; of an array, those of one task.
fn devices_of(job: &Job) -> u64 {
    let gangs = if job.turn.array.is_some() { 1 } else { job.gang_count() };
    job.each_gang().take(gangs as usize).map(|gang| u64::from(gang.device_count())).sum()
}
