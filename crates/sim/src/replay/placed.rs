//! Progress by the cost model: whoever communicates across more than it has to is slower.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;

use phalanx_cost::{Constants, Input, predict};
use phalanx_engine::Placer;
use phalanx_model::{CostTable, DomainCost, DomainName, LevelCost, Node, Placement, Slot, Traffic};

use super::{Crossings, Job, Machines, Part, Place, Progress, Rate};
use crate::policies::gang;

/// A job spends a declared share of its time in communication where it is placed best, and that part takes longer where
/// the cost model predicts so: `speed = 1 / (1 - share + share * predicted / best)`. Of the uplink of a domain a job has the
/// part that its devices are of those below: of all there are ([`Self::default`], uplinks are taken to be full), or of those
/// of jobs that send across it now ([`Self::among_others`], as flows of equal right share a link). Work is in milliseconds
/// at the best place.
#[derive(Debug, Default)]
pub struct Placed {
    is_shared: bool,
    /// Predicted times, in ns, by how a place looks from inside: its nodes by what they have and which domains they share.
    known: RefCell<BTreeMap<Shape, f64>>,
    /// The same of the best places in the empty cluster, by number of devices.
    best: RefCell<BTreeMap<u32, f64>>,
    placer: RefCell<Option<Placer>>,
}

/// By node: its hardware, its devices, and on each level which of the place's domains it stands in, and how many devices
/// that has.
type Shape = Vec<(String, u64, Vec<(usize, u32)>)>;

/// How many devices share the uplink of a node's domain on a level.
type Sharing<'a> = &'a dyn Fn(usize, usize) -> u32;

impl Placed {
    /// Jobs that send across the same uplinks share them.
    #[must_use]
    pub fn among_others() -> Self {
        Self { is_shared: true, ..Self::default() }
    }

    fn shape(place: &[Part], cluster: &Machines, sharing: Sharing<'_>) -> Shape {
        let mut seen: Vec<Vec<&[phalanx_model::DomainName]>> = vec![Vec::new(); cluster.levels.above.len()];
        let node = |part: &Part| {
            let node = &cluster.nodes[part.node];
            let domains = seen.iter_mut().enumerate().map(|(depth, seen)| {
                let path = node.path.get(..=depth).unwrap_or(&node.path);
                let at = seen.iter().position(|known| *known == path).unwrap_or_else(|| {
                    seen.push(path);
                    seen.len() - 1
                });
                (at, sharing(depth, part.node))
            });
            (node.machine.shape.to_string(), part.devices.0, domains.collect())
        };
        place.iter().map(node).collect()
    }

    /// One collective of the job on a place, in ns; 0 where the cost model knows nothing.
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds are exact below 2^53")]
    fn time_ns(&self, of: &Job, place: &[Part], cluster: &Machines, sharing: Sharing<'_>) -> f64 {
        let shape = Self::shape(place, cluster, sharing);
        if let Some(known) = self.known.borrow().get(&shape) {
            return *known;
        }
        let nodes: Vec<Node> = place.iter().map(|part| cluster.nodes[part.node].clone()).collect();
        let devices =
            place.iter().flat_map(|part| part.devices.iter().map(move |device| (part.node, device)));
        let slot = |(rank, (node, device)): (u32, (usize, u32))| Slot {
            rank,
            node: cluster.nodes[node].name.clone(),
            devices: phalanx_model::DeviceMask::one(device),
            part: None,
        };
        let placement =
            Placement { slots: (0..).zip(devices).map(slot).collect(), level: cluster.levels.node.clone() };
        let traffic: Option<Traffic> = gang(of, of.gpus).traffic;
        let table = &shared(place, cluster, sharing);
        let predicted = traffic.and_then(|traffic| {
            let (levels, constants) = (&cluster.levels, &Constants::default());
            predict(&Input { table, levels, nodes: &nodes, placement: &placement, traffic, constants }).ok()
        });
        let time_ns = predicted.map_or(0.0, |found| found.communication_ns as f64);
        self.known.borrow_mut().insert(shape, time_ns);
        time_ns
    }

