//! What lists tell in any order; what is said of fabric, priorities and devices.

use std::collections::BTreeMap;

use phalanx_model::{Admin, DeviceMask, Exit, Input, MemberState, Node, Phase, QueueName, Timestamp};
use serde_json::{Value, json};

use super::{Lifecycle, Options};
use crate::crd;
use crate::messages::{Call, Event, Found};
use crate::recognise::NodesUsed;

const NOW: Timestamp = Timestamp(1_000);

fn lifecycle() -> Lifecycle {
    books_of(NodesUsed::All)
}

fn books_of(nodes: NodesUsed) -> Lifecycle {
    Lifecycle::new(Options {
        ready_ms: 1_000,
        vacant_ms: 1_000,
        nodes,
        ..Options::of_queue(QueueName::new("default").unwrap())
    })
}

fn node() -> Event {
    let node = json!({
        "metadata": { "name": "a" },
        "status": { "allocatable": { "cpu": "8", "memory": "8Gi", "pods": "10", "ephemeral-storage": "20Gi", "nvidia.com/gpu": "4" } },
    });
    Event::Node(Box::new(serde_json::from_value(node).unwrap()))
}

fn pod(namespace: &str, name: &str, spec: &Value) -> Event {
    let pod = json!({ "metadata": { "namespace": namespace, "name": name, "uid": namespace }, "spec": spec });
    Event::Pod(Box::new(serde_json::from_value(pod).unwrap()))
}

fn observed(facts: &[Input]) -> Option<&Node> {
    facts.iter().rev().find_map(|fact| match fact {
        Input::NodeObserved { node } => Some(&**node),
        _ => None,
    })
}

/// What others hold of the node, as the engine was told last: devices, and CPUs in thousandths.
fn held_by_others(facts: &[Input]) -> Option<(DeviceMask, u64)> {
    facts.iter().rev().find_map(|fact| match fact {
        Input::NodeObserved { node } => Some((node.foreign, node.foreign_use.cpu_milli)),
        Input::NodeUseObserved { foreign, foreign_use, .. } => Some((*foreign, foreign_use.cpu_milli)),
        _ => None,
    })
}

#[test]
fn a_pod_of_others_counts_that_was_listed_before_its_node() {
    let limits = json!({ "cpu": "3", "nvidia.com/gpu": "1" });
    let spec = json!({ "nodeName": "a", "containers": [{ "name": "c", "resources": { "limits": limits } }] });
    let mut lifecycle = lifecycle();
    lifecycle.observe(NOW, pod("x", "foreign", &spec));
    lifecycle.observe(NOW, node());
    let facts = lifecycle.begin(NOW);
    let node = observed(&facts).unwrap();
    assert_eq!((node.foreign_use.cpu_milli, node.foreign.count()), (3_000, 1));
}

/// Jobs that take their ports at random leave nothing behind.
#[test]
fn nodes_have_host_ports_only_as_long_as_a_gang_asks_for_them() {
    let wants = |name: &str| {
        let ports = json!([{ "containerPort": 80, "hostPort": 80 }]);
        let spec = json!({ "schedulerName": "phalanx", "containers": [{ "name": "c", "ports": ports }] });
        pod(name, name, &spec)
    };
    let mut lifecycle = lifecycle();
    lifecycle.observe(NOW, node());
    lifecycle.begin(NOW);
    let mut has_port = |event: Event| {
        lifecycle.observe(NOW, event);
        let facts = lifecycle.settle(NOW);
        for fact in &facts {
            if let Input::CancelRequested { job, .. } = fact {
                lifecycle.job_ended(*job);
            }
        }
        observed(&facts).map(|node| node.machine.named.keys().any(|name| name.as_str() == "port/tcp/80"))
    };
    assert_eq!(has_port(wants("x")), Some(true));
    assert_eq!(has_port(wants("y")), None, "they have it already");
    let gone = |name: &str| Event::PodGone {
        namespace: name.to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
    };
    has_port(gone("x"));
    let relabelled = |zone: &str| {
        let Event::Node(mut node) = node() else { panic!("no node") };
        node.metadata.labels =
            Some(BTreeMap::from([("topology.kubernetes.io/zone".to_owned(), zone.to_owned())]));
        Event::Node(node)
    };
    assert_eq!(has_port(relabelled("one")), Some(true), "the other one still asks for it");
    has_port(gone("y"));
    assert_eq!(has_port(relabelled("two")), Some(false));
    assert_eq!(has_port(wants("z")), Some(true));
}

#[test]
fn a_pod_that_waits_for_its_group_is_not_lost_with_its_namesake_elsewhere() {
    let spec = json!({
        "schedulerName": "phalanx", "schedulingGroup": { "podGroupName": "g" },
        "containers": [{ "name": "c" }],
    });
    let mut lifecycle = lifecycle();
    for namespace in ["x", "y"] {
        lifecycle.observe(NOW, pod(namespace, "member", &spec));
    }
    let (namespace, name) = ("x".to_owned(), "member".to_owned());
    lifecycle.observe(NOW, Event::PodGone { namespace, name, uid: "x".to_owned() });
    let left: Vec<&str> = lifecycle.orphans.namespaces().collect();
    assert_eq!(left, ["y"]);
}

