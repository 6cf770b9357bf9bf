//! The measured links that matter to a placement, for people. Nothing is decided here.

use std::ops::Range;

use phalanx_model::{Gang, Needs, Placement, WeighedLink};

use super::search::level_of;
use crate::cluster::tree::Listed;
use crate::cluster::{At, LevelAt, MeasuredLink, Space, Tree};

/// Links that are named with a placement.
const NAMED_MAX: usize = 4;
/// Links that are looked at, the slowest first.
const LOOKED_AT_MAX: usize = 1_024;

/// The slow links that a gang on several nodes uses in this placement, and those that it avoids: there was room as near for
/// it. The slowest first; `space` is what is free beside the placement.
pub(crate) fn weighed_links(
    tree: &Tree,
    space: &Space,
    gang: &Gang,
    placement: &Placement,
) -> Vec<WeighedLink> {
    if tree.measured.is_empty() {
        return Vec::new();
    }
    let picks = tree.picks_of(placement, gang);
    let Some(LevelAt::Above(level)) = level_of(tree, &picks) else { return Vec::new() };
    let mut placed: Vec<usize> = picks.iter().map(|pick| pick.node as usize).collect();
    placed.sort_unstable();
    placed.dedup();
    let asked = gang.all_needs().map(|needs| (needs, tree.listed(needs))).collect();
    let around = Around { tree, space, level, placed, asked, devices: gang.device_count() };
    let mut links: Vec<&MeasuredLink> = tree.measured.iter().collect();
    links.sort_by_key(|link| link.bandwidth.share());
    links.into_iter().take(LOOKED_AT_MAX).filter_map(|link| around.weigh(link)).take(NAMED_MAX).collect()
}

/// A placement and what is around it.
struct Around<'a> {
    tree: &'a Tree,
    space: &'a Space,
    /// One domain of this level holds the placement.
    level: usize,
    /// The nodes of the placement, in order.
    placed: Vec<usize>,
    asked: Vec<(&'a Needs, Listed)>,
    /// Of all members.
    devices: u32,
}

impl Around<'_> {
    fn weigh(&self, link: &MeasuredLink) -> Option<WeighedLink> {
        let below = match link.at {
            At::Node(node) => node..node + 1,
            At::Domain { level, domain } => self.tree.domains[level][domain].nodes.clone(),
        };
        let inside = self.placed_in(&below);
        let is_avoided = inside == 0;
        let matters = if is_avoided { self.had_room(below) } else { inside < self.placed.len() };
        matters.then(|| WeighedLink { bandwidth: link.bandwidth.clone(), is_avoided })
    }

    /// How many nodes of the placement are among these.
    fn placed_in(&self, nodes: &Range<usize>) -> usize {
        let before = |end: usize| self.placed.partition_point(|node| *node < end);
        before(nodes.end) - before(nodes.start)
    }

    /// Whether a member would fit on one of these nodes, in a domain of the level of the placement that holds the gang, or
    /// would hold it too.
    fn had_room(&self, mut below: Range<usize>) -> bool {
        let Self { tree, space, level, .. } = *self;
        let takes = |node: usize, needs: &Needs, listed: &Listed| {
            let (free, eligible) = (space.free(node), tree.kind(&tree.nodes[node]).eligible(needs));
            let devices = free.devices.and(eligible).count();
            free.takes_work() && devices >= needs.devices.max(1) && listed.has(node)
        };
        let has_room = |node: &usize| self.asked.iter().any(|(needs, listed)| takes(*node, needs, listed));
        let Some(node) = below.find(has_room) else { return false };
        let around = tree.domain_of(node, level);
        self.placed_in(&tree.domains[level][around].nodes) > 0
            || space.free_devices(level, around) >= self.devices
    }
}
