//! Which nodes take part.

use super::names::{ACK_NODE, OURS, phalanx};
use crate::api::Node;

/// Whether a node was given to us: by our label, or by the one with which Alibaba's ACK gives nodes to the scheduler that
/// minds topology. Any other value, such as `default`, and no label at all give it back. Where both are there, ours counts.
#[must_use]
pub fn is_ours(node: &Node) -> bool {
    node.label(phalanx::NODE).or_else(|| node.label(ACK_NODE)) == Some(OURS)
}
