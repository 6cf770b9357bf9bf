//! A leader is followed by another, and gangs that wait keep what they were promised.

use phalanx_model::{DeviceMask, Epoch, Input, Slot, Timestamp};
use phalanx_shell::{Config, Engine};
use serde_json::{Value, json};

use super::*;
use crate::crd::QueueStatus;
use crate::gang::Options;
use crate::gang::turn::step;
use crate::messages::{Call, Event};

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const KEY: &str = "pod-group.scheduling.sigs.k8s.io";

/// A leader with two nodes of four GPUs, one queue with a status, and pods as they are.
struct Leader {
    lifecycle: Lifecycle,
    engine: Engine,
    calls: Vec<Call>,
    told: Vec<Input>,
}

fn node(at: u32) -> Value {
    let allocatable = json!({ "cpu": "64", "memory": "64Gi", "pods": "20", "nvidia.com/gpu": "4" });
    json!({ "metadata": { "name": format!("n{at}") }, "status": { "allocatable": allocatable } })
}

fn pod(name: &str, gang: &str, size: u32, gpus: u32, created: u32) -> Value {
    let labels = json!({ format!("{KEY}/name"): gang, format!("{KEY}/min-available"): size.to_string(),
        "phalanx.dev/queue": "q" });
    json!({
        "metadata": { "namespace": "x", "name": name, "uid": name, "labels": labels,
            "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z") },
        "spec": { "schedulerName": "phalanx",
            "containers": [{ "name": "c", "resources": { "limits": { "nvidia.com/gpu": gpus.to_string() } } }] },
    })
}

impl Leader {
    fn begin(status: Option<&QueueStatus>, pods: &[Value]) -> Self {
        let options =
            Options { ready_ms: 60_000, vacant_ms: 1_000, ..Options::of_queue(QueueName::new("q").unwrap()) };
        let (lifecycle, engine) = (Lifecycle::new(options), Engine::new(Epoch(1), Config::default()));
        let mut leader = Self { lifecycle, engine, calls: Vec::new(), told: Vec::new() };
        let queue = json!({ "apiVersion": "phalanx.dev/v1alpha1", "kind": "Queue", "metadata": { "name": "q" },
            "spec": { "namespaces": {} }, "status": status });
        leader.lifecycle.observe(NOW, Event::Queue(Box::new(serde_json::from_value(queue).unwrap())));
        for at in 0..2 {
            leader.lifecycle.observe(NOW, Event::Node(Box::new(serde_json::from_value(node(at)).unwrap())));
        }
        pods.iter().for_each(|pod| leader.see(pod));
        leader.told = leader.lifecycle.begin(NOW);
        leader.step(leader.told.clone());
        leader
    }

    fn see(&mut self, pod: &Value) {
        self.lifecycle.observe(NOW, Event::Pod(Box::new(serde_json::from_value(pod.clone()).unwrap())));
    }

    fn step(&mut self, mut facts: Vec<Input>) {
        while !facts.is_empty() {
            facts = step(&mut self.lifecycle, &mut self.engine, NOW, &facts);
            self.calls.extend(self.lifecycle.calls());
        }
    }

    /// What the engine promised.
    fn promises(&self) -> Vec<Promise> {
        let jobs = self.engine.jobs();
        jobs.flat_map(|(job, gangs)| gangs.iter().filter_map(|gang| Promise::of(job, gang))).collect()
    }

    /// The status of the queue with these promises, as it comes through the API server.
    fn written(&mut self, promises: &[Promise]) -> QueueStatus {
        let reports: Vec<_> = self.engine.queues().into_iter().map(|report| (report, None)).collect();
        self.lifecycle.report(&reports, &[], promises);
        let status = |call| match call {
            Call::QueueStatus { status, .. } => Some(*status),
            _ => None,
        };
        let status = self.lifecycle.calls().into_iter().find_map(status).unwrap();
        serde_json::from_str(&serde_json::to_string(&status).unwrap()).unwrap()
    }

    /// What the engine was told of a gang that was known before.
    fn observed(&self, gang: &str) -> Option<GangRecord> {
        self.told.iter().find_map(|fact| match fact {
            Input::JobObserved { job, gangs } if job.name.as_str().ends_with(gang) => gangs.first().cloned(),
            _ => None,
        })
    }
}

