#![expect(clippy::needless_pass_by_value, reason = "JSON is written where it is used")]

use serde_json::{Value, json};

use super::super::objects::pod;
use super::*;

/// Nodes `a1`, `a2`, `b1`, `b2` in zones `a` and `b`, and `x` in none.
fn nodes() -> Vec<Node> {
    let one = |(name, zone): (&str, Option<&str>)| {
        let mut labels = BTreeMap::from([("host".to_owned(), name.to_owned())]);
        labels.extend(zone.map(|zone| ("zone".to_owned(), zone.to_owned())));
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        node.metadata.labels = Some(labels);
        node
    };
    [("a1", Some("a")), ("a2", Some("a")), ("b1", Some("b")), ("b2", Some("b")), ("x", None)].map(one).into()
}

fn labelled(label: &str, spec: Value) -> Pod {
    let mut pod = pod(spec);
    pod.metadata.labels = Some(BTreeMap::from([("app".to_owned(), label.to_owned())]));
    pod
}

fn affinity(kind: &str, app: &str, key: &str) -> Value {
    let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn spread(rule: Value) -> Value {
    let mut whole = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}});
    whole.as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
    json!({"topologySpreadConstraints": [whole]})
}

/// What each node says to the pod, beside those that are there by the name of their node.
fn verdicts(pod: &Pod, there: &[(&str, Pod)], nodes: &[Node]) -> Vec<(String, Result<(), Refusal>)> {
    let namespaces = Namespaces::from([
        ("default".to_owned(), BTreeMap::new()),
        ("other".to_owned(), BTreeMap::from([("team".to_owned(), "x".to_owned())])),
    ]);
    let on = |node: &Node| {
        there.iter().filter(|(name, _)| *name == node.name()).map(|(_, pod)| pod).collect::<Vec<_>>()
    };
    let (pod, namespaces) = (Arc::new(pod.clone()), Arc::new(namespaces));
    let empty = Surroundings::of(pod, namespaces, nodes).unwrap();
    let (mut around, mut kept) = (empty.clone(), empty);
    // The same comes out where one too many comes and goes again.
    for node in nodes {
        for other in on(node) {
            around.add(other, node);
        }
    }
    for node in nodes {
        let here = on(node);
        for other in here.iter().chain(here.first()) {
            kept.add(other, node);
        }
        if let Some(first) = here.first() {
            kept.remove(first, node);
        }
    }
    for node in nodes {
        assert_eq!(kept.admits(node), around.admits(node), "{}", node.name());
    }
    nodes.iter().map(|node| (node.name().to_owned(), around.admits(node))).collect()
}

fn admitted(pod: &Pod, there: &[(&str, Pod)]) -> Vec<String> {
    let verdicts = verdicts(pod, there, &nodes());
    verdicts.into_iter().filter(|(_, verdict)| verdict.is_ok()).map(|(name, _)| name).collect()
}

#[test]
fn affinity_goes_where_the_others_are_and_the_first_of_a_series_anywhere() {
    let wants = labelled("job", affinity("podAffinity", "web", "zone"));
    assert_eq!(admitted(&wants, &[("a1", labelled("web", json!({})))]), ["a1", "a2"]);
    assert!(admitted(&wants, &[("a1", labelled("db", json!({})))]).is_empty());
    // No zone, no domain to be together in.
    assert!(admitted(&wants, &[("x", labelled("web", json!({})))]).is_empty());
    let series = labelled("web", affinity("podAffinity", "web", "zone"));
    assert_eq!(admitted(&series, &[]), ["a1", "a2", "b1", "b2"]);
    assert_eq!(admitted(&series, &[("b1", series.clone())]), ["b1", "b2"]);
}

#[test]
fn anti_affinity_works_both_ways() {
    let apart = |key: &str| labelled("job", affinity("podAntiAffinity", "web", key));
    let web = || labelled("web", json!({}));
    assert_eq!(admitted(&apart("zone"), &[("a1", web())]), ["b1", "b2", "x"]);
    assert_eq!(admitted(&apart("host"), &[("a1", web())]), ["a2", "b1", "b2", "x"]);
    let verdicts = verdicts(&web(), &[("a1", apart("zone"))], &nodes());
    assert_eq!(verdicts[1].1, Err(Refusal::ExistingAntiAffinity));
    assert_eq!(verdicts[2].1, Ok(()));
}

