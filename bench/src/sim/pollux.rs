//! Pollux's workloads under Tiresias and Optimus: mean completion times.
//!
//! Settings of the published runs, from `simulator/` of petuum/adaptdl (`osdi21-artifact`): 16 nodes of 4 T4; everything
//! is decided once a minute (`simulator.py`, `--interval`), and what falls idle in between stays so; each start and each
//! change of place takes 30 s (`reallocate`); devices are taken from the emptiest nodes. Tiresias has two queues, which
//! jobs leave after 16 GPU-hours, and promotes nobody (`tiresias.py`); it runs each job with the devices and the batch size
//! that its user tuned. Optimus keeps the batch size and chooses the devices; NCF has one.

use std::collections::BTreeMap;
use std::path::Path;

use phalanx_sim::policies::{Optimus, Ordered, Packing, Preemption, Tiresias};
use phalanx_sim::replay::metrics::Metrics;
use phalanx_sim::replay::pollux::{Application, Tables, Trained};
use phalanx_sim::replay::{Job, Machines, Rack, Replay, Scheduler, Settings};
use phalanx_sim::trace::Format;

use super::Row;

const ROUND_MS: u64 = 60_000;
const RESTART_MS: u64 = 30_000;
const QUEUE_GPU_MS: u64 = 16 * 3_600_000;
const WORKLOADS: std::ops::RangeInclusive<u32> = 1..=8;
const APPLICATIONS: [&str; 6] = ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"];
/// `applications.py`: more samples of this one do not fit on a device.
const YOLO_SAMPLES_MAX: u32 = 8;
/// `results-jobload/*/summary.json`: load, the folder of its workloads, Tiresias and Optimus, in s.
const PUBLISHED: [(&str, &str, f64, f64); 4] = [
    ("0.5", "workloads-0.5", 2_091.0, 2_395.0),
    ("1", "workloads", 4_038.0, 5_682.0),
    ("1.5", "workloads-1.5", 6_182.0, 7_235.0),
    ("2", "workloads-2.0", 10_040.0, 9_721.0),
];

fn application(folder: &Path, name: &str) -> Result<Application, String> {
    let folder = folder.join("traces").join(name);
    let (placements, scalability) =
        (super::read(&folder.join("placements.csv"))?, super::read(&folder.join("scalability.csv"))?);
    let mut validations = BTreeMap::new();
    let wrong = |e: std::io::Error| format!("{}: {e}", folder.display());
    for entry in std::fs::read_dir(&folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if let Some(Ok(batch)) = stem.strip_prefix("validation-").map(str::parse) {
            validations.insert(batch, super::read(&path)?);
        }
    }
    let local_max = (name == "yolov3").then_some(YOLO_SAMPLES_MAX);
    Application::read(&Tables { placements: &placements, scalability: &scalability, validations, local_max })
        .map_err(|e| format!("{name}: {e}"))
}

pub(super) fn measure(folder: &Path) -> Result<Vec<Row>, String> {
    let folder = folder.join("pollux");
    let applications: BTreeMap<String, Application> = APPLICATIONS
        .iter()
        .map(|name| Ok(((*name).to_owned(), application(&folder, name)?)))
        .collect::<Result<_, String>>()?;
    let machines =
        Machines::plain(&[Rack { model: "t4", nodes: 16, gpus_per_node: 4 }]).map_err(|e| e.to_string())?;
    let mut rows = Vec::new();
    for (load, workloads, tiresias, optimus) in PUBLISHED {
        for (policy, published) in [("tiresias", tiresias), ("optimus", optimus)] {
            let mut sum = 0.0;
            for number in WORKLOADS {
                let file = folder.join(workloads).join(format!("workload-{number}.csv"));
                sum += mean_s(&file, &applications, &machines, policy)?;
            }
            let ours = sum / f64::from(WORKLOADS.end() - WORKLOADS.start() + 1);
            rows.push(Row::new(format!("load {load}"), policy, "mean JCT, s", published, ours));
        }
    }
    Ok(rows)
}

fn mean_s(
    file: &Path,
    applications: &BTreeMap<String, Application>,
    machines: &Machines,
    policy: &str,
) -> Result<f64, String> {
    let trace = super::trace(file, Format::Pollux)?;
    let mut progress = Trained::new(applications.clone());
    let mut jobs: Vec<Job> = Vec::new();
    for of in &trace.jobs {
        let job =
            progress.add(of).ok_or_else(|| format!("{}: row {} was not measured", file.display(), of.row))?;
        // What its user tuned, for Tiresias; one device is the most that NCF has, whatever its batch.
        let gpus_max = if of.gpus == 1 { 1 } else { job.gpus_max };
        let is_fixed = policy == "tiresias";
        jobs.push(Job {
            gpus_max: if is_fixed { of.gpus } else { gpus_max },
            gpus_min: if is_fixed { of.gpus } else { 1 },
            ..job
        });
    }
    let settings = Settings { start_ms: RESTART_MS, ..Settings::default() };
    let replay = Replay { cluster: machines, jobs: &jobs, progress: &progress, settings, node_events: &[] };
    let mut scheduler: Box<dyn Scheduler> = if policy == "tiresias" {
        let order = Tiresias::new(vec![QUEUE_GPU_MS], None);
        Box::new(Ordered::new(order, Preemption::ByCount, Packing::Emptiest).only_every(ROUND_MS))
    } else {
        Box::new(Optimus::new(ROUND_MS, Packing::Emptiest))
    };
    let outcome = replay.run(scheduler.as_mut()).map_err(|e| e.to_string())?;
    Ok(Metrics::of(&outcome).completion_s.mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The workload of the authors' testbed: `simulator/README.md` has 3,469.69 and 5,301.88 s.
    #[test]
    fn the_sixth_workload_takes_as_long_as_published() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/traces/pollux");
        if !folder.is_dir() {
            eprintln!("skipped: {} is not there", folder.display());
            return;
        }
        let of = |name: &&str| ((*name).to_owned(), application(&folder, name).unwrap());
        let applications = APPLICATIONS.iter().map(of).collect();
        let machines = Machines::plain(&[Rack { model: "t4", nodes: 16, gpus_per_node: 4 }]).unwrap();
        let file = folder.join("workloads/workload-6.csv");
        for (policy, published) in [("tiresias", 3_469.69), ("optimus", 5_301.88)] {
            let ours = mean_s(&file, &applications, &machines, policy).unwrap();
            assert!(
                (ours / published - 1.0).abs() < 0.05,
                "{policy}: {ours} s, and {published} s were published"
            );
        }
    }
}
