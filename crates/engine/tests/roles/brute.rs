//! Small clusters, gangs with roles, and every way to place a gang in a cluster: written as naively as it is defined.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_engine::Placer;
use phalanx_model::{
    Admin, CostTable, Device, DeviceMask, DomainLimit, DomainName, Gang, LevelCost, LevelName, Levels,
    Machine, Needs, Node, NodeName, Origin, Pattern, Placement, Program, ResourceName, Role, RoleName,
    Segment, ShapeCost, ShapeName, Slot, Spread, Topology, Traffic,
};

/// `SplitMix64` (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[(self.bits() % items.len() as u64) as usize].clone()
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.bits() % 100 < percent
    }
}

pub(crate) struct Cluster {
    pub(crate) levels: Levels,
    /// The nodes in the order of the tree.
    pub(crate) nodes: Vec<Node>,
    pub(crate) costs: CostTable,
}

fn level(name: &str) -> LevelName {
    LevelName::new(name).unwrap()
}

fn power() -> ResourceName {
    ResourceName::new("power").unwrap()
}

/// One to five nodes of up to four devices in one or two leaves.
pub(crate) fn cluster(rng: &mut Rng) -> Cluster {
    let mut levels = Levels::new(vec![level("cluster"), level("leaf")], level("node"));
    if rng.chance(20) {
        let (level, amount) = (level("leaf"), rng.pick(&[2, 4, 6]));
        levels.limits.push(DomainLimit { level, path: None, resource: power(), amount });
    }
    let mut costs = CostTable::default();
    let latency_ns = rng.pick(&[0, 2_000]);
    costs.levels.insert(level("leaf"), LevelCost { latency_ns, ..LevelCost::default() });
    let leaves = rng.pick(&[1, 2, 2]);
    let mut nodes = Vec::new();
    for number in 0..rng.pick(&[1, 2, 3, 4, 4, 5]) {
        let mut machine = Machine::bare(Origin::Declared);
        let kind = rng.pick(&["H100", "A100", "mixed", "mixed", "none"]);
        let devices = if kind == "none" { 0 } else { rng.pick(&[2, 3, 4, 4]) };
        let rate: u32 = rng.pick(&[10_000, 20_000, 25_000, 50_000]);
        machine.devices = (0..devices)
            .map(|at| Device {
                model: if kind == "mixed" { ["H100", "A100"][at % 2] } else { kind }.to_owned(),
                ..Device::default()
            })
            .collect();
        machine.shape = ShapeName::new(format!("{kind}-{devices}-{rate}")).unwrap();
        machine.cpu_milli = rng.pick(&[2_000, 4_000, 8_000]);
        machine.memory_bytes = rng.pick(&[3, 6, 64]);
        machine.named = if levels.limits.is_empty() && rng.chance(50) {
            [(power(), rng.pick(&[2, 4]))].into()
        } else {
            BTreeMap::new()
        };
        let count = devices as u32;
        let pairs = (0..count * count).map(|at| if at / count == at % count { 0 } else { 100_000 }).collect();
        costs.shapes.insert(
            machine.shape.clone(),
            ShapeCost { devices: count, pair_mb_per_s: pairs, nic_mb_per_s: rate, ..ShapeCost::default() },
        );
        let foreign = (0..count).filter(|_| rng.chance(10)).collect();
        nodes.push(Node {
            address: String::new(),
            admin: if rng.chance(5) { Admin::Cordoned } else { Admin::Open },
            foreign,
            ..Node::new(
                NodeName::new(format!("n{number}")).unwrap(),
                vec![
                    DomainName::new("all").unwrap(),
                    DomainName::new(format!("leaf{}", rng.pick(&[1, 2]).min(leaves))).unwrap(),
                ],
                Arc::new(machine),
            )
        });
    }
    nodes.sort_by(|a, b| (&a.path, &a.name).cmp(&(&b.path, &b.name)));
    Cluster { levels, nodes, costs }
}

