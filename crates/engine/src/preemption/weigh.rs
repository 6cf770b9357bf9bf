//! The sets of victims that lose the least work, for gangs of equal members with whole devices: for these gangs "fits"
//! is a sum over nodes. First the lowest classes that are enough are found, and then, domain by domain, the least lost
//! work.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use phalanx_model::{DeviceMask, Gang, GangId};

use super::candidate::Candidate;
use super::knapsack::{Knapsack, Price};
use super::select::Budget;
use super::useful::{Freed, Useful, domain_of};
use crate::cluster::space::Space;
use crate::cluster::tree::{LevelAt, Tree};
use crate::placement::Request;
use crate::placement::Sort;

/// Whether the members that nodes hold add up to the members that a domain holds.
pub(super) fn can_weigh(request: &Request<'_>, gang: &Gang) -> bool {
    Sort::of(gang) == Sort::Members
        && !gang.needs.is_exclusive
        && request.asked.is_nothing()
        && !request.is_capped()
        && !request.insists_inside()
        && request.part_in_node().is_none()
        && request.parts_above().next().is_none()
        && request.size.is_multiple_of(request.unit())
}

/// The capacity of a node that a gang may use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VictimAmount {
    pub(super) devices: DeviceMask,
    cpu_milli: i64,
    memory_bytes: i64,
}

impl VictimAmount {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            devices: self.devices.union(other.devices),
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }
}

impl From<&Freed> for VictimAmount {
    fn from(freed: &Freed) -> Self {
        let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        Self {
            devices: freed.devices,
            cpu_milli: signed(freed.cpu_milli),
            memory_bytes: signed(freed.memory_bytes),
        }
    }
}

/// Candidates that are preempted together or not at all: one candidate, or all parts of an elastic gang that are not
/// surplus.
#[derive(Debug)]
pub(super) struct Unit {
    rank: i32,
    level: Reverse<u32>,
    pub(super) lost_device_ms: u64,
    /// The range of its entries in [`Field::by_unit`].
    freed: Range<usize>,
}

/// A node on which candidates free capacity.
#[derive(Debug)]
pub(super) struct Node {
    /// The index of its domain in [`Field::rooms`].
    domain: usize,
    /// The capacity that is free now.
    pub(super) now: VictimAmount,
    /// The range of its entries in [`Field::by_node`].
    freed: Range<usize>,
}

/// The data that is weighed for one gang.
#[derive(Debug)]
pub(super) struct Field<'a> {
    request: &'a Request<'a>,
    pub(super) nodes: Vec<Node>,
    pub(super) units: Vec<Unit>,
    /// By node: the units that free capacity there, the cheapest first, and the capacity that each frees.
    by_node: Vec<(usize, VictimAmount)>,
    /// By unit: the nodes on which it frees capacity, and the capacity that it frees there.
    by_unit: Vec<(usize, VictimAmount)>,
    /// By unit: its candidates.
    candidates: Vec<(usize, usize)>,
    /// By domain: the members that it holds now.
    rooms: Vec<u32>,
}

