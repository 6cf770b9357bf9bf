//! The cost of an order of ranks: the real crossings of every group, counted.

use phalanx_model::CollectiveCost;

use super::{Axis, AxisKind, Collective, Grid, Prediction, Sites};

/// Picoseconds of a step: whole nanoseconds are too coarse for the time of one byte.
type Ps = u64;

/// The communication time of a step. Of equal times, less time through all uplinks together is better, which leads a
/// search over plateaus on which several groups are the slowest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StepCost {
    pub(super) time: Ps,
    through: Ps,
}

impl StepCost {
    pub(super) fn sum(of_axes: &[Self]) -> Self {
        of_axes.iter().fold(Self::default(), |sum, of_axis| Self {
            time: sum.time.saturating_add(of_axis.time),
            through: sum.through.saturating_add(of_axis.through),
        })
    }
}

/// One axis over blocks of ranks that move together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    pub(super) kind: AxisKind,
    pub(super) degree: u32,
    /// Blocks between neighbours of a group.
    pub(super) stride: u32,
    collective: Collective,
    calls: u64,
    /// One call, before anything is sent.
    call: Ps,
    /// A hop inside a site.
    inside_hop: Ps,
    /// The time for the bytes of one call inside the slowest site.
    inside: Ps,
    /// The square of the time to fill the pipeline, in millionths of latency times transfer.
    filling_ppm: u64,
}

/// Memory that is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// By axis and cut: the time of one unit of traffic through it.
    unit: Vec<Ps>,
    /// By cut: units of all groups of an axis.
    load: Vec<u64>,
    /// By cut: members of one group inside it.
    inside: Vec<u64>,
    /// Cuts that the groups cross, group by group.
    crossed: Vec<u32>,
    groups: Vec<Group>,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    head: u32,
    latency: Ps,
    /// The end of its cuts in `crossed`.
    end: usize,
}

/// Measures orders of one grid on its sites.
pub(super) struct Measure<'a> {
    /// Axes along which blocks of ranks differ, as the grid numbers them.
    pub(super) axes: Vec<Lane>,
    /// Axes inside a block: the same whatever the order is.
    fixed: Vec<Lane>,
    sites: &'a Sites,
    scratch: &'a mut Scratch,
}

/// The time of an axis in one call, and its slowest group.
#[derive(Clone, Copy, Debug, Default)]
struct AxisTime {
    time: Ps,
    through: Ps,
    slowest: u32,
}

impl<'a> Measure<'a> {
    /// `together` is the degree of the first axis if its groups move as one, else 1.
    pub(super) fn new(grid: &Grid, sites: &'a Sites, together: u32, scratch: &'a mut Scratch) -> Self {
        let inside_mb = sites.sites().iter().map(|site| site.inside_mb_per_s).filter(|mb| *mb > 0).min();
        let collectives = sites.collectives;
        let share_ppm = u64::from(collectives.ring_share_ppm);
        let inside_mb = inside_mb
            .map(|mb| u32::try_from(u64::from(mb) * share_ppm / 1_000_000).unwrap_or(u32::MAX).max(1));
        let (mut axes, mut fixed) = (Vec::new(), Vec::new());
        let mut stride = 1;
        scratch.unit.clear();
        for axis in grid.axes() {
            let lane = Lane {
                kind: axis.kind,
                degree: axis.degree,
                stride,
                collective: axis.collective,
                calls: u64::from(axis.calls),
                inside: inside_units(axis).saturating_mul(unit(axis, inside_mb.unwrap_or(0), 1)),
                call: collectives.call_ps,
                inside_hop: collectives.inside_hop_ps,
                filling_ppm: filling_ppm(collectives, axis.bytes),
            };
            if together > 1 && axis.kind == AxisKind::Tensor {
                fixed.push(lane);
                continue;
            }
            stride *= axis.degree;
            axes.push(lane);
            scratch.unit.extend(sites.cuts.iter().map(|cut| unit(axis, cut.mb_per_s, together)));
        }
        scratch.load.clear();
        scratch.load.resize(sites.cuts.len(), 0);
        scratch.inside.clear();
        scratch.inside.resize(sites.cuts.len(), 0);
        Self { axes, fixed, sites, scratch }
    }

