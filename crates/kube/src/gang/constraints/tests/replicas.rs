//! Nodes that offer replicas of their GPUs: time-slicing, MPS, and MIG slices of one size.

use super::*;

const GPU: &str = "nvidia.com/gpu";
const SHARED: &str = "nvidia.com/gpu.shared";

/// A node that offers so many, with labels of NVIDIA's.
fn offers(name: &str, resource: &str, total: &str, labels: &[(&str, &str)]) -> Value {
    let mut all: BTreeMap<String, &str> =
        labels.iter().map(|(key, value)| (format!("nvidia.com/{key}"), *value)).collect();
    all.insert(HOST.to_owned(), name);
    let amounts = json!({ "cpu": "64", "memory": "64Gi", "pods": "110", resource: total });
    json!({ "metadata": { "name": name, "labels": all }, "status": { "allocatable": amounts, "capacity": { resource: total } } })
}

fn sliced(name: &str, resource: &str) -> Value {
    let labels = [("gpu.count", "2"), ("gpu.replicas", "4"), ("gpu.sharing-strategy", "time-slicing")];
    offers(name, resource, "8", &labels)
}

fn mig(name: &str) -> Value {
    let product = ("gpu.product", "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb");
    offers(name, GPU, "4", &[product, ("mig.strategy", "single"), ("gpu.count", "4"), ("gpu.replicas", "1")])
}

fn whole(name: &str, gpus: &str) -> Value {
    offers(name, GPU, gpus, &[("gpu.count", gpus), ("gpu.replicas", "1"), ("gpu.sharing-strategy", "none")])
}

fn asks(resource: &str, count: &str) -> Value {
    json!({ "containers": [{ "name": "c", "resources": { "limits": { resource: count } } }] })
}

fn play(nodes: impl IntoIterator<Item = Value>) -> Play {
    let mut play = Play::listing(0);
    nodes.into_iter().for_each(|node| play.node(node));
    play.turn();
    play
}

impl Play {
    fn pods(&mut self, prefix: &str, count: usize, resource: &str, each: &str) {
        for at in 0..count {
            self.pod(&format!("{prefix}-{at}"), prefix, &asks(resource, each));
        }
        self.turn();
    }

    /// How many bound pods each device of a node has.
    fn by_device(&self, node: &str) -> BTreeMap<String, usize> {
        let mut all = BTreeMap::new();
        for name in self.bound.iter().filter(|(_, on)| *on == node).map(|(name, _)| name) {
            let devices = self.pods[name]["metadata"]["annotations"][crate::gang::pods::DEVICES].as_str();
            *all.entry(devices.unwrap_or_default().to_owned()).or_insert(0) += 1;
        }
        all
    }

    fn why(&mut self, name: &str) -> String {
        self.wait(10_000);
        self.reasons.get(name).cloned().unwrap_or_default()
    }
}

#[test]
fn a_pod_gets_a_replica_by_either_name_and_no_gpu_has_more_than_it_is_divided_into() {
    for resource in [GPU, SHARED] {
        let mut play = play([sliced("a", resource)]);
        play.pods("one", 9, resource, "1");
        assert_eq!(play.places("one").len(), 8, "{resource}: {:?}", play.reasons);
        assert_eq!(play.by_device("a"), [("0".to_owned(), 4), ("1".to_owned(), 4)].into(), "{resource}");
        let first = play.bound.keys().next().unwrap().clone();
        play.delete(&first);
        play.turn();
        assert_eq!(play.places("one").len(), 8, "one that is free again is used");
    }
}

#[test]
fn replicas_that_others_hold_are_counted_one_by_one() {
    for resource in [GPU, SHARED] {
        let mut play = play([sliced("a", resource)]);
        for at in 0..3 {
            let name = format!("other-{at}");
            let mut spec = asks(resource, "1");
            spec["schedulerName"] = json!("default-scheduler");
            spec["nodeName"] = json!("a");
            play.see(
                &name,
                json!({ "metadata": { "namespace": "x", "name": name, "uid": name }, "spec": spec }),
            );
        }
        play.pods("one", 8, resource, "1");
        assert_eq!(play.places("one").len(), 5, "{resource}: {:?}", play.reasons);
        play.delete("other-0");
        play.turn();
        assert_eq!(play.places("one").len(), 6, "{resource}");
    }
}

