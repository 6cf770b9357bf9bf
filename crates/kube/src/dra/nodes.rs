//! Which nodes a node selector of a slice or a device means.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

use crate::api::Node;

/// Whether devices with this node name, with this word on all nodes, or with this selector are reached by a node.
/// With none of the three they are of a kind that is not known here, and no node reaches them.
pub(super) fn reaches(
    node: &Node,
    name: Option<&str>,
    all: Option<bool>,
    selector: Option<&NodeSelector>,
) -> bool {
    match (name, all, selector) {
        (Some(name), _, _) if !name.is_empty() => name == node.name(),
        (_, Some(true), _) => true,
        (_, _, Some(selector)) => selector.node_selector_terms.iter().any(|term| matches(term, node)),
        _ => false,
    }
}

/// A term without requirements matches nothing.
fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let empty = BTreeMap::new();
    let of_node = node.metadata.labels.as_ref().unwrap_or(&empty);
    let of_field = |key: &str| (key == "metadata.name").then(|| node.name());
    !(labels.is_empty() && fields.is_empty())
        && labels.iter().all(|one| holds(one, of_node.get(&one.key).map(String::as_str)))
        && fields.iter().all(|one| holds(one, of_field(&one.key)))
}

/// An operator that is not known holds nowhere.
fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_listed = || value.is_some_and(|value| values.iter().any(|one| one == value));
    let numbers = || -> Option<(i64, i64)> { Some((value?.parse().ok()?, values.first()?.parse().ok()?)) };
    match requirement.operator.as_str() {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}
