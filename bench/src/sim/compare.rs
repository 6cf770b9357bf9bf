//! Every policy on real arrivals under a Clos, in one run: who ends when, how evenly, and how much of the cluster that took.
//!
//! The fabric is `leaves x nodes x GPUs` of today's machines, with half as much above the leaves as below. The traces do
//! not tell how much a job communicates: every job of several devices does for 5 % of its time where it is placed best. A
//! start takes 10 s, and 10 s more to restore work (Muri measured 4 to 46 s). What a user says that a job takes is drawn
//! uniformly from one to five times what it takes at the worst place (the model of Mu'alem and Feitelson, IEEE TPDS 2001,
//! with f = 4), so that no job is ended by it; back-fill and Phalanx have it, nobody else asks for it.

use std::collections::BTreeMap;
use std::path::Path;

use phalanx_model::DeviceMask;
use phalanx_sim::Rng;
use phalanx_sim::cluster::{Clos, Cluster, NodeShape};
use phalanx_sim::policies::{NAMES, Rules, cells, named};
use phalanx_sim::replay::metrics::Metrics;
use phalanx_sim::replay::{Job, Machines, Part, Placed, Progress, Replay, Settings};
use phalanx_sim::trace::Format;
use serde::Serialize;

use crate::tables::{Table, number};

const TRAFFIC_MILLI: u32 = 50;
const SETTINGS: Settings = Settings {
    stretches_limits: false,
    start_ms: 10_000,
    restore_ms: 10_000,
    start_cost: phalanx_sim::replay::StartCost::AtStart,
    checkpoint_every_ms: None,
    checkpoint_ms: 0,
};
/// Times the run at the worst place, less one, that an estimate is at most too long.
const ESTIMATE_F: u64 = 4;

/// A trace on a fabric.
struct World {
    name: &'static str,
    file: &'static str,
    format: Format,
    /// Days from the first submission on of which jobs are taken.
    days: std::ops::Range<u64>,
    /// In thousandths of that recorded.
    load_milli: u32,
    fabric: &'static str,
}

const fn world(
    name: &'static str,
    file: &'static str,
    format: Format,
    load_milli: u32,
    fabric: &'static str,
) -> World {
    World { name, file, format, days: 0..u64::MAX, load_milli, fabric }
}

const PHILLY: &str = "philly/philly_pollux.csv";
/// Instead of a fabric: the hosts and switches of a real one.
const LINGJUN: &str = "lingjun/topo.csv";
/// The ratio of what is below its leaves to what is above, as of the fabrics that are drawn up.
const LINGJUN_RATIO_MILLI: u32 = 2_000;

/// On the fabric of `ElasticFlow` jobs ask for 86 % of the devices in the mean. Philly's busiest week, from 2 October 2017 on, is
/// pressed until jobs wait on a Clos; on Lingjun there is room for all, and only places differ. Muri's traces ask for more
/// than there is.
const WORLDS: [World; 7] = [
    world("elasticflow-04", "elasticflow_itp/raw/cluster04.csv", Format::ElasticFlow, 1_000, "9x8x8:2"),
    World { days: 28..35, ..world("philly", PHILLY, Format::Philly, 16_000, "20x16x8:2") },
    World { days: 28..35, ..world("lingjun", PHILLY, Format::Philly, 20_000, LINGJUN) },
    world("muri-1", "muri/trace1.csv", Format::Muri, 1_000, "4x2x8:2"),
    world("muri-2", "muri/trace2.csv", Format::Muri, 1_000, "4x2x8:2"),
    world("muri-3", "muri/trace3.csv", Format::Muri, 1_000, "4x2x8:2"),
    world("muri-4", "muri/trace4.csv", Format::Muri, 1_000, "4x2x8:2"),
];

