//! A gang as the search reads it: counts and indices instead of names.

use phalanx_model::{DeviceMask, Gang, Needs, Pattern};

use crate::cluster::kind::Kind;
use crate::cluster::named::Asked;
use crate::cluster::shape::{NO_LIMIT, Offer};
use crate::cluster::space::Space;
use crate::cluster::traffic::Traffic;
use crate::cluster::tree::{Free, LevelAt, Listed, Tree};

/// Members that a node takes: any whole multiple of the unit from `lo` to `hi`, none when `hi` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cap {
    pub(crate) lo: u32,
    pub(crate) hi: u32,
    /// The fewest members that reach the bottleneck, if some counts between do not.
    pub(crate) least: u32,
}

/// A part of the gang that must share a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) level: LevelAt,
    pub(crate) size: u32,
}

/// The request of a gang.
#[derive(Clone, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) needs: &'a Needs,
    pub(crate) size: u32,
    pub(crate) members_per_node: Option<u32>,
    /// One domain of this level holds all.
    pub(crate) ceiling: LevelAt,
    /// Insisted on beside a ceiling inside the node: levels there need not nest.
    pub(crate) also: Vec<usize>,
    /// Widest first.
    pub(crate) parts: Vec<Part>,
    pub(crate) traffic: Traffic,
    pub(crate) listed: Listed,
    /// By kind: the devices that the gang takes.
    pub(crate) eligible: Vec<DeviceMask>,
    /// Some kind has devices of which the gang takes only a part.
    pub(crate) is_choosy: bool,
    /// Of resources that are counted by name.
    pub(crate) asked: Asked,
    /// Levels above the node, and the most members inside one domain of each.
    spread: Vec<(usize, u32)>,
    /// The most members on one node.
    pub(crate) node_max: u32,
}

/// Memory of a request, used again by the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers {
    parts: Vec<Part>,
    eligible: Vec<DeviceMask>,
    asked: Asked,
    spread: Vec<(usize, u32)>,
}

impl<'a> Request<'a> {
    pub(crate) fn of(tree: &Tree, gang: &'a Gang, ceiling: LevelAt) -> Self {
        Self::within(tree, gang, ceiling, Buffers::default())
    }

    pub(crate) fn within(tree: &Tree, gang: &'a Gang, ceiling: LevelAt, buffers: Buffers) -> Self {
        let Buffers { mut parts, mut eligible, mut asked, mut spread } = buffers;
        eligible.clear();
        eligible.extend(tree.kinds.iter().map(|kind| kind.eligible(&gang.needs)));
        let is_part = |(kind, mask): (&Kind, &DeviceMask)| !mask.is_empty() && *mask != kind.all();
        let is_choosy = tree.kinds.iter().zip(&eligible).any(is_part);
        let part = |segment: &phalanx_model::Segment| {
            Some(Part { level: tree.level_at(&segment.level)?, size: segment.size.max(1) })
        };
        // A part as large as the gang is a ceiling.
        parts.clear();
        parts.extend(gang.topology.segments.iter().filter_map(part));
        let whole = parts.iter().filter(|part| part.size >= gang.size).map(|part| part.level).max();
        let ceiling = whole.map_or(ceiling, |level| level.max(ceiling));
        // Segments that the ceiling keeps together anyway are not parts. (Levels inside the node need not nest.)
        let is_kept = |level: LevelAt| level <= ceiling && !matches!(level, LevelAt::Group(_));
        parts.retain(|part| part.size < gang.size && !is_kept(part.level));
        let whole = gang.topology.segments.iter().filter(|segment| segment.size >= gang.size);
        let insisted = whole.filter_map(|segment| tree.level_at(&segment.level));
        let inside = insisted.chain([tree.level_of_required(gang)]).filter(|level| *level != ceiling);
        let also =
            inside.filter_map(|level| if let LevelAt::Group(group) = level { Some(group) } else { None });
        let also = also.collect();
        tree.resources.look_up(&gang.needs, &mut asked);
        spread.clear();
        let mut node_max = u32::MAX;
        for rule in &gang.topology.spread {
            match tree.level_at(&rule.level) {
                Some(LevelAt::Above(level)) => spread.push((level, rule.max)),
                _ => node_max = node_max.min(rule.max),
            }
        }
        Self {
            asked,
            spread,
            node_max,
            needs: &gang.needs,
            size: gang.size,
            members_per_node: gang.members_per_node,
            ceiling,
            also,
            parts,
            traffic: Traffic::of(gang),
            listed: tree.listed(&gang.needs),
            eligible,
            is_choosy,
        }
    }

