//! By what right one gang evicts another, if any.

use std::cmp::{Ordering, Reverse};

use phalanx_model::{ClassName, EvictionRule, GangId, JobId, QueueName, Reclaim, Timestamp};

use super::goods::GPUS;
use super::owed::Standing;
use super::queues::{QueueAt, Queues, Seat};

/// Queues beside each other that are looked at one by one.
const SIBLINGS_MAX: usize = 8;

/// A gang that holds capacity or wants it, as the rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Party {
    pub(crate) queue: QueueAt,
    pub(crate) standing: Standing,
}

/// Depths of the innermost queues that stay within their guarantee and their due share with a gang more; 0: none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    guaranteed: u32,
    due: u32,
}

/// The rule, before it is put into names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    Guarantee,
    FairShare,
    Class,
    LessServed,
}

impl Queues {
    /// Whether there may come to be somebody whom a gang of a queue may evict, as shares shift. (Where it is so, there may
    /// still be nobody.)
    pub(crate) fn may_evict(&self, queue: QueueAt, rank: i32, bill: &[u128]) -> bool {
        if self.lowest_rank().is_some_and(|lowest| lowest < rank) {
            return true;
        }
        let is_fair = self.settings().reclaim == Reclaim::FairShare;
        let due = self.due();
        self.path(queue).any(|at| {
            let node = self.at(at);
            let is_owed = self.asks_within(at, bill);
            let is_due = is_fair && node.used[GPUS] + bill[GPUS] <= due[at as usize];
            let siblings = self.at(node.parent).children.iter().filter(|other| **other != at);
            let mut siblings = siblings.map(|other| (self.at(*other), *other as usize));
            (is_owed || is_due)
                && siblings.any(|(other, index)| {
                    let borrows = || other.used.iter().zip(&other.guaranteed).any(|(used, own)| used > own);
                    is_owed && borrows() || is_due && other.used[GPUS] > due[index]
                })
        })
    }

    /// Whether it takes but a look to see that nobody makes way for a gang of a queue: nobody is of a lower class, and
    /// nobody holds anything outside of the queues that it is in.
    pub(crate) fn is_unrivalled(&self, queue: QueueAt, rank: i32) -> bool {
        let is_alone = |at: QueueAt| {
            let siblings = &self.at(self.at(at).parent).children;
            let is_idle = |other: &&QueueAt| **other == at || self.at(**other).running == 0;
            siblings.len() <= SIBLINGS_MAX && siblings.iter().all(|other| is_idle(&other))
        };
        self.lowest_rank().is_none_or(|lowest| lowest >= rank) && self.path(queue).all(is_alone)
    }

    /// Down to which queue a gang's own, all that is used there counted, stays within the guarantee and the due share: a
    /// queue that is beyond them makes room among its own first.
    pub(crate) fn claim_of(&self, queue: QueueAt, bill: &[u128]) -> Claim {
        let due = self.due();
        let depth_of = |is_within: &dyn Fn(QueueAt) -> bool| {
            self.path(queue).find(|at| is_within(*at)).map_or(0, |at| self.at(at).depth)
        };
        Claim {
            guaranteed: depth_of(&|at| self.is_owed(at, &self.at(at).used, bill)),
            due: depth_of(&|at| self.at(at).used[GPUS] + bill[GPUS] <= due[at as usize]),
        }
    }

    /// Whether a gang of a queue would stay within a guarantee on its path.
    pub(crate) fn is_owed_in(&self, queue: QueueAt, bill: &[u128]) -> bool {
        self.path(queue).any(|at| self.is_owed(at, &self.at(at).used, bill))
    }

