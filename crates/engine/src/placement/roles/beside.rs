//! Places the other roles of a gang after its own members: near them, and on nodes that give a server the largest
//! share of the NICs.

use std::collections::BTreeMap;

use phalanx_model::DeviceMask;

use super::joint::ROLES_MAX;
use super::{CeilingDomain, RoleGroup, RoleProblem};
use crate::cluster::shape::NO_LIMIT;
use crate::cluster::space::Pick;
use crate::cluster::tree::LevelAt;
use crate::placement::request::Request;
use crate::placement::search::{Ceiling, Search};

/// The members of the gang on one node so far.
#[derive(Clone, Debug, Default)]
struct Used {
    devices: DeviceMask,
    amounts: Vec<u64>,
    /// How many users share the NICs: the gang's own members count as one, and each server as one.
    users: u32,
    has_own: bool,
}

/// A node that a role may use.
#[derive(Clone, Copy, Debug)]
struct Seat {
    /// Levels between it and the nearest node of the gang; 0: on a node of the gang.
    distance: u32,
    node: u32,
    devices: DeviceMask,
    room: u32,
    /// The damage to others: none of the node's devices, some, or all of them.
    breaks: u32,
    /// The bandwidth of its NICs in MB/s, and the users that share them already.
    nics: u32,
    users: u32,
}

pub(super) struct Beside<'b, 'a> {
    board: &'b RoleProblem<'a>,
    site: &'b CeilingDomain,
    /// Nodes of the gang's own members, in order.
    own: Vec<u32>,
    used: BTreeMap<u32, Used>,
    /// The used amounts of shared limits: by index of [`RoleProblem::shared`] and domain.
    shared: BTreeMap<(usize, usize), u64>,
    picks: Vec<Pick>,
}

