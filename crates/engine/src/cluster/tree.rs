//! The domain tree as flat arrays: the position of every node, and the bandwidth and latency between them.
//! [`super::space`] has the free capacity.
//!
//! Nodes are sorted by path and name, so every domain is a range of nodes, and rank order by node index is order by
//! topology path.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use phalanx_model::{
    Bandwidth, Bandwidths, CollectiveCost, CostTable, DeviceMask, DomainName, Gang, LevelName, Levels, Needs,
    Node, NodeName, ShapeCost, Uplink, report::show_path,
};

use super::kind::{Cables, Kind, KindKey};
use super::measured::{self, MeasuredLink};
use super::named::Resources;
use super::shape::{NO_LIMIT, Shapes};
use super::share_request;
use super::sites::Site;

/// Free capacity of one node. It is negative if others over-commit the node: nothing new goes there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Free {
    pub devices: DeviceMask,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    /// Whether the node takes new work (not cordoned, not draining).
    pub open: bool,
    /// Picks of gangs that are on it: members of one gang and role count once.
    pub tenants: u32,
    /// A gang has the node, or a reservation of it, for itself.
    pub is_held: bool,
}

impl Free {
    pub(crate) const fn takes_work(&self) -> bool {
        self.open && !self.is_held
    }
}

/// A level, from the outermost inwards: `Above(0) < Above(1) < Node < Group(_)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LevelAt {
    Above(usize),
    Node,
    /// Index into [`Tree::group_levels`].
    Group(usize),
}

/// The nodes that a gang names, by index; all nodes if it names none.
#[derive(Clone, Debug)]
pub(crate) struct Listed(Option<Vec<bool>>);

