//! Nodes as the engine knows them: their machines, where they stand, which sets they are in, and what others use of them.
//!
//! Nothing is told at once. What changed is gathered, and [`NodeState::tell`] turns it into facts: a thousand changes
//! are one drawing of the tree.

pub(crate) mod divided;
mod facts;
pub(crate) mod moved;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use phalanx_health::Policy;
use phalanx_model::{
    DeviceMask, DomainName, Grade, Input, LevelCost, LevelName, Levels, Node, NodeName, NodeSet,
    ResourceName, Timestamp,
};

use self::divided::Divided;
use self::moved::MovedNodes;
use super::distrust::DistrustedNodes;
use super::fabric::FabricState;
use super::hardware;
use super::hardware::Machines;
use super::health::HealthState;
use super::node_sets::{Condition, Sets, Wanted, has};
use super::published::Published;
use super::rare::RareResources;
use crate::api;
use crate::filter::{Held, Lack, Requirements};
use crate::messages::{Call, Found};
use crate::recognise::topology::{self};
use crate::recognise::{BrokenSigns, LevelRef, NodesUsed};

/// The level of single nodes.
pub(crate) const NODE: &str = "node";

/// More of a resource than all pods of a node ever ask for.
const CLAIMABLE: u64 = u32::MAX as u64;

/// A condition: see [`NodeState::plain`].
const PLAIN: &str = "nodes without devices that are not requested";

/// The domain of a node that does not say where it stands on some level.
const NOWHERE: &str = "unlabelled";

/// Taints of nodes that nobody hears of.
const UNREACHABLE: [&str; 2] = ["node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service"];

/// What domains are of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DomainOf {
    /// A level, which the engine knows.
    Level(LevelName),
    /// A label beside the levels: nodes with the same value are one domain.
    Label(Box<str>),
}

impl fmt::Display for DomainOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(level) => level.fmt(f),
            Self::Label(key) => f.write_str(key),
        }
    }
}

/// What is known of the nodes.
#[derive(Default)]
pub(crate) struct NodeState {
    used: NodesUsed,
    broken: BrokenSigns,
    nodes: BTreeMap<NodeName, Entry>,
    machines: Machines,
    health: HealthState,
    /// What is held on nodes: a pod may be heard of before its node is.
    held: BTreeMap<NodeName, Holds>,
    sets: Sets,
    /// Host ports, and whatever else keeps pods apart, with how many gangs ask for it. Each is a resource of which every node
    /// has one.
    ports: BTreeMap<ResourceName, u32>,
    /// Resources that count how many pods of some claims fit.
    counted: BTreeSet<ResourceName>,
    /// Resources that claims may serve on nodes that do not offer them.
    claimable: BTreeSet<ResourceName>,
    /// What drivers publish for a node, and claims hold there.
    published: BTreeMap<NodeName, Published>,
    fabric: Option<topology::Levels>,
    /// Where the levels come from.
    said: FabricState,
    /// As the engine knows them.
    levels: Option<Levels>,
    level_costs: Option<BTreeMap<LevelName, LevelCost>>,
    changed: BTreeSet<NodeName>,
    is_fabric_stale: bool,
    /// Nodes that are out of reach since they were last taken.
    lost: BTreeSet<NodeName>,
    /// Nodes whose kubelets turn pods away.
    distrust: DistrustedNodes,
    moved: MovedNodes,
    /// Nodes came, went, or are other ones since the last time that the engine was told.
    are_others: bool,
    /// Grows whenever that happens, or a node offers something else.
    offers_version: u64,
    rare: RareResources,
    divided: Divided,
}

struct Entry {
    node: api::Node,
    path: Vec<DomainName>,
    told: Option<Node>,
}

#[derive(Default)]
struct Holds {
    /// What pods of others hold.
    others: Held,
    /// Devices that gangs of ours hold.
    ours: DeviceMask,
    /// Those of them that several hold, with how many more than one: a gang may be placed where another is still known to
    /// be, for of two events the later may be heard first.
    more: BTreeMap<u32, u32>,
    /// Devices that strays hold, who count among the others.
    strays: DeviceMask,
}

impl Holds {
    fn ours_changed(&mut self, devices: DeviceMask, is_there: bool) {
        if is_there {
            for device in self.ours.and(devices).iter() {
                *self.more.entry(device).or_default() += 1;
            }
            self.ours = self.ours.union(devices);
            return;
        }
        for device in devices.iter() {
            match self.more.get_mut(&device) {
                Some(more) if *more > 1 => *more -= 1,
                Some(_) => drop(self.more.remove(&device)),
                None => self.ours = self.ours.minus(DeviceMask::one(device)),
            }
        }
    }
}

