//! Where a request costs the others least.

use std::cmp::Reverse;

use phalanx_model::DeviceMask;

use super::device::{Device, Kind};
use super::mix::{Class, Mix, Observed};
use super::node::{Ask, NodeState, Part, Reshapes, ShareError, Want};
use super::states::{NOBODY, Place, State, States, UNKNOWN};

/// The dearest price, so that a sum over classes and counts stays within 64 bits.
const PRICE_BITS: u32 = 38;

/// Where a request would go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    pub node: u32,
    pub part: Part,
    /// What it takes from others, in units of the present price list.
    pub cost: u64,
}

/// The nodes of a cluster, what they have left, and the mix of requests seen so far.
///
/// A decision looks at every *state* that some node is in, not at every node, and what a class of requests costs on
/// a state is computed once per price list. A change touches one node.
#[derive(Clone, Debug, Default)]
pub struct Packing {
    kinds: Vec<Kind>,
    nodes: Vec<NodeState>,
    slots: Vec<u32>,
    states: States,
    mix: Mix,
    /// By class: requests that fit in the whole cluster.
    totals: Vec<u64>,
    prices: Vec<u64>,
    /// Number of the price list; what was computed with another one is void.
    list: u32,
    /// Requests seen since the list was made.
    since: u64,
    /// Scratch: costs of a request whose class is not kept.
    unkept: Vec<Place>,
}

impl Packing {
    /// Nodes in their order, which ends ties: by name where the caller has names.
    #[must_use]
    pub fn new(kinds: Vec<Kind>) -> Self {
        Self { kinds, ..Self::default() }
    }

    /// Adds a node and returns its index.
    ///
    /// # Errors
    /// When there is no such kind.
    pub fn add(&mut self, node: NodeState) -> Result<u32, ShareError> {
        let index = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        if usize::from(node.kind) >= self.kinds.len() {
            return Err(ShareError::NoKind(node.kind));
        }
        self.nodes.push(node);
        self.slots.push(0);
        self.enter(index, node);
        Ok(index)
    }

    #[must_use]
    pub fn node(&self, index: u32) -> Option<&NodeState> {
        self.nodes.get(index as usize)
    }

    /// Notes that somebody asked. Call it once per request, however often a place is looked for.
    pub fn observe(&mut self, ask: &Ask) {
        self.since = self.since.saturating_add(1);
        match self.mix.observe(ask) {
            Observed::Counted => return,
            Observed::Added => {}
            Observed::Aged => {
                self.states.forget_classes();
                self.totals.clear();
                self.prices.clear();
                self.since = u64::MAX;
            }
        }
        let known = self.totals.len();
        self.totals.resize(self.mix.classes.len(), 0);
        self.prices.resize(self.mix.classes.len(), 0);
        for at in 0..self.states.live.len() {
            let Some(slot) = self.states.live.get(at).copied() else { continue };
            let Some(kind) = self.kind_of(slot).copied() else { continue };
            self.states.count(slot, &kind, &self.mix.classes);
            let Some(state) = self.states.state(slot) else { continue };
            for (total, fits) in self.totals.iter_mut().zip(&state.fits).skip(known) {
                *total += u64::from(*fits) * state.members.len() as u64;
            }
        }
    }

    /// The place that costs the others least, or `None` where no node has one.
    #[must_use]
    pub fn choose(&mut self, ask: &Ask) -> Option<Spot> {
        self.price();
        let class = self.mix.find(ask);
        let mut row = self.take_row(class);
        let mut least = u64::MAX;
        for (slot, place) in (0u32..).zip(&mut row) {
            if place.list == NOBODY {
                continue;
            }
            if place.list != self.list {
                *place = self.weigh(slot, ask);
            }
            least = least.min(place.cost);
        }
        let spot = self.pick(&row, least, ask);
        self.put_row(class, row);
        spot
    }