    pub(crate) fn into_buffers(self) -> Buffers {
        Buffers { parts: self.parts, eligible: self.eligible, asked: self.asked, spread: self.spread }
    }

    /// The time of a crossing for this gang.
    pub(crate) const fn crossing_ns(&self, crossing_ns: u64) -> u64 {
        if self.traffic.is_silent() { 0 } else { crossing_ns }
    }

    pub(crate) fn is_all_to_all(&self) -> bool {
        self.traffic.pattern == Pattern::AllToAll
    }

    /// The members that stay together on a node.
    pub(crate) fn unit(&self) -> u32 {
        self.parts.iter().find(|part| part.level >= LevelAt::Node).map_or(1, |part| part.size)
    }

    pub(crate) fn part_at(&self, level: LevelAt) -> Option<u32> {
        self.parts.iter().find(|part| part.level == level).map(|part| part.size)
    }

    /// The sets of devices of a node of which one must hold all members: its groups of a level, cut by the groups of
    /// the other required levels.
    pub(crate) fn sites(&self, kind: &Kind, group: Option<usize>) -> Vec<DeviceMask> {
        let mut sites = vec![kind.all()];
        for level in group.into_iter().chain(self.also.iter().copied()) {
            let shared = sites.iter().flat_map(|site| kind.groups_of(level).map(|group| site.and(group)));
            sites = shared.filter(|site| !site.is_empty()).collect();
        }
        sites.dedup();
        sites
    }

    /// Whether all members must be inside one group of a node, besides the ceiling.
    pub(crate) const fn insists_inside(&self) -> bool {
        !self.also.is_empty()
    }

    /// The part inside the node, with the index of its level.
    pub(crate) fn part_in_node(&self) -> Option<(usize, u32)> {
        self.parts.iter().find_map(|part| match part.level {
            LevelAt::Group(group) => Some((group, part.size)),
            _ => None,
        })
    }

    /// Parts at levels above the node.
    pub(crate) fn parts_above(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.parts.iter().filter_map(|part| match part.level {
            LevelAt::Above(level) => Some((level, part.size)),
            _ => None,
        })
    }

    /// Whether nodes must be read one by one, whatever is free on them.
    pub(crate) fn is_particular(&self) -> bool {
        self.is_choosy
            || !self.listed.is_all()
            || self.part_in_node().is_some()
            || self.needs.is_exclusive
            || self.asked.is_of_nodes()
    }

    /// Whether domains above the node hold fewer members than their nodes do.
    pub(crate) fn is_capped(&self) -> bool {
        !self.spread.is_empty() || self.asked.is_of_domains()
    }

    /// The most members that a domain may have, by its own rules and those of the domains around it.
    pub(crate) fn room(&self, tree: &Tree, space: &Space, level: usize, domain: usize) -> u32 {
        let mut room = u32::MAX;
        if !self.is_capped() {
            return room;
        }
        let mut domain = domain;
        for level in (0..=level).rev() {
            let spread = self.spread.iter().filter(|(of, _)| *of == level).map(|(_, max)| *max).min();
            let left = space.named().in_domain(tree, level, domain, &self.asked);
            room = room.min(spread.unwrap_or(u32::MAX)).min(left);
            domain = tree.domains[level][domain].parent;
        }
        room
    }

    /// Free devices of a node that the gang may take; none if the node takes no work.
    pub(crate) fn devices(&self, tree: &Tree, space: &Space, node: usize) -> DeviceMask {
        let free = space.free(node);
        if !self.takes(tree, free, node) {
            return DeviceMask::EMPTY;
        }
        free.devices.and(self.eligible[usize::from(tree.nodes[node].kind)])
    }

    /// Members that fit on a node when they may use only these devices.
    pub(crate) fn limit(&self, tree: &Tree, space: &Space, node: usize, devices: DeviceMask) -> u32 {
        let free = space.free(node);
        if !self.takes(tree, free, node) {
            return 0;
        }
        let by_devices = self.by_devices(tree.kind(&tree.nodes[node]), devices);
        let by_cpu = whole_times(free.cpu_milli, self.needs.cpu_milli);
        let by_memory = whole_times(free.memory_bytes, self.needs.memory_bytes);
        let by_name =
            if self.asked.is_nothing() { u32::MAX } else { space.named().on_node(tree, node, &self.asked) };
        by_devices.min(by_cpu).min(by_memory).min(by_name).min(self.node_max)
    }