fn needs(rng: &mut Rng, cluster: &Cluster) -> Needs {
    let devices = rng.pick(&[0, 0, 1, 1, 2]);
    let models = rng.pick(&["", "", "", "H100", "A100"]);
    let mut needs = Needs {
        devices,
        models: if devices == 0 || models.is_empty() { Vec::new() } else { Needs::of_model(models) },
        cpu_milli: rng.pick(&[0, 0, 0, 1_000, 2_000, 3_000]),
        memory_bytes: rng.pick(&[0, 0, 1, 2]),
        ..Needs::default()
    };
    if rng.chance(15) {
        needs.named = [(power(), rng.pick(&[1, 2]))].into();
    }
    if rng.chance(8) {
        needs.avoid = vec![rng.pick(&cluster.nodes).name];
    }
    needs
}

pub(crate) fn gang(rng: &mut Rng, cluster: &Cluster, roles: usize) -> Gang {
    let mut size = rng.pick(&[1, 2, 2, 3, 3, 4, 5]);
    let members_per_node = rng.chance(12).then(|| rng.pick(&[1, 2]));
    size = members_per_node.map_or(size, |each| (size / each).max(1) * each);
    let required = rng.pick(&[None, None, None, Some("leaf"), Some("leaf"), Some("node")]).map(level);
    let mut topology = Topology { required, ..Topology::default() };
    if members_per_node.is_none() && rng.chance(25) {
        let (size, name) = (rng.pick(&[2, 2, 3]), rng.pick(&["leaf", "node"]));
        topology.segments.push(Segment { size, level: level(name) });
    }
    if rng.chance(15) {
        topology.spread.push(Spread { level: level(rng.pick(&["leaf", "node"])), max: rng.pick(&[2, 3]) });
    }
    let role = |rng: &mut Rng, at: usize| Role {
        name: RoleName::new(format!("role{at}")).unwrap(),
        size: rng.pick(&[1, 1, 2, 3]),
        needs: needs(rng, cluster),
        segments: Vec::new(),
        program: None,
    };
    let mut needs = needs(rng, cluster);
    needs.is_exclusive = rng.chance(8);
    Gang {
        size,
        min: size,
        max: size,
        needs,
        roles: (0..roles).map(|at| role(rng, at)).collect(),
        members_per_node,
        topology,
        traffic: rng.chance(50).then_some(Traffic {
            pattern: Pattern::AllReduce,
            bytes: 1 << 20,
            compute_ns: 0,
        }),
        grid: Vec::new(),
        program: Program::default(),
    }
}

/// Gives roles segments, and as many members as the segments take.
pub(crate) fn in_parts(rng: &mut Rng, gang: &mut Gang) {
    for role in &mut gang.roles {
        let part = |size, name: &str| Segment { size, level: level(name) };
        (role.size, role.segments) = rng.pick(&[
            (role.size, vec![]),
            (2, vec![part(2, "leaf")]),
            (3, vec![part(3, "leaf")]),
            (2, vec![part(2, "node")]),
            (4, vec![part(2, "leaf")]),
            (4, vec![part(2, "node")]),
            (4, vec![part(4, "leaf"), part(2, "node")]),
        ]);
    }
}

impl Cluster {
    pub(crate) fn domain(&self, node: usize, level: &LevelName) -> Vec<String> {
        let mut path: Vec<String> = self.nodes[node].path.iter().map(ToString::to_string).collect();
        match self.levels.above.iter().position(|above| above == level) {
            Some(depth) => path.truncate(depth + 1),
            None => path.push(self.nodes[node].name.to_string()),
        }
        path
    }

    /// The devices that no others hold and that suit the model.
    fn eligible(&self, node: usize, needs: &Needs) -> DeviceMask {
        let suits = |device: &Device| {
            needs.models.is_empty() || needs.models.iter().any(|need| device.model.contains(&need.model))
        };
        let node = &self.nodes[node];
        let devices = (0..).zip(&node.machine.devices).filter(|(_, device)| suits(device));
        devices.map(|(at, _)| at).filter(|at| !node.foreign.contains(*at)).collect()
    }

