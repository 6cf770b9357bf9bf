//! Fills one domain with a gang: with few parts of the domain, and the last one as tight as possible.
//!
//! If every part may be taken up to its capacity, taking the roomiest first gives the fewest parts of one level. Over
//! several levels that is a good choice and not always the best one: [`Fill::least`] bounds the cost of any choice,
//! and a choice that meets the bound is proved.

use std::cmp::Reverse;

use phalanx_model::DeviceMask;

use super::View;
use super::capacity::{Capacities, unit_at};
use crate::cluster::kind::Kind;
use crate::cluster::space::Pick;
use crate::cluster::tree::LevelAt;
use crate::placement::request::Cap;

/// Domains of one level that are filled on trial for one bottleneck.
pub(crate) const DOMAINS_MAX: u32 = 16;

/// Up to so many free devices of a node, every set is tried if parts must stay inside groups: 2^16.
const SETS_DEVICES_MAX: u32 = 16;

/// Nodes that take equally many members.
#[derive(Clone, Copy, Debug)]
struct Bin {
    cap: Cap,
    nodes: u32,
    kind: u16,
    class: u16,
    /// One node that must be read by itself.
    node: Option<u32>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Fill {
    bins: Vec<Bin>,
    /// `(bin, members)` of each node taken.
    taken: Vec<(u32, u32)>,
    /// `(capacity, child)` by level.
    children: Vec<Vec<(u32, u32)>>,
    capacities: Vec<u32>,
}

impl Fill {
    /// A lower bound on the cost of the crossings of any placement inside a domain, in nanoseconds; `None` if there
    /// is no placement.
    pub(super) fn least(
        &mut self,
        view: View<'_>,
        caps: &mut Capacities,
        level: usize,
        domain: usize,
    ) -> Option<u64> {
        let tree = view.tree;
        let nodes = caps.least_nodes(view, level, domain)?.max(2);
        let mut least = nodes * view.request.crossing_ns(tree.least_node_crossing_ns);
        let mut range = domain..domain + 1;
        for deeper in level + 1..tree.depth() {
            let of_level = &tree.domains[deeper - 1];
            range = of_level[range.start].children.start..of_level[range.end - 1].children.end;
            let crossing = view.request.crossing_ns(tree.least_crossing_ns[deeper]);
            if crossing == 0 {
                continue;
            }
            self.capacities.clear();
            self.capacities.extend(range.clone().map(|child| {
                let holds = caps.crossing(view, deeper, child);
                // A smaller last part may fit beside the whole ones.
                holds.full.saturating_add(if holds.rest { unit_at(view, LevelAt::Above(deeper)) } else { 0 })
            }));
            self.capacities.sort_unstable_by_key(|capacity| Reverse(*capacity));
            let mut left = view.request.size;
            let used = self.capacities.iter().take_while(|capacity| {
                let goes_on = left > 0;
                left = left.saturating_sub(**capacity);
                goes_on
            });
            least += (used.count() as u64).max(2) * crossing;
        }
        Some(least)
    }

    /// Puts the gang into a domain that holds it; the picks are in the order of the tree.
    pub(super) fn domain(
        &mut self,
        view: View<'_>,
        caps: &mut Capacities,
        level: usize,
        domain: usize,
        picks: &mut Vec<Pick>,
    ) -> bool {
        self.children.resize(view.tree.depth(), Vec::new());
        let size = view.request.size;
        // If parts stay on a node, the unit is such a part; otherwise it is the innermost part.
        let parts = &view.request.parts;
        let on_node = parts.iter().find(|part| part.level >= LevelAt::Node);
        let want = size.next_multiple_of(on_node.or(parts.last()).map_or(1, |part| part.size));
        let filled = self.below(view, caps, level, domain, want, picks);
        if !filled || !cut(view, caps, want - size, picks) {
            return false;
        }
        picks.sort_unstable_by_key(|pick| pick.node);
        picks.iter_mut().all(|pick| choose_devices(view, caps.threshold(), caps.inside(), pick))
    }

