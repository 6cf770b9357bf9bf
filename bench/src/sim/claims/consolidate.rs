//! A training cluster that idles 40 % of the time and an inference fleet that is used to 25 %, put together.

use std::fmt::Write;
use std::path::Path;

use phalanx_model::{Amounts, Needs, PartNeed, Queue, QueueName, Resource, Settings};
use phalanx_sim::Rng;
use phalanx_sim::cluster::{Clos, Cluster};
use phalanx_sim::fleet::{Fleet, FleetReport, Load, Served, Service, Training};

use super::draw::{exponential_ms, unit, weighted};
use super::{HOURS_OF_YEAR, PRICE, percent, whole};

const HOUR_MS: u64 = 3_600_000;
const DAYS: u64 = 3;
/// Jobs come until half a day before the end.
const SUBMIT_MS: u64 = (DAYS * 24 - 12) * HOUR_MS;
const SEED: u64 = 1;

/// Used to 60 % and to 25 %, a fleet is used to 30 % where there are six inference GPUs for each that trains: (60 - 30) / (30 -
/// 25).
const TRAINING_NODES: u32 = 4;
const INFERENCE_GPUS: f64 = 192.0;
const TRAINING_USED: f64 = 0.60;
const INFERENCE_USED: f64 = 0.25;

const SIZES: [(u32, u64); 5] = [(1, 30), (2, 20), (4, 20), (8, 20), (16, 10)];
const MEAN_RUN_MS: u64 = 2 * HOUR_MS;
const CHECKPOINT_MS: u64 = 15 * 60_000;
const START_MS: u64 = 60_000;
const SAVE_MS: u64 = 20_000;

const SERVICES: usize = 24;
/// A worker does a request in 200 ms and takes a seventh of a GPU meanwhile.
const RATE_MILLI: u64 = 5_000;
const SLICES: u32 = 7;
/// Of what the workers of a replica can do, and the nodes of the one cluster that are tried with it.
const TRIED: [(u32, [u32; 3]); 2] = [(750, [12, 14, 16]), (600, [14, 16, 18])];
const LOADS_MS: u64 = 45_000;
const NOISE_MILLI: u32 = 50;

fn name(text: &str) -> Result<QueueName, String> {
    QueueName::new(text).map_err(|e| e.to_string())
}

fn fleet(nodes: u32) -> Result<Fleet, String> {
    let clos = Clos::read(&format!("1x{nodes}x8")).map_err(|e| e.to_string())?;
    let cluster = Cluster::of_clos(&clos).map_err(|e| e.to_string())?;
    // Serving is owed all of it, and training has what is left.
    let all = Amounts::from([(Resource::Gpus, u64::from(nodes) * 8_000)]);
    let serving = Queue { guaranteed: all, ..Queue::named(name("serving")?) };
    Ok(Fleet {
        levels: cluster.levels,
        nodes: cluster.nodes,
        settings: Settings::default(),
        queues: vec![serving, Queue::named(name("training")?)],
        services: Vec::new(),
        training: Vec::new(),
        reclaims: None,
        end_ms: DAYS * 24 * HOUR_MS,
        seed: SEED,
    })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ms of days")]
fn training() -> Result<Vec<Training>, String> {
    let mut rng = Rng::new(SEED);
    let mean: f64 = SIZES.iter().map(|(gpus, of_100)| f64::from(*gpus) * *of_100 as f64 / 100.0).sum();
    let work = TRAINING_USED * f64::from(TRAINING_NODES * 8) * (DAYS * 24 * HOUR_MS) as f64;
    let every_ms = mean * MEAN_RUN_MS as f64 * SUBMIT_MS as f64 / work;
    let mut drawn: Vec<(u64, u32, u64)> = Vec::new();
    let mut submit_ms = exponential_ms(&mut rng, every_ms as u64);
    while submit_ms < SUBMIT_MS {
        drawn.push((submit_ms, weighted(&mut rng, &SIZES), exponential_ms(&mut rng, MEAN_RUN_MS)));
        submit_ms += exponential_ms(&mut rng, every_ms as u64);
    }
    // Times are stretched so that all work together is as much as the input says.
    let stretch = work / drawn.iter().map(|(_, gpus, run_ms)| f64::from(*gpus) * *run_ms as f64).sum::<f64>();
    let queue = name("training")?;
    let job = |(submit_ms, gpus, run_ms): (u64, u32, u64)| Training {
        queue: queue.clone(),
        submit_ms,
        gpus,
        run_ms: ((run_ms as f64 * stretch) as u64).max(60_000),
        starts_ms: START_MS,
        checkpoint_ms: CHECKPOINT_MS,
        save_ms: SAVE_MS,
        takes_spot: false,
    };
    Ok(drawn.into_iter().map(job).collect())
}

/// Services whose peaks differ by up to eight times, and whose mean load together is what the inference fleet is used for.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "requests a second")]
fn services(target_milli: u32) -> Result<Vec<Service>, String> {
    let mut rng = Rng::new(SEED + 1);
    let peaks: Vec<f64> = (0..SERVICES).map(|_| 8_f64.powf(unit(&mut rng))).collect();
    let day: u32 = phalanx_sim::fleet::DAY_MILLI.iter().sum();
    let mean = f64::from(day) / 24_000.0;
    let workers = INFERENCE_GPUS * INFERENCE_USED * f64::from(SLICES);
    let scale = workers * RATE_MILLI as f64 / mean / peaks.iter().sum::<f64>();
    let service = |(at, peak): (usize, f64)| {
        let peak_milli = (peak * scale) as u64;
        let most = peak_milli as f64 / RATE_MILLI as f64 / (f64::from(target_milli) / 1_000.0);
        Ok(Service {
            queue: name("serving")?,
            needs: Needs { part: Some(PartNeed::Profile("1g.10gb".to_owned())), ..Needs::default() },
            min: 2,
            max: (most * 1.2) as u32 + 3,
            workers: 1,
            rate_milli: RATE_MILLI,
            gpu_milli: 1_000 / SLICES,
            target_milli,
            starts_ms: LOADS_MS,
            load: Load { peak_milli, later_ms: 0, noise_milli: NOISE_MILLI, seed: at as u64 },
        })
    };
    peaks.into_iter().enumerate().map(service).collect()
}

/// Whole GPUs with seven workers each, as many as each service has of all requests, whatever the hour.
fn served_before(services: &[Service]) -> Served {
    let peaks: u64 = services.iter().map(|service| service.load.peak_milli).sum();
    let mut all = Served::default();
    for service in services {
        let gpus = (INFERENCE_GPUS * service.load.peak_milli as f64 / peaks as f64).round().max(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "hundreds")]
        let workers = (gpus * f64::from(SLICES)) as u32;
        for minute in 0..DAYS * 24 * 60 {
            let per_s = service.load.at(minute * 60_000) as f64 / 1_000.0;
            all.count(60_000.0, per_s, workers, RATE_MILLI as f64 / 1_000.0);
            all.busy_gpu_ms += per_s / (RATE_MILLI as f64 / 1_000.0) / f64::from(SLICES) * 60_000.0;
        }
    }
    all
}

