//! What gangs wait for: for the conditions of their pods, and for the statuses of queues.
//!
//! Autoscalers buy nodes for pods whose condition has the reason `Unschedulable`. So only those have it that nodes would
//! help; all others have a word of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_model::{JobId, QueueName};

use crate::crd::WaitingStatus;
use crate::gang::Lifecycle;
use crate::messages::{Call, WaitingGang, WaitsFor};
use crate::recognise::GangKey;

/// Why a gang waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) what: WaitsFor,
    /// In a sentence.
    pub(crate) why: Arc<str>,
}

/// Gangs that a queue's status names, of all that wait there.
pub const NAMED_MAX: usize = 10;
/// The reason of a gang that no scheduling cycle has come to yet.
const UNJUDGED: &str = "Evaluating";
/// Characters of a reason in there.
const REASON_MAX: usize = 300;

impl Lifecycle {
    /// Why a gang waits, on these pods of it.
    pub(in crate::gang) fn say(
        &mut self,
        key: &GangKey,
        pods: &[Arc<str>],
        waits_for: WaitsFor,
        message: Arc<str>,
    ) {
        let Some(gang) = self.gangs.get(key) else { return };
        let pods: Vec<_> = pods.iter().filter_map(|name| gang.pod_ref(name)).collect();
        if !pods.is_empty() {
            let about = self.said(key).and_then(|spec| spec.object.clone());
            let gang = WaitingGang { name: key.to_string().into(), about };
            self.calls.push(Call::Explain { pods, gang, reason: waits_for.reason(), message });
        }
    }

    /// What one waits for that stands in line behind another. Nodes help it where they would help that one.
    pub(in crate::gang) fn waits_behind(&self, first: &GangKey) -> WaitsFor {
        let waits = self.gangs.get(first).and_then(|gang| gang.waits.as_ref());
        if waits.is_some_and(|waits| waits.what == WaitsFor::Nodes) {
            WaitsFor::Nodes
        } else {
            WaitsFor::TURN
        }
    }

    /// The same on the pods of those behind it, where that has changed.
    pub(in crate::gang) fn tell_behind(&mut self, first: &GangKey) {
        let job = self.gangs.get(first).and_then(|gang| gang.job.as_ref());
        let Some(line) = job.and_then(|job| job.line.as_ref()) else { return };
        let what = self.waits_behind(first);
        let behind: Vec<GangKey> = self.constraints.serial.behind(line).cloned().collect();
        for key in behind {
            let Some(gang) = self.gangs.get_mut(&key) else { continue };
            let Some(waits) = gang.waits.as_mut().filter(|waits| waits.what != what) else { continue };
            waits.what = what;
            let (why, pods) = (Arc::clone(&waits.why), gang.unbound());
            self.say(&key, &pods, what, why);
        }
    }

    /// How many gangs wait, by queue and reason. `queued` are the pending jobs of the engine with their queues; of a gang that
    /// is not complete, or was refused, the queue is not known yet.
    #[must_use]
    pub fn pending(&self, queued: &[(QueueName, JobId)]) -> BTreeMap<(Option<QueueName>, &'static str), i64> {
        let mut counts: BTreeMap<(Option<QueueName>, &'static str), i64> = BTreeMap::new();
        let mut count = |queue: Option<&QueueName>, waits: Option<&Waiting>| {
            let reason = waits.map_or(UNJUDGED, |waits| waits.what.reason());
            *counts.entry((queue.cloned(), reason)).or_default() += 1;
        };
        for (queue, job) in queued {
            let gang = self.jobs.get(job).and_then(|key| self.gangs.get(key));
            gang.into_iter().for_each(|gang| count(Some(queue), gang.waits.as_ref()));
        }
        let others = self.gangs.values().filter(|gang| gang.job.is_none() && gang.waits.is_some());
        others.for_each(|gang| count(None, gang.waits.as_ref()));
        counts
    }

    /// The first gangs of `line` of each queue and of those below it, and why they wait.
    pub(in crate::gang) fn waiting(
        &self,
        line: &[(QueueName, JobId)],
    ) -> BTreeMap<QueueName, Vec<WaitingStatus>> {
        let mut of_queues: BTreeMap<QueueName, Vec<WaitingStatus>> = BTreeMap::new();
        for (queue, job) in line {
            let Some(gang) = self.jobs.get(job).and_then(|key| self.gangs.get(key)) else { continue };
            let mut status = None;
            for queue in self.cluster.queues.upwards(queue) {
                let of_it = of_queues.entry(queue.clone()).or_default();
                if of_it.len() < NAMED_MAX {
                    of_it.push(status.get_or_insert_with(|| gang.waiting()).clone());
                }
            }
        }
        of_queues
    }
}

impl crate::gang::state::Gang {
    fn waiting(&self) -> WaitingStatus {
        let since = i64::try_from(self.created().0).ok().and_then(|ms| {
            let at = jiff::Timestamp::from_millisecond(ms).ok()?;
            Some(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        });
        let reason = self.waits.as_ref().map_or("it was not looked at yet", |waits| &*waits.why);
        WaitingStatus {
            gang: self.key.to_string(),
            since: since.unwrap_or_default(),
            reason: reason.chars().take(REASON_MAX).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
