//! What waiting gangs are said to wait for: to people, to autoscalers, and to Volcano.

use phalanx_model::{Epoch, Timestamp};
use phalanx_shell::{Config, Engine};
use serde_json::{Value, json};

use crate::crd::QueueStatus;
use crate::gang::Options;
use crate::gang::report::waits::*;
use crate::gang::turn::step;
use crate::messages::{Call, Event, Provision, VolcanoStatus};

const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// Lifecycle and an engine.
struct Play {
    lifecycle: Lifecycle,
    engine: Engine,
    /// What was asked of the API.
    calls: Vec<Call>,
}

impl Play {
    fn of(nodes: usize, queues: &[Value]) -> Self {
        let lifecycle = Lifecycle::new(Options {
            ready_ms: 60_000,
            vacant_ms: 1_000,
            ..Options::of_queue(QueueName::new("default").unwrap())
        });
        let engine = Engine::new(Epoch(1), Config::default());
        let mut play = Self { lifecycle: lifecycle.provisioning(), engine, calls: Vec::new() };
        (0..nodes).for_each(|at| play.node(at));
        queues.iter().for_each(|queue| play.queue(queue.clone()));
        let facts = play.lifecycle.begin(NOW);
        play.step(facts);
        play
    }

    /// Of 4 GPUs.
    fn node(&mut self, at: usize) {
        let allocatable = json!({ "cpu": "64", "memory": "64Gi", "pods": "20", "nvidia.com/gpu": "4" });
        let labels = json!({ "topology.kubernetes.io/zone": "a" });
        let metadata = json!({ "name": format!("n{at}"), "labels": labels });
        let node = json!({ "metadata": metadata, "status": { "allocatable": allocatable } });
        self.lifecycle.observe(NOW, Event::Node(Box::new(serde_json::from_value(node).unwrap())));
    }

    fn pod(&mut self, name: &str, gpus: u32, metadata: &Value) {
        let mut pod = json!({
            "metadata": { "namespace": "x", "name": name, "uid": name, "labels": {} },
            "spec": { "schedulerName": "phalanx",
                "containers": [{ "name": "c", "resources": { "limits": { "nvidia.com/gpu": gpus.to_string() } } }] },
        });
        pod["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        self.see(pod);
    }

    fn see(&mut self, pod: Value) {
        self.lifecycle.observe(NOW, Event::Pod(Box::new(serde_json::from_value(pod).unwrap())));
    }

    fn queue(&mut self, queue: Value) {
        self.lifecycle.observe(NOW, Event::Queue(Box::new(serde_json::from_value(queue).unwrap())));
    }

    fn object(&mut self, object: &Value) {
        self.lifecycle.observe(NOW, Event::Object(Box::new(serde_json::from_value(object.clone()).unwrap())));
    }

    /// What was asked for since the last time, when all is quiet.
    fn turn(&mut self) -> Vec<Call> {
        for _ in 0..20 {
            let facts = self.lifecycle.settle(NOW);
            if facts.is_empty() {
                break;
            }
            self.step(facts);
        }
        self.calls.extend(self.lifecycle.calls());
        std::mem::take(&mut self.calls)
    }

    fn step(&mut self, mut facts: Vec<phalanx_model::Input>) {
        while !facts.is_empty() {
            facts = step(&mut self.lifecycle, &mut self.engine, NOW, &facts);
            for call in self.lifecycle.calls() {
                if let Call::Bind { member, .. } = &call {
                    self.lifecycle.observe(NOW, Event::Bound { member: *member, result: Ok(()) });
                }
                self.calls.push(call);
            }
        }
    }

    /// Statuses of queues that are to be written.
    fn statuses(&mut self) -> BTreeMap<String, QueueStatus> {
        let reports: Vec<_> = self.engine.queues().into_iter().map(|report| (report, None)).collect();
        let jobs = self.engine.in_order().into_iter().filter_map(|gang| self.engine.job(gang.job));
        let line: Vec<_> = jobs.map(|job| (job.queue.clone(), job.id)).collect();
        self.lifecycle.report(&reports, &line, &[]);
        let status = |call| match call {
            Call::QueueStatus { name, status } => Some((name, *status)),
            _ => None,
        };
        self.lifecycle.calls().into_iter().filter_map(status).collect()
    }
}

fn queue(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "phalanx.dev/v1alpha1", "kind": "Queue", "metadata": { "name": name }, "spec": spec })
}