    /// Of the places near the least cost the one on the node with the most CPU per free device.
    fn pick(&self, row: &[Place], least: u64, ask: &Ask) -> Option<Spot> {
        let limit = least.saturating_add(least / 4).min(u64::MAX - 1);
        let near = (0u32..).zip(row).filter(|(_, place)| place.list != NOBODY && place.cost <= limit);
        let states = near.filter_map(|(slot, place)| Some((self.states.state(slot)?, place)));
        let (state, place) =
            states.max_by_key(|(state, _)| (state.plenty, Reverse(state.members.first().copied())))?;
        let node = state.members.first().copied()?;
        Some(Spot { node, part: self.part(node, state, ask, place)?, cost: place.cost })
    }

    /// What is known of the costs of a class, by slot; for a class that is not kept, a row that knows nothing.
    fn take_row(&mut self, class: Option<usize>) -> Vec<Place> {
        let Some(class) = class else {
            let mut row = std::mem::take(&mut self.unkept);
            row.clear();
            row.extend(self.states.slots.iter().map(|state| Place {
                list: if state.members.is_empty() { NOBODY } else { UNKNOWN },
                ..Place::default()
            }));
            return row;
        };
        self.states.open_row(class);
        self.states.places.get_mut(class).map(std::mem::take).unwrap_or_default()
    }

    fn put_row(&mut self, class: Option<usize>, row: Vec<Place>) {
        match class {
            Some(class) => {
                if let Some(there) = self.states.places.get_mut(class) {
                    *there = row;
                }
            }
            None => self.unkept = row,
        }
    }

    /// The best place on one node, or `None` where it does not fit there.
    #[must_use]
    pub fn choose_on(&mut self, node: u32, ask: &Ask) -> Option<Spot> {
        self.price();
        let slot = self.slots.get(node as usize).copied()?;
        let place = self.weigh(slot, ask);
        let part = self.part(node, self.states.state(slot)?, ask, &place)?;
        (place.cost < u64::MAX).then_some(Spot { node, part, cost: place.cost })
    }

    /// Takes a part of a node, and says what has to be done to its devices before.
    ///
    /// # Errors
    /// When there is no such node or the part does not fit; nothing is taken then.
    pub fn take(&mut self, node: u32, ask: &Ask, part: Part) -> Result<Reshapes, ShareError> {
        let (mut state, kind) = self.at(node)?;
        let reshapes = state.take(&kind, ask, part)?;
        self.change(node, state);
        Ok(reshapes)
    }

    /// Gives a part of a node back.
    ///
    /// # Errors
    /// When there is no such node, or nothing of that kind was taken there.
    pub fn give_back(&mut self, node: u32, ask: &Ask, part: Part) -> Result<(), ShareError> {
        let (mut state, kind) = self.at(node)?;
        state.give_back(&kind, ask, part)?;
        self.change(node, state);
        Ok(())
    }

    fn at(&self, node: u32) -> Result<(NodeState, Kind), ShareError> {
        let state = *self.node(node).ok_or(ShareError::NoNode(node))?;
        let kind = *self.kinds.get(usize::from(state.kind)).ok_or(ShareError::NoKind(state.kind))?;
        Ok((state, kind))
    }

    fn kind_of(&self, slot: u32) -> Option<&Kind> {
        self.kinds.get(usize::from(self.states.state(slot)?.key.kind))
    }

    fn change(&mut self, node: u32, after: NodeState) {
        if let Some(slot) = self.slots.get(node as usize).copied() {
            if let Some(state) = self.states.state(slot) {
                for (total, fits) in self.totals.iter_mut().zip(&state.fits) {
                    *total -= u64::from(*fits);
                }
            }
            self.states.leave(slot, node);
        }
        self.enter(node, after);
    }

