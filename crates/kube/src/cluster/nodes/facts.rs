//! Nodes as facts for the engine: what changed since it was told last.

use std::collections::BTreeMap;

use phalanx_model::{
    Admin, DeviceMask, DomainName, ForeignUse, Input, LevelName, Levels, Node, NodeName, ResourceName,
};
use phalanx_shell::cost;

use super::{CLAIMABLE, Holds, NODE, NOWHERE, NodeState};
use crate::cluster::hardware::Offers;
use crate::cluster::published::COUNTED_MAX;
use crate::cluster::{hardware, needs};
use crate::filter::Capacity;
use crate::recognise::topology::ROOT;

impl NodeState {
    /// What changed since the last time, as facts; what each node is reached by stays its name. Whether nodes are other ones,
    /// and not only used otherwise: only then an empty cluster may hold what it could not.
    pub(crate) fn tell(&mut self, facts: &mut Vec<Input>) -> bool {
        self.count_rare();
        let is_drawn = std::mem::take(&mut self.is_fabric_stale);
        if is_drawn {
            self.draw_fabric(facts);
        }
        let level_costs = self.said.level_costs();
        let changed = std::mem::take(&mut self.changed);
        let mut are_others = std::mem::take(&mut self.are_others) || is_drawn;
        let (mut news, mut uses) = (Vec::new(), Vec::new());
        let mut is_new_shape = false;
        for name in changed {
            let Some(node) = self.node(&name) else { continue };
            let Some(entry) = self.nodes.get_mut(&name) else { continue };
            if entry.told.as_ref() == Some(&node) {
                continue;
            }
            if let Some(told) = &mut entry.told {
                told.foreign = node.foreign;
                told.foreign_use.clone_from(&node.foreign_use);
                if *told == node {
                    let Node { name, foreign, foreign_use, .. } = node;
                    uses.push(Input::NodeUseObserved { node: name, foreign, foreign_use });
                    continue;
                }
            }
            is_new_shape |= entry.told.as_ref().is_none_or(|told| told.machine.shape != node.machine.shape);
            self.health.node_told(&name, node.machine.device_mask());
            let has = |told: &Node| (told.admin, &told.machine) == (node.admin, &node.machine);
            are_others |= !entry.told.as_ref().is_some_and(has);
            entry.told = Some(node.clone());
            news.push(Input::NodeObserved { node: Box::new(node) });
        }
        let is_new_shape = is_new_shape && self.machines.learn(news.iter().filter_map(observed));
        let is_new_link = is_drawn && self.level_costs.as_ref() != Some(&level_costs);
        if is_new_shape || is_new_link {
            let mut table = cost::compile(self.machines.samples(), &level_costs);
            if let Ok(root) = DomainName::new(ROOT) {
                self.said.add_domain_costs(&root, &mut table);
            }
            facts.push(Input::CostsCompiled { table });
            self.level_costs = Some(level_costs);
        }
        facts.append(&mut news);
        facts.append(&mut uses);
        are_others
    }

    /// Where every node stands by its labels; levels that changed are told before the nodes.
    fn draw_fabric(&mut self, facts: &mut Vec<Input>) {
        let fabric = self.said.levels(self.nodes.values().map(|entry| &entry.node), self.fabric.take());
        self.said.report(&fabric, self.nodes.keys());
        let above: Vec<LevelName> = [ROOT]
            .into_iter()
            .filter_map(|name| LevelName::new(name).ok())
            .chain(fabric.reading.levels.clone())
            .collect();
        let root = DomainName::new(ROOT).ok();
        let nowhere = DomainName::new(NOWHERE).ok();
        let hosts: BTreeMap<&NodeName, _> =
            fabric.reading.graph.hosts.iter().map(|host| (&host.name, &host.domains)).collect();
        for (name, entry) in &mut self.nodes {
            let domains = hosts.get(name);
            let domain = |level: &LevelName| {
                let named = domains.and_then(|all| all.iter().find(|of| of.level == *level));
                named.map(|of| of.domain.clone()).or_else(|| nowhere.clone())
            };
            let path: Vec<DomainName> =
                root.iter().cloned().chain(fabric.reading.levels.iter().filter_map(domain)).collect();
            if entry.path != path {
                entry.path = path;
                self.changed.insert(name.clone());
            }
        }
        if let Ok(node) = LevelName::new(NODE) {
            let levels = Levels::new(above, node);
            if self.levels.as_ref() != Some(&levels) {
                facts.push(Input::LevelsConfigured { levels: levels.clone() });
                self.levels = Some(levels);
            }
        }
        self.fabric = Some(fabric);
    }