    /// Whether these numbers of members fit on a node: some deal of its devices gives every member enough.
    fn holds(&self, gang: &Gang, node: usize, members: &[u32]) -> bool {
        let place = &self.nodes[node];
        let needs = |party: usize| gang.needs_of(party.checked_sub(1));
        let there: Vec<usize> = (0..members.len()).filter(|party| members[*party] > 0).collect();
        let sum = |of: &dyn Fn(&Needs) -> u64| -> u64 {
            there.iter().map(|party| of(needs(*party)) * u64::from(members[*party])).sum()
        };
        let named = place.machine.named.get(&power());
        // Resources that domains limit are never short on nodes; of other resources each node has its own amount.
        let has_power = named.copied().unwrap_or(if self.levels.limits.is_empty() { 0 } else { u64::MAX });
        if place.admin != Admin::Open && !there.is_empty()
            || sum(&|needs| needs.cpu_milli) > place.machine.cpu_milli
            || sum(&|needs| needs.memory_bytes) > place.machine.memory_bytes
            || sum(&|needs| needs.named.get(&power()).copied().unwrap_or(0)) > has_power
            || there.iter().any(|party| needs(*party).avoid.contains(&place.name))
            || gang.needs.is_exclusive && !place.foreign.is_empty() && !there.is_empty()
        {
            return false;
        }
        let wanted: Vec<(DeviceMask, u32)> = there
            .iter()
            .map(|party| (self.eligible(node, needs(*party)), needs(*party).devices * members[*party]))
            .collect();
        deals(DeviceMask::EMPTY, &wanted)
    }
}

/// Whether each member gets as many devices of its own as it wants.
fn deals(taken: DeviceMask, wanted: &[(DeviceMask, u32)]) -> bool {
    let Some(((mask, count), rest)) = wanted.split_first() else { return true };
    let free = mask.minus(taken);
    let mut set = free.0;
    loop {
        let devices = DeviceMask(set);
        if devices.count() == *count && deals(taken.union(devices), rest) {
            return true;
        }
        if set == 0 {
            return false;
        }
        set = (set - 1) & free.0;
    }
}

/// Whether the engine finds a placement for the gang; the placement must meet the request.
pub(crate) fn is_placed(cluster: &Cluster, placer: &mut Placer, gang: &Gang, seed: u64) -> bool {
    let is_placed = placer.place(gang).is_some();
    if is_placed {
        let placement = placer.placement(gang).unwrap();
        judge(cluster, gang, &placement).unwrap_or_else(|why| panic!("{seed}: {why}; {gang:?}"));
    }
    is_placed
}

/// Checks that the engine finds a placement, which meets the request, exactly if there is one; returns whether there
/// is.
pub(crate) fn agrees(cluster: &Cluster, placer: &mut Placer, gang: &Gang, seed: u64) -> bool {
    let is_placed = is_placed(cluster, placer, gang, seed);
    let expected = is_possible(cluster, gang);
    assert_eq!(is_placed, expected, "{seed}: {gang:?}\n{:?}", cluster.nodes);
    expected
}

/// Checks that the counts behind a reason say that the gang fits exactly if it does.
pub(crate) fn counts_agree(cluster: &Cluster, gang: &Gang, seed: u64) {
    let mut placer = Placer::new(&cluster.levels, cluster.nodes.clone(), &cluster.costs);
    let fits = placer.most_that_fits(gang, 0);
    assert_eq!(fits >= gang.size, placer.place(gang).is_some(), "{seed}: {fits} of {gang:?}");
}

/// Whether there is a placement for the whole gang.
pub(crate) fn is_possible(cluster: &Cluster, gang: &Gang) -> bool {
    let mut left = vec![gang.size];
    left.extend(gang.roles.iter().map(|role| role.size));
    // The most that each party could have from one node on, if no other party were there.
    let mut after = vec![vec![0; left.len()]];
    for node in (0..cluster.nodes.len()).rev() {
        let most = |party: usize| {
            let alone =
                |n: u32| (0..left.len()).map(|of| if of == party { n } else { 0 }).collect::<Vec<_>>();
            (0..=left[party]).rev().find(|n| cluster.holds(gang, node, &alone(*n))).unwrap_or(0)
        };
        after.push((0..left.len()).map(|party| after[after.len() - 1][party] + most(party)).collect());
    }
    after.reverse();
    from(cluster, gang, &after, &mut left, &mut Vec::new())
}