/// What a stray holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OrphanedBinding {
    pub(crate) node: NodeName,
    pub(crate) devices: DeviceMask,
    pub(crate) requirements: Arc<Requirements>,
}

impl NodeState {
    pub(crate) fn new(used: NodesUsed, broken: BrokenSigns, health: Policy) -> Self {
        Self { used, broken, health: HealthState::new(health), ..Self::default() }
    }

    pub(crate) fn observe(&mut self, mut node: api::Node) {
        let Ok(name) = NodeName::new(node.name()) else { return };
        node.broken = self.broken.of(&node);
        self.is_fabric_stale |= match self.nodes.get(&name) {
            Some(known) => known.node.metadata.labels != node.metadata.labels,
            None => true,
        };
        let is_other = self.nodes.get(&name).is_none_or(|known| {
            known.node.metadata.labels != node.metadata.labels
                || known.node.spec != node.spec
                || known.node.closed_by() != node.closed_by()
        });
        if is_other {
            self.note_moved(&name);
        }
        self.are_others |= is_other;
        let offers_otherwise =
            |known: &Entry| is_other || known.node.status.allocatable != node.status.allocatable;
        if self.nodes.get(&name).is_none_or(offers_otherwise) {
            self.offers_version += 1;
        }
        let counts_otherwise =
            |known: &Entry| offers_otherwise(known) || known.node.status.capacity != node.status.capacity;
        if self.nodes.get(&name).is_none_or(counts_otherwise) {
            self.see_divided(&name, Some(&node));
        }
        if is_unreachable(&node) {
            self.lost.insert(name.clone());
        }
        match self.nodes.get_mut(&name) {
            Some(entry) => entry.node = node,
            None => drop(self.nodes.insert(name.clone(), Entry { node, path: Vec::new(), told: None })),
        }
        self.changed.insert(name);
    }

    /// It is gone, as a fact where the engine knew it. What pods hold there is known until they are gone as well.
    pub(crate) fn remove(&mut self, name: &NodeName) -> Option<Input> {
        self.changed.remove(name);
        self.distrust.forget(name);
        self.health.forget_told(name);
        self.see_divided(name, None);
        self.note_moved(name);
        self.offers_version += 1;
        self.lost.insert(name.clone());
        let was_told = self.nodes.remove(name).is_some_and(|entry| entry.told.is_some());
        self.forget_held(name);
        was_told.then(|| Input::NodeRemoved { node: name.clone() })
    }

    /// Whether a node is gone or unreachable: a pod that terminates there is never reported gone unless the node returns.
    pub(crate) fn is_out_of_reach(&self, name: Option<&NodeName>) -> bool {
        let is_lost = |name| self.nodes.get(name).is_none_or(|entry| is_unreachable(&entry.node));
        name.is_some_and(is_lost)
    }

    /// Nodes that are out of reach since the last time, and maybe before.
    pub(crate) fn take_lost(&mut self) -> BTreeSet<NodeName> {
        std::mem::take(&mut self.lost)
    }

    /// A node turned a pod away for want of devices.
    pub(crate) fn turned_away(&mut self, now: Timestamp, name: &NodeName) {
        if self.distrust.turned_away(now, name) {
            self.changed.insert(name.clone());
        }
    }

    /// A node runs a pod with devices.
    pub(crate) fn runs(&mut self, name: &NodeName) {
        if self.distrust.forget(name) {
            self.changed.insert(name.clone());
        }
    }

    /// Uses devices again whose node was given time.
    pub(crate) fn end_distrust(&mut self, now: Timestamp) {
        while let Some(name) = self.distrust.pop_ended(now) {
            self.changed.insert(name);
        }
    }

    /// When devices are used again.
    pub(crate) fn wake(&self) -> Option<Timestamp> {
        self.distrust.wake()
    }

    /// Whether a claim may bring what is lacking: a resource that a node does not offer.
    pub(crate) fn may_be_claimed(&self, name: &NodeName, lack: &Lack) -> bool {
        let Lack::Resource(resource) = lack else { return false };
        let offers = |node: &api::Node| node.status.allocatable.contains_key(&**resource);
        let is_claimable = hardware::resource(resource).is_some_and(|name| self.claimable.contains(&name));
        is_claimable && !self.get(name).is_some_and(offers)
    }

