//! Claims that pods of one gang share.

use super::*;

/// One of a gang of so many, with these claims by name.
fn member(name: &str, size: u32, claims: &[&str]) -> Event {
    let claims: Vec<Value> =
        claims.iter().map(|claim| json!({ "name": claim, "resourceClaimName": claim })).collect();
    let Event::Pod(pod) = pod(name, json!({ "resourceClaims": claims })) else { unreachable!() };
    let mut pod = serde_json::to_value(*pod).unwrap();
    pod["metadata"]["labels"] = json!({
        "pod-group.scheduling.sigs.k8s.io/name": "g",
        "pod-group.scheduling.sigs.k8s.io/min-available": size.to_string(),
    });
    Event::Pod(Box::new(object(pod)))
}

/// Three pods that share a claim for two devices.
fn three(lifecycle: &mut Lifecycle) {
    for name in ["x", "y", "z"] {
        lifecycle.observe(NOW, member(name, 3, &["s"]));
    }
}

fn explained(calls: &[Call]) -> String {
    let message = |call: &Call| match call {
        Call::Explain { message, .. } => Some(message.to_string()),
        _ => None,
    };
    calls.iter().find_map(message).unwrap_or_default()
}

#[test]
fn a_gang_that_shares_a_claim_is_on_one_node_and_all_have_it() {
    let mut lifecycle = cluster(&["a", "b"]);
    tell(&mut lifecycle, claim("s", 2, None, None, json!({})));
    three(&mut lifecycle);
    let facts = lifecycle.begin(NOW);
    let jobs = jobs(&facts);
    let gang = &jobs[0].gangs[0];
    assert_eq!(gang.topology.required.as_ref().unwrap().as_str(), "node");
    assert_eq!((gang.needs.devices, gang.size), (2, 1), "its devices are counted once");
    assert_eq!((gang.roles[0].needs.devices, gang.roles[0].size), (0, 2));
    start(&mut lifecycle, jobs[0].id, 1, &[("b", "2-3"), ("b", "-"), ("b", "-")]);
    let calls = lifecycle.calls();
    let all = bound(&calls);
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|(_, _, claims)| devices(&claims[0]) == ["gpu-2", "gpu-3"]), "{all:?}");
    let users: Vec<&str> = all.iter().map(|(_, _, claims)| &*claims[0].pod.name).collect();
    assert_eq!(users, ["x", "y", "z"], "each is to be among those that it is reserved for");
    let annotated: Vec<&str> = all.iter().map(|(_, devices, _)| &**devices).collect();
    assert_eq!(annotated, ["2-3", "-", "-"]);
}

#[test]
fn those_of_a_gang_that_share_a_claim_are_on_one_node_and_the_others_anywhere() {
    let mut lifecycle = cluster(&["a", "b"]);
    tell(&mut lifecycle, claim("s", 2, None, None, json!({})));
    for (name, claims) in [("x", ["s"].as_slice()), ("y", &["s"]), ("z", &[])] {
        lifecycle.observe(NOW, member(name, 3, claims));
    }
    let facts = lifecycle.begin(NOW);
    let jobs = jobs(&facts);
    let gang = &jobs[0].gangs[0];
    assert_eq!((gang.size, gang.needs.devices), (1, 2), "its devices are counted once");
    assert_eq!(
        gang.roles.iter().map(|role| (role.size, role.needs.devices)).collect::<Vec<_>>(),
        [(1, 0); 2]
    );
    assert_eq!((&gang.topology.required, &gang.topology.together), (&None, &vec![vec![0, 1]]));
    start(&mut lifecycle, jobs[0].id, 1, &[("b", "2-3"), ("b", "-"), ("a", "-")]);
    let calls = lifecycle.calls();
    let all = bound(&calls);
    assert_eq!(
        all.iter().map(|(name, devices, claims)| (&**name, &**devices, claims.len())).collect::<Vec<_>>(),
        [("x", "2-3", 1), ("y", "-", 1), ("z", "-", 0)]
    );
    assert!(all[..2].iter().all(|(_, _, claims)| devices(&claims[0]) == ["gpu-2", "gpu-3"]), "{all:?}");
}

/// Somebody else has allocated it: they go where it is.
#[test]
fn what_some_of_a_gang_share_and_is_allocated_asks_for_nothing_more() {
    let mut lifecycle = cluster(&["a", "b"]);
    tell(&mut lifecycle, claim("s", 2, None, None, allocated("a", &[0, 1], &["foreign"])));
    for (name, claims) in [("x", ["s"].as_slice()), ("y", &["s"]), ("z", &[])] {
        lifecycle.observe(NOW, member(name, 3, claims));
    }
    let facts = lifecycle.begin(NOW);
    assert_eq!(jobs(&facts)[0].gangs[0].topology.together, Vec::<Vec<u32>>::new());
}

