//! Events of the reason `FailedScheduling`: why a pod waits, where people look for it (`kubectl describe pod`).
//!
//! An event costs the API server as much as a condition, and a gang changes its reason while others start. So the first pods of
//! a gang have the event and its object has it, and not its thousandth pod; and each of them has it again only for another
//! sort of reason, after a while for other numbers, and before the API server deletes it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{KNOWN_MAX, Stand};
use crate::messages::{FAILED_SCHEDULING, GangEvent, PodRef, WaitingGang};
use crate::recognise::ObjectRef;

/// Pods of one gang that have the event: a gang of 8 nodes has it on each pod.
const PODS_MAX: usize = 8;
/// A pod has no second event within this time, whatever changes.
const SPACING: Duration = Duration::from_secs(60);
/// A pod has no second event of the same sort within this time: of `needs 32 members, and 30 fit now` only numbers change.
const NUMBERS: Duration = Duration::from_secs(5 * 60);
/// An unchanged reason is written again after this time. The API server deletes events after an hour, its `--event-ttl`.
const RENEWAL: Duration = Duration::from_secs(30 * 60);
/// Time between two looks for events that are to be written later.
const LOOK: Duration = Duration::from_secs(10);
/// Events that wait to be written. Pods beyond that have theirs at the next look.
const EVENTS_MAX: usize = 1_000;

#[derive(Default)]
pub(super) struct Failed {
    /// Pods that have the event. Beyond [`KNOWN_MAX`] all are forgotten, and have it again with their next reason.
    pods: HashMap<PodRef, Pod>,
    /// Gangs with such pods, by name.
    gangs: HashMap<Arc<str>, Gang>,
    /// Pods that have an event to be written, in this order.
    queue: VecDeque<PodRef>,
    looked: Option<Instant>,
}

#[derive(Default)]
struct Gang {
    /// Those that have the event. They stay the same while more pods are made.
    pods: Vec<PodRef>,
    /// The object of the gang has the same events as the first of them.
    about: Option<Arc<ObjectRef>>,
}

/// One of the first pods of its gang.
struct Pod {
    gang: Arc<str>,
    /// What its condition says; nothing before that is written.
    stand: Option<Stand>,
    /// What its last event said, and when.
    said: Option<(Stand, Instant)>,
    is_queued: bool,
}

impl Pod {
    /// Whether its reason is to be written as an event now.
    fn is_due(&self, now: Instant) -> bool {
        let Some(stand) = &self.stand else { return false };
        let Some((said, at)) = &self.said else { return true };
        let after = match () {
            () if stand == said => RENEWAL,
            () if sort(stand) == sort(said) => NUMBERS,
            () => SPACING,
        };
        *at + after <= now
    }
}

/// Reasons of one sort differ in numbers and names alone.
fn sort(stand: &Stand) -> (&'static str, &str) {
    (stand.reason, stand.message.split(':').next().unwrap_or_default())
}

impl Failed {
    /// These are the pods of one gang that wait: the first of them are to have the event.
    pub(super) fn choose(&mut self, pods: &[PodRef], told: WaitingGang) {
        if self.pods.len() + PODS_MAX > KNOWN_MAX {
            self.pods.clear();
            self.gangs.clear();
            self.queue.clear();
        }
        let gang = self.gangs.entry(Arc::clone(&told.name)).or_default();
        gang.about = told.about.map(Arc::new);
        for pod in pods {
            if gang.pods.len() >= PODS_MAX {
                break;
            }
            if !self.pods.contains_key(pod) {
                let new = Pod { gang: Arc::clone(&told.name), stand: None, said: None, is_queued: false };
                self.pods.insert(pod.clone(), new);
                gang.pods.push(pod.clone());
            }
        }
    }

    /// The condition of a pod is written now.
    pub(super) fn tell(&mut self, now: Instant, pod: &PodRef, stand: &Stand) {
        if let Some(known) = self.pods.get_mut(pod) {
            known.stand = Some(stand.clone());
            self.queue(now, pod);
        }
    }

