//! Chooses the request classes that are retried after capacity became free: those that could use the capacity, and not
//! all pending ones.
//!
//! A request class that fitted nowhere fits now only with a member on a node where capacity became free, and only if
//! the domain around that node holds the whole gang. Both are counted by devices alone, which never reports less room
//! than there is.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{DeviceMask, Gang, Reason};

use super::draft::{Draft, Freed};
use super::reservation::Reservation;
use super::run::Cycle;
use crate::cluster::space::Space;
use crate::cluster::tree::{LevelAt, Tree};
use crate::queueing::{RequestClass, RequestClassId};

/// In clusters of at most so many nodes, the shortfall is counted each time a request class is considered, and the
/// request class is retried whenever the shortfall may have changed.
pub(crate) const COUNTED_MAX: usize = 256;

impl Cycle<'_> {
    /// Reopens the request classes that may use freed capacity.
    pub(super) fn reopen(&mut self) {
        let (tree, now, share_milli) = (self.tree(), self.ledger.now(), self.draft.queues.hold_idle_milli());
        let Draft { pending, space, freed, reservations, queues, .. } = &mut self.draft;
        let takes_back = |request: &RequestClass| {
            request.roomy().any(|at| queues.is_within_a_guarantee(at, &request.least))
        };
        let is_regained = pending.take_regained();
        let mut freed = match std::mem::take(freed) {
            Freed::All => {
                // A gang that found too much capacity kept for others may preempt by now.
                pending.consider_all();
                let all: Vec<RequestClassId> = pending.all().collect();
                all.into_iter().for_each(|request| pending.reopen(request));
                return;
            }
            Freed::Nodes(nodes) if nodes.is_empty() && !is_regained => return,
            Freed::Nodes(nodes) => nodes,
        };
        freed.sort_unstable();
        freed.dedup();
        let reserved = Reserved::of(tree, space, reservations.values());
        let holds = &reserved.holds;
        freed.retain(|node| space.free(*node as usize).takes_work() || reserved.kept_alone.contains(node));
        let mut room = Room { tree, space, reserved: &reserved, counted: BTreeMap::new() };
        let held: Vec<u32> = holds.iter().flat_map(|hold| hold.nodes()).collect();
        let is_small = tree.nodes.len() <= COUNTED_MAX;
        // A gang that ends before a reservation begins, or goes before its gang, may use the reserved capacity.
        let had_less = |request: &RequestClass| {
            let (rank, level) = (request.key.rank, request.key.level);
            let of_more = holds.iter().filter(|hold| hold.level > level);
            of_more.into_iter().any(|hold| {
                let mut queues = request.roomy();
                queues.any(|queue| hold.had_more(queue, (rank, level), takes_back(request)))
            })
        };
        let may_lift = |request: &RequestClass| {
            let ends_at = request.key.span_ms.map(|span| now.plus(span));
            holds.iter().any(|hold| hold.begins_after(ends_at, share_milli))
                || holds.iter().any(|hold| hold.yields_to(request.key.rank, takes_back(request)))
                || had_less(request)
        };
        // A gang that has room in a guarantee again may use capacity that is reserved for a borrower, or for a lower class.
        let takes_over = |request: &RequestClass| {
            let goes_first = |hold: &&Reservation, is_entitled| hold.yields_to(request.key.rank, is_entitled);
            holds.iter().any(|hold| goes_first(hold, true) && !goes_first(hold, false)) && takes_back(request)
        };
        let mut open = Vec::new();
        for (id, request) in pending.closed() {
            let is_likely = room.may_hold(request, &freed, false)
                || !held.is_empty() && room.may_hold(request, &freed, true) && may_lift(request)
                || takes_over(request) && room.may_hold(request, &held, true);
            if is_likely || is_small && (takes_over(request) || room.may_count(request, &freed)) {
                open.push(id);
                // A class that waits for a nearer place fits without it too.
                let waits_nearer = matches!(request.reason, Reason::NearerWait { .. });
                if cfg!(debug_assertions) && !is_likely && !waits_nearer {
                    self.unlikely.insert(id);
                }
            }
        }
        open.iter().for_each(|request| pending.reopen(*request));
        let around = freed.into_iter().chain(held).collect();
        self.reopened = Reopened { requests: open, around, most: None };
    }

    /// Closes the request classes that were reopened only for freed capacity, once other gangs have taken all of that
    /// capacity that they could use.
    pub(super) fn close_used_up(&mut self) {
        if self.reopened.most.is_some() || self.tree().nodes.len() <= COUNTED_MAX {
            return;
        }
        let most = self.most_around();
        let Draft { pending, .. } = &mut self.draft;
        let is_used_up = |id: &mut RequestClassId| {
            let request = pending.request(*id);
            let is_known = !matches!(request.reason, Reason::None | Reason::Window { .. });
            is_known && !request.is_limited() && most < request.least_on_node()
        };
        let used_up: Vec<RequestClassId> = self.reopened.requests.extract_if(.., is_used_up).collect();
        used_up.iter().for_each(|id| pending.close_again(*id));
        if !used_up.is_empty() {
            self.reserve_heads();
        }
    }

    /// The largest number of devices, free or idle in reservations, on one of the nodes that request classes were
    /// reopened for.
    fn most_around(&mut self) -> u32 {
        if let Some(most) = self.reopened.most {
            return most;
        }
        let (tree, Draft { space, reservations, .. }) = (self.tree(), &self.draft);
        let devices = |node: &u32| {
            let free = space.free(*node as usize).devices;
            let held = reservations.values().map(|held| held.idle_on(tree, space, *node));
            held.fold(free, DeviceMask::union).count()
        };
        let most = self.reopened.around.iter().map(devices).max().unwrap_or(0);
        self.reopened.most = Some(most);
        most
    }
}

