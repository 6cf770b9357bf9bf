//! Rules between pods: affinity, anti-affinity and spread that must hold.
//!
//! What a pod asks is a condition ([`crate::cluster::node_sets`]), and pods that ask alike share one. The counts behind it follow the pods
//! that come and go one by one. A cluster without such rules has no counts, and pays nothing.
//!
//! Conditions are about the pods that have a place already. What was decided in the same moment is judged once more when
//! the order to start comes ([`PodAffinity::check`]): so no rule is ever broken, whatever the engine knows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use phalanx_model::{NodeName, ResourceName};

use super::volumes::Broken;
use crate::api::{Node, Pod, PodSpec};
use crate::cluster::bound_pods::{BoundPods, Face};
use crate::cluster::node_sets::{Condition, More};
use crate::cluster::nodes::NodeState;
use crate::cluster::nodes::moved::MovedNodes;
use crate::filter::{Namespaces, PodRules, PodTerm, Refusal, Surroundings};

/// See the module.
#[derive(Default)]
pub(crate) struct PodAffinity {
    /// By what is asked, and whether for a gang that is divided.
    asked: BTreeMap<(String, bool), Asked>,
    /// Terms of anti-affinity of pods that have a place, and how many pods have them.
    apart: BTreeMap<PodTerm, u32>,
    /// What keeps pods apart that may be decided in the same moment.
    resources: BTreeMap<PodTerm, ResourceName>,
    namespaces: Arc<Namespaces>,
    next: u64,
    /// How often a pod was counted again because its node or namespaces changed, for tests of what that costs.
    recounted: usize,
}

struct Asked {
    condition: Condition,
    around: Surroundings,
    is_stale: bool,
}

/// What pods ask, pod by pod, and the counts around those that ask so.
pub(crate) type Around = (Vec<String>, BTreeMap<String, Surroundings>);

/// Pods with their nodes.
type Members = [(Arc<Pod>, NodeName)];

impl PodAffinity {
    /// Whether pods without rules of their own may be concerned.
    pub(crate) fn concerns_all(&self) -> bool {
        !self.apart.is_empty()
    }

    /// Whether a pod has to be looked at when it comes or goes.
    pub(crate) fn minds(&self, face: &Face) -> bool {
        !self.asked.is_empty() || face.particular().is_some()
    }

    /// A pod got a node, or is gone from there. Without the node, where that is not known.
    pub(crate) fn count(&mut self, pod: &Pod, node: Option<&Node>, is_there: bool) {
        for term in PodRules::of(pod).iter().flat_map(PodRules::apart) {
            if is_there {
                *self.apart.entry(term.clone()).or_default() += 1;
            } else if let Some(count) = self.apart.get_mut(term) {
                *count -= 1;
                if *count == 0 {
                    self.apart.remove(term);
                }
            }
        }
        let Some(node) = node else { return };
        for asked in self.asked.values_mut() {
            let around = &mut asked.around;
            asked.is_stale |= if is_there { around.add(pod, node) } else { around.remove(pod, node) };
        }
    }

    /// These nodes came, went or changed: their pods are counted again, and no others.
    pub(crate) fn move_nodes(&mut self, moved: &MovedNodes, nodes: &NodeState, crowd: &BoundPods) {
        if self.asked.is_empty() {
            return;
        }
        for (name, before) in moved {
            let (before, after) = (before.as_deref(), nodes.get(name));
            let mut here: Option<Vec<Arc<Pod>>> = None;
            for asked in self.asked.values_mut().filter(|asked| asked.around.is_moved(before, after)) {
                let here = here.get_or_insert_with(|| crowd.on(name).collect());
                asked.around.move_node(before, after, here);
                asked.is_stale = true;
                self.recounted += here.len();
            }
        }
    }

    /// Labels of namespaces are other ones: what asks for such labels is counted anew.
    pub(crate) fn relabel(&mut self, namespaces: &Namespaces, nodes: &NodeState, crowd: &BoundPods) {
        self.namespaces = Arc::new(namespaces.clone());
        let do_others = self.apart.keys().any(PodTerm::asks_of_namespaces);
        for asked in self.asked.values_mut() {
            if !do_others && !asked.around.rules().ask_of_namespaces() {
                asked.around.relabel(Arc::clone(&self.namespaces));
                continue;
            }
            let pod = asked.around.pod();
            if let Some(around) = surroundings(pod, &self.namespaces, nodes, crowd) {
                asked.around = around;
                asked.is_stale = true;
                self.recounted += crowd.len();
            }
        }
    }

