//! How the cluster is shared: queues, their policy, and which namespaces go where.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{DecayedUsage, Input, Queue, QueueName, QueueReport, Settings, SyncKind};
use phalanx_spec::queues::SharePolicy as Policy;

use super::classes::Classes;
use crate::crd::{self, Condition, FadedUseStatus, PromiseStatus, QueueStatus, WaitingStatus, policy};
use crate::filter::Namespaces;
use crate::messages::Call;
use crate::recognise::QueueRef;

/// The objects, and what was made of them.
#[derive(Default)]
pub(crate) struct Queues {
    pub(crate) classes: Classes,
    queues: BTreeMap<String, crd::Queue>,
    policy: Option<crd::SharePolicy>,
    /// Labels of namespaces.
    namespaces: Namespaces,
    told: BTreeMap<QueueName, Queue>,
    settings: Option<Settings>,
    refused: BTreeMap<String, String>,
    /// Statuses as they were written last.
    written: BTreeMap<String, QueueStatus>,
    is_stale: bool,
}

impl Queues {
    /// `min_run_ms` is that of priorities that no class of the policy has as its rank.
    pub(crate) fn new(min_run_ms: u64) -> Self {
        Self { classes: Classes::new(min_run_ms), ..Self::default() }
    }

    pub(crate) fn queue_seen(&mut self, queue: crd::Queue) {
        let Some(name) = queue.metadata.name.clone() else { return };
        // Its status is ours, and changes what is shared as little as its version does.
        self.is_stale |= self.queues.get(&name).is_none_or(|known| known.spec != queue.spec);
        self.queues.insert(name, queue);
    }

    pub(crate) fn queue_gone(&mut self, name: &str) {
        self.is_stale |= self.queues.remove(name).is_some();
        self.written.remove(name);
    }

    pub(crate) fn policy_seen(&mut self, policy: Option<crd::SharePolicy>) {
        self.is_stale |= self.policy.as_ref().map(|of| &of.spec) != policy.as_ref().map(|of| &of.spec);
        self.policy = policy;
    }

    /// Whether its labels are other ones.
    pub(crate) fn namespace(&mut self, name: String, labels: Option<BTreeMap<String, String>>) -> bool {
        if self.namespaces.get(&name) == labels.as_ref() {
            return false;
        }
        match labels {
            Some(labels) => drop(self.namespaces.insert(name, labels)),
            None => drop(self.namespaces.remove(&name)),
        }
        true
    }

