//! Facts about nodes. The use by others, the amounts and the administration of a node change in place; a node that
//! comes, goes, or moves in the topology rebuilds the tree, once for all such facts of a step.

use std::borrow::Cow;
use std::collections::BTreeMap;

use phalanx_model::{
    Admin, Bandwidths, DeviceMask, Exit, FailureClass, ForeignUse, GangId, GangRecord, Leave, Node, NodeName,
    Outcome, Slot, Timestamp,
};

use super::apply::refuse;
use super::{Freed, Ledger};
use crate::cluster::{Nominal, Pick, Space, Tree};
use crate::cycle::COUNTED_MAX;

/// In a large cluster, fair shares follow the use by others within this time, if nothing else happens.
const SHARES_AGAIN_MS: u64 = 60_000;

impl Ledger {
    pub(super) fn observe_node(&mut self, node: &Node, out: &mut Outcome) {
        let wanted = self.levels.above.len();
        if node.path.len() != wanted {
            let why = format!("its path has {} domains, and {wanted} levels are configured", node.path.len());
            return refuse(out, format!("node {}", node.name), &why);
        }
        if node.machine.devices.len() > phalanx_model::DEVICES_PER_NODE_MAX as usize {
            let why = format!("has {} devices, and at most 64 are possible", node.machine.devices.len());
            return refuse(out, format!("node {}", node.name), &why);
        }
        self.sync.saw_node(&node.name);
        // A world that lists its nodes again need not know of grades and notices.
        let mut observed = Cow::Borrowed(node);
        let health = self.nodes.get(&node.name).map(|known| &known.health);
        if let Some(health) = health.filter(|health| node.health.is_ok() && !health.is_ok()) {
            let observed = observed.to_mut();
            observed.health = health.clone();
            let there = observed.machine.device_mask();
            observed.health.devices.retain(|device, _| there.contains(*device));
        }
        if node.admin == Admin::Open && self.noted.is_noticed(&node.name) {
            observed.to_mut().admin = Admin::Draining;
        }
        let pools = self.pools.sets().around(node, &self.levels);
        let spare = self.nodes.get(&node.name).map(|known| known.spare).unwrap_or_default();
        if (&observed.pools, observed.spare) != (&pools, spare) {
            let observed = observed.to_mut();
            (observed.pools, observed.spare) = (pools, spare);
        }
        if self.nodes.get(&node.name) != Some(&*observed) {
            self.put_node(observed.into_owned());
        }
    }

    /// Records how much of a node others use.
    pub(super) fn observe_use(
        &mut self,
        name: &NodeName,
        foreign: DeviceMask,
        foreign_use: &ForeignUse,
        out: &mut Outcome,
    ) {
        let Some(node) = self.nodes.get(name) else {
            return refuse(out, format!("use of node {name}"), "no such node");
        };
        if node.foreign != foreign || node.foreign_use != *foreign_use {
            let node = Node { foreign, foreign_use: foreign_use.clone(), ..node.clone() };
            self.put_node(node);
        }
    }

    pub(super) fn set_admin(&mut self, name: &NodeName, admin: Admin, out: &mut Outcome) {
        let Some(node) = self.nodes.get(name) else {
            return refuse(out, format!("node {name}"), "no such node");
        };
        if node.admin != admin {
            let node = Node { admin, ..node.clone() };
            self.put_node(node);
        }
    }

    /// Adds a node, or replaces a node that differs.
    pub(super) fn put_node(&mut self, node: Node) {
        let name = node.name.clone();
        let before = self.nodes.insert(name.clone(), node);
        let takes = |node: &Node| (node.is_open(), node.usable_devices());
        if before.as_ref().map(takes) != self.nodes.get(&name).map(takes) {
            self.check_kept(&name);
        }
        let Some(node) = self.nodes.get(&name) else { return };
        let at = self.tree.index_of(&name).filter(|_| !self.stale);
        match (before, at) {
            (Some(before), Some(at)) if Tree::is_alike(&before, node) => self.amend_node(at, &before),
            _ => {
                self.moved_nodes.insert(name);
                self.redraw();
            }
        }
    }

