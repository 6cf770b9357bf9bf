//! Rules between pods: required affinity and anti-affinity, and hard topology spread.
//!
//! [`PodRules`] are what a pod asks of others. [`Surroundings`] count, for one such pod, the pods that matter by the
//! domain that they are in, once for all nodes; then every node is a few look-ups. Whoever keeps surroundings while
//! pods come and go tells them.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodAffinityTerm;
use thiserror::Error;

use super::labels::{Expression, Selector};
use super::{NodeTerms, Refusal};
use crate::api::{Node, Pod};

/// The label of the node itself.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Labels by the name of their namespace.
pub type Namespaces = BTreeMap<String, BTreeMap<String, String>>;

/// What a pod asks of the pods around it.
#[derive(Clone, Debug)]
pub struct PodRules {
    /// All of them must be met by pods that each meet all.
    with: Box<[PodTerm]>,
    apart: Box<[PodTerm]>,
    spread: Box<[Spread]>,
    terms: NodeTerms,
}

/// A selector of pods that upstream cannot read. It does not schedule such a pod either.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} cannot be read: correct the label selector there")]
pub struct BadSelector {
    pub field: &'static str,
}

/// Which pods, and what a domain is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodTerm {
    pods: Selector,
    namespaces: Box<[Box<str>]>,
    of_namespaces: Selector,
    key: Box<str>,
}

#[derive(Clone, Debug)]
struct Spread {
    key: Box<str>,
    pods: Selector,
    max_skew: i64,
    min_domains: usize,
    honours_affinity: bool,
    honours_taints: bool,
}

/// The counts around one pod.
#[derive(Clone, Debug)]
pub struct Surroundings {
    pod: Arc<Pod>,
    rules: PodRules,
    namespaces: Arc<Namespaces>,
    /// Pods that meet all terms of affinity.
    with: Counts,
    /// Pods that meet a term of anti-affinity.
    apart: Counts,
    /// Terms of the anti-affinity of other pods that this pod meets.
    unwelcome: Counts,
    /// For each rule of spread, each domain that counts, also where no pod is.
    spread: Vec<BTreeMap<String, Domain>>,
}

/// A domain of a rule of spread.
#[derive(Clone, Copy, Debug, Default)]
struct Domain {
    pods: i64,
    /// Without a node it does not count.
    nodes: u32,
}

/// By key and value of the label that makes the domain.
type Counts = BTreeMap<(String, String), i64>;

impl PodRules {
    /// # Errors
    /// Where upstream cannot read a selector.
    pub fn of(pod: &Pod) -> Result<Self, BadSelector> {
        let affinity = pod.spec.affinity.as_ref().and_then(|all| all.pod_affinity.as_ref());
        let affinity =
            affinity.and_then(|rules| rules.required_during_scheduling_ignored_during_execution.as_deref());
        let with = PodTerm::all(affinity, pod).ok_or(BadSelector { field: "spec.affinity.podAffinity" })?;
        let apart = required_apart(pod).ok_or(BadSelector { field: "spec.affinity.podAntiAffinity" })?;
        let spread = Spread::all(pod).ok_or(BadSelector { field: "spec.topologySpreadConstraints" })?;
        Ok(Self { with, apart, spread, terms: NodeTerms::of(pod) })
    }

    /// Whether it asks for nothing. Others may still ask not to be near it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.with.is_empty() && self.apart.is_empty() && self.spread.is_empty()
    }

    /// Those that the pod must not be with.
    #[must_use]
    pub fn apart(&self) -> &[PodTerm] {
        &self.apart
    }

    /// Whether all it asks for is one of a kind on each node: terms of anti-affinity over the name of the node that the
    /// pod itself meets.
    #[must_use]
    pub fn is_one_per_node(&self, pod: &Pod, namespaces: &Namespaces) -> bool {
        let is_apart = |term: &PodTerm| term.keeps_alike_apart(pod, namespaces);
        self.with.is_empty() && self.spread.is_empty() && self.apart.iter().all(is_apart)
    }

    /// The label whose domain all of these pods must share, where a term of affinity says so.
    #[must_use]
    pub fn shared_domain(&self, pods: &[Arc<Pod>], namespaces: &Namespaces) -> Option<&str> {
        let is_of_all = |term: &&PodTerm| pods.iter().all(|pod| term.matches(pod, namespaces));
        self.with.iter().find(is_of_all).map(|term| &*term.key)
    }

    /// The labels, wider than that of the node, over whose domains it is kept from one of these pods or spread among them.
    pub fn divides<'a>(
        &'a self,
        pods: &'a [&Pod],
        namespaces: &'a Namespaces,
    ) -> impl Iterator<Item = &'a str> {
        let keeps = |term: &&PodTerm| pods.iter().any(|pod| term.matches(pod, namespaces));
        let apart = self.apart.iter().filter(keeps).map(|term| &*term.key);
        let spreads = |rule: &&Spread| pods.iter().any(|pod| rule.counts(pod));
        let spread = self.spread.iter().filter(spreads).map(|rule| &*rule.key);
        apart.chain(spread).filter(|key| *key != HOSTNAME)
    }

    /// The labels, wider than that of the node, over whose domains it has to be with others.
    pub fn gathers(&self) -> impl Iterator<Item = &str> {
        self.with.iter().map(|term| &*term.key).filter(|key| *key != HOSTNAME)
    }

    /// Whether a rule selects namespaces by their labels.
    #[must_use]
    pub fn ask_of_namespaces(&self) -> bool {
        self.with.iter().chain(&self.apart).any(PodTerm::asks_of_namespaces)
    }

    /// Labels of pods that its selectors look at.
    pub fn label_keys(&self) -> impl Iterator<Item = &str> {
        let terms = self.with.iter().chain(&self.apart).map(|term| &term.pods);
        terms.chain(self.spread.iter().map(|rule| &rule.pods)).flat_map(Selector::keys)
    }

    /// The field that says the first of its rules.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self { with, .. } if !with.is_empty() => "spec.affinity.podAffinity",
            Self { spread, .. } if !spread.is_empty() => "spec.topologySpreadConstraints",
            _ => "spec.affinity.podAntiAffinity",
        }
    }
}

