//! The fair share of each queue: its guarantee, and its part by weight of what the other queues leave, in devices.
//!
//! Weighted max-min fairness by water filling, from the root inwards: no queue has a larger fair share than it uses and
//! wants, nor larger than its limit; nor have queues that are restricted to the same pools together more than there is
//! in these. What one queue leaves is divided among the others. Fair shares depend on requests,
//! not on which gangs run, so a preemption changes no fair share.

use std::collections::{BTreeMap, BTreeSet};

use super::pools::SharedAt;
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

    /// Whether [`Self::divide_fair_shares`] would change nothing.
    pub(super) fn are_fair_shares_up_to_date(&self) -> bool {
        let of = &self.fair_shares.of;
        of.len() == self.nodes.len()
            && of.get(ROOT as usize) == Some(&self.capacity[GPUS])
            && self.fair_shares.stale.is_empty()
    }

    /// The devices that a queue would use if it could.
    fn asked(&self, at: QueueAt) -> u128 {
        let node = self.at(at);
        let bound = self.pools.of(at).map_or(u128::MAX, |shared| self.pools.devices(shared));
        self.requested(at).min(node.limit[GPUS]).min(bound)
    }

    /// What a queue uses and wants; of what queues below it want, what their pools have.
    fn requested(&self, at: QueueAt) -> u128 {
        let requested = |at: QueueAt| self.at(at).used[GPUS] + self.at(at).wanted[GPUS];
        if !self.pools.are_below(at) {
            return requested(at);
        }
        let children = &self.at(at).children;
        let own = requested(at).saturating_sub(children.iter().map(|child| requested(*child)).sum());
        let mut of_pools: BTreeMap<SharedAt, u128> = BTreeMap::new();
        let mut below = 0;
        for child in children {
            match self.pools.of(*child) {
                Some(shared) => *of_pools.entry(shared).or_default() += self.asked(*child),
                None => below += self.asked(*child),
            }
        }
        let of_pools = of_pools.into_iter().map(|(shared, asked)| asked.min(self.pools.devices(shared)));
        own + below + of_pools.sum::<u128>()
    }

    /// The fair share of a queue, divided among its children.
    fn parts(&self, at: QueueAt, fair_share: u128) -> Vec<(QueueAt, u128)> {
        let children = &self.at(at).children;
        let mut left = Left { all: fair_share, of_pools: BTreeMap::new() };
        let mut parts = Vec::with_capacity(children.len());
        let mut thirsty: Vec<Thirsty> = Vec::with_capacity(children.len());
        for (index, child) in children.iter().enumerate() {
            let (asked, pool) = (self.asked(*child), self.pools.of(*child));
            let own = asked.min(self.at(*child).guaranteed[GPUS]).min(left.for_one(self, pool));
            left.take(self, pool, own);
            parts.push((*child, own));
            if asked > own {
                let (more, weight) = (asked - own, self.weight(*child));
                thirsty.push(Thirsty {
                    height: more * LEVEL / weight,
                    child: *child,
                    index,
                    more,
                    weight,
                    pool,
                });
            }
        }
        thirsty.sort_unstable_by_key(|of| (of.height, of.child));
        self.fill_pools(&mut left, &mut thirsty, &mut parts);
        fill(&thirsty, left.all, |of, more| parts[of.index].1 += more);
        parts
    }

    /// Divides the pools that do not hold what their queues would get if these were not restricted to them, and takes these
    /// queues out of those that are left. As the water rises higher for the others, such pools hold too little all the more.
    fn fill_pools(&self, left: &mut Left, thirsty: &mut Vec<Thirsty>, parts: &mut [(QueueAt, u128)]) {
        while thirsty.iter().any(|of| of.pool.is_some()) {
            let mut sums: BTreeMap<SharedAt, u128> = BTreeMap::new();
            fill(thirsty, left.all, |of, more| {
                of.pool.into_iter().for_each(|pool| *sums.entry(pool).or_default() += more);
            });
            sums.retain(|pool, sum| *sum > left.for_one(self, Some(*pool)));
            if sums.is_empty() {
                return;
            }
            let mut full: BTreeMap<SharedAt, Vec<Thirsty>> = BTreeMap::new();
            for of in std::mem::take(thirsty) {
                match of.pool.filter(|pool| sums.contains_key(pool)) {
                    Some(pool) => full.entry(pool).or_default().push(of),
                    None => thirsty.push(of),
                }
            }
            for (pool, inside) in full {
                fill(&inside, left.for_one(self, Some(pool)), |of, more| {
                    parts[of.index].1 += more;
                    left.take(self, Some(pool), more);
                });
            }
        }
    }

    fn weight(&self, at: QueueAt) -> u128 {
        let weight = self.at(at).queue.as_ref().map_or(1_000, |queue| queue.weight_milli);
        u128::from(weight.max(1))
    }
}

/// Fine enough that queues that reach enough at different heights have different values.
const LEVEL: u128 = 1_000;

/// A queue that asks for more than its guarantee.
struct Thirsty {
    /// The height to which the water has to rise until the queue has enough.
    height: u128,
    child: QueueAt,
    index: usize,
    more: u128,
    weight: u128,
    /// The pools that it is restricted to.
    pool: Option<SharedAt>,
}

/// The devices that are not divided yet: of all, and of the pools of which some are.
struct Left {
    all: u128,
    of_pools: BTreeMap<SharedAt, u128>,
}

impl Left {
    fn for_one(&self, queues: &Queues, pool: Option<SharedAt>) -> u128 {
        let there = |pool| self.of_pools.get(&pool).copied().unwrap_or_else(|| queues.pools.devices(pool));
        pool.map_or(u128::MAX, there).min(self.all)
    }

    fn take(&mut self, queues: &Queues, pool: Option<SharedAt>, part: u128) {
        self.all -= part;
        if let Some(pool) = pool {
            *self.of_pools.entry(pool).or_insert_with(|| queues.pools.devices(pool)) -= part;
        }
    }
}

/// Divides an amount by weight among queues in the order of their heights; none has more than it asks for.
fn fill(thirsty: &[Thirsty], amount: u128, mut give: impl FnMut(&Thirsty, u128)) {
    let mut left = amount;
    let mut weights: u128 = thirsty.iter().map(|of| of.weight).sum();
    for of in thirsty {
        let more = (left * of.weight / weights.max(1)).min(of.more);
        left -= more;
        weights -= of.weight;
        give(of, more);
    }
}
