//! What befalls nodes, drawn from a seed alone: the same at the same times for every policy.

use super::{NodeChange, NodeEvent};
use crate::trace::draw::Draw;

/// Events of one run, at most.
const EVENTS_MAX: usize = 2_000_000;

/// Losses and slow times of nodes. Times until them and of them are exponential with these means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFaults {
    /// Until a node is lost; nothing: none is.
    pub mtbf_ms: Option<u64>,
    /// Until a lost one is back.
    pub repair_ms: u64,
    /// Until a node is slow; nothing: none is.
    pub slow_every_ms: Option<u64>,
    /// For how long it is.
    pub slow_ms: u64,
    /// How many thousandths of the time it takes then.
    pub slow_times_milli: u32,
}

impl NodeFaults {
    /// What a cluster of 16,384 H100 in 2,048 nodes had: 419 interruptions that nobody planned in 54 days (Llama 3, table
    /// 5), which is one of a node in 264 days.
    pub const LLAMA_3_MTBF_MS: u64 = 264 * 86_400_000;
    /// What Meta's research cluster RSC-1 had: 6.5 failures in 1,000 days of a node (Kokolis et al., HPCA 2025).
    pub const RSC_1_MTBF_MS: u64 = 154 * 86_400_000;

    /// What happens to so many nodes until a time, sorted by time.
    ///
    /// # Errors
    /// When it is more than two million events.
    pub fn events(&self, nodes: usize, end_ms: u64, seed: u64) -> Result<Vec<NodeEvent>, String> {
        let mut events = Vec::new();
        let slowed = |times_milli| NodeChange::Slowed { times_milli };
        // Streams of their own, so that one sort of faults is the same with and without the other.
        let sorts = [
            (seed, self.mtbf_ms, self.repair_ms, NodeChange::Lost, NodeChange::Back),
            (!seed, self.slow_every_ms, self.slow_ms, slowed(self.slow_times_milli), slowed(1_000)),
        ];
        for (seed, every_ms, lasts_ms, begin, end) in sorts {
            let Some(every_ms) = every_ms else { continue };
            let mut draw = Draw::new(seed);
            for node in 0..nodes {
                let mut at_ms = draw.exponential(every_ms);
                while at_ms < end_ms {
                    if events.len() >= EVENTS_MAX {
                        return Err(format!(
                            "nodes fail more than {} times; let it be rarer",
                            EVENTS_MAX / 2
                        ));
                    }
                    events.push(NodeEvent { at_ms, node, what: begin });
                    at_ms = at_ms.saturating_add(draw.exponential(lasts_ms).max(1));
                    events.push(NodeEvent { at_ms, node, what: end });
                    at_ms = at_ms.saturating_add(draw.exponential(every_ms).max(1));
                }
            }
        }
        events.sort_by_key(|event| (event.at_ms, event.node, event.what));
        Ok(events)
    }
}