    fn below(
        &mut self,
        view: View<'_>,
        caps: &mut Capacities,
        level: usize,
        domain: usize,
        want: u32,
        picks: &mut Vec<Pick>,
    ) -> bool {
        if level + 1 == view.tree.depth() {
            return self.nodes(view, caps, level, domain, want, picks);
        }
        let mut children = std::mem::take(&mut self.children[level]);
        children.clear();
        for child in view.tree.domains[level][domain].children.clone() {
            let full = caps.crossing(view, level + 1, child).full;
            if full > 0 {
                children.push((full, child as u32));
            }
        }
        children.sort_unstable_by_key(|(full, child)| (Reverse(*full), *child));
        let mut left = want;
        let mut next = 0;
        let mut filled = true;
        while left > 0 && filled {
            // The roomiest first: the last that still takes all is the tightest.
            let rest = &children[next.min(children.len())..];
            let holding = rest.partition_point(|(full, _)| *full >= left);
            let at = match holding.checked_sub(1) {
                Some(last) => rest.iter().position(|(full, _)| *full == rest[last].0),
                None if rest.is_empty() => None,
                None => Some(0),
            };
            let Some((full, child)) = at.map(|at| rest[at]) else {
                filled = false;
                break;
            };
            let here = full.min(left);
            filled = self.below(view, caps, level + 1, child as usize, here, picks);
            left -= here;
            next += 1;
        }
        self.children[level] = children;
        filled
    }

    /// Takes nodes of one innermost domain: the roomiest first, and the tightest for the rest.
    fn nodes(
        &mut self,
        view: View<'_>,
        caps: &Capacities,
        level: usize,
        domain: usize,
        want: u32,
        picks: &mut Vec<Pick>,
    ) -> bool {
        self.collect(view, caps, level, domain);
        self.taken.clear();
        let mut left = want;
        while left > 0 {
            // Largest first, so of those that take all that is left the last is the tightest.
            let tight = self.bins.iter().rposition(|bin| bin.nodes > 0 && bin.cap.hi >= left);
            let tight = tight.map(|at| self.faster_like(view, at));
            let Some(at) = tight.or_else(|| self.bins.iter().position(|bin| bin.nodes > 0)) else {
                return false;
            };
            let bin = &mut self.bins[at];
            if bin.cap.hi < left {
                let nodes = bin.nodes.min(left / bin.cap.hi);
                bin.nodes -= nodes;
                left -= nodes * bin.cap.hi;
                self.taken.extend((0..nodes).map(|_| (at as u32, bin.cap.hi)));
                continue;
            }
            if bin.cap.lo <= left {
                bin.nodes -= 1;
                self.taken.push((at as u32, left));
                left = 0;
            } else if !self.share(left) {
                return false;
            } else {
                left = 0;
            }
        }
        self.assign(view, level, domain, picks);
        true
    }

    /// A bin whose nodes have as much room as those of this one, and more of their network.
    fn faster_like(&self, view: View<'_>, at: usize) -> usize {
        let kind = |bin: &Bin| &view.tree.kinds[usize::from(bin.kind)];
        let slow = &self.bins[at];
        if !kind(slow).is_measured() {
            return at;
        }
        let room = |bin: &Bin| (bin.cap.hi, bin.cap.lo, kind(bin).offers()[usize::from(bin.class)].devices);
        let is_like = |bin: &Bin| bin.nodes > 0 && room(bin) == room(slow);
        let like = (0..=at).filter(|other| is_like(&self.bins[*other]));
        like.max_by_key(|other| kind(&self.bins[*other]).network_permille()).unwrap_or(at)
    }

    /// The rest is too small for any node: the node with the lowest minimum takes it, and the others give the missing
    /// members.
    fn share(&mut self, left: u32) -> bool {
        let candidates = self.bins.iter().enumerate().filter(|(_, bin)| bin.nodes > 0 && bin.cap.hi >= left);
        let Some((at, bin)) = candidates.min_by_key(|(at, bin)| (bin.cap.lo, Reverse(*at))) else {
            return false;
        };
        // A roomier node than the tightest may accept the rest.
        let takes = bin.cap.lo.max(left);
        let mut lacks = takes - left;
        for (giver, members) in self.taken.iter_mut().rev() {
            let spare = *members - self.bins[*giver as usize].cap.lo;
            let given = spare.min(lacks);
            *members -= given;
            lacks -= given;
        }
        self.bins[at].nodes -= 1;
        self.taken.push((at as u32, takes));
        lacks == 0
    }

