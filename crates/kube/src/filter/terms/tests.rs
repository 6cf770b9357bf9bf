use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use super::super::objects::{node, pod};
use super::*;

fn verdict(spec: Value, labels: Value, node_spec: Value) -> Result<(), String> {
    NodeTerms::of(&pod(spec)).admits(&node(labels, node_spec)).map_err(|refusal| refusal.to_string())
}

fn affinity(terms: Value) -> Value {
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

const NO_MATCH: &str = "node(s) didn't match Pod's node affinity/selector";

#[test]
fn the_preferred_terms_of_the_largest_weight_are_favoured_within_what_is_required() {
    let term = |key: &str| json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
    let favoured = |preferred: Value, required: Option<Value>| {
        let mut spec = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}});
        if let Some(terms) = required {
            spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": terms});
        }
        NodeTerms::favoured(&pod(spec)).map(|terms| terms.to_string())
    };
    let of = |weight: u32, key: &str| json!({"weight": weight, "preference": term(key)});
    let text = favoured(json!([of(1, "a"), of(9, "b"), of(9, "c")]), None);
    assert_eq!(text.as_deref(), Some("[b] or [c]"));
    let text = favoured(json!([of(9, "b")]), Some(json!([term("x"), term("y")])));
    assert_eq!(text.as_deref(), Some("[b, x] or [b, y]"));
    // Upstream reads an empty term as no preference.
    assert_eq!(favoured(json!([{"weight": 5, "preference": {}}]), None), None);
    assert_eq!(favoured(json!([]), None), None);
}

#[test]
fn selectors_and_affinity_must_both_match_and_one_term_is_enough() {
    let labels = || json!({"disk": "ssd", "zone": "a", "cores": "64"});
    let expression = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
    let none = || json!([]);
    let term =
        |expressions: Value, fields: Value| json!({"matchExpressions": expressions, "matchFields": fields});
    for (spec, is_admitted) in [
        (json!({}), true),
        (json!({"nodeSelector": {"disk": "ssd", "zone": "a"}}), true),
        (json!({"nodeSelector": {"disk": "ssd", "zone": "b"}}), false),
        (affinity(json!([term(json!([expression("zone", "In", &["a", "b"])]), none())])), true),
        (
            affinity(json!([
                term(json!([expression("zone", "In", &["b"])]), none()),
                term(json!([expression("disk", "Exists", &[])]), none())
            ])),
            true,
        ),
        (
            affinity(json!([term(
                json!([expression("zone", "In", &["b"]), expression("disk", "Exists", &[])]),
                none()
            )])),
            false,
        ),
        (affinity(json!([term(json!([expression("cores", "Gt", &["63"])]), none())])), true),
        (affinity(json!([term(json!([expression("cores", "Gt", &["64"])]), none())])), false),
        (affinity(json!([term(none(), json!([expression("metadata.name", "In", &["n"])]))])), true),
        (affinity(json!([term(none(), json!([expression("metadata.name", "NotIn", &["n"])]))])), false),
        (
            affinity(json!([term(
                json!([expression("zone", "In", &["b"])]),
                json!([expression("metadata.name", "In", &["n"])])
            )])),
            false,
        ),
        // An empty term, and an empty list of terms, match nothing.
        (affinity(json!([{}])), false),
        (affinity(none()), false),
        // One that cannot be read matches nothing, and hinders no other.
        (affinity(json!([term(json!([expression("cores", "Gt", &["many"])]), none())])), false),
        (
            affinity(json!([
                term(json!([expression("cores", "Gt", &["many"])]), none()),
                term(json!([expression("zone", "In", &["a"])]), none())
            ])),
            true,
        ),
    ] {
        let expected = if is_admitted { Ok(()) } else { Err(NO_MATCH.to_owned()) };
        assert_eq!(verdict(spec.clone(), labels(), json!({})), expected, "{spec}");
    }
    let mut both = affinity(json!([term(json!([expression("zone", "In", &["a"])]), none())]));
    both["nodeSelector"] = json!({"disk": "hdd"});
    assert_eq!(verdict(both, labels(), json!({})), Err(NO_MATCH.to_owned()));
}

