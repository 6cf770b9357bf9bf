//! Entitlements of gangs: within a guarantee, within a fair share, or within neither. Entitlements decide which gang
//! may preempt which.
//!
//! In each queue, gangs are counted in the order of their order keys, those within the guarantee of a queue below
//! first. A gang is within the guarantee as long as the sum up to this gang is, and a gang that is too large is
//! skipped. So the entitlement of a gang changes only by gangs before it in that order. A gang that is preempted or
//! ends for another reason is no longer counted, though it still holds its capacity: another gang is already counted
//! for its placement. `docs/design/0002-eviction.md` proves that with this no gangs can preempt each other in turn.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use phalanx_model::{GangId, Timestamp};

use super::preemption_rules::{Claim, Contender, Rule};
use super::queues::{Holder, HolderKey, QueueAt, Queues, ROOT};
use super::resources::{GPUS, add};

/// The entitlement of a gang: a gang preempts only gangs of a smaller entitlement. Compared from the first field on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entitlement {
    /// Depth of the innermost queue within whose guarantee the gang is; 0 if it is within none, [`OWN`] for its own
    /// queue.
    pub(crate) guaranteed: u32,
    /// Depth of the innermost queue within whose fair share the gang is.
    pub(crate) fair_share: u32,
    pub(crate) rank: i32,
    /// The service level, which counts only among gangs of one queue.
    pub(crate) level: Reverse<u32>,
}

impl Entitlement {
    /// The entitlement of a gang that is within nothing.
    fn at(holder_key: HolderKey) -> Self {
        Self { rank: holder_key.rank.0, level: Reverse(holder_key.level), ..Self::default() }
    }

    /// The entitlement as gangs of other queues compare it.
    pub(crate) fn without_level(self) -> Self {
        Self { level: Reverse(0), ..self }
    }
}

/// The depth that means "within its own queue's", however deep that queue is.
pub(crate) const OWN: u32 = u32::MAX;

const fn depth_in(gang: &Counted<'_>, at: QueueAt, depth: u32) -> u32 {
    if gang.queue == at { OWN } else { depth }
}

/// All gangs that hold capacity and their entitlements, by outermost queue: an entitlement depends only on gangs of the
/// same outermost queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entitlements {
    tops: BTreeMap<QueueAt, Top>,
    /// Entitlements of gangs that gangs of other outermost queues might preempt, and the time from which one gang of
    /// each may be preempted.
    outside: BTreeMap<Entitlement, BTreeSet<(Timestamp, QueueAt)>>,
    /// Outermost queues whose entitlements must be counted again.
    stale: BTreeSet<QueueAt>,
    /// By queue: the range of fair shares within which the same gangs stay within the fair share.
    same_fair_share: Vec<Range<u128>>,
}

impl Entitlements {
    fn put(&mut self, at: QueueAt, top: Top) {
        for (queue, range) in &top.same_fair_share {
            let index = *queue as usize;
            if self.same_fair_share.len() <= index {
                self.same_fair_share.resize(index + 1, 0..0);
            }
            self.same_fair_share[index] = range.clone();
        }
        let before = self.tops.remove(&at).unwrap_or_default();
        for (entitlement, from) in before.ways_outside {
            if let Some(all) = self.outside.get_mut(&entitlement) {
                all.remove(&(from, at));
            }
        }
        for (entitlement, from) in &top.ways_outside {
            self.outside.entry(*entitlement).or_default().insert((*from, at));
        }
        self.tops.insert(at, top);
    }
}

/// See [`Queues::as_counted`].
pub(crate) struct CountedFrom {
    tops: BTreeSet<QueueAt>,
    fair_shares: BTreeSet<(u32, QueueAt)>,
}