#[test]
fn more_pods_than_a_claim_can_be_for_wait_and_are_told_what_to_do() {
    let mut lifecycle = cluster(&["a"]);
    tell(&mut lifecycle, claim("s", 2, None, None, json!({})));
    (0..257).for_each(|at| lifecycle.observe(NOW, member(&format!("x{at}"), 257, &["s"])));
    assert_eq!(jobs(&lifecycle.begin(NOW)), []);
    let why = explained(&lifecycle.calls());
    assert!(why.contains("spec.resourceClaims[s]: 257 pods") && why.contains("TemplateName"), "{why}");
}

/// Draws clusters, claims, and gangs whose pods share some of them; lets engine and scheduler do what they do.
mod drawn {
    #![allow(clippy::cast_possible_truncation, reason = "what is drawn is small")]

    use std::collections::BTreeMap;

    use super::super::drawing::{Rng, play};
    use super::*;
    use crate::api;
    use crate::dra::is_reached_by;

    const NODES: [&str; 3] = ["a", "b", "c"];
    const NET: &str = "net.example.com";

    struct Drawn {
        nodes: usize,
        /// Devices that others hold, by node.
        held: Vec<u32>,
        /// How many devices each claim is for, and whether of those that all nodes reach.
        claims: Vec<(u32, bool)>,
        /// The claims of each pod.
        pods: Vec<Vec<usize>>,
    }

    fn draw(rng: &mut Rng) -> Drawn {
        let nodes = 1 + rng.below(3) as usize;
        let held = (0..nodes).map(|_| rng.below(5) as u32).collect();
        let claims: Vec<(u32, bool)> =
            (0..1 + rng.below(3)).map(|_| (1 + rng.below(6) as u32, rng.below(5) == 0)).collect();
        let mut pods = vec![Vec::new(); 2 + rng.below(4) as usize];
        for pod in &mut pods {
            pod.extend((0..claims.len()).filter(|_| rng.below(100) < 45));
        }
        Drawn { nodes, held, claims, pods }
    }

    fn with_net(lifecycle: &mut Lifecycle) {
        let selector = json!({ "cel": { "expression": format!("device.driver == '{NET}'") } });
        let class = json!({ "metadata": { "name": "net" }, "spec": { "selectors": [selector] } });
        tell(lifecycle, DeviceEvent::Class(object(class)));
        let devices: Vec<Value> = (0..8).map(|at| json!({ "name": format!("nic-{at}") })).collect();
        let slice = json!({ "metadata": { "name": "net" }, "spec": { "driver": NET, "allNodes": true, "devices": devices,
            "pool": { "name": "net", "generation": 1, "resourceSliceCount": 1 } } });
        tell(lifecycle, DeviceEvent::Slice(object(slice)));
    }

    impl Drawn {
        fn lifecycle(&self) -> Lifecycle {
            let mut lifecycle = cluster(&NODES[..self.nodes]);
            with_net(&mut lifecycle);
            for (node, held) in NODES.iter().zip(&self.held).filter(|(_, held)| **held > 0) {
                let devices: Vec<u32> = (0..*held).collect();
                let status = allocated(node, &devices, &["foreign"]);
                tell(&mut lifecycle, claim(&format!("held-{node}"), *held, None, None, status));
            }
            for (at, (count, is_net)) in self.claims.iter().enumerate() {
                let exactly =
                    json!({ "deviceClassName": if *is_net { "net" } else { "gpu" }, "count": count });
                let DeviceEvent::Claim(mut of) = claim(&format!("c{at}"), 1, None, None, json!({})) else {
                    unreachable!()
                };
                of.spec = object(json!({ "devices": { "requests": [{ "name": "r", "exactly": exactly }] } }));
                tell(&mut lifecycle, DeviceEvent::Claim(of));
            }
            let size = self.pods.len() as u32;
            for (at, claims) in self.pods.iter().enumerate() {
                let claims: Vec<String> = claims.iter().map(|claim| format!("c{claim}")).collect();
                let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
                lifecycle.observe(NOW, member(&format!("p{at}"), size, &claims));
            }
            lifecycle
        }

        /// Whether there is a node for each pod such that all can have their claims: every way is tried.
        fn is_possible(&self) -> bool {
            let used = |claim: usize| self.pods.iter().any(|pod| pod.contains(&claim));
            let net: u32 =
                self.claims.iter().enumerate().filter(|(at, of)| of.1 && used(*at)).map(|(_, of)| of.0).sum();
            let ways = self.nodes.pow(self.pods.len() as u32);
            net <= 8
                && (0..ways).any(|way| {
                    let node = |pod: usize| way / self.nodes.pow(pod as u32) % self.nodes;
                    let mut held = self.held.clone();
                    (0..self.claims.len()).filter(|at| !self.claims[*at].1).all(|claim| {
                        let mut nodes =
                            (0..self.pods.len()).filter(|pod| self.pods[*pod].contains(&claim)).map(node);
                        let Some(first) = nodes.next() else { return true };
                        held[first] += self.claims[claim].0;
                        nodes.all(|node| node == first) && held[first] <= 8
                    })
                })
        }
    }

