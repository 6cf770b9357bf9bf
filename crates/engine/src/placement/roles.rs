//! Gangs with members of other needs: launchers, parameter servers, prefill next to decode.
//!
//! The members of the gang itself get the placement that they would get alone, and the others are placed around them
//! ([`beside`]). If that leaves no room for all of them, every domain of the ceiling is solved ([`joint`]): whether
//! numbers of members exist, node by node, with which the whole gang fits. Then the roles are placed as the solution
//! says, the gang's own members get the best placement that is left, and the roles are placed again around them.

mod beside;
mod joint;
mod table;
mod together;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use phalanx_model::{DeviceMask, Gang, Needs, NodeName, Pattern, Program, Role, Topology, Traffic};

use self::beside::Beside;
pub(super) use self::joint::STATES_MAX;
use self::joint::{Joint, Solved};
use super::grids;
use super::request::Request;
use super::search::{self, Ceiling, Fit, Found, Search};
use crate::cluster::space::{Pick, Space};
use crate::cluster::tree::{LevelAt, Tree};

/// Domains that hold the whole gang and are compared with each other.
const SITES_MAX: u32 = 8;

/// The members of one role, or those of the gang itself.
struct RoleGroup<'a> {
    /// Its members as a gang without roles.
    gang: &'a Gang,
    request: Request<'a>,
    /// Its preferences: nodes, faster devices. The first that holds all members counts.
    wishes: Vec<Request<'a>>,
    /// The amounts of its node that a member takes, one for each of [`RoleProblem::amounts`].
    amounts: Vec<u64>,
}

/// An amount of a node other than devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeAmount {
    Cpu,
    Memory,
    /// A resource that is counted by name.
    Named(u32),
    /// Members that may be together.
    Members(u32),
}

/// An amount that all members inside one domain of a level share.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shared {
    level: usize,
    amount: NodeAmount,
    /// The amount that a member of each party takes.
    each: Vec<u64>,
}

/// A domain of the ceiling: the whole gang is inside.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CeilingDomain {
    nodes: Range<usize>,
    /// All devices, unless the ceiling is inside the node.
    devices: DeviceMask,
}

/// A gang with its roles, and the free capacity.
struct RoleProblem<'a> {
    tree: &'a Tree,
    space: &'a Space,
    gang: &'a Gang,
    ceiling: LevelAt,
    /// The gang itself, then role by role.
    role_groups: Vec<RoleGroup<'a>>,
    amounts: Vec<NodeAmount>,
    shared: Vec<Shared>,
    /// Parties that must be on one node.
    together: Vec<Vec<usize>>,
}

/// A place for all.
struct RolePlacement {
    found: Found,
    picks: Vec<Pick>,
    order: Vec<u32>,
}

/// Finds a place for the whole gang inside the ceiling, or nothing. The picks are those of the search.
pub(super) fn place(
    search: &mut Search,
    tree: &Tree,
    space: &Space,
    gang: &Gang,
    ceiling: Ceiling,
) -> Option<Found> {
    let (own, others) = (grids::asked(tree, gang), others(gang));
    let board = RoleProblem::new(tree, space, gang, &own, &others, ceiling.0);
    let alone = search.place_own(tree, space, gang, board.own_ceiling())?;
    let place = board.with_others(search, alone).or_else(|| board.elsewhere(search, alone.least_ns))?;
    search.set_picks(&place.picks);
    search.set_order(place.order);
    Some(place.found)
}

/// How many members of the gang itself the best domain of a level holds, with all of its roles beside them. If the
/// budget ends before that is known, this is a lower bound.
pub(super) fn best_fit(tree: &Tree, space: &Space, gang: &Gang, level: LevelAt) -> Fit {
    let (own, others) = (grids::asked(tree, gang), others(gang));
    let board = RoleProblem::new(tree, space, gang, &own, &others, level);
    let alone = search::fit_own(tree, space, gang, level);
    let mut search = Search::default();
    if let Some(found) = search.place_own(tree, space, gang, board.own_ceiling())
        && let Some(place) = board.with_others(&mut search, found)
        && let Some(site) = board.site_of(&place.picks)
    {
        return board.fit(gang.size, &site);
    }
    let mut joint = Joint::new(&board);
    let mut best = Fit { fits: 0, ..alone.clone() };
    for site in board.sites() {
        let bound = board.bound(&site);
        if bound <= best.fits {
            continue;
        }
        let fits = match joint.as_mut().map(|joint| joint.most(&site)) {
            Some(Some(fits)) => fits,
            _ => bound.min(alone.fits),
        };
        if fits > best.fits {
            best = board.fit(fits, &site);
        }
    }
    best
}