    fn collect(&mut self, view: View<'_>, caps: &Capacities, level: usize, domain: usize) {
        self.bins.clear();
        for row in view.space.rows(level, domain) {
            if Capacities::is_plain(view, row) {
                let counts = view.space.counts(view.tree, level, row);
                for (class, nodes) in (0_u16..).zip(counts).filter(|(_, nodes)| **nodes > 0) {
                    let cap = caps.of_class(row.kind, class);
                    if cap.hi > 0 {
                        self.bins.push(Bin { cap, nodes: *nodes, kind: row.kind, class, node: None });
                    }
                }
                continue;
            }
            for node in view.tree.domains[level][domain].nodes.clone() {
                if view.tree.nodes[node].kind != row.kind {
                    continue;
                }
                let cap = caps.of_node(view, node);
                if cap.hi > 0 {
                    let class = view.space.class(node);
                    self.bins.push(Bin { cap, nodes: 1, kind: row.kind, class, node: Some(node as u32) });
                }
            }
        }
        // Of equal room the one with more free devices is taken last: it may be a whole node.
        let free =
            |bin: &Bin| view.tree.kinds[usize::from(bin.kind)].offers()[usize::from(bin.class)].devices;
        self.bins.sort_unstable_by_key(|bin| {
            (Reverse(bin.cap.hi), free(bin), bin.cap.lo, bin.kind, bin.class, bin.node)
        });
    }

    /// Which nodes they are: of each bin the first.
    fn assign(&mut self, view: View<'_>, level: usize, domain: usize, picks: &mut Vec<Pick>) {
        self.taken.sort_unstable_by_key(|(bin, members)| (*bin, Reverse(*members)));
        let nodes = view.tree.domains[level][domain].nodes.clone();
        let mut from = (u32::MAX, nodes.start);
        for (at, members) in &self.taken {
            let bin = &self.bins[*at as usize];
            let is_it = |node: &usize| {
                let found = &view.tree.nodes[*node];
                found.kind == bin.kind
                    && view.space.class(*node) == bin.class
                    && view.space.free(*node).takes_work()
            };
            let start = if from.0 == *at { from.1 } else { nodes.start };
            let node = bin.node.map(|node| node as usize).or_else(|| (start..nodes.end).find(is_it));
            let Some(node) = node else { return };
            from = (*at, node + 1);
            picks.push(Pick::new(node as u32, *members, DeviceMask::EMPTY));
        }
    }
}

/// Takes off the members that only filled up the last part.
fn cut(view: View<'_>, caps: &Capacities, members: u32, picks: &mut Vec<Pick>) -> bool {
    let mut left = members;
    while left > 0 {
        let Some(last) = picks.last_mut() else { return false };
        let cut = left.min(last.members);
        last.members -= cut;
        left -= cut;
        if last.members == 0 {
            picks.pop();
        }
    }
    let Some(last) = picks.last().filter(|_| members > 0) else { return true };
    let lo = caps.of_node(view, last.node as usize).lo;
    view.request.unit() > 1 || last.members >= lo
}

/// Chooses the best devices of a node for its members; NICs do not count if something `inside` joins the nodes.
/// Returns whether such devices exist.
pub(super) fn choose_devices(view: View<'_>, threshold: u32, inside: u32, pick: &mut Pick) -> bool {
    let node = pick.node as usize;
    let kind = view.tree.kind(&view.tree.nodes[node]);
    let free = view.request.devices(view.tree, view.space, node);
    let count = pick.members * view.request.needs.devices;
    if count == 0 {
        pick.devices = DeviceMask::EMPTY;
        return true;
    }
    let chosen = if let Some((group, size)) = view.request.part_in_node() {
        in_groups(view, kind, free, pick.members, (group, size), |set| {
            let (ring, nics) = (kind.ring(set), kind.nics(set));
            match view.request.is_all_to_all() {
                true => (ring >= threshold).then_some(nics),
                false if inside > 0 => Some(ring),
                false => Some(ring.min(nics)),
            }
        })
    } else if view.request.is_all_to_all() {
        kind.table.best_nics(free, count, threshold).map(|(_, set)| set)
    } else if inside > 0 {
        kind.table.best(free, count)
    } else {
        kind.table.best_spanning(free, count)
    };
    chosen.is_some_and(|devices| {
        pick.devices = devices;
        devices.count() == count
    })
}

/// Devices of a node such that each part is inside one group: of all such sets the one that is worth most, then the
/// one that leaves the best places for others, then that of the lowest numbers.
pub(super) fn in_groups(
    view: View<'_>,
    kind: &Kind,
    free: DeviceMask,
    members: u32,
    (group, size): (usize, u32),
    worth: impl Fn(DeviceMask) -> Option<u32>,
) -> Option<DeviceMask> {
    if free.count() > SETS_DEVICES_MAX {
        return in_groups_in_order(view, kind, free, members, (group, size));
    }
    let each = view.request.needs.devices;
    let mut best: Option<((u32, Reverse<u64>), DeviceMask)> = None;
    let mut next = Some(free);
    while let Some(set) = next {
        // The next smaller subset.
        next = set.0.checked_sub(1).map(|less| DeviceMask(less).and(free));
        if set.count() != members * each || !is_dealt(kind, set, each, members % size, (group, size)) {
            continue;
        }
        let Some(worth) = worth(set) else { continue };
        let candidate = (worth, Reverse(kind.table.rest_ps(free.minus(set))));
        if best.is_none_or(|(found, _)| candidate >= found) {
            best = Some((candidate, set));
        }
    }
    best.map(|(_, set)| set)
}

/// Whether every group has the devices of whole parts, but for one that has those of the smaller last one beside them.
fn is_dealt(kind: &Kind, set: DeviceMask, each: u32, rest: u32, (group, size): (usize, u32)) -> bool {
    let (mut dealt, mut odd) = (0, 0);
    for mask in kind.groups_of(group) {
        let here = set.and(mask).count();
        let left = (here / each.max(1)) % size;
        if !here.is_multiple_of(each.max(1)) || left != 0 && left != rest {
            return false;
        }
        odd += u32::from(left != 0);
        dealt += here;
    }
    dealt == set.count() && odd < 2
}

/// The same for machines of more devices than all sets are tried of: group by group.
fn in_groups_in_order(
    view: View<'_>,
    kind: &Kind,
    free: DeviceMask,
    members: u32,
    (group, size): (usize, u32),
) -> Option<DeviceMask> {
    let each = view.request.needs.devices;
    let (mut parts, mut rest) = (members / size, members % size);
    let mut chosen = DeviceMask::EMPTY;
    for mask in kind.groups_of(group) {
        let there = free.and(mask);
        let here = parts.min(there.count() / (size * each).max(1));
        chosen = chosen.union(kind.table.best(there, here * size * each)?);
        parts -= here;
        let left = there.minus(chosen);
        if rest > 0 && left.count() >= rest * each {
            chosen = chosen.union(kind.table.best(left, rest * each)?);
            rest = 0;
        }
    }
    (parts == 0 && rest == 0).then_some(chosen)
}

/// Walks through the domains of one level that hold the gang: those with the least free capacity first, so that whole
/// ones stay whole.
#[derive(Debug)]
pub(super) struct Walk {
    target: usize,
    /// Per level: the children that are left to look at.
    open: [Option<std::ops::Range<usize>>; LEVELS_MAX],
    /// Per level: `(free devices, child)` of the last one that was read.
    last: [Option<(u32, usize)>; LEVELS_MAX],
    depth: usize,
}

/// Levels above the node; more are not walked.
pub(crate) const LEVELS_MAX: usize = 16;

impl Walk {
    pub(super) fn new(view: View<'_>, target: usize) -> Self {
        let mut open = [const { None }; LEVELS_MAX];
        open[0] = view.tree.domains.first().map(|domains| 0..domains.len());
        Self { target, open, last: [Self::too_small(view); LEVELS_MAX], depth: 0 }
    }

