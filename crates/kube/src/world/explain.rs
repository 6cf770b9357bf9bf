//! Why pods wait, written onto them: for people, and for autoscalers, which look at this condition.
//!
//! Reasons are written late and slowly. A pod that starts soon needs none, and ten thousand that wait must not keep the
//! API server from binding. The same holds for events: one for a gang and a change, and [`failed`] says on which pods of a
//! gang that waits.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::failed::Failed;
use self::waiting::Waiting;
use super::call::{path_of, repeat};
use super::groups::{self, GroupStand};
use crate::messages::{ConditionOf, GangEvent, PodRef, WaitingGang};
use crate::recognise::ObjectRef;

mod failed;
mod waiting;

/// How long a pod waits before it is told why.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pods told in one turn, and the time between two turns. The pods of a gang are told in one turn, however many they are,
/// so that an autoscaler sees the gang as a whole; its namespace has the fewer in the turns after it, see [`waiting`].
const BATCH: usize = 20;
const TURN: Duration = Duration::from_millis(500);
/// Events and conditions of groups in one turn while bindings stand in line: each costs the API server as much as one of them.
const BATCH_BESIDE: usize = 2;
/// After this time a condition of a group is tried again that could not be written.
const AGAIN: Duration = Duration::from_secs(10);
/// Events that wait to be written.
const EVENTS_MAX: usize = 10_000;
/// Pods whose reasons are remembered.
const KNOWN_MAX: usize = 100_000;

/// Writes the condition `PodScheduled`.
pub(super) struct Explainer {
    notes: Arc<Mutex<Notes>>,
}

#[derive(Default)]
struct Notes {
    waiting: Waiting,
    written: HashMap<PodRef, Stand>,
    events: VecDeque<GangEvent>,
    failed: Failed,
    groups: HashMap<About, (GroupStand, Instant)>,
    /// With the time since when each of these conditions has been true or false.
    told: HashMap<About, (GroupStand, jiff::Timestamp)>,
}

/// One condition of a group.
type About = (ObjectRef, ConditionOf);

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stand {
    pub(super) reason: &'static str,
    pub(super) message: Arc<str>,
}

/// What is written in one turn.
struct Turn {
    pods: Vec<(PodRef, Stand)>,
    events: Vec<GangEvent>,
    groups: Vec<(ObjectRef, GroupStand, jiff::Timestamp)>,
}

impl Notes {
    fn explain(&mut self, now: Instant, pods: Vec<PodRef>, gang: WaitingGang, stand: &Stand) {
        self.failed.choose(&pods, gang);
        let is_news = |pod: &PodRef| self.waiting.get(pod).or_else(|| self.written.get(pod)) != Some(stand);
        let pods: Vec<PodRef> = pods.into_iter().filter(is_news).collect();
        self.waiting.insert(now, pods, stand);
    }

    /// Pods that are to be told now: whole gangs.
    fn due(&mut self, now: Instant) -> Vec<(PodRef, Stand)> {
        let due = self.waiting.due(now);
        if self.written.len() > KNOWN_MAX {
            self.written.clear();
        }
        self.written.extend(due.iter().cloned());
        for (pod, stand) in &due {
            self.failed.tell(now, pod, stand);
        }
        due
    }

    /// Groups on which something is to be said now: of each namespace the first, then of each the second, and so on.
    fn due_groups(&mut self, now: Instant, most: usize) -> Vec<(ObjectRef, GroupStand, jiff::Timestamp)> {
        let due = self.groups.iter().filter(|(_, (_, at))| *at <= now);
        let mut due: Vec<_> = due.map(|(about, (_, at))| (*at, about)).collect();
        due.sort();
        let mut before: HashMap<&str, usize> = HashMap::new();
        let mut due: Vec<_> = due
            .into_iter()
            .map(|(at, about)| {
                let before = before.entry(&about.0.namespace).or_default();
                *before += 1;
                (*before, at, about)
            })
            .collect();
        due.sort();
        let due: Vec<_> = due
            .into_iter()
            .take(most)
            .filter_map(|(.., about)| Some((about.clone(), self.groups.get(about)?.0.clone())))
            .collect();
        if self.told.len() > KNOWN_MAX {
            self.told.clear();
        }
        let clock = jiff::Timestamp::now();
        let mut said = Vec::with_capacity(due.len());
        for (about, stand) in due {
            self.groups.remove(&about);
            let before = self.told.get(&about).filter(|(before, _)| stand.is_as(before));
            let since = before.map_or(clock, |(_, since)| *since);
            said.push((about.0.clone(), stand.clone(), since));
            self.told.insert(about, (stand, since));
        }
        said
    }

