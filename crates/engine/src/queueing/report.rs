//! Reports of queues for people: every amount, and every term of the order.

use phalanx_model::{Queue, QueueReport, ResourceReport, Timestamp};

use super::queues::{QueueAt, Queues, ROOT};
use super::resources::{GPUS, UNBOUNDED};

impl Queues {
    /// The reports, parents before their children, siblings in natural order of names.
    pub(crate) fn reports(&self, now: Timestamp) -> Vec<QueueReport> {
        let due = self.fair_shares_now();
        let mut reports = Vec::new();
        let mut next: Vec<QueueAt> = self.by_name(ROOT);
        while let Some(at) = next.pop() {
            reports.extend(self.report(at, now, due.get(at as usize).copied().unwrap_or(0)));
            next.extend(self.by_name(at));
        }
        reports
    }

    /// The children of a queue, the last by name first.
    fn by_name(&self, at: QueueAt) -> Vec<QueueAt> {
        let mut children = self.at(at).children.clone();
        let name = |at: &QueueAt| self.at(*at).queue.as_ref().map(|queue| queue.name.clone());
        children.sort_by_key(|at| std::cmp::Reverse(name(at)));
        children
    }

    fn report(&self, at: QueueAt, now: Timestamp, due: u128) -> Option<QueueReport> {
        let node = self.at(at);
        let amount = |of: u128| u64::try_from(of).unwrap_or(u64::MAX);
        let resource = |(at, resource): (usize, &phalanx_model::Resource)| ResourceReport {
            resource: resource.clone(),
            used: amount(node.used[at]),
            wanted: amount(node.wanted[at]),
            guaranteed: amount(node.guaranteed[at]),
            limit: (node.limit[at] != UNBOUNDED).then(|| amount(node.limit[at])),
            fair_share: (at == GPUS).then(|| amount(due)),
            capacity: amount(self.capacity[at]),
        };
        let (share, dominant) = self.share(at);
        Some(QueueReport {
            queue: Queue { order: Some(self.order_in(node.queue.as_ref()?).clone()), ..node.queue.clone()? },
            depth: node.depth - 1,
            pending: node.pending,
            running: node.running,
            resources: self.resources.all().iter().enumerate().map(resource).collect(),
            share,
            dominant: self.resources.all()[dominant].clone(),
            decayed_usage: self.past_share(at, now),
            places: Vec::new(),
            pools: Vec::new(),
        })
    }
}