    /// Updates what is derived from the use, amounts or administration of a node, and nothing else.
    fn amend_node(&mut self, at: usize, before: &Node) {
        let Some((node, index)) = self.nodes.get(&before.name).zip(u32::try_from(at).ok()) else { return };
        self.preempted.clear();
        self.hardware_version += 1;
        let is_reserved = self.reservations.values().any(|reservation| reservation.is_on(index));
        let was_free = *self.space.free(at);
        let had = self.queues.resources.of_node(&self.tree, self.queues.settings(), at);
        let change = self.tree.amend(at, node);
        if let Some(nominal) = &mut self.nominal {
            nominal.amend(at, node);
        }
        let has = self.queues.resources.of_node(&self.tree, self.queues.settings(), at);
        self.note_spare([index]);
        self.space.amend(&self.tree, at, &change, false);
        self.usable.amend(&self.tree, at, &change, false);
        if change.is_of_total() {
            self.fitting.clear();
            self.empty.amend(&self.tree, at, &change, true);
            self.empty_opened.amend_opened(&self.tree, at, &change);
        }
        let is_free = *self.space.free(at);
        self.cells.is_stale |= change.is_of_wholeness();
        self.change_capacity(at, &had, &has);
        if self.tree.nodes.len() <= COUNTED_MAX || change.is_of_amounts() {
            self.freed = Freed::All;
            self.replan = true;
            // In a small cluster the shortfall is counted at every evaluation, and may be another number now.
            self.refresh.extend(self.pending.waiting().map(|(gang, _)| gang));
            return;
        }
        if was_free.open != is_free.open {
            self.refresh.extend(self.unavailable.iter());
        }
        let came_free = is_free.takes_work()
            && (!was_free.takes_work() || change.frees() || !is_free.devices.is_subset_of(was_free.devices));
        if came_free && self.pending.wants(is_free.devices.count()) {
            self.freed.add(std::iter::once(index));
            self.replan = true;
        }
        // The gang of a reservation may need another placement.
        self.replan |= is_reserved;
    }

    /// Updates the capacity that queues share.
    fn change_capacity(&mut self, node: usize, had: &[u128], has: &[u128]) {
        if had == has {
            return;
        }
        self.queues.change_capacity(&self.tree, node, had, has);
        self.capacity_changed();
    }

    pub(super) fn capacity_changed(&mut self) {
        self.pending.room_again(std::iter::once(crate::queueing::ROOT));
        self.look_again(self.now.plus(SHARES_AGAIN_MS));
    }

    pub(super) fn remove_node(&mut self, node: &NodeName, out: &mut Outcome) {
        if self.nodes.remove(node).is_none() {
            return;
        }
        self.noted.forget_notice(node);
        self.check_kept(node);
        // Processes on the node are gone with it.
        let exit = Exit::failed(FailureClass::Node, "the node was removed");
        for (gang, ranks) in self.ranks_on(node, None) {
            for rank in ranks {
                self.member_exited(gang, rank, &exit, out);
            }
        }
        self.redraw();
    }

    /// Tells the gangs on a node, or on some of its devices, to leave, and be gone by a time if there is one.
    pub(super) fn displace_from(
        &mut self,
        node: &NodeName,
        devices: Option<DeviceMask>,
        detail: &str,
        until: Option<Timestamp>,
        out: &mut Outcome,
    ) {
        for (gang, _) in self.ranks_on(node, devices) {
            self.displace(gang, Leave { detail: detail.to_owned(), until }, out);
        }
    }

    /// The gangs that hold capacity on a node, or devices of it if some are named, with their ranks there.
    pub(super) fn ranks_on(&self, node: &NodeName, devices: Option<DeviceMask>) -> Vec<(GangId, Vec<u32>)> {
        let ranks = |gang: GangId| -> Vec<u32> {
            let held = self.record(gang).and_then(GangRecord::held);
            let slots = held.iter().flat_map(|held| &held.slots);
            let is_on = |slot: &&Slot| devices.is_none_or(|devices| !slot.devices.and(devices).is_empty());
            slots.filter(|slot| slot.node == *node).filter(is_on).map(|slot| slot.rank).collect()
        };
        let Some(at) = self.tree.index_of(node).and_then(|at| u32::try_from(at).ok()) else {
            return Vec::new();
        };
        let on_node = self.gangs_on(at).map(|gang| (gang, ranks(gang)));
        on_node.filter(|(_, ranks)| !ranks.is_empty()).collect()
    }