    pub(crate) fn is_distrusted(&self, name: &NodeName) -> bool {
        self.distrust.holds(name)
    }

    /// A pod of somebody else came to a node, or left it.
    pub(crate) fn other(&mut self, node: &str, pod: &Requirements, is_there: bool) {
        let Ok(name) = NodeName::new(node) else { return };
        let held = self.held.entry(name.clone()).or_default();
        if is_there {
            held.others.add(pod);
        } else {
            held.others.remove(pod);
        }
        self.forget_held(&name);
        self.changed.insert(name);
    }

    /// A node that is gone, and of which nothing is held, is forgotten.
    fn forget_held(&mut self, name: &NodeName) {
        let is_nothing = |held: &Holds| {
            let devices = held.ours.union(held.strays);
            devices.is_empty() && held.others.pods == 0
        };
        if !self.nodes.contains_key(name) && self.held.get(name).is_some_and(is_nothing) {
            self.held.remove(name);
        }
    }

    /// Devices that a gang of ours holds from now on, or no longer. What others hold is somewhere else.
    pub(crate) fn ours(&mut self, node: &NodeName, devices: DeviceMask, is_there: bool) {
        let held = self.held.entry(node.clone()).or_default();
        held.ours_changed(devices, is_there);
        let is_taken = |published: &Published| !published.taken.union(published.tainted).is_empty();
        let is_taken = self.published.get(node).is_some_and(is_taken);
        if is_taken || hardware::devices_held(&held.others) > 0 {
            self.changed.insert(node.clone());
        }
        self.forget_held(node);
    }

    /// A stray holds what it holds from now on, or no longer.
    pub(crate) fn stray(&mut self, stray: &OrphanedBinding, is_there: bool) {
        let held = self.held.entry(stray.node.clone()).or_default();
        let devices = stray.devices;
        held.strays = if is_there { held.strays.union(devices) } else { held.strays.minus(devices) };
        self.other(stray.node.as_str(), &stray.requirements, is_there);
    }

    /// Devices that gangs of ours hold on a node, all of them.
    pub(crate) fn ours_are(&mut self, node: &NodeName, devices: DeviceMask) {
        let held = self.held.entry(node.clone()).or_default();
        held.ours = devices;
        held.more.clear();
        self.changed.insert(node.clone());
    }

    /// The devices of a node as the engine knows it.
    pub(crate) fn devices(&self, node: &NodeName) -> DeviceMask {
        let told = self.nodes.get(node).and_then(|entry| entry.told.as_ref());
        told.map_or(DeviceMask::EMPTY, |node| node.machine.device_mask())
    }

    /// From now on the nodes that are in this set say so.
    pub(crate) fn want_set(&mut self, wanted: &Wanted) -> NodeSet {
        let (set, is_new) = self.sets.want(wanted);
        if is_new {
            let is_in = |(name, entry): &(&NodeName, &Entry)| self.sets.admits(wanted, name, &entry.node);
            self.changed.extend(self.nodes.iter().filter(is_in).map(|(name, _)| name.clone()));
        }
        set
    }

    /// The labels by which queues choose nodes from now on.
    pub(crate) fn want_labels(&mut self, labels: BTreeSet<(String, String)>) {
        let news = self.sets.want_labels(labels);
        let is_other = |(_, entry): &(&NodeName, &Entry)| news.iter().any(|label| has(&entry.node, label));
        self.changed.extend(self.nodes.iter().filter(is_other).map(|(name, _)| name.clone()));
    }

    /// Nobody asks for it any more. Nodes go on saying it until they change.
    pub(crate) fn drop_set(&mut self, wanted: &Wanted) {
        self.sets.drop(wanted);
    }

    /// These nodes meet a condition from now on, and no others; see [`Sets`].
    pub(crate) fn meet(&mut self, condition: &Condition, nodes: BTreeSet<NodeName>) {
        let news = self.sets.meet(condition, nodes);
        self.changed.extend(news.into_iter().filter(|name| self.nodes.contains_key(name)));
    }

    /// Whether a gang asks for it. What nobody asks for is forgotten.
    pub(crate) fn keeps(&mut self, condition: &Condition) -> bool {
        self.sets.forget(condition);
        self.sets.is_wanted(condition)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&NodeName, &api::Node)> {
        self.nodes.iter().map(|(name, entry)| (name, &entry.node))
    }

