//! Request classes: equal requests, and the gangs that have them. A result for one gang of a class holds for all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{Gang, Policy, Program, QueueName, Reason, Timestamp};

use super::bounds::Full;
use super::fronts::InFront;
use super::pending::OrderKey;
use super::queues::QueueAt;
use super::resources::ResourceList;
use crate::cluster::LevelAt;

pub(crate) type RequestClassId = u32;

/// The state of the hardware and of the reservations: two versions that count every change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) hardware: u64,
    pub(crate) reservations: u64,
}

/// The key by which requests are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestKey {
    /// The gang without its program.
    pub(crate) gang: Gang,
    /// The longest time from the order to start to the end of the gang; `None` without a time limit.
    pub(crate) span_ms: Option<u64>,
    /// The gang still waits for its preferred level.
    pub(crate) is_patient: bool,
    pub(crate) rank: i32,
    /// The service level; 0 in queues that do not order by service.
    pub(crate) level: u32,
    /// The gang cannot be preempted.
    pub(crate) is_fixed: bool,
    /// The queues, from the queue of the gang up, that nodes are kept for.
    pub(crate) blocks: Vec<QueueName>,
}

#[derive(Clone, Debug)]
pub(crate) struct RequestClass {
    pub(crate) key: RequestKey,
    pub(crate) least: ResourceList,
    /// Whole devices of all members, and of the member that needs the fewest.
    pub(crate) devices: u32,
    pub(crate) each: u32,
    /// The class is not known to fit nowhere.
    pub(crate) is_open: bool,
    /// Why the class fits nowhere, as of the last evaluation.
    pub(crate) reason: Reason,
    /// The nearest place for the class, as of a version of the hardware.
    pub(crate) near: Option<(u64, Option<Near>)>,
    /// See [`super::PendingQueue::look_again`].
    pub(super) look_at: Option<Timestamp>,
    lanes: BTreeMap<QueueAt, Lane>,
    /// Queues that have room for the class, as far as is known, by their outermost queue.
    roomy: BTreeMap<QueueAt, BTreeSet<QueueAt>>,
}

/// The best placement for a gang if no other gang ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Near {
    pub(crate) time_ns: u64,
    /// The level of the domain that holds all of it.
    pub(crate) level: LevelAt,
}

/// The gangs of a request class in one queue.
#[derive(Clone, Debug)]
struct Lane {
    /// The outermost queue.
    top: QueueAt,
    order_keys: BTreeSet<OrderKey>,
    /// The limit that leaves no room for the class in the queue.
    full: Option<Full>,
}

impl Lane {
    fn first(&self) -> Option<OrderKey> {
        self.order_keys.first().filter(|_| self.full.is_none()).copied()
    }
}

impl RequestClass {
    pub(super) fn new(key: RequestKey, least: ResourceList) -> Self {
        let gang = &key.gang;
        Self {
            least,
            devices: gang.device_count(),
            each: gang.all_needs().map(|needs| needs.devices).min().unwrap_or(0),
            is_open: true,
            reason: Reason::None,
            near: None,
            look_at: None,
            lanes: BTreeMap::new(),
            roomy: BTreeMap::new(),
            key,
        }
    }

    /// The fewest devices that the class needs on one node.
    pub(crate) fn least_on_node(&self) -> u32 {
        self.each.saturating_mul(self.key.gang.members_per_node.unwrap_or(1))
    }

    /// Whether members elsewhere may get room again under limits of domains, or devices are not the resource that
    /// counts.
    pub(crate) fn is_limited(&self) -> bool {
        let gang = &self.key.gang;
        let is_limited = gang.all_needs().any(|needs| !needs.named.is_empty() || needs.is_exclusive);
        self.each == 0 || is_limited || gang.topology.slice.is_some()
    }

    /// The fewest free devices with which a node helps the class.
    pub(super) fn helped_from(&self) -> u32 {
        if self.is_limited() { 0 } else { self.least_on_node() }
    }

