//! Lifecycle and engine together, with an API server that does at once what it is asked for.

use std::collections::BTreeMap;

use phalanx_model::{Epoch, Input, QueueName, Timestamp};
use phalanx_shell::{Config, Engine};
use serde_json::{Value, json};

use crate::gang::turn::step;
use crate::gang::{Lifecycle, Options};
use crate::messages::{Call, Event};

const NOW: Timestamp = Timestamp(1_800_000_000_000);
/// Pods of a gang, each with one device; a node has as many.
const SIZE: usize = 4;

struct Play {
    lifecycle: Lifecycle,
    engine: Engine,
    now: Timestamp,
    has_begun: bool,
    pods: BTreeMap<String, Value>,
    /// What was said on pods last.
    said: BTreeMap<String, String>,
    /// Pods that were to be evicted, call by call.
    evicted: Vec<Vec<String>>,
    /// Nothing is evicted that was to be.
    is_stuck: bool,
}

impl Play {
    fn begin(nodes: &[&str]) -> Self {
        let options = Options::of_queue(QueueName::new("default").unwrap());
        let mut lifecycle = Lifecycle::new(Options { min_run_ms: 0, ..options });
        for name in nodes {
            let node = json!({
                "metadata": { "name": name },
                "status": { "allocatable": { "cpu": "8", "memory": "8Gi", "pods": "20", "nvidia.com/gpu": SIZE.to_string() } },
            });
            lifecycle.observe(NOW, Event::Node(Box::new(serde_json::from_value(node).unwrap())));
        }
        let engine = Engine::new(Epoch(1), Config::default());
        let (pods, said) = (BTreeMap::new(), BTreeMap::new());
        Self {
            lifecycle,
            engine,
            now: NOW,
            has_begun: false,
            pods,
            said,
            evicted: Vec::new(),
            is_stuck: false,
        }
    }

    /// A gang of a priority, whose pods carry `app` as label.
    fn gang(&mut self, name: &str, app: &str, priority: i32) {
        for rank in 0..SIZE {
            let pod = format!("{name}-{rank}");
            let object = json!({
                "metadata": { "namespace": "x", "name": pod, "uid": pod,
                    "labels": { "app": app, "kueue.x-k8s.io/pod-group-name": name },
                    "annotations": { "kueue.x-k8s.io/pod-group-total-count": SIZE.to_string() } },
                "spec": { "schedulerName": "phalanx", "priority": priority,
                    "containers": [{ "name": "c", "resources": { "limits": { "nvidia.com/gpu": "1" } } }] },
                "status": { "phase": "Pending" },
            });
            self.pods.insert(pod.clone(), object);
            self.see_pod(&pod);
        }
        self.act();
    }

    /// A budget over the pods with a label, which so many of may go.
    fn budget(&mut self, name: &str, app: &str, allowed: i32) {
        let budget = json!({
            "metadata": { "namespace": "x", "name": name, "generation": 1 },
            "spec": { "selector": { "matchLabels": { "app": app } }, "minAvailable": 1 },
            "status": { "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": SIZE,
                "desiredHealthy": i32::try_from(SIZE).unwrap() - allowed, "expectedPods": SIZE },
        });
        let budget = Some(Box::new(serde_json::from_value(budget).unwrap()));
        self.see_budget(name, budget);
    }

    fn see_budget(
        &mut self,
        name: &str,
        budget: Option<Box<k8s_openapi::api::policy::v1::PodDisruptionBudget>>,
    ) {
        let (namespace, name) = ("x".to_owned(), name.to_owned());
        self.lifecycle.observe(self.now, Event::Budget { namespace, name, budget });
        self.act();
    }

    fn see_pod(&mut self, name: &str) {
        let pod = serde_json::from_value(self.pods[name].clone()).unwrap();
        self.lifecycle.observe(self.now, Event::Pod(Box::new(pod)));
    }

    /// Until nothing follows any more.
    fn act(&mut self) {
        let mut facts = Vec::new();
        for _ in 0..50 {
            match self.has_begun {
                true => facts.extend(self.lifecycle.settle(self.now)),
                false => facts.extend(self.lifecycle.begin(self.now)),
            }
            self.has_begun = true;
            facts = step(&mut self.lifecycle, &mut self.engine, self.now, &facts);
            let calls = self.lifecycle.calls();
            if facts.is_empty() && calls.is_empty() {
                return self.explain();
            }
            for call in calls {
                self.carry_out(call);
            }
        }
        panic!("it goes on and on");
    }

    /// As the desk does with what the engine changed its mind about.
    fn explain(&mut self) {
        let waiting: Vec<_> = self.engine.in_order().into_iter().map(|gang| gang.job).collect();
        for job in waiting {
            self.lifecycle.explain_job(job, crate::messages::WaitsFor::Nodes, "no room");
        }
        self.lifecycle.calls().into_iter().for_each(|call| self.carry_out(call));
    }