    /// Nodes that new gangs may go to, with what pods of others hold there.
    pub(crate) fn offered(&self) -> impl Iterator<Item = (&NodeName, &api::Node, Held)> {
        let held = |name: &NodeName| self.held.get(name).map(|held| held.others.clone()).unwrap_or_default();
        self.iter()
            .filter(|(_, node)| self.used.takes(node))
            .map(move |(name, node)| (name, node, held(name)))
    }

    /// Another number whenever nodes offer something else.
    pub(crate) const fn offers_version(&self) -> u64 {
        self.offers_version
    }

    /// What pods of others hold, by node.
    pub(crate) fn held_by_others(&self) -> impl Iterator<Item = (&NodeName, Held)> {
        self.held.iter().map(|(name, held)| (name, held.others.clone()))
    }

    pub(crate) fn get(&self, name: &NodeName) -> Option<&api::Node> {
        self.nodes.get(name).map(|entry| &entry.node)
    }

    pub(crate) fn want_port(&mut self, port: &ResourceName) {
        let gangs = self.ports.entry(port.clone()).or_default();
        *gangs += 1;
        if *gangs == 1 {
            self.changed.extend(self.nodes.keys().cloned());
        }
    }

    /// Whether a gang asks for it.
    pub(crate) fn has_port(&self, port: &ResourceName) -> bool {
        self.ports.contains_key(port)
    }

    /// One gang less asks for it. Nodes go on saying it until they change.
    pub(crate) fn drop_port(&mut self, port: &ResourceName) {
        let Some(gangs) = self.ports.get_mut(port) else { return };
        *gangs -= 1;
        if *gangs == 0 {
            self.ports.remove(port);
        }
    }

    pub(crate) fn want_counted(&mut self, resource: &ResourceName) {
        if self.counted.insert(resource.clone()) {
            self.changed.extend(self.nodes.keys().cloned());
        }
    }

    /// Nodes that do not offer a resource have enough of it from now on: conditions say where a claim can serve it.
    pub(crate) fn want_claimable(&mut self, resource: &ResourceName) {
        if self.claimable.insert(resource.clone()) {
            self.changed.extend(self.nodes.keys().cloned());
        }
    }

    /// What drivers publish for a node, and claims hold there, from now on.
    pub(crate) fn publish(&mut self, name: NodeName, published: Option<Published>) {
        if self.published.get(&name) == published.as_ref() {
            return;
        }
        match published {
            Some(published) => drop(self.published.insert(name.clone(), published)),
            None => drop(self.published.remove(&name)),
        }
        if self.nodes.contains_key(&name) {
            self.changed.insert(name);
        }
    }

    /// Whether pods ask for a condition.
    pub(crate) fn is_wanted(&self, condition: &Condition) -> bool {
        self.sets.is_wanted(condition)
    }

    /// The machine that the node agent found on a node, or nothing any more.
    pub(crate) fn found(&mut self, node: &str, mut found: Option<Found>) {
        let Ok(name) = NodeName::new(node) else { return };
        let grades = found.as_mut().map(|found| std::mem::take(&mut found.grades));
        self.health.see(&name, grades.unwrap_or_default());
        self.machines.found(name.clone(), found);
        if self.nodes.contains_key(&name) {
            self.changed.insert(name);
        }
    }

    /// Grades that changed since the last time, as facts. They come after what gangs hold, so that gangs leave.
    pub(crate) fn tell_health(&mut self, facts: &mut Vec<Input>) {
        let nodes = self.nodes.iter();
        let told = nodes.filter_map(|(name, entry)| Some((name, entry.told.as_ref()?)));
        let devices = || told.map(|(name, node)| (name.clone(), node.machine.device_mask())).collect();
        // What the kubelet does not offer is counted otherwise once it is known which devices these are.
        let changed = self.health.tell(devices, facts);
        self.changed.extend(changed);
    }

    /// Devices and nodes by grade, and why the circuit breaker holds grades, if it does.
    pub(crate) fn health_counts(&self) -> (BTreeMap<Grade, usize>, Option<&str>) {
        self.health.counts()
    }

    /// What was said of the fabric changed.
    pub(crate) fn see_fabric(&mut self, see: impl FnOnce(&mut FabricState) -> bool) {
        self.is_fabric_stale |= see(&mut self.said);
    }

