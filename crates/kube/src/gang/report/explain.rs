//! Why a gang waits and what happens to it, on its pods, its owner and its group.

use std::sync::Arc;

use phalanx_model::JobId;

use crate::gang::Lifecycle;
use crate::gang::constraints::dependent;
use crate::gang::objects::Told;
use crate::gang::report::waits::Waiting;
use crate::gang::state::Gang;
use crate::messages::{Call, ConditionOf, GangEvent, GroupCondition, WAITING, WaitsFor};
use crate::recognise::names::phalanx;
use crate::recognise::{GangKey, ObjectRef, Source};

impl Lifecycle {
    /// Says once for all of its pods what happened to a gang.
    pub fn tell_job(&mut self, job: JobId, reason: &'static str, is_warning: bool, note: String) {
        let gang = self.jobs.get(&job).and_then(|key| self.gangs.get(key));
        let is_told = |gang: &&Gang| !self.is_deleted(&gang.key);
        if let Some(about) = gang.filter(is_told).and_then(|gang| self.about(gang)) {
            self.calls.push(Call::Tell(Box::new(GangEvent { about, reason, is_warning, note })));
        }
    }

    /// Whether its object was deleted: its pods go with it, and there is nobody left to be told.
    pub(in crate::gang) fn is_deleted(&self, key: &GangKey) -> bool {
        let gang = self.gangs.get(key);
        let are_made = gang.is_some_and(|gang| gang.pods.values().all(|pod| pod.known.has_owner));
        are_made && key.source.has_object() && self.told(key).is_none()
    }

    /// The object of a gang, or its first pod.
    pub(in crate::gang) fn about(&self, gang: &Gang) -> Option<ObjectRef> {
        let object = self.said(&gang.key).and_then(|spec| spec.object.clone());
        let of_pod = || Some(gang.pod_ref(gang.pods.keys().next()?)?.object());
        object.or_else(of_pod)
    }

    /// Why a gang waits, for its pods.
    pub fn explain_job(&mut self, job: JobId, waits_for: WaitsFor, why: &str) {
        let Some(key) = self.jobs.get(&job).cloned() else { return };
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        gang.refused = None;
        let mut why = why.to_owned();
        if waits_for == WaitsFor::NEARER {
            why.push_str(&format!(" with `{}: anywhere`", phalanx::WAIT));
        }
        why.extend(gang.job.as_ref().map(dependent));
        if waits_for == WaitsFor::Nodes {
            why.extend(self.shortage(job).map(|short| format!("; {short}")));
            why.push_str(&self.protected_below(&key));
        }
        self.explain(&key, waits_for, &why);
    }

    pub(in crate::gang) fn explain(&mut self, key: &GangKey, waits_for: WaitsFor, why: &str) {
        self.tell_groups(key, Some(waits_for), why);
        let Some(gang) = self.gangs.get_mut(key) else { return };
        let before = gang.waits.replace(Waiting { what: waits_for, why: why.into() });
        if before.is_none_or(|before| before.what != waits_for) {
            self.tell_behind(key);
        }
        self.tell_volcano(key);
        self.provision(key, Some(waits_for));
        let Some(gang) = self.gangs.get(key) else { return };
        let pods = gang.unbound();
        if !pods.is_empty() {
            return self.say(key, &pods, waits_for, why.into());
        }
        // A suspended owner has no pods that could say it. Once for each sort of reason: the rest of it changes all the time.
        let word = why.split(':').next().unwrap_or_default();
        if !gang.pods.is_empty() || gang.said.as_deref() == Some(word) {
            return;
        }
        let Some(about) = self.said(key).and_then(|spec| spec.object.clone()) else { return };
        if let Some(gang) = self.gangs.get_mut(key) {
            gang.said = Some(word.into());
        }
        let tidings = GangEvent { about, reason: WAITING, is_warning: false, note: why.to_owned() };
        self.calls.push(Call::Tell(Box::new(tidings)));
    }

    /// Says on upstream's group, or on the one that the owner made for its pods, whether it is scheduled: what it waits for,
    /// where it is not.
    pub(in crate::gang) fn tell_groups(&mut self, key: &GangKey, waits_for: Option<WaitsFor>, message: &str) {
        let message: Arc<str> = message.into();
        let is_true = waits_for.is_none();
        let reason = waits_for.map_or("Scheduled", WaitsFor::group_reason);
        let condition = |of, is_true| (of, is_true, reason, Arc::clone(&message));
        self.set_conditions(key, |told| {
            let scheduled =
                (is_true || !told.was_scheduled).then(|| condition(ConditionOf::Scheduled, is_true));
            // It runs again: that it was preempted is over.
            let restarted = is_true && told.is_disrupted;
            scheduled
                .into_iter()
                .chain(restarted.then(|| condition(ConditionOf::Disruption, false)))
                .collect()
        });
    }

    /// Says on upstream's group, or on the one that the owner made for its pods, that it is preempted.
    pub(in crate::gang) fn tell_preempted(&mut self, key: &GangKey, why: &str) {
        let why: Arc<str> = why.into();
        self.set_conditions(key, |_| {
            vec![(ConditionOf::Disruption, true, "PreemptionByScheduler", Arc::clone(&why))]
        });
    }

    /// What a condition is about, whether it is true, its reason and its message, for each of upstream's groups of a gang.
    fn set_conditions(
        &mut self,
        key: &GangKey,
        conditions: impl Fn(&Told) -> Vec<(ConditionOf, bool, &'static str, Arc<str>)>,
    ) {
        let owner = (key.source.word().to_owned(), key.namespace.to_string(), key.name.to_string());
        let made = self.above.get(&owner).into_iter().flat_map(|above| &above.owned);
        let groups = made.chain([key]).filter(|group| group.source == Source::PodGroup);
        let mut calls = Vec::new();
        for told in groups.filter_map(|group| self.told(group)) {
            let spec = told.specs.as_ref().ok().and_then(|specs| specs.first());
            let Some(about) = spec.and_then(|spec| spec.object.clone()) else { continue };
            for (of, is_true, reason, message) in conditions(told) {
                let condition = GroupCondition { of, is_true, reason, message };
                calls.push(Call::Group { about: about.clone(), condition });
            }
        }
        self.calls.extend(calls);
    }
}
