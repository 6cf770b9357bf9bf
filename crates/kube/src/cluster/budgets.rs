//! Disruption budgets as the Eviction API counts them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::filter::Selector;

/// A namespace and a name in it.
pub(crate) type Path = (Box<str>, Box<str>);

/// The budgets of the cluster.
#[derive(Default)]
pub(crate) struct Budgets {
    all: BTreeMap<Path, Budget>,
    /// Namespaces whose budgets changed since [`Budgets::take_stale`].
    stale: BTreeSet<Box<str>>,
}

/// One budget.
#[derive(Debug, PartialEq)]
pub(crate) struct Budget {
    pub(crate) pods: Selector,
    /// Pods that may go now.
    pub(crate) allowed: usize,
    /// Pods on their way out that are counted in there already.
    pub(crate) disrupted: BTreeSet<String>,
    /// Pods that are not ready go at no cost.
    pub(crate) spares_unready: bool,
}

impl Budget {
    /// Nothing where its selector cannot be read: it is about no pod then.
    fn of(budget: &PodDisruptionBudget) -> Option<Self> {
        let spec = budget.spec.as_ref();
        let pods = Selector::read(spec.and_then(|spec| spec.selector.as_ref()))?;
        let status = budget.status.clone().unwrap_or_default();
        // The API server refuses as long as the controller has not seen the last change.
        let is_current = status.observed_generation >= budget.metadata.generation;
        let allowed = status.disruptions_allowed.and_then(|pods| usize::try_from(pods).ok()).unwrap_or(0);
        let is_healthy = status.desired_healthy > Some(0) && status.current_healthy >= status.desired_healthy;
        let always =
            spec.and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref()) == Some("AlwaysAllow");
        Some(Self {
            pods,
            allowed: if is_current { allowed } else { 0 },
            disrupted: status.disrupted_pods.into_iter().flatten().map(|(name, _)| name).collect(),
            spares_unready: always || is_healthy,
        })
    }
}

impl Budgets {
    /// A budget as it is now, or none any more.
    pub(crate) fn see(&mut self, namespace: &str, name: &str, budget: Option<&PodDisruptionBudget>) {
        let path: Path = (Box::from(namespace), Box::from(name));
        let now = budget.and_then(Budget::of);
        if self.all.get(&path) == now.as_ref() {
            return;
        }
        self.stale.insert(path.0.clone());
        match now {
            Some(now) => drop(self.all.insert(path, now)),
            None => drop(self.all.remove(&path)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The gangs of a namespace are to be judged again.
    pub(crate) fn touch(&mut self, namespace: &str) {
        self.stale.insert(Box::from(namespace));
    }

    /// Namespaces whose gangs are to be judged again.
    pub(crate) fn take_stale(&mut self) -> BTreeSet<Box<str>> {
        std::mem::take(&mut self.stale)
    }

    /// The budgets of a namespace with their names.
    pub(crate) fn within(&self, namespace: &str) -> impl Iterator<Item = (&str, &Budget)> {
        let from = (Box::from(namespace), Box::from(""));
        let all = self.all.range(from..).map(|((of, name), budget)| (of, &**name, budget));
        all.take_while(move |(of, ..)| ***of == *namespace).map(|(_, name, budget)| (name, budget))
    }
}