    fn carry_out(&mut self, call: Call) {
        match call {
            Call::Bind { pod, node, annotations, member, .. } => {
                let object = self.pods.get_mut(&*pod.name).unwrap();
                object["spec"]["nodeName"] = json!(node.as_str());
                for (key, value) in annotations {
                    object["metadata"]["annotations"][key] = json!(value);
                }
                object["status"] =
                    json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
                self.lifecycle.observe(self.now, Event::Bound { member, result: Ok(()) });
                self.see_pod(&pod.name.clone());
            }
            Call::Stop { pods, suspend, evict, .. } => {
                assert!(evict && suspend.is_none(), "nobody would make them again");
                self.evicted.push(pods.iter().map(|pod| pod.name.to_string()).collect());
                for pod in pods.iter().filter(|_| !self.is_stuck) {
                    self.pods.remove(&*pod.name);
                    let (namespace, name, uid) =
                        (pod.namespace.to_string(), pod.name.to_string(), pod.uid.to_string());
                    self.lifecycle.observe(self.now, Event::PodGone { namespace, name, uid });
                }
            }
            Call::Explain { pods, message, .. } => {
                for pod in pods {
                    self.said.insert(pod.name.to_string(), message.to_string());
                }
            }
            _ => {}
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
        self.act();
    }

    /// Gangs whose pods are bound, and how many of each are.
    fn bound(&self) -> BTreeMap<String, usize> {
        let mut bound = BTreeMap::new();
        for pod in self.pods.values().filter(|pod| pod["spec"]["nodeName"].is_string()) {
            let gang = pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"].as_str().unwrap();
            *bound.entry(gang.to_owned()).or_default() += 1;
        }
        bound
    }
}

fn of(gangs: &[&str]) -> BTreeMap<String, usize> {
    gangs.iter().map(|gang| ((*gang).to_owned(), SIZE)).collect()
}

#[test]
fn a_gang_that_may_not_go_as_a_whole_is_not_asked_to_and_whoever_waits_is_told_which_budget_says_so() {
    let mut play = Play::begin(&["a"]);
    play.gang("low", "low", 0);
    // Each of its pods could go, and not all of them.
    play.budget("few", "low", 1);
    play.gang("high", "high", 100);
    play.pass(60_000);
    assert_eq!((play.bound(), play.evicted.len()), (of(&["low"]), 0));
    let said = &play.said["high-0"];
    assert!(
        said.contains("may not make way: disruption budget few allows 1 of its 4 pods to be evicted now"),
        "{said}"
    );
    play.see_budget("few", None);
    play.pass(60_000);
    assert_eq!(play.bound(), of(&["high"]));
    assert_eq!(play.evicted, [["low-0", "low-1", "low-2", "low-3"]]);
}

#[test]
fn another_gang_makes_way_where_one_may_not() {
    for spared in ["one", "two"] {
        let mut play = Play::begin(&["a", "b"]);
        for name in ["one", "two"] {
            play.gang(name, name, 0);
        }
        play.budget("none", spared, 0);
        play.gang("high", "high", 100);
        play.pass(60_000);
        assert_eq!(play.bound(), of(&["high", spared]));
    }
}

/// Both could go, one by one; the second was asked before the budget had counted the first, and went in part.
#[test]
fn of_two_gangs_within_a_budget_that_is_enough_for_one_only_one_is_asked_to_go() {
    let mut play = Play::begin(&["a", "b"]);
    play.is_stuck = true;
    for name in ["one", "two"] {
        play.gang(name, "low", 0);
    }
    play.budget("one", "low", i32::try_from(SIZE).unwrap());
    for name in ["high", "higher"] {
        play.gang(name, "high", 100);
    }
    play.pass(60_000);
    let asked: std::collections::BTreeSet<&Vec<String>> = play.evicted.iter().collect();
    assert_eq!(asked.len(), 1, "{asked:?}");
}

#[test]
fn a_pod_within_two_budgets_is_not_evicted() {
    let mut play = Play::begin(&["a"]);
    play.gang("low", "low", 0);
    for name in ["first", "second"] {
        play.budget(name, "low", 100);
    }
    play.gang("high", "high", 100);
    play.pass(60_000);
    assert_eq!(play.evicted.len(), 0);
    assert!(play.said["high-0"].contains("within two disruption budgets, first and second"));
}

/// What the engine is told, as budgets come and go.
#[test]
fn it_is_told_once_that_a_gang_is_protected_and_once_that_it_is_not() {
    let mut play = Play::begin(&["a"]);
    play.gang("low", "low", 0);
    let told = |lifecycle: &mut Lifecycle| {
        let facts = lifecycle.settle(NOW);
        let told = facts.iter().filter_map(|fact| match fact {
            Input::GangProtected { is_protected, .. } => Some(*is_protected),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    let mut see = |allowed: i64, observed: i64, policy: Value| {
        let budget = json!({
            "metadata": { "namespace": "x", "name": "b", "generation": 2 },
            "spec": { "selector": { "matchLabels": { "app": "low" } }, "unhealthyPodEvictionPolicy": policy },
            "status": { "observedGeneration": observed, "disruptionsAllowed": allowed, "currentHealthy": 4,
                "desiredHealthy": 0, "expectedPods": 4 },
        });
        let budget = Some(Box::new(serde_json::from_value(budget).unwrap()));
        let (namespace, name) = ("x".to_owned(), "b".to_owned());
        play.lifecycle.observe(NOW, Event::Budget { namespace, name, budget });
        told(&mut play.lifecycle)
    };
    assert_eq!(see(4, 2, Value::Null), [] as [bool; 0]);
    assert_eq!(see(4, 1, Value::Null), [true], "its controller has not seen the last change");
    assert_eq!(see(3, 2, Value::Null), [] as [bool; 0]);
    assert_eq!(see(4, 2, Value::Null), [false]);
    assert_eq!(see(0, 2, json!("AlwaysAllow")), [true], "all are ready");
}
