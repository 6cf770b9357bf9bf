//! Which nodes may have a pod, by what the nodes themselves are: labels, names, taints, features.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSelectorTerm, Taint, Toleration};

use super::Refusal;
use super::labels::{Expression, Test};
use crate::api::{Container, Node, Pod};

/// What a pod asks of a node, in one canonical form: pods that ask for the same have equal terms, however it is
/// written. Its text names it: equal text, equal terms.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeTerms(Arc<Terms>);

#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Terms {
    /// All of these: the node selector.
    selector: Box<[Expression]>,
    /// Any of these; all nodes where there is no required affinity. Terms that match nothing are left out, so an empty
    /// list admits no node.
    affinity: Option<Box<[Term]>>,
    /// Without those that only concern soft taints.
    tolerations: Box<[Tolerated]>,
    features: Box<[Feature]>,
}

/// Labels and fields that must all match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Term {
    labels: Box<[Expression]>,
    fields: Box<[Expression]>,
}

/// A toleration without what does not bear on the choice of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Tolerated {
    /// None: every key.
    key: Option<Box<str>>,
    value: ToleratedValue,
    /// None: every effect.
    effect: Option<Box<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum ToleratedValue {
    Any,
    Is(Box<str>),
    Above(i64),
    Below(i64),
}

/// What a kubelet declares that it can do, as far as pods ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Feature {
    RestartAllContainers,
    UserNamespacesHostNetwork,
}

/// Terms that many pods share.
#[derive(Debug, Default)]
pub struct TermsPool(BTreeSet<NodeTerms>);

impl TermsPool {
    /// The terms themselves where they are new, or else the equal ones that are here already.
    #[must_use]
    pub fn share(&mut self, terms: NodeTerms) -> NodeTerms {
        if let Some(known) = self.0.get(&terms) {
            return known.clone();
        }
        self.0.insert(terms.clone());
        terms
    }

    /// Lets go of terms that nobody has any more.
    pub fn sweep(&mut self) {
        self.0.retain(|NodeTerms(terms)| Arc::strong_count(terms) > 1);
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl NodeTerms {
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let spec = &pod.spec;
        let selector = spec.node_selector.iter().map(|(key, value)| Expression::equals(key, value));
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required =
            affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        Self(Arc::new(Terms {
            selector: canonical(selector),
            affinity: required
                .map(|required| canonical(required.node_selector_terms.iter().filter_map(Term::read))),
            tolerations: canonical(spec.tolerations.iter().filter_map(Tolerated::read)),
            features: canonical(Feature::of(pod)),
        }))
    }

    /// The nodes that the pod would rather have among those it may: those of its preferred terms of the largest weight.
    /// Nothing where it prefers none.
    #[must_use]
    pub fn favoured(pod: &Pod) -> Option<Self> {
        let affinity = pod.spec.affinity.as_ref()?.node_affinity.as_ref()?;
        let preferred = affinity.preferred_during_scheduling_ignored_during_execution.as_ref()?;
        let read = preferred.iter().filter_map(|term| Some((term.weight, Term::read(&term.preference)?)));
        let read: Vec<(i32, Term)> = read.collect();
        let largest = read.iter().map(|(weight, _)| *weight).max()?;
        let largest = || read.iter().filter(|(weight, _)| *weight == largest).map(|(_, term)| term);
        let Terms { selector, affinity, tolerations, features } = &*Self::of(pod).0;
        let both = match affinity {
            None => canonical(largest().cloned()),
            Some(required) => {
                canonical(required.iter().flat_map(|one| largest().map(|other| one.and(other))))
            }
        };
        Some(Self(Arc::new(Terms {
            selector: selector.clone(),
            affinity: Some(both),
            tolerations: tolerations.clone(),
            features: features.clone(),
        })))
    }

    /// The same inside a domain: nodes that have these labels, or where there is no value lack them.
    #[must_use]
    pub fn within(&self, domain: &[(Box<str>, Option<Box<str>>)]) -> Self {
        let label = |(key, value): &(Box<str>, Option<Box<str>>)| match value {
            Some(value) => Expression::equals(key, value),
            None => Expression { key: key.clone(), test: Test::Absent },
        };
        let Terms { selector, affinity, tolerations, features } = &*self.0;
        Self(Arc::new(Terms {
            selector: canonical(selector.iter().cloned().chain(domain.iter().map(label))),
            affinity: affinity.clone(),
            tolerations: tolerations.clone(),
            features: features.clone(),
        }))
    }

    /// Whether the node may have such a pod, as far as the node alone decides it. Soft taints do not count.
    ///
    /// # Errors
    /// The first thing that speaks against it, in the order in which kube-scheduler asks, which does not ask for
    /// conditions; but what the kubelet must be able to do it asks last of all, after what depends on other pods.
    pub fn admits(&self, node: &Node) -> Result<(), Refusal> {
        let closed = match node.spec.unschedulable {
            true => Some(Refusal::Unschedulable),
            false => node.closed_by().map(|sign| Refusal::Closed(sign.into_owned())),
        };
        if let Some(refusal) = closed.filter(|_| !self.tolerates(&cordon())) {
            return Err(refusal);
        }
        if let Some(taint) = self.untolerated(node) {
            let (key, value) = (taint.key.clone(), taint.value.clone().unwrap_or_default());
            return Err(Refusal::Taint { key, value });
        }
        if !self.selects(node) {
            return Err(Refusal::Affinity);
        }
        let declared = &node.status.declared_features;
        if !self.0.features.iter().all(|feature| declared.iter().any(|name| name == feature.name())) {
            return Err(Refusal::Features);
        }
        Ok(())
    }

    /// Whether node selector and required affinity match.
    pub(super) fn selects(&self, node: &Node) -> bool {
        let labels = node.metadata.labels.as_ref();
        let any = |terms: &[Term]| terms.iter().any(|term| term.matches(node));
        self.0.selector.iter().all(|expression| expression.matches(labels))
            && self.0.affinity.as_deref().is_none_or(any)
    }

    /// The first hard taint that nothing here tolerates.
    pub(super) fn untolerated<'a>(&self, node: &'a Node) -> Option<&'a Taint> {
        let is_hard = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
        node.spec.taints.iter().filter(is_hard).find(|taint| !self.tolerates(taint))
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        self.0.tolerations.iter().any(|toleration| toleration.covers(taint))
    }
}

