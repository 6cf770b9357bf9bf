//! Gavel's continuous workloads on 36 V100, 36 P100 and 36 K80 under least attained service and max-min fairness.
//!
//! Settings from `scheduler/` of stanford-futuredata/gavel: jobs arrive as a Poisson process; each is one of the types that
//! were measured, with equal chance; it takes 10^u minutes on a V100 with u from 1.5 to 3 (80 of 100) or from 3 to 4 (20);
//! where there are jobs of several GPUs, 70 of 100 have 1, 10 have 2, 15 have 4, 5 have 8 (`utils.py`, `generate_job`);
//! rounds of 360 s; the mean is over jobs 4,000 to 5,000. Jobs are those of the published runs: drawn from Python's generator
//! with their seed, in their order.

use std::path::Path;

use phalanx_sim::policies::{Gavel, Goal};
use phalanx_sim::replay::measured::{ByModel, Throughputs};
use phalanx_sim::replay::{Job, Machines, Rack, Replay, Settings};

use super::Row;
use super::python::Python;

const ROUND_MS: u64 = 360_000;
const MODELS: [&str; 3] = ["k80", "p100", "v100"];
const SEED: u32 = 0;
const MEASURED: std::ops::Range<usize> = 4_000..5_000;
/// As many are drawn as keep the cluster busy until the last that counts has ended.
const DRAWN: usize = 9_000;
/// Kinds of training that were measured on several GPUs.
const DISTRIBUTED: usize = 19;
/// Notebooks `continuous_jobs*.ipynb`, in hours: jobs per hour, whether there are jobs of several GPUs, LAS, max-min. Their
/// printed means are those of seed 0 (`plot_jct_cdf`). At 5.2 and 2.6 jobs per hour and above, LAS has more work than it
/// can do.
const PUBLISHED: [(f64, bool, f64, f64); 7] = [
    (4.0, false, 23.49, 16.82),
    (4.8, false, 35.79, 18.97),
    (5.2, false, 63.78, 22.02),
    (5.6, false, 95.99, 28.96),
    (2.0, true, 28.91, 21.90),
    (2.4, true, 38.71, 30.03),
    (2.6, true, 70.54, 36.44),
];

struct Drawn {
    jobs: Vec<Job>,
    speeds: ByModel,
}

/// As `simulate` and `generate_job` draw them: the jobs from one stream, the times between them from another.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds of a year")]
fn draw(table: &Throughputs, jobs_per_hour: f64, has_large: bool, seed: u32) -> Drawn {
    let (mut rng, mut arrivals) = (Python::new(seed + 2), Python::new(seed + 3));
    let kinds = kinds();
    let mut drawn = Drawn { jobs: Vec::new(), speeds: ByModel::default() };
    let mut now_ms = 0.0;
    for number in 0..DRAWN {
        let size = rng.uniform(0.0, 1.0);
        let gpus = [(0.7, 1), (0.8, 2), (0.95, 4)]
            .iter()
            .find(|(below, _)| size < *below)
            .map_or(8, |(_, gpus)| *gpus);
        let gpus = if has_large { gpus } else { 1 };
        let (low, high) = if rng.random() >= 0.8 { (3.0, 4.0) } else { (1.5, 3.0) };
        let run_ms = 10_f64.powf(rng.uniform(low, high)) * 60_000.0;
        let kind = loop {
            let drawn = rng.choice(kinds.len() as u32) as usize;
            if gpus == 1 || drawn < DISTRIBUTED {
                break &kinds[drawn];
            }
        };
        let speed = |model: &str| table.of(model, kind, gpus).unwrap_or(0.0) / 1_000.0;
        drawn.jobs.push(Job {
            name: number.to_string(),
            submit_ms: now_ms as u64,
            work: run_ms * speed("v100"),
            gpus,
            gpus_min: gpus,
            gpus_max: gpus,
            ..Job::default()
        });
        drawn.speeds.speeds.push(MODELS.map(speed).to_vec());
        now_ms += -(1.0 - arrivals.random()).ln() / jobs_per_hour * 3_600_000.0;
    }
    drawn
}

/// `job_table.py`; the last seven train on one GPU only.
fn kinds() -> Vec<String> {
    let sizes: [(&str, &[u32]); 5] = [
        ("ResNet-18", &[16, 32, 64, 128, 256]),
        ("ResNet-50", &[16, 32, 64, 128]),
        ("Transformer", &[16, 32, 64, 128, 256]),
        ("LM", &[5, 10, 20, 40, 80]),
        ("Recommendation", &[512, 1_024, 2_048, 4_096, 8_192]),
    ];
    let of = |(model, sizes): &(&str, &[u32])| {
        let name = |size: &u32| format!("{model} (batch size {size})");
        sizes.iter().map(name).collect::<Vec<String>>()
    };
    let others = ["A3C", "CycleGAN"].map(str::to_owned);
    sizes.iter().flat_map(of).chain(others).collect()
}

pub(super) fn measure(folder: &Path) -> Result<Vec<Row>, String> {
    let table = Throughputs::read(&super::read(&folder.join("gavel/simulation_throughputs.json"))?)?;
    let racks = MODELS.map(|model| Rack { model, nodes: 9, gpus_per_node: 4 });
    let machines = Machines::plain(&racks).map_err(|e| e.to_string())?;
    let mut rows = Vec::new();
    for (jobs_per_hour, has_large, las, max_min) in PUBLISHED {
        let sort = if has_large { "multi-GPU" } else { "single-GPU" };
        let setting = format!("{sort}, {jobs_per_hour} jobs/h");
        for (goal, policy, published) in
            [(Goal::MaxMinUnaware, "las", las), (Goal::MaxMin, "max-min", max_min)]
        {
            let drawn = draw(&table, jobs_per_hour, has_large, SEED);
            let ours = mean_hours(&machines, &drawn, goal)?;
            rows.push(Row::new(setting.clone(), policy, "mean JCT, h", published, ours));
        }
    }
    Ok(rows)
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds are exact below 2^53")]
fn mean_hours(machines: &Machines, drawn: &Drawn, goal: Goal) -> Result<f64, String> {
    let replay = Replay {
        cluster: machines,
        jobs: &drawn.jobs,
        progress: &drawn.speeds,
        settings: Settings::default(),
        node_events: &[],
    };
    let outcome = replay.run(&mut Gavel::new(goal, ROUND_MS)).map_err(|e| e.to_string())?;
    let counted = outcome.jobs.get(MEASURED).unwrap_or_default();
    let times: Vec<u64> = counted.iter().filter_map(phalanx_sim::replay::JobOutcome::completion_ms).collect();
    Ok(times.iter().sum::<u64>() as f64 / times.len().max(1) as f64 / 3_600_000.0)
}