/// Of a policy on a trace; less is better.
type Measure = (&'static str, fn(&Figures) -> f64);

/// What is compared.
const MEASURES: [Measure; 6] = [
    ("mean JCT", |of| of.mean_jct_s),
    ("p99 JCT", |of| of.p99_jct_s),
    ("mean rho", |of| of.rho_mean),
    ("worst rho", |of| of.rho_worst),
    ("unfair", |of| of.unfair_percent),
    ("device time", |of| 100.0 / of.useful_percent.max(1e-9)),
];

/// One policy on one trace.
#[derive(Serialize)]
struct Figures {
    world: &'static str,
    policy: &'static str,
    is_oracle: bool,
    ended: usize,
    mean_jct_s: f64,
    p99_jct_s: f64,
    rho_mean: f64,
    rho_worst: f64,
    unfair_percent: f64,
    /// Of all device time until the last end: what came to work, as at the best place.
    useful_percent: f64,
    /// The same of what jobs held.
    goodput_percent: f64,
    leaves_over_least: f64,
    preemptions: u64,
    seconds: f64,
}

/// All worlds, or those that are named, at another load where one is given. Each table is handed on as soon as it is there;
/// the last is of all.
pub(super) fn measure(
    folder: &Path,
    only: &[String],
    load_milli: Option<u32>,
    is_json: bool,
    mut show: impl FnMut(Table),
) -> Result<(), String> {
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|wanted| wanted == name);
    let mut all: Vec<Vec<Figures>> = Vec::new();
    for world in WORLDS.iter().filter(|world| is_wanted(world.name)) {
        let (title, figures) = run(folder, world, load_milli.unwrap_or(world.load_milli))?;
        for figures in figures.iter().filter(|_| is_json) {
            println!("{}", serde_json::to_string(figures).map_err(|e| e.to_string())?);
        }
        show(table(title, &figures));
        all.push(figures);
    }
    if all.is_empty() {
        let known: Vec<&str> = WORLDS.iter().map(|world| world.name).collect();
        return Err(format!("{} is no trace to compare on; known are {}", only.join(", "), known.join(", ")));
    }
    show(ranks(&all));
    Ok(())
}

fn machines(folder: &Path, fabric: &str) -> Result<Machines, String> {
    let cluster = if fabric == LINGJUN {
        let table = super::read(&folder.join(fabric))?;
        Cluster::of_table(&table, &NodeShape::default(), LINGJUN_RATIO_MILLI)
    } else {
        Clos::read(fabric).and_then(|clos| Cluster::of_clos(&clos))
    };
    Ok(Machines::from(cluster.map_err(|e| format!("{fabric}: {e}"))?))
}

fn run(folder: &Path, world: &World, load_milli: u32) -> Result<(String, Vec<Figures>), String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", world.name);
    let machines = machines(folder, world.fabric)?;
    let progress = Placed::default();
    let file = folder.join(world.file);
    let mut jobs = super::jobs_of_days(&file, world.format, &world.days, load_milli)?;
    let mut rng = Rng::new(1);
    for job in &mut jobs {
        job.traffic_milli = if job.gpus > 1 { TRAFFIC_MILLI } else { 0 };
        job.limit_ms = Some(estimate_ms(job, &machines, &progress, &mut rng));
    }
    let cells = cells(&jobs, machines.gpus());
    let (count, gpus) = (jobs.len(), machines.gpus());
    let fabric = if world.fabric == LINGJUN { "the fabric of Lingjun" } else { world.fabric };
    let load = f64::from(load_milli) / 1_000.0;
    let title = format!("{}: {count} jobs at load {load} on {fabric} ({gpus} GPUs)", world.name);
    let mut all = Vec::new();
    // Where all devices are alike, so are Gavel with and without an eye for what they are.
    for (policy, is_oracle) in NAMES.into_iter().filter(|(name, _)| *name != "gavel-las") {
        let rules = Rules { starts_ms: SETTINGS.start_ms + SETTINGS.restore_ms, ..Rules::default() };
        let mut scheduler = named(policy, &machines, &rules, &cells)?;
        let replay = Replay {
            cluster: &machines,
            jobs: &jobs,
            progress: &progress,
            settings: SETTINGS,
            node_events: &[],
        };
        let (metrics, seconds) = super::replayed(scheduler.as_mut(), &replay).map_err(|e| wrong(&e))?;
        all.push(Figures::of(world.name, policy, is_oracle, &metrics, seconds));
    }
    Ok((title, all))
}