/// Counted anew, a large gang was passed over as often again after every change of leader.
#[test]
fn how_often_a_gang_was_passed_over_and_its_place_survive_a_change_of_leader() {
    let large = [pod("l0", "large", 2, 4, 2), pod("l1", "large", 2, 4, 2)];
    let slot = |rank: u32| Slot {
        rank,
        node: phalanx_model::NodeName::new(format!("n{rank}")).unwrap(),
        devices: "0-3".parse::<DeviceMask>().unwrap(),
        part: None,
    };
    let placement = Placement { slots: vec![slot(0), slot(1)], level: LevelName::new("cluster").unwrap() };
    let reserved = Reserved { placement, at: Some(NOW.plus(60_000)), evicts: false, made_at: NOW };
    let mut first = Leader::begin(None, &[pod("a", "small", 1, 1, 1), large[0].clone(), large[1].clone()]);
    let job = first.engine.jobs().find(|(job, _)| job.name.as_str().ends_with("large")).unwrap().0.id;
    let promise =
        Promise { job, queue: QueueName::new("q").unwrap(), bypassed: 3, reserved: Some(reserved.clone()) };
    let mut status = first.written(&[promise]);
    assert_eq!(status.promises.len(), 1, "{status:#?}");

    let second = Leader::begin(Some(&status), &large);
    let record = second.observed("large").unwrap();
    assert_eq!((record.bypassed, record.reserved), (3, Some(reserved)));

    // A node of the place is gone, or the gang is another one of that name.
    let place = &mut status.promises[0].reserved.as_mut().unwrap().placement;
    *place = place.replace("n1", "n7");
    let record = Leader::begin(Some(&status), &large).observed("large").unwrap();
    assert_eq!((record.bypassed, record.reserved), (3, None));
    status.promises[0].uid = Some("another".to_owned());
    assert_eq!(Leader::begin(Some(&status), &large).observed("large"), None);
}

/// What the engine keeps of gangs that wait is what is written.
#[test]
fn what_the_engine_promised_is_what_the_next_leader_is_told() {
    let pods = [pod("a", "small", 1, 4, 1), pod("l0", "large", 2, 4, 2), pod("l1", "large", 2, 4, 2)];
    let mut first = Leader::begin(None, &pods);
    let kept = |leader: &Leader| {
        let (_, gangs) = leader.engine.jobs().find(|(job, _)| job.name.as_str().ends_with("large")).unwrap();
        (gangs[0].bypassed, gangs[0].reserved.clone())
    };
    // A later one takes the free node.
    first.see(&pod("b", "later", 1, 4, 3));
    let facts = first.lifecycle.settle(NOW);
    first.step(facts);
    let promised = kept(&first);
    assert_ne!(promised, (0, None), "nothing was promised, which says nothing of what is kept");
    let promises = first.promises();
    let status = first.written(&promises);
    let second = Leader::begin(Some(&status), &pods[1..]);
    let record = second.observed("large").unwrap();
    assert_eq!((record.bypassed, record.reserved), promised);
}

/// A status that is larger than an object may be is refused, with all that it says of the queue.
#[test]
fn places_are_written_as_far_as_an_object_has_room_for_them() {
    let pods: Vec<Value> = (0..8).map(|at| pod(&format!("p{at}"), &format!("g{at}"), 1, 4, 1)).collect();
    let mut leader = Leader::begin(None, &pods);
    let slot = |rank| Slot {
        rank,
        node: phalanx_model::NodeName::new(format!("a-node-with-a-long-name-{rank}")).unwrap(),
        devices: DeviceMask(15),
        part: None,
    };
    let placement =
        Placement { slots: (0..4_000).map(slot).collect(), level: LevelName::new("cluster").unwrap() };
    let reserved = Reserved { placement, at: None, evicts: false, made_at: NOW };
    let jobs: Vec<JobId> = leader.engine.jobs().map(|(job, _)| job.id).collect();
    let promise = |job: &JobId| Promise {
        job: *job,
        queue: QueueName::new("q").unwrap(),
        bypassed: 1,
        reserved: Some(reserved.clone()),
    };
    let status = leader.written(&jobs.iter().map(promise).collect::<Vec<_>>());
    assert_eq!(status.promises.len(), 8);
    let places = status.promises.iter().filter(|promise| promise.reserved.is_some()).count();
    assert!((1..8).contains(&places), "{places} places");
    assert!(serde_json::to_string(&status).unwrap().len() < 1 << 20);
}
