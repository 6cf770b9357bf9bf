//! Who waits. Gangs that ask for the same are one *ask*: what is found for one of them holds for all, so a step looks at
//! asks and not at gangs, and at an ask again only when something that it could use came free.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use phalanx_model::{GangId, Job, Reason, Timestamp};

use super::ask::{Ask, AskId, AskKey, Versions};
use super::bounds::Full;
use super::order::Next;
use super::queues::{QueueAt, Queues};
use crate::cluster::Tree;

/// The turn of a gang within its queue and class: less goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    /// Of service; 0 in queues that do not go by it.
    level: u32,
    key: i128,
    pub(crate) submitted_at: Timestamp,
    pub(crate) gang: GangId,
}

impl Turn {
    /// Waiting for `ageing_ms` counts as one more of priority. All age alike, so the order of two never changes.
    pub(crate) fn of(job: &Job, gang: GangId, level: u32, now: Timestamp, ageing_ms: u64) -> Self {
        let boost =
            job.turn.boost.as_ref().filter(|boost| boost.until > now).map_or(0, |boost| boost.priority);
        let priority = i128::from(job.priority) + i128::from(boost);
        let submitted = i128::from(job.submitted_at.0);
        let key = if ageing_ms == 0 { -priority } else { submitted - priority * i128::from(ageing_ms) };
        Self { level, key, submitted_at: job.submitted_at, gang }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) ask: AskId,
    pub(crate) queue: QueueAt,
    pub(crate) turn: Turn,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    asks: Vec<Ask>,
    spare: Vec<AskId>,
    index: BTreeMap<AskKey, AskId>,
    waiting: BTreeMap<GangId, Waiting>,
    /// All gangs of a queue, higher classes first.
    queues: BTreeMap<QueueAt, BTreeMap<(Reverse<i32>, Turn), AskId>>,
    /// Asks that found no room in a queue, by the queue whose bound it was.
    stuck_at: BTreeMap<QueueAt, BTreeSet<(AskId, QueueAt)>>,
    /// Asks by the fewest devices of a node that are a help to them.
    helped_from: BTreeMap<u32, u32>,
    /// Open asks that somebody waits with.
    ready: BTreeSet<AskId>,
    /// Asks with queues in which it was not looked yet for somebody who makes way.
    untried: BTreeSet<(QueueAt, AskId)>,
    /// Of those the ones that may be in `turns` already, and the others.
    turns: BinaryHeap<Reverse<Next>>,
    unranked: Vec<(QueueAt, AskId)>,
    /// Queues may be within their guarantees that were not, or wait for what others of theirs did not.
    regained: bool,
}

impl Line {
    pub(crate) fn ask(&self, id: AskId) -> &Ask {
        &self.asks[id as usize]
    }

    /// Whether any ask might use a node with so many free devices.
    pub(crate) fn wants(&self, devices: u32) -> bool {
        self.helped_from.first_key_value().is_some_and(|(from, _)| *from <= devices)
    }

    pub(crate) fn place_of(&self, gang: GangId) -> Option<Waiting> {
        self.waiting.get(&gang).copied()
    }