/// Its first pod was started alone.
#[test]
fn a_gang_whose_pods_alone_say_its_size_waits_for_all_of_them() {
    let sized = |name: &str, metadata: Value| {
        let mut pod = json!({
            "metadata": { "namespace": "x", "name": name, "uid": name },
            "spec": { "schedulerName": "phalanx",
                "containers": [{ "name": "c", "resources": { "limits": { "nvidia.com/gpu": "1" } } }] },
        });
        pod["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        Event::Pod(Box::new(serde_json::from_value(pod).unwrap()))
    };
    let kueue = json!({
        "labels": { "kueue.x-k8s.io/pod-group-name": "g" },
        "annotations": { "kueue.x-k8s.io/pod-group-total-count": "3" },
    });
    let koordinator = json!({ "annotations": {
        "gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "3",
    } });
    for metadata in [kueue, koordinator] {
        let mut lifecycle = lifecycle();
        lifecycle.observe(NOW, node());
        lifecycle.begin(NOW);
        let mut handed_in = |name: &str| {
            lifecycle.observe(NOW, sized(name, metadata.clone()));
            let facts = lifecycle.settle(NOW);
            let size = |fact: &Input| match fact {
                Input::JobSubmitted { job } => Some(job.gangs[0].member_count()),
                _ => None,
            };
            facts.iter().find_map(size)
        };
        assert_eq!([handed_in("a"), handed_in("b"), handed_in("c")], [None, None, Some(3_u32)], "{metadata}");
    }
}

fn submitted(facts: &[Input]) -> Vec<String> {
    let name = |fact: &Input| match fact {
        Input::JobSubmitted { job } => Some(job.name.to_string()),
        _ => None,
    };
    facts.iter().filter_map(name).collect()
}

/// A `JobSet` whose second job waits for the end of the first.
fn in_stages(is_suspended: bool) -> Event {
    let spec = json!({ "schedulerName": "phalanx", "containers": [{ "name": "c" }] });
    let template = json!({ "spec": { "template": { "spec": spec } } });
    let after = json!([{ "name": "fetch", "status": "Complete" }]);
    let set = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": { "namespace": "x", "name": "set", "uid": "set", "annotations": { "phalanx.dev/suspended": "submitted" } },
        "spec": { "suspend": is_suspended, "replicatedJobs": [
            { "name": "fetch", "template": template },
            { "name": "train", "template": template, "dependsOn": after },
        ] },
    });
    Event::Object(Box::new(serde_json::from_value(set).unwrap()))
}

/// Its second stage had its places kept from the beginning.
#[test]
fn a_suspended_set_asks_for_its_first_stage_alone() {
    let mut lifecycle = lifecycle();
    lifecycle.observe(NOW, node());
    lifecycle.begin(NOW);
    lifecycle.observe(NOW, in_stages(true));
    assert_eq!(submitted(&lifecycle.settle(NOW)), ["x/set/stage-0"]);
}

/// Stages of a `JobSet`, and gangs that Koordinator joins, were refused for a space and a plus in their names; and names that
/// are too long with their namespace.
#[test]
fn a_gang_is_handed_in_whatever_its_key_is_called() {
    let pod = |namespace: &str, name: &str, metadata: Value| {
        let mut pod = json!({
            "metadata": { "namespace": namespace, "name": name, "uid": name },
            "spec": { "schedulerName": "phalanx", "containers": [{ "name": "c" }] },
        });
        pod["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        Event::Pod(Box::new(serde_json::from_value(pod).unwrap()))
    };
    let joined = |gang: &str| {
        let metadata = json!({ "annotations": {
            "gang.scheduling.koordinator.sh/name": gang, "gang.scheduling.koordinator.sh/min-available": "1",
            "gang.scheduling.koordinator.sh/groups": r#"["x/actors", "x/learners"]"#,
        } });
        pod("x", gang, metadata)
    };
    let stage = json!({ "labels": {
        "jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/replicatedjob-name": "fetch",
        "jobset.sigs.k8s.io/job-index": "0",
    } });
    let (namespace, name) = ("n".repeat(63), "p".repeat(253));
    let mut lifecycle = lifecycle();
    lifecycle.observe(NOW, node());
    lifecycle.begin(NOW);
    let events = [
        joined("actors"),
        joined("learners"),
        in_stages(false),
        pod("x", "set-fetch-0-0", stage),
        pod(&namespace, &name, json!({})),
    ];
    events.into_iter().for_each(|event| lifecycle.observe(NOW, event));
    let names = submitted(&lifecycle.settle(NOW));
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.iter().any(|name| name == "x/actors-learners"), "{names:?}");
    assert!(names.iter().any(|name| name == "x/set/stage-0"), "{names:?}");
    assert!(names.iter().any(|name| name.starts_with(&namespace) && name.len() == 253), "{names:?}");
}

/// A pod of an indexed Job of the gang `g`, on node `a` by that start where it says so.
fn member(at: u32, phase: &str, bound: Option<(u32, &str)>) -> Event {
    let mut pod = json!({
        "metadata": {
            "namespace": "x", "name": format!("g-{at}"), "uid": format!("{at}-{phase}"),
            "labels": { "batch.kubernetes.io/job-name": "g" },
            "annotations": { "batch.kubernetes.io/job-completion-index": at.to_string() },
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "g", "uid": "g", "controller": true,
            }],
        },
        "spec": {
            "schedulerName": "phalanx",
            "containers": [{ "name": "c", "resources": { "limits": { "nvidia.com/gpu": "1" } } }],
        },
        "status": { "phase": phase },
    });
    if let Some((device, placement)) = bound {
        pod["spec"]["nodeName"] = json!("a");
        let annotations = pod["metadata"]["annotations"].as_object_mut().unwrap();
        let said = [
            ("rank", at.to_string()),
            ("devices", device.to_string()),
            ("attempt", "3".to_owned()),
            ("gang-size", "3".to_owned()),
            ("ready-by", "1970-01-01T00:00:00.500Z".to_owned()),
            ("placement", placement.to_owned()),
        ];
        annotations.extend(said.map(|(key, text)| (format!("phalanx.dev/{key}"), json!(text))));
    }
    Event::Pod(Box::new(serde_json::from_value(pod).unwrap()))
}

