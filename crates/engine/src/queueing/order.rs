//! The order of pending gangs: between queues by what each uses beyond its guarantee and by its decayed usage, and
//! within a queue by class, priority and age.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use phalanx_model::{GangId, Timestamp};

use super::configured::DEPTH_MAX;
use super::fronts::{Front, InQueue, TopFronts};
use super::pending::{OrderKey, PendingQueue};
use super::queues::{QueueAt, Queues};
use super::request_class::{RequestClass, RequestClassId};

/// The position of a gang among all pending gangs: compared queue by queue from the outermost, and at each queue first
/// by whether the queue is within the guarantee, then by class, then by the share of the queue; of two queues with
/// equal shares, the queue with the longest-waiting gang goes first. That wait must belong to the queue and not to the
/// gang, or a later gang of a higher priority would come after an earlier gang of its own queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    steps: [Step; DEPTH_MAX],
    class: Reverse<i32>,
    order_key: OrderKey,
}

/// The position of one queue among its siblings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Step {
    is_beyond: bool,
    class: Reverse<i32>,
    share: u64,
    waits_since: Timestamp,
    pub(super) queue: QueueAt,
}

impl Rank {
    /// The position of the outermost queue.
    pub(super) const fn outermost(&self) -> Step {
        let [outermost, ..] = self.steps;
        outermost
    }
}

/// A gang that may go next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Next {
    pub(crate) rank: Rank,
    pub(crate) request: RequestClassId,
    pub(crate) queue: QueueAt,
}

impl Next {
    pub(crate) const fn gang(&self) -> GangId {
        self.rank.order_key.gang
    }
}

impl Queues {
    /// The position of a gang that needs at least these amounts.
    pub(crate) fn rank_in(&self, leaf: QueueAt, least: &[u128], class: i32, order_key: OrderKey) -> Rank {
        let mut steps = [Step::default(); DEPTH_MAX];
        for at in self.path(leaf) {
            let depth = self.at(at).depth as usize;
            if let Some(step) = steps.get_mut(depth.saturating_sub(1)) {
                *step = self.step(at, least, class);
            }
        }
        Rank { steps, class: Reverse(class), order_key }
    }

    /// The position of a queue for a gang that needs at least these amounts.
    pub(super) fn step(&self, at: QueueAt, least: &[u128], class: i32) -> Step {
        let node = self.at(at);
        Step {
            is_beyond: !self.is_within_guarantee(at, &node.used, least),
            class: Reverse(class),
            share: node.weighs,
            waits_since: node.waiting.first().map_or(Timestamp::MAX, |(at, _)| *at),
            queue: at,
        }
    }

    /// Whether a queue with so much in use is guaranteed so much more: of every resource that is guaranteed, and of at
    /// least one resource that is requested. Resources without a guarantee do not count.
    pub(crate) fn is_within_guarantee(&self, at: QueueAt, used: &[u128], amounts: &[u128]) -> bool {
        self.is_guaranteed_sum(at, used.iter().zip(amounts).map(|(used, asked)| (*asked, used + asked)))
    }

    /// The same if the amounts are part of what the queue uses.
    pub(super) fn stays_within_guarantee(&self, at: QueueAt, amounts: &[u128]) -> bool {
        self.is_guaranteed_sum(at, amounts.iter().zip(&self.at(at).used).map(|(asked, used)| (*asked, *used)))
    }

    /// The same if the queue used nothing.
    pub(super) fn fits_guarantee(&self, at: QueueAt, amounts: &[u128]) -> bool {
        self.is_guaranteed_sum(at, amounts.iter().map(|asked| (*asked, *asked)))
    }

    /// Compares two amounts of each resource: the requested amount, and the amount that would then be in use.
    fn is_guaranteed_sum(&self, at: QueueAt, resources: impl Iterator<Item = (u128, u128)>) -> bool {
        let mut asks_for_any = false;
        for ((asked, used), own) in resources.zip(&self.at(at).guaranteed) {
            if asked > 0 && *own > 0 {
                asks_for_any = true;
                if used > *own {
                    return false;
                }
            }
        }
        asks_for_any
    }
}

impl PendingQueue {
    /// The next gang of a request class in a queue.
    pub(crate) fn next_of(&self, queues: &Queues, request: RequestClassId, queue: QueueAt) -> Option<Next> {
        let asked = self.request(request);
        let order_key = asked.first_in(queue)?;
        let rank = queues.rank_in(queue, &asked.least, asked.key.rank, order_key);
        Some(Next { rank, request, queue })
    }

    /// The first of all gangs that may have a reservation, without the `skipped` gangs, each given with its queue.
    pub(crate) fn head(&mut self, queues: &Queues, skipped: &[(QueueAt, GangId)]) -> Option<Next> {
        let requests = &self.requests;
        let first_of = |fronts: &BTreeMap<QueueAt, Front>| {
            let first = |(queue, front): (&QueueAt, &Front)| {
                let (order_key, id) = first_in_front(requests, *queue, front, skipped)?;
                let asked = &requests[id as usize];
                let rank = queues.rank_in(*queue, &asked.least, asked.key.rank, order_key);
                Some(Next { rank, request: id, queue: *queue })
            };
            fronts.iter().filter_map(first).min()
        };
        let of_top = |(top, fronts): (QueueAt, &mut TopFronts)| {
            if skipped.iter().any(|(queue, _)| queues.at(*queue).top == top) {
                first_of(&fronts.queues)
            } else {
                fronts.first_at(queues.at(top).order_version, first_of)
            }
        };
        self.fronts.by_top().filter_map(of_top).min()
    }

    /// All pending gangs, in their current order.
    pub(crate) fn in_order(&self, queues: &Queues) -> Vec<GangId> {
        let rank = |(_, waiting): (GangId, super::pending::Waiting)| {
            let asked = self.request(waiting.request);
            queues.rank_in(waiting.queue, &asked.least, asked.key.rank, waiting.order_key)
        };
        let mut all: Vec<Rank> = self.waiting().map(rank).collect();
        all.sort_unstable();
        all.into_iter().map(|rank| rank.order_key.gang).collect()
    }
}

/// The first gang of a queue. A request class shows only its first gang: if that gang is skipped, the gangs behind it
/// compete with the first gangs of other classes.
fn first_in_front(
    requests: &[RequestClass],
    queue: QueueAt,
    front: &Front,
    skipped: &[(QueueAt, GangId)],
) -> Option<(OrderKey, RequestClassId)> {
    let is_skipped = |order_key: &OrderKey| skipped.iter().any(|(_, gang)| *gang == order_key.gang);
    let mut best: Option<(InQueue, RequestClassId)> = None;
    for ((rank, first), request) in front {
        if best.is_some_and(|(best, _)| best < (*rank, *first)) {
            break;
        }
        let mut gangs = requests[*request as usize].gangs_from(queue, *first);
        let found = gangs.find(|order_key| !is_skipped(order_key)).map(|key| ((*rank, key), *request));
        best = best.into_iter().chain(found).min();
    }
    best.map(|((_, order_key), request)| (order_key, request))
}
