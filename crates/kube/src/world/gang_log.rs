//! What the log says of gangs: one line when one starts, runs, makes way, is stopped, is refused or ends; what it waits for at
//! debug alone. Pods that start by themselves have the same lines at debug: a log grows with gangs, and not with pods.

use phalanx_model::{GangId, JobId};
use tracing::{Level, debug, enabled, info};

use super::desk::Started;
use crate::gang::Lifecycle;
use crate::messages::WaitsFor;
use crate::recognise::Source;

/// Characters of a reason: some name every node.
const WHY_MAX: usize = 400;

/// A line about a gang or a pod, as the lifecycle has them now.
macro_rules! tell {
    ($lifecycle:expr, $job:expr, $of_gang:literal, $of_pod:literal $(, $name:ident = $value:expr)* $(,)?) => {
        if enabled!(Level::INFO)
            && let Some(key) = $lifecycle.key_of($job)
        {
            if key.source != Source::Pod {
                info!(
                    namespace = &*key.namespace,
                    kind = key.source.word(),
                    gang = &*key.name,
                    part = key.part.as_deref(),
                    pods = $lifecycle.size_of($job),
                    $($name = $value,)*
                    $of_gang
                );
            } else {
                debug!(namespace = &*key.namespace, pod = &*key.name, $($name = $value,)* $of_pod);
            }
        }
    };
}

pub(super) fn starts(lifecycle: &Lifecycle, started: &Started) {
    let Started { gang, attempt, nodes, level, queue, .. } = started;
    tell!(
        lifecycle,
        gang.job,
        "gang starts",
        "pod starts",
        attempt = attempt,
        nodes = nodes,
        within = level.as_str(),
        queue = queue.as_ref().map(|queue| queue.as_str()),
    );
}

pub(super) fn runs(lifecycle: &Lifecycle, gang: GangId, attempt: u32) {
    tell!(lifecycle, gang.job, "gang runs", "pod runs", attempt = attempt);
}

/// For another that goes first.
pub(super) fn makes_way(lifecycle: &Lifecycle, job: JobId, why: &str) {
    tell!(lifecycle, job, "gang makes way", "pod makes way", reason = short(why));
}

/// It could not start whole, or lost its place.
pub(super) fn stops(lifecycle: &Lifecycle, job: JobId, why: &str) {
    tell!(lifecycle, job, "gang is stopped", "pod is stopped", reason = short(why));
}

pub(super) fn refused(lifecycle: &Lifecycle, job: JobId, waits_for: WaitsFor, why: &str) {
    let word = waits_for.reason();
    tell!(lifecycle, job, "gang is refused", "pod is refused", waits_for = word, reason = short(why));
}

pub(super) fn ended(lifecycle: &Lifecycle, job: JobId, ending: &str, why: &str) {
    let why = (!why.is_empty()).then(|| short(why));
    tell!(lifecycle, job, "gang has ended", "pod has ended", ending = ending, reason = why);
}

pub(super) fn waits(lifecycle: &Lifecycle, job: JobId, waits_for: WaitsFor, why: &str) {
    if enabled!(Level::DEBUG)
        && let Some(key) = lifecycle.key_of(job)
    {
        let (namespace, kind, gang) = (&*key.namespace, key.source.word(), &*key.name);
        let pods = lifecycle.size_of(job);
        debug!(namespace, kind, gang, pods, waits_for = waits_for.reason(), reason = short(why), "waits");
    }
}

fn short(why: &str) -> &str {
    why.char_indices().nth(WHY_MAX).map_or(why, |(at, _)| &why[..at])
}

#[cfg(test)]
mod tests {
    use phalanx_model::{Input, LevelName, QueueName, Timestamp};
    use serde_json::{Value, json};