    fn best_ns(&self, of: &Job, gpus: u32, cluster: &Machines) -> f64 {
        if let Some(known) = self.best.borrow().get(&gpus) {
            return *known;
        }
        let mut slot = self.placer.borrow_mut();
        let placer = slot.get_or_insert_with(|| {
            Placer::new(&cluster.levels, cluster.nodes.iter().cloned(), &cluster.costs)
        });
        let names: Vec<phalanx_model::NodeName> = placer.nodes().cloned().collect();
        let place: Place = match placer.place(&gang(&Job::default(), gpus)) {
            Some(_) => placer
                .shares()
                .filter_map(|share| {
                    let node = cluster.index_of(names.get(share.node as usize)?)?;
                    Some(Part::whole(node, share.devices))
                })
                .collect(),
            None => Place::new(),
        };
        let alone = |depth, node| inside(&place, cluster, depth, node);
        let all = |depth, node| cluster.gpus_beside(depth, node);
        let time_ns = self.time_ns(of, &place, cluster, if self.is_shared { &alone } else { &all });
        self.best.borrow_mut().insert(gpus, time_ns);
        time_ns
    }
}

/// Costs with the uplinks of the place's domains cut down to what the place has of them.
fn shared(place: &[Part], cluster: &Machines, sharing: Sharing<'_>) -> CostTable {
    let mut table = cluster.costs.clone();
    let mut domains: BTreeMap<Vec<DomainName>, LevelCost> =
        table.domains.drain(..).map(|domain| (domain.path, domain.cost)).collect();
    for (depth, level) in cluster.levels.above.iter().enumerate() {
        let mut ours: BTreeMap<&[DomainName], (u32, u32)> = BTreeMap::new();
        for part in place {
            let Some(path) = cluster.nodes[part.node].path.get(..=depth) else { continue };
            let all = sharing(depth, part.node);
            ours.entry(path).or_insert((0, all)).0 += part.devices.count();
        }
        for (path, (gpus, all)) in ours {
            let Some(cost) = cluster.costs.uplink(level, path) else { continue };
            let part = u64::from(cost.uplink_mb_per_s) * u64::from(gpus) / u64::from(all.max(1));
            let uplink_mb_per_s = u32::try_from(part.max(1)).unwrap_or(u32::MAX);
            domains.insert(path.to_vec(), LevelCost { uplink_mb_per_s, ..cost });
        }
    }
    table.domains = domains.into_iter().map(|(path, cost)| DomainCost { path, cost }).collect();
    table
}

/// A place whose nodes each have one part. Members that share a device talk inside of it, at no cost.
fn each_node_once(place: &[Part]) -> Cow<'_, [Part]> {
    let is_again = |(at, part): (usize, &Part)| place[..at].iter().any(|other| other.node == part.node);
    if !place.iter().enumerate().any(is_again) {
        return Cow::Borrowed(place);
    }
    let mut nodes: Vec<Part> = Vec::new();
    for part in place {
        match nodes.iter_mut().find(|known| known.node == part.node) {
            Some(known) => known.devices = known.devices.union(part.devices),
            None => nodes.push(*part),
        }
    }
    Cow::Owned(nodes)
}

/// Devices of a place in the domain of a node on a level.
fn inside(place: &[Part], cluster: &Machines, depth: usize, node: usize) -> u32 {
    let at = cluster.domain_of(depth, node);
    let here = place.iter().filter(|part| cluster.domain_of(depth, part.node) == at);
    here.map(|part| part.devices.count()).sum()
}

impl Placed {
    fn rate_with(&self, of: &Job, place: &[Part], cluster: &Machines, sharing: Sharing<'_>) -> Rate {
        let scaled = of.part_of(place);
        let place = &*each_node_once(place);
        let gpus = super::gpus_of(place);
        if of.traffic_milli == 0 || gpus < 2 {
            return Rate::steady(scaled);
        }
        let best_ns = self.best_ns(of, gpus, cluster);
        let ratio =
            if best_ns > 0.0 { (self.time_ns(of, place, cluster, sharing) / best_ns).max(1.0) } else { 1.0 };
        let share = f64::from(of.traffic_milli.min(1_000)) / 1_000.0;
        Rate::steady(scaled / (1.0 - share + share * ratio))
    }
}

impl Progress for Placed {
    fn alone_ms(&self, _: usize, of: &Job) -> Option<f64> {
        Some(of.work)
    }

    /// Where jobs share uplinks: as if nobody else were there.
    fn rate(&self, _: usize, of: &Job, place: &[Part], cluster: &Machines, _: f64) -> Rate {
        let alone = |depth, node| inside(place, cluster, depth, node);
        let all = |depth, node| cluster.gpus_beside(depth, node);
        self.rate_with(of, place, cluster, if self.is_shared { &alone } else { &all })
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn rate_among(
        &self,
        _: usize,
        of: &Job,
        place: &[Part],
        cluster: &Machines,
        _: f64,
        crossings: &Crossings,
    ) -> Rate {
        let among =
            |depth, node| crossings.sharing(cluster, depth, node, inside(place, cluster, depth, node));
        self.rate_with(of, place, cluster, &among)
    }
}
