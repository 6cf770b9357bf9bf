//! A stop: the pods of a start go, by their owner where that costs it nothing.

use std::sync::Arc;

use phalanx_model::{Exit, FailureClass, GangId, MemberId, Slot, StopCause};

use super::grace::grace_s;
use crate::gang::Lifecycle;
use crate::gang::state::{Member, Pod, Stage, Stop};
use crate::messages::{Call, PodRef, Stopping};
use crate::recognise::GangKey;

impl Lifecycle {
    /// Stops a start: pods that were bound go, ranks without one are gone already. The engine orders it again and again,
    /// until the last of them is gone.
    pub(in crate::gang) fn stop(&mut self, id: GangId, attempt: u32, stopping: Option<&Stopping>) {
        let cause = stopping.map(|stopping| &stopping.cause);
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
        run.is_leaving = stopping.is_none_or(|stopping| stopping.frees_exited);
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
        self.free_exited(&key);
        for member in gone {
            self.exit(member, Exit::failed(FailureClass::Infrastructure, "it had no pod"));
        }
        if let Some(name) = stays {
            self.explain_staying(&key, &name);
        }
    }
}

impl Lifecycle {
    /// The places of ranks that exited are free, as the engine counts them, once it stops their start.
    pub(in crate::gang) fn free_exited(&mut self, key: &GangKey) {
        let Some(gang) = self.gangs.get_mut(key) else { return };
        let Some(run) = gang.job.as_mut().and_then(|submitted| submitted.run.as_mut()) else { return };
        let freed = run.free_exited();
        self.give_back(key, freed);
    }

    /// Places that ranks of a gang hold no longer.
    pub(in crate::gang) fn give_back(&mut self, key: &GangKey, freed: impl IntoIterator<Item = Slot>) {
        for slot in freed {
            // A pod that is bound there all the same counts by itself from now on.
            self.changed.insert(key.clone());
            self.cluster.nodes.ours(&slot.node, slot.devices, false);
        }
    }
}

