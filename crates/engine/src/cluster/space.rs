//! What is free, and sums of it by which a search passes over whole domains.
//!
//! A domain keeps, for every kind of node in it, how many open nodes are in which class of free masks. A change of
//! one node costs the depth of the tree. CPUs and memory are kept as the least that any node has beside one free
//! device: a gang that needs no more than that is bounded by devices alone, and the counts say exactly what fits.

mod claimed;
mod nominal;

use std::collections::BTreeMap;

use phalanx_model::{DeviceMask, Gang, Needs, NodeName, Placement};

use super::claims::Claims;
use super::fractions::{Parts, piece_of};
use super::mix::Mix;
use super::named::{Asked, Left};
use super::shape::NO_LIMIT;
use super::traffic::{Load, Traffic};
use super::tree::{Free, Tree};
use crate::share::ShareRequest;

/// Members of one gang on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) node: u32,
    pub(crate) members: u32,
    /// Of all of them.
    pub(crate) devices: DeviceMask,
    /// 0 for members of the gang itself, else one more than the index of their role.
    pub(crate) role: u16,
    pub(crate) piece: Piece,
}

/// How much of its devices a pick has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Piece {
    /// All of them.
    #[default]
    Whole,
    /// One member with a share of one device.
    Share,
    /// One member with a slice of one device: the profile's index and the first memory slice.
    Slice { profile: u8, start: u8 },
}

impl Pick {
    pub(crate) const fn new(node: u32, members: u32, devices: DeviceMask) -> Self {
        Self { node, members, devices, role: 0, piece: Piece::Whole }
    }

    /// Index of the role, see [`Gang::needs_of`].
    pub(crate) fn role(&self) -> Option<usize> {
        usize::from(self.role).checked_sub(1)
    }
}

/// The open nodes of one kind in one domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) kind: u16,
    /// The index of its first count.
    at: u32,
    /// The least that one of these nodes has free for each free device.
    cpu_per_device: i64,
    memory_per_device: i64,
}

#[derive(Clone, Debug, Default)]
struct Level {
    /// Rows of domain `d`: `first[d]..first[d + 1]`.
    first: Vec<u32>,
    rows: Vec<Row>,
    /// Nodes by class, row by row.
    counts: Vec<u32>,
    /// In the same places: the most that one innermost domain below has.
    most: Vec<u32>,
    /// Free devices of open nodes, by domain.
    free_devices: Vec<u32>,
    loads: Vec<Load>,
    /// The bandwidth that one more gang would get of each uplink.
    uplinks: Vec<u32>,
    least_uplink: u32,
}

/// The free amounts of a tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    free: Vec<Free>,
    class: Vec<u16>,
    levels: Vec<Level>,
    /// Innermost domains whose least amounts are out of date.
    dirty: Vec<u32>,
    members: Vec<(u32, u32)>,
    named: Left,
    parts: Parts,
    claims: Claims,
    /// Counted only if the tree is mixed.
    mix: Mix<ShareRequest>,
}

impl Space {
    /// The free capacity if no gang of ours runs.
    pub(crate) fn free_of(tree: &Tree) -> Self {
        let usable = Self::new(tree, tree.nodes.iter().map(|n| n.usable).collect());
        Self { named: tree.resources.usable(), ..usable }
    }

    /// The capacity of the hardware, including the devices of others: the bound of what can become free.
    pub(crate) fn empty_of(tree: &Tree) -> Self {
        Self::new(tree, tree.nodes.iter().map(|n| n.total).collect())
    }

    /// The same amounts, if no node were cordoned.
    pub(crate) fn opened(&self, tree: &Tree) -> Self {
        let open = Self::new(tree, self.free.iter().map(|free| Free { open: true, ..*free }).collect());
        Self {
            named: self.named.clone(),
            parts: self.parts.clone(),
            claims: self.claims.clone(),
            mix: self.mix.clone(),
            ..open
        }
    }

