//! Reservations: placements that are booked for gangs that have not started.
//!
//! A reservation takes everything that its gang needs (devices, CPU, memory, resources counted by name) on its nodes,
//! as if the gang ran there, even if some of it is still in use. Capacity in use is then counted twice: amounts fall
//! below zero, and a device is free again only after its user and the reservation have both released it. So capacity is
//! not withheld bit by bit, and no two reservations are promised the same capacity.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use phalanx_model::{DeviceMask, Gang, GangId, Reason, Timestamp};

use crate::cluster::{Free, Pick, Piece, Space, Tree};
use crate::queueing::{QueueAt, RequestKey, ResourceList};

/// All reservations, by gang.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reservations {
    by_gang: BTreeMap<GangId, Reservation>,
    /// Counts the reservations that were made and released.
    version: u64,
}

impl Reservations {
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn insert(&mut self, gang: GangId, reservation: Reservation) {
        self.version += 1;
        self.by_gang.insert(gang, reservation);
    }

    pub(crate) fn remove(&mut self, gang: GangId) -> Option<Reservation> {
        let removed = self.by_gang.remove(&gang);
        self.version += u64::from(removed.is_some());
        removed
    }

    /// Takes one reservation out to check whether its gang can start: it comes back with [`Self::take_back`], or ends.
    pub(crate) fn lend(&mut self, gang: GangId) -> Option<Reservation> {
        self.by_gang.remove(&gang)
    }

    pub(crate) fn take_back(&mut self, gang: GangId, lent: Reservation) {
        self.by_gang.insert(gang, lent);
    }

    /// The lent reservation does not come back: its gang has started, or it was released.
    pub(crate) const fn forget_lent(&mut self) {
        self.version += 1;
    }

    /// Takes all reservations out.
    pub(crate) fn drain(&mut self) -> BTreeMap<GangId, Reservation> {
        self.version += 1;
        std::mem::take(&mut self.by_gang)
    }

    pub(crate) fn get_mut(&mut self, gang: GangId) -> Option<&mut Reservation> {
        self.by_gang.get_mut(&gang)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&GangId, &mut Reservation)> {
        self.by_gang.iter_mut()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Reservation> {
        self.by_gang.values_mut()
    }

    /// Gangs whose reservations include some of these devices.
    pub(crate) fn overlapping(&self, picks: &[Pick]) -> Vec<GangId> {
        let overlapping = self.by_gang.iter().filter(|(_, reservation)| reservation.overlaps(picks));
        overlapping.map(|(gang, _)| *gang).collect()
    }
}

impl std::ops::Deref for Reservations {
    type Target = BTreeMap<GangId, Reservation>;

    fn deref(&self) -> &Self::Target {
        &self.by_gang
    }
}

/// A future placement.
#[derive(Clone, Debug)]
pub(crate) struct Reservation {
    pub(crate) picks: Vec<Pick>,
    /// The latest time at which all of it is free.
    pub(crate) at: Option<Timestamp>,
    /// The priority class of its gang.
    pub(crate) rank: i32,
    /// The service level of its gang.
    pub(crate) level: u32,
    /// When the reservation was made: earlier promises go first.
    pub(crate) made_at: Timestamp,
    /// Since when its gang is pending.
    pub(crate) pending_since: Timestamp,
    /// Running gangs are preempted for it.
    pub(crate) preempts: bool,
    /// Its gang is within a guarantee of its queue.
    pub(crate) is_entitled: bool,
    /// The queue in which its gang is pending, and the least that its gang needs.
    pub(crate) waits: (QueueAt, ResourceList),
    /// Why its gang waits for it although it could start elsewhere.
    pub(crate) nearer: Option<Reason>,
    /// The version of the hardware at which all of its nodes were last known to take work.
    pub(super) checked_at: Option<u64>,
    /// The booked capacity, by node: a part of a device closes the whole device.
    gang: Gang,
    booked: Vec<Pick>,
    /// Devices that other gangs use in part, and that take no more parts.
    closed: Vec<(u32, DeviceMask)>,
    is_booked: bool,
}

impl Reservation {
    /// A reservation with nothing booked yet.
    pub(crate) fn new(
        picks: Vec<Pick>,
        gang: &Gang,
        at: Option<Timestamp>,
        rank: i32,
        made_at: Timestamp,
    ) -> Self {
        let mut gang = RequestKey::gang_of(gang);
        gang.needs.part = None;
        gang.roles.iter_mut().for_each(|role| role.needs.part = None);
        let mut booked: Vec<Pick> = picks.iter().map(|pick| Pick { piece: Piece::Whole, ..*pick }).collect();
        booked.sort_by_key(|pick| pick.node);
        once_on_each_node(&mut booked);
        Self {
            picks,
            at,
            rank,
            level: 0,
            made_at,
            pending_since: made_at,
            preempts: false,
            is_entitled: false,
            waits: (0, ResourceList::new()),
            nearer: None,
            checked_at: None,
            gang,
            booked,
            closed: Vec::new(),
            is_booked: false,
        }
    }