#[test]
fn whole_gpus_are_not_replicas() {
    for nodes in [[sliced("a", GPU)], [sliced("a", SHARED)], [mig("a")]] {
        let divides = nodes[0]["status"]["capacity"].get(GPU).is_some();
        let mut play = play(nodes);
        play.pods("two", 1, GPU, "2");
        assert!(play.bound.is_empty(), "{:?}", play.bound);
        let why = play.why("two-0");
        let expected = if divides { "divide their GPUs (nvidia.com/gpu." } else { "no node has any" };
        assert!(why.contains(expected), "{why}");
        play.node(whole("b", "1"));
        play.turn();
        let why = play.why("two-0");
        assert!(why.contains("2 requested, the largest node that may have it has 1") == divides, "{why}");
        assert!(why.contains("1 node(s) divide their GPUs") == divides, "{why}");
        play.node(whole("c", "2"));
        play.turn();
        play.wait(60_000);
        assert_eq!(play.bound["two-0"], "c");
    }
}

#[test]
fn a_pod_that_requests_one_gpu_takes_what_there_is() {
    let mut play = play([sliced("a", GPU), whole("b", "2"), mig("c")]);
    play.pods("one", 15, GPU, "1");
    let count = |play: &Play, node: &str| play.bound.values().filter(|on| *on == node).count();
    assert_eq!([count(&play, "a"), count(&play, "b"), count(&play, "c")], [8, 2, 4], "{:?}", play.reasons);
    // Of a product with slices of 3g there are two on each.
    assert_eq!(play.by_device("c"), [("0".to_owned(), 2), ("1".to_owned(), 2)].into());
}

/// Two ranks on one GPU cannot talk to each other.
#[test]
fn pods_of_one_gang_get_replicas_only_where_there_is_nothing_else() {
    let gang = |play: &mut Play| {
        for at in 0..3 {
            play.member(&format!("rank-{at}"), "rank", Some(("rank", 3)), &asks(GPU, "1"));
        }
        play.turn();
    };
    let mut mixed = play([sliced("a", GPU), whole("b", "2")]);
    gang(&mut mixed);
    assert!(mixed.bound.is_empty(), "{:?}", mixed.bound);
    let why = mixed.why("rank-0");
    assert!(
        why.contains(
            "such as a (nvidia.com/gpu.replicas=4), are not used: pods of a gang get shares only if"
        ),
        "{why}"
    );
    mixed.node(whole("c", "2"));
    mixed.turn();
    mixed.wait(60_000);
    assert_eq!(mixed.places("rank").len(), 3);
    assert!(mixed.bound.values().all(|node| node != "a"), "{:?}", mixed.bound);
    let mut shared = play([sliced("a", GPU)]);
    gang(&mut shared);
    assert_eq!(shared.places("rank"), ["a", "a", "a"], "{:?}", shared.reasons);
}

#[test]
fn pods_that_wait_follow_nodes_that_begin_to_divide_their_gpus() {
    let mut play = play([whole("a", "2")]);
    play.pods("one", 4, GPU, "1");
    assert_eq!(play.places("one").len(), 2);
    play.node(sliced("b", GPU));
    play.turn();
    assert_eq!(play.places("one").len(), 4, "{:?}", play.reasons);
    let submissions = play.submissions;
    play.wait(60_000);
    assert_eq!(play.submissions, submissions, "they are handed in again once");
}

#[test]
fn several_replicas_are_refused() {
    let mut play = play([sliced("a", SHARED)]);
    play.pods("two", 1, SHARED, "2");
    let why = play.why("two-0");
    assert!(play.bound.is_empty());
    assert!(why.contains("resources.limits[nvidia.com/gpu.shared]: a pod gets at most 1 replica"), "{why}");
}

