//! The constraints of a placement and its cost, written as naively as they are defined.

use std::collections::BTreeMap;

use phalanx_engine::Share;
use phalanx_model::{
    Admin, DeviceMask, DomainName, Gang, Pattern, Placement, ResourceName, ShapeCost, Spread,
};

use crate::draw::{Cluster, whole_path};

/// The limit if nothing limits.
pub(crate) const NO_LIMIT: u64 = u64::MAX;
/// The bytes that a gang without stated traffic is taken to send.
const BYTES_UNSAID: u64 = 64 << 20;
/// Shares of an uplink are distinguished to this part of it.
const SHARE_STEPS: u64 = 16;

/// A domain as the costs count it.
#[derive(Clone, Debug)]
pub(crate) struct Domain {
    pub(crate) latency_ns: u64,
    pub(crate) uplink: u64,
    /// The traffic that gangs send over the uplink, MB/s each.
    pub(crate) loads: Vec<u64>,
}

/// The free capacity of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) devices: DeviceMask,
    pub(crate) cpu_milli: u64,
    pub(crate) memory_bytes: u64,
    /// The use by members on the node of each resource that is counted by name.
    pub(crate) used: BTreeMap<ResourceName, u64>,
    /// The number of shares of gangs on the node, and whether one of these gangs wants to be alone.
    pub(crate) shares: u32,
    pub(crate) is_held: bool,
}

/// The state of a cluster: its free capacity, the loads of its uplinks, and the bandwidths of its hardware.
#[derive(Clone, Debug)]
pub(crate) struct Books {
    pub(crate) cluster: Cluster,
    pub(crate) free: Vec<Free>,
    /// By level above the node: the domain of each node, an index into `domains`.
    pub(crate) of_node: Vec<Vec<usize>>,
    pub(crate) domains: Vec<Vec<Domain>>,
    /// By level, the bandwidth that joins devices inside its domains without a NIC, of this level or one above; 0 if
    /// there is none.
    pub(crate) inside: Vec<u64>,
    /// By node, the latency and bandwidth of its own cables.
    pub(crate) cables: Vec<(u64, u64)>,
    /// By node: an index into `rings` and `nics`.
    pub(crate) shape: Vec<usize>,
    /// By shape and mask, the bandwidth.
    pub(crate) rings: Vec<Vec<u64>>,
    pub(crate) nics: Vec<Vec<u64>>,
}

/// The limit of a bandwidth, of which 0 means unknown.
fn limit(mb_per_s: u32) -> u64 {
    if mb_per_s == 0 { NO_LIMIT } else { mb_per_s.into() }
}

pub(crate) fn transfer_ns(bytes: u64, mb_per_s: u64) -> u64 {
    if mb_per_s == NO_LIMIT {
        return 0;
    }
    u64::try_from(u128::from(bytes) * 1_000 / u128::from(mb_per_s.max(1))).unwrap_or(u64::MAX)
}

pub(crate) fn pattern_of(gang: &Gang) -> Pattern {
    gang.traffic.map(|traffic| traffic.pattern).unwrap_or_default()
}

/// In an all-reduce over k ranks every byte passes the slowest part 2 (k - 1) / k times.
pub(crate) fn bytes_of(gang: &Gang) -> u64 {
    let bytes = gang.traffic.map_or(BYTES_UNSAID, |traffic| traffic.bytes);
    let size = u128::from(gang.size);
    match pattern_of(gang) {
        Pattern::AllToAll => bytes,
        Pattern::AllReduce => u64::try_from(u128::from(bytes) * 2 * (size - 1) / size).unwrap(),
    }
}

fn best_ring(cost: &ShapeCost, first: u32, last: u32, rest: &mut Vec<u32>, slowest: u32) -> u32 {
    if rest.is_empty() {
        return slowest.min(cost.pair(last, first));
    }
    let mut best = 0;
    for at in 0..rest.len() {
        let next = rest.remove(at);
        best = best.max(best_ring(cost, first, next, rest, slowest.min(cost.pair(last, next))));
        rest.insert(at, next);
    }
    best
}

