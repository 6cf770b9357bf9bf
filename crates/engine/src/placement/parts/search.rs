//! Finds a placement for parts: open devices come before others, and of the open devices the one that costs the other
//! classes least.
//!
//! Another device is opened in the place where the search for whole devices would take one, which leaves islands,
//! nodes and leaves whole.

use std::ops::Range;

use phalanx_model::{DeviceMask, Gang, Needs, PartNeed, Program, Topology};

use super::fill::Child;
use super::look::{ALL, Asked, Look};
use crate::cluster::fractions::hardware::Wanted;
use crate::cluster::fractions::{Open, hardware_at};
use crate::cluster::mix::Prices;
use crate::cluster::share_request::share_request_of;
use crate::cluster::space::{Pick, Piece};
use crate::cluster::tree::LevelAt;
use crate::placement::request::Buffers;
use crate::placement::search::{Ceiling, Search};
use crate::share::{Device, Kind as Hardware, Part};

/// Uses of devices that are weighed against each other, the fullest first.
const WEIGHED_MAX: usize = 32;

/// A placement on a device: the cost to others, how much of the device is free before, and the start of the part.
/// Less is better. Of equal placements the last start wins, so that small slices leave the front to large ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Worth {
    lost: u64,
    free_milli: u32,
    start: std::cmp::Reverse<u8>,
}

/// The memory of searches for parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct FractionalSearch {
    pub(super) buffers: Buffers,
    pub(super) asked: Asked,
    /// A gang of the whole devices that are to be opened.
    whole: Option<Box<Gang>>,
    /// Free devices by kind.
    fresh: Vec<u64>,
    prices: Prices,
    /// Uses of devices with room: how full, then how good; and the place among all.
    uses: Vec<(Worth, usize)>,
    /// Nodes with room on devices that are open, in order: `(node, members)`.
    hosts: Vec<(u32, u32)>,
    /// By level and domain: members that it holds.
    pub(super) rooms: Vec<Vec<u32>>,
    pub(super) children: Vec<Child>,
    /// The devices of one node, while members are put on it.
    local: Vec<Open>,
    picks: Vec<Pick>,
    of_nodes: Vec<Pick>,
}

impl FractionalSearch {
    /// Puts the whole gang somewhere; whether it fits. The picks are in [`Self::picks`].
    pub(super) fn place(&mut self, search: &mut Search, look: Look<'_>) -> bool {
        self.picks.clear();
        if !look.request.parts.is_empty() || look.asked.most() == 0 {
            return false;
        }
        self.price(look);
        let is_found = match look.request.ceiling {
            LevelAt::Group(group) => self.in_group(look, group),
            _ if look.request.size == 1 && look.request.also.is_empty() => self.one(search, look),
            ceiling => self.on_one_node(search, look) || self.across_nodes(look, ceiling),
        };
        self.picks.sort_by_key(|pick| pick.node);
        is_found
    }

    /// The placement of the members, in the order of the tree.
    pub(super) fn picks(&self) -> &[Pick] {
        &self.picks
    }

    /// The same, one for each node.
    pub(super) fn picks_of_nodes(&mut self) -> &[Pick] {
        self.of_nodes.clear();
        for pick in &self.picks {
            match self.of_nodes.last_mut().filter(|last| last.node == pick.node) {
                Some(last) => {
                    last.members += 1;
                    last.devices = last.devices.union(pick.devices);
                }
                None => self.of_nodes.push(Pick::new(pick.node, 1, pick.devices)),
            }
        }
        &self.of_nodes
    }

    /// The prices of this moment.
    fn price(&mut self, look: Look<'_>) {
        let Look { tree, space, .. } = look;
        self.fresh.clear();
        self.fresh.resize(tree.kinds.len(), 0);
        for row in tree.roots().flat_map(|domain| space.rows(0, domain)) {
            let offers = tree.kinds[usize::from(row.kind)].offers().iter();
            let counted = space.counts(tree, 0, row).iter().zip(offers);
            let devices: u64 = counted.map(|(nodes, of)| u64::from(*nodes) * u64::from(of.devices)).sum();
            self.fresh[usize::from(row.kind)] += devices;
        }
        space.parts().mix.price(tree, &self.fresh, &mut self.prices);
    }