    /// From now on as if all nodes but these were cordoned.
    pub(crate) fn only(&mut self, tree: &Tree, is_kept: impl Fn(usize, &Free) -> bool) {
        for node in 0..self.free.len() {
            if self.free[node].open && !is_kept(node, &self.free[node]) {
                self.set(tree, node, Free { open: false, ..self.free[node] });
            }
        }
        self.settle(tree);
    }

    fn new(tree: &Tree, free: Vec<Free>) -> Self {
        let mut levels: Vec<Level> = tree.domains.iter().map(|_| Level::default()).collect();
        for (level, domains) in levels.iter_mut().zip(&tree.domains) {
            for domain in domains {
                level.first.push(level.rows.len() as u32);
                let mut kinds: Vec<u16> = tree.nodes[domain.nodes.clone()].iter().map(|n| n.kind).collect();
                kinds.sort_unstable();
                kinds.dedup();
                for kind in kinds {
                    let at = level.counts.len();
                    level.rows.push(Row {
                        kind,
                        at: at as u32,
                        cpu_per_device: i64::MAX,
                        memory_per_device: i64::MAX,
                    });
                    level.counts.resize(at + tree.kinds[usize::from(kind)].offers().len(), 0);
                    level.most.resize(level.counts.len(), 0);
                }
                level.uplinks.push(domain.uplink_mb_per_s);
            }
            level.first.push(level.rows.len() as u32);
            level.free_devices = vec![0; domains.len()];
            level.loads = vec![Load::default(); domains.len()];
            level.least_uplink = level.uplinks.iter().copied().min().unwrap_or(0);
        }
        let class = vec![0; free.len()];
        let closed = Free { open: false, ..Free::default() };
        let mut space = Self {
            free: vec![closed; free.len()],
            class,
            levels,
            dirty: Vec::new(),
            members: Vec::new(),
            named: tree.resources.all_left(),
            parts: Parts::default(),
            claims: Claims::new(free.len()),
            mix: Mix::default(),
        };
        for (i, amount) in free.into_iter().enumerate() {
            space.set(tree, i, amount);
        }
        space.settle(tree);
        space
    }

    pub(crate) fn free(&self, node: usize) -> &Free {
        &self.free[node]
    }

    /// The free amounts of named resources.
    pub(crate) const fn named(&self) -> &Left {
        &self.named
    }

    /// Devices that are shared or cut: none of them is free.
    pub(crate) const fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The classes of running requests, if the tree is mixed.
    pub(crate) const fn mix(&self) -> &Mix<ShareRequest> {
        &self.mix
    }

    pub(crate) fn class(&self, node: usize) -> u16 {
        self.class[node]
    }

    pub(crate) fn rows(&self, level: usize, domain: usize) -> &[Row] {
        let level = &self.levels[level];
        &level.rows[level.first[domain] as usize..level.first[domain + 1] as usize]
    }

    /// Nodes of a row by class.
    pub(crate) fn counts(&self, tree: &Tree, level: usize, row: &Row) -> &[u32] {
        let classes = tree.kinds[usize::from(row.kind)].offers().len();
        &self.levels[level].counts[row.at as usize..row.at as usize + classes]
    }

    /// By class the most nodes of a row that one innermost domain has.
    pub(crate) fn most(&self, tree: &Tree, level: usize, row: &Row) -> &[u32] {
        if level + 1 == self.levels.len() {
            return self.counts(tree, level, row);
        }
        let classes = tree.kinds[usize::from(row.kind)].offers().len();
        &self.levels[level].most[row.at as usize..row.at as usize + classes]
    }

    pub(crate) fn free_devices(&self, level: usize, domain: usize) -> u32 {
        self.levels[level].free_devices[domain]
    }

    /// The bandwidth that one more gang would get of a domain's uplink.
    pub(crate) fn uplink(&self, level: usize, domain: usize) -> u32 {
        self.levels[level].uplinks[domain]
    }

    pub(crate) fn uplinks(&self, level: usize) -> &[u32] {
        &self.levels[level].uplinks
    }

    /// The least of all uplinks of a level.
    pub(crate) fn least_uplink(&self, level: usize) -> u32 {
        self.levels[level].least_uplink
    }