const PLACEMENT: &str = "a 0; a 1; a 2";

/// A Job of three pods, and a node of four devices.
fn restarted(pods: impl IntoIterator<Item = Event>) -> (Lifecycle, Vec<Input>) {
    let template = json!({
        "spec": { "schedulerName": "phalanx",
            "containers": [{ "name": "c", "resources": { "limits": { "nvidia.com/gpu": "1" } } }] },
    });
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "namespace": "x", "name": "g", "uid": "g" },
        "spec": { "completions": 3, "parallelism": 3, "completionMode": "Indexed", "template": template },
    });
    let mut lifecycle = lifecycle();
    lifecycle.observe(NOW, node());
    lifecycle.observe(NOW, Event::Object(Box::new(serde_json::from_value(job).unwrap())));
    pods.into_iter().for_each(|pod| lifecycle.observe(NOW, pod));
    let facts = lifecycle.begin(NOW);
    (lifecycle, facts)
}

/// The phase in which the only gang comes back, and its members by rank.
fn again(facts: &[Input]) -> Option<(Phase, BTreeMap<u32, MemberState>)> {
    let phase = facts.iter().find_map(|fact| match fact {
        Input::JobObserved { gangs, .. } => Some(gangs.first()?.phase.clone()),
        _ => None,
    });
    let member = |fact: &Input| match fact {
        Input::MemberObserved { member, state } => Some((member.rank, state.clone())),
        _ => None,
    };
    Some((phase?, facts.iter().filter_map(member).collect()))
}

/// It was not handed in, for want of pods that live, and what the others hold was given to somebody else.
#[test]
fn a_gang_of_which_a_rank_has_ended_well_goes_on_after_a_restart() {
    let pods = [
        member(0, "Succeeded", Some((0, PLACEMENT))),
        member(1, "Running", Some((1, PLACEMENT))),
        member(2, "Running", Some((2, PLACEMENT))),
    ];
    let (_, facts) = restarted(pods);
    let (phase, members) = again(&facts).unwrap();
    assert!(matches!(phase, Phase::Running { .. }), "{phase:?}");
    let exited = MemberState::Exited(Exit::succeeded());
    let expected = BTreeMap::from([(0, exited), (1, MemberState::Running), (2, MemberState::Running)]);
    assert_eq!(members, expected);
}

#[test]
fn a_gang_that_lost_a_pod_goes_on_after_a_restart_and_binds_the_one_that_comes() {
    let pods = [member(0, "Running", Some((0, PLACEMENT))), member(2, "Running", Some((2, PLACEMENT)))];
    let (mut lifecycle, facts) = restarted(pods);
    let (phase, members) = again(&facts).unwrap();
    assert!(matches!(phase, Phase::Running { .. }), "{phase:?}");
    assert_eq!(members.len(), 3, "{members:?}");
    lifecycle.observe(NOW, member(1, "Pending", None));
    lifecycle.settle(NOW);
    let bound: Vec<_> =
        lifecycle.calls().into_iter().filter(|call| matches!(call, Call::Bind { .. })).collect();
    let [Call::Bind { pod, annotations, .. }] = bound.as_slice() else { panic!("{bound:?}") };
    assert_eq!((&*pod.name, &*annotations["phalanx.dev/devices"]), ("g-1", "1"));
}

/// Those that ran already made the engine lose the others.
#[test]
fn a_gang_that_was_bound_in_part_is_still_starting_after_a_restart() {
    let late = |at| {
        let Event::Pod(mut pod) = member(at, "Running", Some((at, PLACEMENT))) else { panic!() };
        let annotations = pod.metadata.annotations.as_mut().unwrap();
        annotations.insert("phalanx.dev/ready-by".to_owned(), "1970-01-01T00:01:00Z".to_owned());
        Event::Pod(pod)
    };
    let (_, facts) = restarted([late(0), member(1, "Pending", None), late(2)]);
    let (phase, members) = again(&facts).unwrap();
    assert!(matches!(phase, Phase::Starting { .. }), "{phase:?}");
    assert_eq!(members, BTreeMap::from([(0, MemberState::Ready), (2, MemberState::Ready)]));
}

/// Two leaders decided: what is where only one of them wanted it counts until it is gone, and goes.
#[test]
fn a_pod_that_is_where_its_gang_is_not_is_counted_and_taken_back() {
    let pods = [
        member(0, "Running", Some((0, PLACEMENT))),
        member(1, "Running", Some((1, PLACEMENT))),
        member(2, "Running", Some((3, "a 1; a 2; a 3"))),
    ];
    let (mut lifecycle, facts) = restarted(pods);
    let (_, members) = again(&facts).unwrap();
    assert_eq!(members.get(&0), Some(&MemberState::Running));
    let node = observed(&facts).unwrap();
    assert_eq!(node.foreign, DeviceMask(0b1000), "the very device");
    let stops: Vec<_> =
        lifecycle.calls().into_iter().filter(|call| matches!(call, Call::Stop { .. })).collect();
    let [Call::Stop { pods, evict: false, suspend: None, .. }] = stops.as_slice() else {
        panic!("{stops:?}")
    };
    assert_eq!(&*pods[0].name, "g-2");
}

