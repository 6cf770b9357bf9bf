//! What gangs stand within: guarantees, due shares, or neither. This decides who may evict whom.
//!
//! In each queue, gangs are counted in the order of their seats, those within the guarantee of a queue below first; a gang
//! is within the guarantee as long as the sum up to it is, and one that is too large is passed over. So what a gang stands
//! within changes only by gangs that stand before it. `docs/design/0002-eviction.md` proves that with this nobody can
//! evict in turn.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{GangId, Timestamp};

use super::goods::{GPUS, add};
use super::queues::{Holder, QueueAt, Queues, Seat};
use super::right::{Claim, Party, Right};

/// How well a gang is founded: more evicts less. Compared from the first field on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Standing {
    /// Depth of the innermost queue within whose guarantee it is; 0: of none, [`OWN`]: of its own.
    pub(crate) guaranteed: u32,
    /// Depth of the innermost queue within whose due share it is.
    pub(crate) due: u32,
    pub(crate) rank: i32,
}

/// Within what is its own queue's, however deep that stands.
pub(crate) const OWN: u32 = u32::MAX;

const fn depth_in(gang: &Counted<'_>, at: QueueAt, depth: u32) -> u32 {
    if gang.queue == at { OWN } else { depth }
}

/// Everybody who holds capacity, and what each stands within, by outermost queue: what one stands within depends on those
/// of the same outermost queue alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standings {
    tops: BTreeMap<QueueAt, Top>,
    /// Outermost queues to be counted anew.
    stale: BTreeSet<QueueAt>,
}

/// Those of one outermost queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Top {
    gangs: Vec<(Seat, Party)>,
    /// How those stand that may have to make way, each queue's own once, and from when one of those does.
    ways: BTreeMap<Party, Timestamp>,
    /// The same as others see it, who ask for the outermost queue only.
    ways_outside: BTreeMap<Party, Timestamp>,
}

/// A gang on its way from the leaves to the root.
#[derive(Clone, Copy)]
struct Counted<'a> {
    seat: Seat,
    queue: QueueAt,
    holder: &'a Holder,
    standing: Standing,
}

impl Queues {
    /// Who holds capacity in a queue, or what is due to it, is not as it was.
    pub(super) fn stands_otherwise(&mut self, at: QueueAt) {
        let top = self.at(at).top;
        self.standings.stale.insert(top);
    }

    /// Nobody is counted.
    pub(super) fn uncount(&mut self) {
        self.standings = Standings::default();
    }

    /// Brings dues and standings up to date. What did not change is not counted again.
    pub(crate) fn count_anew(&mut self) {
        self.divide_anew();
        while let Some(top) = self.standings.stale.pop_first() {
            let counted = self.counted(top);
            self.standings.tops.insert(top, counted);
        }
        debug_assert_eq!(self.due(), self.due_now(), "what changed was told");
        debug_assert!(self.standings.tops.iter().all(|(at, top)| *top == self.counted(*at)));
    }

    fn counted(&self, top: QueueAt) -> Top {
        let mut counted = Vec::new();
        self.count(top, None, &mut counted);
        let mut found = Top::default();
        for gang in counted {
            let (party, until) =
                (Party { queue: gang.queue, standing: gang.standing }, gang.holder.stays_until);
            found.gangs.push((gang.seat, party));
            if gang.holder.is_fixed {
                continue;
            }
            let seen = [(&mut found.ways, party), (&mut found.ways_outside, Party { queue: top, ..party })];
            for (ways, party) in seen {
                let earliest = ways.entry(party).or_insert(until);
                *earliest = until.min(*earliest);
            }
        }
        found
    }

    /// From when anybody has to make way for a gang of a queue, however well that stands; none if nobody ever does.
    pub(crate) fn first_below(&self, queue: QueueAt, rank: i32, bill: &[u128]) -> Option<Timestamp> {
        let best = Party { queue, standing: Standing { guaranteed: OWN, due: OWN, rank } };
        let claim = self.claim_of(queue, bill);
        self.ways_below(best, &claim).map(|(_, from)| from).min()
    }