    #[test]
    fn nothing_wrong_is_allocated_and_all_that_can_start_starts() {
        let (mut started, mut waiting, mut parted) = (0, 0, 0);
        for seed in 0..500 {
            let mut rng = Rng(seed);
            let drawn = draw(&mut rng);
            let all = play(&mut drawn.lifecycle());
            let expected = if drawn.is_possible() { drawn.pods.len() } else { 0 };
            assert_eq!(
                all.len(),
                expected,
                "{seed}: claims {:?} of {:?}, held {:?}",
                drawn.claims,
                drawn.pods,
                drawn.held
            );
            let mut holders: BTreeMap<(String, String), String> = BTreeMap::new();
            for (pod, (node, reservations)) in &all {
                let own = &drawn.pods[pod[1..].parse::<usize>().unwrap()];
                let mut names: Vec<String> = own.iter().map(|claim| format!("c{claim}")).collect();
                for reservation in reservations {
                    let name = reservation.claim.metadata.name.clone().unwrap();
                    assert_eq!(&*reservation.pod.name, pod, "{seed}");
                    names.retain(|own| *own != name);
                    let mut claim = (*reservation.claim).clone();
                    claim.status.get_or_insert_default().allocation = Some(reservation.allocation.clone());
                    let at: api::Node = object(json!({ "metadata": { "name": node } }));
                    assert!(is_reached_by(&claim, &at), "{seed}: {name} is not reached from {node}");
                    let results = reservation.allocation.devices.as_ref().unwrap().results.as_ref().unwrap();
                    let (count, _) = drawn.claims[name[1..].parse::<usize>().unwrap()];
                    assert_eq!(results.len(), count as usize, "{seed}");
                    for result in results {
                        let device = (result.pool.clone(), result.device.clone());
                        let nth: u32 = result.device.split_once('-').unwrap().1.parse().unwrap();
                        let held = NODES
                            .iter()
                            .position(|node| **node == *result.pool)
                            .map_or(0, |at| drawn.held[at]);
                        assert!(nth >= held, "{seed}: others hold {device:?}");
                        let holder = holders.entry(device).or_insert_with(|| name.clone());
                        assert_eq!(*holder, name, "{seed}: two claims have one device");
                    }
                }
                assert_eq!(
                    names,
                    Vec::<String>::new(),
                    "{seed}: {pod} is not among those that it is reserved for"
                );
            }
            let shares = |claim: usize| drawn.pods.iter().filter(|pod| pod.contains(&claim)).count();
            started += u32::from(expected > 0);
            waiting += u32::from(expected == 0);
            parted += u32::from(
                expected > 0 && (0..drawn.claims.len()).any(|at| (2..expected).contains(&shares(at))),
            );
        }
        assert!(started > 130 && waiting > 60 && parted > 60, "{started} {waiting} {parted}");
    }
}

#[test]
fn what_a_gang_shares_goes_back_for_each_of_its_pods() {
    let mut lifecycle = cluster(&["a"]);
    tell(&mut lifecycle, claim("s", 2, None, None, json!({})));
    three(&mut lifecycle);
    let facts = lifecycle.begin(NOW);
    let job = jobs(&facts)[0].id;
    start(&mut lifecycle, job, 1, &[("a", "0-1"), ("a", "-"), ("a", "-")]);
    assert_eq!(bound(&lifecycle.calls()).len(), 3);
    tell(&mut lifecycle, claim("s", 2, None, None, allocated("a", &[0, 1], &["y", "x", "z"])));
    lifecycle.gang_waits(GangId { job, index: 0 });
    assert_eq!(released(&lifecycle.calls()), ["s"; 3]);
    start(&mut lifecycle, job, 2, &[("a", "4-5"), ("a", "-"), ("a", "-")]);
    for users in [["x", "z"].as_slice(), &["z"], &[]] {
        assert_eq!(bound(&lifecycle.calls()), [], "it has not gone back for all");
        let status = if users.is_empty() { json!({}) } else { allocated("a", &[0, 1], users) };
        let DeviceEvent::Claim(now) = claim("s", 2, None, None, status) else { unreachable!() };
        let (namespace, name) = ("default".to_owned(), "s".to_owned());
        tell(&mut lifecycle, DeviceEvent::Released { namespace, name, claim: Some(now), is_gone: false });
    }
    let calls = lifecycle.calls();
    assert_eq!(devices(&bound(&calls)[1].2[0]), ["gpu-4", "gpu-5"]);
}

/// A scheduler was killed after the claim was written and before any pod was bound.
#[test]
fn what_a_gang_that_waits_shares_since_before_goes_back_first() {
    let mut lifecycle = cluster(&["a", "b"]);
    tell(&mut lifecycle, claim("s", 2, None, None, allocated("a", &[0, 1], &["y", "x"])));
    three(&mut lifecycle);
    let facts = lifecycle.begin(NOW);
    assert_eq!(released(&lifecycle.calls()), ["s", "s"]);
    let gang = &jobs(&facts)[0].gangs[0];
    assert_eq!((gang.needs.devices, gang.topology.required.as_ref().unwrap().as_str()), (2, "node"));
}