#[test]
fn nothing_more_is_given_than_the_kubelet_counts_whatever_labels_say() {
    let shared = ("gpu.sharing-strategy", "time-slicing");
    for labels in [
        &[shared, ("gpu.count", "8"), ("gpu.replicas", "4")][..],
        &[shared, ("gpu.count", "1"), ("gpu.replicas", "2")],
        &[shared, ("gpu.count", "two"), ("gpu.replicas", "0")],
        &[shared],
        &[("gpu.product", "Tesla-T4-SHARED"), ("gpu.replicas", "-4")],
        &[("mig.strategy", "single"), ("gpu.product", "X-MIG-9g.1gb")],
        &[("gpu.replicas", "99999999999999999999"), shared],
    ] {
        for resource in [GPU, SHARED] {
            let mut play = play([offers("a", resource, "6", labels)]);
            play.pods("one", 9, resource, "1");
            assert_eq!(play.places("one").len(), 6, "{resource} {labels:?}: {:?}", play.reasons);
            play.pods("two", 1, GPU, "2");
            assert!(!play.bound.contains_key("two-0"));
        }
    }
}

/// A scheduler that begins anew counts what runs there as it was placed.
#[test]
fn replicas_are_counted_after_a_restart() {
    for resource in [GPU, SHARED] {
        let mut before = play([sliced("a", resource), whole("b", "2")]);
        before.pods("one", 7, resource, "1");
        let mut play = Play::listing(0);
        play.node(sliced("a", resource));
        play.node(whole("b", "2"));
        for (name, pod) in before.pods.clone() {
            let node = before.bound[&name].clone();
            play.see(&name, pod);
            play.bound.insert(name, node);
        }
        play.turn();
        play.pods("two", 9, resource, "1");
        let on = |node: &str| play.bound.values().filter(|on| *on == node).count();
        let wholes = if resource == GPU { 2 } else { 0 };
        assert_eq!((on("a"), on("b")), (8, wholes), "{:?}", play.bound);
        assert!(play.stops.is_empty(), "{:?}", play.stops);
    }
}

/// Replicas were devices to an earlier version: a pod had one beyond the real GPUs, or by another name none.
#[test]
fn pods_that_an_earlier_version_placed_are_counted() {
    for (resource, devices) in [(GPU, "7"), (GPU, "0"), (SHARED, "-")] {
        let mut before = play([sliced("a", resource)]);
        before.pods("one", 3, resource, "1");
        let mut play = Play::listing(0);
        play.node(sliced("a", resource));
        for (name, mut pod) in before.pods.clone() {
            pod["metadata"]["annotations"][crate::gang::pods::DEVICES] = json!(devices);
            play.see(&name, pod);
        }
        play.turn();
        play.pods("two", 9, resource, "1");
        assert_eq!(play.places("two").len(), 5, "{resource} {devices}: {:?}", play.reasons);
        assert!(play.stops.is_empty(), "{:?}", play.stops);
    }
}

/// The pods of a gang are counted there too, with the places that its first pods carry.
#[test]
fn a_gang_on_replicas_is_counted_after_a_restart() {
    let mut before = play([sliced("a", GPU)]);
    for at in 0..3 {
        before.member(&format!("rank-{at}"), "rank", Some(("rank", 3)), &asks(GPU, "1"));
    }
    before.turn();
    assert_eq!(before.places("rank").len(), 3);
    let mut play = Play::listing(0);
    play.node(sliced("a", GPU));
    for (name, pod) in before.pods.clone() {
        play.see(&name, pod);
    }
    play.turn();
    play.pods("one", 9, GPU, "1");
    assert_eq!(play.places("one").len(), 5, "{:?}", play.reasons);
    assert!(play.stops.is_empty(), "{:?}", play.stops);
}