/// The gangs of one outermost queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Top {
    gangs: Vec<(HolderKey, Contender)>,
    /// The distinct entitlements of gangs that may be preempted, by queue, and the time from which one such gang may be
    /// preempted.
    ways: Vec<(Contender, Timestamp)>,
    /// The same as gangs of other outermost queues compare them: these distinguish only whether a gang is within the
    /// guarantee or the fair share of the outermost queue.
    ways_outside: Vec<(Entitlement, Timestamp)>,
    same_fair_share: Vec<(QueueAt, Range<u128>)>,
}

/// A gang while it is counted from the leaves to the root.
#[derive(Clone, Copy)]
struct Counted<'a> {
    holder_key: HolderKey,
    queue: QueueAt,
    holder: &'a Holder,
    entitlement: Entitlement,
}

impl Queues {
    /// Marks the entitlements of a queue as stale: its holders or its fair share changed.
    pub(super) fn stands_otherwise(&mut self, at: QueueAt) {
        let top = self.at(at).top;
        self.entitlements.stale.insert(top);
    }

    /// Records that the fair share of a queue changed.
    pub(super) fn note_fair_share(&mut self, at: QueueAt, part: u128) {
        if self.entitlements.same_fair_share.get(at as usize).is_none_or(|same| !same.contains(&part)) {
            self.stands_otherwise(at);
        }
    }

    /// The entitlements and fair shares that must be counted again. A caller that changes something and changes it back
    /// restores this state with [`Self::counts_as`].
    pub(crate) fn as_counted(&self) -> CountedFrom {
        CountedFrom { tops: self.entitlements.stale.clone(), fair_shares: self.fair_shares.stale.clone() }
    }

    pub(crate) fn counts_as(&mut self, before: CountedFrom) {
        (self.entitlements.stale, self.fair_shares.stale) = (before.tops, before.fair_shares);
    }

    /// Forgets all counted gangs.
    pub(super) fn uncount(&mut self) {
        self.entitlements = Entitlements::default();
    }

    /// Brings fair shares and entitlements up to date. Unchanged parts are not counted again.
    pub(crate) fn count_anew(&mut self) {
        self.divide_fair_shares();
        while let Some(top) = self.entitlements.stale.pop_first() {
            let counted = self.counted(top);
            self.entitlements.put(top, counted);
        }
        debug_assert_eq!(self.fair_shares(), self.fair_shares_now(), "what changed was told");
        debug_assert!(self.entitlements.tops.iter().all(|(at, top)| *top == self.counted(*at)));
    }

