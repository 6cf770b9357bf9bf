//! A training cluster and an inference fleet, put together on fewer GPUs.

mod before;
mod findings;

use phalanx_model::{Amounts, Needs, PartNeed, Queue, QueueName, Resource, Settings};
use serde::Deserialize;

use super::input::{Count, DAY, HOUR, LONG, List, MINUTE, Milli, Part, SECOND, Time};
use super::jobs::{Drawn, Jobs};
use super::page::{Cell, Page, Table};
use super::spot::longer;
use super::{Around, Source, StudyError, one_leaf, percent};
use crate::fleet::{DAY_MILLI, Elastic, Fleet, FleetReport, Load, Service, Training};
use crate::trace::draw::Draw;

const HOURS_OF_YEAR: f64 = 8_760.0;
const HOUR_MS: f64 = 3_600_000.0;
/// Workers on a GPU: the simulated nodes have H100, which MIG divides by seven.
const SLICES: u32 = 7;
const SLICE: &str = "1g.10gb";
/// Replicas that a service may have, over what its peak needs: noise and replicas that still load.
const SPARE: f64 = 1.2;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Consolidation {
    lasts: Time<HOUR, LONG>,
    training: Trained,
    inference: Inference,
    /// How much later the day of each service begins, in turn, where not all have their peak at the same hour.
    zones: List<Time<0, DAY>, 24>,
    target_loads: List<Milli<100, 990>, 8>,
    nodes: List<Count<1, 1_000>, 16>,
    claim: Claim,
    price: Milli<0, 1_000_000>,
    seed: Count<0, { u32::MAX }>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Trained {
    nodes: Count<1, 1_000>,
    jobs: Jobs,
    start: Time<0, HOUR>,
    checkpoint: Time<MINUTE, DAY>,
    save: Time<0, HOUR>,
    elastic: Sizes,
}

/// Sizes of elastic jobs, over the GPUs that they ask for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sizes {
    least: Part,
    most: Milli<1_000, 64_000>,
    efficiency: Milli<500, 1_000>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Inference {
    gpus: Count<1, 8_000>,
    used: Milli<1, 1_000>,
    services: Count<1, 500>,
    peaks_apart: Milli<1_000, 1_000_000>,
    request: Time<1, MINUTE>,
    load_model: Time<SECOND, HOUR>,
    noise: Milli<0, 500>,
}

/// What is to be reached.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    used: Part,
    /// At most, over that before.
    training_time: Milli<1_000, 10_000>,
}

/// One way to run both together.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Way {
    are_peaks_spread: bool,
    is_elastic: bool,
}

/// What came of a way on a number of GPUs.
struct Outcome {
    way: Way,
    gpus: u32,
    used_percent: f64,
    longer: f64,
}

impl Way {
    const ALL: [Self; 4] = [
        Self { are_peaks_spread: false, is_elastic: false },
        Self { are_peaks_spread: false, is_elastic: true },
        Self { are_peaks_spread: true, is_elastic: false },
        Self { are_peaks_spread: true, is_elastic: true },
    ];

    const fn jobs(self) -> &'static str {
        if self.is_elastic { "elastic" } else { "rigid" }
    }

    const fn peaks(self) -> &'static str {
        if self.are_peaks_spread { "spread over the day" } else { "at the same hour" }
    }
}