/// One of a gang of so many, in a queue.
fn in_queue(queue: &str, gang: &str, size: u32) -> Value {
    let mut metadata = of_gang(gang, size);
    metadata["labels"]["phalanx.dev/queue"] = json!(queue);
    metadata
}

/// One of a gang of so many.
fn of_gang(name: &str, size: u32) -> Value {
    json!({ "labels": {
        "pod-group.scheduling.sigs.k8s.io/name": name,
        "pod-group.scheduling.sigs.k8s.io/min-available": size.to_string(),
    } })
}

/// The last reason of each pod.
fn reasons(calls: &[Call]) -> BTreeMap<String, &'static str> {
    let told = calls.iter().filter_map(|call| match call {
        Call::Explain { pods, reason, .. } => Some((pods, *reason)),
        _ => None,
    });
    told.flat_map(|(pods, reason)| pods.iter().map(move |pod| (pod.name.to_string(), reason))).collect()
}

#[test]
fn the_status_of_a_queue_names_the_first_that_wait_and_why_and_is_written_when_that_changes() {
    let queues =
        [queue("org", &json!({})), queue("team", &json!({ "parent": "org" })), queue("other", &json!({}))];
    let mut play = Play::of(1, &queues);
    for at in 0..13 {
        let created = format!("2026-01-01T00:00:{at:02}Z");
        // The youngest has the first name.
        let name = format!("p{:02}", 50 - at);
        let mut metadata = in_queue("team", &name, 1);
        metadata["creationTimestamp"] = json!(created);
        play.pod(&name, 4, &metadata);
    }
    play.turn();
    let statuses = play.statuses();
    let team = &statuses["team"];
    assert_eq!((team.pending, team.running, team.waiting.len()), (12, 1, NAMED_MAX));
    let first = &team.waiting[0];
    assert_eq!((&*first.gang, &*first.since), ("Koordinator gang x/p49", "2026-01-01T00:00:01Z"));
    assert!(first.reason.contains("and 0 fit now"), "{first:?}");
    assert_eq!(team.waiting.last().unwrap().gang, "Koordinator gang x/p40");
    assert_eq!(statuses["org"].waiting, team.waiting, "those of the queues below are counted too");
    assert_eq!(statuses["other"].waiting, []);
    assert!(play.statuses().is_empty(), "nothing is new");
    // One more node, and one less waits.
    play.node(1);
    play.turn();
    assert_eq!(play.statuses()["team"].waiting[0].gang, "Koordinator gang x/p48");
}

/// Pods that wait for the share of their queue looked `Unschedulable`: an autoscaler bought nodes that they may not use.
#[test]
fn only_pods_that_nodes_would_help_look_unschedulable() {
    let queues = [queue("team", &json!({ "limit": { "gpus": 4 } })), queue("free", &json!({}))];
    let mut play = Play::of(3, &queues);
    play.pod("runs", 4, &in_queue("team", "runs", 1));
    play.turn();
    play.pod("over-limit", 1, &in_queue("team", "over-limit", 1));
    play.pod("nowhere", 1, &in_queue("nobody", "nowhere", 1));
    for (name, gpus) in [("huge", 64), ("other-1", 4), ("other-2", 4), ("other-3", 4)] {
        play.pod(name, gpus, &in_queue("free", name, 1));
    }
    play.pod("incomplete", 1, &in_queue("free", "g", 2));
    let calls = play.turn();
    let expected = [
        ("huge", "Unschedulable"),
        ("incomplete", "GangNotReady"),
        ("nowhere", "Refused"),
        ("other-3", "Unschedulable"),
        ("over-limit", "QueueLimit"),
    ];
    let expected = expected.map(|(pod, reason)| (pod.to_owned(), reason));
    assert_eq!(reasons(&calls), expected.into_iter().collect());
}

