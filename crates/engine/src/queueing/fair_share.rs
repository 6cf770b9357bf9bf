//! What is due to each queue: its guarantee, and its part by weight of what the others leave, in devices.
//!
//! Weighted max-min fairness by water filling, from the root inwards: nobody is due more than it uses and wants, nor more
//! than its limit; what one leaves is divided among the others. It rests on what is asked for, not on who runs, so an
//! eviction changes nobody's due.

use std::collections::BTreeSet;

use super::queues::{QueueAt, Queues, ROOT};
use super::resources::GPUS;

/// The last division: only where something else is asked for, or to be divided, is it made anew.
#[derive(Clone, Debug, Default)]
pub(crate) struct FairShares {
    /// By queue, in thousandths of a device.
    of: Vec<u128>,
    /// Queues whose part is to be divided anew, by depth.
    pub(super) stale: BTreeSet<(u32, QueueAt)>,
}

impl Queues {
    /// By queue, in thousandths of a device; as it was at the last [`Self::divide_fair_shares`].
    pub(crate) fn fair_shares(&self) -> &[u128] {
        &self.fair_shares.of
    }

    /// The same as things stand, counted from nothing.
    pub(crate) fn fair_shares_now(&self) -> Vec<u128> {
        let mut fair_share = vec![0; self.nodes.len()];
        fair_share[ROOT as usize] = self.capacity[GPUS];
        let mut next = vec![ROOT];
        while let Some(at) = next.pop() {
            for (child, part) in self.parts(at, fair_share[at as usize]) {
                fair_share[child as usize] = part;
                next.push(child);
            }
        }
        fair_share
    }

    /// Something else is asked for below a queue, or it is asked for otherwise.
    pub(super) fn demand_changed(&mut self, above: QueueAt) {
        self.fair_shares.stale.insert((self.at(above).depth, above));
    }

    /// All of it has to be divided anew.
    pub(super) fn undivide(&mut self) {
        self.fair_shares.of = vec![0; self.nodes.len()];
        let above = (0..).zip(&self.nodes).filter(|(_, node)| !node.children.is_empty());
        self.fair_shares.stale = above.map(|(at, node)| (node.depth, at)).collect();
    }

    /// Brings all dues up to date. What changed in nothing that is asked for keeps its due.
    pub(crate) fn divide_fair_shares(&mut self) {
        self.fair_shares.of.resize(self.nodes.len(), 0);
        self.fair_shares.of[ROOT as usize] = self.capacity[GPUS];
        // Outermost first: what is due to a queue is known before it is divided.
        while let Some((_, at)) = self.fair_shares.stale.pop_first() {
            for (child, part) in self.parts(at, self.fair_shares.of[at as usize]) {
                if std::mem::replace(&mut self.fair_shares.of[child as usize], part) == part {
                    continue;
                }
                self.note_fair_share(child, part);
                if !self.at(child).children.is_empty() {
                    self.demand_changed(child);
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
    fn parts(&self, at: QueueAt, fair_share: u128) -> Vec<(QueueAt, u128)> {
        let children = &self.at(at).children;
        let mut left = fair_share;
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