#[test]
fn hard_taints_want_a_toleration_and_soft_ones_do_not() {
    let taint = |effect: &str| json!({"taints": [{"key": "team", "value": "a", "effect": effect}]});
    let refused = || Err("node(s) had untolerated taint {team: a}".to_owned());
    for (toleration, effect, expected) in [
        (json!({"key": "other", "operator": "Exists"}), "NoSchedule", refused()),
        (json!({"key": "other", "operator": "Exists"}), "NoExecute", refused()),
        (json!({"key": "other", "operator": "Exists"}), "PreferNoSchedule", Ok(())),
        (json!({"key": "team", "operator": "Exists"}), "NoSchedule", Ok(())),
        (json!({"key": "team", "value": "a"}), "NoExecute", Ok(())),
        (json!({"key": "team", "operator": "Equal", "value": "b"}), "NoSchedule", refused()),
        (json!({"key": "team", "operator": "Exists", "effect": "NoSchedule"}), "NoExecute", refused()),
        (
            json!({"key": "team", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}),
            "NoExecute",
            Ok(()),
        ),
        (json!({"operator": "Exists"}), "NoSchedule", Ok(())),
        (json!({"operator": "Exists", "effect": "PreferNoSchedule"}), "NoSchedule", refused()),
    ] {
        let spec = json!({"tolerations": [toleration]});
        assert_eq!(verdict(spec.clone(), json!({}), taint(effect)), expected, "{spec} {effect}");
    }
}

#[test]
fn tolerations_compare_whole_numbers() {
    for (operator, bound, value, is_tolerated) in [
        ("Gt", "10", "11", true),
        ("Gt", "10", "10", false),
        ("Lt", "10", "-3", true),
        ("Lt", "10", "09", false),
        ("Lt", "010", "9", false),
        ("Gt", "10", "many", false),
    ] {
        let spec = json!({"tolerations": [{"key": "sla", "operator": operator, "value": bound}]});
        let taints = json!({"taints": [{"key": "sla", "value": value, "effect": "NoSchedule"}]});
        assert_eq!(verdict(spec, json!({}), taints).is_ok(), is_tolerated, "{value} {operator} {bound}");
    }
}