/// The sets of candidates that free enough, one for each domain that was considered, the cheapest first. `rooms` holds
/// the members that domains hold now; it is empty if the gang must be on one node.
pub(super) fn sets(
    tree: &Tree,
    space: &Space,
    request: &Request<'_>,
    rooms: &[u32],
    candidates: &[Candidate<'_>],
    useful: &Useful,
    budget: &mut Budget,
) -> Vec<Vec<usize>> {
    let field = Field::of(tree, space, request, rooms, candidates, useful);
    let Some(class) = field.lowest_class() else { return Vec::new() };
    let mut knapsack = Knapsack::new(&field, |unit| {
        (unit.rank, unit.level) <= (class.0, unit.level) && unit.level <= class.1
    });
    let mut sets: Vec<(Price, Vec<usize>)> = Vec::new();
    for (least, need, nodes) in field.domains(&knapsack) {
        let is_beaten = sets.iter().any(|(price, _)| *price < least);
        if is_beaten || !sets.is_empty() && budget.is_spent() {
            break;
        }
        sets.extend(knapsack.solve(&nodes, need, budget));
    }
    sets.sort();
    let of_units = |units: Vec<usize>| {
        let mut set: Vec<usize> = units.iter().flat_map(|unit| field.candidates_of(*unit)).collect();
        set.sort_unstable();
        set
    };
    sets.into_iter().map(|(_, units)| of_units(units)).collect()
}

impl<'a> Field<'a> {
    fn of(
        tree: &Tree,
        space: &Space,
        request: &'a Request<'a>,
        rooms: &[u32],
        candidates: &[Candidate<'_>],
        useful: &Useful,
    ) -> Self {
        let (mut units, unit_of) = units_of(candidates);
        let mut nodes: Vec<Node> = Vec::new();
        let mut by_node: Vec<(usize, VictimAmount)> = Vec::with_capacity(useful.freed().len());
        let mut domains: BTreeMap<usize, usize> = BTreeMap::new();
        let mut field_rooms = Vec::new();
        for on_node in useful.freed().chunk_by(|one, other| one.node == other.node) {
            let Some(node) = on_node.first().map(|freed| freed.node) else { continue };
            let at = node as usize;
            let free = space.free(at);
            let devices = request.devices(tree, space, at);
            let now = VictimAmount { devices, cpu_milli: free.cpu_milli, memory_bytes: free.memory_bytes };
            let of_tree = domain_of(tree, request.ceiling, node);
            let domain = *domains.entry(of_tree).or_insert_with(|| {
                field_rooms.push(match request.ceiling {
                    LevelAt::Above(_) => rooms.get(of_tree).copied().unwrap_or(0),
                    LevelAt::Node | LevelAt::Group(_) if free.takes_work() => members(request, now),
                    LevelAt::Node | LevelAt::Group(_) => 0,
                });
                field_rooms.len() - 1
            });
            let begin = by_node.len();
            for freed in on_node {
                join(&mut by_node, begin, unit_of[freed.candidate], VictimAmount::from(freed));
            }
            by_node[begin..].sort_unstable_by_key(|(unit, _)| (units[*unit].lost_device_ms, *unit));
            nodes.push(Node { domain, now, freed: begin..by_node.len() });
        }
        let by_unit = by_unit(&nodes, &by_node, &mut units);
        let mut of_units: Vec<(usize, usize)> = unit_of.into_iter().zip(0..).collect();
        of_units.sort_unstable();
        Self { request, nodes, units, by_node, by_unit, candidates: of_units, rooms: field_rooms }
    }

    /// The units that free capacity on a node, the cheapest first, and the capacity that each frees.
    pub(super) fn freed_on(&self, node: usize) -> &[(usize, VictimAmount)] {
        &self.by_node[self.nodes[node].freed.clone()]
    }

    /// The nodes on which a unit frees capacity, and the capacity that it frees there.
    pub(super) fn freed_by(&self, unit: usize) -> &[(usize, VictimAmount)] {
        &self.by_unit[self.units[unit].freed.clone()]
    }

    fn candidates_of(&self, unit: usize) -> impl Iterator<Item = usize> {
        let begin = self.candidates.partition_point(|(of, _)| *of < unit);
        self.candidates[begin..]
            .iter()
            .take_while(move |(of, _)| *of == unit)
            .map(|(_, candidate)| *candidate)
    }

    pub(super) fn members(&self, amount: VictimAmount) -> u32 {
        members(self.request, amount)
    }

    /// The lowest class, and in it the most service, with which candidates up to it are enough in some domain.
    fn lowest_class(&self) -> Option<(i32, Reverse<u32>)> {
        let mut order: Vec<usize> = (0..self.units.len()).collect();
        order.sort_by_key(|at| self.units[*at].rank);
        let rank = self.units[self.reached_at(&order)?].rank;
        order.retain(|at| self.units[*at].rank <= rank);
        order.sort_by_key(|at| self.units[*at].level);
        let level = self.units[self.reached_at(&order)?].level;
        Some((rank, level))
    }

    /// The unit with which, taken in this order, some domain holds the gang.
    fn reached_at(&self, order: &[usize]) -> Option<usize> {
        let mut now: Vec<VictimAmount> = self.nodes.iter().map(|node| node.now).collect();
        let mut rooms = self.rooms.clone();
        order.iter().copied().find(|unit| {
            self.freed_by(*unit).iter().fold(false, |is_enough, (at, amount)| {
                let (before, after) = (now[*at], now[*at].plus(*amount));
                now[*at] = after;
                let more = self.members(after) - self.members(before);
                let room = &mut rooms[self.nodes[*at].domain];
                *room = room.saturating_add(more);
                is_enough || *room >= self.request.size
            })
        })
    }

    /// The domains with candidates: a lower bound of the cost of victims there, the members that they must free, and
    /// the nodes. The cheapest domain first.
    fn domains(&self, knapsack: &Knapsack<'_>) -> Vec<(Price, u32, Vec<usize>)> {
        let mut by_domain: Vec<Vec<usize>> = vec![Vec::new(); self.rooms.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            by_domain[node.domain].push(at);
        }
        let priced = |(nodes, room): (Vec<usize>, &u32)| {
            let need = self.request.size.checked_sub(*room).filter(|need| *need > 0)?;
            Some((knapsack.least(&nodes, need, self.request.needs.devices), need, nodes))
        };
        let mut domains: Vec<_> = by_domain.into_iter().zip(&self.rooms).filter_map(priced).collect();
        domains.sort();
        domains
    }
}

/// The candidates as units, and the unit of each candidate.
fn units_of(candidates: &[Candidate<'_>]) -> (Vec<Unit>, Vec<usize>) {
    let mut units: Vec<Unit> = Vec::new();
    let mut whole: BTreeMap<GangId, usize> = BTreeMap::new();
    let mut unit_of = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        let is_joined = candidate.chunk.is_some() && candidate.costs_device_ms > 0;
        let known = whole.get(&candidate.id).copied().filter(|_| is_joined);
        let unit = known.unwrap_or_else(|| {
            let (rank, level) = (candidate.rank, candidate.level);
            units.push(Unit { rank, level, lost_device_ms: candidate.costs_device_ms, freed: 0..0 });
            units.len() - 1
        });
        if is_joined {
            whole.insert(candidate.id, unit);
        }
        unit_of.push(unit);
    }
    (units, unit_of)
}

/// The capacity that units free, by unit, from the same by node. Each unit is given the range of its own entries.
fn by_unit(
    nodes: &[Node],
    by_node: &[(usize, VictimAmount)],
    units: &mut [Unit],
) -> Vec<(usize, VictimAmount)> {
    for (unit, _) in by_node {
        units[*unit].freed.end += 1;
    }
    let mut begin = 0;
    for unit in units.iter_mut() {
        let count = unit.freed.end;
        unit.freed = begin..begin;
        begin += count;
    }
    let mut by_unit = vec![(0, VictimAmount::default()); by_node.len()];
    for (at, node) in nodes.iter().enumerate() {
        for (unit, amount) in &by_node[node.freed.clone()] {
            let freed = &mut units[*unit].freed;
            by_unit[freed.end] = (at, *amount);
            freed.end += 1;
        }
    }
    by_unit
}

/// Adds to the amount of the unit among the entries of its node, which begin at an index.
fn join(entries: &mut Vec<(usize, VictimAmount)>, begin: usize, of: usize, amount: VictimAmount) {
    match entries[begin..].iter_mut().find(|(unit, _)| *unit == of) {
        Some((_, sum)) => *sum = sum.plus(amount),
        None => entries.push((of, amount)),
    }
}

/// The members that a node with such an amount holds.
fn members(request: &Request<'_>, amount: VictimAmount) -> u32 {
    let VictimAmount { devices, cpu_milli, memory_bytes } = amount;
    let needs = request.needs;
    let times = |free: i64, need: u64| match (u64::try_from(free), need) {
        (_, 0) => u32::MAX,
        (Ok(free), need) => u32::try_from(free / need).unwrap_or(u32::MAX),
        (Err(_), _) => 0,
    };
    let by_devices = devices.count().checked_div(needs.devices).unwrap_or(u32::MAX);
    let most = by_devices
        .min(times(cpu_milli, needs.cpu_milli))
        .min(times(memory_bytes, needs.memory_bytes))
        .min(request.node_max)
        .min(request.size);
    match request.members_per_node {
        Some(exactly) => {
            if most >= exactly {
                exactly
            } else {
                0
            }
        }
        None => most / request.unit() * request.unit(),
    }
}
