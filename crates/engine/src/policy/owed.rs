//! What gangs stand within: guarantees, due shares, or neither. This decides who may evict whom.
//!
//! In each queue, gangs are counted in the order of their seats, those within the guarantee of a queue below first; a gang
//! is within the guarantee as long as the sum up to it is, and one that is too large is passed over. So what a gang stands
//! within changes only by gangs that stand before it. `docs/design/0002-eviction.md` proves that with this nobody can
//! evict in turn.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use phalanx_model::GangId;

use super::goods::{Bill, GPUS, add};
use super::queues::{QueueAt, Queues, ROOT, Seat};

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

/// Everybody who holds capacity, and what each stands within.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standings {
    of: BTreeMap<GangId, (QueueAt, Standing)>,
    due: Vec<u128>,
}

/// A gang on its way from the leaves to the root.
#[derive(Clone, Copy)]
struct Counted<'a> {
    seat: Seat,
    queue: QueueAt,
    bill: &'a Bill,
    standing: Standing,
}

impl Queues {
    pub(crate) fn standings(&self) -> Standings {
        let mut all = Standings { of: BTreeMap::new(), due: self.due() };
        let mut counted = Vec::new();
        self.count(ROOT, &all.due, None, &mut counted);
        all.of = counted.into_iter().map(|gang| (gang.seat.gang, (gang.queue, gang.standing))).collect();
        all
    }

    /// What a gang of a queue would stand within, if it held this beside those that stand before it.
    pub(crate) fn standing_with(&self, all: &Standings, queue: QueueAt, seat: Seat, bill: &Bill) -> Standing {
        let mut counted = Vec::new();
        let top = self.path(queue).last().unwrap_or(queue);
        self.count(top, &all.due, Some((queue, seat, bill)), &mut counted);
        let own = counted.iter().find(|gang| gang.seat.gang == seat.gang);
        own.map_or(Standing { rank: seat.rank.0, ..Standing::default() }, |gang| gang.standing)
    }

    /// Counts a queue and those below it.
    fn count<'a>(
        &'a self,
        at: QueueAt,
        due: &[u128],
        more: Option<(QueueAt, Seat, &'a Bill)>,
        counted: &mut Vec<Counted<'a>>,
    ) {
        let (node, first) = (self.at(at), counted.len());
        node.children.iter().for_each(|child| self.count(*child, due, more, counted));
        let new = |seat: Seat, bill| Counted {
            seat,
            queue: at,
            bill,
            standing: Standing { rank: seat.rank.0, ..Standing::default() },
        };
        counted.extend(node.holders.iter().map(|(seat, holder)| new(*seat, &holder.bill)));
        counted.extend(more.filter(|(queue, _, _)| *queue == at).map(|(_, seat, bill)| new(seat, bill)));
        if at == ROOT {
            return;
        }
        let own = &mut counted[first..];
        own.sort_by_key(|gang| (Reverse(gang.standing.guaranteed), gang.seat));
        let mut sum = vec![0; self.goods.len()];
        for gang in own.iter_mut() {
            if self.is_owed(at, &sum, gang.bill) {
                add(&mut sum, gang.bill);
                gang.standing.guaranteed = gang.standing.guaranteed.max(depth_in(gang, at, node.depth));
            }
        }
        own.sort_by_key(|gang| (Reverse(gang.standing.guaranteed), Reverse(gang.standing.due), gang.seat));
        let (mut sum, most) = (0, due.get(at as usize).copied().unwrap_or(0));
        for gang in own {
            let devices = gang.bill[GPUS];
            if sum + devices <= most {
                sum += devices;
                gang.standing.due = gang.standing.due.max(depth_in(gang, at, node.depth));
            }
        }
    }

    /// The depth down to which two queues are one: 0 where they meet at the root only.
    pub(crate) fn common_depth(&self, one: QueueAt, other: QueueAt) -> u32 {
        let mine: Vec<QueueAt> = self.path(one).collect();
        self.path(other).find(|at| mine.contains(at)).map_or(0, |at| self.at(at).depth)
    }
}

impl Standings {
    pub(crate) fn due(&self) -> &[u128] {
        &self.due
    }

    pub(crate) fn of(&self, gang: GangId) -> Option<(QueueAt, Standing)> {
        self.of.get(&gang).copied()
    }
}
