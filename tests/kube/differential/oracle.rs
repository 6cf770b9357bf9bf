//! What kube-scheduler said of each pod.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use phalanx_controlplane::Api;
use serde_json::Value;

/// Far beyond what a decision takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// A refusal may rest on a pod whose end kube-scheduler had not heard of yet. It tries again within a second or two;
/// what stays for this long is meant.
const SECOND_THOUGHTS: Duration = Duration::from_secs(8);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// To this node.
    Bound(String),
    /// With the message of the condition.
    Refused(String),
    Gated,
    Nothing,
}

/// Watches what becomes of pods.
pub(super) struct Oracle {
    events: Receiver<Value>,
    said: BTreeMap<String, Said>,
}

impl Oracle {
    pub(super) fn watch(api: &Api) -> Self {
        let (sender, events) = channel();
        let api = api.clone();
        // It ends with the server, or with whoever listens. The server ends a watch that is read too slowly; the next
        // begins with all that is there.
        std::thread::spawn(move || {
            while let Ok(watch) = api.watch("/api/v1/pods?watch=true&resourceVersion=0") {
                for event in watch.map_while(Result::ok) {
                    if sender.send(event).is_err() {
                        return;
                    }
                }
            }
        });
        Self { events, said: BTreeMap::new() }
    }

    /// The verdict on a pod, waited for. One that is not expected gets a little time to change.
    pub(super) fn said_of(&mut self, path: &str, is_expected: impl Fn(&Said) -> bool) -> Said {
        let mut patience = PATIENCE;
        let mut began = Instant::now();
        loop {
            let said = self.said.get(path).cloned().unwrap_or(Said::Nothing);
            if is_expected(&said) || matches!(said, Said::Bound(_)) {
                return said;
            }
            if said != Said::Nothing && patience == PATIENCE {
                (patience, began) = (SECOND_THOUGHTS, Instant::now());
            }
            let Some(left) = patience.checked_sub(began.elapsed()) else { return said };
            match self.events.recv_timeout(left) {
                Ok(event) => self.hear(&event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => panic!("pods cannot be watched any more"),
            }
        }
    }

    fn hear(&mut self, event: &Value) {
        let pod = &event["object"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let path = format!("{}/{}", text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
        let said = said(pod);
        if said != Said::Nothing {
            self.said.insert(path, said);
        }
    }
}

/// What stands on a pod.
pub(super) fn said(pod: &Value) -> Said {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let conditions = pod["status"]["conditions"].as_array();
    let scheduled = conditions.into_iter().flatten().find(|one| one["type"] == "PodScheduled");
    match (pod["spec"]["nodeName"].as_str(), scheduled) {
        (Some(node), _) => Said::Bound(node.to_owned()),
        (None, Some(condition)) if condition["reason"] == "SchedulingGated" => Said::Gated,
        (None, Some(condition)) if condition["status"] == "False" => {
            Said::Refused(text(&condition["message"]))
        }
        _ => Said::Nothing,
    }
}

/// What the one node that the pod is pinned to was refused for, sorted. The others never come to a judgement.
///
/// `0/3 nodes are available: 1 Insufficient cpu, 1 Too many pods, 2 node(s) didn't satisfy plugin(s) [NodeAffinity].
/// preemption: …`
pub(super) fn reasons(message: &str) -> Vec<String> {
    let told = message.split_once("nodes are available: ").map_or(message, |(_, told)| told);
    // Behind the first sentence stands what preemption said.
    let told = told.split_once(". ").map_or(told, |(told, _)| told).trim_end_matches('.');
    let mut reasons: Vec<String> = told
        .split(", ")
        .map(|one| one.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start().to_owned())
        .filter(|one| !one.contains("didn't satisfy plugin"))
        .collect();
    reasons.sort();
    reasons
}