impl Surroundings {
    /// `nodes`: every node of the cluster. The pods that hold something there are added one by one.
    ///
    /// # Errors
    /// Where upstream cannot read a selector of the pod.
    pub fn of<'n>(
        pod: Arc<Pod>,
        namespaces: Arc<Namespaces>,
        nodes: impl IntoIterator<Item = &'n Node>,
    ) -> Result<Self, BadSelector> {
        let rules = PodRules::of(&pod)?;
        let spread = vec![BTreeMap::new(); rules.spread.len()];
        let (with, apart, unwelcome) = (Counts::new(), Counts::new(), Counts::new());
        let mut around = Self { pod, rules, namespaces, with, apart, unwelcome, spread };
        for node in nodes {
            around.open(node);
        }
        Ok(around)
    }

    /// Whose surroundings they are.
    #[must_use]
    pub const fn pod(&self) -> &Arc<Pod> {
        &self.pod
    }

    /// Whether a node that came, went or changed matters here.
    #[must_use]
    pub fn is_moved(&self, before: Option<&Node>, after: Option<&Node>) -> bool {
        match (before, after) {
            (Some(before), Some(after)) => {
                before.metadata.labels != after.metadata.labels
                    || self.rules.counting(before) != self.rules.counting(after)
            }
            (before, after) => before.is_some() || after.is_some(),
        }
    }

    /// A node came, went or changed. `pods`: all that hold something there.
    pub fn move_node(&mut self, before: Option<&Node>, after: Option<&Node>, pods: &[Arc<Pod>]) {
        if let Some(before) = before {
            for pod in pods {
                self.remove(pod, before);
            }
            self.close(before);
        }
        if let Some(after) = after {
            self.open(after);
            for pod in pods {
                self.add(pod, after);
            }
        }
    }

    /// Labels of namespaces that none of its rules asks for are other ones.
    pub fn relabel(&mut self, namespaces: Arc<Namespaces>) {
        self.namespaces = namespaces;
    }

    /// A pod came to a node; whether it matters here.
    pub fn add(&mut self, other: &Pod, node: &Node) -> bool {
        self.count(other, node, 1)
    }

    /// A pod that was counted is gone from its node; whether it mattered.
    pub fn remove(&mut self, other: &Pod, node: &Node) -> bool {
        self.count(other, node, -1)
    }

    /// Whether the pod may be on the node.
    ///
    /// # Errors
    /// The first rule that speaks against it, in the order in which kube-scheduler asks.
    pub fn admits(&self, node: &Node) -> Result<(), Refusal> {
        self.admits_spread(node)?;
        if !self.has_company(node) {
            return Err(Refusal::PodAffinity);
        }
        self.admits_apart(node)
    }

    /// Whether it may be there but for what pods decide that come with it: spread, and the company of its like.
    ///
    /// # Errors
    /// As [`Surroundings::admits`].
    pub fn admits_divided(&self, node: &Node) -> Result<(), Refusal> {
        if !self.meets_all(&self.pod) && !self.has_company(node) {
            return Err(Refusal::PodAffinity);
        }
        self.admits_apart(node)
    }

    fn admits_apart(&self, node: &Node) -> Result<(), Refusal> {
        let is_taken =
            |term: &PodTerm| term.domain(node).is_some_and(|domain| self.apart.contains_key(&domain));
        if self.rules.apart.iter().any(is_taken) {
            return Err(Refusal::PodAntiAffinity);
        }
        let labels = node.metadata.labels.iter().flatten();
        if labels.into_iter().any(|(key, value)| self.unwelcome.contains_key(&(key.clone(), value.clone()))) {
            return Err(Refusal::ExistingAntiAffinity);
        }
        Ok(())
    }

    /// What it asks of others.
    #[must_use]
    pub const fn rules(&self) -> &PodRules {
        &self.rules
    }

    /// How many of so many members one domain of the label may have, where no more than that has to be minded. `pods`: one
    /// of each sort among the members.
    #[must_use]
    pub fn most_in_domain(&self, key: &str, pods: &[&Pod], members: usize) -> Option<u32> {
        let mut spreads = self.rules.spread.iter().zip(&self.spread).filter(|(rule, _)| &*rule.key == key);
        let is_of_all = |term: &PodTerm| pods.iter().all(|pod| term.matches(pod, &self.namespaces));
        let mut terms = self.rules.apart.iter().filter(|term| &*term.key == key);
        let Some((rule, counts)) = spreads.next() else {
            return terms.any(is_of_all).then_some(1);
        };
        if spreads.next().is_some() || terms.next().is_some() || !pods.iter().all(|pod| rule.counts(pod)) {
            return None;
        }
        let vacant = counts.values().filter(|domain| domain.pods == 0).count();
        let most = if vacant == counts.len() { u32::try_from(rule.max_skew).ok()? } else { 1 };
        // One domain stays without any, so no other has to have more.
        let stays_vacant = members < vacant || counts.len() < rule.min_domains;
        if stays_vacant { Some(most) } else { (members == vacant).then_some(1) }
    }

    fn admits_spread(&self, node: &Node) -> Result<(), Refusal> {
        for (rule, counts) in self.rules.spread.iter().zip(&self.spread) {
            let Some(domain) = node.label(&rule.key) else { return Err(Refusal::SpreadLabel) };
            let least = if counts.len() < rule.min_domains {
                0
            } else {
                counts.values().map(|domain| domain.pods).min().unwrap_or(0)
            };
            let itself = i64::from(rule.pods.matches(self.pod.metadata.labels.as_ref()));
            let here = counts.get(domain).map_or(0, |domain| domain.pods);
            if here + itself - least > rule.max_skew {
                return Err(Refusal::Spread);
            }
        }
        Ok(())
    }

    /// Whether those that the pod must be with are in each of its domains here. The first of a series that want to be
    /// together goes anywhere where all domains are.
    fn has_company(&self, node: &Node) -> bool {
        let Some(domains) = self.rules.with.iter().map(|term| term.domain(node)).collect::<Option<Vec<_>>>()
        else {
            return false;
        };
        domains.iter().all(|domain| self.with.contains_key(domain))
            || (self.with.is_empty() && self.meets_all(&self.pod))
    }

    fn meets_all(&self, other: &Pod) -> bool {
        !self.rules.with.is_empty()
            && self.rules.with.iter().all(|term| term.matches(other, &self.namespaces))
    }

    /// A node makes its domains count, also while no pod is there.
    fn open(&mut self, node: &Node) {
        for index in self.rules.counting(node) {
            let domain = node.label(&self.rules.spread[index].key).unwrap_or_default();
            self.spread[index].entry(domain.to_owned()).or_default().nodes += 1;
        }
    }

    /// The same back again, once its pods are not counted any more.
    fn close(&mut self, node: &Node) {
        for index in self.rules.counting(node) {
            let domain = node.label(&self.rules.spread[index].key).unwrap_or_default();
            let Some(known) = self.spread[index].get_mut(domain) else { continue };
            known.nodes = known.nodes.saturating_sub(1);
            if known.nodes == 0 {
                self.spread[index].remove(domain);
            }
        }
    }

    fn count(&mut self, other: &Pod, node: &Node, by: i64) -> bool {
        let mut matters = false;
        if self.meets_all(other) {
            for domain in self.rules.with.iter().filter_map(|term| term.domain(node)) {
                change(&mut self.with, domain, by);
                matters = true;
            }
        }
        let met = self.rules.apart.iter().filter(|term| term.matches(other, &self.namespaces));
        for domain in met.filter_map(|term| term.domain(node)) {
            change(&mut self.apart, domain, by);
            matters = true;
        }
        // One that upstream cannot read keeps nobody away.
        let theirs = required_apart(other).unwrap_or_default();
        let met = theirs.iter().filter(|term| term.matches(&self.pod, &self.namespaces));
        for domain in met.filter_map(|term| term.domain(node)) {
            change(&mut self.unwelcome, domain, by);
            matters = true;
        }
        if other.namespace() == self.pod.namespace() && other.metadata.deletion_timestamp.is_none() {
            for index in self.rules.counting(node) {
                let rule = &self.rules.spread[index];
                if rule.counts(other) {
                    let domain = node.label(&rule.key).unwrap_or_default();
                    self.spread[index].entry(domain.to_owned()).or_default().pods += by;
                    matters = true;
                }
            }
        }
        matters
    }
}

