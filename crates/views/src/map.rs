//! Every device with who holds it.

use std::collections::BTreeSet;

use phalanx_api::protocol::{HELD_BY_OTHERS, HeldView, MapJob, MapNode, MapView, TAKES_NO_WORK};
use phalanx_model::{Admin, DeviceMask, Grade, JobId, Levels, Node};

use crate::jobs::state;
use crate::nodes::{held, models};

use crate::Books;

/// All nodes; how busy their devices are is not in the books.
pub fn map(books: &Books<'_>, levels: &Levels) -> MapView {
    let (held, hidden) = (held(books), books.hidden());
    let ids: BTreeSet<JobId> = held.values().flatten().map(|of| of.job).collect();
    let job = |id: JobId| {
        let job = books.job(id)?;
        Some(MapJob {
            id,
            name: job.name.to_string(),
            owner: job.owner.name.clone(),
            queue: job.queue.to_string(),
            state: state(books, job).to_owned(),
        })
    };
    let nodes = books.nodes().map(|node| {
        let of_jobs = held.get(&node.name).map_or(&[][..], Vec::as_slice);
        let free = books.free(&node.name).unwrap_or_default().devices;
        let of_others = node.foreign.union(hidden.get(&node.name).copied().unwrap_or(DeviceMask::EMPTY));
        let device = |index: u32| holder(node, of_jobs, of_others, index, free.contains(index));
        let grades = !node.health.devices.is_empty();
        let grade = |index: u32| node.health.devices.get(&index).map_or(Grade::Ok, |of| of.grade);
        let indices = || 0..node.machine.device_count();
        MapNode {
            name: node.name.clone(),
            path: node.path.iter().map(ToString::to_string).collect(),
            model: models(node),
            admin: node.admin,
            grade: node.health.node.as_ref().map_or(Grade::Ok, |of| of.grade),
            devices: indices().map(device).collect(),
            busy: None,
            grades: grades.then(|| indices().map(grade).collect()),
        }
    });
    MapView {
        levels: levels.above.clone(),
        nodes: nodes.collect(),
        jobs: ids.into_iter().filter_map(job).collect(),
    }
}

fn holder(
    node: &Node,
    of_jobs: &[HeldView],
    of_others: DeviceMask,
    device: u32,
    is_free: bool,
) -> Option<i64> {
    if let Some(of) = of_jobs.iter().find(|of| of.devices.contains(device)) {
        return i64::try_from(of.job.0).ok();
    }
    if of_others.contains(device) {
        return Some(HELD_BY_OTHERS);
    }
    let takes_work =
        node.admin == Admin::Open && node.health.is_open() && !node.health.closed_devices().contains(device);
    (!takes_work || !is_free).then_some(TAKES_NO_WORK)
}