    /// Says anew which nodes meet what is still asked, where that may have changed; whether it may.
    pub(crate) fn judge(&mut self, nodes: &mut NodeState) -> bool {
        self.asked.retain(|_, asked| nodes.keeps(&asked.condition));
        self.resources.retain(|_, resource| nodes.has_port(resource));
        let mut is_news = false;
        let stale = self.asked.iter_mut().filter(|(_, asked)| asked.is_stale);
        for ((_, is_divided), asked) in stale {
            asked.is_stale = false;
            is_news = true;
            nodes.meet(&asked.condition, admitted(&asked.around, *is_divided, nodes));
        }
        is_news
    }

    /// What the pod asks, by its own rules and by those of others; and where pods like it must be handed in one after
    /// another, the line in which they stand.
    ///
    /// # Errors
    /// Where a selector cannot be read.
    pub(crate) fn ask(
        &mut self,
        pod: &Arc<Pod>,
        more: &mut More,
        nodes: &mut NodeState,
        crowd: &BoundPods,
    ) -> Result<Option<Condition>, String> {
        let rules = PodRules::of(pod).map_err(|bad| bad.to_string())?;
        let is_unwelcome = self.apart.keys().any(|term| term.matches(pod, &self.namespaces));
        if rules.is_empty() && !is_unwelcome {
            return Ok(None);
        }
        let namespaces = Arc::clone(&self.namespaces);
        for term in rules.apart().iter().filter(|term| term.keeps_alike_apart(pod, &namespaces)) {
            more.apart.extend(self.resource(term));
        }
        let (shape, alike) = shape(pod, &self.keys([&rules]));
        let shape = (shape, more.domain.is_some());
        if !self.asked.contains_key(&shape) {
            let around = surroundings(&Arc::new(alike), &self.namespaces, nodes, crowd)
                .ok_or_else(|| format!("{} cannot be read", rules.field()))?;
            self.next += 1;
            let whose = if rules.is_empty() { "of others, for" } else { "of" };
            let condition: Condition =
                format!("{} {whose} {} (#{})", rules.field(), pod.path(), self.next).into();
            nodes.meet(&condition, admitted(&around, shape.1, nodes));
            self.asked.insert(shape.clone(), Asked { condition, around, is_stale: false });
        }
        let Some(asked) = self.asked.get(&shape) else { return Ok(None) };
        more.conditions.insert(Arc::clone(&asked.condition));
        let is_free = rules.is_one_per_node(pod, &self.namespaces);
        Ok((!is_free).then(|| Arc::clone(&asked.condition)))
    }

    fn resource(&mut self, term: &PodTerm) -> Option<ResourceName> {
        if let Some(known) = self.resources.get(term) {
            return Some(known.clone());
        }
        self.next += 1;
        let new = ResourceName::new(format!("apart/{}", self.next)).ok()?;
        self.resources.insert(term.clone(), new.clone());
        Some(new)
    }

    /// The label whose domain all members share, where a rule of each says so.
    pub(crate) fn shared_domain(&self, pods: &[Arc<Pod>]) -> Option<String> {
        let rules = PodRules::of(pods.first()?).ok()?;
        rules.shared_domain(pods, &self.namespaces).map(str::to_owned)
    }

    /// Labels of pods that any of these rules looks at, or any of a pod that has a place.
    fn keys<'a>(&'a self, rules: impl IntoIterator<Item = &'a PodRules>) -> BTreeSet<&'a str> {
        let own = rules.into_iter().flat_map(PodRules::label_keys);
        own.chain(self.apart.keys().flat_map(PodTerm::label_keys)).collect()
    }

    /// What each of these pods asks, as a text, and the counts around those that ask so.
    ///
    /// # Errors
    /// Where a selector cannot be read.
    pub(crate) fn around(
        &self,
        pods: &[&Pod],
        nodes: &NodeState,
        crowd: &BoundPods,
    ) -> Result<Around, String> {
        let rules: Vec<PodRules> = pods.iter().filter_map(|pod| PodRules::of(pod).ok()).collect();
        let keys = self.keys(&rules);
        let mut around = BTreeMap::new();
        let mut shapes = Vec::with_capacity(pods.len());
        for pod in pods {
            let (shape, alike) = shape(pod, &keys);
            if !around.contains_key(&shape) {
                let known = |is_divided| self.asked.get(&(shape.clone(), is_divided));
                let counted = match known(false).or_else(|| known(true)) {
                    Some(asked) => Some(asked.around.clone()),
                    None => surroundings(&Arc::new(alike), &self.namespaces, nodes, crowd),
                };
                let counted = counted.ok_or_else(|| "a selector cannot be read".to_owned())?;
                around.insert(shape.clone(), counted);
            }
            shapes.push(shape);
        }
        Ok((shapes, around))
    }

