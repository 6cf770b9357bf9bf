//! Whether a queue has room for one more gang: the limits of the queue, and the guarantees that are kept for other
//! queues.

use phalanx_model::{QueueBound, QueueLimit, QueueName};

use super::queues::{QueueAt, Queues, ROOT};
use super::resources::fits;

/// The limit that is reached, and its queue: if less is used in that queue, there may be room.
#[derive(Clone, Debug)]
pub(crate) struct Full {
    pub(crate) at: QueueAt,
    pub(crate) limit: QueueLimit,
}

impl Queues {
    /// Checks that a gang of a queue may have so much more. A gang that cannot be preempted gets nothing that is
    /// guaranteed to other queues, so that every guarantee can be reached.
    pub(crate) fn room(&self, leaf: QueueAt, amounts: &[u128], is_fixed: bool) -> Result<(), Full> {
        self.within_limits(leaf, amounts)?;
        self.room_beside(leaf, amounts, is_fixed)
    }

    /// Checks that these amounts stay within the limits of a queue and of those that it is in.
    pub(crate) fn within_limits(&self, leaf: QueueAt, amounts: &[u128]) -> Result<(), Full> {
        if !self.at(leaf).is_configured && !self.configured().is_empty() {
            return Err(self.full(leaf, leaf, QueueBound::Gone, [0; 3]));
        }
        for at in self.path(leaf) {
            let node = self.at(at);
            let running_max = node.queue.as_ref().and_then(|queue| queue.caps.running_max);
            if let Some(most) = running_max.filter(|most| node.running >= *most) {
                let counts = [node.running.into(), 1, most.into()];
                return Err(self.full(leaf, at, QueueBound::Running, counts));
            }
            if !fits(&node.used, amounts, &node.limit) {
                let over =
                    |resource: &usize| node.used[*resource] + amounts[*resource] > node.limit[*resource];
                let resource =
                    (0..amounts.len()).filter(|resource| amounts[*resource] > 0).find(over).unwrap_or(0);
                let bound = QueueBound::Limit(self.resources.all()[resource].clone());
                return Err(self.full(
                    leaf,
                    at,
                    bound,
                    [node.used[resource], amounts[resource], node.limit[resource]],
                ));
            }
        }
        Ok(())
    }

    /// Checks that these amounts leave what other queues keep.
    fn room_beside(&self, leaf: QueueAt, amounts: &[u128], is_fixed: bool) -> Result<(), Full> {
        for resource in (0..amounts.len()).filter(|resource| amounts[*resource] > 0) {
            let all = self.capacity[resource];
            let kept = self.with_more(leaf, amounts[resource], |at| {
                let node = self.at(at);
                (node.committed[resource], node.committed_below[resource], node.kept[resource])
            });
            let bound = || QueueBound::Kept(self.resources.all()[resource].clone());
            let root = self.at(ROOT);
            // If no queue keeps any of a resource, hardware is the only bound.
            let is_kept = root.committed[resource] > root.used[resource];
            if is_kept && kept > root.committed[resource] && kept > all {
                return Err(self.full(
                    leaf,
                    ROOT,
                    bound(),
                    [root.committed[resource], amounts[resource], all],
                ));
            }
            if !is_fixed || !self.is_guaranteed(resource) {
                continue;
            }
            let secured = self.with_more(leaf, amounts[resource], |at| {
                let node = self.at(at);
                (node.secured[resource], node.secured_below[resource], node.guaranteed[resource])
            });
            if secured > root.secured[resource] && secured > all {
                return Err(self.full(leaf, ROOT, bound(), [root.secured[resource], amounts[resource], all]));
            }
        }
        Ok(())
    }

    /// The number of resources of which queues keep more than is in use.
    pub(crate) fn kept_resources(&self) -> usize {
        let root = self.at(ROOT);
        root.committed.iter().zip(&root.used).filter(|(committed, used)| committed > used).count()
    }

    /// The sum at the root if a queue used so much more. `terms` gives, for a queue, its sum, its sum without its
    /// floor, and its floor.
    fn with_more(&self, leaf: QueueAt, more: u128, terms: impl Fn(QueueAt) -> (u128, u128, u128)) -> u128 {
        let mut rise = more;
        for at in self.path(leaf) {
            let (sum, loose, floor) = terms(at);
            rise = (loose + rise).max(floor) - sum;
        }
        let (sum, _, _) = terms(ROOT);
        sum + rise
    }

    /// Whether any queue is guaranteed some of a resource.
    pub(crate) fn is_guaranteed(&self, resource: usize) -> bool {
        self.at(ROOT).children.iter().any(|top| self.at(*top).guaranteed[resource] > 0)
    }

    fn full(&self, leaf: QueueAt, at: QueueAt, bound: QueueBound, amounts: [u128; 3]) -> Full {
        let [used, asked, most] = amounts.map(|amount| u64::try_from(amount).unwrap_or(u64::MAX));
        let named = if at == ROOT { leaf } else { at };
        let queue = self.at(named).queue.as_ref().map_or_else(unnamed, |queue| queue.name.clone());
        Full { at, limit: QueueLimit { queue, bound, used, asked, most } }
    }
}

fn unnamed() -> QueueName {
    QueueName::new("cluster").unwrap_or_else(|_| unreachable!("a constant name"))
}