    /// Takes the capacity that the members of a gang need, even if it is not free: amounts may go below zero, and a
    /// device may have several holders. [`Self::give_back`] undoes it, in any order.
    pub(crate) fn take(&mut self, tree: &Tree, picks: &[Pick], gang: &Gang) {
        let is_exclusive = gang.needs.is_exclusive;
        for pick in picks {
            let needs = gang.needs_of(pick.role());
            let free = self.free[pick.node as usize];
            let cpu = needs.cpu_milli.saturating_mul(u64::from(pick.members));
            let memory = needs.memory_bytes.saturating_mul(u64::from(pick.members));
            match pick.piece {
                Piece::Whole => self.claims.hold(pick.node, pick.devices),
                Piece::Share | Piece::Slice { .. } => self.take_part(tree, pick, needs),
            }
            if is_exclusive {
                self.claims.set_alone(pick.node, true);
            }
            let (cpu_milli, memory_bytes) = self.claims.less(pick.node, &free, cpu, memory);
            let left = Free {
                devices: free.devices.minus(pick.devices),
                cpu_milli,
                memory_bytes,
                open: free.open,
                tenants: free.tenants.saturating_add(1),
                is_held: free.is_held || is_exclusive,
            };
            self.named.book(tree, pick, needs, true);
            self.mix.count_pick(tree, pick, needs, true);
            self.set(tree, pick.node as usize, left);
            self.bar_parts(tree, pick.node);
        }
        self.settle(tree);
    }

    /// Those of these devices that are usable and have exactly one holder.
    pub(crate) fn held_once(&self, tree: &Tree, node: usize, devices: DeviceMask) -> DeviceMask {
        let usable = tree.nodes[node].usable.devices;
        self.claims.held_once(node as u32, devices.and(usable)).minus(self.used_in_part(node))
    }

    /// Devices that gangs use in part. A part that was taken after its device was reserved is not booked, but in use.
    fn used_in_part(&self, node: usize) -> DeviceMask {
        self.parts.devices(node).union(self.claims.unbooked_devices(node as u32))
    }

    /// How many gangs and reservations hold a usable device whole; more than any if it is not usable, or used in part.
    pub(crate) fn holders(&self, tree: &Tree, node: u32, device: u32) -> usize {
        let is_whole = tree.nodes[node as usize].usable.devices.contains(device)
            && !self.used_in_part(node as usize).contains(device);
        if is_whole { self.claims.holders(node, device) } else { usize::MAX }
    }

    /// Whether all that these picks need is free.
    pub(crate) fn has_room(&mut self, tree: &Tree, gang: &Gang, picks: &[Pick]) -> bool {
        let mut hosted: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for pick in picks {
            let needs = gang.needs_of(pick.role());
            let of = hosted.entry(pick.node).or_default();
            of.0 = of.0.saturating_add(needs.cpu_milli.saturating_mul(u64::from(pick.members)));
            of.1 = of.1.saturating_add(needs.memory_bytes.saturating_mul(u64::from(pick.members)));
        }
        let has =
            |free: i64, needed: u64| u64::try_from(free).is_ok_and(|free| free >= needed) || needed == 0;
        let are_hosted = hosted.iter().all(|(node, (cpu, memory))| {
            let free = self.free[*node as usize];
            free.takes_work()
                // Others may use a node that is reserved for one gang alone.
                && (!gang.needs.is_exclusive
                    || free.tenants == 0 && free.devices == tree.nodes[*node as usize].total.devices)
                && has(free.cpu_milli, *cpu)
                && has(free.memory_bytes, *memory)
        });
        are_hosted && self.has_devices(tree, gang, picks) && self.has_named(tree, gang, picks)
    }

