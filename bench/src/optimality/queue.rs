//! Several gangs at once: the engine places them in their order, the exact method all together.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use phalanx_model::{DeviceMask, Gang};

use super::draw::{self, Cluster};
use super::objective;
use super::problem::{Choice, Map, Problem, Rules, Sets};
use super::{ask, exhaustive, stats, sweep};

/// Placements tried for one queue; a queue that needs more is left out, and counted.
const TRIED_MAX: u64 = 20_000_000;

/// What a queue comes to: first as many devices at work as can be, then as little time in sum as can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Total {
    /// Devices of the gangs that have a place.
    pub(super) devices: u64,
    /// Times of those gangs, added up.
    pub(super) ns: u64,
}

impl Total {
    fn beats(self, other: Self) -> bool {
        (self.devices, other.ns) > (other.devices, self.ns)
    }

    /// The part of the devices that could work and do not.
    pub(super) fn idle(self, best: Self) -> f64 {
        (best.devices - self.devices.min(best.devices)) as f64 / best.devices.max(1) as f64
    }

    /// The time that this takes longer, where as many devices work.
    pub(super) fn slower(self, best: Self) -> Option<f64> {
        (self.devices == best.devices).then(|| stats::gap(self.ns, best.ns))
    }

    /// Either: idle devices where there are some, else the time more.
    pub(super) fn gap(self, best: Self) -> f64 {
        self.slower(best).unwrap_or_else(|| self.idle(best))
    }

    fn and(self, other: Self) -> Self {
        Self { devices: self.devices + other.devices, ns: self.ns + other.ns }
    }
}

/// What came of one queue.
pub(super) struct Judged {
    pub(super) seed: u64,
    pub(super) gangs: usize,
    /// Devices that the gangs ask for, in percent of what is free.
    pub(super) load_percent: u64,
    pub(super) ours: Result<Total, String>,
    /// Each gang at its own best, in their order: what looking at one gang at a time can come to.
    pub(super) one_by_one: Total,
    /// None where the search would take too long.
    pub(super) best: Option<Total>,
    /// Whether the solver says so too.
    pub(super) is_solved: bool,
}

impl Judged {
    /// Ours and the best, where there are both.
    pub(super) fn both(&self) -> Option<(Total, Total)> {
        Some((*self.ours.as_ref().ok()?, self.best?))
    }
}

/// # Errors
/// When the exact methods disagree, or ours is better than the best.
pub(super) fn judge(seed: u64) -> Result<Judged, String> {
    let (cluster, gangs) = draw::queue(seed);
    let best = exact(&cluster, &gangs)?;
    let ours = ours(&cluster, &gangs);
    let one_by_one = one_by_one(&cluster, &gangs)?;
    if let (Ok(ours), Some(best)) = (&ours, best)
        && ours.beats(best)
    {
        return Err(format!("queue {seed}: ours is better than the best: {ours:?} and {best:?}"));
    }
    #[cfg(feature = "milp")]
    let is_solved = match best {
        Some(best) => {
            super::milp::queue_agrees(&cluster, &gangs, best).map_err(|why| format!("queue {seed}: {why}"))?
        }
        None => false,
    };
    #[cfg(not(feature = "milp"))]
    let is_solved = false;
    let wanted: u64 = gangs.iter().map(weight).sum();
    let load_percent = 100 * wanted / u64::from(cluster.free().max(1));
    Ok(Judged { seed, gangs: gangs.len(), load_percent, ours, one_by_one, best, is_solved })
}

fn ours(cluster: &Cluster, gangs: &[Gang]) -> Result<Total, String> {
    let placed = ask::engine(cluster, gangs)?;
    let mut left = cluster.clone();
    let mut total = Total::default();
    for (gang, placement) in gangs.iter().zip(&placed) {
        let Some(placement) = placement else { continue };
        let used = objective::used(&left, gang, placement)?;
        objective::check(&left, gang, &used)?;
        total = total.and(Total { devices: weight(gang), ns: objective::time_ns(&left, gang, &used) });
        left.take(&used);
    }
    Ok(total)
}

fn one_by_one(cluster: &Cluster, gangs: &[Gang]) -> Result<Total, String> {
    let map = Map::new(cluster)?;
    let mut left = cluster.clone();
    let mut total = Total::default();
    for gang in gangs {
        let Some(best) = sweep::best(&Problem::new(&map, &left, gang, Sets::Best)) else { continue };
        total = total.and(Total { devices: weight(gang), ns: best.ns });
        left.take(&best.used);
    }
    Ok(total)
}

/// Devices of a whole gang.
pub(super) fn weight(gang: &Gang) -> u64 {
    u64::from(gang.size) * u64::from(gang.needs.devices)
}

/// The best total by trying, gang by gang, every placement or none, and remembering what the rest of the gangs
/// come to with the same devices free. None where that takes too long.
pub(super) fn exact(cluster: &Cluster, gangs: &[Gang]) -> Result<Option<Total>, String> {
    let map = Map::new(cluster)?;
    let free: Vec<DeviceMask> = cluster.nodes.iter().map(draw::free).collect();
    let gangs = gangs.iter().map(|gang| (weight(gang), Rules::new(cluster, gang))).collect();
    let mut search =
        Search { map: &map, gangs, choices: HashMap::new(), known: HashMap::new(), left: TRIED_MAX };
    Ok(search.best(0, &free))
}

struct Search<'a> {
    map: &'a Map<'a>,
    gangs: Vec<(u64, Rules)>,
    /// By gang, node and what is free there.
    choices: HashMap<(usize, usize, DeviceMask), Rc<[Choice]>>,
    /// By the first gang of the rest, and what is free.
    known: HashMap<(usize, Vec<DeviceMask>), Total>,
    left: u64,
}

impl Search<'_> {
    fn best(&mut self, gang: usize, free: &[DeviceMask]) -> Option<Total> {
        if gang == self.gangs.len() {
            return Some(Total::default());
        }
        let key = (gang, free.to_vec());
        if let Some(total) = self.known.get(&key) {
            return Some(*total);
        }
        let mut best = self.best(gang + 1, free)?;
        let weight = self.gangs[gang].0;
        for (rest, ns) in self.placements(gang, free)? {
            let total = self.best(gang + 1, &rest)?.and(Total { devices: weight, ns });
            if total.beats(best) {
                best = total;
            }
        }
        self.known.insert(key, best);
        Some(best)
    }

    /// What each placement of a gang leaves free, with the least time that leaves it so.
    fn placements(&mut self, gang: usize, free: &[DeviceMask]) -> Option<BTreeMap<Vec<DeviceMask>, u64>> {
        let rules = &self.gangs[gang].1;
        let choices = free.iter().enumerate().map(|(node, free)| {
            let choices = self.choices.entry((gang, node, *free));
            choices.or_insert_with(|| self.map.choices(rules, node, *free, Sets::All)).clone()
        });
        let problem = Problem { rules: rules.clone(), map: self.map, choices: choices.collect() };
        self.left = self.left.checked_sub(exhaustive::count(&problem, TRIED_MAX).max(1))?;
        let mut placements = BTreeMap::new();
        exhaustive::each(&problem, &mut |chosen, ns| {
            let taken = chosen.iter().enumerate().map(|(node, at)| problem.choices[node][*at].devices);
            let rest = free.iter().zip(taken).map(|(free, taken)| free.minus(taken)).collect();
            let least = placements.entry(rest).or_insert(ns);
            *least = ns.min(*least);
        });
        Some(placements)
    }
}