    /// A node as the engine is to know it; nothing where what it offers cannot be read.
    fn node(&mut self, name: &NodeName) -> Option<Node> {
        let entry = self.nodes.get(name)?;
        let capacity = Capacity::of(&entry.node).ok()?;
        let published = self.published.get(name);
        let counts = self.ports.keys().map(|port| (port, 1));
        let counts = counts.chain(self.counted.iter().map(|resource| (resource, COUNTED_MAX)));
        let offered = &capacity.amounts.extended;
        let claimable = self.claimable.iter().filter(|resource| !offered.contains_key(resource.as_str()));
        let counts = counts.chain(claimable.map(|resource| (resource, CLAIMABLE)));
        let replicas = self.replicas_there(name, &capacity);
        let counts = counts.chain(replicas.iter().map(|(resource, count)| (resource, *count)));
        let divided = self.divided.of(name);
        let offers = Offers { node: &entry.node, capacity: &capacity, published, divided };
        let machine = self.machines.of(name, &offers, counts);
        let nothing = Holds::default();
        let Holds { others, ours, strays, .. } = self.held.get(name).unwrap_or(&nothing);
        let used = &others.amounts;
        let mut named: BTreeMap<ResourceName, u64> = BTreeMap::new();
        let extended = used.extended.iter().filter(|(name, _)| !hardware::is_device(name));
        named.extend(extended.filter_map(|(name, amount)| Some((hardware::resource(name)?, *amount))));
        named.extend(hardware::pods().map(|pods| (pods, others.pods)).filter(|(_, count)| *count > 0));
        named.extend(
            hardware::storage().map(|disk| (disk, used.ephemeral_bytes)).filter(|(_, bytes)| *bytes > 0),
        );
        let taken = others.ports().filter_map(needs::port).filter(|port| self.ports.contains_key(port));
        named.extend(taken.map(|port| (port, 1)));
        let not_there = |resource: &ResourceName| published.and_then(|node| node.used.get(resource)).copied();
        let counted = self
            .counted
            .iter()
            .map(|resource| (resource.clone(), not_there(resource).unwrap_or(COUNTED_MAX)));
        named.extend(counted.filter(|(_, used)| *used > 0));
        named.extend(self.replicas_held(name, others));
        let sets = self.sets.of(name, &entry.node);
        // A taint keeps a device from everybody but those who tolerate it, if somebody does.
        let kept = published.map(|node| self.sets.kept(&sets, &node.tolerated)).unwrap_or_default();
        let taken =
            published.map_or(DeviceMask::EMPTY, |node| node.taken.union(node.tainted.minus(kept.all())));
        let free = machine.device_mask().minus(*ours);
        let by_claims = beside(free, taken.minus(*ours), taken.and(*ours).count(), kept.all());
        // Of strays and of claims it is known which devices they hold. Replicas are counted, and not chosen.
        let strays = match divided {
            Some(_) => DeviceMask::EMPTY,
            None => strays.and(machine.device_mask()),
        };
        let lost = match self.is_distrusted(name) {
            true => machine.device_mask(),
            false => self.machines.lost(name, &machine),
        };
        let unknown = match divided {
            Some(_) => 0,
            None => {
                // The kubelet counts those that the agent closed among them, and the engine is told which they are.
                let closed = lost.union(self.health.closed(name).and(machine.device_mask()));
                let broken = hardware::broken(&entry.node, &capacity).saturating_sub(closed.count());
                hardware::devices_held(others).saturating_sub(strays.count()).saturating_add(broken)
            }
        };
        let known = by_claims.union(strays).union(lost);
        let foreign = beside(free, known, unknown, kept.all());
        let foreign_use = ForeignUse { cpu_milli: used.cpu_milli, memory_bytes: used.memory_bytes, named };
        let admin = if self.used.takes(&entry.node) { Admin::Open } else { Admin::Cordoned };
        Some(Node {
            admin,
            foreign,
            foreign_use,
            labels: self.sets.labels_of(&entry.node),
            sets,
            kept,
            ..Node::new(name.clone(), entry.path.clone(), machine)
        })
    }
}

/// Devices that others hold: those that are `known`, and of those that the engine has given to no gang of ours as many `more`,
/// where it is not known which they are, or a gang has other devices than the engine chose. What is kept for few stands for
/// them last: whoever may not have it would count on another instead.
fn beside(free: DeviceMask, known: DeviceMask, more: u32, kept: DeviceMask) -> DeviceMask {
    let rest = free.minus(known);
    let of_all = hardware::highest(rest.minus(kept), more);
    known.union(of_all).union(hardware::highest(rest.and(kept), more - of_all.count()))
}

fn observed(fact: &Input) -> Option<&Node> {
    match fact {
        Input::NodeObserved { node } => Some(node),
        _ => None,
    }
}
