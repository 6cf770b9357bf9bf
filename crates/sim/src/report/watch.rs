//! What happens in a replay, seen beside the policy: where devices are in use, and whose they are.

use super::bins::Bins;
use crate::replay::{Act, Job, Machines, Place, Scheduler, View, WHOLE_MILLI, milli_of};

/// Rows of a map of the cluster; neighbouring leaves share one where there are more.
pub(super) const LEAF_ROWS_MAX: usize = 64;
/// Queues with a name of their own; the smaller ones are `others`.
const QUEUES_MAX: usize = 9;

/// A policy that is watched. Its orders go through unchanged.
pub(super) struct Watch<'a> {
    policy: Box<dyn Scheduler>,
    machines: &'a Machines,
    /// By job.
    queue_of: Vec<usize>,
    places: Vec<Place>,
    /// By node, in thousandths of devices.
    used: Vec<i64>,
    ended: usize,
    tell: &'a mut dyn FnMut(usize),
    pub(super) seen: Seen,
}

/// Thousandths of devices over time.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// In use, by row of leaves.
    pub(super) leaves: Bins,
    /// In use, by queue.
    pub(super) queues: Bins,
    /// One row: free on nodes that are in use in part.
    pub(super) broken: Bins,
}

/// The queues of all jobs, those with most jobs first, and by job which is its.
pub(super) fn queues(jobs: &[Job]) -> (Vec<String>, Vec<usize>) {
    let name = |job: &Job| job.queue.clone().unwrap_or_else(|| "no queue".to_owned());
    let mut counts: std::collections::BTreeMap<String, u64> = std::collections::BTreeMap::new();
    for job in jobs {
        *counts.entry(name(job)).or_default() += 1;
    }
    let mut names: Vec<String> = counts.keys().cloned().collect();
    names.sort_by_key(|name| std::cmp::Reverse(counts.get(name).copied()));
    if names.len() > QUEUES_MAX + 1 {
        names.truncate(QUEUES_MAX);
        names.push("others".to_owned());
    }
    let last = names.len().saturating_sub(1);
    let of = |job: &Job| names.iter().position(|known| *known == name(job)).unwrap_or(last);
    let queue_of = jobs.iter().map(of).collect();
    (names, queue_of)
}

/// Rows of the map.
pub(super) fn leaf_rows(machines: &Machines) -> usize {
    machines.leaves().min(LEAF_ROWS_MAX)
}

/// The row of a leaf.
pub(super) fn row_of_leaf(machines: &Machines, leaf: usize) -> usize {
    leaf * leaf_rows(machines) / machines.leaves().max(1)
}

impl<'a> Watch<'a> {
    /// `tell` is called with how many jobs have ended, whenever one has.
    pub(super) fn new(
        policy: Box<dyn Scheduler>,
        machines: &'a Machines,
        jobs: &[Job],
        bins_max: usize,
        tell: &'a mut dyn FnMut(usize),
    ) -> Self {
        let from_ms = jobs.first().map_or(0, |job| job.submit_ms);
        let (names, queue_of) = queues(jobs);
        let bins = |rows| Bins::new(rows, from_ms, bins_max);
        let seen = Seen { leaves: bins(leaf_rows(machines)), queues: bins(names.len()), broken: bins(1) };
        let (places, used) = (vec![Place::new(); jobs.len()], vec![0; machines.nodes.len()]);
        Self { policy, machines, queue_of, places, used, ended: 0, tell, seen }
    }

    fn release(&mut self, now: u64, job: usize) {
        let place = self.places.get_mut(job).map(std::mem::take).unwrap_or_default();
        self.count(now, job, &place, -1);
    }

    fn count(&mut self, now: u64, job: usize, place: &Place, sign: i64) {
        if let Some(queue) = self.queue_of.get(job) {
            self.seen.queues.change(*queue, now, sign * signed(milli_of(place)));
        }
        for part in place {
            let Some(used) = self.used.get_mut(part.node) else { continue };
            let milli = sign * signed(part.milli_in_all());
            let all = i64::from(self.machines.gpus_on(part.node)) * i64::from(WHOLE_MILLI);
            let before = broken(*used, all);
            *used += milli;
            self.seen.broken.change(0, now, broken(*used, all) - before);
            let row = row_of_leaf(self.machines, self.machines.leaf_of(part.node));
            self.seen.leaves.change(row, now, milli);
        }
    }
}

/// What is free on a node that is in use.
const fn broken(used: i64, all: i64) -> i64 {
    if used == 0 { 0 } else { all - used }
}

fn signed(milli: u64) -> i64 {
    i64::try_from(milli).unwrap_or(i64::MAX)
}

impl Scheduler for Watch<'_> {
    fn name(&self) -> String {
        self.policy.name()
    }

    fn submitted(&mut self, now: u64, index: usize, job: &Job) {
        self.policy.submitted(now, index, job);
    }

    fn ended(&mut self, now: u64, index: usize) {
        self.release(now, index);
        self.ended += 1;
        (self.tell)(self.ended);
        self.policy.ended(now, index);
    }

    fn killed(&mut self, now: u64, index: usize) {
        self.release(now, index);
        self.ended += 1;
        (self.tell)(self.ended);
        self.policy.killed(now, index);
    }

    fn interrupted(&mut self, now: u64, index: usize) {
        self.release(now, index);
        self.policy.interrupted(now, index);
    }

    fn node_lost(&mut self, now: u64, node: usize) {
        self.policy.node_lost(now, node);
    }

    fn node_back(&mut self, now: u64, node: usize) {
        self.policy.node_back(now, node);
    }

    fn decide(&mut self, view: &View<'_>, acts: &mut Vec<Act>) -> Option<u64> {
        let wake = self.policy.decide(view, acts);
        for act in acts.iter() {
            match act {
                Act::Stop { job, .. } => self.release(view.now, *job),
                Act::Start { job, place } => {
                    self.release(view.now, *job);
                    self.count(view.now, *job, place, 1);
                    if let Some(known) = self.places.get_mut(*job) {
                        known.clone_from(place);
                    }
                }
            }
        }
        wake
    }

    fn problem(&mut self) -> Option<String> {
        self.policy.problem()
    }
}
