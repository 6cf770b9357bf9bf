//! The rule by which one gang preempts another, if any.

use std::cmp::{Ordering, Reverse};

use phalanx_model::{ClassName, GangId, JobId, PreemptionRule, QueueName, Reclaim, Timestamp};

use super::entitlement::Entitlement;
use super::queues::{HolderKey, QueueAt, Queues};
use super::resources::GPUS;

/// The most sibling queues that are checked one by one.
const SIBLINGS_MAX: usize = 8;

/// A gang that holds capacity or wants it, as the preemption rules compare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Contender {
    pub(crate) queue: QueueAt,
    pub(crate) entitlement: Entitlement,
}

/// Depths of the innermost queues that stay within their guarantee and their fair share with one more gang; 0 if none
/// does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    guaranteed: u32,
    fair_share: u32,
}

/// The rule, before it is given the names of queues and classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    Guarantee,
    FairShare,
    Class,
    LessServed,
}

impl Queues {
    /// Whether a gang of a queue may come to have victims as fair shares shift. (If so, there may still be none.)
    pub(crate) fn may_evict(&self, queue: QueueAt, rank: i32, amounts: &[u128]) -> bool {
        if self.lowest_rank().is_some_and(|lowest| lowest < rank) {
            return true;
        }
        let is_fair = self.settings().reclaim == Reclaim::FairShare;
        let fair_share = self.fair_shares();
        self.path(queue).any(|at| {
            let node = self.at(at);
            let is_guaranteed = self.fits_guarantee(at, amounts);
            let is_within_fair_share = is_fair && node.used[GPUS] + amounts[GPUS] <= fair_share[at as usize];
            let siblings = self.at(node.parent).children.iter().filter(|other| **other != at);
            let mut siblings = siblings.map(|other| (self.at(*other), *other as usize));
            (is_guaranteed || is_within_fair_share)
                && siblings.any(|(other, index)| {
                    let borrows = || other.used.iter().zip(&other.guaranteed).any(|(used, own)| used > own);
                    is_guaranteed && borrows() || is_within_fair_share && other.used[GPUS] > fair_share[index]
                })
        })
    }

    /// Whether a short check shows that no gang is preempted for a gang of a queue: no gang is of a lower class, and no
    /// gang outside of the queues on its path holds anything.
    pub(crate) fn is_unrivalled(&self, queue: QueueAt, rank: i32) -> bool {
        let is_alone = |at: QueueAt| {
            let siblings = &self.at(self.at(at).parent).children;
            let is_idle = |other: &&QueueAt| **other == at || self.at(**other).running == 0;
            siblings.len() <= SIBLINGS_MAX && siblings.iter().all(|other| is_idle(&other))
        };
        self.lowest_rank().is_none_or(|lowest| lowest >= rank) && self.path(queue).all(is_alone)
    }

    /// The depths down to which the queues of a gang, with all that is used there, stay within the guarantee and the
    /// fair share: a queue that is beyond them makes room among its own gangs first.
    pub(crate) fn claim_of(&self, queue: QueueAt, amounts: &[u128]) -> Claim {
        let fair_share = self.fair_shares();
        let depth_of = |is_within: &dyn Fn(QueueAt) -> bool| {
            self.path(queue).find(|at| is_within(*at)).map_or(0, |at| self.at(at).depth)
        };
        Claim {
            guaranteed: depth_of(&|at| self.is_within_guarantee(at, &self.at(at).used, amounts)),
            fair_share: depth_of(&|at| self.at(at).used[GPUS] + amounts[GPUS] <= fair_share[at as usize]),
        }
    }

    /// Whether a gang of a queue would stay within a guarantee of a queue on its path.
    pub(crate) fn is_within_a_guarantee(&self, queue: QueueAt, amounts: &[u128]) -> bool {
        self.path(queue).any(|at| self.is_within_guarantee(at, &self.at(at).used, amounts))
    }

    /// The same for a gang whose amounts the queue is charged for already.
    pub(crate) fn stays_within_a_guarantee(&self, queue: QueueAt, amounts: &[u128]) -> bool {
        self.path(queue).any(|at| self.stays_within_guarantee(at, amounts))
    }