    /// Whether nodes and domains have the named resources of these picks.
    fn has_named(&mut self, tree: &Tree, gang: &Gang, picks: &[Pick]) -> bool {
        let mut asked = Asked::default();
        let mut fits = |at: usize| {
            let (pick, needs) = (&picks[at], gang.needs_of(picks[at].role()));
            tree.resources.look_up(needs, &mut asked);
            let has_all = asked.is_nothing() || {
                let node = pick.node as usize;
                let around = |level| self.named.in_domain(tree, level, tree.domain_of(node, level), &asked);
                self.named.on_node(tree, node, &asked) >= pick.members
                    && (0..tree.depth()).all(|level| around(level) >= pick.members)
            };
            self.named.book(tree, pick, needs, true);
            has_all
        };
        // The one that does not fit is booked as well.
        let failed = (0..picks.len()).position(|at| !fits(at));
        for pick in &picks[..failed.map_or(picks.len(), |at| at + 1)] {
            self.named.book(tree, pick, gang.needs_of(pick.role()), false);
        }
        failed.is_none()
    }

    /// Parts of devices are taken one after the other, and given back, to see whether there are that many.
    fn has_devices(&mut self, tree: &Tree, gang: &Gang, picks: &[Pick]) -> bool {
        let mut fits = |at: usize| {
            let pick = &picks[at];
            let devices = self.free[pick.node as usize].devices;
            match pick.piece {
                Piece::Whole => pick.devices.is_subset_of(devices),
                _ if self.parts.is_barred(pick.node as usize, pick.devices) => false,
                _ => self.parts.take(tree, devices, pick, gang.needs_of(pick.role())),
            }
        };
        let taken = (0..picks.len()).take_while(|at| fits(*at)).count();
        for pick in picks[..taken].iter().filter(|pick| !matches!(pick.piece, Piece::Whole)) {
            self.parts.give_back(tree, pick, gang.needs_of(pick.role()));
        }
        taken == picks.len()
    }

    pub(crate) fn give_back(&mut self, tree: &Tree, picks: &[Pick], gang: &Gang) {
        for pick in picks {
            let free = self.free[pick.node as usize];
            let needs = gang.needs_of(pick.role());
            let cpu = needs.cpu_milli.saturating_mul(u64::from(pick.members));
            let memory = needs.memory_bytes.saturating_mul(u64::from(pick.members));
            let devices = self.release(tree, pick, needs);
            if gang.needs.is_exclusive {
                self.claims.set_alone(pick.node, false);
            }
            let (cpu_milli, memory_bytes) = self.claims.more(pick.node, &free, cpu, memory);
            let back = Free {
                devices: free.devices.union(devices),
                cpu_milli,
                memory_bytes,
                open: free.open,
                tenants: free.tenants.saturating_sub(1),
                is_held: self.claims.is_alone(pick.node),
            };
            self.named.book(tree, pick, needs, false);
            self.mix.count_pick(tree, pick, needs, false);
            self.set(tree, pick.node as usize, back);
            self.bar_parts(tree, pick.node);
        }
        self.settle(tree);
    }

    /// Books the traffic of a gang on the uplinks that it crosses, or removes it.
    pub(crate) fn load(&mut self, tree: &Tree, picks: &[Pick], gang: &Gang, is_added: bool) {
        if gang.topology.slice.is_some() {
            // The chips of a slice talk over their own links.
            return;
        }
        // The traffic of other roles is unknown.
        let own = || picks.iter().filter(|pick| pick.role == 0);
        let fastest = own().map(|pick| tree.kind(&tree.nodes[pick.node as usize]).nics(pick.devices)).min();
        let mb_per_s = Traffic::of(gang).demand_mb_per_s(fastest.unwrap_or(NO_LIMIT));
        if mb_per_s == 0 {
            return;
        }
        let mut members = std::mem::take(&mut self.members);
        members.clear();
        members.extend(own().map(|pick| (tree.nodes[pick.node as usize].leaf, pick.members)));
        members.sort_unstable();
        let all: u32 = members.iter().map(|(_, count)| count).sum();
        for level in (0..self.levels.len()).rev() {
            members.dedup_by(|next, first| {
                let is_same = next.0 == first.0;
                first.1 += if is_same { next.1 } else { 0 };
                is_same
            });
            for (domain, below) in &members {
                let at = *domain as usize;
                if *below < all {
                    let of = &mut self.levels[level];
                    of.loads[at].change(mb_per_s, is_added);
                    of.uplinks[at] = of.loads[at].left_of(tree.domains[level][at].uplink_mb_per_s);
                }
            }
            self.levels[level].least_uplink = self.levels[level].uplinks.iter().copied().min().unwrap_or(0);
            for (domain, _) in &mut members {
                *domain = tree.domains[level][*domain as usize].parent as u32;
            }
        }
        self.members = members;
    }