/// Two workers that run, by a start that had to be ready long ago, and their launcher where there is one.
fn mpi_again(has_launcher: bool) -> (Lifecycle, Vec<Input>) {
    let template = |gpus: u32| {
        let limits = if gpus > 0 { json!({ "nvidia.com/gpu": "1" }) } else { json!({ "cpu": "1" }) };
        json!({ "spec": { "schedulerName": "phalanx", "containers": [{ "name": "c", "resources": { "limits": limits } }] } })
    };
    let job = json!({
        "apiVersion": "kubeflow.org/v1", "kind": "MPIJob",
        "metadata": { "namespace": "x", "name": "m", "uid": "m" },
        "spec": { "mpiReplicaSpecs": {
            "Launcher": { "replicas": 1, "template": template(0) },
            "Worker": { "replicas": 2, "template": template(1) },
        } },
    });
    let mut lifecycle = lifecycle();
    lifecycle.observe(NOW, node());
    lifecycle.observe(NOW, Event::Object(Box::new(serde_json::from_value(job).unwrap())));
    for at in 0..2 {
        lifecycle.observe(NOW, mpi_pod("worker", at, true));
    }
    if has_launcher {
        lifecycle.observe(NOW, mpi_pod("launcher", 0, false));
    }
    let facts = lifecycle.begin(NOW);
    (lifecycle, facts)
}

fn mpi_pod(role: &str, at: u32, is_bound: bool) -> Event {
    let Event::Pod(mut pod) = member(at, "Running", is_bound.then_some((at, "a 0; a 1; a -"))) else {
        panic!()
    };
    pod.metadata.name = Some(format!("m-{role}-{at}"));
    pod.metadata.uid = pod.metadata.name.clone();
    let labels =
        [("job-name", "m".to_owned()), ("replica-type", role.to_owned()), ("replica-index", at.to_string())];
    pod.metadata.labels =
        Some(labels.map(|(key, text)| (format!("training.kubeflow.org/{key}"), text)).into());
    let owner = &mut pod.metadata.owner_references.as_mut().unwrap()[0];
    (owner.api_version, owner.kind) = ("kubeflow.org/v1".into(), "MPIJob".into());
    (owner.name, owner.uid) = ("m".into(), "m".into());
    if role == "launcher" {
        pod.status.phase = Some("Pending".to_owned());
        // As the operator makes it: with a container that goes first and asks for more than the template.
        let spec = json!({ "schedulerName": "phalanx",
            "initContainers": [{ "name": "kubectl-delivery", "resources": { "limits": { "ephemeral-storage": "5Gi" } } }],
            "containers": [{ "name": "c", "resources": { "limits": { "cpu": "1" } } }] });
        pod.spec = serde_json::from_value(spec).unwrap();
    }
    Event::Pod(pod)
}

fn binds(lifecycle: &mut Lifecycle, name: &str) -> bool {
    lifecycle.calls().iter().any(|call| matches!(call, Call::Bind { pod, .. } if &*pod.name == name))
}

/// It was lost with the restart, and the workers with it.
#[test]
fn workers_whose_launcher_has_not_come_yet_go_on_after_a_restart() {
    let (mut lifecycle, facts) = mpi_again(false);
    let (phase, members) = again(&facts).unwrap();
    assert!(matches!(phase, Phase::Running { .. }), "{phase:?}");
    assert_eq!(members.get(&2), Some(&MemberState::Running), "{members:?}");
    // It came when all others ran, was not what its template says, and was never bound.
    lifecycle.observe(NOW, mpi_pod("launcher", 0, false));
    lifecycle.settle(NOW);
    assert!(binds(&mut lifecycle, "m-launcher-0"));
}

#[test]
fn a_launcher_that_waits_is_bound_after_a_restart() {
    let (mut lifecycle, _) = mpi_again(true);
    assert!(binds(&mut lifecycle, "m-launcher-0"));
}