    /// Whether the gang may use a node at all.
    fn takes(&self, tree: &Tree, free: &Free, node: usize) -> bool {
        // Devices that other workloads than ours hold are not free either.
        let is_alone = || free.tenants == 0 && free.devices == tree.nodes[node].total.devices;
        let refuses = tree.kind(&tree.nodes[node]).refuses(self.needs);
        free.takes_work() && !refuses && self.listed.has(node) && (!self.needs.is_exclusive || is_alone())
    }

    /// How many members the devices are enough for. If parts stay inside groups of the node, each group counts alone.
    fn by_devices(&self, kind: &Kind, devices: DeviceMask) -> u32 {
        let each = self.needs.devices;
        let whole = devices.count().checked_div(each).unwrap_or(NO_LIMIT);
        let Some((group, size)) = self.part_in_node().filter(|_| each > 0) else { return whole };
        let rest = self.size % size;
        let mut can_rest = false;
        let parts: u32 = kind
            .groups_of(group)
            .map(|mask| {
                let members = devices.and(mask).count() / each;
                can_rest |= rest > 0 && members % size >= rest;
                members / size
            })
            .sum();
        parts * size + if can_rest { rest } else { 0 }
    }

    /// The least bandwidth that members on a node of a kind get if the gang spans several nodes.
    pub(crate) fn beyond(&self, kind: &Kind, offer: &Offer, members: u32, inside_mb_per_s: u32) -> u32 {
        let at = (members * self.needs.devices) as usize;
        if self.is_all_to_all() || inside_mb_per_s > 0 {
            // The traffic out of the node is part of the crossing, or stays on the links between nodes.
            let ring = offer.inside.get(at).copied().unwrap_or(NO_LIMIT);
            return if inside_mb_per_s > 0 && !self.is_all_to_all() {
                ring.min(inside_mb_per_s)
            } else {
                ring
            };
        }
        if at == 0 {
            return kind.nics(kind.all());
        }
        kind.beyond(offer.spanning.get(at).copied().unwrap_or(0))
    }

    /// How many members a node may take, so that all of them get at least this much. Of counts that reach it and
    /// do not follow each other the largest run counts: fewer than there are, and none too many.
    pub(crate) fn cap(
        &self,
        kind: &Kind,
        offer: &Offer,
        limit: u32,
        at_least: u32,
        inside: u32,
        whole: bool,
    ) -> Cap {
        let limit = limit.min(self.node_max);
        let most = match offer.devices.checked_div(self.needs.devices) {
            Some(members) => members.min(limit).min(self.size),
            None => limit.min(self.size),
        };
        let reaches = |members: u32| self.beyond(kind, offer, members, inside) >= at_least;
        if let Some(exactly) = self.members_per_node {
            let fits = exactly <= most && (whole || exactly < self.size) && reaches(exactly);
            return if fits { Cap { lo: exactly, hi: exactly, least: exactly } } else { Cap::default() };
        }
        let unit = self.unit();
        // A gang that spans several nodes has members elsewhere.
        let mut hi = if whole { most } else { most.min(self.size.saturating_sub(1)) } / unit * unit;
        if self.needs.devices == 0 {
            return if reaches(1) {
                Cap { lo: unit.min(hi), hi, least: unit.min(hi) }
            } else {
                Cap::default()
            };
        }
        while hi > 0 && !reaches(hi) {
            hi -= unit;
        }
        let mut lo = hi;
        while lo > unit && reaches(lo - unit) {
            lo -= unit;
        }
        let mut least = lo;
        let mut fewer = lo;
        while fewer > unit {
            fewer -= unit;
            least = if reaches(fewer) { fewer } else { least };
        }
        Cap { lo, hi, least }
    }
}

impl Request<'_> {
    /// Whether a node may have the smaller last part, alone or beside whole ones, and reach so much.
    pub(crate) fn takes_rest(&self, kind: &Kind, offer: &Offer, at_least: u32, inside: u32) -> bool {
        let unit = self.unit();
        let rest = self.size % unit;
        let Some(most) = offer.devices.checked_div(self.needs.devices).filter(|_| rest > 0) else {
            return rest > 0;
        };
        (rest..=most.min(self.size - 1))
            .step_by(unit as usize)
            .any(|members| self.beyond(kind, offer, members, inside) >= at_least)
    }
}

/// How many times `need` fits into `free`; without bound if `need` is 0.
fn whole_times(free: i64, need: u64) -> u32 {
    match (u64::try_from(free), need) {
        (_, 0) => u32::MAX,
        (Ok(free), need) => u32::try_from(free / need).unwrap_or(u32::MAX),
        (Err(_), _) => 0,
    }
}