/// One GPU, near another one of its sort, which asks for the same: they stand in a line.
fn in_line(name: &str) -> Value {
    let near = json!({ "matchLabels": { "app": "near" } });
    let term = json!({ "topologyKey": "topology.kubernetes.io/zone", "labelSelector": near });
    json!({
        "metadata": { "namespace": "x", "name": name, "uid": name,
            "labels": { "app": "near", "phalanx.dev/queue": "team" } },
        "spec": { "schedulerName": "phalanx",
            "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } },
            "containers": [{ "name": "c", "resources": { "limits": { "nvidia.com/gpu": "1" } } }] },
    })
}

/// Nodes were bought for pods behind one that waits for the share of its queue.
#[test]
fn pods_in_line_look_unschedulable_only_while_nodes_would_help_the_first() {
    let limited = ["QueueLimit", "InLine", "InLine"];
    // Where the queue may use more, it is the only node that is full.
    for (gpus, expected) in [(4, limited), (8, ["Unschedulable"; 3])] {
        let mut play = Play::of(1, &[queue("team", &json!({ "limit": { "gpus": gpus } }))]);
        play.lifecycle.observe(NOW, Event::Namespace { name: "x".to_owned(), labels: Some(BTreeMap::new()) });
        play.pod("runs", 4, &in_queue("team", "runs", 1));
        play.turn();
        ["near-1", "near-2", "near-3"].iter().for_each(|name| play.see(in_line(name)));
        let mut told = reasons(&play.turn());
        let are = |told: &BTreeMap<String, &'static str>| {
            told.iter().filter(|(pod, _)| pod.starts_with("near")).map(|(_, why)| *why).collect::<Vec<_>>()
        };
        assert_eq!(are(&told), expected, "{gpus}");
        // What the first waits for changes, and changes again.
        let first = play.engine.in_order()[0].job;
        for (waits_for, expected) in
            [(WaitsFor::Other("QueueLimit"), limited), (WaitsFor::Nodes, ["Unschedulable"; 3])]
        {
            play.lifecycle.explain_job(first, waits_for, "for a test");
            told.extend(reasons(&play.lifecycle.calls()));
            assert_eq!(are(&told), expected, "{gpus}");
        }
    }
}

/// Karpenter looks at single pods: of a gang it sees all of them or none, whichever of them would fit as things are.
#[test]
fn all_pods_of_a_gang_look_unschedulable_together() {
    let mut play = Play::of(1, &[]);
    let mut early = Vec::new();
    for (name, gpus) in [("small-1", 1), ("small-2", 1), ("large", 4)] {
        early.extend(play.turn());
        play.pod(name, gpus, &of_gang("g", 3));
    }
    assert!(reasons(&early).values().all(|reason| *reason == "GangNotReady"), "{early:?}");
    let calls = play.turn();
    let told = calls.iter().filter_map(|call| match call {
        Call::Explain { pods, reason, .. } => Some((*reason, pods.iter().map(|pod| &*pod.name).collect())),
        _ => None,
    });
    let told: Vec<(&str, Vec<&str>)> = told.collect();
    assert_eq!(told, [("Unschedulable", vec!["large", "small-1", "small-2"])]);
}