    /// The cost of the order `seated`: block b takes place `seated[b]`, which is at `homes[seated[b]]`. Axes that no
    /// order changes are left out.
    pub(super) fn cost(&mut self, seated: &[u32], homes: &[u32]) -> StepCost {
        let costs: Vec<StepCost> =
            (0..self.axes.len()).map(|axis| self.cost_of(axis, seated, homes)).collect();
        StepCost::sum(&costs)
    }

    /// The part of one axis in it.
    pub(super) fn cost_of(&mut self, axis: usize, seated: &[u32], homes: &[u32]) -> StepCost {
        let calls = self.axes.get(axis).map_or(0, |lane| lane.calls);
        let of_axis = self.axis(axis, seated, homes);
        StepCost { time: of_axis.time.saturating_mul(calls), through: of_axis.through.saturating_mul(calls) }
    }

    /// All axes, in the grid's order.
    pub(super) fn prediction(&mut self, seated: &[u32], homes: &[u32]) -> Prediction {
        let mut all: Vec<Ps> =
            self.fixed.iter().map(|lane| lane.alone().saturating_mul(lane.calls)).collect();
        for axis in 0..self.axes.len() {
            let calls = self.axes.get(axis).map_or(0, |lane| lane.calls);
            all.push(self.axis(axis, seated, homes).time.saturating_mul(calls));
        }
        // Rounded once, so that of two orders the cheaper one never shows as the longer.
        let sum = all.iter().fold(0, |sum: Ps, ps| sum.saturating_add(*ps));
        let axes_ns = all.iter().map(|ps| ps.div_ceil(1_000)).collect();
        Prediction { ns: sum.div_ceil(1_000), axes_ns }
    }

    pub(super) fn is_chain(&self, axis: usize) -> bool {
        self.axes.get(axis).is_some_and(|lane| lane.collective == Collective::PointToPoint)
    }

    /// Cuts that are domains, everything among them.
    pub(super) const fn domains(&self) -> u32 {
        self.sites.first()
    }

    /// The domain around the site of this cut.
    pub(super) fn domain_of(&self, home: u32) -> u32 {
        self.sites.parent(home)
    }

    /// Calls back for every domain that a hop between two of them leaves or enters.
    pub(super) fn walk(&self, from: u32, to: u32, mut at: impl FnMut(u32)) {
        self.sites.walk(from, to, |cut, _| at(cut));
    }

    /// The time of one unit of an axis through every cut.
    pub(super) fn units(&self, axis: usize) -> &[Ps] {
        let cuts = self.sites.cuts.len();
        self.scratch.unit.get(axis * cuts..(axis + 1) * cuts).unwrap_or(&[])
    }

    /// The blocks of the slowest group of an axis.
    pub(super) fn slowest(&mut self, axis: usize, seated: &[u32], homes: &[u32], blocks: &mut Vec<u32>) {
        let head = self.axis(axis, seated, homes).slowest;
        blocks.clear();
        if let Some(lane) = self.axes.get(axis) {
            blocks.extend((0..lane.degree).map(|place| head + place * lane.stride));
        }
    }

