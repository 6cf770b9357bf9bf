//! Gangs whose own pods keep each other apart, or are spread, over domains wider than a node: of zones, or of racks.
//!
//! Where the label is a level of the network and one bound for all members says it, the engine minds it while it searches.
//! Otherwise the members are dealt to domains here, one after the other as kube-scheduler would let them, and each is asked for
//! inside of its own. What is free counts in that by what the scheduler knows, which is a hint: a gang that waits where
//! it was dealt to is dealt anew when there is room elsewhere. What is decided is judged once more before anything is bound.

pub(crate) mod by_label;
pub(crate) mod searches;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use phalanx_model::NodeName;

use super::pod_affinity::PodAffinity;
use crate::api::{Node, Pod};
use crate::cluster::bound_pods::BoundPods;
use crate::cluster::node_sets::Domain;
use crate::cluster::nodes::NodeState;
use crate::filter::{Capacity, Held, Lack, Requirements, Surroundings};

/// Pods held against nodes while one gang is dealt. Beyond that it is said that no division was found.
pub(crate) const TRIALS_MAX: u32 = 200_000;

/// What nodes have and what is held there, as far as it is known.
#[derive(Clone)]
pub(crate) struct Room(Vec<Spot>);

#[derive(Clone)]
struct Spot {
    name: NodeName,
    capacity: Capacity,
    held: Held,
}

/// What a member requests while its gang is divided.
pub(crate) struct Request {
    pub(crate) requirements: Arc<Requirements>,
    /// The domain that the member has already.
    pub(crate) domain: Option<Domain>,
}

/// The pods of a gang that has to be divided.
pub(crate) struct Division {
    /// By rank.
    pods: Vec<Arc<Pod>>,
    /// What each asks, see [`super::pod_affinity::PodAffinity::around`].
    shapes: Vec<String>,
    around: BTreeMap<String, Surroundings>,
    /// The labels over whose domains.
    pub(crate) keys: BTreeSet<String>,
    /// The most members in a domain, where that is all there is to mind.
    pub(crate) most: Option<u32>,
}

/// What a pod may hold of its node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// What is free.
    Free,
    /// Whatever the rules allow: the engine says what there is too little of.
    Nothing,
}

impl Division {
    /// Nothing where no rule of the pods divides them.
    ///
    /// # Errors
    /// Where a selector cannot be read.
    pub(crate) fn of(
        pods: Vec<Arc<Pod>>,
        affinity: &PodAffinity,
        nodes: &NodeState,
        bound: &BoundPods,
    ) -> Result<Option<Self>, String> {
        let refs: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
        let (shapes, around) = affinity.around(&refs, nodes, bound)?;
        let sorts: BTreeMap<&String, &Pod> = shapes.iter().zip(refs).collect();
        let sorts: Vec<&Pod> = sorts.into_values().collect();
        let divides = |around: &Surroundings| {
            around.rules().divides(&sorts, affinity.namespaces()).map(str::to_owned).collect::<Vec<_>>()
        };
        let mut keys: BTreeSet<String> = around.values().flat_map(divides).collect();
        let Some(first) = keys.first() else { return Ok(None) };
        let bounds = around.values().map(|around| around.most_in_domain(first, &sorts, pods.len()));
        let bounds: Option<Vec<u32>> = bounds.collect();
        let is_one = keys.len() == 1;
        keys.extend(around.values().flat_map(|around| around.rules().gathers()).map(str::to_owned));
        let most = bounds.filter(|_| is_one && keys.len() == 1).and_then(|bounds| bounds.into_iter().min());
        Ok(Some(Self { pods, shapes, around, keys, most }))
    }

    /// The same as [`Division::deal`] where nodes are empty; at last without counting what they have.
    ///
    /// # Errors
    /// Who has none, wherever the others are.
    pub(crate) fn deal_on_empty_nodes(
        &self,
        requests: &[Request],
        nodes: &NodeState,
        trials: &mut u32,
    ) -> Result<Vec<(Domain, usize)>, String> {
        let mut empty = Room::of(nodes, []);
        let dealt = self.deal(requests, nodes, &mut empty, Count::Free, trials);
        dealt.or_else(|_| self.deal(requests, nodes, &mut empty, Count::Nothing, trials))
    }