/// What its user says it takes: no less than it takes where every device is on a node of its own, in leaf after leaf.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn estimate_ms(job: &Job, machines: &Machines, progress: &Placed, rng: &mut Rng) -> u64 {
    let nodes = machines.nodes.len();
    let stride = (nodes / machines.leaves().max(1)).max(1);
    let at = |rank: usize| (rank * stride) % nodes + (rank * stride) / nodes % stride;
    let mut place: Vec<Part> = Vec::new();
    for rank in 0..job.gpus as usize {
        let (node, device) = (at(rank % nodes), rank / nodes);
        match place.iter_mut().find(|part| part.node == node) {
            Some(part) => part.devices = DeviceMask::first(device as u32 + 1),
            None => place.push(Part::whole(node, DeviceMask::first(1))),
        }
    }
    let worst_ms = (job.work / progress.rate(0, job, &place, machines, 0.0).per_ms) as u64;
    let starts_ms = 2 * (SETTINGS.start_ms + SETTINGS.restore_ms);
    let extra = rng.below(ESTIMATE_F * 1_000);
    worst_ms.saturating_add(starts_ms).saturating_mul(1_000 + extra) / 1_000
}

impl Figures {
    fn of(world: &'static str, policy: &'static str, is_oracle: bool, of: &Metrics, seconds: f64) -> Self {
        Self {
            world,
            policy,
            is_oracle,
            ended: of.ended,
            mean_jct_s: of.completion_s.mean,
            p99_jct_s: of.completion_s.p99,
            rho_mean: of.fairness.mean,
            rho_worst: of.fairness.worst,
            unfair_percent: of.fairness.unfair_percent,
            useful_percent: of.useful_percent,
            goodput_percent: of.goodput_percent,
            leaves_over_least: of.leaves_over_least,
            preemptions: of.preemptions,
            seconds,
        }
    }

    /// No worse in anything, and better in something.
    fn dominates(&self, other: &Self) -> bool {
        MEASURES.iter().all(|(_, of)| of(self) <= of(other))
            && MEASURES.iter().any(|(_, of)| of(self) < of(other))
    }
}

/// Policies that know no more than Phalanx does.
fn equals(all: &[Figures]) -> impl Iterator<Item = &Figures> {
    all.iter().filter(|figures| !figures.is_oracle)
}

fn table(title: String, all: &[Figures]) -> Table {
    let row = |of: &Figures| {
        let better: Vec<&str> =
            equals(all).filter(|other| other.dominates(of)).map(|other| other.policy).collect();
        vec![
            format!("{}{}", of.policy, if of.is_oracle { " *" } else { "" }),
            number(of.mean_jct_s, 0),
            number(of.p99_jct_s, 0),
            number(of.rho_mean, 2),
            number(of.rho_worst, 1),
            number(of.unfair_percent, 1),
            number(of.useful_percent, 1),
            number(of.goodput_percent, 1),
            number(of.leaves_over_least, 3),
            number(of.preemptions as f64, 0),
            if of.is_oracle { String::new() } else { better.join(", ") },
        ]
    };
    let columns = vec![
        "policy",
        "mean JCT, s",
        "p99 JCT, s",
        "mean ρ",
        "worst ρ",
        "unfair %",
        "used %",
        "of held %",
        "leaves",
        "stops",
        "worse in all than",
    ];
    Table { title, columns, rows: all.iter().map(row).collect() }
}

/// Sums of ranks over all traces and measures, and how far each is from the best, in the geometric mean over traces.
fn ranks(all: &[Vec<Figures>]) -> Table {
    let mut sums: BTreeMap<&str, usize> = BTreeMap::new();
    let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for figures in all {
        for (at, (_, of)) in MEASURES.iter().enumerate() {
            let best = equals(figures).map(of).fold(f64::INFINITY, f64::min);
            for one in equals(figures) {
                let ahead = equals(figures).filter(|other| of(other) < of(one)).count();
                *sums.entry(one.policy).or_default() += ahead + 1;
                ratios.entry(one.policy).or_insert_with(|| vec![1.0; MEASURES.len()])[at] *= of(one) / best;
            }
        }
    }
    let mut sums: Vec<(usize, &str)> = sums.into_iter().map(|(policy, sum)| (sum, policy)).collect();
    sums.sort_unstable();
    let row = |(sum, policy): &(usize, &str)| {
        let mean = |product: &f64| number(product.powf(1.0 / all.len() as f64), 2);
        let ratios = ratios.get(policy).into_iter().flatten().map(mean);
        [(*policy).to_owned(), sum.to_string()].into_iter().chain(ratios).collect()
    };
    Table {
        title: format!("Sums of ranks, and times the best, over {} traces", all.len()),
        columns: ["policy", "sum of ranks"].into_iter().chain(MEASURES.map(|(name, _)| name)).collect(),
        rows: sums.iter().map(row).collect(),
    }
}
