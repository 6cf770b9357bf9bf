//! Where the policies of other systems put a job, once they know whose turn it is.

use std::cmp::Reverse;

use phalanx_engine::{Piece, Placer, Share};
use phalanx_model::DeviceMask;

use super::gangs::gang;
use super::parts;
use super::peers::{self, Ask, Ground, Placed};
use crate::Rng;
use crate::replay::{Free, Job, Machines, Part, Place, View};

/// A way to choose places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// The first node that holds the job whole; what needs more than a node gets whole free nodes and the first that
    /// holds the rest. (Muri, Tiresias: `ms_yarn_placement` in their simulators.)
    WholeFirst,
    /// Device after device in the order of the nodes: what a scheduler does that sees devices as a count.
    FirstFit,
    /// The fewest nodes: the fullest that holds the job whole, else those with the most room and last the fullest that
    /// holds the rest.
    Consolidated,
    /// The emptiest nodes, one device at a time: what balances load.
    Spread,
    /// As [`Self::WholeFirst`], with the nodes in a random order: what a scheduler does that does not know the topology.
    Random,
    /// As much as it has of the emptiest node, and so on. (The simulator of Pollux for Tiresias and Optimus.)
    Emptiest,
    /// As Kueue places pods of one device that would like to be below one leaf.
    Kueue,
    /// As Slurm does, with its topology of a tree or of blocks.
    SlurmTree,
    SlurmBlock,
    /// The production search, with the topology.
    Topology,
}

impl Packing {
    /// The word of the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WholeFirst => "whole-first",
            Self::FirstFit => "first-fit",
            Self::Consolidated => "consolidated",
            Self::Spread => "spread",
            Self::Random => "random",
            Self::Emptiest => "emptiest",
            Self::Kueue => "kueue",
            Self::SlurmTree => "slurm-tree",
            Self::SlurmBlock => "slurm-block",
            Self::Topology => "topology",
        }
    }
}

/// What is free, as a policy plans on it.
#[derive(Debug)]
pub struct Room {
    packing: Packing,
    free: Free,
    /// Whole devices.
    gpus: u32,
    /// For [`Packing::Random`].
    rng: Rng,
    /// For [`Packing::Topology`]: the same.
    search: Option<Box<Search>>,
}

/// The production search, which counts nodes in an order of its own.
#[derive(Debug)]
struct Search {
    placer: Placer,
    /// Our number of each of its nodes, and its number of each of ours.
    ours: Vec<usize>,
    theirs: Vec<u32>,
}

impl Room {
    #[must_use]
    pub fn new(packing: Packing) -> Self {
        Self { packing, free: Free::default(), gpus: 0, rng: Rng::new(1), search: None }
    }

    /// Made equal to a cluster in which so much is free by node. What changed since the last time is all that is looked
    /// at.
    pub fn become_free(&mut self, cluster: &Machines, free: &Free) {
        if self.free.whole().is_empty() {
            self.free = Free::all(cluster);
            if self.packing == Packing::Topology {
                self.search = Some(Box::new(Search::new(cluster)));
            }
        }
        if let Some(search) = &mut self.search {
            for (node, (was, now)) in self.free.whole().iter().zip(free.whole()).enumerate() {
                search.change(node, *was, *now);
            }
        }
        self.free.clone_from(free);
        self.gpus = self.free.whole().iter().map(|free| free.count()).sum();
    }