impl Listed {
    pub(crate) const fn is_all(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn has(&self, i: usize) -> bool {
        self.0.as_ref().is_none_or(|listed| listed.get(i).copied().unwrap_or(false))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Domain {
    pub(crate) path: Vec<DomainName>,
    pub(crate) nodes: Range<usize>,
    /// Indices into the next level's domains; empty if the children are nodes.
    pub(crate) children: Range<usize>,
    /// Index into the level above; 0 for the outermost.
    pub(crate) parent: usize,
    /// The bandwidth that all traffic out of the domain shares, in MB/s.
    pub(crate) uplink_mb_per_s: u32,
    /// Twice the latency of its uplink: a ring leaves the domain and returns.
    pub(crate) crossing_ns: u64,
    /// All devices in it.
    pub(crate) devices: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct TreeNode {
    pub(crate) name: NodeName,
    pub(crate) total: Free,
    /// The capacity that Phalanx may use, without the part of others.
    pub(crate) usable: Free,
    /// Devices that are observed in MIG mode.
    pub(crate) sliced: DeviceMask,
    pub(crate) kind: u16,
    /// The innermost domain around the node.
    pub(crate) leaf: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    levels: Levels,
    pub(crate) nodes: Vec<TreeNode>,
    /// `domains[l]` are the domains of level `l` above the node, in order.
    pub(crate) domains: Vec<Vec<Domain>>,
    /// Per level: the bandwidth from a device to others inside one domain without a NIC, in MB/s; 0 if there is none.
    pub(crate) inside_mb_per_s: Vec<u32>,
    /// The constants of the cost table for collectives.
    pub(crate) collectives: CollectiveCost,
    /// A lower bound on the crossing of a domain of each level.
    pub(crate) least_crossing_ns: Vec<u64>,
    pub(crate) least_node_crossing_ns: u64,
    /// Names of the levels inside nodes, in natural order.
    pub(crate) group_levels: Vec<LevelName>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) resources: Resources,
    /// Distinguishes this tree from earlier ones.
    pub(crate) stamp: u64,
    /// The devices have several models, and the cluster is small enough to weigh the cost of a placement to others.
    pub(crate) is_mixed: bool,
    pub(crate) tori: Vec<Site>,
    /// In the order of their names.
    pub(crate) measured: Vec<MeasuredLink>,
    index: BTreeMap<NodeName, usize>,
}

impl Tree {
    /// `before` provides the tables of unchanged shapes, `lent` those of others.
    pub(crate) fn build(
        levels: &Levels,
        nodes: &BTreeMap<NodeName, Node>,
        costs: &CostTable,
        measured: &Bandwidths,
        before: Option<&Self>,
        lent: &Shapes,
    ) -> Self {
        let mut sorted: Vec<&Node> = nodes.values().collect();
        sorted.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| a.name.cmp(&b.name)));

        let mut group_levels: Vec<LevelName> =
            sorted.iter().flat_map(|n| &n.machine.groups).map(|g| g.level.clone()).collect();
        group_levels.sort();
        group_levels.dedup();

        let keys: Vec<KindKey<'_>> =
            sorted.iter().map(|n| KindKey::of(n, cables_of(n, levels, costs, measured))).collect();
        let mut distinct = keys.clone();
        distinct.sort();
        distinct.dedup();
        let unknown = ShapeCost::default();
        let mut tables = before.map_or_else(Shapes::default, Self::shapes);
        tables.learn(lent);
        let mut kinds: Vec<Kind> = distinct
            .iter()
            .map(|key| {
                let cost = costs.shapes.get(key.shape).unwrap_or(&unknown);
                Kind::new(key, cost, &mut tables, &group_levels)
            })
            .collect();

        let models = number_models(&mut kinds);
        let mut domains = build_domains(levels.above.len(), &sorted);
        for (level, of_level) in levels.above.iter().zip(&mut domains) {
            for domain in of_level {
                let cost = costs.uplink(level, &domain.path).unwrap_or_default();
                domain.uplink_mb_per_s =
                    if cost.uplink_mb_per_s == 0 { NO_LIMIT } else { cost.uplink_mb_per_s };
                domain.crossing_ns = 2 * u64::from(cost.latency_ns);
            }
        }
        let mut leaf_of = vec![0_u32; sorted.len()];
        for (leaf, domain) in (0_u32..).zip(domains.last().into_iter().flatten()) {
            leaf_of[domain.nodes.clone()].fill(leaf);
        }
        let tree_nodes: Vec<TreeNode> = sorted
            .iter()
            .zip(&keys)
            .zip(&leaf_of)
            .map(|((node, key), leaf)| {
                TreeNode::new(node, distinct.binary_search(key).map_or(0, |kind| kind as u16), *leaf)
            })
            .collect();
        let index = tree_nodes.iter().enumerate().map(|(i, n)| (n.name.clone(), i)).collect();
        let nics = |node: &TreeNode| kinds[usize::from(node.kind)].nominal_nics();
        let measured = measured::find(measured, &mut domains, &tree_nodes, &index, nics);
        let inside = |level: &LevelName| costs.levels.get(level).map_or(0, |cost| cost.inside_mb_per_s);
        let inside_mb_per_s = levels.above.iter().map(inside).collect();
        let least =
            |of_level: &Vec<Domain>| of_level.iter().map(|domain| domain.crossing_ns).min().unwrap_or(0);
        Self {
            levels: levels.clone(),
            nodes: tree_nodes,
            least_crossing_ns: domains.iter().map(least).collect(),
            least_node_crossing_ns: kinds.iter().map(|kind| kind.crossing_ns).min().unwrap_or(0),
            inside_mb_per_s,
            collectives: costs.collectives,
            stamp: before.map_or(0, |tree| tree.stamp.wrapping_add(1)),
            is_mixed: models > 1
                && sorted.len() <= share_request::NODES_MAX
                && kinds.iter().all(share_request::can_hold),
            resources: Resources::build(levels, &domains, &sorted),
            tori: Site::all(levels, &sorted),
            measured,
            domains,
            group_levels,
            kinds,
            index,
        }
    }

    /// The models of devices that would do, in small letters.
    pub(crate) fn models_for(&self, needs: &Needs) -> Vec<&str> {
        let mut models: Vec<&str> = Vec::new();
        for kind in &self.kinds {
            let eligible = kind.eligible(needs);
            let taken = kind.models().iter().filter(|(_, mask)| !mask.and(eligible).is_empty());
            models.extend(taken.map(|(model, _)| model.as_str()));
        }
        models.sort_unstable();
        models.dedup();
        models
    }

    pub(crate) fn kind(&self, node: &TreeNode) -> &Kind {
        &self.kinds[usize::from(node.kind)]
    }

    /// The domains of the outermost level, most often one.
    pub(crate) fn roots(&self) -> Range<usize> {
        0..self.domains.first().map_or(0, Vec::len)
    }

    /// Levels above the node.
    pub(crate) fn depth(&self) -> usize {
        self.domains.len()
    }

    /// The domain of a level around a node.
    pub(crate) fn domain_of(&self, node: usize, level: usize) -> usize {
        let mut domain = self.nodes[node].leaf as usize;
        for above in (level + 1..self.depth()).rev() {
            domain = self.domains[above][domain].parent;
        }
        domain
    }

    /// Whether the bandwidth of the uplink by which a node leaves its domain of a level is known; the level below the
    /// innermost is the node itself.
    pub(crate) fn knows_uplink(&self, node: usize, level: usize) -> bool {
        match self.domains.get(level) {
            Some(domains) => domains[self.domain_of(node, level)].uplink_mb_per_s < NO_LIMIT,
            None => self.kind(&self.nodes[node]).knows_uplink(),
        }
    }

    /// Notes a measurement that counts for as much as the one before, for people.
    pub(crate) fn note_measured(&mut self, bandwidth: &Bandwidth) {
        if let Ok(at) = self.find_measured(&bandwidth.uplink) {
            self.measured[at].bandwidth.clone_from(bandwidth);
        }
    }

    fn find_measured(&self, uplink: &Uplink) -> Result<usize, usize> {
        self.measured.binary_search_by(|link| link.bandwidth.uplink.cmp(uplink))
    }

    /// Whether a link that is measured is in the tree.
    pub(crate) fn has_measured(&self, uplink: &Uplink) -> bool {
        self.find_measured(uplink).is_ok()
    }

    pub(crate) fn index_of(&self, node: &NodeName) -> Option<usize> {
        self.index.get(node).copied()
    }

    /// The nodes that some member of a gang could use and that take no work, in the order of the tree.
    pub(crate) fn closed_to(&self, gang: &Gang) -> Vec<NodeName> {
        let listed: Vec<(&Needs, Listed)> =
            gang.all_needs().map(|needs| (needs, self.listed(needs))).collect();
        let is_usable = |at: usize, node: &TreeNode| {
            listed.iter().any(|(needs, of)| of.has(at) && !self.kind(node).refuses(needs))
        };
        let is_closed = |(at, node): &(usize, &TreeNode)| !node.total.open && is_usable(*at, node);
        self.nodes.iter().enumerate().filter(is_closed).map(|(_, node)| node.name.clone()).collect()
    }

    /// The nodes that a gang names, or one of its roles, and that are not there; in order, each once.
    pub(crate) fn unknown_to(&self, gang: &Gang) -> Vec<NodeName> {
        let unknown = gang.all_needs().flat_map(|needs| self.unknown_nodes(needs));
        unknown.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The nodes that a gang names and that are not there; in order, each once.
    fn unknown_nodes(&self, needs: &Needs) -> Vec<NodeName> {
        let unknown = needs.nodes.iter().filter(|name| self.index_of(name).is_none());
        unknown.collect::<BTreeSet<_>>().into_iter().cloned().collect()
    }

    /// Which nodes a gang may use by their names.
    pub(crate) fn listed(&self, needs: &Needs) -> Listed {
        if needs.nodes.is_empty() && needs.avoid.is_empty() {
            return Listed(None);
        }
        let mut listed = vec![needs.nodes.is_empty(); self.nodes.len()];
        for (names, is_listed) in [(&needs.nodes, true), (&needs.avoid, false)] {
            for at in names.iter().filter_map(|name| self.index_of(name)) {
                listed[at] = is_listed;
            }
        }
        Listed(Some(listed))
    }

    pub(crate) fn level_at(&self, name: &LevelName) -> Option<LevelAt> {
        if *name == self.levels.node {
            return Some(LevelAt::Node);
        }
        let above = self.levels.above.iter().position(|l| l == name).map(LevelAt::Above);
        above.or_else(|| self.group_levels.iter().position(|l| l == name).map(LevelAt::Group))
    }

    /// The shape tables of its nodes.
    pub(crate) fn shapes(&self) -> Shapes {
        self.kinds.iter().flat_map(Kind::tables).collect()
    }

    /// Whether every level that a gang requires exists. A level inside the node ends with the last node that has it.
    pub(crate) fn has_levels_of(&self, gang: &Gang) -> bool {
        let topology = &gang.topology;
        let of_roles = gang.roles.iter().flat_map(|role| &role.segments);
        let segments = topology.segments.iter().chain(of_roles).map(|segment| &segment.level);
        let spread = topology.spread.iter().map(|rule| &rule.level);
        topology.required.iter().chain(segments).chain(spread).all(|level| self.level_at(level).is_some())
    }

    /// The level inside which a gang must be; the whole cluster if it requires none.
    pub(crate) fn level_of_required(&self, gang: &Gang) -> LevelAt {
        let required = gang.topology.required.as_ref();
        required.and_then(|l| self.level_at(l)).unwrap_or(LevelAt::Above(0))
    }

    /// The levels from one outwards to another, both included; levels inside the node are not inside each other.
    pub(crate) fn levels_between(&self, from: LevelAt, to: LevelAt) -> impl Iterator<Item = LevelAt> + use<> {
        let node = (from >= LevelAt::Node && to <= LevelAt::Node).then_some(LevelAt::Node);
        let above =
            (0..self.depth()).rev().map(LevelAt::Above).filter(move |level| *level >= to && *level <= from);
        let outwards = node.into_iter().chain(above).filter(move |level| *level != from && *level != to);
        let first = (from != to).then_some(from);
        first.into_iter().chain(outwards).chain([to])
    }

    pub(crate) fn level_name(&self, level: LevelAt) -> LevelName {
        let name = match level {
            LevelAt::Above(l) => self.levels.above.get(l),
            LevelAt::Node => None,
            LevelAt::Group(g) => self.group_levels.get(g),
        };
        name.unwrap_or(&self.levels.node).clone()
    }

    /// Every level a user can name, outermost first.
    pub(crate) fn level_names(&self) -> Vec<LevelName> {
        let above = self.levels.above.iter();
        above.chain([&self.levels.node]).chain(&self.group_levels).cloned().collect()
    }

    pub(crate) fn domain_name(&self, level: usize, domain: &Domain) -> String {
        if domain.path.is_empty() {
            self.level_name(LevelAt::Above(level)).to_string()
        } else {
            show_path(&domain.path)
        }
    }
}

/// A change of a node that keeps its position: its amounts before, and the growth of its named resources.
#[derive(Clone, Debug)]
pub(crate) struct Amended {
    was: TreeNode,
    now: TreeNode,
    more_named: Vec<i64>,
    more_usable_named: Vec<i64>,
}

impl Amended {
    /// Whether the hardware changed, or whether the node takes work.
    pub(crate) fn is_of_total(&self) -> bool {
        self.was.total != self.now.total || self.more_named.iter().any(|more| *more != 0)
    }

    /// Whether the hardware changed.
    pub(crate) fn is_of_amounts(&self) -> bool {
        let opened = |node: &TreeNode| Free { open: true, ..node.total };
        opened(&self.was) != opened(&self.now)
            || self.was.sliced != self.now.sliced
            || self.more_named.iter().any(|more| *more != 0)
    }

    /// Whether all of it may be had, or may not any more.
    pub(crate) fn is_of_wholeness(&self) -> bool {
        let is_whole = |node: &TreeNode| node.total.open && node.usable.devices == node.total.devices;
        is_whole(&self.was) != is_whole(&self.now)
    }

    /// Whether others use less of anything but devices.
    pub(crate) fn frees(&self) -> bool {
        let (was, now) = (&self.was.usable, &self.now.usable);
        now.cpu_milli > was.cpu_milli
            || now.memory_bytes > was.memory_bytes
            || self.more_usable_named.iter().any(|more| *more > 0)
    }

    /// The amounts before and now, and the growth of named resources: of all hardware, or without the part of others.
    pub(super) fn of(&self, is_total: bool) -> (Free, Free, &[i64]) {
        if is_total {
            (self.was.total, self.now.total, &self.more_named)
        } else {
            (self.was.usable, self.now.usable, &self.more_usable_named)
        }
    }
}

impl Tree {
    /// Whether a node changed only in use, amounts or administration: it keeps its position and its kind.
    pub(crate) fn is_alike(before: &Node, after: &Node) -> bool {
        let (old, new) = (&before.machine, &after.machine);
        let is_same_machine = Arc::ptr_eq(old, new)
            || old.named.keys().eq(new.named.keys()) && old.devices.len() == new.devices.len();
        let cables = Cables { mb_per_s: 0, latency_ns: 0, missing_permille: 0 };
        before.path == after.path
            && before.torus == after.torus
            && is_same_machine
            && KindKey::of(before, cables) == KindKey::of(after, cables)
    }

    /// Changes a node in place, see [`Self::is_alike`].
    pub(crate) fn amend(&mut self, at: usize, node: &Node) -> Amended {
        let (more_named, more_usable_named) = self.resources.amend(at, node);
        let of = &mut self.nodes[at];
        let now = TreeNode::new(node, of.kind, of.leaf);
        Amended { was: std::mem::replace(of, now.clone()), now, more_named, more_usable_named }
    }

    /// Whether its nodes are of the same kinds as those of another tree.
    pub(crate) fn has_kinds_of(&self, other: &Self) -> bool {
        self.kinds.len() == other.kinds.len()
            && self.kinds.iter().zip(&other.kinds).all(|(a, b)| a.is_like(b))
    }
}

impl TreeNode {
    fn new(node: &Node, kind: u16, leaf: u32) -> Self {
        let machine = &node.machine;
        let total = Free {
            open: node.is_open(),
            devices: machine.device_mask(),
            cpu_milli: i64::try_from(machine.cpu_milli).unwrap_or(i64::MAX),
            memory_bytes: i64::try_from(machine.memory_bytes).unwrap_or(i64::MAX),
            tenants: 0,
            is_held: false,
        };
        // Below zero if others use more than the node has.
        let usable = Free {
            devices: total.devices.minus(node.barred_devices()),
            cpu_milli: total.cpu_milli.saturating_sub_unsigned(node.foreign_use.cpu_milli),
            memory_bytes: total.memory_bytes.saturating_sub_unsigned(node.foreign_use.memory_bytes),
            ..total
        };
        Self {
            name: node.name.clone(),
            total,
            usable,
            sliced: (0..).zip(&machine.devices).filter(|(_, d)| d.is_sliced).map(|(i, _)| i).collect(),
            kind,
            leaf,
        }
    }
}

/// The cables of this node; most nodes have the bandwidth of their NICs.
fn cables_of(node: &Node, levels: &Levels, costs: &CostTable, measured: &Bandwidths) -> Cables {
    let mut path = node.path.clone();
    path.extend(DomainName::new(node.name.as_str()).ok());
    let cost = costs.uplink(&levels.node, &path).unwrap_or_default();
    Cables {
        mb_per_s: cost.uplink_mb_per_s,
        latency_ns: cost.latency_ns,
        missing_permille: Bandwidth::NOMINAL - measured::share_of_node(measured, &node.name),
    }
}

/// Numbers the models of all kinds; how many there are.
fn number_models(kinds: &mut [Kind]) -> usize {
    let mut models: Vec<String> = kinds.iter().map(|kind| kind.model().to_owned()).collect();
    models.sort_unstable();
    models.dedup();
    for kind in kinds {
        let at = models.binary_search_by(|model| model.as_str().cmp(kind.model())).unwrap_or(0);
        kind.model_bit = u8::try_from(at).unwrap_or(u8::MAX).min(63);
    }
    models.len()
}

/// Domains level by level. Nodes are sorted by path, so a domain is a range of nodes with an equal prefix of the
/// path.
fn build_domains(depth: usize, sorted: &[&Node]) -> Vec<Vec<Domain>> {
    let mut domains: Vec<Vec<Domain>> = Vec::with_capacity(depth);
    for level in 0..depth {
        let mut of_level: Vec<Domain> = Vec::new();
        for (i, node) in sorted.iter().enumerate() {
            let path = node.path.get(..=level).unwrap_or(&node.path);
            match of_level.last_mut() {
                Some(last) if last.path == path => {
                    last.nodes.end = i + 1;
                    last.devices += node.machine.device_count();
                }
                _ => of_level.push(Domain {
                    path: path.to_vec(),
                    nodes: i..i + 1,
                    children: 0..0,
                    parent: 0,
                    uplink_mb_per_s: NO_LIMIT,
                    crossing_ns: 0,
                    devices: node.machine.device_count(),
                }),
            }
        }
        domains.push(of_level);
    }
    for level in 1..depth {
        let (upper, lower) = domains.split_at_mut(level);
        let (Some(parents), Some(children)) = (upper.last_mut(), lower.first_mut()) else { continue };
        let mut next = 0;
        for (at, parent) in parents.iter_mut().enumerate() {
            let first = next;
            while let Some(child) = children.get_mut(next).filter(|c| c.nodes.start < parent.nodes.end) {
                child.parent = at;
                next += 1;
            }
            parent.children = first..next;
        }
    }
    domains
}
