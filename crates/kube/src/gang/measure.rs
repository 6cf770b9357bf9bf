//! What pods of other schedulers that come and go cost, in CPU time: printed by
//! `cargo test --release -p phalanx-kube --lib -- --ignored --nocapture pods_of_others`.

use std::time::{Duration, Instant};

use phalanx_model::{Epoch, Input, QueueName, Timestamp};
use phalanx_shell::{Config, Engine};
use serde_json::{Value, json};

use super::turn::step;
use super::{Lifecycle, Options};
use crate::messages::Event;

const NODES: usize = 5_000;
const GANGS: usize = 2_000;
/// A pod comes or goes with each.
const EVENTS: usize = 20_000;
/// Taken at once, as the event loop does under load.
const BATCH: usize = 10;
/// A pod stays for so many others.
const STAYS: usize = 100;

fn pod(name: &str, node: Option<usize>, labels: &Value, limits: &Value) -> Event {
    let scheduler = if node.is_some() { "other" } else { "phalanx" };
    let object = json!({
        "metadata": { "namespace": "x", "name": name, "uid": name, "labels": labels },
        "spec": { "schedulerName": scheduler, "nodeName": node.map(|at| format!("n{at}")),
            "containers": [{ "name": "c", "resources": { "limits": limits } }] },
    });
    Event::Pod(Box::new(serde_json::from_value(object).unwrap()))
}

#[test]
#[ignore = "a measurement"]
fn pods_of_others_cost_what_they_change() {
    let mut now = Timestamp(1_800_000_000_000);
    let mut lifecycle = Lifecycle::new(Options::of_queue(QueueName::new("default").unwrap()));
    let mut engine = Engine::new(Epoch(1), Config::default());
    for at in 0..NODES {
        let labels = json!({ "topology.kubernetes.io/zone": format!("z{}", at / 500),
            "topology.kubernetes.io/rack": format!("r{}", at / 50) });
        let amounts = json!({ "cpu": "96", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8" });
        let node = json!({ "metadata": { "name": format!("n{at}"), "labels": labels }, "status": { "allocatable": amounts } });
        lifecycle.observe(now, Event::Node(Box::new(serde_json::from_value(node).unwrap())));
        // No node has eight free devices.
        let held = json!({ "nvidia.com/gpu": if at % 40 == 0 { "1" } else { "8" } });
        lifecycle.observe(now, pod(&format!("holds-{at}"), Some(at), &json!({}), &held));
    }
    for gang in 0..GANGS {
        let labels = json!({ "pod-group.scheduling.sigs.k8s.io/name": format!("g{gang}"),
            "pod-group.scheduling.sigs.k8s.io/min-available": "4" });
        let limits = json!({ "nvidia.com/gpu": "8", "cpu": (1 + gang % 20).to_string() });
        (0..4)
            .for_each(|rank| lifecycle.observe(now, pod(&format!("g{gang}-{rank}"), None, &labels, &limits)));
    }
    let mut facts = lifecycle.begin(now);
    while !facts.is_empty() {
        facts = step(&mut lifecycle, &mut engine, now, &facts);
        facts.extend(lifecycle.settle(now));
    }
    assert_eq!(engine.in_order().len(), GANGS, "all of them are pending");
    lifecycle.calls();
    let (mut of_lifecycle, mut of_engine, mut uses) = (Duration::ZERO, Duration::ZERO, 0);
    for batch in 0..EVENTS / BATCH {
        now = now.plus(10);
        let events: Vec<Event> = (batch * BATCH..(batch + 1) * BATCH)
            .map(|at| match (at % 2, (at / 2).checked_sub(STAYS)) {
                (1, Some(gone)) => {
                    let name = format!("c{gone}");
                    Event::PodGone { namespace: "x".to_owned(), name: name.clone(), uid: name }
                }
                _ => {
                    pod(&format!("c{}", at / 2), Some(at * 7_919 % NODES), &json!({}), &json!({ "cpu": "1" }))
                }
            })
            .collect();
        let began = Instant::now();
        events.into_iter().for_each(|event| lifecycle.observe(now, event));
        let facts = lifecycle.settle(now);
        of_lifecycle += began.elapsed();
        uses += facts.iter().filter(|fact| matches!(fact, Input::NodeUseObserved { .. })).count();
        let began = Instant::now();
        step(&mut lifecycle, &mut engine, now, &facts);
        of_engine += began.elapsed();
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / EVENTS as f64;
    println!(
        "{NODES} nodes, {GANGS} gangs pending: {:.1} µs of the lifecycle and {:.1} µs of the engine for each of {EVENTS} pods \
         that came or went ({uses} facts)",
        each(of_lifecycle),
        each(of_engine)
    );
    assert!(uses > EVENTS / 2, "{uses}");
}