#[test]
fn nodes_of_a_gang_are_asked_for_at_once_and_no_more_when_it_has_its_places() {
    let queues = [queue("default", &json!({})), queue("team", &json!({ "limit": { "gpus": 1 } }))];
    let mut play = Play::of(1, &queues);
    let asked = |calls: &[Call]| {
        let asked = calls.iter().filter_map(|call| match call {
            Call::Provision { gang, wanted } => Some((gang.clone(), wanted.clone())),
            _ => None,
        });
        asked.collect::<Vec<_>>()
    };
    let sizes = |wanted: &Option<Provision>| {
        let mut sizes: Vec<usize> = wanted.iter().flat_map(|it| &it.sets).map(Vec::len).collect();
        sizes.sort_unstable();
        sizes
    };
    play.pod("a", 4, &of_gang("g", 3));
    play.pod("b", 4, &of_gang("g", 3));
    assert_eq!(asked(&play.turn()).iter().flat_map(|(_, wanted)| sizes(wanted)).count(), 0, "not complete");
    play.pod("c", 1, &of_gang("g", 3));
    // One by itself, and one that may not have more.
    play.pod("alone", 16, &json!({}));
    for name in ["d", "e"] {
        play.pod(name, 1, &in_queue("team", "limited", 2));
    }
    let calls = asked(&play.turn());
    let (whole, wanted): (Vec<_>, Vec<_>) = calls.into_iter().filter(|(_, wanted)| wanted.is_some()).unzip();
    assert_eq!(whole, ["Koordinator gang x/g"], "{wanted:?}");
    assert_eq!(sizes(&wanted[0]), [1, 2]);
    assert_eq!(
        wanted[0].as_ref().unwrap().about.name,
        "a",
        "it goes with its first pod, for want of an object"
    );
    // Still not enough: it has asked already.
    play.node(1);
    assert_eq!(asked(&play.turn()), []);
    play.node(2);
    let calls = asked(&play.turn());
    assert_eq!(calls, [("Koordinator gang x/g".to_owned(), None)]);
}

fn volcano(calls: &[Call]) -> Option<VolcanoStatus> {
    let status = |call: &Call| match call {
        Call::VolcanoStatus { status, .. } => Some(status.clone()),
        _ => None,
    };
    calls.iter().rev().find_map(status)
}

fn group(name: &str, owner: Option<&str>, phase: &str) -> Value {
    let mut group = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": { "namespace": "x", "name": name, "uid": name },
        "spec": { "minMember": 2 }, "status": { "phase": phase },
    });
    if let Some(version) = owner {
        group["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": version, "kind": "Job", "name": "j", "uid": "j", "controller": true }]);
    }
    group
}

#[test]
fn a_group_of_volcano_has_the_phase_counts_and_condition_of_its_gang() {
    let mut play = Play::of(1, &[]);
    play.object(&group("g", None, "Pending"));
    let member = json!({ "annotations": { "scheduling.volcano.sh/group-name": "g" } });
    play.pod("a", 4, &member);
    let status = volcano(&play.turn()).unwrap();
    assert_eq!(status.phase, "Inqueue");
    let (of, reason, why) = status.condition.unwrap();
    assert_eq!((of, reason, &*why), ("Unschedulable", "NotEnoughTasks", "1 of 2 pods are there"));
    play.pod("b", 4, &member);
    let status = volcano(&play.turn()).unwrap();
    assert_eq!((status.phase, status.condition.unwrap().1), ("Inqueue", "NotEnoughResources"));
    play.node(1);
    let binds = play.turn().into_iter().filter_map(|call| match call {
        Call::Bind { pod, node, annotations, .. } => Some((pod, node, annotations)),
        _ => None,
    });
    let binds: Vec<_> = binds.collect();
    assert_eq!(binds.len(), 2);
    for (phase, expected) in
        [("Pending", ("Running", 0, 0)), ("Running", ("Running", 2, 0)), ("Succeeded", ("Completed", 0, 2))]
    {
        for (pod, node, annotations) in &binds {
            let mut annotations = json!(annotations);
            annotations["scheduling.volcano.sh/group-name"] = json!("g");
            let pod = json!({
                "metadata": { "namespace": "x", "name": pod.name, "uid": pod.uid, "annotations": annotations },
                "spec": { "schedulerName": "phalanx", "nodeName": node,
                    "containers": [{ "name": "c", "resources": { "limits": { "nvidia.com/gpu": "4" } } }] },
                "status": { "phase": phase },
            });
            play.lifecycle.observe(NOW, Event::Pod(Box::new(serde_json::from_value(pod).unwrap())));
        }
        let status = volcano(&play.turn()).unwrap();
        assert_eq!((status.phase, status.running, status.succeeded), expected, "{phase}");
        assert_eq!(status.condition.map(|(of, ..)| of), Some("Scheduled"));
    }
}

