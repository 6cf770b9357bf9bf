//! The measured links that matter to a placement, for people. Nothing is decided here.

use std::ops::Range;

use phalanx_model::{Gang, Needs, Placement, WeighedLink};

use super::search::level_of;
use crate::cluster::named::Asked;
use crate::cluster::tree::Listed;
use crate::cluster::{At, LevelAt, MeasuredLink, Space, Tree};

/// Links that are named with a placement.
const NAMED_MAX: usize = 4;
/// Links that are looked at, the slowest first.
const LOOKED_AT_MAX: usize = 1_024;

/// The slow links that a gang on several nodes uses in this placement, and then those that it avoids: there was room as near
/// for it. Of each the slowest first; `space` is what is free beside the placement.
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
    let wanted = |needs| {
        let mut named = Asked::default();
        tree.resources.look_up(needs, &mut named);
        Wanted { needs, listed: tree.listed(needs), named }
    };
    let wanted = gang.all_needs().map(wanted).collect();
    let around = Around { tree, space, gang, level, placed, wanted };
    let mut links: Vec<&MeasuredLink> = tree.measured.iter().collect();
    links
        .sort_by_cached_key(|link| (around.placed_in(&nodes_below(tree, link)) == 0, link.bandwidth.share()));
    links.into_iter().take(LOOKED_AT_MAX).filter_map(|link| around.weigh(link)).take(NAMED_MAX).collect()
}

/// The nodes whose traffic goes over a link.
fn nodes_below(tree: &Tree, link: &MeasuredLink) -> Range<usize> {
    match link.at {
        At::Node(node) => node..node + 1,
        At::Domain { level, domain } => tree.domains[level][domain].nodes.clone(),
    }
}

/// A placement and what is around it.
struct Around<'a> {
    tree: &'a Tree,
    space: &'a Space,
    gang: &'a Gang,
    /// One domain of this level holds the placement.
    level: usize,
    /// The nodes of the placement, in order.
    placed: Vec<usize>,
    wanted: Vec<Wanted<'a>>,
}

/// What one member of a role needs.
struct Wanted<'a> {
    needs: &'a Needs,
    listed: Listed,
    named: Asked,
}

impl Around<'_> {
    fn weigh(&self, link: &MeasuredLink) -> Option<WeighedLink> {
        let below = nodes_below(self.tree, link);
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
        let has_room = |node: &usize| self.wanted.iter().any(|wanted| self.members_on(*node, wanted) > 0);
        let Some(node) = below.find(has_room) else { return false };
        let around = tree.domain_of(node, level);
        let nodes = &tree.domains[level][around].nodes;
        if self.placed_in(nodes) > 0 {
            return true;
        }
        let devices = self.gang.device_count();
        space.free_devices(level, around) >= devices
            && self.wanted.iter().all(|wanted| self.fits(nodes, wanted))
    }

    /// Whether so many members of a role as the gang has fit on these nodes, if they are there alone.
    fn fits(&self, nodes: &Range<usize>, wanted: &Wanted<'_>) -> bool {
        let roles = self.gang.roles.iter().map(|role| (&role.needs, role.size));
        let mut all = std::iter::once((&self.gang.needs, self.gang.size)).chain(roles);
        let size = all.find(|(needs, _)| std::ptr::eq(*needs, wanted.needs)).map_or(0, |(_, size)| size);
        let mut left = u64::from(size);
        nodes.clone().any(|node| {
            left = left.saturating_sub(self.members_on(node, wanted));
            left == 0
        })
    }

    /// How many members of a role would fit on a node.
    fn members_on(&self, node: usize, wanted: &Wanted<'_>) -> u64 {
        let Self { tree, space, .. } = *self;
        let Wanted { needs, listed, named } = wanted;
        let (place, free) = (&tree.nodes[node], space.free(node));
        let kind = tree.kind(place);
        let is_alone = || free.tenants == 0 && free.devices == place.total.devices;
        if !free.takes_work()
            || kind.refuses(needs)
            || !listed.has(node)
            || self.gang.needs.is_exclusive && !is_alone()
        {
            return 0;
        }
        let times = |free: i64, need: u64| match need {
            0 => u64::MAX,
            need => u64::try_from(free).map_or(0, |free| free / need),
        };
        let devices = u64::from(free.devices.and(kind.eligible(needs)).count());
        let by_devices = devices.checked_div(u64::from(needs.devices)).unwrap_or(u64::MAX);
        let by_name = u64::from(space.named().on_node(tree, node, named));
        let by_amounts =
            times(free.cpu_milli, needs.cpu_milli).min(times(free.memory_bytes, needs.memory_bytes));
        by_devices.min(by_amounts).min(by_name)
    }
}
