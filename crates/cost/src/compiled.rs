//! A topology made ready for questions: which ranks stand where, and what lies between them.

mod islands;

use std::collections::BTreeMap;

use phalanx_model::{
    CostTable, DeviceMask, DomainName, LevelCost, Levels, Node, NodeName, Placement, Transport,
};

use crate::collective::{self, Algorithm, Collective, Limit, Time};
use crate::predict::{Bottleneck, CostError};
use crate::shape::Shape;
use crate::{Constants, Fabric, Span, shape_cost};

pub(crate) use islands::Beside;
pub use islands::Scratch;

/// One rank: its node, by [`Compiled::node`], and its devices there. A rank without devices is a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    pub node: u32,
    pub devices: DeviceMask,
}

/// Nodes, the domains above them, and what is inside, with nothing left to search for.
#[derive(Clone, Debug)]
pub struct Compiled {
    constants: Constants,
    shapes: Vec<Shape>,
    /// In natural order of names.
    nodes: Vec<Place>,
    by_name: BTreeMap<NodeName, u32>,
    levels: Levels,
    /// Indices into [`Levels::above`] of the levels that cost something.
    above: Vec<usize>,
    /// The domain of node n at `above[l]` is `domains[n * above.len() + l]`.
    domains: Vec<u32>,
    domain_list: Vec<Domain>,
    /// Whether any domain joins the devices of its nodes.
    has_joints: bool,
}

#[derive(Clone, Debug)]
struct Place {
    name: NodeName,
    shape: u32,
    /// What the table declares for the uplink of the node, which is its NICs.
    declared_nic_mb: Option<f64>,
    transport: Option<Transport>,
    latency_ns: f64,
    /// The domain that joins its devices with those of other nodes: the outermost that says so.
    joint: Option<u32>,
}

/// A domain above the nodes and its uplink, [`f64::INFINITY`] where nothing is declared.
#[derive(Clone, Debug)]
struct Domain {
    path: String,
    /// Index into [`Levels::above`].
    depth: usize,
    uplink_mb: f64,
    latency_ns: f64,
    /// Of one device without a NIC; 0 where nothing joins the nodes.
    inside_mb: f64,
}

/// A time, and where the slowest part of the way is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub time: Time,
    pub span: Span,
    at: At,
}

/// The first of the slowest of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct At {
    inside: u32,
    inside_joint: Option<u32>,
    within: Fabric,
    is_memory: bool,
    nic: u32,
    nic_joint: Option<u32>,
    uplink: Option<(usize, u32)>,
}

impl Compiled {
    /// All of `nodes`, with what `table` declares for levels. Searches the rings of every set of devices of
    /// machines with up to eight of them, once per shape.
    #[must_use]
    pub fn new(nodes: &[Node], levels: &Levels, table: &CostTable, constants: &Constants) -> Self {
        let mut compiled = Self::empty(nodes, levels, table, constants);
        compiled.shapes.iter_mut().for_each(Shape::search_all);
        compiled
    }

    /// Only what `placement` needs of it, and its ranks.
    pub(crate) fn of_placement(
        nodes: &[Node],
        levels: &Levels,
        table: &CostTable,
        constants: &Constants,
        placement: &Placement,
    ) -> Result<(Self, Vec<Rank>), CostError> {
        let mut compiled = Self::empty(nodes, levels, table, constants);
        let ranks = compiled.ranks(placement)?;
        let mut sets: BTreeMap<u32, DeviceMask> = BTreeMap::new();
        for rank in &ranks {
            let set = sets.entry(rank.node).or_default();
            *set = set.union(rank.devices);
        }
        for (node, set) in sets {
            let shape = compiled.nodes.get(node as usize).map_or(0, |place| place.shape);
            if let Some(shape) = compiled.shapes.get_mut(shape as usize) {
                shape.search(set);
            }
        }
        Ok((compiled, ranks))
    }