/// As text: `disk=ssd, zone in (a,b)`; alternatives of the affinity in brackets; then what is tolerated and what
/// the kubelet must be able to do. `any node` where nothing is asked.
impl fmt::Display for NodeTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Terms { selector, affinity, tolerations, features } = &*self.0;
        let mut parts: Vec<String> = selector.iter().map(ToString::to_string).collect();
        match affinity.as_deref() {
            None => {}
            Some([]) => parts.push("no node".to_owned()),
            Some(terms) => {
                parts.extend([terms.iter().map(|term| format!("[{term}]")).collect::<Vec<_>>().join(" or ")])
            }
        }
        parts.extend(features.iter().map(|feature| format!("feature {}", feature.name())));
        f.write_str(if parts.is_empty() { "any node" } else { "" })?;
        f.write_str(&parts.join(", "))?;
        if !tolerations.is_empty() {
            let all: Vec<String> = tolerations.iter().map(ToString::to_string).collect();
            write!(f, "; tolerates {}", all.join(", "))?;
        }
        Ok(())
    }
}

/// Whether any of these terms means the node; one that upstream cannot read, or without requirements, means none.
pub(crate) fn means(terms: &[NodeSelectorTerm], node: &Node) -> bool {
    terms.iter().filter_map(Term::read).any(|term| term.matches(node))
}

impl Term {
    /// None for terms that match nothing: empty ones, and those that upstream cannot read.
    pub(super) fn read(term: &NodeSelectorTerm) -> Option<Self> {
        let labels = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        if labels.is_empty() && fields.is_empty() {
            return None;
        }
        let labels =
            labels.iter().map(|one| Expression::read(&one.key, &one.operator, one.values.as_deref()));
        let fields = fields
            .iter()
            .map(|one| field(&one.key, &one.operator, one.values.as_deref().unwrap_or_default()));
        Some(Self {
            labels: canonical(labels.collect::<Option<Vec<_>>>()?),
            fields: canonical(fields.collect::<Option<Vec<_>>>()?),
        })
    }

    fn and(&self, other: &Self) -> Self {
        let all = |own: &[Expression], other: &[Expression]| canonical(own.iter().chain(other).cloned());
        Self { labels: all(&self.labels, &other.labels), fields: all(&self.fields, &other.fields) }
    }