#[test]
fn a_cordoned_node_takes_only_what_tolerates_that() {
    let cordoned = || json!({"unschedulable": true});
    assert_eq!(verdict(json!({}), json!({}), cordoned()), Err("node(s) were unschedulable".to_owned()));
    let daemon = json!({"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]});
    assert_eq!(verdict(daemon, json!({}), cordoned()), Ok(()));
    // With the taint that the node controller adds, being cordoned is still what is said first.
    let both = json!({"unschedulable": true, "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]});
    assert_eq!(verdict(json!({}), json!({}), both), Err("node(s) were unschedulable".to_owned()));
}

#[test]
fn a_node_with_a_condition_that_closes_it_is_as_good_as_cordoned() {
    let daemon = json!({"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]});
    for condition in [
        "DrainInProgress",
        "Drained",
        "MaintenancePlanned",
        "MaintenanceInProgress",
        "GracefulNodeShutdownInProgress",
    ] {
        let with = |status: &str| {
            let mut node = node(json!({}), json!({}));
            let condition = json!([{ "type": condition, "status": status }]);
            node.status.conditions = serde_json::from_value(condition).unwrap();
            node
        };
        let refused = NodeTerms::of(&pod(json!({}))).admits(&with("True")).unwrap_err();
        assert_eq!(refused.to_string(), format!("node(s) had condition {condition}"));
        assert_eq!(NodeTerms::of(&pod(daemon.clone())).admits(&with("True")), Ok(()));
        for open in ["False", "Unknown"] {
            assert_eq!(NodeTerms::of(&pod(json!({}))).admits(&with(open)), Ok(()), "{condition} {open}");
        }
    }
    // Conditions that say nothing of this.
    let mut busy = node(json!({}), json!({}));
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    busy.status.conditions = serde_json::from_value(ready).unwrap();
    assert_eq!(NodeTerms::of(&pod(json!({}))).admits(&busy), Ok(()));
}

#[test]
fn a_kubelet_must_declare_what_a_pod_cannot_do_without() {
    let wants = pod(json!({"hostNetwork": true, "hostUsers": false}));
    let mut here = node(json!({}), json!({}));
    assert_eq!(NodeTerms::of(&wants).admits(&here), Err(Refusal::Features));
    here.status.declared_features = vec!["UserNamespacesHostNetworkSupport".to_owned()];
    assert_eq!(NodeTerms::of(&wants).admits(&here), Ok(()));
}

#[test]
fn equal_pods_share_their_terms() {
    let mut pool = TermsPool::default();
    let spec = || json!({"nodeSelector": {"disk": "ssd"}});
    let first = pool.share(NodeTerms::of(&pod(spec())));
    let second = pool.share(NodeTerms::of(&pod(spec())));
    assert!(Arc::ptr_eq(&first.0, &second.0));
    pool.sweep();
    assert_eq!(pool.len(), 1);
    drop((first, second));
    pool.sweep();
    assert!(pool.is_empty());
}

#[test]
fn terms_read_as_a_person_would_say_them() {
    let mut spec = affinity(json!([
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "a"]}, {"key": "spot", "operator": "DoesNotExist"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n7"]}]},
    ]));
    spec["nodeSelector"] = json!({"disk": "ssd"});
    spec["tolerations"] = json!([{"key": "team", "value": "x", "effect": "NoSchedule"}, {"operator": "Exists", "effect": "PreferNoSchedule"}]);
    let text = NodeTerms::of(&pod(spec)).to_string();
    assert_eq!(
        text,
        "disk=ssd, [field metadata.name=n7] or [!spot, zone in (a,b)]; tolerates team=x:NoSchedule"
    );
    assert_eq!(NodeTerms::of(&pod(json!({}))).to_string(), "any node");
    assert_eq!(NodeTerms::of(&pod(affinity(json!([])))).to_string(), "no node");
}

fn expressions() -> impl Strategy<Value = Vec<Value>> {
    let one =
        (select(vec!["a", "b", "c"]), select(vec!["In", "NotIn"]), subsequence(vec!["x", "y", "z"], 1..=3));
    let one =
        one.prop_map(|(key, operator, values)| json!({"key": key, "operator": operator, "values": values}));
    proptest::collection::vec(one, 1..4)
}

proptest! {
    #[test]
    fn the_order_of_what_is_written_does_not_matter(
        terms in proptest::collection::vec(expressions(), 0..4),
        tolerated in subsequence(vec!["k", "l", "m"], 0..=3),
    ) {
        let spec = |turned: bool| {
            let turn = |mut list: Vec<Value>| { if turned { list.reverse(); list.extend(list.first().cloned()); } list };
            let terms = terms.iter().map(|one| json!({"matchExpressions": turn(one.clone())})).collect();
            let tolerated = tolerated.iter().map(|key| json!({"key": key, "operator": "Exists"})).collect();
            let mut spec = affinity(Value::Array(turn(terms)));
            spec["tolerations"] = Value::Array(turn(tolerated));
            spec
        };
        let (forth, back) = (NodeTerms::of(&pod(spec(false))), NodeTerms::of(&pod(spec(true))));
        prop_assert_eq!(&forth, &back);
        prop_assert_eq!(forth.to_string(), back.to_string());
    }

    #[test]
    fn different_terms_have_different_texts(one in expressions(), other in expressions()) {
        let terms = |list: &Vec<Value>| NodeTerms::of(&pod(affinity(json!([{"matchExpressions": list}]))));
        let (one, other) = (terms(&one), terms(&other));
        prop_assert_eq!(one == other, one.to_string() == other.to_string());
    }
}