    fn empty(nodes: &[Node], levels: &Levels, table: &CostTable, constants: &Constants) -> Self {
        let mut sorted: Vec<&Node> = nodes.iter().collect();
        sorted.sort_by(|a, b| a.name.cmp(&b.name));
        sorted.dedup_by(|a, b| a.name == b.name);
        let costs = |depth: &usize| {
            let level = levels.above.get(*depth);
            level.is_some_and(|level| table.levels.contains_key(level))
                || table.domains.iter().any(|domain| domain.path.len() == depth + 1)
        };
        let mut compiled = Self {
            constants: *constants,
            shapes: Vec::new(),
            nodes: Vec::with_capacity(sorted.len()),
            by_name: BTreeMap::new(),
            levels: levels.clone(),
            above: (0..levels.above.len()).filter(costs).collect(),
            domains: Vec::new(),
            domain_list: Vec::new(),
            has_joints: false,
        };
        let (mut shapes, mut domains) = (BTreeMap::new(), BTreeMap::new());
        for (index, node) in (0..).zip(sorted) {
            let machine = &*node.machine;
            let shape = *shapes.entry(&machine.shape).or_insert_with(|| {
                let known = table.shapes.get(&machine.shape).cloned();
                compiled.shapes.push(Shape::new(machine, known.unwrap_or_else(|| shape_cost(machine))));
                compiled.shapes.len() - 1
            });
            let mut joint = None;
            for depth in &compiled.above {
                let path = node.path.get(..(depth + 1).min(node.path.len())).unwrap_or(&[]);
                let domain = *domains.entry((*depth, path)).or_insert_with(|| {
                    let cost = levels.above.get(*depth).and_then(|level| table.uplink(level, path));
                    compiled.domain_list.push(Domain::new(path, *depth, cost.unwrap_or_default()));
                    compiled.domain_list.len() - 1
                });
                let index = u32::try_from(domain).unwrap_or(u32::MAX);
                compiled.domains.push(index);
                let is_joint = compiled.domain_list.get(domain).is_some_and(|domain| domain.inside_mb > 0.0);
                joint = joint.or(is_joint.then_some(index));
            }
            let own = DomainName::new(node.name.as_str()).ok();
            let path: Vec<DomainName> = node.path.iter().cloned().chain(own).collect();
            let cost = table.uplink(&levels.node, &path).unwrap_or_default();
            compiled.nodes.push(Place {
                name: node.name.clone(),
                shape: u32::try_from(shape).unwrap_or(u32::MAX),
                declared_nic_mb: Some(cost.uplink_mb_per_s).filter(|mb| *mb > 0).map(f64::from),
                transport: table.transports.get(&node.name).copied(),
                latency_ns: f64::from(cost.latency_ns),
                joint,
            });
            compiled.has_joints |= joint.is_some();
            compiled.by_name.insert(node.name.clone(), index);
        }
        compiled
    }

    /// The index of a node, for [`Rank::node`].
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    #[must_use]
    pub const fn constants(&self) -> &Constants {
        &self.constants
    }

    /// The ranks of a placement, in the order of its slots.
    ///
    /// # Errors
    /// When it names a node or a device that is not there, or one device twice.
    pub fn ranks(&self, placement: &Placement) -> Result<Vec<Rank>, CostError> {
        let mut used: BTreeMap<u32, DeviceMask> = BTreeMap::new();
        let rank = |slot: &phalanx_model::Slot| {
            let (rank, devices) = (slot.rank, slot.devices);
            let unknown = || CostError::UnknownNode { rank, node: slot.node.clone() };
            let node = self.node(&slot.node).ok_or_else(unknown)?;
            let count = self.shape(node).map_or(0, Shape::devices);
            if !devices.is_subset_of(DeviceMask::first(count)) {
                return Err(CostError::UnknownDevice { rank, node: slot.node.clone(), devices, count });
            }
            let used = used.entry(node).or_default();
            if !used.and(devices).is_empty() {
                return Err(CostError::SharedDevice { rank, node: slot.node.clone(), devices });
            }
            *used = used.union(devices);
            Ok(Rank { node, devices })
        };
        placement.slots.iter().map(rank).collect()
    }

    fn place(&self, node: u32) -> Option<&Place> {
        self.nodes.get(node as usize)
    }

    fn shape(&self, node: u32) -> Option<&Shape> {
        let place = self.place(node)?;
        self.shapes.get(place.shape as usize)
    }

    /// How long a collective of `bytes` takes among `ranks`, by the fastest algorithm of the library, or by
    /// `forced`. Ranks on nodes that are not there are left out. Allocates nothing once `scratch` has been used
    /// for as many ranks.
    #[must_use]
    pub fn time(
        &self,
        scratch: &mut Scratch,
        ranks: &[Rank],
        collective: Collective,
        bytes: u64,
        forced: Option<Algorithm>,
    ) -> Estimate {
        self.time_beside(scratch, ranks, 1, collective, bytes, forced)
    }