#[test]
fn terms_reach_into_the_namespaces_that_they_name() {
    let mut other = labelled("web", json!({}));
    other.metadata.namespace = Some("other".to_owned());
    let wants = |reach: Value| {
        let mut spec = affinity("podAntiAffinity", "web", "zone");
        let term =
            &mut spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
        term.as_object_mut().unwrap().extend(reach.as_object().unwrap().clone());
        admitted(&labelled("job", spec), &[("a1", other.clone())]).len()
    };
    assert_eq!(wants(json!({})), 5);
    assert_eq!(wants(json!({"namespaces": ["other"]})), 3);
    assert_eq!(wants(json!({"namespaceSelector": {}})), 3);
    assert_eq!(wants(json!({"namespaceSelector": {"matchLabels": {"team": "x"}}})), 3);
    assert_eq!(wants(json!({"namespaceSelector": {"matchLabels": {"team": "y"}}})), 5);
}

#[test]
fn spread_keeps_the_skew_and_wants_the_label() {
    let web = || labelled("web", json!({}));
    let wants = |rule: Value| labelled("web", spread(rule));
    let two = [("a1", web()), ("b1", web()), ("a2", web())];
    assert_eq!(admitted(&wants(json!({})), &two), ["b1", "b2"]);
    assert_eq!(admitted(&wants(json!({"maxSkew": 2})), &two), ["a1", "a2", "b1", "b2"]);
    let verdicts = verdicts(&wants(json!({})), &two, &nodes());
    assert_eq!((&verdicts[0].1, &verdicts[4].1), (&Err(Refusal::Spread), &Err(Refusal::SpreadLabel)));
    // Fewer domains than it wants: the least counts as none.
    assert_eq!(admitted(&wants(json!({"minDomains": 3})), &two), [""; 0]);
    assert_eq!(admitted(&wants(json!({"minDomains": 3})), &[]), ["a1", "a2", "b1", "b2"]);
    // One that does not count itself adds nothing to the skew.
    assert_eq!(admitted(&labelled("db", spread(json!({}))), &two), ["a1", "a2", "b1", "b2"]);
}

#[test]
fn spread_counts_no_pod_that_ends_and_none_elsewhere() {
    let mut ending = labelled("web", json!({}));
    ending.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    let mut elsewhere = labelled("web", json!({}));
    elsewhere.metadata.namespace = Some("other".to_owned());
    let wants = labelled("web", spread(json!({})));
    assert_eq!(admitted(&wants, &[("a1", ending), ("a2", elsewhere)]), ["a1", "a2", "b1", "b2"]);
}

#[test]
fn a_selector_of_everything_counts_only_the_pod_itself() {
    let wants = labelled("web", spread(json!({"labelSelector": {}})));
    let there = [("a1", labelled("web", json!({}))), ("a2", labelled("db", json!({})))];
    assert_eq!(admitted(&wants, &there), ["a1", "a2", "b1", "b2"]);
}

#[test]
fn spread_leaves_out_nodes_that_the_pod_cannot_have_where_it_says_so() {
    let mut nodes = nodes();
    for node in &mut nodes[2..4] {
        let taint = json!([{"key": "k", "effect": "NoSchedule"}]);
        node.spec.taints = serde_json::from_value(taint).unwrap();
    }
    let there = [("a1", labelled("web", json!({})))];
    let first = |rule: Value, selector: Value| {
        let mut wants = labelled("web", spread(rule));
        wants.spec.node_selector = serde_json::from_value(selector).unwrap();
        verdicts(&wants, &there, &nodes)[0].1.clone()
    };
    assert_eq!(first(json!({}), json!({})), Err(Refusal::Spread));
    assert_eq!(first(json!({"nodeTaintsPolicy": "Honor"}), json!({})), Ok(()));
    assert_eq!(first(json!({}), json!({"zone": "a"})), Ok(()));
    assert_eq!(first(json!({"nodeAffinityPolicy": "Ignore"}), json!({"zone": "a"})), Err(Refusal::Spread));
}

#[test]
fn revisions_spread_apart_by_their_label() {
    let wants = labelled("web", spread(json!({"labelSelector": {}, "matchLabelKeys": ["app", "absent"]})));
    let two = [("a1", labelled("web", json!({}))), ("b1", labelled("db", json!({})))];
    assert_eq!(admitted(&wants, &two), ["b1", "b2"]);
}

#[test]
fn a_selector_that_cannot_be_read_is_named() {
    let mut spec = affinity("podAffinity", "web", "zone");
    spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"] =
        json!({"matchExpressions": [{"key": "a", "operator": "In"}]});
    assert_eq!(PodRules::of(&pod(spec)).unwrap_err().field, "spec.affinity.podAffinity");
}