    /// Queues whose fair shares and entitlements are up to date: a copy, if these are not.
    pub(crate) fn up_to_date(&self) -> Cow<'_, Self> {
        if self.entitlements.stale.is_empty() && self.are_fair_shares_up_to_date() {
            return Cow::Borrowed(self);
        }
        let mut counted = self.clone();
        counted.count_anew();
        Cow::Owned(counted)
    }

    fn counted(&self, top: QueueAt) -> Top {
        let mut counted = Vec::with_capacity(self.at(top).running as usize);
        let mut found = Top::default();
        self.count(top, None, &mut counted, &mut found.same_fair_share);
        found.gangs.reserve_exact(counted.len());
        found.ways.reserve_exact(counted.len());
        for gang in counted {
            let (contender, until) =
                (Contender { queue: gang.queue, entitlement: gang.entitlement }, gang.holder.stays_until);
            found.gangs.push((gang.holder_key, contender));
            if gang.holder.is_fixed {
                continue;
            }
            found.ways.push((contender, until));
            let outside = contender.entitlement.without_level();
            // Gangs of other outermost queues cannot preempt a gang within a guarantee.
            if outside.guaranteed == 0 {
                let seen = Entitlement { fair_share: outside.fair_share.min(1), ..outside };
                // There are few of these.
                match found.ways_outside.iter_mut().find(|(known, _)| *known == seen) {
                    Some((_, earliest)) => *earliest = until.min(*earliest),
                    None => found.ways_outside.push((seen, until)),
                }
            }
        }
        // The earliest of each: gangs that are entitled alike mostly follow each other, and few differ.
        found.ways.dedup_by(|(later, until), (earlier, earliest)| {
            let is_alike = later == earlier;
            if is_alike {
                *earliest = (*earliest).min(*until);
            }
            is_alike
        });
        found.ways.sort_unstable();
        found.ways.dedup_by_key(|(contender, _)| *contender);
        found
    }

    /// The time from which any gang may be preempted for a gang of a queue, whatever the entitlement of the latter;
    /// `None` if no gang ever may. Gangs that had more service and may not be preempted yet are left out: the ledger
    /// knows when they may be.
    pub(crate) fn first_below(
        &self,
        queue: QueueAt,
        (rank, level): (i32, u32),
        amounts: &[u128],
        now: Timestamp,
    ) -> Option<Timestamp> {
        let level = Reverse(level);
        let best =
            Contender { queue, entitlement: Entitlement { guaranteed: OWN, fair_share: OWN, rank, level } };
        let claim = self.claim_of(queue, amounts);
        let own = self.at(queue).top;
        let outside =
            self.outside_below(best, &claim).filter_map(|all| all.iter().find(|(_, top)| *top != own));
        let inside = self.inside_below(best, &claim);
        let inside = inside.filter(|(rule, from)| *rule != Rule::LessServed || *from <= now);
        outside.map(|(from, _)| *from).chain(inside.map(|(_, from)| from)).min()
    }

    /// Gangs that may be preempted by a gang that wants their capacity, and what they hold, in no particular order.
    /// Gangs of other outermost queues are judged together if they have equal entitlements.
    pub(crate) fn below<'a>(
        &'a self,
        wants: Contender,
        claim: &'a Claim,
    ) -> impl Iterator<Item = (GangId, Contender, &'a Holder)> {
        let own = self.at(wants.queue).top;
        let others: BTreeSet<QueueAt> = self
            .outside_below(wants, claim)
            .flatten()
            .map(|(_, top)| *top)
            .filter(|top| *top != own)
            .collect();
        let inside = self.entitlements.tops.get(&own).into_iter().flat_map(|top| &top.gangs);
        let inside = inside.filter(move |(_, contender)| self.rule(wants, *contender, claim).is_some());
        let others = others.into_iter().filter_map(|at| self.entitlements.tops.get(&at));
        let alike = others.flat_map(|top| {
            top.gangs.chunk_by(|(_, one), (_, other)| {
                one.entitlement.without_level() == other.entitlement.without_level()
            })
        });
        let is_below = move |alike: &&[(HolderKey, Contender)]| {
            alike.first().is_some_and(|(_, contender)| self.rule(wants, *contender, claim).is_some())
        };
        let outside = alike.filter(is_below).flatten();
        inside.chain(outside).filter_map(|(holder_key, contender)| {
            let holder =
                self.at(contender.queue).holders.get(holder_key).filter(|holder| !holder.is_fixed)?;
            Some((holder_key.gang, *contender, holder))
        })
    }

    /// The entitlements of gangs that hold capacity.
    pub(crate) fn contenders(&self) -> impl Iterator<Item = (GangId, Contender)> + '_ {
        let gangs = self.entitlements.tops.values().flat_map(|top| &top.gangs);
        gangs.map(|(holder_key, contender)| (holder_key.gang, *contender))
    }

    /// Gangs of other outermost queues that may be preempted: by entitlement, the times from which they may be, and
    /// their queues.
    fn outside_below<'a>(
        &'a self,
        wants: Contender,
        claim: &'a Claim,
    ) -> impl Iterator<Item = &'a BTreeSet<(Timestamp, QueueAt)>> {
        let is_below = move |entitlement: &Entitlement| {
            self.rule(wants, Contender { queue: ROOT, entitlement: *entitlement }, claim).is_some()
        };
        let all = &self.entitlements.outside;
        all.iter().filter(move |(entitlement, _)| is_below(entitlement)).map(|(_, from)| from)
    }

    /// The preemption rules by which gangs of the same outermost queue may be preempted, and the times from which they
    /// may be.
    fn inside_below<'a>(
        &'a self,
        wants: Contender,
        claim: &'a Claim,
    ) -> impl Iterator<Item = (Rule, Timestamp)> {
        let top = self.entitlements.tops.get(&self.at(wants.queue).top);
        let ways = top.into_iter().flat_map(|top| &top.ways);
        ways.filter_map(move |(contender, from)| Some((self.rule(wants, *contender, claim)?, *from)))
    }

    /// The entitlement that a gang of a queue would have if it held these amounts beside the gangs before it in order.
    pub(crate) fn entitlement_with(
        &self,
        queue: QueueAt,
        holder_key: HolderKey,
        holder: &Holder,
    ) -> Entitlement {
        let mut counted = Vec::new();
        self.count(self.at(queue).top, Some((queue, holder_key, holder)), &mut counted, &mut Vec::new());
        let own = counted.iter().find(|gang| gang.holder_key.gang == holder_key.gang);
        own.map_or(Entitlement::at(holder_key), |gang| gang.entitlement)
    }

    /// Counts a queue and the queues below it.
    fn count<'a>(
        &'a self,
        at: QueueAt,
        more: Option<(QueueAt, HolderKey, &'a Holder)>,
        counted: &mut Vec<Counted<'a>>,
        same_fair_share: &mut Vec<(QueueAt, Range<u128>)>,
    ) {
        let (node, first) = (self.at(at), counted.len());
        node.children.iter().for_each(|child| self.count(*child, more, counted, same_fair_share));
        let new = |holder_key: HolderKey, holder| Counted {
            holder_key,
            queue: at,
            holder,
            entitlement: Entitlement::at(holder_key),
        };
        let stays = node.holders.iter().filter(|(_, holder)| !holder.leaves);
        counted.extend(stays.map(|(holder_key, holder)| new(*holder_key, holder)));
        if let Some((_, holder_key, holder)) = more.filter(|(queue, ..)| *queue == at) {
            // At its place in the order of the queue; gangs of queues below it are sorted in afterwards.
            let before = counted[first..].partition_point(|gang| gang.holder_key < holder_key);
            counted.insert(first + before, new(holder_key, holder));
        }
        let own = &mut counted[first..];
        // No two gangs have the same key, and the gangs of one queue are in its order already.
        if !node.children.is_empty() {
            own.sort_unstable_by_key(|gang| (Reverse(gang.entitlement.guaranteed), gang.holder_key));
        }
        let mut sum = vec![0; self.resources.len()];
        for gang in own.iter_mut() {
            if self.is_within_guarantee(at, &sum, &gang.holder.amounts) {
                add(&mut sum, &gang.holder.amounts);
                gang.entitlement.guaranteed = gang.entitlement.guaranteed.max(depth_in(gang, at, node.depth));
            }
        }
        own.sort_unstable_by_key(|gang| {
            (Reverse(gang.entitlement.guaranteed), Reverse(gang.entitlement.fair_share), gang.holder_key)
        });
        let (mut sum, most) = (0, self.fair_shares().get(at as usize).copied().unwrap_or(0));
        let mut same = 0..u128::MAX;
        for gang in own {
            let with_it = sum + gang.holder.amounts[GPUS];
            if with_it <= most {
                sum = with_it;
                gang.entitlement.fair_share = gang.entitlement.fair_share.max(depth_in(gang, at, node.depth));
            } else {
                same.end = same.end.min(with_it);
            }
        }
        same.start = sum;
        same_fair_share.push((at, same));
    }

    /// The depth down to which the paths of two queues are the same: 0 if they meet at the root only.
    pub(crate) fn common_depth(&self, one: QueueAt, other: QueueAt) -> u32 {
        if self.at(one).top != self.at(other).top {
            return 0;
        }
        let (mut one, mut other) = (one, other);
        while one != other {
            let is_deeper = self.at(one).depth >= self.at(other).depth;
            let deeper = if is_deeper { &mut one } else { &mut other };
            *deeper = self.at(*deeper).parent;
        }
        self.at(one).depth
    }
}
