//! Which devices are shared or cut, and how. Kept for these alone: whole devices cost nothing here.

pub(crate) mod hardware;
mod worth;

use std::collections::BTreeMap;
use std::ops::Range;

use phalanx_model::{DeviceMask, DevicePart, Needs, PartNeed};

use crate::cluster::space::{Pick, Piece};
use crate::cluster::tree::Tree;
use crate::share::{Device, Kind as Hardware, Trust};
use hardware::{TRUST_NONE, Wanted};
use worth::PartMix;

/// A device that is shared or cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) index: u8,
    pub(crate) device: Device,
}

/// Devices of one hardware that are used in the same way.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// Kind of node, hardware among those of the kind, use.
    pub(crate) key: (u16, u8, Device),
    /// Nodes with such a device, in order; a node once for each.
    pub(crate) nodes: Vec<u32>,
}

/// The shared and cut devices of all nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    /// By node, devices in order; nothing at all until a part is taken somewhere.
    nodes: Vec<Vec<Open>>,
    /// Devices of nodes that take no more parts, because a gang waits for all of the device.
    closed: BTreeMap<u32, DeviceMask>,
    /// Devices that take no more parts, because others use them beside their parts.
    barred: BTreeMap<u32, DeviceMask>,
    /// By key, without those that are closed. States that no device is in are kept for their memory, and passed over.
    states: Vec<State>,
    trusts: Trusts,
    pub(crate) mix: PartMix,
}

/// Numbers for the texts of trust.
#[derive(Clone, Debug, Default)]
struct Trusts {
    /// The number of a text, and shares that have it.
    known: BTreeMap<String, (u16, u32)>,
    /// Numbers that are free again.
    spare: Vec<u16>,
    /// Texts without shares are forgotten when so many texts are known.
    forget_at: usize,
}

/// Numbers for texts: those that no special trust has.
const NUMBERS: usize = Trust::ANY.0 as usize;
/// Texts that are kept at least; they cost little, and most come again.
const TRUSTS_KEPT: usize = 4_096;
/// States that no device is in are kept likewise.
const STATES_KEPT: usize = 1_024;
/// A trust that no device has: only an empty one will do.
const TRUST_OF_NO_DEVICE: Trust = Trust(u16::MAX - 1);

impl Trusts {
    /// The trust of a text; [`TRUST_OF_NO_DEVICE`] if no device has a share of that text.
    fn find(&self, text: &str) -> Trust {
        match self.known.get(text) {
            Some((number, _)) => Trust(*number),
            None if self.known.len() >= NUMBERS => TRUST_NONE,
            None => TRUST_OF_NO_DEVICE,
        }
    }

    /// Counts one share more or less.
    fn count(&mut self, text: &str, is_added: bool) {
        if let Some((_, shares)) = self.known.get_mut(text) {
            *shares = if is_added { shares.saturating_add(1) } else { shares.saturating_sub(1) };
        }
    }

    /// The trust of a text. A text without a number gets one.
    fn number(&mut self, text: &str) -> Trust {
        if let Some((number, _)) = self.known.get(text) {
            return Trust(*number);
        }
        if self.known.len() >= self.forget_at.clamp(TRUSTS_KEPT, NUMBERS) {
            let spare = &mut self.spare;
            self.known.retain(|_, (number, shares)| {
                spare.extend((*shares == 0).then_some(*number));
                *shares > 0
            });
            self.forget_at = self.known.len() * 2;
        }
        let next = self.spare.pop().or_else(|| u16::try_from(self.known.len()).ok());
        let Some(number) = next.filter(|number| usize::from(*number) < NUMBERS) else { return TRUST_NONE };
        self.known.insert(text.to_owned(), (number, 0));
        Trust(number)
    }
}

/// The hardware of one device of a node, and its number among those of the node's kind.
pub(crate) fn hardware_at(tree: &Tree, node: usize, index: u8) -> Option<(u8, &Hardware)> {
    let all = &tree.kind(tree.nodes.get(node)?).hardware;
    let found = (0_u8..).zip(all).find(|(_, (_, mask))| mask.contains(u32::from(index)));
    found.map(|(at, (hardware, _))| (at, hardware))
}

