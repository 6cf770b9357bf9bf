//! Every placement of the members of a gang on some nodes.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{DeviceMask, Gang, Needs, Node, ResourceName, Segment};

use super::{Amounts, Cluster, parts};

/// Some nodes, each with the usable devices and the members placed on it so far.
pub(super) struct Stands<'a> {
    nodes: Vec<(&'a Node, &'a Amounts)>,
    gang: &'a Gang,
    spots: Vec<Spot>,
    /// Members of each role by node.
    roles: Vec<Vec<u32>>,
    rules: Vec<Rule>,
}

/// A spot for members of the gang itself: a node, and there one group of each level inside the node that a segment
/// names. Groups of one level are disjoint, so spots share no device; they share CPUs and memory.
#[derive(Clone)]
struct Spot {
    node: usize,
    /// For each segment, its domain here.
    domains: Vec<Vec<String>>,
    devices: DeviceMask,
    members: u32,
}

/// A limit of the members on some nodes, with the need of each role; the gang itself comes first.
struct Rule {
    nodes: Vec<usize>,
    needs: Vec<u128>,
    left: i128,
}

impl<'a> Stands<'a> {
    pub(super) fn new(cluster: Cluster<'a>, inside: &[(&'a Node, DeviceMask)], gang: &'a Gang) -> Self {
        let known = inside
            .iter()
            .filter_map(|(node, devices)| Some(((*node, cluster.free.get(&node.name)?), *devices)));
        let (nodes, devices): (Vec<_>, Vec<_>) = known.unzip();
        let spots = (0..).zip(&nodes).zip(&devices);
        let spots = spots.flat_map(|((at, (node, _)), devices)| spots_of(cluster, gang, at, node, *devices));
        let spots = spots.collect();
        let roles = vec![vec![0; nodes.len()]; gang.roles.len()];
        let mut rules = spread(cluster, &nodes, gang);
        rules.extend(named(cluster, &nodes, gang));
        Self { nodes, gang, spots, roles, rules }
    }

    pub(super) fn exist(mut self) -> bool {
        if self.gang.topology.segments.is_empty() {
            self.count_from(0, self.gang.size)
        } else {
            self.rank_from(None, 0)
        }
    }

    /// Tries every number of members on a spot, then the rest on the others.
    fn count_from(&mut self, at: usize, left: u32) -> bool {
        if at == self.spots.len() {
            return left == 0 && self.role_from(0, 0, None);
        }
        let exactly = self.gang.members_per_node;
        let counts = (0..=left).filter(|n| *n == 0 || exactly.is_none_or(|exactly| *n == exactly));
        for members in counts {
            self.spots[at].members = members;
            let has_room = self.has_room(self.spots[at].node) && self.keeps_rules();
            let fits = has_room && self.count_from(at + 1, left - members);
            self.spots[at].members = 0;
            if fits || !has_room {
                return fits;
            }
        }
        false
    }

    /// Tries every spot for the next rank, then for the others.
    fn rank_from(&mut self, before: Option<usize>, rank: u32) -> bool {
        if rank == self.gang.size {
            let exactly = self.gang.members_per_node;
            let mut members = (0..self.nodes.len()).map(|node| self.members_on(node));
            let is_even = members.all(|n| n == 0 || exactly.is_none_or(|exactly| n == exactly));
            return is_even && self.role_from(0, 0, None);
        }
        (0..self.spots.len()).any(|at| {
            // On the spot of the rank before it, unless a segment begins here.
            let is_together = before.is_none_or(|before| {
                (0..).zip(&self.gang.topology.segments).all(|(i, segment): (usize, _)| {
                    rank.is_multiple_of(segment.size)
                        || self.spots[at].domains[i] == self.spots[before].domains[i]
                })
            });
            if !is_together {
                return false;
            }
            self.spots[at].members += 1;
            let has_room = self.has_room(self.spots[at].node) && self.keeps_rules();
            let fits = has_room && self.rank_from(Some(at), rank + 1);
            self.spots[at].members -= 1;
            fits
        })
    }

    /// Tries every number of members of a role on every node, role by role.
    fn role_from(&mut self, role: usize, node: usize, left: Option<u32>) -> bool {
        let Some(size) = self.gang.roles.get(role).map(|role| role.size) else { return true };
        let left = left.unwrap_or(size);
        if left == 0 {
            return self.role_from(role + 1, 0, None);
        }
        if node == self.nodes.len() {
            return false;
        }
        (0..=left).any(|members| {
            self.roles[role][node] = members;
            let has_room = self.has_room(node) && self.keeps_rules();
            let fits = has_room && self.role_from(role, node + 1, Some(left - members));
            self.roles[role][node] = 0;
            fits
        })
    }

    /// The members of the gang itself.
    fn members_on(&self, node: usize) -> u32 {
        self.spots.iter().filter(|spot| spot.node == node).map(|spot| spot.members).sum()
    }

    /// For each role its needs, its members on the node, and its usable devices: the gang itself by spots.
    fn there(&self, node: usize) -> Vec<(&'a Needs, u32, DeviceMask)> {
        let spots = self.spots.iter().filter(|spot| spot.node == node);
        let inside = spots.clone().fold(DeviceMask::EMPTY, |all, spot| all.union(spot.devices));
        let main = spots.map(|spot| (&self.gang.needs, spot.members, spot.devices));
        let roles = self.gang.roles.iter().zip(&self.roles);
        let roles = roles.map(|(role, members)| (&role.needs, members[node], inside));
        main.chain(roles).filter(|(_, members, _)| *members > 0).collect()
    }

    fn has_room(&self, at: usize) -> bool {
        let (node, amounts) = self.nodes[at];
        let there = self.there(at);
        let may = |needs: &Needs| {
            (needs.nodes.is_empty() || needs.nodes.contains(&node.name))
                && !needs.avoid.contains(&node.name)
                && needs.within.as_ref().is_none_or(|set| node.sets.contains(set))
                && !amounts.is_held
                && (!self.gang.needs.is_exclusive || (amounts.gangs == 0 && node.barred_devices().is_empty()))
        };
        let sum = |of: &dyn Fn(&Needs) -> u64| -> i128 {
            there.iter().map(|(needs, members, _)| i128::from(*members) * i128::from(of(needs))).sum()
        };
        let enough = |free: i128, need: i128| need == 0 || need <= free;
        there.iter().all(|(needs, ..)| may(needs))
            && enough(amounts.cpu_milli, sum(&|needs| needs.cpu_milli))
            && enough(amounts.memory_bytes, sum(&|needs| needs.memory_bytes))
            && have_devices(node, amounts, &there)
            && there.iter().all(|(needs, members, devices)| {
                needs.part.as_ref().is_none_or(|part| {
                    let devices = suiting(node, needs, *devices);
                    u64::from(*members) <= parts::room(node, amounts, devices, part)
                })
            })
    }

    fn keeps_rules(&self) -> bool {
        self.rules.iter().all(|rule| {
            let used = |node: &usize| {
                let roles = self.roles.iter().map(|members| members[*node]);
                let all = std::iter::once(self.members_on(*node)).chain(roles);
                all.zip(&rule.needs).map(|(members, need)| u128::from(members) * need).sum::<u128>()
            };
            let used: u128 = rule.nodes.iter().map(used).sum();
            used == 0 || i128::try_from(used).is_ok_and(|used| used <= rule.left)
        })
    }
}

