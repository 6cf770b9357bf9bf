//! Muri's four traces under SRTF and SRSF: mean completion times.
//!
//! Settings of the published runs, from `simulator/` of Rivendile/Muri: 8 nodes of 8 GPUs; jobs as
//! [`muri::job`] has them; at every event all jobs are
//! placed anew in their order, whole on the first node that holds them (`switch.py`, `ms_yarn_alloc_res`); and at every
//! event each running job loses the time that its model takes to start (`run_sim.py`, `overhead_dict`). The last
//! charges a job for the arrivals of others; the rows of `started once` charge each start alone.

use std::path::Path;

use phalanx_sim::policies::{Order, Ordered, Packing, Preemption, Srsf, Srtf};
use phalanx_sim::replay::metrics::Metrics;
use phalanx_sim::replay::muri;
use phalanx_sim::replay::{Job, Machines, Rack, Recorded, Replay, Scheduler, Settings, StartCost};
use phalanx_sim::trace::Format;

use super::Row;

/// `simulator/draw_fig9-10.py`: SRTF and SRSF, by trace, in s.
const PUBLISHED: [[f64; 2]; 4] =
    [[1_370_603.0, 980_141.0], [2_665_607.0, 2_213_950.0], [193_082.0, 185_022.0], [581_983.0, 487_167.0]];
pub(super) fn measure(folder: &Path) -> Result<Vec<Row>, String> {
    let racks = [Rack { model: "gpu", nodes: 8, gpus_per_node: 8 }];
    let machines = Machines::plain(&racks).map_err(|e| e.to_string())?;
    let mut rows = Vec::new();
    for (number, [srtf, srsf]) in (1..).zip(PUBLISHED) {
        let trace = super::trace(&folder.join(format!("muri/trace{number}.csv")), Format::Muri)?;
        let jobs: Vec<Job> = trace.jobs.iter().filter_map(muri::job).collect();
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
