//! Sets of nodes: what pods may use, by terms that a node alone decides, and by conditions that depend on more.
//!
//! A condition stands for whatever else bears on the choice of a node: volumes, claims for devices, pods that are there. It
//! is a text; equal texts are one condition. Whoever makes one says which nodes meet it ([`Sets::meet`]), before the gang
//! that asks for it is handed in and whenever that changes. Nodes that nobody spoke of do not meet it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use phalanx_model::{DeviceMask, Kept, NodeName, NodeSet, ResourceName};
use phalanx_spec::queues;

use crate::api;
use crate::filter::NodeTerms;

/// See the module.
pub(crate) type Condition = Arc<str>;

/// What a pod asks beside its requirements. Pods of one gang that differ in it are different requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct More {
    /// Sorted, each once.
    pub(crate) conditions: BTreeSet<Condition>,
    /// One of each of these, of which every node has one: pods that ask for the same are never together.
    pub(crate) apart: BTreeSet<ResourceName>,
    /// Where its gang has to be divided: nodes with these labels, or where there is no value without.
    pub(crate) domain: Option<Domain>,
    /// What its claims for devices ask for.
    pub(crate) claims: Option<Claimed>,
    /// Pods of its gang with the same number have to be on one node, as they share a claim.
    pub(crate) together: Option<u32>,
    /// It requests one GPU, and has a replica on nodes that offer replicas by that name.
    pub(crate) takes_replica: bool,
}

/// Keys of labels with their values.
pub(crate) type Domain = Arc<[(Box<str>, Option<Box<str>>)]>;

/// What claims for devices are to the engine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claimed {
    /// Met by the nodes that can serve them.
    pub(crate) condition: Condition,
    /// Whole accelerators, those that it asks for as a resource among them.
    pub(crate) devices: u32,
    /// One of this is needed, where accelerators alone do not tell how many pods fit.
    pub(crate) counted: Option<ResourceName>,
}

/// Which nodes a pod may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wanted {
    pub(crate) terms: NodeTerms,
    pub(crate) conditions: BTreeSet<Condition>,
}

/// The sets that are wanted, and who meets the conditions among them.
#[derive(Default)]
pub(crate) struct Sets {
    /// What the engine calls them, and how many groups of pods ask for them.
    wanted: BTreeMap<Wanted, (NodeSet, u32)>,
    met: BTreeMap<Condition, Met>,
    /// The labels by which queues choose nodes, key and value, and what the engine calls each.
    labels: BTreeMap<(String, String), NodeSet>,
}

#[derive(Default)]
struct Met {
    nodes: BTreeSet<NodeName>,
    /// How many sets depend on it.
    sets: u32,
}

impl Sets {
    /// From now on every node says whether it is in this set; the second is true where no node has said so yet.
    pub(crate) fn want(&mut self, wanted: &Wanted) -> (NodeSet, bool) {
        if let Some((set, count)) = self.wanted.get_mut(wanted) {
            *count += 1;
            return (set.clone(), false);
        }
        for condition in &wanted.conditions {
            self.met.entry(Arc::clone(condition)).or_default().sets += 1;
        }
        let set = NodeSet::new(&wanted.name());
        self.wanted.insert(wanted.clone(), (set.clone(), 1));
        (set, true)
    }

    /// The labels by which queues choose nodes from now on. Returns those that came and those that went.
    pub(crate) fn want_labels(&mut self, labels: BTreeSet<(String, String)>) -> Vec<(String, String)> {
        let known: BTreeSet<(String, String)> = self.labels.keys().cloned().collect();
        let news: Vec<(String, String)> = known.symmetric_difference(&labels).cloned().collect();
        if !news.is_empty() {
            // What is no label is in no queue that is in force.
            let set =
                |label: (String, String)| Some((label.clone(), queues::label(&label.0, &label.1).ok()?));
            self.labels = labels.into_iter().filter_map(set).collect();
        }
        news
    }

    /// One group less asks for it. Nodes go on saying it until they change.
    pub(crate) fn drop(&mut self, wanted: &Wanted) {
        let Some((_, count)) = self.wanted.get_mut(wanted) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.wanted.remove(wanted);
        for condition in &wanted.conditions {
            let Some(met) = self.met.get_mut(condition) else { continue };
            met.sets -= 1;
            self.forget(condition);
        }
    }

    /// Whether a group of pods asks for it.
    pub(crate) fn is_wanted(&self, condition: &Condition) -> bool {
        self.met.get(condition).is_some_and(|met| met.sets > 0)
    }

