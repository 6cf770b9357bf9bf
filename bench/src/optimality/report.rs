//! What came of all instances, as text or as one line of JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use super::queue;
use super::single::{Judged, Ours};
use super::stats::{self, Distribution};

/// Seeds that are named; of more only the number.
const SEEDS_SHOWN: usize = 2_000;
/// Ends of the classes by load.
const LOADS_PERCENT: [u64; 3] = [50, 75, 100];
/// What a queue may lose on average.
const QUEUE_GAP_MAX: f64 = 0.02;

#[derive(Serialize)]
pub(super) struct Report {
    single: Single,
    queue: Queue,
}

/// One gang at a time.
#[derive(Serialize)]
struct Single {
    instances: usize,
    optimal: usize,
    optimal_percent: f64,
    /// The engine found no place where there is one, or gave one that does not hold.
    wrong: usize,
    /// Both say that there is no place.
    without_place: usize,
    /// Best places on more than one node.
    spread: usize,
    worst_gap_percent: f64,
    /// Of the instances that have a place.
    gap: Distribution,
    /// Checked by trying every placement.
    tried_all: usize,
    /// Checked by the solver.
    solved: usize,
    kinds: Vec<Kind>,
    /// Where the engine is not optimal.
    seeds: Vec<u64>,
}

#[derive(Default, Serialize)]
struct Kind {
    kind: String,
    instances: usize,
    optimal: usize,
    worst_gap_percent: f64,
}

/// Several gangs at once.
#[derive(Serialize)]
struct Queue {
    queues: usize,
    gangs: usize,
    /// Left out: too many ways to place them all.
    too_large: usize,
    /// The engine gave a placement that does not hold.
    wrong: usize,
    optimal: usize,
    solved: usize,
    ours: Gaps,
    /// Mean gap of ours by load: devices asked for, in percent of what is free.
    loads: Vec<Load>,
    /// Each gang at its own best, in their order, whatever that takes from the next.
    one_by_one: Gaps,
    seeds: Vec<u64>,
}

#[derive(Serialize)]
struct Load {
    percent_max: u64,
    queues: usize,
    gap_mean: f64,
}

/// How far queues are from their best.
#[derive(Serialize)]
struct Gaps {
    /// The part of the devices that could work and do not.
    idle: Distribution,
    /// The time more, where as many devices work.
    slower: Distribution,
    /// The same for all these queues together: by the sums of their times.
    slower_in_sum: f64,
    /// Either: idle devices where there are some, else the time more.
    gap: Distribution,
}

impl Report {
    pub(super) fn new(singles: &[Judged], queues: &[queue::Judged]) -> Self {
        Self { single: single(singles), queue: queue(queues) }
    }

    /// # Errors
    /// With what the engine does not hold, so that a run can fail.
    pub(super) fn verdict(&self) -> Result<(), String> {
        let bad = self.single.instances - self.single.optimal;
        if bad > 0 {
            return Err(format!("{bad} of {} places are not optimal", self.single.instances));
        }
        if self.queue.wrong > 0 {
            return Err(format!("{} queues have placements that do not hold", self.queue.wrong));
        }
        if self.queue.ours.gap.mean > QUEUE_GAP_MAX {
            let (is, may) = (100.0 * self.queue.ours.gap.mean, 100.0 * QUEUE_GAP_MAX);
            return Err(format!("queues are {is:.2} % from the best on average, more than {may} %"));
        }
        Ok(())
    }

    pub(super) fn print(&self) {
        let single = &self.single;
        println!("one gang: {} instances, of which {} have no place", single.instances, single.without_place);
        println!("  the best place is on more than one node in {}", single.spread);
        println!(
            "  exact by the sweep in all, by trying every placement in {}, by the solver in {}",
            single.tried_all, single.solved
        );
        println!(
            "  optimal {} ({:.2} %), wrong {}, worst gap {:.2} %",
            single.optimal, single.optimal_percent, single.wrong, single.worst_gap_percent
        );
        println!("  gap: {}", single.gap.percent());
        println!("  {:<40}{:>10}{:>10}{:>16}", "kind", "instances", "optimal", "worst gap %");
        for kind in &single.kinds {
            println!(
                "  {:<40}{:>10}{:>10}{:>16.2}",
                kind.kind, kind.instances, kind.optimal, kind.worst_gap_percent
            );
        }
        seeds("not optimal", &single.seeds);
        let queue = &self.queue;
        println!(
            "queues: {} with {} gangs; {} too large to search",
            queue.queues, queue.gangs, queue.too_large
        );
        println!("  optimal {}, wrong {}; by the solver too {}", queue.optimal, queue.wrong, queue.solved);
        queue.ours.print("ours");
        for load in &queue.loads {
            let (percent, queues, gap) = (load.percent_max, load.queues, 100.0 * load.gap_mean);
            println!("    load to {percent} %: mean gap {gap:.2} % of {queues}");
        }
        queue.one_by_one.print("each gang at its own best, one by one");
        seeds("not optimal", &queue.seeds);
    }
}