pub(super) fn page(source: &Source<'_>, around: &mut dyn Around) -> Result<Page, StudyError> {
    let input: Consolidation = source.read()?;
    let queue = |name: &str| QueueName::new(name).map_err(|error| source.wrong(error));
    let queues = [queue("serving")?, queue("training")?];
    let drawn = input.training.jobs.draw(
        source,
        input.training.nodes.0 * 8,
        input.lasts.0,
        u64::from(input.seed.0),
    )?;
    let smallest = input.nodes.0.iter().map(|nodes| nodes.0 * 8).min().unwrap_or(0);
    if let Some((largest, _)) = input.training.jobs.gpus.0.last().filter(|(gpus, _)| *gpus > smallest) {
        let what = format!("nodes: a job of {largest} GPUs does not fit the smallest cluster, of {smallest}");
        return Err(source.wrong(what));
    }
    let runs = (input.target_loads.0.len() * input.nodes.0.len() * Way::ALL.len()) as u64 + 1;
    around.begin("apart", 1, runs);
    let mut table = Table::new("", &COLUMNS);
    let alone = Fleet {
        training: input.jobs(&drawn, &queues[1], None),
        ..input.fleet(input.training.nodes.0, &queues)?
    };
    let before = alone.run()?;
    table.rows.push(input.row_before(&before, &queues[0]));
    let (mut all, mut run) = (Vec::new(), 1);
    for way in Way::ALL {
        for target in &input.target_loads.0 {
            for nodes in &input.nodes.0 {
                run += 1;
                around.begin(way.jobs(), run, runs);
                let fleet = Fleet {
                    services: input.services(target.0, way.are_peaks_spread, &queues[0]),
                    training: input.jobs(&drawn, &queues[1], way.is_elastic.then_some(nodes.0 * 8)),
                    ..input.fleet(nodes.0, &queues)?
                };
                let after = fleet.run()?;
                let outcome = Outcome {
                    way,
                    gpus: nodes.0 * 8,
                    used_percent: percent(after.useful_gpu_ms(), after.gpu_ms),
                    longer: longer(&before, &after),
                };
                table.rows.push(input.row(&outcome, target.percent(), &after));
                all.push(outcome);
            }
        }
    }
    Ok(Page {
        study: "consolidation",
        title: "Training and inference on one cluster (modelled)",
        question: "How few GPUs do a training cluster and an inference fleet need together? Claimed: a training cluster that \
                   idles 40 % and an inference fleet used to 25 % go from 30 % to 68 % of use, at about 5 % more training time, \
                   with the latency of serving untouched."
            .to_owned(),
        basis: input.basis(drawn.len()),
        tables: vec![table],
        findings: input.findings(&all),
        input: source.input(),
        declared: source.text.to_owned(),
    })
}

const COLUMNS: [&str; 12] = [
    "peaks",
    "training",
    "target load, %",
    "GPUs",
    "used, %",
    "training time",
    "restarts",
    "lost, GPU-h",
    "response, ms",
    "late, %",
    "overhead, %",
    "saved a year",
];

impl Consolidation {
    fn fleet(&self, nodes: u32, [serving, training]: &[QueueName; 2]) -> Result<Fleet, StudyError> {
        let cluster = one_leaf(nodes)?;
        // Serving is owed all of it, and training has what is left.
        let all = Amounts::from([(Resource::Gpus, u64::from(nodes) * 8_000)]);
        let serving = Queue { guaranteed: all, ..Queue::named(serving.clone()) };
        Ok(Fleet {
            levels: cluster.levels,
            nodes: cluster.nodes,
            settings: Settings::default(),
            queues: vec![serving, Queue::named(training.clone())],
            services: Vec::new(),
            training: Vec::new(),
            reclaims: None,
            end_ms: self.lasts.0,
            seed: u64::from(self.seed.0),
        })
    }

    /// Elastic jobs may take a cluster with so many GPUs.
    fn jobs(&self, drawn: &[Drawn], queue: &QueueName, elastic_on: Option<u32>) -> Vec<Training> {
        let Trained { start, checkpoint, save, elastic, .. } = &self.training;
        let job = |job: &Drawn| {
            let sizes = |gpus: u32| Elastic {
                min: (job.gpus * elastic.least.0).div_ceil(1_000).max(1),
                max: (job.gpus * elastic.most.0 / 1_000).min(gpus),
                efficiency_milli: elastic.efficiency.0,
            };
            Training {
                queue: queue.clone(),
                submit_ms: job.submit_ms,
                gpus: job.gpus,
                elastic: elastic_on.map(sizes),
                run_ms: job.run_ms,
                starts_ms: start.0,
                checkpoint_ms: checkpoint.0,
                save_ms: save.0,
                takes_spot: false,
            }
        };
        drawn.iter().map(job).collect()
    }