fn need(asked: &[(u32, u64)], which: u32) -> u64 {
    asked.iter().find(|(at, _)| *at == which).map_or(0, |(_, need)| *need)
}

/// A role as a gang of its own.
struct Other {
    gang: Gang,
    wishes: Vec<Gang>,
}

fn others(gang: &Gang) -> Vec<Other> {
    let silent = Traffic { pattern: Pattern::AllReduce, bytes: 0, compute_ns: 0 };
    let alone = |role: &Role| {
        let gang = Gang {
            size: role.size,
            min: role.size,
            max: role.size,
            needs: Needs { is_exclusive: gang.needs.is_exclusive, ..role.needs.clone() },
            roles: Vec::new(),
            members_per_node: None,
            topology: Topology { segments: role.segments.clone(), ..Topology::default() },
            traffic: Some(silent),
            grid: Vec::new(),
            program: Program::default(),
        };
        Other { wishes: wishes(&gang), gang }
    };
    gang.roles.iter().map(alone).collect()
}

/// Preferred nodes come first, and the fastest devices first on both preferred and other nodes.
fn wishes(gang: &Gang) -> Vec<Gang> {
    let (needs, models) = (&gang.needs, &gang.needs.models);
    let mut speeds: Vec<u32> = models.iter().map(|need| need.speed_milli).collect();
    speeds.sort_unstable_by_key(|speed| std::cmp::Reverse(*speed));
    speeds.dedup();
    let preferred = needs.prefer.iter().filter(|name| needs.nodes.is_empty() || needs.nodes.contains(name));
    // An empty list would mean any node.
    let preferred: Option<Vec<NodeName>> =
        Some(preferred.cloned().collect()).filter(|all: &Vec<_>| !all.is_empty());
    let mut all = Vec::new();
    for nodes in preferred.iter().chain([&needs.nodes]) {
        for speed in speeds.iter().copied().chain(speeds.is_empty().then_some(0)) {
            let mut wish = gang.clone();
            wish.needs.nodes.clone_from(nodes);
            wish.needs.models.retain(|need| need.speed_milli >= speed);
            all.push(wish);
        }
    }
    // The last one is the plain request.
    all.pop();
    all
}

impl<'a> RoleProblem<'a> {
    fn new(
        tree: &'a Tree,
        space: &'a Space,
        gang: &'a Gang,
        own: &'a Cow<'a, Gang>,
        others: &'a [Other],
        ceiling: LevelAt,
    ) -> Self {
        let request = |gang: &'a Gang| Request::of(tree, gang, ceiling);
        let role_group = |gang: &'a Gang, wishes: &'a [Gang]| RoleGroup {
            gang,
            request: request(gang),
            wishes: wishes.iter().map(request).collect(),
            amounts: Vec::new(),
        };
        let roles = others.iter().map(|other| role_group(&other.gang, &other.wishes));
        let role_groups = std::iter::once(role_group(own, &[])).chain(roles).collect();
        let together = together::sets(gang);
        let (amounts, shared) = (Vec::new(), Vec::new());
        let mut board = Self { tree, space, gang, ceiling, role_groups, amounts, shared, together };
        board.count();
        board
    }

