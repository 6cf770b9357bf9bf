//! An instance as the exact methods read it: nodes with their choices, and domains as ranges of nodes.

use std::ops::Range;
use std::rc::Rc;

use phalanx_model::{DeviceMask, Gang, LevelName, Pattern, ShapeCost};

use super::draw::Cluster;
use super::hardware::{self, NO_LIMIT};
use super::objective::{self, Used};

/// What is found to be best.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Best {
    pub(super) ns: u64,
    pub(super) used: Vec<Used>,
}

/// One way to use a node (or not to use it, with no members), with what follows from it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) members: u32,
    pub(super) devices: DeviceMask,
    pub(super) toll: Toll,
}

/// What a part of a placement adds to the time, and how fast it lets the whole be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Toll {
    pub(super) ns: u64,
    pub(super) mb_per_s: u64,
}

impl Toll {
    pub(super) const FREE: Self = Self { ns: 0, mb_per_s: NO_LIMIT };

    pub(super) fn and(self, other: Self) -> Self {
        Self { ns: self.ns + other.ns, mb_per_s: self.mb_per_s.min(other.mb_per_s) }
    }

    /// No worse in either way.
    pub(super) const fn covers(self, other: Self) -> bool {
        self.ns <= other.ns && self.mb_per_s >= other.mb_per_s
    }
}

/// Which device sets a node offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sets {
    /// Those that no other of the same size beats: enough for one gang.
    Best,
    /// All that differ in what they leave for other gangs.
    All,
}

/// A domain between the root and the nodes.
#[derive(Clone, Debug)]
pub(super) struct Domain {
    /// 0 is the root, the last level above the node is the number of levels above less one.
    pub(super) depth: usize,
    pub(super) nodes: Range<usize>,
    latency_ns: u64,
    uplink: u64,
}

/// What holds of the gang on every level.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) members: u32,
    pub(super) devices: u32,
    pub(super) pattern: Pattern,
    pub(super) bytes: u64,
    per_node: Option<u32>,
    required: Option<usize>,
    /// Depth and size.
    segments: Vec<(usize, u32)>,
    node_depth: usize,
}

impl Rules {
    pub(super) fn new(cluster: &Cluster, gang: &Gang) -> Self {
        let node_depth = cluster.levels.above.len();
        let depth = |level: &LevelName| {
            cluster.levels.above.iter().position(|above| above == level).unwrap_or(node_depth)
        };
        Self {
            members: gang.size,
            devices: gang.needs.devices,
            pattern: objective::pattern_of(gang),
            bytes: objective::bytes_of(gang),
            per_node: gang.members_per_node,
            required: gang.topology.required.as_ref().map(depth),
            segments: gang.topology.segments.iter().map(|s| (depth(&s.level), s.size)).collect(),
            node_depth,
        }
    }

    /// Whether a domain at this depth may hold so many members.
    pub(super) fn allow(&self, depth: usize, members: u32) -> bool {
        let is_part = |size: u32| [0, self.members % size].contains(&(members % size));
        members == 0
            || self.required.is_none_or(|required| required != depth || members == self.members)
                && self.per_node.is_none_or(|each| depth != self.node_depth || members == each)
                && self.segments.iter().all(|(level, size)| *level != depth || is_part(*size))
    }

    /// The segments, as bits, whose smaller part a domain with so many members holds.
    pub(super) fn rests(&self, depth: usize, members: u32) -> u8 {
        let is_rest = |(level, size): &(usize, u32)| *level == depth && !members.is_multiple_of(*size);
        let bits = self.segments.iter().enumerate().filter(|(_, segment)| is_rest(segment));
        bits.fold(0, |bits, (index, _)| bits | 1 << index)
    }

    /// How members count at this depth at most up to multiples: the size of a segment.
    pub(super) fn step(&self, depth: usize) -> u32 {
        self.segments.iter().find(|(level, _)| *level == depth).map_or(1, |(_, size)| *size)
    }

    /// What the way out of a domain with so many members adds.
    pub(super) fn crossing(&self, members: u32, latency_ns: u64, cap: u64) -> Toll {
        if members == 0 || members == self.members {
            return Toll::FREE;
        }
        match self.pattern {
            Pattern::AllReduce => Toll { ns: 2 * latency_ns, mb_per_s: cap },
            Pattern::AllToAll => {
                let pairs = u64::from(members) * u64::from(self.members - members);
                let bytes = self.bytes / u64::from(self.members) * pairs;
                Toll { ns: 2 * latency_ns + objective::transfer_ns(bytes, cap), mb_per_s: NO_LIMIT }
            }
        }
    }

    /// The time of a whole placement.
    pub(super) fn time_ns(&self, toll: Toll) -> u64 {
        toll.ns + objective::transfer_ns(self.bytes, toll.mb_per_s)
    }
}

impl Domain {
    pub(super) fn toll(&self, rules: &Rules, members: u32) -> Toll {
        rules.crossing(members, self.latency_ns, self.uplink)
    }
}

/// What a node's hardware and uplink say, whatever gang comes.
struct Port<'a> {
    shape: &'a ShapeCost,
    inside: Vec<u64>,
    latency_ns: u64,
    uplink: u64,
}