/// Request classes that were reopened for capacity that became free on nodes, or is reserved there.
#[derive(Debug, Default)]
pub(super) struct Reopened {
    requests: Vec<RequestClassId>,
    around: Vec<u32>,
    /// See [`Cycle::most_around`]; `None` after a change.
    pub(super) most: Option<u32>,
}

/// The free capacity around nodes where capacity became free.
struct Room<'a> {
    tree: &'a Tree,
    space: &'a Space,
    reserved: &'a Reserved<'a>,
    /// By level, by domain, and by whether reserved capacity counts as free.
    counted: BTreeMap<(usize, usize, bool), Vec<Nodes>>,
}

/// What is reserved, and would be free if the reservations yielded.
#[derive(Default)]
struct Reserved<'a> {
    /// Reservations that keep something.
    holds: Vec<&'a Reservation>,
    /// The nodes that would take work if no gang had reserved them to be alone there.
    kept_alone: BTreeSet<u32>,
}

impl<'a> Reserved<'a> {
    fn of(tree: &Tree, space: &Space, all: impl Iterator<Item = &'a Reservation>) -> Self {
        let holds: Vec<&Reservation> = all.filter(|held| held.keeps_something(tree, space)).collect();
        let alone = holds.iter().filter(|hold| hold.is_alone()).flat_map(|hold| hold.nodes());
        let kept_alone = alone.filter(|node| space.free(*node as usize).open).collect();
        Self { holds, kept_alone }
    }
}

/// The nodes of one kind in a domain, by number of free devices.
struct Nodes {
    kind: u16,
    by_devices: Vec<u32>,
}