fn labelled(name: &str, labels: &Value) -> Event {
    let node = json!({
        "metadata": { "name": name, "labels": labels },
        "status": { "allocatable": { "cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "4" } },
    });
    Event::Node(Box::new(serde_json::from_value(node).unwrap()))
}

/// The domains of a node, as the engine was told of it last.
fn path(facts: &[Input], name: &str) -> Option<Vec<String>> {
    facts.iter().rev().find_map(|fact| match fact {
        Input::NodeObserved { node } if node.name.as_str() == name => {
            Some(node.path.iter().map(ToString::to_string).collect())
        }
        _ => None,
    })
}

fn fabric(spec: &Value) -> Event {
    let object = json!({ "apiVersion": "phalanx.dev/v1alpha1", "kind": "Fabric",
        "metadata": { "name": "default", "generation": 1 }, "spec": spec });
    Event::Fabric(Some(Box::new(serde_json::from_value(object).unwrap())))
}

/// The status that was to be written last, and whether an event told what is wrong.
fn said(lifecycle: &mut Lifecycle) -> (Option<crd::FabricStatus>, bool) {
    let calls = lifecycle.calls();
    let told =
        calls.iter().any(|call| matches!(call, Call::Tell(tidings) if tidings.reason == "FabricRefused"));
    let status = calls.into_iter().rev().find_map(|call| match call {
        Call::FabricStatus { status } => Some(*status),
        _ => None,
    });
    (status, told)
}

#[test]
fn the_fabric_says_the_levels_and_what_is_wrong_in_it_leaves_the_last_in_force() {
    let mut lifecycle = lifecycle();
    let zone = "topology.kubernetes.io/zone";
    lifecycle.observe(NOW, labelled("a", &json!({ zone: "z", "example.com/row": "r0" })));
    lifecycle.observe(NOW, labelled("b", &json!({ zone: "z" })));
    assert_eq!(path(&lifecycle.begin(NOW), "a").unwrap(), ["cluster", "z"]);
    assert_eq!(said(&mut lifecycle), (None, false));
    lifecycle.observe(NOW, fabric(&json!({ "levels": [{ "name": "row", "label": "example.com/row" }] })));
    let facts = lifecycle.settle(NOW);
    assert_eq!(path(&facts, "a").unwrap(), ["cluster", "r0"]);
    assert_eq!(path(&facts, "b").unwrap(), ["cluster", "unlabelled"]);
    let status = said(&mut lifecycle).0.unwrap();
    assert_eq!((status.nodes, status.unplaced, status.levels[0].domains), (1, 1, 1));
    assert_eq!(status.conditions[0].status, "True");

    lifecycle.observe(NOW, fabric(&json!({ "topology": "nodes: [" })));
    assert_eq!(path(&lifecycle.settle(NOW), "a"), None, "what was there goes on");
    let (status, told) = said(&mut lifecycle);
    let condition = &status.unwrap().conditions[0];
    assert!(
        condition.status == "False" && condition.message.contains("spec.topology") && told,
        "{condition:?}"
    );

    let map = "levels: [cluster, row]\nnodes:\n  - {name: a, devices: {count: 4}, path: {row: r7}}\n";
    lifecycle.observe(NOW, fabric(&json!({ "topology": map })));
    let facts = lifecycle.settle(NOW);
    let status = said(&mut lifecycle).0.unwrap();
    assert_eq!(status.conditions[0].message, "", "{map}");
    assert_eq!(path(&facts, "a").unwrap(), ["cluster", "r7"]);
    // Nobody says it any more: labels again.
    lifecycle.observe(NOW, Event::Fabric(None));
    assert_eq!(path(&lifecycle.settle(NOW), "a").unwrap(), ["cluster", "z"]);
}

fn object(value: &Value) -> Event {
    Event::Object(Box::new(serde_json::from_value(value.clone()).unwrap()))
}

#[test]
fn hyper_nodes_are_the_levels_where_no_fabric_says_otherwise() {
    let mut lifecycle = lifecycle();
    for name in ["a", "b"] {
        lifecycle.observe(NOW, labelled(name, &json!({ "topology.kubernetes.io/zone": "z" })));
    }
    lifecycle.observe(NOW, object(&json!({
        "apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": { "name": "s0" },
        "spec": { "tier": 1, "members": [{ "type": "Node", "selector": { "exactMatch": { "name": "a" } } }] },
    })));
    let facts = lifecycle.begin(NOW);
    assert_eq!(path(&facts, "a").unwrap(), ["cluster", "s0"]);
    lifecycle.observe(NOW, fabric(&json!({ "preset": "auto" })));
    assert_eq!(path(&lifecycle.settle(NOW), "a").unwrap(), ["cluster", "z"]);
    lifecycle.observe(NOW, fabric(&json!({ "hyperNodes": true })));
    assert_eq!(path(&lifecycle.settle(NOW), "a").unwrap(), ["cluster", "s0"]);
}

/// The class of the job that was handed in last.
fn class(facts: &[Input]) -> Option<String> {
    facts.iter().rev().find_map(|fact| match fact {
        Input::JobSubmitted { job } => job.turn.class.as_ref().map(ToString::to_string),
        _ => None,
    })
}

#[test]
fn a_class_that_a_label_names_counts_and_one_that_is_not_there_is_waited_for() {
    let mut lifecycle = lifecycle();
    lifecycle.observe(NOW, node());
    lifecycle.begin(NOW);
    let pod = json!({
        "metadata": { "namespace": "n", "name": "p", "uid": "1", "labels": { "priorityClassName": "train" } },
        "spec": { "schedulerName": "phalanx", "priority": 7, "containers": [{ "name": "c" }] },
    });
    lifecycle.observe(NOW, Event::Pod(Box::new(serde_json::from_value(pod).unwrap())));
    assert_eq!(class(&lifecycle.settle(NOW)), None);
    let why = lifecycle.calls().into_iter().find_map(|call| match call {
        Call::Explain { message, .. } => Some(message.to_string()),
        _ => None,
    });
    assert!(
        why.as_deref().is_some_and(|why| why.contains("no PriorityClass or WorkloadPriorityClass train")),
        "{why:?}"
    );
    let class_of = |group: &str, kind: &str, value: i32| {
        object(&json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": { "name": "train" },
            "value": value, "preemptionPolicy": "Never" }))
    };
    // A label would evict anybody, past quotas.
    lifecycle.observe(NOW, class_of("scheduling.k8s.io", "PriorityClass", 2_000_001_000));
    assert_eq!(class(&lifecycle.settle(NOW)), None);
    let why = lifecycle.calls().into_iter().find_map(|call| match call {
        Call::Explain { message, .. } => Some(message.to_string()),
        _ => None,
    });
    assert!(why.as_deref().is_some_and(|why| why.contains("train is the system's")), "{why:?}");
    lifecycle.observe(NOW, class_of("scheduling.k8s.io", "PriorityClass", 50));
    assert_eq!(class(&lifecycle.settle(NOW)).as_deref(), Some("priority-50-never-preempts"));
}

#[test]
fn a_pod_group_that_evicts_nobody_says_so_for_its_pods() {
    let mut lifecycle = lifecycle();
    lifecycle.observe(NOW, node());
    lifecycle.begin(NOW);
    lifecycle.observe(
        NOW,
        object(&json!({ "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
            "metadata": { "namespace": "n", "name": "g", "uid": "g" },
            "spec": { "schedulingPolicy": { "gang": { "minCount": 1 } }, "preemptionPolicy": "Never" } })),
    );
    let pod = json!({
        "metadata": { "namespace": "n", "name": "p", "uid": "1" },
        "spec": { "schedulerName": "phalanx", "schedulingGroup": { "podGroupName": "g" }, "priority": 7,
            "containers": [{ "name": "c" }] },
    });
    lifecycle.observe(NOW, Event::Pod(Box::new(serde_json::from_value(pod).unwrap())));
    assert_eq!(class(&lifecycle.settle(NOW)).as_deref(), Some("priority-7-never-preempts"));
}