    /// It could not be written: it is said again later, unless something else is to be said by then.
    fn again(&mut self, about: ObjectRef, stand: GroupStand) {
        let key = (about, stand.of());
        self.told.remove(&key);
        self.groups.entry(key).or_insert_with(|| (stand, Instant::now() + AGAIN));
    }
}

impl Explainer {
    /// `bindings` has a permit for whoever may bind now.
    pub(super) fn new(client: Client, bindings: Arc<Semaphore>) -> Self {
        let notes = Arc::new(Mutex::new(Notes::default()));
        tokio::spawn(write(client, bindings, Arc::clone(&notes)));
        Self { notes }
    }

    pub(super) fn explain(&self, pods: Vec<PodRef>, gang: WaitingGang, stand: &Stand) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.explain(Instant::now(), pods, gang, stand);
    }

    /// How a group stands. What is good is said at once, why something waits as late as it is to pods.
    pub(super) fn group(&self, about: ObjectRef, stand: GroupStand) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (about, stand.of());
        let told = notes.told.get(&key).map(|(stand, _)| stand);
        if told == Some(&stand) {
            // Whatever else was to be said is not so any more.
            notes.groups.remove(&key);
            return;
        }
        let to_be_told = notes.groups.get(&key).map(|(stand, _)| stand);
        let is_final = told.into_iter().chain(to_be_told).any(|told| told.is_final_before(&stand, &key.0));
        if is_final || notes.groups.len() >= KNOWN_MAX {
            return;
        }
        let wait = if stand.waits() { PATIENCE } else { Duration::ZERO };
        let due = Instant::now() + wait;
        let due = notes.groups.get(&key).map_or(due, |(_, at)| due.min(*at));
        notes.groups.insert(key, (stand, due));
    }

    pub(super) fn tell(&self, event: GangEvent) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        // Of what nobody could ever read in time the oldest goes.
        if notes.events.len() >= EVENTS_MAX {
            notes.events.pop_front();
        }
        notes.events.push_back(event);
    }

    /// It waits no longer.
    pub(super) fn forget(&self, pod: &PodRef) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.waiting.remove(pod);
        notes.written.remove(pod);
        notes.failed.forget(pod);
    }
}

async fn write(client: Client, bindings: Arc<Semaphore>, notes: Arc<Mutex<Notes>>) {
    loop {
        tokio::time::sleep(TURN).await;
        let now = Instant::now();
        let batch = if bindings.available_permits() == 0 { BATCH_BESIDE } else { BATCH };
        let Turn { pods, events, groups } = {
            let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
            let pods = notes.due(now);
            let groups = notes.due_groups(now, batch);
            let count = notes.events.len().min(batch);
            let mut events: Vec<GangEvent> = notes.events.drain(..count).collect();
            // What happened to gangs goes before what others still wait for.
            events.extend(notes.failed.due(now, batch - count));
            Turn { pods, events, groups }
        };
        for (about, stand, since) in groups {
            if let Err(error) = groups::write(&client, &about, &stand, since).await
                && error.may_pass_later()
            {
                notes.lock().unwrap_or_else(PoisonError::into_inner).again(about, stand);
            }
        }
        for event in events {
            post(&client, &event).await;
        }
        for (pod, Stand { reason, message }) in pods {
            let condition = json!({
                "type": "PodScheduled", "status": "False", "reason": reason, "message": &*message,
                "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            });
            let patch = json!({ "metadata": { "uid": &*pod.uid }, "status": { "conditions": [condition] } });
            // It may be bound or gone by now; then nobody reads it.
            let path = format!("{}/status", path_of(&pod));
            let _ = repeat(&client, "PATCH", &path, "application/strategic-merge-patch+json", &patch).await;
        }
    }
}

/// One event. Where it cannot be written the condition of the pods says the same.
async fn post(client: &Client, event: &GangEvent) {
    let now = jiff::Timestamp::now();
    let object = &event.about;
    // Events of what has no namespace are in this one.
    let namespace = if object.namespace.is_empty() { "default" } else { &object.namespace };
    let name = format!("{}.{:x}", object.name.chars().take(200).collect::<String>(), now.as_nanosecond());
    let body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": namespace },
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        "reportingController": "phalanx.dev/scheduler",
        "reportingInstance": "phalanx-scheduler",
        "action": "Schedule",
        "reason": event.reason,
        "type": if event.is_warning { "Warning" } else { "Normal" },
        "note": event.note.chars().take(NOTE_MAX).collect::<String>(),
        "regarding": {
            "apiVersion": object.api_version, "kind": object.kind, "namespace": object.namespace,
            "name": object.name, "uid": object.uid,
        },
    });
    let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let _ = repeat(client, "POST", &path, "application/json", &body).await;
}

