//! Free capacity in a tree of the same nodes whose links have other bandwidths.

use super::Space;
use crate::cluster::tree::Tree;

impl Space {
    /// The same amounts in a tree of the same nodes, in the same order.
    pub(crate) fn moved_to(&self, tree: &Tree) -> Self {
        let mut space = Self {
            named: self.named.clone(),
            parts: self.parts.moved_to(tree),
            claims: self.claims.clone(),
            mix: self.mix.clone(),
            ..Self::new(tree, self.free.clone())
        };
        for ((to, from), domains) in space.levels.iter_mut().zip(&self.levels).zip(&tree.domains) {
            to.loads.clone_from(&from.loads);
            let uplinks = to.loads.iter().zip(domains).map(|(load, of)| load.left_of(of.uplink_mb_per_s));
            to.uplinks = uplinks.collect();
            to.least_uplink = to.uplinks.iter().copied().min().unwrap_or(0);
        }
        space
    }
}