    use super::*;
    use crate::gang::Options;
    use crate::messages::Event;
    use phalanx_shell::log::testing::text_of;
    use phalanx_shell::log::{Format, Level as Least};

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    /// Each line as the object that it is.
    fn objects_of(level: Least, what: impl FnOnce()) -> Vec<Value> {
        let text = text_of(Format::Json, level, what);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn pod(name: &str, more: &Value) -> Event {
        let mut pod = json!({
            "metadata": { "namespace": "x", "name": name, "uid": name },
            "spec": { "schedulerName": "phalanx", "containers": [{ "name": "c" }] },
        });
        pod["metadata"]["annotations"] = more.clone();
        Event::Pod(Box::new(serde_json::from_value(pod).unwrap()))
    }

    /// A gang of two and a pod by itself, both handed in.
    fn lifecycle() -> (Lifecycle, GangId, GangId) {
        let mut lifecycle = Lifecycle::new(Options::of_queue(QueueName::new("default").unwrap()));
        let node =
            json!({ "metadata": { "name": "n" }, "status": { "allocatable": { "cpu": "8", "pods": "9" } } });
        lifecycle.observe(NOW, Event::Node(Box::new(serde_json::from_value(node).unwrap())));
        let of_gang = json!({
            "gang.scheduling.koordinator.sh/name": "train", "gang.scheduling.koordinator.sh/min-available": "2",
        });
        for name in ["a", "b"] {
            lifecycle.observe(NOW, pod(name, &of_gang));
        }
        lifecycle.observe(NOW, pod("alone", &json!({})));
        let facts = lifecycle.begin(NOW);
        let jobs = facts.iter().filter_map(|fact| match fact {
            Input::JobSubmitted { job } => Some(GangId { job: job.id, index: 0 }),
            _ => None,
        });
        let (gangs, pods): (Vec<_>, Vec<_>) = jobs.partition(|gang| lifecycle.is_gang(gang.job));
        (lifecycle, gangs[0], pods[0])
    }

    fn life(lifecycle: &Lifecycle, gang: GangId) {
        let started = Started {
            gang,
            attempt: 1,
            nodes: 2,
            level: LevelName::new("leaf").unwrap(),
            queue: Some(QueueName::new("default").unwrap()),
            note: "on many nodes".to_owned(),
        };
        starts(lifecycle, &started);
        runs(lifecycle, gang, 1);
        makes_way(lifecycle, gang.job, "preempted by job 2 (other)");
        stops(lifecycle, gang.job, &"ü".repeat(2 * WHY_MAX));
        waits(lifecycle, gang.job, WaitsFor::Nodes, "no room");
        refused(lifecycle, gang.job, WaitsFor::Nodes, "it can never fit");
        ended(lifecycle, gang.job, "succeeded", "");
    }

    fn facts(mut line: Value) -> Value {
        for of_every_line in ["timestamp", "target"] {
            line.as_object_mut().unwrap().remove(of_every_line);
        }
        line
    }

    #[test]
    fn a_gang_has_one_line_for_each_thing_that_happens_to_it_with_its_size_and_the_reason() {
        let (lifecycle, gang, _) = lifecycle();
        let lines: Vec<Value> =
            objects_of(Least::Info, || life(&lifecycle, gang)).into_iter().map(facts).collect();
        let messages: Vec<&str> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
        assert_eq!(
            messages,
            [
                "gang starts",
                "gang runs",
                "gang makes way",
                "gang is stopped",
                "gang is refused",
                "gang has ended"
            ]
        );
        let of = |more: Value| {
            let mut line = json!({
                "level": "INFO", "namespace": "x", "kind": "Koordinator gang", "gang": "train", "pods": 2,
            });
            line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            line
        };
        let start = json!({ "message": "gang starts", "attempt": 1, "nodes": 2, "within": "leaf", "queue": "default" });
        assert_eq!(lines[0], of(start));
        assert_eq!(lines[2]["reason"], "preempted by job 2 (other)");
        assert_eq!(
            lines[3]["reason"],
            "ü".repeat(WHY_MAX),
            "no line grows with the nodes that a reason names"
        );
        let refusal = json!({ "message": "gang is refused", "waits_for": "Unschedulable", "reason": "it can never fit" });
        assert_eq!(lines[4], of(refusal));
        assert_eq!(lines[5], of(json!({ "message": "gang has ended", "ending": "succeeded" })));
    }

    #[test]
    fn single_pods_and_what_is_waited_for_are_details() {
        let (lifecycle, gang, pod) = lifecycle();
        assert_eq!(objects_of(Least::Info, || life(&lifecycle, pod)), [json!(null); 0]);
        let lines = objects_of(Least::Debug, || life(&lifecycle, pod));
        assert_eq!(lines.len(), 7);
        assert!(lines.iter().all(|line| line["level"] == "DEBUG"), "{lines:?}");
        assert_eq!((&lines[0]["message"], &lines[0]["pod"]), (&json!("pod starts"), &json!("alone")));
        let lines = objects_of(Least::Debug, || life(&lifecycle, gang));
        let waiting = lines.into_iter().map(facts).find(|line| line["level"] == "DEBUG").unwrap();
        assert_eq!((&waiting["message"], &waiting["reason"]), (&json!("waits"), &json!("no room")));
        assert_eq!(objects_of(Least::Warn, || life(&lifecycle, gang)), [json!(null); 0]);
    }
}