    /// Collects the amounts beside devices, of nodes and of domains.
    fn count(&mut self) {
        let asked = || self.role_groups.iter().map(|role_group| &role_group.request.asked);
        let mut of_nodes: Vec<u32> = asked().flat_map(|asked| asked.of_nodes()).map(|(at, _)| *at).collect();
        let mut limits: Vec<u32> = asked().flat_map(|asked| asked.of_domains()).map(|(at, _)| *at).collect();
        for names in [&mut of_nodes, &mut limits] {
            names.sort_unstable();
            names.dedup();
        }
        let mut amounts = vec![NodeAmount::Cpu, NodeAmount::Memory];
        amounts.extend(of_nodes.into_iter().map(NodeAmount::Named));
        let limit = |limit: u32| Shared {
            level: self.tree.resources.level_of(limit),
            amount: NodeAmount::Named(limit),
            each: asked().map(|asked| need(asked.of_domains(), limit)).collect(),
        };
        let mut shared: Vec<Shared> = limits.into_iter().map(limit).collect();
        for rule in &self.gang.topology.spread {
            match self.tree.level_at(&rule.level) {
                Some(LevelAt::Above(level)) => {
                    let each = vec![1; self.role_groups.len()];
                    shared.push(Shared { level, amount: NodeAmount::Members(rule.max), each });
                }
                _ => amounts.push(NodeAmount::Members(rule.max)),
            }
        }
        for role_group in &mut self.role_groups {
            let (needs, asked) = (role_group.request.needs, &role_group.request.asked);
            let each = |amount: &NodeAmount| match *amount {
                NodeAmount::Cpu => needs.cpu_milli,
                NodeAmount::Memory => needs.memory_bytes,
                NodeAmount::Named(at) => need(asked.of_nodes(), at),
                NodeAmount::Members(_) => 1,
            };
            role_group.amounts = amounts.iter().map(each).collect();
        }
        (self.amounts, self.shared) = (amounts, shared);
    }

    /// The free amount of a node.
    fn amount(&self, node: usize, which: usize) -> i64 {
        let free = self.space.free(node);
        match self.amounts[which] {
            NodeAmount::Cpu => free.cpu_milli,
            NodeAmount::Memory => free.memory_bytes,
            NodeAmount::Named(at) => self.space.named().of_node(self.tree, node, at),
            NodeAmount::Members(most) => i64::from(most),
        }
    }

    /// The free amount of a domain for all members inside it.
    fn amount_in(&self, shared: &Shared, domain: usize) -> i64 {
        match shared.amount {
            NodeAmount::Members(most) => i64::from(most),
            NodeAmount::Named(at) => self.space.named().of_domain(at, domain),
            NodeAmount::Cpu | NodeAmount::Memory => i64::MAX,
        }
    }

    /// The devices of a node that a party may have, and how many of its members fit there without other members of
    /// the gang.
    fn room(&self, request: &Request<'_>, node: usize, allowed: DeviceMask) -> (DeviceMask, u32) {
        let devices = request.devices(self.tree, self.space, node).and(allowed);
        (devices, request.limit(self.tree, self.space, node, devices).min(request.size))
    }

    /// The domains of the ceiling, in order.
    fn sites(&self) -> Vec<CeilingDomain> {
        let all = DeviceMask(u64::MAX);
        let one = |node: usize, devices: DeviceMask| CeilingDomain { nodes: node..node + 1, devices };
        let nodes = 0..self.tree.nodes.len();
        match self.ceiling {
            LevelAt::Above(level) => {
                let domains = self.tree.domains.get(level).into_iter().flatten();
                domains.map(|domain| CeilingDomain { nodes: domain.nodes.clone(), devices: all }).collect()
            }
            LevelAt::Node => nodes.map(|node| one(node, all)).collect(),
            LevelAt::Group(_) => nodes
                .flat_map(|node| self.groups(node).into_iter().map(move |devices| one(node, devices)))
                .collect(),
        }
    }

    /// The groups of a node that may be the ceiling; for several levels, their intersections.
    fn groups(&self, node: usize) -> Vec<DeviceMask> {
        let kind = self.tree.kind(&self.tree.nodes[node]);
        let group = match self.ceiling {
            LevelAt::Group(group) => Some(group),
            _ => None,
        };
        let sites = |own: &RoleGroup<'_>| own.request.sites(kind, group);
        self.role_groups.first().map_or_else(|| vec![kind.all()], sites)
    }

