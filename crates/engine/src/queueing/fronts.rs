//! The first gang of each request class in each queue: where heads are sought.
//!
//! A request class is left out of a queue that has no room for the class, and of all queues while no placement can be
//! reserved for the class. The first gang of an outermost queue is kept until something below that queue changes. So
//! the cost of finding a head grows neither with the gangs that cannot be one nor with the queues in which nothing
//! changed.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::order::Next;
use super::pending::OrderKey;
use super::queues::QueueAt;
use super::request_class::{RequestClassId, Versions};

/// A gang among those of one queue: higher classes first.
pub(super) type InQueue = (Reverse<i32>, OrderKey);

/// The first gangs of one queue.
pub(super) type Front = BTreeMap<InQueue, RequestClassId>;

/// The first gang of a request class in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InFront {
    /// The outermost queue above the queue; an outermost queue is its own top.
    pub(super) top: QueueAt,
    pub(super) queue: QueueAt,
    pub(super) first: InQueue,
}

/// How long no placement can be reserved for a request class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetAside {
    /// Such a gang would not fit even if no other gang ran. This lasts until the hardware changes.
    OnHardware,
    /// Such a gang fits nowhere beside the reservations. This lasts until the reservations or the hardware change.
    BesideReservations,
    /// Such a gang waits for a better placement than it could have now. This lasts until it is considered again.
    Delayed,
}

/// The first gangs in and below one outermost queue.
#[derive(Clone, Debug, Default)]
pub(super) struct TopFronts {
    pub(super) queues: BTreeMap<QueueAt, Front>,
    /// The first of these gangs, and the version of the order for which that is true.
    first: Option<(u64, Option<Next>)>,
}

impl TopFronts {
    /// The first gang as recorded for this version of the order, or as found now.
    pub(super) fn first_at(
        &mut self,
        version: u64,
        find: impl Fn(&BTreeMap<QueueAt, Front>) -> Option<Next>,
    ) -> Option<Next> {
        match self.first {
            Some((found_at, first)) if found_at == version => {
                debug_assert_eq!(first, find(&self.queues), "what changed the order was noted");
                first
            }
            _ => {
                let first = find(&self.queues);
                self.first = Some((version, first));
                first
            }
        }
    }
}

/// The fronts of all queues.
#[derive(Clone, Debug, Default)]
pub(super) struct Fronts {
    by_top: BTreeMap<QueueAt, TopFronts>,
    set_aside: BTreeMap<RequestClassId, SetAside>,
    /// The state of the hardware and the reservations for which `set_aside` is true.
    versions: Versions,
}

impl Fronts {
    /// Outermost queues with the fronts in and below them; a queue without fronts is not listed.
    pub(super) fn by_top(&mut self) -> impl Iterator<Item = (QueueAt, &mut TopFronts)> {
        self.by_top.iter_mut().map(|(top, fronts)| (*top, fronts))
    }

    /// Replaces the first gang of a request class in a queue.
    pub(super) fn replace(
        &mut self,
        request: RequestClassId,
        before: Option<InFront>,
        after: Option<InFront>,
    ) {
        if !self.set_aside.contains_key(&request) {
            before.into_iter().for_each(|before| self.remove(before));
            after.into_iter().for_each(|after| self.insert(request, after));
        }
    }

    pub(super) fn insert(&mut self, request: RequestClassId, gang: InFront) {
        let fronts = self.by_top.entry(gang.top).or_default();
        fronts.first = None;
        fronts.queues.entry(gang.queue).or_default().insert(gang.first, request);
    }

    fn remove(&mut self, gang: InFront) {
        let Some(fronts) = self.by_top.get_mut(&gang.top) else { return };
        fronts.first = None;
        if let Some(front) = fronts.queues.get_mut(&gang.queue) {
            front.remove(&gang.first);
            if front.is_empty() {
                fronts.queues.remove(&gang.queue);
            }
        }
        if fronts.queues.is_empty() {
            self.by_top.remove(&gang.top);
        }
    }

    /// Leaves out a request class whose first gangs are these.
    pub(super) fn set_aside(
        &mut self,
        request: RequestClassId,
        until: SetAside,
        firsts: impl Iterator<Item = InFront>,
    ) {
        if self.set_aside.insert(request, until).is_none() {
            firsts.for_each(|first| self.remove(first));
        }
    }

    /// Stops leaving out a request class. Returns whether it was left out, for this reason if a reason is given: the
    /// caller then inserts its first gangs.
    pub(super) fn restore(&mut self, request: RequestClassId, of: Option<SetAside>) -> bool {
        let is_out = self.set_aside.get(&request).is_some_and(|why| of.is_none_or(|of| of == *why));
        is_out && self.set_aside.remove(&request).is_some()
    }

    /// The request classes that this state no longer leaves out: the caller inserts their first gangs.
    pub(super) fn restore_at(&mut self, versions: Versions) -> Vec<RequestClassId> {
        let before = std::mem::replace(&mut self.versions, versions);
        if before == versions {
            return Vec::new();
        }
        let is_over = |why: SetAside| match why {
            SetAside::OnHardware => before.hardware != versions.hardware,
            SetAside::BesideReservations => true,
            SetAside::Delayed => false,
        };
        self.set_aside.extract_if(.., |_, why| is_over(*why)).map(|(request, _)| request).collect()
    }
}
