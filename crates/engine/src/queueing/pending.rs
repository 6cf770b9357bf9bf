//! The pending gangs. Gangs with equal requests share one *request class*: a result for one gang holds for all gangs of
//! the class. So a step considers classes and not gangs, and retries a class only if capacity that the class could use
//! became free.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use phalanx_model::{GangId, Job, Reason, Timestamp};

use super::bounds::Full;
use super::fronts::{Fronts, SetAside};
use super::order::Next;
use super::queues::{QueueAt, Queues};
use super::request_class::{RequestClass, RequestClassId, RequestKey, Versions};
use crate::cluster::Tree;

/// The order key of a gang within its queue and class: less goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OrderKey {
    /// The service level; 0 in queues that do not order by service.
    level: u32,
    key: i128,
    pub(crate) submitted_at: Timestamp,
    pub(crate) gang: GangId,
}

impl OrderKey {
    /// Waiting for `ageing_ms` counts as one more of priority. All gangs age alike, so the order of two gangs never
    /// changes.
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
    pub(crate) request: RequestClassId,
    pub(crate) queue: QueueAt,
    pub(crate) order_key: OrderKey,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PendingQueue {
    pub(super) requests: Vec<RequestClass>,
    spare: Vec<RequestClassId>,
    index: BTreeMap<RequestKey, RequestClassId>,
    waiting: BTreeMap<GangId, Waiting>,
    /// All gangs of a queue, higher classes first.
    queues: BTreeMap<QueueAt, BTreeMap<(Reverse<i32>, OrderKey), RequestClassId>>,
    /// Request classes that found no room in a queue, by the queue whose bound was reached.
    stuck_at: BTreeMap<QueueAt, BTreeSet<(RequestClassId, QueueAt)>>,
    /// The number of request classes, by the fewest devices of a node that help them.
    helped_from: BTreeMap<u32, u32>,
    /// Open request classes with pending gangs.
    ready: BTreeSet<RequestClassId>,
    /// Request classes with queues for which no victims have been sought yet.
    untried: BTreeSet<(QueueAt, RequestClassId)>,
    /// The untried classes that may be in `order_keys` already, and those that are not yet.
    order_keys: BinaryHeap<Reverse<Next>>,
    unranked: Vec<(QueueAt, RequestClassId)>,
    /// The first gangs of the request classes that may have a reservation.
    pub(super) fronts: Fronts,
    /// Request classes that are to be looked at again, by time.
    looks: BTreeSet<(Timestamp, RequestClassId)>,
    /// Queues may be within guarantees that they were not within, or have their first pending gang of a request class.
    regained: bool,
}

/// Whether a gang could start, and waits for a closer placement.
pub(crate) const fn is_for_nearness(reason: &Reason) -> bool {
    matches!(reason, Reason::PreferredWait { .. } | Reason::NearerWait { .. })
}

impl PendingQueue {
    /// The number of pending gangs.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn request_mut(&mut self, id: RequestClassId) -> &mut RequestClass {
        &mut self.requests[id as usize]
    }

    pub(crate) fn request(&self, id: RequestClassId) -> &RequestClass {
        &self.requests[id as usize]
    }

    /// Whether any request class might use a node with so many free devices.
    pub(crate) fn wants(&self, devices: u32) -> bool {
        self.helped_from.first_key_value().is_some_and(|(from, _)| *from <= devices)
    }

    pub(crate) fn place_of(&self, gang: GangId) -> Option<Waiting> {
        self.waiting.get(&gang).copied()
    }