    /// The domain of the ceiling that these picks are inside of.
    fn site_of(&self, picks: &[Pick]) -> Option<CeilingDomain> {
        let node = picks.first()?.node as usize;
        let used = picks.iter().fold(DeviceMask::EMPTY, |all, pick| all.union(pick.devices));
        let all = DeviceMask(u64::MAX);
        match self.ceiling {
            LevelAt::Above(level) => {
                let domain = self.tree.domains.get(level)?.get(self.tree.domain_of(node, level))?;
                Some(CeilingDomain { nodes: domain.nodes.clone(), devices: all })
            }
            LevelAt::Node => Some(CeilingDomain { nodes: node..node + 1, devices: all }),
            LevelAt::Group(_) => {
                let devices = self.groups(node).into_iter().find(|group| used.is_subset_of(*group))?;
                Some(CeilingDomain { nodes: node..node + 1, devices })
            }
        }
    }

    /// The placement of the gang's own members that the search holds, with the other roles around them.
    fn with_others(&self, search: &mut Search, found: Found) -> Option<RolePlacement> {
        let order = self.whole_order(search);
        let own = search.picks().to_vec();
        let site = self.site_of(&own)?;
        let picks = Beside::new(self, &site, &own).all(search)?;
        Some(RolePlacement { found, picks, order })
    }

