//! Gangs whose own pods have to be in different domains.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{HOST, Play, ROOM, ZONE, asking, kubeflow, of_kubeflow, rule, spread};
use crate::api::{Node, Pod};
use crate::filter::{Namespaces, Surroundings};

fn spread_over(app: &str, key: &str, max_skew: u32) -> Value {
    let mut spec = spread(app);
    spec["topologySpreadConstraints"][0]["topologyKey"] = json!(key);
    spec["topologySpreadConstraints"][0]["maxSkew"] = json!(max_skew);
    spec
}

/// A gang of equal pods of its own application.
fn gang(play: &mut Play, name: &str, size: u32, spec: &Value) {
    for at in 0..size {
        play.member(&format!("{name}-{at}"), name, Some((name, size)), spec);
    }
    play.turn();
}

/// A pod of somebody else.
fn there(play: &mut Play, name: &str, app: &str, node: &str, cpu: &str) {
    let spec = json!({ "schedulerName": "other", "nodeName": node,
        "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] });
    play.pod(name, app, &spec);
}

/// How many pods whose name begins so are in each room of a cluster of `nodes` nodes.
fn rooms(play: &Play, prefix: &str, nodes: usize) -> BTreeMap<usize, usize> {
    let mut rooms = BTreeMap::new();
    for node in play.places(prefix) {
        let at = (0..nodes).find(|at| super::node_name(*at) == node).unwrap();
        *rooms.entry(at % 3).or_insert(0) += 1;
    }
    rooms
}

/// It waited: the engine put it onto one node, and on different nodes it was in one zone.
#[test]
fn a_gang_whose_pods_are_kept_out_of_one_zone_is_placed_in_several() {
    let mut play = Play::of(4);
    gang(&mut play, "ring", 2, &rule("podAntiAffinity", "ring", ZONE));
    assert_eq!(play.zones("ring"), [("a", 1), ("b", 1)].into(), "{:?}", play.reasons);
    gang(&mut play, "more", 3, &rule("podAntiAffinity", "more", ZONE));
    assert_eq!(play.places("more"), Vec::<&str>::new());
    assert!(play.reasons["more-0"].contains("spec.affinity.podAntiAffinity"), "{:?}", play.reasons);
}

#[test]
fn a_gang_that_is_spread_over_zones_is_placed_as_evenly_as_it_must_be() {
    for (size, expected) in [(2, [1, 1]), (3, [2, 1]), (4, [2, 2]), (5, [3, 2]), (8, [4, 4])] {
        let mut play = Play::of(4);
        gang(&mut play, "even", size, &spread("even"));
        let mut found: Vec<usize> = play.zones("even").into_values().collect();
        found.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
        assert_eq!(found, expected, "{size}: {:?} {:?}", play.bound, play.reasons);
    }
}

#[test]
fn pods_that_are_there_count_where_a_gang_is_spread() {
    let mut play = Play::of(4);
    for (at, node) in ["a1", "a1", "b1"].iter().enumerate() {
        there(&mut play, &format!("old-{at}"), "even", node, "1");
    }
    gang(&mut play, "even", 3, &spread("even"));
    assert_eq!(play.zones("even"), [("a", 1), ("b", 2)].into(), "{:?}", play.reasons);
}

#[test]
fn a_label_that_is_no_level_divides_a_gang_as_well() {
    let mut play = Play::of(6);
    gang(&mut play, "ring", 3, &rule("podAntiAffinity", "ring", ROOM));
    assert_eq!(rooms(&play, "ring", 6), [(0, 1), (1, 1), (2, 1)].into(), "{:?}", play.reasons);
    gang(&mut play, "even", 6, &spread_over("even", ROOM, 1));
    assert_eq!(rooms(&play, "even", 6), [(0, 2), (1, 2), (2, 2)].into(), "{:?}", play.reasons);
    gang(&mut play, "more", 4, &rule("podAntiAffinity", "more", ROOM));
    assert_eq!(play.places("more"), Vec::<&str>::new());
    let why = &play.reasons["more-0"];
    let expected = "spec.affinity.podAntiAffinity of more-3: no domain of example.com/room is left for it, 3 of 4 pods have one";
    assert_eq!(why, expected);
}

#[test]
fn a_gang_that_no_domain_was_left_for_is_placed_when_one_comes_free() {
    let mut play = Play::of(3);
    play.pod("far", "ring", &rule("podAntiAffinity", "ring", ROOM));
    play.turn();
    gang(&mut play, "ring", 3, &rule("podAntiAffinity", "ring", ROOM));
    assert!(play.reasons["ring-0"].contains("is left for it, 2 of 3 pods have one"), "{:?}", play.reasons);
    play.delete("far");
    play.turn();
    play.now = play.now.plus(crate::gang::constraints::PATIENCE_MS);
    play.turn();
    assert_eq!(rooms(&play, "ring", 3).len(), 3, "{:?}", play.reasons);
}

#[test]
fn roles_without_rules_stay_out_of_the_division_of_others() {
    let mut play = Play::of(4);
    let worker = asking("1", &rule("podAntiAffinity", "job", ZONE));
    let mut master = asking("1", &json!({}));
    master["nodeSelector"] = json!({ ZONE: "a" });
    let role = |spec: &Value, count: u32| json!({ "replicas": count, "template": { "spec": spec } });
    let roles = json!({ "Master": role(&master, 1), "Worker": role(&worker, 2) });
    play.object(&kubeflow("PyTorchJob", "pytorchReplicaSpecs", &roles, None));
    for index in 0..2 {
        let (name, pod) = of_kubeflow("PyTorchJob", "worker", index, 1, &worker);
        play.see(&name, pod);
    }
    let (name, mut pod) = of_kubeflow("PyTorchJob", "master", 0, 1, &master);
    pod["metadata"]["labels"]["app"] = json!("master");
    play.see(&name, pod);
    play.turn();
    assert_eq!(play.zones("job-worker"), [("a", 1), ("b", 1)].into(), "{:?}", play.reasons);
    assert_eq!(play.zones("job-master"), [("a", 1)].into());
}

#[test]
fn members_are_dealt_to_domains_that_have_room_for_them() {
    let mut play = Play::of(6);
    // Of room 0 only the smaller part is free; another has to take what goes beyond one each.
    there(&mut play, "big-0", "big", &super::node_name(0), "8");
    there(&mut play, "big-1", "big", &super::node_name(3), "7");
    gang(&mut play, "even", 5, &spread_over("even", ROOM, 1));
    assert_eq!(rooms(&play, "even", 6), [(0, 1), (1, 2), (2, 2)].into(), "{:?}", play.reasons);
}

/// It waited for the domains that it was dealt to when all were full.
#[test]
fn a_gang_that_waits_is_dealt_anew_when_there_is_room_elsewhere() {
    for full in 0..3 {
        let mut play = Play::of(3);
        for at in 0..3 {
            let mut spec = asking("8", &json!({}));
            spec["nodeSelector"] = json!({ HOST: super::node_name(at) });
            play.pod(&format!("big-{at}"), "big", &spec);
        }
        play.turn();
        assert_eq!(play.places("big").len(), 3);
        gang(&mut play, "ring", 2, &rule("podAntiAffinity", "ring", ROOM));
        assert_eq!(play.places("ring"), Vec::<&str>::new());
        (0..3).filter(|at| *at != full).for_each(|at| play.delete(&format!("big-{at}")));
        play.turn();
        play.now = play.now.plus(crate::gang::constraints::PATIENCE_MS);
        play.turn();
        let rooms: Vec<usize> = rooms(&play, "ring", 3).into_keys().collect();
        assert_eq!(rooms, (0..3).filter(|at| *at != full).collect::<Vec<_>>(), "{:?}", play.reasons);
        play.now = play.now.plus(crate::gang::constraints::PATIENCE_MS);
        play.turn();
        assert_eq!(play.lifecycle.wake(), None, "nothing is left to be looked at");
    }
}

#[test]
fn two_gangs_that_come_together_are_dealt_to_what_the_other_leaves() {
    let mut play = Play::of(6);
    let spec = asking("8", &json!({}));
    for name in ["one", "two"] {
        let mut spec = spec.clone();
        spec["affinity"] = rule("podAntiAffinity", name, ROOM)["affinity"].clone();
        for at in 0..3 {
            play.member(&format!("{name}-{at}"), name, Some((name, 3)), &spec);
        }
    }
    play.turn();
    assert_eq!((play.places("one").len(), play.places("two").len()), (3, 3), "{:?}", play.reasons);
}

/// A pod as the rules see it.
fn judged(app: &str, spec: &Value) -> Pod {
    let metadata = json!({ "namespace": "x", "name": "p", "labels": { "app": app } });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

/// Whether kube-scheduler could place these pods one after the other, in this or in any order, beside those that are there.
fn could_be(nodes: &[Node], there: &mut Vec<(Pod, usize)>, left: &[Pod], any_order: bool) -> bool {
    let namespaces = Arc::new(Namespaces::from([("x".to_owned(), BTreeMap::new())]));
    left.is_empty()
        || left.iter().enumerate().any(|(which, pod)| {
            if which > 0 && (!any_order || left[..which].contains(pod)) {
                return false;
            }
            let mut around = Surroundings::of(Arc::new(pod.clone()), namespaces.clone(), nodes).unwrap();
            for (other, at) in there.iter() {
                around.add(other, &nodes[*at]);
            }
            let mut rest = left.to_vec();
            rest.remove(which);
            (0..nodes.len()).filter(|at| around.admits(&nodes[*at]).is_ok()).any(|at| {
                there.push((pod.clone(), at));
                let is_possible = could_be(nodes, there, &rest, any_order);
                there.pop();
                is_possible
            })
        })
}

fn rules() -> impl Strategy<Value = Value> {
    let key = || prop_oneof![Just(ZONE), Just(ROOM)];
    prop_oneof![
        key().prop_map(|key| rule("podAntiAffinity", "own", key)),
        (key(), 1_u32..3).prop_map(|(key, skew)| spread_over("own", key, skew)),
        (1_u32..3).prop_map(|skew| {
            let mut both = spread_over("own", ZONE, skew);
            both["affinity"] = rule("podAntiAffinity", "own", ROOM)["affinity"].clone();
            both
        }),
        key().prop_map(|key| {
            let mut both = spread_over("own", ROOM, 1);
            both["affinity"] = rule("podAffinity", "own", key)["affinity"].clone();
            both
        }),
    ]
}

/// Pods of another tenant waited 6 s for 20 of them: each was searched again at every change.
#[test]
fn gangs_whose_domains_are_searched_for_long_take_turns_and_keep_nobody_waiting() {
    use crate::constraint::division::TRIALS_MAX;
    use crate::constraint::division::searches::TURN_MAX;
    let mut play = Play::of(48);
    let hard = |name: &str| {
        let mut spec = asking("1", &spread_over(name, ZONE, 1));
        let rooms = spread_over(name, ROOM, 1)["topologySpreadConstraints"][0].clone();
        spec["topologySpreadConstraints"].as_array_mut().unwrap().push(rooms);
        spec["affinity"] = rule("podAntiAffinity", name, HOST)["affinity"].clone();
        spec
    };
    // 24 pods on as many nodes are 8 in each room, and in one of them 7 nodes have room: the last pod has none.
    for at in 0..9 {
        there(&mut play, &format!("big-{at}"), "big", &super::node_name(at * 3), "8");
    }
    for at in 0..3 {
        let name = format!("hard-{at}");
        for rank in 0..24 {
            play.member(&format!("{name}-{rank}"), &name, Some((&name, 24)), &hard(&name));
        }
    }
    let mut trials = Vec::new();
    for second in 0..6 {
        let other = format!("other-{second}");
        play.pod(&other, "other", &asking("1", &json!({})));
        let facts = play.lifecycle.settle(play.now);
        trials.push(play.lifecycle.constraints.searches.spent());
        crate::gang::turn::step(&mut play.lifecycle, &mut play.engine, play.now, &facts);
        play.answer();
        assert!(play.bound.contains_key(&other), "{second}: {:?}", play.reasons.get(&other));
        play.now = play.now.plus(1_000);
    }
    assert!(trials.iter().all(|trials| *trials <= TURN_MAX + 3 * TRIALS_MAX), "{trials:?}");
    assert_eq!(play.lifecycle.constraints.searches.long(), 3, "each has had its turn: {trials:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_gang_is_placed_wherever_its_pods_could_be_one_after_the_other(
        nodes in 2_usize..6,
        first in rules(),
        // Whether pods that wait for the company of others come in time depends on the order.
        second in proptest::option::of(prop_oneof![Just(json!({})), Just(rule("podAntiAffinity", "own", ROOM))]),
        size in 2_u32..5,
        old in proptest::collection::vec(0_usize..6, 0..3),
    ) {
        let mut play = Play::of(nodes);
        let mut beside = Vec::new();
        for (at, node) in old.into_iter().filter(|node| *node < nodes).enumerate() {
            there(&mut play, &format!("old-{at}"), "own", &super::node_name(node), "1");
            beside.push((judged("own", &json!({})), node));
        }
        let waits_for_others = first["affinity"]["podAffinity"].is_object();
        let second = second.filter(|_| !waits_for_others);
        let spec = |at: u32| second.as_ref().filter(|_| at % 2 == 1).unwrap_or(&first);
        for at in 0..size {
            play.member(&format!("own-{at}"), "own", Some(("own", size)), spec(at));
        }
        play.turn();
        let objects: Vec<Node> =
            (0..nodes).map(|at| serde_json::from_value(super::node_object(at)).unwrap()).collect();
        let pods: Vec<Pod> = (0..size).map(|at| judged("own", spec(at))).collect();
        let placed = play.places("own").len();
        prop_assert!(placed == 0 || placed == pods.len(), "{:?}", play.bound);
        if placed == 0 {
            prop_assert!(!could_be(&objects, &mut beside, &pods, false), "it waits: {:?}", play.reasons);
        } else {
            prop_assert!(could_be(&objects, &mut beside, &pods, true), "it may not be there: {:?}", play.bound);
        }
    }
}