    /// A gang evicts only one that stands worse: by the guarantee of a queue that the other is outside of, then by the due
    /// share, then by class where both are founded alike.
    pub(crate) fn right(&self, wants: Party, holds: Party, claim: &Claim) -> Option<Right> {
        let is_fair = self.settings().reclaim == Reclaim::FairShare;
        if wants.queue == holds.queue {
            return self.right_in_queue(wants.standing, holds.standing, is_fair);
        }
        let (mine, other) = (wants.standing.without_level(), holds.standing.without_level());
        if mine <= other {
            return None;
        }
        // Seen from where the two part: within what is the own of the queues below that, and of those they share.
        let common = self.common_depth(wants.queue, holds.queue);
        let is_mine = |depth: u32| depth > common;
        if is_mine(other.guaranteed) || mine.guaranteed.min(common) < other.guaranteed {
            return None;
        }
        if is_mine(mine.guaranteed) && is_mine(claim.guaranteed) {
            return Some(Right::Guarantee);
        }
        if is_fair && mine.due.min(common) < other.due.min(common) {
            return None;
        }
        if is_fair && is_mine(mine.due) && !is_mine(other.due) && is_mine(claim.due) {
            return Some(Right::FairShare);
        }
        let is_as_due = !is_fair || is_mine(mine.due) || !is_mine(other.due);
        (is_as_due && mine.rank > other.rank).then_some(Right::Class)
    }

    /// The same of two gangs of one queue, founded alike: by class, and then by who had less service.
    fn right_in_queue(&self, mine: Standing, other: Standing, is_fair: bool) -> Option<Right> {
        if mine.guaranteed < other.guaranteed || is_fair && mine.due < other.due {
            return None;
        }
        let had_less = mine.level > other.level;
        match mine.rank.cmp(&other.rank) {
            Ordering::Greater => Some(Right::Class),
            Ordering::Equal => had_less.then_some(Right::LessServed),
            Ordering::Less => None,
        }
    }

    /// Whether a gang of a class that holds capacity in a queue had more service than one on this level.
    pub(crate) fn has_served_more(&self, queue: QueueAt, rank: i32, level: u32) -> bool {
        let of_rank = |level, submitted_at, gang| Seat { rank: Reverse(rank), level, submitted_at, gang };
        let last = of_rank(u32::MAX, Timestamp::MAX, GangId { job: JobId(u64::MAX), index: u16::MAX });
        let most = self.at(queue).holders.range(..=last).next_back().map(|(seat, _)| *seat);
        most.is_some_and(|seat| seat.rank == last.rank && seat.level > level)
    }

    /// Whether a gang that waits may have members that one that runs can do without: it is of no lower class, and takes
    /// nothing that is the own of queues to which only the other belongs.
    pub(crate) fn may_shrink(&self, wants: Party, holds: Party) -> bool {
        let (mine, other) = (wants.standing, holds.standing);
        let common = self.common_depth(wants.queue, holds.queue);
        let is_as_good = |mine: u32, other: u32| other <= common || mine > common;
        let is_founded = is_as_good(mine.guaranteed, other.guaranteed) && is_as_good(mine.due, other.due);
        mine.rank >= other.rank && (wants.queue == holds.queue || is_founded)
    }

    pub(crate) fn rule(&self, right: Right, wants: Party, holds: Party, claim: &Claim) -> EvictionRule {
        let named = |queue: QueueAt, depth: u32| {
            let at = self.path(queue).find(|at| self.at(*at).depth == depth).unwrap_or(queue);
            self.at(at).queue.as_ref().map_or_else(nobody, |queue| queue.name.clone())
        };
        // The queue whose own it is, and the one that has more than its own.
        let depth = if right == Right::Guarantee { claim.guaranteed } else { claim.due };
        let queue = named(wants.queue, depth);
        let borrower = named(holds.queue, self.common_depth(wants.queue, holds.queue) + 1);
        let class = |rank: i32| {
            let known = self.settings().classes.iter().find(|class| class.rank == rank);
            known.map_or_else(|| self.settings().default_class.clone(), |class| class.name.clone())
        };
        let classes: (ClassName, ClassName) = (class(wants.standing.rank), class(holds.standing.rank));
        match right {
            Right::Guarantee => EvictionRule::Guarantee { queue, borrower },
            Right::FairShare => EvictionRule::FairShare { queue, borrower },
            Right::Class => EvictionRule::Class { class: classes.0, over: classes.1 },
            Right::LessServed => EvictionRule::LessServed {
                queue: named(wants.queue, self.at(wants.queue).depth),
                level: wants.standing.level.0,
                over: holds.standing.level.0,
            },
        }
    }
}

fn nobody() -> QueueName {
    QueueName::new("cluster").unwrap_or_else(|_| unreachable!("a constant name"))
}