    /// Asks that may fit.
    pub(crate) fn ready(&self) -> impl Iterator<Item = AskId> + '_ {
        self.ready.iter().copied()
    }

    /// Every gang that waits, in no order that means anything.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (GangId, Waiting)> + '_ {
        self.waiting.iter().map(|(gang, waiting)| (*gang, *waiting))
    }

    /// Gangs that wait in a queue, each with its ask.
    pub(crate) fn in_queue(&self, queue: QueueAt) -> impl Iterator<Item = (GangId, AskId)> + '_ {
        let line = self.queues.get(&queue).into_iter().flatten();
        line.map(|((_, turn), ask)| (turn.gang, *ask))
    }

    /// How many of its queue and class go before a gang because they had less service.
    pub(crate) fn before_by_service(&self, gang: GangId) -> usize {
        let Some(place) = self.place_of(gang).filter(|place| place.turn.level > 0) else { return 0 };
        let rank = self.ask(place.ask).key.rank;
        let line = self.queues.get(&place.queue).into_iter().flatten();
        line.filter(|((of, turn), _)| of.0 == rank && turn.level < place.turn.level).count()
    }

    /// The lines of all queues.
    pub(crate) fn queues(&self) -> impl Iterator<Item = (QueueAt, &BTreeMap<(Reverse<i32>, Turn), AskId>)> {
        self.queues.iter().map(|(queue, line)| (*queue, line)).filter(|(_, line)| !line.is_empty())
    }

    /// A gang begins to wait.
    pub(crate) fn enlist(
        &mut self,
        queues: &mut Queues,
        tree: &Tree,
        key: AskKey,
        queue: QueueAt,
        turn: Turn,
    ) {
        if self.waiting.contains_key(&turn.gang) {
            return;
        }
        let rank = Reverse(key.rank);
        let ask = match self.index.get(&key) {
            Some(ask) => *ask,
            None => self.open(queues, tree, key),
        };
        let asked = &mut self.asks[ask as usize];
        if asked.join(queue, queues.at(queue).top, turn) {
            self.untried.insert((queue, ask));
            self.unranked.push((queue, ask));
            // What others of this ask found in the way may yield to its queue.
            self.regained = true;
        }
        queues.want(queue, &asked.least, true);
        queues.line_up(queue, turn, true);
        self.waiting.insert(turn.gang, Waiting { ask, queue, turn });
        self.queues.entry(queue).or_default().insert((rank, turn), ask);
        self.make_ready(ask);
    }

    /// Whoever waits with an ask is looked at, if that is open and there is room for somebody.
    fn make_ready(&mut self, ask: AskId) {
        let asked = self.ask(ask);
        if asked.is_open && asked.has_room() {
            self.ready.insert(ask);
        } else {
            self.ready.remove(&ask);
        }
    }

    fn open(&mut self, queues: &Queues, tree: &Tree, key: AskKey) -> AskId {
        let least = queues.goods.least(tree, queues.settings(), &key.gang);
        let ask = Ask::new(key.clone(), least);
        *self.helped_from.entry(ask.helped_from()).or_default() += 1;
        let id = match self.spare.pop() {
            Some(id) => {
                self.asks[id as usize] = ask;
                id
            }
            None => {
                self.asks.push(ask);
                u32::try_from(self.asks.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.index.insert(key, id);
        id
    }

    /// A gang no longer waits; nothing where it did not.
    pub(crate) fn delist(&mut self, queues: &mut Queues, gang: GangId) -> Option<Waiting> {
        let place = self.waiting.remove(&gang)?;
        let Waiting { ask, queue, turn } = place;
        let asked = &mut self.asks[ask as usize];
        queues.want(queue, &asked.least, false);
        queues.line_up(queue, turn, false);
        if let Some(line) = self.queues.get_mut(&queue) {
            line.remove(&(Reverse(asked.key.rank), turn));
        }
        if let Some(full) = asked.leave(queue, &turn) {
            self.untried.remove(&(queue, ask));
            full.iter().for_each(|full| self.forget_stuck(ask, queue, full));
        }
        self.make_ready(ask);
        let asked = &self.asks[ask as usize];
        if asked.is_empty() {
            let from = asked.helped_from();
            if let Some(count) = self.helped_from.get_mut(&from) {
                *count -= 1;
                if *count == 0 {
                    self.helped_from.remove(&from);
                }
            }
            self.index.remove(&asked.key);
            self.spare.push(ask);
        }
        Some(place)
    }

    /// It fits nowhere now.
    pub(crate) fn close(&mut self, ask: AskId, reason: Reason) {
        let asked = &mut self.asks[ask as usize];
        (asked.is_open, asked.reason) = (false, reason);
        self.ready.remove(&ask);
    }

    /// No place can be reserved for it as things are.
    pub(crate) fn give_up(&mut self, ask: AskId, at: Versions) {
        self.asks[ask as usize].hopeless_at = Some(at);
    }

    /// Something came free that it may use.
    pub(crate) fn reopen(&mut self, ask: AskId) {
        let asked = &mut self.asks[ask as usize];
        asked.is_open = true;
        self.make_ready(ask);
    }

    /// Whether it was not looked yet for somebody who makes way for an ask in a queue. (By what right depends on both.)
    pub(crate) fn is_untried(&self, ask: AskId, queue: QueueAt) -> bool {
        self.untried.contains(&(queue, ask))
    }

    /// Nobody was found: that is not looked for again before others move.
    pub(crate) fn tried(&mut self, ask: AskId, queue: QueueAt) {
        self.untried.remove(&(queue, ask));
    }

    /// The first of those whose ask is closed and for whom it was not looked yet for somebody who makes way. Turns that
    /// moved forward since they were ranked are not noticed before all are tried again.
    pub(crate) fn first_untried(&mut self, queues: &Queues) -> Option<Next> {
        for (queue, ask) in std::mem::take(&mut self.unranked) {
            let next =
                if self.untried.contains(&(queue, ask)) { self.next_of(queues, ask, queue) } else { None };
            self.turns.extend(next.map(Reverse));
        }
        while let Some(Reverse(next)) = self.turns.peek() {
            let (ask, queue) = (next.ask, next.queue);
            // Nobody makes way for who may fit, or could start farther apart.
            let asked = self.ask(ask);
            let is_full = !asked.is_open && !matches!(asked.reason, Reason::PreferredWait { .. });
            let waits = self.is_untried(ask, queue);
            if waits && !is_full {
                self.unranked.push((queue, ask));
            }
            let waits = waits && is_full;
            let current = if waits { self.next_of(queues, ask, queue) } else { None };
            match current {
                Some(current) if current == *next => return Some(current),
                // Others started before it meanwhile.
                Some(current) => {
                    self.turns.pop();
                    self.turns.push(Reverse(current));
                }
                // It comes back with room in its queue.
                None => {
                    self.turns.pop();
                }
            }
        }
        None
    }

    /// Somebody of a class had more service than one on a lower level: who waits there in its queue is looked at again.
    pub(crate) fn try_below(&mut self, queue: QueueAt, rank: i32, level: u32) {
        let line = self.queues.get(&queue).into_iter().flatten();
        let of_rank = line.skip_while(|((of, _), _)| of.0 > rank).take_while(|((of, _), _)| of.0 == rank);
        let below = of_rank.take_while(|((_, turn), _)| turn.level < level);
        let asks: BTreeSet<AskId> = below.map(|(_, ask)| *ask).collect();
        for ask in asks {
            if self.untried.insert((queue, ask)) {
                self.unranked.push((queue, ask));
            }
        }
    }

    /// It is looked for everybody again.
    pub(crate) fn try_all(&mut self) {
        let pairs = self.index.values().flat_map(|id| {
            let ask = &self.asks[*id as usize];
            ask.queues().map(|queue| (queue, *id))
        });
        self.untried = pairs.collect();
        self.turns.clear();
        self.unranked = self.untried.iter().copied().collect();
    }

    /// Asks that are known to fit nowhere.
    pub(crate) fn closed(&self) -> impl Iterator<Item = (AskId, &Ask)> {
        let known = self.index.values().map(|id| (*id, &self.asks[*id as usize]));
        known.filter(|(_, ask)| !ask.is_open)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = AskId> + '_ {
        self.index.values().copied()
    }

    /// A queue has no room for it.
    pub(crate) fn stick(&mut self, ask: AskId, queue: QueueAt, full: Full) {
        self.unstick(ask, queue);
        self.stuck_at.entry(full.at).or_default().insert((ask, queue));
        self.asks[ask as usize].set_full(queue, Some(full));
        self.make_ready(ask);
    }

    fn unstick(&mut self, ask: AskId, queue: QueueAt) {
        if let Some(full) = self.asks[ask as usize].set_full(queue, None) {
            self.forget_stuck(ask, queue, &full);
            self.make_ready(ask);
            self.unranked.push((queue, ask));
        }
    }

    fn forget_stuck(&mut self, ask: AskId, queue: QueueAt, full: &Full) {
        if let Some(pairs) = self.stuck_at.get_mut(&full.at) {
            pairs.remove(&(ask, queue));
        }
    }

    /// Whether the bounds of queues changed since this was asked last, or somebody came with what others ask for too.
    pub(crate) fn take_regained(&mut self) -> bool {
        std::mem::take(&mut self.regained)
    }

    /// The bounds of queues changed: all are looked at again.
    pub(crate) fn bounds_changed(&mut self) {
        self.regained = true;
        self.consider_all();
    }

    /// No request is kept from a look by what it found before: where devices of several models are free, what a place
    /// counts towards the bound of a queue depends on which of them are.
    pub(crate) fn consider_all(&mut self) {
        let all: Vec<QueueAt> = self.stuck_at.keys().copied().collect();
        self.room_again(all.into_iter());
        self.try_all();
    }

    /// Whether an ask found no room by the bound of a queue.
    pub(crate) fn is_stuck_at(&self, queue: QueueAt) -> bool {
        self.stuck_at.get(&queue).is_some_and(|pairs| !pairs.is_empty())
    }

    /// Less is used in these queues than before.
    pub(crate) fn room_again(&mut self, queues: impl Iterator<Item = QueueAt>) {
        for at in queues {
            for (ask, queue) in self.stuck_at.remove(&at).unwrap_or_default() {
                self.unstick(ask, queue);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