#[test]
fn a_lost_device_is_nobodys_and_the_others_keep_their_numbers() {
    let machine = |count: u32| {
        let mut machine = phalanx_model::Machine::bare(phalanx_model::Origin::Found);
        let device = |at: u32| phalanx_model::Device { name: format!("GPU{at}"), ..Default::default() };
        machine.devices = (0..count).map(device).collect();
        phalanx_model::shape::finish(&mut machine);
        std::sync::Arc::new(machine)
    };
    let found = |machine, lost| Event::Found {
        node: "a".to_owned(),
        found: Some(Found { machine, lost, grades: BTreeMap::new() }),
    };
    let mut lifecycle = lifecycle();
    lifecycle.observe(NOW, node());
    lifecycle.observe(NOW, found(machine(5), DeviceMask::one(1)));
    // The node offers four of five.
    let facts = lifecycle.begin(NOW);
    let seen = observed(&facts).unwrap();
    assert_eq!((seen.machine.device_count(), seen.foreign), (5, DeviceMask::one(1)));
    // Six are another machine: what the node offers counts.
    lifecycle.observe(NOW, found(machine(6), DeviceMask::EMPTY));
    let facts = lifecycle.settle(NOW);
    assert_eq!(held_by_others(&facts), Some((DeviceMask::EMPTY, 0)));
}

/// The node became one of three devices, whoever held the fourth was not counted, and one too many was given.
#[test]
fn a_device_that_does_not_work_leaves_the_others_their_numbers() {
    let offering = |devices: u32| {
        let amounts = |devices: u32| json!({ "cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": devices.to_string() });
        let node = json!({ "metadata": { "name": "a" },
            "status": { "allocatable": amounts(devices), "capacity": amounts(4) } });
        Event::Node(Box::new(serde_json::from_value(node).unwrap()))
    };
    let pod = json!({
        "metadata": { "namespace": "n", "name": "p", "uid": "p", "annotations": {
            crate::gang::pods::RANK: "0", crate::gang::pods::DEVICES: "2-3", crate::gang::pods::ATTEMPT: "1", crate::gang::pods::GANG_SIZE: "1" } },
        "spec": { "schedulerName": "phalanx", "nodeName": "a",
            "containers": [{ "name": "c", "resources": { "limits": { "nvidia.com/gpu": "2" } } }] },
        "status": { "phase": "Running" },
    });
    let mut lifecycle = lifecycle();
    lifecycle.observe(NOW, offering(4));
    lifecycle.observe(NOW, Event::Pod(Box::new(serde_json::from_value(pod).unwrap())));
    let facts = lifecycle.begin(NOW);
    assert_eq!(observed(&facts).map(|node| node.foreign), Some(DeviceMask::EMPTY));
    // Which of them it is nobody says: one that is free is not given.
    for (offered, foreign) in [(3, DeviceMask::one(1)), (2, DeviceMask::first(2)), (0, DeviceMask::first(2))]
    {
        lifecycle.observe(NOW, offering(offered));
        let facts = lifecycle.settle(NOW);
        assert!(observed(&facts).is_none(), "it is the node that it was");
        if let Some((held, _)) = held_by_others(&facts) {
            assert_eq!(held, foreign, "{offered} are offered");
        }
    }
    lifecycle.observe(NOW, offering(4));
    let facts = lifecycle.settle(NOW);
    assert_eq!(held_by_others(&facts), Some((DeviceMask::EMPTY, 0)));
}

/// The kubelet offers one device less, and does not say that it is the one that the agent closed: another was taken off as
/// well.
#[test]
fn a_device_that_its_agent_closed_and_its_kubelet_does_not_offer_is_counted_once() {
    let mut machine = phalanx_model::Machine::bare(phalanx_model::Origin::Found);
    let device = |at: u32| phalanx_model::Device { name: format!("GPU{at}"), ..Default::default() };
    machine.devices = (0..4).map(device).collect();
    phalanx_model::shape::finish(&mut machine);
    let amounts = |devices: u32| json!({ "cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": devices.to_string() });
    let node = json!({ "metadata": { "name": "a" }, "status": { "allocatable": amounts(3), "capacity": amounts(4) } });
    let closed = json!({ "grade": "DrainNow", "reason": "Xid 79", "since": "2026-11-28T20:00:00Z" });
    let grades = [(Some(1), serde_json::from_value(closed).unwrap())].into();
    let found = Found { machine: machine.into(), lost: DeviceMask::EMPTY, grades };
    let mut lifecycle = lifecycle();
    lifecycle.observe(NOW, Event::Node(Box::new(serde_json::from_value(node).unwrap())));
    lifecycle.observe(NOW, Event::Found { node: "a".to_owned(), found: Some(found) });
    let facts = lifecycle.begin(NOW);
    assert_eq!(observed(&facts).unwrap().machine.device_count(), 4);
    let graded = facts.iter().find_map(|fact| match fact {
        Input::HealthGraded { health } => Some((health.devices, health.grade)),
        _ => None,
    });
    assert_eq!(graded, Some((DeviceMask::one(1), phalanx_model::Grade::DrainNow)));
    // Which one is missing is known once it is graded.
    assert_eq!(held_by_others(&lifecycle.settle(NOW)), Some((DeviceMask::EMPTY, 0)));
}