    /// Devices of a node that are shared or cut take no more parts; which these are.
    pub(crate) fn close_parts(&mut self, tree: &Tree, node: u32, devices: DeviceMask) -> DeviceMask {
        self.parts.close(tree, node as usize, devices)
    }

    /// They do again.
    pub(crate) fn open_parts(&mut self, tree: &Tree, node: u32, devices: DeviceMask) {
        self.parts.open_again(tree, node as usize, devices);
    }

    /// Changes the amounts of some nodes.
    pub(crate) fn put(
        &mut self,
        tree: &Tree,
        nodes: impl Iterator<Item = u32>,
        mut change: impl FnMut(u32, Free) -> Free,
    ) {
        for node in nodes {
            let mut now = change(node, self.free[node as usize]);
            // Withheld devices may have been given to a gang meanwhile.
            now.devices = now.devices.minus(self.claims.claimed(node));
            self.set(tree, node as usize, now);
        }
        self.settle(tree);
    }

    /// One node's amounts; [`Self::settle`] must follow.
    fn set(&mut self, tree: &Tree, node: usize, now: Free) {
        let place = &tree.nodes[node];
        let kind = tree.kind(place);
        let before = std::mem::replace(&mut self.free[node], now);
        let (was, is) = (self.class[node], kind.class_of(now.devices));
        self.class[node] = is;
        let mut domain = place.leaf as usize;
        for (level, domains) in self.levels.iter_mut().zip(&tree.domains).rev() {
            let rows = &level.rows[level.first[domain] as usize..level.first[domain + 1] as usize];
            // A domain has few kinds, most have one.
            if let Some(row) = rows.iter().find(|row| row.kind == place.kind) {
                let counts = &mut level.counts[row.at as usize..];
                counts[usize::from(was)] -= u32::from(before.takes_work());
                counts[usize::from(is)] += u32::from(now.takes_work());
            }
            let free = &mut level.free_devices[domain];
            *free -= if before.takes_work() { before.devices.count() } else { 0 };
            *free += if now.takes_work() { now.devices.count() } else { 0 };
            domain = domains[domain].parent;
        }
        if self.dirty.last() != Some(&place.leaf) {
            self.dirty.push(place.leaf);
        }
    }

    /// Brings the least amounts of the domains that changed up to date.
    fn settle(&mut self, tree: &Tree) {
        let mut dirty = std::mem::take(&mut self.dirty);
        let innermost = self.levels.len().saturating_sub(1);
        for level in (0..self.levels.len()).rev() {
            dirty.sort_unstable();
            dirty.dedup();
            for domain in &mut dirty {
                let place = &tree.domains[level][*domain as usize];
                let rows = self.levels[level].first[*domain as usize]
                    ..self.levels[level].first[*domain as usize + 1];
                for row in rows {
                    let kind = self.levels[level].rows[row as usize].kind;
                    let least = if level == innermost {
                        self.least_of_nodes(tree, place.nodes.clone(), kind)
                    } else {
                        self.most_of_children(tree, level, row as usize, place.children.clone());
                        self.least_of_children(level + 1, place.children.clone(), kind)
                    };
                    let row = &mut self.levels[level].rows[row as usize];
                    (row.cpu_per_device, row.memory_per_device) = least;
                }
                *domain = place.parent as u32;
            }
        }
        dirty.clear();
        self.dirty = dirty;
    }

    fn least_of_nodes(&self, tree: &Tree, nodes: std::ops::Range<usize>, kind: u16) -> (i64, i64) {
        let of_kind = nodes.filter(|i| tree.nodes[*i].kind == kind).map(|i| &self.free[i]);
        let offering = of_kind.filter(|free| free.takes_work() && !free.devices.is_empty());
        offering.fold((i64::MAX, i64::MAX), |(cpu, memory), free| {
            let devices = i64::from(free.devices.count());
            (cpu.min(free.cpu_milli / devices), memory.min(free.memory_bytes / devices))
        })
    }

