//! A stop: the pods of a start go, by their owner where that costs it nothing.

use std::sync::Arc;

use phalanx_model::{Exit, FailureClass, GangId, MemberId, StopCause};

use super::grace::grace_s;
use crate::gang::Lifecycle;
use crate::gang::state::{Member, Pod, Stage, Stop};
use crate::messages::Call;
use crate::messages::PodRef;

impl Lifecycle {
    /// Stops a start: pods that were bound go, ranks without one are gone already. The engine orders it again and again,
    /// until the last of them is gone.
    pub(in crate::gang) fn stop(&mut self, id: GangId, attempt: u32, cause: Option<&StopCause>) {
        let Some(key) = self.jobs.get(&id.job).cloned() else { return };
        let (why, suspend) = match cause {
            Some(StopCause::Preempted(_) | StopCause::Displaced { .. }) => {
                (Stop::Evicted, self.suspend_of(&key))
            }
            Some(StopCause::Failure { .. }) => (Stop::TakenBack, self.taken_back_by(&key)),
            _ => (Stop::Ended, None),
        };
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        let Some(submitted) = gang.job.as_mut() else { return };
        let Some(run) = submitted.run.as_mut().filter(|run| run.attempt == attempt) else { return };
        let is_again = matches!(std::mem::replace(&mut run.stage, Stage::Stopping(why)), Stage::Stopping(_));
        let mut going = Vec::new();
        let mut gone = Vec::new();
        let mut stays = None;
        for ((rank, seat), member) in (0..).zip(&submitted.seats).zip(&run.members) {
            let pod = seat.pod.as_ref().and_then(|name| Some((name, gang.pods.get(name)?)));
            let bound = pod.filter(|(_, pod)| {
                pod.known.node.is_some() || *member == Member::Binding || *member == Member::Bound
            });
            match bound {
                // Nobody would make it again.
                Some((name, pod)) if why == Stop::TakenBack && !pod.known.has_owner => {
                    stays = Some(Arc::clone(name));
                }
                Some((name, _)) => going.push(Arc::clone(name)),
                None if *member != Member::Exited => gone.push(MemberId { gang: id, attempt, rank }),
                None => {}
            }
        }
        if why == Stop::TakenBack {
            let stays = |pod: &Pod| !pod.known.is_going && !pod.known.is_over();
            going.retain(|name| gang.pods.get(name).is_some_and(stays));
        }
        let stops = submitted.stop;
        // Since the last time none of them went: nobody acts on the suspension.
        let is_stuck = is_again && going.len() == std::mem::replace(&mut run.staying, going.len());
        let suspend = suspend.filter(|_| why == Stop::Evicted || !is_stuck);
        let pods: Vec<PodRef> = going.iter().filter_map(|name| gang.pod_ref(name)).collect();
        if !pods.is_empty() || (why == Stop::Evicted && suspend.is_some()) {
            let note = cause.map_or_else(String::new, stop_note);
            let grace_s = grace_s(gang, stops, cause);
            suspend.iter().for_each(|owner| self.signs(owner));
            let call = Call::Stop { pods, suspend, grace_s, evict: why == Stop::Evicted, note };
            self.stop_within_budgets(&key, id.job, call, &going, is_again);
        }
        if let Some(StopCause::Preempted(preemption)) = cause.filter(|_| !is_again) {
            let by = self.jobs.get(&preemption.by.job).map_or_else(String::new, |by| format!(" by {by}"));
            self.tell_preempted(&key, &format!("preempted{by}: {}", preemption.rule));
        }
        for member in gone {
            self.exit(member, Exit::failed(FailureClass::Infrastructure, "it had no pod"));
        }
        if let Some(name) = stays {
            self.explain_staying(&key, &name);
        }
    }
}

fn stop_note(cause: &StopCause) -> String {
    match cause {
        StopCause::Preempted(eviction) => eviction.rule.to_string(),
        StopCause::Displaced { detail, .. } | StopCause::Failure { detail, .. } => detail.clone(),
        StopCause::Cancelled { by } => format!("cancelled: {by}"),
        StopCause::TimeLimit => "its time is over".to_owned(),
        StopCause::IdleLimit => "nobody used it".to_owned(),
        StopCause::Resized { .. } | StopCause::ScaledIn { .. } => "its size changes".to_owned(),
    }
}