impl Room<'_> {
    /// Whether a gang of a request class could have one member on one of these nodes, and the others around that node.
    fn may_hold(&mut self, request: &RequestClass, nodes: &[u32], with_held: bool) -> bool {
        let gang = &request.key.gang;
        if request.is_limited() {
            return true;
        }
        let level = self.tree.level_of_required(gang);
        let least = request.least_on_node();
        for node in nodes.iter().copied() {
            let devices = self.devices(node, with_held);
            let takes = |needs: &phalanx_model::Needs| {
                !self.tree.kind(&self.tree.nodes[node as usize]).eligible(needs).and(devices).is_empty()
            };
            if devices.count() < least || !gang.all_needs().any(takes) {
                continue;
            }
            let holds_all = match level {
                LevelAt::Above(level) => {
                    let domain = self.tree.domain_of(node as usize, level);
                    self.may_hold_all(request, level, domain, with_held)
                }
                LevelAt::Node | LevelAt::Group(_) => devices.count() >= request.devices,
            };
            if holds_all {
                return true;
            }
        }
        false
    }

    /// Whether the shortfall of a request class may have changed.
    fn may_count(&self, request: &RequestClass, nodes: &[u32]) -> bool {
        let level = match self.tree.level_of_required(&request.key.gang) {
            LevelAt::Above(level) => level,
            LevelAt::Node | LevelAt::Group(_) => self.tree.depth().saturating_sub(1),
        };
        let Reserved { holds, kept_alone } = self.reserved;
        let idle: u32 = holds.iter().map(|hold| hold.idle_devices(self.tree, self.space)).sum();
        let beside = |node: &u32| self.space.free(*node as usize).devices.count();
        let held = idle + kept_alone.iter().map(beside).sum::<u32>();
        nodes.iter().any(|node| {
            let domain = self.tree.domain_of(*node as usize, level);
            self.devices(*node, true).count() >= request.each
                && self.space.free_devices(level, domain) + held >= request.devices
        })
    }

    fn devices(&self, node: u32, with_held: bool) -> DeviceMask {
        let (tree, space, Reserved { holds, kept_alone }) = (self.tree, self.space, self.reserved);
        if !with_held && kept_alone.contains(&node) {
            return DeviceMask::EMPTY;
        }
        let free = space.free(node as usize).devices;
        let held = holds.iter().filter(|_| with_held).map(|hold| hold.idle_on(tree, space, node));
        held.fold(free, DeviceMask::union)
    }

    /// Whether a domain has room for all members, side by side on whole devices.
    fn may_hold_all(&mut self, request: &RequestClass, level: usize, domain: usize, with_held: bool) -> bool {
        let (tree, space) = (self.tree, self.space);
        let nothing = Reserved::default();
        let reserved = if with_held { self.reserved } else { &nothing };
        let count = || counted(tree, space, reserved, level, domain);
        let nodes = self.counted.entry((level, domain, with_held)).or_insert_with(count);
        let gang = &request.key.gang;
        let is_plain = gang.roles.is_empty();
        let (mut devices, mut members) = (0_u64, 0_u64);
        for of_kind in nodes {
            let kind = &tree.kinds[usize::from(of_kind.kind)];
            if gang.all_needs().all(|needs| kind.eligible(needs).is_empty()) {
                continue;
            }
            for (free, count) in (0_u32..).zip(&of_kind.by_devices) {
                devices += u64::from(free) * u64::from(*count);
                members += u64::from(members_on(gang, request.each, free)) * u64::from(*count);
            }
        }
        devices >= u64::from(request.devices) && (!is_plain || members >= u64::from(gang.size))
    }
}

/// The number of members that so many devices of one node are enough for.
fn members_on(gang: &Gang, each: u32, devices: u32) -> u32 {
    let most = devices / each.max(1);
    gang.members_per_node.map_or(most, |exactly| if most >= exactly { exactly } else { 0 })
}

/// The open nodes of a domain by kind and free devices; devices reserved on them count as free, and so do those of nodes
/// that are kept for a gang alone.
fn counted(tree: &Tree, space: &Space, reserved: &Reserved<'_>, level: usize, domain: usize) -> Vec<Nodes> {
    let Reserved { holds, kept_alone } = reserved;
    let mut all: Vec<Nodes> = Vec::new();
    for row in space.rows(level, domain) {
        let offers = tree.kinds[usize::from(row.kind)].offers();
        let most = offers.iter().map(|offer| offer.devices).max().unwrap_or(0);
        let mut by_devices = vec![0; most as usize + 1];
        for (offer, count) in offers.iter().zip(space.counts(tree, level, row)) {
            by_devices[offer.devices as usize] += count;
        }
        all.push(Nodes { kind: row.kind, by_devices });
    }
    let mut held: BTreeMap<u32, DeviceMask> = BTreeMap::new();
    let idle = |hold: &&Reservation| hold.idle(tree, space).collect::<Vec<_>>();
    let is_counted = |node: u32| space.free(node as usize).takes_work();
    let alone = kept_alone.iter().map(|node| (*node, DeviceMask::EMPTY));
    for (node, devices) in holds.iter().flat_map(idle).chain(alone) {
        let is_lifted = is_counted(node) || kept_alone.contains(&node);
        if tree.domain_of(node as usize, level) == domain && is_lifted {
            let of = held.entry(node).or_insert(DeviceMask::EMPTY);
            *of = of.union(devices);
        }
    }
    for (node, devices) in held {
        let free = space.free(node as usize).devices;
        let kind = tree.nodes[node as usize].kind;
        let Some(nodes) = all.iter_mut().find(|nodes| nodes.kind == kind) else { continue };
        if is_counted(node)
            && let Some(before) = nodes.by_devices.get_mut(free.count() as usize)
        {
            *before = before.saturating_sub(1);
        }
        if let Some(after) = nodes.by_devices.get_mut(free.union(devices).count() as usize) {
            *after += 1;
        }
    }
    all
}