    /// Events that are to be written now.
    pub(super) fn due(&mut self, now: Instant, most: usize) -> Vec<GangEvent> {
        if self.looked.is_none_or(|looked| looked + LOOK <= now) {
            self.looked = Some(now);
            let pods = self.pods.iter().filter(|(_, pod)| !pod.is_queued && pod.is_due(now));
            let due: Vec<PodRef> = pods.map(|(pod, _)| pod.clone()).take(EVENTS_MAX).collect();
            due.iter().for_each(|pod| self.queue(now, pod));
        }
        let mut events = Vec::new();
        while events.len() < most
            && let Some(pod) = self.queue.pop_front()
        {
            let Some(known) = self.pods.get_mut(&pod) else { continue };
            known.is_queued = false;
            let Some(stand) = known.stand.clone() else { continue };
            let event = |about: ObjectRef| GangEvent {
                about,
                reason: FAILED_SCHEDULING,
                is_warning: true,
                note: stand.message.to_string(),
            };
            events.push(event(pod.object()));
            let gang = self.gangs.get(&known.gang).filter(|gang| gang.pods.first() == Some(&pod));
            events.extend(gang.and_then(|gang| gang.about.as_deref()).cloned().map(event));
            known.said = Some((stand, now));
        }
        events
    }

    /// It waits no longer.
    pub(super) fn forget(&mut self, pod: &PodRef) {
        let Some(known) = self.pods.remove(pod) else { return };
        let Some(gang) = self.gangs.get_mut(&known.gang) else { return };
        gang.pods.retain(|other| other != pod);
        if gang.pods.is_empty() {
            self.gangs.remove(&known.gang);
        }
    }

