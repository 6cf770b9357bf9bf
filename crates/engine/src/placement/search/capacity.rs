//! How many members fit in a domain when everything has to reach a bottleneck.

use super::View;
use crate::cluster::space::Row;
use crate::cluster::tree::LevelAt;
use crate::placement::request::Cap;

/// The capacity of a domain: members in whole parts, and whether the smaller last part fits beside them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holds {
    pub(super) full: u32,
    pub(super) rest: bool,
}

/// Capacities at one bottleneck, remembered while it stays.
#[derive(Clone, Debug, Default)]
pub(super) struct Capacities {
    threshold: u32,
    inside: u32,
    /// Nodes are counted as if the gang could be on one of them alone.
    whole: bool,
    /// By kind, the index of its first class.
    first: Vec<u32>,
    /// By kind and class.
    caps: Vec<Cap>,
    /// In the same places: whether such a node may have the smaller last part.
    takes_rest: Vec<bool>,
    /// `(hi, kind, class)`, the largest first.
    largest: Vec<(u32, u16, u16)>,
    /// By level: deeper levels have limits, so that counts of this level may exceed the real capacity.
    binds: Vec<bool>,
    /// Counts the settings; never wraps around.
    stamp: u64,
    known: Vec<Vec<(u64, Holds)>>,
}

impl Capacities {
    /// Another request, or other amounts: nothing is remembered.
    pub(super) fn begin(&mut self, view: View<'_>) {
        self.stamp += 1;
        self.caps.clear();
        self.known.resize(view.tree.depth(), Vec::new());
        for (known, domains) in self.known.iter_mut().zip(&view.tree.domains) {
            if known.len() != domains.len() {
                known.clear();
                known.resize(domains.len(), (u64::MAX, Holds::default()));
            }
        }
    }

    /// Sets the bottleneck: everything must reach `threshold`; `inside` is the bandwidth that joins nodes beside
    /// their NICs.
    pub(super) fn set(&mut self, view: View<'_>, threshold: u32, inside: u32) {
        self.set_for(view, threshold, inside, false);
    }

    /// Whatever fits counts, at any speed, also on one node alone.
    pub(super) fn set_whole(&mut self, view: View<'_>) {
        self.set_for(view, 0, 0, true);
    }

    fn set_for(&mut self, view: View<'_>, threshold: u32, inside: u32, whole: bool) {
        if !self.caps.is_empty() && (self.threshold, self.inside, self.whole) == (threshold, inside, whole) {
            return;
        }
        (self.threshold, self.inside, self.whole) = (threshold, inside, whole);
        self.stamp += 1;
        self.first.clear();
        self.caps.clear();
        self.takes_rest.clear();
        self.largest.clear();
        for (at, kind) in (0_u16..).zip(&view.tree.kinds) {
            self.first.push(self.caps.len() as u32);
            let takes_none = kind.refuses(view.request.needs)
                || view.request.eligible[usize::from(at)].is_empty() && view.request.needs.devices > 0;
            for (class, offer) in (0_u16..).zip(kind.offers()) {
                let cap = if takes_none {
                    Cap::default()
                } else {
                    view.request.cap(kind, offer, u32::MAX, threshold, inside, whole)
                };
                self.takes_rest.push(!takes_none && view.request.takes_rest(kind, offer, threshold, inside));
                self.caps.push(cap);
                if cap.hi > 0 {
                    self.largest.push((cap.hi, at, class));
                }
            }
        }
        self.largest.sort_unstable_by_key(|(hi, kind, class)| (std::cmp::Reverse(*hi), *kind, *class));
        self.binds.clear();
        for level in 0..view.tree.depth() {
            let part = view.request.parts_above().any(|(of, _)| of > level)
                || !view.request.size.is_multiple_of(view.request.unit());
            let uplink = self.counts_uplinks(view)
                && (level + 1..view.tree.depth()).any(|deeper| view.space.least_uplink(deeper) < threshold);
            self.binds.push(part || uplink || view.request.is_capped());
        }
    }

    fn counts_uplinks(&self, view: View<'_>) -> bool {
        self.inside == 0 && !view.request.is_all_to_all()
    }

    pub(super) const fn threshold(&self) -> u32 {
        self.threshold
    }

    pub(super) const fn inside(&self) -> u32 {
        self.inside
    }

    fn of_kind(&self, kind: u16) -> &[Cap] {
        let end = self.first.get(usize::from(kind) + 1).map_or(self.caps.len(), |end| *end as usize);
        &self.caps[self.first[usize::from(kind)] as usize..end]
    }

    pub(super) fn of_class(&self, kind: u16, class: u16) -> Cap {
        self.of_kind(kind)[usize::from(class)]
    }

