//! Which nodes take part.

use super::names::{ACK_NODE, GIVEN_BACK, OURS, phalanx};
use crate::api::Node;

/// Which nodes a scheduler uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodesUsed {
    /// All that were not given back.
    #[default]
    All,
    /// Those that were given to it.
    Labelled,
}

impl NodesUsed {
    /// Whether something new may go to a node, as its labels say now.
    #[must_use]
    pub fn takes(self, node: &Node) -> bool {
        match self {
            Self::All => !is_given_back(node),
            Self::Labelled => is_ours(node),
        }
    }
}

/// Whether a node was given to us: by our label, or by the one with which Alibaba's ACK gives nodes to the scheduler that
/// minds topology. Where both are there, ours counts.
#[must_use]
pub fn is_ours(node: &Node) -> bool {
    said(node) == Some(OURS)
}

/// Whether a node was given back to whoever schedules beside us.
fn is_given_back(node: &Node) -> bool {
    said(node) == Some(GIVEN_BACK)
}

fn said(node: &Node) -> Option<&str> {
    node.label(phalanx::NODE).or_else(|| node.label(ACK_NODE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_give_nodes_and_take_them_back() {
        let node = |ours: Option<&str>, ack: Option<&str>| {
            let mut node = Node::default();
            let labels = [(phalanx::NODE, ours), (ACK_NODE, ack)].into_iter();
            let labels = labels.filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
            node.metadata.labels = Some(labels.collect());
            node
        };
        // Ours, ACK's, whether all but those given back, whether those given.
        let cases = [
            (None, None, true, false),
            (Some("topology"), None, true, true),
            (None, Some("topology"), true, true),
            (None, Some("default"), false, false),
            (Some("default"), Some("topology"), false, false),
            (Some("topology"), Some("default"), true, true),
            // What another scheduler of ACK has is not said to be given back.
            (None, Some("share"), true, false),
        ];
        for (ours, ack, all, labelled) in cases {
            let node = node(ours, ack);
            let got = (NodesUsed::All.takes(&node), NodesUsed::Labelled.takes(&node));
            assert_eq!(got, (all, labelled), "{ours:?} {ack:?}");
        }
    }
}