    fn enter(&mut self, node: u32, now: NodeState) {
        let Some(kind) = self.kinds.get(usize::from(now.kind)) else { return };
        let slot = self.states.intern(now.canonical(), kind, &self.mix.classes);
        self.states.enter(slot, node);
        if let Some(state) = self.states.state(slot) {
            for (total, fits) in self.totals.iter_mut().zip(&state.fits) {
                *total += u64::from(*fits);
            }
        }
        if let (Some(at), Some(there)) =
            (self.nodes.get_mut(node as usize), self.slots.get_mut(node as usize))
        {
            *at = now;
            *there = slot;
        }
    }

    /// Makes a new price list when enough was asked for since the last one: `seen / (n * s)^2` for each class, scaled
    /// so that the dearest has [`PRICE_BITS`] bits.
    fn price(&mut self) {
        let patience = (self.nodes.len() as u64 / 8).max(32).min(self.mix.seen / 8 + 1);
        if self.since < patience {
            return;
        }
        self.since = 0;
        self.list = if self.list + 1 < NOBODY { self.list + 1 } else { 1 };
        let kinds = &self.kinds;
        let raw = |class: &Class, total: u64| -> u128 {
            let size = kinds.iter().map(|kind| class.ask.size_milli(kind)).max().unwrap_or(0);
            // At least half a device: the last place is dear, and not without bound.
            let usable = u128::from(total.saturating_mul(size).max(500)).min(1 << 48);
            if size == 0 { 0 } else { (u128::from(class.seen) << 96) / (usable * usable) }
        };
        let classes = self.mix.classes.iter().zip(&self.totals);
        let dearest = classes.clone().map(|(class, total)| raw(class, *total)).max().unwrap_or(0);
        let excess = (u128::BITS - dearest.leading_zeros()).saturating_sub(PRICE_BITS);
        for (price, (class, total)) in self.prices.iter_mut().zip(classes) {
            *price = u64::try_from(raw(class, *total) >> excess).unwrap_or(u64::MAX);
        }
    }

    /// The best place on a state.
    fn weigh(&mut self, slot: u32, ask: &Ask) -> Place {
        let nowhere = Place { cost: u64::MAX, ..Place::default() };
        Place { list: self.list, ..self.least(slot, ask).unwrap_or(nowhere) }
    }

    /// Weighs all places on a state that differ.
    fn least(&mut self, slot: u32, ask: &Ask) -> Option<Place> {
        let kind = *self.kind_of(slot)?;
        let key = self.states.state(slot)?.key;
        if key.room(&kind, ask) == 0 {
            return None;
        }
        if let Want::Nothing | Want::Whole(_) = ask.want {
            let times = if let Want::Whole(count) = ask.want { u16::from(count) } else { 0 };
            let before = self.states.row(key.kind, &kind, Device::Empty, &self.mix.classes);
            let after = self.states.row(key.kind, &kind, Device::Whole, &self.mix.classes);
            let cost = self.lost(slot, ask, (before, after, times))?;
            return Some(Place { cost, ..Place::default() });
        }
        self.states.bound_rows();
        let mut best: Option<Place> = None;
        let mut last = None;
        for (index, device) in (0u8..).zip(key.devices()) {
            if ask.room_on(&kind, device) == 0 || last == Some(*device) {
                continue;
            }
            last = Some(*device);
            let profile = match ask.want {
                Want::Slice(slice) => kind.geometry.and_then(|geometry| geometry.smallest(slice)),
                _ => None,
            };
            let starts =
                kind.geometry.zip(profile).map_or(1, |(geometry, profile)| device.starts(geometry, profile));
            // The last start first: among equals small slices leave the front to large ones.
            for start in (0..8).rev().filter(|start| starts >> start & 1 == 1) {
                let mut then = *device;
                match (ask.want, kind.geometry.zip(profile)) {
                    (Want::Share(share), _) => then.take_share(&kind, ask.trust, share)?,
                    (_, Some((geometry, profile))) => then.take_slice(geometry, profile, start)?,
                    _ => return None,
                };
                let before = self.states.row(key.kind, &kind, *device, &self.mix.classes);
                let after = self.states.row(key.kind, &kind, then.bare(), &self.mix.classes);
                let cost = self.lost(slot, ask, (before, after, 1))?;
                if best.is_none_or(|best| cost < best.cost) {
                    best = Some(Place { cost, device: index, start, ..Place::default() });
                }
            }
        }
        best
    }