    /// Whether no device is free, nor any part of one.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.gpus == 0 && self.free.rests().next().is_none()
    }

    pub fn take(&mut self, place: &[Part]) {
        for part in place {
            let was = self.free.whole()[part.node];
            self.gpus -= self.free.take(part);
            self.tell(part.node, was);
        }
    }

    pub fn give_back(&mut self, place: &[Part]) {
        for part in place {
            let was = self.free.whole()[part.node];
            self.gpus += self.free.give_back(part);
            self.tell(part.node, was);
        }
    }

    /// Whether all of a place is free.
    #[must_use]
    pub fn has(&self, place: &[Part]) -> bool {
        self.free.has(place)
    }

    fn tell(&mut self, node: usize, was: DeviceMask) {
        if let Some(search) = &mut self.search {
            search.change(node, was, self.free.whole()[node]);
        }
    }

    /// A place for a job with so many devices, or shares of devices, among the free ones. It is not taken yet.
    pub fn find(&mut self, cluster: &Machines, job: &Job, gpus: u32) -> Option<Place> {
        let will_do = |node: &usize| {
            job.models.is_empty() || job.models.contains(&cluster.models[cluster.model_of[*node]])
        };
        if let Some(milli) = job.share_milli {
            let mut nodes: Vec<usize> = (0..cluster.nodes.len()).filter(will_do).collect();
            if self.packing == Packing::Random {
                self.rng.shuffle(&mut nodes);
            }
            return parts::find(self.packing, &self.free, &nodes, gpus, milli);
        }
        if gpus > self.gpus {
            return None;
        }
        if let Some(search) = &mut self.search {
            let Search { placer, ours, .. } = search.as_mut();
            placer.place(&gang(job, gpus))?;
            let part = |share: Share| Part::whole(ours[share.node as usize], share.devices);
            return Some(placer.shares().map(part).collect());
        }
        let mut nodes: Vec<usize> = (0..cluster.nodes.len()).filter(will_do).collect();
        match self.packing {
            Packing::Kueue => self.as_peer(cluster, &nodes, gpus, peers::kueue),
            Packing::SlurmTree => self.as_peer(cluster, &nodes, gpus, peers::slurm_tree),
            Packing::SlurmBlock => self.as_peer(cluster, &nodes, gpus, peers::slurm_block),
            Packing::WholeFirst => self.whole_first(cluster, nodes, gpus),
            Packing::Random => {
                self.rng.shuffle(&mut nodes);
                self.whole_first(cluster, nodes, gpus)
            }
            Packing::Consolidated => self.consolidated(nodes, gpus),
            Packing::Spread => self.spread(&nodes, gpus),
            Packing::Emptiest => self.emptiest(nodes, gpus),
            Packing::FirstFit | Packing::Topology => self.fill(nodes, gpus),
        }
    }

    fn free_on(&self, node: usize) -> u32 {
        self.free.whole()[node].count()
    }

    fn part(&self, node: usize, gpus: u32) -> Part {
        Part::whole(node, self.free.whole()[node].iter().take(gpus as usize).collect())
    }

    /// Node after node in the order given.
    fn fill(&self, nodes: impl IntoIterator<Item = usize>, gpus: u32) -> Option<Place> {
        let (mut left, mut place) = (gpus, Place::new());
        for node in nodes {
            let here = self.free_on(node).min(left);
            if here > 0 {
                place.push(self.part(node, here));
                left -= here;
            }
            if left == 0 {
                return Some(place);
            }
        }
        None
    }

    fn whole_first(&self, cluster: &Machines, nodes: Vec<usize>, gpus: u32) -> Option<Place> {
        let largest = nodes.iter().map(|node| cluster.gpus_on(*node)).max()?.max(1);
        let (whole, rest) = if gpus <= largest { (0, gpus) } else { (gpus / largest, gpus % largest) };
        let is_whole = |node: &&usize| self.free_on(**node) == largest;
        let mut chosen: Vec<usize> = nodes.iter().filter(is_whole).take(whole as usize).copied().collect();
        if chosen.len() < whole as usize {
            return None;
        }
        if rest > 0 {
            chosen
                .push(nodes.into_iter().find(|node| !chosen.contains(node) && self.free_on(*node) >= rest)?);
        }
        self.fill(chosen, gpus)
    }

    fn consolidated(&self, mut nodes: Vec<usize>, gpus: u32) -> Option<Place> {
        let tightest = |nodes: &[usize], left: u32| {
            let holding = nodes.iter().copied().filter(|node| self.free_on(*node) >= left);
            holding.min_by_key(|node| (self.free_on(*node), *node))
        };
        let mut left = gpus;
        let mut chosen = Vec::new();
        nodes.sort_by_key(|node| (Reverse(self.free_on(*node)), *node));
        for at in 0..nodes.len() {
            if let Some(last) = tightest(&nodes[at..], left) {
                chosen.push(last);
                return self.fill(chosen, gpus);
            }
            left -= self.free_on(nodes[at]);
            chosen.push(nodes[at]);
        }
        None
    }

    fn as_peer(
        &self,
        cluster: &Machines,
        nodes: &[usize],
        gpus: u32,
        place: fn(&Ground<'_>, &Ask) -> Option<Placed>,
    ) -> Option<Place> {
        let mut free = vec![0; cluster.nodes.len()];
        nodes.iter().for_each(|node| free[*node] = self.free_on(*node));
        let gpus_per_node = (0..free.len()).map(|node| cluster.gpus_on(node)).max()?;
        let ground = Ground { spans: &cluster.spans, free: &free, gpus_per_node };
        let leaf = cluster.spans.len().saturating_sub(2);
        let ask = Ask { pods: gpus, gpus: 1, required: None, preferred: Some(leaf), slice: None };
        Some(place(&ground, &ask)?.into_iter().map(|(node, gpus)| self.part(node, gpus)).collect())
    }

    fn emptiest(&self, mut nodes: Vec<usize>, gpus: u32) -> Option<Place> {
        nodes.sort_by_key(|node| (Reverse(self.free_on(*node)), *node));
        self.fill(nodes, gpus)
    }

    fn spread(&self, nodes: &[usize], gpus: u32) -> Option<Place> {
        let mut counts: Vec<(u32, usize)> = nodes.iter().map(|node| (0, *node)).collect();
        for _ in 0..gpus {
            let with_room = counts.iter_mut().filter(|(taken, node)| self.free_on(*node) > *taken);
            let emptiest =
                with_room.max_by_key(|(taken, node)| (self.free_on(*node) - *taken, Reverse(*node)));
            emptiest?.0 += 1;
        }
        Some(
            counts.iter().filter(|(gpus, _)| *gpus > 0).map(|(gpus, node)| self.part(*node, *gpus)).collect(),
        )
    }
}

