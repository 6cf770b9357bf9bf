//! The placement that costs the other classes of requests least, for a request that one node holds, in clusters of
//! several device models.
//!
//! # The cost of a placement
//! The cost is a sum over the classes of running requests: the price of [`crate::cluster::mix`], times the number of
//! requests of the class that fit before the placement and not after it.
//!
//! Costs within a quarter of the least are equal. Of these placements the node with the most CPU per free GPU wins: where
//! CPUs run out first, GPUs are stranded. The last tie ends on the node's position in the tree.
//!
//! The classes count the members that run, and the cost depends on the free capacity, so a restart changes nothing.
//! [`Pack`] keeps memory between searches; each search compares it with the space.

mod states;

use std::cmp::Reverse;

use phalanx_model::DeviceMask;

use crate::cluster::fractions::Open;
use crate::cluster::mix::{Class, Mix, Prices};
use crate::cluster::space::Space;
use crate::cluster::tree::{Free, Tree};
use crate::share::{Device, Kind as Hardware, NodeState, Part, ShareRequest, Want};
use states::{State, States};

/// Classes that are weighed: the most frequent ones.
const CLASSES_MAX: usize = 512;

/// The amounts of a node when its state was last computed.
#[derive(Clone, Debug)]
struct Seen {
    free: Free,
    open: Vec<Open>,
    /// [`NOWHERE`] if the node takes no work.
    slot: u32,
}

impl Seen {
    /// As of a node that takes no work.
    fn forget(&mut self) {
        (self.free, self.slot) = (Free::default(), NOWHERE);
        self.open.clear();
    }
}

const NOWHERE: u32 = u32::MAX;

/// A place on a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PackSpot {
    cost: u64,
    /// A device of [`State::key`].
    device: u8,
    /// Of a slice.
    start: u8,
}

/// The states of all nodes, and the requests that fit in each. A decision reads every state, not every node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pack {
    stamp: Option<u64>,
    hardware: Vec<Hardware>,
    nodes: Vec<Seen>,
    states: States,
    classes: Vec<Class<ShareRequest>>,
    /// By class: requests that fit in the whole cluster.
    totals: Vec<u64>,
    prices: Prices,
    /// The classes that are weighed and their prices, the highest first.
    dearest: Vec<(u64, u16)>,
    /// Scratch: the cost of each slot.
    near: Vec<(u32, PackSpot)>,
}

impl Pack {
    /// The placement of the least cost to others among the eligible nodes, if there is one.
    pub(crate) fn choose(
        &mut self,
        tree: &Tree,
        space: &Space,
        request: &ShareRequest,
        will_do: impl Fn(usize) -> bool,
    ) -> Option<(usize, Part)> {
        self.keep_up(tree, space);
        self.price();
        let mut near = std::mem::take(&mut self.near);
        near.clear();
        let mut least = u64::MAX;
        for at in 0..self.states.live.len() {
            let slot = self.states.live[at];
            let limit = least.saturating_add(least / 4);
            let Some(place) = self.least(slot, request, limit).filter(|place| place.cost <= limit) else {
                continue;
            };
            let first = self.states.slots[slot as usize].members.iter().copied();
            if !first.into_iter().any(|node| will_do(node as usize)) {
                continue;
            }
            least = least.min(place.cost);
            near.push((slot, place));
        }
        let spot = self.pick(&near, least, request, &will_do);
        self.near = near;
        spot
    }

    /// Of the places near the least cost the one on the node with the most CPU per free device.
    fn pick(
        &self,
        near: &[(u32, PackSpot)],
        least: u64,
        request: &ShareRequest,
        will_do: impl Fn(usize) -> bool,
    ) -> Option<(usize, Part)> {
        let limit = least.saturating_add(least / 4);
        let close = near.iter().filter(|(_, place)| place.cost <= limit);
        let nodes = close.filter_map(|(slot, place)| {
            let state = self.states.slots.get(*slot as usize)?;
            let node = state.members.iter().copied().find(|node| will_do(*node as usize))?;
            Some((state, node, place))
        });
        let (state, node, place) = nodes.max_by_key(|(state, node, _)| (state.plenty, Reverse(*node)))?;
        Some((node as usize, self.part(node as usize, state, request, place)?))
    }