    /// Whether the class has no pending gangs.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Queues in which gangs of the class are pending.
    pub(crate) fn queues(&self) -> impl Iterator<Item = QueueAt> + '_ {
        self.lanes.keys().copied()
    }

    /// Whether gangs of the class are pending in a queue.
    pub(super) fn waits_in(&self, queue: QueueAt) -> bool {
        self.lanes.contains_key(&queue)
    }

    /// Whether any queue has room for the class, as far as is known.
    pub(crate) fn has_room(&self) -> bool {
        !self.roomy.is_empty()
    }

    /// Queues that have room for the class, as far as is known.
    pub(crate) fn roomy(&self) -> impl Iterator<Item = QueueAt> + '_ {
        self.roomy.values().flatten().copied()
    }

    /// The outermost queues above these queues.
    pub(super) fn roomy_tops(&self) -> impl Iterator<Item = QueueAt> + '_ {
        self.roomy.keys().copied()
    }

    /// Those of these queues that are below an outermost queue.
    pub(super) fn roomy_below(&self, top: QueueAt) -> impl Iterator<Item = QueueAt> + '_ {
        self.roomy.get(&top).into_iter().flatten().copied()
    }

    /// The next gang of the class in a queue, if the queue has room.
    pub(crate) fn first_in(&self, queue: QueueAt) -> Option<OrderKey> {
        self.lanes.get(&queue)?.first()
    }

    /// The first gang of a queue that has room for this class.
    pub(super) fn front_in(&self, queue: QueueAt) -> Option<InFront> {
        let lane = self.lanes.get(&queue)?;
        let first = (Reverse(self.key.rank), lane.first()?);
        Some(InFront { top: lane.top, queue, first })
    }

    /// The first gang of each queue that has room for this class.
    pub(super) fn fronts(&self) -> impl Iterator<Item = InFront> + '_ {
        self.lanes.keys().filter_map(|queue| self.front_in(*queue))
    }

    /// The gangs of a queue from one position on, if the queue has room for this class.
    pub(super) fn gangs_from(&self, queue: QueueAt, first: OrderKey) -> impl Iterator<Item = OrderKey> + '_ {
        let lane = self.lanes.get(&queue).filter(|lane| lane.full.is_none());
        lane.into_iter().flat_map(move |lane| lane.order_keys.range(first..)).copied()
    }

    /// The limit that keeps the class from starting in a queue.
    pub(crate) fn full_in(&self, queue: QueueAt) -> Option<&Full> {
        self.lanes.get(&queue)?.full.as_ref()
    }

    /// Adds a pending gang. Returns whether it is the first in its queue.
    pub(super) fn join(&mut self, queue: QueueAt, top: QueueAt, order_key: OrderKey) -> bool {
        let is_new = !self.lanes.contains_key(&queue);
        self.lanes.entry(queue).or_insert_with(|| Lane { top, order_keys: BTreeSet::new(), full: None });
        self.change(queue, |lane| lane.order_keys.insert(order_key));
        is_new
    }

    /// Removes a pending gang. Returns, if no gang is left in its queue, the limit that had been reached there.
    pub(super) fn leave(&mut self, queue: QueueAt, order_key: &OrderKey) -> Option<Option<Full>> {
        self.change(queue, |lane| lane.order_keys.remove(order_key));
        self.lanes.get(&queue).filter(|lane| lane.order_keys.is_empty())?;
        self.lanes.remove(&queue).map(|lane| lane.full)
    }

    /// Records that a queue has no room for the class, or may have room again. Returns the limit that had been reached.
    pub(super) fn set_full(&mut self, queue: QueueAt, full: Option<Full>) -> Option<Full> {
        self.change(queue, |lane| std::mem::replace(&mut lane.full, full)).flatten()
    }

    fn change<T>(&mut self, queue: QueueAt, change: impl FnOnce(&mut Lane) -> T) -> Option<T> {
        let lane = self.lanes.get_mut(&queue)?;
        let before = lane.first().is_some();
        let changed = change(lane);
        let (top, after) = (lane.top, lane.first().is_some());
        if before != after {
            let roomy = self.roomy.entry(top).or_default();
            if after {
                roomy.insert(queue)
            } else {
                roomy.remove(&queue)
            };
            if roomy.is_empty() {
                self.roomy.remove(&top);
            }
        }
        Some(changed)
    }
}

impl RequestKey {
    pub(crate) fn gang_of(gang: &Gang) -> Gang {
        let roles = gang.roles.iter().map(|role| phalanx_model::Role { program: None, ..role.clone() });
        Gang {
            size: gang.size,
            min: gang.min,
            max: gang.max,
            needs: gang.needs.clone(),
            roles: roles.collect(),
            members_per_node: gang.members_per_node,
            topology: gang.topology.clone(),
            traffic: gang.traffic,
            grid: gang.grid.clone(),
            program: Program::default(),
        }
    }
}

/// The longest time from the order to start until the last process is gone; unknown without a time limit.
pub(crate) fn longest_ms(policy: &Policy) -> Option<u64> {
    let limit = policy.time_limit_ms?;
    Some(policy.start_deadline_ms.saturating_add(limit).saturating_add(policy.stop.grace_ms))
}