/// An empty mask takes no room.
fn set(masks: &mut BTreeMap<u32, DeviceMask>, node: usize, mask: DeviceMask) {
    if mask.is_empty() {
        masks.remove(&(node as u32));
    } else {
        masks.insert(node as u32, mask);
    }
}

/// The index of the one device of a pick.
fn device_of(pick: &Pick) -> Option<u8> {
    let index = u8::try_from(pick.devices.0.trailing_zeros()).ok()?;
    (pick.devices.count() == 1).then_some(index)
}

impl Parts {
    /// The devices of a node that are shared or cut.
    pub(crate) fn on(&self, node: usize) -> &[Open] {
        self.nodes.get(node).map_or(&[], Vec::as_slice)
    }

    /// Those of them that may take more parts.
    pub(crate) fn open_on(&self, node: usize) -> impl Iterator<Item = &Open> {
        let closed = self.closed_on(node);
        self.on(node).iter().filter(move |open| !closed.contains(u32::from(open.index)))
    }

    /// The devices of a node that take no more parts.
    fn closed_on(&self, node: usize) -> DeviceMask {
        let of = |masks: &BTreeMap<u32, DeviceMask>| masks.get(&(node as u32)).copied().unwrap_or_default();
        of(&self.closed).union(of(&self.barred))
    }

    /// Closes those of these devices that are shared or cut: they take no more parts. Returns the devices that were
    /// closed by this call.
    pub(crate) fn close(&mut self, tree: &Tree, node: usize, devices: DeviceMask) -> DeviceMask {
        let before = self.closed.get(&(node as u32)).copied().unwrap_or_default();
        let closes = self.devices(node).and(devices).minus(before);
        self.reclose(tree, node, |parts| set(&mut parts.closed, node, before.union(closes)));
        closes
    }

    /// They take parts again.
    pub(crate) fn open_again(&mut self, tree: &Tree, node: usize, devices: DeviceMask) {
        let before = self.closed.get(&(node as u32)).copied().unwrap_or_default();
        self.reclose(tree, node, |parts| set(&mut parts.closed, node, before.minus(devices)));
    }

    /// Whether a device of a node is shared or cut, or others use a device that was.
    pub(crate) fn is_any_on(&self, node: usize) -> bool {
        !self.on(node).is_empty() || self.barred.contains_key(&(node as u32))
    }

    /// Bars exactly these devices of a node from taking more parts; devices that are closed by [`Self::close`] stay
    /// closed.
    pub(crate) fn bar(&mut self, tree: &Tree, node: usize, devices: DeviceMask) {
        let devices = devices.and(self.devices(node));
        self.reclose(tree, node, |parts| set(&mut parts.barred, node, devices));
    }

    /// Whether others use one of these devices beside its parts.
    pub(crate) fn is_barred(&self, node: usize, devices: DeviceMask) -> bool {
        let barred = self.barred.get(&(node as u32)).copied().unwrap_or_default();
        !barred.and(devices).is_empty()
    }

    fn reclose(&mut self, tree: &Tree, node: usize, change: impl FnOnce(&mut Self)) {
        let before = self.closed_on(node);
        change(self);
        let after = self.closed_on(node);
        if before != after {
            self.file_all(tree, node, after.minus(before), false);
            self.file_all(tree, node, before.minus(after), true);
        }
    }

    fn file_all(&mut self, tree: &Tree, node: usize, devices: DeviceMask, is_added: bool) {
        for open in self.on(node).to_vec() {
            let number = hardware_at(tree, node, open.index).map(|(number, _)| number);
            if let Some(number) = number.filter(|_| devices.contains(u32::from(open.index))) {
                self.file((tree.nodes[node].kind, number, open.device), node as u32, is_added);
            }
        }
    }

    /// The same devices in a tree of the same nodes, which has other kinds of nodes.
    pub(crate) fn moved_to(&self, tree: &Tree) -> Self {
        let mut moved = Self { states: Vec::new(), ..self.clone() };
        for node in 0..moved.nodes.len() {
            let open = moved.devices(node).minus(moved.closed_on(node));
            moved.file_all(tree, node, open, true);
        }
        moved
    }