    /// Updates the states from the free capacity.
    fn keep_up(&mut self, tree: &Tree, space: &Space) {
        if self.stamp != Some(tree.stamp) {
            *self = Self { stamp: Some(tree.stamp), ..Self::default() };
            let bits = tree.kinds.iter().map(|kind| kind.model_bit);
            let first =
                |kind: &crate::cluster::kind::Kind| kind.hardware.first().map(|(hardware, _)| *hardware);
            self.hardware = tree
                .kinds
                .iter()
                .zip(bits)
                .map(|(kind, model)| Hardware { model, ..first(kind).unwrap_or(Hardware::NONE) })
                .collect();
            let seen = |_| Seen { free: Free::default(), open: Vec::new(), slot: NOWHERE };
            self.nodes = (0..tree.nodes.len()).map(seen).collect();
        }
        self.learn(space.mix());
        for node in 0..self.nodes.len() {
            let free = space.free(node);
            let open = space.parts().on(node);
            let seen = &self.nodes[node];
            if seen.free != *free || seen.open != open {
                self.move_to(node, state_of(tree, node, free, open));
                let seen = &mut self.nodes[node];
                seen.free = *free;
                seen.open.clear();
                seen.open.extend_from_slice(open);
            }
        }
    }

    fn move_to(&mut self, node: usize, state: Option<NodeState>) {
        let before = self.nodes[node].slot;
        if before != NOWHERE {
            for (total, fits) in self.totals.iter_mut().zip(&self.states.slots[before as usize].fits) {
                *total -= u64::from(*fits);
            }
            self.states.leave(before, node as u32);
        }
        let slot = state.map_or(NOWHERE, |state| {
            let hardware = &self.hardware[usize::from(state.kind)];
            let slot = self.states.intern(state.canonical(), hardware, &self.classes);
            self.states.enter(slot, node as u32);
            for (total, fits) in self.totals.iter_mut().zip(&self.states.slots[slot as usize].fits) {
                *total += u64::from(*fits);
            }
            slot
        });
        self.nodes[node].slot = slot;
    }

    /// Reads the classes, and how many members of each run.
    fn learn(&mut self, mix: &Mix<ShareRequest>) {
        let classes = mix.classes();
        let is_same = self.classes.len() <= classes.len()
            && self.classes.iter().zip(classes).all(|(known, now)| known.request == now.request);
        if !is_same {
            // The classes are those of another space: everything is counted again.
            self.classes.clear();
            self.totals.clear();
            self.states = States::default();
            self.nodes.iter_mut().for_each(Seen::forget);
        }
        let known = self.classes.len();
        self.classes.clear();
        self.classes.extend_from_slice(classes);
        if self.classes.len() == known {
            return;
        }
        self.totals.resize(self.classes.len(), 0);
        for at in 0..self.states.live.len() {
            let slot = self.states.live[at];
            let kind = self.states.slots[slot as usize].key.kind;
            self.states.count(slot, &self.hardware[usize::from(kind)], &self.classes);
            let state = &self.states.slots[slot as usize];
            for (total, fits) in self.totals.iter_mut().zip(&state.fits).skip(known) {
                *total += u64::from(*fits) * state.members.len() as u64;
            }
        }
    }

    /// The prices of this moment.
    fn price(&mut self) {
        let Self { classes, totals, hardware, prices, dearest, .. } = self;
        prices.set(classes, |at, class| {
            let size = hardware.iter().map(|hardware| class.request.size_milli(hardware)).max().unwrap_or(0);
            (size > 0).then(|| totals.get(at).map_or(0, |total| total.saturating_mul(size)))
        });
        dearest.clear();
        dearest.extend(prices.each().iter().copied().zip(0_u16..).filter(|(price, _)| *price > 0));
        // The most frequent classes; ties end on the request, so that the order in which they came is of no account.
        let key = |at: u16| (Reverse(classes[usize::from(at)].running), classes[usize::from(at)].request);
        if dearest.len() > CLASSES_MAX {
            dearest.sort_unstable_by_key(|(_, at)| key(*at));
            dearest.truncate(CLASSES_MAX);
        }
        dearest.sort_unstable_by_key(|(price, at)| (Reverse(*price), key(*at)));
    }

