//! Why pods wait, written onto them: for people, and for autoscalers, which look at this condition.
//!
//! Reasons are written late and slowly. A pod that starts soon needs none, and ten thousand that wait must not keep the
//! API server from binding. The same holds for events: one for a gang and a change.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use serde_json::json;

use super::call::{path_of, repeat};
use crate::books::{PodRef, Tidings};
use crate::gang::ObjectRef;

/// How long a pod waits before it is told why.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pods told in one turn, and the time between two turns.
const BATCH: usize = 20;
const TURN: Duration = Duration::from_millis(500);
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
    waiting: HashMap<PodRef, (Arc<str>, tokio::time::Instant)>,
    written: HashMap<PodRef, Arc<str>>,
    events: VecDeque<Tidings>,
    groups: HashMap<ObjectRef, (Stand, tokio::time::Instant)>,
    told: HashMap<ObjectRef, Stand>,
}

/// Whether a group is scheduled, and why not.
type Stand = (bool, Arc<str>);

/// What is written in one turn.
struct Turn {
    pods: Vec<(PodRef, Arc<str>)>,
    events: Vec<Tidings>,
    groups: Vec<(ObjectRef, Stand)>,
}

impl Explainer {
    pub(super) fn new(client: Client) -> Self {
        let notes = Arc::new(Mutex::new(Notes::default()));
        tokio::spawn(write(client, Arc::clone(&notes)));
        Self { notes }
    }

    pub(super) fn explain(&self, pods: Vec<PodRef>, message: &Arc<str>) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let due = tokio::time::Instant::now() + PATIENCE;
        for pod in pods {
            if notes.written.get(&pod) != Some(message) && notes.waiting.len() < KNOWN_MAX {
                notes
                    .waiting
                    .entry(pod)
                    .and_modify(|(old, _)| *old = Arc::clone(message))
                    .or_insert((Arc::clone(message), due));
            }
        }
    }

    /// How upstream's group stands. What is scheduled is said at once, why something waits as late as it is to pods.
    pub(super) fn group(&self, about: ObjectRef, is_scheduled: bool, message: Arc<str>) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let stand = (is_scheduled, message);
        let told = notes.told.get(&about);
        // Of later versions the condition is about the first time, which stays.
        let is_final = !is_scheduled && !can_fall_back(&about) && told.is_some_and(|(was, _)| *was);
        if is_final || told == Some(&stand) || notes.groups.len() >= KNOWN_MAX {
            return;
        }
        let wait = if is_scheduled { Duration::ZERO } else { PATIENCE };
        let due = tokio::time::Instant::now() + wait;
        let due = notes.groups.get(&about).map_or(due, |(_, at)| due.min(*at));
        notes.groups.insert(about, (stand, due));
    }

    pub(super) fn tell(&self, event: Tidings) {
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
    }
}

async fn write(client: Client, notes: Arc<Mutex<Notes>>) {
    loop {
        tokio::time::sleep(TURN).await;
        let now = tokio::time::Instant::now();
        let Turn { pods, events, groups } = {
            let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
            let due: Vec<_> = notes
                .waiting
                .iter()
                .filter(|(_, (_, at))| *at <= now)
                .take(BATCH)
                .map(|(pod, (message, _))| (pod.clone(), Arc::clone(message)))
                .collect();
            if notes.written.len() > KNOWN_MAX {
                notes.written.clear();
            }
            for (pod, message) in &due {
                notes.waiting.remove(pod);
                notes.written.insert(pod.clone(), Arc::clone(message));
            }
            let groups: Vec<(ObjectRef, Stand)> = notes
                .groups
                .iter()
                .filter(|(_, (_, at))| *at <= now)
                .take(BATCH)
                .map(|(about, (stand, _))| (about.clone(), stand.clone()))
                .collect();
            if notes.told.len() > KNOWN_MAX {
                notes.told.clear();
            }
            for (about, stand) in &groups {
                notes.groups.remove(about);
                notes.told.insert(about.clone(), stand.clone());
            }
            let count = notes.events.len().min(BATCH);
            Turn { pods: due, events: notes.events.drain(..count).collect(), groups }
        };
        for (about, stand) in groups {
            write_group(&client, &about, &stand).await;
        }
        for event in events {
            post(&client, &event).await;
        }
        for (pod, message) in pods {
            let condition = json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": &*message,
                "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            });
            let patch = json!({ "metadata": { "uid": &*pod.uid }, "status": { "conditions": [condition] } });
            // It may be bound or gone by now; then nobody reads it.
            let path = format!("{}/status", path_of(&pod));
            let _ = repeat(&client, "PATCH", &path, "application/strategic-merge-patch+json", &patch).await;
        }
    }
}

/// Whether the condition of a group may become false again: it is about now, and not about the first time.
fn can_fall_back(group: &ObjectRef) -> bool {
    group.api_version.ends_with("/v1alpha2")
}

/// The condition of upstream's `PodGroup`. Where it cannot be written, its pods say the same.
async fn write_group(client: &Client, about: &ObjectRef, (is_scheduled, message): &Stand) {
    let condition = json!({
        "type": if can_fall_back(about) { "PodGroupScheduled" } else { "PodGroupInitiallyScheduled" },
        "status": if *is_scheduled { "True" } else { "False" },
        "reason": if *is_scheduled { "Scheduled" } else { "Unschedulable" },
        "message": &**message,
        "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    let patch = json!({ "metadata": { "uid": about.uid }, "status": { "conditions": [condition] } });
    let ObjectRef { api_version, namespace, name, .. } = about;
    let path = format!("/apis/{api_version}/namespaces/{namespace}/podgroups/{name}/status");
    let _ = repeat(client, "PATCH", &path, "application/strategic-merge-patch+json", &patch).await;
}

/// One event. Where it cannot be written the condition of the pods says the same.
async fn post(client: &Client, event: &Tidings) {
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