/// Mean completion of the jobs that ended in both, the second over the first.
fn longer(before: &FleetReport, after: &FleetReport) -> f64 {
    let both = before.completions_ms.iter().zip(&after.completions_ms);
    let both: Vec<(u64, u64)> = both.filter_map(|(a, b)| Some(((*a)?, (*b)?))).collect();
    let sum = |of: fn(&(u64, u64)) -> u64| both.iter().map(of).sum::<u64>() as f64;
    sum(|both| both.1) / sum(|both| both.0).max(1.0)
}

pub(super) fn measure(_: &Path) -> Result<String, String> {
    let jobs = training()?;
    let mut out = format!(
        "### Training and inference on one cluster (modelled)\n\nClaimed: a training cluster that idles 40 % and an inference \
         fleet used to 25 % go from 30 % to 68 % of use, at about 5 % more training time, with the latency of serving untouched. \
         Declared: {} GPUs that train, {INFERENCE_GPUS:.0} that serve (so that both together are used to 30 %); {} jobs of 1 to 16 \
         GPUs and {} h on the average, checkpoints every 15 min, a minute to start, 20 s to save; {SERVICES} services with \
         one curve of the day (its mean is 62 % of the peak), 5 % noise, 200 ms for each request, {SLICES} workers or MIG slices on a \
         GPU, replicas that load their model in 45 s, as many as have the target load each; {DAYS} days; {PRICE:.2} for a GPU-hour. Before: whole GPUs for each \
         service, in proportion to its peak. After: the engine scales slices, training makes way. Response times are those \
         of an M/M/c queue; late is who waits longer than 200 ms. Training time: mean completion over that before.\n\n",
        TRAINING_NODES * 8,
        jobs.len(),
        MEAN_RUN_MS / HOUR_MS,
    );
    let before =
        Fleet { training: jobs.clone(), ..fleet(TRAINING_NODES)? }.run().map_err(|e| e.to_string())?;
    out.push_str(
        "| GPUs | target load | used | training time | lost, GPU-h | restarts | response, ms | late | scaling tax | saved a year |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    let span_ms = (DAYS * 24 * HOUR_MS) as f64;
    let gpus_before = f64::from(TRAINING_NODES * 8) + INFERENCE_GPUS;
    let served = served_before(&services(1_000)?);
    let _ = writeln!(
        out,
        "| {gpus_before:.0}, apart | | {:.1} % | 1.00 | {:.1} | {} | {:.1} | {:.3} % | | |",
        percent(before.trained_gpu_ms + served.busy_gpu_ms, gpus_before * span_ms),
        before.lost_gpu_ms / 3.6e6,
        before.restarts,
        served.mean_ms(),
        served.late_percent()
    );
    for (target_milli, tried) in TRIED {
        let services = services(target_milli)?;
        for nodes in tried {
            let fleet = Fleet { services: services.clone(), training: jobs.clone(), ..fleet(nodes)? };
            let after = fleet.run().map_err(|e| e.to_string())?;
            row(&mut out, target_milli / 10, &before, &after, gpus_before);
        }
    }
    out.push_str(
        "\nScaling tax: of all GPU time, what replicas took to load and what training held and did not keep.\n",
    );
    Ok(out)
}

fn row(out: &mut String, target_percent: u32, before: &FleetReport, after: &FleetReport, gpus_before: f64) {
    let gpus = after.gpu_ms / (DAYS * 24 * HOUR_MS) as f64;
    let served = after.served();
    let loading = f64::from(served.replica_starts) * LOADS_MS as f64 / f64::from(SLICES);
    let tax = loading + after.held_gpu_ms - after.trained_gpu_ms;
    let _ = writeln!(
        out,
        "| {gpus:.0}, together | {target_percent} % | {:.1} % | {:.2} | {:.1} | {} | {:.1} | {:.3} % | {:.1} % | {} |",
        percent(after.useful_gpu_ms(), after.gpu_ms),
        longer(before, after),
        after.lost_gpu_ms / 3.6e6,
        after.restarts,
        served.mean_ms(),
        served.late_percent(),
        percent(tax, after.gpu_ms),
        whole((gpus_before - gpus) * HOURS_OF_YEAR * PRICE)
    );
}