    /// As [`Compiled::time`], while `neighbours` equal communicators on the same nodes do the same at the same
    /// time: each has an equal part of the NICs and of the uplinks.
    #[must_use]
    pub fn time_beside(
        &self,
        scratch: &mut Scratch,
        ranks: &[Rank],
        neighbours: u32,
        collective: Collective,
        bytes: u64,
        forced: Option<Algorithm>,
    ) -> Estimate {
        scratch.gather(self, ranks);
        let groups = neighbours.max(1);
        scratch.share(|_| (groups > 1).then_some((groups, Beside::ALL)));
        self.estimate(scratch, collective, bytes, forced)
    }

    /// As [`Compiled::time_beside`], where it is known what the groups have of each node; `beside` is sorted by node.
    pub(crate) fn time_among(
        &self,
        scratch: &mut Scratch,
        ranks: &[Rank],
        beside: &[Beside],
        collective: Collective,
        bytes: u64,
    ) -> Estimate {
        scratch.gather(self, ranks);
        scratch.share(|node| {
            let at = beside.binary_search_by_key(&node, |beside| beside.node).ok()?;
            beside.get(at).map(|beside| (beside.groups, beside.devices))
        });
        self.estimate(scratch, collective, bytes, None)
    }

    fn estimate(
        &self,
        scratch: &mut Scratch,
        collective: Collective,
        bytes: u64,
        forced: Option<Algorithm>,
    ) -> Estimate {
        let mut estimate = |is_joined| {
            let (span, at) = self.span(scratch, is_joined);
            Estimate { time: collective::time(&span, collective, bytes, forced, &self.constants), span, at }
        };
        let apart = estimate(false);
        if !self.has_joints {
            return apart;
        }
        // NICs are there as well: a slow switch between nodes is no reason to use it.
        let joined = estimate(true);
        if joined.time.ns < apart.time.ns { joined } else { apart }
    }

    /// The slowest part of the way, by name.
    #[must_use]
    pub fn bottleneck(&self, estimate: &Estimate) -> Bottleneck {
        let At { inside, inside_joint, within, is_memory, nic, nic_joint, uplink } = estimate.at;
        let name = |node: u32| self.nodes.get(node as usize).map(|place| place.name.clone());
        let domain = |index: u32| {
            let domain = self.domain_list.get(index as usize)?;
            Some((self.levels.above.get(domain.depth)?.clone(), domain.path.clone()))
        };
        let is_latency = estimate.time.limit == Limit::Latency;
        let limit = if is_latency { estimate.slowest() } else { estimate.time.limit };
        let named = match limit {
            Limit::None | Limit::Latency => None,
            Limit::Inside if inside_joint.is_some() => inside_joint
                .and_then(domain)
                .map(|(level, domain)| Bottleneck::NvLinkDomain { level, domain }),
            Limit::Inside => name(inside).map(|node| match within {
                _ if is_memory => Bottleneck::HostMemory { node },
                Fabric::NvLink => Bottleneck::NvLink { node },
                Fabric::Xgmi => Bottleneck::Xgmi { node },
                Fabric::Pcie => Bottleneck::Pcie { node },
                Fabric::Socket => Bottleneck::Socket { node },
            }),
            Limit::Nic if nic_joint.is_some() => {
                nic_joint.and_then(domain).map(|(level, domain)| Bottleneck::DomainNics { level, domain })
            }
            Limit::Nic => name(nic).map(|node| Bottleneck::Nic { node }),
            Limit::Uplink => uplink
                .and_then(|(_, index)| domain(index))
                .map(|(level, domain)| Bottleneck::Uplink { level, domain }),
        };
        named.unwrap_or(Bottleneck::None)
    }
}

impl Domain {
    fn new(path: &[DomainName], depth: usize, cost: LevelCost) -> Self {
        let names: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
        let uplink = Some(cost.uplink_mb_per_s).filter(|mb| *mb > 0);
        Self {
            path: names.join("/"),
            depth,
            uplink_mb: uplink.map_or(f64::INFINITY, f64::from),
            latency_ns: f64::from(cost.latency_ns),
            inside_mb: f64::from(cost.inside_mb_per_s),
        }
    }
}

impl Estimate {
    /// Where latency is most of it, the part that would be slowest is still worth a name.
    fn slowest(&self) -> Limit {
        let Span { nodes, ring_mb, nic_mb, uplink_mb, .. } = self.span;
        match () {
            () if nodes < 2 || (ring_mb <= nic_mb && ring_mb <= uplink_mb) => Limit::Inside,
            () if nic_mb <= uplink_mb => Limit::Nic,
            () => Limit::Uplink,
        }
    }
}