/// The API takes notes of up to 1 KiB.
const NOTE_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn gang(name: &str, pods: usize) -> Vec<PodRef> {
        let pod = |at| PodRef {
            namespace: "x".into(),
            name: format!("{name}-{at}").into(),
            uid: format!("{name}-{at}").into(),
        };
        (0..pods).map(pod).collect()
    }

    fn told(name: &str) -> WaitingGang {
        WaitingGang { name: name.into(), about: None }
    }

    fn stand(message: &str) -> Stand {
        Stand { reason: "Unschedulable", message: message.into() }
    }

    fn said(due: Vec<(ObjectRef, GroupStand, jiff::Timestamp)>) -> Vec<(ObjectRef, GroupStand)> {
        due.into_iter().map(|(about, stand, _)| (about, stand)).collect()
    }

    fn names(due: &[(PodRef, Stand)]) -> Vec<&str> {
        due.iter().map(|(pod, _)| &*pod.name).collect()
    }

    /// Autoscalers look at pods that they see together: of a gang told in parts they would buy nodes for parts.
    #[test]
    fn all_pods_of_a_gang_are_told_in_one_turn_and_each_gang_once() {
        let (mut notes, begun) = (Notes::default(), Instant::now());
        for name in ["a", "b", "c"] {
            notes.explain(begun, gang(name, 15), told(name), &stand("full"));
        }
        assert_eq!(notes.due(begun), []);
        let later = begun + PATIENCE;
        let first = notes.due(later);
        assert_eq!(first.len(), 30);
        assert!(names(&first).iter().all(|name| !name.starts_with('c')), "{first:?}");
        assert_eq!(notes.due(later).len(), 15);
        notes.explain(later, gang("a", 15), told("a"), &stand("full"));
        assert_eq!(notes.due(later + PATIENCE), [], "they were told that");
        assert!(notes.waiting.is_empty());
    }

    #[test]
    fn a_reason_that_changes_meanwhile_is_told_as_it_is_then_at_the_time_of_the_first() {
        let (mut notes, begun) = (Notes::default(), Instant::now());
        notes.explain(begun, gang("a", 2), told("a"), &stand("one"));
        notes.explain(begun + PATIENCE / 2, gang("a", 2), told("a"), &stand("two"));
        let due = notes.due(begun + PATIENCE);
        assert_eq!(due.iter().map(|(_, stand)| &*stand.message).collect::<Vec<_>>(), ["two", "two"]);
        // Back to what it was before it is told otherwise.
        notes.explain(begun + PATIENCE, gang("a", 2), told("a"), &stand("three"));
        notes.explain(begun + PATIENCE, gang("a", 2), told("a"), &stand("two"));
        let due = notes.due(begun + 3 * PATIENCE);
        assert!(due.iter().all(|(_, stand)| &*stand.message == "two"), "{due:?}");
    }

    /// From 1.37 on the condition is about the first time: a gang that waits anew has still been scheduled.
    #[test]
    fn that_a_group_was_scheduled_falls_back_only_where_it_is_about_now() {
        for (version, falls_back) in [("v1alpha2", true), ("v1alpha3", false), ("v1beta1", false)] {
            let explainer = Explainer { notes: Arc::default() };
            let about = groups::tests::pod_group(version);
            let due = || {
                let mut notes = explainer.notes.lock().unwrap();
                said(notes.due_groups(Instant::now() + PATIENCE, BATCH))
            };
            explainer.group(about.clone(), groups::tests::scheduled(false, "full"));
            assert_eq!(due(), [(about.clone(), groups::tests::scheduled(false, "full"))]);
            explainer.group(about.clone(), groups::tests::scheduled(true, "bound"));
            assert_eq!(due(), [(about.clone(), groups::tests::scheduled(true, "bound"))]);
            explainer.group(about.clone(), groups::tests::scheduled(false, "full"));
            assert_eq!(due().len(), usize::from(falls_back), "{version}");
        }
    }

    /// It may be scheduled and wait anew before anything is written.
    #[test]
    fn that_a_group_was_scheduled_is_written_before_it_waits_anew() {
        let explainer = Explainer { notes: Arc::default() };
        let about = groups::tests::pod_group("v1beta1");
        explainer.group(about.clone(), groups::tests::scheduled(true, "bound"));
        explainer.group(about.clone(), groups::tests::scheduled(false, "full"));
        let due = said(explainer.notes.lock().unwrap().due_groups(Instant::now() + PATIENCE, BATCH));
        assert_eq!(due, [(about, groups::tests::scheduled(true, "bound"))]);
    }

    /// As upstream has it: another message is no other status.
    #[test]
    fn the_time_of_a_condition_is_that_of_its_status_and_not_of_its_message() {
        let mut notes = Notes::default();
        let key = (groups::tests::pod_group("v1beta1"), ConditionOf::Scheduled);
        let mut since = |is_true: bool, message: &str| {
            notes.groups.insert(key.clone(), (groups::tests::scheduled(is_true, message), Instant::now()));
            let due = notes.due_groups(Instant::now(), BATCH);
            std::thread::sleep(Duration::from_millis(2));
            due[0].2
        };
        let first = since(false, "full");
        assert_eq!(since(false, "still full"), first);
        assert!(since(true, "bound") > first);
    }

    /// While an API server starts it refuses what it allows later; the group never said that it was scheduled.
    #[test]
    fn a_condition_that_could_not_be_written_is_written_later_unless_there_is_a_newer_one() {
        let explainer = Explainer { notes: Arc::default() };
        let about = groups::tests::pod_group("v1beta1");
        let due = |after: Duration| {
            let mut notes = explainer.notes.lock().unwrap();
            said(notes.due_groups(Instant::now() + after, BATCH))
        };
        let (waits, is_bound) =
            (groups::tests::scheduled(false, "full"), groups::tests::scheduled(true, "bound"));
        explainer.group(about.clone(), is_bound.clone());
        let refused = due(PATIENCE);
        explainer.notes.lock().unwrap().again(about.clone(), is_bound.clone());
        assert_eq!(due(PATIENCE), []);
        // That it was scheduled once is still to be said.
        explainer.group(about, waits.clone());
        assert_eq!(due(AGAIN), refused);
        let other = groups::tests::pod_group("v1alpha2");
        explainer.group(other.clone(), waits.clone());
        due(PATIENCE);
        explainer.group(other.clone(), is_bound.clone());
        explainer.notes.lock().unwrap().again(other.clone(), waits);
        assert_eq!(due(AGAIN), [(other, is_bound)]);
    }

    #[test]
    fn groups_of_one_namespace_do_not_keep_that_of_another_waiting() {
        let explainer = Explainer { notes: Arc::default() };
        for at in 0..1_000 {
            let mut about = groups::tests::pod_group("v1beta1");
            (about.namespace, about.name) = ("greedy".to_owned(), format!("g{at}"));
            explainer.group(about, groups::tests::scheduled(false, "never"));
        }
        explainer.group(groups::tests::pod_group("v1beta1"), groups::tests::scheduled(false, "full"));
        let due = explainer.notes.lock().unwrap().due_groups(Instant::now() + PATIENCE, BATCH);
        assert_eq!(due.len(), BATCH);
        assert!(due[..2].iter().any(|(about, ..)| about.namespace == "x"), "{due:?}");
    }
}
