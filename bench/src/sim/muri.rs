//! Muri's four traces under SRTF and SRSF: mean completion times.
//!
//! Settings of the published runs, from `simulator/` of Rivendile/Muri: 8 nodes of 8 GPUs; a job takes its iterations
//! times its time of one iteration, times 1.015 (`jobs.py`, `itertime_overhead_list`); at every event all jobs are
//! placed anew in their order, whole on the first node that holds them (`switch.py`, `ms_yarn_alloc_res`); and at every
//! event each running job loses the time that its model takes to start (`run_sim.py`, `overhead_dict`). The last
//! charges a job for the arrivals of others; the rows of `started once` charge each start alone.

use std::path::Path;

use phalanx_sim::policies::{Order, Ordered, Packing, Preemption, Srsf, Srtf};
use phalanx_sim::replay::metrics::Metrics;
use phalanx_sim::replay::{Job, Machines, Rack, Recorded, Replay, Scheduler, Settings, StartCost};
use phalanx_sim::trace::{Format, TraceJob};

use super::Row;

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

#[expect(clippy::cast_precision_loss, reason = "numbers of iterations and microseconds are far below 2^53")]
fn job(of: &TraceJob) -> Option<Job> {
    let training = of.training.as_ref()?;
    let starts = STARTS_S.iter().find(|(model, _)| *model == training.model);
    let starts_s = starts.and_then(|(_, s)| s.get(of.gpus.checked_ilog2()? as usize).copied());
    Some(Job {
        work: training.steps? as f64 * training.step_us? as f64 / 1_000.0 * ITERATION,
        start_ms: Some(starts_s.unwrap_or(STARTS_OTHERWISE_S) * 1_000),
        ..Job::asking(of)
    })
}

pub(super) fn measure(folder: &Path) -> Result<Vec<Row>, String> {
    let racks = [Rack { model: "gpu", nodes: 8, gpus_per_node: 8 }];
    let machines = Machines::plain(&racks).map_err(|e| e.to_string())?;
    let mut rows = Vec::new();
    for (number, [srtf, srsf]) in (1..).zip(PUBLISHED) {
        let trace = super::trace(&folder.join(format!("muri/trace{number}.csv")), Format::Muri)?;
        let jobs: Vec<Job> = trace.jobs.iter().filter_map(job).collect();
        for (start_cost, note) in [(StartCost::AtEveryEvent, ""), (StartCost::AtStart, ", started once")] {
            let settings = Settings { start_cost, ..Settings::default() };
            let replay =
                Replay { cluster: &machines, jobs: &jobs, progress: &Recorded, settings, node_events: &[] };
            let setting = format!("trace {number}{note}");
            rows.push(row(&replay, setting.clone(), "srtf", srtf, repack(Srtf))?);
            rows.push(row(&replay, setting, "srsf", srsf, repack(Srsf))?);
        }
    }
    Ok(rows)
}

fn repack<O: Order + 'static>(order: O) -> Box<dyn Scheduler> {
    Box::new(Ordered::new(order, Preemption::Repack, Packing::WholeFirst))
}

fn row(
    replay: &Replay<'_>,
    setting: String,
    policy: &'static str,
    published: f64,
    mut scheduler: Box<dyn Scheduler>,
) -> Result<Row, String> {
    let outcome = replay.run(scheduler.as_mut()).map_err(|e| e.to_string())?;
    let ours = Metrics::of(&outcome).completion_s.mean;
    Ok(Row::new(setting, policy, "mean JCT, s", published, ours))
}