    /// The rule by which one gang may preempt another, which must have a smaller entitlement: first by the guarantee of
    /// a queue that the other gang is outside of, then by the fair share, then by class if both have equal
    /// entitlements.
    pub(crate) fn rule(&self, wants: Contender, holds: Contender, claim: &Claim) -> Option<Rule> {
        let is_fair = self.settings().reclaim == Reclaim::FairShare;
        if wants.queue == holds.queue {
            return self.rule_in_queue(wants.entitlement, holds.entitlement, is_fair);
        }
        let (mine, other) = (wants.entitlement.without_level(), holds.entitlement.without_level());
        if mine <= other {
            return None;
        }
        // Seen from where the two paths part: within the guarantees and fair shares of the queues below, and of those
        // that both share.
        let common = self.common_depth(wants.queue, holds.queue);
        let is_mine = |depth: u32| depth > common;
        if is_mine(other.guaranteed) || mine.guaranteed.min(common) < other.guaranteed {
            return None;
        }
        if is_mine(mine.guaranteed) && is_mine(claim.guaranteed) {
            return Some(Rule::Guarantee);
        }
        if is_fair && mine.fair_share.min(common) < other.fair_share.min(common) {
            return None;
        }
        if is_fair && is_mine(mine.fair_share) && !is_mine(other.fair_share) && is_mine(claim.fair_share) {
            return Some(Rule::FairShare);
        }
        let is_no_less_entitled = !is_fair || is_mine(mine.fair_share) || !is_mine(other.fair_share);
        (is_no_less_entitled && mine.rank > other.rank).then_some(Rule::Class)
    }

    /// The same for two gangs of one queue with equal entitlements: by class, and then by less service.
    fn rule_in_queue(&self, mine: Entitlement, other: Entitlement, is_fair: bool) -> Option<Rule> {
        if mine.guaranteed < other.guaranteed || is_fair && mine.fair_share < other.fair_share {
            return None;
        }
        let had_less = mine.level > other.level;
        match mine.rank.cmp(&other.rank) {
            Ordering::Greater => Some(Rule::Class),
            Ordering::Equal => had_less.then_some(Rule::LessServed),
            Ordering::Less => None,
        }
    }

    /// Whether a gang of a class that holds capacity in a queue had more service than a gang on this level.
    pub(crate) fn has_served_more(&self, queue: QueueAt, rank: i32, level: u32) -> bool {
        let of_rank =
            |level, submitted_at, gang| HolderKey { rank: Reverse(rank), level, submitted_at, gang };
        let last = of_rank(u32::MAX, Timestamp::MAX, GangId { job: JobId(u64::MAX), index: u32::MAX });
        let most = self.at(queue).holders.range(..=last).next_back().map(|(holder_key, _)| *holder_key);
        most.is_some_and(|holder_key| holder_key.rank == last.rank && holder_key.level > level)
    }

    /// Whether a pending gang may have surplus members of a running gang: it is of no lower class, and takes nothing
    /// that belongs to queues that only the running gang is in.
    pub(crate) fn may_shrink(&self, wants: Contender, holds: Contender) -> bool {
        let (mine, other) = (wants.entitlement, holds.entitlement);
        let common = self.common_depth(wants.queue, holds.queue);
        let is_as_good = |mine: u32, other: u32| other <= common || mine > common;
        let is_founded =
            is_as_good(mine.guaranteed, other.guaranteed) && is_as_good(mine.fair_share, other.fair_share);
        mine.rank >= other.rank && (wants.queue == holds.queue || is_founded)
    }

    pub(crate) fn named_rule(
        &self,
        rule: Rule,
        wants: Contender,
        holds: Contender,
        claim: &Claim,
    ) -> PreemptionRule {
        let named = |queue: QueueAt, depth: u32| {
            let at = self.path(queue).find(|at| self.at(*at).depth == depth).unwrap_or(queue);
            self.at(at).queue.as_ref().map_or_else(nobody, |queue| queue.name.clone())
        };
        // The queue whose own it is, and the queue that uses more than its own.
        let depth = if rule == Rule::Guarantee { claim.guaranteed } else { claim.fair_share };
        let queue = named(wants.queue, depth);
        let borrower = named(holds.queue, self.common_depth(wants.queue, holds.queue) + 1);
        let class = |rank: i32| {
            let known = self.settings().classes.iter().find(|class| class.rank == rank);
            known.map_or_else(|| self.settings().default_class.clone(), |class| class.name.clone())
        };
        let classes: (ClassName, ClassName) = (class(wants.entitlement.rank), class(holds.entitlement.rank));
        match rule {
            Rule::Guarantee => PreemptionRule::Guarantee { queue, borrower },
            Rule::FairShare => PreemptionRule::FairShare { queue, borrower },
            Rule::Class => PreemptionRule::Class { class: classes.0, over: classes.1 },
            Rule::LessServed => PreemptionRule::LessServed {
                queue: named(wants.queue, self.at(wants.queue).depth),
                level: wants.entitlement.level.0,
                over: holds.entitlement.level.0,
            },
        }
    }
}

fn nobody() -> QueueName {
    QueueName::new("cluster").unwrap_or_else(|_| unreachable!("a constant name"))
}