    /// Earlier promises go first.
    pub(crate) const fn order_key(&self) -> (Timestamp, Reverse<i32>) {
        (self.made_at, Reverse(self.rank))
    }

    pub(crate) const fn is_booked(&self) -> bool {
        self.is_booked
    }

    /// Withholds the reserved capacity from other gangs.
    pub(crate) fn book(&mut self, tree: &Tree, space: &mut Space) {
        if std::mem::replace(&mut self.is_booked, true) {
            return;
        }
        space.take(tree, &self.booked, &self.gang);
        for pick in &self.booked {
            let closed = space.close_parts(tree, pick.node, pick.devices);
            if !closed.is_empty() {
                self.closed.push((pick.node, closed));
            }
        }
    }

    /// Releases the reserved capacity to gangs that may use it.
    pub(crate) fn unbook(&mut self, tree: &Tree, space: &mut Space) {
        if !std::mem::replace(&mut self.is_booked, false) {
            return;
        }
        for (node, closed) in self.closed.drain(..) {
            space.open_parts(tree, node, closed);
        }
        space.give_back(tree, &self.booked, &self.gang);
    }

    /// Whether a gang of another class goes before its gang: first a gang within a guarantee before a gang that
    /// borrows, and then the higher class. A placement for which gangs are preempted is kept.
    pub(crate) const fn yields_to(&self, rank: i32, is_entitled: bool) -> bool {
        let goes_first =
            is_entitled && !self.is_entitled || is_entitled == self.is_entitled && rank > self.rank;
        !self.preempts && goes_first
    }

    /// Whether its gang had more service than a gang of the same queue and class on this level.
    pub(crate) const fn had_more(
        &self,
        queue: QueueAt,
        (rank, level): (i32, u32),
        is_entitled: bool,
    ) -> bool {
        let is_alike = queue == self.waits.0 && rank == self.rank && is_entitled == self.is_entitled;
        !self.preempts && is_alike && level < self.level
    }

    /// Whether a gang that ends by this time leaves before the reservation begins.
    pub(crate) fn begins_after(&self, ends_at: Option<Timestamp>, share_milli: u64) -> bool {
        ends_at.is_some_and(|ends| ends <= self.begins(share_milli))
    }

    /// The time by which others have to have left.
    pub(crate) fn begins(&self, share_milli: u64) -> Timestamp {
        self.at.unwrap_or_else(|| self.lends_until(share_milli))
    }

    /// The time by which other gangs have to have ended to use what is kept for a gang whose start nobody knows: it starts
    /// late by at most this part of the time that it had waited when the reservation was made, whoever comes meanwhile. What
    /// gangs were preempted for is not lent.
    fn lends_until(&self, share_milli: u64) -> Timestamp {
        let waited_ms = if self.preempts { 0 } else { self.made_at.since(self.pending_since) };
        let lent_ms = u128::from(waited_ms) * u128::from(share_milli) / 1_000;
        self.made_at.plus(u64::try_from(lent_ms).unwrap_or(u64::MAX))
    }

    /// Whether the reservation includes some of these devices, or nodes on which its gang is to be alone.
    pub(crate) fn overlaps(&self, picks: &[Pick]) -> bool {
        picks.iter().any(|pick| {
            let own = self.on(pick.node);
            own.iter().any(|own| self.is_alone() || !own.devices.and(pick.devices).is_empty())
        })
    }

    /// Whether some of the reservation is on a node.
    pub(crate) fn is_on(&self, node: u32) -> bool {
        !self.on(node).is_empty()
    }