    /// A domain for each rank and its turn, such that all rules hold; a rank that has a domain keeps it. What they get is taken
    /// from `room`; the pods that were held against nodes for it are counted in `trials_of_all`.
    ///
    /// # Errors
    /// Who has none, wherever the others are.
    pub(crate) fn deal(
        &self,
        requests: &[Request],
        nodes: &NodeState,
        room: &mut Room,
        count: Count,
        trials_of_all: &mut u32,
    ) -> Result<Vec<(Domain, usize)>, String> {
        let mut table = Table::of(self, nodes, room);
        let orders = self.orders(requests, &table, room, count);
        let mut around = self.around.clone();
        let mut trials = 0;
        let mut dealt: Vec<Dealt> = Vec::with_capacity(requests.len());
        let mut farthest = 0;
        let mut next = 0;
        while let Some(request) = requests.get(dealt.len()) {
            let at = dealt.len();
            farthest = farthest.max(at);
            let (shape, pod) = (&self.shapes[at], &self.pods[at]);
            let is_its =
                |site: usize| request.domain.as_ref().is_none_or(|own| *own == table.sites[site].domain);
            // Where its neighbour is, then as all like it.
            let beside =
                dealt.last().filter(|_| self.is_alike(requests, at - 1, at)).map(|before| before.site);
            let order = orders.get(&(shape.as_str(), &*request.requirements)).map_or(&[][..], Vec::as_slice);
            let order = beside.into_iter().chain(order.iter().copied().filter(|site| Some(*site) != beside));
            let mut admits = |spot: usize| {
                trials += 1;
                *trials_of_all = trials_of_all.saturating_add(1);
                let node = table.nodes[spot];
                (count == Count::Nothing || room.0[spot].fits(&request.requirements))
                    && request.requirements.terms.admits(node).is_ok()
                    && around.get(shape).is_some_and(|around| around.admits(node).is_ok())
            };
            let found =
                order.enumerate().skip(next).filter(|(_, site)| is_its(*site)).find_map(|(nth, site)| {
                    let spot = table.sites[site].spots().find(|(_, spot)| admits(*spot))?;
                    Some((nth, site, spot))
                });
            if let Some((nth, site, (last, spot))) = found {
                for around in around.values_mut() {
                    around.add(pod, table.nodes[spot]);
                }
                room.0[spot].held.add(&request.requirements);
                table.sites[site].last = last;
                dealt.push(Dealt { site, spot, next: nth + 1 });
                next = 0;
            }
            // The one before has to be somewhere else. Without one, or with too many trials, all that was taken is given back.
            let is_over = trials > TRIALS_MAX;
            while (found.is_none() && dealt.len() == at) || is_over {
                let Some(last) = dealt.pop() else {
                    let how = if is_over { "was found soon enough for it" } else { "is left for it" };
                    return Err(self.refusal(farthest, how));
                };
                let at = dealt.len();
                let (pod, node) = (&self.pods[at], table.nodes[last.spot]);
                for around in around.values_mut() {
                    around.remove(pod, node);
                }
                room.0[last.spot].held.remove(&requests[at].requirements);
                next = last.next;
            }
        }
        Ok(self.in_order(requests, &table, &dealt))
    }

    /// The domains in which those of one sort are looked for: first those with the most nodes that have room for one.
    fn orders<'a>(
        &'a self,
        requests: &'a [Request],
        table: &Table<'_>,
        room: &Room,
        count: Count,
    ) -> BTreeMap<(&'a str, &'a Requirements), Vec<usize>> {
        let mut orders = BTreeMap::new();
        for (shape, request) in self.shapes.iter().zip(requests) {
            orders.entry((shape.as_str(), &*request.requirements)).or_insert_with(|| {
                let fits =
                    |spot: &&usize| count == Count::Nothing || room.0[**spot].fits(&request.requirements);
                let with_room = |site: &usize| table.sites[*site].spots.iter().filter(fits).count();
                let mut order: Vec<usize> = (0..table.sites.len()).collect();
                order.sort_by_cached_key(|site| (std::cmp::Reverse(with_room(site)), *site));
                order
            });
        }
        orders
    }

    /// Equal ranks that follow each other are together, as far as their domains have them.
    fn in_order(&self, requests: &[Request], table: &Table<'_>, dealt: &[Dealt]) -> Vec<(Domain, usize)> {
        let turns = dealt.iter().map(|dealt| dealt.site).zip(0..);
        let mut sites: Vec<(usize, usize)> = turns.collect();
        let mut alike: BTreeMap<(&str, &Requirements), Vec<usize>> = BTreeMap::new();
        for (at, (shape, request)) in self.shapes.iter().zip(requests).enumerate() {
            alike.entry((shape, &request.requirements)).or_default().push(at);
        }
        for ranks in alike.into_values() {
            let mut theirs: Vec<(usize, usize)> = ranks.iter().map(|at| sites[*at]).collect();
            theirs.sort_unstable();
            ranks.into_iter().zip(theirs).for_each(|(at, site)| sites[at] = site);
        }
        sites.into_iter().map(|(site, turn)| (Domain::clone(&table.sites[site].domain), turn)).collect()
    }

    fn is_alike(&self, requests: &[Request], one: usize, other: usize) -> bool {
        self.shapes[one] == self.shapes[other] && requests[one].requirements == requests[other].requirements
    }

    fn refusal(&self, at: usize, how: &str) -> String {
        let field = self.shapes.get(at).and_then(|shape| self.around.get(shape));
        let field = field.map_or("", |around| around.rules().field());
        let name = self.pods.get(at).map_or("", |pod| pod.name());
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        let keys = keys.join(", ");
        format!("{field} of {name}: no domain of {keys} {how}, {at} of {} pods have one", self.pods.len())
    }
}