    fn queue(&mut self, now: Instant, pod: &PodRef) {
        let Some(known) = self.pods.get_mut(pod) else { return };
        if known.is_due(now) && !known.is_queued && self.queue.len() < EVENTS_MAX {
            known.is_queued = true;
            self.queue.push_back(pod.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(gang: &str, count: usize) -> Vec<PodRef> {
        let pod = |at| PodRef {
            namespace: "x".into(),
            name: format!("{gang}-{at}").into(),
            uid: format!("{gang}-{at}").into(),
        };
        (0..count).map(pod).collect()
    }

    fn job(name: &str) -> ObjectRef {
        ObjectRef { kind: "Job".to_owned(), name: name.to_owned(), ..pods(name, 1)[0].object() }
    }

    fn stand(message: &str) -> Stand {
        Stand { reason: "Unschedulable", message: message.into() }
    }

    /// All pods of a gang are told this, as [`super::super::Notes`] does.
    fn tell(failed: &mut Failed, now: Instant, pods: &[PodRef], message: &str) {
        let name = pods[0].name.split('-').next().unwrap().into();
        failed.choose(pods, WaitingGang { name, about: Some(job("owner")) });
        pods.iter().for_each(|pod| failed.tell(now, pod, &stand(message)));
    }

    fn names(events: &[GangEvent]) -> Vec<&str> {
        events.iter().map(|event| &*event.about.name).collect()
    }

    #[test]
    fn of_a_gang_of_a_thousand_pods_the_first_have_the_event_and_its_object() {
        let (mut failed, now) = (Failed::default(), Instant::now());
        tell(&mut failed, now, &pods("g", 1_000), "Resources: needs 1000 members at once, and 30 fit now");
        let events = failed.due(now, 100);
        assert_eq!(names(&events), ["g-0", "owner", "g-1", "g-2", "g-3", "g-4", "g-5", "g-6", "g-7"]);
        assert!(events.iter().all(|event| event.is_warning && event.reason == "FailedScheduling"));
        assert!(events.iter().all(|event| event.note.ends_with("and 30 fit now")), "{events:?}");
        assert_eq!(failed.due(now, 100), []);
    }

    /// The controller of a Job makes hundreds of pods in parts, and their names are in no order of time.
    #[test]
    fn the_pods_with_the_event_stay_the_same_while_more_are_made_and_others_follow_those_that_are_gone() {
        let (mut failed, now) = (Failed::default(), Instant::now());
        let mut all = pods("g", 40);
        tell(&mut failed, now, &all[20..], "GangNotReady: 20 of 40 pods exist");
        assert_eq!(failed.due(now, 100).len(), 9);
        tell(&mut failed, now, &all, "GangNotReady: 20 of 40 pods exist");
        assert_eq!(failed.due(now, 100), []);
        failed.forget(&all.remove(20));
        tell(&mut failed, now, &all, "GangNotReady: 39 of 40 pods exist");
        let first_after: Vec<GangEvent> = failed.due(now, 100);
        assert_eq!(names(&first_after), ["g-0"], "the object goes with the first of those that stay");
        all.iter().for_each(|pod| failed.forget(pod));
        assert!(failed.pods.is_empty() && failed.gangs.is_empty());
    }

    #[test]
    fn other_numbers_are_told_after_a_while_another_sort_of_reason_sooner_and_an_equal_one_at_last() {
        let (mut failed, begun) = (Failed::default(), Instant::now());
        let all = pods("g", 1);
        let mut events_at = |after: Duration, message: &str| {
            tell(&mut failed, begun + after, &all, message);
            let events = failed.due(begun + after, 100);
            events.iter().map(|event| event.note.clone()).collect::<Vec<_>>()
        };
        let one = Duration::from_secs(1);
        assert_eq!(events_at(Duration::ZERO, "Resources: 1 fits").len(), 2);
        assert_eq!(events_at(one, "Resources: 2 fit"), [""; 0]);
        assert_eq!(events_at(2 * one, "Preempting: job 1"), [""; 0], "not a second event within a minute");
        assert_eq!(events_at(SPACING, "Preempting: job 1"), ["Preempting: job 1"; 2]);
        let changed = SPACING + NUMBERS - one;
        assert_eq!(events_at(changed, "Preempting: job 2"), [""; 0]);
        assert_eq!(events_at(changed + LOOK, "Preempting: job 2"), ["Preempting: job 2"; 2]);
        let renewed = changed + LOOK + RENEWAL;
        assert_eq!(events_at(renewed - one, "Preempting: job 2"), [""; 0]);
        assert_eq!(events_at(renewed, "Preempting: job 2"), ["Preempting: job 2"; 2]);
    }

    #[test]
    fn what_changed_too_early_for_an_event_has_it_later_and_a_pod_that_is_gone_has_none() {
        let (mut failed, begun) = (Failed::default(), Instant::now());
        let all = pods("g", 2);
        tell(&mut failed, begun, &all, "Resources: 1 fits");
        assert_eq!(failed.due(begun, 100).len(), 3);
        tell(&mut failed, begun + Duration::from_secs(1), &all, "QueueLimit: its queue is full");
        failed.forget(&all[1]);
        assert_eq!(failed.due(begun + Duration::from_secs(1), 100), []);
        let later = failed.due(begun + SPACING + LOOK, 100);
        assert_eq!(names(&later), ["g-0", "owner"]);
        assert!(later[0].note.starts_with("QueueLimit"), "{later:?}");
    }

    #[test]
    fn events_of_many_gangs_are_written_in_parts_and_none_is_lost_for_good() {
        let (mut failed, mut now) = (Failed::default(), Instant::now());
        for at in 0..2_000 {
            tell(&mut failed, now, &pods(&format!("g{at}"), 1), "Resources: full");
        }
        assert_eq!(failed.due(now, 20).len(), 20);
        assert_eq!(failed.queue.len(), EVENTS_MAX - 10, "the object of each has one, too");
        let mut written = 10;
        while written < 2_000 && now < failed.looked.unwrap() + Duration::from_secs(3_600) {
            now += Duration::from_millis(500);
            written += failed.due(now, 20).len() / 2;
        }
        assert_eq!(written, 2_000);
    }
}
