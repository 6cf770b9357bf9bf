//! Devices with taints: they are for claims that tolerate them, and for nobody else.

use phalanx_model::NodeSet;

use super::*;

/// A rule that taints one device of a node, or all of the driver's devices everywhere.
fn rule(name: &str, device: Option<(&str, u32)>, taint: Value) -> DeviceEvent {
    let selector = match device {
        Some((node, at)) => json!({ "driver": DRIVER, "pool": node, "device": format!("gpu-{at}") }),
        None => json!({ "driver": DRIVER }),
    };
    let spec = json!({ "deviceSelector": selector, "taint": taint });
    DeviceEvent::Rule(Box::new(object(json!({ "metadata": { "name": name }, "spec": spec }))))
}

fn hot(effect: &str) -> Value {
    json!({ "key": "hot", "value": "very", "effect": effect })
}

/// A pod that asks for so many GPUs by a claim made for it, whose request has this too.
fn with_pod(lifecycle: &mut Lifecycle, name: &str, count: u32, more: Value) {
    let DeviceEvent::Claim(mut of) = claim(&format!("{name}-c"), count, None, Some(name), json!({})) else {
        unreachable!()
    };
    let mut exactly = json!({ "deviceClassName": "gpu", "count": count });
    exactly.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    of.spec = object(json!({ "devices": { "requests": [{ "name": "r", "exactly": exactly }] } }));
    tell(lifecycle, DeviceEvent::Claim(of));
    lifecycle.observe(NOW, pod(name, json!({})));
}

fn tolerating() -> Value {
    json!({ "tolerations": [{ "key": "hot", "operator": "Exists" }] })
}

fn set_of(job: &Job) -> NodeSet {
    job.gangs[0].needs.within.clone().unwrap()
}

fn job_ended(lifecycle: &mut Lifecycle, job: JobId, name: &str) {
    let (namespace, name) = ("default".to_owned(), name.to_owned());
    lifecycle.observe(
        NOW,
        Event::PodGone { namespace: namespace.clone(), name: name.clone(), uid: format!("uid-{name}") },
    );
    lifecycle.settle(NOW);
    lifecycle.job_ended(job);
    tell(lifecycle, DeviceEvent::ClaimGone { namespace, name: format!("{name}-c") });
}

#[test]
fn a_tainted_device_is_kept_for_those_that_tolerate_it() {
    let mut lifecycle = cluster(&["a", "b"]);
    tell(&mut lifecycle, rule("6", Some(("a", 6)), hot("NoSchedule")));
    tell(&mut lifecycle, rule("7", Some(("a", 7)), hot("NoExecute")));
    tell(&mut lifecycle, rule("5", Some(("a", 5)), hot("None")));
    with_pod(&mut lifecycle, "plain", 2, json!({}));
    let facts = lifecycle.begin(NOW);
    let told = node(&facts, "a").unwrap();
    assert_eq!((told.foreign, told.kept.is_nothing()), ("6-7".parse().unwrap(), true), "nobody tolerates it");
    let plain = jobs(&facts).remove(0);

    with_pod(&mut lifecycle, "tolerant", 2, tolerating());
    let facts = lifecycle.settle(NOW);
    let tolerant = jobs(&facts).remove(0);
    let needs = &tolerant.gangs[0].needs;
    assert_eq!((needs.devices, needs.named.len()), (2, 0), "counting devices is enough");
    assert!(set_of(&tolerant).as_str().contains("2 of gpu, tolerating taints"), "{}", set_of(&tolerant));
    let told = node(&facts, "a").unwrap();
    assert_eq!(told.foreign, DeviceMask::EMPTY);
    assert_eq!(told.kept.0, [(set_of(&tolerant), "6-7".parse().unwrap())].into());
    assert_eq!(told.kept.away_from(&plain.gangs[0].needs), "6-7".parse().unwrap());
    assert!(node(&facts, "b").unwrap().kept.is_nothing(), "only devices with a taint are kept");

    start(&mut lifecycle, tolerant.id, 1, &[("a", "6-7")]);
    let calls = lifecycle.calls();
    assert_eq!(devices(&bound(&calls)[0].2[0]), ["gpu-6", "gpu-7"]);
    // Whatever it is placed on: who does not tolerate it never has it.
    start(&mut lifecycle, plain.id, 1, &[("a", "5-6")]);
    let calls = lifecycle.calls();
    assert_eq!(devices(&bound(&calls)[0].2[0]), ["gpu-5", "gpu-0"]);

    job_ended(&mut lifecycle, tolerant.id, "tolerant");
    let told = node(&lifecycle.settle(NOW), "a").unwrap();
    // For the engine the other gang still has 6, which is nobody's: 4 is kept in its place.
    assert_eq!((told.foreign, told.kept.is_nothing()), (DeviceMask(0b1001_0000), true));
    for name in ["6", "7"] {
        tell(&mut lifecycle, DeviceEvent::RuleGone(name.to_owned()));
    }
    assert_eq!(foreign(&lifecycle.settle(NOW), "a").unwrap(), DeviceMask::EMPTY);
}