fn stop_note(cause: &StopCause) -> String {
    match cause {
        StopCause::Preempted(eviction) => eviction.rule.to_string(),
        StopCause::Moved { .. } => "it moves to open a place for another gang".to_owned(),
        StopCause::Displaced { detail, .. } | StopCause::Failure { detail, .. } => detail.clone(),
        StopCause::Cancelled { by } => format!("cancelled: {by}"),
        StopCause::TimeLimit => "its time is over".to_owned(),
        StopCause::IdleLimit => "nobody used it".to_owned(),
        StopCause::Resized { .. } | StopCause::ScaledIn { .. } => "its size changes".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use phalanx_model::QueueName;
    use serde_json::{Value, json};

    use crate::crd;
    use crate::gang::Options;
    use crate::gang::constraints::tests::Play;
    use crate::messages::Event;

    /// A pod of a group whose pods nobody makes again.
    fn pod(name: &str, group: &str, cpu: &str) -> Value {
        json!({
            "metadata": { "namespace": "x", "name": name, "uid": name, "labels": {
                "pod-group.scheduling.sigs.k8s.io/name": group,
                "pod-group.scheduling.sigs.k8s.io/min-available": "2" } },
            "spec": { "schedulerName": "phalanx",
                "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] },
        })
    }

    fn is_going(mut pod: Value) -> Value {
        pod["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
        pod
    }

    /// An MPIJob's workers were deleted, and its launcher was held by a finalizer for minutes: its nodes counted as used.
    #[test]
    fn what_a_pod_held_is_free_once_it_is_gone_though_another_of_its_gang_lingers() {
        let mut play = Play::of(2);
        for (name, cpu) in [("launcher", "1"), ("worker", "7")] {
            play.see(name, pod(name, "mpi", cpu));
        }
        play.turn();
        assert_eq!(play.bound.len(), 2, "{:?}", play.reasons);
        let waits = |play: &mut Play, name: &str, group: &str, cpu: &str| {
            play.see(name, pod(name, group, cpu));
        };
        waits(&mut play, "next-0", "next", "7");
        waits(&mut play, "next-1", "next", "7");
        play.turn();
        assert!(
            !play.bound.contains_key("next-0"),
            "one node has 7 CPUs beside the launcher, or neither has"
        );
        let launcher = is_going(play.pods["launcher"].clone());
        play.see("launcher", launcher);
        play.turn();
        play.delete("worker");
        play.turn();
        assert!(play.bound.contains_key("launcher"), "its finalizer holds it");
        assert!(play.bound.contains_key("next-0") && play.bound.contains_key("next-1"), "{:?}", play.reasons);
        // What is left of it goes at last, and takes nothing of the others with it.
        play.delete("launcher");
        play.turn();
        waits(&mut play, "last-0", "last", "1");
        waits(&mut play, "last-1", "last", "1");
        play.turn();
        let placed = |name: &str| play.bound[name].clone();
        assert_ne!(placed("last-0"), placed("last-1"), "each node has one CPU left: {:?}", play.bound);
    }

    /// A successor counts what is there: the pod that lingers, and nothing of those that are gone.
    #[test]
    fn after_a_restart_the_pod_that_lingers_holds_only_what_is_its_own() {
        let mut play = Play::of(2);
        for (name, cpu) in [("launcher", "1"), ("worker", "7")] {
            play.see(name, pod(name, "mpi", cpu));
        }
        play.turn();
        let mut next = Play::listing(2);
        next.see("launcher", is_going(play.pods["launcher"].clone()));
        for name in ["next-0", "next-1"] {
            next.see(name, pod(name, "next", "7"));
        }
        next.turn();
        assert!(next.bound.contains_key("next-0") && next.bound.contains_key("next-1"), "{:?}", next.reasons);
    }

    const MINUTE_MS: u64 = 60_000;

    /// A pod without a group that takes a whole node.
    fn whole_node(name: &str, priority: i32) -> Value {
        json!({ "metadata": { "namespace": "x", "name": name, "uid": name },
            "spec": { "schedulerName": "phalanx", "priority": priority,
                "containers": [{ "name": "c", "resources": { "requests": { "cpu": "8" } } }] } })
    }

    /// By default, as the scheduler starts without flags.
    fn by_default() -> Play {
        let default = Options::of_queue(QueueName::new("default").unwrap());
        Play::listing_with(1, default.min_run_ms)
    }

    fn share(play: &mut Play, spec: Value) {
        let policy = crd::SharePolicy::new("default", serde_json::from_value(spec).unwrap());
        play.event(Event::Policy(Some(Box::new(policy))));
    }

    /// Each priority had a `minRun` of 0: a Job was suspended 5 s after its start.
    #[test]
    fn a_gang_runs_for_ten_minutes_before_it_is_preempted_where_no_policy_says_otherwise() {
        let mut play = by_default();
        play.see("low", whole_node("low", 0));
        play.turn();
        assert!(play.bound.contains_key("low"), "{:?}", play.reasons);
        play.see("high", whole_node("high", 1_000));
        play.turn();
        play.wait(9 * MINUTE_MS);
        assert_eq!((play.bound.contains_key("high"), play.stops.len()), (false, 0), "{:?}", play.stops);
        play.wait(2 * MINUTE_MS);
        assert_eq!((play.bound.contains_key("high"), play.stops.len()), (true, 1), "{:?}", play.reasons);
    }

    /// Of the class only `graceMax` counted.
    #[test]
    fn a_class_of_the_policy_holds_for_pods_whose_priority_is_its_rank() {
        for (class, is_preempted) in [
            (json!({ "name": "short", "rank": 5, "minRun": "0s" }), true),
            (json!({ "name": "default", "rank": 5 }), false),
            (json!({ "name": "kept", "rank": 5, "minRun": "0s", "preemptible": false }), false),
            (json!({ "name": "other", "rank": 6, "minRun": "0s" }), false),
        ] {
            let mut play = by_default();
            share(&mut play, json!({ "classes": [class], "defaultClass": class["name"] }));
            play.see("low", whole_node("low", 5));
            play.turn();
            assert!(play.bound.contains_key("low"), "{:?}", play.reasons);
            play.see("high", whole_node("high", 1_000));
            play.turn();
            assert_eq!(play.bound.contains_key("high"), is_preempted, "{class} {:?}", play.stops);
        }
        // The class of the pod that waits may forbid it as well.
        let mut play = by_default();
        let classes = json!([{ "name": "short", "rank": 5, "minRun": "0s" }, { "name": "patient", "rank": 1_000, "preempts": false }]);
        share(&mut play, json!({ "classes": classes, "defaultClass": "short" }));
        play.see("low", whole_node("low", 5));
        play.turn();
        play.see("high", whole_node("high", 1_000));
        play.turn();
        play.wait(2 * MINUTE_MS);
        assert_eq!((play.bound.contains_key("high"), play.stops.len()), (false, 0), "{:?}", play.stops);
    }

    /// A successor counted from the creation of the pods: one that had waited for an hour had no `minRun` left.
    #[test]
    fn after_a_restart_the_time_that_a_gang_runs_counts_from_the_start_of_its_containers() {
        let mut before = by_default();
        let created = "2027-01-15T07:00:00Z";
        let mut low = whole_node("low", 0);
        low["metadata"]["creationTimestamp"] = json!(created);
        before.see("low", low);
        before.turn();
        let mut low = before.pods["low"].clone();
        let started = "2027-01-15T07:59:00Z";
        low["status"]["containerStatuses"] = json!([{ "name": "c", "image": "i", "imageID": "i", "ready": true,
            "restartCount": 0, "state": { "running": { "startedAt": started } } }]);
        // It is 08:00 now.
        let mut next = by_default();
        next.bound.insert("low".to_owned(), "a1".to_owned());
        next.see("low", low);
        next.turn();
        next.see("high", whole_node("high", 1_000));
        next.turn();
        next.wait(8 * MINUTE_MS);
        assert_eq!((next.bound.contains_key("high"), next.stops.len()), (false, 0), "{:?}", next.stops);
        next.wait(2 * MINUTE_MS);
        assert!(next.bound.contains_key("high"), "{:?}", next.reasons);
    }
}