    /// The capacity of one node, with its CPUs, memory and restrictions.
    pub(super) fn of_node(&self, view: View<'_>, node: usize) -> Cap {
        let kind = view.tree.kind(&view.tree.nodes[node]);
        let devices = view.request.devices(view.tree, view.space, node);
        let limit = view.request.limit(view.tree, view.space, node, devices);
        if limit == 0 {
            return Cap::default();
        }
        let offer = &kind.offers()[usize::from(kind.class_of(devices))];
        view.request.cap(kind, offer, limit, self.threshold, self.inside, self.whole)
    }

    /// Whether the classes of a row give the capacity of its nodes.
    pub(super) fn is_plain(view: View<'_>, row: &Row) -> bool {
        !view.request.is_particular() && row.is_bound_by_devices(view.request.needs)
    }

    fn of_row(&self, view: View<'_>, level: usize, row: &Row) -> u32 {
        self.of_counts(row, view.space.counts(view.tree, level, row))
    }

    fn of_counts(&self, row: &Row, counts: &[u32]) -> u32 {
        let members: u64 = counts
            .iter()
            .zip(self.of_kind(row.kind))
            .map(|(nodes, cap)| u64::from(*nodes) * u64::from(cap.hi))
            .sum();
        u32::try_from(members).unwrap_or(u32::MAX)
    }

    /// An upper bound of the capacity of a domain, from its counts alone.
    pub(super) fn bound(&self, view: View<'_>, level: usize, domain: usize) -> u32 {
        let rows = view.space.rows(level, domain).iter();
        rows.fold(0_u32, |sum, row| sum.saturating_add(self.of_row(view, level, row)))
    }

    /// An upper bound of the capacity of every innermost domain inside one.
    pub(super) fn bound_of_innermost(&self, view: View<'_>, level: usize, domain: usize) -> u32 {
        let rows = view.space.rows(level, domain).iter();
        rows.fold(0_u32, |sum, row| {
            sum.saturating_add(self.of_counts(row, view.space.most(view.tree, level, row)))
        })
    }

    /// A lower bound on the nodes of any placement inside a domain; `None` if no number of nodes is right: with
    /// enough nodes for all members, the least that each node must have adds up to too many.
    pub(super) fn least_nodes(&self, view: View<'_>, level: usize, domain: usize) -> Option<u64> {
        let rows = view.space.rows(level, domain);
        // The smaller last part may fit beside whole ones, which counts of whole parts do not show.
        let rest = view.request.size % view.request.unit();
        let (mut left, mut nodes, mut least) = (view.request.size - rest, 0_u64, u32::MAX);
        for (hi, kind, class) in &self.largest {
            let Some(row) = rows.iter().find(|row| row.kind == *kind) else { continue };
            let there = view.space.counts(view.tree, level, row)[usize::from(*class)];
            if there == 0 {
                continue;
            }
            least = least.min(self.of_class(*kind, *class).least);
            let used = there.min(left.div_ceil(*hi));
            nodes += u64::from(used);
            left = left.saturating_sub(used.saturating_mul(*hi));
        }
        if rest > 0 && !rows.iter().any(|row| self.has_class_for_rest(view, level, row)) {
            return None;
        }
        let most = u64::from((view.request.size - rest) / least.max(1)) + u64::from(rest > 0);
        (left == 0 && nodes <= most).then_some(nodes)
    }

    fn has_class_for_rest(&self, view: View<'_>, level: usize, row: &Row) -> bool {
        let first = self.first[usize::from(row.kind)] as usize;
        let counts = view.space.counts(view.tree, level, row).iter();
        counts.zip(&self.takes_rest[first..]).any(|(nodes, takes)| *nodes > 0 && *takes)
    }

    /// The capacity of a domain by itself.
    pub(super) fn of(&mut self, view: View<'_>, level: usize, domain: usize) -> Holds {
        if let (stamp, holds) = self.known[level][domain]
            && stamp == self.stamp
        {
            return holds;
        }
        let rows = view.space.rows(level, domain);
        let is_plain = rows.iter().all(|row| Self::is_plain(view, row));
        let innermost = level + 1 == view.tree.depth();
        let inner = if is_plain && (innermost || !self.binds[level]) {
            Holds { full: self.bound(view, level, domain), rest: false }
        } else if innermost {
            rows.iter()
                .fold(Holds::default(), |sum, row| sum.and(self.of_row_by_node(view, level, domain, row)))
        } else {
            let children = view.tree.domains[level][domain].children.clone();
            children.fold(Holds::default(), |sum, child| sum.and(self.crossing(view, level + 1, child)))
        };
        let rest = inner.rest || innermost && self.has_room_for_rest(view, level, domain);
        let inner = Holds { rest, ..inner };
        let room = view.request.room(view.tree, view.space, level, domain);
        let holds = in_parts(
            view,
            LevelAt::Above(level),
            inner.at_most(
                room,
                view.request.size,
                unit_inside(view, level),
                view.request.members_per_node.unwrap_or(1),
            ),
        );
        self.known[level][domain] = (self.stamp, holds);
        holds
    }