    fn axis(&mut self, axis: usize, seated: &[u32], homes: &[u32]) -> AxisTime {
        let Some(lane) = self.axes.get(axis).copied() else { return AxisTime::default() };
        let mut of_axis = AxisTime::default();
        if lane.degree < 2 {
            return of_axis;
        }
        self.count(lane, seated, homes);
        let cuts = self.sites.cuts.len();
        let units = self.scratch.unit.get(axis * cuts..(axis + 1) * cuts).unwrap_or(&[]);
        let load = &mut self.scratch.load;
        let drain = |load: &[u64], cut: u32| {
            let (load, unit) = (load.get(cut as usize), units.get(cut as usize));
            load.zip(unit).map_or(0, |(load, unit)| load.saturating_mul(*unit))
        };
        let mut start = 0;
        let mut top = (0, 0);
        for group in &self.scratch.groups {
            let crossed = self.scratch.crossed.get(start..group.end).unwrap_or(&[]);
            start = group.end;
            let slowest = crossed.iter().map(|cut| drain(load, *cut)).fold(lane.inside, u64::max);
            if group.latency <= top.0 && slowest <= top.1 {
                continue;
            }
            let time = lane.call(group.latency, slowest);
            if time > of_axis.time {
                (of_axis.time, of_axis.slowest) = (time, group.head);
                top = (group.latency, slowest);
            }
        }
        for cut in &self.scratch.crossed {
            of_axis.through = of_axis.through.saturating_add(drain(load, *cut));
            if let Some(load) = load.get_mut(*cut as usize) {
                *load = 0;
            }
        }
        of_axis
    }

    /// Counts the traffic of every group of an axis through every cut.
    fn count(&mut self, lane: Lane, seated: &[u32], homes: &[u32]) {
        let Scratch { load, inside, crossed, groups, .. } = &mut *self.scratch;
        crossed.clear();
        groups.clear();
        let home = |block: u32| {
            let place = seated.get(block as usize).copied().unwrap_or(0);
            homes.get(place as usize).copied().unwrap_or(0)
        };
        for head in lane.heads(seated.len()) {
            let member = |place: u32| home(head + place % lane.degree * lane.stride);
            let start = crossed.len();
            let mut hops = Hops::default();
            let is_chain = lane.collective == Collective::PointToPoint;
            for place in 0..if is_chain { lane.degree - 1 } else { lane.degree } {
                let (from, to) = (member(place), member(place + 1));
                let mut hop = self.sites.collectives.net_hop_ps;
                self.sites.walk(from, to, |cut, leaves| {
                    let latency_ns = self.sites.cuts.get(cut as usize).map_or(0, |cut| cut.latency_ns);
                    hop = hop.saturating_add(Ps::from(latency_ns) * 1_000);
                    // A ring carries as much into a domain as out of it, so it is counted on the way out; a pipeline
                    // sends one way and back over every edge.
                    let counts = match lane.collective {
                        Collective::AllReduce | Collective::AllGather => leaves,
                        Collective::PointToPoint => true,
                        Collective::AllToAll => false,
                    };
                    if counts && let Some(load) = load.get_mut(cut as usize) {
                        *load += 1;
                        crossed.push(cut);
                    }
                });
                hops.add(if from == to { 0 } else { hop });
                if is_chain {
                    // Stages talk side by side, so each hop is as slow as it is alone.
                    let latency = lane.latency(std::mem::take(&mut hops));
                    groups.push(Group { head, latency, end: crossed.len() });
                }
            }
            if is_chain {
                continue;
            }
            if lane.collective == Collective::AllToAll {
                count_pairs(self.sites, (0..lane.degree).map(member), load, inside, crossed, start);
            }
            groups.push(Group { head, latency: lane.latency(hops), end: crossed.len() });
        }
    }
}

/// Of n members of which j are inside, `j (n - j)` pairs cross a cut, whatever their order is.
fn count_pairs(
    sites: &Sites,
    members: impl Iterator<Item = u32> + Clone,
    load: &mut [u64],
    inside: &mut [u64],
    crossed: &mut Vec<u32>,
    start: usize,
) {
    let mut all = 0;
    for member in members {
        all += 1;
        let mut cut = member;
        while cut != 0 {
            if let Some(inside) = inside.get_mut(cut as usize) {
                *inside += 1;
                if *inside == 1 {
                    crossed.push(cut);
                }
            }
            cut = sites.parent(cut);
        }
    }
    let mut keep = start;
    for at in start..crossed.len() {
        let Some(&cut) = crossed.get(at) else { break };
        let (Some(load), Some(inside)) = (load.get_mut(cut as usize), inside.get_mut(cut as usize)) else {
            continue;
        };
        if *inside < all {
            *load += *inside * (all - *inside);
            crossed.swap(keep, at);
            keep += 1;
        }
        *inside = 0;
    }
    crossed.truncate(keep);
}