    /// The best start on a device, if the part fits there.
    fn weigh(&self, look: Look<'_>, hardware: &Hardware, wanted: Wanted, device: &Device) -> Option<Worth> {
        let starts = wanted.starts(hardware, device);
        let free_milli = device.free_milli(hardware);
        let worth = |device: &Device| look.space.parts().mix.worth(&self.prices, hardware, device);
        let before = worth(device);
        let places = (0..8).filter(|start| starts >> start & 1 == 1).filter_map(|start| {
            let mut after = *device;
            wanted.take(hardware, &mut after, start)?;
            let lost = before.saturating_sub(worth(&after));
            Some(Worth { lost, free_milli, start: std::cmp::Reverse(start) })
        });
        places.min()
    }

    /// In a cluster of several models: the placement that costs others least, on an open device or on a new one. The
    /// measure may assume another part than this device has for the request.
    fn packed(&self, search: &mut Search, look: Look<'_>, takes: impl Fn(&usize) -> bool) -> Option<Pick> {
        let Look { tree, space, request, asked } = look;
        if !tree.is_mixed {
            return None;
        }
        let trust = space.parts().trust_of(request.needs.part.as_ref()?);
        let ask = share_request_of(tree, request.needs, trust)?;
        let (node, part) = search.pack.choose(tree, space, &ask, |node| takes(&node))?;
        let (index, meant) = match part {
            Part::Share { device } => (device, None),
            Part::Slice { device, profile, start } => (device, Some((Wanted::Slice(profile), start))),
            Part::Nothing | Part::Whole(_) => return None,
        };
        let (number, hardware) = hardware_at(tree, node, index)?;
        let kind = tree.nodes[node].kind;
        let (wanted, _) = asked.get(kind, number)?;
        let is_fresh = request.devices(tree, space, node).contains(u32::from(index));
        let open = space.parts().open_on(node).find(|open| open.index == index).map(|open| open.device);
        let device = open.or(is_fresh.then_some(Device::Empty))?;
        if !request.eligible[usize::from(kind)].contains(u32::from(index)) {
            return None;
        }
        let best = self.weigh(look, hardware, wanted, &device)?.start.0;
        let starts = wanted.starts(hardware, &device);
        let is_it = |(of, start): &(Wanted, u8)| *of == wanted && starts >> start & 1 == 1;
        Some(pick(node, index, wanted, meant.filter(is_it).map_or(best, |(_, start)| start)))
    }

    /// One member: the best open device, or one device more.
    fn one(&mut self, search: &mut Search, look: Look<'_>) -> bool {
        let takes = |node: &usize| look.room_on(*node, ALL) > 0 && look.room_around(*node) > 0;
        if let Some(pick) = self.packed(search, look, takes) {
            self.picks.push(pick);
            return true;
        }
        self.weigh_uses(look);
        let nodes = 0..look.tree.nodes.len();
        for at in 0..self.uses.len() {
            let (worth, state) = self.uses[at];
            let Some(state) = look.space.parts().state(state) else { continue };
            let Some(node) = state.nodes_in(nodes.clone()).find(takes) else { continue };
            let (_, number, device) = state.key;
            let is_it = |open: &&Open| {
                open.device == device
                    && hardware_at(look.tree, node, open.index).is_some_and(|(of, _)| of == number)
            };
            let Some(open) = look.space.parts().open_on(node).find(is_it) else { continue };
            let wanted = look.asked.get(state.key.0, number);
            return wanted.is_some_and(|(wanted, _)| {
                self.picks.push(pick(node, open.index, wanted, worth.start.0));
                true
            });
        }
        let Some(device) = self.whole_devices(search, look, 1, 1) else { return false };
        self.put_on(look, device.node as usize, device.devices, 1)
    }