impl Search {
    fn new(cluster: &Machines) -> Self {
        let placer = Placer::new(&cluster.levels, cluster.nodes.iter().cloned(), &cluster.costs);
        let ours: Vec<usize> = placer.nodes().filter_map(|name| cluster.index_of(name)).collect();
        let mut theirs = vec![0; cluster.nodes.len()];
        for (at, node) in (0..).zip(&ours) {
            theirs[*node] = at;
        }
        Self { placer, ours, theirs }
    }

    /// Whole devices of a node are taken, or free again.
    fn change(&mut self, node: usize, was: DeviceMask, now: DeviceMask) {
        self.shift(node, was.minus(now), true);
        self.shift(node, now.minus(was), false);
    }

    fn shift(&mut self, node: usize, devices: DeviceMask, is_taken: bool) {
        if devices.is_empty() {
            return;
        }
        let (node, members) = (self.theirs[node], devices.count());
        let share = Share { node, members, devices, piece: Piece::Whole, role: 0 };
        // Traffic is not shared out among jobs here, so a gang of bystanders is as good as that of the job.
        let bystander = gang(&Job::default(), members);
        if is_taken {
            self.placer.take_shares(&bystander, &[share]);
        } else {
            self.placer.give_back(&bystander, &[share]);
        }
    }
}

/// What would be free if nothing ran: every device of the nodes that are up.
pub(crate) fn all_up(view: &View<'_>) -> Free {
    let mut free = Free::all(view.cluster);
    let lost = view.is_up.iter().enumerate().filter(|(_, is_up)| !**is_up);
    lost.for_each(|(node, _)| {
        free.lose_node(node);
    });
    free
}
