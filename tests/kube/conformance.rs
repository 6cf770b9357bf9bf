//! One story, told to the simulator and to a cluster: the same jobs start at the same places, in the same order. The story is
//! the one that the simulator and a daemon with real processes decide alike.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use phalanx_controlplane::{Api, Fleet};
use phalanx_kube::gang::Lifecycle;
use phalanx_kube::gang::Options;
use phalanx_kube::messages::Event;
use phalanx_model::{Change, Input, NodeName, QueueName, Timestamp};
use serde_json::{Value, json};

use crate::queues::{QUEUES, define};
use crate::story::{self, Do, STORY, TEAMS};
use crate::support::{Cluster, JOBS, PODS, job};

/// Which attempt of which job, with the nodes and devices of its ranks.
type Start = (String, u32, Vec<String>);

/// Starts in their order, and how many ranks of each job run once all is at rest.
#[derive(Default)]
struct Rest {
    starts: Vec<Start>,
    running: BTreeMap<String, usize>,
}

/// Nodes of the same shape as those of the cluster: as the scheduler itself reads them.
fn facts(fleet: &Fleet) -> Vec<Input> {
    let options = Options::of_queue(QueueName::new("default").unwrap());
    let mut lifecycle = Lifecycle::new(options);
    for at in 0..fleet.nodes {
        let node = serde_json::from_value(fleet.node(at)).unwrap();
        lifecycle.observe(Timestamp(0), Event::Node(Box::new(node)));
    }
    lifecycle.begin(Timestamp(0))
}

/// What the simulator decides, act by act.
fn simulated(fleet: &Fleet) -> Vec<Rest> {
    let node = |at: usize| NodeName::new(Fleet::name(at)).unwrap();
    let rests = story::simulated(&facts(fleet), node).into_iter().map(|(changes, running)| {
        let placed = |change| match change {
            Change::GangPlaced { gang, attempt, placement } => {
                let slots = placement.slots.iter().map(|slot| format!("{}:{}", slot.node, slot.devices));
                Some((story::job_name(gang.job).to_owned(), attempt, slots.collect()))
            }
            _ => None,
        };
        Rest { starts: changes.into_iter().filter_map(placed).collect(), running }
    });
    rests.collect()
}

/// Starts in the order in which they were seen, with what was seen of each rank.
type Seen = Vec<((String, u32), BTreeMap<u32, String>)>;

/// Bindings as the API server tells them.
fn watch(api: &Api) -> Arc<Mutex<Seen>> {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let (events, shared) = (api.follow("/api/v1/pods").unwrap(), Arc::clone(&seen));
    std::thread::spawn(move || {
        for event in events.map_while(Result::ok) {
            let pod = &event["object"];
            let said = |key: &str| pod["metadata"]["annotations"][format!("phalanx.dev/{key}")].as_str();
            let (Some(node), Some(rank)) = (pod["spec"]["nodeName"].as_str(), said("rank")) else { continue };
            let job = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"].as_str().unwrap().to_owned();
            let start = (job, said("attempt").unwrap().parse::<u32>().unwrap());
            let place = format!("{node}:{}", said("devices").unwrap());
            let mut seen = shared.lock().unwrap();
            let at = seen.iter().position(|(known, _)| *known == start).unwrap_or_else(|| {
                seen.push((start, BTreeMap::new()));
                seen.len() - 1
            });
            seen[at].1.insert(rank.parse().unwrap(), place);
        }
    });
    seen
}

fn act(cluster: &Cluster, act: &Do, is_running: impl Fn(&str) -> bool) {
    let cordon = |at: usize, is: bool| {
        let path = format!("/api/v1/nodes/{}", Fleet::name(at));
        cluster.api().patch(&path, &json!({ "spec": { "unschedulable": is } })).unwrap();
        // Nothing tells that the scheduler has seen it.
        std::thread::sleep(Duration::from_secs(2));
    };
    match act {
        Do::Submit(name, queue, ranks) => {
            let mut job = job(name, *ranks, 1, &json!({}));
            job["metadata"]["labels"] = json!({ "phalanx.dev/queue": queue });
            job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
            cluster.create(JOBS, &job);
            let of_it = |cluster: &Cluster| {
                cluster.seats().into_iter().filter(|seat| seat.gang == *name).collect::<Vec<_>>()
            };
            let first = cluster.until("its pods", |cluster| {
                let seats = of_it(cluster);
                (seats.len() == *ranks as usize).then(|| seats[0].name.clone())
            });
            if !is_running(name) {
                cluster.until_explained(&first, "");
            }
        }
        Do::End(name) => {
            let end = json!({ "metadata": { "annotations": { "controlplane.phalanx.dev/succeed-after": "100ms" } } });
            for seat in cluster.seats().iter().filter(|seat| seat.gang == *name) {
                cluster.api().patch(&format!("{PODS}/{}", seat.name), &end).unwrap();
            }
        }
        Do::Cancel(name) => {
            cluster.api().delete(&format!("{JOBS}/{name}?propagationPolicy=Background")).unwrap();
            cluster.until("it is gone", |cluster| {
                (!cluster.seats().iter().any(|seat| seat.gang == *name)).then_some(())
            });
        }
        Do::Cordon(at) => cordon(*at, true),
        Do::Uncordon(at) => cordon(*at, false),
    }
}

#[test]
fn one_story_is_decided_alike_by_the_simulator_and_on_a_cluster() {
    let fleet = Fleet::new(2);
    let expected = simulated(&fleet);
    assert!(
        expected.iter().any(|rest| rest.starts.iter().any(|(_, attempt, _)| *attempt > 1)),
        "nobody made way"
    );
    let mut cluster = Cluster::of(2);
    define(&cluster);
    for name in TEAMS {
        let queue: Value = json!({
            "apiVersion": "phalanx.dev/v1alpha1", "kind": "Queue", "metadata": { "name": name },
            "spec": { "guaranteed": { "gpus": 8 } },
        });
        cluster.create(QUEUES, &queue);
    }
    let seen = watch(cluster.api());
    cluster.schedule(0);
    let mut told = 0;
    for (at, (doing, rest)) in STORY.iter().zip(&expected).enumerate() {
        act(&cluster, doing, |name| rest.running.contains_key(name));
        told += rest.starts.len();
        cluster.until(&format!("act {at}, to run: {:?}", rest.running), |cluster| {
            let mut running: BTreeMap<String, usize> = BTreeMap::new();
            for seat in cluster.seats().iter().filter(|seat| seat.phase == "Running") {
                *running.entry(seat.gang.clone()).or_default() += 1;
            }
            (running == rest.running && seen.lock().unwrap().len() >= told).then_some(())
        });
    }
    let expected: Vec<Start> = expected.into_iter().flat_map(|rest| rest.starts).collect();
    let seen = seen.lock().unwrap().clone();
    let seen: Vec<Start> = seen
        .into_iter()
        .map(|((job, attempt), slots)| (job, attempt, slots.into_values().collect()))
        .collect();
    assert_eq!(seen, expected);
}