    /// Removes the reserved devices from these picks.
    pub(crate) fn take_from(&self, picks: &mut [Pick]) {
        for pick in picks {
            pick.devices = pick.devices.minus(self.devices_on(pick.node));
        }
    }

    fn on(&self, node: u32) -> &[Pick] {
        let first = self.booked.partition_point(|pick| pick.node < node);
        let end = self.booked.partition_point(|pick| pick.node <= node);
        self.booked.get(first..end).unwrap_or_default()
    }

    /// Devices of one node that stay idle for the reservation.
    pub(crate) fn idle_on(&self, tree: &Tree, space: &Space, node: u32) -> DeviceMask {
        let idle = |pick: &Pick| space.held_once(tree, node as usize, pick.devices);
        self.on(node)
            .iter()
            .filter(|_| self.is_booked)
            .fold(DeviceMask::EMPTY, |all, pick| all.union(idle(pick)))
    }

    /// The same for every node of the reservation, pick by pick.
    pub(crate) fn idle(&self, tree: &Tree, space: &Space) -> impl Iterator<Item = (u32, DeviceMask)> {
        let idle = |pick: &Pick| (pick.node, space.held_once(tree, pick.node as usize, pick.devices));
        self.booked.iter().filter(|_| self.is_booked).map(idle)
    }

    /// The nodes of the placement.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.booked.iter().map(|pick| pick.node)
    }

    /// The number of members that the reservation is for.
    pub(crate) fn member_count(&self) -> u32 {
        self.picks.iter().map(|pick| pick.members).sum()
    }

    fn add_amounts_to(&self, node: u32, free: &mut Free) {
        let of_members = |each: u64, pick: &Pick| each.saturating_mul(u64::from(pick.members));
        for pick in self.on(node) {
            let needs = self.gang.needs_of(pick.role());
            free.cpu_milli = free.cpu_milli.saturating_add_unsigned(of_members(needs.cpu_milli, pick));
            free.memory_bytes =
                free.memory_bytes.saturating_add_unsigned(of_members(needs.memory_bytes, pick));
            free.tenants = free.tenants.saturating_sub(1);
        }
    }

    fn devices_on(&self, node: u32) -> DeviceMask {
        self.on(node).iter().fold(DeviceMask::EMPTY, |all, pick| all.union(pick.devices))
    }

    /// Whether other gangs find less room because of the reservation.
    pub(crate) fn keeps_something(&self, tree: &Tree, space: &Space) -> bool {
        self.is_booked && self.is_alone() || self.idle_devices(tree, space) > 0
    }

    /// Whether its gang is to be alone on its nodes.
    pub(crate) const fn is_alone(&self) -> bool {
        self.gang.needs.is_exclusive
    }

    /// The number of devices that stay idle for the reservation.
    pub(crate) fn idle_devices(&self, tree: &Tree, space: &Space) -> u32 {
        self.idle(tree, space).map(|(_, devices)| devices.count()).sum()
    }
}

/// Adds to `free` what reservations take on a node: the capacity that would be free there without them.
pub(crate) fn add_reserved<'r>(
    reservations: impl Iterator<Item = &'r Reservation> + Clone,
    (space, tree): (&Space, &Tree),
    node: u32,
    free: &mut Free,
) {
    let booked = reservations.filter(|reservation| reservation.is_booked);
    let mut reserved = DeviceMask::EMPTY;
    for reservation in booked.clone() {
        reserved = reserved.union(reservation.devices_on(node));
        reservation.add_amounts_to(node, free);
    }
    let on_device = |device: u32| {
        booked.clone().filter(|reservation| reservation.devices_on(node).contains(device)).count()
    };
    let is_free = |device: &u32| space.holders(tree, node, *device) == on_device(*device);
    free.devices =
        reserved.iter().filter(is_free).fold(free.devices, |all, device| all.union(DeviceMask::one(device)));
}

/// Leaves each device with the first pick that has it: members that are to share a device reserve it once.
fn once_on_each_node(picks: &mut [Pick]) {
    for of_node in picks.chunk_by_mut(|one, other| one.node == other.node) {
        let mut reserved = DeviceMask::EMPTY;
        for pick in of_node {
            pick.devices = pick.devices.minus(reserved);
            reserved = reserved.union(pick.devices);
        }
    }
}