#[test]
fn a_toleration_of_another_taint_and_the_access_of_an_administrator_keep_nothing() {
    let mut lifecycle = cluster(&["a"]);
    let labels = [("resource.kubernetes.io/admin-access".to_owned(), "true".to_owned())].into();
    lifecycle.observe(NOW, Event::Namespace { name: "default".to_owned(), labels: Some(labels) });
    tell(&mut lifecycle, rule("7", Some(("a", 7)), hot("NoSchedule")));
    let other = json!({ "tolerations": [{ "key": "hot", "operator": "Equal", "value": "slightly" }] });
    with_pod(&mut lifecycle, "other", 1, other);
    let mut admin = tolerating();
    admin["adminAccess"] = json!(true);
    with_pod(&mut lifecycle, "admin", 1, admin);
    let facts = lifecycle.begin(NOW);
    assert_eq!(jobs(&facts).len(), 2);
    let told = node(&facts, "a").unwrap();
    assert_eq!((told.foreign, told.kept.is_nothing()), ("7".parse().unwrap(), true));
    // What nobody knows to count stands for other devices than those that few may have.
    with_pod(&mut lifecycle, "tolerant", 1, tolerating());
    let others = json!([{ "name": "c", "resources": { "limits": { "nvidia.com/gpu": "3" } } }]);
    let others =
        json!({ "schedulerName": "other", "nodeName": "a", "resourceClaims": [], "containers": others });
    lifecycle.observe(NOW, pod("foreign", others));
    let told = node(&lifecycle.settle(NOW), "a").unwrap();
    assert_eq!((told.foreign, told.kept.all()), ("4-6".parse().unwrap(), "7".parse().unwrap()));
}

#[test]
fn requests_that_tolerate_different_taints_are_counted_by_themselves() {
    let mut lifecycle = cluster(&["a"]);
    for at in 5..8 {
        tell(&mut lifecycle, rule(&at.to_string(), Some(("a", at)), hot("NoSchedule")));
    }
    with_pod(&mut lifecycle, "x", 2, json!({}));
    let DeviceEvent::Claim(mut of) = claim("x-c", 1, None, Some("x"), json!({})) else { unreachable!() };
    let mut tolerant = tolerating();
    tolerant["deviceClassName"] = json!("gpu");
    tolerant["count"] = json!(2);
    let plain = json!({ "deviceClassName": "gpu", "count": 2 });
    of.spec = object(json!({ "devices": { "requests": [
        { "name": "plain", "exactly": plain }, { "name": "tolerant", "exactly": tolerant } ] } }));
    tell(&mut lifecycle, DeviceEvent::Claim(of));
    let facts = lifecycle.begin(NOW);
    let job = jobs(&facts).remove(0);
    let needs = &job.gangs[0].needs;
    let (counted, _) = needs.named.iter().find(|(name, _)| name.as_str().starts_with("claims/")).unwrap();
    let told = node(&facts, "a").unwrap();
    assert_eq!((needs.devices, told.kept.all()), (4, "5-7".parse().unwrap()));
    assert_eq!(
        told.machine.named[counted] - told.foreign_use.named[counted],
        1,
        "what tolerates taints may take what others need"
    );
}