    pub(crate) const fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// The labels by which queues choose nodes.
    pub(crate) fn node_labels(&self) -> BTreeSet<(String, String)> {
        let nodes = self.queues.values().filter_map(|queue| queue.spec.nodes.as_ref());
        let pools = nodes.flat_map(|nodes| nodes.required.iter().chain(&nodes.preferred));
        pools.flat_map(|pool| &pool.labels).map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    pub(crate) fn has_news(&self) -> bool {
        self.is_stale
    }

    /// The queue of a gang. In a cluster without queues there is one for all.
    ///
    /// # Errors
    /// When it names none that is there for it, in words.
    pub(crate) fn queue_of(
        &self,
        asked: Option<&QueueRef>,
        namespace: &str,
        default: &QueueName,
    ) -> Result<QueueName, String> {
        let is_meant = |asked: &&QueueRef| !asked.is_of_kueue || self.queues.contains_key(&asked.name);
        let asked = asked.filter(is_meant).map(|asked| &*asked.name);
        if self.queues.is_empty() {
            return asked.map_or_else(
                || Ok(default.clone()),
                |name| QueueName::new(name).map_err(|bad| format!("queue {name:?}: {bad}")),
            );
        }
        let labels = self.namespaces.get(namespace).cloned().unwrap_or_default();
        let queues: Vec<crd::Queue> = self.queues.values().cloned().collect();
        policy::queue_of(&queues, asked, namespace, &labels).map_err(|none| none.to_string())
    }

    /// What gangs were promised, as queues say.
    pub(crate) fn promises(&self) -> impl Iterator<Item = &PromiseStatus> {
        self.queues.values().filter_map(|queue| queue.status.as_ref()).flat_map(|status| &status.promises)
    }

    /// What changed of queues, settings and classes, as facts.
    pub(crate) fn tell(&mut self, facts: &mut Vec<Input>) {
        if std::mem::take(&mut self.is_stale) {
            let queues: Vec<crd::Queue> = self.queues.values().cloned().collect();
            let made = policy::put_together(&queues, self.policy.as_ref());
            self.refused = made.refused;
            let Policy { settings, queues } = made.policy;
            self.settings = Some(settings);
            self.classes.forget_told();
            self.classes.tell(self.settings.as_ref(), facts);
            facts.push(Input::SyncBegin { kind: SyncKind::Queues });
            facts.extend(queues.iter().map(|queue| Input::QueueObserved { queue: Box::new(queue.clone()) }));
            facts.push(Input::SyncEnd { kind: SyncKind::Queues });
            let is_new = |queue: &&Queue| !self.told.contains_key(&queue.name);
            // What it used before this process began; its own memory is newer than that.
            facts.extend(queues.iter().filter(is_new).filter_map(|queue| {
                let status = self.queues.get(queue.name.as_str())?.status.as_ref()?;
                let usage = status.faded_use.as_ref()?.read()?;
                Some(Input::UsageObserved { queue: queue.name.clone(), usage })
            }));
            self.told = queues.into_iter().map(|queue| (queue.name.clone(), queue)).collect();
        }
        self.classes.tell(self.settings.as_ref(), facts);
    }

    /// A queue, and those that it stands below.
    pub(crate) fn upwards(&self, queue: &QueueName) -> impl Iterator<Item = &QueueName> {
        let above = |of: &&Queue| self.told.get(of.parent.as_ref()?);
        std::iter::successors(self.told.get(queue), above).map(|of| &of.name)
    }

    /// Statuses that are to be written, given how the queues stand. Equal ones are not written again.
    pub(crate) fn report(
        &mut self,
        reports: &[(QueueReport, Option<DecayedUsage>)],
        mut waiting: BTreeMap<QueueName, Vec<WaitingStatus>>,
        mut promises: BTreeMap<QueueName, Vec<PromiseStatus>>,
        calls: &mut Vec<Call>,
    ) {
        for (report, faded) in reports {
            let name = report.queue.name.as_str();
            let Some(queue) = self.queues.get(name) else { continue };
            let mut status = QueueStatus {
                observed_generation: queue.metadata.generation,
                faded_use: faded.and_then(|faded| FadedUseStatus::of(faded).ok()),
                conditions: vec![accepted(self.refused.get(&format!("Queue {name}")))],
                waiting: waiting.remove(&report.queue.name).unwrap_or_default(),
                promises: promises.remove(&report.queue.name).unwrap_or_default(),
                ..QueueStatus::default()
            };
            status.set_report(report);
            // Use fades all the time: that alone is no news.
            let is_same = self.written.get(name).is_some_and(|old| {
                let (faded_use, past) = (status.faded_use.clone(), status.past.clone());
                QueueStatus { faded_use, past, ..old.clone() } == status
            });
            if !is_same {
                self.written.insert(name.to_owned(), status.clone());
                calls.push(Call::QueueStatus { name: name.to_owned(), status: Box::new(status) });
            }
        }
    }
}

pub(crate) fn accepted(refused: Option<&String>) -> Condition {
    Condition {
        r#type: "Accepted".to_owned(),
        status: if refused.is_some() { "False" } else { "True" }.to_owned(),
        reason: if refused.is_some() { "Refused" } else { "InForce" }.to_owned(),
        message: refused.cloned().unwrap_or_default(),
        ..Condition::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pod that Kueue admits by its own queue `team-a` was told that there is no such `Queue`, and never started.
    #[test]
    fn a_queue_of_kueue_is_asked_for_only_where_there_is_one_of_its_name_here() {
        let mut queues = Queues::default();
        let default = QueueName::new("all").unwrap();
        let of_kueue = QueueRef { name: "team-a".to_owned(), is_of_kueue: true };
        let ours = QueueRef::from("team-a");
        let of = |queues: &Queues, asked: &QueueRef| queues.queue_of(Some(asked), "x", &default);
        assert_eq!(of(&queues, &of_kueue).unwrap(), default);
        assert_eq!(of(&queues, &ours).unwrap().as_str(), "team-a");
        let queue = |name: &str| {
            let queue = json!({ "apiVersion": "phalanx.dev/v1alpha1", "kind": "Queue", "metadata": { "name": name },
                "spec": { "namespaces": {} } });
            serde_json::from_value(queue).unwrap()
        };
        queues.queue_seen(queue("default"));
        assert_eq!(of(&queues, &of_kueue).unwrap().as_str(), "default");
        assert!(of(&queues, &ours).unwrap_err().contains("team-a"));
        queues.queue_seen(queue("team-a"));
        assert_eq!(of(&queues, &of_kueue).unwrap().as_str(), "team-a");
    }
}
