//! Why pods wait, written onto them: for people, and for autoscalers, which look at this condition.
//!
//! Reasons are written late and slowly. A pod that starts soon needs none, and ten thousand that wait must not keep the
//! API server from binding.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use serde_json::json;

use super::call::{path_of, repeat};
use crate::books::PodRef;

/// How long a pod waits before it is told why.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pods told in one turn, and the time between two turns.
const BATCH: usize = 20;
const TURN: Duration = Duration::from_millis(500);
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
        let due: Vec<(PodRef, Arc<str>)> = {
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
            due
        };
        for (pod, message) in due {
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
