//! The service that gangs had, by levels: in queues that order by service, a gang on a lower level goes first.

use phalanx_model::{GangId, Job, Queue, QueueOrder, Served};

use super::queues::{HolderKey, QueueAt, Queues};

impl Queues {
    /// The order of the queue of a job, as far as it concerns the job: by the order of queues that say none, only jobs that
    /// save their work make way.
    pub(crate) fn order_of(&self, job: &Job) -> Option<&QueueOrder> {
        let queue = self.find(&job.queue).and_then(|at| self.at(at).queue.as_ref());
        let said = queue.and_then(|queue| queue.order.as_ref());
        said.or_else(|| job.saves_work().then_some(&self.settings().order))
    }

    /// The order of a queue.
    pub(super) fn order_in<'a>(&'a self, queue: &'a Queue) -> &'a QueueOrder {
        queue.order.as_ref().unwrap_or(&self.settings().order)
    }

    /// The recorded level of a gang: 0 in queues that do not order by service.
    pub(crate) fn level_of(&self, gang: GangId) -> u32 {
        self.levels.get(&gang).copied().unwrap_or(0)
    }

    /// Sets the level of a gang by the service that it had. If the gang holds capacity, its order key has the new level
    /// from now on. Returns whether the level changed.
    pub(crate) fn note_service(&mut self, job: &Job, gang: GangId, served: Served) -> bool {
        let level = self.order_of(job).map_or(0, |order| order.level_of(served));
        if level == self.level_of(gang) {
            return false;
        }
        let before = self.holder_key_of(job, gang);
        self.levels.insert(gang, level);
        if let Some(queue) = self.find(&job.queue) {
            self.reseat(queue, before, HolderKey { level, ..before });
        }
        true
    }

    pub(crate) fn forget_service(&mut self, gang: GangId) {
        self.levels.remove(&gang);
    }

    fn reseat(&mut self, queue: QueueAt, before: HolderKey, holder_key: HolderKey) {
        let holders = &mut self.nodes[queue as usize].holders;
        if let Some(holder) = holders.remove(&before) {
            holders.insert(holder_key, holder);
            self.stands_otherwise(queue);
        }
    }
}