#[test]
fn after_a_restart_a_tainted_device_is_held_by_whom_it_was_given() {
    let mut lifecycle = cluster(&["a"]);
    tell(&mut lifecycle, rule("all", None, hot("NoExecute")));
    let given = |name: &str, devices: &[u32]| {
        let DeviceEvent::Claim(mut of) =
            claim(&format!("{name}-c"), 3, None, Some(name), allocated("a", devices, &[name]))
        else {
            unreachable!()
        };
        let mut exactly = tolerating();
        exactly["deviceClassName"] = json!("gpu");
        exactly["count"] = json!(3);
        of.spec = object(json!({ "devices": { "requests": [{ "name": "r", "exactly": exactly }] } }));
        DeviceEvent::Claim(of)
    };
    tell(&mut lifecycle, given("x", &[0, 1, 2]));
    let Event::Pod(there) = pod("x", json!({ "nodeName": "a" })) else { unreachable!() };
    let mut there = serde_json::to_value(*there).unwrap();
    there["metadata"]["annotations"] = json!({ "phalanx.dev/rank": "0", "phalanx.dev/gang-size": "1",
        "phalanx.dev/devices": "0-2", "phalanx.dev/attempt": "1" });
    there["status"]["phase"] = json!("Running");
    lifecycle.observe(NOW, Event::Pod(Box::new(object(there))));
    tell(&mut lifecycle, given("others", &[3]));
    with_pod(&mut lifecycle, "y", 3, tolerating());
    let facts = lifecycle.begin(NOW);
    let told = node(&facts, "a").unwrap();
    assert_eq!(told.foreign, "3".parse().unwrap(), "what ours have is no use by others");
    let waits = jobs(&facts).into_iter().find(|job| told.kept.0.contains_key(&set_of(job))).unwrap();
    assert_eq!(
        told.kept.0[&set_of(&waits)].count(),
        8,
        "what is free, and what ours have, for when it becomes free"
    );
    let held = facts.iter().find_map(|fact| match fact {
        Input::JobObserved { gangs, .. } => gangs[0].placement.clone(),
        _ => None,
    });
    assert_eq!(held.unwrap().slots[0].devices, "0-2".parse().unwrap());
}

/// Draws nodes whose devices have taints, and gangs whose pods tolerate some of them; lets engine and scheduler do what they do.
mod drawn {
    #![allow(clippy::cast_possible_truncation, reason = "what is drawn is small")]

    use std::collections::{BTreeMap, BTreeSet};

    use super::super::drawing::{Rng, play};
    use super::*;

    const NODES: [&str; 2] = ["a", "b"];
    const KEYS: [&str; 2] = ["hot", "slow"];

    struct Drawn {
        nodes: usize,
        /// By node and device: which of the keys taint it, by bits.
        taints: Vec<[u32; 8]>,
        /// By node: devices that others hold.
        held: Vec<u32>,
        /// How many devices each pod asks for, and which keys it tolerates.
        pods: Vec<(u32, u32)>,
    }

    fn draw(rng: &mut Rng) -> Drawn {
        let nodes = 1 + rng.below(2) as usize;
        let taints = (0..nodes).map(|_| std::array::from_fn(|_| [0, 0, 0, 1, 2, 3][rng.below(6) as usize]));
        let taints = taints.collect();
        let held = (0..nodes).map(|_| rng.below(4) as u32).collect();
        let pods = (0..1 + rng.below(4)).map(|_| (1 + rng.below(5) as u32, rng.below(4) as u32));
        Drawn { nodes, taints, held, pods: pods.collect() }
    }

