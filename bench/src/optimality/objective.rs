//! What a placement must keep and what it costs, read from the model's types and written down as naively as it
//! is defined: every placement, whoever found it, is judged here.

use std::collections::BTreeMap;

use phalanx_model::{CostTable, DeviceMask, DomainName, Gang, LevelName, Node, Pattern, Placement};

use super::draw::{Cluster, free};
use super::hardware::{self, NO_LIMIT};

/// Members of one node and the devices of all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    /// Index into [`Cluster::nodes`].
    pub(super) node: usize,
    pub(super) members: u32,
    pub(super) devices: DeviceMask,
}

/// Nanoseconds that a transfer takes; none where nothing limits it.
pub(super) fn transfer_ns(bytes: u64, mb_per_s: u64) -> u64 {
    if mb_per_s == NO_LIMIT {
        return 0;
    }
    u64::try_from(u128::from(bytes) * 1_000 / u128::from(mb_per_s.max(1))).unwrap_or(u64::MAX)
}

/// 0 stands for unknown.
pub(super) const fn limit(mb_per_s: u32) -> u64 {
    if mb_per_s == 0 { NO_LIMIT } else { mb_per_s as u64 }
}

/// What the slowest part carries: of an all-reduce over k ranks every byte goes around 2 (k - 1) / k times.
pub(super) fn bytes_of(gang: &Gang) -> u64 {
    let Some(traffic) = gang.traffic else { return 0 };
    let members = u128::from(gang.size.max(1));
    match traffic.pattern {
        Pattern::AllToAll => traffic.bytes,
        Pattern::AllReduce => {
            u64::try_from(u128::from(traffic.bytes) * 2 * (members - 1) / members).unwrap_or(u64::MAX)
        }
    }
}

pub(super) fn pattern_of(gang: &Gang) -> Pattern {
    gang.traffic.map(|traffic| traffic.pattern).unwrap_or_default()
}

/// The members of each node, when every slot is sound.
///
/// # Errors
/// With what is wrong: a member without its devices, a device that is taken or unknown, a segment whose ranks do
/// not stand together.
pub(super) fn used(cluster: &Cluster, gang: &Gang, placement: &Placement) -> Result<Vec<Used>, String> {
    if placement.slots.len() != gang.size as usize {
        return Err(format!("places {} of {} members", placement.slots.len(), gang.size));
    }
    let mut all: BTreeMap<usize, Used> = BTreeMap::new();
    let mut nodes_by_rank = Vec::new();
    for (rank, slot) in (0..).zip(&placement.slots) {
        let node = cluster.nodes.iter().position(|node| node.name == slot.node);
        let node = node.ok_or_else(|| format!("uses {}, which is not there", slot.node))?;
        let used = all.entry(node).or_insert(Used { node, members: 0, devices: DeviceMask::EMPTY });
        let is_free = slot.devices.is_subset_of(free(&cluster.nodes[node]).minus(used.devices));
        if slot.rank != rank || slot.devices.count() != gang.needs.devices || !is_free {
            return Err(format!("gives rank {rank} devices {} of {}", slot.devices, slot.node));
        }
        used.members += 1;
        used.devices = used.devices.union(slot.devices);
        nodes_by_rank.push(node);
    }
    for segment in &gang.topology.segments {
        if !stands_together(cluster, &nodes_by_rank, segment.size as usize, &segment.level) {
            return Err(format!("tears segments of {} ranks in one {} apart", segment.size, segment.level));
        }
    }
    Ok(all.into_values().collect())
}

/// Whether consecutive ranks share domains: all parts are of full size, except one anywhere.
fn stands_together(cluster: &Cluster, nodes: &[usize], size: usize, level: &LevelName) -> bool {
    let place = |node: &usize| domain_at(cluster, &cluster.nodes[*node], level);
    let is_one = |part: &[usize]| part.windows(2).all(|pair| place(&pair[0]) == place(&pair[1]));
    let rest = nodes.len() % size;
    (0..=nodes.len() / size).any(|parts| {
        let (before, after) = nodes.split_at(parts * size);
        let (short, after) = after.split_at(rest);
        [before, after].into_iter().all(|side| side.chunks(size).all(is_one)) && is_one(short)
    })
}

/// The path of a node's domain on a level.
fn domain_at(cluster: &Cluster, node: &Node, level: &LevelName) -> Vec<DomainName> {
    let mut path = whole_path(node);
    if let Some(depth) = cluster.levels.above.iter().position(|above| above == level) {
        path.truncate(depth + 1);
    }
    path
}

