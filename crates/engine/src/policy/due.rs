//! What is due to each queue: its guarantee, and its part by weight of what the others leave, in devices.
//!
//! Weighted max-min fairness by water filling, from the root inwards: nobody is due more than it uses and wants, nor more
//! than its limit; what one leaves is divided among the others. It rests on what is asked for, not on who runs, so an
//! eviction changes nobody's due.

use super::goods::GPUS;
use super::queues::{QueueAt, Queues, ROOT};

impl Queues {
    /// By queue, in thousandths of a device.
    pub(crate) fn due(&self) -> Vec<u128> {
        let mut due = vec![0; self.nodes.len()];
        due[ROOT as usize] = self.capacity[GPUS];
        let mut next = vec![ROOT];
        while let Some(at) = next.pop() {
            self.divide(at, &mut due);
            next.extend(&self.at(at).children);
        }
        due
    }

    /// What a queue would use if it could.
    fn asked(&self, at: QueueAt) -> u128 {
        let node = self.at(at);
        (node.used[GPUS] + node.wanted[GPUS]).min(node.limit[GPUS])
    }

    fn divide(&self, at: QueueAt, due: &mut [u128]) {
        let children = &self.at(at).children;
        let mut left = due[at as usize];
        let mut thirsty: Vec<(u128, QueueAt)> = Vec::with_capacity(children.len());
        for child in children {
            let own = self.asked(*child).min(self.at(*child).guaranteed[GPUS]).min(left);
            left -= own;
            due[*child as usize] = own;
            let thirst = self.asked(*child) - own;
            if thirst > 0 {
                // How far the water has to rise until it has enough.
                thirsty.push((thirst * LEVEL / self.weight(*child), *child));
            }
        }
        thirsty.sort_unstable();
        let mut weights: u128 = thirsty.iter().map(|(_, child)| self.weight(*child)).sum();
        for (_, child) in thirsty {
            let weight = self.weight(child);
            let part = left * weight / weights.max(1);
            let more = part.min(self.asked(child) - due[child as usize]);
            due[child as usize] += more;
            left -= more;
            weights -= weight;
        }
    }

    fn weight(&self, at: QueueAt) -> u128 {
        let weight = self.at(at).queue.as_ref().map_or(1_000, |queue| queue.weight_milli);
        u128::from(weight.max(1))
    }
}

/// Fine enough that different queues are enough at different heights.
const LEVEL: u128 = 1_000;
