//! The cluster in numbers.

use std::collections::BTreeMap;

use phalanx_api::protocol::{DeviceCounts, JobCounts, NodeCounts, WaitingReason};
use phalanx_model::{Admin, DeviceMask, Job, Reason};
use phalanx_shell::{Engine, sentences};

use super::{Reasons, held, records, state, waiting_gang};
use crate::orphans::UnknownUse;

/// Nodes and devices, each in one state. How busy devices are is not in the books.
pub(crate) fn counts(engine: &Engine, unknown: &UnknownUse) -> (NodeCounts, DeviceCounts) {
    let (mut nodes, mut devices) = (NodeCounts::default(), DeviceCounts::default());
    let held = held(engine);
    for node in engine.nodes() {
        let all = node.machine.device_mask();
        let strays = unknown.held(&node.name).and(node.foreign);
        let free = engine.free(&node.name).unwrap_or_default().devices;
        let idle = match (node.health.is_open(), node.admin) {
            (false, _) => &mut devices.broken,
            (true, Admin::Open) => &mut devices.free,
            (true, Admin::Cordoned | Admin::Draining) => &mut devices.closed,
        };
        *idle += free.count();
        let of_jobs = held.get(&node.name).into_iter().flatten();
        let of_jobs = of_jobs.fold(DeviceMask::EMPTY, |all, of| all.union(of.devices));
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

/// Jobs that have not ended, by state.
pub(crate) fn job_counts(engine: &Engine) -> JobCounts {
    let mut counts = JobCounts::default();
    for (job, _) in engine.jobs().filter(|(job, _)| engine.ending(job.id).is_none()) {
        match state(engine, job) {
            "pending" => counts.pending += 1,
            "starting" => counts.starting += 1,
            "stopping" => counts.stopping += 1,
            _ => counts.running += 1,
        }
    }
    counts
}

/// Jobs that wait, by the reason for which they do, the most first.
pub(crate) fn waiting(engine: &Engine, reasons: &Reasons) -> Vec<WaitingReason> {
    let mut by_reason: BTreeMap<&str, WaitingReason> = BTreeMap::new();
    for (job, _) in engine.jobs().filter(|(job, _)| engine.ending(job.id).is_none()) {
        if job.turn.array.is_some() && state(engine, job) != "pending" {
            continue;
        }
        let Some(gang) = waiting_gang(engine, &records(engine, job)) else { continue };
        let reason = reasons.get(&gang).unwrap_or(&Reason::None);
        let of = by_reason.entry(reason.word()).or_insert_with(|| WaitingReason {
            reason: reason.word().to_owned(),
            jobs: 0,
            devices: 0,
            job: job.id,
            name: job.name.to_string(),
            detail: sentences::reason(engine, reason),
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