/// Two pods of the same size on one node, as their bindings say, and what the kubelet made of it.
#[test]
fn devices_that_were_exchanged_are_told_together_and_half_an_exchange_is_not() {
    let bound = |name: &str, devices: &str| {
        let pod = json!({
            "metadata": { "namespace": "n", "name": name, "uid": name, "annotations": {
                crate::gang::pods::RANK: "0", crate::gang::pods::DEVICES: devices, crate::gang::pods::ATTEMPT: "1", crate::gang::pods::GANG_SIZE: "1" } },
            "spec": { "schedulerName": "phalanx", "nodeName": "a",
                "containers": [{ "name": "c", "resources": { "limits": { "nvidia.com/gpu": "1" } } }] },
            "status": { "phase": "Running" },
        });
        Event::Pod(Box::new(serde_json::from_value(pod).unwrap()))
    };
    let moved = |facts: &[Input]| -> Vec<String> {
        let all = facts.iter().filter_map(|fact| match fact {
            Input::DevicesObserved { members } => Some(members),
            _ => None,
        });
        all.flatten().map(|(member, devices)| format!("{}: {devices}", member.gang.job)).collect()
    };
    let mut lifecycle = lifecycle();
    lifecycle.observe(NOW, node());
    lifecycle.observe(NOW, bound("x", "0"));
    lifecycle.observe(NOW, bound("y", "1"));
    lifecycle.begin(NOW);
    lifecycle.observe(NOW, bound("x", "1"));
    assert!(moved(&lifecycle.settle(NOW)).is_empty(), "the other one still has it");
    lifecycle.observe(NOW, bound("y", "0"));
    assert_eq!(moved(&lifecycle.settle(NOW)), ["1: 1", "2: 0"]);
    // Said once; and what was free needs nobody else.
    lifecycle.observe(NOW, bound("y", "0"));
    assert!(moved(&lifecycle.settle(NOW)).is_empty());
    lifecycle.observe(NOW, bound("y", "3"));
    assert_eq!(moved(&lifecycle.settle(NOW)), ["2: 3"]);
    // A device that the node does not have is no truth.
    lifecycle.observe(NOW, bound("x", "9"));
    assert!(moved(&lifecycle.settle(NOW)).is_empty());
}

#[test]
fn a_node_takes_part_as_its_label_says_now() {
    let is_open = |facts: &[Input]| observed(facts).map(|node| node.admin == Admin::Open);
    for (used, silent) in [(NodesUsed::All, true), (NodesUsed::Labelled, false)] {
        let mut lifecycle = books_of(used);
        lifecycle.observe(NOW, labelled("a", &json!({})));
        assert_eq!(is_open(&lifecycle.begin(NOW)), Some(silent), "{used:?}");
        lifecycle.observe(NOW, labelled("a", &json!({ "phalanx.dev/schedule": "topology" })));
        // What is open already is no news.
        assert_eq!(is_open(&lifecycle.settle(NOW)), (!silent).then_some(true), "{used:?}");
        lifecycle.observe(NOW, labelled("a", &json!({ "ack.node.gpu.schedule": "default" })));
        assert_eq!(is_open(&lifecycle.settle(NOW)), Some(false), "{used:?}");
    }
}

/// The room that its scheduler had made for it was taken before it was bound.
#[test]
fn a_pod_of_others_holds_the_node_that_was_nominated_for_it_until_it_is_not_any_more() {
    let mut lifecycle = lifecycle();
    lifecycle.observe(NOW, node());
    let mut held = None;
    let mut see = |lifecycle: &mut Lifecycle, place: &Value| {
        let limits = json!({ "cpu": "3", "nvidia.com/gpu": "3" });
        let mut pod = json!({
            "metadata": { "namespace": "x", "name": "p", "uid": "p" },
            "spec": { "schedulerName": "other", "containers": [{ "name": "c", "resources": { "limits": limits } }] },
            "status": { "phase": "Pending" },
        });
        pod["spec"]["nodeName"] = place["bound"].clone();
        pod["status"]["nominatedNodeName"] = place["nominated"].clone();
        lifecycle.observe(NOW, Event::Pod(Box::new(serde_json::from_value(pod).unwrap())));
        let facts = if lifecycle.has_begun { lifecycle.settle(NOW) } else { lifecycle.begin(NOW) };
        held = held_by_others(&facts).map(|(devices, cpu_milli)| (devices.count(), cpu_milli)).or(held);
        held
    };
    assert_eq!(see(&mut lifecycle, &json!({ "nominated": "a" })), Some((3, 3_000)));
    assert_eq!(see(&mut lifecycle, &json!({ "nominated": "b" })), Some((0, 0)));
    assert_eq!(see(&mut lifecycle, &json!({ "nominated": "a" })), Some((3, 3_000)));
    assert_eq!(see(&mut lifecycle, &json!({ "nominated": "b", "bound": "a" })), Some((3, 3_000)));
    assert_eq!(see(&mut lifecycle, &json!({})), Some((0, 0)));
}

fn bound_by(epoch: &str, name: &str, rank: usize, node: &str) -> crate::api::Pod {
    let pod = json!({
        "metadata": { "namespace": "x", "name": name, "uid": name,
            "labels": { "kueue.x-k8s.io/pod-group-name": "g" },
            "annotations": { "kueue.x-k8s.io/pod-group-total-count": "2", "phalanx.dev/rank": rank.to_string(),
                "phalanx.dev/devices": "0-3", "phalanx.dev/attempt": "1", "phalanx.dev/epoch": epoch } },
        "spec": { "schedulerName": "phalanx", "nodeName": node, "containers": [{ "name": "c" }] },
        "status": { "phase": "Running" },
    });
    serde_json::from_value(pod).unwrap()
}