impl PodRules {
    /// The rules of spread that this node counts for: it has the labels of all of them.
    fn counting(&self, node: &Node) -> Vec<usize> {
        if !self.spread.iter().all(|rule| node.label(&rule.key).is_some()) {
            return Vec::new();
        }
        let counts = |rule: &Spread| {
            (!rule.honours_affinity || self.terms.selects(node))
                && (!rule.honours_taints || self.terms.untolerated(node).is_none())
        };
        self.spread.iter().enumerate().filter(|(_, rule)| counts(rule)).map(|(index, _)| index).collect()
    }
}

impl PodTerm {
    fn all(terms: Option<&[PodAffinityTerm]>, pod: &Pod) -> Option<Box<[Self]>> {
        terms.unwrap_or_default().iter().map(|term| Self::read(term, pod)).collect()
    }

    fn read(term: &PodAffinityTerm, pod: &Pod) -> Option<Self> {
        let mut namespaces: BTreeSet<&str> = term.namespaces.iter().flatten().map(String::as_str).collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(pod.namespace());
        }
        Some(Self {
            pods: Selector::read(term.label_selector.as_ref())?,
            namespaces: namespaces.into_iter().map(Box::from).collect(),
            of_namespaces: Selector::read(term.namespace_selector.as_ref())?,
            key: term.topology_key.as_str().into(),
        })
    }

    /// Whether no two pods like this one can be on one node.
    #[must_use]
    pub fn keeps_alike_apart(&self, pod: &Pod, namespaces: &Namespaces) -> bool {
        &*self.key == HOSTNAME && self.matches(pod, namespaces)
    }

    /// Whether it selects namespaces by their labels.
    #[must_use]
    pub fn asks_of_namespaces(&self) -> bool {
        self.of_namespaces.keys().next().is_some()
    }

    /// Labels of pods that it looks at.
    pub fn label_keys(&self) -> impl Iterator<Item = &str> {
        self.pods.keys()
    }

    /// Whether it is about this pod.
    #[must_use]
    pub fn matches(&self, pod: &Pod, namespaces: &Namespaces) -> bool {
        let is_named = self.namespaces.iter().any(|name| **name == *pod.namespace());
        (is_named || self.of_namespaces.matches(namespaces.get(pod.namespace())))
            && self.pods.matches(pod.metadata.labels.as_ref())
    }

    fn domain(&self, node: &Node) -> Option<(String, String)> {
        Some((self.key.to_string(), node.label(&self.key)?.to_owned()))
    }
}