impl<'b, 'a> Beside<'b, 'a> {
    pub(super) fn new(board: &'b RoleProblem<'a>, site: &'b CeilingDomain, own: &[Pick]) -> Self {
        let mut nodes: Vec<u32> = own.iter().map(|pick| pick.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let mut beside = Self {
            board,
            site,
            own: nodes,
            used: BTreeMap::new(),
            shared: BTreeMap::new(),
            picks: Vec::new(),
        };
        own.iter().for_each(|pick| beside.book(*pick));
        beside
    }

    /// Every role, those in parts and then those with the most devices first: they have the fewest places to choose from. Of
    /// very many roles those that the fewest nodes have room for go first.
    pub(super) fn all(self, search: &mut Search) -> Option<Vec<Pick>> {
        let roles: Vec<usize> = (1..self.board.role_groups.len()).collect();
        self.some(search, &roles)
    }

    /// These roles, if all of them find room. The picks are in the order of roles, each in the order of the tree.
    pub(super) fn some(mut self, search: &mut Search, roles: &[usize]) -> Option<Vec<Pick>> {
        let mut order = roles.to_vec();
        let needs = |role: &usize| {
            let needs = self.board.role_groups[*role].request.needs;
            let is_in_parts = self.is_in_parts(*role);
            (is_in_parts, needs.devices, needs.part.is_some(), needs.cpu_milli, needs.memory_bytes)
        };
        let is_free = |role: &usize| self.board.set_of(*role).is_none();
        // Too many roles to be solved together: a member for each of many nodes, for instance.
        let is_crowd = self.board.role_groups.len() > ROLES_MAX + 1;
        let choices = |role: &usize| if is_crowd { self.choices(*role) } else { 0 };
        order
            .sort_by_cached_key(|role| (is_free(role), choices(role), std::cmp::Reverse(needs(role)), *role));
        let own = self.picks.len();
        for role in &order {
            let role = *role;
            let is_seated = if let Some(set) = self.board.set_of(role) {
                let set: Vec<usize> = order.iter().copied().filter(|role| set.contains(role)).collect();
                // The first of them has taken all of them along.
                set.first() != Some(&role) || self.seat_together(&set)
            } else if self.board.role_groups[role].request.needs.part.is_some() {
                self.seat_alone(search, role, self.site)
            } else if self.is_in_parts(role) {
                self.sites_around().iter().any(|site| self.seat_alone(search, role, site))
            } else {
                self.seat_as_wished(role)
            };
            if !is_seated {
                return None;
            }
        }
        self.picks[own..].sort_by_key(|pick| (pick.role, pick.node));
        Some(self.picks)
    }

    /// The nodes that have room for a member of a role.
    fn choices(&self, role: usize) -> usize {
        let (board, devices) = (self.board, self.site.devices);
        let request = &board.role_groups[role].request;
        self.site.nodes.clone().filter(|node| board.room(request, *node, devices).1 > 0).count()
    }

    fn book(&mut self, pick: Pick) {
        let role_group = &self.board.role_groups[usize::from(pick.role)];
        let used = self.used.entry(pick.node).or_default();
        used.devices = used.devices.union(pick.devices);
        used.amounts.resize(role_group.amounts.len(), 0);
        for (used, each) in used.amounts.iter_mut().zip(&role_group.amounts) {
            *used = used.saturating_add(each.saturating_mul(u64::from(pick.members)));
        }
        used.users += match pick.role {
            0 => u32::from(!used.has_own),
            _ if pick.devices.is_empty() => pick.members,
            _ => 0,
        };
        used.has_own |= pick.role == 0;
        for (at, shared) in self.board.shared.iter().enumerate() {
            let domain = self.board.tree.domain_of(pick.node as usize, shared.level);
            let all = shared.each[usize::from(pick.role)].saturating_mul(u64::from(pick.members));
            let used = self.shared.entry((at, domain)).or_default();
            *used = used.saturating_add(all);
        }
        self.picks.push(pick);
    }

    /// The free capacity of a node for a role.
    fn seat_at(
        &self,
        role_group: &RoleGroup<'_>,
        request: &Request<'_>,
        node: u32,
        distance: u32,
    ) -> Option<Seat> {
        let (at, used) = (node as usize, self.used.get(&node));
        let taken = used.map_or(DeviceMask::EMPTY, |used| used.devices);
        let (devices, mut room) = self.board.room(request, at, self.site.devices.minus(taken));
        for (which, each) in role_group.amounts.iter().enumerate().filter(|(_, each)| **each > 0) {
            let used = used.map_or(0, |used| used.amounts[which]);
            let left = self.board.amount(at, which).saturating_sub_unsigned(used).max(0);
            room = room.min(u32::try_from(left.cast_unsigned() / each).unwrap_or(u32::MAX));
        }
        let kind = self.board.tree.kind(&self.board.tree.nodes[at]);
        let free = self.board.space.free(at).devices;
        let is_whole = free == kind.all() && used.is_none();
        let breaks = match kind.all() {
            // The gang's own members are not placed yet: this is what they could have here.
            _ if self.own.is_empty() => {
                self.board.room(&self.board.role_groups[0].request, at, self.site.devices).1
            }
            DeviceMask::EMPTY => 0,
            _ => 1 + u32::from(is_whole),
        };
        let (nics, users) = (kind.nics(kind.all()), used.map_or(0, |used| used.users));
        (room > 0).then_some(Seat { distance, node, devices, room, breaks, nics, users })
    }

    /// Places all members of a role as it prefers, or else anywhere.
    fn seat_as_wished(&mut self, role: usize) -> bool {
        let board = self.board;
        let role_group = &board.role_groups[role];
        for wish in &role_group.wishes {
            let (used, shared, picks) = (self.used.clone(), self.shared.clone(), self.picks.len());
            if self.seat(role, wish) {
                return true;
            }
            (self.used, self.shared) = (used, shared);
            self.picks.truncate(picks);
        }
        self.seat(role, &role_group.request)
    }

    /// All members of a role, or as many as find room.
    fn seat(&mut self, role: usize, request: &Request<'_>) -> bool {
        let board = self.board;
        let role_group = &board.role_groups[role];
        let mut left = role_group.request.size;
        let seats = |distance: u32| -> Option<Vec<Seat>> {
            let nodes = self.ring(distance)?;
            Some(
                nodes
                    .into_iter()
                    .filter_map(|node| self.seat_at(role_group, request, node, distance))
                    .collect(),
            )
        };
        let is_server = role_group.request.needs.devices == 0
            && board.gang.traffic.is_some_and(|traffic| traffic.bytes > 0);
        if is_server && !self.own.is_empty() {
            let all: Vec<Seat> = (0..).map_while(seats).flatten().collect();
            let at_least = fastest(&all, left);
            let rooms = |seat: Seat| Seat { room: seat.room_for(at_least), ..seat };
            let mut all: Vec<Seat> = all.into_iter().map(rooms).collect();
            all.sort_by_key(|seat| (seat.distance, seat.breaks, seat.node));
            all.iter().for_each(|seat| self.take(role, seat, &mut left));
        }
        for distance in 0.. {
            let Some(nodes) = self.ring(distance).filter(|_| left > 0) else { break };
            let seat = |node: u32| self.seat_at(role_group, request, node, distance);
            let mut ring: Vec<Seat> = nodes.into_iter().filter_map(seat).collect();
            if role_group.request.needs.devices == 0 || self.own.is_empty() {
                ring.sort_by_key(|seat| (seat.breaks, seat.node));
                ring.iter().for_each(|seat| self.take(role, seat, &mut left));
            } else {
                self.take_fullest(role, &mut ring, &mut left);
            }
        }
        left == 0
    }

    /// Places all members of roles that must be on one node: on the nearest node with room for them, and of these
    /// where the damage to others is least.
    fn seat_together(&mut self, roles: &[usize]) -> bool {
        let board = self.board;
        let Some(first) = roles.first() else { return true };
        let role_group = &board.role_groups[*first];
        let is_with_own = !self.own.is_empty() && board.set_of(*first).is_some_and(|set| set.contains(&0));
        for distance in 0.. {
            let Some(nodes) = self.ring(distance).filter(|_| distance == 0 || !is_with_own) else { break };
            let seat = |node: u32| self.seat_at(role_group, &role_group.request, node, distance);
            let mut ring: Vec<Seat> = nodes.into_iter().filter_map(seat).collect();
            ring.retain(|seat| seat.room >= role_group.request.size);
            ring.sort_by_key(|seat| (seat.breaks, seat.devices.count(), seat.node));
            if ring.iter().any(|seat| self.take_together(roles, seat)) {
                return true;
            }
        }
        false
    }

    /// All members of these roles on the node of a seat, or none of them.
    fn take_together(&mut self, roles: &[usize], seat: &Seat) -> bool {
        let board = self.board;
        let (used, shared, picks) = (self.used.clone(), self.shared.clone(), self.picks.len());
        let is_taken = roles.iter().all(|role| {
            let role_group = &board.role_groups[*role];
            let mut left = role_group.request.size;
            let seat = self.seat_at(role_group, &role_group.request, seat.node, seat.distance);
            if let Some(seat) = seat.filter(|seat| seat.room >= left) {
                self.take(*role, &seat, &mut left);
            }
            left == 0
        });
        if !is_taken {
            (self.used, self.shared) = (used, shared);
            self.picks.truncate(picks);
        }
        is_taken
    }

    /// As many members as a seat has room for and are left.
    fn take(&mut self, role: usize, seat: &Seat, left: &mut u32) {
        let each = self.board.role_groups[role].request.needs.devices;
        let members = seat.room.min(*left).min(self.room_around(role, seat.node));
        let table = &self.board.tree.kind(&self.board.tree.nodes[seat.node as usize]).table;
        if members > 0
            && let Some(devices) = table.best(seat.devices, members * each)
        {
            self.book(Pick { role: role as u16, ..Pick::new(seat.node, members, devices) });
            *left -= members;
        }
    }

    /// Uses few nodes: the roomiest first, and for the last members the node with the least left over.
    fn take_fullest(&mut self, role: usize, seats: &mut [Seat], left: &mut u32) {
        seats
            .sort_by_key(|seat| (std::cmp::Reverse(seat.room), seat.breaks, seat.devices.count(), seat.node));
        for at in 0..seats.len() {
            if *left == 0 {
                return;
            }
            let tightest = || {
                let enough = seats[at..].iter().filter(|seat| seat.room >= *left);
                enough.min_by_key(|seat| (seat.breaks, seat.devices.count(), seat.node)).copied()
            };
            let is_last = seats[at].room >= *left;
            let seat = if is_last { tightest() } else { None };
            self.take(role, &seat.unwrap_or(seats[at]), left);
        }
    }

    /// Members of a role for which the domains around a node have enough.
    fn room_around(&self, role: usize, node: u32) -> u32 {
        let shared = self.board.shared.iter().enumerate().filter(|(_, shared)| shared.each[role] > 0);
        let rooms = shared.map(|(at, shared)| {
            let domain = self.board.tree.domain_of(node as usize, shared.level);
            let used = self.shared.get(&(at, domain)).copied().unwrap_or(0);
            let left = self.board.amount_in(shared, domain).saturating_sub_unsigned(used).max(0);
            u32::try_from(left.cast_unsigned() / shared.each[role]).unwrap_or(u32::MAX)
        });
        rooms.min().unwrap_or(u32::MAX)
    }

    /// Nodes at a distance from the gang's own, in order; `None` beyond the site. If the gang's own members
    /// are not placed yet, all nodes come at once, and those that could hold the fewest of them are used first.
    fn ring(&self, distance: u32) -> Option<Vec<u32>> {
        let tree = self.board.tree;
        let site = self.site.nodes.start as u32..self.site.nodes.end as u32;
        if self.own.is_empty() {
            return (distance == 0).then(|| site.collect());
        }
        let Some(level) = tree.depth().checked_sub(distance as usize).filter(|_| distance > 0) else {
            return (distance == 0).then(|| self.own.clone());
        };
        let outermost = match self.board.ceiling {
            LevelAt::Above(level) => level,
            _ => tree.depth(),
        };
        if level < outermost {
            return None;
        }
        let of = |level: usize| {
            let mut domains: Vec<usize> =
                self.own.iter().map(|node| tree.domain_of(*node as usize, level)).collect();
            domains.dedup();
            domains
        };
        let inner = (level + 1 < tree.depth()).then(|| of(level + 1));
        let is_inside = |node: &usize| match &inner {
            Some(inner) => inner.binary_search(&tree.domain_of(*node, level + 1)).is_ok(),
            None => self.own.binary_search(&(*node as u32)).is_ok(),
        };
        let nodes = of(level).into_iter().flat_map(|domain| tree.domains[level][domain].nodes.clone());
        Some(nodes.filter(|node| !is_inside(node)).map(|node| node as u32).collect())
    }

    /// Whether members of a role have to be together.
    fn is_in_parts(&self, role: usize) -> bool {
        !self.board.role_groups[role].gang.topology.segments.is_empty()
    }

    /// The domains around the gang's own members, from the narrowest that holds them all to the site.
    fn sites_around(&self) -> Vec<CeilingDomain> {
        let tree = self.board.tree;
        let (Some(first), LevelAt::Above(ceiling)) = (self.own.first(), self.board.ceiling) else {
            return vec![self.site.clone()];
        };
        let around = |level: usize| {
            let domain = tree.domain_of(*first as usize, level);
            let holds_all = self.own.iter().all(|node| tree.domain_of(*node as usize, level) == domain);
            let nodes = tree.domains[level][domain].nodes.clone();
            holds_all.then_some(CeilingDomain { nodes, devices: self.site.devices })
        };
        (ceiling..tree.depth()).rev().filter_map(around).collect()
    }

    /// Places a role as a gang of its own in the rest of a site, if it needs parts of devices or is split into parts.
    fn seat_alone(&mut self, search: &mut Search, role: usize, site: &CeilingDomain) -> bool {
        let board = self.board;
        let space = board.within(site, &self.picks);
        let gang = board.shared_gang(board.role_groups[role].gang);
        if search.place(board.tree, &space, &gang, Ceiling(LevelAt::Above(0))).is_none() {
            return false;
        }
        let found = search.picks().iter().map(|pick| Pick { role: role as u16, ..*pick });
        let found: Vec<Pick> = found.collect();
        // The search does not know the other roles that count toward the same spread limit.
        let is_spread = board.is_spread(&self.picks, &found);
        if is_spread {
            found.into_iter().for_each(|pick| self.book(pick));
        }
        is_spread
    }
}

impl Seat {
    /// How many servers it takes, when each has at least so much of the NICs.
    fn room_for(&self, at_least: u32) -> u32 {
        match self.nics.checked_div(at_least) {
            Some(shares) if self.nics != NO_LIMIT => self.room.min(shares.saturating_sub(self.users)),
            _ => self.room,
        }
    }
}

/// The highest bandwidth for the slowest of these servers, in MB/s; 0 if the gang's own members are the larger part.
fn fastest(seats: &[Seat], servers: u32) -> u32 {
    let is_enough = |at_least: u32| {
        let mut left = servers;
        seats.iter().any(|seat| {
            left = left.saturating_sub(seat.room_for(at_least));
            left == 0
        })
    };
    let (mut reached, mut missed) = (0, NO_LIMIT);
    while missed - reached > 1 {
        let middle = reached + (missed - reached) / 2;
        if is_enough(middle) {
            reached = middle;
        } else {
            missed = middle;
        }
    }
    reached
}