    /// The capacity of a domain for a gang that also has members outside it.
    pub(super) fn crossing(&mut self, view: View<'_>, level: usize, domain: usize) -> Holds {
        if self.counts_uplinks(view) && view.space.uplink(level, domain) < self.threshold {
            return Holds::default();
        }
        self.of(view, level, domain)
    }

    fn of_row_by_node(&self, view: View<'_>, level: usize, domain: usize, row: &Row) -> Holds {
        if Self::is_plain(view, row) {
            return Holds { full: self.of_row(view, level, row), rest: false };
        }
        let nodes = view.tree.domains[level][domain].nodes.clone();
        let of_kind = nodes.filter(|node| view.tree.nodes[*node].kind == row.kind);
        let full = of_kind.fold(0_u32, |sum, node| sum.saturating_add(self.of_node(view, node).hi));
        Holds { full, rest: false }
    }

    /// If parts stay on one node and do not divide the gang, the last one may fit beside whole ones.
    fn has_room_for_rest(&self, view: View<'_>, level: usize, domain: usize) -> bool {
        let request = view.request;
        let rest = request.size % request.unit();
        if rest == 0 {
            return false;
        }
        view.space.rows(level, domain).iter().any(|row| {
            if Self::is_plain(view, row) {
                let counts = view.space.counts(view.tree, level, row).iter();
                let offers = view.tree.kinds[usize::from(row.kind)].offers().iter();
                let mut classes = counts.zip(offers).zip(self.of_kind(row.kind));
                let takes_any = !request.eligible[usize::from(row.kind)].is_empty();
                return takes_any
                    && classes.any(|((nodes, offer), cap)| {
                        *nodes > 0
                            && (offer.devices / request.needs.devices).min(request.node_max) >= cap.hi + rest
                    });
            }
            view.tree.domains[level][domain].nodes.clone().any(|node| {
                let devices = request.devices(view.tree, view.space, node);
                let limit = request.limit(view.tree, view.space, node, devices);
                limit.checked_sub(self.of_node(view, node).hi).is_some_and(|beside| beside >= rest)
            })
        })
    }
}

impl Holds {
    const fn and(self, other: Self) -> Self {
        Self { full: self.full.saturating_add(other.full), rest: self.rest || other.rest }
    }

    /// As much of the capacity as `room` allows, in whole parts of the levels inside, and as many on each node as
    /// requested.
    fn at_most(self, room: u32, size: u32, unit: u32, each_node: u32) -> Self {
        if room >= self.full.saturating_add(size % unit) {
            return self;
        }
        let step = each_node.max(1) / gcd(each_node.max(1), unit) * unit;
        let full = self.full.min(room) / step * step;
        // If whole parts are left out, the smaller one takes their room.
        let has_place = self.rest || full < self.full;
        Self { full, rest: has_place && room - full >= size % unit }
    }

    /// Whether so many members fit; the last part is smaller if `unit` does not divide them.
    pub(super) fn is_enough(self, members: u32, unit: u32) -> bool {
        let rest = members % unit;
        self.full >= members.next_multiple_of(unit) || (self.rest && self.full >= members - rest)
    }
}

/// The unit in which members are placed at a level and inside it.
pub(super) fn unit_at(view: View<'_>, level: LevelAt) -> u32 {
    let inner = view.request.parts.iter().filter(|part| part.level >= level);
    inner.map(|part| part.size).next().unwrap_or(1)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The unit in which members are placed inside a level.
fn unit_inside(view: View<'_>, level: usize) -> u32 {
    let inner = view.request.parts.iter().find(|part| part.level > LevelAt::Above(level));
    inner.map_or(1, |part| part.size)
}

/// Rounds down to whole parts of a level, and reports whether the last one fits beside them.
fn in_parts(view: View<'_>, level: LevelAt, inner: Holds) -> Holds {
    let Some(size) = view.request.part_at(level) else { return inner };
    let full = inner.full / size * size;
    let rest = view.request.size % size;
    let beside = Holds { full: inner.full - full, rest: inner.rest };
    let inside = view.request.parts.iter().find(|part| part.level > level).map_or(1, |part| part.size);
    Holds { full, rest: rest > 0 && beside.is_enough(rest, inside) }
}