    impl Drawn {
        fn lifecycle(&self) -> Lifecycle {
            let mut lifecycle = cluster(&NODES[..self.nodes]);
            for (at, node) in NODES[..self.nodes].iter().enumerate() {
                for (device, taints) in (0..).zip(self.taints[at]) {
                    for (bit, key) in KEYS.iter().enumerate().filter(|(bit, _)| taints >> bit & 1 == 1) {
                        let effect = if device % 2 == 0 { "NoSchedule" } else { "NoExecute" };
                        let taint = json!({ "key": key, "effect": effect });
                        tell(
                            &mut lifecycle,
                            rule(&format!("{node}-{device}-{bit}"), Some((node, device)), taint),
                        );
                    }
                }
                let devices: Vec<u32> = (0..self.held[at]).collect();
                if !devices.is_empty() {
                    let status = allocated(node, &devices, &["foreign"]);
                    tell(&mut lifecycle, claim(&format!("held-{node}"), self.held[at], None, None, status));
                }
            }
            for (at, (count, tolerated)) in self.pods.iter().enumerate() {
                let keys = KEYS.iter().enumerate().filter(|(bit, _)| tolerated >> bit & 1 == 1);
                let tolerations: Vec<Value> =
                    keys.map(|(_, key)| json!({ "key": key, "operator": "Exists" })).collect();
                with_pod(&mut lifecycle, &format!("p{at}"), *count, json!({ "tolerations": tolerations }));
                let Event::Pod(member) = pod(&format!("p{at}"), json!({})) else { unreachable!() };
                let mut member = serde_json::to_value(*member).unwrap();
                member["metadata"]["labels"] = json!({
                    "pod-group.scheduling.sigs.k8s.io/name": "g",
                    "pod-group.scheduling.sigs.k8s.io/min-available": self.pods.len().to_string(),
                });
                lifecycle.observe(NOW, Event::Pod(Box::new(object(member))));
            }
            lifecycle
        }

        fn may_have(&self, pod: usize, node: usize) -> DeviceMask {
            let is_his = |device: &u32| {
                *device >= self.held[node] && self.taints[node][*device as usize] & !self.pods[pod].1 == 0
            };
            (0..8).filter(is_his).collect()
        }

        /// Whether there is a node for each pod such that all have their devices: every way is tried, by Hall's theorem.
        fn is_possible(&self) -> bool {
            let ways = self.nodes.pow(self.pods.len() as u32);
            (0..ways).any(|way| {
                let node = |pod: usize| way / self.nodes.pow(pod as u32) % self.nodes;
                (1_u32..1 << self.pods.len()).all(|some| {
                    (0..self.nodes).all(|at| {
                        let here =
                            (0..self.pods.len()).filter(|pod| some >> pod & 1 == 1 && node(*pod) == at);
                        let (mut wanted, mut there) = (0, DeviceMask::EMPTY);
                        for pod in here {
                            wanted += self.pods[pod].0;
                            there = there.union(self.may_have(pod, at));
                        }
                        wanted <= there.count()
                    })
                })
            })
        }
    }

    #[test]
    fn nobody_has_a_device_that_he_does_not_tolerate_and_all_that_can_start_starts() {
        let (mut started, mut waiting, mut tolerated) = (0, 0, 0);
        for seed in 0..200 {
            let mut rng = Rng(seed);
            let drawn = draw(&mut rng);
            let all = play(&mut drawn.lifecycle());
            let expected = if drawn.is_possible() { drawn.pods.len() } else { 0 };
            assert_eq!(
                all.len(),
                expected,
                "{seed}: {:?} of {:?}, held {:?}",
                drawn.pods,
                drawn.taints,
                drawn.held
            );
            let mut given: BTreeSet<(String, String)> = BTreeSet::new();
            let mut has_tainted = false;
            for (name, (node, reservations)) in &all {
                let pod: usize = name[1..].parse().unwrap();
                let at = NODES.iter().position(|of| of == node).unwrap();
                let devices: Vec<&str> = reservations.iter().flat_map(devices).collect();
                assert_eq!(devices.len(), drawn.pods[pod].0 as usize, "{seed}");
                for device in devices {
                    let nth: u32 = device.split_once('-').unwrap().1.parse().unwrap();
                    assert!(drawn.may_have(pod, at).contains(nth), "{seed}: {name} has {device} of {node}");
                    assert!(
                        given.insert((node.clone(), device.to_owned())),
                        "{seed}: {device} of {node} twice"
                    );
                    has_tainted |= drawn.taints[at][nth as usize] > 0;
                }
            }
            started += u32::from(expected > 0);
            waiting += u32::from(expected == 0);
            tolerated += u32::from(has_tainted);
        }
        let counts: BTreeMap<&str, u32> =
            [("started", started), ("waiting", waiting), ("tolerated", tolerated)].into();
        assert!(started > 30 && waiting > 20 && tolerated > 20, "{counts:?}");
    }
}