fn ring_of(cost: &ShapeCost, set: DeviceMask) -> u64 {
    if set.count() < 2 {
        return NO_LIMIT;
    }
    if let Some(known) = cost.sets_mb_per_s.get(set.0 as usize) {
        return (*known).into();
    }
    let mut rest: Vec<u32> = set.iter().collect();
    let first = rest.remove(0);
    best_ring(cost, first, first, &mut rest, u32::MAX).into()
}

fn nics_of(cost: &ShapeCost, set: DeviceMask) -> u64 {
    let slowest = cost.pair_mb_per_s.iter().copied().filter(|pair| *pair > 0).min();
    match cost.nics_of(set) {
        0 => slowest.map_or(NO_LIMIT, u64::from),
        nics => nics.into(),
    }
}

impl Books {
    pub(crate) fn new(cluster: Cluster) -> Self {
        let free = cluster.nodes.iter().map(|node| Free {
            devices: node.machine.device_mask().minus(node.foreign),
            cpu_milli: node.machine.cpu_milli,
            memory_bytes: node.machine.memory_bytes,
            used: BTreeMap::new(),
            shares: 0,
            is_held: false,
        });
        let free = free.collect();
        let (mut of_node, mut domains) = (Vec::new(), Vec::new());
        for (at, name) in cluster.levels.above.iter().enumerate() {
            let mut known = BTreeMap::new();
            let mut of_level = Vec::new();
            let domain = |node: &phalanx_model::Node| {
                let path = &node.path[..=at];
                *known.entry(path.to_vec()).or_insert_with(|| {
                    let cost = cluster.table.uplink(name, path).unwrap_or_default();
                    of_level.push(Domain {
                        latency_ns: cost.latency_ns.into(),
                        uplink: limit(cost.uplink_mb_per_s),
                        loads: Vec::new(),
                    });
                    of_level.len() - 1
                })
            };
            of_node.push(cluster.nodes.iter().map(domain).collect());
            domains.push(of_level);
        }
        let mut joined = 0;
        let inside = cluster.levels.above.iter().map(|name| {
            let own = cluster.table.levels.get(name).map_or(0, |cost| cost.inside_mb_per_s);
            joined = u64::max(joined, own.into());
            joined
        });
        let inside = inside.collect();
        let cables = cluster.nodes.iter().map(|node| {
            let cost = cluster.table.uplink(&cluster.levels.node, &whole_path(node)).unwrap_or_default();
            (cost.latency_ns.into(), limit(cost.uplink_mb_per_s))
        });
        let cables = cables.collect();
        let names: Vec<_> = cluster.table.shapes.keys().collect();
        let shape = cluster.nodes.iter().map(|node| names.binary_search(&&node.machine.shape).unwrap());
        let shape = shape.collect();
        let by_mask = |of: fn(&ShapeCost, DeviceMask) -> u64| {
            let shapes = cluster.table.shapes.values();
            shapes.map(|cost| (0..1 << cost.devices).map(|set| of(cost, DeviceMask(set))).collect()).collect()
        };
        let (rings, nics) = (by_mask(ring_of), by_mask(nics_of));
        Self { cluster, free, of_node, domains, inside, cables, shape, rings, nics }
    }

    /// The bandwidth with which a node with these devices sends out.
    pub(crate) fn beyond(&self, node: usize, devices: DeviceMask) -> u64 {
        let all = self.cluster.nodes[node].machine.device_mask();
        let devices = if devices.is_empty() { all } else { devices };
        self.nics[self.shape[node]][devices.0 as usize].min(self.cables[node].1)
    }

    pub(crate) fn ring(&self, node: usize, devices: DeviceMask) -> u64 {
        self.rings[self.shape[node]][devices.0 as usize]
    }

    /// The share of an uplink that one more gang gets: the rest of the other gangs, and at least its fair share.
    pub(crate) fn left(&self, level: usize, domain: usize) -> u64 {
        let Domain { uplink, loads, .. } = &self.domains[level][domain];
        if *uplink == NO_LIMIT || loads.is_empty() {
            return *uplink;
        }
        let left = uplink.saturating_sub(loads.iter().sum()).max(uplink / (loads.len() as u64 + 1));
        let step = (uplink / SHARE_STEPS).max(1);
        (left / step * step).max(1)
    }