fn from(
    cluster: &Cluster,
    gang: &Gang,
    after: &[Vec<u32>],
    left: &mut Vec<u32>,
    used: &mut Vec<Vec<u32>>,
) -> bool {
    let node = used.len();
    if node == cluster.nodes.len() {
        return left.iter().all(|left| *left == 0) && is_allowed(cluster, gang, used);
    }
    if left.iter().zip(&after[node]).any(|(left, most)| left > most) {
        return false;
    }
    let mut members = vec![0; left.len()];
    loop {
        if cluster.holds(gang, node, &members) {
            left.iter_mut().zip(&members).for_each(|(left, n)| *left -= n);
            used.push(members.clone());
            let found = from(cluster, gang, after, left, used);
            used.pop();
            left.iter_mut().zip(&members).for_each(|(left, n)| *left += n);
            if found {
                return true;
            }
        }
        let Some(next) = (0..members.len()).find(|at| members[*at] < left[*at]) else { return false };
        members[..next].fill(0);
        members[next] += 1;
    }
}

/// Members by party in each domain of a level.
fn by_domain(cluster: &Cluster, used: &[Vec<u32>], level: &LevelName) -> BTreeMap<Vec<String>, Vec<u32>> {
    let mut domains: BTreeMap<Vec<String>, Vec<u32>> = BTreeMap::new();
    for (node, members) in used.iter().enumerate().filter(|(_, members)| members.iter().any(|n| *n > 0)) {
        let sums = domains.entry(cluster.domain(node, level)).or_insert_with(|| vec![0; members.len()]);
        sums.iter_mut().zip(members).for_each(|(sum, n)| *sum += n);
    }
    domains
}

fn is_allowed(cluster: &Cluster, gang: &Gang, used: &[Vec<u32>]) -> bool {
    let required = gang.topology.required.iter().chain(&cluster.levels.above[..1]);
    let is_together = |level: &LevelName| by_domain(cluster, used, level).len() == 1;
    let is_spread = |rule: &Spread| {
        by_domain(cluster, used, &rule.level).values().all(|members| members.iter().sum::<u32>() <= rule.max)
    };
    let is_in_parts = |party: usize, part: &Segment| {
        let rest = if party == 0 { gang.size % part.size } else { 0 };
        let of_domains = by_domain(cluster, used, &part.level);
        let odd = of_domains.values().map(|n| n[party] % part.size).filter(|left| *left > 0);
        let odd: Vec<u32> = odd.collect();
        odd.is_empty() || odd == [rest]
    };
    let is_on_one_node = |set: &Vec<u32>| {
        let has_some = |members: &&Vec<u32>| set.iter().any(|party| members[*party as usize] > 0);
        used.iter().filter(has_some).count() <= 1
    };
    let are_in_parts = |party: usize| {
        let parts = gang.segments_of(party.checked_sub(1));
        parts.iter().all(|part| is_in_parts(party, part))
    };
    let is_equal = |each: u32| used.iter().all(|members| [0, each].contains(&members[0]));
    let is_powered = |limit: &DomainLimit| {
        by_domain(cluster, used, &limit.level).values().all(|members| {
            let need =
                |party: usize| gang.needs_of(party.checked_sub(1)).named.get(&power()).copied().unwrap_or(0);
            (0..).zip(members).map(|(party, n)| need(party) * u64::from(*n)).sum::<u64>() <= limit.amount
        })
    };
    required.into_iter().all(is_together)
        && gang.topology.spread.iter().all(is_spread)
        && (0..=gang.roles.len()).all(are_in_parts)
        && gang.topology.together.iter().all(is_on_one_node)
        && gang.members_per_node.is_none_or(is_equal)
        && cluster.levels.limits.iter().all(is_powered)
}