    /// Records the picks of a gang that holds capacity, or that it holds none; returns its earlier picks.
    pub(super) fn set_picks(&mut self, gang: GangId, picks: Option<Vec<Pick>>) -> Option<Vec<Pick>> {
        self.on_nodes.extend(picks.iter().flatten().map(|pick| (pick.node, gang)));
        let is_on = |node: u32| picks.iter().flatten().any(|pick| pick.node == node);
        let left: Vec<u32> = self
            .picks
            .get(&gang)
            .into_iter()
            .flatten()
            .map(|pick| pick.node)
            .filter(|n| !is_on(*n))
            .collect();
        for node in &left {
            self.on_nodes.remove(&(*node, gang));
        }
        self.note_spare(left.into_iter().chain(picks.iter().flatten().map(|pick| pick.node)));
        match picks {
            Some(picks) => self.picks.insert(gang, picks),
            None => self.picks.remove(&gang),
        }
    }

    /// Marks the tree as stale: nodes came, went or moved, or levels or costs changed. The tree is rebuilt before it is
    /// needed, once for all changes.
    pub(super) fn redraw(&mut self) {
        self.preempted.clear();
        self.stale = true;
        self.hardware_version += 1;
        self.replan = true;
        self.note_all_spares();
    }

    /// Rebuilds the tree and the free capacity. Queues and pending gangs stay as they are if no kind of node came or
    /// went.
    pub(super) fn draw_again(&mut self) {
        self.freshen_pools();
        let (costs, measured) = (&self.costs, &self.measured);
        let tree = Tree::build(&self.levels, &self.nodes, costs, measured, Some(&self.tree), &self.lent);
        self.measured.retain(|uplink, _| tree.has_measured(uplink));
        let before = std::mem::replace(&mut self.tree, tree);
        self.stale_queues |= !self.tree.has_kinds_of(&before);
        self.empty = Space::empty_of(&self.tree);
        self.empty_opened = self.empty.opened(&self.tree);
        self.usable = Space::free_of(&self.tree);
        self.nominal = self.without_measured().map(|tree| Box::new(Nominal::new(tree)));
        self.fitting.clear();
        self.cells.is_stale = true;
        self.windows.mark_stale_if_any();
        let freed = std::mem::take(&mut self.freed);
        let picks = std::mem::take(&mut self.picks);
        self.recount_space();
        let moved = std::mem::take(&mut self.moved_nodes);
        if self.stale_queues {
            return;
        }
        self.charge_again(&picks);
        let capacity = self.queues.resources.capacity(&self.tree, self.queues.settings());
        self.queues.count_pools(&self.tree);
        if self.queues.set_capacity(capacity) {
            self.capacity_changed();
        }
        if self.tree.nodes.len() > COUNTED_MAX
            && let Freed::Nodes(nodes) = freed
        {
            let still =
                nodes.iter().filter_map(|node| before.nodes.get(*node as usize)).map(|node| &node.name);
            let nodes = still.chain(&moved).filter_map(|name| self.tree.index_of(name));
            self.freed = Freed::Nodes(nodes.filter_map(|at| u32::try_from(at).ok()).collect());
        }
    }

    /// The tree if no link were measured; `None` if none was.
    fn without_measured(&self) -> Option<Tree> {
        let nothing = Bandwidths::new();
        let draw = || {
            let before = Some(&self.tree);
            let mut tree = Tree::build(&self.levels, &self.nodes, &self.costs, &nothing, before, &self.lent);
            // No tree with measured links has it.
            tree.stamp = !self.tree.stamp;
            tree
        };
        (!self.measured.is_empty()).then(draw)
    }

    /// Charges gangs that lost nodes again, and those whose reservation other gangs are preempted for.
    fn charge_again(&mut self, before: &BTreeMap<GangId, Vec<Pick>>) {
        let members =
            |picks: Option<&Vec<Pick>>| picks.into_iter().flatten().map(|pick| pick.members).sum::<u32>();
        let fewer: Vec<GangId> = before
            .iter()
            .filter(|(gang, picks)| members(Some(picks)) != members(self.picks.get(gang)))
            .map(|(gang, _)| *gang)
            .collect();
        for gang in fewer {
            self.discharge(gang);
            if let Some(placement) = self.held(gang) {
                self.charge(gang, &placement);
            }
        }
        for gang in self.unbooked.clone() {
            self.discharge(gang);
            self.claim_again(gang);
        }
    }
}
