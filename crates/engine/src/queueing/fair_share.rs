//! The fair share of each queue: its guarantee, and its part by weight of what the other queues leave, in devices.
//!
//! Weighted max-min fairness by water filling, from the root inwards: no queue has a larger fair share than it uses and
//! wants, nor larger than its limit; what one queue leaves is divided among the others. Fair shares depend on requests,
//! not on which gangs run, so a preemption changes no fair share.

use std::collections::BTreeSet;

use super::queues::{QueueAt, Queues, ROOT};
use super::resources::GPUS;

/// The last division: only changed requests, or changed amounts to divide, cause another one.
#[derive(Clone, Debug, Default)]
pub(crate) struct FairShares {
    /// By queue, in thousandths of a device.
    of: Vec<u128>,
    /// Queues whose fair share must be divided again, by depth.
    pub(super) stale: BTreeSet<(u32, QueueAt)>,
}

impl Queues {
    /// The fair shares by queue, in thousandths of a device, as they were at the last [`Self::divide_fair_shares`].
    pub(crate) fn fair_shares(&self) -> &[u128] {
        &self.fair_shares.of
    }

    /// The current fair shares, counted from nothing.
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

    /// Records that the requests below a queue changed.
    pub(super) fn demand_changed(&mut self, above: QueueAt) {
        self.fair_shares.stale.insert((self.at(above).depth, above));
    }

    /// Marks every fair share as stale.
    pub(super) fn undivide(&mut self) {
        self.fair_shares.of = vec![0; self.nodes.len()];
        let above = (0..).zip(&self.nodes).filter(|(_, node)| !node.children.is_empty());
        self.fair_shares.stale = above.map(|(at, node)| (node.depth, at)).collect();
    }

    /// Brings all fair shares up to date. A queue keeps its fair share if no request that affects it changed.
    pub(crate) fn divide_fair_shares(&mut self) {
        self.fair_shares.of.resize(self.nodes.len(), 0);
        self.fair_shares.of[ROOT as usize] = self.capacity[GPUS];
        // Outermost first: the fair share of a queue is known before it is divided.
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

    /// The devices that a queue would use if it could.
    fn asked(&self, at: QueueAt) -> u128 {
        let node = self.at(at);
        (node.used[GPUS] + node.wanted[GPUS]).min(node.limit[GPUS])
    }

    /// The fair share of a queue, divided among its children.
    fn parts(&self, at: QueueAt, fair_share: u128) -> Vec<(QueueAt, u128)> {
        let children = &self.at(at).children;
        let mut left = fair_share;
        let mut parts = Vec::with_capacity(children.len());
        // The height to which the water has to rise until a queue has enough.
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

/// Fine enough that queues that reach enough at different heights have different values.
const LEVEL: u128 = 1_000;
