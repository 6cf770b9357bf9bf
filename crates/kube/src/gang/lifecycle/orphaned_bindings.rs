//! Pods of ours that are bound where their gang has no place: by a leader whose time was over, by a call whose answer came
//! too late, or on a node that is out of reach by now. They hold what they hold, and their gang does not start before they
//! are gone; of a node out of reach nobody would hear that.
//!
//! A binding that was given up without an answer may still come: its pod counts as bound until it is gone, or until no
//! request can be on its way any longer. Else its devices would be given to others, and it would come on top of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_model::{DeviceMask, MemberId, Timestamp};

use crate::cluster::nodes::OrphanedBinding;
use crate::gang::Lifecycle;
use crate::gang::pods::Known;
use crate::gang::state::{Gang, Pod, Run, Stage, Stop};
use crate::messages::{Call, WaitsFor};
use crate::recognise::GangKey;

/// For so long an API server works at a request at most, unless its `--request-timeout` says more.
pub(crate) const REQUEST_MS: u64 = 60_000;

impl Gang {
    /// Bound pods that have no rank there, and those that may still be bound there.
    fn strays_now(&self) -> BTreeMap<Arc<str>, OrphanedBinding> {
        let run = self.run();
        let seats = self.job.iter().filter(|job| job.run.is_some()).flat_map(|job| &job.seats);
        let ranks: BTreeMap<&Arc<str>, usize> =
            (0..).zip(seats).filter_map(|(rank, seat)| Some((seat.pod.as_ref()?, rank))).collect();
        let stray = |(name, pod): (&Arc<str>, &Pod)| {
            let known = &pod.known;
            let node = known.node.as_ref().filter(|_| !known.is_over())?;
            let rank = ranks.get(name).copied();
            let is_held =
                |(run, rank): (&Run, usize)| run.has_placed(rank, known) && !run.freed.contains(&rank);
            if run.zip(rank).is_some_and(is_held) {
                return None;
            }
            let devices = known.noted.as_ref().map_or(DeviceMask::EMPTY, |note| note.devices);
            let requirements = Arc::clone(&known.requirements);
            Some((Arc::clone(name), OrphanedBinding { node: node.clone(), devices, requirements }))
        };
        let is_unbound = |name: &Arc<str>| self.pods.get(name).is_some_and(|pod| pod.known.node.is_none());
        let unsettled = self.unsettled.iter().filter(|(name, _)| is_unbound(name));
        let unsettled = unsettled.map(|(name, (_, stray))| (Arc::clone(name), stray.clone()));
        self.pods.iter().filter_map(stray).chain(unsettled).collect()
    }
}

/// Whether it may be taken away. Pods of a gang too large to say on each where all are may be the whole of it.
fn is_made_again(pod: &Pod) -> bool {
    let is_part = |pod: &Pod| pod.known.noted.as_ref().is_some_and(|note| note.placement.is_some());
    pod.known.has_owner && (pod.known.node.is_none() || is_part(pod))
}

impl Lifecycle {
    /// A binding was given up, and may still come.
    pub(in crate::gang) fn unsettle(&mut self, now: Timestamp, id: MemberId) {
        let Some(key) = self.jobs.get(&id.gang.job).cloned() else { return };
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        let Gang { pods, job: Some(submitted), unsettled, .. } = gang else { return };
        let rank = id.rank as usize;
        let Some(seat) = submitted.seats.get(rank) else { return };
        let Some(slot) = submitted.run.as_ref().and_then(|run| run.placement.slots.get(rank)) else { return };
        let Some((name, pod)) = seat.pod.as_ref().and_then(|name| pods.get_key_value(name)) else { return };
        let (node, devices) = (slot.node.clone(), slot.devices);
        let stray = OrphanedBinding { node, devices, requirements: Arc::clone(&pod.known.requirements) };
        let until = now.plus(REQUEST_MS);
        unsettled.insert(Arc::clone(name), (until, stray));
        self.unsettled.insert((until, key.clone()));
        self.changed.insert(key);
    }