/// Domains from the root to the node itself.
pub(super) fn whole_path(node: &Node) -> Vec<DomainName> {
    let own = DomainName::new(node.name.as_str());
    node.path.iter().cloned().chain(own).collect()
}

/// Members by domain of a level.
fn members_at(cluster: &Cluster, used: &[Used], level: &LevelName) -> BTreeMap<Vec<DomainName>, u32> {
    let mut members = BTreeMap::new();
    for part in used.iter().filter(|part| part.members > 0) {
        *members.entry(domain_at(cluster, &cluster.nodes[part.node], level)).or_insert(0) += part.members;
    }
    members
}

/// # Errors
/// With what the placement does not keep of what the gang insists on.
pub(super) fn check(cluster: &Cluster, gang: &Gang, used: &[Used]) -> Result<(), String> {
    let members: u32 = used.iter().map(|part| part.members).sum();
    if members != gang.size {
        return Err(format!("has {members} of {} members", gang.size));
    }
    for part in used {
        let node = &cluster.nodes[part.node];
        if part.devices.count() != part.members * gang.needs.devices || !part.devices.is_subset_of(free(node))
        {
            return Err(format!("gives {} members devices {} of {}", part.members, part.devices, node.name));
        }
        if gang.members_per_node.is_some_and(|each| part.members != each) {
            return Err(format!("has {} members on {}", part.members, node.name));
        }
    }
    if let Some(level) = &gang.topology.required
        && members_at(cluster, used, level).len() > 1
    {
        return Err(format!("is not inside one {level}"));
    }
    for segment in &gang.topology.segments {
        let rest = gang.size % segment.size;
        let by_domain = members_at(cluster, used, &segment.level);
        let odd: Vec<u32> =
            by_domain.into_values().map(|members| members % segment.size).filter(|odd| *odd > 0).collect();
        if odd.len() > 1 || odd.iter().any(|odd| *odd != rest) {
            return Err(format!("tears segments of {} in one {} apart", segment.size, segment.level));
        }
    }
    Ok(())
}

/// Nanoseconds of one exchange of the gang: latency and, in an all-to-all, bytes of every domain that is crossed,
/// and bytes over the slowest part.
pub(super) fn time_ns(cluster: &Cluster, gang: &Gang, used: &[Used]) -> u64 {
    let (pattern, bytes) = (pattern_of(gang), bytes_of(gang));
    let all = gang.size;
    let per_pair = bytes / u64::from(all.max(1));
    let mut sum = 0;
    let mut slowest = NO_LIMIT;
    let mut cross = |members: u32, latency_ns: u64, cap: u64| {
        if members == 0 || members == all {
            return;
        }
        sum += 2 * latency_ns;
        match pattern {
            Pattern::AllReduce => slowest = slowest.min(cap),
            Pattern::AllToAll => {
                let pairs = u64::from(members) * u64::from(all - members);
                sum += transfer_ns(per_pair * pairs, cap);
            }
        }
    };
    for level in cluster.levels.above.iter().skip(1) {
        for (path, members) in members_at(cluster, used, level) {
            let (latency_ns, uplink) = uplink(&cluster.table, level, &path);
            cross(members, latency_ns, uplink);
        }
    }
    for part in used {
        let node = &cluster.nodes[part.node];
        let (latency_ns, uplink) = uplink(&cluster.table, &cluster.levels.node, &whole_path(node));
        let nics = cluster
            .table
            .shapes
            .get(&node.machine.shape)
            .map_or(NO_LIMIT, |s| hardware::nics_of(s, part.devices));
        cross(part.members, latency_ns, uplink.min(nics));
    }
    for part in used {
        let shape = cluster.table.shapes.get(&cluster.nodes[part.node].machine.shape);
        slowest = slowest.min(shape.map_or(NO_LIMIT, |shape| hardware::inside_of(shape, part.devices)));
    }
    sum + transfer_ns(bytes, slowest)
}

/// Latency in ns and bandwidth of the way out of a domain.
pub(super) fn uplink(table: &CostTable, level: &LevelName, path: &[DomainName]) -> (u64, u64) {
    let cost = table.uplink(level, path).unwrap_or_default();
    (u64::from(cost.latency_ns), limit(cost.uplink_mb_per_s))
}
