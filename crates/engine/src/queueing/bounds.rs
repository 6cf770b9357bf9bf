//! Whether a queue has room for a gang more: its limits, and what is kept for others.

use phalanx_model::{QueueBound, QueueLimit, QueueName};

use super::goods::fits;
use super::queues::{QueueAt, Queues, ROOT};

/// What stands in the way, and at which queue: when less is used there, there may be room.
#[derive(Clone, Debug)]
pub(crate) struct Full {
    pub(crate) at: QueueAt,
    pub(crate) limit: QueueLimit,
}

impl Queues {
    /// Whether a gang of a queue may have so much more. What does not make way is given nothing that is guaranteed to
    /// others, so that every guarantee can be reached.
    pub(crate) fn room(&self, leaf: QueueAt, bill: &[u128], is_fixed: bool) -> Result<(), Full> {
        if !self.at(leaf).is_told && !self.configured().is_empty() {
            return Err(self.full(leaf, leaf, QueueBound::Gone, [0; 3]));
        }
        for at in self.path(leaf) {
            let node = self.at(at);
            let running_max = node.queue.as_ref().and_then(|queue| queue.caps.running_max);
            if let Some(most) = running_max.filter(|most| node.running >= *most) {
                let counts = [node.running.into(), 1, most.into()];
                return Err(self.full(leaf, at, QueueBound::Running, counts));
            }
            if !fits(&node.used, bill, &node.limit) {
                let over = |good: &usize| node.used[*good] + bill[*good] > node.limit[*good];
                let good = (0..bill.len()).filter(|good| bill[*good] > 0).find(over).unwrap_or(0);
                let bound = QueueBound::Limit(self.goods.all()[good].clone());
                return Err(self.full(leaf, at, bound, [node.used[good], bill[good], node.limit[good]]));
            }
        }
        self.room_beside(leaf, bill, is_fixed)
    }

    /// Whether it leaves what others keep.
    fn room_beside(&self, leaf: QueueAt, bill: &[u128], is_fixed: bool) -> Result<(), Full> {
        for good in (0..bill.len()).filter(|good| bill[*good] > 0) {
            let all = self.capacity[good];
            let kept = self.with_more(leaf, bill[good], |at| {
                let node = self.at(at);
                (node.committed[good], node.committed_below[good], node.kept[good])
            });
            let bound = || QueueBound::Kept(self.goods.all()[good].clone());
            let root = self.at(ROOT);
            // Where nobody keeps anything, hardware is the only bound.
            let is_kept = root.committed[good] > root.used[good];
            if is_kept && kept > root.committed[good] && kept > all {
                return Err(self.full(leaf, ROOT, bound(), [root.committed[good], bill[good], all]));
            }
            if !is_fixed || !self.is_guaranteed(good) {
                continue;
            }
            let secured = self.with_more(leaf, bill[good], |at| {
                let node = self.at(at);
                (node.secured[good], node.secured_below[good], node.guaranteed[good])
            });
            if secured > root.secured[good] && secured > all {
                return Err(self.full(leaf, ROOT, bound(), [root.secured[good], bill[good], all]));
            }
        }
        Ok(())
    }

    /// Goods of which more is kept for somebody than is in use.
    pub(crate) fn kept_goods(&self) -> usize {
        let root = self.at(ROOT);
        root.committed.iter().zip(&root.used).filter(|(committed, used)| committed > used).count()
    }

    /// What the sum at the root would be with so much more in a queue. `terms`: of a queue the sum, what it is without
    /// its floor, and the floor.
    fn with_more(&self, leaf: QueueAt, more: u128, terms: impl Fn(QueueAt) -> (u128, u128, u128)) -> u128 {
        let mut rise = more;
        for at in self.path(leaf) {
            let (sum, loose, floor) = terms(at);
            rise = (loose + rise).max(floor) - sum;
        }
        let (sum, _, _) = terms(ROOT);
        sum + rise
    }

    /// Whether any queue is guaranteed something of a good.
    pub(crate) fn is_guaranteed(&self, good: usize) -> bool {
        self.at(ROOT).children.iter().any(|top| self.at(*top).guaranteed[good] > 0)
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