    /// No request can be on its way any longer.
    pub(in crate::gang) fn end_unsettled(&mut self, now: Timestamp) {
        while let Some((until, _)) = self.unsettled.first()
            && *until <= now
            && let Some((until, key)) = self.unsettled.pop_first()
        {
            if let Some(gang) = self.gangs.get_mut(&key) {
                gang.unsettled.retain(|_, (at, _)| *at > until);
                self.changed.insert(key);
            }
        }
    }

    /// What the strays of a gang hold is counted from now on, and that of former ones no longer. Whether there are any.
    pub(in crate::gang) fn count_strays(&mut self, key: &GangKey) -> bool {
        let Some(gang) = self.gangs.get_mut(key) else { return false };
        let now = gang.strays_now();
        if now == gang.strays {
            return !now.is_empty();
        }
        let before = std::mem::replace(&mut gang.strays, now.clone());
        before.values().for_each(|stray| self.cluster.nodes.stray(stray, false));
        now.values().for_each(|stray| self.cluster.nodes.stray(stray, true));
        !now.is_empty()
    }

    /// Takes away the strays of a gang, where somebody makes them again. Whether it has any that it waits for: one that waits
    /// goes on waiting then.
    pub(in crate::gang) fn take_back_strays(&mut self, key: &GangKey) -> bool {
        let is_out_of_reach =
            |known: &Known| known.is_going && self.cluster.nodes.is_out_of_reach(known.node.as_ref());
        let is_awaited = |gang: &&Gang| {
            let pod = |name| gang.pods.get(name).map(|pod| &pod.known);
            gang.strays.keys().any(|name| pod(name).is_none_or(|known| !is_out_of_reach(known)))
        };
        let Some(gang) = self.gangs.get(key).filter(is_awaited) else { return false };
        let stage = gang.run().map(|run| run.stage);
        let is_going_on = stage.is_some_and(|stage| !matches!(stage, Stage::Stopping(_)));
        // The engine is about to stop the start of one whose binding was given up.
        let is_due = |pod: &Pod| !pod.known.is_going && (pod.known.node.is_some() || !is_going_on);
        let (going, staying): (Vec<_>, Vec<_>) = gang
            .strays
            .keys()
            .filter(|name| gang.pods.get(*name).is_some_and(is_due))
            .partition(|name| gang.pods.get(*name).is_some_and(is_made_again));
        let pods: Vec<_> = going.into_iter().filter_map(|name| gang.pod_ref(name)).collect();
        let is_bound = |name: &Arc<str>| gang.pods.get(name).is_some_and(|pod| pod.known.node.is_some());
        let first = staying.into_iter().find(|name| is_bound(name)).cloned();
        // Where the others are at home they go on.
        let suspend = if is_going_on { None } else { self.taken_back_by(key) };
        let goes_back = matches!(stage, Some(Stage::Stopping(Stop::TakenBack | Stop::Evicted)));
        // Its owner takes them with all the others.
        let is_done = suspend.is_some() && (goes_back || self.is_suspended(key));
        if !pods.is_empty() && !is_done {
            let note = "it was bound without the rest of its gang".to_owned();
            suspend.iter().for_each(|owner| self.signs(owner));
            self.calls.push(Call::Stop { pods, suspend, grace_s: None, evict: false, note });
        }
        if let Some(name) = first {
            self.explain_staying(key, &name);
        }
        true
    }

    /// For the pods that wait because of one that is bound, and that nobody would make again.
    pub(in crate::gang) fn explain_staying(&mut self, key: &GangKey, name: &str) {
        let node = self.gangs.get(key).and_then(|gang| gang.pods.get(name)?.known.node.clone());
        let at = node.map_or(String::new(), |node| format!(" to {node}"));
        self.explain(
            key,
            WaitsFor::CHANGE,
            &format!(
                "pod {name} is bound{at}, the rest of its gang could not be, and nobody makes it again: it stays; delete \
                 it, and create it again, for the gang to start whole"
            ),
        );
    }
}