impl Gaps {
    fn of(pairs: &[(queue::Total, queue::Total)]) -> Self {
        let sum = |ns: fn(&(queue::Total, queue::Total)) -> u64| {
            pairs.iter().filter(|(is, best)| is.devices == best.devices).map(ns).sum()
        };
        Self {
            idle: Distribution::of(pairs.iter().map(|(is, best)| is.idle(*best)).collect()),
            slower: Distribution::of(pairs.iter().filter_map(|(is, best)| is.slower(*best)).collect()),
            slower_in_sum: stats::gap(sum(|(is, _)| is.ns), sum(|(_, best)| best.ns)),
            gap: Distribution::of(pairs.iter().map(|(is, best)| is.gap(*best)).collect()),
        }
    }

    fn print(&self, what: &str) {
        println!("  {what}");
        println!("    devices idle that could work: {}", self.idle.percent());
        println!("    time more, with as many at work: {}", self.slower.percent());
        println!("    in sum: {:.2} %", 100.0 * self.slower_in_sum);
        println!("    gap, either of both: {}", self.gap.percent());
    }
}

fn seeds(what: &str, seeds: &[u64]) {
    if seeds.is_empty() {
        return;
    }
    let shown: Vec<String> = seeds.iter().take(SEEDS_SHOWN).map(u64::to_string).collect();
    println!("  {what} ({}): {}", seeds.len(), shown.join(" "));
}

fn single(judged: &[Judged]) -> Single {
    let mut kinds: BTreeMap<_, Kind> = BTreeMap::new();
    for one in judged {
        let kind = kinds.entry((one.talk, one.wish)).or_default();
        kind.kind = format!("{}, {}", one.talk.word(), one.wish.word());
        kind.instances += 1;
        kind.optimal += usize::from(one.is_optimal());
        kind.worst_gap_percent = kind.worst_gap_percent.max(100.0 * one.gap().unwrap_or(0.0));
    }
    let count = |is: &dyn Fn(&Judged) -> bool| judged.iter().filter(|one| is(one)).count();
    let optimal = count(&|one| one.is_optimal());
    let gap = Distribution::of(judged.iter().filter_map(Judged::gap).collect());
    let nodes = |one: &Judged| one.exact.best.as_ref().map_or(0, |best| best.used.len());
    Single {
        instances: judged.len(),
        optimal,
        optimal_percent: 100.0 * optimal as f64 / judged.len().max(1) as f64,
        wrong: count(&|one| one.is_wrong()),
        without_place: count(&|one| one.exact.best.is_none()),
        spread: count(&|one| nodes(one) > 1),
        worst_gap_percent: 100.0 * gap.max,
        gap,
        tried_all: count(&|one| one.exact.tried.is_some()),
        solved: count(&|one| one.exact.is_solved),
        kinds: kinds.into_values().collect(),
        seeds: judged.iter().filter(|one| !one.is_optimal()).map(|one| one.seed).collect(),
    }
}

fn queue(judged: &[queue::Judged]) -> Queue {
    let ours: Vec<_> = judged.iter().filter_map(queue::Judged::both).collect();
    let one_by_one: Vec<_> = judged.iter().filter_map(|one| Some((one.one_by_one, one.best?))).collect();
    let is_optimal = |one: &&queue::Judged| one.both().is_some_and(|(ours, best)| ours == best);
    let known = judged.iter().filter(|one| one.best.is_some() || one.ours.is_err());
    Queue {
        queues: judged.len(),
        gangs: judged.iter().map(|one| one.gangs).sum(),
        too_large: judged.iter().filter(|one| one.best.is_none()).count(),
        wrong: judged.iter().filter(|one| one.ours.is_err()).count(),
        optimal: judged.iter().filter(is_optimal).count(),
        solved: judged.iter().filter(|one| one.is_solved).count(),
        loads: loads(judged),
        ours: Gaps::of(&ours),
        one_by_one: Gaps::of(&one_by_one),
        seeds: known.filter(|one| !is_optimal(one)).map(|one| one.seed).collect(),
    }
}

fn loads(judged: &[queue::Judged]) -> Vec<Load> {
    let mut from = 0;
    let load = |percent_max| {
        let class = from..=percent_max;
        from = percent_max + 1;
        let inside = judged.iter().filter(|one| class.contains(&one.load_percent));
        let gaps: Vec<f64> = inside.filter_map(|one| one.both().map(|(ours, best)| ours.gap(best))).collect();
        Load { percent_max, queues: gaps.len(), gap_mean: Distribution::of(gaps).mean }
    };
    LOADS_PERCENT.into_iter().map(load).collect()
}

impl Judged {
    /// A place that does not hold, none where there is one, or one where there is none.
    pub(super) fn is_wrong(&self) -> bool {
        !matches!((&self.ours, &self.exact.best), (Ours::Placed { .. }, Some(_)) | (Ours::NoPlace, None))
    }
}
