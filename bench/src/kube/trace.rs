//! Every bind as the API server told it, with the moment when it did.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use phalanx_controlplane::{Api, Error, Follow};
use serde_json::Value;

use super::cluster::{PODS, member};

/// A pod of a gang got a node, or ended having one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Since the trace began.
    pub(super) at: Duration,
    pub(super) gang: usize,
    pub(super) member: usize,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Bound { node: usize },
    Gone,
}

/// The events so far, written by a thread that ends with the API server.
#[derive(Clone)]
pub(super) struct Trace {
    pub(super) began: Instant,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    events: Vec<Event>,
    bound: BTreeSet<(usize, usize)>,
    /// Why nothing more is seen.
    ended: Option<String>,
}

impl Trace {
    /// Follows the pods from what is there now; those that are bound already are not told of.
    pub(super) fn start(api: &Api) -> Result<Self, Error> {
        let events = api.follow(PODS)?;
        let trace = Self { began: Instant::now(), seen: Arc::default() };
        let writer = trace.clone();
        std::thread::spawn(move || writer.read(events));
        Ok(trace)
    }

    /// Reads until the end.
    fn read(&self, events: Follow) {
        for told in events {
            let at = self.began.elapsed();
            let Ok(mut seen) = self.seen.lock() else { return };
            match told {
                Ok(told) => seen.take(at, &told),
                Err(error) => seen.ended = Some(error.to_string()),
            }
        }
    }

    /// How many pods are bound, and when the last event was.
    ///
    /// # Errors
    /// When the watch has ended.
    pub(super) fn progress(&self) -> Result<(usize, Duration), String> {
        let seen = self.seen.lock().map_err(|e| e.to_string())?;
        let last = seen.events.last().map_or(Duration::ZERO, |event| event.at);
        seen.ended.as_ref().map_or(Ok((seen.bound.len(), last)), |why| Err(format!("the watch: {why}")))
    }

    /// All events up to now.
    pub(super) fn events(&self) -> Vec<Event> {
        self.seen.lock().map(|seen| seen.events.clone()).unwrap_or_default()
    }
}

impl Seen {
    fn take(&mut self, at: Duration, told: &Value) {
        let pod = &told["object"];
        if told["type"] == "ERROR" {
            self.ended = Some(pod["message"].to_string());
            return;
        }
        let Some((gang, member)) = pod["metadata"]["name"].as_str().and_then(member) else { return };
        let node = pod["spec"]["nodeName"].as_str().and_then(|name| name.strip_prefix("node-")?.parse().ok());
        let what = match (told["type"].as_str(), node) {
            (Some("DELETED"), _) if self.bound.remove(&(gang, member)) => What::Gone,
            (Some("ADDED" | "MODIFIED"), Some(node)) if self.bound.insert((gang, member)) => {
                What::Bound { node }
            }
            _ => return,
        };
        self.events.push(Event { at, gang, member, what });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bind_is_told_once_and_its_end_only_after_it() {
        let mut seen = Seen::default();
        let told = |kind: &str, node: Option<&str>| json!({"type": kind, "object": {"metadata": {"name": "g00001-02"}, "spec": {"nodeName": node}}});
        let at = Duration::from_secs(1);
        seen.take(at, &told("ADDED", None));
        seen.take(at, &told("DELETED", None));
        seen.take(at, &told("MODIFIED", Some("node-00007")));
        seen.take(at, &told("MODIFIED", Some("node-00007")));
        seen.take(at, &told("DELETED", Some("node-00007")));
        let whats: Vec<What> = seen.events.iter().map(|event| event.what).collect();
        assert_eq!(whats, [What::Bound { node: 7 }, What::Gone]);
        seen.take(at, &json!({"type": "ERROR", "object": {"message": "too old"}}));
        assert!(seen.ended.unwrap().contains("too old"));
    }
}