    /// Gangs that have to make way for one that wants their capacity, by what right, and what they hold; in no order that
    /// means anything.
    pub(crate) fn below<'a>(
        &'a self,
        wants: Party,
        claim: &'a Claim,
    ) -> impl Iterator<Item = (GangId, Party, Right, &'a Holder)> {
        let mut tops: Vec<&Top> = self.ways_below(wants, claim).map(|(top, _)| top).collect();
        tops.dedup_by(|one, other| std::ptr::eq(*one, *other));
        tops.into_iter().flat_map(|top| &top.gangs).filter_map(move |(seat, party)| {
            let right = self.right(wants, *party, claim)?;
            let holder = self.at(party.queue).holders.get(seat).filter(|holder| !holder.is_fixed)?;
            Some((seat.gang, *party, right, holder))
        })
    }

    /// How a gang stands that holds capacity.
    pub(crate) fn party(&self, queue: QueueAt, seat: Seat) -> Option<Party> {
        let top = self.standings.tops.get(&self.at(queue).top)?;
        top.gangs.iter().find(|(other, _)| *other == seat).map(|(_, party)| *party)
    }

    /// The ways to stand of those that have to make way, each with its outermost queue and from when one of them does.
    fn ways_below<'a>(
        &'a self,
        wants: Party,
        claim: &'a Claim,
    ) -> impl Iterator<Item = (&'a Top, Timestamp)> {
        let own = self.at(wants.queue).top;
        let ways = self.standings.tops.iter().flat_map(move |(at, top)| {
            let ways = if *at == own { &top.ways } else { &top.ways_outside };
            ways.iter().map(move |(party, from)| (top, party, *from))
        });
        ways.filter(move |(_, party, _)| self.right(wants, **party, claim).is_some())
            .map(|(top, _, from)| (top, from))
    }

    /// What a gang of a queue would stand within, if it held this beside those that stand before it.
    pub(crate) fn standing_with(&self, queue: QueueAt, seat: Seat, holder: &Holder) -> Standing {
        let mut counted = Vec::new();
        self.count(self.at(queue).top, Some((queue, seat, holder)), &mut counted);
        let own = counted.iter().find(|gang| gang.seat.gang == seat.gang);
        own.map_or(Standing { rank: seat.rank.0, ..Standing::default() }, |gang| gang.standing)
    }

    /// Counts a queue and those below it.
    fn count<'a>(
        &'a self,
        at: QueueAt,
        more: Option<(QueueAt, Seat, &'a Holder)>,
        counted: &mut Vec<Counted<'a>>,
    ) {
        let (node, first) = (self.at(at), counted.len());
        node.children.iter().for_each(|child| self.count(*child, more, counted));
        let new = |seat: Seat, holder| Counted {
            seat,
            queue: at,
            holder,
            standing: Standing { rank: seat.rank.0, ..Standing::default() },
        };
        counted.extend(node.holders.iter().map(|(seat, holder)| new(*seat, holder)));
        counted.extend(more.filter(|(queue, _, _)| *queue == at).map(|(_, seat, holder)| new(seat, holder)));
        let own = &mut counted[first..];
        own.sort_by_key(|gang| (Reverse(gang.standing.guaranteed), gang.seat));
        let mut sum = vec![0; self.goods.len()];
        for gang in own.iter_mut() {
            if self.is_owed(at, &sum, &gang.holder.bill) {
                add(&mut sum, &gang.holder.bill);
                gang.standing.guaranteed = gang.standing.guaranteed.max(depth_in(gang, at, node.depth));
            }
        }
        own.sort_by_key(|gang| (Reverse(gang.standing.guaranteed), Reverse(gang.standing.due), gang.seat));
        let (mut sum, most) = (0, self.due().get(at as usize).copied().unwrap_or(0));
        for gang in own {
            let devices = gang.holder.bill[GPUS];
            if sum + devices <= most {
                sum += devices;
                gang.standing.due = gang.standing.due.max(depth_in(gang, at, node.depth));
            }
        }
    }

    /// The depth down to which two queues are one: 0 where they meet at the root only.
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
