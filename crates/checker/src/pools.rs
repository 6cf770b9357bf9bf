//! The pools of queues: a gang starts inside those of its queue and of the queues above it, unless it can resume only where
//! its checkpoint is.

use phalanx_model::{Job, Node, Pool, QueueName, Slot};

use crate::start::Start;
use crate::{Checker, Violation};

/// Whether a gang may go on where its checkpoint is, which can be outside of pools that its queue got meanwhile.
const fn resumes(job: &Job, start: &Start<'_>) -> bool {
    job.policy.preempt.is_pinned && !start.is_first
}

impl Checker {
    pub(crate) fn check_pools(
        &self,
        start: &Start<'_>,
        slot: &Slot,
        node: &Node,
        found: &mut Vec<Violation>,
    ) {
        let Some(job) = self.jobs.get(&start.id.job).filter(|job| !resumes(job, start)) else { return };
        if let Some(queue) = self.queue_without(&job.queue, node) {
            found.push(Violation::OutsidePools { gang: start.id, node: slot.node.clone(), queue });
        }
    }

    /// Whether all of a gang is in one pool of the innermost queue that requires a choice of them. (A gang that is to be
    /// near to nodes follows these.)
    pub(crate) fn check_one_pool(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        let Some(job) = self.jobs.get(&start.id.job).filter(|job| !resumes(job, start)) else { return };
        let path = self.queues.path(&job.queue).into_iter();
        let mut choices = path.filter(|queue| !queue.nodes.or_any && queue.nodes.pools.len() > 1);
        let Some(queue) = choices.next().filter(|_| start.gang.topology.near.is_empty()) else { return };
        let nodes: Vec<&Node> = start.nodes().into_iter().filter_map(|name| self.nodes.get(name)).collect();
        let holds_all = |pool: &Pool| nodes.iter().all(|node| self.has_node(pool, node));
        if !queue.nodes.pools.iter().any(holds_all) {
            found.push(Violation::InSeveralPools { gang: start.id, queue: queue.name.clone() });
        }
    }

    /// A queue on the path of a queue that requires pools, none of which has the node.
    fn queue_without(&self, queue: &QueueName, node: &Node) -> Option<QueueName> {
        let path = self.queues.path(queue).into_iter();
        let mut required = path.filter(|queue| !queue.nodes.or_any && !queue.nodes.pools.is_empty());
        required
            .find(|queue| !queue.nodes.pools.iter().any(|pool| self.has_node(pool, node)))
            .map(|queue| queue.name.clone())
    }

    fn has_node(&self, pool: &Pool, node: &Node) -> bool {
        for (level, domain) in &pool.path {
            let mut around = self.levels.iter().flat_map(|levels| &levels.above).zip(&node.path);
            if !around.any(|(at, own)| at == level && own == domain) {
                return false;
            }
        }
        for set in &pool.sets {
            if !node.sets.contains(set) && !node.labels.contains(set) {
                return false;
            }
        }
        if let Some(model) = &pool.model {
            let model = model.to_lowercase();
            let mut models = node.machine.devices.iter().map(|device| device.model.to_lowercase());
            if models.len() == 0 || models.any(|of| !of.contains(&model)) {
                return false;
            }
        }
        pool.nodes.is_empty() || pool.nodes.contains(&node.name)
    }
}
