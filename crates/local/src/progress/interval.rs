//! The checkpoint interval: Young's √(2 · cost · M), with M the mean time between losses of a node of the gang (J. W. Young,
//! 1974).

use phalanx_api::protocol::CheckpointView;

/// The prior: one loss in 264 node-days. Llama 3's training had 419 in 54 days on 2,048 nodes (arXiv:2407.21783, table 5). It
/// weighs as much as one observed loss.
const PRIOR_NODE_MS: u64 = 264 * 24 * 3_600_000;

/// Observed losses of nodes under running gangs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeLosses {
    pub(crate) losses: u64,
    /// Node time of gangs, in milliseconds.
    pub(crate) node_ms: u64,
}

impl NodeLosses {
    /// The mean time between losses of one of these nodes, in milliseconds.
    fn mean_ms(self, nodes: u64) -> u64 {
        let per_loss = self.node_ms.saturating_add(PRIOR_NODE_MS) / self.losses.saturating_add(1);
        per_loss / nodes.max(1)
    }

    /// The interval for a gang on this many nodes whose checkpoints take this long to write.
    pub(crate) fn advise(self, takes_ms: u64, nodes: u64) -> CheckpointView {
        let loss_every_ms = self.mean_ms(nodes);
        #[allow(clippy::cast_precision_loss, reason = "an estimate")]
        let every_ms = (2.0 * takes_ms as f64 * loss_every_ms as f64).sqrt();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a root of numbers from 0 on"
        )]
        let every_ms = every_ms as u64;
        // An interval cannot be shorter than the checkpoint itself.
        CheckpointView { takes_ms, loss_every_ms, every_ms: every_ms.max(takes_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn the_interval_is_youngs() {
        // 1,226 nodes lose one every 5.2 hours, and a checkpoint takes 5 s: the study of failures says 7.2 minutes.
        let advice = NodeLosses::default().advise(5_000, 1_226);
        assert_eq!(advice.loss_every_ms / 360_000, 51, "{advice:?}");
        assert_eq!(advice.every_ms / 6_000, 71, "{advice:?}");
    }

    #[test]
    fn what_was_seen_counts_more_with_time() {
        let every = |losses, node_hours: u64| {
            NodeLosses { losses, node_ms: node_hours * HOUR }.advise(1_000, 1).loss_every_ms / HOUR
        };
        assert_eq!(every(0, 0), 264 * 24);
        assert_eq!(every(0, 264 * 24), 2 * 264 * 24, "as long without a loss");
        assert_eq!(every(9, 0), 633);
        assert!((95..=110).contains(&every(999, 100_000)), "{}", every(999, 100_000));
    }

    #[test]
    fn nothing_overflows() {
        let most = NodeLosses { losses: u64::MAX, node_ms: u64::MAX };
        assert_eq!(most.advise(u64::MAX, u64::MAX).every_ms, u64::MAX);
        assert_eq!(NodeLosses::default().advise(60_000, 10_000_000).every_ms, 60_000);
    }
}