    /// Children with fewer free devices need not be read.
    fn too_small(view: View<'_>) -> Option<(u32, usize)> {
        let needed = view.request.size.saturating_mul(view.request.needs.devices);
        Some((needed.checked_sub(1)?, usize::MAX))
    }

    /// The next domain that holds the gang.
    pub(super) fn next(&mut self, view: View<'_>, caps: &mut Capacities) -> Option<usize> {
        let size = view.request.size;
        // This counts whole parts on nodes; a smaller last one may fit beside them.
        let whole = size - size % view.request.unit();
        loop {
            let level = self.depth;
            let range = self.open[level].clone()?;
            let after = self.last[level];
            let innermost = self.target + 1 == view.tree.depth();
            let may_hold = |child: usize| {
                if innermost {
                    caps.bound_of_innermost(view, level, child) >= whole
                } else {
                    caps.bound(view, level, child) >= whole
                }
            };
            let mut next: Option<(u32, usize)> = None;
            for child in range {
                let at = (view.space.free_devices(level, child), child);
                let is_next = after.is_none_or(|last| at > last) && next.is_none_or(|next| at < next);
                if is_next && may_hold(child) {
                    next = Some(at);
                }
            }
            let Some(at) = next else {
                self.open[level] = None;
                self.depth = level.checked_sub(1)?;
                continue;
            };
            self.last[level] = Some(at);
            let child = at.1;
            if level == self.target {
                let unit = unit_at(view, LevelAt::Above(level));
                if caps.of(view, level, child).is_enough(size, unit) {
                    return Some(child);
                }
                continue;
            }
            self.depth = level + 1;
            self.open[level + 1] = Some(view.tree.domains[level][child].children.clone());
            self.last[level + 1] = Self::too_small(view);
        }
    }
}