    /// The placement on a state that costs others least. A placement that costs more than the limit may be left out.
    fn least(&mut self, slot: u32, request: &ShareRequest, limit: u64) -> Option<PackSpot> {
        let key = &self.states.slots[slot as usize].key;
        let hardware = self.hardware[usize::from(key.kind)];
        if key.room(&hardware, request) == 0 {
            return None;
        }
        if let Want::Nothing | Want::Whole(_) = request.want {
            let times = if let Want::Whole(count) = request.want { u16::from(count) } else { 0 };
            let kind = key.kind;
            let before = self.states.row(kind, &hardware, Device::Empty, &self.classes);
            let after = self.states.row(kind, &hardware, Device::Whole, &self.classes);
            let cost = self.lost(slot, request, (before, after, times), limit);
            return Some(PackSpot { cost, ..PackSpot::default() });
        }
        let key = *key;
        self.states.bound_rows();
        let mut best: Option<PackSpot> = None;
        let mut last = None;
        for (index, device) in (0u8..).zip(key.devices()) {
            if request.room_on(&hardware, device) == 0 || last == Some(*device) {
                continue;
            }
            last = Some(*device);
            // The last start first: among equals small slices leave the front to large ones.
            let starts = request.starts(&hardware, device);
            for start in (0..8).rev().filter(|start| starts >> start & 1 == 1) {
                let then = request.put(&hardware, *device, start)?;
                let before = self.states.row(key.kind, &hardware, *device, &self.classes);
                let after = self.states.row(key.kind, &hardware, then.bare(), &self.classes);
                let cost = self.lost(slot, request, (before, after, 1), limit);
                if best.is_none_or(|best| cost < best.cost) {
                    best = Some(PackSpot { cost, device: index, start });
                }
            }
        }
        best
    }

    /// The cost to others if `times` devices change from one row to another, and the node loses the request's CPU and
    /// memory. The sum ends once it exceeds the limit.
    fn lost(
        &self,
        slot: u32,
        request: &ShareRequest,
        (before, after, times): (u32, u32, u16),
        limit: u64,
    ) -> u64 {
        let state = &self.states.slots[slot as usize];
        let cpu = state.key.cpu_milli.saturating_sub_unsigned(request.cpu_milli);
        let memory = state.key.memory_bytes.saturating_sub_unsigned(request.memory_bytes);
        let (before, after) = (self.states.counts(before), self.states.counts(after));
        let mut cost = 0u64;
        for (price, at) in &self.dearest {
            let at = usize::from(*at);
            let fits = state.fits[at];
            if fits == 0 {
                continue;
            }
            let gone = u32::from(before[at].saturating_sub(after[at])) * u32::from(times);
            let then =
                self.classes[at].request.fitting(u32::from(state.room[at]).saturating_sub(gone), cpu, memory);
            cost = cost.saturating_add(price * u64::from(u32::from(fits).saturating_sub(then)));
            if cost > limit {
                break;
            }
        }
        cost
    }

    /// The devices of a node that match a placement on its state.
    fn part(&self, node: usize, state: &State, request: &ShareRequest, place: &PackSpot) -> Option<Part> {
        let seen = &self.nodes[node];
        let use_of = |index: u8| {
            let open = seen.open.iter().find(|open| open.index == index).map(|open| open.device);
            let is_free = seen.free.devices.contains(u32::from(index));
            open.unwrap_or(if is_free { Device::Empty } else { Device::Whole })
        };
        let meant = state.key.devices().get(usize::from(place.device)).copied()?;
        let alike = || (0..state.key.devices().len() as u8).find(|index| use_of(*index) == meant);
        match request.want {
            Want::Nothing => Some(Part::Nothing),
            // The table of the shape chooses the devices.
            Want::Whole(_) => Some(Part::Whole(DeviceMask::EMPTY)),
            Want::Share(_) => alike().map(|device| Part::Share { device }),
            Want::Slice(slice) => {
                let geometry = self.hardware[usize::from(state.key.kind)].geometry?;
                let profile = geometry.smallest(slice)?;
                alike().map(|device| Part::Slice { device, profile, start: place.start })
            }
        }
    }
}

/// The state of a node that takes work.
fn state_of(tree: &Tree, node: usize, free: &Free, open: &[Open]) -> Option<NodeState> {
    if !free.takes_work() {
        return None;
    }
    let place = &tree.nodes[node];
    let count = place.total.devices.count() as usize;
    let mut state = NodeState::empty(place.kind, count, free.cpu_milli, free.memory_bytes)?;
    for index in 0..count as u8 {
        let device = open.iter().find(|open| open.index == index).map(|open| open.device);
        let is_free = free.devices.contains(u32::from(index));
        state.set(index, device.unwrap_or(if is_free { Device::Empty } else { Device::Whole }));
    }
    Some(state)
}