    fn most_of_children(&mut self, tree: &Tree, level: usize, row: usize, children: std::ops::Range<usize>) {
        let Row { kind, at, .. } = self.levels[level].rows[row];
        let classes = tree.kinds[usize::from(kind)].offers().len();
        let (upper, lower) = self.levels.split_at_mut(level + 1);
        let (Some(of), Some(below)) = (upper.last_mut(), lower.first()) else { return };
        let most = &mut of.most[at as usize..at as usize + classes];
        most.fill(0);
        let innermost = lower.len() == 1;
        for child in children {
            let rows = &below.rows[below.first[child] as usize..below.first[child + 1] as usize];
            let Some(row) = rows.iter().find(|row| row.kind == kind) else { continue };
            let of_child = if innermost { &below.counts } else { &below.most };
            let of_child = &of_child[row.at as usize..row.at as usize + classes];
            most.iter_mut().zip(of_child).for_each(|(most, child)| *most = (*most).max(*child));
        }
    }

    fn least_of_children(&self, level: usize, children: std::ops::Range<usize>, kind: u16) -> (i64, i64) {
        let rows = children.filter_map(|child| self.rows(level, child).iter().find(|row| row.kind == kind));
        rows.fold((i64::MAX, i64::MAX), |(cpu, memory), row| {
            (cpu.min(row.cpu_per_device), memory.min(row.memory_per_device))
        })
    }
}

impl Row {
    /// Whether each free device of such nodes has CPUs and memory beside it for so many members.
    pub(crate) fn has_for_each_device(&self, needs: &Needs, members: u32) -> bool {
        let enough = |least: i64, need: u64| {
            let all = need.saturating_mul(u64::from(members));
            all == 0 || u64::try_from(least).is_ok_and(|least| all <= least)
        };
        enough(self.cpu_per_device, needs.cpu_milli) && enough(self.memory_per_device, needs.memory_bytes)
    }

    /// Whether devices alone bound how many members such nodes take, however many: none runs out of CPUs or
    /// memory first.
    pub(crate) fn is_bound_by_devices(&self, needs: &Needs) -> bool {
        let enough = |least: i64, need: u64| {
            need == 0
                || u64::try_from(least)
                    .is_ok_and(|least| need <= least.saturating_mul(u64::from(needs.devices)))
        };
        needs.devices > 0
            && enough(self.cpu_per_device, needs.cpu_milli)
            && enough(self.memory_per_device, needs.memory_bytes)
    }
}

impl Tree {
    /// The slots of a placement as picks, node by node in their order. Slots on nodes that no longer exist are
    /// skipped: they have no capacity to account.
    pub(crate) fn picks_of(&self, placement: &Placement, gang: &Gang) -> Vec<Pick> {
        let mut picks: Vec<Pick> = Vec::new();
        let mut last: Option<(&NodeName, Option<usize>)> = None;
        for slot in &placement.slots {
            let node = match last {
                Some((name, at)) if *name == slot.node => at,
                _ => self.index_of(&slot.node),
            };
            last = Some((&slot.node, node));
            let Some(node) = node.map(|at| at as u32) else { continue };
            let role = gang.role_of(slot.rank).map_or(0, |role| role as u16 + 1);
            let piece = slot.part.as_ref().map(|part| piece_of(self, node, slot.devices, part));
            let one = Pick { role, piece: piece.unwrap_or_default(), ..Pick::new(node, 1, slot.devices) };
            match picks.last_mut() {
                // Only disjoint devices are joined, so that a device that is taken twice stays visible. Parts are
                // booked one by one.
                Some(pick)
                    if (pick.node, pick.role) == (node, role)
                        && (pick.piece, one.piece) == (Piece::Whole, Piece::Whole)
                        && pick.devices.and(slot.devices).is_empty() =>
                {
                    pick.members += 1;
                    pick.devices = pick.devices.union(slot.devices);
                }
                _ => picks.push(one),
            }
        }
        picks
    }
}