    /// Requests a second that a worker does, in thousandths.
    const fn rate_milli(&self) -> u64 {
        1_000_000 / self.inference.request.0
    }

    /// Services whose peaks are log-uniform, and whose mean load together is what the inference fleet is used for.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "requests a second and replicas"
    )]
    fn services(&self, target_milli: u32, are_peaks_spread: bool, queue: &QueueName) -> Vec<Service> {
        const LEAST: u64 = 1_000;
        let of = &self.inference;
        let mut draw = Draw::new(u64::from(self.seed.0) + 1);
        let peaks: Vec<u64> =
            (0..of.services.0).map(|_| draw.log_uniform(LEAST, u64::from(of.peaks_apart.0))).collect();
        let rate_milli = self.rate_milli();
        let day: u32 = DAY_MILLI.iter().sum();
        let workers = f64::from(of.gpus.0) * of.used.real() * f64::from(SLICES);
        let sum: f64 = peaks.iter().map(|peak| *peak as f64).sum();
        let scale = workers * rate_milli as f64 / (f64::from(day) / 24_000.0) / sum;
        let later = self.zones.0.iter().map(|zone| if are_peaks_spread { zone.0 } else { 0 }).cycle();
        let service = |(at, (peak, later_ms)): (u64, (&u64, u64))| {
            let peak_milli = (*peak as f64 * scale) as u64;
            let most = peak_milli as f64 / rate_milli as f64 * 1_000.0 / f64::from(target_milli);
            Service {
                queue: queue.clone(),
                needs: Needs { part: Some(PartNeed::Profile(SLICE.to_owned())), ..Needs::default() },
                min: 2,
                max: (most * SPARE) as u32 + 3,
                workers: 1,
                rate_milli,
                gpu_milli: 1_000 / SLICES,
                target_milli,
                starts_ms: of.load_model.0,
                load: Load { peak_milli, later_ms, noise_milli: of.noise.0, seed: at },
            }
        };
        (0..).zip(peaks.iter().zip(later)).map(service).collect()
    }

    fn row(&self, outcome: &Outcome, target_percent: f64, after: &FleetReport) -> Vec<Cell> {
        let served = after.served();
        // What replicas took to load, and what training held and did not keep.
        let loading =
            f64::from(served.replica_starts) * self.inference.load_model.0 as f64 / f64::from(SLICES);
        let overhead = loading + after.held_gpu_ms - after.trained_gpu_ms;
        let saved = self.gpus_before() - f64::from(outcome.gpus);
        vec![
            Cell::word(outcome.way.peaks()),
            Cell::word(outcome.way.jobs()),
            Cell::Number(target_percent, 0),
            Cell::Number(f64::from(outcome.gpus), 0),
            Cell::Number(outcome.used_percent, 1),
            Cell::Number(outcome.longer, 2),
            Cell::Number(f64::from(after.restarts), 0),
            Cell::Number(after.lost_gpu_ms / HOUR_MS, 1),
            Cell::Number(served.mean_ms(), 1),
            Cell::Number(served.late_percent(), 3),
            Cell::Number(percent(overhead, after.gpu_ms), 1),
            Cell::Number(saved * HOURS_OF_YEAR * self.price.real(), 0),
        ]
    }

    fn gpus_before(&self) -> f64 {
        f64::from(self.training.nodes.0 * 8 + self.inference.gpus.0)
    }

    fn basis(&self, jobs: usize) -> String {
        format!(
            "{jobs} training jobs and {} services. Before: each service has whole GPUs in proportion to its peak, and training its \
             own nodes. Together: the engine scales MIG slices (seven on a GPU) to the load, and training has what is left; \
             rigid jobs are preempted, and elastic ones shrink, and grow again at a checkpoint. Used: serving and training that \
             is kept, over all GPU time. Training time: mean completion over that before. Response times are those of an M/M/c \
             queue; a late request waits longer than one takes to serve. Overhead: replicas that load, and GPU time that \
             training held and did not keep.",
            self.inference.services.0
        )
    }
}