    /// Labels alone, as upstream reads the terms of volumes.
    pub(super) fn matches_labels(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.labels.iter().all(|one| one.matches(labels))
    }

    fn matches(&self, node: &Node) -> bool {
        let field = |key: &str| Some(if key == "metadata.name" { node.name() } else { "" });
        self.matches_labels(node.metadata.labels.as_ref())
            && self.fields.iter().all(|one| one.accepts(field(&one.key)))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self.labels.iter().map(ToString::to_string);
        let fields = self.fields.iter().map(|one| format!("field {one}"));
        f.write_str(&labels.chain(fields).collect::<Vec<_>>().join(", "))
    }
}

impl Tolerated {
    /// None for what tolerates no hard taint.
    fn read(toleration: &Toleration) -> Option<Self> {
        let some = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(Box::from);
        let value = toleration.value.as_deref().unwrap_or_default();
        let value = match toleration.operator.as_deref().unwrap_or_default() {
            "" | "Equal" => ToleratedValue::Is(value.into()),
            "Exists" => ToleratedValue::Any,
            "Lt" => ToleratedValue::Below(decimal(value)?),
            "Gt" => ToleratedValue::Above(decimal(value)?),
            _ => return None,
        };
        let effect: Option<Box<str>> = some(&toleration.effect);
        let is_hard = effect.as_deref().is_none_or(|effect| matches!(effect, "NoSchedule" | "NoExecute"));
        is_hard.then(|| Self { key: some(&toleration.key), value, effect })
    }

    fn covers(&self, taint: &Taint) -> bool {
        let value = taint.value.as_deref().unwrap_or_default();
        self.effect.as_deref().is_none_or(|effect| effect == taint.effect)
            && self.key.as_deref().is_none_or(|key| key == taint.key)
            && match &self.value {
                ToleratedValue::Any => true,
                ToleratedValue::Is(tolerated) => **tolerated == *value,
                ToleratedValue::Above(bound) => decimal(value).is_some_and(|value| value > *bound),
                ToleratedValue::Below(bound) => decimal(value).is_some_and(|value| value < *bound),
            }
    }
}

impl fmt::Display for Tolerated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key.as_deref().unwrap_or("*"))?;
        match &self.value {
            ToleratedValue::Any => {}
            ToleratedValue::Is(value) => write!(f, "={value}")?,
            ToleratedValue::Above(bound) => write!(f, ">{bound}")?,
            ToleratedValue::Below(bound) => write!(f, "<{bound}")?,
        }
        self.effect.as_deref().map_or(Ok(()), |effect| write!(f, ":{effect}"))
    }
}

impl Feature {
    fn of(pod: &Pod) -> Vec<Self> {
        let restarts_all = |container: &Container| {
            container.restart_policy_rules.iter().any(|rule| rule.action == "RestartAllContainers")
        };
        let mut features = Vec::new();
        if pod.spec.containers.iter().chain(&pod.spec.init_containers).any(restarts_all) {
            features.push(Self::RestartAllContainers);
        }
        if pod.spec.host_network == Some(true) && pod.spec.host_users == Some(false) {
            features.push(Self::UserNamespacesHostNetwork);
        }
        features
    }

    const fn name(self) -> &'static str {
        match self {
            Self::RestartAllContainers => "RestartAllContainersOnContainerExits",
            Self::UserNamespacesHostNetwork => "UserNamespacesHostNetworkSupport",
        }
    }
}

/// What an unschedulable node counts as having.
fn cordon() -> Taint {
    let (key, effect) = ("node.kubernetes.io/unschedulable".to_owned(), "NoSchedule".to_owned());
    Taint { key, effect, ..Taint::default() }
}

/// Fields are only ever equal to one value or not.
fn field(key: &str, operator: &str, values: &[String]) -> Option<Expression> {
    let [value] = values else { return None };
    let values = Box::new([Box::from(value.as_str())]);
    let test = match operator {
        "In" => Test::In(values),
        "NotIn" => Test::NotIn(values),
        _ => return None,
    };
    Some(Expression { key: key.into(), test })
}

/// As upstream compares taints: no plus, no leading zeros.
fn decimal(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn canonical<T: Ord>(items: impl IntoIterator<Item = T>) -> Box<[T]> {
    items.into_iter().collect::<BTreeSet<T>>().into_iter().collect()
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "JSON is written where it is used")]
mod tests;