    /// What is to be written of the fabric.
    pub(crate) fn fabric_calls(&mut self) -> Vec<Call> {
        self.said.calls()
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The level that somebody means.
    pub(crate) fn level(&self, asked: &LevelRef) -> Result<LevelName, String> {
        let fabric = self.fabric.as_ref().ok_or_else(|| "no node is known yet".to_owned())?;
        fabric.level(asked).map_err(|unknown| unknown.to_string())
    }

    /// The domains that somebody means: those of a level, or of any other label that a node carries.
    pub(crate) fn domain_of(&self, asked: &LevelRef) -> Result<DomainOf, String> {
        let unknown = match self.level(asked) {
            Ok(level) => return Ok(DomainOf::Level(level)),
            Err(unknown) => unknown,
        };
        let (LevelRef::Label(key) | LevelRef::Name(key)) = asked else { return Err(unknown) };
        if self.nodes.values().any(|entry| entry.node.label(key).is_some()) {
            return Ok(DomainOf::Label(key.as_str().into()));
        }
        Err(format!("{unknown}, and no node carries such a label"))
    }

    /// The nodes inside the domain that a node is in.
    pub(crate) fn around(&self, node: &NodeName, of: &DomainOf) -> BTreeSet<NodeName> {
        self.domains(of).into_iter().find(|domain| domain.contains(node)).unwrap_or_default()
    }

    /// All domains with their nodes. A node without the label is in none.
    pub(crate) fn domains(&self, of: &DomainOf) -> Vec<BTreeSet<NodeName>> {
        let above = self.levels.as_ref().map_or(&[][..], |levels| &levels.above);
        let mut domains: BTreeMap<Vec<&str>, BTreeSet<NodeName>> = BTreeMap::new();
        for (name, entry) in &self.nodes {
            let domain = match of {
                DomainOf::Label(key) => entry.node.label(key).map(|value| vec![value]),
                DomainOf::Level(level) => Some(match above.iter().position(|of| of == level) {
                    Some(depth) => entry.path.iter().take(depth + 1).map(DomainName::as_str).collect(),
                    None => vec![name.as_str()],
                }),
            };
            if let Some(domain) = domain {
                domains.entry(domain).or_default().insert(name.clone());
            }
        }
        domains.into_values().collect()
    }

    /// Whether a node meets all of these conditions.
    pub(crate) fn meets(&self, name: &NodeName, conditions: &BTreeSet<Condition>) -> bool {
        conditions.iter().all(|condition| self.sets.is_met(condition, name))
    }

    /// The nodes of a set on which nothing lies idle that a pod does not request: without extended resources that only some
    /// nodes offer, such as TPUs. Nothing if the pod requests one, or if all nodes are equal in that.
    pub(crate) fn plain(&mut self, pod: &Requirements, wanted: &Wanted) -> Option<Wanted> {
        let rare = &self.rare;
        if rare.plain.is_empty() || pod.amounts.extended.keys().any(|name| rare.names.contains(name)) {
            return None;
        }
        let plain = Condition::from(PLAIN);
        if !self.sets.is_wanted(&plain) {
            let nodes = rare.plain.clone();
            self.meet(&plain, nodes);
        }
        let mut wanted = wanted.clone();
        wanted.conditions.insert(plain);
        Some(wanted)
    }

    /// Counts again which resources are rare, if nodes offer something else.
    fn count_rare(&mut self) {
        if self.rare.seen == self.offers_version {
            return;
        }
        let used = self.nodes.iter().filter(|(_, entry)| self.used.takes(&entry.node));
        let offers = used.map(|(name, entry)| (name, &entry.node.status.allocatable));
        let rare = RareResources::of(self.offers_version, offers);
        let has_changed = rare.plain != self.rare.plain;
        self.rare = rare;
        let plain = Condition::from(PLAIN);
        if has_changed && self.sets.is_wanted(&plain) {
            self.meet(&plain, self.rare.plain.clone());
        }
    }
}

/// Whether the node controller does not hear of a node any more, or an administrator has given it up.
fn is_unreachable(node: &api::Node) -> bool {
    node.spec.taints.iter().any(|taint| taint.effect == "NoExecute" && UNREACHABLE.contains(&&*taint.key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gang starts where another ended, and that the other ended is heard only then.
    #[test]
    fn devices_that_two_gangs_held_for_a_moment_are_held_by_the_one_that_stays() {
        let mut held = Holds::default();
        let mask = |bits: u64| DeviceMask(bits);
        held.ours_changed(mask(0b0111), true);
        held.ours_changed(mask(0b0011), true);
        held.ours_changed(mask(0b0111), false);
        assert_eq!(held.ours, mask(0b0011));
        held.ours_changed(mask(0b0011), false);
        assert!(held.ours.is_empty() && held.more.is_empty());
    }
}