    /// Books the capacity that a gang takes, or releases it.
    pub(crate) fn book(&mut self, gang: &Gang, shares: &[Share], is_taken: bool) {
        for share in shares {
            let free = &mut self.free[share.node as usize];
            let cpu = gang.needs.cpu_milli * u64::from(share.members);
            let memory = gang.needs.memory_bytes * u64::from(share.members);
            if is_taken {
                free.devices = free.devices.minus(share.devices);
                free.cpu_milli -= cpu;
                free.memory_bytes -= memory;
                free.shares += 1;
                free.is_held = gang.needs.is_exclusive;
            } else {
                free.devices = free.devices.union(share.devices);
                free.cpu_milli += cpu;
                free.memory_bytes += memory;
                free.shares -= 1;
                free.is_held = gang.needs.is_exclusive && free.shares > 0;
            }
            for (name, need) in &gang.needs.named {
                let used = free.used.entry(name.clone()).or_default();
                let all = need * u64::from(share.members);
                *used = if is_taken { *used + all } else { *used - all };
            }
        }
        let Some(traffic) = gang.traffic else { return };
        let beyond = |share: &Share| {
            let nics = self.nics[self.shape[share.node as usize]][share.devices.0 as usize];
            nics.min(self.cables[share.node as usize].1)
        };
        let fastest = shares.iter().map(beyond).min().unwrap();
        if fastest == NO_LIMIT {
            return;
        }
        let bytes = bytes_of(gang);
        let step_ns = (transfer_ns(bytes, fastest) + traffic.compute_ns).max(1);
        let demand = u64::try_from(u128::from(bytes) * 1_000 / u128::from(step_ns)).unwrap().min(fastest);
        for level in (0..self.domains.len()).filter(|_| demand > 0) {
            let mut used: Vec<usize> =
                shares.iter().map(|share| self.of_node[level][share.node as usize]).collect();
            used.sort_unstable();
            used.dedup();
            for domain in used.iter().filter(|_| used.len() > 1) {
                let loads = &mut self.domains[level][*domain].loads;
                if is_taken {
                    loads.push(demand);
                } else {
                    let at = loads.iter().position(|load| *load == demand).unwrap();
                    loads.swap_remove(at);
                }
            }
        }
    }

    /// Nanoseconds of one exchange: the crossings, and the bytes over the slowest part. `used` has members and devices
    /// by node, each node once.
    pub(crate) fn time_ns(&self, gang: &Gang, used: &[(usize, u32, DeviceMask)]) -> u64 {
        let is_all_to_all = pattern_of(gang) == Pattern::AllToAll;
        let (bytes, all) = (bytes_of(gang), gang.size);
        let cross = |members: u32, rate: u64| {
            let pairs = u64::from(members) * u64::from(all - members);
            transfer_ns(bytes / u64::from(all) * pairs, rate)
        };
        let mut slowest = used.iter().map(|(node, _, set)| self.ring(*node, *set)).min().unwrap();
        // An exchange of no bytes takes no time, whatever the distance.
        let is_silent = gang.traffic.is_some_and(|_| bytes == 0);
        if used.len() == 1 || is_silent {
            return transfer_ns(bytes, slowest);
        }
        let is_one = |level: &usize| {
            used.iter().all(|(node, ..)| self.of_node[*level][*node] == self.of_node[*level][used[0].0])
        };
        let top = (0..self.domains.len()).rev().find(is_one).unwrap();
        let joined = self.inside[top];
        let mut sum = 0;
        for (node, members, set) in used {
            sum += 2 * self.cables[*node].0;
            let nics = self.beyond(*node, *set);
            match (is_all_to_all, joined) {
                (true, _) => sum += cross(*members, nics),
                (false, 0) => slowest = slowest.min(nics),
                (false, joined) => slowest = slowest.min(joined),
            }
        }
        for level in top + 1..self.domains.len() {
            for (at, (node, ..)) in used.iter().enumerate() {
                let domain = self.of_node[level][*node];
                let is_here = |other: &&(usize, u32, DeviceMask)| self.of_node[level][other.0] == domain;
                if used[..at].iter().any(|other| is_here(&other)) {
                    continue;
                }
                sum += 2 * self.domains[level][domain].latency_ns;
                let left = self.left(level, domain);
                if is_all_to_all {
                    sum += cross(used.iter().filter(is_here).map(|(_, members, _)| *members).sum(), left);
                } else if joined == 0 {
                    slowest = slowest.min(left);
                }
            }
        }
        sum + transfer_ns(bytes, slowest)
    }