/// Whether a placement meets the request.
pub(crate) fn judge(cluster: &Cluster, gang: &Gang, placement: &Placement) -> Result<Vec<Vec<u32>>, String> {
    if placement.slots.len() != gang.member_count() as usize {
        return Err(format!("{} of {} members", placement.slots.len(), gang.member_count()));
    }
    let mut used = vec![vec![0; gang.roles.len() + 1]; cluster.nodes.len()];
    let mut taken: BTreeMap<&NodeName, DeviceMask> = BTreeMap::new();
    for (rank, slot) in (0..).zip(&placement.slots) {
        let role = gang.role_of(rank);
        let node = cluster.nodes.iter().position(|node| node.name == slot.node).ok_or("no such node")?;
        let mine = taken.entry(&slot.node).or_default();
        let suits = slot.devices.is_subset_of(cluster.eligible(node, gang.needs_of(role)));
        if slot.rank != rank || !suits || slot.devices.count() != gang.needs_of(role).devices {
            return Err(format!("rank {rank}: {slot:?}"));
        }
        if !mine.and(slot.devices).is_empty() {
            return Err(format!("rank {rank} shares a device: {slot:?}"));
        }
        *mine = mine.union(slot.devices);
        used[node][role.map_or(0, |role| role + 1)] += 1;
    }
    if let Some(node) = (0..used.len()).find(|node| !cluster.holds(gang, *node, &used[*node])) {
        return Err(format!("too much on {}: {:?}", cluster.nodes[node].name, used[node]));
    }
    if !is_allowed(cluster, gang, &used) {
        return Err(format!("against a rule: {used:?}"));
    }
    let of = |slot: &Slot, part: &Segment| {
        let node = cluster.nodes.iter().position(|node| node.name == slot.node).unwrap_or(0);
        cluster.domain(node, &part.level)
    };
    for role in std::iter::once(None).chain((0..gang.roles.len()).map(Some)) {
        let slots = placement.slots.iter().filter(|slot| gang.role_of(slot.rank) == role);
        let slots: Vec<&Slot> = slots.collect();
        for part in gang.segments_of(role) {
            let is_apart = |ranks: &[&Slot]| ranks.iter().any(|slot| of(slot, part) != of(ranks[0], part));
            if slots.chunks(part.size as usize).any(is_apart) {
                return Err(format!("a segment of {role:?} is apart: {part:?}"));
            }
        }
    }
    Ok(used)
}

/// The least share of the NICs of their nodes that servers get, and the number of levels between them and the gang in
/// all.
pub(crate) fn worth(cluster: &Cluster, used: &[Vec<u32>]) -> (u32, std::cmp::Reverse<u32>) {
    let (mut slowest, mut apart) = (u32::MAX, 0);
    for (node, members) in used.iter().enumerate().filter(|(_, members)| members[1] > 0) {
        let nics = cluster.costs.shapes[&cluster.nodes[node].machine.shape].nic_mb_per_s;
        slowest = slowest.min(nics / (members[1] + u32::from(members[0] > 0)));
        let has_own = |level: &LevelName| {
            (0..used.len()).any(|other| {
                used[other][0] > 0 && cluster.domain(other, level) == cluster.domain(node, level)
            })
        };
        let levels = cluster.levels.above[1..].iter().chain([&cluster.levels.node]);
        apart += members[1] * u32::try_from(levels.filter(|level| !has_own(level)).count()).unwrap();
    }
    (slowest, std::cmp::Reverse(apart))
}

/// The best worth of all placements of the one role, if the gang's own members stay.
pub(crate) fn best_worth(cluster: &Cluster, gang: &Gang, used: &[Vec<u32>]) -> (u32, std::cmp::Reverse<u32>) {
    let mut best = (0, std::cmp::Reverse(u32::MAX));
    let mut tried: Vec<Vec<u32>> = used.iter().map(|members| vec![members[0], 0]).collect();
    every(cluster, gang, 0, gang.roles[0].size, &mut tried, &mut best);
    best
}

fn every(
    cluster: &Cluster,
    gang: &Gang,
    node: usize,
    left: u32,
    used: &mut Vec<Vec<u32>>,
    best: &mut (u32, std::cmp::Reverse<u32>),
) {
    if node == used.len() {
        if left == 0 && is_allowed(cluster, gang, used) {
            *best = (*best).max(worth(cluster, used));
        }
        return;
    }
    for servers in 0..=left {
        used[node][1] = servers;
        if cluster.holds(gang, node, &used[node].clone()) {
            every(cluster, gang, node + 1, left - servers, used, best);
        }
    }
    used[node][1] = 0;
}