#[test]
fn a_volcano_job_is_let_make_its_pods_once_and_other_groups_are_left_alone() {
    let admits = |calls: Vec<Call>| {
        let job = |call| match call {
            Call::Admit { group, job, scheduler } => Some((group.name, job.name, scheduler)),
            _ => None,
        };
        calls.into_iter().filter_map(job).collect::<Vec<_>>()
    };
    let mut play = Play::of(0, &[]);
    let theirs = Some("batch.volcano.sh/v1alpha1");
    play.object(&group("ours", theirs, "Pending"));
    play.object(&group("queued", theirs, "Inqueue"));
    play.object(&group("plain", None, "Pending"));
    play.object(&group("of-a-job", Some("batch/v1"), ""));
    assert_eq!(admits(play.turn()), [("ours".to_owned(), "j".to_owned(), "phalanx".to_owned())]);
    play.object(&group("ours", theirs, "Inqueue"));
    assert_eq!(admits(play.turn()), []);
    // What was there before this process decides is let go then.
    let mut lifecycle = Play::of(0, &[]).lifecycle;
    lifecycle.has_begun = false;
    let object = serde_json::from_value(group("early", theirs, "")).unwrap();
    lifecycle.observe(NOW, Event::Object(Box::new(object)));
    assert_eq!(admits(lifecycle.calls()), []);
    lifecycle.begin(NOW);
    assert_eq!(admits(lifecycle.calls()).len(), 1);
}

/// They waited in the queue of their namespace, whatever they said.
#[test]
fn pods_by_themselves_are_in_the_queue_that_they_or_their_owner_name() {
    let queues = [queue("team", &json!({ "limit": { "gpus": 1 } })), queue("default", &json!({}))];
    let mut play = Play::of(2, &queues);
    play.pod("runs", 1, &json!({ "labels": { "phalanx.dev/queue": "team" } }));
    play.turn();
    play.pod("labelled", 1, &json!({ "labels": { "kueue.x-k8s.io/queue-name": "team" } }));
    // Its pods are no gang.
    play.object(&json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "namespace": "x", "name": "many", "uid": "u", "labels": { "phalanx.dev/queue": "team" } },
        "spec": { "completions": 5, "parallelism": 2, "template": { "spec": { "schedulerName": "phalanx", "containers": [] } } },
    }));
    let owner =
        json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "many", "uid": "u", "controller": true }]);
    play.pod(
        "owned",
        1,
        &json!({ "labels": { "batch.kubernetes.io/job-name": "many" }, "ownerReferences": owner }),
    );
    play.pod("free", 1, &json!({}));
    let calls = play.turn();
    let expected = [("labelled", "QueueLimit"), ("owned", "QueueLimit")];
    assert_eq!(reasons(&calls), expected.map(|(pod, reason)| (pod.to_owned(), reason)).into_iter().collect());
}

/// The condition went on to say `QueueLimit`, at which no autoscaler looks, and the other way round nodes were bought in vain.
#[test]
fn a_limit_that_moves_shows_the_pods_of_a_gang_to_autoscalers_or_hides_them() {
    let team = |gpus: u32| queue("team", &json!({ "limit": { "gpus": gpus } }));
    let mut play = Play::of(1, &[team(4)]);
    play.pod("runs", 4, &in_queue("team", "runs", 1));
    play.turn();
    for pod in ["g-0", "g-1"] {
        play.pod(pod, 2, &in_queue("team", "g", 2));
    }
    let both = |reason| ["g-0", "g-1"].map(|pod| (pod.to_owned(), reason)).into();
    assert_eq!(reasons(&play.turn()), both("QueueLimit"));
    let is_wanted = |calls: &[Call]| {
        let mut asked = calls.iter().filter_map(|call| match call {
            Call::Provision { wanted, .. } => Some(wanted.is_some()),
            _ => None,
        });
        asked.next_back()
    };
    for (gpus, reason, wanted) in [(8, "Unschedulable", true), (4, "QueueLimit", false)] {
        play.queue(team(gpus));
        let calls = play.turn();
        assert_eq!(reasons(&calls), both(reason), "{gpus}");
        assert_eq!(is_wanted(&calls), Some(wanted), "{gpus}");
    }
}