    /// Members and devices by node, if the placement keeps every requirement of the gang.
    ///
    /// # Errors
    /// The requirement that the placement does not keep.
    pub(crate) fn judge(
        &self,
        gang: &Gang,
        placement: &Placement,
    ) -> Result<Vec<(usize, u32, DeviceMask)>, String> {
        let mut used: Vec<(usize, u32, DeviceMask)> = Vec::new();
        let mut ranks = Vec::new();
        for (rank, slot) in (0_u32..).zip(&placement.slots) {
            let node = self.cluster.nodes.iter().position(|node| node.name == slot.node);
            let node = node.ok_or("a node that is not there")?;
            let at = used.iter().position(|(of, ..)| *of == node).unwrap_or_else(|| {
                used.push((node, 0, DeviceMask::EMPTY));
                used.len() - 1
            });
            let (_, members, devices) = &mut used[at];
            let is_free = slot.devices.is_subset_of(self.eligible(gang, node).minus(*devices));
            if slot.rank != rank || slot.devices.count() != gang.needs.devices || !is_free {
                return Err(format!("rank {rank} gets {} of {}", slot.devices, slot.node));
            }
            *members += 1;
            *devices = devices.union(slot.devices);
            ranks.push((node, slot.devices));
        }
        if ranks.len() != gang.size as usize {
            return Err(format!("{} of {} members", ranks.len(), gang.size));
        }
        for (node, members, _) in &used {
            if *members > self.room(gang, *node) {
                return Err(format!("{members} members on {}", self.cluster.nodes[*node].name));
            }
        }
        if !self.stands_together(gang.topology.required.as_ref(), &ranks) {
            return Err("outside of the required level".into());
        }
        for segment in &gang.topology.segments {
            let mut parts = ranks.chunks(segment.size as usize);
            if !parts.all(|part| self.stands_together(Some(&segment.level), part)) {
                return Err(format!("segments of {} in one {}", segment.size, segment.level));
            }
        }
        if !self.keeps_rules(gang, &used) {
            return Err("too many in one domain".into());
        }
        self.is_narrowest(placement, &ranks, &used)?;
        Ok(used)
    }

    fn is_narrowest(
        &self,
        placement: &Placement,
        ranks: &[(usize, DeviceMask)],
        used: &[(usize, u32, DeviceMask)],
    ) -> Result<(), String> {
        let above = &self.cluster.levels.above;
        let node = &self.cluster.levels.node;
        if !self.stands_together(Some(&placement.level), ranks) {
            return Err(format!("not inside one {}", placement.level));
        }
        let at = above.iter().position(|level| *level == placement.level);
        let inner = at.and_then(|at| above.get(at + 1)).or(at.map(|_| node));
        let groups = &self.cluster.nodes[used[0].0].machine.groups;
        let has_group = groups.iter().any(|group| used[0].2.is_subset_of(group.devices));
        let is_narrowest = match inner {
            Some(inner) => !self.stands_together(Some(inner), ranks),
            None => placement.level != *node || used[0].2.is_empty() || !has_group,
        };
        if is_narrowest { Ok(()) } else { Err(format!("{} is not the narrowest", placement.level)) }
    }

    /// Whether all ranks are inside one domain of a level; of the outermost level if none is given.
    fn stands_together(
        &self,
        level: Option<&phalanx_model::LevelName>,
        ranks: &[(usize, DeviceMask)],
    ) -> bool {
        let level = level.unwrap_or(&self.cluster.levels.above[0]);
        let first = ranks[0].0;
        if let Some(at) = self.cluster.levels.above.iter().position(|above| above == level) {
            return ranks.iter().all(|(node, _)| self.of_node[at][*node] == self.of_node[at][first]);
        }
        let is_one_node = ranks.iter().all(|(node, _)| *node == first);
        if *level == self.cluster.levels.node {
            return is_one_node;
        }
        let all = ranks.iter().fold(DeviceMask::EMPTY, |all, (_, set)| all.union(*set));
        let groups = self.cluster.nodes[first].machine.groups.iter();
        is_one_node
            && groups.filter(|group| group.level == *level).any(|group| all.is_subset_of(group.devices))
    }

