//! The sets of victims that lose the least work, for gangs of equal members with whole devices: for these "fits" is a sum of
//! what nodes hold. First the lowest classes that are enough are found, and then, domain by domain, the least lost work.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use phalanx_model::{DeviceMask, Gang, GangId};

use super::candidate::Candidate;
use super::knapsack::{Knapsack, Price};
use super::select::Budget;
use super::useful::{Freed, Useful, domain_of};
use crate::cluster::space::Space;
use crate::cluster::tree::{LevelAt, Tree};
use crate::placement::Request;
use crate::placement::Sort;

/// Whether the members that nodes hold add up to what a domain holds.
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

/// What a gang may use of a node.
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

/// Candidates that are preempted together or not at all: one, or all parts of an elastic gang that it cannot do without.
#[derive(Debug)]
pub(super) struct Unit {
    rank: i32,
    level: Reverse<u32>,
    pub(super) lost_device_ms: u64,
    candidates: Vec<usize>,
    /// What each frees, by index of the node in [`Field::nodes`].
    pub(super) freed: Vec<(usize, VictimAmount)>,
}

/// A node on which candidates free capacity.
#[derive(Debug)]
pub(super) struct Node {
    domain: usize,
    /// What is free now.
    pub(super) now: VictimAmount,
    /// What units free, by index in [`Field::units`], the cheapest first.
    pub(super) freed: Vec<(usize, VictimAmount)>,
}

/// All that is weighed for one gang.
#[derive(Debug)]
pub(super) struct Field<'a> {
    request: &'a Request<'a>,
    pub(super) nodes: Vec<Node>,
    pub(super) units: Vec<Unit>,
    /// By domain: members that it holds now.
    rooms: BTreeMap<usize, u32>,
}

/// The sets of candidates that free enough, one for each domain that was looked at, the cheapest first. `rooms` says what
/// domains hold now; nothing if the gang must be on one node.
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
        let mut set: Vec<usize> =
            units.iter().flat_map(|unit| &field.units[*unit].candidates).copied().collect();
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
        let mut last = None;
        let mut field_rooms = BTreeMap::new();
        for freed in useful.freed() {
            if last != Some(freed.node) {
                last = Some(freed.node);
                let at = freed.node as usize;
                let free = space.free(at);
                let devices = request.devices(tree, space, at);
                let now =
                    VictimAmount { devices, cpu_milli: free.cpu_milli, memory_bytes: free.memory_bytes };
                let domain = domain_of(tree, request.ceiling, freed.node);
                let own = || if free.takes_work() { members(request, now) } else { 0 };
                let room = match request.ceiling {
                    LevelAt::Above(_) => rooms.get(domain).copied().unwrap_or(0),
                    LevelAt::Node | LevelAt::Group(_) => own(),
                };
                field_rooms.entry(domain).or_insert(room);
                nodes.push(Node { domain, now, freed: Vec::new() });
            }
            let (unit, at) = (unit_of[freed.candidate], nodes.len() - 1);
            let amount = VictimAmount::from(freed);
            join(&mut nodes[at].freed, unit, amount);
            join(&mut units[unit].freed, at, amount);
        }
        for node in &mut nodes {
            node.freed.sort_by_key(|(unit, _)| (units[*unit].lost_device_ms, *unit));
        }
        Self { request, nodes, units, rooms: field_rooms }
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
            self.units[*unit].freed.iter().fold(false, |is_enough, (at, amount)| {
                let (before, after) = (now[*at], now[*at].plus(*amount));
                now[*at] = after;
                let more = self.members(after) - self.members(before);
                let room = rooms.entry(self.nodes[*at].domain).or_insert(0);
                *room = room.saturating_add(more);
                is_enough || *room >= self.request.size
            })
        })
    }

    /// The domains with candidates: what victims cost there at least, the members that they must free, and the nodes. The
    /// cheapest domain first.
    fn domains(&self, knapsack: &Knapsack<'_>) -> Vec<(Price, u32, Vec<usize>)> {
        let mut by_domain: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            by_domain.entry(node.domain).or_default().push(at);
        }
        let priced = |(domain, nodes): (usize, Vec<usize>)| {
            let room = self.rooms.get(&domain).copied().unwrap_or(0);
            let need = self.request.size.checked_sub(room).filter(|need| *need > 0)?;
            Some((knapsack.least(&nodes, need, self.request.needs.devices), need, nodes))
        };
        let mut domains: Vec<_> = by_domain.into_iter().filter_map(priced).collect();
        domains.sort();
        domains
    }
}

/// Candidates as units, and the unit of each.
fn units_of(candidates: &[Candidate<'_>]) -> (Vec<Unit>, Vec<usize>) {
    let mut units: Vec<Unit> = Vec::new();
    let mut whole: BTreeMap<GangId, usize> = BTreeMap::new();
    let mut unit_of = Vec::with_capacity(candidates.len());
    for (at, candidate) in candidates.iter().enumerate() {
        let is_joined = candidate.chunk.is_some() && candidate.costs_device_ms > 0;
        let known = whole.get(&candidate.id).copied().filter(|_| is_joined);
        let unit = known.unwrap_or_else(|| {
            units.push(Unit {
                rank: candidate.rank,
                level: candidate.level,
                lost_device_ms: candidate.costs_device_ms,
                candidates: Vec::new(),
                freed: Vec::new(),
            });
            units.len() - 1
        });
        if is_joined {
            whole.insert(candidate.id, unit);
        }
        units[unit].candidates.push(at);
        unit_of.push(unit);
    }
    (units, unit_of)
}

/// Adds to the amount of the last entry where it is of the same, for entries come grouped.
fn join(entries: &mut Vec<(usize, VictimAmount)>, of: usize, amount: VictimAmount) {
    match entries.iter_mut().find(|(other, _)| *other == of) {
        Some((_, sum)) => *sum = sum.plus(amount),
        None => entries.push((of, amount)),
    }
}

/// Members that a node with such an amount holds.
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