impl Spread {
    fn all(pod: &Pod) -> Option<Box<[Self]>> {
        let hard = pod
            .spec
            .topology_spread_constraints
            .iter()
            .filter(|rule| rule.when_unsatisfiable == "DoNotSchedule");
        hard.map(|rule| {
            let pods = Selector::read(rule.label_selector.as_ref())?;
            let own = rule.match_label_keys.iter().flatten();
            let own = own.filter_map(|key| Some(Expression::equals(key, pod.label(key)?)));
            Some(Self {
                key: rule.topology_key.as_str().into(),
                pods: pods.and(own.collect()),
                max_skew: i64::from(rule.max_skew),
                min_domains: rule.min_domains.map_or(1, |count| usize::try_from(count).unwrap_or(0)),
                honours_affinity: rule.node_affinity_policy.as_deref().is_none_or(|policy| policy == "Honor"),
                honours_taints: rule.node_taints_policy.as_deref() == Some("Honor"),
            })
        })
        .collect()
    }

    /// A selector that selects everything counts nothing, as upstream has it.
    fn counts(&self, pod: &Pod) -> bool {
        !self.pods.is_everything() && self.pods.matches(pod.metadata.labels.as_ref())
    }
}

fn required_apart(pod: &Pod) -> Option<Box<[PodTerm]>> {
    let rules = pod.spec.affinity.as_ref().and_then(|all| all.pod_anti_affinity.as_ref());
    PodTerm::all(
        rules.and_then(|rules| rules.required_during_scheduling_ignored_during_execution.as_deref()),
        pod,
    )
}

/// Domains that nobody is in are not kept.
fn change(counts: &mut Counts, domain: (String, String), by: i64) {
    let mut entry = match counts.entry(domain) {
        Entry::Occupied(entry) => entry,
        Entry::Vacant(entry) => entry.insert_entry(0),
    };
    *entry.get_mut() += by;
    if *entry.get() == 0 {
        entry.remove();
    }
}

#[cfg(test)]
mod tests;