    /// Whether no domain has more members than it may have, or than its shared resource is enough for.
    pub(crate) fn keeps_rules(&self, gang: &Gang, used: &[(usize, u32, DeviceMask)]) -> bool {
        let levels = &self.cluster.levels;
        let inside = |domain: &[DomainName]| -> u64 {
            let there = used.iter().filter(|(node, ..)| self.cluster.nodes[*node].path.starts_with(domain));
            there.map(|(_, members, _)| u64::from(*members)).sum()
        };
        let has_room = |domain: &[DomainName]| {
            let level = &levels.above[domain.len() - 1];
            let mut spread = gang.topology.spread.iter().filter(|rule| rule.level == *level);
            spread.all(|rule| inside(domain) <= rule.max.into())
                && gang.needs.named.iter().all(|(name, need)| {
                    let of_level =
                        levels.limits.iter().filter(|limit| limit.level == *level && limit.resource == *name);
                    let own = of_level.clone().find(|limit| limit.path.as_deref() == Some(domain));
                    let limit = own.or_else(|| of_level.clone().find(|limit| limit.path.is_none()));
                    limit.is_none_or(|limit| {
                        inside(domain) * need + self.used_in(domain, name) <= limit.amount
                    })
                })
        };
        used.iter().all(|(node, ..)| {
            let path = &self.cluster.nodes[*node].path;
            (1..=path.len()).all(|end| has_room(&path[..end]))
        })
    }

    fn used_in(&self, domain: &[DomainName], name: &ResourceName) -> u64 {
        let nodes = self.cluster.nodes.iter().zip(&self.free);
        let inside = nodes.filter(|(node, _)| node.path.starts_with(domain));
        inside.map(|(_, free)| free.used.get(name).copied().unwrap_or(0)).sum()
    }

    /// Whether a gang may use a node at all.
    fn may_use(&self, gang: &Gang, at: usize) -> bool {
        let (node, free, needs) = (&self.cluster.nodes[at], &self.free[at], &gang.needs);
        node.admin == Admin::Open
            && (needs.nodes.is_empty() || needs.nodes.contains(&node.name))
            && !needs.avoid.contains(&node.name)
            && !free.is_held
            && (!needs.is_exclusive || (free.shares == 0 && node.foreign.is_empty()))
    }

    /// Free devices of a node that the gang may use.
    pub(crate) fn eligible(&self, gang: &Gang, node: usize) -> DeviceMask {
        if !self.may_use(gang, node) {
            return DeviceMask::EMPTY;
        }
        let wanted: Vec<String> =
            gang.needs.models.iter().map(|need| need.model.to_ascii_lowercase()).collect();
        let suits = |device: &u32| {
            let model = &self.cluster.nodes[node].machine.devices[*device as usize].model;
            let model = model.to_ascii_lowercase();
            wanted.is_empty() || wanted.iter().any(|wanted| model.contains(wanted))
        };
        self.free[node].devices.iter().filter(suits).collect()
    }

    /// The most members that a node may have by CPUs, memory, named resources, and rules for the node.
    pub(crate) fn room(&self, gang: &Gang, node: usize) -> u32 {
        if !self.may_use(gang, node) {
            return 0;
        }
        let (free, machine) = (&self.free[node], &self.cluster.nodes[node].machine);
        let times = |free: u64, need: u64| free.checked_div(need).unwrap_or(u64::MAX);
        let cpu = times(free.cpu_milli, gang.needs.cpu_milli);
        let memory = times(free.memory_bytes, gang.needs.memory_bytes);
        // A resource that no node counts is limited by domains alone.
        let is_counted =
            |name: &ResourceName| self.cluster.nodes.iter().any(|n| n.machine.named.contains_key(name));
        let named = gang.needs.named.iter().filter(|(name, _)| is_counted(name)).map(|(name, need)| {
            let has = machine.named.get(name).copied().unwrap_or(0);
            times(has - free.used.get(name).copied().unwrap_or(0), *need)
        });
        let is_of_node = |rule: &&Spread| rule.level == self.cluster.levels.node;
        let spread = gang.topology.spread.iter().filter(is_of_node).map(|rule| u64::from(rule.max));
        let most = named.chain(spread).chain([cpu, memory, gang.size.into()]).min();
        most.map_or(0, |most| u32::try_from(most).unwrap())
    }
}