/// Hall's theorem: all members get whole devices exactly if any subset of them has enough suitable devices together.
fn have_devices(node: &Node, amounts: &Amounts, there: &[(&Needs, u32, DeviceMask)]) -> bool {
    (1_u32..1 << there.len()).all(|some| {
        let of = (0..).zip(there).filter(|(at, _)| some >> at & 1 == 1).map(|(_, of)| of);
        let (mut suiting_any, mut wanted) = (DeviceMask::EMPTY, 0_u64);
        for (needs, members, devices) in of {
            if needs.devices > 0 {
                let free = devices.and(amounts.devices);
                suiting_any = suiting_any.union(suiting(node, needs, free));
                wanted += u64::from(*members) * u64::from(needs.devices);
            }
        }
        wanted <= u64::from(suiting_any.count())
    })
}

/// The usable devices with an accepted model.
fn suiting(node: &Node, needs: &Needs, devices: DeviceMask) -> DeviceMask {
    let suits = |device: &u32| {
        let model = node.machine.devices.get(*device as usize).map_or("", |device| device.model.as_str());
        let model = model.to_lowercase();
        needs.models.is_empty() || needs.models.iter().any(|m| model.contains(&m.model.to_lowercase()))
    };
    // A node that divides its devices offers no whole ones.
    let is_divided = needs.devices > 0 && node.machine.replicas > 0;
    let devices = if is_divided { DeviceMask::EMPTY } else { devices };
    devices.minus(node.kept.away_from(needs)).iter().filter(suits).collect()
}