/// Where a rank is while others are dealt.
struct Dealt {
    site: usize,
    spot: usize,
    /// The next place in the order of its domains, should it have to be elsewhere.
    next: usize,
}

/// The domains with their nodes.
struct Table<'a> {
    /// By spot.
    nodes: Vec<&'a Node>,
    /// In the order of their values.
    sites: Vec<Site>,
}

struct Site {
    domain: Domain,
    spots: Vec<usize>,
    /// The index of the spot that was taken last: nodes before it are full more often than not.
    last: usize,
}

impl<'a> Table<'a> {
    fn of(division: &Division, nodes: &'a NodeState, room: &mut Room) -> Self {
        room.0.retain(|spot| nodes.get(&spot.name).is_some());
        let nodes: Vec<&Node> = room.0.iter().filter_map(|spot| nodes.get(&spot.name)).collect();
        let mut sites: BTreeMap<Domain, Vec<usize>> = BTreeMap::new();
        for (spot, node) in nodes.iter().enumerate() {
            let value = |key: &String| (key.as_str().into(), node.label(key).map(Into::into));
            sites.entry(division.keys.iter().map(value).collect()).or_default().push(spot);
        }
        let sites = sites.into_iter().map(|(domain, spots)| Site { domain, spots, last: 0 }).collect();
        Self { nodes, sites }
    }
}

impl Site {
    /// Its spots with their indices, beginning with the one that was taken last.
    fn spots(&self) -> impl Iterator<Item = (usize, usize)> {
        let all = || self.spots.iter().copied().enumerate();
        all().skip(self.last).chain(all().take(self.last))
    }
}

impl Room {
    /// Of the nodes that are offered, with what pods of others and these members of gangs hold there.
    pub(crate) fn of<'a>(
        nodes: &NodeState,
        members: impl IntoIterator<Item = (&'a NodeName, &'a Requirements)>,
    ) -> Self {
        let spot = |(name, node, held): (&NodeName, &Node, Held)| {
            Some(Spot { name: name.clone(), capacity: Capacity::of(node).ok()?, held })
        };
        let mut spots: Vec<Spot> = nodes.offered().filter_map(spot).collect();
        for (node, requirements) in members {
            if let Ok(at) = spots.binary_search_by(|spot| spot.name.cmp(node)) {
                spots[at].held.add(requirements);
            }
        }
        Self(spots)
    }

    /// What is lacking on a node for a pod instead of another that is counted there; nothing where it fits.
    pub(crate) fn lacking_for(
        &self,
        node: &NodeName,
        counted: &Requirements,
        pod: &Requirements,
    ) -> Vec<Lack> {
        let Some(spot) = self.0.iter().find(|spot| spot.name == *node) else { return Vec::new() };
        let mut held = spot.held.clone();
        held.remove(counted);
        spot.capacity.lacking(&held, pod)
    }

    /// How many such pods each node has room for now, up to `most`.
    pub(crate) fn places(
        &self,
        nodes: &NodeState,
        pod: &Requirements,
        most: usize,
    ) -> BTreeMap<NodeName, usize> {
        let admits = |spot: &&Spot| nodes.get(&spot.name).is_some_and(|node| pod.terms.admits(node).is_ok());
        let places = |spot: &Spot| {
            let mut held = spot.held.clone();
            let fits = |_: &usize| {
                let fits = spot.capacity.lacking(&held, pod).is_empty();
                held.add(pod);
                fits
            };
            (spot.name.clone(), (0..most).take_while(fits).count())
        };
        self.0.iter().filter(admits).map(places).collect()
    }

    /// Has a pod that is there hold so much more of its node.
    ///
    /// # Errors
    /// What there is too little of.
    pub(crate) fn add(&mut self, node: &NodeName, more: &Requirements) -> Result<(), String> {
        let Some(spot) = self.0.iter_mut().find(|spot| spot.name == *node) else {
            return Err(format!("{node} is not used any more"));
        };
        let mut lacking = spot.capacity.lacking(&spot.held, more);
        lacking.retain(|lack| *lack != Lack::Pods);
        if let Some(lack) = lacking.first() {
            return Err(lack.to_string());
        }
        spot.held.add(more);
        Ok(())
    }
}

impl Spot {
    fn fits(&self, pod: &Requirements) -> bool {
        self.capacity.lacking(&self.held, pod).is_empty()
    }
}
