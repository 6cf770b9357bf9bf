//! Disruption budgets: which gangs may not be made to make way for now.
//!
//! The Eviction API refuses what a budget does not allow, pod by pod. A gang goes whole or not at all, so it is counted here
//! how many of its pods each budget has to give, before one of them is asked for. Budgets bind the Eviction API and not the
//! controllers that delete pods: an owner that can be suspended is suspended whatever they say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use phalanx_model::{Input, JobId};

use super::Lifecycle;
use super::lifecycle::collect::Whose;
use super::lifecycle::submit::gang_of;
use super::state::{Gang, Pod};
use crate::cluster::budgets::{Budget, Path};
use crate::gang::pods::State;
use crate::messages::Call;
use crate::recognise::GangKey;

/// Which gangs budgets protect, and which evictions budgets do not count yet.
#[derive(Default)]
pub(crate) struct Protection {
    /// Pods that were to be evicted, until they are seen to go: what they cost may not be counted by their budget yet.
    asked: BTreeSet<Path>,
    /// Gangs that may not be disrupted, with their priority and why.
    protected: BTreeMap<GangKey, (i32, Arc<str>)>,
}

impl Lifecycle {
    /// Judges the gangs again whose budgets changed.
    pub(in crate::gang) fn judge_budgets(&mut self, facts: &mut Vec<Input>) {
        let stale = self.cluster.budgets.take_stale();
        if stale.is_empty() {
            return;
        }
        let runs = self.gangs.values().filter(|gang| gang.run().is_some());
        let keys = runs.map(|gang| &gang.key).filter(|key| stale.contains(&*key.namespace));
        for key in keys.cloned().collect::<Vec<_>>() {
            self.judge_budgets_of(&key, facts);
        }
    }

    /// Tells the engine whether a gang may be made to make way, where that is another answer than before.
    pub(in crate::gang) fn judge_budgets_of(&mut self, key: &GangKey, facts: &mut Vec<Input>) {
        if self.cluster.budgets.is_empty() && self.protection.protected.is_empty() {
            return;
        }
        let why = self.why_protected(key);
        match why.clone() {
            Some(why) => {
                let priority = self.gangs.get(key).and_then(|gang| self.priority_of(gang));
                self.protection.protected.insert(key.clone(), (priority.unwrap_or(i32::MAX), why));
            }
            None => drop(self.protection.protected.remove(key)),
        }
        let Some(submitted) = self.gangs.get_mut(key).and_then(|gang| gang.job.as_mut()) else { return };
        let is_protected = why.is_some();
        if std::mem::replace(&mut submitted.is_protected, is_protected) != is_protected {
            facts.push(Input::GangProtected { gang: gang_of(submitted.id), is_protected });
        }
    }

    fn why_protected(&self, key: &GangKey) -> Option<Arc<str>> {
        let gang = self.gangs.get(key)?;
        gang.run()?;
        if self.suspend_of(key).is_some() {
            return None;
        }
        self.refused_by_budget(gang)
    }