/// Its node and devices were those that had been chosen for it, and there were two of its rank.
#[test]
fn a_pod_that_a_leader_bound_whose_time_was_over_is_at_home_only_as_the_rank_that_it_is() {
    let mut lifecycle = lifecycle();
    let whole = [("uid-a/1/x", 0, "a"), ("uid-a/1/x", 1, "b")];
    for (epoch, rank, node) in whole {
        let pod = bound_by(epoch, &format!("g-{rank}"), rank, node);
        lifecycle.observe(NOW, Event::Pod(Box::new(pod)));
    }
    let run = super::lifecycle::recovery::before(lifecycle.gangs.values().next().unwrap()).unwrap().run();
    for (epoch, rank, is_at_home) in [
        ("uid-a/1/x", 0, true),
        // Of a leader whose decision it is, the rank may have been given anew.
        ("uid-a/1/x", 1, true),
        ("uid-a/2/y", 1, false),
        // A lease that was deleted begins to count again.
        ("uid-b/1/x", 1, false),
        ("uid-b/1/x", 0, true),
    ] {
        let known = lifecycle.known(&bound_by(epoch, "g-0", rank, "a"));
        assert_eq!(run.has_placed(0, &known), is_at_home, "{epoch} {rank}");
    }
}

/// Ranks of both made one placement that neither had decided.
#[test]
fn of_two_leaders_that_bound_pods_of_one_gang_one_decision_counts() {
    let mut lifecycle = lifecycle();
    for (epoch, name, rank, node) in
        [("old/1/x", "g-0", 0, "a"), ("new/1/y", "g-1", 0, "b"), ("new/1/y", "g-2", 1, "c")]
    {
        lifecycle.observe(NOW, Event::Pod(Box::new(bound_by(epoch, name, rank, node))));
    }
    let run = super::lifecycle::recovery::before(lifecycle.gangs.values().next().unwrap()).unwrap().run();
    let nodes: Vec<&str> = run.placement.slots.iter().map(|slot| slot.node.as_str()).collect();
    assert_eq!((nodes, run.epochs.len()), (vec!["b", "c"], 1));
    lifecycle.lead("new/1/y");
    assert!(lifecycle.was_led_before(), "by whoever bound the first");
}

/// Others bound more than the node has: nothing goes there, nothing breaks, and what comes free is used again.
#[test]
fn a_node_that_others_over_commit_takes_nothing_more_until_it_is_over() {
    use super::turn::step;
    use phalanx_model::Epoch;
    use phalanx_shell::{Config, Engine};

    let mut lifecycle = lifecycle();
    let mut engine = Engine::new(Epoch(1), Config::default());
    lifecycle.observe(NOW, node());
    let container = |gpus: &str, cpu: &str| json!([{ "name": "c", "resources": { "limits": { "nvidia.com/gpu": gpus, "cpu": cpu } } }]);
    let others = |name: &str, gpus: &str, cpu: &str| {
        pod(name, "p", &json!({ "nodeName": "a", "containers": container(gpus, cpu) }))
    };
    let gone = |name: &str| Event::PodGone {
        namespace: name.to_owned(),
        name: "p".to_owned(),
        uid: name.to_owned(),
    };
    let mut play = |lifecycle: &mut Lifecycle, events: Vec<Event>| {
        events.into_iter().for_each(|event| lifecycle.observe(NOW, event));
        let mut facts = if lifecycle.has_begun { lifecycle.settle(NOW) } else { lifecycle.begin(NOW) };
        let mut bound = 0;
        for _ in 0..4 {
            facts = step(lifecycle, &mut engine, NOW, &facts);
            facts.extend(lifecycle.settle(NOW));
            bound += lifecycle.calls().iter().filter(|call| matches!(call, Call::Bind { .. })).count();
        }
        let over = lifecycle.overcommitted();
        let words = over.values().flatten().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        (bound, words)
    };
    let (five, cpus) = (others("x", "5", "1"), others("y", "0", "9"));
    assert_eq!(play(&mut lifecycle, vec![five]), (0, "Insufficient nvidia.com/gpu".to_owned()));
    let ours = pod("z", "p", &json!({ "schedulerName": "phalanx", "containers": container("1", "1") }));
    assert_eq!(play(&mut lifecycle, vec![ours]), (0, "Insufficient nvidia.com/gpu".to_owned()));
    let both = "Insufficient cpu, Insufficient nvidia.com/gpu".to_owned();
    assert_eq!(play(&mut lifecycle, vec![cpus]), (0, both));
    assert_eq!(play(&mut lifecycle, vec![gone("x")]), (0, "Insufficient cpu".to_owned()));
    assert_eq!(play(&mut lifecycle, vec![gone("y")]), (1, String::new()));
}

/// What it waits for was kept, and would be written as an event again, after it was deleted.
#[test]
fn a_pod_that_waits_is_forgotten_when_it_is_gone_and_one_that_is_bound_was_before() {
    let spec = json!({ "schedulerName": "phalanx", "containers": [{ "name": "c" }] });
    let mut bound = spec.clone();
    bound["nodeName"] = json!("a");
    for (spec, is_told) in [(spec, true), (bound, false)] {
        let mut lifecycle = lifecycle();
        lifecycle.observe(NOW, node());
        lifecycle.begin(NOW);
        lifecycle.observe(NOW, pod("x", "p", &spec));
        lifecycle.settle(NOW);
        lifecycle.calls();
        let (namespace, name, uid) = ("x".to_owned(), "p".to_owned(), "x".to_owned());
        lifecycle.observe(NOW, Event::PodGone { namespace, name, uid });
        let calls = lifecycle.calls();
        assert_eq!(calls.iter().any(|call| matches!(call, Call::Forget { .. })), is_told, "{calls:?}");
    }
}
