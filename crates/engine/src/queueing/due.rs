//! What is due to each queue: its guarantee, and its part by weight of what the others leave, in devices.
//!
//! Weighted max-min fairness by water filling, from the root inwards: nobody is due more than it uses and wants, nor more
//! than its limit; what one leaves is divided among the others. It rests on what is asked for, not on who runs, so an
//! eviction changes nobody's due.

use std::collections::BTreeSet;

use super::goods::GPUS;
use super::queues::{QueueAt, Queues, ROOT};

/// The last division: only where something else is asked for, or to be divided, is it made anew.
#[derive(Clone, Debug, Default)]
pub(crate) struct Due {
    /// By queue, in thousandths of a device.
    of: Vec<u128>,
    /// Queues whose part is to be divided anew, by depth.
    pub(super) stale: BTreeSet<(u32, QueueAt)>,
}

impl Queues {
    /// By queue, in thousandths of a device; as it was at the last [`Self::divide_anew`].
    pub(crate) fn due(&self) -> &[u128] {
        &self.due.of
    }

    /// The same as things stand, counted from nothing.
    pub(crate) fn due_now(&self) -> Vec<u128> {
        let mut due = vec![0; self.nodes.len()];
        due[ROOT as usize] = self.capacity[GPUS];
        let mut next = vec![ROOT];
        while let Some(at) = next.pop() {
            for (child, part) in self.parts(at, due[at as usize]) {
                due[child as usize] = part;
                next.push(child);
            }
        }
        due
    }

    /// Something else is asked for below a queue, or it is asked for otherwise.
    pub(super) fn asks_otherwise(&mut self, above: QueueAt) {
        self.due.stale.insert((self.at(above).depth, above));
    }

    /// All of it has to be divided anew.
    pub(super) fn undivide(&mut self) {
        self.due.of = vec![0; self.nodes.len()];
        let above = (0..).zip(&self.nodes).filter(|(_, node)| !node.children.is_empty());
        self.due.stale = above.map(|(at, node)| (node.depth, at)).collect();
    }

    /// Brings all dues up to date. What changed in nothing that is asked for keeps its due.
    pub(crate) fn divide_anew(&mut self) {
        self.due.of.resize(self.nodes.len(), 0);
        self.due.of[ROOT as usize] = self.capacity[GPUS];
        // Outermost first: what is due to a queue is known before it is divided.
        while let Some((_, at)) = self.due.stale.pop_first() {
            for (child, part) in self.parts(at, self.due.of[at as usize]) {
                if std::mem::replace(&mut self.due.of[child as usize], part) == part {
                    continue;
                }
                self.is_due_otherwise(child, part);
                if !self.at(child).children.is_empty() {
                    self.asks_otherwise(child);
                }
            }
        }
    }

    /// What a queue would use if it could.
    fn asked(&self, at: QueueAt) -> u128 {
        let node = self.at(at);
        (node.used[GPUS] + node.wanted[GPUS]).min(node.limit[GPUS])
    }

    /// What is due to a queue, divided among those below it.
    fn parts(&self, at: QueueAt, due: u128) -> Vec<(QueueAt, u128)> {
        let children = &self.at(at).children;
        let mut left = due;
        let mut parts = Vec::with_capacity(children.len());
        // How far the water has to rise until somebody has enough.
        let mut thirsty: Vec<(u128, QueueAt, usize)> = Vec::with_capacity(children.len());
        for (index, child) in children.iter().enumerate() {
            let asked = self.asked(*child);
            let own = asked.min(self.at(*child).guaranteed[GPUS]).min(left);
            left -= own;
            parts.push((*child, own));
            if asked > own {
                thirsty.push(((asked - own) * LEVEL / self.weight(*child), *child, index));
            }
        }
        thirsty.sort_unstable();
        let mut weights: u128 = thirsty.iter().map(|(_, child, _)| self.weight(*child)).sum();
        for (_, child, index) in thirsty {
            let (weight, own) = (self.weight(child), parts[index].1);
            let more = (left * weight / weights.max(1)).min(self.asked(child) - own);
            parts[index].1 += more;
            left -= more;
            weights -= weight;
        }
        parts
    }

    fn weight(&self, at: QueueAt) -> u128 {
        let weight = self.at(at).queue.as_ref().map_or(1_000, |queue| queue.weight_milli);
        u128::from(weight.max(1))
    }
}

/// Fine enough that different queues are enough at different heights.
const LEVEL: u128 = 1_000;