    /// The same, as a set.
    pub(crate) fn devices(&self, node: usize) -> DeviceMask {
        self.on(node).iter().map(|open| u32::from(open.index)).collect()
    }

    /// The uses that some device is in, each with its place among all.
    pub(crate) fn states(&self) -> impl Iterator<Item = (usize, &State)> {
        self.states.iter().enumerate().filter(|(_, state)| !state.nodes.is_empty())
    }

    pub(crate) fn state(&self, at: usize) -> Option<&State> {
        self.states.get(at)
    }

    /// The trust of a share, as devices know it.
    pub(crate) fn trust_of(&self, need: &PartNeed) -> Trust {
        match need {
            PartNeed::Share { trust, .. } => self.trusts.find(trust),
            _ => Trust::default(),
        }
    }

    /// Books the part of a pick. Returns false, and books nothing, if the device does not have the part: others
    /// over-commit it, or the placement was made for another machine.
    pub(crate) fn take(&mut self, tree: &Tree, free: DeviceMask, pick: &Pick, needs: &Needs) -> bool {
        let is_booked = self.try_take(tree, free, pick, needs).is_some();
        if let (true, Some(PartNeed::Share { trust, .. })) = (is_booked, &needs.part) {
            self.trusts.count(trust, true);
        }
        is_booked
    }

    fn try_take(&mut self, tree: &Tree, free: DeviceMask, pick: &Pick, needs: &Needs) -> Option<()> {
        let (node, index) = (pick.node as usize, device_of(pick)?);
        let (number, hardware) = hardware_at(tree, node, index)?;
        let trust = match &needs.part {
            Some(PartNeed::Share { trust, .. }) => self.trusts.number(trust),
            _ => Trust::default(),
        };
        let (wanted, start) = wanted_of(pick.piece, needs.part.as_ref()?, hardware, trust)?;
        let before = self.on(node).iter().find(|open| open.index == index).map(|open| open.device);
        if before.is_none() && !free.contains(u32::from(index)) {
            return None;
        }
        let mut device = before.unwrap_or_default();
        if wanted.room(hardware, &device) == 0 {
            return None;
        }
        wanted.take(hardware, &mut device, start)?;
        if self.nodes.is_empty() {
            self.nodes.resize(tree.nodes.len(), Vec::new());
        }
        self.change(tree, (node, index, number), before, Some(device.bare()));
        self.mix.count(wanted, hardware, true, &self.states, tree);
        Some(())
    }

    /// Removes the booked part of a pick. Returns the device if it is free again.
    pub(crate) fn give_back(&mut self, tree: &Tree, pick: &Pick, needs: &Needs) -> DeviceMask {
        self.try_give_back(tree, pick, needs).unwrap_or(DeviceMask::EMPTY)
    }

    fn try_give_back(&mut self, tree: &Tree, pick: &Pick, needs: &Needs) -> Option<DeviceMask> {
        let (node, index) = (pick.node as usize, device_of(pick)?);
        let (number, hardware) = hardware_at(tree, node, index)?;
        let need = needs.part.as_ref()?;
        let before = self.on(node).iter().find(|open| open.index == index)?.device;
        let trust = match (&before, need) {
            (Device::Shared { trust, .. }, PartNeed::Share { .. }) if *trust == TRUST_NONE => TRUST_NONE,
            (_, PartNeed::Share { trust, .. }) => self.trusts.find(trust),
            _ => Trust::default(),
        };
        let (wanted, start) = wanted_of(pick.piece, need, hardware, trust)?;
        let mut device = before;
        if !wanted.give_back(hardware, &mut device, start) {
            return None;
        }
        let after = (device != Device::Empty).then_some(device);
        self.change(tree, (node, index, number), Some(before), after);
        self.mix.count(wanted, hardware, false, &self.states, tree);
        if let PartNeed::Share { trust, .. } = need {
            self.trusts.count(trust, false);
        }
        Some(if after.is_none() { pick.devices } else { DeviceMask::EMPTY })
    }