fn spots_of(cluster: Cluster<'_>, gang: &Gang, at: usize, node: &Node, devices: DeviceMask) -> Vec<Spot> {
    let whole = Spot { node: at, domains: Vec::new(), devices, members: 0 };
    gang.topology.segments.iter().fold(vec![whole], |spots, Segment { level, .. }| {
        let mut path: Vec<String> = node.path.iter().map(ToString::to_string).collect();
        let depth = cluster.levels.above.iter().position(|l| l == level);
        path.truncate(depth.map_or(path.len(), |depth| depth + 1));
        let groups: Vec<(Vec<String>, DeviceMask)> = if depth.is_some() {
            vec![(path, devices)]
        } else if *level == cluster.levels.node {
            path.push(node.name.to_string());
            vec![(path, devices)]
        } else {
            path.push(node.name.to_string());
            let groups = node.machine.groups.iter().filter(|group| group.level == *level);
            groups.map(|group| ([&path[..], &[group.devices.to_string()]].concat(), group.devices)).collect()
        };
        let inside = |spot: &Spot, (domain, devices): &(Vec<String>, DeviceMask)| Spot {
            domains: [&spot.domains[..], std::slice::from_ref(domain)].concat(),
            devices: spot.devices.and(*devices),
            ..*spot
        };
        let inside = &inside;
        spots.iter().flat_map(|spot| groups.iter().map(move |group| inside(spot, group))).collect()
    })
}

/// Domains of a level above the node, or the nodes: indices into `nodes` by path.
fn domains(nodes: &[(&Node, &Amounts)], depth: Option<usize>) -> BTreeMap<Vec<String>, Vec<usize>> {
    let mut all: BTreeMap<Vec<String>, Vec<usize>> = BTreeMap::new();
    for (at, (node, _)) in nodes.iter().enumerate() {
        let mut path: Vec<String> = node.path.iter().map(ToString::to_string).collect();
        match depth {
            Some(depth) => path.truncate(depth + 1),
            None => path.push(node.name.to_string()),
        }
        all.entry(path).or_default().push(at);
    }
    all
}

/// The maximum number of members of the gang in one domain, over all roles.
fn spread(cluster: Cluster<'_>, nodes: &[(&Node, &Amounts)], gang: &Gang) -> Vec<Rule> {
    let of_rule = |rule: &phalanx_model::Spread| {
        let depth = cluster.levels.above.iter().position(|level| *level == rule.level);
        let left = i128::from(rule.max);
        let needs = vec![1; gang.roles.len() + 1];
        let domains = domains(nodes, depth).into_values();
        domains.map(move |nodes| Rule { nodes, needs: needs.clone(), left }).collect::<Vec<_>>()
    };
    gang.topology.spread.iter().flat_map(of_rule).collect()
}

/// Named resources of nodes and of domains.
fn named(cluster: Cluster<'_>, nodes: &[(&Node, &Amounts)], gang: &Gang) -> Vec<Rule> {
    let all_needs = || std::iter::once(&gang.needs).chain(gang.roles.iter().map(|role| &role.needs));
    let names: BTreeSet<&ResourceName> = all_needs().flat_map(|needs| needs.named.keys()).collect();
    let mut rules = Vec::new();
    for name in names {
        let needs: Vec<u128> =
            all_needs().map(|needs| needs.named.get(name).map_or(0, |need| u128::from(*need))).collect();
        let limits: Vec<_> = cluster.levels.limits.iter().filter(|limit| limit.resource == *name).collect();
        let used_of = |node: &Node| {
            let amounts = cluster.free.get(&node.name);
            amounts
                .and_then(|amounts| amounts.used.get(name))
                .map_or(0, |used| i128::try_from(*used).unwrap())
        };
        // A resource that no node counts is limited by domains only.
        if limits.is_empty() || cluster.nodes.iter().any(|node| node.machine.named.contains_key(name)) {
            for (at, (node, _)) in nodes.iter().enumerate() {
                let has = node.machine.named.get(name).map_or(0, |has| i128::from(*has));
                rules.push(Rule { nodes: vec![at], needs: needs.clone(), left: has - used_of(node) });
            }
        }
        for depth in 0..cluster.levels.above.len() {
            for inside in domains(nodes, Some(depth)).into_values() {
                let path = &nodes[inside[0]].0.path[..=depth];
                let of_level = limits.iter().filter(|limit| limit.level == cluster.levels.above[depth]);
                let own = of_level.clone().find(|limit| limit.path.as_deref() == Some(path));
                let Some(limit) = own.or_else(|| of_level.clone().find(|limit| limit.path.is_none())) else {
                    continue;
                };
                let others = cluster.nodes.iter().filter(|node| node.path.starts_with(path));
                let left = i128::from(limit.amount) - others.map(used_of).sum::<i128>();
                rules.push(Rule { nodes: inside, needs: needs.clone(), left });
            }
        }
    }
    rules
}
