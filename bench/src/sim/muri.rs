//! Muri's four traces under SRTF and SRSF: the published mean completion times, and ours.
//!
//! Settings of the published runs, from `simulator/` of Rivendile/Muri: 8 nodes of 8 GPUs; a job takes its iterations
//! times its time of one iteration, times 1.015 (`jobs.py`, `itertime_overhead_list`); at every event all jobs are
//! placed anew in their order, whole on the first node that holds them (`switch.py`, `ms_yarn_alloc_res`); and at every
//! event each running job loses the time that its model takes to start (`run_sim.py`, `overhead_dict`). The last
//! charges a job for the arrivals of others; the second column of ours charges each start once.

use std::path::Path;

use phalanx_sim::policies::{Order, Ordered, Packing, Preemption, Srsf, Srtf};
use phalanx_sim::replay::{Cluster, Job, Rack, Recorded, Replay, Scheduler, Settings, StartCost};
use serde::Serialize;

/// `simulator/draw_fig9-10.py`: SRTF and SRSF, by trace, in s.
const PUBLISHED: [[f64; 2]; 4] =
    [[1_370_603.0, 980_141.0], [2_665_607.0, 2_213_950.0], [193_082.0, 185_022.0], [581_983.0, 487_167.0]];
/// `jobs.py`: every time of an iteration is taken times this.
const ITERATION: f64 = 1.015;
/// `run_sim.py`, `overhead_dict`: seconds that a start takes, by model, for 1, 2, 4, 8, 16 and 32 GPUs.
const STARTS_S: [(&str, [u64; 6]); 8] = [
    ("vgg16", [7, 7, 8, 9, 9, 10]),
    ("vgg19", [7, 7, 8, 9, 10, 10]),
    ("resnet18", [4, 5, 5, 7, 7, 7]),
    ("shufflenet_v2_x1_0", [4, 4, 5, 5, 7, 8]),
    ("bert", [10; 6]),
    ("gpt2", [10; 6]),
    ("a2c", [38, 39, 39, 46, 46, 46]),
    ("dqn", [5, 5, 6, 6, 8, 8]),
];
/// The same for models that are not in the list.
const STARTS_OTHERWISE_S: u64 = 10;

#[derive(Serialize)]
pub(super) struct Row {
    pub trace: String,
    pub policy: String,
    pub published_s: f64,
    pub ours_s: f64,
    pub difference_percent: f64,
    pub charged_once_s: f64,
}

fn read(path: &Path) -> Result<Vec<Job>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut jobs = Vec::new();
    for line in text.lines().skip(1) {
        let f: Vec<&str> = line.split(',').collect();
        let number = |at: usize| f[at].parse::<f64>().map_err(|e| e.to_string());
        let gpus = number(1)? as u32;
        let starts = STARTS_S.iter().find(|(model, _)| *model == f[4]);
        let starts_s = starts.map_or(STARTS_OTHERWISE_S, |(_, s)| s[gpus.ilog2() as usize]);
        jobs.push(Job {
            name: f[0].to_owned(),
            submit_ms: number(2)? as u64,
            work: number(3)? * number(8)? * ITERATION,
            gpus,
            gpus_min: gpus,
            gpus_max: gpus,
            start_ms: Some(starts_s * 1_000),
            ..Job::default()
        });
    }
    jobs.sort_by_key(|job| job.submit_ms);
    Ok(jobs)
}

pub(super) fn measure(folder: &Path) -> Result<Vec<Row>, String> {
    let cluster = Cluster::plain(&[Rack { model: "gpu", nodes: 8, gpus_per_node: 8 }]).map_err(|e| e.to_string())?;
    let mut rows = Vec::new();
    for (trace, published) in (1..).zip(PUBLISHED) {
        let jobs = read(&folder.join(format!("muri/trace{trace}.csv")))?;
        rows.push(row(&cluster, &jobs, trace, published[0], || repack(Srtf))?);
        rows.push(row(&cluster, &jobs, trace, published[1], || repack(Srsf))?);
    }
    Ok(rows)
}

fn repack<O: Order + 'static>(order: O) -> Box<dyn Scheduler> {
    Box::new(Ordered::new(order, Preemption::Repack, Packing::WholeFirst))
}

fn row(
    cluster: &Cluster,
    jobs: &[Job],
    trace: u32,
    published_s: f64,
    policy: impl Fn() -> Box<dyn Scheduler>,
) -> Result<Row, String> {
    let mean_s = |start_cost| {
        let settings = Settings { start_cost, ..Settings::default() };
        let replay = Replay { cluster, jobs, progress: &Recorded, settings, node_events: &[] };
        let outcome = replay.run(policy().as_mut()).map_err(|e| e.to_string())?;
        let all: u64 = outcome.jobs.iter().filter_map(|job| job.completion_ms()).sum();
        Ok::<f64, String>(all as f64 / 1_000.0 / jobs.len() as f64)
    };
    let ours_s = mean_s(StartCost::AtEveryEvent)?;
    Ok(Row {
        trace: format!("trace{trace}"),
        policy: policy().name(),
        published_s,
        ours_s,
        difference_percent: (ours_s / published_s - 1.0) * 100.0,
        charged_once_s: mean_s(StartCost::AtStart)?,
    })
}