    /// Changes the use of one device; `None` is a device that is neither shared nor cut.
    fn change(
        &mut self,
        tree: &Tree,
        (node, index, number): (usize, u8, u8),
        before: Option<Device>,
        after: Option<Device>,
    ) {
        let Some(of_node) = self.nodes.get_mut(node) else { return };
        let at = of_node.binary_search_by_key(&index, |open| open.index);
        match (at, after) {
            (Ok(at), Some(device)) => of_node[at].device = device,
            (Err(at), Some(device)) => of_node.insert(at, Open { index, device }),
            (Ok(at), None) => _ = of_node.remove(at),
            (Err(_), None) => {}
        }
        let kind = tree.nodes[node].kind;
        let is_closed = self.closed_on(node).contains(u32::from(index));
        for (device, is_added) in [(before, false), (after, true)] {
            let Some(device) = device else { continue };
            self.mix.see(&tree.kinds[usize::from(kind)].hardware[usize::from(number)].0, &device, is_added);
            if !is_closed {
                self.file((kind, number, device), node as u32, is_added);
            }
        }
    }

    fn file(&mut self, key: (u16, u8, Device), node: u32, is_added: bool) {
        let at = match self.states.binary_search_by_key(&key, |state| state.key) {
            Ok(at) => at,
            Err(_) if self.states.len() >= STATES_KEPT && self.states().count() * 2 < self.states.len() => {
                self.states.retain(|state| !state.nodes.is_empty());
                return self.file(key, node, is_added);
            }
            Err(at) => {
                self.states.insert(at, State { key, nodes: Vec::new() });
                at
            }
        };
        let nodes = &mut self.states[at].nodes;
        let first = nodes.partition_point(|known| *known < node);
        if is_added {
            nodes.insert(first, node);
        } else if nodes.get(first) == Some(&node) {
            nodes.remove(first);
        }
    }
}

impl State {
    /// Its nodes within a range, each once.
    pub(crate) fn nodes_in(&self, range: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        let first = self.nodes.partition_point(|node| (*node as usize) < range.start);
        let mut last = None;
        let within =
            self.nodes[first..].iter().map(|node| *node as usize).take_while(move |n| *n < range.end);
        within.filter(move |node| last.replace(*node) != Some(*node))
    }
}

/// The part of a pick in terms of its device, and the start of the part.
fn wanted_of(piece: Piece, need: &PartNeed, hardware: &Hardware, trust: Trust) -> Option<(Wanted, u8)> {
    match (piece, need) {
        (Piece::Share, PartNeed::Share { .. } | PartNeed::Replica) => {
            Some((Wanted::of(need, hardware, trust)?, 0))
        }
        (Piece::Slice { profile, start }, _) => Some((Wanted::Slice(profile), start)),
        _ => None,
    }
}

/// Which part of its device the member of a pick has.
pub(crate) fn part_of(tree: &Tree, pick: &Pick) -> Option<DevicePart> {
    match pick.piece {
        Piece::Whole => None,
        Piece::Share => Some(DevicePart::Share),
        Piece::Slice { profile, start } => {
            let index = u8::try_from(pick.devices.0.trailing_zeros()).ok()?;
            let (_, hardware) = hardware_at(tree, pick.node as usize, index)?;
            let profile = hardware.geometry?.profile(profile)?.name.to_owned();
            Some(DevicePart::Slice { profile, start })
        }
    }
}

/// The same the other way round, for a device of a node.
pub(crate) fn piece_of(tree: &Tree, node: u32, devices: DeviceMask, part: &DevicePart) -> Piece {
    match part {
        DevicePart::Share => Piece::Share,
        DevicePart::Slice { profile, start } => {
            let index = u8::try_from(devices.0.trailing_zeros()).unwrap_or(u8::MAX);
            let named = hardware_at(tree, node as usize, index)
                .and_then(|(_, hardware)| hardware.geometry?.named(profile));
            // A profile that the device has not is booked nowhere.
            Piece::Slice { profile: named.unwrap_or(u8::MAX), start: *start }
        }
    }
}