    /// What others lose when `times` devices go from one row to another, and the request's CPU and memory with them.
    fn lost(&self, slot: u32, ask: &Ask, (before, after, times): (u32, u32, u16)) -> Option<u64> {
        let state = self.states.state(slot)?;
        let cpu = state.key.cpu_milli.saturating_sub_unsigned(ask.cpu_milli);
        let memory = state.key.memory_bytes.saturating_sub_unsigned(ask.memory_bytes);
        let rows = self.states.counts(before).iter().zip(self.states.counts(after));
        let counted = state.fits.iter().zip(&state.room).zip(rows);
        let priced = self.mix.classes.iter().zip(&self.prices).zip(counted);
        let mut cost = 0u64;
        for ((class, price), ((fits, room), (before, after))) in priced {
            if *price == 0 || *fits == 0 {
                continue;
            }
            let gone = u32::from(before.saturating_sub(*after)) * u32::from(times);
            let then = class.ask.fitting(u32::from(*room).saturating_sub(gone), cpu, memory);
            cost += price * u64::from(u32::from(*fits).saturating_sub(then));
        }
        Some(cost)
    }

    /// The devices of a node that stand for a place on its state.
    fn part(&self, node: u32, state: &State, ask: &Ask, place: &Place) -> Option<Part> {
        let actual = self.node(node)?;
        let devices = || (0u8..).zip(actual.devices());
        let meant = state.key.devices().get(usize::from(place.device)).copied();
        let alike = || devices().filter(|(_, device)| Some(device.bare()) == meant);
        match ask.want {
            Want::Nothing => Some(Part::Nothing),
            Want::Whole(count) => {
                // Devices that need no change first.
                let plain = devices().filter(|(_, device)| **device == Device::Empty);
                let cut = devices().filter(|(_, device)| **device != Device::Empty && device.is_free());
                let chosen = plain.chain(cut).take(usize::from(count)).map(|(index, _)| u32::from(index));
                let mask: DeviceMask = chosen.collect();
                (mask.count() == u32::from(count)).then_some(Part::Whole(mask))
            }
            Want::Share(_) => alike()
                .min_by_key(|(_, device)| matches!(device, Device::Sliced(_)))
                .map(|(device, _)| Part::Share { device }),
            Want::Slice(slice) => {
                let geometry = self.kinds.get(usize::from(state.key.kind))?.geometry?;
                let profile = geometry.smallest(slice)?;
                let changes = |device: &Device| {
                    let mut then = *device;
                    then.take_slice(geometry, profile, place.start)
                        .is_none_or(|reshape| reshape.create.is_some())
                };
                let (device, _) = alike().min_by_key(|(_, device)| changes(device))?;
                Some(Part::Slice { device, profile, start: place.start })
            }
        }
    }

    /// The books again from nothing: states, members and totals are what the nodes say.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut totals = vec![0; self.totals.len()];
        for (index, (node, slot)) in (0u32..).zip(self.nodes.iter().zip(&self.slots)) {
            let state = self.states.state(*slot).expect("every node is in a state");
            assert_eq!(state.key, node.canonical());
            assert!(state.members.contains(&index) && self.states.live.contains(slot));
            let kind = &self.kinds[usize::from(node.kind)];
            for (total, class) in totals.iter_mut().zip(&self.mix.classes) {
                *total += u64::from(node.room(kind, &class.ask).min(u32::from(u16::MAX)));
            }
        }
        assert_eq!(totals, self.totals);
    }
}
