//! Orders that mind whose job it is: dominant resource fairness in a hierarchy, HiveD's virtual clusters, and Themis.
#![allow(clippy::cast_precision_loss, reason = "milliseconds are exact below 2^53")]

use std::collections::BTreeMap;

use super::ordered::Order;
use crate::replay::{Job, View, WHOLE_MILLI};

fn queue_of(job: &Job) -> &str {
    job.queue.as_deref().unwrap_or("")
}

fn user_of(job: &Job) -> &str {
    job.user.as_deref().unwrap_or("")
}

/// Hierarchical dominant resource fairness (Bhattacharya et al., `SoCC` 2013) of queues, and in them of users: the next
/// device goes to the queue, and there to the user, that has the least. Devices are the one resource that traces have.
#[derive(Clone, Debug, Default)]
pub struct Drf {
    /// By queue; 1 where it is not here.
    pub weights: BTreeMap<String, f64>,
    rank: BTreeMap<usize, u64>,
}

impl Order for Drf {
    fn name(&self) -> String {
        "drf".to_owned()
    }

    /// Deals out turns one by one, as if each job started when its turn came.
    fn prepare(&mut self, view: &View<'_>) {
        let mut had: BTreeMap<(&str, Option<&str>), f64> = BTreeMap::new();
        let give = |had: &mut BTreeMap<_, f64>, job: &'_ usize| {
            let of = &view.jobs[*job];
            *had.entry((queue_of(of), None)).or_default() += of.devices();
            *had.entry((queue_of(of), Some(user_of(of)))).or_default() += of.devices();
        };
        view.running.iter().for_each(|job| give(&mut had, job));
        // First by first of every user, the last submitted first in the list.
        let mut lines: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        for job in view.waiting.iter().rev() {
            let of = &view.jobs[*job];
            lines.entry((queue_of(of), user_of(of))).or_default().push(*job);
        }
        self.rank.clear();
        // More turns than fit into the free devices are not needed.
        let least = view.waiting.iter().map(|job| u64::from(view.jobs[*job].each_milli())).min();
        for turn in 0..view.free.milli() / least.unwrap_or(1) {
            let share = |queue: &str, user: &str| {
                let of_queue = had.get(&(queue, None)).copied().unwrap_or(0.0);
                let of_user = had.get(&(queue, Some(user))).copied().unwrap_or(0.0);
                (of_queue / self.weights.get(queue).copied().unwrap_or(1.0), of_user)
            };
            let least = lines.keys().copied().min_by(|a, b| {
                let (a, b) = (share(a.0, a.1), share(b.0, b.1));
                a.0.total_cmp(&b.0).then_with(|| a.1.total_cmp(&b.1))
            });
            let Some(line) = least else { break };
            let Some(job) = lines.get_mut(&line).and_then(Vec::pop) else { break };
            if lines.get(&line).is_some_and(Vec::is_empty) {
                lines.remove(&line);
            }
            self.rank.insert(job, turn);
            give(&mut had, &job);
        }
    }

    fn key(&mut self, _: &View<'_>, job: usize) -> (u64, f64) {
        (self.rank.get(&job).copied().unwrap_or(u64::MAX), 0.0)
    }
}

/// `HiveD` (Zhao et al., OSDI 2020): a virtual cluster is guaranteed its own devices, as if it were alone; what it leaves is
/// used by others until it comes. Cells are counted in devices here, their affinity is left to the packing.
#[derive(Clone, Debug, Default)]
pub struct Hived {
    /// Devices that are guaranteed, by queue.
    pub cells: BTreeMap<String, u32>,
    is_guaranteed: BTreeMap<usize, bool>,
}

impl Hived {
    #[must_use]
    pub fn new(cells: BTreeMap<String, u32>) -> Self {
        Self { cells, is_guaranteed: BTreeMap::new() }
    }
}

impl Order for Hived {
    fn name(&self) -> String {
        "hived".to_owned()
    }

    fn prepare(&mut self, view: &View<'_>) {
        // In thousandths.
        let milli = |gpus: u32| u64::from(gpus) * u64::from(WHOLE_MILLI);
        let mut left: BTreeMap<&str, u64> =
            self.cells.iter().map(|(queue, gpus)| (queue.as_str(), milli(*gpus))).collect();
        self.is_guaranteed.clear();
        // Whoever runs in its cells keeps them before others of its queue come to them.
        for job in view.running.iter().chain(view.waiting) {
            let of = &view.jobs[*job];
            let cells = left.get_mut(queue_of(of)).filter(|left| **left >= of.milli());
            self.is_guaranteed.insert(*job, cells.is_some());
            if let Some(left) = cells {
                *left -= of.milli();
            }
        }
    }

    fn key(&mut self, _: &View<'_>, job: usize) -> (u64, f64) {
        (u64::from(!self.is_guaranteed.get(&job).copied().unwrap_or(false)), 0.0)
    }
}

/// Themis (Mahajan et al., NSDI 2020): whoever is hurt most by sharing goes first. The measure is the finish-time fairness
/// of a job if it went on at once, against what it would have taken alone on an equal share of the cluster. With rounds:
/// devices are leased. (Bids and the auction's hidden payments are not modelled; jobs tell the truth.)
#[derive(Clone, Copy, Debug, Default)]
pub struct Themis {
    contention: f64,
}

impl Order for Themis {
    fn name(&self) -> String {
        "themis".to_owned()
    }

    fn prepare(&mut self, view: &View<'_>) {
        self.contention = (view.active_gpus() / f64::from(view.cluster.gpus().max(1))).max(1.0);
    }

    fn key(&mut self, view: &View<'_>, job: usize) -> (u64, f64) {
        let of = &view.jobs[job];
        let shared_ms = (view.now - of.submit_ms) as f64 + view.remaining(job);
        (0, -(shared_ms / (of.work * self.contention).max(1.0)))
    }
}