    /// Which budget does not allow all pods of a gang to be evicted now, if one does not. As the API server counts: what has
    /// not begun to run, or goes already, costs nothing, and of a pod within two budgets it does not know what it costs.
    fn refused_by_budget(&self, gang: &Gang) -> Option<Arc<str>> {
        let namespace = &*gang.key.namespace;
        let mut budgets = self.cluster.budgets.within(namespace).peekable();
        budgets.peek()?;
        let counts = |pod: &&Pod| pod.known.state == State::Running && !pod.known.is_going;
        let pods = gang.pods.values().filter(|pod| pod.known.node.is_some()).filter(counts);
        let pods: Vec<_> = pods.map(|pod| (pod, pod.known.face.pod(namespace, &pod.known.name))).collect();
        let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, budget) in budgets {
            let mut wanted = 0;
            for (pod, object) in &pods {
                let known = &pod.known;
                if !budget.pods.matches(object.metadata.labels.as_ref()) {
                    continue;
                }
                if let Some(other) = seen.insert(&known.name, name) {
                    let why =
                        format!("pod {} is within two disruption budgets, {other} and {name}", known.name);
                    return Some(why.into());
                }
                let is_free = budget.spares_unready && !known.is_ready;
                wanted += usize::from(!is_free && !budget.disrupted.contains(&*known.name));
            }
            let allowed = budget.allowed.saturating_sub(self.evictions_asked(budget, gang));
            if wanted > allowed {
                let why = format!(
                    "disruption budget {name} allows {allowed} of its {wanted} pods to be evicted now"
                );
                return Some(why.into());
            }
        }
        None
    }

    /// Pods of other gangs within a budget that were to be evicted, and are not counted there yet.
    fn evictions_asked(&self, budget: &Budget, gang: &Gang) -> usize {
        let namespace = &*gang.key.namespace;
        let here = self.protection.asked.iter().filter(|(of, name)| {
            **of == *namespace && !gang.pods.contains_key(&**name) && !budget.disrupted.contains(&**name)
        });
        here.filter_map(|(_, name)| {
            let Whose::Ours(key) = self.pods.get(&*format!("{namespace}/{name}"))? else { return None };
            let known = &self.gangs.get(key)?.pods.get(&**name)?.known;
            let labels = known.face.pod(namespace, name).metadata.labels.clone();
            (!known.is_going && budget.pods.matches(labels.as_ref())).then_some(())
        })
        .count()
    }

    /// Asks for it, unless a budget would let some of the pods go and not all: it is asked again when the engine orders it
    /// again.
    pub(in crate::gang) fn stop_within_budgets(
        &mut self,
        key: &GangKey,
        job: JobId,
        call: Call,
        going: &[Arc<str>],
        is_again: bool,
    ) {
        if matches!(call, Call::Stop { suspend: None, evict: true, .. }) {
            let refused = self.gangs.get(key).and_then(|gang| self.refused_by_budget(gang));
            if let Some(why) = refused {
                if !is_again {
                    self.tell_job(job, "EvictionWaits", true, format!("it stays for now: {why}"));
                }
                return;
            }
            self.ask_budgets(key, going);
        }
        self.calls.push(call);
    }

    /// Pods of a gang are to be evicted; they are counted before their budget does.
    fn ask_budgets(&mut self, key: &GangKey, pods: &[Arc<str>]) {
        if self.cluster.budgets.within(&key.namespace).next().is_none() {
            return;
        }
        let path = |name: &Arc<str>| -> Path { (Box::from(&*key.namespace), Box::from(&**name)) };
        self.protection.asked.extend(pods.iter().map(path));
        self.cluster.budgets.touch(&key.namespace);
    }

    /// A pod is gone, or there is another of its name.
    pub(in crate::gang) fn forget_asked(&mut self, key: &GangKey, name: &str) {
        if !self.protection.asked.is_empty() {
            let path: Path = (Box::from(&*key.namespace), Box::from(name));
            self.protection.asked.remove(&path);
        }
    }

    /// Who would make way for a gang, and may not: for whoever reads why it waits.
    pub(in crate::gang) fn protected_below(&self, key: &GangKey) -> String {
        let priority = self.gangs.get(key).and_then(|gang| self.priority_of(gang));
        let below = |(of, _): &(i32, Arc<str>)| priority.is_some_and(|priority| *of < priority);
        let mut protected = self.protection.protected.iter().filter(|(_, of)| below(of));
        let Some((first, (_, why))) = protected.next() else { return String::new() };
        let more = match protected.count() {
            0 => String::new(),
            more => format!(", and {more} more may not either"),
        };
        format!("; {first} may not make way: {why}{more}")
    }

    fn priority_of(&self, gang: &Gang) -> Option<i32> {
        let spec = self.spec(&gang.key).ok().flatten();
        self.priority(gang, spec.as_ref()).ok().map(|priority| priority.value)
    }
}

#[cfg(test)]
mod tests;