impl Port<'_> {
    fn choice(&self, rules: &Rules, devices: DeviceMask) -> Choice {
        let members = devices.count() / rules.devices;
        let cap = self.uplink.min(hardware::nics_of(self.shape, devices));
        let inside = usize::try_from(devices.0).ok().and_then(|at| self.inside.get(at)).copied();
        let inside = Toll { ns: 0, mb_per_s: inside.unwrap_or(NO_LIMIT) };
        Choice { members, devices, toll: rules.crossing(members, self.latency_ns, cap).and(inside) }
    }

    /// Every way to use these devices, the idle one first.
    fn choices(&self, rules: &Rules, free: DeviceMask, sets: Sets) -> Vec<Choice> {
        let mut choices = vec![Choice { members: 0, devices: DeviceMask::EMPTY, toll: Toll::FREE }];
        let is_uniform = hardware::is_uniform(self.shape);
        for devices in subsets(free) {
            let members = devices.count() / rules.devices;
            let is_whole = members * rules.devices == devices.count();
            if !is_whole || members > rules.members || !rules.allow(rules.node_depth, members) {
                continue;
            }
            let choice = self.choice(rules, devices);
            let beats = |a: &Choice, b: &Choice| match sets {
                Sets::Best => a.members == b.members && a.toll.covers(b.toll),
                Sets::All => a.members == b.members && is_uniform,
            };
            if choices.iter().any(|other| beats(other, &choice)) {
                continue;
            }
            choices.retain(|other| !beats(&choice, other));
            choices.push(choice);
        }
        choices
    }
}

/// All sets of some of the devices, ascending.
fn subsets(free: DeviceMask) -> impl Iterator<Item = DeviceMask> {
    let mut last = 0_u64;
    std::iter::from_fn(move || {
        last = last.wrapping_sub(free.0) & free.0;
        (last != 0).then_some(DeviceMask(last))
    })
}

/// Everything that does not change with the gang.
pub(super) struct Map<'a> {
    ports: Vec<Port<'a>>,
    pub(super) domains: Vec<Domain>,
    /// For each node its domains, outermost first, the root left out.
    pub(super) homes: Vec<Vec<usize>>,
}

impl<'a> Map<'a> {
    /// # Errors
    /// When a node's shape has no costs.
    pub(super) fn new(cluster: &'a Cluster) -> Result<Self, String> {
        let (table, levels) = (&cluster.table, &cluster.levels);
        let mut map = Self { ports: Vec::new(), domains: Vec::new(), homes: Vec::new() };
        for (index, node) in cluster.nodes.iter().enumerate() {
            let shape = table.shapes.get(&node.machine.shape).ok_or("a shape has no costs")?;
            let (latency_ns, uplink) = objective::uplink(table, &levels.node, &objective::whole_path(node));
            map.ports.push(Port { shape, inside: hardware::inside(shape), latency_ns, uplink });
            let before = index.checked_sub(1).and_then(|before| cluster.nodes.get(before));
            let mut home = Vec::new();
            for (depth, level) in levels.above.iter().enumerate().skip(1) {
                let path = &node.path[..=depth];
                let open = before.filter(|before| before.path[..=depth] == *path);
                let open = open.and_then(|_| map.homes.last()?.get(depth - 1)).copied();
                let domain = open.unwrap_or_else(|| {
                    let (latency_ns, uplink) = objective::uplink(table, level, path);
                    map.domains.push(Domain { depth, nodes: index..index, latency_ns, uplink });
                    map.domains.len() - 1
                });
                map.domains[domain].nodes.end = index + 1;
                home.push(domain);
            }
            map.homes.push(home);
        }
        Ok(map)
    }

    /// The ways to use a node of which these devices are free.
    pub(super) fn choices(&self, rules: &Rules, node: usize, free: DeviceMask, sets: Sets) -> Rc<[Choice]> {
        self.ports[node].choices(rules, free, sets).into()
    }
}

/// One gang to place.
pub(super) struct Problem<'a> {
    pub(super) rules: Rules,
    pub(super) map: &'a Map<'a>,
    /// By node.
    pub(super) choices: Vec<Rc<[Choice]>>,
}

impl<'a> Problem<'a> {
    pub(super) fn new(map: &'a Map<'a>, cluster: &Cluster, gang: &Gang, sets: Sets) -> Self {
        let rules = Rules::new(cluster, gang);
        let free = cluster.nodes.iter().map(super::draw::free).enumerate();
        let choices = free.map(|(node, free)| map.choices(&rules, node, free, sets)).collect();
        Self { rules, map, choices }
    }

    /// The most members that the nodes from this one on can take.
    pub(super) fn room(&self) -> Vec<u32> {
        let most = |choices: &Rc<[Choice]>| choices.iter().map(|choice| choice.members).max().unwrap_or(0);
        let mut room = vec![0; self.choices.len() + 1];
        for node in (0..self.choices.len()).rev() {
            room[node] = room[node + 1] + most(&self.choices[node]);
        }
        room
    }

    pub(super) fn used(&self, chosen: impl IntoIterator<Item = (usize, usize)>) -> Vec<Used> {
        let used = chosen.into_iter().map(|(node, choice)| {
            let choice = self.choices[node][choice];
            Used { node, members: choice.members, devices: choice.devices }
        });
        used.filter(|used| used.members > 0).collect()
    }
}