    /// The uses of devices that have room, the best first.
    fn weigh_uses(&mut self, look: Look<'_>) {
        self.uses.clear();
        for (at, state) in look.space.parts().states() {
            let (kind, number, device) = state.key;
            let (hardware, mask) = &look.tree.kinds[usize::from(kind)].hardware[usize::from(number)];
            let is_eligible = !look.request.eligible[usize::from(kind)].and(*mask).is_empty();
            let wanted = look.asked.get(kind, number).filter(|_| is_eligible);
            if wanted.is_some_and(|(wanted, _)| wanted.room(hardware, &device) > 0) {
                let free_milli = device.free_milli(hardware);
                self.uses.push((Worth { lost: 0, free_milli, start: std::cmp::Reverse(0) }, at));
            }
        }
        if self.uses.len() > WEIGHED_MAX {
            self.uses.sort_unstable();
        }
        let mut uses = std::mem::take(&mut self.uses);
        for (order, (worth, at)) in uses.iter_mut().enumerate() {
            let Some(state) = look.space.parts().state(*at) else { continue };
            let (kind, number, device) = state.key;
            let (hardware, _) = &look.tree.kinds[usize::from(kind)].hardware[usize::from(number)];
            let Some((wanted, _)) = look.asked.get(kind, number) else { continue };
            if let Some(weighed) = self.weigh(look, hardware, wanted, &device) {
                *worth = weighed;
            }
            // The others come after the weighed ones, sorted by how full they are.
            worth.lost = if order < WEIGHED_MAX { worth.lost } else { u64::MAX };
        }
        uses.sort_unstable();
        self.uses = uses;
    }

    /// Nodes with room on open devices.
    pub(super) fn find_hosts(&mut self, look: Look<'_>) {
        self.hosts.clear();
        for (_, state) in look.space.parts().states() {
            let (kind, number, device) = state.key;
            let (hardware, _) = &look.tree.kinds[usize::from(kind)].hardware[usize::from(number)];
            let Some((wanted, _)) = look.asked.get(kind, number) else { continue };
            if wanted.room(hardware, &device) > 0 {
                self.hosts.extend(state.nodes.iter().map(|node| (*node, 0)));
            }
        }
        self.hosts.sort_unstable();
        self.hosts.dedup();
        self.hosts.iter_mut().for_each(|(node, open)| *open = look.open_on(*node as usize, ALL));
    }

    pub(super) fn hosts_in(&self, nodes: Range<usize>) -> impl Iterator<Item = (usize, u32)> + '_ {
        let first = self.hosts.partition_point(|(node, _)| (*node as usize) < nodes.start);
        let within = self.hosts[first..].iter().map(|(node, open)| (*node as usize, *open));
        within.take_while(move |(node, _)| *node < nodes.end)
    }

    /// All members on one node: one that hosts parts, or one more.
    fn on_one_node(&mut self, search: &mut Search, look: Look<'_>) -> bool {
        let size = look.request.size;
        if look.request.members_per_node.is_some_and(|exactly| exactly != size) {
            return false;
        }
        self.find_hosts(look);
        let holds = |node: usize| look.room_on(node, ALL) >= size && look.room_around(node) >= size;
        let hosts = self.hosts.iter().filter(|(node, _)| holds(*node as usize));
        // First the number of devices to open, then the free devices beside them, then the name.
        let best = hosts.min_by_key(|(node, open)| {
            let free = look.space.free(*node as usize).devices.count();
            (size.saturating_sub(*open), free, *node)
        });
        if let Some((node, _)) = best.copied() {
            return self.put_on(look, node as usize, ALL, size);
        }
        let is_plain = !look.request.is_capped() && look.request.node_max >= size;
        if is_plain {
            let devices = size.div_ceil(look.asked.most().max(1));
            let Some(found) = self.whole_devices(search, look, devices, size) else { return false };
            if look.room_on(found.node as usize, found.devices) >= size {
                return self.put_on(look, found.node as usize, found.devices, size);
            }
        }
        // If some nodes hold more than others, each must be read.
        let nodes = (0..look.tree.nodes.len()).filter(|node| holds(*node));
        let free = |node: usize| look.space.free(node).devices;
        let is_whole = |node: usize| free(node) == look.tree.nodes[node].total.devices;
        let best = nodes.min_by_key(|node| (is_whole(*node), free(*node).count(), *node));
        best.is_some_and(|node| self.put_on(look, node, ALL, size))
    }

    /// All members on one group of devices of one node.
    fn in_group(&mut self, look: Look<'_>, group: usize) -> bool {
        let size = look.request.size;
        let mut best = None;
        for node in 0..look.tree.nodes.len() {
            for mask in look.sites(node, group) {
                if look.room_on(node, mask) < size || look.room_around(node) < size {
                    continue;
                }
                let free = look.space.free(node).devices;
                let opened = size.saturating_sub(look.open_on(node, mask));
                let is_whole = mask.is_subset_of(free);
                let key = (opened, is_whole, free.and(mask).count(), node, mask);
                best = if best.is_none_or(|best| key < best) { Some(key) } else { best };
            }
        }
        best.is_some_and(|(.., node, mask)| self.put_on(look, node, mask, size))
    }

    /// So many whole devices of the node where taking them breaks least, with CPUs and memory for all members.
    fn whole_devices(
        &mut self,
        search: &mut Search,
        look: Look<'_>,
        devices: u32,
        members: u32,
    ) -> Option<Pick> {
        let mut whole = self.whole.take().unwrap_or_else(|| Box::new(no_gang()));
        copy_needs(&mut whole.needs, look.request.needs, u64::from(members));
        whole.needs.devices = devices;
        let found = search.place_members(look.tree, look.space, &whole, Ceiling(LevelAt::Node));
        self.whole = Some(whole);
        found.and_then(|_| search.picks().first().copied())
    }

    /// Puts members on these devices of a node, one after another. False if the devices cannot hold them all.
    pub(super) fn put_on(&mut self, look: Look<'_>, node: usize, mask: DeviceMask, members: u32) -> bool {
        let kind = look.tree.nodes[node].kind;
        let eligible = look.request.eligible[usize::from(kind)].and(mask);
        let mut fresh = look.request.devices(look.tree, look.space, node).and(mask);
        let mut local = std::mem::take(&mut self.local);
        local.clear();
        let open = look.space.parts().open_on(node);
        local.extend(open.filter(|open| eligible.contains(u32::from(open.index))));
        let mut left = members;
        while left > 0 {
            let places = local.iter().enumerate().filter_map(|(at, open)| {
                let (number, hardware) = hardware_at(look.tree, node, open.index)?;
                let (wanted, _) = look.asked.get(kind, number)?;
                Some((self.weigh(look, hardware, wanted, &open.device)?, at, hardware, wanted))
            });
            let best = places.min_by_key(|(worth, at, ..)| (*worth, *at));
            if let Some((worth, at, hardware, wanted)) = best {
                if wanted.take(hardware, &mut local[at].device, worth.start.0).is_none() {
                    break;
                }
                self.picks.push(pick(node, local[at].index, wanted, worth.start.0));
                left -= 1;
                continue;
            }
            let table = &look.tree.kinds[usize::from(kind)].table;
            let Some(next) = table.best(fresh, 1).filter(|next| next.count() == 1) else { break };
            fresh = fresh.minus(next);
            let index = u8::try_from(next.0.trailing_zeros()).unwrap_or(u8::MAX);
            local.push(Open { index, device: Device::Empty });
        }
        self.local = local;
        left == 0
    }
}