    /// An upper bound on the members of the gang itself in a domain; 0 if some role does not fit.
    fn bound(&self, site: &CeilingDomain) -> u32 {
        let fits = |role_group: &RoleGroup<'_>| {
            let rooms = site.nodes.clone().map(|node| self.room(&role_group.request, node, site.devices).1);
            rooms.fold(0_u32, u32::saturating_add).min(role_group.request.size)
        };
        let is_full = |role_group: &RoleGroup<'_>| fits(role_group) >= role_group.request.size;
        match self.role_groups.split_first() {
            Some((own, others)) if others.iter().all(is_full) => fits(own),
            _ => 0,
        }
    }

    /// Tries domain by domain, after the placement of the gang alone left no room for the roles.
    fn elsewhere(&self, search: &mut Search, least_ns: u64) -> Option<RolePlacement> {
        let mut joint = Joint::new(self);
        let mut best: Option<RolePlacement> = None;
        let mut held = 0;
        for site in self.sites() {
            if self.bound(&site) < self.gang.size {
                continue;
            }
            let place = match joint.as_mut().map_or(Solved::Unknown, |joint| joint.solve(&site)) {
                Solved::Never => None,
                Solved::RolePlacement(picks) => {
                    self.around(search, &site, &picks).or_else(|| self.as_solved(search, picks))
                }
                Solved::Unknown => self.in_turns(search, &site),
            };
            let Some(mut place) = place else { continue };
            place.found.least_ns = least_ns.min(place.found.cost.time_ns);
            if best.as_ref().is_none_or(|best| place.found.cost < best.found.cost) {
                best = Some(place);
            }
            held += 1;
            if held == SITES_MAX {
                break;
            }
        }
        best
    }

    /// The best placement for the gang's own members beside roles that have theirs; then the roles are placed around
    /// them.
    fn around(&self, search: &mut Search, site: &CeilingDomain, picks: &[Pick]) -> Option<RolePlacement> {
        let roles: Vec<Pick> = picks.iter().filter(|pick| pick.role > 0).copied().collect();
        let (space, gang) = (self.within(&self.own_site(site, &roles), &roles), self.shared_gang(self.gang));
        let found = search.place_own(self.tree, &space, &gang, self.own_ceiling())?;
        let (own, order) = (search.picks().to_vec(), self.whole_order(search));
        if let Some(picks) = Beside::new(self, site, &own).all(search) {
            return Some(RolePlacement { found, picks, order });
        }
        let place = RolePlacement { found, picks: own.into_iter().chain(roles).collect(), order };
        (self.is_spread(&place.picks, &[]) && self.are_together(&place.picks)).then_some(place)
    }

    /// A place that was solved, as it is.
    fn as_solved(&self, search: &mut Search, picks: Vec<Pick>) -> Option<RolePlacement> {
        let own = self.role_groups.first()?.gang;
        let (mut members, roles): (Vec<Pick>, Vec<Pick>) = picks.into_iter().partition(|pick| pick.role == 0);
        let found = search.measured(self.tree, self.space, own, &members)?;
        Search::in_rank_order(self.tree, self.space, own, &mut members);
        Some(RolePlacement { found, picks: members.into_iter().chain(roles).collect(), order: Vec::new() })
    }

    /// Whether no domain has more members than may be together: that of all roles no search keeps.
    fn is_spread(&self, picks: &[Pick], more: &[Pick]) -> bool {
        self.gang.topology.spread.iter().all(|rule| {
            let domain = |pick: &Pick| match self.tree.level_at(&rule.level) {
                Some(LevelAt::Above(level)) => self.tree.domain_of(pick.node as usize, level),
                _ => pick.node as usize,
            };
            let mut members: BTreeMap<usize, u32> = BTreeMap::new();
            picks
                .iter()
                .chain(more)
                .for_each(|pick| *members.entry(domain(pick)).or_default() += pick.members);
            members.values().all(|members| *members <= rule.max)
        })
    }

    /// The free capacity inside a site alone, after these picks are taken.
    fn within(&self, site: &CeilingDomain, picks: &[Pick]) -> Space {
        let mut space = self.space.clone();
        let is_exclusive = self.gang.needs.is_exclusive;
        space.only(self.tree, |node, free| {
            let is_alone = || free.tenants == 0 && free.devices == self.tree.nodes[node].total.devices;
            site.nodes.contains(&node) && (!is_exclusive || is_alone())
        });
        let gang = self.shared_gang(self.gang);
        space.take(self.tree, picks, &gang);
        if let LevelAt::Group(_) = self.ceiling {
            let rest = space.free(site.nodes.start).devices.minus(site.devices);
            space.take(self.tree, &[Pick::new(site.nodes.start as u32, 0, rest)], &gang);
        }
        space
    }

    /// The gang as one that shares its nodes: an exclusive gang shares with its own roles, once all other nodes are
    /// excluded.
    fn shared_gang<'g>(&self, gang: &'g Gang) -> Cow<'g, Gang> {
        if !gang.needs.is_exclusive {
            return Cow::Borrowed(gang);
        }
        let mut gang = gang.clone();
        gang.needs.is_exclusive = false;
        Cow::Owned(gang)
    }

    /// The order of ranks that the search has, ranks of roles following as they come.
    fn whole_order(&self, search: &Search) -> Vec<u32> {
        let mut order = search.order().to_vec();
        if !order.is_empty() {
            order.extend(self.gang.size..self.gang.member_count());
        }
        order
    }

    /// If nothing can be solved: some roles first, then the gang's own members, then the other roles.
    fn in_turns(&self, search: &mut Search, site: &CeilingDomain) -> Option<RolePlacement> {
        let all: Vec<usize> = (1..self.role_groups.len()).collect();
        let turns = std::iter::once(all.as_slice()).chain(all.chunks(1));
        turns.into_iter().find_map(|first| {
            let roles = Beside::new(self, site, &[]).some(search, first)?;
            let place = self.around(search, site, &roles)?;
            let members: u64 = place.picks.iter().map(|pick| u64::from(pick.members)).sum();
            (members == u64::from(self.gang.member_count())).then_some(place)
        })
    }

    fn fit(&self, fits: u32, site: &CeilingDomain) -> Fit {
        let nodes = &self.tree.nodes[site.nodes.clone()];
        let name = |node: usize| self.tree.nodes[node].name.to_string();
        let domain = match self.ceiling {
            LevelAt::Above(level) => {
                let mut domains = self.tree.domains[level].iter();
                domains
                    .find(|domain| domain.nodes == site.nodes)
                    .map(|domain| self.tree.domain_name(level, domain))
            }
            LevelAt::Node => Some(name(site.nodes.start)),
            LevelAt::Group(_) => Some(format!("{} devices {}", name(site.nodes.start), site.devices)),
        };
        let own = &self.role_groups[0].request;
        let free = site.nodes.clone().map(|node| self.room(own, node, site.devices).0.count());
        Fit {
            fits,
            domain: domain.unwrap_or_default(),
            free_devices: free.sum(),
            devices: nodes.iter().map(|node| node.total.devices.and(site.devices).count()).sum(),
        }
    }
}