/// The hops of one group between sites, around its ring.
#[derive(Clone, Copy, Debug, Default)]
struct Hops {
    count: u64,
    longest: Ps,
}

impl Hops {
    fn add(&mut self, hop: Ps) {
        self.count += u64::from(hop > 0);
        self.longest = self.longest.max(hop);
    }
}

impl Lane {
    /// The first block of every group.
    pub(super) fn heads(&self, blocks: usize) -> impl Iterator<Item = u32> + use<> {
        let (stride, width) = (self.stride, self.degree * self.stride);
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        (0..blocks).step_by(width.max(1) as usize).flat_map(move |low| low..low + stride)
    }

    /// A piece of data goes around the ring except for one hop, twice in an all-reduce, and every step between sites
    /// waits for the longest hop. Pairs communicate at the same time.
    fn latency(&self, hops: Hops) -> Ps {
        let outside = hops.count.saturating_sub(1);
        let inside = u64::from(self.degree.saturating_sub(1)).saturating_sub(outside);
        let around =
            hops.longest.saturating_mul(outside).saturating_add(self.inside_hop.saturating_mul(inside));
        let way = match self.collective {
            Collective::AllReduce => around.saturating_mul(2),
            Collective::AllGather => around,
            Collective::AllToAll | Collective::PointToPoint => hops.longest.max(self.inside_hop),
        };
        way.saturating_add(self.call)
    }

    /// The time of one call: latency, transfer, and the filling of the pipeline, as in `phalanx-cost`: twice the
    /// square root of both if the parts have their best size, and a share of that.
    fn call(&self, latency: Ps, transfer: Ps) -> Ps {
        let product = u128::from(latency) * u128::from(transfer) / 1_000_000;
        let filling = product.saturating_mul(u128::from(self.filling_ppm)).isqrt();
        let filling = Ps::try_from(filling).unwrap_or(Ps::MAX);
        latency.saturating_add(transfer).saturating_add(filling)
    }

    /// A group that never leaves its site.
    fn alone(&self) -> Ps {
        if self.degree < 2 { 0 } else { self.call(self.latency(Hops::default()), self.inside) }
    }
}

/// The square of the time to fill the pipeline, from twice the share that is seen, for messages of so many bytes.
fn filling_ppm(collectives: CollectiveCost, bytes: u64) -> u64 {
    let twice = 2 * u128::from(collectives.pipeline_share_ppm);
    let full = u128::from(collectives.pipeline_bytes);
    let square_ppm = twice * twice / 1_000_000;
    let filling = (square_ppm * full).checked_div(u128::from(bytes) + full).unwrap_or(0);
    u64::try_from(filling).unwrap_or(u64::MAX)
}

/// Units that pass through one rank's own link.
const fn inside_units(axis: &Axis) -> u64 {
    match axis.collective {
        Collective::AllReduce | Collective::AllGather | Collective::PointToPoint => 1,
        Collective::AllToAll => axis.degree.saturating_sub(1) as u64,
    }
}

/// The time of one unit of an axis through so many MB/s: a passage of a ring, a hop of a pipeline, or a pair of an
/// all-to-all, of `together` groups side by side. 0 if nothing limits it.
fn unit(axis: &Axis, mb_per_s: u32, together: u32) -> Ps {
    if mb_per_s == 0 {
        return 0;
    }
    let degree = u128::from(axis.degree);
    let times = match axis.collective {
        Collective::AllReduce => 2 * (degree - 1),
        Collective::AllGather => degree - 1,
        Collective::AllToAll => 1,
        Collective::PointToPoint => degree,
    };
    // A megabyte a second is a byte in 10^6 ps.
    let ps = u128::from(axis.bytes) * times * u128::from(together) * 1_000_000;
    u64::try_from(ps.div_ceil(degree * u128::from(mb_per_s))).unwrap_or(u64::MAX)
}