    /// Request classes that may fit.
    pub(crate) fn ready(&self) -> impl Iterator<Item = RequestClassId> + '_ {
        self.ready.iter().copied()
    }

    /// All pending gangs, in no particular order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (GangId, Waiting)> + '_ {
        self.waiting.iter().map(|(gang, waiting)| (*gang, *waiting))
    }

    /// The pending gangs of a queue, each with its request class.
    pub(crate) fn in_queue(&self, queue: QueueAt) -> impl Iterator<Item = (GangId, RequestClassId)> + '_ {
        let pending = self.queues.get(&queue).into_iter().flatten();
        pending.map(|((_, order_key), request)| (order_key.gang, *request))
    }

    /// The number of gangs of the same queue and class that go before a gang because they had less service.
    pub(crate) fn before_by_service(&self, gang: GangId) -> usize {
        let Some(place) = self.place_of(gang).filter(|place| place.order_key.level > 0) else { return 0 };
        let rank = self.request(place.request).key.rank;
        let pending = self.queues.get(&place.queue).into_iter().flatten();
        pending.filter(|((of, order_key), _)| of.0 == rank && order_key.level < place.order_key.level).count()
    }

    /// Adds a gang to the pending gangs.
    pub(crate) fn enlist(
        &mut self,
        queues: &mut Queues,
        tree: &Tree,
        key: RequestKey,
        queue: QueueAt,
        order_key: OrderKey,
    ) {
        if self.waiting.contains_key(&order_key.gang) {
            return;
        }
        let rank = Reverse(key.rank);
        let request = match self.index.get(&key) {
            Some(request) => *request,
            None => self.open(queues, tree, key),
        };
        let top = queues.at(queue).top;
        if self.change_front(request, queue, |asked| asked.join(queue, top, order_key)) {
            self.untried.insert((queue, request));
            self.unranked.push((queue, request));
            // Capacity that other gangs of this request class found taken may yield to the queue of this gang.
            self.regained = true;
        }
        queues.want(queue, &self.request(request).least, true);
        queues.enqueue(queue, order_key, true);
        self.waiting.insert(order_key.gang, Waiting { request, queue, order_key });
        self.queues.entry(queue).or_default().insert((rank, order_key), request);
        self.make_ready(request);
    }

    /// Marks a request class as ready if it is open and some queue has room for it.
    fn make_ready(&mut self, request: RequestClassId) {
        let asked = self.request(request);
        if asked.is_open && asked.has_room() {
            self.ready.insert(request);
        } else {
            self.ready.remove(&request);
        }
    }

    fn open(&mut self, queues: &Queues, tree: &Tree, key: RequestKey) -> RequestClassId {
        let least = queues.resources.least(tree, queues.settings(), &key.gang);
        let request = RequestClass::new(key.clone(), least);
        *self.helped_from.entry(request.helped_from()).or_default() += 1;
        let id = match self.spare.pop() {
            Some(id) => {
                self.requests[id as usize] = request;
                id
            }
            None => {
                self.requests.push(request);
                u32::try_from(self.requests.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.index.insert(key, id);
        id
    }

    /// Removes a gang from the pending gangs; `None` if it was not pending.
    pub(crate) fn delist(&mut self, queues: &mut Queues, gang: GangId) -> Option<Waiting> {
        let place = self.waiting.remove(&gang)?;
        let Waiting { request, queue, order_key } = place;
        let asked = &self.requests[request as usize];
        queues.want(queue, &asked.least, false);
        queues.enqueue(queue, order_key, false);
        if let Some(pending) = self.queues.get_mut(&queue) {
            pending.remove(&(Reverse(asked.key.rank), order_key));
        }
        if let Some(full) = self.change_front(request, queue, |asked| asked.leave(queue, &order_key)) {
            self.untried.remove(&(queue, request));
            full.iter().for_each(|full| self.forget_stuck(request, queue, full));
        }
        self.make_ready(request);
        let asked = &self.requests[request as usize];
        if asked.is_empty() {
            let from = asked.helped_from();
            if let Some(count) = self.helped_from.get_mut(&from) {
                *count -= 1;
                if *count == 0 {
                    self.helped_from.remove(&from);
                }
            }
            self.index.remove(&asked.key);
            self.forget_look(request);
            self.fronts.restore(request, None);
            self.spare.push(request);
        }
        Some(place)
    }

    /// Records that a request class fits nowhere now.
    pub(crate) fn close(&mut self, request: RequestClassId, reason: Reason) {
        if is_for_nearness(&reason) {
            self.set_aside(request, SetAside::Delayed);
        }
        let asked = &mut self.requests[request as usize];
        (asked.is_open, asked.reason) = (false, reason);
        self.ready.remove(&request);
    }

    /// Records that an open request class fits nowhere for the reason that it had before it was reopened.
    pub(crate) fn close_again(&mut self, request: RequestClassId) {
        let asked = self.request(request);
        if asked.is_open && !asked.is_empty() {
            self.close(request, asked.reason.clone());
        }
    }

    /// Looks at a request class again at that time, or before: a gang of it may then start farther apart.
    pub(crate) fn look_again(&mut self, request: RequestClassId, at: Timestamp) {
        let asked = &mut self.requests[request as usize];
        if asked.look_at.is_some_and(|known| known <= at) {
            return;
        }
        if let Some(later) = asked.look_at.replace(at) {
            self.looks.remove(&(later, request));
        }
        self.looks.insert((at, request));
    }

    /// The next time at which a request class is to be looked at again.
    pub(crate) fn next_look(&self) -> Option<Timestamp> {
        self.looks.first().map(|(at, _)| *at)
    }

    /// Reopens the request classes that are to be looked at again now. Returns whether there are any.
    pub(crate) fn look_now(&mut self, now: Timestamp) -> bool {
        let mut is_any = false;
        while let Some((_, request)) = self.looks.first().copied().filter(|(at, _)| *at <= now) {
            is_any = true;
            self.forget_look(request);
            let queues: Vec<QueueAt> = self.request(request).queues().collect();
            queues.into_iter().for_each(|queue| self.try_anew(request, queue));
            self.reopen(request);
        }
        is_any
    }

    fn forget_look(&mut self, request: RequestClassId) {
        if let Some(at) = self.requests[request as usize].look_at.take() {
            self.looks.remove(&(at, request));
        }
    }

    /// Reserves no placement for a request class for as long as `until` says.
    pub(crate) fn set_aside(&mut self, request: RequestClassId, until: SetAside) {
        self.fronts.set_aside(request, until, self.requests[request as usize].fronts());
    }

    /// If the hardware or the reservations changed, lets placements be reserved again for request classes that were set
    /// aside until then.
    pub(crate) fn restore_at(&mut self, versions: Versions) {
        for request in self.fronts.restore_at(versions) {
            self.show_firsts(request);
        }
    }

    /// Shows the first gangs of a request class in the fronts again.
    fn show_firsts(&mut self, request: RequestClassId) {
        self.requests[request as usize].fronts().for_each(|first| self.fronts.insert(request, first));
    }

    /// Changes the gangs of a request class in one queue, or whether the queue has room for them.
    fn change_front<T>(
        &mut self,
        request: RequestClassId,
        queue: QueueAt,
        change: impl FnOnce(&mut RequestClass) -> T,
    ) -> T {
        let asked = &mut self.requests[request as usize];
        let before = asked.front_in(queue);
        let changed = change(asked);
        let after = asked.front_in(queue);
        if before != after {
            self.fronts.replace(request, before, after);
        }
        changed
    }

    /// Reopens a request class that may use freed capacity.
    pub(crate) fn reopen(&mut self, request: RequestClassId) {
        let asked = &mut self.requests[request as usize];
        asked.is_open = true;
        if self.fronts.restore(request, Some(SetAside::Delayed)) {
            self.show_firsts(request);
        }
        self.make_ready(request);
    }

    /// Whether no victims have been sought yet for a request class in a queue. (The preemption rule depends on both.)
    pub(crate) fn is_untried(&self, request: RequestClassId, queue: QueueAt) -> bool {
        self.untried.contains(&(queue, request))
    }

    /// No victims were found: they are not sought again before other gangs move.
    pub(crate) fn tried(&mut self, request: RequestClassId, queue: QueueAt) {
        self.untried.remove(&(queue, request));
    }

    /// The first gang whose request class is closed and for which no victims have been sought yet. If the position of a
    /// gang moved forward since it was ranked, this is not noticed before all request classes are tried again.
    pub(crate) fn first_untried(&mut self, queues: &Queues) -> Option<Next> {
        for (queue, request) in std::mem::take(&mut self.unranked) {
            let next = if self.untried.contains(&(queue, request)) {
                self.next_of(queues, request, queue)
            } else {
                None
            };
            self.order_keys.extend(next.map(Reverse));
        }
        while let Some(Reverse(next)) = self.order_keys.peek() {
            let (request, queue) = (next.request, next.queue);
            // No gang is preempted for a gang that may fit, or could start farther apart.
            let asked = self.request(request);
            let is_full = !asked.is_open && !is_for_nearness(&asked.reason);
            let waits = self.is_untried(request, queue);
            if waits && !is_full {
                self.unranked.push((queue, request));
            }
            let waits = waits && is_full;
            let current = if waits { self.next_of(queues, request, queue) } else { None };
            match current {
                Some(current) if current == *next => return Some(current),
                // Other gangs of this class started before it meanwhile.
                Some(current) => {
                    self.order_keys.pop();
                    self.order_keys.push(Reverse(current));
                }
                // The entry returns when its queue has room.
                None => {
                    self.order_keys.pop();
                }
            }
        }
        None
    }

    /// A gang of this class had more service than a gang on a lower level: pending gangs of its queue on lower levels
    /// are tried again.
    pub(crate) fn try_below(&mut self, queue: QueueAt, rank: i32, level: u32) {
        let is_below = |id: &RequestClassId| {
            let asked = self.request(*id);
            asked.key.rank == rank && asked.key.level < level && asked.waits_in(queue)
        };
        let below: Vec<RequestClassId> = self.all().filter(is_below).collect();
        below.into_iter().for_each(|request| self.try_anew(request, queue));
    }

    /// Victims are sought again for a request class in a queue.
    fn try_anew(&mut self, request: RequestClassId, queue: QueueAt) {
        if self.untried.insert((queue, request)) {
            self.unranked.push((queue, request));
        }
    }

    /// Lets victims be sought again for all request classes.
    pub(crate) fn try_all(&mut self) {
        let pairs = self.index.values().flat_map(|id| {
            let request = &self.requests[*id as usize];
            request.queues().map(|queue| (queue, *id))
        });
        self.untried = pairs.collect();
        self.order_keys.clear();
        self.unranked = self.untried.iter().copied().collect();
    }

    /// Request classes that are known to fit nowhere.
    pub(crate) fn closed(&self) -> impl Iterator<Item = (RequestClassId, &RequestClass)> {
        let known = self.index.values().map(|id| (*id, &self.requests[*id as usize]));
        known.filter(|(_, request)| !request.is_open)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = RequestClassId> + '_ {
        self.index.values().copied()
    }

    /// Records that a queue has no room for a request class.
    pub(crate) fn stick(&mut self, request: RequestClassId, queue: QueueAt, full: Full) {
        self.unstick(request, queue);
        self.stuck_at.entry(full.at).or_default().insert((request, queue));
        self.change_front(request, queue, |asked| asked.set_full(queue, Some(full)));
        self.make_ready(request);
    }

    fn unstick(&mut self, request: RequestClassId, queue: QueueAt) {
        if let Some(full) = self.change_front(request, queue, |asked| asked.set_full(queue, None)) {
            self.forget_stuck(request, queue, &full);
            self.make_ready(request);
            self.unranked.push((queue, request));
        }
    }

    fn forget_stuck(&mut self, request: RequestClassId, queue: QueueAt, full: &Full) {
        if let Some(pairs) = self.stuck_at.get_mut(&full.at) {
            pairs.remove(&(request, queue));
        }
    }

    /// Whether the bounds of queues changed since the last call, or a queue got its first pending gang of a class.
    pub(crate) fn take_regained(&mut self) -> bool {
        std::mem::take(&mut self.regained)
    }

    /// Records that the bounds of queues changed: all request classes are considered again.
    pub(crate) fn bounds_changed(&mut self) {
        self.regained = true;
        self.consider_all();
    }

    /// Considers every request class again, whatever it found before: if devices of several models are free, the amount
    /// that a placement counts towards the bound of a queue depends on which of them are free.
    pub(crate) fn consider_all(&mut self) {
        let all: Vec<QueueAt> = self.stuck_at.keys().copied().collect();
        self.room_again(all.into_iter());
        self.try_all();
    }

    /// Whether a request class found no room by the bound of a queue.
    pub(crate) fn is_stuck_at(&self, queue: QueueAt) -> bool {
        self.stuck_at.get(&queue).is_some_and(|pairs| !pairs.is_empty())
    }

    /// Retries request classes after the use of these queues fell.
    pub(crate) fn room_again(&mut self, queues: impl Iterator<Item = QueueAt>) {
        for at in queues {
            for (request, queue) in self.stuck_at.remove(&at).unwrap_or_default() {
                self.unstick(request, queue);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
