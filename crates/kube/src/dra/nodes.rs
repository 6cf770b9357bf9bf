//! Which nodes a node selector of a slice or a device means.

use k8s_openapi::api::core::v1::NodeSelector;

use crate::api::Node;
use crate::filter;

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
        (_, _, Some(selector)) => filter::means(&selector.node_selector_terms, node),
        _ => false,
    }
}