    /// Lets go of a condition that nobody asks for.
    pub(crate) fn forget(&mut self, condition: &Condition) {
        if !self.is_wanted(condition) {
            self.met.remove(condition);
        }
    }

    /// Says which nodes meet a condition from now on: those for which that is news.
    pub(crate) fn meet(&mut self, condition: &Condition, nodes: BTreeSet<NodeName>) -> Vec<NodeName> {
        let before = &mut self.met.entry(Arc::clone(condition)).or_default().nodes;
        let news = before.symmetric_difference(&nodes).cloned().collect();
        *before = nodes;
        news
    }

    /// Whether a node meets a condition.
    pub(crate) fn is_met(&self, condition: &Condition, node: &NodeName) -> bool {
        self.met.get(condition).is_some_and(|met| met.nodes.contains(node))
    }

    /// Whether a node is in a set.
    pub(crate) fn admits(&self, wanted: &Wanted, name: &NodeName, node: &api::Node) -> bool {
        wanted.conditions.iter().all(|condition| self.is_met(condition, name))
            && wanted.terms.admits(node).is_ok()
    }

    /// The sets that a node is in.
    pub(crate) fn of(&self, name: &NodeName, node: &api::Node) -> Vec<NodeSet> {
        let is_in = |(wanted, _): &(&Wanted, &(NodeSet, u32))| self.admits(wanted, name, node);
        let mut sets: Vec<NodeSet> =
            self.wanted.iter().filter(is_in).map(|(_, (set, _))| set.clone()).collect();
        sets.sort();
        sets
    }

    /// The labels of a node by which queues choose nodes.
    pub(crate) fn labels_of(&self, node: &api::Node) -> Vec<NodeSet> {
        let own = self.labels.iter().filter(|(label, _)| has(node, label));
        own.map(|(_, set)| set.clone()).collect()
    }

    /// Devices that are for some of these sets alone, by the conditions that let pods have them.
    pub(crate) fn kept(&self, sets: &[NodeSet], by_condition: &BTreeMap<Condition, DeviceMask>) -> Kept {
        let mut kept = Kept::default();
        if by_condition.is_empty() {
            return kept;
        }
        for (wanted, (set, _)) in self.wanted.iter().filter(|(_, (set, _))| sets.contains(set)) {
            for devices in wanted.conditions.iter().filter_map(|condition| by_condition.get(condition)) {
                let of_set = kept.0.entry(set.clone()).or_default();
                *of_set = of_set.union(*devices);
            }
        }
        kept
    }
}

/// Whether a node has a label.
pub(crate) fn has(node: &api::Node, (key, value): &(String, String)) -> bool {
    node.label(key) == Some(value)
}

impl Wanted {
    /// People read it where a gang waits for such a node.
    fn name(&self) -> String {
        let conditions = self.conditions.iter().map(|condition| format!("; {condition}"));
        format!("{}{}", self.terms, conditions.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, is_cordoned: bool) -> (NodeName, api::Node) {
        let node = json!({ "metadata": { "name": name }, "spec": { "unschedulable": is_cordoned } });
        (NodeName::new(name).unwrap(), serde_json::from_value(node).unwrap())
    }

    #[test]
    fn a_node_is_in_a_set_where_it_meets_terms_and_all_conditions() {
        let mut sets = Sets::default();
        let both: Vec<Condition> = vec!["one".into(), "two".into()];
        let wanted = Wanted { terms: NodeTerms::default(), conditions: both.iter().cloned().collect() };
        let (set, is_new) = sets.want(&wanted);
        assert!(is_new && !sets.want(&wanted).1);
        assert_eq!(set.as_str(), "any node; one; two");
        let ((a, open), (b, cordoned)) = (node("a", false), node("b", true));
        assert_eq!(sets.of(&a, &open), [], "nobody spoke of it");
        let all: BTreeSet<NodeName> = [a.clone(), b.clone()].into();
        assert_eq!(sets.meet(&both[0], all.clone()), [a.clone(), b.clone()]);
        assert_eq!(sets.of(&a, &open), [], "it meets one of two");
        sets.meet(&both[1], all);
        assert_eq!(sets.of(&a, &open), [set]);
        assert_eq!(sets.of(&b, &cordoned), [], "the terms hold as well");
        assert_eq!(sets.meet(&both[1], [b].into()), [a], "only what changed is news");
        sets.drop(&wanted);
        assert!(sets.is_wanted(&both[0]), "another group asks for it");
        sets.drop(&wanted);
        assert!(!sets.is_wanted(&both[0]) && sets.met.is_empty());
    }
}