fn pick(node: usize, index: u8, wanted: Wanted, start: u8) -> Pick {
    let piece = match wanted {
        Wanted::Share { .. } => Piece::Share,
        Wanted::Slice(profile) => Piece::Slice { profile, start },
    };
    Pick { piece, ..Pick::new(node as u32, 1, DeviceMask::one(u32::from(index))) }
}

fn no_gang() -> Gang {
    Gang {
        size: 1,
        min: 1,
        max: 1,
        needs: Needs::default(),
        roles: Vec::new(),
        members_per_node: None,
        topology: Topology::default(),
        traffic: None,
        grid: Vec::new(),
        program: Program::default(),
    }
}

/// Writes the needs of so many members as the need of one, and reuses memory if names allow it.
fn copy_needs(to: &mut Needs, from: &Needs, times: u64) {
    to.models.clone_from(&from.models);
    to.nodes.clone_from(&from.nodes);
    to.avoid.clone_from(&from.avoid);
    to.within.clone_from(&from.within);
    to.pools.clone_from(&from.pools);
    to.takes_spot = from.takes_spot;
    to.takes_spare = from.takes_spare;
    to.named.clone_from(&from.named);
    to.named.values_mut().for_each(|amount| *amount = amount.saturating_mul(times));
    to.cpu_milli = from.cpu_milli.saturating_mul(times);
    to.memory_bytes = from.memory_bytes.saturating_mul(times);
    to.is_exclusive = from.is_exclusive;
    match (&mut to.part, &from.part) {
        (
            Some(PartNeed::Share { compute_milli, memory_bytes, trust }),
            Some(PartNeed::Share { compute_milli: compute, memory_bytes: memory, trust: text }),
        ) => {
            (*compute_milli, *memory_bytes) = (*compute, *memory);
            trust.clone_from(text);
        }
        (Some(PartNeed::Profile(to)), Some(PartNeed::Profile(from))) => to.clone_from(from),
        (to, from) => to.clone_from(from),
    }
}