    /// Labels of namespaces, which rules may go by.
    pub(crate) fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// Whether these pods can all be where they are to go: one after the other, in some order, as kube-scheduler would let
    /// them.
    pub(crate) fn check(
        &self,
        members: &Members,
        nodes: &NodeState,
        crowd: &BoundPods,
    ) -> Result<(), Broken> {
        let rules: Vec<PodRules> = members.iter().filter_map(|(pod, _)| PodRules::of(pod).ok()).collect();
        let is_met = |pod: &Pod| self.apart.keys().any(|term| term.matches(pod, &self.namespaces));
        if rules.iter().all(PodRules::is_empty) && !members.iter().any(|(pod, _)| is_met(pod)) {
            return Ok(());
        }
        let pods: Vec<&Pod> = members.iter().map(|(pod, _)| &**pod).collect();
        let (shapes, mut around) = self.around(&pods, nodes, crowd).map_err(|why| broken(why, false))?;
        let alone = around.clone();
        let mut left: Vec<(&str, &Pod, &NodeName, &Node)> = Vec::with_capacity(members.len());
        for ((pod, name), shape) in members.iter().zip(&shapes) {
            let node = nodes.get(name).ok_or_else(|| broken(format!("{name} is gone"), false))?;
            left.push((shape, pod, name, node));
        }
        while !left.is_empty() {
            let before = left.len();
            left.retain(|(shape, pod, _, node)| {
                let is_kept = verdict(&around, shape, node).is_err();
                if !is_kept {
                    for around in around.values_mut() {
                        around.add(pod, node);
                    }
                }
                is_kept
            });
            if left.len() < before {
                continue;
            }
            let Some((shape, pod, name, node)) = left.first() else { break };
            let Err(refusal) = verdict(&around, shape, node) else { break };
            let is_among_themselves =
                left.iter().all(|(shape, _, _, node)| verdict(&alone, shape, node).is_ok());
            let field = PodRules::of(pod).map_or("", |rules| rules.field());
            return Err(broken(
                format!("{field} of {} on {name}: {refusal}", pod.name()),
                is_among_themselves,
            ));
        }
        Ok(())
    }
}

const fn broken(why: String, is_among_themselves: bool) -> Broken {
    Broken { why, is_among_themselves }
}

fn verdict(around: &BTreeMap<String, Surroundings>, shape: &str, node: &Node) -> Result<(), Refusal> {
    around.get(shape).map_or(Ok(()), |around| around.admits(node))
}

/// The nodes where such a pod may be. Of a gang that is divided the others are minded elsewhere.
fn admitted(around: &Surroundings, is_divided: bool, nodes: &NodeState) -> BTreeSet<NodeName> {
    let admits = |node| if is_divided { around.admits_divided(node) } else { around.admits(node) };
    nodes.iter().filter(|(_, node)| admits(node).is_ok()).map(|(name, _)| name.clone()).collect()
}

/// The counts around a pod, by nodes as all counts have them. Nothing where a selector cannot be read.
fn surroundings(
    pod: &Arc<Pod>,
    namespaces: &Arc<Namespaces>,
    nodes: &NodeState,
    crowd: &BoundPods,
) -> Option<Surroundings> {
    let all = nodes.all_as_counted();
    let mut around = Surroundings::of(Arc::clone(pod), Arc::clone(namespaces), all).ok()?;
    for (name, other) in crowd.iter() {
        if let Some(node) = nodes.as_counted(name) {
            around.add(&other, node);
        }
    }
    Some(around)
}

/// What matters of a pod, as an object and as a text: equal texts ask alike, and are looked at alike.
fn shape(pod: &Pod, keys: &BTreeSet<&str>) -> (String, Pod) {
    let Pod { metadata, spec, .. } = pod;
    let labels = metadata.labels.iter().flatten().filter(|(key, _)| keys.contains(&***key));
    let mut alike = Pod::default();
    alike.metadata.name.clone_from(&metadata.name);
    alike.metadata.namespace.clone_from(&metadata.namespace);
    alike.metadata.labels = Some(labels.map(|(key, value)| (key.clone(), value.clone())).collect());
    alike.spec = PodSpec {
        node_selector: spec.node_selector.clone(),
        affinity: spec.affinity.clone(),
        tolerations: spec.tolerations.clone(),
        topology_spread_constraints: spec.topology_spread_constraints.clone(),
        ..PodSpec::default()
    };
    let PodSpec { node_selector, affinity, tolerations, topology_spread_constraints: spread, .. } =
        &alike.spec;
    let labels = &alike.metadata.labels;
    let text =
        format!("{} {labels:?} {affinity:?} {spread:?} {node_selector:?} {tolerations:?}", pod.namespace());
    (text, alike)
}

#[cfg(test)]
mod tests;
